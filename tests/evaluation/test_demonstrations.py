"""Demonstrations of a bot: the same from any number of processes, after a kill, and with a bot that hangs."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("minigrid")

from fake_bots import always_asleep, sometimes_asleep

from recollect.cli import main
from recollect.evaluation import demonstrations
from recollect.evaluation.demonstrations import record_demonstrations
from recollect.evaluation.demonstrations_config import DemonstrationsConfig
from recollect.evaluation.recordings import read_recording
from recollect.runs.errors import RunError
from recollect.runs.folder_lock import FolderLock
from recollect.tasks import GymnasiumConfig
from recollect.tasks.gymnasium.babyai import HangingError, time_limited
from recollect.tasks.gymnasium.babyai_levels import level_id, max_instruction_words
from recollect.tasks.gymnasium.spaces import hash_words


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(demonstrations, "PART", 4)


def same(one, two):
    return all(np.array_equal(one.observation[name], two.observation[name]) for name in one.observation) and all(
        np.array_equal(getattr(one, name), getattr(two, name)) for name in ("action", "reward", "lengths", "score")
    )


def test_the_recorded_actions_carry_out_the_instruction(tmp_path, small_parts):
    config = DemonstrationsConfig(levels=("GoToLocal", "BabyAI-PickupLoc-v0"), episodes=6)
    about = record_demonstrations(config, tmp_path / "demos.npz")
    recording = read_recording(tmp_path / "demos.npz")
    assert about == json.loads((tmp_path / "demos.json").read_text())
    assert about["episodes"] == 12 and about["steps"] == (recording.lengths - 1).sum()
    assert not (tmp_path / "demos.npz.parts").exists()
    assert {name: leaf.dtype.name for name, leaf in recording.observation.items()} == {
        "direction": "uint8",
        "image": "uint8",
        "language": "int16",
    }
    recording.require(GymnasiumConfig(id="BabyAI-GoToLocal-v0").spec, "demos")
    begin = 0
    for number, length in enumerate(recording.lengths):
        level, episode = ("GoToLocal", number) if number < 6 else ("PickupLoc", number - 6)
        environment = gymnasium.make(level_id(level))
        seen, _ = environment.reset(seed=config.seed_of(level, episode, 0))
        reward = 0.0
        for t in range(length):
            assert np.array_equal(recording.observation["image"][begin + t], seen["image"])
            assert np.array_equal(recording.observation["language"][begin + t], hash_words(seen["mission"], 16, 1024))
            if t < length - 1:
                seen, reward, over, _, _ = environment.step(int(recording.action[begin + t]))
                assert over == (t == length - 2)
        assert float(reward) == pytest.approx(recording.reward[begin + length - 1]) and reward > 0
        begin += length


@pytest.mark.long
def test_a_bot_that_hangs_or_raises_gets_another_seed_and_is_counted(tmp_path, small_parts):
    config = DemonstrationsConfig(levels=("GoToLocal",), episodes=5, seconds=3.0)
    about = record_demonstrations(config, tmp_path / "one.npz", make_bot=sometimes_asleep)
    counts = about["another_seed"]["GoToLocal"]
    assert counts["hung"] > 0 and counts["raised"] > 0 and counts["failed"] == 0
    assert len(read_recording(tmp_path / "one.npz").lengths) == 5
    twin = record_demonstrations(config, tmp_path / "two.npz", make_bot=sometimes_asleep)
    assert twin["another_seed"]["GoToLocal"]["raised"] == counts["raised"]
    assert same(read_recording(tmp_path / "one.npz"), read_recording(tmp_path / "two.npz"))


def test_a_bot_that_never_answers_ends_the_recording(tmp_path):
    config = DemonstrationsConfig(episodes=1, seconds=0.05, attempts=2)
    with pytest.raises(RunError, match=r"BabyAI-GoToLocal-v0: the bot did not finish episode 0 with any of 2 seeds"):
        record_demonstrations(config, tmp_path / "demos.npz", make_bot=always_asleep)
    assert not (tmp_path / "demos.npz").exists()


@pytest.mark.long
def test_a_killed_recording_goes_on_and_ends_the_same(tmp_path, small_parts):
    config = DemonstrationsConfig(episodes=30)
    script = (
        "from fake_bots import killed_later\n"
        "from recollect.evaluation import demonstrations as d\n"
        "d.PART = 4\n"
        f"d.record_demonstrations(d.DemonstrationsConfig(episodes=30), {str(tmp_path / 'killed.npz')!r}, "
        "make_bot=killed_later)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, check=False, capture_output=True)
    assert killed.returncode == 9, killed.stderr.decode()
    parts = sorted((tmp_path / "killed.npz.parts").glob("*.npz"))
    assert len(parts) == 5 and not (tmp_path / "killed.npz").exists()  # 20 whole episodes; the 21st died
    before = parts[0].stat().st_mtime_ns
    there = []
    kept = {}
    record_demonstrations(config, tmp_path / "killed.npz", on_progress=lambda n: (there.append(n), kept.update(
        {n: parts[0].stat().st_mtime_ns if parts[0].exists() else before})))  # fmt: skip
    assert there[0] == 20 and there[-1] == 30 and set(kept.values()) == {before}  # what was there was not made again
    record_demonstrations(config, tmp_path / "whole.npz")
    assert same(read_recording(tmp_path / "killed.npz"), read_recording(tmp_path / "whole.npz"))


def test_parts_of_other_demonstrations_are_not_mixed_in(tmp_path, small_parts):
    folder = tmp_path / "demos.npz.parts"
    folder.mkdir()
    (folder / "settings.json").write_text('{"seed": 1}')
    (folder / "GoToLocal-0000000.npz").touch()
    with pytest.raises(ValueError, match="holds parts of other demonstrations"):
        record_demonstrations(DemonstrationsConfig(episodes=2), tmp_path / "demos.npz")
    (folder / "settings.json").write_text('{"seed"')
    with pytest.raises(ValueError, match=r"settings\.json is not JSON .*remove the folder"):
        record_demonstrations(DemonstrationsConfig(episodes=2), tmp_path / "demos.npz")


def test_two_do_not_record_the_same_file(tmp_path):
    folder = tmp_path / "demos.npz.parts"
    folder.mkdir()
    with FolderLock(folder), pytest.raises(ValueError, match=r"demos\.npz\.parts is in use by process"):
        record_demonstrations(DemonstrationsConfig(episodes=2), tmp_path / "demos.npz")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"levels": ()}, "levels=.*name at least one level"),
        ({"levels": ("GoToLocal", "BabyAI-GoToLocal-v0")}, "name each level once"),
        ({"levels": ("GoToLocl",)}, "BabyAI-GoToLocl"),
        ({"episodes": 0}, "episodes=0: record at least one"),
    ],
)
def test_mistakes_are_named(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        record_demonstrations(DemonstrationsConfig(**fields), tmp_path / "demos.npz")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"out=.*file/demos\.npz' cannot be written \(Not a directory\): give another"):
        record_demonstrations(DemonstrationsConfig(), tmp_path / "file" / "demos.npz", processes=1)


def test_no_processes_are_not_all_of_them(tmp_path, capsys):
    assert main(["demonstrations", "GoToLocal", "-o", str(tmp_path / "demos.npz"), "--processes", "0"]) == 2
    assert "processes=0: give at least one" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_time_limits_end_what_sleeps_and_nothing_else():
    with time_limited(5.0):
        pass
    with pytest.raises(HangingError, match=r"not done after 0\.05 s"), time_limited(0.05):
        threading.Event().wait()
    with time_limited(60.0):  # an alarm that comes late, as after a stop of the process, is one of several
        signal.raise_signal(signal.SIGALRM)


def test_levels_have_room_for_their_words():
    assert (
        max_instruction_words(("GoToLocal",)) == 16
        and max_instruction_words(("GoToLocal", "BabyAI-BossLevel-v0")) == 72
    )


def test_instructions_that_would_be_cut_are_refused(tmp_path):
    config = DemonstrationsConfig(levels=("MoveTwoAcrossS5N2",), episodes=1)
    remedy = r"words=16: BabyAI-MoveTwoAcrossS5N2-v0 has the instruction 'put .*' of 19 words: give words=24, to"
    with pytest.raises(ValueError, match=remedy):
        record_demonstrations(config, tmp_path / "demos.npz")
    assert not (tmp_path / "demos.npz").exists()
    enough = replace(config, words=24)  # the remedy helps with the same file: no part of other settings is there yet
    assert record_demonstrations(enough, tmp_path / "demos.npz")["episodes"] == 1


def test_a_file_that_is_there_is_neither_recorded_again_nor_overwritten(tmp_path):
    path, config = tmp_path / "demos.npz", DemonstrationsConfig(episodes=2)
    about = record_demonstrations(config, path)
    before, there = path.stat().st_mtime_ns, []
    assert record_demonstrations(config, path, on_progress=there.append, make_bot=always_asleep) == about and there == [
        2
    ]
    with pytest.raises(
        ValueError, match=r"demos\.npz' exists, and holds other demonstrations \(.*'seed': 0.*another file"
    ):
        record_demonstrations(DemonstrationsConfig(episodes=2, seed=1), path)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(ValueError, match=r"demos\.json is not JSON .*give another file"):
        record_demonstrations(config, path)
    path.with_suffix(".json").unlink()
    with pytest.raises(
        ValueError, match=r"exists without demos\.json, which describes its contents: give another file"
    ):
        record_demonstrations(config, path)
    assert path.stat().st_mtime_ns == before and not (tmp_path / "demos.npz.parts").exists()


def test_a_file_of_something_else_beside_it_is_not_replaced(tmp_path):
    (tmp_path / "demos.json").write_text('{"mine": 1}')
    with pytest.raises(ValueError, match=r"demos\.json would be replaced, and is not of demonstrations: give another"):
        record_demonstrations(DemonstrationsConfig(episodes=1), tmp_path / "demos.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["demos.json"]


def damages(one, other):
    """What may have happened to a part, and how."""
    beside, content = one.with_suffix(".json"), one.read_bytes()
    yield "cut", lambda: one.write_bytes(content[: len(content) // 2])
    yield "empty", lambda: one.write_bytes(b"")
    yield "a copy of another", lambda: shutil.copy(other, one)
    yield (
        "another, with what is said of it",
        lambda: (
            shutil.copy(other, one),
            shutil.copy(other.with_suffix(".json"), beside),
        ),
    )
    yield "nothing said of it", beside.unlink
    yield "half said of it", lambda: beside.write_text(beside.read_text()[:20])
    yield "something else said of it", lambda: beside.write_text("[]")


def test_damaged_parts_are_recorded_again(tmp_path, small_parts):
    config, path = DemonstrationsConfig(episodes=10), tmp_path / "demos.npz"

    def leave(there):
        if there == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_demonstrations(config, path, on_progress=leave)
    folder, kept = tmp_path / "demos.npz.parts", tmp_path / "kept"
    shutil.copytree(folder, kept)
    record_demonstrations(config, path)
    whole = read_recording(path)
    names = [name for name, _ in damages(*sorted(kept.glob("*.npz")))]
    for number, name in enumerate(names):
        path.unlink()
        shutil.copytree(kept, folder)
        dict(damages(*sorted(folder.glob("*.npz"))))[names[number]]()
        there = []
        record_demonstrations(config, path, on_progress=there.append)
        assert there[0] == 4, name
        assert same(read_recording(path), whole), name


@pytest.mark.long
def test_scripts_and_threads_are_told_what_to_do(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        "from recollect.evaluation.demonstrations import DemonstrationsConfig, record_demonstrations\n"
        f"record_demonstrations(DemonstrationsConfig(episodes=2), {str(tmp_path / 'demos.npz')!r}, processes=2)\n"
    )
    told = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True).stderr
    last = told.strip().splitlines()[-1]
    assert "RunError" in last and "in a script, call it under if __name__ == '__main__':" in last
    assert "ValueError: processes=2: call it under if __name__ == '__main__':" in told

    found = []

    def record():
        try:
            record_demonstrations(DemonstrationsConfig(episodes=1), tmp_path / "demos.npz")
        except ValueError as error:
            found.append(str(error))

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert found and found[0].startswith("processes=1: only the main thread can end a hanging episode")
