"""The memory of every step is the right one, from the world to the learner: an integer comparison.

The world shows the number of the step in its episode; the core counts steps and starts at 0 with ``is_first``.
Wherever a state, a row, a reset or a buffer went astray between actor, queue and learner, the two differ.
"""

import pytest
import torch
from small_worlds import CounterConfig, StepsConfig

from recollect.agents.config import ActorCriticConfig
from recollect.training import (
    EvaluationConfig,
    FitConfig,
    ImpalaConfig,
    LossConfig,
    OptimizerConfig,
    ReuseConfig,
    ScheduleConfig,
)
from recollect.training.impala import trainer as impala
from recollect.training.impala.trainer import ImpalaTrainer
from recollect.training.loop import fit

SCHEDULES = {
    "synchronous": ScheduleConfig(),
    "in turn": ScheduleConfig(mode="asynchronous", queue_length=1),
    "overlapping": ScheduleConfig(mode="asynchronous", queue_length=3),
    "several actors": ScheduleConfig(mode="asynchronous", actors=3, queue_length=4),
}


class StopRunError(Exception):
    """Stands in for a crash."""


CHUNKS = ReuseConfig(minibatches=2, chunk=3, update_per="chunk")


def config(schedule, reuse=ReuseConfig(minibatches=2), **settings):  # noqa: B008 (frozen)
    return ImpalaConfig(
        world=StepsConfig(),
        core=CounterConfig(told=1),
        agent=ActorCriticConfig(norm=False, previous_action="logits"),
        # Too slow to change a weight, so that what an actor said can be compared at any lag.
        optimizer=OptimizerConfig(learning_rate=1e-30),
        loss=LossConfig(reuse=reuse),
        schedule=SCHEDULES[schedule],
        evaluation=EvaluationConfig(episodes=4),
        batch_size=6,
        unroll=5,
        **settings,
    )


def trainer(schedule, **settings):
    torch.manual_seed(0)
    made = ImpalaTrainer(config(schedule, **settings))
    with torch.no_grad():  # the policy's first parameter is the core's count
        made.model.policy_head[-1].weight.copy_(torch.tensor([[1.0], [0.0]]))
        made.model.core.weight.zero_()
    made.weights.publish(made.model, 0)
    for collector in made.actors.collectors:
        made.weights.copy_to(collector.agent)
        collector.reload_weights()
    return made


@pytest.fixture
def checked(monkeypatch):
    """Compares every rollout that a learner reads; counts the rows and kinds of rows that were compared."""
    seen = {"rows": 0, "first": 0, "terminated": 0, "truncated": 0, "carried": 0}
    original = impala.impala_loss

    def loss(agent, rollout, *arguments, **settings):
        shown = rollout.observation[..., 0]
        output, _ = agent(rollout.inputs, rollout.state, rollout.is_first)
        assert torch.equal(output.features[..., 0], shown)  # the learner's memory
        assert torch.equal(rollout.policies[..., 0].round(), shown[:, :-1])  # the actor's
        assert torch.equal(shown == 0, rollout.is_first)
        carried = ~rollout.is_first[:, 0]
        for said in (rollout.policy[..., 0].round(), rollout.features[..., 0]):  # the actor's, a step earlier
            assert torch.equal(said[:, 1:], shown[:, :-1]) and torch.equal(said[carried, 0] + 1, shown[carried, 0])
        assert torch.equal(rollout.state.steps[carried].float(), shown[carried, 0])
        seen["rows"] += shown.numel()
        seen["carried"] += int((carried & (shown[:, 0] > 0)).sum())
        for name in ("terminated", "truncated"):
            seen[name] += int(getattr(rollout, name)[:, 1:-1].sum())
        seen["first"] += int(rollout.is_first[:, 1:-1].sum())
        return original(agent, rollout, *arguments, **settings)

    monkeypatch.setattr(impala, "impala_loss", loss)
    return seen


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_step_has_its_own_memory_before_and_after_a_resume(checked, schedule):
    first = trainer(schedule)
    try:
        for _ in range(12):
            first.step()
    finally:
        first.close()
    tensors, data = first.save()
    assert any((tensors[name] > 0).any() for name in tensors if name.endswith("state.steps"))  # in mid-episode
    second = trainer(schedule)
    second.model.load_state_dict(first.model.state_dict())
    second.load({name: tensor.clone() for name, tensor in tensors.items()}, data)
    try:
        for _ in range(12):
            second.step()
    finally:
        second.close()
    assert checked["rows"] == 24 * 6 * 6
    assert all(count > 20 for count in checked.values()), checked


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_chunk_goes_on_with_the_memory_of_the_one_before(checked, schedule):
    made = trainer(schedule, reuse=CHUNKS)
    try:
        for _ in range(24):
            made.step()
    finally:
        made.close()
    assert checked["rows"] == 24 * 6 * 6
    assert all(count > 10 for count in checked.values()), checked


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_and_through_fit(checked, schedule, tmp_path, monkeypatch):
    monkeypatch.setattr(impala.ImpalaConfig, "build", lambda self: trainer(schedule))
    settings = {"report_every": 4, "evaluate_every": 4, "checkpoint_every": 3}

    def stop(step, metrics):
        if step == 8:
            raise StopRunError

    run = config(schedule, fit=FitConfig(steps=12, **settings))
    with pytest.raises(StopRunError):
        fit(run, tmp_path / "run", loggers=[stop])
    assert fit(run, tmp_path / "run", resume=True).step == 12
    assert checked["rows"] == (8 + 6) * 6 * 6  # from the checkpoint of step 6


@pytest.mark.parametrize("mistake", ["state", "row", "reset", "late"])
def test_the_proof_sees_every_mistake(checked, mistake, monkeypatch):
    from recollect.training.impala.rollouts import Collector

    original = Collector.collect

    def collect(self, buffer):
        rollout, episodes = original(self, buffer)
        if mistake == "state":
            rollout = rollout._replace(state=self.agent.initial_state(6))
        if mistake == "row":
            rollout = rollout._replace(state=type(rollout.state)(rollout.state.steps.roll(1)))
        if mistake == "reset":
            rollout = rollout._replace(is_first=rollout.is_first & False)
        if mistake == "late":
            rollout = rollout._replace(state=self.snapshot.state)
        return rollout, episodes

    monkeypatch.setattr(Collector, "collect", collect)
    broken = trainer("synchronous")
    with pytest.raises(AssertionError):
        for _ in range(5):
            broken.step()
