"""Settings of the linear recurrences; the equations are in the file of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.layers.config import require_sizes

if TYPE_CHECKING:
    from recollect.cores.linear.gated_deltanet import GatedDeltaNet
    from recollect.cores.linear.mamba2 import Mamba2
    from recollect.cores.linear.min_gru import MinGRU
    from recollect.cores.linear.mlstm import MLSTM
    from recollect.cores.linear.rg_lru import RGLRU
    from recollect.cores.linear.rwkv7 import RWKV7


@dataclass(frozen=True, kw_only=True)
class LinearConfig(CoreConfig):
    """Settings that all linear recurrences share."""

    dim: int = 128
    """Width of the residual stream and of the output."""
    num_layers: int = 2
    """Layers, each with its own memory."""
    hidden_dim: int | None = None
    """Width of the feed-forward of every layer; 0: none; None: as in the paper."""
    chrono_steps: int | None = None
    """Longest initial memory in steps: units or heads start with time constants from 2 to this number, evenly in
    logarithm. None: the paper's initial values."""
    final_norm: bool = True
    """Normalize the output."""

    paper_hidden: ClassVar[float] = 4
    """Width of the paper's feed-forward, in multiples of dim."""

    def __post_init__(self) -> None:
        require_sizes(self, "dim", "num_layers")
        hidden, steps = self.hidden_dim, self.chrono_steps
        require(
            hidden is None or hidden >= 0, "hidden_dim", hidden, "give a width, 0 for none, or None for the paper's"
        )
        require(steps is None or steps >= 3, "chrono_steps", steps, "give the longest lag in steps, 3 or more, or None")

    @property
    def feedforward_dim(self) -> int:
        """Width of the feed-forward, 0 for none."""
        return round(self.paper_hidden * self.dim) if self.hidden_dim is None else self.hidden_dim

    def require_heads(self, width: int, name: str = "dim") -> None:
        """Raise ``ValueError`` unless ``num_heads`` divides a width."""
        heads = getattr(self, "num_heads")  # noqa: B009  a field of most, not all, subclasses
        require(heads >= 1, "num_heads", heads, "give at least 1")
        require(width % heads == 0, "num_heads", heads, f"must divide {name}={width}")


@dataclass(frozen=True, kw_only=True)
class MinGRUConfig(LinearConfig):
    """Settings of :class:`MinGRU`."""

    paper: ClassVar[str] = "Feng et al. 2024"
    remembers: ClassVar[str] = "a vector per layer, averaged by gates"

    state_dim: int | None = None
    """Width of the recurrence; dim when None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.state_dim is None or self.state_dim >= 1, "state_dim", self.state_dim, "give at least 1, or None")

    def build(self, input_dim: int) -> MinGRU:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.linear.min_gru import MinGRU

        return MinGRU(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class RGLRUConfig(LinearConfig):
    """Settings of :class:`RGLRU`."""

    paper: ClassVar[str] = "De et al. 2024"
    remembers: ClassVar[str] = "a vector per layer that decays by gates"
    paper_hidden: ClassVar[float] = 3

    state_dim: int | None = None
    """Width of the recurrence; dim when None."""
    num_heads: int = 4
    """Blocks of the gates' block-diagonal weights; must divide the width of the recurrence."""
    conv_len: int = 4
    """Steps of the convolution before the recurrence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.state_dim is None or self.state_dim >= 1, "state_dim", self.state_dim, "give at least 1, or None")
        require(self.conv_len >= 2, "conv_len", self.conv_len, "give at least 2 steps")
        self.require_heads(self.state_dim or self.dim, "state_dim" if self.state_dim else "dim")

    def build(self, input_dim: int) -> RGLRU:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.linear.rg_lru import RGLRU

        return RGLRU(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNetConfig(LinearConfig):
    """Settings of :class:`GatedDeltaNet`."""

    paper: ClassVar[str] = "Yang et al. 2024"
    remembers: ClassVar[str] = "a matrix per head; a new value replaces the old one of its key"
    paper_hidden: ClassVar[float] = 8 / 3

    num_heads: int = 4
    """Heads, each with a matrix; must divide dim."""
    key_dim: int | None = None
    """Width of a head's keys and queries; dim / num_heads when None."""
    value_dim: int | None = None
    """Width of a head's values; key_dim when None."""
    conv_len: int = 4
    """Steps of the convolution of queries, keys and values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_heads(self.dim)
        require(self.key_dim is None or self.key_dim >= 1, "key_dim", self.key_dim, "give at least 2, or None")
        remedy = "give values of 2 or more numbers, or None: normalized, a single number is only a sign"
        require(self.value_dim is None or self.value_dim >= 2, "value_dim", self.value_dim, remedy)
        wide = self.head_sizes[0] >= 2
        remedy = "give keys of 2 or more numbers: scaled to length 1, a single number is only a sign"
        require(wide, *(("num_heads", self.num_heads) if self.key_dim is None else ("key_dim", self.key_dim)), remedy)
        require(self.conv_len >= 2, "conv_len", self.conv_len, "give at least 2 steps")

    @property
    def head_sizes(self) -> tuple[int, int]:
        """Widths of a head's keys and values."""
        keys = self.key_dim or self.dim // self.num_heads
        return keys, self.value_dim or keys

    def build(self, input_dim: int) -> GatedDeltaNet:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.linear.gated_deltanet import GatedDeltaNet

        return GatedDeltaNet(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class MLSTMConfig(LinearConfig):
    """Settings of :class:`MLSTM`."""

    paper: ClassVar[str] = "Beck et al. 2024"
    remembers: ClassVar[str] = "a matrix per head, with exponential gates"
    paper_hidden: ClassVar[float] = 8 / 3

    num_heads: int = 4
    """Heads, each with a matrix; must divide dim."""
    key_dim: int | None = None
    """Width of a head's keys and queries; half of dim / num_heads, at least 1, when None."""
    gate_cap: float = 15.0
    """Largest size of the gates before exp and sigmoid: cap * tanh(x / cap). It bounds time constants: with 5, those of
    ``chrono_steps`` start at 142 steps at most, with 15 at 2.8 million."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_heads(self.dim)
        require(self.key_dim is None or self.key_dim >= 1, "key_dim", self.key_dim, "give at least 1, or None")
        require(0 < self.gate_cap <= 40, "gate_cap", self.gate_cap, "give more than 0 and at most 40")

    @property
    def head_sizes(self) -> tuple[int, int]:
        """Widths of a head's keys and values."""
        values = self.dim // self.num_heads
        return self.key_dim or max(1, values // 2), values

    def build(self, input_dim: int) -> MLSTM:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.linear.mlstm import MLSTM

        return MLSTM(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class Mamba2Config(LinearConfig):
    """Settings of :class:`Mamba2`."""

    paper: ClassVar[str] = "Dao & Gu 2024"
    remembers: ClassVar[str] = "a matrix per head that decays"
    paper_hidden: ClassVar[float] = 0

    num_heads: int = 4
    """Heads, each with a matrix and a decay; must divide expand * dim."""
    expand: int = 2
    """Width of all heads together, in multiples of dim."""
    state_dim: int = 32
    """Width of B and C, the rows of every matrix."""
    num_groups: int = 1
    """Groups of heads that share B and C; must divide num_heads."""
    conv_len: int = 4
    """Steps of the convolution of x, B and C."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "expand", "state_dim", "num_groups")
        self.require_heads(self.expand * self.dim, "expand * dim")
        even = self.num_heads % self.num_groups == 0
        require(even, "num_groups", self.num_groups, f"must divide num_heads={self.num_heads}")
        require(self.conv_len >= 2, "conv_len", self.conv_len, "give at least 2 steps")

    def build(self, input_dim: int) -> Mamba2:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.linear.mamba2 import Mamba2

        return Mamba2(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class RWKV7Config(LinearConfig):
    """Settings of :class:`RWKV7`."""

    paper: ClassVar[str] = "Peng et al. 2025"
    remembers: ClassVar[str] = "a matrix per head; keys choose what is erased, and every row decays"

    num_heads: int = 4
    """Heads, each with a matrix; must divide dim."""
    rank: int | None = None
    """Rank of the maps to decay, learning rate, value mix and output gate; max(8, dim / 4) when None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_heads(self.dim)
        require(self.rank is None or self.rank >= 1, "rank", self.rank, "give at least 1, or None")

    def build(self, input_dim: int) -> RWKV7:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.linear.rwkv7 import RWKV7

        return RWKV7(self, input_dim)
