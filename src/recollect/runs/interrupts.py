"""Ctrl-C, SIGTERM and SIGHUP end a run after the present step, and blocks can have time limits.

A step in progress is finished and saved first. A block that leaves no trace when it is stopped (an evaluation, or a
rollout that was not learned from) is marked by :func:`time_limited`: it ends soon after a signal, or at its limit.

Time in which this process was stopped (Ctrl-Z, SIGSTOP, a frozen container) does not count: an alarm rings
:data:`~recollect.machine.LIMIT_PARTS` times within a limit, and what it rings late is taken for such time.
"""

import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import Any

from recollect.machine import LIMIT_PARTS

RETRY_SECONDS = 1.0
"""Seconds until the exception is raised again in a block that caught it."""


class Interrupted(BaseException):
    """A block is stopped because of a signal: Ctrl-C, SIGTERM or SIGHUP."""


class TimeLimitExceeded(BaseException):
    """A block took longer than its limit."""


class SecondInterrupt(KeyboardInterrupt):
    """The user pressed Ctrl-C after a first signal."""


@dataclass
class Block:
    """A block with a time limit."""

    seconds: float
    """Limit without a sign of life."""
    patience: float
    """Seconds that it may take after a signal."""
    stop: float = float("inf")
    """Time of its end because of a signal."""
    end: float = float("inf")
    """Time of its end because of the limit."""
    is_stopped: bool = False
    """Whether an exception was raised in it."""
    outer: "Block | None" = None
    """The block around it."""
    next_look: float = float("inf")
    """Time at which the alarm is to ring, at the latest."""

    def restart_clock(self) -> None:
        """Give a sign of life: the time limit starts again."""
        now = monotonic()
        self.end, self.next_look = now + self.seconds, now + self.seconds / LIMIT_PARTS

    def add_time(self, seconds: float) -> None:
        """Move the end of this block, and of those around it."""
        self.end += seconds
        if self.outer is not None:
            self.outer.add_time(seconds)


PARENT = "RECOLLECT_PARENT"
"""Environment variable with the number of the process that started a run, after whose end the run ends, saved."""


class Interrupts:
    """A context in which the first signal only sets :attr:`received`, and a second Ctrl-C stops at once.

    Outside the main thread Python delivers no signals, and the context does nothing.
    """

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
    active: "Interrupts | None" = None
    """The context that receives the signals of this process."""
    block: Block | None = None
    """Innermost block with a time limit of the main thread."""

    def __init__(self) -> None:
        self._received: str | None = None
        self._process = os.getpid()
        self._parent = int(os.environ.get(PARENT, 0)) if os.name == "posix" else 0
        self._previous: dict[signal.Signals, Any] = {}
        self._gradients: bool | None = None

    @property
    def received(self) -> str | None:
        """What asked the run to end: a signal, or the end of the process that started it; None while nothing did."""
        if self._received is None and self._parent and os.getppid() != self._parent:
            self._received = "the end of the process that started it"
        return self._received

    @received.setter
    def received(self, reason: str) -> None:
        self._received = reason

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            # A program that nohup started ignores SIGHUP, and goes on doing so.
            chosen = [number for number in self.SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._receive) for number in chosen}
            Interrupts.active = self
        self._gradients = _gradient_mode()
        return self

    def __exit__(self, *_: object) -> None:
        _set_gradient_mode(self._gradients)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            Interrupts.active = None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked worker: its parent handles Ctrl-C
            if number != signal.SIGINT:
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
                block.is_stopped = True
                raise Interrupted


def is_user_interrupt(error: KeyboardInterrupt) -> bool:
    """Return whether an interrupt came from the keyboard, and not from code that raised it."""
    return Interrupts.active is None or isinstance(error, SecondInterrupt)


@contextmanager
def time_limited(seconds: float, patience: float) -> Iterator[Block]:
    """Limit the time of a block that leaves no trace when an exception ends it.

    It works in the main thread, on systems with timers and where nothing else uses the alarm signal; elsewhere there
    is no limit. Inside another such block it has its own limit, and at most the patience of the outer one.

    Args:
        seconds: that the block, or the time between two calls of :meth:`Block.restart_clock`, may take.
        patience: seconds that it may still take after the signal that ends the run.

    Raises:
        TimeLimitExceeded: after ``seconds``.
        Interrupted: ``patience`` seconds after a signal.
    """
    main = threading.current_thread() is threading.main_thread()
    outer = Interrupts.block if main else None
    block = Block(seconds, patience, outer=outer)
    if not main:
        yield block
        return
    gradients = _gradient_mode()
    block.restart_clock()
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
            if not outer.is_stopped:
                _arm(outer)
            _set_gradient_mode(gradients)
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
        _set_gradient_mode(gradients)


def _gradient_mode() -> bool | None:
    """Return whether torch records gradients in this thread; None if it is not imported.

    ``torch.no_grad`` is written in Python: a signal between the lines that set and restore the mode leaves it off.
    """
    torch = sys.modules.get("torch")
    return None if torch is None else torch.is_grad_enabled()


def _set_gradient_mode(enabled: bool | None) -> None:
    """Set what :func:`_gradient_mode` has returned."""
    if enabled is not None:
        sys.modules["torch"].set_grad_enabled(enabled)


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """End this block at once after Ctrl-C or SIGTERM, and close what is open in it.

    Raises:
        KeyboardInterrupt: with the name of the signal.
    """
    with Interrupts() as interrupts:
        try:
            with time_limited(math.inf, patience=0.0):
                yield
        except Interrupted:
            raise KeyboardInterrupt(f"{interrupts.received}: stopped") from None


def _arm(block: Block) -> None:
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is _ring:
        now = monotonic()
        block.next_look = now + block.seconds / LIMIT_PARTS
        wait = min(block.end, block.stop, block.next_look) - now
        signal.setitimer(signal.ITIMER_REAL, min(max(wait, 1e-3), 1e8), RETRY_SECONDS)


def _ring(number: int, frame: FrameType | None) -> None:
    block = Interrupts.block
    if block is None:
        return
    now = monotonic()
    if not block.is_stopped:
        block.add_time(max(now - block.next_look, 0.0))
    if now >= block.stop:
        block.is_stopped = True
        raise Interrupted
    if now >= block.end:
        block.is_stopped = True
        raise TimeLimitExceeded
    _arm(block)
