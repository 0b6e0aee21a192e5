"""Bases of the configs of cores; importable without torch."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from recollect.config import CheckedConfig, Method, is_integer, require, with_check
from recollect.layers.config import Grid, require_map, require_map_of, require_sizes, require_transformer

if TYPE_CHECKING:
    from recollect.cores.contract import MemoryCore


def _require_width(config: CoreConfig, input_dim: int, *args: Any, **kwargs: Any) -> None:
    is_width = is_integer(input_dim) and input_dim >= 1
    require(is_width, "input_dim", input_dim, "give the width of one input, a whole number of at least 1")


def _with_methods_named(build: Method) -> Method:
    """Return ``build`` with an error for users where the class of the core lacks a method."""

    @functools.wraps(build)
    def named(*args: Any, **kwargs: Any) -> Any:
        try:
            return build(*args, **kwargs)
        except TypeError as error:
            if not str(error).startswith("Can't instantiate abstract class"):
                raise
            remedy = "define it; a core has initial_state, unroll and flops_per_step (docs: Write your own core)"
            raise ValueError(f"{error}: {remedy}") from None

    return cast(Method, named)


@dataclass(frozen=True, kw_only=True)
class CoreConfig(CheckedConfig, ABC):
    """Settings of a core: everything except the width of its input, which depends on the run."""

    paper: ClassVar[str] = "-"
    """Authors and year, for tables."""
    remembers: ClassVar[str] = "-"
    """Content of the state, in a few words, for tables."""
    reads_map: ClassVar[bool] = False
    """Whether an input is a map of image features followed by other features. At its default size such a core takes
    any vector as a map of one place; tables of tasks without images omit it (``GENERAL_CORES``)."""
    reads_words: ClassVar[bool] = False
    """Whether an input ends in the words of an instruction; tables of tasks without instructions omit it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The check is added here, so that a subclass cannot forget it.
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls):
            cls.build = with_check(_require_width, _with_methods_named(vars(cls)["build"]))  # type: ignore[method-assign]

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids beyond the paper, in a few words each, for tables."""
        return ()

    @property
    def output_feedback_dim(self) -> int:
        """Width of the core's own previous output at the end of its inputs; 0 if inputs do not have it.

        The output is the one that the acting agent had, so that a sequence need not be run step by step.
        """
        return 0

    def require_map_of(self, shape: tuple[int, int, int]) -> None:
        """Raise ``ValueError`` if this core reads a map of another shape (rows, columns, channels)."""
        return

    @property
    def reach(self) -> int | None:
        """Steps back that windows alone see: layers x window, without chunks and landmarks.

        None where a state is carried from step to step, so that only training limits the reach.
        """
        return None

    @abstractmethod
    def build(self, input_dim: int) -> MemoryCore[Any]:
        """Make the core for inputs of width ``input_dim`` (the width of one token, for cores that read tokens)."""


@dataclass(frozen=True, kw_only=True)
class WindowConfig(CoreConfig):
    """Settings shared by Transformers that see a window of past steps."""

    dim: int = 128
    """Width of the residual stream and of the output."""
    num_layers: int = 2
    """Layers of attention and feed-forward."""
    num_heads: int = 4
    """Attention heads; must divide dim."""
    hidden_dim: int | None = None
    """Width of the feed-forward layers; 4 * dim when None."""
    memory_len: int = 64
    """Steps that a step sees before itself, in every layer."""
    dropout: float = 0.0
    """On sub-layer outputs and the hidden layer, in training."""

    def __post_init__(self) -> None:
        require_transformer(self, "memory_len")

    @property
    def reach(self) -> int | None:
        """Steps back that the windows show: layers x window."""
        return self.num_layers * self.memory_len


@dataclass(frozen=True, kw_only=True)
class MapConfig(CoreConfig):
    """Settings shared by cores that read a map of image features."""

    reads_map: ClassVar[bool] = True

    dim: int = 256
    """Width of the output."""
    grid: Grid = (1, 1)
    """Rows and columns of the map."""
    channels: int | None = None
    """Channels c of the map; inputs after its y * x * c are other features. None: all inputs belong to the map."""

    def __post_init__(self) -> None:
        require_sizes(self, "dim")
        require_map(self.grid, self.channels)

    def require_map_of(self, shape: tuple[int, int, int]) -> None:
        """Raise ``ValueError`` unless ``grid`` and ``channels`` are those of a map of this shape."""
        require_map_of(self.grid, self.channels, shape)
