"""The chunks of a call, for rows at different places in a chunk.

A chunk is ``c`` consecutive steps of one episode, counted from the episode's start. A call of t steps has chunks that
began before it (their steps so far are in a cache, right-aligned), chunks that resets cut short, and unfinished chunks.
The plan arranges them as ``[n, b, c]``, so that all chunks of all rows can be computed at once, and slots chunk by
chunk along n.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.window_attention import steps_since_first
from recollect.ops.torch_internals import is_traced
from recollect.state import spread_rows

Choice = Tensor | bool
"""Rows: a bool tensor ``[b]``, or True for all and False for none."""


class ChunkMarks(NamedTuple):
    """Events at each of n chunks."""

    first: Sequence[Choice]
    """Rows in which it begins an episode."""
    cut: Sequence[Choice]
    """Rows in which it begins a new stretch of the running episode (see :func:`plan_chunks`)."""
    done: Sequence[Choice]
    """Rows in which it is complete."""
    empty: Sequence[Choice]
    """Rows in which it has no step."""
    keys: list[Tensor | None]
    """Its visible steps, bool ``[b, c]``; None: all."""
    trailing: bool
    """Whether hidden steps only follow visible ones."""


class ChunkPlan(NamedTuple):
    """The chunks of one call. Chunks that a row does not use are the last of n, without marks."""

    source: Tensor
    """Long ``[n, b, c]``: the source of each step of a chunk, on the time axis of
    (cached steps, steps of this call, one empty step)."""
    place: Tensor
    """Long ``[b, t]``: the place of each step of the call, on an axis of n * c."""
    marks: ChunkMarks
    position: Tensor
    """Long ``[b]``: ``position`` after the call."""

    def gather_steps(self, cached: Tensor, new: Tensor) -> Tensor:
        """Arrange cached steps ``[b, c - 1, d]`` and new steps ``[b, t, d]`` as chunks ``[n, b, c, d]``."""
        b, _, d = new.shape
        steps = torch.cat((cached, new, new.new_zeros(b, 1, d)), 1)
        rows = torch.arange(b, device=new.device)[:, None]
        return steps.flatten(0, 1)[self.source + rows * steps.shape[1]]

    def gather_outputs(self, x: Tensor) -> Tensor:
        """Arrange outputs ``[n, b, e, d]``, of which the last c of e entries are the chunk, as ``[b, t, d]``."""
        _, b, entries, _ = x.shape
        c = self.source.shape[-1]
        chunk, inside = self.place // c, self.place % c
        rows = torch.arange(b, device=x.device)[:, None]
        return x.flatten(0, 2)[(chunk * b + rows) * entries + entries - c + inside]


def plan_chunks(is_first: Tensor, position: Tensor, chunk_len: int, stretch: int | None = None) -> ChunkPlan:
    """Plan the chunks of a call.

    Args:
        is_first: bool ``[b, t]``.
        position: long ``[b]``, steps of the running episode before this call: modulo ``chunk_len``, or with a
            ``stretch`` any number that is right modulo ``chunk_len * stretch`` and below ``chunk_len`` only in the
            episode's first chunk.
        chunk_len: c.
        stretch: number of chunks after which ``cut`` marks a chunk; None marks none.

    A row that is reset at every step has as many chunks as the call has steps. The plan has the chunks of the longest
    row; in ``torch.compile``, where shapes must not depend on data, always t.
    """
    b, t = is_first.shape
    cached = chunk_len - 1
    since = steps_since_first(is_first, position)
    inside = since % chunk_len
    begins = inside == 0
    chunk = begins.long().cumsum(1) - begins[:, :1].long()
    n = t if is_traced() else int(chunk[:, -1].max()) + 1
    place = chunk * chunk_len + inside

    # Cached steps of the running chunk go to the front of chunk 0, all others to a column that is dropped.
    age = torch.arange(cached, 0, -1, device=is_first.device)
    front = position[:, None] % chunk_len - age
    front = torch.where((front >= 0) & ~begins[:, :1], front, n * chunk_len)
    nothing = cached + t
    source = torch.full((b, n * chunk_len + 1), nothing, device=is_first.device)
    steps = torch.arange(nothing, device=is_first.device).expand(b, -1)
    source = source.scatter(1, torch.cat((front, place), 1), steps)[:, :-1]
    # Contiguous, and so is what is gathered with it: compilers other than Inductor rely on that.
    source = source.reshape(b, n, chunk_len).transpose(0, 1).contiguous()  # n b c

    first_step, last_step = source[..., 0], source[..., -1]
    resets = torch.cat((is_first.new_zeros(b, cached), is_first, is_first.new_zeros(b, 1)), 1)
    marks = [resets.gather(1, first_step.T).T, last_step != nothing]
    after = since[:, -1] + 1
    if stretch is None:
        (first, done), cut, after = choices(*marks), [False] * n, after % chunk_len
    else:
        earlier = (position // chunk_len)[:, None].expand(b, cached)  # the cached steps are all of the running chunk
        number = torch.cat((earlier, since // chunk_len, since.new_zeros(b, 1)), 1).gather(1, first_step.T).T
        marks.append((number > 0) & (number % stretch == 0) & (first_step != nothing))
        first, done, cut = choices(*marks)
        wrapped = (after - chunk_len) % (chunk_len * stretch) + chunk_len
        after = torch.where(after < chunk_len, after, wrapped)
    return ChunkPlan(source, place, ChunkMarks(first, cut, done, [False] * n, [None] * n, True), after)


def whole_chunks(
    padding: Tensor | None,
    steps: int,
    chunk_len: int,
    stretch: int | None = None,
    *,
    drop: bool = False,
    device: torch.device,
) -> ChunkMarks:
    """Return marks of whole sequences of t steps, cut into ceil(t / c) chunks of which the last may be short.

    Args:
        padding: bool ``[b, t]``, True for padding; None is no padding.
        steps: t.
        chunk_len: c.
        stretch: as in :func:`plan_chunks`.
        drop: do not write a chunk in which a row ends before the last step.
        device: of the sequences.
    """
    n, short = -(-steps // chunk_len), -steps % chunk_len
    begins: list[Choice] = [False] * n  # the incoming state is the initial one
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
        # A row covers a chunk to its end if its last step, or a later one, is no padding.
        behind = filled.flip(0).long().cumsum(0).flip(0) - filled.long()
        written = filled & (valid[..., -1] | (behind > 0))
        if short:
            empty = empty & (torch.arange(n, device=device) < n - 1)[:, None]
    some, none, every = choices(written, empty, valid.all(-1))
    keys = [None if whole is True else seen for whole, seen in zip(every, valid.unbind(0), strict=True)]
    return ChunkMarks(begins, cut, some, none, keys, False)


def choices(*marks: Tensor) -> list[list[Choice]]:
    """Return masks ``[n, b]`` as n choices each; True and False, where all rows agree, save a selection per chunk."""
    if is_traced():
        return [list(mark.unbind(0)) for mark in marks]
    stacked = torch.stack(marks)  # marks n b
    every, some = torch.stack((stacked.all(-1), stacked.any(-1))).tolist()
    return [
        [True if a else (row if s else False) for row, a, s in zip(mark.unbind(0), all_rows, some_rows, strict=True)]
        for mark, all_rows, some_rows in zip(marks, every, some, strict=True)
    ]


def choose(choice: Choice, new: Tensor, old: Tensor) -> Tensor:
    """Select rows of ``choice`` from ``new``, the others from ``old`` (both ``[b, ...]``)."""
    if isinstance(choice, bool):
        return new if choice else old
    return torch.where(spread_rows(choice, new), new, old)
