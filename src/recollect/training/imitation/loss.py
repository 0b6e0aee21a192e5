"""The loss of imitation on a rollout.

    L = sum_t D(teacher_t, learner_t) + baseline_cost L_V + reconstruction_cost L_r

and the training aids of the run (impala/supervision.py).

D is the cross-entropy with a target action, or KL(teacher || learner) where the teacher is a policy. Both are in
float32 and use the agent's own distribution: any action space, masks too. The value is trained on the returns of the
policy that acted, so that reinforcement can continue with it: its targets are TD(lambda), bootstrapped from the row
after the unroll (and from the true final observation where a time limit cut an episode).

Unlike IMPALA's, this loss returns the memory after row T - 1, from which the next unroll of recorded episodes
continues. Row T is read separately, for its value alone.
"""

from typing import Any

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.learners import present
from recollect.objectives.policy_gradient import baseline_loss, entropy_loss, reduce_steps
from recollect.objectives.vtrace import vtrace
from recollect.state import detach
from recollect.training.impala.config import LossConfig
from recollect.training.impala.loss import clipped_rewards
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.supervision import Losses, TrainingAids

REPORTED = ("loss", "imitation_loss", "baseline_loss", "reconstruction_loss", "entropy", "agreement")
"""Metrics of every rollout: ``entropy`` is the mean over the valid steps in nats, ``agreement`` the share of the valid
steps at which the learner's likeliest action is the teacher's (without meaning in a Box)."""


def imitation_loss(
    agent: ActorCritic, rollout: Rollout, aids: TrainingAids, config: LossConfig, *, bfloat16: bool = False
) -> Losses:
    """Compute the loss of a rollout with targets of a teacher.

    Args:
        agent: that learns.
        rollout: of b rows and T steps, with ``target``.
        aids: with the teacher that made the targets, and ``imitates``.
        config: costs, discount, lambda and reduction; those of reinforcement are not used.
        bfloat16: run the agent under autocast. Heads, targets and losses stay in float32.
    """
    assert rollout.target is not None and aids.teacher is not None
    inputs = _rows(rollout.inputs, slice(0, -1))
    with torch.autocast(rollout.reward.device.type, torch.bfloat16, enabled=bfloat16):
        with aids.record_attention(agent.core, rollout) as attention:
            output, state = agent(inputs, rollout.state, rollout.is_first[:, :-1])
        seen = rollout.seen[:, :-1]
        # Usually all of them, and a mask copies whole images. Several learners exchange its count, so all need one.
        needs_mask = present().size > 1 or not seen.all()
        how: dict[str, Any] = {"valid": seen if needs_mask else None, "reduction": config.reduction}
        restored = agent.reconstruction_losses(output.features, inputs.observation, **how)
    state, valid = detach(state), rollout.valid
    policy = agent.distribution(output.policy)
    chosen: dict[str, Any] = {"valid": valid, "reduction": config.reduction}
    divergence = aids.teacher.divergence(policy, rollout.target)
    imitation = reduce_steps(divergence, **chosen)
    restoring = sum(restored.values(), imitation.new_zeros(()))
    baseline, targets = imitation.new_zeros(()), None
    if config.baseline_cost:
        targets = _returns(agent, rollout, output.value.detach(), state, config, bfloat16)
        scale = agent.value_scale
        baseline = baseline_loss(output.value / scale, targets / scale, **chosen)
    total = imitation + config.baseline_cost * baseline + config.reconstruction_cost * restoring
    total, metrics = aids.add_losses(total, agent, rollout, output.features, attention, divergence, config.reduction)
    entropy = -entropy_loss(policy.entropy().detach(), valid=valid, reduction="mean")
    same = policy.mode() == aids.teacher.choices(rollout.target)
    agreement = reduce_steps(same.reshape(*valid.shape, -1).all(2).float(), valid, "mean")
    reported = (imitation, baseline, restoring, entropy, agreement)
    return Losses(total, dict(zip(REPORTED[1:], reported, strict=True)) | metrics, targets, state)


@torch.no_grad()
def _returns(
    agent: ActorCritic, rollout: Rollout, value: Tensor, state: Any, config: LossConfig, bfloat16: bool
) -> Tensor:
    """Return the TD(lambda) targets ``[b, T]`` of the values: V-trace with ratios of 1."""
    reward = clipped_rewards(rollout, config)
    with torch.autocast(reward.device.type, torch.bfloat16, enabled=bfloat16):
        last, _ = agent(_rows(rollout.inputs, slice(-1, None)), state, rollout.is_first[:, -1:])
    discount = torch.where(rollout.terminated[:, 1:], 0.0, config.discount)
    lambda_ = config.vtrace.lambda_
    zero = torch.zeros_like(reward)
    return vtrace(zero, reward, discount, value, last.value[:, 0], valid=rollout.valid, lambda_=lambda_).targets


def _rows(inputs: ActorInputs, rows: slice) -> ActorInputs:
    return ActorInputs(*(map_observation(lambda leaf: leaf[:, rows], part) for part in inputs))
