"""Comparison of runs by the statistics of Agarwal et al., Deep RL at the edge of the statistical precipice (2021).

    interquartile mean      IQM(x) = mean of the middle half of all scores; floor(n / 4) are cut at each end;
                            over several tasks each task counts the same, however many runs it has
    interval                95 % percentile bootstrap; runs are resampled within every task (stratified)
    improvement             P(X > Y) = mean over tasks of mean_ij [x_i > y_j] + [x_i = y_j] / 2

Runs of one task that differ only in their seed are one group. A run's score is its newest evaluation. A run that
stopped early counts with the score it had, and is named in the notes. A single seed has no interval.

Differs from the authors' package: intervals come from numpy's generator with a fixed seed, so that the same runs give
the same page; a curve is drawn as far as all of its runs go.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.comparison.curves import AXES, Run, distinguish, read_run
from recollect.evaluation.confidence_interval import (
    RESAMPLES,
    Interval,
    improvement,
    improvement_interval,
    interquartile_mean,
    interquartile_mean_over_tasks,
    quantiles,
    score_interval,
)
from recollect.runs.run_directory import RunRecord

POINTS = 120
"""Points of a curve."""


class Curve(NamedTuple):
    """Scores of a group along a common axis."""

    at: np.ndarray
    """Steps, environment steps or seconds ``[n]``: from the first at which every run has a score to the end of the
    shortest run."""
    middle: np.ndarray
    """Interquartile mean over the runs ``[n]``."""
    low: np.ndarray | None
    """Lower end of its interval ``[n]``; None for a single run."""
    high: np.ndarray | None
    """Upper end of its interval ``[n]``; None for a single run."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ only in their seed: a row of the table."""

    task: str
    """The task of training."""
    label: str
    """Name of the row."""
    runs: list[Run]
    """Runs in the order of their seeds."""
    score: float
    """Interquartile mean of their scores."""
    best: float
    """Interquartile mean of their best evaluations; biased upwards, because the best one is selected."""
    interval: Interval | None
    """Interval of the score; None for a single run."""
    versus: str | None
    """Label of the group it is compared with: memoryless, or the first of the task. None for that group itself."""
    improvement: float | None
    """Probability that a run of this group scores higher than one of ``versus``; ties count half."""
    improvement_interval: Interval | None
    """Interval of the improvement; None when either side is a single run."""
    curve: Curve | None
    """Scores along the axis; None when the runs have no point in common."""

    @property
    def scores(self) -> np.ndarray:
        """Final score of every run."""
        return np.array([run.score for run in self.runs])

    def median(self, column: str) -> float | None:
        """Return the median over the runs of a metric's last value (``step``, ``seconds``, ...); None without it."""
        values = [run.last(column) for run in self.runs]
        known = [value for value in values if value is not None]
        return float(np.median(known)) if known else None


@dataclass(frozen=True, kw_only=True)
class Overall:
    """A label over all tasks, its scores scaled so that chance is 0 and the oracle 1."""

    label: str
    """Name of the row."""
    score: float
    """Interquartile mean over all tasks and runs."""
    interval: Interval | None
    """Interval of the score, runs resampled within every task; None when a task has a single run."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Results of a comparison, for tables and figures."""

    axis: str
    """Column of metrics.csv along which the curves are drawn."""
    groups: list[Group]
    """Groups of each task; the group that the others are compared with comes first."""
    overall: list[Overall]
    """Labels that every task has, best first; empty for a single task, or when chance or oracle are unknown."""
    notes: list[str]
    """Remarks on runs that ended early, runs with the same seed, and runs without a score."""

    @property
    def tasks(self) -> list[str]:
        """All tasks, in the order of the runs."""
        return list(dict.fromkeys(group.task for group in self.groups))

    def of(self, task: str) -> list[Group]:
        """Return the groups of a task."""
        return [group for group in self.groups if group.task == task]

    def to_json(self) -> dict[str, Any]:
        """Return all numbers of the table as JSON data; None where there is no number."""
        return {
            "axis": self.axis,
            "groups": [_group_json(group) for group in self.groups],
            "overall": [{"label": o.label, "score": o.score, "interval": _as_list(o.interval)} for o in self.overall],
            "notes": self.notes,
        }


def compare(
    directories: Sequence[str | PathLike[str]], *, axis: str = "step", names: Sequence[str] | None = None
) -> Comparison:
    """Read runs and compare them.

    Args:
        directories: of the runs.
        axis: column of metrics.csv for the curves: ``step`` (optimiser steps), ``environment_steps`` or ``seconds``.
        names: one label per run, to which the training aids are added; runs of the same name and task are one group.
            None takes the core's key and, where runs of one core differ in more than their seed, those settings.

    Raises:
        ValueError: no run; a folder that holds no run, or is named twice; another number of names than of runs; no run
            is whole or has a score; a run without the axis.
    """
    runs, notes = _read(directories, axis)
    chosen = _names(directories, names)
    tasks = distinguish([run.task_kind for run in runs], [run.task_settings for run in runs])
    kinds = [(task, run.core_kind) for task, run in zip(tasks, runs, strict=True)]
    labels = distinguish(kinds, [run.settings for run in runs], [run.title for run in runs])
    members: dict[str, dict[str, list[Run]]] = {}
    for task, label, run in zip(tasks, labels, runs, strict=True):
        name = _with_training_aids(run, chosen[run.path]) if run.path in chosen else label
        members.setdefault(task, {}).setdefault(name, []).append(run)
    groups = [group for task, of_task in members.items() for group in _groups(task, of_task, axis)]
    notes += [remark for group in groups for remark in _remarks(group)]
    if any(len(group.runs) == 1 for group in groups):
        notes.append("a single run has no interval: train more seeds")
    return Comparison(axis=axis, groups=groups, overall=_overall(members), notes=notes)


def curve(runs: Sequence[Run], axis: str, resamples: int = RESAMPLES // 4) -> Curve | None:
    """Return the interquartile mean of the runs' scores along an axis, and its interval at every point.

    Scores are interpolated linearly between evaluations. The curve begins where every run has been evaluated and ends
    where the first run ends; a run that stopped because it had reached its goal keeps its score.
    """
    tracks = [run.points(axis) for run in runs]
    if any(not len(at) for at, _ in tracks):
        return None
    ends = [at[-1] for (at, _), run in zip(tracks, runs, strict=True) if run.ending != "solved"]
    start, stop = max(at[0] for at, _ in tracks), min(ends or [max(at[-1] for at, _ in tracks)])
    if stop < start:
        return None
    grid = np.linspace(start, stop, POINTS if stop > start else 1)
    scores = np.stack([np.interp(grid, at, score) for at, score in tracks], -1)  # points, runs
    if len(runs) == 1:
        return Curve(grid, scores[:, 0], None, None)
    index = np.random.default_rng(0).integers(0, len(runs), (resamples, len(runs)))
    means = interquartile_mean(scores[:, index])  # points, resamples
    low, high = quantiles(means)
    return Curve(grid, interquartile_mean(scores), low, high)


def _read(directories: Sequence[str | PathLike[str]], axis: str) -> tuple[list[Run], list[str]]:
    if not directories:
        raise ValueError("no run is named: give at least one run directory")
    paths = [Path(directory).resolve() for directory in directories]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice: a run counts once")
    runs, notes = _read_whole_runs(directories)
    scored = [run for run in runs if not math.isnan(run.score)]
    if not scored:
        raise ValueError(f"{runs[0].path} has no score yet, nor has another run: wait for a first evaluation")
    for run in scored:
        if axis not in run.metrics:
            known = [name for name in AXES if all(name in other.metrics for other in scored)]
            raise ValueError(f"axis={axis!r}: {run.path} has no such column; all runs have {', '.join(known)}")
    return scored, notes + [f"{run.path} has no score yet: left out" for run in runs if run not in scored]


def _read_whole_runs(directories: Sequence[str | PathLike[str]]) -> tuple[list[Run], list[str]]:
    """Return the runs whose files are whole, and a note on each of the others."""
    runs, notes, errors = [], [], []
    for directory in directories:
        record = RunRecord(directory)
        if not record.config_file.is_file():
            _ = record.config  # raises: this is no run, perhaps a wrong name
        try:
            runs.append(read_run(directory))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            reason = str(error) if isinstance(error, ValueError) else f"{record.config_file} is damaged: {error!r}"
            errors.append(reason)
            notes.append(f"{record.path} is left out: {reason}")
    if not runs:
        raise ValueError(errors[0])
    return runs, notes


def _names(directories: Sequence[str | PathLike[str]], names: Sequence[str] | None) -> dict[Path, str]:
    if names is None:
        return {}
    if len(names) != len(directories):
        raise ValueError(f"{len(names)} names for {len(directories)} runs: give one name for every run, in their order")
    return {Path(directory): name for directory, name in zip(directories, names, strict=True)}


def _with_training_aids(run: Run, name: str) -> str:
    """Add the run's training aids to a name that the caller gave."""
    return f"{name} ({', '.join(run.helped)})" if run.helped else name


def _groups(task: str, members: Mapping[str, list[Run]], axis: str) -> list[Group]:
    plain = next((label for label, runs in members.items() if runs[0].core_kind == "memoryless"), None)
    first = plain if plain is not None else next(iter(members))
    theirs = np.array([run.score for run in members[first]])
    groups = []
    for label in sorted(members, key=lambda name: name != first):  # sorting keeps the order of equals
        runs = sorted(members[label], key=lambda run: -1 if run.seed is None else run.seed)
        scores = np.array([run.score for run in runs])
        other = label != first
        groups.append(
            Group(
                task=task,
                label=label,
                runs=runs,
                score=float(interquartile_mean(scores)),
                best=float(interquartile_mean(np.array([run.best for run in runs]))),
                interval=score_interval([scores]),
                versus=first if other else None,
                improvement=improvement([scores], [theirs]) if other else None,
                improvement_interval=improvement_interval([scores], [theirs]) if other else None,
                curve=curve(runs, axis),
            )
        )
    return groups


def _overall(members: Mapping[str, Mapping[str, list[Run]]]) -> list[Overall]:
    everywhere = [label for label in next(iter(members.values())) if all(label in task for task in members.values())]
    scaled = {label: [_scaled(task[label]) for task in members.values()] for label in everywhere}
    if len(members) < 2 or any(np.isnan(scores).any() for strata in scaled.values() for scores in strata):
        return []
    rows = [
        Overall(
            label=label,
            score=float(interquartile_mean_over_tasks(strata)),
            interval=score_interval(strata),
        )
        for label, strata in scaled.items()
    ]
    return sorted(rows, key=lambda row: -row.score)


def _scaled(runs: Sequence[Run]) -> np.ndarray:
    """Scale scores so that chance is 0 and the oracle 1; NaN where either is unknown."""
    known = [
        (run.score - run.chance) / (run.oracle - run.chance)
        if run.chance is not None and run.oracle is not None and run.oracle > run.chance
        else math.nan
        for run in runs
    ]
    return np.array(known)


def _remarks(group: Group) -> list[str]:
    name = f"{group.task}, {group.label}"
    remarks = []
    for run in group.runs:
        if run.ending == "unfinished":
            planned = "" if run.planned is None else f" of {run.planned:,}"
            remarks.append(f"{name}: {run.path} is unfinished, at step {run.last('step') or 0:,.0f}{planned}")
        if run.started_from is not None:
            remarks.append(f"{name}: {run.path} began with the weights of {run.started_from}")
    seeds = [run.seed for run in group.runs if run.seed is not None]
    for seed in sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        remarks.append(f"{name}: {seeds.count(seed)} runs have seed {seed}; they are not independent")
    return remarks


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "task": group.task,
        "label": group.label,
        "n": len(group.runs),
        "score": group.score,
        "best": group.best,
        "interval": _as_list(group.interval),
        "scores": group.scores.tolist(),
        "chance": group.runs[0].chance,
        "oracle": group.runs[0].oracle,
        "versus": group.versus,
        "improvement": group.improvement,
        "improvement_interval": _as_list(group.improvement_interval),
        **{axis: group.median(axis) for axis in AXES},
        "runs": [{"path": str(run.path), "seed": run.seed, "ending": run.ending} for run in group.runs],
    }


def _as_list(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)
