"""Settings of IMPALA: loss, passes over a rollout, actors, and targets from the world's ground truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from recollect.agents.config import ActorCriticConfig
from recollect.config import require, require_one_of, require_types
from recollect.cores.config import CoreConfig
from recollect.training.config import ActingConfig, EvaluationConfig, OptimizerConfig
from recollect.training.curriculum import CurriculumConfig
from recollect.training.imitation.config import ImitationConfig

if TYPE_CHECKING:
    from recollect.agents.actor_critic import ActorCritic
    from recollect.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class VTraceConfig:
    """Bounds on the importance ratios of V-trace, which correct for actions of an older policy."""

    rho_clip: float | None = 1.0
    """Bound on the ratios of single steps in the targets; it decides the fixed point. None does not bound."""
    c_clip: float = 1.0
    """Bound on the ratios that carry later errors back; it decides the speed."""
    pg_rho_clip: float | None = 1.0
    """Bound on the ratios in the policy gradient. None does not bound."""
    lambda_: float = 1.0
    """Share of later errors that is carried back one step; 0 gives one-step targets."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("rho_clip", "c_clip", "pg_rho_clip"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "give a positive bound")
        require(0 <= self.lambda_ <= 1, "lambda_", self.lambda_, "give a share in [0, 1]")


@dataclass(frozen=True, kw_only=True)
class ReuseConfig:
    """Optimiser steps on one rollout: passes over it (asynchronous PPO, when more than one), and its parts."""

    passes: int = 1
    """Times that every row of a rollout is learned from. From 2 on the policy loss is the clipped surrogate; its
    reference is the policy of the row's first pass, where the ratio is exactly 1."""
    minibatches: int = 1
    """Parts, by rows, that a pass is cut into; one optimiser step each."""
    surrogate_clip: float = 0.2
    """Distance of the ratio from 1 at which the surrogate stops growing."""
    reference: Literal["learner", "actor"] = "learner"
    """Policy that the ratio starts from: the learner's at the first pass over a row, or the actor's (PPO). Used with
    several passes only."""
    kl_stop: float | None = None
    """End the passes over a rollout when a minibatch finds the policy this far, in nats, from where they began. Not
    used while a run only imitates, since the policy then has to move to the teacher's."""
    chunk: int | None = None
    """Rows that the learner runs over at once: gradients end there, and its memory is carried on. It divides the
    unroll + 1 rows of a rollout (George 2021: 80 of 240). None: all of them."""
    update_per: Literal["rollout", "chunk"] = "rollout"
    """One optimiser step for the whole rollout, or for every chunk. A chunk is then a rollout of its own: its last row
    only gives the value behind the rows before it, and its action is not learned from (George 2021's code)."""
    learner_memory: Literal["stored", "empty"] = "stored"
    """Memory at the start of a rollout: the one with which the actor began, or an empty one (George 2021's code)."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.passes >= 1, "passes", self.passes, "learn from a rollout at least once")
        require(self.minibatches >= 1, "minibatches", self.minibatches, "give at least 1")
        far = self.kl_stop is None or self.kl_stop > 0
        require(far, "kl_stop", self.kl_stop, "give a positive distance, such as 0.02, or None")
        require(self.surrogate_clip > 0, "surrogate_clip", self.surrogate_clip, "give a positive distance, such as 0.2")
        require_one_of(self, "reference", "update_per", "learner_memory")
        require(self.chunk is None or self.chunk >= 2, "chunk", self.chunk, "give 2 rows or more, or None")
        has_chunk = self.update_per == "rollout" or self.chunk is not None
        remedy = "give the number of rows of a chunk: chunk=80 for unroll=239"
        require(has_chunk, "update_per", self.update_per, remedy)

    def require_rows(self, rows: int) -> None:
        """Raise ``ValueError`` unless ``rows`` are a whole number of chunks."""
        fits = self.chunk is None or rows % self.chunk == 0
        remedy = f"give a divisor of unroll + 1 = {rows}, or change the unroll (239 for chunks of 80)"
        require(fits, "chunk", self.chunk, remedy)

    def updates(self, rows: int) -> list[tuple[int, int]]:
        """Return the first row of every optimiser step, and the one after its last."""
        length = rows if self.chunk is None or self.update_per == "rollout" else self.chunk
        return [(start, start + length) for start in range(0, rows, length)]


@dataclass(frozen=True, kw_only=True)
class SupervisionConfig:
    """Targets from the world's ground truth; off unless a cost is positive."""

    label_cost: float = 0.0
    """Initial weight of naming what must be remembered, relative to a policy loss with advantages of 1."""
    attention_cost: float = 0.0
    """Initial weight of attention to the steps at which it could be seen."""
    decision_cost: float = 0.0
    """Initial weight, while a run only imitates, of the divergence from the teacher at steps whose decision depends on
    the past, relative to that at all steps: they may be three of hundreds."""
    inside: bool = False
    """Where a core reads inside chunks, also target the steps inside them: relevance times attention inside."""
    until: float = 0.5
    """Share of the run's steps over which the weights fall to 0, in a straight line."""
    share: float = 1.0
    """Share of the steps that have targets, drawn anew for every rollout."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("label_cost", "attention_cost", "decision_cost"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "give 0 or more")
        remedy = "it changes the targets of attention: give attention_cost too"
        require(not self.inside or self.attention_cost > 0, "inside", self.inside, remedy)
        require(0 < self.until <= 1, "until", self.until, "give a share of the run in (0, 1]")
        require(0 < self.share <= 1, "share", self.share, "give a share of the steps in (0, 1]")

    @property
    def on(self) -> bool:
        """Whether there are any targets."""
        return self.label_cost > 0 or self.attention_cost > 0 or self.decision_cost > 0

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Names of the targets in tables."""
        costs = (self.label_cost, self.attention_cost, self.decision_cost)
        inside = "attention targets inside chunks" if self.inside else "attention targets"
        names = ("label targets", inside, "weight on decisions")
        return tuple(name for name, cost in zip(names, costs, strict=True) if cost)

    def weight(self, update: int, updates: int) -> float:
        """Return the factor of the costs at an update (from 0) of ``updates``."""
        return max(0.0, 1 - update / (self.until * updates)) if self.on else 0.0

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that supervision reports."""
        labels = ("label_loss", "label_accuracy") if self.label_cost else ()
        attention = ("attention_loss",) if self.attention_cost else ()
        return (*labels, *attention, *(("decision_loss",) if self.decision_cost else ()))


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The loss, and how a rollout is learned from."""

    discount: float = 0.99
    """gamma: value of a reward one step earlier."""
    policy_cost: float = 1.0
    """Weight of the policy loss (0.1 in Lampinen et al. 2021)."""
    baseline_cost: float = 0.5
    """Weight of the baseline loss (1 in Lampinen et al. 2021)."""
    entropy_cost: float = 0.01
    """Weight of the entropy, which is maximised."""
    reconstruction_cost: float = 1.0
    """Weight of the reconstruction losses of an agent with ``reconstruct``."""
    reduction: Literal["sum", "mean"] = "sum"
    """Over the steps of a rollout: their sum (IMPALA), or their mean, which does not scale with rows and unroll."""
    norm_advantages: bool = False
    """Bring the advantages of a minibatch to mean 0 and deviation 1. A deviation below ``NOISE`` in impala/loss.py
    (0.1) is not brought to 1: the advantages are then divided by ``NOISE``."""
    reward_clip: float | None = None
    """Bound on the absolute rewards that are learned from (1 in IMPALA). Returns are reported unclipped."""
    vtrace: VTraceConfig = field(default_factory=VTraceConfig)
    """Clips of the targets."""
    reuse: ReuseConfig = field(default_factory=ReuseConfig)
    """Passes over a rollout."""
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    """Teacher: imitate first, then reinforce."""
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    """Targets from the ground truth of our own worlds."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.discount <= 1, "discount", self.discount, "give a factor in [0, 1]")
        for name in ("policy_cost", "baseline_cost", "entropy_cost", "reconstruction_cost"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "give 0 or more")
        require_one_of(self, "reduction")
        clip = self.reward_clip
        require(clip is None or clip > 0, "reward_clip", clip, "give a positive bound, or None")
        reads_whole = not self.imitation.steps or self.reuse.chunk is None
        remedy = "steps that only imitate read rollouts whole: give None, or no such steps (loss.imitation.steps=0)"
        require(reads_whole, "chunk", self.reuse.chunk, remedy)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Order of acting and learning, and the curriculum of worlds."""

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """Act and learn in turn, or at the same time, with actors in their own threads or processes."""
    actors: int = 1
    """Threads or processes that play, each with a world of ``batch_size`` rows; 1 when synchronous."""
    engine: Literal["threads", "ray"] = "threads"
    """Where actors of an asynchronous schedule run: in threads, or in processes of Ray with one processor each."""
    address: str | None = None
    """Ray cluster to join: auto for the one on this machine, or HOST:PORT. None starts Ray here for the run."""
    snapshot_every: int = 1
    """With Ray: rollouts of an actor between those that bring its world and memory for checkpoints. A larger number
    sends less, and a resumed run goes back to the newest snapshot, with new random numbers for its actions."""
    rollout_state: Literal["exact", "bfloat16"] = "exact"
    """With Ray: how the memory at the start of a rollout travels; bfloat16 halves its bytes. It does not travel at all
    with ``loss.reuse.learner_memory="empty"``."""
    queue_length: int = 2
    """Rollouts that exist at once when asynchronous: being played, waiting or being learned from. With 1, actor and
    learner take turns, with the numbers of the synchronous schedule; of one actor the lag is at most one less."""
    timeout: float = 120.0
    """Seconds that making a world may take, and a step of a rollout (with actors in threads the whole rollout; with
    Ray both); a world that takes longer is reported to hang."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """A field of the world that grows with success; synchronous only."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "mode")
        require(self.actors >= 1, "actors", self.actors, "give at least one")
        if self.mode == "synchronous":
            remedy = "a synchronous schedule has one; use mode='asynchronous', or a larger batch_size"
            require(self.actors == 1, "actors", self.actors, remedy)
        else:
            remedy = "rollouts of two levels would wait in one queue: use mode='synchronous'"
            require(not self.curriculum.field, "curriculum.field", self.curriculum.field, remedy)
            remedy = f"give at least one rollout for each of the {self.actors} actors"
            require(self.queue_length >= self.actors, "queue_length", self.queue_length, remedy)
        require(self.timeout > 0, "timeout", self.timeout, "give some seconds")
        self._require_engine()

    def _require_engine(self) -> None:
        """Check the settings of Ray."""
        require_one_of(self, "engine", "rollout_state")
        require(self.snapshot_every >= 1, "snapshot_every", self.snapshot_every, "give at least 1")
        if self.engine == "ray":
            remedy = "its actors play while the learner learns: use mode='asynchronous', as --engine ray does"
            require(self.mode == "asynchronous", "engine", self.engine, remedy)
            return
        for name in ("address", "snapshot_every", "rollout_state"):
            value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
            require(value == default, name, value, f"only with engine='ray'; leave it at {default!r}")


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(ActingConfig):
    """Train an agent around a core in a world."""

    RENAMED: ClassVar[dict[str, str]] = {"rows": "batch_size"}
    core: CoreConfig
    """Memory of the agent."""
    agent: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    """Model around the memory."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(algorithm="adam", learning_rate=5e-4, clip_norm=40.0)
    )
    """Optimiser and schedule."""
    loss: LossConfig = field(default_factory=LossConfig)
    """Costs, discount, targets and passes."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Acting and learning in turn, or at the same time."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Episodes that score the agent."""
    batch_size: int = 32
    """Episodes that each actor plays at a time, and that the learner reads at a time."""
    unroll: int = 32
    """T: steps of a rollout. Gradients reach this far back; the memory is carried on."""
    bfloat16: bool = False
    """Act and learn in bfloat16 where torch's autocast does. Heads, targets and losses stay in float32, and V-trace
    corrects for the remaining difference between the policy that acted and the one that learns."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "play at least one episode at a time")
        require(self.unroll >= 1, "unroll", self.unroll, "give at least one step")
        parts = self.loss.reuse.minibatches
        remedy = (
            f"there are only batch_size={self.batch_size} rows to share out: set loss.reuse.minibatches to at most "
            f"{self.batch_size}, or use more rows"
        )
        require(parts <= self.batch_size, "minibatches", parts, remedy)
        self.loss.reuse.require_rows(self.unroll + 1)
        in_turn = self.loss.imitation.steps is None or self.schedule.mode == "synchronous"
        require(in_turn, "mode", self.schedule.mode, "a teacher needs the synchronous schedule (loss.imitation)")
        travels = self.schedule.rollout_state == "exact" or self.loss.reuse.learner_memory == "stored"
        remedy = "no memory travels with loss.reuse.learner_memory='empty': leave it at 'exact'"
        require(travels, "rollout_state", self.schedule.rollout_state, remedy)
        decisions = self.loss.supervision.decision_cost
        remedy = "it counts only while a run only imitates: give loss.imitation.steps (--imitate 300), or 0 here"
        require(not decisions or bool(self.loss.imitation.steps), "decision_cost", decisions, remedy)

    @property
    def teacher_description(self) -> str | None:
        """Teacher, and how long it was imitated."""
        return self.loss.imitation.label(self.fit.steps)

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Those of core, agent, loss and schedule."""
        parts = (self.core, self.agent, self.loss.supervision, self.schedule.curriculum)
        return tuple(aid for part in parts for aid in part.training_aids)

    def schedules(self, step: int) -> dict[str, float]:
        """Return the learning rate, and the weights of the training aids, of a step (from 0)."""
        imitation, steps = self.loss.imitation, self.fit.steps
        weights = {"the weight of supervision": self.loss.supervision.weight(step, steps)}
        if not imitation.alone(step):
            weights["the weight of the teacher"] = imitation.weight(step, steps)
        return super().schedules(step) | weights

    def build_agent(self) -> ActorCritic:
        """Build the agent with new weights, on the CPU."""
        from recollect.evaluation.world_guard import world_errors

        with world_errors(self.world.title, "its spec"):
            spec = self.world.spec
        return self.agent.build(
            self.core,
            spec.observation_space,
            spec.action_space,
            num_labels=spec.num_labels if self.loss.supervision.label_cost else 0,
            labels_per_step=spec.labels_per_step,
        )

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.impala.trainer import ImpalaTrainer

        return ImpalaTrainer(self)

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Return the steps in the world, their speed, and how many levels of the curriculum were passed."""
        last = [row for row in rows if row["environment_steps"]][-1]
        passed = {"levels_passed": int(float(last["level"]))} if last.get("level") else {}
        return {
            **passed,
            "environment_steps": int(float(last["environment_steps"])),
            "frames_per_second": round(float(last["frames_per_second"]), 1),
            "samples_to_perfect": None,
        }
