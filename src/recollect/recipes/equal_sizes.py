"""Configs of all cores with about equal numbers of parameters, so that tables compare memories and not sizes."""

from dataclasses import fields as fields_of
from dataclasses import replace
from functools import cache
from typing import Any

from recollect.cores.config import CoreConfig
from recollect.cores.find import find_core, sized_core

COMMON = {"dim": 64, "num_layers": 2, "num_heads": 4, "hidden_dim": 128}
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
"""Settings of each core that differ from the common ones, or are its own."""


MIDDLE = 82_500
"""Parameters that a core of somebody else is brought to, by its width."""


def equal_core(key: str, **fields: Any) -> CoreConfig:
    """Return the config of a core with 65 000 to 100 000 parameters, for inputs of width 64.

    Args:
        key: of any core; of ``package.module:Config`` the width ``dim`` is chosen, where the class has that field.
        fields: other values, for the fields that this core has.
    """
    if ":" in key:
        return _own_core(key)
    return sized_core(key, **{**COMMON, **SIZES.get(key, {}), **fields})


@cache
def _own_core(name: str) -> CoreConfig:
    """Return the config of a core that is not of this library, of about :data:`MIDDLE` parameters.

    A config is taken as it is. Of a class the common sizes are set, and the width ``dim`` that comes nearest.

    Raises:
        ValueError: the module cannot be imported, or no width up to 2048 can be built.
    """
    found = find_core(name)
    if isinstance(found, CoreConfig):
        return found
    known = {field.name for field in fields_of(found)}
    config = found(**{field: value for field, value in COMMON.items() if field in known})
    if "dim" not in known:
        return config
    counted = {}
    for dim in range(16, 2049, 8):
        try:
            candidate = replace(config, dim=dim)
            counted[candidate] = sum(p.numel() for p in candidate.build(64).parameters())
        except ValueError:  # a width that the class refuses, as one that heads do not divide
            continue
        if counted[candidate] > 2 * MIDDLE:
            break
    if not counted:
        raise ValueError(
            f"core={name!r}: no width dim from 16 to 2048 can be built: name a config with sizes of your own"
        )
    return min(counted, key=lambda candidate: abs(counted[candidate] - MIDDLE))
