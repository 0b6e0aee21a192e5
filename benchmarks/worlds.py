"""How many steps a second our batched worlds make, with random actions.

python benchmarks/worlds.py [--threads 2] [--seconds 4] [--output benchmarks/results/worlds.json]
python benchmarks/worlds.py --processor-time        one thread, by its processor time: for a machine that is busy
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.tasks import (
    BalletConfig,
    CatchConfig,
    KeyDoorConfig,
    ObjectPermanenceConfig,
    StreetLearnConfig,
    TMazeConfig,
    TrackConfig,
    VisualMatchConfig,
    WordLearningConfig,
    WorldConfig,
)

# name: world, rows, and the steps a second that it should make on two processor cores
WORLDS: dict[str, tuple[WorldConfig, int, float | None]] = {
    "t-maze": (TMazeConfig(), 8192, 1e6),
    "visual-match": (VisualMatchConfig(), 4096, 1e6),
    "ballet, tiles": (BalletConfig(dancers=(2, 4, 8), delays=(16, 48), observation="tiles"), 4096, 3e5),
    "ballet, pixels": (BalletConfig(dancers=(2, 4, 8), delays=(16, 48)), 1024, 3e4),
    "word-learning, tiles": (WordLearningConfig(distractor_phases=(0, 1, 2)), 1024, None),
    "object-permanence, tiles": (ObjectPermanenceConfig(delays=(0, 10, 20, 30)), 1024, None),
    "street-learn, one-hot": (StreetLearnConfig(), 4096, None),
    "catch, 84 x 84": (CatchConfig(blackout=8), 256, 1e5),
    "catch, 42 x 42": (CatchConfig(blackout=8, side=42), 256, None),
    "track, 84 x 84": (TrackConfig(), 256, 1e5),
    "track, 42 x 42": (TrackConfig(side=42), 256, None),
    "key-door, 84 x 84": (KeyDoorConfig(), 256, 1e5),
    "key-door, 42 x 42": (KeyDoorConfig(side=42), 256, None),
}


def measure(config: WorldConfig, batch_size: int, seconds: float, clock: Callable[[], float]) -> float:
    """Steps a second of a clock: rows times steps over time, episodes beginning anew included."""
    world = config.build(batch_size, seed=0)
    try:
        world.reset()
        generator = torch.Generator().manual_seed(0)
        number = int(config.spec.action_space.n)  # type: ignore[attr-defined]
        actions = torch.randint(number, (64, batch_size), generator=generator)
        for action in actions[:8]:
            world.step(action)
        begun, steps = clock(), 0
        while clock() - begun < seconds:
            world.step(actions[steps % 64])
            steps += 1
        return steps * batch_size / (clock() - begun)
    finally:
        world.close()


def main() -> None:
    """Measure all worlds, print the table, save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--output", default="benchmarks/results/worlds.json", help="'' saves nothing")
    parser.add_argument("--processor-time", action="store_true", help="of one thread, instead of the time of day")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.processor_time else options.threads)
    clock = time.process_time if options.processor_time else time.perf_counter
    found: dict[str, Any] = {"environment": describe(), "processor_time": options.processor_time, "rows": []}
    table = Table("world", "rows", "steps/s", "aim", title="Batched worlds, random actions")
    for name, (config, rows, aim) in WORLDS.items():
        rate = measure(config, rows, options.seconds, clock)
        found["rows"].append({"world": name, "rows": rows, "steps_per_s": round(rate), "aim": aim})
        table.add_row(name, f"{rows:,}", f"{rate:,.0f}", "-" if aim is None else f"{aim:,.0f}")
    for column in table.columns[1:]:
        column.justify = "right"
    Console().print(table)
    if options.output:
        Path(options.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
