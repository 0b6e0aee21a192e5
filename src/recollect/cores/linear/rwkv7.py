"""RWKV-7: the delta rule with a decay for every row, a key that erases and a key that writes.

Per layer, with n_t = layer norm(x_t), shifts s_t(mu) = n_t + mu * (n_{t-1} - n_t), and per head; lora(x) =
bias + f(x M_1) M_2, where f is the identity unless it is named:

    r, k, v = W_r s(mu_r), W_k s(mu_k), W_v s(mu_v)
    w       = exp(-exp(-1/2) sigmoid(lora_w(s(mu_w))))              f = tanh
    a       = sigmoid(lora_a(s(mu_a)))
    v       = v + (v of layer 0 - v) * sigmoid(lora_v(s(mu_v)))     from layer 1 on
    g       = sigmoid(s(mu_g) G_1) G_2
    c       = (k * xi) / |k * xi|                                   key that erases
    k       = k * (1 + alpha * (a - 1))                             key that writes
    S_t     = diag(w_t) S_{t-1} - (a_t * c_t) (c_t^T S_{t-1}) + k_t v_t^T
    o_t     = S_t^T r_t
    y_t     = x_t + W_o (g_t * (layer norm(o_t) + (r_t . (rho * k_t)) v_t))
    x'      = y_t + W_2 relu(W_1 (p_t + mu_f * (p_{t-1} - p_t)))^2          p_t = layer norm(y_t)

S, n_{t-1} and p_{t-1} are 0 where an episode begins. S is ``[e, e]``, the transpose of the paper's.

The initial decays are those of the released code: w is nearest 1 in the first channel and lowest in the last. With
``chrono_steps``, w starts at exp(-1 / tau) for the time constants tau.

Paper: Peng et al. (2025), RWKV-7 "Goose" with expressive dynamic state evolution; equations 4-22.

Differs: |x| is sqrt(x . x + 1e-6). No norm of the embedding before the first layer. All low ranks are one number. The
output is RMS-normalized as in the other linear recurrences.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.linear.config import RWKV7Config
from recollect.cores.linear.stack import EPSILON, LinearRecurrence, Memory, MemoryLayer, Step, time_constants, unit
from recollect.cores.linear.step import Map, least_length, linear, stacked, unit_length, widened
from recollect.ops.linear import Linear
from recollect.ops.matrix_scan import Write, delta_rule

SLOWEST = math.exp(-0.5)
"""Largest -log w: no row of the memory decays faster than to exp(-0.61) in a step."""
HEAD_EPSILON = 1e-5
"""Added to the variance of a head's output, for each channel of the head."""
SHIFTS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
"""Exponents of the initial mu, which falls from 1 to 0 over the channels."""


class RWKV7State(NamedTuple):
    """State of an RWKV-7."""

    matrix: Tensor  # b l h e e
    previous: Tensor  # b l d
    forward_previous: Tensor  # b l d


class LowRank(nn.Module):
    """``bias + f(x M_1) M_2``."""

    def __init__(self, dim: int, rank: int, activation: nn.Module | None = None, *, bias: bool = True) -> None:
        super().__init__()
        self.down = Linear(dim, rank, bias=False)
        self.activation = activation or nn.Identity()
        self.up = Linear(rank, dim, bias=bias)
        nn.init.zeros_(self.down.weight)
        nn.init.orthogonal_(self.up.weight, 0.1)
        if bias:
            nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors ``[..., dim]`` down to a low rank, through the activation and up again."""
        return self.up(self.activation(self.down(x)))


def shifted(x: Tensor, previous: Tensor, first: Tensor) -> Tensor:
    """Return the step before each of ``[b, t, d]``, zeros where an episode begins."""
    before = torch.cat((previous[:, None], x[:, :-1]), 1)
    return torch.where(first[..., None], 0.0, before)


class Feedforward(nn.Module):
    """``x + W_2 relu(W_1 (p_t + mu_f * (p_{t-1} - p_t)))^2`` with ``p = layer norm(x)``."""

    def __init__(self, dim: int, hidden: int, shift: Tensor) -> None:
        super().__init__()
        self.norm, self.shift = nn.LayerNorm(dim), nn.Parameter(shift)
        self.expand, self.contract = Linear(dim, hidden, bias=False), Linear(hidden, dim, bias=False)
        nn.init.uniform_(self.expand.weight, -0.5 * dim**-0.5, 0.5 * dim**-0.5)
        nn.init.zeros_(self.contract.weight)

    def forward(self, x: Tensor, previous: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Add the feed-forward to ``x`` ``[b, t, d]``; return it and the last normalised step (``previous`` next)."""
        p = self.norm(x)
        seen = p + (shifted(p, previous, first) - p) * self.shift
        return x + self.contract(self.expand(seen).relu().square()), p[:, -1]

    def make_step(self, rows: int) -> Callable[[Tensor, Tensor], Tensor]:
        """Return :meth:`forward` for one step ``[b, d]``, which changes the step before in place."""
        norm, shift = layer_norm(self.norm), widened(self.shift)
        expand, contract = linear(self.expand, rows), linear(self.contract, rows)

        def feedforward(x: Tensor, previous: Tensor) -> Tensor:
            p = norm(x)
            seen = torch.lerp(p, previous, shift)
            previous.copy_(p)
            return contract(expand(seen).relu_().square_()).add_(x)

        return feedforward


def layer_norm(norm: nn.LayerNorm) -> Map:
    """Return a layer norm in the dtype of a step."""
    weight, bias = widened(norm.weight), widened(norm.bias)
    return lambda x: F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


class RWKV7Layer(MemoryLayer):
    """The equations at the top of this module."""

    def __init__(self, config: RWKV7Config, index: int) -> None:
        super().__init__()
        d, heads = config.dim, config.num_heads
        rank = config.rank or max(8, d // 4)
        self.num_heads = heads
        self.norm = nn.LayerNorm(d)
        place, depth = torch.arange(d) / d, 1 - index / config.num_layers
        self.shift = nn.Parameter(torch.stack([1 - place ** (power * depth) for power in SHIFTS.values()]))
        self.r, self.k, self.v = (Linear(d, d, bias=False) for _ in range(3))
        self.out = Linear(d, d, bias=False)
        self.decay, self.rate = LowRank(d, rank, nn.Tanh()), LowRank(d, rank)
        self.gate = LowRank(d, rank, nn.Sigmoid(), bias=False)
        self.value_mix = None if index == 0 else LowRank(d, rank)
        self.erase_scale = nn.Parameter(torch.full((d,), 0.85))  # xi
        self.rate_share = nn.Parameter(torch.ones(d))  # alpha
        self.bonus = nn.Parameter(torch.zeros(heads, d // heads))  # rho
        self.norm_scale = nn.Parameter(torch.ones(heads, d // heads))
        self.norm_shift = nn.Parameter(torch.zeros(heads, d // heads))
        hidden = config.feedforward_dim
        self.feedforward = Feedforward(d, hidden, 1 - place ** (depth**4)) if hidden else None
        self._start(config.chrono_steps, index / max(1, config.num_layers - 1))

    @torch.no_grad()
    def _start(self, chrono_steps: int | None, height: float) -> None:
        d = len(self.erase_scale)
        for layer, scale in ((self.r, 0.5), (self.k, 0.05), (self.v, 0.5)):
            layer.weight.uniform_(-scale * d**-0.5, scale * d**-0.5)
        self.out.weight.zero_()
        if self.value_mix is not None:
            self.value_mix.up.bias.fill_(1.0)
        if chrono_steps is None:
            speed = (torch.arange(d) / max(1, d - 1)) ** (0.85 + height**0.5)
            self.decay.up.bias.copy_(5 * speed - 6.5)
        else:
            self.decay.up.bias.copy_((1 / SLOWEST / time_constants(d, chrono_steps)).logit())

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the matrices and of the two steps before, the second only for a feed-forward map."""
        d = len(self.erase_scale)
        return (self.num_heads, d // self.num_heads, d // self.num_heads), (d,), (d if self.feedforward else 0,)

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Memory, first: Tensor, lowest_values: Tensor | None = None
    ) -> tuple[Tensor, Memory, Tensor]:
        """Take t steps; also return the values of layer 0, which the layers above mix into theirs."""
        matrix, previous, forward_previous = memory
        n = self.norm(x)
        change = shifted(n, previous, first) - n
        r, w, k, v, a, g = (n + change * mu for mu in self.shift)
        log_w = -SLOWEST * self.decay(w).to(matrix.dtype).sigmoid()
        rate = self.rate(a).to(matrix.dtype).sigmoid()
        gate = self.gate(g)
        r, k, values = self.r(r), self.k(k), self.v(v)
        lowest = values if lowest_values is None else lowest_values
        if self.value_mix is not None:
            values = torch.lerp(values, lowest, self.value_mix(v).sigmoid())
        erase, k = self._heads(k * self.erase_scale), k * (1 + self.rate_share * (rate - 1))
        erase, (r, k, values, rate, log_w) = unit(erase), map(self._heads, (r, k, values, rate, log_w))
        # b reads the decayed memory in delta_rule, and the memory before the decay here.
        read, matrix = delta_rule(
            r,
            -rate * erase,
            torch.zeros_like(values),
            erase * (-log_w).exp(),
            log_w,
            matrix,
            first,
            Write(k, values),
        )
        kind, width = matrix.dtype, read.shape[-1]
        read = F.layer_norm(read, (width,), eps=width * HEAD_EPSILON) * self.norm_scale + self.norm_shift
        read = read + (r * self.bonus * k).sum(-1, keepdim=True) * values
        x = x + self.out(gate * read.flatten(-2))
        if self.feedforward is not None:
            x, forward_previous = self.feedforward(x, forward_previous, first)
        return x, (matrix, n[:, -1].to(kind), forward_previous.to(kind)), lowest

    def make_step(self, rows: int, lowest: list[Tensor] | None = None) -> Step:
        """Return one step of the layer; the first layer leaves its values in ``lowest`` for the others."""
        heads, e, lowest = self.num_heads, self.bonus.shape[1], [] if lowest is None else lowest
        mix = self.value_mix
        norm, shift = layer_norm(self.norm), widened(self.shift[[0, 2, 3, 4, 1, 5]])[:, None]  # r k v a w g
        project = stacked([part.weight for part in (self.r, self.k, self.v)], None, rows)
        maps = [*([mix] if mix else []), self.rate, self.decay, self.gate]
        down, first = stacked([part.down.weight for part in maps], None, rows), 2 if mix else 3
        zeros = torch.zeros_like(self.decay.up.bias)
        up = stacked([m.up.weight for m in maps], [zeros if m.up.bias is None else m.up.bias for m in maps], rows)
        xi, alpha, bonus = widened(self.erase_scale), widened(self.rate_share), widened(self.bonus)
        scale, offset = widened(self.norm_scale), widened(self.norm_shift)
        rest, speed = 1 - alpha, alpha.new_full((1,), -SLOWEST)
        least = least_length(EPSILON, 1, alpha)
        out, feedforward = linear(self.out, rows), self.feedforward and self.feedforward.make_step(rows)

        def step(x: Tensor, memory: Memory) -> Tensor:
            matrix, previous, forward_previous = memory
            n = norm(x)
            mixed = torch.lerp(n, previous, shift)
            previous.copy_(n)
            r, k, values = project(mixed[:3]).unbind(0)
            low = down(mixed[first:])
            low[-2].tanh_()
            low[-1].sigmoid_()
            *mixes, rate, decay, gate = up(low).unbind(0)
            if mixes:
                values = values.lerp_(lowest[0], mixes[0].sigmoid_())
            else:
                lowest[:] = [values]
            rate, decay = rate.sigmoid_(), decay.sigmoid_().mul_(speed).exp_()
            erase = unit_length((k * xi).view(-1, heads, e), least)
            k = k.mul_(torch.addcmul(rest, alpha, rate)).view(-1, heads, e)
            r, values = r.view(-1, heads, e), values.view(-1, heads, e)
            heads_of = matrix.view(-1, e, e)
            known = torch.bmm(erase.view(-1, 1, e), heads_of)
            matrix.mul_(decay.view(-1, heads, e, 1))
            heads_of.baddbmm_(rate.view(-1, heads, e).mul(erase).view(-1, e, 1), known, alpha=-1)
            matrix.addcmul_(k.unsqueeze(3), values.unsqueeze(2))
            read = torch.bmm(r.reshape(-1, 1, e), heads_of).view(-1, heads, e)
            read = torch.addcmul(offset, F.layer_norm(read, (e,), eps=e * HEAD_EPSILON), scale)
            read.addcmul_(r.mul_(k).mul_(bonus).sum(-1, keepdim=True), values)
            x = out(gate.mul_(read.flatten(1))).add_(x)
            return feedforward(x, forward_previous) if feedforward else x

        return step

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))

    def flops(self) -> int:
        """Return those of two reads and two writes of every matrix."""
        d = len(self.erase_scale)
        return 8 * d * d // self.num_heads


class RWKV7(LinearRecurrence[RWKV7State]):
    """Generalized delta rule with vector decay; equations are at the top of this module."""

    state_type = RWKV7State

    def __init__(self, config: RWKV7Config, input_dim: int) -> None:
        super().__init__(config, input_dim, [RWKV7Layer(config, index) for index in range(config.num_layers)])

    def make_steps(self, rows: int) -> list[Step]:
        """Return one step of every layer."""
        lowest: list[Tensor] = []
        return [layer.make_step(rows, lowest) for layer in self.layers]

    def _unroll_block(self, inputs: Tensor, state: RWKV7State, is_first: Tensor) -> tuple[Tensor, RWKV7State]:
        x, memories, values = self.project(inputs).to(state.matrix.dtype), [], None
        for index, layer in enumerate(self.layers):
            x, memory, values = layer(x, tuple(leaf[:, index] for leaf in state), is_first, values)
            memories.append(memory)
        return self.norm(x), RWKV7State._make(torch.stack(leaf, 1) for leaf in zip(*memories, strict=True))
