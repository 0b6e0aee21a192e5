"""Training aids: one stage of the loss, with a teacher beside reinforcement and targets from the world's ground truth.

    L = L_IMPALA + c D + w (label_cost L_label + attention_cost L_attention)
    L = L_imitation    + w (label_cost L_label + attention_cost L_attention + decision_cost D_decisions)
    w = max(0, 1 - update / (until updates))

D is the divergence from the teacher, with a weight c that falls to 0 (imitation/teachers.py); D_decisions is that at
the steps whose decision depends on the past. ``L_label`` asks a linear head behind the core to name the world's label;
``L_attention`` asks the core's attention to fall on the steps ``start .. stop - 1`` of the ground truth. All are sums
(or means) over the steps that have a target, like the policy loss, and a step's cross-entropy has the size of its
policy loss with an advantage of 1: a cost of 1 is the ratio 1 : 1 at the start of a world whose episodes are worth 1.

Attention is recorded through Taps, with gradients: the weights of every layer's window in ``transformer-xl`` and
``causal-transformer``, and in ``hcam`` the softmax over all chunks before k of them are chosen; with ``inside`` the
weights of the steps inside the chunks that are read, times the relevance of their chunk. Mass is averaged over heads
and layers before the log, so that some of them suffice. Only steps whose interval is in the past and in some place of
the memory have a target.

The critic reads nothing that the agent does not: privileged critics hurt recall (arXiv 2509.26000).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.policies import Distribution
from recollect.config import require
from recollect.cores.contract import MemoryCore
from recollect.layers.tap import Tap, listen, multiply_by_relevance
from recollect.learners import total as total_of_learners
from recollect.objectives.policy_gradient import Reduction, reduce_steps
from recollect.objectives.privileged_targets import attention_loss, interval_mass, label_loss
from recollect.tasks.worlds.contract import World
from recollect.training.imitation.teachers import Teacher
from recollect.training.impala.config import SupervisionConfig
from recollect.training.impala.rollouts import Rollout


class Losses(NamedTuple):
    """Loss of a rollout, and scalars to report."""

    loss: Tensor
    """The weighted sum, to differentiate."""
    metrics: dict[str, Tensor]
    """Scalars by name, without their weights."""
    targets: Tensor | None
    """Targets of the values, ``[b, T]``; constants, 0 where not valid. None where values are not trained."""
    state: object
    """Memory after the rollout; a constant."""
    log_prob: Tensor | None = None
    """Log-probabilities of the actions under the policy that learns, ``[b, T]``; constants."""

    def scalars(self) -> dict[str, Tensor]:
        """Return the loss and the metrics, which must all be finite."""
        return {"loss": self.loss, **self.metrics}


@dataclass(frozen=True)
class TrainingAids:
    """Training aids of one update; none by default."""

    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    """Costs of the targets."""
    weight: float = 0.0
    """Present factor of these costs; 0 computes no targets."""
    teacher: Teacher | None = None
    """Teacher that made the target of the rollout."""
    teacher_cost: float = 0.0
    """Weight of the divergence from the teacher, added to the reinforcement loss."""
    imitates: bool = False
    """Whether the update only imitates: the divergence is then no aid but the loss itself."""

    def record_attention(
        self, core: MemoryCore, rollout: Rollout
    ) -> "AbstractContextManager[AttentionRecorder | None]":
        """Return a context for the forward call; it records the attention if that has targets."""
        if self.weight and self.supervision.attention_cost:
            return AttentionRecorder(core, rollout.truth, self.supervision.inside)
        return nullcontext()

    def divergence(self, policy: Distribution, rollout: Rollout) -> Tensor | None:
        """Return the divergence of the agent's policy at rows 0 .. T - 1 from the teacher, ``[b, T]``, if any."""
        if self.teacher is None:
            return None
        assert rollout.target is not None
        return self.teacher.divergence(policy, rollout.target)

    def add_losses(
        self,
        total: Tensor,
        agent: ActorCritic,
        rollout: Rollout,
        features: Tensor,
        attention: "AttentionRecorder | None",
        divergence: Tensor | None,
        reduction: Reduction,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the losses of all aids to a loss.

        Args:
            total: the loss without them.
            agent: that learns.
            rollout: of T steps.
            features: of the agent at rows 0 .. T - 1, ``[b, T, d]``.
            attention: recorded while the agent ran over these rows, or one more; None without targets.
            divergence: from the teacher, ``[b, T]``; None without one.
            reduction: over the steps.

        Returns:
            The new loss, and scalars to report.
        """
        config, metrics = self.supervision, {}
        if divergence is not None and not self.imitates:
            metrics["imitation_loss"] = reduce_steps(divergence, rollout.valid, reduction)
            total = total + self.teacher_cost * metrics["imitation_loss"]
        if not self.weight:
            return total, metrics
        loss = features.new_zeros((), dtype=torch.float32)
        if config.label_cost:
            labels = rollout.truth["label"][:, : features.shape[1]]
            logits = agent.predict_labels(features)
            metrics["label_loss"] = label_loss(logits, labels, reduction=reduction)
            right = (logits.detach().argmax(-1) == labels).sum()
            metrics["label_accuracy"] = right / total_of_learners((labels >= 0).sum()).clamp(min=1)
            loss = loss + config.label_cost * metrics["label_loss"]
        if attention is not None:
            mass, reached = (part[:, : features.shape[1]] for part in attention.mass())
            metrics["attention_loss"] = attention_loss(mass, reached, reduction=reduction)
            loss = loss + config.attention_cost * metrics["attention_loss"]
        total = total + self.weight * loss
        if self.imitates and config.decision_cost:
            assert divergence is not None
            decisions = rollout.valid & depends_on_past(rollout.truth, features.shape[1])
            metrics["decision_loss"] = reduce_steps(divergence, decisions, reduction)
            total = total + self.weight * config.decision_cost * metrics["decision_loss"]
        return total, metrics


def require_targets(config: SupervisionConfig, world: World, core: MemoryCore) -> None:
    """Raise ``ValueError`` unless the world and the core have the targets of a config."""
    name = type(world).__name__
    if config.label_cost:
        missing = f"{name} names nothing that must be remembered (Truth.label, spec.num_labels): use 0 here"
        truth = world.truth() if world.spec.num_labels else None
        require(truth is not None and truth.label is not None, "label_cost", config.label_cost, missing)
    missing = f"{name} has no ground truth about its decisions (World.truth): use 0 here"
    for cost in ("decision_cost", "attention_cost"):
        if getattr(config, cost):
            require(world.truth() is not None, cost, getattr(config, cost), missing)
    if config.attention_cost:
        clock = torch.zeros(1, 1, dtype=torch.long)
        missing = f"this {type(core).__name__} does not attend to steps of the episode (recalled_steps): use 0 here"
        require(bool(core.recalled_steps(clock)), "attention_cost", config.attention_cost, missing)


def depends_on_past(truth: dict[str, Tensor], steps: int) -> Tensor:
    """Return where the first steps of a rollout depend on what is past: bool ``[b, steps]``."""
    clock, start, stop = (truth[part][:, :steps] for part in ("clock", "start", "stop"))
    return (start >= 0) & (stop <= clock)


class AttentionRecorder:
    """A context that records the attention of a core, with gradients, as mass on the intervals of the ground truth.

    Args:
        core: that is called once in this context.
        truth: of the rows of that call: ``clock``, ``start``, ``stop``, long ``[b, t]``.
        inside: record the steps inside chunks.
    """

    def __init__(self, core: MemoryCore, truth: dict[str, Tensor], inside: bool = False) -> None:
        self.core, self.truth = core, truth
        self.inside, self.places = inside, core.read_steps if inside else core.recalled_steps
        self.relevance: dict[str, Tensor] = {}
        """Relevance of the chunks whose steps are recorded next, by the name of the steps' Tap."""
        self.recorded: dict[str, list[tuple[Tensor, Tensor]]] = {}
        """Mass and reach of every part of the call, by the name of the Tap."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        modules = dict(self.core.named_modules())
        for name in self.places(self.truth["clock"][:, :1]):
            self._listen(name, lambda weights, name=name: self._record(name, weights))
            relevance = f"{name.removesuffix('tap')}relevance_tap"  # of the chunks beside the steps inside them
            if self.inside and relevance in modules:
                self._listen(relevance, lambda weights, name=name: self.relevance.update({name: weights}))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _listen(self, name: str, receive: Callable[[Tensor], None]) -> None:
        tap = self.core.get_submodule(name)
        assert isinstance(tap, Tap)
        self._stack.enter_context(listen(tap, lambda _, weights: receive(weights), gradients=True))

    def _record(self, name: str, weights: Tensor) -> None:
        """Record ``[b, t, s]``, ``[b, h, t, s]`` or ``[b, h, t, n, c]`` of the next t steps; long calls have parts."""
        if weights.ndim == 5:
            weights = multiply_by_relevance(weights, self.relevance[name]).mean(1).flatten(-2)
        weights = weights.mean(1) if weights.ndim == 4 else weights
        parts = self.recorded.setdefault(name, [])
        began = sum(part.shape[1] for part, _ in parts)
        now = slice(began, began + weights.shape[1])
        clock, start, stop = (self.truth[part][:, now] for part in ("clock", "start", "stop"))
        past = torch.where(stop <= clock, start, -1)
        parts.append(interval_mass(weights, self.places(clock)[name], past, stop))

    def mass(self) -> tuple[Tensor, Tensor]:
        """Return the mass on the intervals, the mean over layers ``[b, t]``, and where there is a target ``[b, t]``."""
        layers = [[torch.cat(side, 1) for side in zip(*parts, strict=True)] for parts in self.recorded.values()]
        masses, reached = zip(*layers, strict=True)
        return torch.stack(masses).mean(0), torch.stack(reached).any(0)
