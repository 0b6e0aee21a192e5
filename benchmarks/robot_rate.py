"""How often a second a robot policy acts: picture and sentence in, action out, one row, on two threads.

    python benchmarks/robot_rate.py [--steps 600] [--threads 2] [--output FILE]

Every core of the lite rows of the recipe ``ttm-robots``, with new weights: what a step costs does not depend on them.
A step is the whole step of a live agent; the world's own time is not counted. Steps at the beginning and after
10 000 more are timed apart, because a robot does not restart.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect.agents.contract import ActorInputs
from recollect.benchmark.machine import describe
from recollect.recipes.robots import WORLDS, robots

RESULTS = Path(__file__).parent / "results" / "robot-rate.json"
CORES = ("ttm", "lstm", "gru", "transformer-xl", "hcam", "tlb", "recurrent-transformer", "memoryless")
AIM_HZ = 30.0
"""At least, at the slowest of a hundred steps, on 2 cores."""
LATER = 10_000
WARM = 20
"""Steps before the first that is timed."""


def measure(core: str, steps: int) -> list[dict[str, Any]]:
    """Rates of one policy at the start and later."""
    torch.manual_seed(0)
    agent = robots(core).build_agent().eval()
    world = next(iter(WORLDS.values())).build(1, seed=0)
    seen = world.reset().observation
    stream, none = agent.stream(1), torch.zeros(1, dtype=torch.bool)
    inputs = ActorInputs(seen, torch.zeros(1, 3), torch.zeros(1))
    rows = []
    for begin in (0, LATER):
        for _ in range(WARM if begin == 0 else begin):
            stream.step(inputs, none)
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            agent.distribution(stream.step(inputs, none).policy).mode()
            times.append(time.perf_counter() - start)
        spread = torch.tensor(times, dtype=torch.float64)
        middle, slow = spread.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
        found = {
            "core": core,
            "after_steps": begin,
            "ms_median": round(1e3 * middle, 3),
            "ms_p99": round(1e3 * slow, 3),
        }
        rows.append(found | {"hz_median": round(1 / middle, 1), "hz_p99": round(1 / slow, 1)})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="steps that are timed at each place")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cores", nargs="*", default=CORES)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for core in options.cores for row in measure(core, options.steps)]
    aim = f"at least {AIM_HZ:g} Hz at the 99th percentile of step times, batch 1"
    found = {"environment": describe(), "aim": aim, "steps_timed": options.steps, "rows": rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
