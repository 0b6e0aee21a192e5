"""Datasets of Minari: what comes back from them, and what is said of bad ones."""

import json
import warnings

import gymnasium
import numpy as np
import pytest

from recollect.evaluation.recordings import Recording, demonstrate, read_recording, require_target, write_recording
from recollect.tasks import TASKS

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")
NAME = "minari:recollect/mine-v0"


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def episodes(**parts):
    made = {
        "observation": {"": np.arange(20, dtype=np.float32).reshape(10, 2)},
        "action": np.array([1, 0, 0, 1, 2, 0, 1, 1, 0, 0]),
        "reward": np.arange(10, dtype=np.float32),
        "lengths": np.array([3, 4, 3]),
        "terminated": np.array([True, False, True]),
        "score": np.zeros(3, np.float32),
        "action_space": gymnasium.spaces.Discrete(3),
    }
    return Recording(**(made | parts))


def file_of(folder):
    return folder / "recollect" / "mine-v0" / "data" / "main_data.hdf5"


def test_words_of_instructions_come_back():
    world = TASKS["order-shown-once"]()
    recording = demonstrate(world, 4)
    assert recording.words and recording.observation["language"].any()
    write_recording(recording, NAME)
    again = read_recording(NAME)
    assert again.words == recording.words
    assert np.array_equal(again.observation["language"], recording.observation["language"])
    turned = again._replace(words=("", *reversed(again.words[1:])))
    assert np.array_equal(turned.words, ["", *recording.words[:0:-1]])
    told = turned.with_words_of(world.spec, "it").observation["language"]
    assert not np.array_equal(told, again.observation["language"])  # their words count, not their numbers


def test_scores_come_back_and_those_of_others_are_sums_of_rewards(datasets):
    write_recording(episodes(score=np.array([1, 0.25, -3], np.float32)), NAME)
    assert read_recording(NAME).score.tolist() == [1, 0.25, -3]
    file = file_of(datasets).with_name("metadata.json")
    data = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in data.items() if key != "recollect_scores"}))
    assert read_recording(NAME).score.tolist() == [1 + 2, 4 + 5 + 6, 8 + 9]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"recollect_words": [1]}, "recollect_words in its metadata is no list of texts"),
        ({"recollect_scores": ["1", "2", "3"]}, "recollect_scores in its metadata is no list of numbers"),
        ({"recollect_scores": [1, 2]}, "recollect_scores in its metadata has 2 numbers, and there are 3 episodes"),
    ],
)
def test_what_is_kept_beside_the_format_and_is_no_such_thing_is_named(datasets, kept, message):
    write_recording(episodes(), NAME)
    assert read_recording(NAME).words == ()
    file = file_of(datasets).with_name("metadata.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | kept))
    with pytest.raises(ValueError, match=f"mine-v0: {message}"):
        read_recording(NAME)


@pytest.mark.parametrize("name", ["mine/good", "", "a b-v0", "../mine-v0"])
def test_names_that_minari_does_not_take_are_named(datasets, name):
    for look in (require_target, lambda target: write_recording(episodes(), target)):
        with pytest.raises(ValueError, match=r"record='minari:.*': give it a version, as in minari:mine/good-v0"):
            look(f"minari:{name}")
    assert not list(datasets.iterdir())


@pytest.mark.parametrize("name", ["good-v0", "a_1/b-2/good-one-v12"])
def test_names_that_minari_takes(name):
    require_target(f"minari:{name}")
    write_recording(episodes(), f"minari:{name}")
    assert len(read_recording(f"minari:{name}").lengths) == 3
    with pytest.raises(ValueError, match="exists already: give another name or version"):
        require_target(f"minari:{name}")


def test_switches_come_back():
    seen = {"on": np.arange(20).reshape(10, 2) % 3 == 0, "one": np.arange(10) % 2 == 0}
    write_recording(episodes(observation=seen), NAME)
    again = read_recording(NAME).observation
    assert all(again[key].dtype == bool and np.array_equal(again[key], seen[key]) for key in seen)


def test_a_single_number_of_others_is_read_as_their_world_shows_it(datasets):
    write_recording(episodes(observation={"speed": np.arange(10, dtype=np.float32)}), NAME)
    assert read_recording(NAME).observation["speed"].shape == (10,)
    file = file_of(datasets).with_name("metadata.json")
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in kept.items() if key != "recollect_scores"}))
    assert read_recording(NAME).observation["speed"].shape == (10, 1)


def test_what_could_not_be_read_is_not_written(datasets):
    space = gymnasium.spaces.MultiBinary(2)
    with pytest.raises(ValueError, match=r"minari:recollect/mine-v0: action is MultiBinary\(2\)"):
        write_recording(episodes(action=np.zeros((10, 2), np.int8), action_space=space), NAME)
    with pytest.raises(ValueError, match=r"minari:recollect/mine-v0: "):
        write_recording(episodes(observation={"": np.array(["a"] * 10)}), NAME)
    assert not list(datasets.iterdir())


def put(group, key, array):
    del group[key]
    group[key] = array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: put(e, "terminations", np.zeros(0, bool)), r"episode 1: .*'terminations': 1"),
        (lambda e: put(e, "actions", np.zeros(2, np.int64)), r"episode 1: .*'action': 3"),
        (lambda e: put(e, "observations", np.zeros((3, 2))), r"episode 1: \{'observation': 3"),
        (lambda e: put(e, "observations", np.zeros((4, 5))), r"episode 1: its observations .* shape \(5,\), .*\(2,\)"),
        (lambda e: put(e, "actions", np.zeros((3, 1), np.int64)), r"episode 1: its steps have the shapes .*\(1,\)"),
        (lambda e: put(e, "observations", np.array([b"a"] * 4)), r"episode 1: its observations are none of the"),
        (lambda e: put(e, "rewards", np.zeros((3, 1))), r"episode 1: .* float64 \[3, 1\] rewards"),
        (lambda e: put(e, "rewards", np.array([0, np.nan, 0])), r"reward=nan: .*step 5 \(step 2 of episode 1\)"),
        (lambda e: put(e, "observations", np.full((4, 2), np.inf)), r"observation=inf: .*step 3 \(step 0 of episode"),
    ],
)  # fmt: skip
def test_episodes_that_differ_are_named(datasets, change, message):
    write_recording(episodes(), NAME)
    with h5py.File(file_of(datasets), "a") as file:
        change(file["episode_1"])
    with pytest.raises(ValueError, match=f"minari:recollect/mine-v0.*{message}|{message}"):
        read_recording(NAME)


def test_parts_that_an_episode_lacks_are_named(datasets):
    write_recording(episodes(observation={"a": np.zeros((10, 2)), "b": np.zeros(10)}), NAME)
    with h5py.File(file_of(datasets), "a") as file:
        del file["episode_2"]["observations"]["b"]
    with pytest.raises(
        ValueError, match=r"minari:recollect/mine-v0, episode 2: its observations are none.*part 'b' is missing"
    ):
        read_recording(NAME)


def test_episodes_that_the_metadata_do_not_count_are_named(datasets):
    write_recording(episodes(), NAME)
    file = file_of(datasets).with_name("metadata.json")
    for number, message in {2: "total_episodes=2 in its metadata, and there are more", 4: "damaged"}.items():
        file.write_text(json.dumps(json.loads(file.read_text()) | {"total_episodes": number}))
        with pytest.raises(ValueError, match=f"minari:recollect/mine-v0.*{message}"):
            read_recording(NAME)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"observation": {"": np.full((10, 2), np.nan)}}, r"observation=nan: .*\(step 0 of episode 0\)"),
        ({"reward": np.full(10, np.inf, np.float32)}, r"reward=inf: .*\(step 0 of episode 0\)"),
        ({"score": np.float32([0, np.nan, 0])}, "score=nan: .* of episode 1"),
        ({"observation": {"a/b": np.zeros((10, 2), np.float32)}}, "observation='a/b': .*rename it"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(datasets, changes, message):
    with pytest.raises(ValueError, match=message):
        write_recording(episodes(**changes), NAME)
    assert not file_of(datasets).exists()


def test_actions_of_a_space_without_a_form_are_named():
    from minari.data_collector import EpisodeBuffer

    buffer = EpisodeBuffer(
        observations=np.zeros((3, 2)), actions=np.zeros((2, 2), np.int8), rewards=[0.0, 1.0],
        terminations=[False, True], truncations=[False, False],
    )  # fmt: skip
    spaces = gymnasium.spaces
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            "recollect/mine-v0", [buffer], observation_space=spaces.Box(0, 1, (2,)), action_space=spaces.MultiBinary(2)
        )
    with pytest.raises(ValueError, match=r"minari:recollect/mine-v0: action is MultiBinary"):
        read_recording(NAME)
