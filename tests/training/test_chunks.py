"""Learning from a rollout in chunks: the fast form equals a loop over chunks and steps, in every new weight."""

import copy

import pytest
import torch
from small_worlds import CueConfig

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.cores import CORES
from recollect.objectives.vtrace import vtrace
from recollect.state import detach
from recollect.training import ImpalaConfig, LossConfig, OptimizerConfig, ReuseConfig, VTraceConfig
from recollect.training.impala.loss import impala_loss
from recollect.training.impala.trainer import ImpalaTrainer
from recollect.training.optimizers import begin_step, take_step

UNROLL = 11
OPTIMIZER = OptimizerConfig(algorithm="rmsprop", learning_rate=1e-2, smoothing=0.99, epsilon=0.01, clip_norm=40.0)
CORE = {
    "gru": CORES["gru"](dim=8, num_layers=1),
    "transformer-xl": CORES["transformer-xl"](dim=8, num_layers=1, num_heads=2, memory_len=6),
}


def trainer(core="gru", **reuse):
    torch.manual_seed(0)
    return ImpalaTrainer(
        ImpalaConfig(
            world=CueConfig(delay=4),
            core=CORE[core],
            agent=ActorCriticConfig(width=8, previous_action="logits", clip_reward=1.0),
            optimizer=OPTIMIZER,
            loss=LossConfig(reduction="mean", reward_clip=1.0, reuse=ReuseConfig(**reuse)),
            batch_size=5,
            unroll=UNROLL,
        )
    )


def rollout_of(made, skipped=2):
    for _ in range(skipped):
        rollout = made.actors.take().rollout
    made.weights.publish(made.model, 0)
    with torch.no_grad():
        for parameter in made.model.parameters():  # the learner is ahead of the actor
            parameter.add_(0.1 * torch.randn_like(parameter))
    return rollout


def one_step_at_a_time(agent, rollout, state, start, stop):
    outputs = []
    for t in range(start, stop):
        seen = {name: part[:, t : t + 1] for name, part in rollout.observation.items()}
        told = (part[:, t : t + 1] for part in (rollout.action, rollout.reward, rollout.policy, rollout.features))
        output, state = agent(ActorInputs(seen, *told), state, rollout.is_first[:, t : t + 1])
        outputs.append(output)
    return torch.cat([one.policy for one in outputs], 1), torch.cat([one.value for one in outputs], 1), detach(state)


def plain_loss(rollout, policy, value, start, stop):
    """Of transitions start .. stop - 2, bootstrapped from row stop - 1."""
    last = slice(start, stop - 1)
    valid = ~(rollout.terminated | rollout.truncated)[:, last]
    logs = policy[:, :-1].log_softmax(-1)
    chosen = logs.gather(-1, rollout.actions[:, last, None]).squeeze(-1)
    behaviour = rollout.policies[:, last].log_softmax(-1).gather(-1, rollout.actions[:, last, None]).squeeze(-1)
    discount = torch.where(rollout.terminated[:, start + 1 : stop], 0.0, 0.99)
    trace = vtrace(
        (chosen - behaviour).detach(),
        rollout.reward[:, start + 1 : stop].clamp(-1, 1),
        discount,
        value[:, :-1].detach(),
        value[:, -1].detach(),
        valid=valid,
    )
    entropy = -(logs.exp() * logs).sum(-1)
    each = -trace.advantages * chosen + 0.25 * (value[:, :-1] - trace.targets) ** 2 - 0.01 * entropy
    return torch.where(valid, each, 0.0).sum() / valid.sum()


@pytest.mark.parametrize("memory", ["stored", "empty"])
@pytest.mark.parametrize("update_per", ["chunk", "rollout"])
@pytest.mark.parametrize("core", CORE)
def test_the_new_weights_are_those_of_a_loop_over_chunks_and_steps(core, update_per, memory):
    made = trainer(core, chunk=4, update_per=update_per, learner_memory=memory)
    rollout = rollout_of(made)
    assert rollout.is_first[:, 1:].any() and rollout.terminated.any()
    twin = copy.deepcopy(made.model).train()
    optimizer = OPTIMIZER.build(twin)
    state = rollout.state if memory == "stored" else twin.initial_state(5)
    policies, values = [], []
    for start in range(0, UNROLL + 1, 4):
        policy, value, state = one_step_at_a_time(twin, rollout, state, start, start + 4)
        policies, values = [*policies, policy], [*values, value]
        if update_per == "chunk":
            begin_step(optimizer, OPTIMIZER.learning_rate)
            loss = plain_loss(rollout, policy, value, start, start + 4)
            take_step(twin, optimizer, OPTIMIZER, loss, finite={})
    if update_per == "rollout":
        begin_step(optimizer, OPTIMIZER.learning_rate)
        loss = plain_loss(rollout, torch.cat(policies, 1), torch.cat(values, 1), 0, UNROLL + 1)
        take_step(twin, optimizer, OPTIMIZER, loss, finite={})
    before = copy.deepcopy(made.model.state_dict())
    found = made._learn(rollout)
    assert found["gradient_norm"] > 0
    for name, weight in made.model.state_dict().items():
        torch.testing.assert_close(weight, twin.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)
        assert not torch.equal(weight, before[name]) or "label" in name or not weight.is_floating_point(), name
    made.close()


def test_chunks_change_gradients_and_not_what_is_said():
    made = trainer()
    rollout = rollout_of(made)
    whole, cut = (
        impala_loss(made.model, rollout, LossConfig(vtrace=VTraceConfig(), reuse=reuse))
        for reuse in (ReuseConfig(), ReuseConfig(chunk=3))
    )
    torch.testing.assert_close(cut.scalars(), whole.scalars())
    torch.testing.assert_close((cut.log_prob, cut.targets), (whole.log_prob, whole.targets))
    weights = list(made.model.core.parameters())
    grads = [torch.autograd.grad(losses.loss, weights) for losses in (whole, cut)]
    assert max((one - two).abs().max() for one, two in zip(*grads, strict=True)) > 1e-4
    made.close()


def test_a_rollout_that_cannot_be_cut_is_named():
    with pytest.raises(ValueError, match=r"chunk=5: give a divisor of unroll \+ 1 = 12, or change the unroll"):
        trainer(chunk=5)
    with pytest.raises(
        ValueError, match=r"update_per='chunk': give the number of rows of a chunk: chunk=80 for unroll=239"
    ):
        ReuseConfig(update_per="chunk")
    with pytest.raises(ValueError, match=r"learner_memory='full': choose one of 'stored', 'empty'"):
        ReuseConfig(learner_memory="full")
    assert ReuseConfig(chunk=80, update_per="chunk").updates(240) == [(0, 80), (80, 160), (160, 240)]
    assert ReuseConfig(chunk=80).updates(240) == [(0, 240)]
