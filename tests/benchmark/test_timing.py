import time

import pytest
import torch

from recollect.benchmark.timing import Timing, interleave, matmul_peak, ratio


def test_functions_are_timed_in_turns_after_a_warm_up():
    calls = []
    timings = interleave({name: lambda name=name: calls.append(name) for name in "ab"}, repeats=3)
    assert "".join(calls) == "aabb" + "ab" * 3
    assert len(timings["a"].seconds) == len(timings["b"].seconds) == 3


def test_a_round_lasts_as_long_as_asked_and_stops_when_the_time_is_up():
    timing = interleave({"a": lambda: time.sleep(0.001)}, repeats=50, min_seconds=0.02, max_seconds=0.05)["a"]
    assert 2 <= len(timing.seconds) < 10 and timing.calls > 5
    assert 0.001 <= timing.best <= timing.median


def test_a_ratio_is_the_median_of_the_rounds():
    assert ratio(Timing((2.0, 6.0, 9.0), 1), Timing((1.0, 2.0, 1.0), 1)) == (3.0, 2.0, 9.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_peak_is_a_rate(dtype):
    assert 1e6 < matmul_peak(dtype, size=64, repeats=2) < 1e15
