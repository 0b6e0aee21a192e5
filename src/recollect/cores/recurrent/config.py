"""Settings of LSTM and GRU; their equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recollect.config import require
from recollect.cores.config import CoreConfig

if TYPE_CHECKING:
    from recollect.cores.recurrent.core import GRU, LSTM


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(CoreConfig):
    """Settings that LSTM and GRU share."""

    dim: int = 128
    """Width of every layer and of the output."""
    num_layers: int = 2
    """Layers, each with its own memory."""
    dropout: float = 0.0
    """Dropout between layers, in training."""
    learned_initial_state: bool = False
    """Start every episode with a trained state instead of zeros."""
    forget_bias: float = 0.0
    """Added to the initial bias of the gate that keeps the memory (forget gate of an LSTM, update gate of a GRU). 0 is
    PyTorch's value; 1 is that of TensorFlow's and Haiku's LSTM."""
    chrono_steps: int | None = None
    """Longest initial time constant in steps; that of each unit is drawn below it (chrono initialization). None:
    ``forget_bias`` is used."""
    state_noise: float = 0.0
    """Standard deviation of normal noise on the memory, in training, so that learned memories last much longer."""
    gate_stretch: float = 0.0
    """Margin by which the gates of the memory (f and i of an LSTM, z of a GRU) exceed [0, 1] before they are clipped to
    it. 0 is a plain sigmoid, which never reaches 0 or 1; with 0.1 a memory can be kept for ever, bit for bit."""

    def __post_init__(self) -> None:
        require(self.dim > 0, "dim", self.dim, "give a positive width")
        require(self.num_layers > 0, "num_layers", self.num_layers, "give at least one layer")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")
        steps = self.chrono_steps
        require(steps is None or steps > 2, "chrono_steps", steps, "give the longest lag in steps, 3 or more, or None")
        both = "chrono_steps sets the initial bias: omit forget_bias"
        require(steps is None or not self.forget_bias, "forget_bias", self.forget_bias, both)
        require(self.gate_stretch >= 0, "gate_stretch", self.gate_stretch, "give a margin as 0.1, or 0 for none")
        require(self.state_noise >= 0, "state_noise", self.state_noise, "give a deviation, or 0 for no noise")


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """Settings of :class:`LSTM`."""

    paper: ClassVar[str] = "Hochreiter & Schmidhuber 1997"
    remembers: ClassVar[str] = "a vector per layer"

    def build(self, input_dim: int) -> LSTM:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.recurrent.core import LSTM

        return LSTM(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """Settings of :class:`GRU`."""

    paper: ClassVar[str] = "Cho et al. 2014"
    remembers: ClassVar[str] = "a vector per layer"

    def build(self, input_dim: int) -> GRU:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.recurrent.core import GRU

        return GRU(self, input_dim)
