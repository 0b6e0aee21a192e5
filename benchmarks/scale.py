"""What many actors and learners need: constants measured here, and the needs of 1 000 actors and 8 learners from them.

    python benchmarks/scale.py          # measures, writes results/scale.json and the table of docs/scale.md
    python benchmarks/scale.py --table  # the table alone, from the results

Times of collecting and learning are processor seconds of one thread, which other programs hardly change; the sum over
learners is the wall time of two processes on one machine. The run is the T-maze with hcam of the prototypes of actors.
"""

import argparse
import json
import os
import socket
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect import learners
from recollect.benchmark.machine import describe
from recollect.benchmark.timing import processor_seconds
from recollect.cores import CORES
from recollect.state import leaves
from recollect.tasks import TMazeConfig
from recollect.training import ImpalaConfig
from recollect.training.impala.rollouts import Rollout, observation_leaves
from recollect.training.impala.trainer import ImpalaTrainer

RESULTS = Path(__file__).parent / "results" / "scale.json"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- table of benchmarks/scale.py -->\n", "<!-- end -->"
ACTORS, LEARNERS, WAITING = 1000, 8, 64
HCAM = CORES["hcam"](dim=64, num_layers=1, num_heads=2, memory_len=16, chunk_len=8, num_chunks=8, top_k=2)
CONFIG = ImpalaConfig(world=TMazeConfig(length=20), core=HCAM, batch_size=32, unroll=32)


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


def write_page(found: dict[str, Any]) -> None:
    """Replace the table of the page."""
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write the table from the results")
    if not parser.parse_args().table:
        RESULTS.write_text(json.dumps(measure(), indent=1) + "\n")
    write_page(json.loads(RESULTS.read_text()))
