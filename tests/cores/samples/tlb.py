"""Tiny configs of the temporal latent bottleneck for the certificate."""

import random

from recollect.cores.tlb import TemporalLatentBottleneckConfig as Config
from recollect.cores.tlb import TemporalLatentBottleneckVariant as Variant

SIZES = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "chunk_len": 4, "num_slots": 3}

CONFIGS = [
    Config(**SIZES),
    Config(**SIZES, num_layers=3, self_per_cross=1, positions="learned"),
    Config(**SIZES, num_layers=3, feedback="per_layer", positions="none"),
    Config(**SIZES, feedback="none", details=Variant(initial_slots="sinusoid_once", final_norm=False)),
    Config(**SIZES, details=Variant.released(detach_every=2)),
    Config(**{**SIZES, "chunk_len": 1}, num_layers=4, details=Variant(cross_placement="alg1_literal")),
    Config(
        **{**SIZES, "chunk_len": 7, "num_slots": 1},
        num_layers=3,
        self_per_cross=1,
        feedback="per_layer",
        dropout=0.1,
        details=Variant(
            cross_placement="alg1_literal",
            value_norm="separate",
            head_dim=3,
            attention_dropout=0.2,
            activation="relu",
            norm_eps=1e-5,
            cross_feedforward=False,
            detach_every=1,
        ),
    ),
]


def sample(rng: random.Random) -> Config:
    """A random config of the whole space (streams only: causal chunks)."""
    num_layers = rng.randint(1, 4)
    initial = rng.choice(["learned", "sinusoid_once", "sinusoid_every_chunk"])
    always = initial == "sinusoid_every_chunk" and rng.random() < 0.5
    placement = rng.choice(["after_r", "alg1_literal"])
    return Config(
        dim=rng.choice([6, 8]),
        num_layers=num_layers,
        num_heads=rng.choice([1, 2]),
        hidden_dim=rng.choice([None, 10]),
        dropout=rng.choice([0.0, 0.0, 0.0, 0.1]),
        self_per_cross=rng.randint(1, num_layers),
        chunk_len=rng.randint(1, 6),
        num_slots=rng.randint(1, 4),
        positions=rng.choice(["sinusoid", "learned", "none"]),
        feedback=rng.choice(["top_down", "per_layer", "none"]),
        details=Variant(
            initial_slots=initial,
            cross_placement=placement,
            value_norm=rng.choice(["shared", "separate"]),
            head_dim=rng.choice([None, 3]),
            attention_dropout=rng.choice([None, None, None, 0.2]),
            activation=rng.choice(["relu", "gelu", "gelu_tanh"]),
            norm_eps=rng.choice([1e-5, 1e-6]),
            cross_feedforward=rng.random() < 0.7,
            final_norm=rng.random() < 0.5,
            empty_chunk="add_slots" if always else "keep",
            detach_every=rng.choice([None, 1, 2]),
        ),
    )
