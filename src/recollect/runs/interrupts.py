"""Ctrl-C and SIGTERM end a run politely, and what takes too long is given up.

A step in progress is finished and saved first. A block that leaves no trace when it is given up (an evaluation, a
rollout that nobody has learned from) says so with :func:`time_limited`: it ends soon after a signal, or when its
time is over.
"""

import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import Any

AGAIN = 1.0
"""Seconds until a block is told again that it is given up, if it did not listen."""


class Interrupted(BaseException):
    """A block is left because of Ctrl-C or SIGTERM."""


class TimeLimitExceeded(BaseException):
    """A block took longer than it may."""


class SecondInterrupt(KeyboardInterrupt):
    """A person pressed Ctrl-C again."""


@dataclass
class Block:
    """What may be given up."""

    seconds: float
    """That it may take without a sign of life."""
    patience: float
    """Seconds that it may take after a signal."""
    stop: float = float("inf")
    """When it is given up because of a signal."""
    end: float = float("inf")
    """When its time is up."""
    told: bool = False
    """Whether it was told to end."""

    def go_on(self) -> None:
        """A sign of life: the time begins anew."""
        self.end = monotonic() + self.seconds


class Interrupts:
    """Within this context the first signal only sets :attr:`received`; a second Ctrl-C stops at once.

    Outside the main thread Python delivers no signals, and nothing is changed.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)
    active: "Interrupts | None" = None
    """The context that hears the signals of this process."""
    block: Block | None = None
    """What the main thread is at and may be given up."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._process = os.getpid()
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._hear) for number in self.SIGNALS}
            Interrupts.active = self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            Interrupts.active = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker that was forked off: its parent decides about Ctrl-C
            if number == signal.SIGTERM:
                raise SystemExit(128 + number)
            return
        if self.received and number == signal.SIGINT:
            raise SecondInterrupt
        first, self.received = not self.received, signal.Signals(number).name.replace("SIGINT", "Ctrl-C")
        block = Interrupts.block
        if first and block is not None:
            block.stop = monotonic() + block.patience
            _arm(block)
            if not block.patience:
                block.told = True
                raise Interrupted


def is_user_interrupt(error: KeyboardInterrupt) -> bool:
    """Whether an interrupt came from the keyboard, and not from code that raised it."""
    return Interrupts.active is None or isinstance(error, SecondInterrupt)


@contextmanager
def time_limited(seconds: float, patience: float) -> Iterator[Block]:
    """A block that leaves no trace when an exception ends it, wherever it is.

    It works in the main thread, on systems with timers and where nobody else uses the alarm signal; elsewhere the block
    takes as long as it takes. Inside another such block it has its own time, and no more patience than the outer one.

    Args:
        seconds: that it may take, or that may go by between two calls of :meth:`Block.go_on`.
        patience: seconds that it may still take after the signal that ends the run.

    Raises:
        TimeIsUp: after ``seconds``.
        GivenUp: ``patience`` seconds after a signal.
    """
    main = threading.current_thread() is threading.main_thread()
    block = Block(seconds, patience)
    if not main:
        yield block
        return
    outer = Interrupts.block
    block.go_on()
    if outer is not None:
        block.patience, block.stop = min(patience, outer.patience), outer.stop
    Interrupts.block = block
    if outer is not None:
        try:
            _arm(block)
            yield block
        finally:
            Interrupts.block = outer
            outer.stop = min(outer.stop, block.stop)
            if not outer.told:
                _arm(outer)
        return
    timed = hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    previous = signal.signal(signal.SIGALRM, _ring) if timed else None
    try:
        if Interrupts.active is not None and Interrupts.active.received:
            block.stop = monotonic() + patience
        _arm(block)
        yield block
    finally:
        Interrupts.block = None
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """Ctrl-C or SIGTERM ends this block at once, and what is open in it is closed.

    Raises:
        KeyboardInterrupt: with the name of the signal.
    """
    with Interrupts() as heard:
        try:
            with time_limited(math.inf, patience=0.0):
                yield
        except Interrupted:
            raise KeyboardInterrupt(f"{heard.received}: given up") from None


def _arm(block: Block) -> None:
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is _ring:
        wait = min(block.end, block.stop) - monotonic()
        signal.setitimer(signal.ITIMER_REAL, min(max(wait, 1e-3), 1e8), AGAIN)


def _ring(number: int, frame: FrameType | None) -> None:
    block = Interrupts.block
    if block is None:
        return
    if monotonic() >= block.stop:
        block.told = True
        raise Interrupted
    if monotonic() >= block.end:
        block.told = True
        raise TimeLimitExceeded
