"""Figures of a server as Prometheus text."""

from collections.abc import Iterator

from recollect.machine import resident_bytes
from recollect.serving.batcher import BUCKETS_MS, Batcher
from recollect.serving.store import StreamStore


def render_metrics(store: StreamStore, batcher: Batcher, seconds: float) -> str:
    """Return all figures in Prometheus' text format.

    Args:
        store: is only read, so that any thread may ask.
        batcher: of the store.
        seconds: since the start.
    """
    return "\n".join(_lines(store, batcher, seconds)) + "\n"


def _lines(store: StreamStore, batcher: Batcher, seconds: float) -> Iterator[str]:
    live = store.live
    yield from _metric("recollect_streams", "gauge", "Streams, by place", memory=live, disk=len(store) - live)
    gauges = {
        "recollect_capacity": ("Places in memory", store.config.capacity),
        "recollect_waiting_requests": ("Requests in the queue", batcher.waiting),
        "recollect_memory_bytes": ("Bytes of the memories of all places", store.nbytes),
        "recollect_resident_bytes": ("Resident bytes of the process", resident_bytes()),
        "recollect_uptime_seconds": ("Seconds since the start", round(seconds, 3)),
    }
    for name, (about, value) in gauges.items():
        yield from (f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value}")
    counts = dict(store.counts)
    for name, about in (("steps", "Steps taken"), ("batches", "Calls of the model")):
        full = f"recollect_{name}_total"
        yield from (f"# HELP {full} {about}", f"# TYPE {full} counter", f"{full} {counts.pop(name, 0)}")
    yield "# HELP recollect_events_total Other events\n# TYPE recollect_events_total counter"
    for event, number in sorted(counts.items()):
        yield f'recollect_events_total{{event="{event}"}} {number}'
    yield "# HELP recollect_weights Version of the weights\n# TYPE recollect_weights gauge"
    yield f'recollect_weights{{version="{store.version}"}} 1'
    yield from _histogram(batcher)


def _metric(name: str, kind: str, about: str, **values: int) -> Iterator[str]:
    yield from (f"# HELP {name} {about}", f"# TYPE {name} {kind}")
    for place, value in values.items():
        yield f'{name}{{place="{place}"}} {value}'


def _histogram(batcher: Batcher) -> Iterator[str]:
    name, total = "recollect_answer_seconds", 0
    yield from (f"# HELP {name} Time from a request's arrival to its answer", f"# TYPE {name} histogram")
    for limit, number in zip((*BUCKETS_MS, None), list(batcher.answer_times), strict=True):
        total += number
        yield f'{name}_bucket{{le="{"+Inf" if limit is None else limit / 1000}"}} {total}'
    yield from (f"{name}_sum {batcher.answer_seconds:.6f}", f"{name}_count {total}")
