"""An episode in the file format of the viewer rerun (https://rerun.io).

    write_rerun(record, "episode.rrd")          needs the package rerun-sdk
    rerun episode.rrd

Everything is on the timeline ``step``: the frame with attention and saliency over it and the boxes of things, the
attention of every head to the past as bars, curves, the effects of removing a memory, and events. Such a file is read
by the version of the viewer that belongs to the SDK, and the next one; for keeping, use the HTML page.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.files import new_file, path_errors
from recollect.interpret.colours import OPACITY, colour_table, highest, to_pixels
from recollect.interpret.pointing import picture_size
from recollect.interpret.recall import mean_of_heads
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Report


class _Overlay(NamedTuple):
    """Maps that are painted over the frame."""

    name: str
    maps: np.ndarray  # ``[n, y, x]``
    rows: dict[int, int]  # row of the map of each step that has one
    high: float  # number of the last colour


def require_rerun() -> Any:
    """Import the package ``rerun``.

    Raises:
        ValueError: it is not installed.
    """
    if find_spec("rerun") is None:
        raise ValueError("a .rrd file needs rerun-sdk (170 MB): pip install rerun-sdk")
    return import_module("rerun")


def write_rerun(record: EpisodeRecord, path: str | PathLike[str], report: Report | None = None) -> Path:
    """Write a recording for rerun.

    Args:
        record: the recorded episode.
        path: of the file; an existing one is replaced.
        report: its verdict is written beside the notes.

    Raises:
        ValueError: rerun-sdk is not installed, or a folder that cannot be written.
    """
    rerun, target, info = require_rerun(), Path(path), record.info
    with path_errors("path", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_file(target) as unfinished:
            unfinished.touch()  # the errors of rerun itself do not name the path
            stream = rerun.RecordingStream("recollect", recording_id=f"{info.task}-{info.core}-{info.seed}")
            stream.save(str(unfinished))
            try:
                _log(rerun, stream, record, report)
            finally:
                stream.flush()
                stream.disconnect()
    return target


def _log(rerun: Any, stream: Any, record: EpisodeRecord, report: Report | None) -> None:
    texts = [*([] if report is None else [report.verdict, report.findings]), *record.info.notes]
    stream.log("about", rerun.TextDocument("\n\n".join(texts)), static=True)
    events = sorted(record.events, key=lambda event: event.t)
    overlays = list(_overlays(record)) if record.frames.size else []
    for t in range(record.num_steps):
        stream.set_time("step", sequence=t)
        for name, archetype in _step(rerun, record, overlays, t):
            stream.log(name, archetype)
        for event in events:
            if event.t == t:
                stream.log("events", rerun.TextLog(f"{event.label}, steps {event.t} to {event.t1 - 1}"))


def _step(rerun: Any, record: EpisodeRecord, overlays: list[_Overlay], t: int) -> Iterator[tuple[str, Any]]:
    """Yield everything of one step, by its path."""
    yield from _picture(rerun, record, overlays, t)
    yield "curves/value", rerun.Scalars(float(record.value[t]))
    yield "curves/reward", rerun.Scalars(float(record.reward[t]))
    if record.discrete:
        powers = np.exp(record.logits[t] - record.logits[t].max())
        for number, share in enumerate(powers / powers.sum()):
            name = record.actions[number] if number < len(record.actions) else f"action {number}"
            yield f"policy/{_path(name)}", rerun.Scalars(float(share))
    if record.removal is not None and not np.isnan(record.removal.kl[t]).all():
        yield "curves/largest removal KL", rerun.Scalars(float(np.nanmax(record.removal.kl[t])))
        yield f"memory/removal KL by {record.removal.unit}", rerun.BarChart(np.nan_to_num(record.removal.kl[t]))
    if record.temporal is not None:
        for number, head in enumerate(record.heads):  # without the future, which is absent and not zero
            row = np.nan_to_num(record.temporal[t, number, : t + 1])
            yield f"memory/attention/{_path(head.name)}", rerun.BarChart(row)


def _picture(rerun: Any, record: EpisodeRecord, overlays: list[_Overlay], t: int) -> Iterator[tuple[str, Any]]:
    if not record.frames.size:
        return
    size = record.frames.shape[1:3]
    yield "frame", rerun.Image(record.frames[t])
    for one in overlays:
        if t in one.rows:
            painted = _paint(one.maps[one.rows[t]], one.high, size)
            yield f"frame/{one.name}", rerun.Image(painted, draw_order=1.0)
    if record.objects is not None:
        seen = record.objects.visible[t]
        boxes = record.objects.boxes[t, seen].astype(float)
        scale = np.array(size) / picture_size(record)
        corners, far = boxes[:, :2] * scale, boxes[:, 2:] * scale
        names = [name for name, one in zip(record.objects.names, seen, strict=True) if one]
        yield "frame/things", rerun.Boxes2D(mins=corners[:, ::-1], sizes=(far - corners)[:, ::-1], labels=names)


def _overlays(record: EpisodeRecord) -> Iterator[_Overlay]:
    """Yield all maps of the picture, each with one scale for the episode."""
    found = list(record.saliency_maps())
    if record.spatial is not None:
        found.insert(0, ("attention", np.arange(record.num_steps), mean_of_heads(record.spatial)))
    for name, steps, maps in found:
        rows = {step: row for row, step in enumerate(steps.tolist())}
        yield _Overlay(name, maps, rows, highest(maps, 0.0) or 1.0)


def _paint(cells: np.ndarray, high: float, size: tuple[int, int]) -> np.ndarray:
    """Paint a map ``[y, x]`` as RGBA of the frame's size, cell by cell; opacity follows the number, holes are clear."""
    share = to_pixels(np.clip(np.nan_to_num(cells) / high, 0, 1), size)
    alpha = np.round(255 * OPACITY * share**0.7).astype(np.uint8)
    return np.concatenate([colour_table("inferno")[(255 * share).round().astype(int)], alpha[..., None]], -1)


def _path(name: str) -> str:
    """Return a name as one part of a path, without rerun's own signs."""
    return "".join(sign if sign.isalnum() or sign in " -_()" else "_" for sign in name)
