"""Gather the requests of many clients, step their streams together, and keep the order of each stream's requests.

    batcher = Batcher(store)
    future = concurrent.futures.Future()
    batcher.step(Step("robot-7", inputs), future)
    future.result()

One thread owns the store. A batch begins when the streams that took part in the last one have asked again, or when its
first request has waited for ``window_ms``, whichever is earlier: a client alone waits for nobody.
"""

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from recollect.serving.refusal import RefusedError
from recollect.serving.store import Answer, Step, StreamStore

SWEEP_SECONDS = 1.0
"""Time between two searches for streams to evict or to delete."""
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Upper limits of the counts of answer times."""


class Ticket(Protocol):
    """Receives what became of a request: a future of ``concurrent.futures`` or of ``asyncio``."""

    def done(self) -> bool:
        """Whether nobody waits for it any more."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Receive the answer of the request."""
        ...

    def set_exception(self, exception: Any, /) -> None:
        """Receive a refusal, or an error."""
        ...


Outcomes = Sequence[tuple[Ticket, Any]]
"""Tickets, each with its answer or an exception."""


def settle(outcomes: Outcomes) -> None:
    """Hand out answers and exceptions; who has gone gets nothing."""
    for ticket, outcome in outcomes:
        if ticket.done():
            continue
        with suppress(InvalidStateError):  # it was cancelled in this moment
            if isinstance(outcome, BaseException):
                ticket.set_exception(outcome)
            else:
                ticket.set_result(outcome)


class Request(NamedTuple):
    """A request that waits for its batch."""

    ids: tuple[str, ...] | None
    """Streams whose requests it must not overtake; None: all."""
    work: Step | Callable[[StreamStore], Any]
    ticket: Ticket
    arrived: float


class Batcher:
    """The thread that owns a store, and its queue.

    An error of a request goes to its ticket. After an error outside of requests the thread ends, and requests are
    refused with 503.

    Args:
        store: which nobody else may call from now on.
        deliver: called with a batch of outcomes in this thread; by default it settles them there.
    """

    def __init__(self, store: StreamStore, deliver: Callable[[Outcomes], Any] = settle) -> None:
        self._store, self._deliver, config = store, deliver, store.config
        self._window, self._most_waiting = 1e-3 * config.window_ms, config.most_waiting
        self._most_rows = min(config.most_rows, config.capacity)
        self._queue: deque[Request] = deque()
        self._changed = threading.Condition()
        self._wanted = 1  # requests for which the thread is waiting
        self._expected = 1  # of the last batch
        self._closed = False
        self.answer_times = [0] * (len(BUCKETS_MS) + 1)
        """Number of steps answered within each of ``BUCKETS_MS``, and above."""
        self.answer_seconds = 0.0
        """Sum of all answer times."""
        self._thread = threading.Thread(target=self._run, name="recollect-batcher", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._queue)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def step(self, step: Step, ticket: Ticket) -> None:
        """Queue a step; its ticket gets an :class:`~recollect.serving.store.Answer` or a RefusedError.

        Raises:
            RefusedError: 503, too many requests wait, or the server stops.
        """
        self._put(Request((step.id,), step, ticket, time.perf_counter()))

    def call(self, work: Callable[[StreamStore], Any], ticket: Ticket, ids: tuple[str, ...] | None = None) -> None:
        """Queue a function of the store; its ticket gets what it returns or raises.

        Args:
            work: function of the store.
            ticket: for the outcome.
            ids: streams that it concerns; None: all, so that it waits for whatever was queued before.

        Raises:
            RefusedError: 503.
        """
        self._put(Request(ids, work, ticket, time.perf_counter()))

    def close(self) -> None:
        """End the thread after the requests that wait, and close the store."""
        self.release()
        self._store.close()

    def release(self) -> None:
        """End the thread after the requests that wait; the store may be called by somebody else then."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _put(self, request: Request) -> None:
        with self._changed:
            if self._closed:
                raise RefusedError(503, "the server stops: ask again after its restart")
            if len(self._queue) >= self._most_waiting:
                raise RefusedError(
                    503, f"most_waiting={self._most_waiting} requests wait: ask again later, or less often"
                )
            self._queue.append(request)
            if len(self._queue) == 1 or len(self._queue) == self._wanted:
                self._changed.notify()

    def _run(self) -> None:
        try:
            self._serve()
        finally:  # after an error nobody answers any more: who waits, and who asks later, is told
            with self._changed:
                self._closed, left = True, list(self._queue)
                self._queue.clear()
            if left:
                refusal = RefusedError(503, "the server's thread has ended with an error: see its log, and restart it")
                self._deliver([(request.ticket, refusal) for request in left])

    def _serve(self) -> None:
        swept = time.monotonic()
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if batch:
                self._deliver(self._work_on(batch))
            if time.monotonic() - swept >= SWEEP_SECONDS:
                self._store.sweep()
                swept = time.monotonic()

    def _next_batch(self) -> list[Request] | None:
        """Return steps of different streams, one call alone, or nothing after a while; None at the end."""
        with self._changed:
            if not self._queue and not self._closed:
                self._wanted = 1
                self._changed.wait(SWEEP_SECONDS)
            if not self._queue:
                return None if self._closed else []
            end = self._queue[0].arrived + self._window
            self._wanted = min(self._expected, self._most_rows)
            while len(self._queue) < self._wanted and not self._closed and isinstance(self._queue[0].work, Step):
                if (left := end - time.perf_counter()) <= 0:
                    break
                self._changed.wait(left)
            batch = self._take()
        if isinstance(batch[0].work, Step):
            self._expected = len(batch)
        return batch

    def _take(self) -> list[Request]:
        """Remove from the queue the steps that can be taken together, or the call at its head."""
        if not isinstance(self._queue[0].work, Step):
            return [self._queue.popleft()]
        batch: list[Request] = []
        others: list[Request] = []
        blocked: set[str] = set()
        while self._queue and len(batch) < self._most_rows:
            request = self._queue.popleft()
            if request.ids is None:
                others.append(request)
                break
            if isinstance(request.work, Step) and request.work.id not in blocked:
                batch.append(request)
            else:
                others.append(request)
            blocked.update(request.ids)
        self._queue.extendleft(reversed(others))
        return batch

    def _work_on(self, batch: list[Request]) -> Outcomes:
        work = batch[0].work
        try:
            if not isinstance(work, Step):
                return [(batch[0].ticket, work(self._store))]
            outcomes: list[Any] = list(self._store.step([request.work for request in batch]))  # type: ignore[misc]
        except Exception as error:
            outcomes = [error if isinstance(error, RefusedError) else _broken(error)] * len(batch)
        now = time.perf_counter()
        for request, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Answer):
                taken = now - request.arrived
                self.answer_seconds += taken
                self.answer_times[bisect_left(BUCKETS_MS, 1e3 * taken)] += 1
        return [(request.ticket, outcome) for request, outcome in zip(batch, outcomes, strict=True)]


def _broken(error: Exception) -> RefusedError:
    """Return an error of the model or of the machine as a RefusedError, with its cause."""
    refusal = RefusedError(500, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}: see the server's log")
    refusal.__cause__ = error
    return refusal
