"""Silence for environments that tell the terminal about themselves, in their own thread alone.

``contextlib.redirect_stdout`` silences the whole program; and where two threads use it at once, as the actors of an
asynchronous run do, the one that ends last puts the other's silence back for good.
"""

import sys
import threading
from types import TracebackType
from typing import Any, TextIO

_lock = threading.Lock()


class _Output:
    """A standard output that takes nothing from some threads.

    Args:
        stream: that takes what the other threads write.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.silent: list[int] = []
        """Threads, each as often as it asked for silence."""

    def write(self, text: str) -> int:
        """Write it, or forget it."""
        return len(text) if threading.get_ident() in self.silent else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Silence:
    """A context in which nothing that this thread prints is shown."""

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
