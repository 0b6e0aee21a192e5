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

Differs: as in ``nn.LSTM`` and ``nn.GRU``, whose weights ``cells`` holds under their names: no peepholes, two
biases where one would do, dropout between layers. (They are never called: they cannot reset inside a call.)

Why it is fast: the input products of all steps are one product before the loop. A step of the loop is one
product with U, packed once per call, and a few fused elementwise operations. The backward pass is written by
hand: one product per step carries the gradient of h, then the gradients of weights and inputs are single
products over all steps. A reset is a selection, made only at steps where some row resets. No sequence is cut
into pieces or padded.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from recollect.cores.base import CoreConfig, MemoryCore, StateT, require
from recollect.cores.stream import Stream
from recollect.layers.products import Product, product
from recollect.state import clone

_sigmoid_backward = torch.ops.aten.sigmoid_backward  # (dy, y) -> dy * y * (1 - y)
_tanh_backward = torch.ops.aten.tanh_backward  # (dy, y) -> dy * (1 - y * y)


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

    def build(self, input_dim: int) -> "LSTM":
        """Make the core for inputs of width ``input_dim``."""
        return LSTM(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """Settings of :class:`GRU`."""

    def build(self, input_dim: int) -> "GRU":
        """Make the core for inputs of width ``input_dim``."""
        return GRU(self, input_dim)


class Recurrent(MemoryCore[StateT]):
    """What LSTM and GRU share: layers, initial state and the way through them.

    Args:
        config: settings.
        input_dim: width of the inputs.
        cells: holds the weights.
        state_type: NamedTuple with one leaf ``[b, l, d]`` per remembered vector.
    """

    def __init__(
        self, config: RecurrentConfig, input_dim: int, cells: nn.LSTM | nn.GRU, state_type: type[StateT]
    ) -> None:
        super().__init__()
        self.config = config
        self.cells = cells
        self.state_type = state_type
        self.input_shape = (input_dim,)
        self.output_shape = (config.dim,)
        self.initial = nn.ParameterDict()
        if config.learned_initial_state:
            for name in state_type._fields:  # type: ignore[attr-defined]
                self.initial[name] = nn.Parameter(torch.zeros(config.num_layers, config.dim))

    @abstractmethod
    def scan(self, x: Tensor, weights: list[Tensor], memory: list[Tensor], *resets: Any) -> tuple[Tensor, ...]:
        """One layer over all steps ``[t, b, i]``: its outputs ``[t, b, d]``, then its new memory.

        ``resets`` are the fresh memory ``[b, d]`` of each leaf, ``first`` bool ``[t, b, 1]``, and a list that says
        at which steps any row resets (None when tracing: then every step selects).
        """

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
        resets = None if torch.compiler.is_compiling() else is_first.any(0).tolist()
        fresh = self.initial_state(is_first.shape[0])
        device = inputs.device.type
        autocast = torch.is_autocast_enabled(device)
        narrow = torch.get_autocast_dtype(device) if autocast else inputs.dtype
        x, memories = inputs.transpose(0, 1).to(narrow), []
        # Everything below casts for itself: products in the narrow dtype, memory and gates in the dtype of the state.
        with torch.autocast(device, enabled=False):
            for layer, (w, u, b, e) in enumerate(self.cells.all_weights):
                if layer:
                    x = F.dropout(x, self.config.dropout, self.training)
                weights = [w.to(narrow), u.to(narrow), b.to(narrow), e.to(narrow)]
                memory = [leaf[:, layer] for leaf in state]
                x, *memory = self.scan(x, weights, memory, [leaf[:, layer] for leaf in fresh], first, resets)
                memories.append(memory)
        leaves = [torch.stack(leaf, 1) for leaf in zip(*memories, strict=True)]
        return x.transpose(0, 1), self.state_type._make(leaves)  # type: ignore[attr-defined]

    def flops_per_step(self) -> int:
        """``2 k d (i + d)`` for the first layer and ``2 k d (2 d)`` for the others; k = 4 (LSTM) or 3 (GRU)."""
        return sum(2 * weight.numel() for layer in self.cells.all_weights for weight in layer if weight.ndim == 2)


class LSTM(Recurrent[LSTMState]):
    """Long short-term memory: equations at the top of this file.

    Args:
        config: settings.
        input_dim: width of the inputs.
    """

    def __init__(self, config: LSTMConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, nn.LSTM(input_dim, config.dim, config.num_layers), LSTMState)

    def scan(self, x: Tensor, weights: list[Tensor], memory: list[Tensor], *resets: Any) -> tuple[Tensor, ...]:
        """One layer over all steps."""
        fresh, first, at = resets
        if at is None:
            return _trace_lstm(x, weights, memory, fresh, first)
        outputs, c = _LSTMScan.apply(x, *weights, *memory, *fresh, first, at)
        return outputs, outputs[-1], c

    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """A streamed step of one layer: one product."""
        w, u, b, e = weights
        h, c = memory
        d = u.shape[1]
        # Rows in the order i, f, o, g: one sigmoid for three gates.
        i, f, g, o = torch.cat((torch.cat((w, u), 1), (b + e)[:, None]), 1).chunk(4)
        ordered = torch.cat((i, f, o, g))
        gates_of = Product(ordered[:, :-1].contiguous(), ordered[:, -1].contiguous(), rows=len(h), uses=1000)

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
        super().__init__(config, input_dim, nn.GRU(input_dim, config.dim, config.num_layers), GRUState)

    def scan(self, x: Tensor, weights: list[Tensor], memory: list[Tensor], *resets: Any) -> tuple[Tensor, ...]:
        """One layer over all steps."""
        fresh, first, at = resets
        if at is None:
            return _trace_gru(x, weights, memory, fresh, first)
        outputs, h = _GRUScan.apply(x, *weights, *memory, *fresh, first, at)
        return outputs, h

    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """A streamed step of one layer: two products."""
        w, u, b, e = weights
        (h,) = memory
        d = u.shape[1]
        from_x = Product(w, b, rows=len(h), uses=1000)
        from_h = Product(u, e, rows=len(h), uses=1000)

        def step() -> None:
            x, gates = from_x(found[:, :-d]), from_h(h)
            r, z = gates[:, : 2 * d].add_(x[:, : 2 * d]).sigmoid_().chunk(2, 1)
            n = torch.addcmul(x[:, 2 * d :], r, gates[:, 2 * d :]).tanh_()
            torch.lerp(n, h, z, out=h)

        return step


def _trace_lstm(
    x: Tensor, weights: list[Tensor], memory: list[Tensor], fresh: list[Tensor], first: Tensor
) -> tuple[Tensor, ...]:
    # For torch.compile and torch.export: no branch on values, no hand-written gradient.
    w, u, b, e = weights
    h, c = memory
    outputs = []
    for step, drive in enumerate(F.linear(x, w, b + e).unbind(0)):
        h = torch.where(first[step], fresh[0], h).to(x.dtype)
        i, f, g, o = (drive + F.linear(h, u)).to(c.dtype).chunk(4, -1)
        c = f.sigmoid() * torch.where(first[step], fresh[1], c) + i.sigmoid() * g.tanh()
        h = (o.sigmoid() * c.tanh()).to(x.dtype)
        outputs.append(h)
    return torch.stack(outputs), h, c


def _trace_gru(
    x: Tensor, weights: list[Tensor], memory: list[Tensor], fresh: list[Tensor], first: Tensor
) -> tuple[Tensor, ...]:
    w, u, b, e = weights
    (h,) = memory
    outputs = []
    for step, drive in enumerate(F.linear(x, w, b).unbind(0)):
        h = torch.where(first[step], fresh[0], h)
        x_r, x_z, x_n = drive.to(h.dtype).chunk(3, -1)
        h_r, h_z, h_n = F.linear(h.to(x.dtype), u, e).to(h.dtype).chunk(3, -1)
        n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        h = torch.lerp(n, h, torch.sigmoid(x_z + h_z))
        outputs.append(h.to(x.dtype))
    return torch.stack(outputs), h


class _LSTMScan(torch.autograd.Function):
    """One layer over all steps.

    x ``[t, b, i]`` and the weights share one dtype (bfloat16 under autocast); gates and c have the dtype of c.
    """

    @staticmethod
    def forward(ctx, x, w, u, b, e, h, c, fresh_h, fresh_c, first, resets):
        t, rows, _ = x.shape
        d, wide = u.shape[1], c.dtype
        drive = product(x.flatten(0, 1), w, b + e).view(t, rows, 4 * d)
        recur = Product(u, rows=rows, uses=t)
        outputs = x.new_empty(t, rows, d)
        kept: list[list[Tensor]] = []
        before, h = h, h.to(x.dtype)
        for step in range(t):
            if resets[step]:
                h = torch.where(first[step], fresh_h.to(x.dtype), h)
                c = torch.where(first[step], fresh_c, c)
            gates = recur.plus(h, drive[step]).to(wide)
            gates[:, : 2 * d].sigmoid_()
            i, f, g, o = gates.chunk(4, 1)
            g.tanh_()
            o.sigmoid_()
            found, c = c, torch.addcmul(f * c, i, g)
            tanh = c.tanh()
            h = torch.mul(o, tanh, out=outputs[step])
            if any(ctx.needs_input_grad):
                kept.append([gates, found, tanh])
        ctx.save_for_backward(x, w, u, before, fresh_h, first, outputs, *(k for step in kept for k in step))
        ctx.resets = resets
        return outputs, c

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, grad_c):
        x, w, u, before, fresh_h, first, outputs, *kept = ctx.saved_tensors
        t, rows, _ = x.shape
        d, wide = u.shape[1], grad_c.dtype
        back = Product(u.t(), rows=rows, uses=t)
        grads = x.new_empty(t, rows, 4 * d)  # by W x + b + U h + e
        fresh = torch.zeros_like(grad_c), torch.zeros_like(grad_c)
        grad_outputs = grad_outputs.contiguous()
        grad_h = grad_outputs[-1].to(wide)
        for step in range(t - 1, -1, -1):
            gates, found, tanh = kept[3 * step : 3 * step + 3]
            i, f, g, o = gates.chunk(4, 1)
            grad_c = torch.addcmul(grad_c, grad_h, _tanh_backward(o, tanh))
            # What each gate does to c (i, f, g) or to h (o), times the gradient of that.
            grad = grads[step] if wide == grads.dtype else torch.empty_like(gates)
            _sigmoid_backward.grad_input(g, i, grad_input=grad[:, :d])
            _sigmoid_backward.grad_input(found, f, grad_input=grad[:, d : 2 * d])
            _tanh_backward.grad_input(i, g, grad_input=grad[:, 2 * d : 3 * d])
            _sigmoid_backward.grad_input(tanh, o, grad_input=grad[:, 3 * d :])
            grad[:, : 3 * d].unflatten(1, (3, d)).mul_(grad_c[:, None])
            grad[:, 3 * d :].mul_(grad_h)
            if wide != grads.dtype:
                grads[step] = grad
            grad_c = grad_c * f
            if step and not ctx.resets[step]:
                grad_h = back.plus(grads[step], grad_outputs[step - 1]).to(wide)
                continue
            grad_h = back(grads[step]).to(wide)
            if ctx.resets[step]:
                grad_h, grad_c = _cut(first[step], fresh, (grad_h, grad_c))
            if step:
                grad_h = grad_h + grad_outputs[step - 1]
        flat = grads.flatten(0, 1)
        seen = torch.cat((before[None].to(x.dtype), outputs[:-1]))
        seen = torch.where(first, fresh_h.to(x.dtype), seen)
        grad_x = product(flat, w.t()).view_as(x) if ctx.needs_input_grad[0] else None
        grad_b, turned = flat.sum(0), flat.t().contiguous()
        grad_w, grad_u = product(turned, x.flatten(0, 1).t()), product(turned, seen.flatten(0, 1).t())
        return grad_x, grad_w, grad_u, grad_b, grad_b, grad_h, grad_c, *fresh, None, None


def _cut(first: Tensor, fresh: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> list[Tensor]:
    # Where a row reset, the gradient of what it found belongs to the fresh memory, and the past gets none.
    for total, grad in zip(fresh, grads, strict=True):
        total += torch.where(first, grad, 0.0)
    return [torch.where(first, 0.0, grad) for grad in grads]


class _GRUScan(torch.autograd.Function):
    """One layer over all steps; dtypes as in :class:`_LSTMScan`."""

    @staticmethod
    def forward(ctx, x, w, u, b, e, h, fresh_h, first, resets):
        t, rows, _ = x.shape
        d, wide = u.shape[1], h.dtype
        drive = product(x.flatten(0, 1), w, b).view(t, rows, 3 * d)
        recur = Product(u, e, rows=rows, uses=t)
        outputs = x.new_empty(t, rows, d)
        kept: list[list[Tensor]] = []
        for step in range(t):
            if resets[step]:
                h = torch.where(first[step], fresh_h, h)
            gates = recur(h.to(x.dtype)).to(wide)
            gates[:, : 2 * d].add_(drive[step, :, : 2 * d]).sigmoid_()
            r, z, h_n = gates.chunk(3, 1)
            n = torch.addcmul(drive[step, :, 2 * d :], r, h_n).tanh_()
            found, h = h, torch.lerp(n, h, z)
            outputs[step] = h
            if any(ctx.needs_input_grad):
                kept.append([gates, found, n])
        ctx.save_for_backward(x, w, u, first, *(k for step in kept for k in step))
        ctx.resets = resets
        return outputs, h

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, grad_h):
        x, w, u, first, *kept = ctx.saved_tensors
        t, rows, _ = x.shape
        d, wide = u.shape[1], grad_h.dtype
        back = Product(u.t(), rows=rows, uses=t)
        by_x = x.new_empty(t, rows, 3 * d)  # by W x + b
        by_h = x.new_empty(t, rows, 3 * d)  # by U h + e
        fresh = (torch.zeros_like(grad_h),)
        for step in range(t - 1, -1, -1):
            gates, found, n = kept[3 * step : 3 * step + 3]
            r, z, h_n = gates.chunk(3, 1)
            grad_h = grad_h + grad_outputs[step]
            kept_h = grad_h * z
            grad_n = _tanh_backward(grad_h - kept_h, n)
            grad = torch.empty_like(gates)
            _sigmoid_backward.grad_input(grad_n * h_n, r, grad_input=grad[:, :d])
            _sigmoid_backward.grad_input(grad_h * (found - n), z, grad_input=grad[:, d : 2 * d])
            torch.mul(grad_n, r, out=grad[:, 2 * d :])
            by_h[step] = grad
            by_x[step, :, : 2 * d] = grad[:, : 2 * d]
            by_x[step, :, 2 * d :] = grad_n
            grad_h = kept_h + back(by_h[step])
            if ctx.resets[step]:
                (grad_h,) = _cut(first[step], fresh, (grad_h,))
        seen = torch.stack(kept[1::3]).to(x.dtype).flatten(0, 1)
        by_x, by_h = by_x.flatten(0, 1), by_h.flatten(0, 1)
        grad_x = product(by_x, w.t()).view_as(x) if ctx.needs_input_grad[0] else None
        grad_w, grad_u = product(by_x.t(), x.flatten(0, 1).t()), product(by_h.t(), seen.t())
        return grad_x, grad_w, grad_u, by_x.sum(0), by_h.sum(0), grad_h, *fresh, None, None


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
        self._cells = [
            core.cell(
                [w.detach() for w in weights], self._joined[:, lower:upper], *(leaf[:, layer] for leaf in self._memory)
            )
            for layer, (weights, lower, upper) in enumerate(
                zip(core.cells.all_weights, edges[:-2], edges[2:], strict=True)
            )
        ]

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
        finite = inputs.isfinite().all(-1, keepdim=True)
        self._joined[:, : inputs.shape[1]] = torch.where(finite, inputs, 0.0)
        for cell in self._cells:
            cell()
        return torch.where(finite, self._memory[0][:, -1], torch.nan)

    def buffers(self) -> list[Tensor]:
        """Input and h in one tensor, then c."""
        return [self._joined, *self._memory[1:]]
