"""The agents of George 2021 whose cores attend to maps and time: published parameters, and what one-shot is shown."""

import pytest
import torch
from test_attention_agents import Frames

from recollect.agents.contract import ActorInputs
from recollect.recipes.attention_agents import attention_agent
from recollect.tasks import CatchConfig


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("attention", "side", "published"),
    [("divided", 42, 218_944), ("divided", 21, 110_944), ("joint", 42, 216_480)],
)
def test_timesformer_has_the_published_parameters_in_small_frames(attention, side, published):
    config = attention_agent(f"timesformer-{attention}", Frames(6, (4, side, side)))
    assert count(config.build_agent()) == published
    assert len(config.loss.reuse.updates(240)) == (3 if attention == "divided" else 24)


def test_one_shot_acts_as_it_learns():
    torch.manual_seed(0)
    agent = attention_agent("spatio-temporal-one-shot", CatchConfig(side=42)).build_agent().eval()
    images, policies = torch.randint(0, 256, (2, 6, 1, 42, 42), dtype=torch.uint8), torch.randn(2, 6, 3)
    is_first = torch.zeros(2, 6, dtype=torch.bool)
    is_first[:, 0] = is_first[0, 3] = True
    actions, rewards = torch.zeros(2, 6).long(), torch.randn(2, 6)
    live, shown, outputs = agent.stream(2), [torch.full((2, 256), 7.0)], []
    for t in range(6):
        said = ActorInputs(images[:, t], actions[:, t], rewards[:, t], policies[:, t], shown[-1])
        outputs.append(live.step(said, is_first[:, t]))
        shown.append(outputs[-1].features)
    told = ActorInputs(images, actions, rewards, policies, torch.stack(shown[:-1], 1))
    with torch.no_grad():
        whole, _ = agent(told, agent.initial_state(2), is_first)
    for t in range(6):
        torch.testing.assert_close(outputs[t].policy, whole.policy[:, t], rtol=1e-4, atol=1e-4)
