"""Tiny TimeSformers for the certificate."""

import random

from recollect.cores.timesformer.config import TimeSformerConfig

TINY = {"dim": 7, "token_dim": 4, "num_heads": 2, "hidden_dim": 5, "memory_len": 3}

CONFIGS = [
    TimeSformerConfig(**TINY, grid=(1, 2)),
    TimeSformerConfig(**TINY | {"token_dim": 3, "num_heads": 3}, grid=(2, 1), channels=3, num_layers=2),
    TimeSformerConfig(**TINY | {"memory_len": 1}, grid=(2, 2), channels=1, num_layers=2, time_rows=4),
    TimeSformerConfig(**TINY, attention="joint"),
    TimeSformerConfig(**TINY | {"hidden_dim": None}, attention="joint", grid=(2, 2), channels=2, num_layers=2),
]


def sample(rng: random.Random) -> TimeSformerConfig:
    """A random valid configuration."""
    heads, memory_len = rng.choice([1, 2, 3]), rng.randint(1, 6)
    return TimeSformerConfig(
        dim=rng.randint(8, 10),  # of the inputs too, and they hold the map
        grid=rng.choice([(2, 2), (1, 4), (2, 3)]),
        channels=1,
        token_dim=heads * rng.choice([2, 3]),
        attention=rng.choice(["divided", "joint"]),
        num_layers=rng.randint(1, 3),
        num_heads=heads,
        hidden_dim=rng.choice([None, 5]),
        memory_len=memory_len,
        time_rows=rng.choice([None, memory_len + 1, memory_len + 3]),
    )
