"""Small configurations of the Long-Short Transformer. The two-way form has no stream, so it is not here."""

import random

from recollect.cores.config import CoreConfig
from recollect.cores.long_short.config import LongShortTransformerConfig

CONFIGS: list[CoreConfig] = [
    LongShortTransformerConfig(dim=8, num_heads=2, memory_len=5, chunk_len=3, num_segments=2),
    LongShortTransformerConfig(dim=8, num_layers=1, num_heads=1, memory_len=0, chunk_len=1, num_landmarks=1),
    LongShortTransformerConfig(dim=12, num_heads=3, memory_len=7, chunk_len=4, num_landmarks=3, num_segments=1),
    LongShortTransformerConfig(
        dim=8, num_heads=2, hidden_dim=12, memory_len=3, chunk_len=4, num_segments=3, positions="none"
    ),
    LongShortTransformerConfig(
        dim=8, num_layers=3, num_heads=2, memory_len=4, chunk_len=2, num_landmarks=1, normalise_first=True
    ),
]


def sample(rng: random.Random) -> CoreConfig:
    """A random small configuration."""
    num_heads, chunk_len = rng.choice([1, 2, 4]), rng.randint(1, 6)
    return LongShortTransformerConfig(
        dim=num_heads * rng.choice([2, 4]),
        num_layers=rng.randint(1, 3),
        num_heads=num_heads,
        hidden_dim=rng.choice([None, 6]),
        memory_len=rng.randint(chunk_len - 1, 9),
        chunk_len=chunk_len,
        num_landmarks=rng.randint(1, 4),
        num_segments=rng.randint(1, 5),
        positions=rng.choice(["relative", "none"]),
        normalise_first=rng.random() < 0.5,
    )
