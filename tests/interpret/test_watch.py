import gc
import json
import os
import signal
import time

import numpy as np
import pytest
import torch

from recollect.agents import ActivityDetectorConfig
from recollect.cli import main
from recollect.cores import CORES
from recollect.interpret.watch import ActivityWatcher, Event, WatchSummary, list_events, watch
from recollect.interpret.watch_picture import Painter
from recollect.machine import peak_bytes
from recollect.tasks import ShapeActivities
from recollect.tasks.videos.video_files import Frame, VideoWriter, read_video
from recollect.training import DetectionConfig, FitConfig, fit

TASK = ShapeActivities(length=12, max_lag=4, boxes=1)
CORE = CORES["ttm"](dim=8, num_tokens=4, num_slots=3, num_reads=2, num_heads=2, hidden_dim=8)


def detector():
    torch.manual_seed(0)
    model = ActivityDetectorConfig(width=8).build(CORE, class_names=TASK.class_names, frame_shape=TASK.frame_shape)
    with torch.no_grad():
        model.readout.weight.mul_(8)  # so that activities begin and end
        model.readout.bias.zero_()
    return model.eval()


def film(path, count, side=64, seed=0):
    writer = VideoWriter(path, 25, (side, side))
    task = ShapeActivities(size=side)
    generator = torch.Generator().manual_seed(seed)
    written = 0
    while written < count:
        for frame in task.sample(1, generator).inputs[0, : count - written].numpy():
            writer.add(frame)
            written += 1
    writer.close()
    return path


def test_watching_says_what_the_whole_film_says(tmp_path):
    model, path = detector(), film(tmp_path / "film.mp4", 30)
    frames = torch.from_numpy(np.stack([frame.pixels for frame in read_video(path)]))[None]
    first = torch.zeros(1, 30, dtype=torch.bool)
    whole, _ = model(frames, model.initial_state(1), first)
    told = WatchSummary()
    seen = list(watch(model, path, out=tmp_path / "seen.mp4", summary=told))
    said = torch.from_numpy(np.stack([one.probabilities for one in seen]))
    torch.testing.assert_close(said, whole[0].detach().sigmoid(), atol=1e-5, rtol=1e-5)
    assert told.frames == 30 and told.broken == 0 and told.detections == sum(told.by_activity.values()) > 0
    assert len(list(read_video(tmp_path / "seen.mp4"))) == 30
    events = list(list_events(seen, model.class_names))
    open_ = set()
    for event in events:
        assert (event.activity in open_) == (event.kind == "ends")
        open_ ^= {event.activity}


def test_a_minute_has_no_sixtieth_second(monkeypatch):
    lines = [Event(at, 0, "begins", "", 0.5).describe()[:8] for at in (59.99, 59.996, 119.9999, 61.5)]
    assert lines == ["00:59.99", "01:00.00", "02:00.00", "01:01.50"]
    painter, drawn, words = Painter(("a",)), [], Painter._words
    monkeypatch.setattr(Painter, "_words", lambda self, text, *how: drawn.append(text) or words(self, text, *how))
    for number in (1498, 1499):  # at 25 frames per second
        painter.draw(Frame(number, number / 25, np.zeros((8, 8, 3), np.uint8)), None, ())
    assert [text[:7] for text in drawn if "frame" in text] == ["00:59.9", "01:00.0"]


def test_a_broken_frame_is_survived():
    model, pixels = detector(), np.zeros((32, 32, 3), np.uint8)
    frames = [Frame(t, t / 25, None if t in (3, 4) else pixels) for t in range(8)]
    seen = list(watch(model, frames))
    assert [one.probabilities is None for one in seen] == [t in (3, 4) for t in range(8)]
    assert all(np.isfinite(one.probabilities).all() for one in seen if one.probabilities is not None)
    assert [event.frame for event in list_events(seen, model.class_names) if event.kind == "broken"] == [3]


def test_nothing_is_left_behind_where_no_frame_can_be_read(tmp_path):
    with pytest.raises(ValueError, match="not one frame"):
        list(watch(detector(), [Frame(0, 0.0, None)], out=tmp_path / "seen.mp4"))
    assert list(tmp_path.iterdir()) == []
    for path, said in ((tmp_path / "none.mp4", "does not exist"), (tmp_path, "this is a folder")):
        with pytest.raises(ValueError, match=said):
            next(watch(detector(), path))


def test_at_a_low_threshold_activities_end_too():
    watcher, pixels = ActivityWatcher(detector(), threshold=0.08), np.zeros((32, 32, 3), np.uint8)
    watcher.model.readout.bias.data.fill_(9.0)
    watcher.model.readout.weight.data.zero_()
    began = watcher.see(Frame(0, 0.0, pixels)).begins
    watcher.model.readout.bias.data.fill_(-9.0)
    assert watcher.see(Frame(1, 0.1, pixels)).ends == began != ()


def test_where_a_film_cannot_be_written_is_said_before_a_frame_is_read(tmp_path):
    path = film(tmp_path / "film.mp4", 2)
    before = path.read_bytes()
    (tmp_path / "folder.mp4").mkdir()
    for out, said in (
        (path, "this is the video that is watched"),
        (tmp_path / ".." / tmp_path.name / "film.mp4", "this is the video that is watched"),
        (tmp_path / "folder.mp4", "this is a folder"),
        (path / "seen.mp4", r"seen\.mp4'? cannot be written \(.*\): give another folder"),
        (tmp_path / "seen.txt", r"seen\.txt.*end it in one of \.mp4"),
    ):
        with pytest.raises(ValueError, match=said):
            next(watch(detector(), path, out=out))
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def frames_until_stopped(count):
    for t in range(count):
        yield Frame(t, t / 25, np.zeros((32, 32, 3), np.uint8))
    raise KeyboardInterrupt


def test_what_was_seen_before_ctrl_c_becomes_the_film(tmp_path):
    out = tmp_path / "new" / "seen.MP4"
    for count in (5, 0):
        with pytest.raises(KeyboardInterrupt):
            list(watch(detector(), frames_until_stopped(count), out=out))
        assert [len(list(read_video(path))) for path in out.parent.iterdir()] == ([5] if count else [])
        out.unlink(missing_ok=True)


def test_one_long_line_of_pixels_is_drawn(tmp_path):
    seen = list(watch(detector(), [Frame(0, 0.0, np.zeros((1, 3000, 3), np.uint8))], out=tmp_path / "seen.mp4"))
    (drawn,) = read_video(tmp_path / "seen.mp4")
    assert len(seen) == 1 and drawn.pixels is not None and drawn.pixels.shape[1] == 3250


@pytest.fixture
def run_directory(tmp_path):
    config = DetectionConfig(
        task=TASK,
        core=CORE,
        agent=ActivityDetectorConfig(width=8),
        batch_size=2,
        evaluation_rows=4,
        fit=FitConfig(steps=1),
    )
    fit(config, tmp_path / "run")
    return tmp_path / "run"


def test_a_signal_ends_the_command_and_keeps_the_film(run_directory, tmp_path, monkeypatch, capsys):
    path, see = film(tmp_path / "film.mp4", 30), ActivityWatcher.see

    def killed(self, frame):
        if frame.number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return see(self, frame)

    monkeypatch.setattr(ActivityWatcher, "see", killed)
    assert main(["watch", str(path), "--run", str(run_directory), "--out", str(tmp_path / "seen.mp4")]) == 0
    assert len(list(read_video(tmp_path / "seen.mp4"))) == 4
    assert "stopped by SIGTERM" in capsys.readouterr().err


def test_the_command(run_directory, tmp_path, capsys):
    path = film(tmp_path / "film.mp4", 10)
    words = ["watch", str(path), "--run", str(run_directory), "--threshold", "0.05", "--json"]
    assert main([*words, "--out", str(tmp_path / "seen.mp4")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines and {line["kind"] for line in lines} <= {"begins", "ends"}
    assert (tmp_path / "seen.mp4").is_file()
    assert main(["watch", str(tmp_path / "no.mp4"), "--run", str(run_directory)]) == 2
    assert main(["watch", str(path), "--run", str(tmp_path)]) == 2
    assert "not a run directory" in capsys.readouterr().err


def flat(frames, settle):
    model = detector()
    watcher = ActivityWatcher(model)
    pixels = np.random.default_rng(0).integers(0, 255, (8, 224, 224, 3), dtype=np.uint8)
    bytes_ = []
    for t in range(frames):
        watcher.see(Frame(t, t / 25, None if t % 97 == 5 else pixels[t % 8]))
        if t in (settle, frames - 1):
            gc.collect()
            bytes_.append((watcher.stream.nbytes, peak_bytes()))
    (state, before), (later, after) = bytes_
    assert later == state and (before is None or after - before < 8 << 20)


@pytest.mark.long
def test_memory_is_flat_over_a_thousand_frames():
    flat(1000, 300)


@pytest.mark.slow
def test_memory_is_flat_over_a_hundred_thousand_frames():
    flat(100_000, 1000)


@pytest.mark.slow
def test_a_film_of_ten_minutes_from_end_to_end(tmp_path):
    path, told = film(tmp_path / "long.mp4", 15_000, side=224), WatchSummary()
    began = time.perf_counter()
    for _ in watch(detector(), path, out=tmp_path / "seen.mp4", summary=told):
        pass
    assert told.frames == 15_000
    assert told.frames / (time.perf_counter() - began) > 25
