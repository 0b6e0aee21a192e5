"""Scores of many methods on many tasks, aggregated by the statistics of Agarwal et al. (2021).

Scores are scaled by task: 0 is chance, 1 the oracle. Numbers over all tasks use only the tasks in which every method
has been run; see :meth:`Suite.fullest` for tables with empty cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recollect.evaluation.confidence_interval import (
    Interval,
    improvement,
    improvement_interval,
    interquartile_mean_over_tasks,
    performance_profile,
    score_interval,
)


def scale_score(score: float, chance: float, oracle: float) -> float:
    """Scale a score so that chance is 0 and the oracle 1.

    Raises:
        ValueError: chance and oracle are equal, or one of them is unknown.
    """
    span = oracle - chance
    if not span or span != span:
        raise ValueError(f"chance={chance}, oracle={oracle}: a score needs two different ends of its scale")
    return (score - chance) / span


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Scaled scores of methods on tasks."""

    methods: Sequence[str]
    """Methods in the order of the table."""
    tasks: Sequence[str]
    """Tasks in the order of the table."""
    scores: Mapping[tuple[str, str], np.ndarray]
    """Scores ``[seeds]`` by method and task; no entry where there is no run."""

    @property
    def shared(self) -> list[str]:
        """Tasks in which every method has been run."""
        return [task for task in self.tasks if all((method, task) in self.scores for method in self.methods)]

    def fullest(self) -> "Suite":
        """Return the largest part of the table without empty cells; of equally large parts the one with most methods.

        Methods are added in the order of the number of their tasks. A part of fewer than two methods is empty.
        """
        done = {method: {task for task in self.tasks if (method, task) in self.scores} for method in self.methods}
        order = sorted(self.methods, key=lambda method: -len(done[method]))
        best: tuple[int, list[str], list[str]] = (0, [], [])
        for number in range(2, len(order) + 1):
            shared = set.intersection(*(done[method] for method in order[:number]))
            size = number * len(shared)
            if size and size >= best[0]:
                best = (size, order[:number], [task for task in self.tasks if task in shared])
        methods = [method for method in self.methods if method in best[1]]
        return Suite(methods=methods, tasks=best[2], scores=self.scores)

    def strata(self, method: str) -> list[np.ndarray]:
        """Return the scores of a method on the shared tasks."""
        return [self.scores[method, task] for task in self.shared]

    def mean(self, method: str) -> float:
        """Return the interquartile mean over shared tasks, each of which counts the same, and seeds; NaN if none."""
        strata = self.strata(method)
        return float(interquartile_mean_over_tasks(strata)) if strata else float("nan")

    def interval(self, method: str) -> Interval | None:
        """Return the interval of :meth:`mean`, seeds resampled within every task; None while a task has one seed."""
        strata = self.strata(method)
        return score_interval(strata) if strata else None

    def beats(self, ours: str, theirs: str) -> float:
        """Return the probability that a run of ours beats one of theirs on a shared task; ties count half."""
        return improvement(self.strata(ours), self.strata(theirs)) if self.shared else float("nan")

    def beats_interval(self, ours: str, theirs: str) -> Interval | None:
        """Return the interval of :meth:`beats`; None while a task has one seed."""
        return improvement_interval(self.strata(ours), self.strata(theirs)) if self.shared else None

    def profile(self, method: str, thresholds: np.ndarray) -> np.ndarray:
        """Return the share of a method's runs above each threshold, averaged over tasks, ``[thresholds]``."""
        return performance_profile(self.strata(method), thresholds)

    def best(self, task: str) -> set[str]:
        """Return the methods of a task whose best seed reaches the worst seed of the method with the highest mean.

        Methods whose mean is at chance or below are left out. Empty for a task without a run.
        """
        means = {method: self.scores[method, task].mean() for method in self.methods if (method, task) in self.scores}
        if not means:
            return set()
        leader = max(means, key=lambda method: means[method])
        floor = self.scores[leader, task].min()
        return {method for method in means if self.scores[method, task].max() >= floor and means[method] > 0}
