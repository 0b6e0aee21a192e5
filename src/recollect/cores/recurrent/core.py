"""LSTM and GRU, the classics, with resets inside the call at full speed.

LSTM    i, f, g, o = W x_t + b + U h_{t-1} + e     then sigmoid for i, f, o and tanh for g
        c_t = f * c_{t-1} + i * g
        h_t = o * tanh(c_t)

GRU     r, z = sigmoid(W x_t + b + U h_{t-1} + e)  (their rows)
        n    = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + e_n))
        h_t  = (1 - z) * n + z * h_{t-1}

At a step with ``is_first`` the incoming (h, c) is the initial state: zeros, or learned. Layer l reads h_t of
layer l - 1; the h_t of the last layer is the output.

Papers: Hochreiter & Schmidhuber (1997) with the forget gate of Gers et al. (2000); Cho et al. (2014), equations
5-8, in the variant with the reset gate behind the product.

Differs: as in ``nn.LSTM`` and ``nn.GRU``: no peepholes, two biases where one would do, dropout between layers.
``core.cells`` has their names, shapes and start values, so that ``load_state_dict`` moves weights both ways.

Why it is fast: ``layers/recurrence.py`` runs a layer over all steps with one product per step; a stream keeps the
input and every h in one buffer, so that a layer's step is one product with its weights joined.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import CoreConfig, MemoryCore, StateT
from recollect.cores.stream import Stream
from recollect.ops import recurrent_scans as recurrence
from recollect.ops.packed_linear import PackedLinear
from recollect.state import clone


class LSTMState(NamedTuple):
    """What an LSTM remembers."""

    h: Tensor  # b l d
    c: Tensor  # b l d


class GRUState(NamedTuple):
    """What a GRU remembers."""

    h: Tensor  # b l d


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(CoreConfig):
    """Settings that LSTM and GRU share."""

    dim: int = 128
    """Width of every layer and of the output."""
    num_layers: int = 2
    """Layers, each with a memory of its own."""
    dropout: float = 0.0
    """Probability with which an output of a layer is dropped on its way to the next layer, in training."""
    learned_initial_state: bool = False
    """Start every episode from a trained state instead of zeros."""

    def __post_init__(self) -> None:
        require(self.dim > 0, "dim", self.dim, "give a positive width")
        require(self.num_layers > 0, "num_layers", self.num_layers, "give at least one layer")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """Settings of :class:`LSTM`."""

    paper: ClassVar[str] = "Hochreiter & Schmidhuber 1997"
    remembers: ClassVar[str] = "a vector per layer"

    def build(self, input_dim: int) -> "LSTM":
        """Make the core for inputs of width ``input_dim``."""
        return LSTM(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """Settings of :class:`GRU`."""

    paper: ClassVar[str] = "Cho et al. 2014"
    remembers: ClassVar[str] = "a vector per layer"

    def build(self, input_dim: int) -> "GRU":
        """Make the core for inputs of width ``input_dim``."""
        return GRU(self, input_dim)


class Cells(nn.Module):
    """The weights of ``nn.LSTM`` or ``nn.GRU``, which themselves cannot reset inside a call and refuse to be compiled.

    Args:
        input_dim: width of the inputs.
        dim: d, width of a layer.
        num_layers: layers.
        num_gates: k, 4 for an LSTM and 3 for a GRU.
    """

    def __init__(self, input_dim: int, dim: int, num_layers: int, num_gates: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        for layer in range(num_layers):
            width = dim if layer else input_dim
            shapes = {"weight_ih": (width,), "weight_hh": (dim,), "bias_ih": (), "bias_hh": ()}
            for name, shape in shapes.items():
                start = torch.empty(num_gates * dim, *shape).uniform_(-(dim**-0.5), dim**-0.5)
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(start))

    def layer(self, index: int) -> list[Tensor]:
        """W ``[k d, i]``, U ``[k d, d]``, b ``[k d]`` and e ``[k d]`` of one layer."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return [self.get_parameter(f"{name}_l{index}") for name in names]


class Recurrent(MemoryCore[StateT]):
    """What LSTM and GRU share: layers, initial state and the way through them.

    Args:
        config: settings.
        input_dim: width of the inputs.
        num_gates: 4 for an LSTM and 3 for a GRU.
        state_type: NamedTuple with one leaf ``[b, l, d]`` per remembered vector.
    """

    def __init__(self, config: RecurrentConfig, input_dim: int, num_gates: int, state_type: type[StateT]) -> None:
        super().__init__()
        self.config = config
        self.cells = Cells(input_dim, config.dim, config.num_layers, num_gates)
        self.state_type = state_type
        self.input_shape = (input_dim,)
        self.output_shape = (config.dim,)
        self.initial = nn.ParameterDict()
        if config.learned_initial_state:
            for name in state_type._fields:  # type: ignore[attr-defined]
                self.initial[name] = nn.Parameter(torch.zeros(config.num_layers, config.dim))

    @abstractmethod
    def scan(
        self, x: Tensor, weights: list[Tensor], memory: list[Tensor], fresh: list[Tensor], first: Tensor
    ) -> tuple[Tensor, ...]:
        """One layer over all steps: :func:`recollect.ops.recurrent_scans.lstm` or ``gru``."""

    @abstractmethod
    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """A function that makes one streamed step of one layer, in place.

        ``found`` ``[b, i + d]`` holds the layer's input and, as the same storage, its own h; ``memory`` is ``[b, d]``
        each.
        """

    def stream(self, batch_size: int) -> "RecurrentStream":
        """A live memory that is changed in place."""
        return RecurrentStream(self, batch_size)

    def initial_state(self, batch_size: int) -> StateT:
        """Zeros, or the learned start of every layer."""
        shape = (batch_size, self.config.num_layers, self.config.dim)
        if self.config.learned_initial_state:
            return self.state_type._make(leaf.expand(shape) for leaf in self.initial.values())  # type: ignore[attr-defined]
        return self.state_type._make(self.zeros(*shape) for _ in self.state_type._fields)  # type: ignore[attr-defined]

    def unroll(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Layer by layer, each over all steps."""
        first = is_first.t()[..., None]  # t b 1
        fresh = self.initial_state(is_first.shape[0])
        device = inputs.device.type
        autocast = torch.is_autocast_enabled(device)
        narrow = torch.get_autocast_dtype(device) if autocast else inputs.dtype
        x, memories = inputs.transpose(0, 1).to(narrow), []
        # Everything below casts for itself: products in the narrow dtype, memory and gates in the dtype of the state.
        with torch.autocast(device, enabled=False):
            for layer in range(self.config.num_layers):
                if layer:
                    x = F.dropout(x, self.config.dropout, self.training)
                weights = [weight.to(narrow) for weight in self.cells.layer(layer)]
                memory = [leaf[:, layer] for leaf in state]
                x, *memory = self.scan(x, weights, memory, [leaf[:, layer] for leaf in fresh], first)
                memories.append(memory)
        leaves = [torch.stack(leaf, 1) for leaf in zip(*memories, strict=True)]
        return x.transpose(0, 1), self.state_type._make(leaves)  # type: ignore[attr-defined]

    def flops_per_step(self) -> int:
        """``2 k d (i + d)`` for the first layer and ``2 k d (2 d)`` for the others; k = 4 (LSTM) or 3 (GRU)."""
        return sum(2 * weight.numel() for weight in self.cells.parameters() if weight.ndim == 2)


class LSTM(Recurrent[LSTMState]):
    """Long short-term memory: equations at the top of this file.

    Args:
        config: settings.
        input_dim: width of the inputs.
    """

    def __init__(self, config: LSTMConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, 4, LSTMState)

    def scan(
        self, x: Tensor, weights: list[Tensor], memory: list[Tensor], fresh: list[Tensor], first: Tensor
    ) -> tuple[Tensor, ...]:
        """One layer over all steps."""
        return recurrence.lstm(x, weights, memory, fresh, first)

    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """A streamed step of one layer: one product."""
        w, u, b, e = weights
        h, c = memory
        d = u.shape[1]
        # Rows in the order i, f, o, g: one sigmoid for three gates.
        i, f, g, o = torch.cat((torch.cat((w, u), 1), (b + e)[:, None]), 1).chunk(4)
        ordered = torch.cat((i, f, o, g))
        gates_of = PackedLinear(ordered[:, :-1].contiguous(), ordered[:, -1].contiguous(), rows=len(h), uses=1000)

        def step() -> None:
            gates = gates_of(found)
            i, f, o = gates[:, : 3 * d].sigmoid_().chunk(3, 1)
            torch.mul(f, c, out=c).addcmul_(i, gates[:, 3 * d :].tanh_())
            torch.mul(o, c.tanh(), out=h)

        return step


class GRU(Recurrent[GRUState]):
    """Gated recurrent unit: equations at the top of this file.

    Args:
        config: settings.
        input_dim: width of the inputs.
    """

    def __init__(self, config: GRUConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, 3, GRUState)

    def scan(
        self, x: Tensor, weights: list[Tensor], memory: list[Tensor], fresh: list[Tensor], first: Tensor
    ) -> tuple[Tensor, ...]:
        """One layer over all steps."""
        return recurrence.gru(x, weights, memory, fresh, first)

    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """A streamed step of one layer: two products."""
        w, u, b, e = weights
        (h,) = memory
        d = u.shape[1]
        from_x = PackedLinear(w, b, rows=len(h), uses=1000)
        from_h = PackedLinear(u, e, rows=len(h), uses=1000)

        def step() -> None:
            x, gates = from_x(found[:, :-d]), from_h(h)
            r, z = gates[:, : 2 * d].add_(x[:, : 2 * d]).sigmoid_().chunk(2, 1)
            n = torch.addcmul(x[:, 2 * d :], r, gates[:, 2 * d :]).tanh_()
            torch.lerp(n, h, z, out=h)

        return step


class RecurrentStream(Stream):
    """Input and every h side by side in one buffer, so that a layer reads (h of the layer below, own h) as one slice.

    Args:
        core: whose weights are used; they are copied into the layout of the processor.
        batch_size: number of streams.
    """

    core: Recurrent[Any]

    def __init__(self, core: Recurrent[Any], batch_size: int) -> None:
        width, d, num_layers = core.input_shape[0], core.config.dim, core.config.num_layers
        self._joined = core.zeros(batch_size, width + num_layers * d)
        h = self._joined[:, width:].unflatten(1, (num_layers, d))
        others = (core.zeros(batch_size, num_layers, d) for _ in core.state_type._fields[1:])
        self._memory = core.state_type(h, *others)
        super().__init__(core, batch_size)
        edges = [0, *(width + layer * d for layer in range(num_layers + 1))]
        self._cells = []
        for layer, (lower, upper) in enumerate(zip(edges[:-2], edges[2:], strict=True)):
            weights = [weight.detach() for weight in core.cells.layer(layer)]
            memory = [leaf[:, layer] for leaf in self._memory]
            self._cells.append(core.cell(weights, self._joined[:, lower:upper], *memory))

    @property
    def state(self) -> Any:
        """The memory as the core's state (a copy)."""
        return clone(self._memory)

    def load_state(self, state: Any) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        for own, leaf in zip(self._memory, state, strict=True):
            own.copy_(leaf)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step ``[b, i] -> [b, d]``."""
        if is_first is not self._never:
            for own, fresh in zip(self._memory, self._fresh, strict=True):
                own.copy_(torch.where(is_first[:, None, None], fresh, own))
        self._joined[:, : inputs.shape[1]] = inputs
        for cell in self._cells:
            cell()
        return self._memory[0][:, -1].clone()

    def buffers(self) -> list[Tensor]:
        """Input and h in one tensor, then c."""
        return [self._joined, *self._memory[1:]]
