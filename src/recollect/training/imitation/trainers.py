"""Trainers of behavioural cloning: from a teacher that labels rollouts, or from recorded episodes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.evaluation.agents import METRICS
from recollect.evaluation.recorded_score import METRICS as RECORDED_METRICS
from recollect.evaluation.recorded_world import RecordingConfig
from recollect.evaluation.recordings import Recording
from recollect.learners import present
from recollect.state import detach, map_state
from recollect.training.config import evaluation_seed
from recollect.training.devices import choose_device
from recollect.training.imitation.demonstrations import DemonstrationBatches, EpisodeBatches
from recollect.training.imitation.loss import REPORTED, imitation_loss
from recollect.training.imitation.teachers import NamedActions
from recollect.training.impala.config import ImpalaConfig
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.supervision import TrainingAids
from recollect.training.impala.trainer import ImpalaTrainer
from recollect.training.optimizers import Undo, begin_step, load_optimizer, optimizer_tensors, take_step
from recollect.training.trainer import Trainer, below, load_state, state_tensors


class CloningTrainer(ImpalaTrainer):
    """One step imitates on one rollout of ``batch_size`` rows and ``unroll`` steps."""

    step_metrics = tuple(name for name in ImpalaTrainer.step_metrics if name not in ("policy_lag", "policy_loss", "kl"))

    def step(self) -> dict[str, float]:
        """Learn from the next rollout."""
        return {name: value for name, value in super().step().items() if name in self.step_metrics}


class RecordedTrainer(Trainer):
    """One step learns from the next unroll of ``batch_size`` rows of recorded episodes.

    Args:
        learner: agent, optimiser, unroll and batch size.
        recording: the episodes.
        whole: read whole episodes instead of endless rows.
    """

    shares_rows = True
    counters = ("recorded_steps",)
    step_metrics = ("recorded_steps", *REPORTED, "gradient_norm", "learning_rate")

    def __init__(self, learner: ImpalaConfig, recording: Recording, *, whole: bool = False) -> None:
        self.learner = learner
        self.held_out = (
            replace(learner.world, part="validation") if isinstance(learner.world, RecordingConfig) else None
        )
        self.evaluation_metrics = METRICS if self.held_out is None else RECORDED_METRICS
        self.device = choose_device(learner.device)
        self.model = learner.build_agent().to(self.device)
        self.optimizer = learner.optimizer.build(self.model)
        self.generator = torch.Generator()
        batches = EpisodeBatches if whole else DemonstrationBatches
        self.learners = present()
        own = self.learners.rows(learner.batch_size)
        self.batches = batches(recording, learner.batch_size, self.device, learner.fit.seed, own)
        self.aids = TrainingAids(teacher=NamedActions(), imitates=True)
        self.state: Any = detach(self.model.initial_state(self.learners.share(learner.batch_size)))
        self.updates = 0
        self.recorded_steps = 0

    @property
    def agent(self) -> ActorCritic:
        """The agent that learns."""
        return self.model

    def step(self) -> dict[str, float]:
        """Learn from the next unroll."""
        learner = self.learner
        rate = learner.optimizer.rate(self.updates, learner.fit.steps)
        before = self.batches.tensors()
        undo = Undo(self.model, self.optimizer, self.generator) if self.model.keeps_statistics else None
        self.model.train()
        try:
            rollout = self.batches.take(learner.unroll, self.state)
            if undo is not None:
                seen = rollout.seen
                self.model.update_statistics(map_observation(lambda leaf: leaf[seen][None], rollout.observation))
                # Without these the first values would be compared with returns of unknown size.
                if self.updates == 0 and self.model.norm_values is not None:
                    with torch.no_grad():
                        losses = imitation_loss(self.model, rollout, self.aids, learner.loss)
                    self._update_return_statistics(losses.targets, rollout)
            begin_step(self.optimizer, rate)
            losses = imitation_loss(self.model, rollout, self.aids, learner.loss, bfloat16=learner.bfloat16)
            numbers = take_step(self.model, self.optimizer, learner.optimizer, losses.loss, finite=losses.scalars())
        except BaseException:
            self.batches.load(before)
            if undo is not None:
                undo()
            raise
        self._update_return_statistics(losses.targets, rollout)
        if self.batches.carries:
            self.state = losses.state
        self.updates += 1
        steps = rollout.valid.numel() if self.batches.carries else int(rollout.valid.sum())
        self.recorded_steps += int(self.learners.sum(steps)[0])
        return numbers | {"learning_rate": rate, "recorded_steps": float(self.recorded_steps)}

    def _update_return_statistics(self, targets: Tensor | None, rollout: Rollout) -> None:
        if targets is not None:
            self.model.update_return_statistics(targets[rollout.valid])

    def evaluate(self) -> dict[str, float]:
        """Score in fresh episodes of the world, or on held-out episodes; the same at every evaluation."""
        seed, number = evaluation_seed(self.learner.fit.seed), self.learner.evaluation.episodes
        return self.learner.evaluate(self.model, self.held_out, samples=number, seed=seed).metrics()

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return optimiser, memory, and the position in the episodes."""
        tensors = optimizer_tensors(self.optimizer) | state_tensors(
            "memory.", map_state(self.learners.whole, self.state)
        )
        tensors |= {f"rows.{name}": value for name, value in self.batches.tensors().items()}
        return tensors, {"updates": self.updates, "recorded_steps": self.recorded_steps}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from the return values of :meth:`save`."""
        self.updates, self.recorded_steps = data["updates"], data["recorded_steps"]
        load_optimizer(self.optimizer, tensors)
        self.batches.load(below("rows.", tensors))
        whole = load_state("memory.", tensors, self.state)
        own = self.learners.rows(self.learner.batch_size)
        self.state = map_state(lambda leaf: leaf[own], whole)
