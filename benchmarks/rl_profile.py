"""Where the time of training goes: the agent's arithmetic, the world, and everything else.

    python benchmarks/rl_profile.py [--steps 60] [--threads 1] [--output benchmarks/results/training-profile.json]

Methods of the objects that train are wrapped with a clock. Arithmetic is what the agent computes when it acts and
learns, the losses and the optimiser; what remains is sampling, buffers, weights for the actor, and bookkeeping.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.recipes.hierarchical_transformer_memory import t_maze, visual_match
from recollect.training import ImpalaConfig
from recollect.training.impala import trainer as impala
from rl import RESULTS, cartpole

ARITHMETIC = ("acting", "forward, losses", "backward", "optimiser")
"""Parts of the agent's arithmetic; ``world`` and ``rest`` come on top."""
CASES: dict[str, Callable[[], ImpalaConfig]] = {
    "masked CartPole, lstm": lambda: cartpole(0),
    "T-maze, hcam": lambda: t_maze("hcam"),
    "visual match, hcam": lambda: visual_match("hcam"),
}


class Clock:
    """Seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The function, its time added to ``part``."""

        def call(*args: Any, **keywords: Any) -> Any:
            began = perf_counter()
            try:
                return function(*args, **keywords)
            finally:
                self.seconds[part] += perf_counter() - began

        return call


def profile(config: ImpalaConfig, steps: int) -> dict[str, float]:
    """Shares of the time of ``steps`` training steps, by part."""
    trainer, clock = config.build(), Clock()
    collector = trainer.actors.collectors[0]
    optimizer, stream = type(config.optimizer), type(collector.stream)
    with (
        patch.object(collector.world, "step", clock.timed(collector.world.step, "world")),
        patch.object(stream, "step", clock.timed(stream.step, "acting")),
        patch.object(impala, "impala_loss", clock.timed(impala.impala_loss, "forward, losses")),
        patch.object(torch.Tensor, "backward", clock.timed(torch.Tensor.backward, "backward")),
        patch.object(optimizer, "clip", clock.timed(optimizer.clip, "optimiser")),
        patch.object(trainer.optimizer, "step", clock.timed(trainer.optimizer.step, "optimiser")),
    ):
        for _ in range(5):
            trainer.step()
        clock.seconds.clear()
        began = perf_counter()
        for _ in range(steps):
            trainer.step()
        total = perf_counter() - began
    trainer.close()
    shares = {part: clock.seconds[part] / total for part in (*ARITHMETIC, "world")}
    return {**shares, "rest": 1 - sum(shares.values())}


def main() -> None:
    """Profile all cases, print the table, save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", default=str(RESULTS / "training-profile.json"), help="'' saves nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {"environment": describe(), "rows": []}
    parts = (*ARITHMETIC, "world", "rest")
    table = Table("training", *parts, "outside arithmetic", title="Share of training time, %")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, make in CASES.items():
        shares = profile(make(), options.steps)
        outside = shares["world"] + shares["rest"]
        found["rows"].append({"training": name, **{part: round(share, 4) for part, share in shares.items()}})
        table.add_row(name, *(f"{100 * shares[part]:.1f}" for part in parts), f"{100 * outside:.1f}")
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)
    if options.output:
        Path(options.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
