import random

from recollect.cores.memoryless import MemorylessConfig

CONFIGS = [
    MemorylessConfig(dim=8),
    MemorylessConfig(dim=8, num_layers=1, hidden_dim=5, activation="relu"),
    MemorylessConfig(dim=9, num_layers=3, dropout=0.1),
]


def sample(rng: random.Random) -> MemorylessConfig:
    return MemorylessConfig(
        dim=rng.randint(4, 12),  # a layer norm over two numbers is a sign, and no rounding is small for it
        num_layers=rng.randint(1, 4),
        hidden_dim=rng.choice([None, 1, 16]),
        dropout=rng.choice([0.0, 0.3]),
        activation=rng.choice(["gelu", "relu"]),
    )
