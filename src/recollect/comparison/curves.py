"""Runs as a comparison reads them: what was trained on what, every metric, and how it ended."""

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from recollect.config import config_class, from_json, upgrade_json
from recollect.runs.provenance import short_commit
from recollect.runs.run_directory import RunRecord
from recollect.training import REGISTRY, TrainerConfig
from recollect.training.training_aids import teacher_description, training_aids

AXES = ("step", "environment_steps", "seconds")
"""What curves can be drawn along."""
SAME = (
    *("fit.seed", "fit.report_every", "fit.report_seconds", "fit.checkpoint_every", "fit.keep_checkpoints"),
    "device",
)
"""Settings in which runs of one group may differ."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory with its learning curve."""

    path: Path
    """Run directory."""
    task_kind: str
    """Key of what it was trained on."""
    task_settings: dict[str, str]
    """Settings of that, by dotted name."""
    core_kind: str
    """Key of its core; of its trainer when it has no core."""
    settings: dict[str, str]
    """All other settings that make a difference, by dotted name."""
    seed: int | None
    """Its seed."""
    metrics: dict[str, np.ndarray]
    """Columns of metrics.csv, NaN where a row has no value."""
    ending: str
    """``finished``, ``solved`` (it reached the score at which it was to stop) or ``unfinished``."""
    planned: int | None
    """Optimiser steps that it was meant to take."""
    chance: float | None
    """Expected score of an agent that cannot remember, if known."""
    oracle: float | None
    """Best score, if known."""
    where: str
    """Machine and commit."""
    started_from: str | None = None
    """The run whose weights it began with."""
    began_with: tuple[str, ...] = ()
    """Training aids of the run that this one started from, and of those before it."""
    teacher_description: str | None = None
    """Description of the teacher for tables."""
    training_aids: tuple[str, ...] = ()
    """Other training aids (:attr:`TrainerConfig.training_aids`)."""

    @property
    def helped(self) -> tuple[str, ...]:
        """Whether a teacher was imitated, what else helped, and whether it went on with the weights of another run.

        No table leaves that out, and who began with new weights is of another group.
        """
        taught = () if self.teacher_description is None else (self.teacher_description,)
        before = (
            f"after a run that was helped: {', '.join(self.began_with)}" if self.began_with else "after another run"
        )
        return (*taught, *self.training_aids, *(() if self.started_from is None else (before,)))

    @property
    def title(self) -> str:
        """Its core, and what helped it."""
        return ", ".join((self.core_kind, *self.helped))

    @property
    def score(self) -> float:
        """Score of the newest evaluation; NaN before the first."""
        score = self.last("score")
        return math.nan if score is None else score

    @property
    def best(self) -> float:
        """Score of the best evaluation; NaN before the first."""
        scores = self.metrics.get("score", np.empty(0))
        scores = scores[~np.isnan(scores)]
        return float(scores.max()) if len(scores) else math.nan

    def last(self, column: str) -> float | None:
        """Return the last value of a metric, None without one."""
        values = self.metrics.get(column, np.empty(0))
        values = values[~np.isnan(values)]
        return float(values[-1]) if len(values) else None

    def points(self, axis: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the axis value and the score of every evaluation, both ``[n]``."""
        at, score = self.metrics[axis], self.metrics["score"]
        known = ~np.isnan(at) & ~np.isnan(score)
        return at[known], score[known]


def read_run(directory: str | PathLike[str]) -> Run:
    """Read a run directory; weights are left where they are.

    Raises:
        ValueError: it is not a run directory, or a file in it is damaged.
    """
    folder = RunRecord(directory)
    config = upgrade_json(folder.config, TrainerConfig, REGISTRY)
    metrics = folder.metrics
    trainer = _trainer(config)
    task, core = config.get(trainer.task_field, {}), config.get("core", config)
    settings = flatten({key: value for key, value in config.items() if key != trainer.task_field})
    chance, oracle = _known_scores(task, trainer)
    plan = _read_plan(config, folder)
    return Run(
        path=folder.path,
        # Of other people's environments the id says which task it is.
        task_kind=f"gym:{task['id']}" if _kind(task, "task") == "gym" and "id" in task else _kind(task, "task"),
        task_settings=flatten(task),
        core_kind=_kind(core, "run"),
        settings={name: value for name, value in settings.items() if name not in SAME},
        seed=plan.get("seed"),
        metrics=metrics,
        ending=_ending(metrics, plan, folder),
        planned=plan.get("steps"),
        chance=chance,
        oracle=oracle,
        where=_where(folder.environment_file),
        started_from=_started_from(folder),
        began_with=_began_with(folder),
        teacher_description=teacher_description(config),
        training_aids=training_aids(config),
    )


def _read_plan(config: Mapping[str, Any], folder: RunRecord) -> Mapping[str, Any]:
    """Return the part ``fit`` of a config, in which the settings that are read here are numbers."""
    plan = config.get("fit", {})
    for name in ("steps", "seed", "stop_score", "processor_seconds"):
        value = plan.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"{folder.config_file}: fit.{name}={value!r} is no number: restore the file")
    return plan


def flatten(data: Any, prefix: str = "") -> dict[str, str]:
    """Flatten JSON data to ``{"dotted.name": "value"}``."""
    if not isinstance(data, Mapping):
        return {prefix: data if isinstance(data, str) else json.dumps(data)}
    flat: dict[str, str] = {}
    for name, value in data.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else name)
    return flat


def distinguish(
    kinds: Sequence[Hashable], settings: Sequence[Mapping[str, str]], titles: Sequence[str] | None = None
) -> list[str]:
    """Return names that differ where kinds or settings do: ``hcam``, or ``hcam (top_k=4)`` beside others.

    Args:
        kinds: kind of each item.
        settings: settings of each item; only those that differ between items of one kind appear in names.
        titles: beginnings of the names; None uses the kinds.
    """
    names = []
    for index, kind in enumerate(kinds):
        alike = [mine for other, mine in zip(kinds, settings, strict=True) if other == kind]
        keys = list(dict.fromkeys(key for mine in alike for key in mine))
        telling = [key for key in keys if len({mine.get(key) for mine in alike}) > 1]
        title = str(kind) if titles is None else titles[index]
        parts = [f"{_short(key, telling)}={settings[index].get(key, 'absent')}" for key in telling]
        names.append(f"{title} ({', '.join(parts)})" if parts else title)
    return names


def _short(key: str, among: Sequence[str]) -> str:
    last = key.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in among) == 1 and last != "kind" else key


def _kind(data: Mapping[str, Any], otherwise: str) -> str:
    return str(data.get("kind", otherwise)).rpartition(":")[2].removesuffix("Config")


def _ending(metrics: Mapping[str, np.ndarray], plan: Mapping[str, Any], folder: RunRecord) -> str:
    steps, scores = metrics.get("step", np.empty(0)), metrics.get("score", np.empty(0))
    scores = scores[~np.isnan(scores)]
    goal = plan.get("stop_score")
    if goal is not None and len(scores) and scores[-1] >= goal:
        return "solved"
    done = len(steps) and steps[-1] >= plan.get("steps", 0)
    return "finished" if done or _ran_out_of_time(folder, plan.get("processor_seconds")) else "unfinished"


def _ran_out_of_time(folder: RunRecord, limit: float | None) -> bool:
    """Return whether a run ended because it had used its processor time, from its newest checkpoint."""
    if limit is None:
        return False
    try:
        progress = folder.progress
        return progress.get("status") == "finished" and bool(progress["processor_seconds"] >= limit)
    except (OSError, ValueError, LookupError, TypeError):  # somebody edited the file
        return False


def _trainer(config: Mapping[str, Any]) -> type[TrainerConfig]:
    """Return the class of a run's config, or the base of all trainers where it is unknown."""
    try:
        return config_class(config, TrainerConfig, REGISTRY)
    except ValueError:  # it is somebody else's, or of another version
        return TrainerConfig


def _known_scores(task: Mapping[str, Any], trainer: type[TrainerConfig]) -> tuple[float | None, float | None]:
    """Return the chance level and best score of a task; None where unknown."""
    try:
        spec = from_json(task, trainer.task_class(), REGISTRY).spec
    except (ValueError, TypeError, ImportError, KeyError):  # of somebody else, or of another version
        return None, None
    chance, oracle = (None if math.isnan(number) else float(number) for number in (spec.chance, spec.oracle))
    return chance, oracle


def _started_from(folder: RunRecord) -> str | None:
    try:
        start = folder.started_from
        return None if start is None else f"{start['run']} (step {start['step']})"
    except (OSError, ValueError, LookupError, TypeError):  # somebody edited the file
        return None


def _began_with(folder: RunRecord) -> tuple[str, ...]:
    try:
        start = folder.started_from
        return () if start is None else tuple(map(str, start.get("helped", ())))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # somebody edited the file
        return ()


def _where(path: Path) -> str:
    try:
        newest = json.loads(path.read_text())[-1]
        hardware = newest["hardware"]
        machine = hardware["accelerator"] or f"{hardware['processor']}, {hardware['threads']} threads"
        return f"{machine}; torch {newest['versions']['torch']}; commit {short_commit(newest['commit'])}"
    except (OSError, ValueError, LookupError, TypeError):
        return "unknown machine"
