"""What a person sees while a run goes on: a bar in a terminal, plain lines elsewhere."""

from collections.abc import Mapping

import rich.progress as bar
from rich.console import Console
from rich.text import Text

# Shown beside the bar, in this order, when a row has them.
SHOWN = ("loss", "accuracy", "score")


class _Rate(bar.ProgressColumn):
    """Steps per second."""

    def render(self, task: bar.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} steps/s", style="cyan")


class Progress:
    """A context that shows how far a run is.

    Args:
        console: where; None shows nothing.
        title: what is running.
        total: steps of the run.
        done: steps that are done already.
    """

    def __init__(self, console: Console | None, title: str, total: int, done: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._shown: dict[str, float] = {}
        self._bar: bar.Progress | None = None
        if console is not None and console.is_terminal:
            self._bar = bar.Progress(
                bar.TextColumn("[bold]{task.description}"),
                bar.BarColumn(bar_width=28),
                bar.MofNCompleteColumn(),
                _Rate(),
                bar.TimeRemainingColumn(elapsed_when_finished=True),
                bar.TextColumn("{task.fields[metrics]}"),
                console=console,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task(title, total=total, completed=done, metrics="")

    def __enter__(self) -> "Progress":
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

    def report(self, done: int, row: Mapping[str, float]) -> None:
        """Show the newest metrics."""
        self._shown |= {name: row[name] for name in SHOWN if name in row}
        text = "  ".join(f"{name} {self._shown[name]:.3f}" for name in SHOWN if name in self._shown)
        if self._bar is not None:
            self._bar.update(self._task, metrics=text)
        elif self._console is not None and "score" in row:
            self._console.print(
                f"{self._title}  step {done}/{self._total}  {row['seconds']:.0f} s  {text}", highlight=False
            )
