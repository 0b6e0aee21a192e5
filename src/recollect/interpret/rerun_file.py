"""An episode in the file format of rerun (https://rerun.io), for people who look at everything there.

    write_rerun(record, "episode.rrd")          needs the package rerun-sdk
    rerun episode.rrd

Everything stands on the timeline ``step``: the frame with attention and saliency over it and the boxes of things, the
attention of every head to the past as bars, curves, what removing a memory changes, and events. Such a file is read by
the version of the viewer that belongs to the SDK, and the next one; the HTML page is the one to keep.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from recollect.files import new_file, path_errors
from recollect.interpret.colours import OPACITY, colour_table
from recollect.interpret.pointing import picture_size
from recollect.interpret.recall import mean_of_heads
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Report

PERCENTILE = 99.5
"""Of a map over the episode: where its colours end, as in the memory explorer."""


def require_rerun() -> Any:
    """The package ``rerun``.

    Raises:
        ValueError: it is not installed.
    """
    if find_spec("rerun") is None:
        raise ValueError("a .rrd file needs rerun-sdk (170 MB): pip install rerun-sdk")
    return import_module("rerun")


def write_rerun(record: EpisodeRecord, path: str | PathLike[str], report: Report | None = None) -> Path:
    """Write a recording for rerun.

    Args:
        record: what was recorded.
        path: of the file; what stood there is replaced.
        report: its verdict is written beside the notes; None leaves it out.

    Raises:
        ValueError: rerun-sdk is not installed, or a folder that cannot be written.
    """
    rerun, target = require_rerun(), Path(path)
    with path_errors("path", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_file(target) as unfinished:
            unfinished.touch()  # rerun itself would not say what is wrong
            stream = rerun.RecordingStream(
                "recollect", recording_id=f"{record.info.task}-{record.info.core}-{record.info.seed}"
            )
            stream.save(str(unfinished))
            try:
                _log(rerun, stream, record, report)
            finally:
                stream.flush()
                stream.disconnect()
    return target


def _log(rerun: Any, stream: Any, record: EpisodeRecord, report: Report | None) -> None:
    """Everything, step by step."""
    says = [] if report is None else [report.verdict]
    stream.log("about", rerun.TextDocument("\n\n".join([*says, *record.info.notes])), static=True)
    events = sorted(record.events, key=lambda event: event.t)
    for t in range(record.num_steps):
        stream.set_time("step", sequence=t)
        for name, archetype in _step(rerun, record, t):
            stream.log(name, archetype)
        for event in events:
            if event.t == t:
                stream.log("events", rerun.TextLog(f"{event.label}, steps {event.t} to {event.t1 - 1}"))


def _step(rerun: Any, record: EpisodeRecord, t: int) -> Iterator[tuple[str, Any]]:
    """Everything of one step, by its path."""
    yield from _picture(rerun, record, t)
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
        for number, head in enumerate(record.heads):  # steps in the future are not zero: they are not there
            yield (
                f"memory/attention/{_path(head.name)}",
                rerun.BarChart(np.nan_to_num(record.temporal[t, number, : t + 1])),
            )


def _picture(rerun: Any, record: EpisodeRecord, t: int) -> Iterator[tuple[str, Any]]:
    if not record.frames.size:
        return
    tall, wide = record.frames.shape[1:3]
    yield "frame", rerun.Image(record.frames[t])
    for name, maps, row in _maps(record, t):
        yield f"frame/{name}", rerun.Image(_laid_over(maps, row, (tall, wide)), draw_order=1.0)
    if record.objects is not None:
        seen = record.objects.visible[t]
        boxes = record.objects.boxes[t, seen].astype(float)
        scale = np.array([tall, wide]) / picture_size(record)
        corners, far = boxes[:, :2] * scale, boxes[:, 2:] * scale
        names = [name for name, one in zip(record.objects.names, seen, strict=True) if one]
        yield "frame/things", rerun.Boxes2D(mins=corners[:, ::-1], sizes=(far - corners)[:, ::-1], labels=names)


def _maps(record: EpisodeRecord, t: int) -> Iterator[tuple[str, np.ndarray, int]]:
    """Name, maps ``[n, y, x]`` and the row of a step, of everything that lies over the frame."""
    if record.spatial is not None:
        yield "attention", mean_of_heads(record.spatial), t
    for one in record.saliency:
        place = np.flatnonzero(one.steps == t)
        for who, maps in (("actor", one.actor), ("critic", one.critic)):
            if maps is not None and len(place):
                yield f"{one.method} {who}", maps, int(place[0])


def _laid_over(maps: np.ndarray, row: int, size: tuple[int, int]) -> np.ndarray:
    """A map as RGBA of the frame's size, its cells as cells; opacity follows the number, and holes are clear."""
    known = maps[np.isfinite(maps)]
    high = (float(np.percentile(known, PERCENTILE)) if known.size else 0.0) or 1.0
    share = np.clip(np.nan_to_num(maps[row]) / high, 0, 1)
    places = [np.arange(n) * m // n for n, m in zip(size, share.shape, strict=True)]
    share = share[np.ix_(*places)]
    alpha = np.round(255 * OPACITY * share**0.7).astype(np.uint8)
    return np.concatenate([colour_table("inferno")[(255 * share).round().astype(int)], alpha[..., None]], -1)


def _path(name: str) -> str:
    """A name as one part of a path: rerun's own signs have no meaning in it."""
    return "".join(sign if sign.isalnum() or sign in " -_()" else "_" for sign in name)
