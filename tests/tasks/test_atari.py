import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.tasks import GymnasiumConfig
from recollect.tasks.gymnasium.atari import AtariRules, action_after_life_loss
from tiers import first

pytest.importorskip("ale_py")


def game(name="Breakout", **rules):
    return GymnasiumConfig(id=f"ALE/{name}-v5", options=AtariRules(**rules).options)


@pytest.mark.parametrize(("side", "stack"), first(2, [(42, 4), (84, 1), (84, 4), (42, 1), (21, 1), (21, 4)]))
def test_frames_have_the_size_and_stack_of_the_rules(side, stack):
    config = game("Pong", side=side, stack=stack)
    assert config.spec.observation_space == spaces.Box(0, 255, (stack, side, side), np.uint8)
    step = config.build(2).reset()
    assert step.observation.shape == (2, stack, side, side) and step.observation.dtype == torch.uint8
    assert step.observation.float().std() > 0


def test_action_sets_and_sticky_actions():
    assert game().spec.action_space.n == 4 and game("Enduro").spec.action_space.n == 9
    assert game("MsPacman").spec.action_space.n == 9 and game("Pong").spec.action_space.n == 6
    assert game(full_actions=True).spec.action_space.n == 18
    assert AtariRules().options["repeat_action_probability"] == 0.0
    assert AtariRules(sticky=0.25).options["repeat_action_probability"] == 0.25


def test_a_lost_life_ends_an_episode_and_the_game_goes_on():
    world = game(noops=0).build(1, seed=3)
    vector = world.rows.environment
    lives, seen, original = [], [], vector.step

    def step(actions):
        answer = original(actions)
        seen.append((int(actions[0]), int(answer[4]["lives"][0])))
        return answer

    vector.step = step
    shown = world.reset()
    while len(lives) < 6:
        was_last = bool(shown.is_last[0])
        shown = world.step(torch.full((1,), 3))  # left for ever: every ball is lost
        if was_last:
            assert shown.is_first[0] and seen[-1][0] == 1, "FIRE begins what follows a lost life"
        else:
            assert seen[-1][0] == 3
        if shown.is_last[0]:
            lives.append(seen[-1][1])
    assert lives == [4, 3, 2, 1, 0, 4], "five lives are one game"
    world.close()


def test_a_game_that_is_cut_in_the_first_step_after_a_life_begins_anew_at_once():
    limit = 25
    settings = AtariRules(side=42, noops=0).options | {"max_num_frames_per_episode": 4 * limit}
    world = GymnasiumConfig(id="ALE/Breakout-v5", options=settings).build(6, seed=5)
    vector = world.rows.environment
    answers, original = [], vector.step

    def step(actions):
        answers.append(original(actions))
        return answers[-1]

    vector.step = step
    shown, steps, cut = world.reset(), torch.zeros(6, dtype=torch.long), 0
    for actions in torch.randint(4, (200, 6), generator=torch.Generator().manual_seed(0)):
        shown = world.step(actions)
        steps = torch.where(shown.is_first, 0, steps + 1)
        cut += int((shown.is_first & torch.from_numpy(answers[-1][3])).sum())
        assert int(steps.max()) <= limit, "an episode is longer than a game may be: another one began in it"
    assert cut > 0
    world.close()


def test_what_begins_after_a_life():
    assert action_after_life_loss(AtariRules().options, ("noop", "fire", "up")) == 1
    assert action_after_life_loss(AtariRules(fire=False).options, ("noop", "fire", "up")) == 0
    assert action_after_life_loss(AtariRules().options, ("noop", "up")) == 0
    assert action_after_life_loss(AtariRules(life_loss=False).options, ("noop", "fire")) is None
    assert action_after_life_loss({}, ("noop", "fire")) is None


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"side": 7}, "side=7: give at least 21 pixels"),
        ({"stack": 0}, "stack=0: give at least 1"),
        ({"sticky": 1.0}, "sticky=1.0: give a probability below 1"),
        ({"noops": -1}, "noops=-1: give at least 0"),
    ],
)
def test_rules_that_make_no_game_are_named(rules, message):
    with pytest.raises(ValueError, match=message):
        AtariRules(**rules)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"img_heigth": 42}, "options: img_heigth=42: .*did you mean 'img_height'"),
        ({"img_height": "a"}, "options: img_height='a': give a whole number, at least 1"),
        ({"stack_num": 0}, "options: stack_num=0: give a whole number, at least 1"),
        ({"noop_max": -1}, "options: noop_max=-1: give a whole number, at least 0"),
        ({"frameskip": [2, 5]}, "options: frameskip="),
        ({"life_loss_info": 1}, "options: life_loss_info=1: give true or false"),
        ({"repeat_action_probability": 2.0}, "options: repeat_action_probability=2.0: give a probability"),
        ({"side": 42}, "options: side=42: use ale-py's name img_height and img_width"),
    ],
)
def test_options_that_a_game_does_not_take_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        _ = GymnasiumConfig(id="ALE/Pong-v5", options=options).spec


def test_options_that_another_environment_does_not_take_are_named():
    for native in (True, False):
        with pytest.raises(ValueError, match=r"options=\{'foo': 1\}: .*unexpected keyword argument 'foo'"):
            _ = GymnasiumConfig(id="CartPole-v1", options={"foo": 1}, native=native).spec


@pytest.mark.parametrize("name", ["ALE/Pong", "Pong-v5", "Pong", "ale/Pong-v5", "ALE/Pong-v6", "PongNoFrameskip-v5"])
def test_a_game_under_another_name_is_found(name):
    with pytest.raises(ValueError, match="Did you mean: `ALE/Pong-v5`"):
        _ = GymnasiumConfig(id=name).spec


def test_an_unknown_game_and_a_missing_rom_say_what_to_do(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"id='ALE/Pongg-v5': .* Did you mean: `Pong`"):
        _ = game("Pongg").spec
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r"id='ALE/Pong-v5': there is no ROM of pong .* reinstall ale-py's wheel"):
        _ = game("Pong").spec
