"""Config, model, scores and videos of a run directory, or of a model folder that says how it was trained."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recollect.agents.model_sources import find_model, source_name
from recollect.agents.saved_model import SPEC, is_model_folder, load_folder, load_spec
from recollect.config import differences, from_json, require, to_json, upgrade_json
from recollect.evaluation.agent_videos import Video, load_imageio, load_pillow
from recollect.evaluation.agents import AgentEvaluation
from recollect.evaluation.predictions import require_writable
from recollect.evaluation.recorded_world import RecordingConfig
from recollect.evaluation.recordings import Recording, require_target, write_recording
from recollect.evaluation.score import Score
from recollect.files import path_errors, read_json
from recollect.machine import describe_out_of_memory, require_matplotlib
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint
from recollect.runs.errors import StepError
from recollect.runs.run_directory import RunRecord, changed_settings
from recollect.tasks.memory_requirements import policy_scores
from recollect.training.config import TrainerConfig, fresh_seed
from recollect.training.devices import choose_device
from recollect.training.trainers import REGISTRY

POLICY_EPISODES = 128
"""Episodes that score a reference policy of a world."""
BATCH_SIZE = 64
"""Rows at a time in evaluations, equal for all runs: a score does not depend on the batch size of training."""


def load_config(directory: str | PathLike[str], *, trust: bool = False) -> TrainerConfig:
    """Read the config of a run, as the trainer's dataclass.

    Args:
        directory: of the run, or a model folder, whose provenance has the config; also ``model:NAME`` and
            ``hub:OWNER/NAME``.
        trust: import the modules of other packages that it names (a user-defined world or core).

    Raises:
        ValueError: not a run directory, or its config names something unknown, or something to import without
            ``trust``; or a model folder that does not say how it was trained.
    """
    folder = find_model(directory)
    if is_model_folder(folder):
        file, settings = folder / SPEC, load_spec(folder).run.get("config")
        if not isinstance(settings, Mapping):
            raise ValueError(
                f"{file} does not say how the model was trained: it can be loaded, but not scored or played"
            )
    else:
        run = RunRecord(folder)
        file, settings = run.config_file, run.config
    try:
        config = from_json(settings, TrainerConfig, REGISTRY, trust=trust)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if not is_model_folder(folder):
        _require_trained_config(RunRecord(folder), config)
    return config


def _require_trained_config(run: RunRecord, config: TrainerConfig) -> None:
    """Raise ``ValueError`` where config.json was changed since the newest checkpoint, which has a copy of it.

    A setting that is taken out would otherwise have its default silently. Settings that a resumed run may change may
    differ, but not be missing.
    """
    folder, progress = _newest_progress(run)
    trained = progress.get("config")
    if not isinstance(trained, Mapping):
        return
    before, now = upgrade_json(trained, TrainerConfig, REGISTRY), to_json(config, REGISTRY)
    changed = changed_settings(before, now)
    # A setting that is newer than the run is absent in both.
    absent = [line.partition(":")[0] for line in differences(trained, run.config) if line.endswith(", now absent")]
    for line in differences(before, now):
        if f"{line.partition(':')[0]}.".startswith(tuple(f"{name}." for name in absent)):
            changed.append(line)
    if changed:
        raise ValueError(
            f"{run.config_file} is not the config that {folder} was trained with: {_join_some(changed)}. "
            f'Restore it: "config" in {folder / checkpoints.PROGRESS} is a copy'
        )


def _join_some(lines: Sequence[str]) -> str:
    different = list(dict.fromkeys(lines))
    more = f"; and {len(different) - 5} more" if len(different) > 5 else ""
    return "; ".join(different[:5]) + more


def _newest_progress(run: RunRecord) -> tuple[Path, Mapping[str, Any]]:
    """Return the newest checkpoint whose progress can be read, and its progress; nothing in it if there is none."""
    for step in reversed(checkpoints.steps(run.checkpoints)):
        path = checkpoints.checkpoint_path(run.checkpoints, step)
        try:
            return path, checkpoints.read_progress(path)
        except (ValueError, OSError):  # torn
            continue
    return run.checkpoints, {}


def read_config(file: str | PathLike[str], *, trust: bool = False) -> TrainerConfig:
    """Read the config in a file that a run wrote as its ``config.json``.

    Args:
        file: of JSON.
        trust: as in :func:`load_config`.

    Raises:
        ValueError: there is no such file, it is not JSON, or it names something unknown.
    """
    remedy = "give the config.json of a run"
    try:
        data = read_json(Path(file), remedy)
    except OSError as error:
        raise ValueError(f"config={str(file)!r}: {error}: {remedy}") from None
    require(isinstance(data, dict), "config", str(file), f"it holds no object: {remedy}")
    try:
        return from_json(data, TrainerConfig, REGISTRY, trust=trust)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def load_checkpoint(directory: str | PathLike[str], *, best: bool = False) -> Checkpoint:
    """Read the newest complete checkpoint of a run, or the one of its best evaluation.

    Raises:
        ValueError: not a run directory, or there is no complete checkpoint in it.
    """
    run = RunRecord(directory)
    _ = run.config  # raises where this is no run
    checkpoint, torn = checkpoints.read_newest(run.checkpoint_folder(best=best))
    if checkpoint is None:
        also = f" ({'; '.join(torn)})" if torn else ""
        if best:
            remedy = "take the newest one, or continue with --resume until an evaluation"
            raise ValueError(f"{run.path} has no best checkpoint yet{also}: {remedy}")
        raise ValueError(f"{run.path} has no complete checkpoint yet{also}: train it with --resume")
    return checkpoint


def checkpoint_step(directory: str | PathLike[str], *, best: bool = False) -> int:
    """Return the step of the newest complete checkpoint of a run, or of that of its best evaluation; 0 without one."""
    path, _ = checkpoints.newest(RunRecord(directory).checkpoint_folder(best=best))
    return 0 if path is None else checkpoints.step_of(path)


def describe_torn_checkpoints(directory: str | PathLike[str], *, best: bool = False) -> list[str]:
    """Return one line for every newer checkpoint that is torn, and one for the checkpoint that is used instead."""
    folder = find_model(directory)
    if is_model_folder(folder):
        return []
    path, torn = checkpoints.newest(RunRecord(folder).checkpoint_folder(best=best))
    if path is None or not torn:
        return torn
    return [*torn, f"the checkpoint of step {checkpoints.step_of(path)} is used"]


def load_with_task(directory: str | PathLike[str], device: torch.device | str, *, best: bool, trust: bool) -> Any:
    """Load the agent of a run of an older version, which needs the run's task.

    Raises:
        ValueError: as :func:`load_config` and :func:`load_checkpoint`; its data or its world are not here.
    """
    try:
        config = load_config(directory, trust=trust)
        model = load_model_and_step(config, directory, device, best=best)[0]
        model.spec = config.model_spec
        return model
    except ValueError as error:
        raise ValueError(
            f"{error}. This run is of an older version and needs its task to be loaded: do it once where that is, and "
            "write a model folder with recollect.load(run).save(folder)"
        ) from error


def load_model_and_step(
    config: TrainerConfig,
    directory: str | PathLike[str],
    device: torch.device | str = "cpu",
    *,
    best: bool = False,
) -> tuple[Any, int]:
    """Load the agent of a run with a config that was read before, in ``eval`` mode; return it and its step.

    Both come from one checkpoint: a run that still trains has another newest one a moment later.
    """
    where, folder = choose_device(str(device)), find_model(directory)
    if is_model_folder(folder):
        require(not best, "best", best, f"{directory} has one set of weights: leave it away")
        model = load_folder(folder, where)  # modules that it names were imported with the config
        return model, int(model.spec.run.get("step", 0))
    checkpoint = load_checkpoint(folder, best=best)
    model, step = _build_agent(config), int(checkpoint.progress["step"])
    with checkpoints.mismatch_errors(RunRecord(folder).checkpoint_folder(best=best), step):
        model.load_state_dict(dict(checkpoint.weights))
    return model.to(where).eval(), step


def require_world(directory: str | PathLike[str], ability: str, *, trust: bool = False) -> TrainerConfig:
    """Return the config of a run; raise ``ValueError`` unless it acts in a world, which gives it the ``ability``."""
    config = load_config(directory, trust=trust)
    if not config.has_films:
        rows = "recorded episodes" if isinstance(config.trained_on, RecordingConfig) else "rows of a stream task"
        raise ValueError(f"{directory} was trained on {rows}: only runs in a world {ability}")
    return config


def require_answers(directory: str | PathLike[str], option: str, where: Path, *, trust: bool = False) -> None:
    """Check that a run has answers to report, and that they can be written; call it before the run is scored.

    Args:
        directory: of the run.
        option: ``report`` or ``predictions``.
        where: folder or file to write.
        trust: as in :func:`load_config`.

    Raises:
        ValueError: not a run, a run that acts in a world or detects activities, a package is missing, or the place
            cannot be written.
    """
    config = load_config(directory, trust=trust)
    if not config.has_predictions:
        raise ValueError(
            f"{option}={str(where)!r}: {directory} ({config.title}) has no single right answer at a step: this is for "
            "rows of a stream task and for cloned recordings; --record writes the steps of an agent"
        )
    if option == "predictions":
        require_writable(where)
    else:
        require_matplotlib()


def require_filmable(
    directory: str | PathLike[str], folder: str | PathLike[str], *, trust: bool = False
) -> TrainerConfig:
    """Return the config of a run that :func:`record_run` can film into a folder; call it before anything is played.

    Raises:
        ValueError: not a run, a run on a stream task, imageio or pillow is missing, or the folder cannot be made.
    """
    config = require_world(directory, "can be filmed", trust=trust)
    load_imageio()
    load_pillow()
    with path_errors("video", Path(folder), "made"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return config


def require_recordable(
    directory: str | PathLike[str],
    target: str | PathLike[str] | None,
    *,
    noise: Sequence[float] = (),
    trust: bool = False,
) -> TrainerConfig | None:
    """Check that :func:`save_episodes` can write a run's episodes there; call it before anything is played.

    Args:
        directory: of the run.
        target: FILE.npz, minari:DATASET or lerobot:FOLDER; None for no episodes.
        noise: as in :func:`save_episodes`.
        trust: as in :func:`load_config`.

    Returns:
        The config of the run; None without a target.

    Raises:
        ValueError: not a run, a run on a stream task, a target that cannot be written, noise that is no share, or noise
            without a target.
    """
    if target is None:
        require(not noise, "noise", list(noise), "it is for recorded episodes: name their file too (--record)")
        return None
    require(all(0 <= share <= 1 for share in noise), "noise", list(noise), "give shares of the actions, from 0 to 1")
    require_target(target)
    return require_world(directory, "have episodes", trust=trust)


def save_episodes(  # noqa: PLR0913  (how it plays)
    directory: str | PathLike[str],
    target: str | PathLike[str],
    *,
    episodes: int | None = None,
    seed: int = 0,
    greedy: bool | None = None,
    noise: Sequence[float] = (),
    device: torch.device | str = "cpu",
    best: bool = False,
    trust: bool = False,
) -> Recording:
    """Play fresh episodes with the newest checkpoint of a run, and write them as data for the trainer cloning.

    Args:
        directory: of the run.
        target: FILE.npz, minari:DATASET or lerobot:FOLDER.
        episodes: how many; None takes 128.
        seed: of the world.
        greedy: take the likeliest action, or else draw from the policy; None does as the run's evaluations.
        noise: shares of random actions, in turns over the rows: for episodes of mixed quality.
        device: where to compute.
        best: play with the checkpoint of the run's best evaluation instead.
        trust: as in :func:`load_config`.

    Raises:
        ValueError: not a run, no checkpoint, a run on a stream task, or a target that cannot be written; before
            anything is played.
    """
    config = require_recordable(directory, target, noise=noise, trust=trust)
    assert config is not None  # there is a target
    model, _ = load_model_and_step(config, directory, device, best=best)
    with _remedies():
        number = config.final_samples if episodes is None else episodes
        recording = config.record(model, episodes=number, seed=fresh_seed(seed), greedy=greedy, noise=noise)
    write_recording(recording, target)
    return recording


def _build_agent(config: TrainerConfig) -> nn.Module:
    try:
        return config.build_agent()
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        reason = describe_out_of_memory(error)
        if reason is None:
            raise
        raise ValueError(f"{reason}: the config needs more than this machine has") from error


@contextmanager
def _remedies() -> Iterator[None]:
    """Add the remedy to errors of a broken world."""
    try:
        yield
    except StepError as error:
        raise type(error)(f"{error}. {error.advice(then='try again')}") from error


def evaluate_run(
    directory: str | PathLike[str],
    *,
    samples: int | None = None,
    greedy: bool | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    best: bool = False,
    trust: bool = False,
) -> Score:
    """Score the newest checkpoint of a run on fresh rows of its own task, or in fresh episodes of its own world.

    Args:
        directory: of the run.
        samples: how many rows or episodes; None takes 512 rows or 128 episodes.
        greedy: in a world, take the likeliest action, or else draw from the policy; None does as the run's own
            evaluations.
        seed: of the rows or the world, which no run has trained or been evaluated on.
        device: where to compute.
        best: score the checkpoint of the run's best evaluation instead. Its score on fresh data is not biased by that
            choice.
        trust: as in :func:`load_config`.

    Raises:
        ValueError: as :func:`load_config` and :func:`load_checkpoint`, or ``samples`` is less than 1.
        WorldError: the world raises, exits, hangs, never ends or returns invalid data.
    """
    config = load_config(directory, trust=trust)
    model, _ = load_model_and_step(config, directory, device, best=best)
    with _remedies():
        found = config.evaluate(
            model,
            samples=config.final_samples if samples is None else samples,
            seed=fresh_seed(seed),
            batch_size=BATCH_SIZE,
            greedy=greedy,
        )
    if isinstance(found, AgentEvaluation) and config.trained_on.spec.policies:
        return replace(found, policies=policy_scores(config.trained_on, POLICY_EPISODES))
    return found


def record_run(
    directory: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    episodes: int = 4,
    seed: int = 0,
    greedy: bool | None = None,
    device: torch.device | str = "cpu",
    best: bool = False,
    trust: bool = False,
) -> Video:
    """Film the newest checkpoint of a run in fresh episodes of its world.

    Args:
        directory: of the run.
        folder: gets the files, named after the run.
        episodes: how many.
        seed: of the world.
        greedy: take the likeliest action, or else draw from the policy; None does as the run's evaluations.
        device: where to compute.
        best: film the checkpoint of the run's best evaluation instead.
        trust: as in :func:`load_config`.

    Raises:
        ValueError: not a run, no checkpoint, a run on a stream task, imageio is missing, or the folder cannot be made.
    """
    config = require_filmable(directory, folder, trust=trust)
    target = Path(folder) / source_name(directory)
    model, _ = load_model_and_step(config, directory, device, best=best)
    with _remedies():
        return config.film(model, target, episodes=episodes, seed=fresh_seed(seed), greedy=greedy)
