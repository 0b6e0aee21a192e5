"""Progress of a run or an evaluation: a bar in a terminal, plain lines elsewhere.

t-maze · lstm  step 250/1000  12 s  return 0.412  score 0.630  best 0.711  world 1.28 M steps, 9 831/s  left 36 s

An evaluation reports its progress (:class:`ProgressReporter`) to a listener (:func:`listen_to_progress`): the line of
a run, or that of ``recollect evaluate`` (:class:`ProgressDisplay`).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from types import MappingProxyType
from typing import Any

import rich.progress as bar
from rich.console import Console, RenderableType
from rich.table import Column
from rich.text import Text

SCORE = MappingProxyType({"score": "score"})
"""Metrics that are shown by default."""
WORLD = ("environment_steps", "frames_per_second")
"""Metrics of steps in a world, which are shown beside those of the optimiser."""
LINE_SECONDS = 10.0
"""Seconds after which a plain line is written for any row; sooner only for an evaluation."""
UPDATE_SECONDS = 0.25
"""Least seconds between two updates of an evaluation."""

Listener = Callable[[int, int, str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listen_to_progress(listener: Listener) -> Iterator[None]:
    """Call ``listener(done, total, noun)`` for every update inside this context and thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class ProgressReporter:
    """Reports the progress of a loop to the listener of the present context, if there is one.

    Args:
        total: how many there will be.
        noun: their name, in the plural.
    """

    def __init__(self, total: int, noun: str) -> None:
        self._total, self._noun = total, noun
        self._listener, self._next = _listener.get(), -math.inf

    def update(self, done: Callable[[], int], note: str = "") -> None:
        """Report how many are finished, ``done()``; ``note`` is shown until the first one is.

        ``done`` is called only when something is reported, as it may have to wait for a device.
        """
        now = perf_counter()
        if self._listener is not None and now >= self._next:
            number = done()
            self._listener(number, self._total, f"{self._noun}  {note}" if note and not number else self._noun)
            self._next = now + UPDATE_SECONDS


class ProgressDisplay:
    """A context that shows the progress reported in it: a temporary bar in a terminal, occasional lines elsewhere.

    Args:
        console: where; the error stream when None.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console = console or Console(stderr=True, emoji=False)
        self._began = self._printed = perf_counter()
        self._bar: bar.Progress | None = None
        if console.is_terminal:
            columns = (bar.BarColumn(bar_width=20), bar.TextColumn("{task.description}", markup=False))
            # Results go to the standard output, which may be a file: the bar must not capture them.
            quiet: Any = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
            self._bar = bar.Progress(*columns, bar.TimeElapsedColumn(), console=console, **quiet)
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "ProgressDisplay":
        self._began = self._printed = perf_counter()
        if self._bar is not None:
            self._bar.start()
        self._listening = listen_to_progress(self._show)
        self._listening.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.__exit__(None, None, None)
        if self._bar is not None:
            self._bar.stop()

    def _show(self, done: int, total: int, noun: str) -> None:
        now = perf_counter()
        text = f"{done}/{total} {noun}{_time_left(done, total, now - self._began)}"
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done, total=total)
        elif now - self._printed >= LINE_SECONDS:
            self._printed = now
            self._console.print(f"{text}  {_duration(now - self._began)} so far", highlight=False, soft_wrap=True)


class _TwoLines(bar.Progress):
    """A bar, and the metrics below it: a terminal of 80 columns has no room for both in one line."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Return the lines of the progress display."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["metrics"]:
                yield Text(f"  {task.fields['metrics']}")


class Progress:
    """A context that shows the progress of a run.

    Args:
        console: where; None shows nothing.
        title: of the run.
        total: steps of the run.
        done: steps that are done already.
        shown: metrics that are shown when a row has them, in this order, and their names.
    """

    def __init__(
        self, console: Console | None, title: str, total: int, done: int, shown: Mapping[str, str] = SCORE
    ) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._shown = shown
        self._newest: dict[str, float] = {}
        self._text_shown = ""
        self._first, self._began = done, perf_counter()
        self._printed = self._evaluation_began = self._began
        self._bar: bar.Progress | None = None
        if console is not None and console.is_terminal:
            self._bar = _TwoLines(
                bar.TextColumn("{task.description}", style="bold", markup=False, table_column=Column()),
                bar.BarColumn(bar_width=20),
                bar.MofNCompleteColumn(table_column=Column(no_wrap=True)),
                bar.TimeElapsedColumn(table_column=Column(no_wrap=True)),
                console=console,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task(title, total=total, completed=done, metrics="")

    def __enter__(self) -> "Progress":
        self._began = self._printed = perf_counter()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, done: int) -> None:
        """Move the progress bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def evaluating(self) -> None:
        """Show that an evaluation is running, until the next report."""
        self._evaluation_began = perf_counter()
        if self._bar is not None:
            self._bar.update(self._task, metrics=f"{self._text_shown}  evaluating".strip())

    def evaluated(self, done: int, total: int, noun: str) -> None:
        """Show the progress of the evaluation: a :data:`Listener`."""
        now = perf_counter()
        text = f"evaluating {done}/{total} {noun}{_time_left(done, total, now - self._evaluation_began)}"
        if self._bar is not None:
            self._bar.update(self._task, metrics=text)
        elif self._console is not None and now - self._printed >= LINE_SECONDS:
            self._printed = now
            self._console.print(f"{self._title}  {text}", highlight=False, soft_wrap=True, markup=False)

    def report(self, done: int, row: Mapping[str, float], best: float | None = None, end: float | None = None) -> None:
        """Show the newest metrics, the best score so far, the speed and the time until step ``end`` (the last one)."""
        now = perf_counter()
        self._newest |= {name: row[name] for name in (*self._shown, *WORLD) if name in row}
        self._text_shown = text = self._text(done, (done - self._first) / max(now - self._began, 1e-9), best, end)
        if self._bar is not None:
            self._bar.update(self._task, metrics=text)
        elif self._console is not None and ("score" in row or now - self._printed >= LINE_SECONDS):
            self._printed = now
            line = f"{self._title}  step {done}/{self._total}  {_duration(row['seconds'])}  {text}"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _text(self, done: int, pace: float, best: float | None, end: float | None) -> str:
        end = self._total if end is None else end
        parts = [
            f"{word} {_number(self._newest[name])}"
            for name, word in self._shown.items()
            if not math.isnan(self._newest.get(name, math.nan))
        ]
        if best is not None:
            parts.append(f"best {_number(best)}")
        steps, speed = (self._newest.get(name) for name in WORLD)
        if steps is not None and speed is not None:
            parts.append(f"world {_large(steps)} steps, {_speed(speed)}/s")
        else:
            parts.append(f"{_speed(pace)} steps/s")
        if done < end and pace > 0:
            parts.append(f"left {_duration((end - done) / pace)}")
        return "  ".join(parts)


def expected_end(done: int, steps: int, spent: float, limit: float | None) -> float:
    """Return the step at which a run will end: its last one, or the one that uses up its processor time.

    Args:
        done: steps that are done.
        steps: steps of the run.
        spent: processor seconds of the steps that are done.
        limit: most processor seconds; None has no limit.
    """
    return steps if limit is None or not spent else min(steps, done * max(limit / spent, 1.0))


def _time_left(done: int, total: int, seconds: float) -> str:
    return f"  left {_duration(seconds * (total - done) / done)}" if 0 < done < total else ""


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _large(value: float) -> str:
    """Format a count in a few characters: 812, 9 831, 128 k, 1.28 M."""
    if value < 1e4:
        return f"{value:,.0f}".replace(",", " ")
    return (
        f"{value / 1e3:.0f} k" if value < 999.5e3 else f"{value / 1e6:.2f} M" if value < 1e9 else f"{value / 1e9:.2f} G"
    )


def _speed(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", " ")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
