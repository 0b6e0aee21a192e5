"""Tiny stacks of several cores for the certificate."""

import random

from recollect.cores.hybrid import HybridConfig

CONFIGS = [
    HybridConfig(dim=8, memory_len=3),
    HybridConfig(dim=8, layers=("hcam", "gru", "mamba2"), num_heads=2, hidden_dim=6, memory_len=15),
    HybridConfig(dim=8, layers=("tlb", "feedback-transformer", "rwkv7"), num_heads=2, hidden_dim=6, memory_len=4),
]
LAYERS = ("lstm", "gru", "causal-transformer", "transformer-xl", "hcam", "tlb", "feedback-transformer", "min-gru",
          "rg-lru", "mamba2", "mlstm", "gated-deltanet", "rwkv7", "memoryless", "long-short-transformer")  # fmt: skip


def sample(rng: random.Random) -> HybridConfig:
    layers = tuple(rng.choices(LAYERS, k=rng.randint(1, 3)))
    return HybridConfig(
        dim=rng.choice([4, 8]),
        layers=layers,
        num_heads=rng.choice([1, 2]),
        hidden_dim=rng.choice([None, 6]),
        memory_len=15 if {"hcam", "long-short-transformer"} & {*layers} else rng.randint(1, 5),  # a chunk or segment
    )
