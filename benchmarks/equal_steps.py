"""Training of hcam beside transformer-xl that attends to as many steps, in turns, in processor time of one thread.

    python benchmarks/equal_steps.py

Forward and backward of 4 rows of 64 steps from a full memory, width 512, two layers, eight heads:

    read     transformer-xl's window has as many steps as an hcam query reads, window and all chunks
    held     it has as many as an hcam holds, of which a query reads the window and 8 of 16 chunks

The paper's baseline has the gates of GTrXL (``gate="gru"``). Writes benchmarks/results/equal-steps.json.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import source_tree  # noqa: F401
from recollect.benchmark.cores import train_call
from recollect.benchmark.machine import describe
from recollect.benchmark.roofline import full_state
from recollect.cores import CORES

TARGET = Path(__file__).parent / "results/equal-steps.json"
CASES = {
    "read": {"memory_len": 31, "chunk_len": 32, "num_chunks": 8, "top_k": 8},
    "held": {"memory_len": 256, "chunk_len": 32, "num_chunks": 16, "top_k": 8},
}
DIM, ROWS, STEPS, ROUNDS = 512, 4, 64, 7


def training(key: str, **settings: int | str) -> Callable[[], object]:
    """Return one training pass of a core."""
    torch.manual_seed(0)
    core = CORES[key](dim=DIM, num_layers=2, num_heads=8, **settings).build(DIM)
    return train_call(core, full_state(core.eval()), (ROWS, STEPS))


def measure(memory: dict[str, int]) -> dict[str, float]:
    """Time hcam and transformer-xl with and without gates; ratios are medians of the rounds' ratios."""
    window = memory["memory_len"] + memory["num_chunks"] * memory["chunk_len"]
    calls = {
        "hcam": training("hcam", **memory),
        "transformer-xl": training("transformer-xl", memory_len=window),
        "gated transformer-xl": training("transformer-xl", memory_len=window, gate="gru"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            if turn:  # the first does not count
                seconds[name].append(time.process_time() - started)
    found: dict[str, float] = {"window": window}
    for name, times in seconds.items():
        found[f"{name}, milliseconds"] = 1e3 * min(times)
        found[f"{name} / hcam"] = statistics.median(a / b for a, b in zip(times, seconds["hcam"], strict=True))
    return found


def main() -> None:
    """Measure both cases, print and write."""
    torch.set_num_threads(1)
    rows = []
    for name, memory in CASES.items():
        rows.append({"steps": name, **measure(memory)})
        print(rows[-1], flush=True)
    result = {"command": "python benchmarks/equal_steps.py", "environment": describe(), "rows": rows}
    TARGET.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
