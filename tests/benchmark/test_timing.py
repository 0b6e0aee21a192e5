from types import SimpleNamespace

import pytest
import torch

from recollect.benchmark.timing import Timing, interleave, matmul_peak, ratio


def test_functions_are_timed_in_turns_after_a_warm_up():
    calls = []
    timings = interleave({name: lambda name=name: calls.append(name) for name in "ab"}, repeats=3)
    assert "".join(calls) == "aabb" + "ab" * 3
    assert len(timings["a"].seconds) == len(timings["b"].seconds) == 3


def test_a_round_lasts_as_long_as_asked_and_stops_when_the_time_is_up(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("recollect.benchmark.timing.time", SimpleNamespace(perf_counter=lambda: clock.now))

    def a_millisecond():
        clock.now += 0.001

    timing = interleave({"a": a_millisecond}, repeats=50, min_seconds=0.02, max_seconds=0.05)["a"]
    assert timing.calls == 20
    assert len(timing.seconds) == 3  # the third round begins after 0.04 s, a fourth would after 0.06 s
    assert timing.best == pytest.approx(0.001) == timing.median


def test_a_ratio_is_the_median_of_the_rounds():
    assert ratio(Timing((2.0, 6.0, 9.0), 1), Timing((1.0, 2.0, 1.0), 1)) == (3.0, 2.0, 9.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_peak_is_a_rate(dtype):
    assert 1e6 < matmul_peak(dtype, size=64, repeats=2) < 1e15
