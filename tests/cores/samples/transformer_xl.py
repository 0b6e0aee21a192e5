"""Tiny Transformer-XL cores for the certificate."""

import random

from recollect.cores.transformer_xl.config import TransformerXLConfig

TINY = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "memory_len": 3}

CONFIGS = [
    TransformerXLConfig(**TINY),
    TransformerXLConfig(**TINY, gate="gru", relu_outputs=True, activation="relu"),
    TransformerXLConfig(**TINY, positions="learned", final_norm=True, num_layers=3),
    TransformerXLConfig(**TINY, positions="none", activation="gelu_tanh"),
    TransformerXLConfig(**TINY, top_k=2),
    TransformerXLConfig(**TINY, top_k=9, positions="none", gate="gru"),
    TransformerXLConfig(**TINY | {"memory_len": 1}, num_layers=1, top_k=1, positions="learned"),
    TransformerXLConfig(dim=9, num_heads=3, memory_len=5, num_layers=1, relu_outputs=True, dropout=0.1),
]


def sample(rng: random.Random) -> TransformerXLConfig:
    """A random valid configuration."""
    heads = rng.choice([1, 2, 3])
    return TransformerXLConfig(
        dim=heads * rng.choice([3, 4]),
        num_layers=rng.randint(1, 3),
        num_heads=heads,
        hidden_dim=rng.choice([None, 5]),
        memory_len=rng.randint(1, 9),
        gate=rng.choice(["residual", "gru"]),
        relu_outputs=rng.random() < 0.5,
        positions=rng.choice(["relative", "learned", "none"]),
        top_k=rng.choice([None, None, 1, 3, 20]),
        activation=rng.choice(["relu", "gelu", "gelu_tanh"]),
        final_norm=rng.random() < 0.5,
        dropout=rng.choice([0.0, 0.2]),
    )
