import random

from recollect.cores.linear import GatedDeltaNetConfig

CONFIGS = [
    GatedDeltaNetConfig(dim=8, num_heads=2),
    GatedDeltaNetConfig(dim=6, num_layers=1, hidden_dim=0, num_heads=3, value_dim=4, conv_len=2, chrono_steps=20),
    GatedDeltaNetConfig(dim=4, num_layers=3, hidden_dim=7, num_heads=1, key_dim=5, conv_len=6, final_norm=False),
]


def sample(rng: random.Random) -> GatedDeltaNetConfig:
    dim = rng.choice([4, 8])
    return GatedDeltaNetConfig(
        dim=dim,
        num_layers=rng.randint(1, 3),
        hidden_dim=rng.choice([None, 0, 6]),
        chrono_steps=rng.choice([None, 3, 100]),
        final_norm=rng.random() < 0.7,
        num_heads=rng.choice([1, 2, dim // 2]),
        key_dim=rng.choice([None, 2, 5]),
        value_dim=rng.choice([None, 2, 6]),
        conv_len=rng.randint(2, 5),
    )
