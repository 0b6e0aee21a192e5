"""Sizes and modes that are drawn for a certificate, because a list of sizes has holes that a mistake can hide in.

The draw depends on ``Options.size_seed`` and on the line alone. Every draw of rows has one above each former limit, and
a draw of steps is above 2 048, so that a path of its own from any smaller size on is always met.
"""

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from recollect.certify.comparison import Result
from recollect.certify.subject import Subject
from recollect.state import concatenate, take_rows

ROWS = ((10, 33), (34, 129), (130, 256), (257, 300))
"""Ranges of rows, of which each gives one number."""
FEW_STEPS, MANY_STEPS = (1, 4), (5, 12)
"""Steps of calls of these rows, and of the largest number of rows."""
SMALL_ROWS = range(1, 17)
"""Numbers of rows that are all tried: small batches are often special."""
LONG_CALL = (2049, 2400, 5000)
"""Range of the steps of a long call, up to the second number for a core with dear steps, else up to the third."""
LONG_GRAPH = (129, 200, 600)
"""Range of the steps of a long call with gradients, which keeps data of every step."""
LONG_BLOCK = (513, 700, 2048)
"""Range of the steps of a long block of a stream."""
DEAR = 40
"""Operations of torch per step of a call above which its steps are dear: a loop over steps, and no scan."""
PIECES = 1024
"""Most steps of one of the calls that a long call is compared with."""

MODES: dict[str, dict[str, bool]] = {
    "evaluation mode": {},
    "training mode": {"is_training": True},
    "evaluation mode with gradients": {"grad": True},
    "training mode with gradients": {"is_training": True, "grad": True},
}


def size_generator(subject: Subject, line: str) -> random.Random:
    """Return the generator of the sizes of a line."""
    return random.Random(f"{subject.options.size_seed} {line}")


def modes(subject: Subject) -> list[str]:
    """Return the modes in which calls of the module can be compared."""
    return [name for name, changes in MODES.items() if not (changes.get("is_training") and subject.is_noisy)]


def draw_rows(subject: Subject, line: str) -> Iterator[tuple[int, int, str]]:
    """Yield rows, steps and mode: one of each range of :data:`ROWS`, and more than 256 rows in all modes.

    The largest number has more steps than the others, so that a path of its own for many rows and several steps is met
    in every mode.
    """
    draws = size_generator(subject, line)
    known = modes(subject)
    for low, high in ROWS:
        is_last = high == ROWS[-1][1]
        rows, steps = draws.randint(low, high), draws.randint(*(MANY_STEPS if is_last else FEW_STEPS))
        for mode in known if is_last else [draws.choice(known)]:
            yield rows, steps, mode


def draw_steps(subject: Subject, line: str) -> Iterator[tuple[int, int, str]]:
    """Yield rows, steps and mode of long calls, without gradients and with; shorter ones more often, to save time."""
    draws = size_generator(subject, line)
    known = modes(subject)
    for limits, grad in ((LONG_CALL, False), (LONG_GRAPH, True)):
        steps = draw_length(subject, draws, limits)
        fitting = [name for name in known if MODES[name].get("grad", False) == grad]
        yield draws.randint(1, 2), steps, draws.choice(fitting)


def draw_length(subject: Subject, draws: random.Random, limits: tuple[int, int, int]) -> int:
    """Return a number of steps, which is less where the steps of the core are dear."""
    low, middle, high = limits
    return log_uniform(draws, low, middle if operations_per_step(subject) > DEAR else high)


def operations_per_step(subject: Subject) -> float:
    """Return the operations of torch that another step adds to a call.

    A number of operations and not a time, so that the same seed draws the same sizes.
    """
    if "operations per step" not in subject.cache:
        twin = subject.variant(batch=1, is_training=False, grad=False, strided=False)
        counts = []
        for steps in (8, 24):
            with torch.no_grad(), _Operations() as operations:
                twin(twin.inputs(150, steps=steps), twin.fresh_state(), twin.no_resets(steps=steps))
            counts.append(operations.number)
        subject.cache["operations per step"] = (counts[1] - counts[0]) / 16
    return subject.cache["operations per step"]


class _Operations(TorchDispatchMode):
    """Context that counts operations."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))


def log_uniform(draws: random.Random, low: int, high: int) -> int:
    """Return a number of a range, small ones more often: each step takes time."""
    return round(low * (high / low) ** draws.random())


def draw_pieces(steps: int, draws: random.Random, longest: int = PIECES) -> list[int]:
    """Return lengths of calls that add up to ``steps``: short ones as often as long ones."""
    sizes = []
    while steps:
        sizes.append(min(steps, log_uniform(draws, 1, longest)))
        steps -= sizes[-1]
    return sizes


def in_mode(subject: Subject, rows: int, steps: int, mode: str) -> Subject:
    """Return the subject at a size and in a mode."""
    return subject.variant(batch=rows, steps=steps, **MODES[mode])


def make_call(subject: Subject, salt: int, *, resets: bool = True) -> tuple[Tensor, Any, Tensor]:
    """Return inputs, state and flags of a call of the subject's size.

    Rows begin with states in use and with fresh ones, at random; about one step in ten is a reset.
    """
    generator = subject.generator(salt)
    key = "states in use"
    if key not in subject.cache:
        few = subject.variant(batch=4, steps=subject.options.steps, is_training=False, grad=False)
        with torch.no_grad():
            subject.cache[key] = concatenate([few.used_state(200), few.fresh_state(1)])
    index = torch.randint(5, (subject.batch,), generator=generator)
    index[0] = 0
    is_first = torch.rand(subject.batch, subject.steps, generator=generator) < 0.1 * resets
    return subject.inputs(salt), take_rows(subject.cache[key], index), is_first


def call_rows(subject: Subject, call: tuple[Tensor, Any, Tensor], sizes: list[int]) -> Result:
    """Return the result of a call that is made for a few rows at a time."""
    inputs, state, is_first = call
    parts, start = [], 0
    for size in sizes:
        here = slice(start, start + size)
        parts.append(subject(inputs[here], take_rows(state, here), is_first[here]))
        start += size
    return torch.cat([out for out, _ in parts]), concatenate([end for _, end in parts])


def describe(draws: list[tuple[int, int, str]]) -> str:
    """Return the sizes and modes of a line as text: what was drawn once in several modes is named once."""
    found: dict[tuple[int, int], list[str]] = {}
    for rows, steps, mode in draws:
        found.setdefault((rows, steps), []).append(mode)
    words = []
    for (rows, steps), names in found.items():
        where = "all modes" if len(names) > 1 else names[0]
        words.append(f"{rows} row{'s' * (rows > 1)} x {steps:,} step{'s' * (steps > 1)} ({where})")
    return f"drawn: {', '.join(words)}"
