"""Live streams: many memories in one process, of which some take a step.

    python benchmarks/live_streams.py [--rounds 7] [--seconds 1.0] [--output FILE]

Two parts, each on one thread:

- 2 000 streams of a small hcam, 64 of which ask for a step at a time, at random: a stream of one row each; gather,
  the functional core and ``index_copy_``; ``step_rows``; and all rows in one step, the most that one could hope for.
- The agent of the demo: one robot, and 200 robots of which three report, NumPy in and NumPy out.

The forms take turns, round by round. ``steps_per_s`` is the median over the rounds; ``steps_per_cpu_s`` counts the
thread's own processor time, which other programs on the machine disturb less.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import source_tree  # noqa: F401
from recollect.agents.contract import ActorInputs
from recollect.benchmark.machine import describe
from recollect.cores import CORES
from recollect.recipes.demo import demo_config
from recollect.state import clone, map_state, take_rows

RESULTS = Path(__file__).parent / "results" / "live-streams.json"
STREAMS, ASKERS, ALONE = 2000, 64, 200
"""Streams; how many of them ask at a time; how many there are where each has an object of its own."""
ROBOTS, REPORTS = 200, 3
SMALL = CORES["hcam"](dim=64, num_layers=1, num_heads=2, memory_len=16, chunk_len=8, num_chunks=8, top_k=2)
INPUT = 16
WARM = 150
"""Steps of every stream before the first that is timed: windows and chunks are full."""

Step = Callable[[], int]
"""Takes a step of some streams and returns their number."""


def forms() -> dict[str, Step]:
    """Return the ways to take a step of some of 2 000 streams of a small hcam."""
    core, draws = SMALL.build(INPUT).eval(), torch.Generator().manual_seed(0)
    inputs, never = torch.randn(STREAMS, INPUT), torch.zeros(ASKERS, 1, dtype=torch.bool)

    def ask() -> Tensor:
        return torch.randperm(STREAMS, generator=draws)[:ASKERS]

    alone = [core.stream(1) for _ in range(ALONE)]
    pool, whole = core.stream(STREAMS), core.stream(STREAMS)
    for _ in range(WARM):
        whole.step(torch.randn(STREAMS, INPUT))
    store = clone(whole.state)
    pool.load_state(store)
    for row, stream in enumerate(alone):
        stream.load_state(take_rows(store, torch.tensor([row])))

    def one_by_one() -> int:
        for row in torch.randperm(ALONE, generator=draws)[:ASKERS].tolist():
            alone[row].step(inputs[row : row + 1])
        return ASKERS

    def gather() -> int:
        rows = ask()
        with torch.no_grad():
            _, new = core(inputs[rows][:, None], take_rows(store, rows), never)
        map_state(lambda kept, leaf: kept.index_copy_(0, rows, leaf), store, new)
        return ASKERS

    def some_rows() -> int:
        rows = ask()
        pool.step_rows(inputs[rows], rows)
        return ASKERS

    def all_rows() -> int:
        whole.step(inputs)
        return STREAMS

    return {"one by one": one_by_one, "gather, index_copy_": gather, "step_rows": some_rows, "all rows": all_rows}


def robots() -> dict[str, Step]:
    """Return a step of one robot, and of three of 200, by the demo's agent."""
    agent = demo_config("hcam").build_agent().eval()
    space, draws = agent.observation_space, np.random.default_rng(0)

    def inputs(number: int) -> ActorInputs:
        seen = np.stack([space.sample() for _ in range(number)])
        arrays: Any = seen, np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.float32)
        return ActorInputs(*arrays)

    one, many = agent.stream(1), agent.stream(ROBOTS)
    for _ in range(2 * WARM):
        one.step(inputs(1))
        many.step(inputs(ROBOTS))
    single, three, all_of_them = inputs(1), inputs(REPORTS), inputs(ROBOTS)

    def some() -> int:
        many.step_rows(three, draws.choice(ROBOTS, REPORTS, replace=False))
        return REPORTS

    def step(stream: Any, given: ActorInputs, number: int) -> Step:
        return lambda: (stream.step(given), number)[1]

    return {
        "one robot": step(one, single, 1),
        f"{REPORTS} of {ROBOTS} robots": some,
        f"all {ROBOTS} robots": step(many, all_of_them, ROBOTS),
    }


def measure(steps: dict[str, Step], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Time the forms in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for round_ in range(rounds + 1):
        for name, step in steps.items():
            done, begin, cpu, spent = 0, time.perf_counter(), time.thread_time(), []
            while (now := time.perf_counter()) - begin < (seconds if round_ else 0.3 * seconds):
                done += step()
                spent.append(time.perf_counter() - now)
            if round_:  # the first warms up
                rates[name].append((done / (time.perf_counter() - begin), done / (time.thread_time() - cpu)))
                times[name] += spent
    rows = []
    for name in steps:
        wall, cpu_rate = (float(np.median(part)) for part in zip(*rates[name], strict=True))
        middle, slow = np.quantile(times[name], (0.5, 0.99)).tolist()
        best = max(rate for rate, _ in rates[name])
        found = {
            "form": name,
            "steps_per_s": round(wall),
            "best_round": round(best),
            "steps_per_cpu_s": round(cpu_rate),
        }
        rows.append(
            found | {"ms_median": round(1e3 * middle, 3), "ms_p99": round(1e3 * slow, 3), "calls": len(times[name])}
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each form in each round")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    found = {
        "environment": describe(),
        "seed": 0,
        "busy_processes_before": round(load, 1),
        "streams": {"of": STREAMS, "askers": ASKERS, "rows": measure(forms(), options.rounds, options.seconds)},
        "robots": {"of": ROBOTS, "reports": REPORTS, "rows": measure(robots(), options.rounds, options.seconds)},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
