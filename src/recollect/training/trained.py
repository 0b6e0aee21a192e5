"""What a run directory holds, ready to use: its config, its model, its scores and its films."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from recollect.config import from_json
from recollect.evaluation.films import Video
from recollect.evaluation.score import Score
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint
from recollect.runs.run_directory import RunDirectory
from recollect.training.frame import FRESH_SEED, TrainerConfig
from recollect.training.trainers import KINDS

BATCH_SIZE = 64
"""Rows at a time of an evaluation: the same for all runs, so that a score does not depend on how a run was trained."""


def load_config(directory: str | PathLike[str]) -> TrainerConfig:
    """The config of a run directory, as the trainer's dataclass.

    Raises:
        ValueError: not a run directory, or its config names something unknown.
    """
    return from_json(RunDirectory(directory).read_config(), TrainerConfig, KINDS)


def read_config(file: str | PathLike[str]) -> TrainerConfig:
    """The config in a file that a run wrote as its ``config.json``.

    Raises:
        ValueError: there is no such file, it is not JSON, or it names something unknown.
    """
    try:
        data = json.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"config={str(file)!r}: {error}; give the config.json of a run") from None
    return from_json(data, TrainerConfig, KINDS)


def load_checkpoint(directory: str | PathLike[str], *, best: bool = False) -> Checkpoint:
    """The newest complete checkpoint of a run, or the one of its best evaluation.

    Raises:
        ValueError: not a run directory, or there is no complete checkpoint in it.
    """
    run = RunDirectory(directory)
    run.read_config()
    checkpoint, torn = checkpoints.read_newest(run.best if best else run.checkpoints)
    if checkpoint is None:
        torn_too = f" ({'; '.join(torn)})" if torn else ""
        if best:
            remedy = "take the newest one, or go on with --resume until an evaluation"
            raise ValueError(f"{run.path} has no best checkpoint yet{torn_too}: {remedy}")
        raise ValueError(f"{run.path} has no complete checkpoint yet{torn_too}: train it with --resume")
    return checkpoint


def load_model(directory: str | PathLike[str], device: torch.device | str = "cpu", *, best: bool = False) -> Any:
    """The agent of a run directory, with the weights of its newest complete checkpoint, in ``eval`` mode.

    Args:
        directory: of the run.
        device: where the agent is to be.
        best: take the weights of the run's best evaluation instead.

    Returns:
        What the run's trainer trains: a ``SequenceModel``, an ``ActorCritic``, ...

    Raises:
        ValueError: as :func:`load_config` and :func:`load_checkpoint`.
    """
    model = load_config(directory).build_agent()
    model.load_state_dict(dict(load_checkpoint(directory, best=best).weights))
    return model.to(device).eval()


def evaluate_run(
    directory: str | PathLike[str],
    *,
    samples: int | None = None,
    greedy: bool | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    best: bool = False,
) -> Score:
    """Score the newest checkpoint of a run on fresh rows of its own task, or in fresh episodes of its own world.

    Args:
        directory: of the run.
        samples: how many rows or episodes; None takes 512 rows or 128 episodes.
        greedy: in a world, take the likeliest action, or else draw from the policy; None does what the run's own
            evaluations did.
        seed: of the rows or the world, which no run has trained or been evaluated on.
        device: where to compute.
        best: score the checkpoint of the run's best evaluation instead. Fresh rows and episodes do not know which one
            that was: the score has no luck of the choice in it.

    Raises:
        ValueError: as :func:`load_config` and :func:`load_checkpoint`, or no rows or episodes are asked for.
    """
    config = load_config(directory)
    return config.evaluate(
        load_model(directory, device, best=best),
        samples=config.final_samples if samples is None else samples,
        seed=FRESH_SEED + seed,
        batch_size=BATCH_SIZE,
        greedy=greedy,
    )


def record_run(
    directory: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    episodes: int = 4,
    seed: int = 0,
    greedy: bool | None = None,
    device: torch.device | str = "cpu",
    best: bool = False,
) -> Video:
    """Film the newest checkpoint of a run in fresh episodes of its world.

    Args:
        directory: of the run.
        folder: gets the files, named after the run.
        episodes: how many.
        seed: of the world.
        greedy: take the likeliest action, or else draw from the policy; None does what the run's evaluations did.
        device: where to compute.
        best: film the checkpoint of the run's best evaluation instead.

    Raises:
        ValueError: not a run, no checkpoint, a run on a stream task (there is nothing to see), or imageio is missing.
    """
    config = load_config(directory)
    if not config.has_films:
        raise ValueError(f"{directory} was trained on rows of a stream task: only runs in a world can be filmed")
    target = Path(folder) / Path(directory).resolve().name
    model = load_model(directory, device, best=best)
    return config.film(model, target, episodes=episodes, seed=FRESH_SEED + seed, greedy=greedy)
