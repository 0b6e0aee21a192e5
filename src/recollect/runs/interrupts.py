"""Ctrl-C and SIGTERM end a run politely: the step in progress is finished and saved first."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Within this context the first signal only sets :attr:`received`; a second Ctrl-C stops at once.

    Outside the main thread Python delivers no signals, and nothing is changed.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._hear) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name.replace("SIGINT", "Ctrl-C")
