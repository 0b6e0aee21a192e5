"""Tiny configs of the instructed temporal latent bottleneck for the certificate."""

import random

from recollect.cores.instructed import InstructedTransformerConfig as Config
from recollect.cores.tlb import TemporalLatentBottleneckVariant as Variant

SIZES = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "chunk_len": 4, "num_slots": 3}

CONFIGS = [
    Config(**SIZES, words=2, word_dim=2),
    Config(**SIZES, num_layers=3, self_per_cross=2, words=1, word_dim=3),
    Config(**SIZES, feedback="none", words=3, word_dim=1),
    Config(**{**SIZES, "chunk_len": 1}, words=2, word_dim=1, details=Variant(initial_slots="sinusoid_every_chunk")),
    Config(**SIZES),
]


def sample(rng: random.Random) -> Config:
    """A random config of the whole space."""
    num_layers = rng.randint(1, 3)
    return Config(
        dim=rng.choice([6, 8]),
        num_layers=num_layers,
        num_heads=rng.choice([1, 2]),
        hidden_dim=rng.choice([None, 10]),
        dropout=rng.choice([0.0, 0.0, 0.1]),
        self_per_cross=rng.randint(1, num_layers),
        chunk_len=rng.randint(1, 6),
        num_slots=rng.randint(1, 4),
        feedback=rng.choice(["top_down", "none"]),
        words=rng.randint(0, 2),
        word_dim=rng.randint(1, 2),
        details=Variant(initial_slots=rng.choice(["learned", "sinusoid_once", "sinusoid_every_chunk"])),
    )
