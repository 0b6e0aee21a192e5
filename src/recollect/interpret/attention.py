"""Attention of a core over an episode, recorded through its Taps and arranged by absolute steps.

An agent acts as always; afterwards its core reads the whole episode again, in calls of some steps, and this time the
Taps record. So recording cannot change an action, and costs one pass that sees many steps at once.
"""

import re
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.cores import HierarchicalChunkMemory, SpatioTemporalAttention, TemporalLatentBottleneck
from recollect.cores.contract import MemoryCore
from recollect.interpret.record import Head, SlotWeights
from recollect.interpret.spatial_maps import NOW, NOW_AND_PAST, SAME_PLACE, SpatialMaps, TapCall, collect_spatial_maps
from recollect.layers.tap import Tap, listen, multiply_by_relevance

CALL = 64  # steps of a call. No core cuts so few into blocks, so that every Tap of steps shows its weights once a call
MOST_GROUPS = 24  # groups of steps in place of chunks in a core that has none
CHOICE, RELEVANCE, INSIDE = "memory.choice_tap", "memory.relevance_tap", "memory.tap"
"""Ends of the names of the Taps of a hierarchical chunk memory."""
MAPS = ("heads", "temporal", "chunks", "chunk_rel", "chunk_read", "chunk_tail")


class Attention(NamedTuple):
    """Recorded attention; the fields are those of :class:`~recollect.interpret.record.EpisodeRecord`."""

    heads: tuple[Head, ...]
    temporal: np.ndarray | None
    chunks: tuple[tuple[int, int], ...]
    chunk_rel: np.ndarray | None
    chunk_read: np.ndarray | None
    chunk_tail: np.ndarray | None
    slots: tuple[SlotWeights, ...]
    places: SpatialMaps
    outputs: Tensor  # ``[1, T, *output_shape]``: of the core
    notes: tuple[str, ...]

    def maps(self) -> dict[str, Any]:
        """Return the fields of attention to steps and chunks."""
        return {name: getattr(self, name) for name in MAPS}


class _Call(NamedTuple):
    """One call of the core."""

    start: int
    clock: Tensor  # long ``[1, t]``
    weights: dict[str, list[Tensor]]  # by the name of the Tap

    def window_steps(self, core: MemoryCore[Any], name: str) -> np.ndarray:
        """Return the absolute steps ``[t, s]`` of a window's places."""
        first, _ = core.attended_steps(self.clock)[name]
        return first.expand(1, self.clock.shape[1], -1)[0].cpu().numpy()


@torch.no_grad()
def record_attention(core: MemoryCore[Any], inputs: Tensor) -> Attention:
    """Let a core read an episode, and arrange the weights of its Taps.

    Args:
        core: in ``eval`` mode.
        inputs: ``[1, T, *input_shape]``, one episode from its start.
    """
    calls, outputs = [], []
    state, steps = core.initial_state(1), inputs.shape[1]
    length = CALL
    if isinstance(core, TemporalLatentBottleneck):  # its Taps show whole chunks
        length = -(-CALL // core.config.chunk_len) * core.config.chunk_len
    has_taps = any(isinstance(module, Tap) for module in core.modules())
    for start in range(0, steps, length):
        part = inputs[:, start : start + length]
        is_first = torch.zeros(part.shape[:2], dtype=torch.bool, device=part.device)
        is_first[:, 0] = start == 0
        weights: dict[str, list[Tensor]] = {}
        if has_taps:
            with listen(core, lambda name, tensor, to=weights: to.setdefault(name, []).append(tensor)):
                output, state = core(part, state, is_first)
        else:
            output, state = core(part, state, is_first)
        outputs.append(output)
        clock = torch.arange(start, start + part.shape[1], device=part.device)[None]
        calls.append(_Call(start, clock, weights))
    return _arrange(core, calls, torch.cat(outputs, 1))


def _arrange(core: MemoryCore[Any], calls: list[_Call], outputs: Tensor) -> Attention:
    steps = outputs.shape[1]
    stepwise = [name for name in core.attended_steps(calls[0].clock) if name in calls[0].weights]
    windows = [name for name in stepwise if not name.endswith(CHOICE)]
    maps, heads = [], []
    for name in windows:
        found = _window(core, calls, name, steps)
        maps.append(found)
        heads += [Head(layer=_layer(name, windows), head=h, kind="window", tap=name) for h in range(found.shape[1])]
    number_of_windows = len(heads)
    chunked = [name.removesuffix(CHOICE) for name in stepwise if name.endswith(CHOICE)]
    chunks, notes = _chunks(core, steps), []
    relevance = []
    for prefix in chunked:
        found, rel = _chunk_heads(core, calls, prefix, steps, chunks)
        maps.append(found)
        number, name = found.shape[1], prefix + INSIDE
        heads += [Head(layer=_layer(prefix, chunked), head=h, kind="chunks", tap=name) for h in range(number)]
        relevance.append(rel)
    slots = tuple(_slots(core, calls, set(stepwise), steps))
    places = collect_spatial_maps(core, _place_taps(core, calls), heads)
    if isinstance(core, SpatioTemporalAttention):
        notes.append("maps of places are of the queries of this core: query h beside head h of its memory")
    if not maps:
        notes.append(_nothing(core, bool(slots), bool(places.heads)))
        return Attention(places.heads, None, chunks, None, None, None, slots, places, outputs, tuple(notes))
    if isinstance(core, HierarchicalChunkMemory) and core.config.reading.relevance == "topk_softmax":
        notes.append(
            f"relevance of chunks is shown over all of them; this core renormalises it over the {core.config.top_k} "
            "that it reads, so its maps of steps sum to 1"
        )
    temporal = np.concatenate(maps, 1)
    rel, read, tail = _by_chunk(temporal, chunks, number_of_windows, relevance)
    return Attention(tuple(heads), temporal, chunks, rel, read, tail, slots, places, outputs, tuple(notes))


def _place_taps(core: MemoryCore[Any], calls: list[_Call]) -> dict[str, list[TapCall]]:
    """Return the weights with an axis of places, call by call; several tensors of a call are later pieces of time."""
    return {
        name: [
            TapCall(torch.cat(call.weights[name], 2), lambda window, call=call: call.window_steps(core, window))
            for call in calls
        ]
        for name in calls[0].weights
        if core.get_submodule(name).axes in (NOW, NOW_AND_PAST, SAME_PLACE)
    }


def _layer(name: str, names: list[str]) -> int:
    """Return the number of the layer in a Tap's name, or else its place among the names."""
    found = re.match(r"(?:layers|blocks)\.(\d+)\.", name)
    return int(found[1]) if found else names.index(name)


def _nothing(core: MemoryCore[Any], has_slots: bool, has_places: bool) -> str:
    name = type(core).__name__
    if isinstance(core, HierarchicalChunkMemory):
        return "carry_across_episodes keeps chunks of other episodes, which have no place on this one's time axis"
    if has_places:
        return (
            f"{name} attends to places of the present picture, not to the past; see the effect of removing its memory"
        )
    if has_slots:
        return f"{name} keeps slots and no single steps: it shows which slots are read and written, not which moments"
    return f"{name} does not attend to the past; see the effect of removing its memory"


def _chunks(core: MemoryCore[Any], steps: int) -> tuple[tuple[int, int], ...]:
    """Return the chunks that the core completes in so many steps and may read in them; else groups of steps."""
    if isinstance(core, HierarchicalChunkMemory) and not core.config.carry_across_episodes:
        c = core.config
        number = int(c.chunks_after(torch.tensor(steps - 1)))
        if number:
            return tuple((i * c.stride, i * c.stride + c.chunk_len) for i in range(number))
    size = max(1, -(-steps // MOST_GROUPS))
    return tuple((start, min(start + size, steps)) for start in range(0, steps, size))


def _rows(parts: list[Tensor], steps: int) -> np.ndarray:
    """Convert weights ``b h t s`` of one call of one row to ``[t, h, s]``; more rows are later pieces of time."""
    joined = torch.cat([part.movedim(1, 2).flatten(0, 1) for part in parts])
    return joined[:steps].float().cpu().numpy()


def _window(core: MemoryCore[Any], calls: list[_Call], name: str, steps: int) -> np.ndarray:
    """Return ``[T, h, T]`` of a Tap of single steps (or of intervals, over whose steps the weight is spread)."""
    heads = calls[0].weights[name][0].shape[1]
    out = np.full((steps, heads, steps), np.nan, np.float32)
    for call in calls:
        weights = _rows(call.weights[name], call.clock.shape[1])
        places = core.attended_steps(call.clock)[name]
        first, behind = (part.expand(1, *weights.shape[::2])[0].cpu().numpy() for part in places)
        _put(out, call.start, weights, first, behind)
    return out


def _put(out: np.ndarray, start: int, weights: np.ndarray, first: np.ndarray, behind: np.ndarray) -> None:
    """Add weights ``[t, h, s]`` of places ``first .. behind - 1`` (``[t, s]``) to the rows from ``start`` on."""
    steps = out.shape[-1]
    lengths = np.where(first >= 0, behind - first, 0)
    for offset in range(int(lengths.max(initial=0))):
        rows, places = np.nonzero((offset < lengths) & (first + offset < steps))
        columns = first[rows, places] + offset
        share = weights[rows, :, places] / lengths[rows, places][:, None]
        out[start + rows, :, columns] = np.nan_to_num(out[start + rows, :, columns])
        index = (start + rows[:, None], np.arange(out.shape[1]), columns[:, None])
        np.add.at(out, index, share)  # several landmarks stand for one segment


class _Relevance(NamedTuple):
    choice: np.ndarray
    """``[T, h, C]``, softmax over all visible chunks; equal for all heads where they share one relevance."""
    read: np.ndarray  # bool ``[T, h, C]``


def _chunk_heads(
    core: MemoryCore[Any], calls: list[_Call], prefix: str, steps: int, chunks: tuple[tuple[int, int], ...]
) -> tuple[np.ndarray, _Relevance]:
    """Return steps inside chunks ``[T, h, T]``, weighted by the used relevance, and the relevance of all chunks."""
    inside = calls[0].weights[prefix + INSIDE][0]
    out = np.full((steps, inside.shape[1], steps), np.nan, np.float32)
    choice = np.full((steps, out.shape[1], len(chunks)), np.nan, np.float32)
    read = np.zeros(choice.shape, bool)
    starts = {start: number for number, (start, _) in enumerate(chunks)}
    for call in calls:
        first, behind = (part[0].cpu().numpy() for part in core.attended_steps(call.clock)[prefix + CHOICE])
        (weights,), (used,), (all_of_them,) = (call.weights[prefix + end] for end in (INSIDE, RELEVANCE, CHOICE))
        product = multiply_by_relevance(weights, used)[0].movedim(0, 1).float().cpu().numpy()  # t h n c
        for offset in reversed(range(int((behind - first).max()))):  # older chunks are added first where some overlap
            columns = np.where(first >= 0, first + offset, -1)
            _put(out, call.start, product[..., offset], columns, columns + 1)
        rows, places = np.nonzero(first >= 0)
        numbers = np.array([starts[start] for start in first[rows, places].tolist()], int)
        among, taken = (_of_heads(relevance, out.shape[1]) for relevance in (all_of_them, used))
        choice[call.start + rows, :, numbers] = among[rows, :, places]
        read[call.start + rows, :, numbers] = taken[rows, :, places] > 0
    return out, _Relevance(choice, read)


def _of_heads(relevance: Tensor, heads: int) -> np.ndarray:
    """Expand relevance that all heads share, ``[1, t, n]``, or of each, ``[1, h, t, n]``, to ``[t, h, n]``."""
    return relevance[0].expand(heads, *relevance.shape[-2:]).movedim(0, 1).float().cpu().numpy()


def _by_chunk(
    temporal: np.ndarray, chunks: tuple[tuple[int, int], ...], windows: int, relevance: list[_Relevance]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``chunk_rel``, ``chunk_read`` and ``chunk_tail``: sums of maps for windows, relevance for chunk heads."""
    rel = np.stack([_mass_inside(temporal[:, :windows], start, stop) for start, stop in chunks], -1)
    unread = [np.where(one.read, 0.0, np.nan_to_num(one.choice)).sum(-1) for one in relevance]
    read = np.concatenate([~np.isnan(rel), *(one.read for one in relevance)], 1)
    rel = np.concatenate([rel, *(one.choice for one in relevance)], 1)
    tail = np.concatenate([np.zeros((len(temporal), windows)), *unread], 1)
    return rel.astype(np.float32), read, tail.astype(np.float32)


def _mass_inside(temporal: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Sum maps ``[..., T]`` over the steps ``start .. stop - 1``; NaN where none of them is in reach."""
    part = temporal[..., start:stop]
    return np.where(np.isnan(part).all(-1), np.nan, np.nansum(part, -1))


def _slots(core: MemoryCore[Any], calls: list[_Call], stepwise: set[str], steps: int) -> list[SlotWeights]:
    """Return reads and writes of slots, from the Taps whose places are not steps of the episode."""
    found = []
    for name in calls[0].weights:
        axes = core.get_submodule(name).axes
        if name in stepwise or name.endswith((RELEVANCE, INSIDE, CHOICE)) or name.startswith("process."):
            continue
        kind = "write" if "write" in name or "erase" in name else "read"
        if isinstance(core, TemporalLatentBottleneck):
            weights = _latent_slots(core, calls, name, kind, steps)
            words = "heads x slots" if kind == "read" else "slots x steps of the chunk, when it is complete"
        else:
            parts = [part for call in calls for part in call.weights[name]]
            if len(parts) != steps or parts[0].ndim != 3:
                continue
            weights = torch.cat(parts).float().cpu().numpy()
            words = f"{axes}: per step, queries x (slots, then tokens of this step)"
        found.append(SlotWeights(name=name, kind=kind, weights=weights, axes=words))
    return found


def _latent_slots(core: TemporalLatentBottleneck, calls: list[_Call], name: str, kind: str, steps: int) -> np.ndarray:
    """Return cross-attention of a temporal latent bottleneck: reads ``[T, h, N]``; writes ``[T, N, K]``, else NaN."""
    if kind == "read":
        return np.concatenate([_rows(call.weights[name], call.clock.shape[1]) for call in calls])
    c = core.config
    out = np.full((steps, c.num_slots, c.chunk_len), np.nan, np.float32)
    for call in calls:
        for i, part in enumerate(call.weights.get(name, [])):
            ended = call.start + (i + 1) * c.chunk_len - 1
            if ended < steps:
                out[ended] = part[0].mean(0).float().cpu().numpy()
    return out
