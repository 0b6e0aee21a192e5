"""Behavioural cloning: learn to act like a teacher, in a world.

With a teacher that labels any state (an oracle, a trained run) this is IMPALA's loop with another loss: actors play,
and the teacher labels the steps that they reach (imitation/teachers.py). Recorded episodes are read instead of played
(imitation/demonstrations.py). Either way the agent is IMPALA's: ``recollect train --from RUN`` reinforces it.

Sources: Ross et al. (2011), A reduction of imitation learning and structured prediction to no-regret online learning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from recollect.agents.config import ActorCriticConfig
from recollect.config import require, require_types
from recollect.cores.config import CoreConfig
from recollect.evaluation.recorded_world import RecordingConfig
from recollect.training.config import ActingConfig, EvaluationConfig, OptimizerConfig
from recollect.training.imitation.config import ImitationConfig, TeacherConfig
from recollect.training.impala.config import ImpalaConfig, LossConfig, ReuseConfig, SupervisionConfig, VTraceConfig

if TYPE_CHECKING:
    from recollect.agents.actor_critic import ActorCritic
    from recollect.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class CloningLossConfig:
    """Losses added to the divergence from the teacher."""

    baseline_cost: float = 0.5
    """Weight of the value's loss; 0 does not train the value."""
    discount: float = 0.99
    """gamma of the returns that the value is trained on."""
    lambda_: float = 0.95
    """lambda of their TD(lambda) targets: 1 takes whole returns, as far as the unroll reaches; 0 one step."""
    reconstruction_cost: float = 1.0
    """Weight of the reconstruction losses of an agent with ``reconstruct``."""
    reduction: Literal["sum", "mean"] = "mean"
    """Over the steps of a rollout: their mean, or their sum."""
    reward_clip: float | None = None
    """Bound on the absolute rewards that the value is trained on."""
    passes: int = 1
    """Times that a rollout is learned from before the next is played. Not used for recorded episodes."""
    minibatches: int = 1
    """Parts, by rows, that each pass is cut into; one optimiser step each. Not used for recorded episodes."""
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    """Targets from the world's ground truth, in addition to the teacher. Not used for recorded episodes."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.lambda_ <= 1, "lambda_", self.lambda_, "give a share in [0, 1]")
        self.loss_config(ImitationConfig())  # checks the others

    def loss_config(self, imitation: ImitationConfig) -> LossConfig:
        """Return the same settings as IMPALA's loss has them."""
        return LossConfig(
            baseline_cost=self.baseline_cost,
            discount=self.discount,
            vtrace=VTraceConfig(lambda_=self.lambda_),
            reconstruction_cost=self.reconstruction_cost,
            reduction=self.reduction,
            reward_clip=self.reward_clip,
            reuse=ReuseConfig(passes=self.passes, minibatches=self.minibatches),
            supervision=self.supervision,
            imitation=imitation,
        )


@dataclass(frozen=True, kw_only=True)
class CloningConfig(ActingConfig):
    """Train an agent around a core to act like a teacher."""

    core: CoreConfig
    """Memory of the agent."""
    agent: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    """Model around the memory."""
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    """Teacher that is imitated."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(algorithm="adam", learning_rate=1e-3, clip_norm=1.0)
    )
    """Optimiser and schedule."""
    loss: CloningLossConfig = field(default_factory=CloningLossConfig)
    """Costs, and the targets of the value."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Episodes that score the agent."""
    batch_size: int = 32
    """Episodes that are played, or read, at a time."""
    unroll: int = 32
    """T: steps of a rollout. Gradients reach this far back; the memory is carried on."""
    bfloat16: bool = False
    """Act and learn in bfloat16 where torch's autocast does."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "play at least one episode at a time")
        require(self.unroll >= 1, "unroll", self.unroll, "give at least one step")
        if isinstance(self.world, RecordingConfig):
            alone = (
                "without a world its own episodes are the teacher: leave it out, or train on gym:ID to be scored there"
            )
            require(self.teacher.name == self.world.path, "teacher.name", self.teacher.name, alone)
        if self.teacher.recorded:
            shown, core = self.agent.previous_action, type(self.core).__name__
            missing = f"the episodes of {self.teacher.name} do not hold an agent's outputs"
            require(shown != "logits", "agent.previous_action", shown, f"{missing}: use 'action' or 'none'")
            require(
                not self.core.output_feedback_dim,
                "core",
                core,
                f"{missing}: use one that does not read its last output",
            )

    @property
    def learner(self) -> ImpalaConfig:
        """The run of IMPALA that imitates in all of its steps."""
        shared = {name: getattr(self, name) for name in SHARED}
        recorded = self.teacher.recorded
        imitation = ImitationConfig() if recorded else ImitationConfig(steps=self.fit.steps, teacher=self.teacher)
        loss = replace(self.loss, supervision=SupervisionConfig()) if recorded else self.loss
        return ImpalaConfig(**shared, loss=loss.loss_config(imitation))

    @property
    def teacher_description(self) -> str:
        """Name of the teacher that was imitated."""
        return f"cloned {self.teacher.name}"

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Those of core, agent and targets."""
        return (*self.core.training_aids, *self.agent.training_aids, *self.learner.loss.supervision.training_aids)

    @property
    def title(self) -> str:
        """Names of the world, the core and the teacher."""
        return f"{self.learner.title} · cloning"

    def schedules(self, step: int) -> dict[str, float]:
        """Return the learning rate, and the weight of the ground truth, of a step (from 0)."""
        return self.learner.schedules(step)

    def build_agent(self) -> ActorCritic:
        """Build the agent with new weights, on the CPU."""
        return self.learner.build_agent()

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.imitation import sources, trainers

        if isinstance(self.world, RecordingConfig):
            return trainers.RecordedTrainer(self.learner, self.world.episodes("train"), whole=self.teacher.whole)
        if self.teacher.recorded:
            recording = sources.recorded_episodes(self.teacher.name, self.world)
            return trainers.RecordedTrainer(self.learner, recording, whole=self.teacher.whole)
        return trainers.CloningTrainer(self.learner)

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Return the steps in the world and their speed, or the recorded steps that were read."""
        if not self.teacher.recorded:
            return self.learner.experience(rows)
        last = [row for row in rows if row["recorded_steps"]][-1]
        return {"recorded_steps": int(float(last["recorded_steps"])), "samples_to_perfect": None}


SHARED = (
    *("world", "core", "agent", "optimizer", "evaluation", "batch_size", "unroll", "bfloat16"),
    *("fit", "device"),
)
"""Fields with the same meaning in a run of IMPALA."""


def make_cloning_config(config: ImpalaConfig, teacher: TeacherConfig | None = None) -> CloningConfig:
    """Return the run of this trainer with the world, sizes and optimiser of a run of IMPALA."""
    loss = CloningLossConfig(
        baseline_cost=config.loss.baseline_cost,
        discount=config.loss.discount,
        reconstruction_cost=config.loss.reconstruction_cost,
        reduction=config.loss.reduction,
        reward_clip=config.loss.reward_clip,
    )
    shared = {name: getattr(config, name) for name in SHARED}
    return CloningConfig(**shared, loss=loss, teacher=teacher or TeacherConfig())
