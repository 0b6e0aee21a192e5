"""Datasets of LeRobot's format v3.0: an independent reader finds what was written, and what is broken is named."""

import json
import shutil

import numpy as np
import pytest

from recollect.evaluation import lerobot
from recollect.evaluation.lerobot import layout, writing
from recollect.evaluation.recordings import Recording, demonstrate, read_recording, write_recording
from recollect.tasks import TASKS
from recollect.training.imitation.demonstrations import DemonstrationBatches

parquet = pytest.importorskip("pyarrow.parquet")
av = pytest.importorskip("av")

GOAL = TASKS["goal-shown-once"](delay=1, side=20)
PARTS = ("reward", "lengths", "terminated", "score")


@pytest.fixture(scope="module")
def recording():
    return demonstrate(GOAL, 5, seed=3)


@pytest.fixture(scope="module")
def written(recording, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lerobot") / "mine"
    write_recording(recording, f"lerobot:{folder}")
    return folder


@pytest.fixture
def broken(written, tmp_path):
    """A copy to break."""
    return shutil.copytree(written, tmp_path / "broken")


class PublishedReader:
    """Reads a dataset as its public description says, frame by frame, and knows nothing of ours."""

    def __init__(self, root):
        self.root = root
        self.info = json.loads((root / "meta/info.json").read_text())
        assert self.info["codebase_version"] == "v3.0"
        self.episodes = []
        for path in sorted((root / "meta/episodes").glob("*/*.parquet")):
            self.episodes += parquet.read_table(path).to_pylist()
        tasks = parquet.read_table(root / "meta/tasks.parquet")
        described = json.loads(tasks.schema.metadata[b"pandas"])
        assert described["index_columns"] == ["task"]
        self.tasks = {row["task_index"]: row["task"] for row in tasks.to_pylist()}

    def __getitem__(self, index):
        """One frame: all its features, the frames of its films by their time, and its sentence."""
        episode = next(e for e in self.episodes if e["dataset_from_index"] <= index < e["dataset_to_index"])
        where = {"chunk_index": episode["data/chunk_index"], "file_index": episode["data/file_index"]}
        rows = parquet.read_table(self.root / self.info["data_path"].format(**where)).to_pylist()
        row = next(row for row in rows if row["index"] == index)
        assert row["episode_index"] == episode["episode_index"]
        assert row["frame_index"] == index - episode["dataset_from_index"]
        for key, feature in self.info["features"].items():
            if feature["dtype"] == "video":
                time = episode[f"videos/{key}/from_timestamp"] + row["timestamp"]
                assert time < episode[f"videos/{key}/to_timestamp"]
                row[key] = self.frame_at(key, episode, time)
            elif feature["dtype"] == "image":
                with av.open(__import__("io").BytesIO(row[key]["bytes"])) as picture:
                    row[key] = next(picture.decode(video=0)).to_ndarray(format="rgb24")
            if feature["dtype"] in ("video", "image"):
                assert list(row[key].shape) == feature["shape"]
        return row | {"task": self.tasks[row["task_index"]]}

    def frame_at(self, key, episode, time):
        path = self.info["video_path"].format(
            video_key=key,
            chunk_index=episode[f"videos/{key}/chunk_index"],
            file_index=episode[f"videos/{key}/file_index"],
        )
        with av.open(str(self.root / path)) as film:
            stream = film.streams.video[0]
            assert float(stream.average_rate) == self.info["fps"]
            for frame in film.decode(stream):
                if abs(float(frame.pts * stream.time_base) - time) < 0.5 / self.info["fps"]:
                    return frame.to_ndarray(format="rgb24")
        raise AssertionError(f"no frame at {time} s of {path}")


@pytest.mark.parametrize("images", ["video", "image"])
def test_an_independent_reader_finds_every_frame(recording, tmp_path, images):
    lerobot.write(tmp_path / "set", recording._asdict(), images=images)
    reader = PublishedReader(tmp_path / "set")
    assert reader.info["total_episodes"] == 5 == len(reader.episodes)
    ends = np.cumsum(recording.lengths) - 1
    rows = np.delete(np.arange(len(recording.action)), ends)
    assert reader.info["total_frames"] == len(rows)
    for index in [0, 7, *(ends[:3] - np.arange(1, 4)), len(rows) - 1]:
        frame, at = reader[int(index)], rows[index]
        assert np.array_equal(frame["observation.images.image"], recording.observation["image"][at])
        assert np.array_equal(np.float32(frame["action"]), recording.action[at])
        assert frame["observation.language"] == recording.observation["language"][at].tolist()
        assert frame["task"] == " ".join(GOAL.spec.words[token] for token in frame["observation.language"])
        assert frame["next.reward"] == recording.reward[at + 1]
        assert frame["next.done"] == (at + 1 in ends)


@pytest.mark.parametrize("images", ["video", "image"])
def test_what_was_written_comes_back_byte_for_byte(recording, tmp_path, images):
    lerobot.write(tmp_path / "set", recording._asdict(), images=images)
    again = read_recording(f"lerobot:{tmp_path / 'set'}")
    for name in PARTS:
        one, two = getattr(recording, name), getattr(again, name)
        assert one.dtype == two.dtype and np.array_equal(one, two), name
    assert np.array_equal(again.action, recording.action) and again.action.dtype == np.float32
    assert again.action_space == recording.action_space and again.words == GOAL.spec.words
    acted = np.delete(np.arange(len(recording.action)), np.cumsum(recording.lengths) - 1)
    for name, seen in recording.observation.items():
        assert seen.dtype == again.observation[name].dtype
        assert np.array_equal(seen[acted], again.observation[name][acted]), name
    again.require(GOAL.spec, "again")


@pytest.mark.parametrize("kept", ["uint8", "bool", "float16"])
def test_actions_of_any_type_are_what_a_learner_takes(recording, tmp_path, kept):
    done = (recording.action > 0.5).astype(kept)
    lerobot.write(tmp_path / "typed", recording._replace(action=done, action_space=None)._asdict())
    found = read_recording(f"lerobot:{tmp_path / 'typed'}").action
    assert found.dtype == ("float32" if kept.startswith("float") else "int64") and np.array_equal(found, done)


def test_files_are_begun_anew_at_their_size(recording, tmp_path):
    lerobot.write(tmp_path / "small", recording._asdict(), data_mb=0.001, video_mb=0.001)
    assert len(list((tmp_path / "small/data").rglob("*.parquet"))) == 5
    assert len(list((tmp_path / "small/videos").rglob("*.mp4"))) > 1
    again = read_recording(f"lerobot:{tmp_path / 'small'}")
    assert np.array_equal(again.action, recording.action)
    assert np.array_equal(PublishedReader(tmp_path / "small")[30]["action"], np.delete(
        recording.action, np.cumsum(recording.lengths) - 1, 0)[30])  # fmt: skip
    assert layout.FileNumber(0, 999).next() == layout.FileNumber(1, 0)


def test_statistics_are_those_of_the_rows(written, recording):
    stats = json.loads((written / "meta/stats.json").read_text())
    acted = np.delete(recording.action, np.cumsum(recording.lengths) - 1, 0)
    assert np.allclose(stats["action"]["mean"], acted.mean(0)) and np.allclose(stats["action"]["max"], acted.max(0))
    assert stats["action"]["count"] == [len(acted)]
    image = stats["observation.images.image"]
    assert np.shape(image["mean"]) == (3, 1, 1) and np.min(image["min"]) >= 0 and np.max(image["max"]) == 1


def test_statistics_of_an_episode_are_in_its_record(written, recording):
    stats = json.loads((written / "meta/stats.json").read_text())
    records = parquet.read_table(written / EPISODES).to_pylist()
    assert set(stats) == set(json.loads((written / "meta/info.json").read_text())["features"])
    begin = 0
    for record, length in zip(records, recording.lengths, strict=True):
        frames = recording.observation["image"][begin : begin + length - 1].reshape(-1, 3) / 255
        actions = recording.action[begin : begin + length - 1]
        begin += length
        of = {name.removeprefix("stats/"): value for name, value in record.items() if name.startswith("stats/")}
        assert set(of) == {f"{name}/{what}" for name, found in stats.items() for what in found}
        for name, values, shape in (("observation.images.image", frames, (3, 1, 1)), ("action", actions, (3,))):
            assert np.shape(of[f"{name}/mean"]) == shape and of[f"{name}/count"] == [length - 1]
            assert np.allclose(np.ravel(of[f"{name}/std"]), values.std(0), atol=1e-6)
            assert np.allclose(np.ravel(of[f"{name}/q10"]), np.quantile(values, 0.1, axis=0), atol=1e-6)


def test_columns_have_the_types_that_the_format_gives_their_features(written):
    schema = parquet.read_schema(written / DATA)
    features = json.loads((written / "meta/info.json").read_text())["features"]
    assert set(schema.names) == {name for name, feature in features.items() if feature["dtype"] != "video"}
    for name in schema.names:
        kind, (size, *more) = schema.field(name).type, features[name]["shape"]
        if size > 1:
            assert kind.list_size == size
            kind = kind.value_type
        assert not more and kind.to_pandas_dtype() == np.dtype(features[name]["dtype"])


def test_nothing_is_written_of_no_episode(recording, tmp_path):
    none = {name: part[:0] for name, part in recording._asdict().items() if name not in ("observation", "action_space")}
    none["observation"] = {name: part[:0] for name, part in recording.observation.items()}
    with pytest.raises(ValueError, match=r"lengths=\[\]: give at least one episode"):
        lerobot.write(tmp_path / "set", none | {"action_space": recording.action_space})
    assert list(tmp_path.iterdir()) == []


def test_depths_come_back_in_a_type_that_torch_computes_with(tmp_path):
    depth = np.arange(96, dtype=np.uint16).reshape(6, 4, 4) + 60_000
    parts = {"observation": {"depth": depth}, "action": np.zeros(6, np.int64), "reward": np.zeros(6, np.float32)}
    parts |= {"lengths": np.array([3, 3]), "terminated": np.ones(2, bool), "score": np.zeros(2, np.float32)}
    write_recording(Recording(**parts, action_space=None), f"lerobot:{tmp_path / 'mine'}")
    back = read_recording(f"lerobot:{tmp_path / 'mine'}").observation["depth"]
    assert back.dtype == np.int32 and (back[[0, 1, 3, 4]] == depth[[0, 1, 3, 4]]).all()  # the last row is repeated


PICTURES = np.zeros((6, 20, 20, 3), np.uint8)


@pytest.mark.parametrize(
    "observation, changes, said",
    [
        ({"state": [0, 1, 2, 3, np.nan, 5]}, {}, r"observation\.state=nan: .*\(step 1 of episode 1\)"),
        ({}, {"reward": np.float32([0, 0, np.inf, 0, 0, 0])}, r"reward=inf: .*\(step 2 of episode 0\)"),
        ({}, {"action": np.float32([0, np.nan, 0, 0, 0, 0])}, r"action=nan: .*\(step 1 of episode 0\)"),
        ({}, {"score": np.float32([1, np.nan])}, r"score=nan: .* episode 1"),
        ({"state": np.zeros((6, 0), np.float32)}, {}, r"observation\.state=\[6, 0\]: .*leave it out"),
        ({"images.top": [0.0] * 6, "top": PICTURES}, {}, "'images.top' too would be called observation.images.top"),
        ({"../../../top": PICTURES}, {}, "leads out of the dataset: rename it"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, observation, changes, said):
    parts = {"observation": {"place": np.zeros(6)} | {name: np.asarray(of) for name, of in observation.items()}}
    parts |= {"action": np.zeros(6, np.int64), "reward": np.zeros(6, np.float32), "lengths": np.array([3, 3])}
    parts |= {"terminated": np.ones(2, bool), "score": np.zeros(2, np.float32), "action_space": None}
    with pytest.raises(ValueError, match=said):
        write_recording(Recording(**parts | changes), f"lerobot:{tmp_path / 'in' / 'mine'}")
    assert list(tmp_path.iterdir()) == []


def test_pandas_reads_the_sentences_as_an_index(written):
    pandas = pytest.importorskip("pandas")
    tasks = pandas.read_parquet(written / "meta/tasks.parquet")
    assert tasks.index.name == "task" and tasks.loc["put the red block where light was"].task_index in (0, 1)


def test_rows_of_episodes_begin_with_a_reset(written):
    rows = DemonstrationBatches(read_recording(f"lerobot:{written}"), 2, __import__("torch").device("cpu"), 0)
    taken = rows.take(40, None)
    starts = taken.is_first.nonzero().tolist()
    assert [0, 0] in starts and [1, 0] in starts and len(starts) > 2
    ends = (taken.terminated | taken.truncated).nonzero().tolist()
    assert all([row, step + 1] in starts for row, step in ends if step < 40)


def edit_json(path, **changes):
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))


def edit_table(path, column, row, value):
    table = parquet.read_table(path)
    values = table[column].to_pylist()
    values[row] = value
    index = table.column_names.index(column)
    arrow = pytest.importorskip("pyarrow")
    parquet.write_table(table.set_column(index, column, arrow.array(values, table.schema.field(column).type)), path)


DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
FILM = "videos/observation.images.image/chunk-000/file-000.mp4"
BREAKS = {
    "no info": (lambda d: (d / "meta/info.json").unlink(), "info.json: there is no such file"),
    "info is no JSON": (lambda d: (d / "meta/info.json").write_text("{"), "info.json is not JSON"),
    "an old version": (lambda d: edit_json(d / "meta/info.json", codebase_version="v2.1"), "v2.1.*convert"),
    "no frame rate": (lambda d: edit_json(d / "meta/info.json", fps=None), "fps=None"),
    "paths lead out": (lambda d: edit_json(d / "meta/info.json", data_path="../../x"), "leads out of the dataset"),
    "a path with holes": (lambda d: edit_json(d / "meta/info.json", data_path="{nobody}"), "is no path"),
    "no sentences": (lambda d: (d / "meta/tasks.parquet").unlink(), "tasks.parquet: there is no such file"),
    "no record": (lambda d: (d / EPISODES).unlink(), "no record of any episode"),
    "records are missing": (lambda d: edit_json(d / "meta/info.json", total_episodes=9), "5 episodes.*says 9"),
    "an empty data set": (lambda d: edit_table(d / EPISODES, "length", 0, 0), "row 0: 0 rows from"),
    "a mixed-up record": (lambda d: edit_table(d / EPISODES, "episode_index", 2, 3), "row 2: episode_index=3"),
    "no rows": (lambda d: (d / DATA).unlink(), "no such file, and meta/episodes names it"),
    "rows cut off": (lambda d: (d / DATA).write_bytes((d / DATA).read_bytes()[:900]), "file-000.parquet.*cut off"),
    "an empty file": (lambda d: (d / DATA).write_bytes(b""), "file-000.parquet.*cut off"),
    "a row of another episode": (
        lambda d: edit_table(d / DATA, "episode_index", 4, 1),
        "row 4: episode_index=1, not 0",
    ),
    "a frame too many": (lambda d: edit_table(d / DATA, "frame_index", 5, 7), "row 5: frame_index=7, not 5"),
    "a wrong clock": (lambda d: edit_table(d / DATA, "timestamp", 6, 9.0), "row 6: timestamp=9"),
    "an unknown sentence": (lambda d: edit_table(d / DATA, "task_index", 3, 8), "row 3: task_index=8"),
    "a missing number": (lambda d: edit_table(d / DATA, "next.reward", 2, None), "row 2: next.reward is empty"),
    "no number": (lambda d: edit_table(d / DATA, "action", 1, [0.0, float("nan"), 0.0]), "row 1: action is not finite"),
    "no film": (lambda d: (d / FILM).unlink(), "file-000.mp4: there is no such file"),
    "an empty film": (lambda d: (d / FILM).write_bytes(b""), "file-000.mp4: frame 0"),
    "a film cut off": (lambda d: (d / FILM).write_bytes((d / FILM).read_bytes()[:3000]), "file-000.mp4: frame"),
    "no film at all": (lambda d: shutil.copy(d / DATA, d / FILM), "file-000.mp4: frame 0"),
}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 17, 3), True),
        ((17, 8, 3), True),
        ((7, 40, 3), False),
        ((40, 7, 3), False),
        ((16, 16, 3), False),
        ((17, 8), False),
    ],
)
def test_pictures_are_large_on_both_sides(shape, expected):
    assert writing.holds_pictures(np.zeros((2, *shape), np.uint8)) == expected
    assert not writing.holds_pictures(np.zeros((2, *shape), np.int16))


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_named_with_its_file_and_row(broken, name):
    damage, message = BREAKS[name]
    damage(broken)
    with pytest.raises(ValueError, match=message):
        lerobot.read(broken)


def test_a_film_of_other_pictures_is_named(broken):
    writer = layout.LosslessVideoWriter(broken / FILM, 30)
    for _ in range(200):
        writer.add(np.zeros((32, 32, 3), np.uint8))
    writer.close()
    with pytest.raises(ValueError, match=r"frame 0 has \[32, 32, 3\].*says \[20, 20, 3\]"):
        lerobot.read(broken)


def test_a_short_film_is_named_with_its_missing_frame(broken, recording):
    writer = layout.LosslessVideoWriter(broken / FILM, 30)
    for image in recording.observation["image"][:11]:
        writer.add(image)
    writer.close()
    with pytest.raises(ValueError, match="frame 11 is missing"):
        lerobot.read(broken)


def test_a_picture_that_is_none_is_named(recording, tmp_path):
    lerobot.write(tmp_path / "set", recording._asdict(), images="image")
    edit_table(tmp_path / "set" / DATA, "observation.images.image", 3, {"bytes": b"no picture", "path": "x"})
    with pytest.raises(ValueError, match=r"row 3: observation.images.image: no picture"):
        lerobot.read(tmp_path / "set")


def test_a_folder_is_whole_or_not_there(recording, tmp_path, monkeypatch):
    written = layout.LosslessVideoWriter.add

    def full_disk(self, image):
        if self.frames > 20:
            raise OSError(28, "No space left on device")
        written(self, image)

    monkeypatch.setattr(layout.LosslessVideoWriter, "add", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_recording(recording, f"lerobot:{tmp_path / 'set'}")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write_recording(recording, f"lerobot:{tmp_path / 'set'}")
    with pytest.raises(ValueError, match="exists already"):
        write_recording(recording, f"lerobot:{tmp_path / 'set'}")


def test_data_of_others_get_the_worlds_words(written, tmp_path):
    """Without our own file parts have the names of the features, and sentences come from the tasks."""
    foreign = shutil.copytree(written, tmp_path / "foreign")
    (foreign / "meta/recollect.json").unlink()
    table = parquet.read_table(foreign / DATA)
    gone = ["observation.language", "next.done", "next.truncated", "next.score"]
    parquet.write_table(table.drop_columns(gone), foreign / DATA)
    info = json.loads((foreign / "meta/info.json").read_text())
    for name in gone:
        del info["features"][name]
    (foreign / "meta/info.json").write_text(json.dumps(info))
    found, ours = read_recording(f"lerobot:{foreign}"), read_recording(f"lerobot:{written}")
    assert found.words[:3] == ("", "block", "blue") and found.terminated.all()
    spoken = found.with_words_of(GOAL.spec, "foreign")
    assert np.array_equal(spoken.observation["language"], ours.observation["language"])
    spoken.require(GOAL.spec, "foreign")
    with pytest.raises(ValueError, match="language='block, blue, light, put, red, the, was, where'"):
        found.with_words_of(TASKS["order-shown-once"]().spec, "foreign")


def test_without_the_extra_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install pyarrow av"):
        read_recording(f"lerobot:{tmp_path}")
