"""Settings of the hybrid stack; its equations are in ``core.py``."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recollect.config import lookup, require
from recollect.cores.config import CoreConfig
from recollect.layers.config import require_sizes

if TYPE_CHECKING:
    from recollect.cores.hybrid.core import Hybrid

ONE_LAYER = {"num_layers": 1, "self_per_cross": 1}
"""Settings of every core of the stack that has these fields."""


@dataclass(frozen=True, kw_only=True)
class HybridConfig(CoreConfig):
    """Settings of :class:`Hybrid`."""

    paper: ClassVar[str] = "as De et al. 2024, Lieber et al. 2024"
    remembers: ClassVar[str] = "what each of its layers remembers"

    dim: int = 128
    """Width of the residual stream, of every layer and of the output."""
    layers: tuple[str, ...] = ("gated-deltanet", "transformer-xl")
    """Keys of cores from the first layer to the last, each with one layer of its own."""
    num_heads: int = 4
    """Heads of the layers that have heads."""
    hidden_dim: int | None = None
    """Width of the feed-forward of the layers that have one; each core's own default when None."""
    memory_len: int = 64
    """Window of the layers that have one, in steps."""

    def __post_init__(self) -> None:
        require_sizes(self, "dim")
        require(len(self.layers) > 0, "layers", self.layers, "name at least one core")
        _ = self.parts  # checks the others

    @property
    def parts(self) -> tuple[CoreConfig, ...]:
        """Configs of the layers.

        Raises:
            ValueError: an unknown core, one that a layer cannot be, or a size that does not fit it.
        """
        return tuple(self._part(index, key) for index, key in enumerate(self.layers))

    def _part(self, index: int, key: str) -> CoreConfig:
        # The table imports this file.
        cls = lookup(importlib.import_module("recollect.cores").CORES, key, f"core in layers[{index}]")
        fields = cls.__dataclass_fields__
        require(cls is not HybridConfig, f"layers[{index}]", key, "a layer cannot be a hybrid; name its layers instead")
        one = "num_tokens" not in fields
        require(one, f"layers[{index}]", key, "it reads several tokens a step; name a core that reads one vector")
        sizes = {name: getattr(self, name) for name in ("num_heads", "hidden_dim", "memory_len")} | ONE_LAYER
        try:
            return cls(dim=self.dim, **{name: size for name, size in sizes.items() if name in fields})
        except ValueError as error:
            raise ValueError(f"layers[{index}]={key!r} of width dim={self.dim}: {error}") from None

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids that the configs of the layers offer."""
        return tuple(dict.fromkeys(aid for part in self.parts for aid in part.training_aids))

    @property
    def reach(self) -> int | None:
        """Sum over the layers; None where one of them carries a state from step to step."""
        reaches = [part.reach for part in self.parts]
        return None if None in reaches else sum(reach or 0 for reach in reaches)

    def build(self, input_dim: int) -> Hybrid:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.hybrid.core import Hybrid

        return Hybrid(self, input_dim)
