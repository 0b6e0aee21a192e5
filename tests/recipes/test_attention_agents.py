"""The attention agents of George 2021: parameters as published, runs as typed, and what is said of a wrong world."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rich.console import Console

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.cli.train import _default_config, train
from recollect.cli.train_request import read_request
from recollect.recipes import RECIPES, training
from recollect.recipes.attention_agents import ATTENTION_AGENTS, attention_agent
from recollect.recipes.attention_agents.sizes import SIZES, UNUSED_NORMS
from recollect.tasks import CatchConfig, TMazeConfig
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import ReuseConfig

GAMES = {"Pong": 6, "Enduro": 9, "MsPacman": 9, "Breakout": 4}


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


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.agent} {size.game} {size.changed}".strip())
def test_agents_have_the_published_parameters_less_those_that_nothing_reads(size):
    world = Frames(GAMES[size.game], (4, size.side, size.side))
    assert size.count(world) + size.unused == size.published
    assert not size.unused or size.agent == "adaptive" or size.agent.startswith("spatio-temporal")


def test_parts_have_the_published_parameters():
    one, two = (attention_agent(name, Frames(6)).build_agent() for name in ("mott", "adaptive"))
    assert count(one.encoder) == 97_744 and count(one.core.answer) == 659_712
    assert two.encoder.dim == 256 - 6 - 1 and two.core.input_shape == (256,)
    assert isinstance(two.core.project, torch.nn.Identity)
    layer = two.core.layers[0]
    assert count(layer) + UNUSED_NORMS == 855_808 and two.core.u.numel() + two.core.v.numel() == 512


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
    features = torch.randn(2, 5, agent.feature_dim)
    told = ActorInputs(images, torch.zeros(2, 5).long(), torch.randn(2, 5), torch.randn(2, 5, 3), features)
    with torch.no_grad():
        whole, _ = agent(told, agent.initial_state(2), is_first)
    agent.save(tmp_path)
    live = ActorCritic.load(tmp_path).stream(2)
    for t in range(5):
        step = live.step(ActorInputs(*(part[:, t] for part in told)), is_first[:, t])
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


@pytest.mark.parametrize("name", ["mott", "spatio-temporal-one-shot", "timesformer-divided"])
@pytest.mark.parametrize("side", [42, 126])
def test_an_agent_that_is_typed_is_made_for_the_world_that_is_typed(name, side):
    request = read_request(["catch", "--agent", name, "--world.side", str(side), "--core.dim", "64"])
    config = _default_config(request)
    assert config.world.side == side and config.core.grid == ((side + 7) // 8,) * 2
    assert config.core.dim == 256, "other flags are left to the parser"


def test_a_core_that_reads_another_map_than_the_encoder_makes_is_named():
    config = attention_agent("mott", CatchConfig(side=84))
    for changed in (
        replace(config, world=CatchConfig(side=126)),
        replace(config, agent=replace(config.agent, encoders=replace(config.agent.encoders, channels=(16, 16, 64)))),
    ):
        with pytest.raises(ValueError, match=r"grid=\(11, 11\), channels=32: .* map has .* places of .*--core.grid"):
            changed.build_agent()


def test_a_mistaken_flag_beside_an_agent_is_answered_with_the_agents_help():
    with pytest.raises(ValueError, match=r"unknown flag --stepz: .*recollect train catch --agent mott --help shows"):
        train(["catch", "--agent", "mott", "--stepz", "3"], Console())


def test_images_of_another_size_layout_or_type_are_named():
    agent = attention_agent("adaptive", CatchConfig(side=42)).build_agent().eval()
    first = torch.ones(1, 1, dtype=torch.bool)

    def show(images):
        agent(ActorInputs(images, torch.zeros(1, 1).long(), torch.zeros(1, 1), torch.zeros(1, 1, 3)),
              agent.initial_state(1), first)  # fmt: skip

    for shape in ((1, 84, 84), (42, 42, 1)):
        with pytest.raises(ValueError, match=r"observation has shape .*; this agent takes \[b, t, 1, 42, 42\]"):
            show(torch.zeros(1, 1, *shape, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"images have dtype torch.float32: this agent was built for bytes 0..255"):
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


@pytest.mark.long
def test_studies_and_games_of_the_thesis_are_rows():
    pytest.importorskip("ale_py")
    rows = {run.row: run for run in RECIPES["attention-agents"].rows("paper")}
    assert {f"{agent}, {game}" for agent in ATTENTION_AGENTS for game in GAMES} <= rows.keys()
    assert rows["adaptive, Pong"].tests["game"].paper == "20.38"
    for agent in ATTENTION_AGENTS:
        for game in GAMES:
            run = rows[f"{agent}, {game}"]
            side = 42 if agent == "timesformer-joint" and game in ("MsPacman", "Breakout") else 84
            worlds = (run.config.world, *(test.where for test in run.tests.values()))
            assert {world.spec.observation_space.shape for world in worlds} == {(4, side, side)}, run.row
    assert rows["mott, one frame, Enduro"].config.world.spec.observation_space.shape == (1, 84, 84)
    assert rows["adaptive, pixels 0..1, Pong"].config.agent.encoders.scale_images
    for side, places in ((7, 12), (14, 6), (28, 3)):
        assert rows[f"timesformer-divided, patches of {side}, Pong"].config.core.grid == (places, places)
    steps = rows["adaptive, Pong"].config
    assert 0 <= steps.fit.steps * steps.batch_size * steps.unroll - 10_000_000 < steps.batch_size * steps.unroll
    assert all(set(run.tests) == {"game", "life"} for run in rows.values())
