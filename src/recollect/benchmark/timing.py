"""Wall-clock timing with little effect of other processes on the machine.

Every function is called once before the timing. A measurement repeats calls until they last long enough for the clock.
Functions that are compared are timed in turns, A B A B, so that a drift of the machine affects both.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from recollect.ops.packed_linear import multiply


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one entry per repeat."""

    seconds: tuple[float, ...]
    calls: int  # number of calls in every repeat

    @property
    def best(self) -> float:
        """Fastest repeat."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Median repeat."""
        return statistics.median(self.seconds)


def interleave(
    functions: Mapping[str, Callable[[], object]],
    repeats: int = 5,
    *,
    min_seconds: float = 0.0,
    max_seconds: float = float("inf"),
) -> dict[str, Timing]:
    """Time several functions that take turns, so that a busy machine slows all alike.

    Args:
        functions: calls by name.
        repeats: rounds; each times every function once.
        min_seconds: least duration of a function's calls in one round.
        max_seconds: no round begins later than this, after the first two.
    """
    calls = {}
    for name, function in functions.items():
        function()
        started = time.perf_counter()
        function()
        once = max(time.perf_counter() - started, 1e-7)
        calls[name] = max(1, round(min_seconds / once))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    begun = time.perf_counter()
    for done in range(max(2, repeats)):
        if done >= 2 and time.perf_counter() - begun > max_seconds:
            break
        for name, function in functions.items():
            started = time.perf_counter()
            for _ in range(calls[name]):
                function()
            seconds[name].append((time.perf_counter() - started) / calls[name])
    return {name: Timing(tuple(times), calls[name]) for name, times in seconds.items()}


def measure(
    function: Callable[[], object],
    repeats: int = 5,
    *,
    min_seconds: float = 0.0,
    max_seconds: float = float("inf"),
) -> Timing:
    """Time one function in several rounds."""
    return interleave({"": function}, repeats, min_seconds=min_seconds, max_seconds=max_seconds)[""]


def processor_seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the median processor time of a call, in seconds: other programs on the machine change it little."""
    call()
    found = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return statistics.median(found)


def least_processor_seconds(calls: Sequence[Callable[[], object]], repeats: int, *, min_seconds: float) -> float:
    """Return the least processor time of one of several ways to do the same, in seconds; each is called once before.

    Args:
        calls: ways to do it.
        repeats: rounds, in which they take turns.
        min_seconds: processor time of each in a round; a clock cannot tell short calls.
    """
    numbers, best = [], float("inf")
    for call in calls:
        started = time.process_time()
        call()
        numbers.append(max(1, round(min_seconds / max(time.process_time() - started, 1e-6))))
    for _ in range(repeats):
        for call, number in zip(calls, numbers, strict=True):
            started = time.process_time()
            for _ in range(number):
                call()
            best = min(best, (time.process_time() - started) / number)
    return best


def ratio(slow: Timing, fast: Timing) -> tuple[float, float, float]:
    """Return the speed-up of ``fast``: the median of the rounds' ratios, the smallest and the largest."""
    ratios = [a / b for a, b in zip(slow.seconds, fast.seconds, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def matmul_peak(dtype: torch.dtype, size: int = 2048, repeats: int = 6, device: str = "cpu") -> float:
    """Return the FLOP/s of a ``size``-cubed matrix product, the best of some repeats (a multiply-add counts 2).

    On a CPU the faster one of torch's two libraries counts (:mod:`recollect.ops.packed_linear`).
    """
    a, b = torch.randn(2, size, size, device=device).to(dtype)
    products: list[Callable[[], Any]] = [lambda: a @ b]
    if a.device.type == "cuda":
        products = [lambda: (a @ b, torch.cuda.synchronize(device))]
    elif a.device.type == "cpu":
        products.append(lambda: multiply(a, b))
    with torch.no_grad():
        times = [measure(product, repeats, min_seconds=0.1, max_seconds=10).best for product in products]
    return 2 * size**3 / min(times)
