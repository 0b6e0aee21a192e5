"""Recorded episodes that are none: what is said of arrays that hold something else than they should."""

import os

import gymnasium
import numpy as np
import pytest

from recollect.evaluation.recordings import Recording, demonstrate, read_recording, require_target, write_recording
from recollect.tasks import TMazeConfig
from recollect.tasks.worlds.contract import WorldSpec

EPISODES = {
    "observation": np.zeros((5, 4), np.float32),
    "action": np.array([1, 2, -1, 3, -1], np.int16),
    "lengths": np.array([3, 2], np.uint8),
    "terminated": np.array([1, 0], np.uint8),
}


def spec_of(observation, action=None):
    return WorldSpec(
        observation_space=observation,
        action_space=gymnasium.spaces.Discrete(4) if action is None else action,
        max_steps=9,
        memory_span=0,
        chance=0.0,
        oracle=1.0,
    )


def test_arrays_are_brought_to_one_form(tmp_path):
    np.savez(tmp_path / "mine.npz", **(EPISODES | {"reward": np.arange(5, dtype=">f4")}))
    found = read_recording(tmp_path / "mine.npz")
    found.require(TMazeConfig().spec, "mine.npz")
    assert found.action.dtype == found.lengths.dtype == np.int64 and found.action.tolist() == [1, 2, 0, 3, 0]
    assert found.terminated.dtype == bool and found.terminated.tolist() == [True, False]
    assert found.reward.dtype.isnative and found.reward.tolist() == [0, 1, 2, 3, 4]
    np.savez(tmp_path / "box.npz", **(EPISODES | {"action": np.array([[0.5], [1], [np.nan], [1], [np.nan]])}))
    box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    found = read_recording(tmp_path / "box.npz")
    found.require(spec_of(TMazeConfig().spec.observation_space, box), "box.npz")
    assert found.action.dtype == np.float32 and found.action[2] == 0


@pytest.mark.parametrize(
    ("part", "array", "message"),
    [
        ("lengths", np.array(5), r"lengths='int64 \[\]': .*mine\.npz: give whole numbers \[episodes\]"),
        ("lengths", np.array([3.0, 2.0]), r"lengths='float64 \[2\]'"),
        ("lengths", np.array([2**63 + 3, 2], np.uint64), r"action=5: mine: its lengths need"),
        ("reward", np.zeros((5, 1)), r"reward='float64 \[5, 1\]': .*mine\.npz: give numbers \[steps\]"),
        ("action", np.array(["left"] * 5), r"action='<U4 \[5\]': .*mine\.npz: give whole numbers or floats"),
        ("observation", np.array(3.0), r"observation='float64 \[\]': .*mine\.npz: give numbers \[steps"),
        ("observation", np.zeros((5, 4), complex), r"observation='complex128 \[5, 4\]'"),
        ("terminated", np.array(["yes", "no"]), r"terminated='<U3 \[2\]': .*mine\.npz: give True or False"),
        ("terminated", np.array([1, 2]), r"terminated=2: .*mine\.npz, episode 1: give True or False"),
        ("score", np.array([["1"], ["2"]]), r"score='<U1 \[2, 1\]': .*mine\.npz: give numbers \[episodes\]"),
        ("action_space", np.array("nonsense"), r"mine\.npz: its action_space describes no space \(JSONDecodeError"),
        ("action_space", np.array('{"kind": "Discrete", "n": -1, "start": 0}'), r"mine\.npz: its action_space"),
        ("words", np.array("left"), r"words='<U4 \[\]': .*mine\.npz: give a text \[words\]"),
        ("reward", np.array([0, 1, 0, np.nan, 1]), r"reward=nan: mine, step 3 \(step 0 of episode 1\): leave"),
        ("reward", np.array([0, 1, np.inf, 0, 1]), r"reward=inf: mine, step 2 \(step 2 of episode 0\): leave"),
        ("observation", np.full((5, 4), np.nan), r"observation=nan: mine, step 0 \(step 0 of episode 0\)"),
        ("observation", np.diag([0, 0, 0, 0, -np.inf])[:, 1:], r"observation=-inf: mine, step 4 \(step 1 of"),
    ],
)  # fmt: skip
def test_arrays_that_hold_something_else_are_named(tmp_path, part, array, message):
    np.savez(tmp_path / "mine.npz", **(EPISODES | {part: array}))
    with pytest.raises(ValueError, match=message):
        read_recording(tmp_path / "mine.npz").require(TMazeConfig().spec, "mine")


SPACES = gymnasium.spaces
SEEN = {
    "discrete": (SPACES.Discrete(3, start=1), np.array([1, 3, 2, 1, 1]), np.array([1, 3, 2, 1, 0])),
    "words": (SPACES.MultiDiscrete([512] * 2), np.full((5, 2), 511), np.array([[0, 0]] * 4 + [[3, 775]])),
    "switches": (SPACES.MultiBinary(2), np.ones((5, 2), bool), np.full((5, 2), 2)),
    "tiles": (SPACES.Box(0, 10, (2, 2), np.uint8), np.full((5, 2, 2), 10, np.uint8), np.full((5, 2, 2), 11, np.uint8)),
    "bytes": (SPACES.Box(0, 255, (2,), np.uint8), np.full((5, 2), 255, np.uint8), np.full((5, 2), 256)),
    "floats": (SPACES.Discrete(3), np.zeros(5, np.int8), np.zeros(5)),
}


@pytest.mark.parametrize("key", SEEN)
def test_whole_numbers_that_the_world_does_not_show_are_named(tmp_path, key):
    space, right, wrong = SEEN[key]
    spec = spec_of(SPACES.Dict({"it": space}))
    parts = {name: array for name, array in EPISODES.items() if name != "observation"}
    np.savez(tmp_path / "e.npz", **parts, **{"observation.it": right})
    read_recording(tmp_path / "e.npz").require(spec, "e.npz")
    np.savez(tmp_path / "e.npz", **parts, **{"observation.it": wrong})
    with pytest.raises(ValueError, match=r"observation\.it=.*: e\.npz.*: the world shows"):
        read_recording(tmp_path / "e.npz").require(spec, "e.npz")


def test_a_larger_vocabulary_is_named_with_its_place(tmp_path):
    space, _, wrong = SEEN["words"]
    parts = {name: array for name, array in EPISODES.items() if name != "observation"}
    np.savez(tmp_path / "e.npz", **parts, **{"observation.language": wrong})
    message = r"observation\.language=775: e\.npz, step 4 \(step 1 of episode 1\): .* as another vocabulary\?"
    with pytest.raises(ValueError, match=message):
        read_recording(tmp_path / "e.npz").require(spec_of(SPACES.Dict({"language": space})), "e.npz")


def test_actions_of_several_choices_are_looked_at_too(tmp_path):
    action = np.array([[1, 2], [0, 2], [9, 9], [1, 3], [9, 9]])
    np.savez(tmp_path / "e.npz", **(EPISODES | {"action": action}))
    spec = spec_of(TMazeConfig().spec.observation_space, SPACES.MultiDiscrete([2, 3]))
    with pytest.raises(ValueError, match=r"e\.npz: its actions are 0 to 3, and the world's are MultiDiscrete"):
        read_recording(tmp_path / "e.npz").require(spec, "e.npz")
    action[3, 1] = 0
    np.savez(tmp_path / "e.npz", **(EPISODES | {"action": action}))
    read_recording(tmp_path / "e.npz").require(spec, "e.npz")


def test_numbers_beyond_the_words_are_named():
    from recollect.tasks import TASKS

    world = TASKS["order-shown-once"]()
    recording = demonstrate(world, 2)
    largest = int(recording.observation["language"].max())
    short = recording._replace(words=world.spec.words[:largest])
    with pytest.raises(ValueError, match=f"words={largest}: mine: there are numbers in language beyond its words"):
        short.with_words_of(world.spec, "mine")


def test_targets_are_looked_at_before_anything_is_played(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.npz").mkdir()
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed)
    for target, message in {
        "x.txt": r"record='x\.txt': give FILE\.npz, minari:DATASET or lerobot:FOLDER",
        tmp_path / "folder.npz": r"folder\.npz': this is a folder: name a file",
        tmp_path / "file" / "e.npz": r"file is no folder in which you may write",
        closed / "deep" / "e.npz": r"closed is no folder in which you may write",
    }.items():
        with pytest.raises(ValueError, match=message):
            require_target(target)
        with pytest.raises(ValueError, match=message):
            write_recording(Recording({}, *[np.zeros(0)] * 5, None), target)
    require_target(tmp_path / "new" / "e.npz")
    assert not (tmp_path / "new").exists()


def test_targets_of_lerobot_are_looked_at_too(tmp_path, monkeypatch):
    pytest.importorskip("av")
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="this folder exists already: name a new one"):
        require_target(f"lerobot:{tmp_path}")
    require_target(f"lerobot:{tmp_path / 'new'}")
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ValueError, match=r"pip install pyarrow av"):
        require_target(f"lerobot:{tmp_path / 'new'}")
