from dataclasses import replace

import pytest
import torch

from recollect.agents.contract import ActorInputs
from recollect.evaluation.agents import evaluate_agent
from recollect.recipes.million import ASKED_AT_A_MILLION, LAGS, MILLION, MILLION_STEPS, million
from recollect.runs.random_states import seed_everything
from recollect.tasks.worlds.t_maze import RIGHT, TMazeConfig


def test_both_sides_look_the_same_behind_the_cue():
    """Whatever is done, as long as the same is done: nothing but the first cell tells which side is right."""
    world = TMazeConfig(length=12, slack=20).build(64, seed=1)
    step = world.reset()
    up = step.observation[:, 2] == 1
    assert 10 < up.sum() < 54
    generator = torch.Generator().manual_seed(0)
    seen, rewards = [], []
    world.step(torch.full((64,), RIGHT))
    for action in [*torch.randint(4, (9,), generator=generator).tolist(), *[RIGHT] * 12]:
        step = world.step(torch.full((64,), action))
        on_the_way = world.state.x[0] > 0  # all rows do the same, and stand in the same cell
        if on_the_way:
            seen.append(step.observation)
            rewards.append(step.reward)
    assert len(seen) > 12
    for observation, reward in zip(seen, rewards, strict=True):
        assert (observation == observation[0]).all() and (observation[:, 2:] == 0).all()
        assert (reward == reward[0]).all()


@pytest.mark.parametrize("core", ["gru", "memoryless"])
def test_the_agent_is_told_nothing_but_what_it_sees(core):
    seed_everything(0)
    agent = million(core).build_agent().eval()
    observation, is_first = torch.rand(3, 9, 4), torch.zeros(3, 9, dtype=torch.bool)
    one = ActorInputs(observation, torch.zeros(3, 9, dtype=torch.long), torch.zeros(3, 9))
    two = ActorInputs(observation, torch.randint(4, (3, 9)), torch.randn(3, 9))
    first, second = (agent(inputs, agent.initial_state(3), is_first)[0] for inputs in (one, two))
    assert torch.equal(first.policy, second.policy)


def test_the_control_is_played_for_a_million_steps_too():
    runs = {run.core: run for run in MILLION.rows("lite")}
    for core in ASKED_AT_A_MILLION:
        assert runs[core].tests["lag 1 000 000"].where.length == MILLION_STEPS
    assert "memoryless" in ASKED_AT_A_MILLION
    for run in runs.values():
        assert [test.where.length for test in run.tests.values()][: len(LAGS)] == list(LAGS)
        assert run.config.world.length == 20, "trained on short corridors alone"


@pytest.mark.slow
def test_a_gru_holds_a_cue_a_thousand_times_longer_than_in_training():
    config = million("gru")
    seed_everything(0)
    trainer = config.build()
    for _ in range(config.fit.steps):
        trainer.step()
    score = evaluate_agent(trainer.agent.eval(), replace(config.world, length=20_000), 64, seed=7)
    assert score.score >= 0.99
    assert score.mean_length == 20_001, "straight on, without a detour that could carry anything"
