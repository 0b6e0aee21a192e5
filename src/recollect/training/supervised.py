"""Supervised training on streams: rows of a task, cut into unrolls, memory carried from one to the next.

    for every row of b streams:                       state = initial_state
        for every unroll of it:                       logits, state = model(unroll, state)
            loss = cross-entropy where asked;         one optimiser step;   state = detach(state)

Without ``unroll`` a row is one unroll, and gradients reach from its end to its beginning.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recollect.agents.sequence_model import SequenceModel, SequenceModelConfig
from recollect.config import require
from recollect.cores.contract import CoreConfig
from recollect.evaluation.sequences import METRICS, evaluate
from recollect.objectives.cross_entropy import accuracy, cross_entropy
from recollect.state import detach, map_state, named_leaves
from recollect.tasks.streams.contract import Batch, StreamTask
from recollect.training.devices import choose_device
from recollect.training.fit import NonFiniteError, Trainer, TrainerConfig, below
from recollect.training.optimizers import OptimizerConfig, load_optimizer, optimizer_tensors, set_rate

# Training draws its rows with the run's seed, evaluation with this much more: never the same rows.
EVALUATION_SEED = 1_000_003


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(TrainerConfig):
    """Train a sequence model around a core on a stream task."""

    task: StreamTask
    """What is learned."""
    core: CoreConfig
    """The memory."""
    agent: SequenceModelConfig = field(default_factory=SequenceModelConfig)
    """What surrounds the memory."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimiser and schedule."""
    batch_size: int = 64
    """Rows that are trained together."""
    unroll: int | None = None
    """Steps per optimiser step; the memory is carried on, the gradient is not. None takes whole rows."""
    evaluation_rows: int = 256
    """Fresh rows of an evaluation; the same ones every time."""
    bfloat16: bool = False
    """Compute in bfloat16 where torch's autocast does."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..., or auto for an accelerator when there is one."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "train at least one row")
        require(self.unroll is None or self.unroll >= 1, "unroll", self.unroll, "give at least one step, or None")
        require(self.evaluation_rows >= 1, "evaluation_rows", self.evaluation_rows, "evaluate at least one row")

    @property
    def title(self) -> str:
        """Task and core."""
        return f"{type(self.task).__name__.lower()} · {type(self.core).__name__.removesuffix('Config')}"

    def build_agent(self) -> SequenceModel:
        """The model alone, with fresh weights, on the CPU."""
        spec = self.task.spec
        return self.agent.build(
            self.core, num_classes=spec.num_classes, vocabulary=spec.vocabulary, input_dim=spec.input_dim
        )

    def build(self) -> "SupervisedTrainer":
        """The trainer."""
        return SupervisedTrainer(self)


class SupervisedTrainer(Trainer):
    """One optimiser step per unroll."""

    step_metrics = ("loss", "accuracy", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: SupervisedConfig) -> None:
        self.config = config
        self.device = choose_device(config.device)
        self.model = config.build_agent().to(self.device)
        self.optimizer = config.optimizer.build(self.model)
        self.generator = torch.Generator().manual_seed(config.fit.seed)
        self.updates = 0
        self.position = 0
        """Step of the row at which the next unroll starts."""
        self.before_row = self.generator.get_state()
        """The generator before it drew the current row: enough to draw it again."""
        self.batch: Batch | None = None
        self.state: Any = None

    @property
    def agent(self) -> SequenceModel:
        """The model."""
        return self.model

    def step(self) -> dict[str, float]:
        """Train on the next unroll."""
        config = self.config
        if self.position == 0:
            self.generator.set_state(self.before_row)
            self.batch = config.task.sample(config.batch_size, self.generator).to(self.device)
            self.state = self.model.initial_state(config.batch_size)
        assert self.batch is not None
        length = self.batch.inputs.shape[1]
        stop = length if config.unroll is None else min(self.position + config.unroll, length)
        unroll = self.batch.steps(self.position, stop)

        self.model.train()
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        set_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
            logits, state = self.model(unroll.inputs, self.state, unroll.is_first)
        loss = cross_entropy(logits, unroll.targets, unroll.loss_mask)
        loss.backward()
        norm = config.optimizer.clip(self.model)
        numbers = torch.stack((loss.detach(), norm, accuracy(logits.detach(), unroll.targets, unroll.score_mask)))
        loss_value, norm_value, accuracy_value = numbers.tolist()  # one wait for the device
        for name, value in (("loss", loss_value), ("gradient norm", norm_value)):
            if not math.isfinite(value):
                self.optimizer.zero_grad(set_to_none=True)
                raise NonFiniteError(f"the {name} is {value}")
        self.optimizer.step()

        self.updates += 1
        self.position = stop % length
        self.state = detach(state)
        if self.position == 0:
            self.before_row = self.generator.get_state()
        metrics = {"loss": loss_value, "gradient_norm": norm_value, "learning_rate": rate}
        # An unroll without a question has no accuracy to report.
        return metrics | ({"accuracy": accuracy_value} if bool(unroll.score_mask.any()) else {})

    def evaluate(self) -> dict[str, float]:
        """Score on fresh rows, the same at every evaluation."""
        config = self.config
        return evaluate(
            self.model,
            config.task,
            rows=config.evaluation_rows,
            batch_size=config.batch_size,
            seed=config.fit.seed + EVALUATION_SEED,
            unroll=config.unroll,
            bfloat16=config.bfloat16,
        ).metrics()

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser, data generator and, in the middle of a row, the memory."""
        tensors = {"generator": self.before_row}
        tensors |= {f"optimizer.{name}": value for name, value in optimizer_tensors(self.optimizer).items()}
        if self.position:
            tensors |= {f"memory.{name}": leaf for name, leaf in named_leaves(self.state)}
        return tensors, {"updates": self.updates, "position": self.position}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.updates, self.position = data["updates"], data["position"]
        self.before_row = tensors["generator"]
        load_optimizer(self.optimizer, below("optimizer.", tensors))
        if self.position:
            self.generator.set_state(self.before_row)
            self.batch = self.config.task.sample(self.config.batch_size, self.generator).to(self.device)
            fresh = self.model.initial_state(self.config.batch_size)
            names = iter([name for name, _ in named_leaves(fresh)])
            self.state = map_state(lambda leaf: tensors[f"memory.{next(names)}"].to(leaf.device), fresh)
