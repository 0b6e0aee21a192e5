"""The recording for rerun: what is in it, read back by rerun's own tool; skipped where the package is not."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from synthetic_records import ballet_like, without_attention

from recollect.cli import main
from recollect.interpret import score, write_rerun
from recollect.interpret.record import Objects
from recollect.interpret.rerun_file import _overlays, _paint


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("recollect.interpret.rerun_file.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install rerun-sdk"):
        write_rerun(without_attention(), tmp_path / "episode.rrd")
    (tmp_path / "config.json").write_text("{}")
    assert main(["explore", str(tmp_path), "-o", str(tmp_path / "out"), "--rerun"]) == 2
    assert "pip install rerun-sdk" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()  # said before anything was computed


@pytest.mark.skipif(find_spec("rerun") is None, reason="no rerun-sdk: pip install rerun-sdk")
def test_a_recording_holds_every_step(tmp_path):
    record = ballet_like(24)
    boxes = np.tile(np.array([[2, 3, 6, 9]], np.int32), (24, 1, 1))
    there = np.ones((24, 1), bool)
    record = replace(record, objects=Objects(names=("it",), boxes=boxes, visible=there, matters=there))
    path = write_rerun(record, tmp_path / "deep" / "episode.rrd", score(record))
    shown = subprocess.run(
        [sys.executable, "-m", "rerun", "rrd", "print", "-v", str(path)], capture_output=True, text=True, check=True
    ).stdout
    for entity in ("/about", "/frame", "/frame/attention", "/frame/things", "/curves/value", "/policy/SW", "/events"):
        assert entity in shown, entity
    assert "/memory/attention/layer" in shown and "/memory/removal" in shown
    assert path.stat().st_size < 2_000_000


@pytest.mark.skipif(find_spec("rerun") is None, reason="no rerun-sdk: pip install rerun-sdk")
def test_a_core_without_attention_and_a_folder_that_cannot_be(tmp_path):
    assert write_rerun(without_attention(), tmp_path / "nothing.rrd").stat().st_size > 1000
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        write_rerun(without_attention(), tmp_path / "file" / "episode.rrd")


def test_holes_of_a_map_are_clear_and_change_no_other_colour():
    record = ballet_like(24)
    spatial = record.spatial.copy()
    spatial[3, :, 2] = np.nan  # no head says anything there
    spatial[5] = np.nan
    holes, full = (next(_overlays(one)) for one in (replace(record, spatial=spatial), record))
    assert holes.name == "attention" and holes.rows[3] == 3
    painted, whole = (_paint(one.maps[3], one.high, (12, 12)) for one in (holes, full))
    assert (painted[2, :, 3] == 0).all() and not _paint(holes.maps[5], holes.high, (12, 12))[..., 3].any()
    assert np.abs(np.delete(painted, 2, 0).astype(int) - np.delete(whole, 2, 0)).max() <= 5


@pytest.mark.skipif(find_spec("rerun") is None, reason="no rerun-sdk: pip install rerun-sdk")
def test_a_recording_that_breaks_off_leaves_the_one_before_it(tmp_path, monkeypatch):
    path = write_rerun(ballet_like(4), tmp_path / "episode.rrd")
    before = path.read_bytes()
    monkeypatch.setattr("recollect.interpret.rerun_file._step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_rerun(ballet_like(4), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
