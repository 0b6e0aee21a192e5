import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from recollect import gymnasium_ids
from recollect.tasks import TASKS
from recollect.tasks.gymnasium.views import RecollectEnv, RecollectVectorEnv
from recollect.tasks.gymnasium.worlds import GymnasiumConfig
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.pictures import draw_observation
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.tasks.worlds.tabletop.goal import GoalShownOnceConfig
from recollect.tasks.worlds.visual_match import VisualMatchConfig

SMALL = TMazeConfig(length=3, slack=2)


@pytest.fixture(autouse=True, scope="module")
def registered():
    gymnasium_ids.register()


@pytest.mark.parametrize("config", [SMALL, VisualMatchConfig(distractor_steps=4), GymnasiumConfig(masked=(1, 3))])
@pytest.mark.filterwarnings("ignore:.*A Box observation space m.* value is.*infinity")
def test_check_env_passes(config):
    check_env(RecollectEnv(config, render_mode="rgb_array"), skip_render_check=True)


@pytest.mark.parametrize("name", [name for name, _ in gymnasium_ids.ids()])
def test_every_id_is_made_single_and_vector(name):
    keywords = dict(gymnasium_ids.ids())[name]
    task = TASKS[keywords["task"]]
    env = gymnasium.make(f"recollect/{name}", render_mode="rgb_array")
    check_env(env.unwrapped)
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
    fields = {key: value for key, value in keywords.items() if key != "task"}
    assert env.observation_space == task(**fields).spec.observation_space
    envs = gymnasium.make_vec(f"recollect/{name}", num_envs=3)
    observation, _ = envs.reset(seed=1)
    assert observation in envs.observation_space
    observation, *_ = envs.step(envs.action_space.sample())
    assert observation in envs.observation_space


def test_names_say_the_difficulty():
    names = [name for name, _ in gymnasium_ids.ids()]
    assert {f"Ballet-{n}-delay{d}-v0" for n in range(1, 9) for d in (16, 48)} <= set(names)
    tasks = {keywords["task"] for _, keywords in gymnasium_ids.ids()}
    assert tasks >= {key for key, entry in TASKS.items() if issubclass(entry, WorldConfig) and key != "gym"}


def test_registering_needs_no_torch_and_waits_for_gymnasium():
    code = """
import importlib.util, sys
import recollect, recollect.gymnasium_ids as ids
assert "gymnasium" not in sys.modules
assert importlib.util.find_spec("gymnasium"), "a search alone changes nothing"
import gymnasium
assert all(f"recollect/{name}" in gymnasium.registry for name, _ in ids.ids())
ids.register()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_keyword_is_a_field():
    env = gymnasium.make("recollect/TMaze-v0", length=2, slack=0)
    assert env.unwrapped.world.spec.max_steps == 3
    with pytest.raises(ValueError, match="lenght"):
        gymnasium.make("recollect/TMaze-v0", lenght=2)


def test_a_single_environment_waits_for_reset():
    env = RecollectEnv(SMALL)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    for count in range(6):
        _, reward, terminated, truncated, info = env.step(2)
        assert reward == pytest.approx(-0.01)
        assert (terminated, truncated, info) == ((False, True, {"score": 0.0}) if count == 5 else (False, False, {}))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    env.step(0)


def test_a_seed_begins_the_same_sequence_of_episodes():
    def cues(env, seed):
        views = [env.reset(seed=seed)[0]] + [env.reset()[0] for _ in range(20)]
        return np.stack(views)

    one, two = RecollectEnv(SMALL), RecollectEnv(SMALL)
    assert np.array_equal(cues(one, 3), cues(two, 3))
    assert not np.array_equal(cues(one, 3), cues(two, 4))


def test_bad_actions_are_refused():
    env = RecollectEnv(SMALL)
    env.reset(seed=0)
    for action in (4, -1, 0.5, [0]):
        with pytest.raises(ValueError, match="is not in"):
            env.step(action)
    envs = RecollectVectorEnv(SMALL, 2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step([0, 0])
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="out of range"):
        envs.step([0, 4])
    with pytest.raises(ValueError, match=r"actions are float64 .*: give integers"):
        envs.step([2.9, 0.2])
    with pytest.raises(ValueError, match="one integer"):
        envs.reset(seed=[1, 2])


def test_both_views_take_actions_in_float64():
    action = np.array([0.1, 0.0, 1.0])
    env, envs = RecollectEnv(GoalShownOnceConfig()), RecollectVectorEnv(GoalShownOnceConfig(), 1)
    env.reset(seed=0)
    envs.reset(seed=0)
    single, together = env.step(action)[0], envs.step(action[None])[0]
    for name in single:
        assert np.array_equal(single[name], together[name][0])
    with pytest.raises(ValueError, match="is not in Box"):
        env.step(np.array([0.1, 0.0, 7.0]))


def test_the_vector_view_equals_the_world():
    envs, world = RecollectVectorEnv(SMALL, 8), SMALL.build(8)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observation, _ = envs.reset(seed=5)
    seed = int(np.random.default_rng(np.random.PCG64(5)).integers(2**62))
    step = world.reset(seed=seed)
    ended = 0
    for _ in range(40):
        assert np.array_equal(observation, step.observation.numpy())
        actions = torch.randint(4, (8,))
        actions[:4] = world.oracle()[:4]
        step = world.step(actions)
        observation, reward, terminated, truncated, info = envs.step(actions.numpy())
        assert np.array_equal(reward, step.reward.numpy())
        assert np.array_equal(terminated, step.terminated.numpy())
        assert np.array_equal(truncated, step.truncated.numpy())
        if step.is_last.any():
            ended += 1
            assert np.array_equal(info["score"], step.score.numpy())
            assert np.array_equal(info["_score"], step.is_last.numpy())
        else:
            assert info == {}
    assert ended > 3


MODES = [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("config", [SMALL, VisualMatchConfig(distractor_steps=4), GoalShownOnceConfig()])
@pytest.mark.parametrize("mode", MODES)
def test_other_modes_show_the_same_episodes_without_the_lost_step(config, mode):
    """With one row the generator is asked for the same episodes in the same order as by NEXT_STEP."""
    envs, usual = RecollectVectorEnv(config, 1, autoreset_mode=mode.value), RecollectVectorEnv(config, 1)
    assert envs.autoreset_mode is envs.metadata["autoreset_mode"] is mode and usual.metadata != envs.metadata
    assert RecollectVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    leaf = lambda observation: list(observation.values()) if isinstance(observation, dict) else [observation]  # noqa: E731
    same = lambda a, b: all(np.array_equal(x, y) for x, y in zip(leaf(a), leaf(b), strict=True))  # noqa: E731
    for one in (envs, usual):
        one.reset(seed=3)
        one.action_space.seed(3)
    ended = 0
    for _ in range(60):
        action = envs.action_space.sample()
        expected, answer = usual.step(action), envs.step(action)
        assert all(np.array_equal(a, b) for a, b in zip(expected[1:4], answer[1:4], strict=True))
        if not (expected[2] | expected[3])[0]:
            assert same(expected[0], answer[0]) and answer[4] == {}
            continue
        ended += 1
        first = usual.step(action)[0]
        if mode is AutoresetMode.SAME_STEP:
            assert same(answer[0], first)
            final, info = answer[4]["final_obs"][0], answer[4]["final_info"]
            assert same({k: v[None] for k, v in final.items()} if isinstance(final, dict) else final[None], expected[0])
            assert answer[4]["_final_obs"].all() and info["score"] == expected[4]["score"]
        else:
            assert same(answer[0], expected[0]) and answer[4]["score"] == expected[4]["score"]
            with pytest.raises(gymnasium.error.ResetNeeded, match=r"rows \[0\]"):
                envs.step(action)
            assert same(envs.reset(options={"reset_mask": np.array([True])})[0], first)
    assert ended


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_go_on_are_left_alone_where_others_begin(mode):
    envs = gymnasium.make_vec("recollect/TMaze-v0", num_envs=6, length=3, slack=2, autoreset_mode=mode)
    world, generator = envs.world, np.random.default_rng(0)
    envs.reset(seed=0)
    ends = 0
    for _ in range(50):
        clock, over = world.clock.clone(), None
        actions = np.where(generator.random(6) < 0.5, world.oracle().numpy(), generator.integers(4, size=6))
        observation, _, terminated, truncated, _ = envs.step(actions)
        over = terminated | truncated
        if mode is AutoresetMode.DISABLED and over.any():
            assert (world.clock == clock + 1).all()
            after, _ = envs.reset(options={"reset_mask": over})
            assert np.array_equal(after[~over], observation[~over])
        assert (world.clock.numpy() == np.where(over, 0, clock.numpy() + 1)).all() and not world.over.any()
        ends += over.sum()
    assert ends > 6


def test_modes_that_cannot_be_are_named():
    with pytest.raises(ValueError, match="autoreset_mode='never': use one of NextStep, SameStep, Disabled"):
        RecollectVectorEnv(SMALL, 2, autoreset_mode="never")
    with pytest.raises(ValueError, match="GymnasiumWorld has NextStep only"):
        RecollectVectorEnv(GymnasiumConfig(), 2, autoreset_mode="SameStep")
    envs = RecollectVectorEnv(SMALL, 2)
    envs.reset()
    with pytest.raises(ValueError, match="by the NextStep rule"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs = RecollectVectorEnv(SMALL, 2, autoreset_mode="Disabled")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset all rows first"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    with pytest.raises(ValueError, match="one bool for every row"):
        envs.reset(options={"reset_mask": np.array([0])})
    with pytest.raises(ValueError, match="seed=1"):
        envs.reset(seed=1, options={"reset_mask": np.array([True, False])})


def test_observations_belong_to_the_caller():
    envs = RecollectVectorEnv(SMALL, 2)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    envs.step([0, 0])[0][:] = 9
    assert np.array_equal(first, kept)


@pytest.mark.parametrize(
    "observation",
    [
        torch.randint(255, (2, 5, 7, 3), dtype=torch.uint8),
        torch.randint(255, (2, 4, 9, 8), dtype=torch.uint8),
        torch.randint(30, (2, 11, 11)),
        torch.randn(2, 6),
        torch.tensor([3, 1]),
        torch.full((2, 3), float("inf")),
        {"image": torch.randint(255, (2, 5, 5, 3), dtype=torch.uint8), "language": torch.ones(2, 4, dtype=torch.long)},
        {"language": torch.ones(2, 4, dtype=torch.long), "place": torch.randn(2, 3)},
        {"language": torch.ones(2, 4, dtype=torch.long)},
    ],
)
def test_any_observation_can_be_drawn(observation):
    picture = draw_observation(observation, 1)
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3


def test_render_mode_is_checked():
    with pytest.raises(ValueError, match="render_mode='human'"):
        RecollectEnv(SMALL, render_mode="human")
    env = RecollectVectorEnv(SMALL, 2, render_mode="rgb_array")
    env.reset(seed=0)
    assert len(env.render()) == 2
    assert RecollectEnv(SMALL).render() is None
