import random
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from tally import Tally, literal

from recollect.serving import Batcher, RefusedError, ServingConfig, Step, StreamStore

WAIT = 600


def step(id, number, **options):
    return Step(id, {"inputs": np.array([number], dtype=np.float32)}, **options)


def ask(batcher, wanted):
    future = Future()
    batcher.step(wanted, future)
    return future


def call(batcher, work, ids=None):
    future = Future()
    batcher.call(work, future, ids)
    return future.result(WAIT)


@pytest.fixture
def batcher():
    made = Batcher(StreamStore(Tally(), ServingConfig(capacity=8, rollback=2, most_waiting=50)))
    yield made
    made.close()


def test_requests_of_a_stream_keep_their_order_and_streams_are_stepped_together(batcher):
    """One call holds the thread until all requests wait; then a stream's second step goes into a second batch."""
    started, go = threading.Event(), threading.Event()
    for name in "abc":
        call(batcher, lambda store, name=name: store.create(name))

    def hold(store):
        started.set()
        assert go.wait(WAIT)

    held = Future()
    batcher.call(hold, held)
    assert started.wait(WAIT)
    wanted = [step("a", 1), step("a", 2), step("b", 3), step("c", 4), step("a", 5)]
    futures = [ask(batcher, one) for one in wanted]
    rolled = Future()
    batcher.call(lambda store: store.roll_back("a", 1), rolled, ("a",))
    futures += [ask(batcher, step("a", 6)), ask(batcher, step("b", 7))]
    before = dict(batcher._store.counts)
    go.set()
    codes = [future.result(WAIT).outputs["outputs"].tolist() for future in futures]
    a, b = [(1, True), (2, False)], [(3, True)]
    assert codes[:5] == [literal(a[:1]), literal(a), literal(b), literal([(4, True)]), literal([*a, (5, False)])]
    assert rolled.result(WAIT) == 2
    assert codes[5:] == [literal([*a, (6, False)]), literal([*b, (7, False)])]
    assert batcher._store.counts["batches"] - before.get("batches", 0) == 4, "abc, ab, a; the rollback; a"


def test_many_clients_of_which_some_vanish_and_evict():
    """More streams than places, 20 clients that never read an answer, and others that are sent to disk in between."""
    requests = 40 * 26  # however slowly they are answered, none is refused
    batcher = Batcher(StreamStore(Tally(), ServingConfig(capacity=12, rollback=1, most_waiting=requests)))
    mismatches, finished = [], []

    def client(number):
        draws, own, name = random.Random(number), [], f"s{number}"
        call(batcher, lambda store: store.create(name))
        for _ in range(25):
            value = draws.randint(0, 999)
            own.append((value, not own))
            future = ask(batcher, step(name, value))
            if number % 2:
                future.cancel()  # the step counts all the same
                continue
            if draws.random() < 0.1:
                call(batcher, lambda store: store.evict(name), (name,))
            answer = future.result(WAIT)
            if answer.outputs["outputs"].tolist() != literal(own) or answer.steps != len(own):
                mismatches.append((number, len(own)))
        final = ask(batcher, step(name, 0)).result(WAIT)
        mismatches.extend([] if final.outputs["outputs"].tolist() == literal([*own, (0, False)]) else [number])
        finished.append(number)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    batcher.close()
    assert len(finished) == 40 and mismatches == []
    assert batcher._store.counts["steps"] == requests > batcher._store.counts["batches"]
    assert sum(batcher.answer_times) == requests


def test_a_request_that_is_cancelled_while_it_is_answered(batcher):
    class Cancelled(Future):
        def done(self):
            was_done = super().done()
            self.cancel()
            return was_done

    call(batcher, lambda store: store.create("z"))
    batcher.step(step("z", 1), Cancelled())
    assert ask(batcher, step("z", 2)).result(WAIT).steps == 2


def test_too_many_requests_and_the_end(batcher):
    go, started = threading.Event(), threading.Event()

    def hold(store):
        started.set()
        assert go.wait(WAIT)
        raise KeyError("a mistake in a call")

    held = Future()
    batcher.call(hold, held)
    assert started.wait(WAIT)
    waiting = [ask(batcher, step("none", 0)) for _ in range(50)]
    with pytest.raises(RefusedError, match="most_waiting=50 requests wait: ask again later"):
        ask(batcher, step("none", 0))
    go.set()
    with pytest.raises(RefusedError, match="KeyError: 'a mistake in a call'"):
        held.result(WAIT)
    for future in waiting:
        with pytest.raises(RefusedError, match="create it with POST"):
            future.result(WAIT)
    assert batcher.is_alive
    batcher.close()
    with pytest.raises(RefusedError, match="the server stops"):
        ask(batcher, step("none", 0))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_an_error_of_the_thread_nobody_waits_for_ever():
    class BrokenStore(StreamStore):
        def sweep(self):
            raise RuntimeError("no memory")

    store = BrokenStore(Tally(), ServingConfig(capacity=8))
    batcher = Batcher(store)
    batcher._thread.join(WAIT)
    assert not batcher.is_alive
    with pytest.raises(RefusedError, match="the server stops"):
        ask(batcher, step("a", 1))
    batcher.close()
