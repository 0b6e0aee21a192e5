import random

from recollect.cores.linear import RWKV7Config

CONFIGS = [
    RWKV7Config(dim=8, num_heads=2),
    RWKV7Config(dim=6, num_layers=1, hidden_dim=0, num_heads=3, rank=2, chrono_steps=20),
    RWKV7Config(dim=4, num_layers=3, hidden_dim=7, num_heads=1, final_norm=False),
]


def sample(rng: random.Random) -> RWKV7Config:
    return RWKV7Config(
        dim=rng.choice([4, 8]),
        num_layers=rng.randint(1, 3),
        hidden_dim=rng.choice([None, 0, 6]),
        chrono_steps=rng.choice([None, 3, 100]),
        final_norm=rng.random() < 0.7,
        num_heads=rng.choice([1, 2, 4]),
        rank=rng.choice([None, 1, 3]),
    )
