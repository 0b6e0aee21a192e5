"""Tiny causal Transformers for the certificate."""

import random

from recollect.cores.causal_transformer.config import CausalTransformerConfig as Config
from recollect.cores.config import CoreConfig

TINY = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "memory_len": 3}

CONFIGS: list[CoreConfig] = [
    Config(**TINY),
    Config(**TINY, positions="bias", activation="relu", num_layers=3),
    Config(**TINY, positions="none", final_norm=False),
    Config(**TINY | {"memory_len": 1}, num_layers=1, activation="gelu_tanh"),
    Config(dim=9, num_heads=3, memory_len=5, num_layers=1, positions="bias", dropout=0.1),
]


def sample(rng: random.Random) -> CoreConfig:
    """A random valid configuration."""
    heads = rng.choice([1, 2, 3])
    return Config(
        dim=heads * rng.choice([2, 4]),
        num_layers=rng.randint(1, 3),
        num_heads=heads,
        hidden_dim=rng.choice([None, 5]),
        memory_len=rng.randint(1, 9),
        positions=rng.choice(["rotary", "bias", "none"]),
        activation=rng.choice(["relu", "gelu", "gelu_tanh"]),
        final_norm=rng.random() < 0.5,
        dropout=rng.choice([0.0, 0.2]),
    )
