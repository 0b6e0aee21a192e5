"""Can the pictures of trained agents be believed? Their numbers, each beside its control, as files.

    python benchmarks/faithfulness.py [NAME ...] [--runs runs/reproduce] [--episodes 48]

Reads runs that ``recollect reproduce`` left (they are not changed), records fresh episodes of the best checkpoint, and
writes ``results/explorer/NAME.json``: what ``recollect explore`` prints, with command, hardware and commit. An agent
without a run is passed over, and said. ``benchmarks/report.py`` makes the tables of docs/believe.md from the files.
Minutes for each agent.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import source_tree  # noqa: F401
from recollect.files import write_atomically
from recollect.interpret import figure_gaze, record_run, score_with_controls
from recollect.interpret.report import without_nan
from recollect.recipes.attention_agents import ATTENTION_AGENTS
from recollect.runs.provenance import environment
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import FRESH_SEED
from recollect.training.saved_run import load_config

ROOT = Path(__file__).parents[1]
EVERY = 5
"""Steps of an episode between saliency maps."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An agent that is asked."""

    run: str
    """Its run directory below the folder of runs, without the digest of its config."""
    episodes: int
    """That are recorded; the argument ``--episodes`` cuts them."""
    saliency: bool = False
    """Whether it sees pictures of pixels."""
    longest: int = 1000
    """Steps that are recorded of an episode."""
    picture: str = ""
    """A file of docs/assets to which the longest episode's attention is drawn; empty: none."""


def _catch(agent: str) -> Subject:
    return Subject(run=f"attention-agents/{agent}-catch-lite-seed0", episodes=12, saliency=True)


SUBJECTS = {
    "hcam-ballet": Subject(run="htm-ballet/hcam-imitated-lite-seed0", episodes=48),
    "hcam-t-maze": Subject(run="htm-t-maze/hcam-seed0", episodes=24),
    "adaptive-pong": Subject(run="attention-agents/adaptive-pong-lite-seed0", episodes=4, saliency=True, longest=300),
    **{f"{agent}-catch": _catch(agent) for agent in ATTENTION_AGENTS},
    **{
        f"{agent}-track": replace(_catch(agent), run=f"attention-agents/{agent}-track-imitated-lite-seed0")
        for agent in ATTENTION_AGENTS
    },
}
SUBJECTS["mott-track"] = replace(SUBJECTS["mott-track"], picture="believe-track.png")


def main() -> None:
    """Ask every agent of which there is a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "reproduce")
    parser.add_argument("--episodes", type=int, default=48)
    chosen = parser.parse_args()
    for name in chosen.names or SUBJECTS:
        subject = SUBJECTS[name]
        run = newest(chosen.runs, subject.run)
        if run is None:
            print(f"{name}: no run below {chosen.runs / subject.run}")
            continue
        data = ask(run, replace(subject, episodes=min(subject.episodes, chosen.episodes)))
        path = ROOT / "results" / "explorer" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(without_nan({"name": name, **data}), indent=1) + "\n")
        print(f"{name}: {data['report']['verdict']}", flush=True)


def newest(runs: Path, name: str) -> Path | None:
    """The newest run directory of that name with a checkpoint; None where there is none."""
    found = [path for path in runs.glob(f"{name}*") if any((path / "checkpoint").glob("step-*"))]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def ask(run: Path, subject: Subject) -> dict[str, Any]:
    """Episodes of a run, and everything that can be said of them."""
    begun, config = time.perf_counter(), load_config(run)
    best = (run / "best").is_dir()
    world: WorldConfig = config.trained_on
    episodes = record_run(run, episodes=subject.episodes, best=best, longest=subject.longest)
    recorded = time.perf_counter()
    if subject.picture:
        shown = max(episodes, key=lambda episode: episode.num_steps)
        steps = np.linspace(1, shown.num_steps - 2, 7).round().astype(int).tolist()
        figure_gaze(shown, ROOT / "docs" / "assets" / subject.picture, steps=steps)
    if subject.saliency:
        episodes = [episode.with_saliency(every=EVERY) for episode in episodes]
    report = score_with_controls(episodes)
    scores = [episode.info.score for episode in episodes if episode.info.score is not None]
    return {
        "command": "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        **{key: value for key, value in environment().items() if key != "command"},
        "run": run.name,
        "core": episodes[0].info.core,
        "world": world.title,
        "checkpoint_step": episodes[0].info.checkpoint_step,
        "first_seed": FRESH_SEED,
        "episodes": len(episodes),
        "longest": subject.longest,
        "steps": [episode.num_steps for episode in episodes],
        "score": float(np.mean(scores)) if scores else None,
        "reward": float(np.mean([episode.info.total_reward for episode in episodes])),
        "successes": [episode.info.success for episode in episodes],
        "seconds": {"recording": round(recorded - begun, 1), "all": round(time.perf_counter() - begun, 1)},
        "report": report.to_json(),
    }


if __name__ == "__main__":
    main()
