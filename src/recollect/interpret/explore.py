"""From a trained run or model to files: episodes recorded, scored, and written in every format.

    found = explore_run("runs/t-maze-hcam-seed0", "explored")
    print(found.verdict)                                   Yes, No or Cannot tell; explored/metrics.json has all numbers

``WRITERS`` is the table of formats: to add one, write ``writer(record, report, folder)`` and add its line.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from recollect.config import lookup, require
from recollect.evaluation.agent_videos import load_imageio, load_pillow
from recollect.files import path_errors, without_nan, write_atomically
from recollect.interpret.ablation import play_without_memory
from recollect.interpret.controls import score_with_controls
from recollect.interpret.episodes import LONGEST, LiveEpisode, record_episode
from recollect.interpret.html import write_html
from recollect.interpret.live import episode_seed, require_live, write_live
from recollect.interpret.movie import write_movie
from recollect.interpret.ocatari import with_things
from recollect.interpret.onnxruntime_web import find_runtime
from recollect.interpret.record import EpisodeInfo, EpisodeRecord
from recollect.interpret.report import Report
from recollect.interpret.rerun_file import require_rerun, write_rerun
from recollect.interpret.score import score
from recollect.interpret.verdict import typical_episode, with_verdict
from recollect.runs.progress import ProgressReporter
from recollect.runs.provenance import environment
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.config import TrainerConfig
from recollect.training.saved_run import load_model_and_step, require_world

EPISODES = 8  # episodes that are scored; the typical one is shown
ROWS = 4  # episodes that are played with and without memory, for each that is scored

Writer = Callable[[EpisodeRecord, Report, Path], Path]
"""Writes one file about an episode, with the report of all episodes, into a folder, and returns its path."""


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Recorded episodes of a run, their report and the files about them."""

    episodes: list[LiveEpisode]
    shown: LiveEpisode
    """The typical one: its effect of removing memory is the median."""
    report: Report
    files: dict[str, Path]  # by the keys of :data:`WRITERS`; ``live`` where it was requested

    @property
    def verdict(self) -> str:
        """Whether the agent acts on its memory, in one or two sentences."""
        return self.report.verdict


def write_metrics(record: EpisodeRecord, report: Report, folder: Path) -> Path:
    """Write ``metrics.json``: the report, the shown episode, and the provenance of both."""
    path = folder / "metrics.json"
    data = {"report": report.to_json(), "episode": without_nan(asdict(record.info)), "environment": environment()}
    write_atomically(path, json.dumps(data, indent=1) + "\n")
    return path


WRITERS: dict[str, Writer] = {
    "metrics": write_metrics,
    "explorer": lambda record, report, folder: write_html(record, report, folder / "explorer.html")[0],
    "movie": lambda record, _, folder: write_movie(record, folder / "episode.mp4"),
    "rerun": lambda record, report, folder: write_rerun(record, folder / "episode.rrd", report),
}
ON_REQUEST = ("rerun",)  # writers that write only when they are named


def available_writers() -> tuple[str, ...]:
    """List the writers of every exploration whose extras are installed: a movie needs ``video``."""
    movies = all(find_spec(package) for package in ("imageio", "imageio_ffmpeg", "PIL"))
    return tuple(name for name in WRITERS if name not in ON_REQUEST and (name != "movie" or movies))


def output_folders(out: Path, directories: Sequence[Path]) -> list[Path]:
    """Return a folder for each run: ``out`` for a single one, else one in it, under the end of the run's path.

    Raises:
        ValueError: a run is named twice.
    """
    paths = [directory.resolve() for directory in directories]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice: name every run once")
    if len(paths) == 1:
        return [out]
    depth = 1  # all runs of recollect train --seeds have names like seed0
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return [out.joinpath(*path.relative_to(path.anchor).parts[-depth:]) for path in paths]


def write_comparison(explored: Sequence[Exploration], folder: str | PathLike[str]) -> Path:
    """Write ``compare.html``: the shown episodes of two runs with a shared time cursor."""
    episodes, reports = [one.shown for one in explored], [one.report for one in explored]
    return write_html(episodes, reports, Path(folder) / "compare.html")[0]


def record_run(
    directory: str | PathLike[str],
    *,
    world: WorldConfig | None = None,
    episodes: int = EPISODES,
    seed: int = 0,
    greedy: bool = True,
    longest: int = LONGEST,
    best: bool = False,
    trust: bool = False,
) -> list[LiveEpisode]:
    """Record fresh episodes of the newest checkpoint of a run, with the effects of removing each chunk of memory.

    Args:
        directory: of the run.
        world: another one than that of the run.
        episodes: how many, of seeds that no training has seen.
        seed: of the first.
        greedy: take the likeliest action; False draws from the policy.
        longest: as in :func:`~recollect.interpret.episodes.record_episode`.
        best: the checkpoint of the run's best evaluation instead.
        trust: import the packages that the run's config names.

    Raises:
        ValueError: not a run, no checkpoint, a run on a stream task, or a world that the agent cannot see or act in.
    """
    require(episodes >= 1, "episodes", episodes, "record at least one")
    config = require_world(directory, "can be explored", trust=trust)
    where: WorldConfig = config.trained_on if world is None else world
    _require_fit(config.trained_on, where)
    agent, step = load_model_and_step(config, directory, best=best)
    info = EpisodeInfo(task="", core="", checkpoint_step=step, provenance={"run": str(directory)})
    found, count = [], ProgressReporter(episodes, "episodes recorded")
    for number in range(episodes):
        one = episode_seed(seed, number)
        record = record_episode(agent, where, info=info, seed=one, greedy=greedy, longest=longest)
        found.append(with_things(record.with_removal()))
        count.update(lambda: len(found))
    return found


def _require_fit(trained: WorldConfig, world: Any) -> None:
    require(isinstance(world, WorldConfig), "world", world, "give a world, not a stream task")
    ours, theirs = trained.spec, world.spec
    if ours.observation_space != theirs.observation_space or ours.action_space != theirs.action_space:
        raise ValueError(
            f"world={world.title!r}: this agent sees {ours.observation_space} and does {ours.action_space}, but there "
            f"it would see {theirs.observation_space} and do {theirs.action_space}: give a world like that of its run"
        )


def _require_live(
    config: TrainerConfig,
    directory: str | PathLike[str],
    *,
    world: WorldConfig | None = None,
    best: bool = False,
    **_: Any,
) -> None:
    """Check that there can be a live page before anything is fetched or recorded."""
    agent, _step = load_model_and_step(config, directory, best=best)
    require_live(agent, config.trained_on if world is None else world)


def explore_run(
    directory: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    writers: Sequence[str] | None = None,
    live: bool = False,
    runtime: str | PathLike[str] | None = None,
    controls: bool = True,
    **options: Any,
) -> Exploration:
    """Record episodes of a run, measure what its memory does, and write the page.

    Args:
        directory: of the run, or a model folder, ``model:NAME`` or ``hub:OWNER/NAME``.
        folder: receives the files; made if it does not exist.
        writers: keys of :data:`WRITERS`; None for all whose extras are installed, except :data:`ON_REQUEST`.
        live: write ``live.html`` too, the agent itself in a page; see :mod:`recollect.interpret.live`.
        runtime: onnxruntime-web for it: folder or archive; None looks in the cache, then runs npm.
        controls: also make the experiments that need the agent, which take most of the time.
        options: of :func:`record_run`.

    Raises:
        ValueError: as :func:`record_run`; with ``live`` also as :func:`~recollect.interpret.live.write_live`.
            Also an unknown writer, one whose extra is missing, or a folder that cannot be made.
    """
    writers = available_writers() if writers is None else writers
    for name in writers:
        lookup(WRITERS, name, "writer")
    require(live or runtime is None, "runtime", str(runtime), "only the live page needs it, request that too (--live)")
    if "rerun" in writers:
        require_rerun()
    if "movie" in writers:
        load_imageio()
        load_pillow()
    config = require_world(directory, "can be explored", trust=bool(options.get("trust", False)))
    folder = Path(folder)
    with path_errors("out", folder, "made"):  # before anything is computed
        folder.mkdir(parents=True, exist_ok=True)
    if live:
        _require_live(config, directory, **options)
    engine = find_runtime(None if runtime is None else Path(runtime)) if live else None
    episodes = record_run(directory, **options)
    ablation = None
    if all(np.isfinite(episode.logits).all() for episode in episodes):
        settings = {name: options[name] for name in ("greedy", "longest") if name in options}
        settings["seed"] = episode_seed(int(options.get("seed", 0)))  # no training has seen it
        first = episodes[0]
        ablation = play_without_memory(first.agent, first.world, episodes=ROWS * len(episodes), **settings)
    report = score_with_controls(episodes, ablation) if controls else with_verdict(score(episodes), episodes, ablation)
    shown = typical_episode(episodes)
    files = {name: WRITERS[name](shown, report, folder) for name in writers}
    if engine is not None:
        seed = int(options.get("seed", 0))
        files["live"] = write_live(shown.agent, shown.world, folder / "live.html", runtime=engine, seed=seed)
    return Exploration(episodes=episodes, shown=shown, report=report, files=files)
