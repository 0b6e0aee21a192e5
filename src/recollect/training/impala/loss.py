"""IMPALA's loss on a rollout: V-trace, policy gradient, baseline, entropy and reconstruction.

    L = policy_cost L_pg + baseline_cost L_V - entropy_cost sum_t H_t + reconstruction_cost L_r

and the training aids of the run (supervision.py).

The learner runs over all T + 1 rows once, from the memory with which the actor began. Row T gives the bootstrap. A
transition is valid unless its row is the last of an episode; its discount is 0 where row t + 1 is terminated. Where
row t + 1 is truncated, its own value follows the transition: it is computed from the true final observation, with the
memory of the episode that was cut, since ``is_first`` clears it only at row t + 2.

Sources: Espeholt et al. (2018), IMPALA; Lampinen et al. (2021), Towards mental time travel, appendix A (costs);
George (2021), Neural architecture impact on identifying temporally extended reinforcement learning tasks, section 2.3.
Several passes over a rollout with the clipped surrogate: Schulman et al. (2017), PPO; Luo et al. (2020), IMPACT,
section 3. A teacher beside reinforcement: Schmitt et al. (2018), Kickstarting deep reinforcement learning.
"""

from typing import Any

import torch
from torch import Tensor

from recollect import learners
from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.objectives.policy_gradient import (
    baseline_loss,
    clipped_surrogate_loss,
    entropy_loss,
    policy_gradient_loss,
)
from recollect.objectives.vtrace import VTrace, vtrace
from recollect.state import detach
from recollect.training.impala.config import LossConfig
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.supervision import Losses, TrainingAids

NOISE = 0.1
"""Least deviation that advantages are divided by, so that the noise of a solved task is enlarged ten times at most. It
is a share of the deviation of returns where values are normalised (``norm_values``), else in the units of the
rewards."""
REPORTED = ("loss", "policy_loss", "baseline_loss", "reconstruction_loss", "entropy", "kl")
"""Metrics of every rollout: ``entropy`` is the mean over the valid steps in nats, ``kl`` the mean of ratio - 1 - log
ratio, in nats, to the policy with which the passes over this rollout began."""


def impala_loss(
    agent: ActorCritic,
    rollout: Rollout,
    config: LossConfig,
    aids: TrainingAids | None = None,
    *,
    reference: Tensor | None = None,
    bfloat16: bool = False,
) -> Losses:
    """Compute the loss of a rollout.

    Args:
        agent: that learns.
        rollout: of b rows and T steps.
        config: costs and clips.
        aids: training aids; None has none.
        reference: ``[b, T]``, log-probabilities of the actions under the learner's policy at its first pass over these
            rows; None when that is now. Used with several passes only.
        bfloat16: run the agent under autocast. Heads, targets and losses stay in float32.
    """
    aids = aids or TrainingAids()
    with aids.record_attention(agent.core, rollout) as attention:
        output, state = _run(agent, rollout, config.reuse.chunk, bfloat16)
    restored = _reconstruct(agent, rollout, output, config, bfloat16)
    policy_now = agent.distribution(output.policy[:, :-1])
    value, valid = output.value, rollout.valid
    log_prob, entropy = policy_now.log_prob(rollout.actions), policy_now.entropy()
    behaviour = agent.distribution(rollout.policies).log_prob(rollout.actions)
    if config.reuse.reference == "actor" and config.reuse.passes > 1:
        reference = behaviour
    reference = log_prob.detach() if reference is None else reference
    # V-trace corrects from the acting policy to the reference, and the surrogate from there to the present policy.
    trace = _trace(rollout, reference - behaviour, value.detach(), config)
    chosen: dict[str, Any] = {"valid": valid, "reduction": config.reduction}
    advantages = trace.advantages / agent.value_scale
    if config.norm_advantages:
        advantages = normalize(advantages, valid)
    if config.reuse.passes > 1:
        clip = config.reuse.surrogate_clip
        policy = clipped_surrogate_loss(log_prob - reference, advantages, clip=clip, **chosen)
    else:
        policy = policy_gradient_loss(log_prob, advantages, **chosen)
    baseline = baseline_loss(value[:, :-1] / agent.value_scale, trace.targets / agent.value_scale, **chosen)
    total = config.policy_cost * policy + config.baseline_cost * baseline
    total = total + config.entropy_cost * entropy_loss(entropy, **chosen) + config.reconstruction_cost * restored
    features, divergence = output.features[:, :-1], aids.divergence(policy_now, rollout)
    total, metrics = aids.add_losses(total, agent, rollout, features, attention, divergence, config.reduction)
    mean_entropy = -entropy_loss(entropy.detach(), valid=valid, reduction="mean")
    moved = torch.where(valid, log_prob.detach() - reference, 0.0)
    kl = (moved.exp() - 1 - moved).sum() / learners.total(valid.sum()).clamp(min=1)
    reported = (policy, baseline, restored, mean_entropy, kl)
    metrics = dict(zip(REPORTED[1:], reported, strict=True)) | metrics
    return Losses(total, metrics, trace.targets, state, log_prob.detach())


def clipped_rewards(rollout: Rollout, config: LossConfig) -> Tensor:
    """Return the rewards that follow actions 0 .. T - 1, as they are learned from: ``[b, T]``."""
    reward, clip = rollout.reward[:, 1:], config.reward_clip
    return reward if clip is None else reward.clamp(-clip, clip)


def _trace(rollout: Rollout, log_ratio: Tensor, value: Tensor, config: LossConfig) -> VTrace:
    """Compute V-trace of a rollout for log-ratios ``[b, T]`` and values ``[b, T + 1]``."""
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


def _autocast(rollout: Rollout, bfloat16: bool) -> torch.autocast:
    return torch.autocast(rollout.reward.device.type, torch.bfloat16, enabled=bfloat16)


def _run(agent: ActorCritic, rollout: Rollout, chunk: int | None, bfloat16: bool) -> tuple[ActorCriticOutput, Any]:
    """Run the agent over all rows, chunk after chunk; return its outputs, and its memory after the last row."""
    rows, state, outputs = rollout.is_first.shape[1], rollout.state, []
    length = chunk or rows
    with _autocast(rollout, bfloat16):
        for start in range(0, rows, length):
            part = rollout.between(start, start + length, state)
            output, state = agent(part.inputs, state, part.is_first)
            state = detach(state)
            outputs.append(output)
        if len(outputs) == 1:
            return outputs[0], state
        return ActorCriticOutput(*(torch.cat(parts, 1) for parts in zip(*outputs, strict=True))), state


def _reconstruct(
    agent: ActorCritic, rollout: Rollout, output: ActorCriticOutput, config: LossConfig, bfloat16: bool
) -> Tensor:
    """Return the sum of the reconstruction losses at all rows but the last."""
    observed = map_observation(lambda leaf: leaf[:, :-1], rollout.observation)
    with _autocast(rollout, bfloat16):
        losses = agent.reconstruction_losses(output.features[:, :-1], observed, reduction=config.reduction)
    return sum(losses.values(), output.value.new_zeros(()))


def normalize(advantages: Tensor, valid: Tensor) -> Tensor:
    """Scale advantages ``[b, T]`` to mean 0 and deviation 1 over the valid steps of all learners; see :data:`NOISE`."""
    count = learners.total(valid.sum()).clamp(min=1)
    mean = learners.total(torch.where(valid, advantages, 0.0).sum()) / count
    centred = torch.where(valid, advantages - mean, 0.0)
    return centred / (learners.total(centred.square().sum()) / count).sqrt().clamp(min=NOISE)
