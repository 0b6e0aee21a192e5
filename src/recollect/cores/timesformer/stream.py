"""TimeSformer in a stream: each layer's frames in a ring, without projections.

A frame's keys change at every step, as its age does. In the divided form only query and answer are projected:

    y_sa = z_s + P_a              r_sa = (|y_sa|^2 / d + eps)^-1/2                 the window
    scores = (W_k'^T q) y r       answer = W_v' (sum over s of weights r y)        and constants

which takes O(n w d h), while projecting the window again takes O(n w d^2) more. In the joint form the n queries of a
frame share n (w + 1) keys, whose cost is small beside n^2 (w + 1) scores: a step projects y r again, a few rows at a
time, which is faster than reading stored products.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.stream import RowStream
from recollect.cores.timesformer.attention import center
from recollect.cores.timesformer.core import TimeSformer, TimeSformerLayer, TimeSformerState
from recollect.layers.ring_attention import Visibility
from recollect.layers.rings import MirrorRing, Rows
from recollect.ops.packed_linear import without_autocast

SCORES = 2**21
"""Scores of joint attention that are computed together."""


class SamePlaceStep:
    """Divided attention to the window for one step, with centered times ``[w + 1, d]``; the ring has rows of places."""

    def __init__(self, layer: TimeSformerLayer, times: Tensor, batch_size: int, places: int) -> None:
        attention = layer.window_attention
        self.attention, self.times, self.places = attention, times, places
        heads, d = attention.num_heads, times.shape[1]
        folded = attention.folded()
        keys, values = folded.keys_values.unflatten(0, (2, heads, -1))  # h e d
        queries = folded.queries.unflatten(0, (heads, -1))
        # W_k^T W_q, head by head: from a standardized token to the vector whose products with frames are scores.
        self.absorbed = torch.einsum("hed,hec->hdc", keys, queries).flatten(0, 1).contiguous()
        self.absorbed_bias = torch.einsum("hed,he->hd", keys, folded.queries_bias.unflatten(0, (heads, -1))).flatten()
        # W_o W_v, head by head.
        out = attention.out.weight.unflatten(1, (heads, -1))  # d h e
        self.out = torch.einsum("che,hed->chd", out, values).flatten(1).contiguous()
        self.out_bias = F.linear(folded.values_bias, attention.out.weight, attention.out.bias)
        self.ring = MirrorRing(batch_size * places, len(times), (d,), times)

    def load(self, frames: Tensor, rows: Rows | None = None) -> None:
        """Replace the window by ``[b, w, n, d]``, oldest first."""
        by_place = frames.transpose(1, 2).flatten(0, 1)
        self.ring.load(F.pad(by_place, (0, 0, 1, 0)), self._entries(rows))

    def frames(self, rows: Rows | None = None) -> Tensor:
        """Return the window after a step, ``[b, w, n, d]``."""
        return self.ring.window(self._entries(rows))[:, 1:].unflatten(0, (-1, self.places)).transpose(1, 2)

    def clear(self, rows: Rows) -> None:
        """Set the buffers of rows that begin an episode to zero."""
        self.ring.clear(rows.of_parts(self.places))

    def _entries(self, rows: Rows | None) -> Tensor | None:
        return None if rows is None else rows.of_parts(self.places)

    def __call__(self, x: Tensor, hidden: Tensor | None, rows: Rows | None = None) -> Tensor:
        """Attend from ``[b, n, d]``; ``hidden [b, w + 1]`` is 0 where visible, else the smallest number."""
        b, n, d = x.shape
        heads = self.attention.num_heads
        self.ring.push((center(x) - self.times[-1]).flatten(0, 1), self._entries(rows))
        aged = self.ring.window(self._entries(rows)) + self.times  # bn w+1 d
        inverse = aged.square().mean(-1).add_(self.attention.norm.eps).rsqrt_()[:, None]
        queries = F.linear(F.layer_norm(x, (d,)), self.absorbed, self.absorbed_bias).view(b * n, heads, d)
        scores = torch.bmm(queries, aged.transpose(1, 2)).mul_(inverse)
        if hidden is not None:
            scores += hidden.repeat_interleave(n, 0)[:, None]
        weights = scores.softmax(-1)
        self._show(weights, b)
        read = torch.bmm(weights.mul_(inverse), aged)  # bn h d
        return F.linear(read.view(b, n, heads * d), self.out, self.out_bias)

    def _show(self, weights: Tensor, batch_size: int) -> None:
        tap, place_tap = self.attention.tap, self.attention.place_tap
        if tap.has_listeners or place_tap.has_listeners:
            by_place = weights.unflatten(0, (batch_size, -1)).transpose(1, 2)[:, :, None]  # b h 1 n s
            tap(by_place.mean(3))
            place_tap(by_place.clone())


class AllPlacesStep:
    """Joint attention to the window for one step, with centered times ``[w + 1, d]``."""

    def __init__(self, layer: TimeSformerLayer, times: Tensor, batch_size: int, places: int) -> None:
        self.attention, self.times = layer.window_attention, times
        self.folded = self.attention.folded()
        self.rows = max(1, SCORES // (self.attention.num_heads * places**2 * len(times)))
        self.ring = MirrorRing(batch_size, len(times), (places, times.shape[1]), times)

    def load(self, frames: Tensor, rows: Rows | None = None) -> None:
        """Replace the window by ``[b, w, n, d]``, oldest first."""
        self.ring.load(F.pad(frames, (0, 0, 0, 0, 1, 0)), None if rows is None else rows.index)

    def frames(self, rows: Rows | None = None) -> Tensor:
        """Return the window after a step, ``[b, w, n, d]``."""
        return self.ring.window(None if rows is None else rows.index)[:, 1:]

    def clear(self, rows: Rows) -> None:
        """Set the buffers of rows that begin an episode to zero."""
        self.ring.clear(rows.index)

    def __call__(self, x: Tensor, hidden: Tensor | None, rows: Rows | None = None) -> Tensor:
        """Attend from ``[b, n, d]``; ``hidden [b, w + 1]`` is 0 where visible, else the smallest number."""
        index = None if rows is None else rows.index
        self.ring.push(center(x) - self.times[-1], index)
        frames = self.ring.window(index)
        queries = F.linear(F.layer_norm(x, x.shape[-1:]), self.folded.queries, self.folded.queries_bias)
        visible = None if hidden is None else hidden == 0
        # A few rows at a time: their keys are still in the cache when they are read. Taps need all rows at once.
        together = len(x) if self.attention.has_listeners else self.rows
        parts = [slice(row, row + together) for row in range(0, len(x), together)]
        answers = [
            self._answer(queries[part], frames[part], None if visible is None else visible[part]) for part in parts
        ]
        return self.attention.out(torch.cat(answers) + self.folded.values_bias)

    def _answer(self, queries: Tensor, frames: Tensor, visible: Tensor | None) -> Tensor:
        """Attend from some rows: ``[b, n, d] -> [b, n, d]``."""
        attention = self.attention
        tokens = (frames + self.times[:, None]).flatten(1, 2)  # b s d
        tokens *= tokens.square().mean(-1, keepdim=True).add_(attention.norm.eps).rsqrt_()
        entries = self.folded.keys_values @ tokens.transpose(1, 2)  # b 2d s
        keys, values = entries.unflatten(1, (2, attention.num_heads, -1)).unbind(1)
        return attention.read_all(queries, keys, values, visible)


class TimeSformerStream(RowStream):
    """Stream of a :class:`TimeSformer`."""

    core: TimeSformer

    def __init__(self, core: TimeSformer, batch_size: int) -> None:
        times = core.times()
        kind = SamePlaceStep if core.config.attention == "divided" else AllPlacesStep
        with without_autocast(times):
            self._layers = [kind(layer, times, batch_size, core.places) for layer in core.layers]
        self._visible = Visibility(batch_size, core.config.memory_len, times.device, times.dtype)
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> TimeSformerState:
        """Return a copy of the core's state of some rows; None: of all."""
        window = torch.stack([layer.frames(rows) for layer in self._layers], 1)
        count = self._visible.count
        return TimeSformerState(window, count.clone() if rows is None else count[rows.index])

    def write_rows(self, state: TimeSformerState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        self._visible.load(state.count, rows)
        with without_autocast(state.window):
            for layer, frames in zip(self._layers, state.window.unbind(1), strict=True):
                layer.load(frames, rows)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, dim]``."""
        if starting := self.starting(is_first, rows):
            self._visible.clear(starting)
            for layer in self._layers:
                layer.clear(starting)
        with without_autocast(inputs):
            hidden = self._visible.step(rows)
            x, others = self.core.embed(inputs.to(self._dtype))
            for layer, weights in zip(self._layers, self.core.layers, strict=True):
                x = weights.finish(x, layer(x, hidden, rows))
            return self.core.answer(x, others)

    def buffers(self) -> list[Tensor]:
        """Return the rings and the counts."""
        return [*(layer.ring.data for layer in self._layers), self._visible.count]
