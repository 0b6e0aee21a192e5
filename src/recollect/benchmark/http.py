"""Benchmark of ``recollect serve``: steps per second and answer times over HTTP on the loopback address.

The server is a process of its own, as it would be. Each connection is a thread of this process, which asks for a step
of a few streams, waits for the answers, and asks again; the streams of a connection take turns. Requests with one
stream each go to the route of that stream, others to the route of several.
"""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from recollect.benchmark.config import HTTPBenchmark
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.serving.client import Client

TOKEN = "benchmark"


@dataclass(frozen=True)
class HTTPRow:
    """One number of connections, with so many streams in a request."""

    connections: int
    together: int  # streams of one request
    steps_per_s: float  # median over the rounds
    best_steps_per_s: float
    p50_ms: float  # answer times of requests
    p99_ms: float
    worst_ms: float
    steps: int
    resident_bytes: int  # of the server, at the end
    resident_growth: int  # since the end of the first round


@dataclass(frozen=True)
class HTTPResults(Measurements):
    """Results of one run of the benchmark."""

    rows: list[HTTPRow]


def run_http(config: HTTPBenchmark, progress: Progress = no_progress) -> HTTPResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of each part.

    Raises:
        ValueError: the server did not start; the output folder cannot be written.
    """
    results = HTTPResults(describe(), asdict(config), [])
    with running_server(config) as address:
        for connections in config.connections:
            for together in config.together:
                progress(f"{connections} connections, {together} streams a request")
                results.rows.append(measure(address, connections, together, config))
    save_rows(config.output, "http", results, results.rows)
    return results


@contextmanager
def running_server(config: HTTPBenchmark) -> Iterator[str]:
    """Run ``recollect serve`` in the block, and return its address."""
    streams = max(config.connections) * max(config.together)
    options = ["--port", "0", "--token", TOKEN, "--capacity", str(streams), "--cache", config.cache]
    command = [sys.executable, "-m", "recollect", "serve", config.model, *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stderr is not None
    try:
        first = server.stdout.readline()
        if not first.startswith("http://"):
            raise ValueError(f"model={config.model!r}: recollect serve did not start: {server.stderr.read().strip()}")
        yield first.split()[0]
    finally:
        server.terminate()
        server.communicate(timeout=30)


class Asker(threading.Thread):
    """A connection with streams of its own, which asks until it is told to stop.

    Args:
        address: of the server.
        number: of the connection.
        together: streams of one request.
        inputs: of a step, which all steps have.
    """

    def __init__(self, address: str, number: int, together: int, inputs: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.client, self.inputs = Client(address, TOKEN), inputs
        self.streams = [self.client.create(f"{number}-{together}-{place}") for place in range(together)]
        self.rounds: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[list[float] | BaseException] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        """Ask in rounds until the times of ``rounds``; 0 ends it."""
        try:
            while end := self.rounds.get():
                self.answers.put(self._ask_until(end))
            for stream in self.streams:
                stream.delete()
        except BaseException as error:
            self.answers.put(error)
        self.client.close()

    def _ask_until(self, end: float) -> list[float]:
        times, steps = [], [{"id": stream.id, "inputs": self.inputs} for stream in self.streams]
        while (began := time.perf_counter()) < end:
            answers = self.client.step_all(steps) if len(steps) > 1 else [self.streams[0].step(self.inputs)]
            times.append(time.perf_counter() - began)
            wrong = [answer["error"] for answer in answers if "error" in answer]
            if wrong:
                raise ValueError(wrong[0])
        return times


def measure(address: str, connections: int, together: int, config: HTTPBenchmark) -> HTTPRow:
    """Measure one number of connections, with so many streams in a request."""
    about = Client(address, TOKEN)
    inputs = _example_inputs(about.ask("GET", "/model"))
    askers = [Asker(address, number, together, inputs) for number in range(connections)]
    rates, times, resident = [], [], 0
    for round_ in range(config.repeats + 1):  # the first warms up
        began = time.perf_counter()
        for asker in askers:
            asker.rounds.put(began + config.seconds)
        found = [asker.answers.get(timeout=config.seconds + 60) for asker in askers]
        wall = time.perf_counter() - began
        failed = [one for one in found if isinstance(one, BaseException)]
        if failed:
            raise failed[0]
        asked = [seconds for one in found if isinstance(one, list) for seconds in one]
        if round_:
            rates.append(len(asked) * together / wall)
            times += asked
        else:
            resident = _resident(about)
    at_end = _resident(about)
    for asker in askers:
        asker.rounds.put(0.0)
        asker.join()
    about.close()
    middle, slow = np.quantile(times, (0.5, 0.99))
    return HTTPRow(
        connections=connections,
        together=together,
        steps_per_s=round(float(np.median(rates))),
        best_steps_per_s=round(max(rates)),
        p50_ms=round(1e3 * float(middle), 2),
        p99_ms=round(1e3 * float(slow), 2),
        worst_ms=round(1e3 * max(times), 2),
        steps=len(times) * together,
        resident_bytes=at_end,
        resident_growth=at_end - resident,
    )


def _example_inputs(model: dict[str, Any]) -> dict[str, Any]:
    """Return random inputs of a step; what the server keeps of the step before is left out."""
    draws, found = np.random.default_rng(0), {}
    for name, about in model["inputs"].items():
        if "default" not in about:
            is_float = about["dtype"].startswith("float")
            values = draws.random(about["shape"]).round(4) if is_float else np.zeros(about["shape"], int)
            found[name] = values.tolist()
    return found


def _resident(client: Client) -> int:
    (line,) = (
        line for line in client.ask("GET", "/metrics").splitlines() if line.startswith("recollect_resident_bytes ")
    )
    return int(line.split()[1])


def render_http(results: HTTPResults) -> Group:
    """Return the results as a table for a terminal."""
    table = Table(title=f"recollect serve {results.config['model']}, over HTTP on loopback")
    for name in (
        "connections",
        "streams\na request",
        "steps/s",
        "best",
        "p50\nms",
        "p99\nms",
        "worst\nms",
        "growth\nMB",
    ):
        table.add_column(name, justify="right")
    for row in results.rows:
        speed = f"{row.steps_per_s:,}", f"{row.best_steps_per_s:,}"
        late = f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}", f"{row.worst_ms:.1f}"
        table.add_row(str(row.connections), str(row.together), *speed, *late, f"{row.resident_growth / 1e6:+.1f}")
    foot = "Server and clients are a process each. Medians over the rounds; answer times of all requests together."
    return Group(table, results.hardware(), foot)
