"""What many actors and learners need: constants measured here, and the needs of 1 000 actors and 8 learners from them.

    python benchmarks/scale.py          # measures, writes results/scale.json and the table of docs/scale.md
    python benchmarks/scale.py --table  # the tables alone, from the results
    python benchmarks/scale.py --actors # two actors of Ray, two threads and the synchronous schedule in turns:
                                        # writes results/actors.json and its table; needs the extra ray

Times of collecting and learning are processor seconds of one thread, which other programs hardly change; the sum over
learners is the wall time of two processes on one machine. The run is the T-maze with hcam of the prototypes of actors.
"""

import argparse
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect import learners
from recollect.benchmark.machine import describe
from recollect.benchmark.timing import processor_seconds
from recollect.cores import CORES
from recollect.ops.allocation import keep_freed_memory
from recollect.state import leaves
from recollect.tasks import TMazeConfig
from recollect.training import ImpalaConfig, ScheduleConfig
from recollect.training.impala.rollouts import Rollout, observation_leaves
from recollect.training.impala.trainer import RAY_METRICS, ImpalaTrainer

RESULTS = Path(__file__).parent / "results" / "scale.json"
ACTORS_RESULTS = RESULTS.with_name("actors.json")
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- table of benchmarks/scale.py -->\n", "<!-- end -->"
ACTORS_BEGIN, ACTORS_END = "<!-- table of benchmarks/scale.py --actors -->\n", "<!-- end of actors -->"
ACTORS, LEARNERS, WAITING = 1000, 8, 64
HCAM = CORES["hcam"](dim=64, num_layers=1, num_heads=2, memory_len=16, chunk_len=8, num_chunks=8, top_k=2)
CONFIG = ImpalaConfig(world=TMazeConfig(length=20), core=HCAM, batch_size=32, unroll=32)
OVERLAPPING = ScheduleConfig(mode="asynchronous", actors=2, queue_length=4)
SCHEDULES = {
    "synchronous": ScheduleConfig(),
    "two threads": OVERLAPPING,
    "two actors of Ray": replace(OVERLAPPING, engine="ray"),
}


def rollout_bytes(rollout: Rollout) -> tuple[int, int]:
    """Return the bytes of a rollout without its memory, and those of its memory."""
    parts = [leaf for part in rollout[: Rollout._fields.index("state")] for _, leaf in observation_leaves(part)]
    return sum(leaf.nbytes for leaf in parts), sum(leaf.nbytes for leaf in leaves(rollout.state))


def sum_seconds(rank: int, size: int, port: int, numbers: int, results: Any) -> None:
    """Measure in one of several processes how long the sum of so many numbers takes."""
    torch.set_num_threads(1)
    values = (str(rank), str(size), "127.0.0.1", str(port))
    os.environ.update(zip(learners.VARIABLES, values, strict=True))
    with learners.join() as group:
        value, times = torch.ones(numbers), []
        for _ in range(30):
            began = time.perf_counter()
            assert float(group.total(value)[0]) == size
            times.append(time.perf_counter() - began)
    if rank == 0:
        results.put(median(times))


def measure() -> dict[str, Any]:
    """Measure the constants."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = ImpalaTrainer(CONFIG)
    for _ in range(3):
        trainer.step()
    delivery = trainer.actors.take()
    steps, memory = rollout_bytes(delivery.rollout)
    numbers = sum(p.numel() for p in trainer.model.parameters())
    constants = {
        "rows": CONFIG.batch_size,
        "unroll": CONFIG.unroll,
        "rollout_bytes": steps + memory,
        "memory_bytes": memory,
        "weights_bytes": sum(t.nbytes for t in trainer.model.state_dict().values()),
        "collect_seconds": processor_seconds(trainer.actors.take, 20),
        "learn_seconds": processor_seconds(lambda: trainer._learn(delivery.rollout), 20),
    }
    trainer.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=sum_seconds, args=(rank, 2, port, numbers, results)) for rank in range(2)]
    for process in processes:
        process.start()
    constants["sum_seconds"] = results.get(timeout=300)
    for process in processes:
        process.join()
    return {"constants": constants, "command": "python benchmarks/scale.py", "seeds": [0], **describe()}


def compare_actors(rounds: int, seconds: float) -> dict[str, Any]:
    """Measure environment steps per second of three schedules in turns, each for some seconds of every round."""
    torch.set_num_threads(1)
    keep_freed_memory()
    trainers = {name: replace(CONFIG, schedule=schedule).build() for name, schedule in SCHEDULES.items()}
    rates: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    lags: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    last: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, trainer in trainers.items():
            for _ in range(5):  # what was played during the others' turns is learned from first
                trainer.step()
            began, steps = time.perf_counter(), trainer.environment_steps
            while time.perf_counter() < began + seconds:
                last = trainer.step()
                lags[name].append(last["policy_lag"])
            if turn:  # the first one warms up
                rates[name].append((trainer.environment_steps - steps) / (time.perf_counter() - began))
    for trainer in trainers.values():
        trainer.close()
    threads, plain = rates["two threads"], rates["synchronous"]
    better = [max(pair) for pair in zip(threads, plain, strict=True)]
    ratios = [rate / best for rate, best in zip(rates["two actors of Ray"], better, strict=True)]
    return {
        "steps_per_second": {name: round(median(found)) for name, found in rates.items()},
        "rounds": {name: [round(rate) for rate in found] for name, found in rates.items()},
        "ray_to_better_by_round": [round(ratio, 2) for ratio in ratios],
        "ray_to_better": round(median(ratios), 2),
        "policy_lag": {name: round(sum(found) / len(found), 2) for name, found in lags.items()},
        "newest": {name: round(last[name], 3) for name in RAY_METRICS},
        "command": f"python benchmarks/scale.py --actors --rounds {rounds} --seconds {seconds:g}",
        "seeds": [0],
        "load": os.getloadavg(),
        **describe(),
    }


def actors_table(found: dict[str, Any]) -> str:
    """Return the rates of three schedules as a table."""
    lines = ["| actors | environment steps per second | policy lag |", "|---|---:|---:|"]
    for name, rate in found["steps_per_second"].items():
        lines.append(f"| {name} | {_number(rate)} | {found['policy_lag'][name]:.1f} |")
    lowest, highest = min(found["ray_to_better_by_round"]), max(found["ray_to_better_by_round"])
    ratio = f"{found['ray_to_better']:.2f} ({lowest:.2f} to {highest:.2f})"
    lines.append(f"| Ray against the better of the others, median of the rounds | {ratio} | |")
    return "\n".join([*lines, f"| other programs: load of the machine at the end | {found['load'][0]:.0f} | |"]) + "\n"


def needs(c: dict[str, Any], actors: int = ACTORS, count: int = LEARNERS, waiting: int = WAITING) -> dict[str, float]:
    """Return what so many actors and learners need; the formulae are those of docs/scale.md."""
    rollouts = actors / c["collect_seconds"]
    capacity = count / (c["learn_seconds"] + c["sum_seconds"])
    used = min(rollouts, capacity)
    return {
        "environment steps per second that actors can play": rollouts * c["rows"] * c["unroll"],
        "rollouts per second that actors can play": rollouts,
        "rollouts per second that learners can read": capacity,
        "share of its time that a learner would need": rollouts / capacity,
        "bytes per second of all rollouts that are read": used * c["rollout_bytes"],
        "the same without memories (learner_memory=empty)": used * (c["rollout_bytes"] - c["memory_bytes"]),
        "bytes of the rollouts that wait, per learner": waiting * c["rollout_bytes"],
        "bytes per second of weights, each version once to each actor": used / count * c["weights_bytes"] * actors,
        "bytes per second of gradients, per learner": 2 * (count - 1) / count * used / count * c["weights_bytes"],
        "most updates while a rollout waits": waiting - 1,
    }


def table(found: dict[str, Any]) -> str:
    """Return the constants and the needs as a table."""
    lines = [f"| {_number(ACTORS)} actors, {LEARNERS} learners, {WAITING} rollouts in each queue | |", "|---|---:|"]
    constants = {name.replace("_", " "): value for name, value in found["constants"].items()}
    rows = {**{f"measured: {name}": value for name, value in constants.items()}, **needs(found["constants"])}
    return "\n".join([*lines, *(f"| {name} | {_number(value)} |" for name, value in rows.items())]) + "\n"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}".replace(",", " ")


def write_page() -> None:
    """Replace the tables of the page."""
    for path, make, begin, end in (
        (RESULTS, table, BEGIN, END),
        (ACTORS_RESULTS, actors_table, ACTORS_BEGIN, ACTORS_END),
    ):
        text = PAGE.read_text()
        before, after = text.split(begin)[0], text.split(begin)[1].split(end)[1]
        PAGE.write_text(f"{before}{begin}\n{make(json.loads(path.read_text()))}\n{end}{after}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write the tables from the results")
    parser.add_argument("--actors", action="store_true", help="compare two actors of Ray with threads")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each schedule in every round")
    options = parser.parse_args()
    if options.actors:
        ACTORS_RESULTS.write_text(json.dumps(compare_actors(options.rounds, options.seconds), indent=1) + "\n")
    elif not options.table:
        RESULTS.write_text(json.dumps(measure(), indent=1) + "\n")
    write_page()
