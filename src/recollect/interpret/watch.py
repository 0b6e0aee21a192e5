"""A trained detector watches a video or a camera: frame by frame, at a constant cost, for as long as frames come.

    for result in watch(model, "kitchen.mp4"):
        result.begins, result.ends          activities that begin or end at this frame

An activity begins when its probability reaches ``threshold``, and ends when it falls below ``threshold - SLACK``, or
half the threshold if that is more, so that one doubtful frame does not end it. A frame that cannot be decoded is a
broken step: the memory receives zeros, as the streaming contract says, and nothing begins or ends. Only the memory and
the activities that go on are kept.
"""

import math
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from recollect.agents.activity_detector import ActivityDetector
from recollect.config import require
from recollect.files import new_file, path_errors
from recollect.interpret.watch_picture import Painter
from recollect.tasks.videos.video_files import Frame, VideoReader, VideoWriter, require_video_path
from recollect.training.saved_models import load_model

SLACK = 0.1  # how far below the threshold a probability may fall before its activity ends
CAMERA_RATE = 25.0  # frames per second of an annotated video whose source has no rate


class FrameResult(NamedTuple):
    """Output of a detector for one frame."""

    frame: Frame
    probabilities: np.ndarray | None
    """float ``[k]``, the newest; None where the frame is broken, or a backbone's first segment is not full."""
    going_on: tuple[int, ...]  # activities that go on
    begins: tuple[int, ...]  # activities that begin here
    ends: tuple[int, ...]  # activities that end here


class Event(NamedTuple):
    """An event for a person."""

    seconds: float  # since the video's start
    frame: int
    kind: str  # begins, ends or broken
    activity: str  # empty where a frame is broken
    probability: float  # NaN where a frame is broken

    def describe(self) -> str:
        """Return the event as one line of text."""
        minutes, seconds = divmod(round(self.seconds, 2), 60)  # else 59.996 s would be 00:60.00
        when = f"{int(minutes):02d}:{seconds:05.2f}"
        if self.kind == "broken":
            return f"{when}  broken frame {self.frame}"
        return f"{when}  {self.kind:<6}  {self.activity}  ({self.probability:.2f})"

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return self._asdict()


@dataclass(kw_only=True)
class WatchSummary:
    """Counts of a watched video."""

    frames: int = 0  # broken ones included
    broken: int = 0  # frames that could not be decoded
    detections: int = 0  # activities that began
    seconds: float = 0.0  # duration of everything
    step_milliseconds: float = 0.0  # mean time of the detector for a frame
    by_activity: dict[str, int] = field(default_factory=dict)  # how often each began

    def describe(self) -> str:
        """Return one line for a person."""
        rate = self.frames / self.seconds if self.seconds else 0.0
        broken = f", {self.broken} of them broken" if self.broken else ""
        return (
            f"{self.frames} frames{broken}, {self.detections} detections; {rate:.1f} frames/s, "
            f"{self.step_milliseconds:.2f} ms of them the detector"
        )


class ActivityWatcher:
    """A streaming detector and the activities that go on; receives frame after frame.

    Args:
        model: in ``eval`` mode.
        threshold: probability from which an activity goes on.
    """

    def __init__(self, model: ActivityDetector, threshold: float = 0.5) -> None:
        require(0 < threshold < 1, "threshold", threshold, "give a probability between 0 and 1")
        if model.frame_shape is None:
            raise ValueError("this run was trained on features that others computed: it cannot watch a video")
        self.model, self.threshold = model, threshold
        self.stream = model.stream(1)
        self.device = next(model.parameters()).device
        self._going_on = np.zeros(len(model.class_names), bool)
        self._probabilities: np.ndarray | None = None

    def see(self, frame: Frame) -> FrameResult:
        """Process one frame."""
        before, probabilities = self._going_on, None
        if frame.pixels is None:
            self.stream.step_unreadable()
        else:
            logits = self.stream.step(torch.from_numpy(frame.pixels)[None].to(self.device))
            if logits is not None:
                self._probabilities = logits[0].float().sigmoid().cpu().numpy()
                ends_below = max(self.threshold - SLACK, self.threshold / 2)
                self._going_on = self._probabilities >= np.where(before, ends_below, self.threshold)
            probabilities = self._probabilities
        now = self._going_on
        going_on, begins, ends = (tuple(np.flatnonzero(one).tolist()) for one in (now, now & ~before, before & ~now))
        return FrameResult(frame, probabilities, going_on, begins, ends)


def load_detector(
    directory: str | PathLike[str], device: str = "cpu", *, best: bool = False, trust: bool = False
) -> ActivityDetector:
    """Load the detector of a run.

    Raises:
        ValueError: the run trained something else, or on features, or has no checkpoint yet.
    """
    model = load_model(directory, device, best=best, trust=trust)
    if not isinstance(model, ActivityDetector):
        raise ValueError(
            f"{directory} trained a {type(model).__name__}: only detectors watch videos; train one with "
            "recollect train shape-activities --core ttm"
        )
    return model


def list_events(results: Iterable[FrameResult], class_names: tuple[str, ...]) -> Iterator[Event]:
    """Yield the events of frames as they come; of consecutive broken frames only the first."""
    was_broken = False
    for result in results:
        number, seconds, pixels = result.frame
        if pixels is None and not was_broken:
            yield Event(seconds, number, "broken", "", math.nan)
        was_broken = pixels is None
        for kind, activities in (("ends", result.ends), ("begins", result.begins)):
            for k in activities:
                probability = 0.0 if result.probabilities is None else float(result.probabilities[k])
                yield Event(seconds, number, kind, class_names[k], probability)


def watch(
    model: ActivityDetector,
    source: str | PathLike[str] | Iterable[Frame],
    *,
    threshold: float = 0.5,
    out: str | PathLike[str] | None = None,
    most_frames: int | None = None,
    summary: WatchSummary | None = None,
) -> Generator[FrameResult, None, None]:
    """Watch a video or a camera; yield the result of every frame as soon as it has come.

    Args:
        model: of a run that was trained on frames.
        source: video, camera (see ``tasks/videos/video_files.py``), or frames.
        threshold: probability from which an activity goes on.
        out: annotated video that is written beside its place and moved there at the end, also when the caller stops or
            Ctrl-C comes.
        most_frames: after which it ends; None goes on as long as frames come.
        summary: receives the counts as they grow.

    Raises:
        ValueError: the source cannot be opened, the run has features for inputs, a number is out of range, or ``out``
            is no name of a video, a folder, the source itself, or in a folder that cannot be made.
    """
    require(most_frames is None or most_frames >= 1, "frames", most_frames, "give at least 1, or None")
    watcher = ActivityWatcher(model, threshold)
    if out is not None:
        _require_out(Path(out), source)
    with ExitStack() as stack:
        frames, rate = source, CAMERA_RATE
        if isinstance(source, (str, PathLike)):
            frames = stack.enter_context(VideoReader(str(source)))
            rate = frames.rate
        results = _results(watcher, frames, WatchSummary() if summary is None else summary, most_frames)
        yield from results if out is None else _annotated(results, model.class_names, Path(out), rate)


def _require_out(out: Path, source: Any) -> None:
    require_video_path(out)
    require(not out.is_dir(), "out", str(out), "this is a folder: name a video in it")
    same = isinstance(source, (str, PathLike)) and out.exists() and Path(source).exists() and out.samefile(source)
    require(not same, "out", str(out), "this is the video that is watched: name another one")


def _annotated(
    results: Iterable[FrameResult], class_names: tuple[str, ...], out: Path, rate: float
) -> Generator[FrameResult, None, None]:
    """Write the annotated video while results are passed on."""
    with path_errors("out", out):
        out.parent.mkdir(parents=True, exist_ok=True)
    painter = Painter(class_names)
    writer: VideoWriter | None = None
    stopped: BaseException | None = None
    with new_file(out) as unfinished:
        try:
            for result in results:
                picture = painter.draw(result.frame, result.probabilities, result.going_on)
                if picture is not None:
                    if writer is None:
                        writer = VideoWriter(unfinished, rate, picture.shape[:2])
                    writer.add(picture)
                yield result
        except (GeneratorExit, KeyboardInterrupt) as stop:  # the frames so far become the video
            stopped = stop
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise stopped or ValueError(f"out={str(out)!r}: not one frame could be read, so there is nothing to write")
    if stopped is not None:
        raise stopped


def _results(
    watcher: ActivityWatcher, frames: Any, summary: WatchSummary, most_frames: int | None
) -> Generator[FrameResult, None, None]:
    began, inside = time.perf_counter(), 0.0
    names = watcher.model.class_names
    for frame in frames:
        before = time.perf_counter()
        result = watcher.see(frame)
        inside += time.perf_counter() - before
        summary.frames += 1
        summary.broken += frame.pixels is None
        summary.detections += len(result.begins)
        for activity in result.begins:
            summary.by_activity[names[activity]] = summary.by_activity.get(names[activity], 0) + 1
        summary.seconds = time.perf_counter() - began
        summary.step_milliseconds = 1e3 * inside / summary.frames
        yield result
        if summary.frames == most_frames:
            return
