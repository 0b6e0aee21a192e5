"""One map that can be believed and one that cannot: the numbers and pictures of docs/believe.md.

    python benchmarks/maps.py [--folder runs/maps]      ten minutes of one core; runs that are there are not trained again

t-maze    the agent of ``recollect demo``, trained in a corridor of 20 steps, watched in one of 120
words     an agent that learns the names of objects, stopped while it still guesses

What is measured goes to ``benchmarks/results/maps.json``, pictures to ``docs/assets/``. The picture of README is a page
of the first agent, in a corridor of 40 steps, taken by Chromium. Then ``python benchmarks/report.py`` writes the tables.
"""

import argparse
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from recollect.interpret import figure_strip, record_run, score_with_controls, write_html
from recollect.interpret.episodes import LiveEpisode
from recollect.recipes import RECIPES
from recollect.recipes.demo import demo_config
from recollect.runs.provenance import environment
from recollect.training.fit import fit
from recollect.training.impala.trainer import ImpalaConfig

ROOT = Path(__file__).parents[1]
ASSETS, OUTPUT = ROOT / "docs" / "assets", ROOT / "benchmarks" / "results" / "maps.json"
WORDS, WORDS_STEPS = "hcam-imitated-first-lite", 150
EPISODES = 8
CORRIDORS = {"numbers": 120, "picture": 40}


def words_config() -> ImpalaConfig:
    """The recipe's agent that imitates first, stopped early."""
    (config,) = (run.config for run in RECIPES["htm-words"].runs["lite"]() if run.label == WORDS)
    assert isinstance(config, ImpalaConfig)
    return replace(config, fit=replace(config.fit, steps=WORDS_STEPS, stop_score=None))


def main() -> None:
    """Train, record, score, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/maps"))
    parser.add_argument("--only", choices=("t-maze", "words"), help="train this one, and write nothing")
    options = parser.parse_args()
    configs = {"t-maze": demo_config("hcam"), "words": words_config()}
    for name, config in configs.items():
        if options.only in (None, name) and not (options.folder / name).exists():
            fit(config, options.folder / name)
    if options.only is None:
        write(options.folder, configs)


def write(folder: Path, configs: dict[str, ImpalaConfig]) -> None:
    """What the runs of a folder remember."""
    maze: Any = configs["t-maze"].world
    worlds = {"t-maze": replace(maze, length=CORRIDORS["numbers"]), "words": None}
    agents = {}
    for name, world in worlds.items():
        episodes = record_run(folder / name, world=world, episodes=EPISODES)
        report = score_with_controls(episodes)
        agents[name] = {"report": report.to_json(), "successes": sum(bool(one.info.success) for one in episodes)}
        draw(name, episodes[0])
    OUTPUT.write_text(json.dumps({"environment": environment(), "agents": agents}, indent=1) + "\n")
    take_picture(folder, record_run(folder / "t-maze", world=replace(maze, length=CORRIDORS["picture"])))


def draw(name: str, record: LiveEpisode) -> None:
    """What every part of the episode attends to."""
    decisions = sorted({t for pair in record.pairs for t in range(*pair.query)})
    steps = [record.num_steps // 3, 2 * record.num_steps // 3, *decisions[:1]]
    chunk_heads = [number for number, head in enumerate(record.heads) if head.kind == "chunks"]
    figure_strip(record, ASSETS / f"believe-{name}.png", steps=steps, head=chunk_heads[0])


def take_picture(folder: Path, episodes: list[LiveEpisode]) -> None:
    """The memory explorer, at the decision."""
    page = write_html(episodes[0], score_with_controls(episodes), folder / "explorer.html")[0]
    shot = folder / "explorer.png"
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1440,900"]
    subprocess.run([browser, *options, f"--screenshot={shot.resolve()}", page.resolve().as_uri()], check=True)
    Image.open(shot).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(ASSETS / "explorer.png", optimize=True)


if __name__ == "__main__":
    main()
