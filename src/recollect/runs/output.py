"""Output of a command into a pipe whose reader may close."""

from contextlib import suppress

from rich.console import Console

from recollect.runs.interrupts import Interrupts


class Output(Console):
    """A console whose reader may close (``| head``, or a ``tee`` that Ctrl-C ended)."""

    def __init__(self) -> None:
        super().__init__(emoji=False)  # a class may be called Snake: games:Snake: is no picture

    def on_broken_pipe(self) -> None:
        """Print nothing more. A run finishes its step and saves, as after Ctrl-C; other commands end at once."""
        interrupts = Interrupts.active
        if interrupts is None:
            super().on_broken_pipe()
            return
        with suppress(SystemExit):
            super().on_broken_pipe()
        interrupts.received = interrupts.received or "closed output"
