"""One map that can be believed and two that cannot: the numbers and pictures of docs/believe.md.

    python benchmarks/maps.py [--folder runs/maps]      three minutes of one core; a run that is there is kept

t-maze    the agent of ``recollect demo``, trained in a corridor of 20 steps, watched in one of 120
catch     an agent that attends to places of the picture, with the weights that training begins with

What is measured goes to ``benchmarks/results/maps.json``, pictures to ``docs/assets/``; ``benchmarks/report.py``
writes the tables.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import source_tree  # noqa: F401
from recollect.interpret import (
    figure_heat,
    figure_strip,
    record_episode,
    record_run,
    score_with_controls,
)
from recollect.interpret.report import Report
from recollect.recipes.attention_agents import attention_agent
from recollect.recipes.demo import demo_config, longer
from recollect.runs.provenance import environment
from recollect.tasks.worlds.arcade.catch import CatchConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import FRESH_SEED
from recollect.training.loop import fit

ROOT = Path(__file__).parents[1]
ASSETS, OUTPUT = ROOT / "docs" / "assets", ROOT / "benchmarks" / "results" / "maps.json"
EPISODES, UNTRAINED_EPISODES = 8, 4
CATCH = CatchConfig(side=42, balls=1)


def main() -> None:
    """Train, record, score, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/maps"))
    folder, here = parser.parse_args().folder, environment()  # before pictures change the working tree
    config = demo_config("hcam")
    world = config.world
    assert isinstance(world, TMazeConfig)
    if not (folder / "t-maze").exists():
        fit(config, folder / "t-maze")
    agents = {"t-maze": t_maze(folder, world), "catch": catch()}
    OUTPUT.write_text(json.dumps({"environment": here, "agents": agents}, indent=1) + "\n")


def t_maze(folder: Path, world: TMazeConfig) -> dict[str, object]:
    """Numbers and the picture of the trained agent."""
    episodes = record_run(folder / "t-maze", world=longer(world, 6), episodes=EPISODES)
    report = score_with_controls(episodes)
    record = episodes[0]
    decision = record.pairs[-1].query[0]
    for kind, number in (("chunks", best(report, "mass on key")), ("window", best(report, "lag-only share"))):
        steps = [record.num_steps // 3, 2 * record.num_steps // 3, decision]
        figure_strip(record, ASSETS / f"believe-{kind}.png", steps=steps, head=number)
    return {"report": report.to_json(), "successes": sum(bool(one.info.success) for one in episodes)}


def best(report: Report, name: str) -> int:
    """The head with the largest number of that name."""
    numbers = [{metric.name: metric.value for metric in head.metrics}[name] for head in report.heads]
    return max(range(len(numbers)), key=numbers.__getitem__)


def catch() -> dict[str, object]:
    """Numbers and the picture of the agent that has learned nothing."""
    torch.manual_seed(0)
    agent = attention_agent("mott", CATCH).build_agent().eval()
    seeds = range(FRESH_SEED, FRESH_SEED + UNTRAINED_EPISODES)
    episodes = [record_episode(agent, CATCH, seed=seed).with_removal() for seed in seeds]
    report = score_with_controls(episodes)
    figure_heat(episodes[0], ASSETS / "believe-untrained.png", step=episodes[0].num_steps // 2)
    maps = np.concatenate([one.spatial for one in episodes if one.spatial is not None])
    return {
        "report": report.to_json(),
        "successes": sum(bool(one.info.success) for one in episodes),
        "largest_over_even": float((maps.max((2, 3)) * maps[0, 0].size).mean()),
    }


if __name__ == "__main__":
    main()
