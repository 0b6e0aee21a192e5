import random

from recollect.cores.linear import MLSTMConfig

CONFIGS = [
    MLSTMConfig(dim=8, num_heads=2),
    MLSTMConfig(dim=6, num_layers=1, hidden_dim=0, num_heads=3, key_dim=4, chrono_steps=20),
    MLSTMConfig(dim=4, num_layers=3, hidden_dim=7, num_heads=1, gate_cap=3.0, final_norm=False),
]


def sample(rng: random.Random) -> MLSTMConfig:
    return MLSTMConfig(
        dim=rng.choice([4, 8]),
        num_layers=rng.randint(1, 3),
        hidden_dim=rng.choice([None, 0, 6]),
        chrono_steps=rng.choice([None, 3, 100]),
        final_norm=rng.random() < 0.7,
        num_heads=rng.choice([1, 2]),
        key_dim=rng.choice([None, 1, 5]),
        gate_cap=rng.choice([2.0, 15.0, 40.0]),
    )
