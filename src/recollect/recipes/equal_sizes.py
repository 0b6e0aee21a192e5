"""Configs of all cores with about equal numbers of parameters, so that tables compare memories and not sizes."""

from typing import Any

from recollect.config import lookup
from recollect.cores import CORES
from recollect.cores.config import CoreConfig

SIZES: dict[str, dict[str, Any]] = {
    "memoryless": {"dim": 112},
    "lstm": {"dim": 76},
    "gru": {"dim": 88},
    "causal-transformer": {"dim": 72, "hidden_dim": 144, "memory_len": 32},
    "transformer-xl": {"dim": 72, "memory_len": 32},
    "hcam": {"dim": 56, "hidden_dim": 112, "memory_len": 8, "chunk_len": 8, "num_chunks": 16, "top_k": 4},
    "tlb": {"dim": 48, "hidden_dim": 96, "self_per_cross": 1, "chunk_len": 8, "num_slots": 8},
    "ttm": {"dim": 88, "num_layers": 1, "num_tokens": 1, "num_slots": 8, "num_reads": 2, "learned_initial_state": True},
    "feedback-transformer": {"dim": 80, "hidden_dim": 160, "memory_len": 64},
    "recurrent-transformer": {
        "dim": 72,
        "num_tokens": 1,
        "num_slots": 4,
        "num_reads": 1,
        "learned_initial_state": True,
    },
    "long-short-transformer": {"memory_len": 16, "chunk_len": 8, "num_segments": 16},
    "min-gru": {"dim": 80},
    "mamba2": {"dim": 76, "hidden_dim": 0, "state_dim": 24},
    "hybrid": {"memory_len": 32},
}
"""Settings of each core besides two layers of width 64 and four heads."""


def equal_core(key: str, **fields: Any) -> CoreConfig:
    """Return the config of a core with 65 000 to 100 000 parameters, for inputs of width 64.

    Args:
        key: of any core.
        fields: other values, for the fields that this core has.
    """
    cls = lookup(CORES, key, "core")
    sizes = {"dim": 64, "num_layers": 2, "num_heads": 4, "hidden_dim": 128, **SIZES.get(key, {}), **fields}
    return cls(**{name: value for name, value in sizes.items() if name in cls.__dataclass_fields__})
