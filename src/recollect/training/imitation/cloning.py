"""Behavioural cloning: learn to do what a teacher does, in a world.

With a teacher who can be asked (an oracle, a trained run) this is IMPALA's loop with another loss: actors play, the
teacher labels what they meet (imitation/teachers.py). Recorded episodes are read instead of played
(imitation/recorded.py). Either way the agent is IMPALA's: ``recollect train --from RUN`` reinforces it.

Sources: Ross et al. (2011), A reduction of imitation learning and structured prediction to no-regret online learning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.agents.actor_critic import ActorCritic, ActorCriticConfig
from recollect.config import require, require_types
from recollect.cores.config import CoreConfig
from recollect.evaluation.agents import AgentEvaluation
from recollect.objectives.policy_gradient import Reduction
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.acting import ActingConfig
from recollect.training.frame import Trainer
from recollect.training.imitation.recorded import EpisodeRows, RecordedTrainer
from recollect.training.imitation.sources import recorded_episodes
from recollect.training.imitation.teachers import ImitationConfig, TeacherConfig
from recollect.training.imitation.whole import WholeEpisodes
from recollect.training.impala.loss import LossConfig, ReuseConfig, VTraceConfig
from recollect.training.impala.supervision import SupervisionConfig
from recollect.training.impala.trainer import EvaluationConfig, ImpalaConfig, ImpalaTrainer
from recollect.training.optimizers import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class CloningLossConfig:
    """What is minimised beside the divergence from the teacher."""

    baseline_cost: float = 0.5
    """Weight of the value's loss; 0 leaves the value alone."""
    discount: float = 0.99
    """gamma of the returns that the value is trained on."""
    lambda_: float = 0.95
    """Of their TD(lambda) targets: 1 takes whole returns, as far as the unroll reaches; 0 one step."""
    reconstruction_cost: float = 1.0
    """Weight of the reconstruction losses of an agent with ``reconstruct``."""
    reduction: Reduction = "mean"
    """Over the steps of a rollout: their mean, or their sum."""
    reward_clip: float | None = None
    """Bound on the rewards that the value is trained on, on either side."""
    passes: int = 1
    """Times that what was played is learned from before more is played. Of no meaning for recorded episodes, which come
    again by themselves."""
    minibatches: int = 1
    """Parts, by rows, that each pass is cut into; one optimiser step each. Of no meaning for recorded episodes."""
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    """Targets from what the world knows, beside the teacher. Of no meaning for recorded episodes."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.lambda_ <= 1, "lambda_", self.lambda_, "give a share in [0, 1]")
        self.costs(ImitationConfig())  # looks at the others

    def costs(self, imitation: ImitationConfig) -> LossConfig:
        """The same as IMPALA's loss has it."""
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
    """Train an agent around a core to do what a teacher does."""

    core: CoreConfig
    """Memory of the agent."""
    agent: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    """What surrounds the memory."""
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    """Who is imitated."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(algorithm="adam", learning_rate=1e-3, clip_norm=1.0)
    )
    """Optimiser and schedule."""
    loss: CloningLossConfig = field(default_factory=CloningLossConfig)
    """Costs, and what the value is trained on."""
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
        if self.teacher.recorded:
            shown, core = self.agent.previous_action, type(self.core).__name__
            said = f"the episodes of {self.teacher.name} do not hold what an agent said"
            require(shown != "logits", "agent.previous_action", shown, f"{said}: use 'action' or 'none'")
            require(
                not self.core.output_feedback_dim, "core", core, f"{said}: use one that is not told its last output"
            )

    @property
    def learner(self) -> ImpalaConfig:
        """The same as a run of IMPALA that imitates in all of its steps."""
        shared = {name: getattr(self, name) for name in SHARED}
        recorded = self.teacher.recorded
        imitation = ImitationConfig() if recorded else ImitationConfig(steps=self.fit.steps, teacher=self.teacher)
        loss = replace(self.loss, supervision=SupervisionConfig()) if recorded else self.loss
        return ImpalaConfig(**shared, loss=loss.costs(imitation))

    @property
    def is_greedy(self) -> bool:
        """As ``evaluation`` says."""
        return self.evaluation.greedy

    @property
    def taught_by(self) -> str:
        """Who was imitated."""
        return f"cloned {self.teacher.name}"

    @property
    def helps(self) -> tuple[str, ...]:
        """Of core, agent and targets."""
        return (*self.core.helps, *self.agent.helps, *self.learner.loss.supervision.helps)

    @property
    def title(self) -> str:
        """World, core and teacher."""
        return f"{self.learner.title} · cloning"

    def build_agent(self) -> ActorCritic:
        """The agent alone, with new weights, on the CPU."""
        return self.learner.build_agent()

    def learning_rate(self, step: int) -> float:
        """That of the optimiser."""
        return self.optimizer.rate(step, self.fit.steps)

    def build(self) -> Trainer:
        """The trainer."""
        if self.teacher.recorded:
            recording = recorded_episodes(self.teacher.name, self.world)
            return RecordedTrainer(self.learner, recording, WholeEpisodes if self.teacher.whole else EpisodeRows)
        return CloningTrainer(self.learner)

    def evaluate(
        self,
        model: ActorCritic,
        task: WorldConfig | None = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> AgentEvaluation:
        """Score an agent in ``samples`` fresh episodes. See :meth:`TrainerConfig.evaluate`."""
        how: dict[str, Any] = {"batch_size": batch_size, "greedy": greedy}
        return self.learner.evaluate(model, task, samples=samples, seed=seed, **how)

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Steps in the world and how fast they were made, or recorded steps that were read."""
        if not self.teacher.recorded:
            return self.learner.experience(rows)
        last = [row for row in rows if row["recorded_steps"]][-1]
        return {"recorded_steps": int(float(last["recorded_steps"])), "samples_to_perfect": None}


SHARED = (
    *("world", "core", "agent", "optimizer", "evaluation", "batch_size", "unroll", "bfloat16"),
    *("fit", "device"),
)
"""Fields that mean the same in a run of IMPALA."""


def cloning(config: ImpalaConfig, teacher: TeacherConfig | None = None) -> CloningConfig:
    """The run of this trainer that has the world, sizes and optimiser of a run of IMPALA."""
    loss = CloningLossConfig(
        baseline_cost=config.loss.baseline_cost,
        discount=config.loss.discount,
        reconstruction_cost=config.loss.reconstruction_cost,
        reduction=config.loss.reduction,
        reward_clip=config.loss.reward_clip,
    )
    shared = {name: getattr(config, name) for name in SHARED}
    return CloningConfig(**shared, loss=loss, teacher=teacher or TeacherConfig())


class CloningTrainer(ImpalaTrainer):
    """One step imitates on one rollout of ``batch_size`` rows and ``unroll`` steps."""

    step_metrics = tuple(name for name in ImpalaTrainer.step_metrics if name not in ("policy_lag", "policy_loss", "kl"))

    def step(self) -> dict[str, float]:
        """Learn from the next rollout."""
        found = super().step()
        return {name: value for name, value in found.items() if name in self.step_metrics}
