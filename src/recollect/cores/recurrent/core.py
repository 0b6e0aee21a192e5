"""LSTM and GRU, with resets inside a call.

    LSTM    i, f, g, o = W x_t + b + U h_{t-1} + e     then sigmoid for i, f, o and tanh for g
            c_t = f * c_{t-1} + i * g
            h_t = o * tanh(c_t)

    GRU     r, z = sigmoid(W x_t + b + U h_{t-1} + e)  with the rows of r and of z
            n    = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + e_n))
            h_t  = (1 - z) * n + z * h_{t-1}

With ``gate_stretch`` s > 0 the gates that decide what is kept (f and i; z) are

        clip((1 + 2 s) sigmoid(a) - s, 0, 1)

At a step with ``is_first`` the incoming (h, c) is the initial state: zeros, or learned. Layer l reads h_t of
layer l - 1; the h_t of the last layer is the output.

Papers: Hochreiter & Schmidhuber (1997) with the forget gate of Gers et al. (2000); Cho et al. (2014), equations
5-8, in the variant with the reset gate behind the product.

Differs: as in ``nn.LSTM`` and ``nn.GRU``: no peepholes, two biases where one suffices, dropout between layers.
``core.cells`` has their names, shapes and initial values, so that ``load_state_dict`` moves weights both ways.

With those initial values a memory and its gradient halve at every step, and are gone after a dozen. Two options add to
the bias of the gate that keeps the memory (f; z), for each unit:

        forget_bias                        that number; 1 gives a half-life of 2.2 steps
        chrono_steps = T                   log(U[1, T - 1]), and minus the same for i: half-lives up to 0.7 T

Gers et al. (2000), Learning to forget; Jozefowicz et al. (2015), An empirical exploration of recurrent network
architectures; Tallec and Ollivier (2018), Can recurrent neural networks warp time?

With ``state_noise`` calls in training mode add normal noise to h (and c) before their first step, and before every
fourth one after it. A memory that survives this noise lasts far longer than the episodes of training: a cue that was
kept for 200 steps is kept for 2 000, in two seeds of three for 20 000 (recipes/million.py). Ours, after Jim, Giles and
Horne (1996), An analysis of noise in recurrent neural networks: convergence and generalization.

``ops/recurrent_scans.py`` runs a layer over all steps with one product per step and a hand-written gradient.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, StateT, companion
from recollect.cores.recurrent.config import GRUConfig, LSTMConfig, RecurrentConfig
from recollect.ops import recurrent_scans
from recollect.state import map_state

NOISE_STEPS = 4
"""Steps between two additions of ``state_noise``."""


class LSTMState(NamedTuple):
    """State of an LSTM."""

    h: Tensor  # b l d
    c: Tensor  # b l d


class GRUState(NamedTuple):
    """State of a GRU."""

    h: Tensor  # b l d


class Cells(nn.Module):
    """The weights of ``nn.LSTM`` (``num_gates`` k = 4) or ``nn.GRU`` (k = 3).

    Those modules cannot reset inside a call and cannot be compiled.
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
        """Return W ``[k d, i]``, U ``[k d, d]``, b ``[k d]`` and e ``[k d]`` of one layer."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        # Not get_parameter, which rejects the replacements of torch.func.functional_call.
        return [getattr(self, f"{name}_l{index}") for name in names]


class Recurrent(MemoryCore[StateT]):
    """Base of LSTM and GRU; a state of ``state_type`` has leaves ``[b, l, d]``."""

    scan: ClassVar[Callable[..., tuple[Tensor, ...]]]
    """One layer over all steps: ``lstm`` or ``gru`` of :mod:`recollect.ops.recurrent_scans`."""
    has_input_gate: ClassVar[bool]
    """Whether the first d rows are an input gate."""

    reference_unroll = companion("recollect.cores.recurrent.reference:reference_unroll")
    runs_in_float16 = True

    def __init__(self, config: RecurrentConfig, input_dim: int, num_gates: int, state_type: type[StateT]) -> None:
        super().__init__()
        self.config = config
        self.cells = Cells(input_dim, config.dim, config.num_layers, num_gates)
        self._shift_biases()
        self.state_type = state_type
        self.input_shape = (input_dim,)
        self.output_shape = (config.dim,)
        self.initial = nn.ParameterDict()
        if config.learned_initial_state:
            for name in state_type._fields:  # type: ignore[attr-defined]
                self.initial[name] = nn.Parameter(torch.zeros(config.num_layers, config.dim))

    @torch.no_grad()
    def _shift_biases(self) -> None:
        """Shift the bias of the gate that keeps the memory, the second d rows in both cores."""
        steps, dim = self.config.chrono_steps, self.config.dim
        for layer in range(self.config.num_layers):
            bias = self.cells.get_parameter(f"bias_ih_l{layer}")
            kept = self.config.forget_bias if steps is None else torch.empty(dim).uniform_(1, steps - 1).log()
            bias[dim : 2 * dim] += kept
            if self.has_input_gate and steps is not None:
                bias[:dim] -= kept

    def initial_state(self, batch_size: int) -> StateT:
        """Return zeros, or the learned initial state of every layer."""
        shape = (batch_size, self.config.num_layers, self.config.dim)
        if self.config.learned_initial_state:
            return self.state_type._make(leaf.repeat(batch_size, 1, 1) for leaf in self.initial.values())  # type: ignore[attr-defined]
        return self.state_type._make(self.zeros(*shape) for _ in self.state_type._fields)  # type: ignore[attr-defined]

    def unroll(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Run layer by layer over all steps; with ``state_noise`` in training, part by part."""
        noise, outputs = self.config.state_noise if self.training else 0.0, []
        if not noise:
            return self._unroll(inputs, state, is_first)
        for part, first in zip(inputs.split(NOISE_STEPS, 1), is_first.split(NOISE_STEPS, 1), strict=True):
            state = map_state(lambda leaf: leaf + noise * torch.randn_like(leaf), state)
            output, state = self._unroll(part, state, first)
            outputs.append(output)
        return torch.cat(outputs, 1), state

    def _unroll(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        first = is_first.t()[..., None]  # t b 1
        initial = self.initial_state(is_first.shape[0])
        device = inputs.device.type
        autocast = torch.is_autocast_enabled(device)
        narrow = torch.get_autocast_dtype(device) if autocast else inputs.dtype
        x, memories = inputs.transpose(0, 1).to(narrow), []
        # Products are in the narrow dtype, memory and gates in the dtype of the state, without autocast.
        with torch.autocast(device, enabled=False):
            for layer in range(self.config.num_layers):
                if layer:
                    x = F.dropout(x, self.config.dropout, self.training)
                weights = [weight.to(narrow) for weight in self.cells.layer(layer)]
                memory = [leaf[:, layer] for leaf in state]
                fresh = [leaf[:, layer] for leaf in initial]
                x, *memory = self.scan(x, weights, memory, fresh, first, self.config.gate_stretch)
                memories.append(memory)
        leaves = [torch.stack(leaf, 1) for leaf in zip(*memories, strict=True)]
        return x.transpose(0, 1), self.state_type._make(leaves)  # type: ignore[attr-defined]

    def flops_per_step(self) -> int:
        """Count the operations of a step: ``2 k d (i + d)`` for layer 1, ``4 k d^2`` for others; k gates."""
        return sum(2 * weight.numel() for weight in self.cells.parameters() if weight.ndim == 2)


class LSTM(Recurrent[LSTMState]):
    """Long short-term memory; equations are at the top of this module."""

    stream_type = companion("recollect.cores.recurrent.stream:LSTMStream")
    scan = staticmethod(recurrent_scans.lstm)
    has_input_gate = True

    def __init__(self, config: LSTMConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, 4, LSTMState)


class GRU(Recurrent[GRUState]):
    """Gated recurrent unit; equations are at the top of this module."""

    stream_type = companion("recollect.cores.recurrent.stream:GRUStream")
    scan = staticmethod(recurrent_scans.gru)
    has_input_gate = False

    def __init__(self, config: GRUConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, 3, GRUState)
