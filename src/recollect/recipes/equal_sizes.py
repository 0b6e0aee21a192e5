"""Configs of all cores with about equal numbers of parameters, so that tables compare memories and not sizes."""

from dataclasses import MISSING
from dataclasses import fields as fields_of
from functools import cache
from typing import Any

from recollect.config import require
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
        ValueError: the module cannot be imported, a field of the class has no default, or no width up to 2048 can be
            built.
    """
    found = find_core(name)
    if isinstance(found, CoreConfig):
        return found
    known = {field.name: field for field in fields_of(found)}
    sizes = {name: value for name, value in COMMON.items() if name in known}
    needed = [name for name, field in known.items() if field.init and field.default is field.default_factory is MISSING]
    unset = [name for name in needed if name not in sizes]
    require(not unset, "core", name, f"give its fields defaults ({', '.join(unset)}), or name a config")
    if "dim" not in known:
        return found(**sizes)
    counted: dict[CoreConfig, int] = {}
    refusal: ValueError | None = None
    for dim in range(16, 2049, 8):
        try:
            candidate = found(**{**sizes, "dim": dim})
            counted[candidate] = sum(p.numel() for p in candidate.build(64).parameters())
        except ValueError as error:  # a width that the class refuses, as one that heads do not divide
            refusal = error
            continue
        if counted[candidate] > 2 * MIDDLE:
            break
    if not counted:
        raise ValueError(
            f"core={name!r}: no width dim from 16 to 2048 can be built ({refusal}): name a config with your own sizes"
        )
    return min(counted, key=lambda candidate: abs(counted[candidate] - MIDDLE))
