"""Feedback Transformer: every layer reads what the highest layers made of the past.

    x_t^0 = input projection
    m_t   = sum_l softmax(a)_l x_t^l,  l = 0 .. L                       one memory vector per step
    z_t^l = Attention(x_t^{l-1}; m_{t-w}, .., m_{t-1})                  the same memories for every layer
    x_t^l = FF(z_t^l)                                                   residuals and norms as below

    Attention of a head: sum_i softmax_i((q . k_i + q . p_i) / sqrt(e)) v_i,
    q = W_q x_t, k_i = W_k m_{t-i}, v_i = W_v m_{t-i}, and a learned vector p_i per layer for i = 1 .. w steps back

    norm="post"   z = norm(x + attention(x; m)),  x' = norm(z + FF(z))
    norm="pre"    z = x + attention(norm_1(x); norm_1(m)),  x' = z + FF(norm(z)),  and a norm on the output

m_t needs the top layer at t, so steps cannot run in parallel: what is gained is a representation of the past that
is as deep as the network is long. Document 000 (section 7.6) measures itself against it on the copying task.

Paper: Fan, Lavril, Grave, Joulin & Sukhbaatar, Addressing Some Limitations of Transformers with Feedback Memory
(2020), equations 4-8, with the shared key and value projections of its section 3.2 (``share_projections``).

Differs: slots before the start of an episode are masked, and a step with an empty memory reads exactly 0.
``official_empty=True`` gives the public code's form, where those slots hold zeros that softmax sees. The public
code shares projections only when asked; adaptive spans are left out.

Why it is fast: a memory is projected once, when it is made. The keys and values of steps before a block of 16 are
one tensor for the whole block, so the backward pass adds into one gradient instead of one per step and slot. The
first layer's queries do not depend on the memory and are made for all steps at once.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import CoreConfig, MemoryCore
from recollect.cores.stream import Stream
from recollect.layers.attention import masked_softmax, merge_heads, split_heads
from recollect.layers.feedforward import FeedForward, input_projection
from recollect.layers.positions import LearnedPositions
from recollect.layers.rings import MirrorRing
from recollect.layers.tap import Tap
from recollect.layers.window_attention import next_count, slide, window_mask
from recollect.ops.linear import Linear
from recollect.ops.packed_linear import PackedLinear

BLOCK = 16


class FeedbackState(NamedTuple):
    """The memories of the last w steps."""

    memory: Tensor  # b w d, newest last
    count: Tensor  # type: ignore[assignment]  # b, how many belong to the running episode (hides tuple.count)


@dataclass(frozen=True, kw_only=True)
class FeedbackTransformerConfig(CoreConfig):
    """Settings of :class:`FeedbackTransformer`."""

    paper: ClassVar[str] = "Fan et al. 2020"
    remembers: ClassVar[str] = "a window of one vector for all layers"

    dim: int = 128
    """Width of the layers, the memories and the output."""
    num_layers: int = 2
    """Layers."""
    num_heads: int = 4
    """Attention heads; they share the width."""
    hidden_dim: int | None = None
    """Width inside a feed-forward block; 4 * dim when None."""
    dropout: float = 0.0
    """Dropout of attention weights and feed-forward blocks, in training."""
    memory_len: int = 64
    """Steps seen before the current one."""
    norm: Literal["pre", "post"] = "post"
    """Where the norms stand: before every block, or after its residual."""
    share_projections: bool = True
    """One key and one value projection for all layers, as in the paper, or one per layer."""
    official_empty: bool = False
    """Let softmax see the empty slots before an episode's start as zeros, as the public code does."""

    def __post_init__(self) -> None:
        require(self.dim > 0, "dim", self.dim, "give a positive width")
        require(self.num_layers > 0, "num_layers", self.num_layers, "give at least one layer")
        divides = self.num_heads > 0 and self.dim % self.num_heads == 0
        require(divides, "num_heads", self.num_heads, f"give a divisor of dim={self.dim}")
        require(self.hidden_dim is None or self.hidden_dim > 0, "hidden_dim", self.hidden_dim, "give a positive width")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")
        require(self.memory_len > 0, "memory_len", self.memory_len, "give at least one step")
        require(self.norm in ("pre", "post"), "norm", self.norm, "choose 'pre' or 'post'")

    def build(self, input_dim: int) -> "FeedbackTransformer":
        """Make the core for inputs of width ``input_dim``."""
        return FeedbackTransformer(self, input_dim)


class Projections(nn.Module):
    """Keys and values of memories, for one layer or for all.

    Args:
        dim: width of a memory.
        norm: whether memories, and the inputs of the layers that read them, are normalised first.
    """

    def __init__(self, dim: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.key = Linear(dim, dim, bias=False)
        self.value = Linear(dim, dim, bias=False)

    def forward(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """``[..., d] -> [..., d], [..., d]``."""
        memory = self.norm(memory)
        return self.key(memory), self.value(memory)


class FeedbackLayer(nn.Module):
    """Attention to memories, then a feed-forward block; both with residual and norm."""

    def __init__(self, config: FeedbackTransformerConfig) -> None:
        super().__init__()
        dim, head_dim = config.dim, config.dim // config.num_heads
        hidden_dim = 4 * dim if config.hidden_dim is None else config.hidden_dim
        self.num_heads = config.num_heads
        self.scale = head_dim**-0.5
        self.dropout = config.dropout
        self.pre = config.norm == "pre"
        self.query = Linear(dim, dim, bias=False)
        self.out = Linear(dim, dim, bias=False)
        self.positions = LearnedPositions(config.memory_len, head_dim, std=1.0)  # oldest first
        self.attention_norm = nn.Identity() if self.pre else nn.LayerNorm(dim)
        self.feedforward_norm = nn.LayerNorm(dim)
        self.feedforward = FeedForward(dim, hidden_dim, activation="relu", dropout=config.dropout)
        self.tap = Tap("b h t s")

    def queries(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scaled queries ``[b, h, t, e]`` of inputs ``[b, t, d]`` and their position scores ``[b, h, t, w]``."""
        q = split_heads(self.query(x), self.num_heads) * self.scale
        return q, q @ self.positions.table.t()

    def finish(self, x: Tensor, heads: Tensor) -> Tensor:
        """From the heads' answers ``[b, h, 1, e]`` to the layer's output ``[b, 1, d]``."""
        z = self.attention_norm(x + self.out(merge_heads(heads)))
        if self.pre:
            return z + self.feedforward(self.feedforward_norm(z))
        return self.feedforward_norm(z + self.feedforward(z))


class FeedbackTransformer(MemoryCore[FeedbackState]):
    """Layers that all read the memory of whole past steps: equations at the top of this file.

    Args:
        config: settings.
        input_dim: width of the inputs.
    """

    layers: list[FeedbackLayer]
    projections: list[Projections]

    def __init__(self, config: FeedbackTransformerConfig, input_dim: int) -> None:
        super().__init__()
        dim, pre = config.dim, config.norm == "pre"
        self.config = config
        self.input_shape = (input_dim,)
        self.output_shape = (dim,)
        self.project = input_projection(input_dim, dim)
        self.layers = nn.ModuleList(FeedbackLayer(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        groups = 1 if config.share_projections else config.num_layers
        self.projections = nn.ModuleList(Projections(dim, pre) for _ in range(groups))  # type: ignore[assignment]
        self.group_of = [0 if config.share_projections else layer for layer in range(config.num_layers)]
        self.mix = nn.Parameter(torch.zeros(config.num_layers + 1))
        self.norm = nn.LayerNorm(dim) if pre else nn.Identity()
        if pre:
            for layer in self.layers:
                layer.out.weight.data /= (2 * config.num_layers) ** 0.5

    def initial_state(self, batch_size: int) -> FeedbackState:
        """No memories."""
        memory = self.zeros(batch_size, self.config.memory_len, self.config.dim)
        return FeedbackState(memory, self.zeros(batch_size, dtype=torch.long))

    def unroll(self, inputs: Tensor, state: FeedbackState, is_first: Tensor) -> tuple[Tensor, FeedbackState]:
        """Step by step, in blocks that share one tensor of earlier keys and values."""
        window = self.config.memory_len
        tracing = torch.compiler.is_compiling()
        resets = [True] * is_first.shape[1] if tracing else is_first.any(0).tolist()
        seen = window_mask(is_first, state.count, window)  # b t (w + t), and the query itself, which is cut off below
        embedded = self.project(inputs)
        first_queries = self.layers[0].queries(self.projections[0].norm(embedded))
        steps = zip(embedded.split(1, 1), *(part.split(1, 2) for part in first_queries), strict=True)
        # Cleared before it is projected: a NaN in a forgotten memory must not meet a weight's gradient either.
        memory = state.memory.masked_fill(is_first[:, :1, None], 0.0)
        pasts = [Past(projection, memory, self.config) for projection in self.projections]
        maps: list[list[Tensor]] | None = (
            [[] for _ in self.layers] if any(layer.tap.listening for layer in self.layers) else None
        )
        outputs, memories = [], []
        for step, (x, *prepared) in enumerate(steps):
            if step and resets[step]:
                for past in pasts:
                    past.clear(is_first[:, step])
            mask = seen[:, step, pasts[0].start : step + window][:, None, None]
            stacked = [past.recent() for past in pasts]
            stream = [x]
            for index, layer in enumerate(self.layers):
                group = self.group_of[index]
                q, offsets = prepared if index == 0 else layer.queries(self.projections[group].norm(x))
                heads, weights = pasts[group].read(q, offsets, mask, stacked[group], layer)
                x = layer.finish(x, heads)
                stream.append(x)
                if maps is not None:
                    maps[index].append(F.pad(weights, (pasts[0].start, seen.shape[2] - window - step)))
            memory = self.blend(stream)
            for past in pasts:
                past.push(memory)
            outputs.append(x)
            memories.append(memory)
        if maps is not None:
            for layer, rows in zip(self.layers, maps, strict=True):
                layer.tap(torch.cat(rows, 2))
        count = next_count(is_first, state.count, window)
        new = torch.cat(memories, 1).to(state.memory.dtype)
        return self.norm(torch.cat(outputs, 1)), FeedbackState(slide(state.memory, new, count), count)

    def blend(self, stream: list[Tensor]) -> Tensor:
        """The memory of a step from what every depth made of it: ``L + 1`` tensors of one shape."""
        weights = self.mix.softmax(0)
        return sum((w * x for w, x in zip(weights.unbind(), stream, strict=True)), torch.zeros_like(stream[0]))

    def stream(self, batch_size: int) -> "FeedbackStream":
        """A live memory with projected keys and values in ring buffers."""
        return FeedbackStream(self, batch_size)

    def flops_per_step(self) -> int:
        """``2 i d`` if projected, ``4 d^2`` per pair of projections, ``4 d^2 + 4 d hidden_dim + 6 w d`` per layer.

        The first is the input. A layer has its query and output, its feed-forward, and scores, positions and answers.
        """
        products = sum(2 * child.weight.numel() for child in self.modules() if isinstance(child, nn.Linear))
        return products + len(self.layers) * 6 * self.config.memory_len * self.config.dim


class Past:
    """Keys and values of one pair of projections during a call.

    Args:
        projections: makes them.
        memory: what the state remembers, ``[b, w, d]``.
        config: settings of the core.
    """

    def __init__(self, projections: Projections, memory: Tensor, config: FeedbackTransformerConfig) -> None:
        self.projections = projections
        self.heads = config.num_heads
        self.window = config.memory_len
        self.block = min(BLOCK, config.memory_len)
        self.start = 0
        """First step of the block; its tensor of earlier steps holds those from ``start - w`` to ``start - 1``."""
        self.old = self._project(memory)
        self.new: list[tuple[Tensor, Tensor]] = []
        self.empty = self._project(memory.new_zeros(1, 1, memory.shape[-1])) if config.official_empty else None

    def _project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self.projections(memory)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def clear(self, rows: Tensor) -> None:
        """Drop the past of rows, so that no NaN of theirs outlives it (a weight of 0 times NaN is NaN)."""
        rows = rows[:, None, None, None]
        self.old, *self.new = (
            (keys.masked_fill(rows, 0.0), values.masked_fill(rows, 0.0)) for keys, values in (self.old, *self.new)
        )

    def recent(self) -> tuple[Tensor, Tensor] | None:
        """Keys and values ``[b, h, n, e]`` of the block's steps so far."""
        if not self.new:
            return None
        keys, values = zip(*self.new, strict=True)
        return torch.cat(keys, 2), torch.cat(values, 2)

    def push(self, memory: Tensor) -> None:
        """Add the memory ``[b, 1, d]`` of a step; a full block joins the earlier steps."""
        self.new.append(self._project(memory))
        if len(self.new) == self.block:
            keys, values = (torch.cat(part, 2) for part in zip(self.old, *self.new, strict=True))
            self.old = keys[:, :, -self.window :], values[:, :, -self.window :]
            self.start += self.block
            self.new = []

    def read(
        self, q: Tensor, offsets: Tensor, mask: Tensor, recent: tuple[Tensor, Tensor] | None, layer: FeedbackLayer
    ) -> tuple[Tensor, Tensor]:
        """Let one layer's query ``[b, h, 1, e]`` read.

        Args:
            q: scaled queries.
            offsets: ``[b, h, 1, w]``, their scores of being w, .., 1 steps back.
            mask: bool ``[b, 1, 1, w + n]``, what the step may see.
            recent: from :meth:`recent`.
            layer: whose scale and dropout apply.

        Returns:
            Answers ``[b, h, 1, e]`` and weights ``[b, h, 1, w + n]``.
        """
        keys, values = self.old
        scores = q @ keys.transpose(-1, -2)
        if recent is not None:
            scores = torch.cat((scores, q @ recent[0].transpose(-1, -2)), -1)
        late = len(self.new)  # the oldest `late` keys of the earlier steps have left the window
        bias = F.pad(offsets, (late, 0))
        if self.empty is None:
            weights = masked_softmax(scores + bias, mask)
        else:
            inside = torch.arange(scores.shape[-1], device=mask.device) >= late
            scores = torch.where(mask, scores, q @ self.empty[0].transpose(-1, -2))
            weights = masked_softmax(scores + bias, inside)
        weights = F.dropout(weights, layer.dropout, layer.training).to(values.dtype)
        seen = weights if self.empty is None else weights.masked_fill(~mask, 0.0)
        heads = seen[..., : self.window] @ values
        if recent is not None:
            heads = heads + seen[..., self.window :] @ recent[1]
        if self.empty is not None:
            heads = heads + (weights - seen).sum(-1, keepdim=True) @ self.empty[1]
        return heads, weights


class FeedbackStream(Stream):
    """Projected memories in ring buffers: a step projects one memory and reads w, without copying any. No dropout.

    Args:
        core: whose weights are used; they are copied into the layout of the processor.
        batch_size: number of streams.
    """

    core: FeedbackTransformer

    def __init__(self, core: FeedbackTransformer, batch_size: int) -> None:
        config, like = core.config, core.mix.detach()
        rows, width = batch_size * config.num_heads, config.dim // config.num_heads
        self._memory = MirrorRing(batch_size, config.memory_len, (config.dim,), like)
        self._keys = [MirrorRing(rows, config.memory_len, (width,), like) for _ in core.projections]
        self._values = [MirrorRing(rows, config.memory_len, (width,), like) for _ in core.projections]
        self._count = core.zeros(batch_size, dtype=torch.long)
        self._ages = torch.arange(config.memory_len, 0, -1, device=like.device)
        self._pack(batch_size, core)
        super().__init__(core, batch_size)

    def _pack(self, rows: int, core: FeedbackTransformer) -> None:
        def pack(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
            return PackedLinear(weight, bias, rows=rows, uses=1000)

        with torch.no_grad():
            self._mix = core.mix.softmax(0)
            self._project = [pack(torch.cat((p.key.weight, p.value.weight))) for p in core.projections]
            self._layers = [
                (
                    layer,
                    pack(layer.query.weight * layer.scale),
                    pack(layer.out.weight),
                    pack(layer.feedforward.expand.weight, layer.feedforward.expand.bias),
                    pack(layer.feedforward.contract.weight, layer.feedforward.contract.bias),
                )
                for layer in core.layers
            ]

    @property
    def state(self) -> FeedbackState:
        """The memory as the core's state (a copy)."""
        return FeedbackState(self._memory.window().clone(), self._count.clone())

    @torch.no_grad()
    def load_state(self, state: FeedbackState) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        self._memory.load(state.memory)
        self._count.copy_(state.count)
        for group, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            for ring, part in zip((keys, values), self.core.projections[group](self._memory.window()), strict=True):
                ring.load(split_heads(part, self.core.config.num_heads).flatten(0, 1))
        self._full_in = self.core.config.memory_len - int(self._count.min())

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step ``[b, i] -> [b, d]``."""
        if torch.is_autocast_enabled(inputs.device.type):  # the prepared products have the dtype of the weights
            with torch.autocast(inputs.device.type, enabled=False):
                return self.advance(inputs.to(self._mix.dtype), is_first)
        if is_first is not self._never:
            self._clear(is_first)
        core, heads = self.core, self.core.config.num_heads
        x = core.project(inputs)
        mask = None  # once every row has w memories, there is nothing to mask
        if self._full_in > 0:
            mask = (self._ages <= self._count[:, None]).repeat_interleave(heads, 0)[:, None]
        memory = self._mix[0] * x
        for index, (layer, query, out, expand, contract) in enumerate(self._layers):
            group = core.group_of[index]
            projection = core.projections[group]
            q = query(projection.norm(x)).view(-1, 1, self._keys[group].data.shape[-1])
            z = layer.attention_norm(x + out(self._read(q, layer, group, mask).view_as(x)))
            if layer.pre:
                x = z + contract(expand(layer.feedforward_norm(z)).relu_())
            else:
                x = layer.feedforward_norm(z + contract(expand(z).relu_()))
            memory = torch.addcmul(memory, self._mix[index + 1], x)
        self._push(memory)
        return core.norm(x)

    def _read(self, q: Tensor, layer: FeedbackLayer, group: int, mask: Tensor | None) -> Tensor:
        # q [b*h, 1, e], mask [b*h, 1, w] -> [b*h, 1, e]
        keys, values = self._keys[group].window(), self._values[group].window()
        scores = torch.baddbmm(q @ layer.positions.table.t(), q, keys.transpose(1, 2))
        # Empty slots hold what projections make of zeros, which is what official_empty wants to be seen.
        weights = masked_softmax(scores, None if self.core.config.official_empty else mask).to(values.dtype)
        if layer.tap.listening:
            layer.tap(weights.view(self.batch_size, -1, *weights.shape[1:]))
        return weights @ values

    def _push(self, memory: Tensor) -> None:
        self._memory.push(memory)
        for group, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            key, value = self._project[group](self.core.projections[group].norm(memory)).chunk(2, -1)
            keys.push(key.reshape(-1, keys.data.shape[-1]))
            values.push(value.reshape(-1, values.data.shape[-1]))
        if self._full_in > 0:
            self._count += 1
            self._count.clamp_(max=self.core.config.memory_len)
            self._full_in -= 1

    def _clear(self, rows: Tensor) -> None:
        self._memory.clear(rows)
        self._count.masked_fill_(rows, 0)
        self._full_in = self.core.config.memory_len
        empty = self._memory.data.new_zeros(1, self.core.config.dim)
        for group, rings in enumerate(zip(self._keys, self._values, strict=True)):
            for ring, part in zip(rings, self.core.projections[group](empty), strict=True):
                fresh = part.view(1, -1, 1, ring.data.shape[-1])
                data = ring.data.unflatten(0, (self.batch_size, -1))
                data.copy_(torch.where(rows[:, None, None, None], fresh, data))

    def buffers(self) -> list[Tensor]:
        """Memories, their keys and values, and counts."""
        return [self._count, *(ring.data for ring in (self._memory, *self._keys, *self._values))]
