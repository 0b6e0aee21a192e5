"""The output of a command, which may be a pipe that nobody reads any more."""

from contextlib import suppress

from rich.console import Console

from recollect.runs.interrupts import Interrupts


class Output(Console):
    """A console whose reader may go (``| head``, or a ``tee`` that Ctrl-C ended): what saves at a signal saves then."""

    def on_broken_pipe(self) -> None:
        """Say no more. A run finishes its step and saves, as at Ctrl-C; whatever has nothing to save ends at once."""
        heard = Interrupts.active
        if heard is None:
            super().on_broken_pipe()
            return
        with suppress(SystemExit):
            super().on_broken_pipe()
        heard.received = heard.received or "closed output"
