import random

from recollect.cores.linear import MinGRUConfig

CONFIGS = [
    MinGRUConfig(dim=8),
    MinGRUConfig(dim=5, num_layers=1, hidden_dim=0, state_dim=7, chrono_steps=20),
    MinGRUConfig(dim=6, num_layers=3, hidden_dim=9, final_norm=False),
]


def sample(rng: random.Random) -> MinGRUConfig:
    return MinGRUConfig(
        dim=rng.randint(1, 8),
        num_layers=rng.randint(1, 3),
        hidden_dim=rng.choice([None, 0, 6]),
        chrono_steps=rng.choice([None, 3, 100]),
        final_norm=rng.random() < 0.7,
        state_dim=rng.choice([None, 1, 5]),
    )
