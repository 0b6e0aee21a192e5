"""Datasets of LeRobot's format v3.0 that others wrote: made here with pyarrow and PyAV alone."""

import json
from itertools import accumulate

import numpy as np
import pytest

from recollect.evaluation import lerobot

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
av = pytest.importorskip("av")

FPS, SIDE = 10, 32
LENGTHS = (4, 3, 5)
ROWS = sum(LENGTHS)
STARTS = [0, *accumulate(LENGTHS)]
PATH = "chunk-{:03d}/file-{:03d}"
EPISODES = f"meta/episodes/{PATH.format(0, 0)}.parquet"


def level(camera, row):
    """Grey that a camera shows at a row."""
    return (9 * row + 40 * (camera == "wrist")) % 250


def write_film(path, levels, rate):
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.height = stream.width = SIDE
        stream.pix_fmt = "yuv420p"
        for grey in levels:
            frame = av.VideoFrame.from_ndarray(np.full((SIDE, SIDE, 3), grey, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def write_dataset(root, *, data=None, films=None, film_order=(0, 1, 2), rate=FPS, columns=None, features=None):
    """Three episodes, two cameras; ``data`` and ``films`` say in which chunk and file each episode lies.

    ``rate``: frames a second that the films have, a multiple of those of the dataset.
    """
    data, films = data or [(0, 0)] * 3, films or [(0, 0)] * 3
    random = np.random.default_rng(0)
    rows = np.arange(ROWS)
    frame = rows - np.repeat(STARTS[:3], LENGTHS)
    table = {
        "observation.state": arrow.array(list(random.normal(size=(ROWS, 3)))),
        "action": arrow.array(list(random.normal(size=(ROWS, 2)).astype(np.float32))),
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.repeat([0, 1, 2], LENGTHS),
        "index": rows,
        "task_index": np.zeros(ROWS, np.int64),
    } | (columns or {})
    table = arrow.table(table)
    for place in set(data):
        path = root / f"data/{PATH.format(*place)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        mine = [table.slice(STARTS[e], LENGTHS[e]) for e in range(3) if data[e] == place]
        parquet.write_table(arrow.concat_tables(mine), path)
    records = []
    for e in range(3):
        record = {"episode_index": e, "tasks": ["do it"], "length": LENGTHS[e]}
        record |= {"dataset_from_index": STARTS[e], "dataset_to_index": STARTS[e + 1]}
        records.append(record | {"data/chunk_index": data[e][0], "data/file_index": data[e][1]})
    for camera in ("top", "wrist"):
        key = f"observation.images.{camera}"
        for place in set(films):
            shown = []
            for e in (e for e in film_order if films[e] == place):
                begin, length = len(shown) / rate, LENGTHS[e]
                records[e] |= {f"videos/{key}/chunk_index": place[0], f"videos/{key}/file_index": place[1]}
                records[e] |= {
                    f"videos/{key}/from_timestamp": begin,
                    f"videos/{key}/to_timestamp": begin + length / FPS,
                }
                for row in range(STARTS[e], STARTS[e + 1]):
                    shown += [level(camera, row)] + [255] * (rate // FPS - 1)
            write_film(root / f"videos/{key}/{PATH.format(*place)}.mp4", shown, rate)
    (root / EPISODES).parent.mkdir(parents=True)
    parquet.write_table(arrow.Table.from_pylist(records), root / EPISODES)
    tasks = arrow.table({"task_index": [0], "__index_level_0__": ["do it"]})  # as early versions wrote it
    parquet.write_table(tasks, root / "meta/tasks.parquet")
    kinds = dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), ("int64", [1]))
    kinds |= {"timestamp": ("float32", [1]), "action": ("float32", [2]), "observation.state": ("float64", [3])}
    kinds |= {f"observation.images.{camera}": ("video", [3, SIDE, SIDE]) for camera in ("top", "wrist")}
    kinds |= features or {}
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_episodes": 3,
        "total_frames": ROWS,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in kinds.items()},
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    return table


def read(root, table):
    """What is read, and that it is what was written."""
    found = lerobot.read(root)
    assert found["lengths"].tolist() == [length + 1 for length in LENGTHS]
    acted = np.delete(np.arange(ROWS + 3), np.cumsum(found["lengths"]) - 1)
    seen = found["observation"]
    assert seen["state"].dtype == np.float64
    assert seen["state"][acted].tolist() == table["observation.state"].to_pylist()
    assert found["action"][acted].tolist() == table["action"].to_pylist()
    for camera in ("top", "wrist"):
        shown = seen[camera][acted].mean((1, 2, 3))
        assert np.abs(shown - [level(camera, row) for row in range(ROWS)]).max() < 4, camera
    return found, acted


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"data": [(0, 0), (0, 1), (1, 0)], "films": [(0, 0), (1, 0), (1, 1)]},
        {"data": [(0, 1), (0, 0), (0, 1)], "films": [(0, 0), (0, 1), (0, 0)]},
        {"film_order": (2, 0, 1)},
        {"rate": 3 * FPS},
    ],
    ids=["one file", "chunks and files", "files in turns", "films in another order", "films with more frames"],
)
def test_rows_and_frames_are_found_wherever_they_lie(tmp_path, layout):
    read(tmp_path, write_dataset(tmp_path, **layout))


def test_columns_that_nobody_needs_are_not_read(tmp_path):
    columns = {
        "language_instruction": arrow.array([None, "go"] * 6),
        "observation.note": ["a"] * ROWS,
        "language_events": arrow.array([[{"content": "x"}] * (row % 3) for row in range(ROWS)]),
        "undeclared": arrow.array([[1.0] * row for row in range(ROWS)]),
    }
    text = {"language_instruction": ("string", [1]), "observation.note": ("string", [1])}
    table = write_dataset(tmp_path, columns=columns, features=text | {"language_events": ("language", [1])})
    found, _ = read(tmp_path, table)
    assert set(found["observation"]) == {"state", "top", "wrist", "language"}


def test_what_info_need_not_say_has_a_default(tmp_path):
    table = write_dataset(tmp_path)
    info = json.loads((tmp_path / "meta/info.json").read_text())
    for name in ("data_path", "video_path", "total_frames"):
        del info[name]
    (tmp_path / "meta/info.json").write_text(json.dumps(info))
    read(tmp_path, table)


def test_files_may_be_links_as_in_a_cache_of_the_hub(tmp_path):
    table = write_dataset(tmp_path / "blobs")
    for path in (path for path in (tmp_path / "blobs").rglob("*") if path.is_file()):
        link = tmp_path / "snapshot" / path.relative_to(tmp_path / "blobs")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    read(tmp_path / "snapshot", table)


def test_a_vector_of_one_is_a_plain_number_in_the_format(tmp_path):
    numbers = np.arange(ROWS, dtype=np.float32)
    one = {"action": ("float32", [1]), "observation.grip": ("float32", [1]), "observation.mode": ("int64", [1])}
    columns = {"action": numbers, "observation.grip": numbers, "observation.mode": np.arange(ROWS)}
    write_dataset(tmp_path / "theirs", columns=columns, features=one)
    found = lerobot.read(tmp_path / "theirs")
    assert found["action"].shape == found["observation"]["grip"].shape == (ROWS + 3, 1)
    assert found["observation"]["mode"].shape == (ROWS + 3,)
    found["observation"] |= {"single": found["observation"]["grip"][:, 0]}
    lerobot.write(tmp_path / "ours", found)
    stored = parquet.read_table(tmp_path / "ours/data/chunk-000/file-000.parquet")
    assert {stored.schema.field(name).type for name in ("action", "observation.grip")} == {arrow.float32()}
    again = lerobot.read(tmp_path / "ours")
    assert again["action"].shape == again["observation"]["grip"].shape == (ROWS + 3, 1)
    assert again["observation"]["single"].shape == again["observation"]["mode"].shape == (ROWS + 3,)


def change_info(root, *path_and_value):
    *path, last, value = path_and_value
    info = json.loads((root / "meta/info.json").read_text())
    at = info
    for name in path:
        at = at[name]
    at[last] = value
    (root / "meta/info.json").write_text(json.dumps(info))


def change_records(root, column, values):
    table = parquet.read_table(root / EPISODES)
    place = table.column_names.index(column)
    parquet.write_table(table.set_column(place, column, arrow.array(values)), root / EPISODES)


def damage_film(root):
    path = root / f"videos/observation.images.top/{PATH.format(0, 0)}.mp4"
    write_film(path, list(np.random.default_rng(0).integers(0, 255, ROWS)), FPS)
    content = bytearray(path.read_bytes())
    begin = content.index(b"mdat")
    middle = begin + (content.index(b"moov") - begin) * 2 // 3
    content[middle : middle + 100] = bytes(range(100, 200))
    path.write_bytes(content)


TOP = "videos/observation.images.top"
BREAKS = {
    "no rate": (lambda d: change_info(d, "fps", 0), r"info\.json: fps=0"),
    "too few rows": (lambda d: change_info(d, "total_frames", 13), "12 rows.*total_frames=13"),
    "no feature": (lambda d: change_info(d, "features", "action", None), r"info\.json: feature 'action': dtype=None"),
    "no dtype": (lambda d: change_info(d, "features", "action", "dtype", "x"), "feature 'action': dtype='x'"),
    "no shape": (lambda d: change_info(d, "features", "action", "shape", 2), "feature 'action': shape=2"),
    "a clock of two": (lambda d: change_info(d, "features", "timestamp", "shape", [2]), r"'timestamp': shape=\[2\]"),
    "other rate": (lambda d: change_info(d, "fps", 30), "row 1: timestamp=0.1.*at 30 fps"),
    "a text": (lambda d: change_records(d, "length", ["4", "3", "5"]), "row 0: length='4'"),
    "no time": (lambda d: change_records(d, f"{TOP}/from_timestamp", [0.0, np.nan, 0.7]), "row 1: .*timestamp=nan"),
    "before the film": (lambda d: change_records(d, f"{TOP}/from_timestamp", [0.0, -1, 0.7]), "row 1: .*=-1"),
    "twice the same": (lambda d: change_records(d, f"{TOP}/from_timestamp", [0.0, 0.2, 0.7]), "episodes overlap"),
    "behind the film": (lambda d: change_records(d, f"{TOP}/from_timestamp", [0.0, 0.4, 0.9]), "frame 12 is missing"),
    "a damaged film": (damage_film, r"top.*file-000\.mp4: frame \d+ cannot be read"),
    "tasks of none": (
        lambda d: parquet.write_table(arrow.table({"task_index": [0], "task": [None]}), d / "meta/tasks.parquet"),
        r"tasks\.parquet: task holds \[None\]",
    ),
    "tasks twice": (
        lambda d: parquet.write_table(
            arrow.table({"task_index": [0, 0], "task": ["a", "b"]}), d / "meta/tasks.parquet"
        ),
        r"tasks\.parquet: task_index counts \[0, 0\]",
    ),
    "our own file": (lambda d: (d / "meta/recollect.json").write_text('{"words": 3}'), r"recollect\.json: .* words"),
    "our own space": (
        lambda d: (d / "meta/recollect.json").write_text('{"action_space": {}}'),
        r"recollect\.json: action_space",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_mislabelled_is_named(tmp_path, name):
    write_dataset(tmp_path)
    damage, message = BREAKS[name]
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        lerobot.read(tmp_path)
