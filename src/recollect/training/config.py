"""Settings that all trainers share: length, optimiser, and what is trained on.

A trainer is a :class:`TrainerConfig` and the :class:`~recollect.training.trainer.Trainer` that it builds. The rest of
the library uses these two interfaces only. Nothing here imports torch before something is built.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_type_hints

from recollect.agents.model_spec import ModelSpec
from recollect.config import CheckedConfig, require, require_one_of, require_types, to_json
from recollect.evaluation.recorded_world import RecordingConfig
from recollect.lazy import gymnasium, torch
from recollect.tasks import TASKS
from recollect.tasks.streams.contract import StreamTask
from recollect.tasks.worlds.contract import WorldConfig

if TYPE_CHECKING:
    from recollect.evaluation.agent_videos import Video
    from recollect.evaluation.recordings import Recording
    from recollect.evaluation.score import Score
    from recollect.training.trainer import Trainer

EVALUATION_SEED = 1_000_003
"""Seed of the evaluations during a run of seed 0, whose data are never trained on."""
FRESH_SEED = 2_000_003
"""Seed of the first evaluation of a finished run, whose data no run has seen."""
SEED_DISTANCE = 1009
"""Distance of the seeds of two evaluations: Gymnasium numbers the rows of a batch upwards from its seed."""


def evaluation_seed(seed: int) -> int:
    """Return the seed of the evaluations during the run of a seed."""
    return (EVALUATION_SEED + SEED_DISTANCE * seed) % 2**32  # seeds may be negative or a time in seconds


def fresh_seed(seed: int) -> int:
    """Return the seed of an evaluation of a finished run."""
    return (FRESH_SEED + SEED_DISTANCE * seed) % 2**32


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Length, reports, evaluations and checkpoints of a run."""

    steps: int = 1000
    """Optimiser steps."""
    seed: int = 0
    """Seed of weights, data and dropout."""
    report_every: int = 50
    """Steps between rows of metrics.csv (means since the previous row)."""
    report_seconds: float | None = 30.0
    """Most seconds between rows: a slow run writes more of them; training does not change. None counts steps only."""
    evaluate_every: int = 250
    """Steps between evaluations; the last step is always evaluated."""
    checkpoint_every: int = 250
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints to keep."""
    stop_score: float | None = None
    """End early when an evaluation reaches this score. None trains all steps."""
    processor_seconds: float | None = None
    """End early when the steps have taken this much processor time, all threads together: runs that are compared get
    the same compute, however busy the machine is. None sets no limit."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("steps", "report_every", "evaluate_every", "checkpoint_every", "keep_checkpoints"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least 1")
        require(-(2**63) <= self.seed < 2**63, "seed", self.seed, "give a whole number of 64 bits")
        for name in ("report_seconds", "processor_seconds"):
            seconds = getattr(self, name)
            require(seconds is None or seconds > 0, name, seconds, "give some seconds, or None")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """An optimiser, and how its learning rate moves.

    TorchBeast's RMSprop is ``OptimizerConfig(algorithm="rmsprop", learning_rate=4.8e-4, smoothing=0.99, epsilon=0.01,
    schedule="linear", clip_norm=40.0)``.
    """

    algorithm: Literal["adamw", "adam", "rmsprop"] = "adamw"
    """AdamW; Adam, which adds weight decay to the gradient; RMSprop without momentum, not centred."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine", "rsqrt"] = "constant"
    """After warm-up: constant; a line or a cosine that is 0 after the last step; proportional to 1 / sqrt(step)."""
    floor: float = 0.0
    """Lowest share of the peak that a line or a cosine reaches."""
    warmup_steps: int = 0
    """Steps over which the rate rises linearly from 0."""
    weight_decay: float = 0.0
    """Weight decay of parameters with two axes or more: weights of linear maps and convolutions, but also learned
    tables of positions, tokens and slots. Biases, norms and nn.Embedding are excluded. 0 makes AdamW plain Adam."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Averaging factors of the gradient and of its square, for Adam and AdamW."""
    smoothing: float = 0.99
    """Averaging factor of the squared gradient, for RMSprop."""
    epsilon: float = 1e-8
    """Added to the root of the averaged square."""
    clip_norm: float | None = 1.0
    """Largest norm of the gradient; larger ones are scaled down. None does not clip."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "algorithm", "schedule")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "give a positive rate")
        require(0 <= self.floor <= 1, "floor", self.floor, "give a share of the peak, from 0 to 1")
        require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, "give 0 or more")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "give 0 or more")
        require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "give two factors from 0 to below 1")
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "give a factor from 0 to below 1")
        require(self.epsilon > 0, "epsilon", self.epsilon, "give a small positive number")
        clip = self.clip_norm
        require(clip is None or clip > 0, "clip_norm", clip, "give a positive length, or None")

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of step ``step`` (from 0) of ``steps``."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.schedule == "rsqrt":
            return self.learning_rate * math.sqrt(max(self.warmup_steps, 1) / max(step, 1))
        share = (step - self.warmup_steps) / max(steps - self.warmup_steps, 1)
        if self.schedule == "linear":
            return self.learning_rate * max(self.floor, 1 - share)
        if self.schedule == "cosine":
            return self.learning_rate * max(self.floor, 0.5 * (1 + math.cos(math.pi * share)))
        return self.learning_rate

    def build(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """Make the optimiser of a model's parameters.

        Weight decay excludes parameters with one axis and those of ``nn.Embedding``. Tables of positions, class tokens
        and first slots that are parameters of their own are decayed, even where a paper decays linear maps alone.
        """
        embeddings = (module for module in model.modules() if isinstance(module, torch.nn.Embedding))
        excluded = {id(p) for module in embeddings for p in module.parameters()}
        decayed = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in excluded]
        others = [p for p in model.parameters() if p.ndim < 2 or id(p) in excluded]
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        if self.algorithm == "rmsprop":
            return torch.optim.RMSprop(groups, lr=self.learning_rate, alpha=self.smoothing, eps=self.epsilon)
        build = torch.optim.AdamW if self.algorithm == "adamw" else torch.optim.Adam
        return build(groups, lr=self.learning_rate, betas=self.betas, eps=self.epsilon, fused=True)

    def clip(self, model: torch.nn.Module) -> torch.Tensor:
        """Scale the gradient down to ``clip_norm`` and return its norm before, a scalar."""
        limit = math.inf if self.clip_norm is None else self.clip_norm
        return torch.nn.utils.clip_grad_norm_(model.parameters(), limit)


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(CheckedConfig, ABC):
    """Every setting of a run."""

    fit: FitConfig = field(default_factory=FitConfig)
    """Length, evaluations, reports and checkpoints of the run."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..., or auto for an accelerator when there is one."""

    task_field: ClassVar[str] = "task"
    """Field with the task or world that is trained on."""
    final_samples: ClassVar[int] = 512
    """Rows or episodes that score a finished run, unless another number is given."""
    if TYPE_CHECKING:  # declared by subclasses, in the order of their flags
        optimizer: OptimizerConfig
        bfloat16: bool

    @property
    def has_films(self) -> bool:
        """Whether episodes can be filmed: the agent acts in a world."""
        return False

    @property
    def has_predictions(self) -> bool:
        """Whether evaluations keep answers beside the right ones: :attr:`Evaluation.predictions`."""
        return False

    @property
    def teacher_description(self) -> str | None:
        """Teacher of the run as tables name it; None without one."""
        return None

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids beyond the trainer's own method, a few words each; tables name them."""
        return ()

    @property
    def trained_on(self) -> Any:
        """The stream task or the config of the world that the model learns."""
        return getattr(self, self.task_field)

    @property
    def model_spec(self) -> ModelSpec:
        """Names and units of the model, for its folder."""
        kind = str(to_json(self.trained_on, TASKS)["kind"])
        return ModelSpec(title=self.title, task=kind, teacher=self.teacher_description, **self._model_names())

    def _model_names(self) -> Mapping[str, Any]:
        """Return the fields of a :class:`ModelSpec` that the task knows."""
        return {}

    @classmethod
    def task_class(cls) -> type:
        """Return the class of the tasks that it can be trained on."""
        return get_type_hints(cls)[cls.task_field]

    def learning_rate(self, step: int) -> float | None:
        """Return the learning rate of a step (from 0); None where a trainer has no single one."""
        optimizer: OptimizerConfig | None = getattr(self, "optimizer", None)
        return None if optimizer is None else optimizer.rate(step, self.fit.steps)

    def schedules(self, step: int) -> dict[str, float]:
        """Return the numbers of a step (from 0) that may depend on the length of the run, by name."""
        rate = self.learning_rate(step)
        return {} if rate is None else {"the learning rate": rate}

    def moved_schedules(self, before: TrainerConfig, step: int) -> list[str]:
        """Return one line for every schedule that a step (from 0) has at another place than with the config before."""
        old = before.schedules(step)
        return [
            f"{name} falls towards the last step, which is now {self.fit.steps} instead of {before.fit.steps}: it "
            f"continues at {value:.3g} (it would have been {old[name]:.3g})"
            for name, value in self.schedules(step).items()
            if old.get(name, value) != value
        ]

    @abstractmethod
    def build(self) -> Trainer:
        """Make the trainer, with new weights from the global generator."""

    @abstractmethod
    def build_agent(self) -> torch.nn.Module:
        """Build the agent with new weights, on the CPU."""

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
            model: made by :meth:`build_agent`, with its weights.
            task: to score it on; None takes its own.
            samples: rows or episodes that are scored.
            seed: of the rows or the world.
            batch_size: rows at a time; None takes the run's own.
            greedy: take the likeliest action, or else draw from the policy; None does as the run's own evaluations.
                Not used by tasks without actions.
        """

    def film(self, model: Any, target: Path, *, episodes: int, seed: int, greedy: bool | None = None) -> Video:
        """Record episodes as ``target.mp4`` and ``target.gif``; only where :attr:`has_films`."""
        raise ValueError(f"{self.title}: only runs in a world can be filmed")

    def record(
        self, model: Any, *, episodes: int, seed: int, greedy: bool | None = None, noise: Sequence[float] = ()
    ) -> Recording:
        """Play episodes and return their recording; only where :attr:`has_films`."""
        raise ValueError(f"{self.title}: only runs in a world have episodes to record")

    @abstractmethod
    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Return how much data the run consumed, for a file of results.

        Args:
            rows: of its metrics.csv.

        Returns:
            JSON data with the key ``samples_to_perfect``, None where it is not known.
        """


@dataclass(frozen=True, kw_only=True)
class StreamConfig(TrainerConfig):
    """Train a model on the rows of a stream task."""

    task: StreamTask
    """Task to learn."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimiser and schedule, over all steps."""
    batch_size: int = 64
    """Rows that are trained together."""
    evaluation_rows: int = 256
    """Rows of an evaluation, the same ones every time; at most the validation part, for data that has one."""
    bfloat16: bool = False
    """Compute in bfloat16 where torch's autocast does."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "train at least one row")
        require(self.evaluation_rows >= 1, "evaluation_rows", self.evaluation_rows, "evaluate at least one row")

    @property
    def has_predictions(self) -> bool:
        """Whether `--predictions` can write the answers of asked steps."""
        return True

    @property
    def title(self) -> str:
        """Task, and core or encoder."""
        reader = getattr(self, "core", None) or getattr(self, "encoder", None)
        cls = type(self.task)
        name = next((key for key, known in TASKS.items() if known is cls), cls.__name__)
        return f"{name} · {type(reader).__name__.removesuffix('Config')}"

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
        """Score a model on ``samples`` rows it has not seen. See :meth:`TrainerConfig.evaluate`."""
        where = self.task.scored_on(final=True) if task is None else task
        return self.score(model, where, samples, seed, self.batch_size if batch_size is None else batch_size)

    def _model_names(self) -> Mapping[str, Any]:
        return self.task.model_names()

    @abstractmethod
    def score(self, model: Any, task: Any, samples: int, seed: int, batch_size: int) -> Score:
        """Score a model on rows of a task."""

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Return the rows that were trained on, and how many of them until a first perfect evaluation."""
        perfect = [int(row["step"]) for row in rows if row["score"] and float(row["score"]) >= 1.0]
        return {
            "samples": self.samples(int(rows[-1]["step"])),
            "samples_to_perfect": self.samples(perfect[0]) if perfect else None,
        }

    def samples(self, steps: int) -> int:
        """Return the number of rows that so many optimiser steps trained on."""
        return steps * self.batch_size


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation of the agent in fresh episodes of its world, always the same ones."""

    episodes: int = 128
    """Episodes of an evaluation."""
    greedy: bool = True
    """Take the likeliest action; else draw from the policy, as in training."""
    time_limit: float = 3600.0
    """Seconds that an evaluation may take before the world is reported to hang, or never to end."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.time_limit > 0, "time_limit", self.time_limit, "give some seconds")
        require(self.episodes >= 1, "episodes", self.episodes, "evaluate at least one")


@dataclass(frozen=True, kw_only=True)
class ActingConfig(TrainerConfig):
    """Train an agent that acts in a world; its episodes can be filmed and recorded."""

    task_field: ClassVar[str] = "world"
    final_samples: ClassVar[int] = 128

    world: WorldConfig
    """World in which the agent is scored; agents that learn by acting also learn there."""
    if TYPE_CHECKING:
        core: Any
        evaluation: Any
        batch_size: int

    @property
    def has_films(self) -> bool:
        """Everywhere but on recorded episodes alone."""
        return not isinstance(self.world, RecordingConfig)

    @property
    def has_predictions(self) -> bool:
        """Actions of held-out episodes, where each is one class or floats."""
        return not self.has_films and not isinstance(self.world.spec.action_space, gymnasium.spaces.MultiDiscrete)

    @property
    def title(self) -> str:
        """Names of the world and of the core."""
        return f"{self.world.title} · {type(self.core).__name__.removesuffix('Config')}"

    def _model_names(self) -> Mapping[str, Any]:
        spec = self.world.spec
        return {"action_names": spec.action_names, "words": spec.words}

    def is_greedy(self, greedy: bool | None) -> bool:
        """Return ``greedy``, or where it is None whether the run's own evaluations take the likeliest action."""
        return self.evaluation.greedy if greedy is None else greedy

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
        """Score an agent in ``samples`` fresh episodes. See :meth:`TrainerConfig.evaluate`."""
        from recollect.evaluation.agents import evaluate_agent
        from recollect.evaluation.recorded_score import score_recorded

        where = self.world if task is None else task
        model.require_actions(where.spec.action_space, where.title)
        if isinstance(where, RecordingConfig):
            number = self.batch_size if batch_size is None else batch_size
            return score_recorded(model, where, episodes=samples, batch_size=number, bfloat16=self.bfloat16)
        return evaluate_agent(
            model,
            where,
            samples,
            seed=seed,
            greedy=self.is_greedy(greedy),
            batch_size=self.batch_size if batch_size is None else batch_size,
            time_limit=self.evaluation.time_limit,
        )

    def film(self, model: Any, target: Path, *, episodes: int, seed: int, greedy: bool | None = None) -> Video:
        """Record a video of episodes in the world of the run."""
        from recollect.evaluation.agent_videos import record_video

        return record_video(model, self.world, target, episodes=episodes, seed=seed, greedy=self.is_greedy(greedy))

    def record(
        self, model: Any, *, episodes: int, seed: int, greedy: bool | None = None, noise: Sequence[float] = ()
    ) -> Recording:
        """Play episodes in the world of the run and return their recording."""
        from recollect.evaluation.recordings import record_episodes

        how = self.is_greedy(greedy)
        return record_episodes(model, self.world, episodes, seed=seed, greedy=how, noise=noise)
