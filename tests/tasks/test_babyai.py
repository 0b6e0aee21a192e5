"""Levels of BabyAI as one environment, and an agent that is told what matters."""

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("minigrid")

from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.encoders import ObservationEncoder
from recollect.cli import main
from recollect.recipes.babyai import BABYAI, babyai
from recollect.tasks import GymnasiumConfig
from recollect.tasks.gymnasium.babyai import demonstrate
from recollect.tasks.gymnasium.babyai_levels import PAPER_LEVELS, max_instruction_words
from recollect.tasks.gymnasium.spaces import hash_words


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

    return BabyAIBot(environment.unwrapped.current.unwrapped)


@pytest.mark.parametrize("level", ["CartPole-v1", "gym:CartPole-v1", "ALE/Pong-v5"])
def test_what_is_no_level_has_no_bot(level, tmp_path, capsys):
    assert main(["demonstrations", level, "-o", str(tmp_path / "demos.npz")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"level={level!r}: only levels of BabyAI have a bot: name one, such as GoToLocal" in said


def test_mistakes_are_named():
    for levels, message in (("GoToLocal", "give a list of levels"), (["GoToLocl"], "GoToLocl")):
        with pytest.raises(ValueError, match=message):
            _ = GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": levels}).spec


def test_every_level_of_the_paper_exists_and_both_scales_have_runs():
    space = GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": PAPER_LEVELS}, words=72).spec
    assert space.observation_space["language"].shape == (72,) and len(PAPER_LEVELS) == 8
    for scale in ("lite", "paper"):
        assert len({run.label for run in BABYAI.rows(scale)}) == len(BABYAI.rows(scale))


def longest_of_the_grammar(level):
    """The longest sentence that minigrid's verifier makes of what a level's generator may choose."""
    from minigrid.envs.babyai.core import verifier

    class Description(verifier.ObjDesc):
        def find_matching_objs(self, env, use_location=True):
            self.obj_set = [self]

    place = "front" if level.locations else None
    thing, door = (Description(kind, "red", place) for kind in ("ball", "door"))
    actions = {
        "goto": verifier.GoToInstr(thing),
        "pickup": verifier.PickupInstr(thing),
        "open": verifier.OpenInstr(door),
        "putnext": verifier.PutNextInstr(thing, thing),
    }
    action = max((actions[kind] for kind in level.action_kinds), key=lambda one: number_of_words(one.surface(None)))
    both = verifier.AndInstr(action, action)
    kinds = {"action": action, "and": both, "seq": verifier.AfterInstr(both, both)}
    return max((kinds[kind].surface(None) for kind in level.instr_kinds), key=number_of_words)


def number_of_words(sentence):
    return np.count_nonzero(hash_words(sentence, 500, 1024))


def test_no_level_says_more_than_there_is_room_for():
    from minigrid.envs.babyai.core.levelgen import LevelGen

    found = {}
    for name in [name for name in gymnasium.registry if name.startswith("BabyAI-")]:
        environment = gymnasium.make(name, disable_env_checker=True)
        level = environment.unwrapped
        if isinstance(level, LevelGen):
            found[name] = number_of_words(longest_of_the_grammar(level))
        else:  # one form of sentence, and no choice that makes it longer than others by more than a place
            found[name] = max(number_of_words(environment.reset(seed=seed)[0]["mission"]) for seed in range(3))
        assert found[name] <= max_instruction_words((name,)), name
    assert found["BabyAI-BossLevel-v0"] == found["BabyAI-MiniBossLevel-v0"] == found["BabyAI-SynthSeq-v0"] == 72
    assert found["BabyAI-MoveTwoAcrossS8N9-v0"] == 19 and found["BabyAI-GoToSeq-v0"] == 24
    assert found["BabyAI-PickupLoc-v0"] == 9 and found["BabyAI-PutNextLocal-v0"] == 9, (
        "what the lite scale has room for"
    )


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
