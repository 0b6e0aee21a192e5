import os
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.encoders import ObservationEncoder
from recollect.cores import GRUConfig
from recollect.evaluation.agents import evaluate_agent
from recollect.tasks.gymnasium.rows import BrokenEnvironmentError, VectorRows
from recollect.tasks.gymnasium.spaces import ActionWriter, ObservationReader, hash_words
from recollect.tasks.gymnasium.stacking import stacked_space
from recollect.tasks.gymnasium.worlds import ATARI, GymnasiumConfig, GymnasiumWorld
from tiers import first

BAD_ANSWERS = {
    "four": (np.zeros(3), 1.0, False, {}),
    "words": (np.zeros(3), "a lot", False, False, {}),
    "width": (np.zeros(4), 1.0, False, False, {}),
}


class Counting(gymnasium.Env):
    """Shows [episode, step, seed % 97]; ends after 1 + episode % 3 steps, every second time by truncation."""

    def __init__(self, trouble=None, at=3):
        self.observation_space = spaces.Box(-1, 1e6, (3,), np.float64)
        self.action_space = spaces.Discrete(3, start=5)
        self.trouble, self.at, self.episode, self.total = trouble, at, -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.mark, self.episode = seed % 97, -1
        self.episode, self.count = self.episode + 1, 0
        return np.array([self.episode, 0, self.mark], dtype=np.float64), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count, self.total = self.count + 1, self.total + 1
        if self.trouble and self.total == self.at and self.mark == 11:
            if self.trouble == "raise":
                raise ZeroDivisionError("the wheel came off")
            if self.trouble == "exit":
                os._exit(3)
            if self.trouble in BAD_ANSWERS:
                return BAD_ANSWERS[self.trouble]
            time.sleep(60)
        over = self.count > self.episode % 3
        late = self.episode % 2 == 1
        view = np.array([self.episode, self.count, self.mark], dtype=np.float64)
        return view, float(action), over and not late, over and late, {}


class Slow(Counting):
    def step(self, action):
        time.sleep(1.2)
        return super().step(action)


class Endless(Counting):
    def step(self, action):
        view, reward, *_ = super().step(action)
        return view, reward, False, False, {}


class Lone(Counting):
    """Shows a single number."""

    def __init__(self, named=False):
        super().__init__()
        self.named, box = named, spaces.Box(0, 9, (), np.float64)
        self.observation_space = spaces.Dict({"speed": box}) if named else box

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        return self.look(), info

    def step(self, action):
        _, *answer = super().step(action)
        return self.look(), *answer

    def look(self):
        return {"speed": self.count / 2} if self.named else np.float64(self.count / 2)


class Patient(gymnasium.Env):
    """A thousand small rewards."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 1000
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), 0.1, self.left == 0, False, {}


class Talking(gymnasium.Env):
    observation_space = spaces.Dict({"place": spaces.Discrete(4), "mission": spaces.Text(64)})
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"place": 1, "mission": "go to the Red ball, then stop"}, {}

    def step(self, action):
        assert np.abs(action).max() <= 1
        return {"place": 2, "mission": "stop"}, 0.0, False, False, {}


def odd(observation_space=None, action_space=None):
    env = Talking()
    env.observation_space = observation_space or env.observation_space
    env.action_space = action_space or env.action_space
    return env


@pytest.fixture(autouse=True, scope="module")
def registered():
    names = {
        "RecollectTest/Counting-v0": {"entry_point": Counting},
        "RecollectTest/Chatty-v0": {"entry_point": Chatty},
        "RecollectTest/Lacking-v0": {"entry_point": lacking},
        "RecollectTest/Patient-v0": {"entry_point": Patient},
        "RecollectTest/Talking-v0": {"entry_point": Talking},
        "RecollectTest/Odd-v0": {"entry_point": odd},
        "RecollectTest/VectorOnly-v0": {"vector_entry_point": lambda num_envs: None},
    }
    for name, entries in names.items():
        gymnasium.register(id=name, **entries)
    yield
    for name in names:
        del gymnasium.registry[name]


def counting(**fields):
    return GymnasiumConfig(id="RecollectTest/Counting-v0", **fields)


def literal_loop(make, actions, seed):
    """The rule of tasks/world.py for one environment: (observation, reward, first, terminated, truncated, score)."""
    env = make()
    rows, over, total = [(env.reset(seed=seed)[0], 0.0, True, False, False, 0.0)], False, 0.0
    for action in actions:
        if over:
            rows.append((env.reset()[0], 0.0, True, False, False, 0.0))
            over, total = False, 0.0
            continue
        observation, reward, terminated, truncated, _ = env.step(action)
        truncated = truncated and not terminated
        over, total = terminated or truncated, total + reward
        rows.append((observation, reward, False, terminated, truncated, total if over else 0.0))
    return rows


def assert_equal_to_loops(steps, actions, make, seed):
    for row in range(actions.shape[1]):
        expected = literal_loop(make, [int(action) for action in actions[:, row]], seed + row)
        for step, (observation, *numbers) in zip(steps, expected, strict=True):
            np.testing.assert_allclose(step.observation[row].numpy(), np.float32(observation), rtol=1e-6)
            found = (step.reward, step.is_first, step.terminated, step.truncated, step.score)
            assert [float(part[row]) for part in found] == pytest.approx([float(number) for number in numbers])


def play(world, count, seed=7):
    actions = torch.randint(3, (count, world.batch_size))
    return [world.reset(seed=seed), *(world.step(action) for action in actions)], actions


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_equals_a_literal_loop(processes):
    world = counting(processes=processes).build(5)
    steps, actions = play(world, 25)
    world.close()
    assert_equal_to_loops(steps, actions + 5, Counting, 7)
    assert sum(int(step.truncated.sum()) for step in steps) > 5
    assert steps[0].observation.dtype == torch.float32 and steps[0].reward.dtype == torch.float32
    assert world.spec.action_space == spaces.Discrete(3)


class VectorWorld(GymnasiumWorld):
    """A world whose rows come from a vector environment of the test's own."""

    def __init__(self, config, environment, reader, writer):
        super().__init__(config, environment.num_envs)
        self.rows = VectorRows(environment, reader, writer)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_comes_out_the_same(mode):
    # Other modes than NEXT_STEP lose steps and whole episodes in between, so rows are told apart by what is certain:
    # every episode is shown from its first observation to its final one, with nothing in between left out.
    environment = SyncVectorEnv([Counting] * 4, autoreset_mode=mode)
    reader = ObservationReader(source=environment.single_observation_space)
    world = VectorWorld(counting(), environment, reader, ActionWriter(target=environment.single_action_space))
    steps, actions = play(world, 40)
    if mode is AutoresetMode.NEXT_STEP:
        assert_equal_to_loops(steps, actions + 5, Counting, 7)
    for row in range(4):
        total, count, before = 0.0, 0, None
        for now, step in enumerate(steps):
            episode, seen, mark = step.observation[row].tolist()
            assert mark == 7 + row
            if step.is_first[row]:
                assert before is None or before[0] < episode
                assert seen == 0 and step.reward[row] == 0
                total, count = 0.0, 0
            else:
                count += 1
                assert before is not None and before[0] == episode and seen == count
                assert step.reward[row] == actions[now - 1, row] + 5
            total += float(step.reward[row])
            over = seen > episode % 3
            assert bool(step.terminated[row]) == (over and episode % 2 == 0)
            assert bool(step.truncated[row]) == (over and episode % 2 == 1)
            assert float(step.score[row]) == (total if over else 0.0)
            before = None if over else (episode, seen)
            if over:
                assert now + 1 == len(steps) or steps[now + 1].is_first[row]


class OwnKey(SyncVectorEnv):
    """Tells the final observation by a key of its own."""

    def step(self, actions):
        *answer, info = super().step(actions)
        return (*answer, {key.replace("final_obs", "final_observation"): value for key, value in info.items()})


class AllAnew(SyncVectorEnv):
    """Resets all rows, whatever the mask says."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    ("kind", "mode", "said"),
    [
        (OwnKey, AutoresetMode.SAME_STEP, r"ended row 0 without info\['final_obs'\] .*native=False"),
        (AllAnew, AutoresetMode.SAME_STEP, r"of rows \[0, 1, 2\] changed row 3 .*native=False"),
        (AllAnew, AutoresetMode.DISABLED, r"of rows \[0, 1, 2\] changed row 3 .*native=False"),
    ],
)
def test_a_vector_environment_that_would_spoil_episodes_unseen_is_refused(kind, mode, said):
    environment = kind([Counting] * 3 + [Endless], autoreset_mode=mode)
    reader = ObservationReader(source=environment.single_observation_space)
    world = VectorWorld(counting(), environment, reader, ActionWriter(target=environment.single_action_space))
    with pytest.raises(ValueError, match=said):
        play(world, 3)


def test_a_vector_environment_that_keeps_its_rule_to_itself_is_refused():
    environment = SyncVectorEnv([Counting])
    environment.metadata = {}
    with pytest.raises(ValueError, match="autoreset_mode"):
        VectorRows(
            environment,
            ObservationReader(source=environment.single_observation_space),
            ActionWriter(target=spaces.Discrete(2)),
        )


def test_native_cartpole_obeys_the_rule_and_its_time_limit():
    config = GymnasiumConfig(id="CartPole-v1", options={"max_episode_steps": 12})
    world = config.build(32, seed=3)
    assert type(world.rows.environment).__name__ == "CartPoleVectorEnv" and config.spec.max_steps == 12
    step = world.reset()
    length, was_last, ends = torch.zeros(32), torch.zeros(32, dtype=torch.bool), [0, 0]
    for _ in range(60):
        step = world.step(torch.randint(2, (32,)))
        assert torch.equal(step.is_first, was_last)
        assert torch.equal(step.reward, (~was_last).float())
        length = torch.where(step.is_first, 0, length + 1)
        assert torch.equal(step.score, torch.where(step.is_last, length, 0.0))
        assert torch.equal(step.truncated, (length == 12) & ~step.terminated)
        assert (step.observation[step.is_first].abs() <= 0.05).all(), "first observations are those of a reset"
        outside = (step.observation[:, 0].abs() > 2.4) | (step.observation[:, 2].abs() > 12 * np.pi / 180)
        assert torch.equal(step.terminated, outside & ~step.is_first), "final observations are the true ones"
        was_last = step.is_last
        ends = [ends[0] + int(step.terminated.sum()), ends[1] + int(step.truncated.sum())]
    assert min(ends) > 3


@pytest.mark.parametrize(
    ("given", "most"), [({}, 500), ({"max_episode_steps": None}, 500), ({"max_episode_steps": -1}, 0)]
)
def test_the_vector_form_has_the_limit_that_the_options_ask_for(given, most):
    world = GymnasiumConfig(id="CartPole-v1", options=given).build(2, seed=0)
    assert world.spec.max_steps == most and isinstance(world.rows, VectorRows) == bool(most)
    world.reset()
    assert not world.step(torch.zeros(2, dtype=torch.long)).is_last.any(), "a pole does not fall in one step"


@pytest.mark.parametrize(
    ("given", "most"), [({}, 500), ({"max_episode_steps": None}, 500), ({"max_episode_steps": -1}, 0)]
)
def test_the_longest_episode_is_what_gymnasium_makes_of_the_options(given, most):
    config = GymnasiumConfig(id="CartPole-v1", options=given, native=False)
    assert config.spec.max_steps == most
    assert isinstance(config.build(1).rows.environments[0], TimeLimit) == bool(most)


def test_masked_entries_are_hidden():
    whole = GymnasiumConfig().build(4, seed=1)
    masked = GymnasiumConfig(masked=(1, 3)).build(4, seed=1)
    one, two = whole.reset(), masked.reset()
    for _ in range(30):
        assert torch.equal(one.observation[:, [0, 2]], two.observation)
        actions = torch.randint(2, (4,))
        one, two = whole.step(actions), masked.step(actions)
    assert masked.spec.observation_space.shape == (2,)
    assert np.array_equal(masked.spec.observation_space.high, whole.spec.observation_space.high[[0, 2]])


def test_single_cartpoles_equal_the_literal_loop():
    world = GymnasiumConfig(native=False).build(3)
    actions = torch.randint(2, (80, 3))
    steps = [world.reset(seed=5), *(world.step(action) for action in actions)]
    assert_equal_to_loops(steps, actions, lambda: gymnasium.make("CartPole-v1"), 5)


def test_a_long_episode_of_small_rewards_is_scored_by_their_sum():
    world = GymnasiumConfig(id="RecollectTest/Patient-v0").build(1)
    step, action = world.reset(), torch.zeros(1, dtype=torch.long)
    while not step.is_last.any():
        step = world.step(action)
    assert step.score.dtype == step.reward.dtype == torch.float32
    assert step.score.item() == 100.0  # 99.999 where float32 is added to float32; 0.06 % too much after 60 000


def test_the_seed_decides():
    def first(seed):
        return GymnasiumConfig().build(3, seed=seed).reset().observation

    assert torch.equal(first(1), first(1)) and not torch.equal(first(1), first(2))
    world = GymnasiumConfig().build(3, seed=1)
    begun = world.reset().observation
    assert not torch.equal(begun, world.reset().observation), "a reset without a seed goes on"
    assert torch.equal(begun, world.reset(seed=1).observation)


def test_text_becomes_words():
    config = GymnasiumConfig(id="RecollectTest/Talking-v0", words=6, vocabulary=50)
    assert config.spec.observation_space == spaces.Dict(
        {"language": spaces.MultiDiscrete([50] * 6), "place": spaces.Discrete(4)}
    )
    world = config.build(2)
    step = world.reset()
    assert step.observation["language"].shape == (2, 6) and step.observation["language"].dtype == torch.int64
    assert step.observation["place"].tolist() == [1, 1]
    step = world.step(torch.full((2, 2), 9.0))  # clipped to the bounds
    stop = hash_words("stop", 1, 50)[0]
    assert step.observation["language"][0].tolist() == [stop, 0, 0, 0, 0, 0]
    assert hash_words("go to the Red ball, then stop", 9, 50)[6] == stop
    with pytest.raises(ValueError, match=r"floats \[2, 2\]"):
        world.step(torch.zeros(2, dtype=torch.long))


def test_an_observation_that_is_text_is_a_sentence():
    reader = ObservationReader(source=spaces.Text(30), words=4, vocabulary=50)
    assert reader.space == spaces.Dict({"language": spaces.MultiDiscrete([50] * 4)})
    found = reader.read(["go left", "stop"])["language"]
    assert found.tolist() == [hash_words(text, 4, 50).tolist() for text in ("go left", "stop")]
    assert ObservationEncoder(reader.space, EncoderConfig()).sentence == "language"  # and no 200 choices


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"observation_space": spaces.Sequence(spaces.Discrete(2))}, "FlattenObservation"),
        ({"observation_space": spaces.Tuple([spaces.Sequence(spaces.Discrete(2))])}, "0 is a Sequence space"),
        (
            {
                "observation_space": spaces.Dict(
                    {"a_b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}
                )
            },
            "two of its parts have the same name when .* joined by '_': give one another key",
        ),
        ({"observation_space": spaces.Dict({"a": spaces.Text(3), "b": spaces.Text(3)})}, "several texts"),
        ({"action_space": spaces.MultiBinary(3)}, "ActionWrapper"),
        ({"observation_space": (3,)}, r"observation_space=\(3,\): set it to a space of gymnasium.spaces"),
        ({"action_space": "Discrete"}, "action_space='Discrete': set it to a space"),
        ({"action_space": spaces.Dict({"a": spaces.Discrete(3)})}, "ActionWrapper"),
    ],
)
def test_spaces_without_a_form_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        _ = GymnasiumConfig(id="RecollectTest/Odd-v0", options=fields).spec


@pytest.mark.parametrize("processes", [0, 2])
def test_an_environment_that_raises_is_named_with_its_row(processes):
    world = counting(options={"trouble": "raise"}, processes=processes).build(6)
    with pytest.raises(BrokenEnvironmentError, match="row 4 of RecollectTest/Counting-v0 failed in step: ZeroDivision"):
        play(world, 20)
    world.close()


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("four", "row 4 of .* failed in step: ValueError: step returned 4 values"),
        ("words", "row 4 .*reward is 'a lot'"),
    ],
)
def test_an_answer_that_is_no_step_is_named_with_its_row(trouble, said, processes):
    world = counting(options={"trouble": trouble}, processes=processes).build(6)
    with pytest.raises(BrokenEnvironmentError, match=said):
        play(world, 20)
    world.close()


class Chatty(Counting):
    met = threading.Barrier(2, timeout=600)

    def reset(self, *, seed=None, options=None):
        print("a layout was rejected")
        self.met.wait()  # both threads are in their resets; then one after the other
        time.sleep(0.05 * (threading.current_thread().name == "later"))
        print("and another one")
        return super().reset(seed=seed)


def test_environments_are_silent_in_their_resets_and_nobody_else_is(capsys):
    before, worlds = sys.stdout, [GymnasiumConfig(id="RecollectTest/Chatty-v0").build(1) for _ in range(2)]
    threads = [
        threading.Thread(target=world.reset, name=name) for world, name in zip(worlds, ("sooner", "later"), strict=True)
    ]
    threads[0].start()
    while sys.stdout is before:  # until it is in its reset
        time.sleep(0.001)
    print("heard", flush=True)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert sys.stdout is before
    print("and heard")
    assert capsys.readouterr().out == "heard\nand heard\n"


def test_a_wrong_observation_in_another_process_is_named_with_its_row():
    world = counting(options={"trouble": "width"}, processes=2).build(6)
    with pytest.raises(BrokenEnvironmentError, match=r"row 4 .* wrong observation: observation has shape"):
        play(world, 20)
    world.close()


def test_a_process_that_is_killed_between_two_steps_is_named_with_its_row():
    world = counting(processes=2).build(6)
    workers = list(world.rows.workers)
    world.reset()
    workers[1].kill()
    workers[1].join()
    with pytest.raises(BrokenEnvironmentError, match=r"row [345] of RecollectTest/Counting-v0 ended its process"):
        play(world, 1)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.long
def test_rows_of_a_process_may_take_longer_together_than_one_of_them():
    world = GymnasiumConfig(id=f"{HERE}:Slow", processes=1, timeout=3.0).build(3)
    play(world, 1)
    world.close()


def test_a_wait_that_ends_early_is_not_the_fault_of_an_environment(monkeypatch):
    """After a stop (Ctrl-Z) a wait that had begun before it ends at once, and the environments were stopped too."""
    world = counting(processes=1).build(2)
    world.reset()
    poll, waits = type(world.rows.pipes[0]).poll, []

    def late(pipe, seconds):
        waits.append(seconds)
        return False if len(waits) == 1 else poll(pipe, 60.0)

    monkeypatch.setattr(type(world.rows.pipes[0]), "poll", late)
    play(world, 1)
    assert len(waits) > 1
    world.close()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_processes_end_when_whoever_made_them_is_killed():
    script = (
        "import os, signal\n"
        "from recollect.tasks.gymnasium.worlds import GymnasiumConfig\n"
        "worlds = [GymnasiumConfig(id='CartPole-v1', processes=2).build(4) for _ in range(2)]\n"
        "print(*(worker.pid for world in worlds for worker in world.rows.workers), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # Its output is open as long as anybody who inherited it lives.
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL and len(done.stdout.split()) == 4


@pytest.mark.long
@pytest.mark.parametrize(("trouble", "said"), [("hang", "no answer for 3 s"), ("exit", "ended its process")])
def test_an_environment_that_hangs_or_dies_is_named_with_its_row(trouble, said):
    world = counting(options={"trouble": trouble}, processes=2, timeout=3.0).build(6)
    workers = list(world.rows.workers)
    with pytest.raises(BrokenEnvironmentError, match=f"row 4 of RecollectTest/Counting-v0 .*{said}"):
        play(world, 20)
    assert not any(worker.is_alive() for worker in workers)
    world.close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": "NoSuchThing-v3"}, "NoSuchThing"),
        ({"id": "no_such_package:Thing-v0"}, "no_such_package"),
        ({"masked": (4,)}, r"indices 0..3"),
        ({"masked": (0, 1, 2, 3)}, "not all of them"),
        ({"id": "RecollectTest/Talking-v0", "masked": (0,)}, "only a vector"),
        ({"id": "RecollectTest/VectorOnly-v0", "native": False}, "vector form only"),
        ({"processes": -1}, "processes=-1"),
        ({"timeout": 0.0}, "timeout=0"),
        ({"vocabulary": 1}, "vocabulary=1"),
    ],
)
def test_mistakes_are_named(fields, said):
    with pytest.raises(ValueError, match=said):
        _ = GymnasiumConfig(**fields).spec


def lacking(kind):
    if kind == "import":
        raise ModuleNotFoundError("No module named 'jax'")
    raise gymnasium.error.DependencyNotInstalled("Box2D is not installed, run pip install box2d")


@pytest.mark.parametrize(("kind", "said"), [("import", "No module named 'jax'"), ("gymnasium", "Box2D is not")])
def test_an_environment_that_lacks_a_package_is_named(kind, said):
    config = GymnasiumConfig(id="RecollectTest/Lacking-v0", options={"kind": kind})
    with pytest.raises(ValueError, match=f"id='RecollectTest/Lacking-v0' needs a package that is missing: {said}"):
        _ = config.spec


def test_wrong_use_is_caught():
    world = GymnasiumConfig().build(2)
    with pytest.raises(RuntimeError, match="reset"):
        world.step(torch.zeros(2, dtype=torch.long))
    world.reset()
    with pytest.raises(ValueError, match="action 2 is out of range"):
        world.step(torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"integers \[2\]"):
        world.step(torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="cannot be saved"):
        world.save()


def test_atari_shows_whole_games_and_true_rewards():
    pytest.importorskip("ale_py")
    assert AutoresetMode(ATARI["autoreset_mode"]) is AutoresetMode.NEXT_STEP and not ATARI["reward_clipping"]
    config = GymnasiumConfig(id="ALE/Breakout-v5", options={"max_num_frames_per_episode": 80, "noop_max": 1})
    world = config.build(2, seed=1)
    assert config.spec.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8) and config.spec.max_steps == 20
    step = world.reset()
    ends, was_last = 0, step.is_last
    for _ in range(70):
        step = world.step(torch.randint(4, (2,)))
        assert step.observation.dtype == torch.uint8
        assert torch.equal(step.is_first, was_last) and not (step.terminated & step.truncated).any()
        assert (step.reward[step.is_first] == 0).all()
        was_last = step.is_last
        ends += int(step.is_last.sum())
    world.close()
    assert ends >= 4


@pytest.mark.parametrize("seed", [2**31 - 1, 2**32 - 1])
def test_atari_takes_every_seed_that_training_draws(seed):
    pytest.importorskip("ale_py")
    world = GymnasiumConfig(id="ALE/Breakout-v5").build(2, seed=seed)
    assert world.reset().is_first.all()
    world.close()


def test_minigrid_has_an_image_and_a_mission():
    pytest.importorskip("minigrid")
    config = GymnasiumConfig(id="MiniGrid-MemoryS7-v0")
    world = config.build(2, seed=0)
    step = world.reset()
    assert set(step.observation) == {"image", "direction", "language"}
    assert step.observation["image"].shape == (2, 7, 7, 3)
    assert config.spec.max_steps == 0 and config.spec.action_space == spaces.Discrete(7)
    step = world.step(torch.tensor([0, 1]))
    assert all(part.shape[0] == 2 for part in step.observation.values())


class Paired(gymnasium.Env):
    """A Tuple with a Dict in it; the mask forbids the last action taken."""

    observation_space = spaces.Tuple(
        [spaces.Discrete(5, start=2), spaces.Dict({"image": spaces.Box(0, 255, (4, 5, 2), np.uint8)})]
    )
    action_space = spaces.Discrete(3)

    def __init__(self, size=5, names=True):
        self.size = size
        if names:
            self.get_action_meanings = lambda: ["UP", "DOWN", "STAY"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {"action_mask": np.array([1, 1, 0])}

    def step(self, action):
        self.count += 1
        mask = np.ones(3, np.int8)
        mask[action] = 0
        return self.look(), 1.0, self.count == self.size, False, {"action_mask": mask}

    def look(self):
        return (2 + self.count % 5, {"image": np.full((4, 5, 2), self.count, np.uint8)})


class FirstOnly(gymnasium.ObservationWrapper):
    """A wrapper of a user's own: shows the number alone."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(0, 9, (1,), np.float32)

    def observation(self, observation):
        return np.array([observation[0]], np.float32)


def two_arguments(env, more):
    return env


def no_environment(env):
    return 3


HERE = __name__


@pytest.mark.parametrize("processes", [0, 2])
def test_a_tuple_is_a_flat_dict(processes):
    world = GymnasiumConfig(id=f"{HERE}:Paired", processes=processes).build(3)
    assert world.spec.observation_space == spaces.Dict(
        {"0": spaces.Discrete(5), "1_image": spaces.Box(0, 255, (4, 5, 2), np.uint8)}
    )
    assert world.spec.action_names == ("up", "down", "stay")
    world.reset()
    step = world.step(torch.tensor([0, 1, 2]))
    assert step.observation["0"].tolist() == [1, 1, 1] and step.observation["1_image"].shape == (3, 4, 5, 2)
    world.close()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("stack", [1, 2])
def test_a_single_number_is_a_vector_of_one(named, stack):
    config = GymnasiumConfig(id=f"{HERE}:Lone", options={"named": named}, stack=stack)
    space = config.spec.observation_space
    assert (space["speed"] if named else space) == spaces.Box(0, 9, (stack,), np.float32)
    world = config.build(2)
    world.reset(seed=0)
    seen = world.step(torch.zeros(2, dtype=torch.long)).observation
    assert (seen["speed"] if named else seen).tolist() == [[0.0, 0.5][-stack:]] * 2
    agent = ActorCriticConfig().build(GRUConfig(dim=8, num_layers=1), space, config.spec.action_space)
    assert evaluate_agent(agent, config, 2, seed=0).mean_length >= 1


def test_a_vector_environment_with_a_tuple_gives_the_same():
    environment = SyncVectorEnv([Paired] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    reader, writer = (
        ObservationReader(source=environment.single_observation_space),
        ActionWriter(target=Paired.action_space),
    )
    rows, plain = VectorRows(environment, reader, writer), GymnasiumConfig(id=f"{HERE}:Paired").rows(3)
    first, actions = np.zeros(3, bool), np.zeros(3, np.int64)
    want, got = plain.reset(0), rows.reset(0)
    for _ in range(13):
        for name in want:
            np.testing.assert_array_equal(got[name], want[name])
        one, other = rows.step(actions, first), plain.step(actions, first)
        first, got, want = other.terminated & ~first, one.observation, other.observation


def test_options_reach_an_environment_of_a_module():
    config = GymnasiumConfig(id=f"{HERE}:Paired", options={"size": 2, "names": False})
    world = config.build(1)
    world.reset()
    ends = [bool(world.step(torch.tensor([0])).terminated) for _ in range(2)]
    assert ends == [False, True] and world.spec.action_names == ()


def test_wrappers_are_applied_in_order():
    config = GymnasiumConfig(id=f"{HERE}:Paired", wrappers=(f"{HERE}:FirstOnly", f"{MASKS}:mask_from_info"))
    assert set(config.spec.observation_space) == {"observation", "action_mask"}
    with pytest.raises(ValueError, match="mask_from_info needs Discrete actions and an observation that is no Dict"):
        _ = GymnasiumConfig(id="RecollectTest/Talking-v0", wrappers=(f"{MASKS}:mask_from_info",)).spec


MASKS = "recollect.tasks.gymnasium.wrappers"


@pytest.mark.parametrize(
    ("wrapper", "said"),
    [
        ("two_arguments", "a wrapper is called with the environment only"),
        ("no_environment", "made a int: it must return a gymnasium.Env"),
        ("FirstOny", "has no 'FirstOny'; did you mean 'FirstOnly'"),
    ],
)
def test_wrappers_that_are_none_are_refused(wrapper, said):
    with pytest.raises(ValueError, match=said):
        _ = GymnasiumConfig(id=f"{HERE}:Paired", wrappers=(f"{HERE}:{wrapper}",)).spec


def test_wrappers_mean_single_environments():
    config = GymnasiumConfig(id="CartPole-v1", wrappers=("gymnasium.wrappers:RescaleObservation",))
    with pytest.raises(ValueError, match="called with the environment only"):
        _ = config.spec
    assert GymnasiumConfig(id="CartPole-v1")._spaces.native
    wrapped = GymnasiumConfig(id="CartPole-v1", wrappers=("gymnasium.wrappers:NormalizeObservation",))
    assert not wrapped._spaces.native and wrapped.build(2).reset().observation.shape == (2, 4)
    with pytest.raises(ValueError, match="vector form only, which takes no wrappers"):
        _ = GymnasiumConfig(id="RecollectTest/VectorOnly-v0", wrappers=("gymnasium.wrappers:Autoreset",)).spec


def test_the_last_observations_are_stacked():
    world, plain = counting(stack=3).build(2), counting().build(2)
    assert world.spec.observation_space.shape == (9,)
    (steps, actions), history = play(world, 12), []
    shown = [plain.reset(seed=7), *(plain.step(action) for action in actions)]
    for row in range(2):
        for step, now in zip(steps, shown, strict=True):
            newest = now.observation[row]
            history = [newest] * 3 if now.is_first[row] else [*history[1:], newest]
            assert torch.equal(step.observation[row], torch.cat(history))


@pytest.mark.parametrize(
    ("shape", "stacked"), [((20, 30), (4, 20, 30)), ((20, 30, 3), (20, 30, 12)), ((3, 20, 30), (12, 20, 30))]
)
def test_images_are_stacked_along_their_channels(shape, stacked):
    assert stacked_space(spaces.Box(0, 255, shape, np.uint8), 4) == spaces.Box(0, 255, stacked, np.uint8)


def test_boxes_of_a_dict_are_stacked_and_nothing_else():
    world = GymnasiumConfig(id=f"{HERE}:Paired", stack=2).build(1)
    world.reset()
    step = world.step(torch.tensor([0]))
    assert step.observation["1_image"][0, 0, 0].tolist() == [0, 0, 1, 1] and step.observation["0"].tolist() == [1]
    with pytest.raises(ValueError, match="stack=2: only Boxes can be stacked"):
        _ = GymnasiumConfig(id="FrozenLake-v1", stack=2).spec
    with pytest.raises(ValueError, match="stack=0"):
        GymnasiumConfig(stack=0)


@pytest.mark.parametrize(
    ("name", "sticky"),
    first(1, [("PongNoFrameskip-v4", 0.0), ("ale_py:ALE/Pong-v5", 0.25), ("Pong-v0", 0.25), ("Pong-v4", 0.0)]),
)
def test_all_names_of_a_game_have_the_vector_form(name, sticky):
    pytest.importorskip("ale_py")
    config = GymnasiumConfig(id=name)
    assert config.spec.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert config._entry.kwargs["repeat_action_probability"] == sticky
    assert config.build(2).reset().observation.shape == (2, 4, 84, 84)
    assert config.spec.max_steps == 27000


def test_the_single_form_of_an_old_game():
    pytest.importorskip("ale_py")
    raw = GymnasiumConfig(id="PongNoFrameskip-v4", native=False)
    assert raw.spec.observation_space.shape == (210, 160, 3)
    assert raw.spec.action_names[:3] == ("noop", "fire", "right")
    pytest.importorskip("cv2")
    usual = GymnasiumConfig(id="PongNoFrameskip-v4", wrappers=("gymnasium.wrappers:AtariPreprocessing",), stack=4)
    assert usual.spec.observation_space.shape == (4, 84, 84)


def test_modules_of_the_current_folder_are_found(tmp_path, monkeypatch):
    (tmp_path / "own_world_of_a_user.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv as Cart\n"
        "gymnasium.register(id='RecollectTest/Own-v0', entry_point=Cart, max_episode_steps=9)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    config = GymnasiumConfig(id="own_world_of_a_user:RecollectTest/Own-v0")
    assert config.spec.max_steps == 9 and config.build(2).reset().observation.shape == (2, 4)
    assert GymnasiumConfig(id="own_world_of_a_user:Cart").spec.max_steps == 0
    with pytest.raises(ValueError, match="cannot import 'no_such_module'"):
        _ = GymnasiumConfig(id="no_such_module:Own-v0").spec


@pytest.mark.parametrize("id", ["os:system", f"{HERE}:no_environment"])
def test_only_classes_of_environments_are_made(id):
    # An id may come from the file of a stranger, and any function could be named there.
    with pytest.raises(ValueError, match=r"name a class derived from gymnasium\.Env"):
        _ = GymnasiumConfig(id=id, options={"command": "true"}).spec


def test_modules_that_would_be_imported_are_known():
    config = GymnasiumConfig(id="a:B-v0", wrappers=("c.d:e",))
    assert config.imports == ("a", "c.d") and GymnasiumConfig(id="ale_py:ALE/Pong-v5").imports == ()
