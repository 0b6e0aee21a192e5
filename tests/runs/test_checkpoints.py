import errno
import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from recollect import files
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint, RunError


def make(step, value=None):
    value = float(step) if value is None else value
    return Checkpoint({"weight": torch.full((3,), value)}, {"m": torch.tensor(value)}, {"step": step, "note": "é"})


def test_write_and_read(tmp_path):
    path = checkpoints.write(tmp_path / "checkpoint", make(7), keep=2)
    assert path.name == "step-000000007"
    assert sorted(file.name for file in path.iterdir()) == [
        "manifest.json", "progress.json", "training.safetensors", "weights.safetensors",
    ]  # fmt: skip
    found, torn = checkpoints.read_newest(tmp_path / "checkpoint")
    assert torn == []
    assert found.progress == {"step": 7, "note": "é"}
    assert torch.equal(found.weights["weight"], torch.full((3,), 7.0))
    assert torch.equal(found.training["m"], torch.tensor(7.0))


def test_there_may_be_none(tmp_path):
    assert checkpoints.read_newest(tmp_path / "nothing") == (None, [])


def test_the_newest_k_are_kept(tmp_path):
    for step in (1, 2, 30, 4000000000):
        checkpoints.write(tmp_path, make(step), keep=2)
    assert checkpoints.steps(tmp_path) == [30, 4000000000]


def test_views_shared_and_strided_tensors_are_saved(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    weights = {"a": base.T, "b": base, "c": torch.ones(1).expand(4)}
    checkpoints.write(tmp_path, Checkpoint(weights, {}, {"step": 1}), keep=1)
    found, _ = checkpoints.read_newest(tmp_path)
    assert torch.equal(found.weights["a"], base.T)
    assert torch.equal(found.weights["c"], torch.ones(4))


def tear_file(name, cut):
    def tear(path):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: len(content) // 2] if cut else content[:-1] + b"\xff")

    return tear


def tear_missing(name):
    return lambda path: (path / name).unlink()


FILES = ("weights.safetensors", "training.safetensors", "progress.json", "manifest.json")


@pytest.mark.parametrize("tear", [make(f) for f in FILES for make in (tear_missing, lambda f: tear_file(f, True))] + [
    tear_file(f, False) for f in FILES[:3]
])  # fmt: skip
def test_a_torn_checkpoint_is_passed_over(tmp_path, tear):
    checkpoints.write(tmp_path, make(1), keep=3)
    tear(checkpoints.write(tmp_path, make(2), keep=3))
    found, torn = checkpoints.read_newest(tmp_path)
    assert found.progress["step"] == 1
    assert len(torn) == 1
    assert "step-000000002 is torn (" in torn[0]


def test_a_torn_later_checkpoint_never_pushes_out_a_good_one(tmp_path):
    checkpoints.write(tmp_path, make(1), keep=1)
    (tmp_path / "step-000000009").mkdir()
    checkpoints.write(tmp_path, make(2), keep=1)
    assert checkpoints.steps(tmp_path) == [2]


def test_the_same_step_again_changes_nothing_or_repairs(tmp_path):
    path = checkpoints.write(tmp_path, make(3), keep=1)
    before = (path / "weights.safetensors").stat().st_mtime_ns
    checkpoints.write(tmp_path, make(3), keep=1)
    assert (path / "weights.safetensors").stat().st_mtime_ns == before
    (path / "manifest.json").unlink()
    checkpoints.write(tmp_path, make(3), keep=1)
    assert checkpoints.find_defect(path) is None


@pytest.mark.parametrize("fails_at", range(4))
def test_a_full_disk_loses_no_earlier_checkpoint(tmp_path, monkeypatch, fails_at):
    checkpoints.write(tmp_path, make(1), keep=1)
    written = []
    original = files.write_synced

    def full(path, content):
        if len(written) == fails_at:
            path.write_bytes(content[:5])
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path.name)
        original(path, content)

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(
        RunError, match=r"step 2 .*No space left on device; the checkpoint of step 1 is intact.*Make room"
    ):
        checkpoints.write(tmp_path, make(2), keep=1)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    assert checkpoints.read_newest(tmp_path)[0].progress["step"] == 1
    checkpoints.write(tmp_path, make(2), keep=1)
    assert checkpoints.steps(tmp_path) == [2]


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"could not write the checkpoint of step 1 .*there is no checkpoint yet"):
        checkpoints.write(tmp_path / "file" / "checkpoint", make(1), keep=1)


def test_left_overs_of_a_killed_write_are_swept(tmp_path):
    (tmp_path / ".writing-step-000000005").mkdir(parents=True)
    (tmp_path / ".writing-step-000000005" / "weights.safetensors").write_bytes(b"half")
    assert checkpoints.read_newest(tmp_path) == (None, [])
    checkpoints.write(tmp_path, make(5), keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005"]


def test_anyone_can_load_the_weights(tmp_path):
    path = checkpoints.write(tmp_path, make(1), keep=1)
    assert torch.equal(safetensors.torch.load_file(path / "weights.safetensors")["weight"], torch.ones(3))
    assert json.loads((path / "progress.json").read_text())["step"] == 1


def test_another_checkpoint_of_a_step_takes_its_place_and_one_of_them_always_stands(tmp_path, monkeypatch):
    checkpoints.write(tmp_path, make(3, 1.0), keep=1)
    seen = []

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*arguments, **named):
            found = original(*arguments, **named)
            seen.append(float(checkpoints.read_newest(tmp_path)[0].training["m"]))
            return found

        monkeypatch.setattr(owner, name, watched)

    for owner, name in ((shutil, "rmtree"), (Path, "rename"), (Path, "mkdir")):
        watch(owner, name)
    checkpoints.write(tmp_path, make(3, 2.0), keep=1)
    assert {1.0, 2.0} == set(seen) and seen == sorted(seen)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003"]


@pytest.mark.parametrize("step", [3, 4])
def test_what_a_killed_process_moved_aside_counts_until_there_is_a_newer_one(tmp_path, step):
    path = checkpoints.write(tmp_path, make(3, 1.0), keep=1)
    path.rename(tmp_path / ".aside-step-000000003")
    assert checkpoints.steps(tmp_path) == [3]
    assert checkpoints.read_newest(tmp_path)[0].training["m"] == 1
    checkpoints.write(tmp_path, make(step, 2.0), keep=1)
    assert [path.name for path in tmp_path.iterdir()] == [f"step-00000000{step}"]
    assert checkpoints.read_newest(tmp_path)[0].training["m"] == 2
