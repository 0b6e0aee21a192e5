import io

import pytest
from rich.console import Console

from recollect.runs import progress
from recollect.runs.progress import Progress, ProgressDisplay, ProgressReporter, expected_end, listen_to_progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    return now


def test_a_count_speaks_to_who_listens_and_not_too_often(clock):
    heard, asked = [], []

    def done():
        asked.append(clock[0])
        return len(asked)

    ProgressReporter(9, "rows").update(done)
    assert not asked, "nobody listens: nothing is computed"
    with listen_to_progress(lambda *words: heard.append(words)):
        count = ProgressReporter(9, "rows")
        for _ in range(10):
            count.update(done)
            clock[0] += 0.1
    count = ProgressReporter(9, "rows")
    count.update(done)
    assert len(asked) == 4 and heard == [(n, 9, "rows") for n in (1, 2, 3, 4)]


def test_an_evaluation_says_how_far_it_is_on_plain_lines(clock):
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, width=80)):
        count = ProgressReporter(40, "episodes")
        for step in range(60):
            clock[0] += 1
            count.update(lambda step=step: step // 2, f"step {step}")
    lines = text.getvalue().splitlines()
    assert len(lines) == 6, "one in ten seconds"
    assert lines[0] == "4/40 episodes  left 90 s  10 s so far"
    assert lines[-1] == "29/40 episodes  left 23 s  60 s so far"


def test_until_the_first_one_is_over_there_is_a_sign_of_life(clock):
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, width=80)):
        clock[0] += 11
        ProgressReporter(40, "episodes").update(lambda: 0, "step 7")
    assert text.getvalue() == "0/40 episodes  step 7  11 s so far\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_shows_its_evaluation(clock, terminal):
    text = io.StringIO()
    console = Console(file=text, width=160, force_terminal=terminal)
    with Progress(console, "a · b", 100, 0) as shown:
        shown.evaluating()
        clock[0] += 20
        with listen_to_progress(shown.evaluated):
            ProgressReporter(8, "rows").update(lambda: 2)
    assert "evaluating 2/8 rows  left 60 s" in text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_steps_time_and_metrics_whole(clock, width):
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    with Progress(console, "goal-shown-once · HierarchicalChunkMemory", 15_000, 0) as shown:
        clock[0] += 10
        shown.report(
            2_500, {"score": 0.63, "seconds": 10.0, "environment_steps": 1.28e6, "frames_per_second": 9_831.0}, 0.7
        )
        shown.advance(2_500)
    last = " ".join(text.getvalue().rpartition("goal-shown-once")[2].split())
    assert "2500/15000 0:00:00" in last and "score 0.630 best 0.700 world 1.28 M steps, 9 831/s left 50 s" in last


def test_the_time_left_is_that_of_what_ends_the_run(clock):
    assert expected_end(10, 1000, 5.0, None) == expected_end(0, 1000, 0.0, 60.0) == 1000
    assert expected_end(10, 1000, 5.0, 60.0) == 120, "half a second a step"
    assert expected_end(10, 100, 5.0, 60.0) == 100
    assert expected_end(10, 1000, 61.0, 60.0) == 10, "used up"
    console = Console(file=io.StringIO(), width=200)
    progress = Progress(console, "t-maze", 1000, 0)
    with progress:
        clock[0] += 5
        progress.report(10, {"seconds": 5.0, "score": 0.5}, end=120)
        clock[0] += 5
        progress.report(20, {"seconds": 10.0, "score": 0.5})
    first, second = console.file.getvalue().splitlines()
    assert "left 55 s" in first and "left 8 min" in second
