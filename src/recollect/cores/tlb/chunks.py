"""Chunks of episodes: which steps of a call belong together, whatever the phase of each row.

A chunk is ``c`` consecutive steps of one episode, counted from the episode's start. A call of t steps meets chunks
that began before it (their steps so far are in a cache, right-aligned), chunks that resets cut short, and chunks
that it leaves unfinished. The plan lays them out as ``[n, b, c]``, so that all chunks of all rows can be computed
at once and slow states can walk along n.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.window_attention import steps_since_first
from recollect.state import spread_rows

Choice = Tensor | bool
"""Which rows: a bool tensor ``[b]``, or True for all and False for none."""


class ChunkMarks(NamedTuple):
    """What happens at each of n chunks."""

    first: list[Choice]
    """The rows in which it begins an episode."""
    cut: list[Choice]
    """The rows in which a new stretch of the running episode begins with it (see plan_chunks)."""
    done: list[Choice]
    """The rows in which it is complete."""
    empty: list[Choice]
    """The rows in which it has no step at all."""
    keys: list[Tensor | None]
    """Its steps that may be read, bool ``[b, c]``; None: all."""
    trailing: bool
    """Whether steps that may not be read only follow those that may."""


class ChunkPlan(NamedTuple):
    """The chunks of one call. What a row does not use of n stands at the end and is marked nowhere."""

    source: Tensor
    """Long ``[n, b, c]``: where each step of a chunk comes from, counted along the time axis of
    (cached steps, steps of this call, one step of nothing)."""
    place: Tensor
    """Long ``[b, t]``: where each step of the call went, counted along n * c."""
    marks: ChunkMarks
    position: Tensor
    """Long ``[b]``: what ``position`` is after the call."""


def plan_chunks(is_first: Tensor, position: Tensor, chunk_len: int, stretch: int | None = None) -> ChunkPlan:
    """Lay out the chunks of a call.

    Args:
        is_first: bool ``[b, t]``.
        position: long ``[b]``, steps of the running episode before this call: modulo ``chunk_len``, or with a
            ``stretch`` any number that is right modulo ``chunk_len * stretch`` and below ``chunk_len`` only in the
            episode's first chunk.
        chunk_len: c.
        stretch: number of chunks after which ``cut`` marks a chunk; None marks none.

    A row can meet as many chunks as the call has steps, if it is reset at every step. Outside ``torch.compile`` the
    number of chunks that the longest row really meets is read from the data; inside, where shapes must not depend
    on data, there are always t.
    """
    b, t = is_first.shape
    cached = chunk_len - 1
    since = steps_since_first(is_first, position)
    inside = since % chunk_len
    begins = inside == 0
    chunk = begins.long().cumsum(1) - begins[:, :1].long()
    n = t if torch.compiler.is_compiling() else int(chunk[:, -1].max()) + 1
    place = chunk * chunk_len + inside

    # Cached steps of the running chunk go to the front of chunk 0; those of no use go to a column that is dropped.
    age = torch.arange(cached, 0, -1, device=is_first.device)
    front = position[:, None] % chunk_len - age
    front = torch.where((front >= 0) & ~begins[:, :1], front, n * chunk_len)
    nothing = cached + t
    source = torch.full((b, n * chunk_len + 1), nothing, device=is_first.device)
    steps = torch.arange(nothing, device=is_first.device).expand(b, -1)
    source = source.scatter(1, torch.cat((front, place), 1), steps)[:, :-1]
    # In one piece, as what is gathered with it then is: compilers other than Inductor count on that.
    source = source.reshape(b, n, chunk_len).transpose(0, 1).contiguous()  # n b c

    first_step, last_step = source[..., 0], source[..., -1]
    resets = torch.cat((is_first.new_zeros(b, cached), is_first, is_first.new_zeros(b, 1)), 1)
    marks = [resets.gather(1, first_step.T).T, last_step != nothing]
    after = since[:, -1] + 1
    keys: list[Tensor | None] = [None] * n
    if stretch is None:
        first, done = choices(*marks)
        return ChunkPlan(
            source, place, ChunkMarks(first, [False] * n, done, [False] * n, keys, True), after % chunk_len
        )
    earlier = (position // chunk_len)[:, None].expand(b, cached)  # the cached steps are all of the running chunk
    number = torch.cat((earlier, since // chunk_len, since.new_zeros(b, 1)), 1).gather(1, first_step.T).T
    marks.append((number > 0) & (number % stretch == 0) & (first_step != nothing))
    first, done, cut = choices(*marks)
    wrapped = (after - chunk_len) % (chunk_len * stretch) + chunk_len
    return ChunkPlan(
        source,
        place,
        ChunkMarks(first, cut, done, [False] * n, keys, True),
        torch.where(after < chunk_len, after, wrapped),
    )


def whole_chunks(
    padding: Tensor | None,
    steps: int,
    chunk_len: int,
    stretch: int | None = None,
    *,
    drop: bool = False,
    device: torch.device,
) -> ChunkMarks:
    """Marks of whole sequences, cut into ceil(t / c) chunks of which the last may be short.

    Args:
        padding: bool ``[b, t]``, True where there is nothing; None pads nothing.
        steps: t.
        chunk_len: c.
        stretch: as in :func:`plan_chunks`.
        drop: a chunk in which a row ends before its last step is not written.
        device: of the sequences.
    """
    n, short = -(-steps // chunk_len), -steps % chunk_len
    begins: list[Choice] = [False] * n  # the state that comes in is the initial one
    cut: list[Choice] = [stretch is not None and i > 0 and i % stretch == 0 for i in range(n)]
    if padding is None:
        last = torch.arange(chunk_len, device=device)[None] < chunk_len - short
        keys: list[Tensor | None] = [*[None] * (n - 1), last if short else None]
        done: list[Choice] = [*[True] * (n - 1), not (drop and short)]
        return ChunkMarks(begins, cut, done, [False] * n, keys, True)
    valid = F.pad(~padding, (0, short)).unflatten(1, (n, chunk_len)).transpose(0, 1)  # n b c
    filled = valid.any(-1)  # n b
    written, empty = filled, ~filled
    if drop:
        # A row goes on to the end of a chunk where something stands in its last step or behind it.
        behind = filled.flip(0).long().cumsum(0).flip(0) - filled.long()
        written = filled & (valid[..., -1] | (behind > 0))
        if short:
            empty = empty & (torch.arange(n, device=device) < n - 1)[:, None]
    some, none, every = choices(written, empty, valid.all(-1))
    keys = [None if whole is True else seen for whole, seen in zip(every, valid.unbind(0), strict=True)]
    return ChunkMarks(begins, cut, some, none, keys, False)


def choices(*marks: Tensor) -> list[list[Choice]]:
    """Bool ``[n, b]`` as n choices. Most are the same in all rows, and knowing that saves a selection per chunk; one
    transfer from the device tells all. ``torch.compile`` must not look.
    """
    if torch.compiler.is_compiling():
        return [list(mark.unbind(0)) for mark in marks]
    stacked = torch.stack(marks)  # marks n b
    every, some = torch.stack((stacked.all(-1), stacked.any(-1))).tolist()
    return [
        [True if a else (row if s else False) for row, a, s in zip(mark.unbind(0), all_rows, some_rows, strict=True)]
        for mark, all_rows, some_rows in zip(marks, every, some, strict=True)
    ]


def choose(choice: Choice, new: Tensor, old: Tensor) -> Tensor:
    """Rows of ``choice`` from ``new``, the others from ``old`` (both ``[b, ...]``): a selection, never a product."""
    if isinstance(choice, bool):
        return new if choice else old
    return torch.where(spread_rows(choice, new), new, old)
