"""Suppression of printed output in one thread.

``contextlib.redirect_stdout`` affects the whole program; and if two threads use it at the same time, as the actors of
an asynchronous run do, the last one to exit restores the other's redirection for good.
"""

import sys
import threading
from types import TracebackType
from typing import Any, TextIO

_lock = threading.Lock()


class _Output:
    """A standard output that discards what some threads write.

    Args:
        stream: receives what the other threads write.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.silent: list[int] = []
        """Threads whose output is discarded, once per open context."""

    def write(self, text: str) -> int:
        """Write text, or discard it."""
        return len(text) if threading.get_ident() in self.silent else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Silence:
    """A context that discards what this thread prints."""

    def __enter__(self) -> None:
        with _lock:
            if not isinstance(sys.stdout, _Output):
                sys.stdout = _Output(sys.stdout)  # type: ignore[assignment]
            self.output: _Output = sys.stdout  # type: ignore[assignment]
            self.output.silent.append(threading.get_ident())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        with _lock:
            self.output.silent.remove(threading.get_ident())
            if not self.output.silent and sys.stdout is self.output:
                sys.stdout = self.output.stream
