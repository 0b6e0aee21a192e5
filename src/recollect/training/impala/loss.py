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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.policies import Distribution
from recollect.objectives.policy_gradient import (
    baseline_loss,
    clipped_surrogate_loss,
    entropy_loss,
    policy_gradient_loss,
    reduce_steps,
)
from recollect.objectives.vtrace import VTrace, vtrace
from recollect.state import detach
from recollect.training.imitation.teachers import Teacher
from recollect.training.impala.config import LossConfig
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.supervision import AttentionRecorder, supervise


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
