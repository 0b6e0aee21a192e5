"""Line about the rows of a stream: any of them take a step without the others, with the numbers of a stream a row."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, NotApplicable, Violation
from recollect.certify.subject import Subject
from recollect.cores.stream import Stream
from recollect.state import clone, concatenate, leaves, take_rows

BRIEF = 16
"""Calls of a quick certificate."""


@torch.no_grad()
def row_subset(subject: Subject) -> str:
    """Check random subsets of rows in random order against one stream a row, and all that moves rows.

    Outputs and memory of the named rows may differ by rounding alone, because products of other sizes add in another
    order; the other rows may not change by a bit.
    """
    many = subject.new_stream()
    if not isinstance(many, Stream):
        raise NotApplicable("its streams are no recollect.cores.stream.Stream, which has step_rows")
    meter = subject.comparison()
    pool = _Pool(subject, meter, many)
    calls = min(subject.steps, BRIEF) if subject.options.quick else subject.steps
    moves = {calls // 6: pool.reset, calls // 3: pool.fork, calls // 2: pool.save, 2 * calls // 3: pool.resize}
    for call in range(calls):
        moves.get(call, lambda: None)()
        pool.step(call)
    pool.compare()
    _swap(subject, meter)
    size = "bitwise" if meter.worst == 0 else meter.report()
    return (
        f"{calls} calls of random rows, reset, fork_rows, save_rows, load_rows, add_rows, remove_rows, swap_weights, "
        f"against one stream a row: {size}; other rows bitwise"
    )


class _Pool:
    """A stream of many rows, and a stream for each of its rows."""

    def __init__(self, subject: Subject, meter: Comparison, many: Stream) -> None:
        self.subject, self.meter, self.many = subject, meter, many
        self.alone: list[Stream] = [subject.new_stream(1) for _ in range(subject.batch)]
        self.draws = subject.generator(71)

    def step(self, call: int) -> None:
        """Take a step of random rows, or sometimes of all, and compare it.

        Two calls of ten name all rows, downwards with many resets and upwards: an order that a draw seldom gives.
        """
        number = len(self.alone)
        share = 1 + int(torch.randint(number, (), generator=self.draws))
        rows = torch.randperm(number, generator=self.draws)[:share]
        if call % 5 == 1:
            share = number
            rows = torch.arange(number) if call % 2 else torch.arange(number).flip(0)
        inputs = self.subject.inputs(72 + call, batch=share, steps=1)[:, 0]
        is_first = torch.rand(share, generator=self.draws) < (0.1 if call % 10 != 6 else 0.5)
        if call % 5 == 4:
            rows = torch.arange(number)
            inputs = self.subject.inputs(72 + call, batch=number, steps=1)[:, 0]
            is_first = torch.zeros(number, dtype=torch.bool)
            got = self.many.step(inputs)
        else:
            others = torch.tensor(sorted(set(range(number)) - set(rows.tolist())), dtype=torch.long)
            before = self._peek(others)
            got = self.many.step_rows(inputs, rows, is_first if is_first.any() or call % 2 else None)
            self._require_same(before, self._peek(others), rows, others)
        steps = zip(rows.tolist(), inputs, is_first, strict=True)
        want = torch.cat([self.alone[row].step(x[None], first[None]) for row, x, first in steps])
        if got.shape != want.shape:
            raise Violation(f"step_rows gives {list(got.shape)} for {share} rows, not {list(want.shape)}", "")
        sorted_rows = rows.argsort()
        self.meter.outputs(
            got[sorted_rows][:, None],
            want[sorted_rows][:, None],
            f"call {call}, step_rows of rows {rows.tolist()} (in the order of their numbers) against a stream each",
            cause="rows are taken in another order, share a counter, or read buffers of other rows",
        )

    def _peek(self, rows: Tensor) -> Any:
        return self.many.read_rows(self.many.named_rows(rows)) if len(rows) else ()

    @staticmethod
    def _require_same(before: Any, after: Any, rows: Tensor, others: Tensor) -> None:
        for old, new in zip(leaves(before), leaves(after), strict=True) if before != () else ():
            same = (old == new) | ((old != old) & (new != new))
            if not same.all():
                row = int(others[int((~same).flatten(1).any(1).nonzero()[0])] if same.ndim > 1 else others[~same][0])
                raise Violation(
                    f"step_rows of rows {rows.tolist()} changes row {row}", "a step writes into rows that are not named"
                )

    def compare(self) -> None:
        """Compare the whole memory with one stream per row."""
        want = concatenate([one.state for one in self.alone])
        cause = "a row's place in a ring or its counter is wrong, or was lost when rows were moved"
        self.meter.states(self.many.state, want, "memory after calls of step_rows, against a stream a row", cause=cause)

    def reset(self) -> None:
        """Reset row 1 in the pool and in its own stream."""
        self.many.reset([1])
        self.alone[1].reset()

    def fork(self) -> None:
        """Copy rows 0 and 1 into 2 and 0."""
        self.many.fork_rows([0, 1], into=[2, 0])
        states = [clone(self.alone[row].state) for row in (0, 1)]
        for row, state in zip((2, 0), states, strict=True):
            self.alone[row].load_state(state)

    def save(self) -> None:
        """Save rows 2 and 1, reset them, and load them in exchanged places."""
        states = [clone(self.alone[row].state) for row in (2, 1)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.safetensors"
            self.many.save_rows(path, [2, 1])
            self.many.reset([2, 1])
            self.many.load_rows(path, [1, 2])
        for row, state in zip((1, 2), states, strict=True):
            self.alone[row].load_state(state)

    def resize(self) -> None:
        """Add a new row and a copy of row 1, and remove row 0."""
        self.many.add_rows(1)
        self.many.fork_rows([1])
        self.many.remove_rows([0])
        copied = self.subject.new_stream(1)
        copied.load_state(clone(self.alone[1].state))
        self.alone = [*self.alone[1:], self.subject.new_stream(1), copied]


def _swap(subject: Subject, meter: Comparison) -> None:
    """Compare streams whose weights were swapped, of one object and of another, with new streams of the same memory."""
    changed = copy.deepcopy(subject.core)
    for weight in changed.parameters():
        if weight.is_floating_point():
            weight.mul_(1.03)
    inputs, rows = subject.inputs(73, steps=3), torch.tensor([2, 0])
    live = subject.new_stream()
    live.load_state(subject.used_state(6))
    live.step_rows(inputs[rows, 0], rows)
    fresh = changed.stream(subject.batch)
    fresh.load_state(live.state)
    live.swap_weights(changed)
    cause = "swap_weights keeps what was computed from the old weights, or loses memory"
    for t in (1, 2):
        what = f"step {t} after swap_weights, against a new stream of the same memory"
        got, want = live.step_rows(inputs[rows, t], rows), fresh.step_rows(inputs[rows, t], rows)
        meter.outputs(got[:, None], want[:, None], what, cause=cause)
    meter.states(live.state, take_rows(fresh.state, slice(None)), "memory after swap_weights", cause=cause)
