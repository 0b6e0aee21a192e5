"""Costs of every core at the equal sizes of the data sheets, all in one run, in processor time of one thread.

    python benchmarks/core_costs.py

    train     microseconds of a step of a row in training, forward and backward: 8 rows of 80 steps
    stream    microseconds of a stream's step, one row
    bytes     of one row's state

Writes benchmarks/results/core-costs.json.
"""

import json
from pathlib import Path
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.benchmark.timing import processor_seconds
from recollect.cores import GENERAL_CORES
from recollect.recipes.equal_sizes import equal_core
from recollect.state import nbytes

TARGET = Path(__file__).parent / "results/core-costs.json"
WIDTH, ROWS, STEPS, STREAMED = 64, 8, 80, 100


def measure(key: str) -> dict[str, Any]:
    """Measure one core."""
    torch.manual_seed(0)
    core = equal_core(key).build(WIDTH)
    tokens = torch.Size(core.input_shape)
    inputs, first = torch.randn(ROWS, STEPS, *tokens), torch.rand(ROWS, STEPS) < 0.02
    state = core.initial_state(ROWS)
    train = 1e6 * processor_seconds(lambda: core(inputs, state, first)[0].square().mean().backward(), 5)
    stream, step = core.eval().stream(1), inputs[:1, 0]
    return {
        "train": train / (ROWS * STEPS),
        "stream": 1e6 * processor_seconds(lambda: [stream.step(step) for _ in range(STREAMED)], 5) / STREAMED,
        "bytes": nbytes(core.initial_state(1)),
        "parameters": sum(weight.numel() for weight in core.parameters()),
    }


def main() -> None:
    """Measure all cores, print and write."""
    torch.set_num_threads(1)
    cores = {}
    for key in GENERAL_CORES:
        cores[key] = measure(key)
        print(key, {name: round(value, 1) for name, value in cores[key].items()}, flush=True)
    result = {"command": "python benchmarks/core_costs.py", "environment": describe(), "cores": cores}
    TARGET.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
