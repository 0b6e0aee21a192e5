"""What every trainer has in common: its settings, what it does, and how it says that it cannot go on.

A trainer is one file: a :class:`TrainerConfig` and the :class:`Trainer` that it builds. Everything outside asks these
two, and never which trainer it has before it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, get_type_hints

from torch import Tensor, nn

from recollect.config import CheckedConfig, require, require_types
from recollect.evaluation.agent_videos import Video
from recollect.evaluation.recordings import Recording
from recollect.evaluation.score import Score

EVALUATION_SEED = 1_000_003
"""Evaluations during a run of seed 0 draw with this: never what is trained on."""
FRESH_SEED = 2_000_003
"""Evaluations of a finished run draw with this, and a seed of their own: never what a run has seen."""
SEEDS_APART = 1009
"""Between the seeds of two evaluations: Gymnasium's rows count on from theirs, and must not meet the next one's."""


def evaluation_seed(seed: int) -> int:
    """What evaluations during the run of a seed draw with."""
    return (EVALUATION_SEED + SEEDS_APART * seed) % 2**32  # a clock's time is a seed, and so is -5000


def fresh_seed(seed: int) -> int:
    """What an evaluation of a finished run draws with, by a seed of its own."""
    return (FRESH_SEED + SEEDS_APART * seed) % 2**32


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How long to train, and what to write down on the way."""

    steps: int = 1000
    """Optimiser steps."""
    seed: int = 0
    """Seed of weights, data and dropout."""
    report_every: int = 50
    """Steps between rows of metrics.csv (means since the row before)."""
    report_seconds: float | None = 30.0
    """Most seconds between rows: a slow run writes more of them, and no number changes. None goes by steps alone."""
    evaluate_every: int = 250
    """Steps between evaluations; the last step is always evaluated."""
    checkpoint_every: int = 250
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: int = 2
    """Newest checkpoints that are kept."""
    stop_score: float | None = None
    """End early when an evaluation reaches this score. None trains all steps."""
    processor_seconds: float | None = None
    """End early when the steps have taken so much processor time, all threads together: the same compute for whatever
    is compared, at whatever load of the machine. None sets no limit."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("steps", "report_every", "evaluate_every", "checkpoint_every", "keep_checkpoints"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least 1")
        seconds = self.report_seconds
        require(seconds is None or seconds > 0, "report_seconds", seconds, "give some seconds, or None")
        limit = self.processor_seconds
        require(limit is None or limit > 0, "processor_seconds", limit, "give some seconds, or None")


class Trainer(ABC):
    """What ``fit`` drives. Build it after seeding; it may use the global generators of torch."""

    step_metrics: tuple[str, ...]
    """Names that :meth:`step` reports."""
    evaluation_metrics: tuple[str, ...]
    """Names that :meth:`evaluate` reports; ``"score"`` is one of them."""
    counters: tuple[str, ...] = ()
    """Those of ``step_metrics`` whose newest value is reported; of the others it is the mean since the last report,
    over the steps, or of those that begin with ``episode_`` over the ``episodes`` that each step reports."""
    shown: Mapping[str, str] = MappingProxyType({"loss": "loss", "accuracy": "accuracy", "score": "score"})
    """Metrics that a person sees while the run goes on, and what they are called there."""
    notice: str = ""
    """What a person should know about how :meth:`load` went."""

    @property
    @abstractmethod
    def agent(self) -> nn.Module:
        """Whose weights are trained and saved."""

    def begin_with(self, weights: Mapping[str, Tensor]) -> None:
        """Take these weights instead of new ones; called before the first step."""
        self.agent.load_state_dict(dict(weights))

    def look_at_data(self) -> None:
        """Read what comes from files, where building did not; called before anything of a new run is written.

        Raises:
            ValueError: there are no data, or they cannot be read.
        """
        return

    @abstractmethod
    def step(self) -> dict[str, float]:
        """One step of learning. Raises :class:`StepError`, with nothing changed, on a NaN or a broken world."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Scores of the agent as it is. Must leave no trace: no weight, no generator may change."""

    @abstractmethod
    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything beside weights and global generators that the next step reads: tensors, and JSON data."""

    @abstractmethod
    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""

    def close(self) -> None:
        """Let go of threads and worlds, at the end of the run or after an error."""
        return


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(CheckedConfig, ABC):
    """Every setting of a run."""

    fit: FitConfig = field(default_factory=FitConfig)
    """Length of the run and what it writes."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..., or auto for an accelerator when there is one."""

    task_field: ClassVar[str] = "task"
    """Name of the field that says what is trained on."""
    final_samples: ClassVar[int] = 512
    """Rows or episodes that score a finished run, unless another number is asked for."""
    has_films: ClassVar[bool] = False
    """Whether there is something to see: an agent that acts in a world."""

    @property
    def taught_by(self) -> str | None:
        """What tables say of a run that learned from a teacher; None where it did not."""
        return None

    @property
    def helps(self) -> tuple[str, ...]:
        """What helps in learning beyond the trainer's own method, in a few words each: tables that use it say so."""
        return ()

    @property
    def trained_on(self) -> Any:
        """The stream task or the config of the world."""
        return getattr(self, self.task_field)

    @classmethod
    def task_class(cls) -> type:
        """The class of what it can be trained on."""
        return get_type_hints(cls)[cls.task_field]

    def learning_rate(self, step: int) -> float | None:
        """Learning rate of a step (from 0); None where a trainer has no single one."""
        return None

    @abstractmethod
    def build(self) -> Trainer:
        """Make the trainer, with new weights from the global generator."""

    @abstractmethod
    def build_agent(self) -> nn.Module:
        """Make the agent alone."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A few words for the progress bar."""

    @abstractmethod
    def evaluate(
        self,
        model: Any,
        task: Any = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> Score:
        """Score a model, on its own task or on another of the same kind.

        Args:
            model: what :meth:`build_agent` makes, with its weights.
            task: where; None takes what it was trained on.
            samples: rows or episodes that are scored.
            seed: of the rows or the world.
            batch_size: rows at a time; None takes the run's own.
            greedy: take the likeliest action, or else draw from the policy; None does what the run's own evaluations
                do. It makes no difference where nobody acts.
        """

    def film(self, model: Any, target: Path, *, episodes: int, seed: int, greedy: bool | None = None) -> Video:
        """Record episodes as ``target.mp4`` and ``target.gif``; only where :attr:`has_films`."""
        raise ValueError(f"{self.title}: only runs in a world can be filmed")

    def record(
        self, model: Any, *, episodes: int, seed: int, greedy: bool | None = None, noise: Sequence[float] = ()
    ) -> Recording:
        """Play episodes and keep them; only where :attr:`has_films`."""
        raise ValueError(f"{self.title}: only runs in a world have episodes to record")

    @abstractmethod
    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """What the run consumed, for a file of results.

        Args:
            rows: of its metrics.csv.

        Returns:
            JSON data; ``samples_to_perfect`` is in it, None where it is not known.
        """


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
