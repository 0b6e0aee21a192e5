"""Tiny spatio-temporal cores for the certificate."""

import random

from recollect.cores.spatio_temporal.config import SpatioTemporalAttentionConfig

TINY = {
    "dim": 6,
    "map_dim": 5,
    "key_dim": 2,
    "num_heads": 2,
    "query_dim": 4,
    "answer_dim": 7,
    "memory_len": 3,
}

CONFIGS = [
    SpatioTemporalAttentionConfig(**TINY, query="one-shot", channels=1),  # one-shot: at places with wider inputs
    SpatioTemporalAttentionConfig(**TINY, grid=(1, 2)),
    SpatioTemporalAttentionConfig(**TINY | {"key_dim": 1, "map_dim": None}, query="one-shot", channels=3, num_layers=2),
    SpatioTemporalAttentionConfig(**TINY | {"map_dim": None}, channels=3, num_layers=2),
    SpatioTemporalAttentionConfig(**TINY | {"num_heads": 3}, query="one-shot", grid=(1, 3), channels=1),
    SpatioTemporalAttentionConfig(**TINY | {"num_heads": 3, "memory_len": 1}, grid=(2, 2), channels=1),
    SpatioTemporalAttentionConfig(**TINY, query="one-shot", channels=1, final_norm=True),
    SpatioTemporalAttentionConfig(**TINY, grid=(1, 2), final_norm=True),
]


def sample(rng: random.Random) -> SpatioTemporalAttentionConfig:
    """A random valid configuration, for inputs that may be no wider than the core."""
    heads, map_dim = rng.choice([1, 2, 3]), rng.choice([None, 2, 5])
    channels = rng.choice([1, 2]) if map_dim else 2
    return SpatioTemporalAttentionConfig(
        dim=heads * rng.choice([3, 4]) if heads > 1 else 8,
        grid=rng.choice([(1, 1), (1, 2), (1, 3)]),
        channels=channels,
        map_dim=map_dim,
        key_dim=1,
        num_heads=heads,
        query_dim=rng.randint(1, 6),
        answer_dim=rng.randint(1, 9),
        num_layers=rng.randint(1, 2),
        memory_len=rng.randint(1, 6),
        final_norm=rng.random() < 0.5,
    )
