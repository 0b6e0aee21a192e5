import random

from recollect.cores.linear import RGLRUConfig

CONFIGS = [
    RGLRUConfig(dim=8),
    RGLRUConfig(dim=6, num_layers=1, hidden_dim=0, num_heads=1, conv_len=2, chrono_steps=20),
    RGLRUConfig(dim=5, num_layers=3, state_dim=6, num_heads=3, conv_len=6, hidden_dim=7, final_norm=False),
]


def sample(rng: random.Random) -> RGLRUConfig:
    return RGLRUConfig(
        dim=rng.choice([4, 8]),
        num_layers=rng.randint(1, 3),
        hidden_dim=rng.choice([None, 0, 6]),
        chrono_steps=rng.choice([None, 3, 100]),
        final_norm=rng.random() < 0.7,
        state_dim=rng.choice([None, 4, 12]),
        num_heads=rng.choice([1, 2, 4]),
        conv_len=rng.randint(2, 5),
    )
