"""A trained detector watches a film or a camera: frame by frame, at a constant cost, for as long as frames come.

    for seen in watch(model, "kitchen.mp4"):
        seen.begins, seen.ends          activities that begin or end at this frame

An activity begins when its probability reaches ``threshold``, and ends when it falls below ``threshold - SLACK``, or
half the threshold if that is more, so that one doubtful frame does not end it. A frame that cannot be decoded is a
broken step: the memory takes zeros, as the streaming contract says, and nothing begins or ends. Nothing is kept but the
memory and what goes on.
"""

import math
import time
from collections.abc import Generator, Iterable, Iterator
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
from recollect.training.saved_run import load_model

SLACK = 0.1
"""How far below the threshold a probability may fall before its activity ends."""


class FrameResult(NamedTuple):
    """What a detector says of one frame."""

    frame: Frame
    """The frame itself."""
    probabilities: np.ndarray | None
    """float ``[k]``, what was last said; None where the frame is broken, or a backbone's first segment is not full."""
    going_on: tuple[int, ...]
    """Activities that go on."""
    begins: tuple[int, ...]
    """Activities that begin here."""
    ends: tuple[int, ...]
    """Activities that end here."""


class Event(NamedTuple):
    """Something that a person is told."""

    seconds: float
    """Since the film's start."""
    frame: int
    kind: str
    """begins, ends or broken."""
    activity: str
    """Empty where a frame is broken."""
    probability: float
    """NaN where a frame is broken."""

    def describe(self) -> str:
        """One line."""
        minutes, seconds = divmod(self.seconds, 60)
        when = f"{int(minutes):02d}:{seconds:05.2f}"
        if self.kind == "broken":
            return f"{when}  broken frame {self.frame}"
        return f"{when}  {self.kind:<6}  {self.activity}  ({self.probability:.2f})"

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return self._asdict()


@dataclass(kw_only=True)
class WatchSummary:
    """What happened while a film was watched."""

    frames: int = 0
    """That came, broken ones among them."""
    broken: int = 0
    """That could not be decoded."""
    detections: int = 0
    """Activities that began."""
    seconds: float = 0.0
    """That all of it took."""
    step_milliseconds: float = 0.0
    """Mean time of the detector for a frame."""
    by_activity: dict[str, int] = field(default_factory=dict)
    """How often each began."""

    def describe(self) -> str:
        """One line for a person."""
        rate = self.frames / self.seconds if self.seconds else 0.0
        broken = f", {self.broken} of them broken" if self.broken else ""
        return (
            f"{self.frames} frames{broken}, {self.detections} detections; {rate:.1f} frames/s, "
            f"{self.step_milliseconds:.2f} ms of them the detector"
        )


class ActivityWatcher:
    """A live detector and what goes on; give it frame after frame.

    Args:
        model: whose weights are used, in ``eval`` mode.
        threshold: probability from which an activity goes on.
    """

    def __init__(self, model: ActivityDetector, threshold: float = 0.5) -> None:
        require(0 < threshold < 1, "threshold", threshold, "give a probability between 0 and 1")
        if model.frame_shape is None:
            raise ValueError("this run was trained on features that others computed: it cannot watch a film")
        self.model, self.threshold = model, threshold
        self.stream = model.stream(1)
        self.device = next(model.parameters()).device
        self._goes_on = np.zeros(len(model.class_names), bool)
        self._said: np.ndarray | None = None

    def see(self, frame: Frame) -> FrameResult:
        """Take one frame."""
        if frame.pixels is None:
            self.stream.step_unreadable()
            return FrameResult(frame, None, self._now(), (), ())
        pixels = torch.from_numpy(frame.pixels)[None].to(self.device)
        logits = self.stream.step(pixels)
        if logits is None:
            return FrameResult(frame, self._said, self._now(), (), ())
        self._said = logits[0].float().sigmoid().cpu().numpy()
        before = self._goes_on
        ends_below = max(self.threshold - SLACK, self.threshold / 2)
        self._goes_on = self._said >= np.where(before, ends_below, self.threshold)
        begins = tuple(np.flatnonzero(self._goes_on & ~before).tolist())
        ends = tuple(np.flatnonzero(before & ~self._goes_on).tolist())
        return FrameResult(frame, self._said, self._now(), begins, ends)

    def _now(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._goes_on).tolist())


def load_detector(
    directory: str | PathLike[str], device: str = "cpu", *, best: bool = False, trust: bool = False
) -> ActivityDetector:
    """The detector of a run.

    Raises:
        ValueError: the run trained something else, or on features, or has no checkpoint yet.
    """
    model = load_model(directory, device, best=best, trust=trust)
    if not isinstance(model, ActivityDetector):
        raise ValueError(
            f"{directory} trained a {type(model).__name__}: only detectors watch films; train one with "
            "recollect train shape-activities --core ttm"
        )
    return model


def list_events(frames: Iterable[FrameResult], class_names: tuple[str, ...]) -> Iterator[Event]:
    """What a person is told of frames, as it comes; of broken frames in a row the first."""
    was_broken = False
    for seen in frames:
        number, seconds, pixels = seen.frame
        if pixels is None and not was_broken:
            yield Event(seconds, number, "broken", "", math.nan)
        was_broken = pixels is None
        for kind, activities in (("ends", seen.ends), ("begins", seen.begins)):
            for k in activities:
                probability = 0.0 if seen.probabilities is None else float(seen.probabilities[k])
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
    """Watch a film or a camera; yields what is said of every frame as soon as it has come.

    Args:
        model: of a run that was trained on frames.
        source: film, camera (see ``tasks/videos/video_files.py``), or frames.
        threshold: probability from which an activity goes on.
        out: annotated film that is written beside its place and moved there at the end, also when the caller stops or
            Ctrl-C comes.
        most_frames: after which it ends; None goes on as long as frames come.
        summary: gets the counts as they grow.

    Raises:
        ValueError: the source cannot be opened, the run has features for inputs, a number is out of range, or ``out``
            is no name of a film, a folder, the source itself, or in a folder that cannot be made.
    """
    require(most_frames is None or most_frames >= 1, "frames", most_frames, "give at least 1, or None")
    watcher, told = ActivityWatcher(model, threshold), WatchSummary() if summary is None else summary
    if out is not None:
        _require_out(Path(out), source)
    if isinstance(source, (str, PathLike)):
        with VideoReader(str(source)) as film:
            yield from _watched(watcher, film, film.rate, told, out, most_frames)
    else:
        yield from _watched(watcher, source, 25.0, told, out, most_frames)


def _require_out(out: Path, source: Any) -> None:
    require_video_path(out)
    require(not out.is_dir(), "out", str(out), "this is a folder: name a film in it")
    same = isinstance(source, (str, PathLike)) and out.exists() and Path(source).exists() and out.samefile(source)
    require(not same, "out", str(out), "this is the film that is watched: name another one")


def _watched(
    watcher: ActivityWatcher,
    frames: Iterable[Frame],
    rate: float,
    told: WatchSummary,
    out: str | PathLike[str] | None,
    most_frames: int | None,
) -> Generator[FrameResult, None, None]:
    if out is None:
        yield from _counted(watcher, frames, told, most_frames)
        return
    target = Path(out)
    with path_errors("out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    painter = Painter(watcher.model.class_names)
    writer: VideoWriter | None = None
    stopped: BaseException | None = None
    with new_file(target) as unfinished:
        try:
            for seen in _counted(watcher, frames, told, most_frames):
                picture = painter.draw(seen.frame, seen.probabilities, seen.going_on)
                if picture is not None:
                    if writer is None:
                        writer = VideoWriter(unfinished, rate, picture.shape[:2])
                    writer.add(picture)
                yield seen
        except (GeneratorExit, KeyboardInterrupt) as stop:  # a person has seen enough: what there is becomes the film
            stopped = stop
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise stopped or ValueError(f"out={str(out)!r}: not one frame could be read, so there is nothing to write")
    if stopped is not None:
        raise stopped


def _counted(
    watcher: ActivityWatcher, frames: Iterable[Frame], told: WatchSummary, most_frames: int | None
) -> Generator[FrameResult, None, None]:
    began, inside = time.perf_counter(), 0.0
    names = watcher.model.class_names
    for frame in frames:
        before = time.perf_counter()
        seen = watcher.see(frame)
        inside += time.perf_counter() - before
        told.frames += 1
        told.broken += frame.pixels is None
        told.detections += len(seen.begins)
        for activity in seen.begins:
            told.by_activity[names[activity]] = told.by_activity.get(names[activity], 0) + 1
        told.seconds = time.perf_counter() - began
        told.step_milliseconds = 1e3 * inside / told.frames
        yield seen
        if told.frames == most_frames:
            return
