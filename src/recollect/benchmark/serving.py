"""Benchmark of the store of live streams: steps per second, answer times and resident memory, by age of the streams.

A few askers, of many streams, each ask for a step of a stream drawn at random, and again when they have their answer.
Their steps go through the batcher, in process; HTTP is not measured. Stores in several formats take turns.
"""

import math
import threading
import time
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from recollect.benchmark.config import ServingBenchmark
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.machine import resident_bytes
from recollect.ops.threads import one_thread
from recollect.serving import Batcher, ServingConfig, Step, StreamStore
from recollect.serving.batcher import Outcomes
from recollect.serving.store import Answer
from recollect.training.saved_models import load_model

INPUTS = 256
"""Different inputs, which are drawn once."""
Stores = dict[tuple[str, int], tuple[StreamStore, list[str]]]
"""Stores and the ids of their streams, by formats and age."""


@dataclass(frozen=True)
class ServingRow:
    """One format and one number of askers."""

    weights: str
    cache: str
    streams: int
    askers: int
    age: int  # steps of each stream before the first round
    last_age: float  # mean at the end
    fill: float  # share of the core's chunks that are stored before the first round; 1 in cores without
    steps_per_s: float  # median over the rounds
    best_steps_per_s: float
    steps_per_cpu_s: float  # median; by the processor time of the whole process
    rows_per_call: float  # steps of one call of the model, mean
    p50_ms: float
    p99_ms: float
    worst_ms: float
    steps: int
    store_bytes: int
    resident_bytes: int  # of the process, with all stores, at the end
    resident_growth: int  # since the end of the first round


@dataclass(frozen=True)
class ServingResults(Measurements):
    """Results of one run of the benchmark."""

    rows: list[ServingRow]


class Askers:
    """Clients in a closed loop, each with one request at a time.

    Args:
        store: with all streams.
        ids: of the streams.
        number: of clients.
        seed: of the choice of streams and inputs.
    """

    def __init__(self, store: StreamStore, ids: list[str], number: int, seed: int) -> None:
        self.store, self.ids, self.number = store, ids, number
        self._draws = np.random.default_rng(seed)
        self._coming: list[int] = []  # streams of the next requests
        self._inputs = [store.interface.parse(given) for given in _random_inputs(store, self._draws)]

    def run(
        self, seconds: float = math.inf, steps: float = math.inf, *, timed: bool = True
    ) -> tuple[int, list[float], int]:
        """Ask for so long or so many steps.

        Returns:
            The number of answers, their times if they are timed, and the number of calls of the model.
        """
        times: list[float] = []
        answers = 0
        idle, end = threading.Event(), time.perf_counter() + seconds
        began: dict[int, float] = {}
        errors: list[Any] = []

        def deliver(outcomes: Outcomes) -> None:
            nonlocal answers
            now, answers = time.perf_counter(), answers + len(outcomes)
            for asker, outcome in outcomes:
                taken = now - began.pop(asker)  # type: ignore[call-overload]
                if timed:
                    times.append(taken)
                if not isinstance(outcome, Answer):
                    errors.append(outcome)
            if now < end and answers < steps and not errors:
                self._ask(batcher, began, [asker for asker, _ in outcomes])
            elif not began:
                idle.set()

        batches = self.store.counts["batches"]
        batcher = Batcher(self.store, deliver)
        self._ask(batcher, began, range(self.number))
        idle.wait(None if seconds == math.inf else seconds + 60)
        batcher.release()
        if errors:
            raise errors[0]
        return answers, times, self.store.counts["batches"] - batches

    def _ask(self, batcher: Batcher, began: dict[int, float], askers: Any) -> None:
        for asker in askers:
            if not self._coming:  # drawn for many requests at once, which costs little of the time that is measured
                self._coming = self._draws.permutation(len(self.ids)).tolist()
            stream = self._coming.pop()
            began[asker] = time.perf_counter()
            batcher.step(Step(self.ids[stream], self._inputs[stream % INPUTS]), asker)


def _random_inputs(store: StreamStore, draws: np.random.Generator) -> list[dict[str, Any]]:
    """Return inputs of one stream; what the store keeps of the step before is left out."""
    kept = {port.name for port in store.interface.carried}
    ports = {name: port for name, port in store.interface.inputs.items() if name not in kept}
    return [
        {
            name: draws.random(port.shape, np.float32)
            if port.dtype.is_floating_point
            else np.zeros(port.shape, str(port.dtype).removeprefix("torch."))
            for name, port in ports.items()
        }
        for _ in range(INPUTS)
    ]


def make_store(model: Any, limits: ServingConfig, age: int, seed: int) -> tuple[StreamStore, list[str]]:
    """Return a full store whose streams have all taken ``age`` steps, and their ids."""
    store = StreamStore(model, limits)
    first = store.create()
    inputs = [store.interface.parse(given) for given in _random_inputs(store, np.random.default_rng(seed))]
    for step in range(age):
        store.step([Step(first, inputs[step % INPUTS])])
    return store, [first, *(store.fork(first) for _ in range(limits.capacity - 1))]


def run_serving(config: ServingBenchmark, progress: Progress = no_progress) -> ServingResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of each part.

    Raises:
        ValueError: there is no such model, or it cannot be served; the output folder cannot be written.
    """
    with one_thread():
        model = load_model(config.model)
        results = ServingResults(describe(), asdict(config), [])
        stores: Stores = {}
        for formats, age in product(config.formats, config.ages):
            progress(f"{config.streams} streams of {age} steps, {formats}")
            kinds: Any = dict(zip(("weights", "cache"), formats.split("/"), strict=True))
            limits = ServingConfig(capacity=config.streams, most_rows=max(config.askers), **kinds)
            stores[formats, age] = make_store(model, limits, age, config.seed)
        for number in config.askers:
            results.rows.extend(_measure(stores, number, config, model, progress))
        for store, _ in stores.values():
            store.close()
    save_rows(config.output, "serving", results, results.rows)
    return results


def _measure(
    stores: Stores,
    number: int,
    config: ServingBenchmark,
    model: Any,
    progress: Progress,
) -> list[ServingRow]:
    askers = {name: Askers(store, ids, number, config.seed) for name, (store, ids) in stores.items()}
    rates: dict[tuple[str, int], list[tuple[float, float]]] = {name: [] for name in stores}
    times: dict[tuple[str, int], list[float]] = {name: [] for name in stores}
    calls, resident = dict.fromkeys(stores, 0), 0
    for round_ in range(config.repeats + 1):  # the first warms up
        progress(f"{number} askers, round {round_} of {config.repeats}")
        for name, clients in askers.items():
            began, cpu = time.perf_counter(), time.process_time()
            steps, found, batches = clients.run(config.seconds)
            if round_:
                rates[name].append((steps / (time.perf_counter() - began), steps / (time.process_time() - cpu)))
                times[name] += found
                calls[name] += batches
        resident = resident if round_ else resident_bytes()
    grown = resident_bytes() - resident
    rows = []
    for name, (store, ids) in stores.items():
        weights, cache = name[0].split("/")
        wall, per_cpu = (np.array(part) for part in zip(*rates[name], strict=True))
        middle, slow = np.quantile(times[name], (0.5, 0.99))
        rows.append(
            ServingRow(
                weights=weights,
                cache=cache,
                streams=config.streams,
                askers=number,
                age=name[1],
                last_age=round(float(np.mean([store.about(id)["steps"] for id in ids])), 1),
                fill=_fill(model, name[1]),
                steps_per_s=round(float(np.median(wall))),
                best_steps_per_s=round(float(wall.max())),
                steps_per_cpu_s=round(float(np.median(per_cpu))),
                rows_per_call=round(len(times[name]) / max(1, calls[name]), 1),
                p50_ms=round(1e3 * float(middle), 2),
                p99_ms=round(1e3 * float(slow), 2),
                worst_ms=round(1e3 * max(times[name]), 2),
                steps=len(times[name]),
                store_bytes=store.nbytes,
                resident_bytes=resident_bytes(),
                resident_growth=grown,
            )
        )
    return rows


def _fill(model: Any, age: int) -> float:
    """Return the share of a core's chunks that are stored after so many steps; 1 for a core without."""
    config: Any = getattr(getattr(model, "core", model), "config", None)
    chunks = getattr(config, "num_chunks", None)
    return 1.0 if not chunks else min(1.0, age // config.stride / chunks)


def render_serving(results: ServingResults) -> Group:
    """Return the results as a table for a terminal."""
    asked = results.config
    table = Table(title=f"{asked['streams']:,} live streams of {asked['model']}, one thread")
    for name in ("weights/cache", "age\nsteps", "askers", "steps/s", "p50\nms", "p99\nms", "store\nMB"):
        table.add_column(name, justify="left" if name == "weights/cache" else "right")
    for row in results.rows:
        speed = f"{row.steps_per_s:,.0f}", f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}"
        age = f"{row.age}-{row.last_age:.0f}"
        table.add_row(f"{row.weights}/{row.cache}", age, str(row.askers), *speed, f"{row.store_bytes / 1e6:.0f}")
    return Group(table, results.hardware(), "Medians over the rounds; answer times of all rounds together.")
