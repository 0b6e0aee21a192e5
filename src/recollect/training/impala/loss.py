"""IMPALA's loss on a rollout: V-trace, policy gradient, baseline, entropy and reconstruction.

    L = policy_cost L_pg + baseline_cost L_V - entropy_cost sum_t H_t + reconstruction_cost L_r + c sum_t KL_t

and, where a run asks for it, targets from what the world knows (supervision.py).

The learner runs over all T + 1 rows once, from the memory with which the actor began. Row T gives the bootstrap. A
transition is valid unless its row is the last of an episode; its discount is 0 where row t + 1 is terminated. Where
row t + 1 is truncated, its own value is what stands behind the transition: computed from the true final observation,
with the memory of the episode that was cut, since ``is_first`` clears it only at row t + 2.
KL is the divergence from a teacher, where there is one; its weight c falls to 0 (imitation/teachers.py).

Sources: Espeholt et al. (2018), IMPALA; Lampinen et al. (2021), Towards mental time travel, appendix A (costs);
George (2021), Neural architecture impact on identifying temporally extended reinforcement learning tasks, section 2.3.
Several passes over a rollout with the clipped surrogate: Schulman et al. (2017), PPO; Luo et al. (2020), IMPACT,
section 3. A teacher beside reinforcement: Schmitt et al. (2018), Kickstarting deep reinforcement learning.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.policies import Distribution
from recollect.config import require, require_one_of, require_types
from recollect.objectives.policy_gradient import (
    Reduction,
    baseline_loss,
    clipped_surrogate_loss,
    entropy_loss,
    policy_gradient_loss,
    reduce_steps,
)
from recollect.objectives.vtrace import VTrace, vtrace
from recollect.state import detach
from recollect.training.imitation.teachers import ImitationConfig, Teacher
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.supervision import AttentionRecorder, SupervisionConfig, supervise


@dataclass(frozen=True, kw_only=True)
class VTraceConfig:
    """How far V-trace trusts actions that the present policy would have chosen with another probability."""

    rho_clip: float | None = 1.0
    """Bound on the ratios of single steps in the targets; decides what is converged to. None does not bound."""
    c_clip: float = 1.0
    """Bound on the ratios that carry later surprises back; decides how fast."""
    pg_rho_clip: float | None = 1.0
    """Bound on the ratios in the policy gradient. None does not bound."""
    lambda_: float = 1.0
    """Share of later surprises that is carried back one step; 0 gives one-step targets."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("rho_clip", "c_clip", "pg_rho_clip"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "give a positive bound")
        require(0 <= self.lambda_ <= 1, "lambda_", self.lambda_, "give a share in [0, 1]")


Update = Literal["rollout", "chunk"]
LearnerMemory = Literal["stored", "empty"]


@dataclass(frozen=True, kw_only=True)
class ReuseConfig:
    """How a rollout is learned from: how often (asynchronous PPO, when more than once), and in which parts."""

    passes: int = 1
    """Times that every row of a rollout is learned from. From 2 on the policy loss is the clipped surrogate; the
    policy of a row's first pass is its reference, so that the ratio is exactly 1 there."""
    minibatches: int = 1
    """Parts, by rows, that a pass is cut into; one optimiser step each."""
    surrogate_clip: float = 0.2
    """How far the ratio may move from 1 and still pay."""
    reference: Literal["learner", "actor"] = "learner"
    """Whose policy the ratio starts from: the learner's when it sees a row first, or the one that acted (PPO). It is
    read with several passes only."""
    kl_stop: float | None = None
    """End the passes over a rollout when a minibatch finds the policy this far, in nats, from where they began. It is
    not read while a run only imitates: the teacher's policy is to be reached, and there is none to stay near."""
    chunk: int | None = None
    """Rows that the learner runs over at once: gradients end there, and its memory goes on. It divides the unroll + 1
    rows of a rollout (George 2021: 80 of 240). None: all of them."""
    update_per: Update = "rollout"
    """One optimiser step for the whole rollout; or for every chunk, which is then a rollout of its own: its last row
    only gives the value behind those before it, and what was done there is not learned from (George 2021's code)."""
    learner_memory: LearnerMemory = "stored"
    """What a rollout begins with: the memory with which the actor began, or an empty one (George 2021's code)."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.passes >= 1, "passes", self.passes, "learn from a rollout at least once")
        require(self.minibatches >= 1, "minibatches", self.minibatches, "give at least 1")
        far = self.kl_stop is None or self.kl_stop > 0
        require(far, "kl_stop", self.kl_stop, "give a positive distance, such as 0.02, or None")
        require(self.surrogate_clip > 0, "surrogate_clip", self.surrogate_clip, "give a positive distance, as 0.2")
        require_one_of(self, "reference", "update_per", "learner_memory")
        require(self.chunk is None or self.chunk >= 2, "chunk", self.chunk, "give 2 rows or more, or None")
        whole = self.update_per == "rollout" or self.chunk is not None
        require(whole, "update_per", self.update_per, "say how many rows a chunk has: chunk=80 for unroll=239")

    def require_rows(self, rows: int) -> None:
        """Raise ``ValueError`` unless ``rows`` are a whole number of chunks."""
        fits = self.chunk is None or rows % self.chunk == 0
        remedy = f"give a divisor of unroll + 1 = {rows}, or change the unroll (239 for chunks of 80)"
        require(fits, "chunk", self.chunk, remedy)

    def updates(self, rows: int) -> list[tuple[int, int]]:
        """First row, and the one behind the last, of what each optimiser step reads."""
        length = rows if self.chunk is None or self.update_per == "rollout" else self.chunk
        return [(start, start + length) for start in range(0, rows, length)]


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """What is minimised."""

    discount: float = 0.99
    """gamma: what a reward is worth one step earlier."""
    policy_cost: float = 1.0
    """Weight of the policy loss (0.1 in Lampinen et al. 2021)."""
    baseline_cost: float = 0.5
    """Weight of the baseline loss (1 in Lampinen et al. 2021)."""
    entropy_cost: float = 0.01
    """Weight of the entropy, which is kept up."""
    reconstruction_cost: float = 1.0
    """Weight of the reconstruction losses of an agent with ``reconstruct``."""
    reduction: Reduction = "sum"
    """Over the steps of a rollout: their sum (IMPALA), or their mean, which does not scale with rows and unroll."""
    norm_advantages: bool = False
    """Bring the advantages of a minibatch to mean 0 and deviation 1, unless they are smaller than ``NOISE`` already."""
    reward_clip: float | None = None
    """Bound on the rewards that are learned from, on either side (1 in IMPALA). Returns are reported unclipped."""
    vtrace: VTraceConfig = field(default_factory=VTraceConfig)
    """Clips of the targets."""
    reuse: ReuseConfig = field(default_factory=ReuseConfig)
    """Passes over a rollout."""
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    """A teacher: imitate first, then reinforce."""
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    """Targets from what the world knows, for worlds of ours."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.discount <= 1, "discount", self.discount, "give a factor in [0, 1]")
        for name in ("policy_cost", "baseline_cost", "entropy_cost", "reconstruction_cost"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "give 0 or more")
        require(self.reduction in ("sum", "mean"), "reduction", self.reduction, "choose 'sum' or 'mean'")
        clips = self.reward_clip is None or self.reward_clip > 0
        require(clips, "reward_clip", self.reward_clip, "give a positive bound, or None")
        whole = not self.imitation.steps or self.reuse.chunk is None
        remedy = "steps that only imitate read rollouts whole: give None, or no such steps (loss.imitation.steps=0)"
        require(whole, "chunk", self.reuse.chunk, remedy)


def clipped_rewards(rollout: Rollout, config: LossConfig) -> Tensor:
    """The rewards that follow actions 0 .. T - 1, as they are learned from: ``[b, T]``."""
    reward, clip = rollout.reward[:, 1:], config.reward_clip
    return reward if clip is None else reward.clamp(-clip, clip)


class Losses(NamedTuple):
    """What a rollout costs; scalars but for the last four."""

    loss: Tensor
    """The weighted sum, to differentiate."""
    policy_loss: Tensor
    """Loss of the policy, without its weight, like those that follow."""
    baseline_loss: Tensor
    """Loss of the value head."""
    reconstruction_loss: Tensor
    """Sum over all decoders; 0 without any."""
    entropy: Tensor
    """Mean over the valid steps, in nats."""
    kl: Tensor
    """How far the policy is from where the passes over this rollout began: mean of ratio - 1 - log ratio, in nats."""
    imitation_loss: Tensor
    """Divergence from the teacher; 0 without one."""
    log_prob: Tensor
    """Log-probabilities of the actions under the policy that learns, ``[b, T]``; constants."""
    targets: Tensor
    """What the values should have been, ``[b, T]``; constants, 0 where not valid."""
    helped: dict[str, Tensor]
    """Scalars of what helps in learning, by name; without their weights, and empty where nothing does."""
    state: Any
    """The memory behind the last row; a constant."""


NOISE = 0.1
"""Least deviation that advantages are divided by: what differs by less is not blown up. It is a share of the deviation
of returns where values are normalised (``norm_values``), else a number in the units of the rewards."""
REPORTED = Losses._fields[:-5]
"""What is reported of every rollout; the divergence from a teacher only where there is one."""


def impala_loss(
    agent: ActorCritic,
    rollout: Rollout,
    config: LossConfig,
    *,
    reference: Tensor | None = None,
    bfloat16: bool = False,
    teacher: Teacher | None = None,
    teacher_cost: float = 0.0,
    supervision: float = 0.0,
) -> Losses:
    """The loss of a rollout.

    Args:
        agent: that learns.
        rollout: of b rows and T steps.
        config: costs and clips.
        reference: ``[b, T]``, log-probabilities of the actions under the learner's policy when it saw these rows first;
            None when that is now. Read with several passes only.
        bfloat16: run the agent under autocast. Heads, targets and losses stay in float32.
        teacher: that made the rollout's ``target``; None where there is none.
        teacher_cost: weight of the divergence from it.
        supervision: weight of the targets of ``config.supervision`` now; 0 leaves them out.
    """
    attention = None
    if supervision and config.supervision.attention_cost:
        attention = AttentionRecorder(agent.core, rollout.truth, config.supervision.inside)
    output, restored, state = _run(agent, rollout, attention, config, bfloat16)
    distribution = agent.distribution(output.policy[:, :-1])
    value, valid = output.value, rollout.valid
    log_prob, entropy = distribution.log_prob(rollout.actions), distribution.entropy()
    behaviour = agent.distribution(rollout.policies).log_prob(rollout.actions)
    if config.reuse.reference == "actor" and config.reuse.passes > 1:
        reference = behaviour
    reference = log_prob.detach() if reference is None else reference
    # Corrects for the way from the acting policy to the reference; the surrogate, from there to the present one.
    trace = _trace(rollout, reference - behaviour, value.detach(), config)
    chosen = {"valid": valid, "reduction": config.reduction}
    scale = agent.value_scale
    advantages = trace.advantages / scale
    if config.norm_advantages:
        advantages = normalised(advantages, valid)
    if config.reuse.passes > 1:
        clip = config.reuse.surrogate_clip
        policy = clipped_surrogate_loss(log_prob - reference, advantages, clip=clip, **chosen)
    else:
        policy = policy_gradient_loss(log_prob, advantages, **chosen)
    baseline = baseline_loss(value[:, :-1] / scale, trace.targets / scale, **chosen)
    restoring = sum(restored.values(), value.new_zeros(()))
    total = config.policy_cost * policy + config.baseline_cost * baseline
    total = total + config.entropy_cost * entropy_loss(entropy, **chosen) + config.reconstruction_cost * restoring
    imitation, helped = total.new_zeros(()), {}
    if teacher is not None:
        imitation = _divergence(distribution, rollout, teacher, config)
        total = total + teacher_cost * imitation
    if supervision:
        extra = supervise(
            agent, output.features[:, :-1], attention, rollout.truth, config.supervision, config.reduction
        )
        total, helped = total + supervision * extra.loss, extra.reported
    mean_entropy = -entropy_loss(entropy.detach(), valid=valid, reduction="mean")
    moved = torch.where(valid, log_prob.detach() - reference, 0.0)
    kl = (moved.exp() - 1 - moved).sum() / valid.sum().clamp(min=1)
    return Losses(
        total, policy, baseline, restoring, mean_entropy, kl, imitation, log_prob.detach(), trace.targets, helped, state
    )


def _trace(rollout: Rollout, log_ratio: Tensor, value: Tensor, config: LossConfig) -> VTrace:
    """V-trace of a rollout for log-ratios ``[b, T]`` and values ``[b, T + 1]``."""
    clips = config.vtrace
    return vtrace(
        log_ratio,
        clipped_rewards(rollout, config),
        torch.where(rollout.terminated[:, 1:], 0.0, config.discount),
        value[:, :-1],
        value[:, -1],
        valid=rollout.valid,
        rho_clip=clips.rho_clip,
        c_clip=clips.c_clip,
        pg_rho_clip=clips.pg_rho_clip,
        lambda_=clips.lambda_,
    )


def _run(
    agent: ActorCritic, rollout: Rollout, attention: AttentionRecorder | None, config: LossConfig, bfloat16: bool
) -> tuple[ActorCriticOutput, dict[str, Tensor], Any]:
    """What the agent says at all rows, heard by ``attention``; its reconstruction losses at all but the last row; and
    its memory behind it. The chunks of ``config.reuse`` are run one after the other.
    """
    rows, state, outputs = rollout.is_first.shape[1], rollout.state, []
    length = config.reuse.chunk or rows
    observed = map_observation(lambda leaf: leaf[:, :-1], rollout.observation)
    with torch.autocast(rollout.reward.device.type, torch.bfloat16, enabled=bfloat16):
        with attention or nullcontext():
            for start in range(0, rows, length):
                part = rollout.between(start, start + length, state)
                output, state = agent(part.inputs, state, part.is_first)
                state = detach(state)
                outputs.append(output)
        output = outputs[0]
        if len(outputs) > 1:
            output = ActorCriticOutput(*(torch.cat(parts, 1) for parts in zip(*outputs, strict=True)))
        restored = agent.reconstruction_losses(output.features[:, :-1], observed, reduction=config.reduction)
        return output, restored, state


def _divergence(learner: Distribution, rollout: Rollout, teacher: Teacher, config: LossConfig) -> Tensor:
    assert rollout.target is not None
    return reduce_steps(teacher.divergence(learner, rollout.target), rollout.valid, config.reduction)


def normalised(advantages: Tensor, valid: Tensor) -> Tensor:
    """Advantages ``[b, T]`` with mean 0 and deviation 1 over the valid steps; small ones stay small."""
    count = valid.sum().clamp(min=1)
    centred = torch.where(valid, advantages - torch.where(valid, advantages, 0.0).sum() / count, 0.0)
    return centred / (centred.square().sum() / count).sqrt().clamp(min=NOISE)
