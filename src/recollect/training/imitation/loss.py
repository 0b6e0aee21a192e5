"""The loss of imitation on a rollout.

    L = sum_t D(teacher_t, learner_t) + baseline_cost L_V + reconstruction_cost L_r

and, where a run asks for it, targets from what the world knows (impala/supervision.py).

D is the cross-entropy with a named action, or KL(teacher || learner) where the teacher is a policy. Both are in float32
and go through the agent's own distribution: any action space, masks too. The value is trained on the returns of
whoever played, so that reinforcement can go on with it: its targets are TD(lambda), bootstrapped from the row behind
the unroll (and from the true final observation where a time limit cut an episode).

Unlike IMPALA's, this loss gives the memory as it is behind row T - 1: what the next unroll of recorded episodes goes
on with. Row T is read apart, for its value alone.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.objectives.policy_gradient import baseline_loss, entropy_loss, reduce_steps
from recollect.objectives.vtrace import vtrace
from recollect.state import detach
from recollect.training.imitation.teachers import Teacher
from recollect.training.impala.config import LossConfig
from recollect.training.impala.loss import clipped_rewards
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.supervision import AttentionRecorder, decides, supervise


class ImitationLosses(NamedTuple):
    """What a rollout costs; scalars but for the last three."""

    loss: Tensor
    """The weighted sum, to differentiate."""
    imitation_loss: Tensor
    """Divergence from the teacher, in nats."""
    baseline_loss: Tensor
    """Loss of the value head, without its weight; 0 where that is 0."""
    reconstruction_loss: Tensor
    """Sum over all decoders; 0 without any."""
    entropy: Tensor
    """Mean over the valid steps, in nats."""
    agreement: Tensor
    """Share of the valid steps at which the learner's likeliest action is the teacher's; means nothing in a Box."""
    targets: Tensor | None
    """What the values should have been, ``[b, T]``; constants, 0 where not valid. None where they are not trained."""
    state: Any
    """The memory behind row T - 1; a constant."""
    helped: dict[str, Tensor]
    """Scalars of what helps in learning, by name; without their weights, and empty where nothing does."""

    def scalars(self) -> dict[str, Tensor]:
        """What is reported, by the names of :data:`REPORTED` and of what helps."""
        return {name: getattr(self, name) for name in REPORTED} | self.helped


REPORTED = ImitationLosses._fields[:-3]


def imitation_loss(
    agent: ActorCritic,
    rollout: Rollout,
    teacher: Teacher,
    config: LossConfig,
    *,
    bfloat16: bool = False,
    supervision: float = 0.0,
) -> ImitationLosses:
    """The loss of a rollout whose targets a teacher has shown.

    Args:
        agent: that learns.
        rollout: of b rows and T steps, with ``target``.
        teacher: that made the targets.
        config: costs, discount, lambda and reduction; those of reinforcement are not read.
        bfloat16: run the agent under autocast. Heads, targets and losses stay in float32.
        supervision: weight of the targets of ``config.supervision`` now; 0 leaves them out.
    """
    assert rollout.target is not None
    attention = None
    if supervision and config.supervision.attention_cost:
        attention = AttentionRecorder(agent.core, rollout.truth, config.supervision.inside)
    with torch.autocast(rollout.reward.device.type, torch.bfloat16, enabled=bfloat16):
        inputs = _rows(rollout.inputs, slice(0, -1))
        with attention or nullcontext():
            output, state = agent(inputs, rollout.state, rollout.is_first[:, :-1])
        seen = rollout.seen[:, :-1]  # nearly always all of them, and a mask makes copies of whole images
        how: dict[str, Any] = {"valid": None if seen.all() else seen, "reduction": config.reduction}
        restored = agent.reconstruction_losses(output.features, inputs.observation, **how)
    state, valid = detach(state), rollout.valid
    distribution = agent.distribution(output.policy)
    chosen: dict[str, Any] = {"valid": valid, "reduction": config.reduction}
    divergence = teacher.divergence(distribution, rollout.target)
    imitation = reduce_steps(divergence, **chosen)
    restoring = sum(restored.values(), imitation.new_zeros(()))
    baseline, targets = imitation.new_zeros(()), None
    if config.baseline_cost:
        targets = _returns(agent, rollout, output.value.detach(), state, config, bfloat16)
        scale = agent.value_scale
        baseline = baseline_loss(output.value / scale, targets / scale, **chosen)
    total = imitation + config.baseline_cost * baseline + config.reconstruction_cost * restoring
    helped: dict[str, Tensor] = {}
    if supervision:
        extra = supervise(agent, output.features, attention, rollout.truth, config.supervision, config.reduction)
        total, helped = total + supervision * extra.loss, dict(extra.reported)
        if config.supervision.decision_cost:
            decided = reduce_steps(divergence, valid & decides(rollout.truth, valid.shape[1]), config.reduction)
            total = total + supervision * config.supervision.decision_cost * decided
            helped["decision_loss"] = decided
    entropy = -entropy_loss(distribution.entropy().detach(), valid=valid, reduction="mean")
    same = distribution.mode() == teacher.choices(rollout.target)
    agreement = reduce_steps(same.reshape(*valid.shape, -1).all(2).float(), valid, "mean")
    return ImitationLosses(total, imitation, baseline, restoring, entropy, agreement, targets, state, helped)


@torch.no_grad()
def _returns(
    agent: ActorCritic, rollout: Rollout, value: Tensor, state: Any, config: LossConfig, bfloat16: bool
) -> Tensor:
    """TD(lambda) targets ``[b, T]`` of the values: V-trace with ratios of 1."""
    reward = clipped_rewards(rollout, config)
    with torch.autocast(reward.device.type, torch.bfloat16, enabled=bfloat16):
        behind, _ = agent(_rows(rollout.inputs, slice(-1, None)), state, rollout.is_first[:, -1:])
    discount = torch.where(rollout.terminated[:, 1:], 0.0, config.discount)
    lambda_ = config.vtrace.lambda_
    zero = torch.zeros_like(reward)
    return vtrace(zero, reward, discount, value, behind.value[:, 0], valid=rollout.valid, lambda_=lambda_).targets


def _rows(inputs: ActorInputs, rows: slice) -> ActorInputs:
    return ActorInputs(*(map_observation(lambda leaf: leaf[:, rows], part) for part in inputs))
