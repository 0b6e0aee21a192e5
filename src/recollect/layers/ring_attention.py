"""One step, or a few, of a pre-norm attention layer, in place: the parts of streams of windowed Transformers.

    q, k, v = W n(x) + b                      norm, scale and biases are folded into W and b
    a = softmax(q K^T + q R^T + c)            K, V: rings of the last w + 1 steps, newest last;  R, c: fixed
    x = g(x, act(W_o a V))                    then the feed-forward, in the same way

Keys and values are projected once, when their step arrives. A step costs the products with the weights and two
passes over the window. Everything that does not depend on the step is computed when the stream is constructed.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.feedforward import FeedForward, StreamFeedForward
from recollect.layers.gates import GRUGate
from recollect.layers.rings import MirrorRing, Rows
from recollect.layers.tap import Tap
from recollect.layers.window_attention import softmax_top_k, to_full, to_window
from recollect.ops.packed_linear import PackedLinear, working_dtype
from recollect.ops.reduced_linear import cache_dtype
from recollect.ops.short_softmax import softmax


class RingAttention:
    """Multi-head attention of one new step over itself and the w steps before it.

    Args:
        qkv: weight ``[3 dim, dim]`` and bias ``[3 dim]`` for scaled queries, keys and values of standardized inputs.
        batch_size: b.
        num_heads: h.
        window: w.
        offset_keys: R ``[h, w + 1, e]``, keys of the offsets w ... 0, or None.
        offset_bias: c ``[h, w + 1]``, or None.
        top_k: entries that the softmax runs over; all when None.
        tap: receives weights ``[b, h, 1, w + 1]``.
    """

    def __init__(
        self,
        qkv: tuple[Tensor, Tensor],
        *,
        batch_size: int,
        num_heads: int,
        window: int,
        offset_keys: Tensor | None = None,
        offset_bias: Tensor | None = None,
        top_k: int | None = None,
        tap: Tap,
    ) -> None:
        self.batch_size, self.num_heads, self.window = batch_size, num_heads, window
        self.top_k, self.tap = top_k, tap
        weight = qkv[0]
        self.width = weight.shape[1]
        self.dtype = working_dtype(weight)
        # Outputs in the order [h, 3, e]: those of a head are then one piece of memory.
        by_head = [part.unflatten(0, (3, num_heads, -1)).transpose(0, 1).flatten(0, 2) for part in qkv]
        self.qkv = PackedLinear.for_stream(*by_head, rows=batch_size, dtype=self.dtype)
        self.offset_keys = None if offset_keys is None else offset_keys.to(self.dtype).transpose(1, 2).contiguous()
        self.offset_bias = None if offset_bias is None else offset_bias.to(self.dtype)[:, None]  # h 1 w+1
        # Rows before heads: what a step of some rows reads and writes is then one piece of memory for each of them.
        entry = (2, self.width // num_heads)
        self.cached = cache_dtype(self.dtype)  # where it is narrower, so are the products with keys and values
        self.ring = MirrorRing(batch_size * num_heads, window + 1, entry, weight.new_empty(0, dtype=self.cached))
        keys, values = self.ring.data.unbind(2)
        self._keys, self._values = keys.transpose(1, 2), values  # of both halves, b*h e 2(w+1) and b*h 2(w+1) e

    def entry(self, keys_values: Tensor) -> Tensor:
        """Split keys and values ``[b, ..., 2 dim]`` into heads ``[b*h, ..., 2, e]``."""
        return keys_values.unflatten(-1, (2, self.num_heads, -1)).movedim(-2, 1).flatten(0, 1)

    def load(self, keys_values: Tensor, rows: Rows | None = None) -> None:
        """Replace the ring: ``[b, w, 2 dim]``, oldest first."""
        entries = self.entry(keys_values.to(self.cached))
        entries = torch.cat((entries.new_zeros(entries.shape[0], 1, *entries.shape[2:]), entries), 1)
        self.ring.load(entries, self._places(rows))

    def contents(self, rows: Rows | None = None) -> Tensor:
        """Return the keys and values of the last w steps, ``[b, w, 2 dim]``."""
        heads = self.ring.window(self._places(rows))[:, 1:].unflatten(0, (-1, self.num_heads))  # b h w 2 e
        return heads.movedim(1, -2).flatten(-3)

    def clear(self, rows: Rows) -> None:
        """Set the buffers of rows that begin an episode to zero."""
        self.ring.clear(rows.of_parts(self.num_heads))

    def _places(self, rows: Rows | None) -> Tensor | None:
        return None if rows is None else rows.of_parts(self.num_heads)

    def __call__(
        self,
        x: Tensor,
        hidden: Tensor | None,
        turn: Callable[[Tensor], Tensor] | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        """Attend from one step to the window in the ring buffer.

        Args:
            x: ``[b, dim]``, raw.
            hidden: float ``[b, w + 1]``, 0 where a step is visible and the smallest number elsewhere; None
                when every row has a full window.
            turn: applied to queries and keys ``[b, 2 dim]`` before their product (rotary positions).
            rows: of ``x``; None: all.

        Returns:
            ``[b, dim]``, before the output projection.
        """
        b, h = x.shape[0], self.num_heads
        qkv = self.qkv(F.layer_norm(x, x.shape[-1:]).to(self.dtype))
        if turn is not None:
            qkv = self._turned(qkv, turn)
        heads, places = qkv.view(b * h, 3, -1), self._places(rows)
        queries = heads.narrow(1, 0, 1)  # b*h 1 e
        self.ring.push(heads.narrow(1, 1, 2), places)
        keys, values = self._window(places)
        scores = self.offset_bias
        if hidden is not None:
            hidden = hidden.to(self.dtype)
            scores = hidden.expand(h, -1, -1) if scores is None else scores + hidden
        if self.offset_keys is not None:
            keys_of = queries.view(b, h, -1).transpose(0, 1), self.offset_keys
            scores = torch.bmm(*keys_of) if scores is None else torch.baddbmm(scores, *keys_of)
        elif scores is not None:
            scores = scores.expand(h, b, -1)
        if scores is not None:
            scores = scores.transpose(0, 1).reshape(b * h, 1, -1)
        if scores is None:
            scores = torch.bmm(queries.to(self.cached), keys)
        elif self.cached != self.dtype:
            scores = scores + torch.bmm(queries.to(self.cached), keys)
        else:
            scores = torch.baddbmm(scores, queries, keys)
        if scores.dtype in (torch.bfloat16, torch.float16):
            scores = scores.float()
        if self.top_k is None:
            weights = softmax(scores)
        else:
            seen = torch.ones_like(scores, dtype=torch.bool)
            if hidden is not None:
                seen = (hidden == 0)[:, None].expand(b, h, -1).reshape(scores.shape)
            weights = softmax_top_k(scores, seen, self.top_k)
        if self.tap.has_listeners:
            self.tap(weights.view(b, h, 1, -1))
        read = torch.bmm(weights.to(self.cached), values).to(self.dtype)  # b*h 1 e
        return read.view(b, -1)

    def _window(self, places: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return keys ``[r*h, e, w + 1]`` and values ``[r*h, w + 1, e]`` of the window."""
        if places is None:
            start, length = self.ring.start, self.ring.length
            return self._keys.narrow(2, start, length), self._values.narrow(1, start, length)
        keys, values = self.ring.window(places).unbind(2)
        return keys.transpose(1, 2), values

    def _turned(self, qkv: Tensor, turn: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function of queries and keys ``[..., 2 dim]`` to those in ``[..., 3 dim]``."""
        heads = qkv.unflatten(-1, (self.num_heads, 3, -1))
        turned = turn(heads[..., :2, :].flatten(-3)).unflatten(-1, (self.num_heads, 2, -1))
        return torch.cat((turned, heads[..., 2:, :]), -2).flatten(-3)

    def block(self, x: Tensor, hidden: Tensor, turn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Attend to the windows of t new steps in one pass.

        Args:
            x: ``[b*t, dim]``, raw.
            hidden: float ``[b, h, t, s]``, from :meth:`Visibility.block`, in the dtype of the products.
            turn: applied to queries and keys ``[b, t, 2 dim]`` before their product.

        Returns:
            ``[b*t, dim]``, before the output projection.
        """
        b, h, t, s = hidden.shape
        d = self.width
        qkv = self.qkv(F.layer_norm(x, x.shape[-1:]).to(self.dtype)).view(b, t, 3 * d)
        if turn is not None:
            qkv = self._turned(qkv, turn)
        heads = qkv.view(b, t, h, 3, d // h).transpose(1, 2).reshape(b * h, t, 3, d // h)
        queries, new = heads[:, :, 0], heads[:, :, 1:]
        keys, values = self._push(new.to(self.cached), s).to(self.dtype).unbind(2)  # b*h s e
        scores = torch.baddbmm(self._known(queries, hidden), queries, keys.transpose(1, 2))
        if scores.dtype in (torch.bfloat16, torch.float16):
            scores = scores.float()
        weights = (
            softmax(scores) if self.top_k is None else softmax_top_k(scores, hidden.view_as(scores) == 0, self.top_k)
        )
        if self.tap.has_listeners:
            padded = F.pad(weights.view(hidden.shape), (self.window + t - s, 0))
            self.tap(to_window(padded, self.window))
        read = torch.bmm(weights.to(self.dtype), values)  # b*h t e
        return read.view(b, h, t, -1).transpose(1, 2).reshape(b * t, d)

    def _push(self, new: Tensor, size: int) -> Tensor:
        """Add ``[b*h, t, 2, e]`` and return the newest entries ``[b*h, size, 2, e]``, which may exceed the ring."""
        if size <= self.ring.length:
            self.ring.extend(new)
            return self.ring.window()[:, -size:]
        older = self.ring.window()[:, self.ring.length + new.shape[1] - size :]
        entries = torch.cat((older, new), 1)  # before the oldest are overwritten
        self.ring.extend(new)
        return entries

    def _known(self, queries: Tensor, hidden: Tensor) -> Tensor:
        """Return the part of scores ``[b*h, t, s]`` that does not depend on the keys."""
        b, h, t, s = hidden.shape
        scores = hidden
        if self.offset_keys is not None:
            of_heads = queries.view(b, h, t, -1).transpose(0, 1).reshape(h, b * t, -1)
            offsets = torch.bmm(of_heads, self.offset_keys)
            offsets = offsets if self.offset_bias is None else offsets + self.offset_bias
            scores = scores + to_full(offsets.unflatten(1, (b, t)).transpose(0, 1))[..., -s:]
        elif self.offset_bias is not None:
            scores = scores + to_full(self.offset_bias.expand(h, t, -1))[..., -s:]
        return scores.reshape(b * h, t, s)


class StreamGate:
    """A gate of ``layers/gates.py`` for one step, its bias folded into a product."""

    def __init__(self, gate: nn.Module, batch_size: int) -> None:
        self.gru = isinstance(gate, GRUGate)
        if isinstance(gate, GRUGate):
            self.dtype = working_dtype(gate.bias)
            zeros = torch.zeros_like(gate.bias)
            bias = torch.cat((zeros, -gate.bias, zeros))
            update, stream, reset = gate.from_update.weight, gate.from_stream.weight, gate.from_reset.weight
            self.from_update = PackedLinear.for_stream(update, bias, rows=batch_size, dtype=self.dtype)
            self.from_stream = PackedLinear.for_stream(stream, rows=batch_size, dtype=self.dtype)
            self.from_reset = PackedLinear.for_stream(reset, rows=batch_size, dtype=self.dtype)

    def __call__(self, stream: Tensor, update: Tensor) -> Tensor:
        """``[b, dim], [b, dim] -> [b, dim]`` in the dtype of ``stream``."""
        if not self.gru:
            return stream + update
        d = stream.shape[1]
        drive = self.from_update(update.to(self.dtype))
        both = self.from_stream.plus(stream.to(self.dtype), drive[:, : 2 * d].contiguous()).sigmoid_()
        reset = both[:, :d] * stream
        candidate = self.from_reset.plus(reset.to(self.dtype), drive[:, 2 * d :].contiguous()).tanh_()
        return torch.lerp(stream, candidate.to(stream.dtype), both[:, d:].to(stream.dtype))


class StreamLayer:
    """Attention and feed-forward of one layer for one step, without dropout; packs their weights.

    ``out`` is the projection of the heads, ``norm`` that of the feed-forward, ``gates`` come after attention and after
    the feed-forward, and with ``relu`` a ReLU ends each of the two.
    """

    def __init__(
        self,
        attention: RingAttention,
        out: nn.Linear,
        norm: nn.LayerNorm,
        feed_forward: FeedForward,
        gates: tuple[nn.Module, nn.Module],
        *,
        relu: bool = False,
    ) -> None:
        rows, dtype = attention.batch_size, attention.dtype
        self.attention = attention
        self.out = PackedLinear.for_stream(out.weight, rows=rows, dtype=dtype)
        folded = {"scale": norm.weight, "shift": norm.bias}
        self.feed_forward = StreamFeedForward(feed_forward, rows=rows, dtype=dtype, **folded)
        self.gate_attention, self.gate_forward = (StreamGate(gate, rows) for gate in gates)
        self.relu, self.dtype = relu, dtype

    def __call__(
        self,
        x: Tensor,
        hidden: Tensor | None,
        turn: Callable[[Tensor], Tensor] | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        """``[b, dim] -> [b, dim]``; arguments as in :meth:`RingAttention.__call__`."""
        return self._after(x, self.attention(x, hidden, turn, rows))

    def block(self, x: Tensor, hidden: Tensor, turn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Compute the outputs ``[b*t, dim]`` of t steps from the arguments of :meth:`RingAttention.block`."""
        return self._after(x, self.attention.block(x, hidden, turn))

    def _after(self, x: Tensor, read: Tensor) -> Tensor:
        """Compute the rest of the layer from the heads' answers ``[b, dim]``."""
        x = self.gate_attention(x, self._activate(self.out(read)))
        return self.gate_forward(x, self._activate(self.feed_forward(F.layer_norm(x, x.shape[-1:]))))

    def _activate(self, update: Tensor) -> Tensor:
        return update.relu_() if self.relu else update


class Visibility:
    """Visible steps of each row's window; tracks without reading from the device when all windows are full."""

    def __init__(self, batch_size: int, window: int, device: torch.device, dtype: torch.dtype) -> None:
        self.window = window
        self.count = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self._offsets = torch.arange(window, -1, -1, device=device)
        self._lowest = torch.finfo(dtype).min
        self._zeros = torch.zeros(batch_size, window + 1, device=device, dtype=dtype)
        self._steps_to_full = window
        self._most = 0  # no count is larger

    def load(self, count: Tensor, rows: Rows | None = None) -> None:
        """Copy the counts of a state, ``[b]``."""
        self._steps_to_full, most = self.window, int(count.max())
        if rows is None:
            self.count.copy_(count)
            self._most = most
        else:
            self.count.index_copy_(0, rows.index, count)
            self._most = max(self._most, most)

    def clear(self, rows: Rows) -> None:
        """Empty the windows of the rows."""
        self.count.index_fill_(0, rows.index, 0)
        self._steps_to_full = self.window
        if len(rows) == len(self.count):
            self._most = 0

    def step(self, rows: Rows | None = None) -> Tensor | None:
        """Count the next step, and return the mask of the places that are hidden from it."""
        if rows is not None:
            count = self.count.index_select(0, rows.index)
            self.count.index_copy_(0, rows.index, (count + 1).clamp(max=self.window))
            self._most = min(self._most + 1, self.window)
            return self._zeros[: len(rows)].masked_fill(self._offsets > count[:, None], self._lowest)
        if self._steps_to_full <= 0:
            return None
        hidden = self._zeros.masked_fill(self._offsets > self.count[:, None], self._lowest)
        self.count.add_(1).clamp_(max=self.window)
        self._steps_to_full -= 1
        self._most = min(self._most + 1, self.window)
        return hidden

    def block(self, steps: int, heads: int) -> Tensor:
        """Count the next t steps, and return the mask of the places that are hidden from them.

        Returns:
            Float ``[b, h, t, s]``, the same for all heads: 0 where a step sees one of the newest s entries, of which
            the last t are the steps themselves, and the smallest number elsewhere.
        """
        ahead = torch.arange(steps, device=self.count.device)[:, None]
        back = ahead + self._most - torch.arange(self._most + steps, device=self.count.device)  # t s
        reach = (self.count[:, None, None] + ahead).clamp(max=self.window)  # b t 1
        hidden = self._zeros.new_zeros(len(reach), heads, *back.shape)
        hidden.masked_fill_(((back < 0) | (back > reach))[:, None], self._lowest)
        self.count.add_(steps).clamp_(max=self.window)
        self._steps_to_full -= steps
        self._most = min(self._most + steps, self.window)
        return hidden


class StreamStack:
    """All layers of a windowed Transformer, for one step or a block of steps."""

    def __init__(self, layers: list[StreamLayer]) -> None:
        attention = layers[0].attention
        self.layers = layers
        self.dtype = layers[0].dtype
        self.visible = Visibility(attention.batch_size, attention.window, attention.ring.data.device, self.dtype)

    def load(self, count: Tensor, keys_values: Sequence[Tensor], rows: Rows | None = None) -> None:
        """Replace the memory by step counts ``[b]`` and, per layer, keys and values ``[b, w, 2 dim]``, oldest first."""
        self.visible.load(count, rows)
        for layer, entries in zip(self.layers, keys_values, strict=True):
            layer.attention.load(entries, rows)

    def clear(self, rows: Rows) -> None:
        """Empty the windows of the rows."""
        self.visible.clear(rows)
        for layer in self.layers:
            layer.attention.clear(rows)

    def __call__(
        self, x: Tensor, turn: Callable[[Tensor], Tensor] | None = None, rows: Rows | None = None
    ) -> list[Tensor]:
        """Run one step ``[b, dim]``, or several ``[b, t, dim]`` of all rows, through all layers.

        Returns:
            The input of each layer and the output of the last, each of the shape of ``x``.
        """
        if x.ndim == 2:
            hidden = self.visible.step(rows)
            stages = [x]
            for layer in self.layers:
                stages.append(layer(stages[-1], hidden, turn, rows))
            return stages
        hidden = self.visible.block(x.shape[1], self.layers[0].attention.num_heads)
        stages = [x.flatten(0, 1)]
        for layer in self.layers:
            stages.append(layer.block(stages[-1], hidden, turn))
        return [stage.view(x.shape) for stage in stages]

    def buffers(self) -> list[Tensor]:
        """Return the rings and the counts."""
        return [*(layer.attention.ring.data for layer in self.layers), self.visible.count]
