"""Arrays of a record on a page: their precision, and what is left out to keep the page small.

A :class:`Plan` defines how much is kept. :func:`fit` tries smaller and smaller plans until the bytes fit, and lists in
words, for the reader of the page, what was left out. Frames are never made smaller.
"""

import gzip
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from recollect.interpret.colours import highest
from recollect.interpret.memory_usage import LEAST_POINTS
from recollect.interpret.quantization import Encoded, encode
from recollect.interpret.record import MOST_STEPS, EpisodeRecord

KEPT = 64  # past steps that a sparse row of attention keeps, the largest ones
LONG = 512  # steps above which rows of attention to the past may be sparse; of many heads also fewer
DENSE_LIMIT = 1 << 25
"""Entries of attention to the past above which they are sparse from the start: more take too long to open."""
BEST_HEADS = 8
REMOVED_KEPT = 8  # chunks whose policy after removal a long episode keeps at every step: those of the largest effect
ABSENT_STEP = MOST_STEPS + 1
HALF = float(np.finfo(np.float16).max)  # largest number in half precision


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Arrays that are kept, and their precision."""

    sparse: bool = False
    """Only the largest :data:`KEPT` entries of a row of attention to the past, and the mass of the rest."""
    heads: tuple[int, ...] | None = None  # numbers of the heads that are kept; None for all
    saliency_every: int = 1  # saliency maps between two that are kept, plus one
    spatial_every: int = 1  # steps between kept maps of attention to the present frame
    maps: str = "u8"  # encoding of maps
    rows: tuple[int, int] | None = None  # half-open range of the steps whose maps are kept; None for all


class Block(NamedTuple):
    """One array of the page."""

    name: str
    encoded: Encoded
    first_row: int  # step of the first row
    every: int  # steps between rows; 0 where rows are not steps
    high: float  # 99.5th percentile of a map over the episode, the number of its last colour; NaN elsewhere


class Packed(NamedTuple):
    """Arrays of a record as the bytes of a page."""

    blocks: list[Block]
    data: bytes  # all blocks, one after the other, as one gzip
    plan: Plan
    dropped: list[str]  # omitted parts, in words


def fit(record: EpisodeRecord, max_bytes: int) -> Packed:
    """Pack the record of an episode into ``max_bytes``, leaving out details if necessary.

    Args:
        record: the recorded episode.
        max_bytes: size of the gzip. The smallest plan is returned even if it is larger; the caller splits it.
    """
    plan, dropped = Plan(), []
    entries = 0 if record.temporal is None else record.temporal.size
    reductions = list(_reductions(record))
    if entries > DENSE_LIMIT:
        words, change = next(one for one in reductions if "largest" in one[0])
        plan, dropped = change(plan), [words]
    packed = pack(record, plan)
    for words, change in reductions:
        if len(packed.data) <= max_bytes:
            break
        changed = change(plan)
        if changed == plan:
            continue
        plan = changed
        dropped.append(words)
        packed = pack(record, plan)
    return packed._replace(dropped=dropped)


def _reductions(record: EpisodeRecord) -> Iterator[tuple[str, Callable[[Plan], Plan]]]:
    """Yield the reductions that apply to this record: words for the reader, and the change of plan."""
    if record.temporal is not None and (record.num_steps > LONG or record.temporal.size > DENSE_LIMIT):
        yield (
            f"attention to the past: of every row the {KEPT} largest entries, and the mass of the rest",
            lambda plan: replace(plan, sparse=True),
        )
    heads = best_heads(record)
    if len(heads) < len(record.heads):
        names = ", ".join(record.heads[head].name for head in heads)
        yield (
            f"heads: {len(heads)} of {len(record.heads)} kept, the last layer's and those of the highest recall "
            f"or use ({names})",
            lambda plan: replace(plan, heads=heads),
        )
    if record.saliency:
        for every in (2, 4):
            yield (
                f"saliency: every {'second' if every == 2 else 'fourth'} of its maps",
                lambda plan, every=every: replace(plan, saliency_every=every),
            )
    if record.spatial is not None or record.what_where is not None:
        yield "attention to the frame: every second step", lambda plan: replace(plan, spatial_every=2)
    if record.temporal is not None or record.spatial is not None or record.saliency:
        yield (
            "maps: 4 bits a number (rounded to 1/14 of each map's maximum at worst)",
            lambda plan: replace(plan, maps="u4"),
        )


def best_heads(record: EpisodeRecord) -> tuple[int, ...]:
    """List the heads of the last layer, and the best eight others: by recall if pairs are known, else by use.

    Recall: mean mass on the key at the query's steps. Use: correlation of chunk mass with the effect of removal.
    Without either: by the mean of the largest entry.
    """
    last = max((head.layer for head in record.heads), default=0)
    in_last = [number for number, head in enumerate(record.heads) if head.layer == last]
    others = [number for number in range(len(record.heads)) if number not in in_last]
    scores = {number: _worth(record, number) for number in others}
    best = sorted(others, key=lambda number: -scores[number])[:BEST_HEADS]
    return tuple(sorted(in_last + best))


def _worth(record: EpisodeRecord, head: int) -> float:
    temporal, chunk_rel, removal = record.temporal, record.chunk_rel, record.removal
    if temporal is not None and record.pairs:
        masses = [
            np.nansum(temporal[slice(*pair.query), head, slice(*pair.key)], -1).mean()
            for pair in record.pairs
            if pair.query[0] < record.num_steps
        ]
        return float(np.mean(masses)) if masses else 0.0
    if chunk_rel is not None and removal is not None and record.has_chunk_removal:
        both = np.isfinite(chunk_rel[:, head]) & np.isfinite(removal.kl)
        attended, used = chunk_rel[:, head][both], removal.kl[both]
        if len(used) >= LEAST_POINTS and attended.std() > 0 and used.std() > 0:
            return float(np.corrcoef(attended, used)[0, 1])
        return 0.0
    maps = record.spatial if temporal is None else temporal
    if maps is None:
        return 0.0
    flat = maps[:, head].reshape(len(maps), -1)
    return float(np.nan_to_num(flat).max(-1, initial=0).mean())


def pack(record: EpisodeRecord, plan: Plan) -> Packed:
    """Turn the arrays of a record into bytes of the formats that a plan names."""
    blocks = list(_curves(record)) + list(_maps(record, plan)) + list(_effects(record))
    joined = b"".join(_aligned(block.encoded.data) for block in blocks)
    return Packed(blocks, gzip.compress(joined, 6, mtime=0), plan, [])


def headers(packed: Packed) -> list[dict[str, Any]]:
    """Return the description of every array for the page's JSON; ``off`` counts bytes of the unzipped data."""
    offset, found = 0, []
    for block in packed.blocks:
        high = None if math.isnan(block.high) else block.high
        place = {"name": block.name, "off": offset, "bytes": len(block.encoded.data)}
        place |= {"row0": block.first_row, "every": block.every, "high": high}
        found.append(place | block.encoded.header())
        offset += len(_aligned(block.encoded.data))
    return found


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _curves(record: EpisodeRecord) -> Iterator[Block]:
    discrete = np.issubdtype(record.action.dtype, np.integer)
    yield _plain("action", record.action.reshape(record.num_steps, -1), "i32" if discrete else "f32")
    yield _plain("reward", record.reward)
    yield _plain("value", record.value)
    yield _plain("logits", record.logits)


def _maps(record: EpisodeRecord, plan: Plan) -> Iterator[Block]:
    first, stop = plan.rows or (0, record.num_steps)
    heads = np.arange(len(record.heads)) if plan.heads is None else np.array(plan.heads, int)
    if record.temporal is not None:
        temporal = record.temporal[first:stop, heads]
        if plan.sparse:
            yield from _sparse(temporal, first, plan.maps)
        else:
            yield _map("temporal", temporal, plan.maps, first)
    if record.chunk_rel is not None:
        yield _map("chunk_rel", record.chunk_rel[first:stop, heads], plan.maps, first)
    for name, array, encoding in (("chunk_read", record.chunk_read, "bool"), ("chunk_tail", record.chunk_tail, "f32")):
        if array is not None:
            yield _plain(name, array[first:stop, heads], encoding, first)
    every = plan.spatial_every
    for name, maps, encoding in (("spatial", record.spatial, plan.maps), ("what_where", record.what_where, "s8")):
        if maps is not None:
            yield _map(name, maps[first:stop:every, heads], encoding, first, every=every, map_axes=2)
    if record.spacetime is not None:
        past = record.spacetime
        step, cell, weight, tail = (part[first:stop, heads] for part in (past.step, past.cell, past.weight, past.tail))
        yield _plain("past_step", np.where(step < 0, ABSENT_STEP, step), "u16", first)
        yield _plain("past_cell", cell, "u16", first)
        yield _map("past_weight", weight, "u8", first)
        yield _plain("past_tail", tail, "f32", first)
    for number, saliency in enumerate(record.saliency):
        kept = np.flatnonzero((saliency.steps >= first) & (saliency.steps < stop))[:: plan.saliency_every]
        yield _plain(f"saliency{number}_steps", saliency.steps[kept], "i32", every=0)
        for which, maps in (("actor", saliency.actor), ("critic", saliency.critic)):
            if maps is not None:
                yield _map(f"saliency{number}_{which}", maps[kept], plan.maps, 0, every=0, map_axes=2)
    for number, slots in enumerate(record.slots):
        yield _map(f"slots{number}", slots.weights[first:stop], plan.maps, first)


def _effects(record: EpisodeRecord) -> Iterator[Block]:
    removal = record.removal
    if removal is None:
        return
    logits = removal.logits
    if record.num_steps > LONG and removal.kl.shape[1] > REMOVED_KEPT:
        effects = np.nan_to_num(removal.kl, nan=-1.0)
        least = np.partition(effects, -REMOVED_KEPT, -1)[:, -REMOVED_KEPT, None]
        logits = np.where((effects >= least)[..., None], logits, np.nan)
    for name, effects in (("mem_kl", removal.kl), ("mem_dv", removal.dv)):
        fits = np.nan_to_num(np.abs(effects)).max(initial=0) <= HALF  # values of a world may count in millions
        yield _plain(name, effects, "f16" if fits else "f32")
    yield _plain("mem_logits", logits.clip(-HALF, HALF), "f16")  # those of actions that are forbidden are near -inf


def _sparse(temporal: np.ndarray, first: int, encoding: str) -> Iterator[Block]:
    """Yield the largest entries of every row, sorted by step, and the mass that is not among them."""
    rows, heads, steps = temporal.shape
    kept = min(KEPT, steps)
    index = np.empty((rows, heads, kept), np.int64)
    weight = np.empty((rows, heads, kept), np.float32)
    tail = np.empty((rows, heads), np.float32)
    for row in range(rows):  # one row of heads at a time: the whole would not fit twice
        filled = np.where(np.isnan(temporal[row]), -1.0, temporal[row])
        largest = np.sort(np.argpartition(filled, steps - kept, -1)[:, steps - kept :], -1)
        index[row], weight[row] = largest, np.take_along_axis(temporal[row], largest, -1)
        tail[row] = np.nansum(temporal[row], -1) - np.nansum(weight[row], -1)
    index = np.where(np.isnan(weight), ABSENT_STEP, index)
    yield _plain("temporal_step", index, "u16", first)
    yield _map("temporal", weight, encoding, first)
    yield _plain("temporal_tail", np.maximum(tail, 0), "f32", first)


def _plain(name: str, array: np.ndarray, encoding: str = "f32", first_row: int = 0, every: int = 1) -> Block:
    return Block(name, encode(array, encoding), first_row, every, math.nan)


def _map(name: str, maps: np.ndarray, encoding: str, first_row: int, *, every: int = 1, map_axes: int = 1) -> Block:
    sizes = np.abs(maps)
    high = highest(sizes, math.nan)
    if high == 0:
        high = float(sizes[np.isfinite(sizes)].max())
    try:
        return Block(name, encode(maps, encoding, map_axes=map_axes), first_row, every, high)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
