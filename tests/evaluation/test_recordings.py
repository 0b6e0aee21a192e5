"""Recorded episodes: what is kept of them, and that it comes back."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents.config import ActorCriticConfig
from recollect.cores import CORES
from recollect.evaluation.agents import evaluate_agent
from recollect.evaluation.recordings import (
    Recording,
    demonstrate,
    read_recording,
    record_episodes,
    write_recording,
)
from recollect.runs import progress
from recollect.tasks import BalletConfig, TMazeConfig, VisualMatchConfig
from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec

BALLET = pytest.param("ballet", marks=pytest.mark.long)  # many pictures
WORLDS = {"t-maze": TMazeConfig(length=3, slack=9), "ballet": BalletConfig(), "visual-match": VisualMatchConfig()}


def agent_for(world):
    torch.manual_seed(0)
    spec = world.spec
    core = CORES["gru"](dim=8, num_layers=1)
    return ActorCriticConfig(width=8).build(core, spec.observation_space, spec.action_space).eval()


def equal(one, two):
    if one.observation.keys() != two.observation.keys():
        return False
    return all(np.array_equal(one.observation[key], two.observation[key]) for key in one.observation) and all(
        np.array_equal(getattr(one, name), getattr(two, name))
        for name in ("action", "reward", "lengths", "terminated", "score")
    )


@pytest.mark.parametrize("key", ["t-maze", "visual-match", BALLET])
def test_episodes_are_those_of_an_evaluation_and_come_back_from_a_file(tmp_path, key):
    world = WORLDS[key]
    agent = agent_for(world)
    recording = record_episodes(agent, world, 5, seed=3, greedy=False)
    played = evaluate_agent(agent, world, 5, seed=3, greedy=False)
    assert (recording.lengths - 1).tolist() == played.lengths
    assert recording.score.tolist() == pytest.approx(played.scores)
    ends = recording.lengths.cumsum()
    returns = [part.sum() for part in np.split(recording.reward, ends[:-1])]
    assert returns == pytest.approx(played.returns, abs=1e-5)
    assert 1 - recording.terminated.mean() == pytest.approx(played.truncated)
    recording.require(world.spec, "it")
    write_recording(recording, tmp_path / "deep" / "episodes.npz")
    again = read_recording(tmp_path / "deep" / "episodes.npz")
    assert equal(recording, again) and again.action_space == world.spec.action_space


@dataclass(frozen=True, kw_only=True)
class GloballyDrawnConfig(TMazeConfig):
    """Draws the seed of its episodes with torch's global generator when it is built."""

    def build(self, batch_size, *, seed=0, device="cpu"):
        return super().build(batch_size, seed=int(torch.randint(1 << 30, ())), device=device)


def test_a_world_that_is_built_with_global_generators_is_seeded_and_leaves_no_trace():
    world = GloballyDrawnConfig(length=3, slack=9)
    agent, recordings = agent_for(world), []
    for seed in (5, 6):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        recordings.append(record_episodes(agent, world, 6, seed=1))
        assert torch.equal(before, torch.get_rng_state())
    assert equal(*recordings)


def test_actions_lead_from_each_observation_to_the_next():
    world = TMazeConfig(length=3, slack=9)
    recording = record_episodes(agent_for(world), world, 6, seed=1, greedy=False)
    begin = 0
    for length in recording.lengths:
        x, where = 0, recording.observation[""][begin : begin + length]
        assert where[0, 0] == 1 and recording.reward[begin] == 0
        for t, action in enumerate(recording.action[begin : begin + length - 1]):
            x = min(max(x + {0: 1, 2: -1}.get(int(action), 0), 0), 3)
            assert where[t + 1, 1] == (x == 3)
        begin += length


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(WorldConfig):
    """Two of four actions are allowed, the same ones everywhere."""

    @property
    def spec(self):
        return WorldSpec(
            observation_space=spaces.Dict(
                {"x": spaces.Box(0, 1, (2,), np.float32), "action_mask": spaces.MultiBinary(4)}
            ),
            action_space=spaces.Discrete(4),
            max_steps=5,
            memory_span=0,
            chance=0.5,
            oracle=1.0,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Masked(self.spec, batch_size, seed=seed, device=device)


class Masked(TensorWorld):
    def begin(self, batch_size):
        return (torch.zeros(batch_size),)

    def advance(self, state, actions):
        zero = torch.zeros(self.batch_size)
        return Advance(state, zero, zero.bool(), zero)

    def observe(self, state):
        allowed = torch.tensor([0, 1, 1, 0], dtype=torch.int8).repeat(len(state[0]), 1)
        return {"x": torch.zeros(len(state[0]), 2), "action_mask": allowed}


@pytest.mark.parametrize("noise", [(), (1.0,), (0.0, 0.5)])
def test_no_noise_does_what_is_not_allowed(noise):
    world = MaskedConfig()
    agent = agent_for(world)
    with torch.no_grad():
        agent.policy_head[-1].bias += torch.tensor([0.0, 9.0, -9.0, 0.0])
    recording = record_episodes(agent, world, 64, greedy=False, noise=noise)
    done = np.delete(recording.action, recording.lengths.cumsum() - 1)
    assert set(done.tolist()) == ({1, 2} if noise else {1})
    if noise == (1.0,):
        assert 0.4 < (done == 2).mean() < 0.6


def test_more_episodes_than_rows_are_shared_out():
    world = TMazeConfig(length=1, slack=1)
    recording = record_episodes(agent_for(world), world, 70, greedy=False)
    assert len(recording.lengths) == 70 and len(recording.action) == recording.lengths.sum()


def test_recording_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.0)
    heard, world = [], TMazeConfig(length=3, slack=9)
    with progress.listen_to_progress(lambda *words: heard.append(words)):
        record_episodes(agent_for(world), world, 70, greedy=False)
        ended = len(heard)
        demonstrate(world, 70)
    for told in (heard[:ended], heard[ended:]):
        numbers = [done for done, asked, _ in told if asked == 70]
        assert len(numbers) == len(told) > 3 and numbers == sorted(numbers) and numbers[0] == 0 < numbers[-2] <= 70


EPISODES = {
    "observation": np.zeros((5, 4), np.float32),
    "action": np.zeros(5, np.int64),
    "lengths": np.array([3, 2]),
}


def test_a_file_of_one_s_own_needs_three_arrays(tmp_path):
    np.savez(tmp_path / "mine.npz", **EPISODES)
    found = read_recording(tmp_path / "mine.npz")
    found.require(TMazeConfig().spec, "mine.npz")
    assert found.terminated.tolist() == [True, True] and found.reward.sum() == 0 and found.action_space is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.full(5, 4)}, r"its actions are 4 to 4, and the world's are Discrete\(4\): .*count from 0"),
        ({"action": np.zeros((5, 2), np.int64)}, r"its actions are int64 \[2\], and the world's are Discrete"),
        ({"action": np.zeros(5, np.float32)}, r"its actions are float32 \[\]"),
        ({"action": np.zeros(4, np.int64)}, "action=4: mine.npz: its lengths need 5 steps"),
        ({"observation": np.zeros((5, 3), np.float32)}, r"are an array \[3\], and the world shows an array \[4\]"),
        ({"lengths": np.array([4, 1])}, "each with an action and an observation after it"),
        ({"score": np.zeros(3, np.float32)}, "score=3: mine.npz: there are 2 episodes"),
        ({"lengths": None}, "has no lengths: it has"),
        ({"observation": None}, "has no observation"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, change, message):
    arrays = {name: array for name, array in (EPISODES | change).items() if array is not None}
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_recording(tmp_path / "mine.npz").require(TMazeConfig().spec, "mine.npz")


def test_files_that_are_none_and_targets_that_are_none_are_named(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    for name in ("text.npz", "missing.npz"):
        with pytest.raises(ValueError, match=f"{name}: .*recollect evaluate --record"):
            read_recording(tmp_path / name)
    np.savez_compressed(tmp_path / "cut.npz", **EPISODES)
    whole = (tmp_path / "cut.npz").read_bytes()
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    damaged = {
        "empty.npz": b"",
        "cut.npz": whole[: len(whole) // 2],
        "flipped.npz": whole.replace(b"action.npy", b"actiom.npy", 1),
    }
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    for name in ("array.npz", *damaged):
        with pytest.raises(ValueError, match=f"{name}: it is damaged or no .npz file .*recollect evaluate --record"):
            read_recording(tmp_path / name)
    recording = Recording(EPISODES, np.zeros(5), np.zeros(5), np.array([5]), np.array([True]), np.zeros(1), None)
    with pytest.raises(ValueError, match=r"record='x\.txt': give FILE"):
        write_recording(recording, "x.txt")


def test_minari_keeps_all(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    world = WORLDS["t-maze"]
    recording = record_episodes(agent_for(world), world, 5, seed=3, greedy=False)
    with pytest.raises(ValueError, match=r"minari:recollect/mine-v0"):
        write_recording(recording._replace(lengths=recording.lengths + 1), "minari:recollect/mine-v0")
    assert not (tmp_path / "recollect" / "mine-v0").exists(), "none is half written"
    write_recording(recording, "minari:recollect/mine-v0")
    assert minari.load_dataset("recollect/mine-v0").total_episodes == 5
    again = read_recording("minari:recollect/mine-v0")
    again.require(world.spec, "it")
    assert equal(recording, again)
    with pytest.raises(ValueError, match="minari:nobody/none-v0"):
        read_recording("minari:nobody/none-v0")
    file = tmp_path / "recollect" / "mine-v0" / "data" / "main_data.hdf5"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b"TREE", b"TEER")):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"minari:recollect/mine-v0: .*damaged"):
            read_recording("minari:recollect/mine-v0")


def test_datasets_of_gymnasium_environments_are_read(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    import gymnasium

    from recollect.tasks import GymnasiumConfig

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    from minari.data_collector import EpisodeBuffer

    environment = gymnasium.make("CartPole-v1")
    buffers = []
    for seed in range(3):
        seen, done, ended = [environment.reset(seed=seed)[0]], [], False
        while not ended:
            done.append(environment.action_space.sample())
            observation, _, ended, _, _ = environment.step(done[-1])
            seen.append(observation)
        last = [False] * (len(done) - 1) + [True]
        arrays = {"observations": np.stack(seen), "actions": np.array(done), "rewards": [1.0] * len(done)}
        buffers.append(EpisodeBuffer(id=seed, terminations=last, truncations=[False] * len(done), **arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers("cartpole/random-v0", buffers, env=environment)
    found = read_recording("minari:cartpole/random-v0")
    found.require(GymnasiumConfig().spec, "it")
    assert len(found.lengths) == 3 and found.terminated.all()
    assert found.score.tolist() == (found.lengths - 1).tolist()


def test_without_minari_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(ValueError, match=r"pip install 'minari"):
        read_recording("minari:a/b-v0")
