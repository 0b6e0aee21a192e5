"""Supervised training on streams: rows of a task, cut into unrolls, memory carried from one to the next.

    for every row of b streams:                       state = initial_state
        for every unroll of it:                       logits, state = model(unroll, state)
            loss = cross-entropy (or squared error) where asked;   one optimiser step;   state = detach(state)

Without ``unroll`` a row is one unroll, and gradients reach from its end to its beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recollect.agents.sequence_model import SequenceModel, SequenceModelConfig
from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.evaluation.sequences import Evaluation, evaluate
from recollect.objectives.answers import answer_loss, mean_score
from recollect.state import detach, map_state, named_leaves
from recollect.tasks.streams.contract import Batch, StreamTask
from recollect.training.curriculum import Curriculum, CurriculumConfig, require_alike
from recollect.training.frame import below
from recollect.training.optimizers import begin_step, load_optimizer, optimizer_tensors, take_step
from recollect.training.streams import StreamConfig, StreamTrainer


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(StreamConfig):
    """Train a sequence model around a core on a stream task."""

    core: CoreConfig
    """The memory."""
    agent: SequenceModelConfig = field(default_factory=SequenceModelConfig)
    """What surrounds the memory."""
    unroll: int | None = None
    """Steps per optimiser step; the memory is carried on, the gradient is not. None takes whole rows."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """A field of the task that grows with success."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.unroll is None or self.unroll >= 1, "unroll", self.unroll, "give at least one step, or None")
        given = self.agent.given_memory
        if self.task.spec.given_memory:
            remedy = "the task asks about the first episode of a row: choose 'shared' (hcam) or 'streamed'"
            require(given != "none", "agent.given_memory", given, remedy)
        whole = given != "none" or self.agent.whole_rows
        name = "whole_rows" if self.agent.whole_rows else "given_memory"
        require(not whole or self.unroll is None, "unroll", self.unroll, f"{name} needs whole rows: give None")

    @property
    def helps(self) -> tuple[str, ...]:
        """Of core and curriculum."""
        return (*self.core.helps, *self.curriculum.helps)

    @property
    def title(self) -> str:
        """Task and core."""
        return f"{type(self.task).__name__.lower()} · {type(self.core).__name__.removesuffix('Config')}"

    def samples(self, steps: int) -> int:
        """Rows of which at least the first unroll was trained on; where lengths differ, as if all rows were longest."""
        unrolls = 1 if self.unroll is None else -(-self.task.spec.length // self.unroll)
        return super().samples(-(-steps // unrolls))

    def build_agent(self) -> SequenceModel:
        """The model alone, with new weights, on the CPU."""
        spec = self.task.spec
        return self.agent.build(
            self.core, num_classes=spec.num_classes, vocabulary=spec.vocabulary, input_dim=spec.input_dim
        )

    def build(self) -> "SupervisedTrainer":
        """The trainer."""
        return SupervisedTrainer(self)

    def evaluate(
        self,
        model: SequenceModel,
        task: StreamTask | None = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> Evaluation:
        """Score a model on ``samples`` rows it has not seen. See :meth:`TrainerConfig.evaluate`."""
        return evaluate(
            model,
            self.task.scored_on(final=True) if task is None else task,
            num_rows=samples,
            batch_size=self.batch_size if batch_size is None else batch_size,
            seed=seed,
            unroll=self.unroll,
            bfloat16=self.bfloat16,
        )


class SupervisedTrainer(StreamTrainer[SupervisedConfig, SequenceModel]):
    """One optimiser step per unroll."""

    def __init__(self, config: SupervisedConfig) -> None:
        super().__init__(config, config.build_agent())
        curriculum = config.curriculum
        levels = curriculum.levels(config.task)
        require_alike(levels, ("num_classes", "vocabulary", "input_dim"), curriculum.field)
        self.curriculum = Curriculum(curriculum, levels) if curriculum.field else None
        if self.curriculum is not None:
            self.step_metrics += ("level",)
            self.counters += ("level",)
        self.position = 0
        """Step of the row at which the next unroll starts."""
        self.before_row = self.generator.get_state()
        """The generator before it drew the current row: enough to draw it again."""
        self.batch: Batch | None = None
        self.state: Any = None
        self.asked, self.right = 0, 0.0
        """Questions of the current rows so far, and how many of them were answered right; for the curriculum."""

    def step(self) -> dict[str, float]:
        """Train on the next unroll."""
        config = self.config
        if self.position == 0:
            if self.curriculum is not None and self.curriculum.passed:
                self.curriculum.advance()
            self.batch = self._rows()
            self.state = self.model.initial_state(config.batch_size)
        assert self.batch is not None
        length = self.batch.inputs.shape[1]
        stop = length if config.unroll is None else min(self.position + config.unroll, length)
        unroll = self.batch.steps(self.position, stop)

        self.model.train()
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        begin_step(self.optimizer, rate)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
            logits, state = self.model(unroll.inputs, self.state, unroll.is_first, unroll.padding)
        loss = answer_loss(logits, unroll.targets, unroll.loss_mask, self.class_weights)
        numbers = take_step(
            self.model,
            self.optimizer,
            config.optimizer,
            loss,
            finite={"loss": loss},
            others={"accuracy": mean_score(logits.detach(), unroll.targets, unroll.score_mask)},
        )
        self.updates += 1
        self.position = stop % length
        self.state = detach(state)
        if self.position == 0:
            self.before_row = self.generator.get_state()
        if not bool(unroll.score_mask.any()):  # an unroll without a question has no accuracy to report
            del numbers["accuracy"]
        if self.curriculum is not None:
            numbers["level"] = float(self.curriculum.level)
            self._count(int(unroll.score_mask.sum()), numbers.get("accuracy", 0.0))
        return numbers | {"learning_rate": rate}

    def _count(self, asked: int, accuracy: float) -> None:
        """Tell the curriculum of the rows when they end: in unrolls they would be counted again and again."""
        assert self.curriculum is not None
        self.asked, self.right = self.asked + asked, self.right + asked * accuracy
        if self.position == 0:
            score = [self.right / self.asked] if self.asked else []
            self.curriculum.record([score] * self.config.batch_size)
            self.asked, self.right = 0, 0.0

    def _rows(self) -> Batch:
        """The rows that follow ``before_row``."""
        self.generator.set_state(self.before_row)
        task = self.config.task if self.curriculum is None else self.curriculum.task
        return task.sample(self.config.batch_size, self.generator).to(self.device)

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser, data generator and, in the middle of a row, the memory."""
        tensors = {"generator": self.before_row}
        tensors |= {f"optimizer.{name}": value for name, value in optimizer_tensors(self.optimizer).items()}
        if self.position:
            tensors |= {f"memory.{name}": leaf for name, leaf in named_leaves(self.state)}
        data: dict[str, Any] = {"updates": self.updates, "position": self.position}
        if self.curriculum is not None:
            data |= {"curriculum": self.curriculum.save(), "asked": self.asked, "right": self.right}
        return tensors, data

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.updates, self.position = data["updates"], data["position"]
        self.before_row = tensors["generator"]
        load_optimizer(self.optimizer, below("optimizer.", tensors))
        if self.curriculum is not None:
            self.curriculum.load(data["curriculum"])
            # Files of older runs lack them; the present rows then count from here on.
            self.asked, self.right = data.get("asked", 0), data.get("right", 0.0)
        if self.position:
            self.batch = self._rows()
            initial = self.model.initial_state(self.config.batch_size)
            names = iter([name for name, _ in named_leaves(initial)])
            self.state = map_state(lambda leaf: tensors[f"memory.{next(names)}"].to(leaf.device), initial)
