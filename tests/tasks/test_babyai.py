"""Levels of BabyAI as one environment, and an agent that is told what matters."""

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("minigrid")

from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.encoders import ObservationEncoder
from recollect.recipes.babyai import BABYAI, babyai
from recollect.tasks import GymnasiumConfig
from recollect.tasks.gymnasium.babyai import PAPER_LEVELS, demonstrate


def test_the_return_is_success_and_levels_are_drawn():
    environment = gymnasium.make("recollect/BabyAI-v0", levels=("GoToLocal", "BabyAI-PickupLoc-v0"))
    missions = set()
    for seed in range(8):
        observations, actions, rewards = demonstrate(environment, seed, _inner)
        assert rewards[-1] == 1.0 and not any(rewards[:-1]) and len(observations) == len(actions) + 1
        missions.add(observations[0]["mission"].split()[0])
    assert missions == {"go", "pick"}
    one, two = (environment.reset(seed=3)[0] for _ in range(2))
    assert one["mission"] == two["mission"] and np.array_equal(one["image"], two["image"])


def _inner(environment):
    from minigrid.utils.baby_ai_bot import BabyAIBot

    return BabyAIBot(environment.unwrapped.playing.unwrapped)


def test_mistakes_are_named():
    for levels, message in (("GoToLocal", "give a list of levels"), (["GoToLocl"], "GoToLocl")):
        with pytest.raises(ValueError, match=message):
            _ = GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": levels}).spec


def test_every_level_of_the_paper_exists_and_both_scales_have_runs():
    space = GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": PAPER_LEVELS}, words=40).spec
    assert space.observation_space["language"].shape == (40,) and len(PAPER_LEVELS) == 8
    for scale in ("lite", "paper"):
        assert len({run.label for run in BABYAI.rows(scale)}) == len(BABYAI.rows(scale))


@pytest.mark.parametrize("core", ["instructed", "transformer", "memoryless"])
def test_the_agents_see_grid_and_words(core):
    config = babyai(core)
    agent = config.build_agent().eval()
    world = config.world.build(3, seed=0)
    stream, step = agent.stream(3), world.reset()
    from recollect.agents.contract import ActorInputs

    said = stream.step(ActorInputs(step.observation, torch.zeros(3, dtype=torch.long), step.reward), step.is_first)
    assert said.policy.shape == (3, 7)


def test_words_change_what_a_told_grid_says_of_itself():
    spec = GymnasiumConfig(id="BabyAI-GoToLocal-v0").spec
    torch.manual_seed(0)
    encoder = ObservationEncoder(
        spec.observation_space, EncoderConfig(kinds=(("image", "told-tiles"), ("language", "word-tokens")))
    )
    seen = {name: torch.from_numpy(np.asarray(space.sample()))[None] for name, space in spec.observation_space.items()}
    seen["image"] = seen["image"] % 9
    one, grid = encoder(seen, 1), encoder.encoders["image"].dim
    places = slice(encoder.encoders["direction"].dim, encoder.encoders["direction"].dim + grid)
    other = encoder({**seen, "language": (seen["language"] + 1) % 1024}, 1)
    assert not torch.allclose(one[:, places], other[:, places])
    with pytest.raises(ValueError, match="there must be one sentence beside the grid"):
        ObservationEncoder(spec.observation_space["image"], EncoderConfig(kinds=(("observation", "told-tiles"),)))
