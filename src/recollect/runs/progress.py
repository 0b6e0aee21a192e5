"""What a person sees while a run goes on: a bar in a terminal, plain lines elsewhere.

t-maze · lstm  step 250/1000  12 s  return 0.412  score 0.630  best 0.711  9 831 steps/s  left 36 s
"""

import math
from collections.abc import Mapping
from time import perf_counter
from types import MappingProxyType

import rich.progress as bar
from rich.console import Console

SCORE = MappingProxyType({"score": "score"})
"""Metrics that are shown where nobody says which."""
QUIET = 10.0
"""Seconds after which a plain line is written for any row; sooner only for an evaluation."""


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
        self._printed = self._began
        self._bar: bar.Progress | None = None
        if console is not None and console.is_terminal:
            self._bar = bar.Progress(
                bar.TextColumn("{task.description}", style="bold", markup=False),
                bar.BarColumn(bar_width=20),
                bar.MofNCompleteColumn(),
                bar.TextColumn("{task.fields[metrics]}"),
                bar.TimeElapsedColumn(),
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
        if self._bar is not None:
            self._bar.update(self._task, metrics=f"{self._said}  evaluating".strip())

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


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _speed(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", " ")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
