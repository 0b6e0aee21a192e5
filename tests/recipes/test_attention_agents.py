"""The attention agents of George 2021: parameters as published, runs as typed, and what is said of a wrong world."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.recipes import training
from recollect.recipes.attention_agents import ATTENTION_AGENTS, attention_agent
from recollect.tasks import CatchConfig, TMazeConfig
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.impala.loss import ReuseConfig

GAMES = {"Pong": 6, "Enduro": 9, "MsPacman": 9, "Breakout": 4}
UNUSED_NORMS = 3 * 2 * 256
"""LayerNorms of a layer that the counted code makes and never uses; here they are not made."""


class Frames(WorldConfig):
    """The spaces of a game, without the game."""

    def __init__(self, actions, shape=(4, 84, 84), dtype=np.uint8):
        vars(self).update(actions=actions, shape=shape, dtype=dtype)

    @property
    def spec(self):
        seen = spaces.Box(0, 255 if self.dtype == np.uint8 else 1, self.shape, self.dtype)
        return replace(CatchConfig().spec, observation_space=seen, action_space=spaces.Discrete(self.actions))

    def build(self, batch_size, *, seed=0, device="cpu"):
        raise NotImplementedError


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("game", "published"), [("Pong", 2_176_663), ("Enduro", 2_178_970), ("Breakout", 2_175_125)])
def test_mott_has_the_published_parameters(game, published):
    agent = attention_agent("mott", Frames(GAMES[game])).build_agent()
    assert count(agent) == published
    assert count(agent.encoder) == 97_744
    if game == "Pong":
        assert count(agent.core.answer) == 659_712


@pytest.mark.parametrize(
    ("game", "layers", "published"),
    [
        ("Pong", 1, 1_920_240),
        ("Pong", 2, 2_776_048),
        ("Pong", 3, 3_631_856),
        ("Enduro", 1, 1_909_392),
        ("Breakout", 1, 1_927_472),
    ],
)
def test_adaptive_has_the_published_parameters_less_the_unused_norms(game, layers, published):
    config = attention_agent("adaptive", Frames(GAMES[game]))
    agent = replace(config, core=replace(config.core, num_layers=layers)).build_agent()
    assert count(agent) + layers * UNUSED_NORMS == published
    assert agent.encoder.dim == 256 - GAMES[game] - 1 and agent.core.input_shape == (256,)
    assert isinstance(agent.core.project, torch.nn.Identity)


def test_rollouts_are_those_of_appendix_a():
    mott, adaptive = (attention_agent(name, CatchConfig(side=42)) for name in ("mott", "adaptive"))
    assert mott.unroll == 160 and mott.loss.reuse == ReuseConfig()
    assert adaptive.unroll + 1 == 240 and len(adaptive.loss.reuse.updates(240)) == 3
    assert adaptive.loss.reuse.learner_memory == "empty"
    for config in (mott, adaptive):
        assert (config.agent.previous_action, config.agent.clip_reward) == ("logits", 1.0)
        assert not config.agent.encoders.scale_images and config.loss.reward_clip == 1.0


@pytest.mark.parametrize("name", ATTENTION_AGENTS)
@pytest.mark.parametrize("side", [42, 84])
def test_every_agent_steps_as_it_reads_whole_sequences_and_loads_again(name, side, tmp_path):
    torch.manual_seed(0)
    agent = attention_agent(name, CatchConfig(side=side)).build_agent().eval()
    images = torch.randint(0, 256, (2, 5, 1, side, side), dtype=torch.uint8)
    is_first = torch.tensor([[True, False, False, True, False], [False] * 5])
    told = ActorInputs(images, torch.zeros(2, 5).long(), torch.randn(2, 5), torch.randn(2, 5, 3))
    with torch.no_grad():
        whole, _ = agent(told, agent.initial_state(2), is_first)
    agent.save(tmp_path)
    live = ActorCritic.load(tmp_path).stream(2)
    for t in range(5):
        step = live.step(ActorInputs(*(part[:, t] for part in told[:4])), is_first[:, t])
        torch.testing.assert_close(step.policy, whole.policy[:, t], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(step.value, whole.value[:, t], rtol=1e-4, atol=1e-3)


def test_an_agent_of_another_name_or_for_other_worlds_is_named():
    with pytest.raises(ValueError, match="unknown agent 'motte': did you mean 'mott'"):
        attention_agent("motte", CatchConfig())
    with pytest.raises(ValueError, match=r"--agent mott: it looks at one image a step, and TMaze shows Box"):
        attention_agent("mott", TMazeConfig())
    with pytest.raises(ValueError, match="--agent adaptive: it acts in worlds, and recall is none: use --core"):
        training("recall", "gru", agent="adaptive")
    assert type(training("catch", "gru", agent="mott").core).__name__ == "SpatialAttentionMemoryConfig"


def test_images_of_another_size_layout_or_type_are_named():
    agent = attention_agent("adaptive", CatchConfig(side=42)).build_agent().eval()
    first = torch.ones(1, 1, dtype=torch.bool)

    def show(images):
        agent(ActorInputs(images, torch.zeros(1, 1).long(), torch.zeros(1, 1), torch.zeros(1, 1, 3)),
              agent.initial_state(1), first)  # fmt: skip

    for shape in ((1, 84, 84), (42, 42, 1)):
        with pytest.raises(ValueError, match=r"observation has shape .*; this agent takes \[b, t, 1, 42, 42\]"):
            show(torch.zeros(1, 1, *shape, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"images have dtype torch.float32: .* built for bytes 0..255, not floats"):
        show(torch.rand(1, 1, 1, 42, 42))
    show(torch.zeros(1, 1, 1, 42, 42, dtype=torch.uint8))


def test_both_layouts_have_the_same_parameters():
    sizes = {count(attention_agent("mott", Frames(6, shape)).build_agent()) for shape in ((4, 84, 84), (84, 84, 4))}
    assert sizes == {2_176_663}


def test_an_agent_of_another_action_set_is_named():
    world = CatchConfig(side=42)
    config = attention_agent("adaptive", Frames(18, (1, 42, 42)))
    with pytest.raises(ValueError, match=r"action_space=Discrete\(3\) of Catch: .* made for Discrete\(18\)"):
        config.evaluate(config.build_agent(), world, samples=2, seed=0)
