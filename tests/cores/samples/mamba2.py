import random

from recollect.cores.linear import Mamba2Config

CONFIGS = [
    Mamba2Config(dim=8, num_heads=2, state_dim=5),
    Mamba2Config(dim=6, num_layers=1, num_heads=3, expand=1, state_dim=4, conv_len=2, chrono_steps=20),
    Mamba2Config(
        dim=4, num_layers=3, num_heads=4, state_dim=3, num_groups=2, conv_len=6, hidden_dim=5, final_norm=False
    ),
]


def sample(rng: random.Random) -> Mamba2Config:
    return Mamba2Config(
        dim=rng.choice([4, 8]),
        num_layers=rng.randint(1, 3),
        hidden_dim=rng.choice([None, 0, 6]),
        chrono_steps=rng.choice([None, 3, 100]),
        final_norm=rng.random() < 0.7,
        num_heads=rng.choice([2, 4]),
        expand=rng.randint(1, 2),
        state_dim=rng.randint(1, 6),
        num_groups=rng.choice([1, 2]),
        conv_len=rng.randint(2, 5),
    )
