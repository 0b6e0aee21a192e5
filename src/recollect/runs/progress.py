"""What a person sees while a run goes on: a bar in a terminal, plain lines elsewhere.

t-maze · lstm  step 250/1000  12 s  return 0.412  score 0.630  best 0.711  9 831 steps/s  left 36 s

An evaluation says how far it is (:class:`Count`), and whoever wants to know listens (:func:`hearing`): the line of a
run, or that of ``recollect evaluate`` (:class:`Counted`).
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
"""Metrics that are shown where nobody says which."""
QUIET = 10.0
"""Seconds after which a plain line is written for any row; sooner only for an evaluation."""
OFTEN = 0.25
"""Least seconds between two words of an evaluation."""

Listener = Callable[[int, int, str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def hearing(listener: Listener) -> Iterator[None]:
    """Call ``listener(done, asked, what)`` with what is said inside of this context and this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Count:
    """Says how far something is, to whoever listens; asks nothing of a device more often than it says something.

    Args:
        asked: how many there will be.
        what: their name, in the plural.
    """

    def __init__(self, asked: int, what: str) -> None:
        self._asked, self._what = asked, what
        self._listener, self._next = _listener.get(), -math.inf

    def say(self, done: Callable[[], int], note: str = "") -> None:
        """``done()`` of them are over; ``note`` is a sign of life until the first one is."""
        now = perf_counter()
        if self._listener is not None and now >= self._next:
            number = done()
            self._listener(number, self._asked, f"{self._what}  {note}" if note and not number else self._what)
            self._next = now + OFTEN


class Counted:
    """A context that shows what is said in it: a bar that vanishes in a terminal, a plain line now and then elsewhere.

    Args:
        console: where.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._printed = perf_counter()
        self._bar: bar.Progress | None = None
        if console.is_terminal:
            columns = (bar.BarColumn(bar_width=20), bar.TextColumn("{task.description}", markup=False))
            # Results go to the output, which may be a file: they must not be led through the bar's console.
            quiet: Any = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
            self._bar = bar.Progress(*columns, bar.TimeElapsedColumn(), console=console, **quiet)
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "Counted":
        self._began = self._printed = perf_counter()
        if self._bar is not None:
            self._bar.start()
        self._hearing = hearing(self._hear)
        self._hearing.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hearing.__exit__(None, None, None)
        if self._bar is not None:
            self._bar.stop()

    def _hear(self, done: int, asked: int, what: str) -> None:
        now = perf_counter()
        text = f"{done}/{asked} {what}{_time_left(done, asked, now - self._began)}"
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done, total=asked)
        elif now - self._printed >= QUIET:
            self._printed = now
            self._console.print(f"{text}  {_duration(now - self._began)} so far", highlight=False, soft_wrap=True)


class _TwoLines(bar.Progress):
    """A bar, and below it the metrics: in one line a terminal of 80 columns has no room for how far a run is."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """The lines."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["metrics"]:
                yield Text(f"  {task.fields['metrics']}")


class Progress:
    """A context that shows how far a run is.

    Args:
        console: where; None shows nothing.
        title: what is running.
        total: steps of the run.
        done: steps that are done already.
        shown: metrics that are shown when a row has them, in this order, and what they are called.
    """

    def __init__(
        self, console: Console | None, title: str, total: int, done: int, shown: Mapping[str, str] = SCORE
    ) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._shown = shown
        self._newest: dict[str, float] = {}
        self._said = ""
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
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def evaluating(self) -> None:
        """Say that an evaluation goes on; the next report takes its place."""
        self._evaluation_began = perf_counter()
        if self._bar is not None:
            self._bar.update(self._task, metrics=f"{self._said}  evaluating".strip())

    def evaluated(self, done: int, asked: int, what: str) -> None:
        """Say how far the evaluation is: a :data:`Listener`."""
        now = perf_counter()
        left = _time_left(done, asked, now - self._evaluation_began)
        text = f"evaluating {done}/{asked} {what}{left}"
        if self._bar is not None:
            self._bar.update(self._task, metrics=text)
        elif self._console is not None and now - self._printed >= QUIET:
            self._printed = now
            self._console.print(f"{self._title}  {text}", highlight=False, soft_wrap=True, markup=False)

    def report(self, done: int, row: Mapping[str, float], best: float | None = None) -> None:
        """Show the newest metrics, the best score so far, the speed and the time that is left."""
        now = perf_counter()
        self._newest |= {name: row[name] for name in (*self._shown, "frames_per_second") if name in row}
        self._said = text = self._text(done, (done - self._first) / max(now - self._began, 1e-9), best)
        if self._bar is not None:
            self._bar.update(self._task, metrics=text)
        elif self._console is not None and ("score" in row or now - self._printed >= QUIET):
            self._printed = now
            line = f"{self._title}  step {done}/{self._total}  {_duration(row['seconds'])}  {text}"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _text(self, done: int, pace: float, best: float | None) -> str:
        parts = [
            f"{word} {_number(self._newest[name])}"
            for name, word in self._shown.items()
            if not math.isnan(self._newest.get(name, math.nan))
        ]
        if best is not None:
            parts.append(f"best {_number(best)}")
        # In a world a person counts the steps that are made there, elsewhere those of the optimiser.
        parts.append(f"{_speed(self._newest.get('frames_per_second', pace))} steps/s")
        if done < self._total and pace > 0:
            parts.append(f"left {_duration((self._total - done) / pace)}")
        return "  ".join(parts)


def _time_left(done: int, asked: int, seconds: float) -> str:
    return f"  left {_duration(seconds * (asked - done) / done)}" if 0 < done < asked else ""


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _speed(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", " ")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
