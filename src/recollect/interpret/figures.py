"""Figures of a record for a paper: PNG, SVG or PDF by the ending of the path. They need matplotlib (extra ``plots``).

    figure_strip(record, "strip.png", steps=range(180, 190))      attention of consecutive steps
    figure_top(record, "top.png", step=190)                       the frame masked to its most attended patches
    figure_patches(images, maps, "top.png")                       the same for pictures without an episode
    figure_lag(record, "lag.svg")                                 attention by distance, head by head
    figure_matrix(record, "matrix.png")                           attention of every step to every step before it
    figure_heat(record, "heat.png", step=190, kind="spatial")     heat maps as the seed thesis draws them
    figure_gaze(record, "gaze.png", steps=range(0, 60, 10))       attention to places, and boxes of what matters

Every figure states its scale; ``figure_heat`` scales each map by itself, as the thesis did, and says so.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from recollect.config import require
from recollect.interpret.colours import highest, top_mask
from recollect.interpret.heads import lag_only_share, lag_profile, rows_of
from recollect.interpret.pointing import picture_size
from recollect.interpret.recall import mean_of_heads
from recollect.interpret.record import EpisodeRecord
from recollect.machine import require_matplotlib

MASS, INK, SOFT, EVENT, GAZE = "#b05c00", "0.1", "0.45", "#47699c", "#35c4d7"
HEAT_KINDS = ("spatial", "temporal", "spacetime")
PERCENTS = (20, 30, 40, 50)


def figure_strip(
    record: EpisodeRecord, path: str | PathLike[str], *, steps: Sequence[int], head: int | None = None
) -> Path:
    """Draw frames of some steps, beside each its attention to all steps; one scale for all rows.

    Args:
        record: has ``temporal``.
        path: of the figure.
        steps: the rows.
        head: whose attention; None for the mean of all heads.
    """
    weights = _weights(record, head)
    _require_steps(record, steps)
    figure = _figure((9, 0.75 * len(steps) + 0.9))
    panels = figure.subplots(len(steps), 2, squeeze=False, width_ratios=(1, 9), sharex="col")
    rows = [np.nan_to_num(weights[step]) for step in steps]
    high = max(float(row.max()) for row in rows) or 1
    for (left, right), step, row in zip(panels, steps, rows, strict=True):
        if record.frames.size:
            left.imshow(record.frames[step], interpolation="nearest")
        left.set_axis_off()
        right.bar(np.arange(record.num_steps), row, width=1, color=MASS)
        right.axvline(step, color=INK, linewidth=1)
        for event in record.blocks:
            right.axvspan(event.t - 0.5, event.t1 - 0.5, color=EVENT, alpha=0.13, linewidth=0)
        right.set(ylim=(0, high), xlim=(-0.5, record.num_steps - 0.5), yticks=[])
        right.set_ylabel(f"{step}", rotation=0, ha="right", va="center", fontsize=9)
        right.spines[["top", "right", "left"]].set_visible(False)
    panels[-1, 1].set_xlabel(f"step attended to; bars 0 to {high:.2g}, {_head_name(record, head)}", fontsize=9)
    return _save(figure, path)


def figure_top(
    record: EpisodeRecord,
    path: str | PathLike[str],
    *,
    step: int,
    k: Sequence[float] = PERCENTS,
    head: int | None = None,
) -> Path:
    """Draw the frame, and it again with everything dark but the top k percent of patches.

    Source: Temporal Latent Bottleneck (Didolkar et al. 2022), figures 2 and 7.
    """
    spatial = _required(record, "spatial")
    _require_head(record, head)
    _require_steps(record, [step])
    weights = spatial[step].mean(0) if head is None else spatial[step, head]
    figure = _figure((2.1 * (1 + len(k)), 2.6))
    panels = figure.subplots(1, 1 + len(k), squeeze=False)
    _draw_masks(panels, [record.frames[step]], [weights], k)
    panels[0, 0].set_title(f"step {step}", fontsize=10)
    return _save(figure, path)


def figure_patches(images: Tensor, maps: Tensor, path: str | PathLike[str], *, k: Sequence[float] = PERCENTS) -> Path:
    """Draw pictures, and each again with everything dark but the top k percent of patches.

    Args:
        images: float ``[b, 3, y, x]``, 0..1: a row each.
        maps: attention ``[b, n]`` to the patches of a square grid
            (:func:`recollect.interpret.foreground.attention_to_patches`).
        path: of the figure.
        k: percents.

    Source: Temporal Latent Bottleneck (Didolkar et al. 2022), figures 2 and 7.
    """
    figure = _figure((1.5 * (1 + len(k)), 1.5 * len(images) + 0.3))
    frames = (images.movedim(1, -1) * 255).round().byte().numpy()
    side = round(maps.shape[1] ** 0.5)
    panels = figure.subplots(len(images), 1 + len(k), squeeze=False)
    _draw_masks(panels, frames, maps.view(-1, side, side).numpy(), k)
    return _save(figure, path)


def _draw_masks(panels: Any, frames: Any, maps: Any, percents: Sequence[float]) -> None:
    for percent in percents:
        require(0 < percent <= 100, "k", percent, "give percents above 0 and up to 100")
    for row, frame, weights in zip(panels, frames, maps, strict=True):
        shown = [frame, *(top_mask(frame, weights, percent / 100) for percent in percents)]
        for panel, picture in zip(row, shown, strict=True):
            panel.imshow(picture, interpolation="nearest")
            panel.set_axis_off()
    for panel, percent in zip(panels[0, 1:], percents, strict=True):
        panel.set_title(f"top {percent:g} %", fontsize=10)


def figure_lag(record: EpisodeRecord, path: str | PathLike[str], *, longest: int | None = None) -> Path:
    """Draw mean attention by distance, a line for each head; the legend has the share that distance alone explains.

    Of the steps by which the scores judge a head: decisions where there are enough, else all.
    """
    _required(record, "temporal")
    longest = min(record.num_steps, record.num_steps if longest is None else longest)
    require(longest >= 1, "longest", longest, "give at least 1")
    figure = _figure((6.4, 3.6))
    panel = figure.subplots()
    for number, head in enumerate(record.heads):
        steps, rows = rows_of(record, number)
        if len(steps):
            label = f"{head.name}: lag-only {lag_only_share(steps, rows):.2f}"
            panel.plot(lag_profile(steps, rows)[:longest], linewidth=1.5, label=label)
    panel.set(xlabel="steps back", ylabel="mean attention", xlim=(0, max(longest - 1, 1)))
    panel.set_ylim(bottom=0)
    if panel.lines:
        panel.legend(fontsize=8, edgecolor="none")
    panel.spines[["top", "right"]].set_visible(False)
    return _save(figure, path)


def figure_matrix(record: EpisodeRecord, path: str | PathLike[str], *, head: int | None = None) -> Path:
    """Draw attention of every step to every step before it: by step, and by lag, where a constant offset is a line."""
    weights = _weights(record, head)
    lagged = np.full_like(weights, np.nan)
    for t in range(record.num_steps):
        lagged[t, : t + 1] = weights[t, : t + 1][::-1]
    high = highest(weights)
    figure = _figure((9.4, 4.6))
    panels = figure.subplots(1, 2)
    images = []
    for panel, shown, name in zip(panels, (weights, lagged), ("step attended to", "steps back"), strict=True):
        panel.set_facecolor("0.9")
        options: dict[str, Any] = {"cmap": "inferno", "interpolation": "nearest", "aspect": "auto"}
        images.append(panel.imshow(shown, vmin=0, vmax=high or 1, **options))
        panel.set(xlabel=name, ylabel="now")
        for event in record.blocks:
            panel.axhspan(event.t - 0.5, event.t1 - 0.5, 0, 0.012, color=EVENT)
    figure.colorbar(images[0], ax=panels, label=f"attention, {_head_name(record, head)}; to the 99.5th percentile")
    return _save(figure, path)


def figure_heat(
    record: EpisodeRecord, path: str | PathLike[str], *, step: int, kind: str = "spatial", most: int = 8
) -> Path:
    """Draw heat maps as in the seed thesis: jet, each map between its own smallest and largest number, one per head.

    Args:
        record: has the map that ``kind`` needs.
        path: of the figure.
        step: the present step.
        kind: ``spatial`` lays attention on the present frame; ``temporal`` draws the row of attention to the past;
            ``spacetime`` lays attention on the past frames that get most of it.
        most: heads, or past frames.
    """
    require(kind in HEAT_KINDS, "kind", kind, f"give one of {', '.join(HEAT_KINDS)}")
    _require_steps(record, [step])
    if kind == "temporal":
        figure = _heat_rows(record, step, most)
    else:
        shown = _on_present(record, step, most) if kind == "spatial" else _on_past(record, step, most)
        figure = _figure((1.9 * len(shown), 2.5))
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for panel, (name, frame, weights) in zip(panels, shown, strict=True):
            y, x, _ = frame.shape
            panel.imshow(frame, interpolation="nearest")
            panel.imshow(_spread(weights), cmap="jet", alpha=0.5, extent=(0, x, y, 0), interpolation="bicubic")
            panel.set_title(name, fontsize=8)
            panel.set_axis_off()
    figure.suptitle(f"step {step}; every map from its own smallest to its own largest number", fontsize=8, color=SOFT)
    return _save(figure, path)


def figure_gaze(record: EpisodeRecord, path: str | PathLike[str], *, steps: Sequence[int]) -> Path:
    """Draw frames of some steps, and below each its attention to places (mean of all heads), one scale for all.

    Args:
        record: has ``spatial``; boxes are drawn where the world says where the things that matter are.
        path: of the figure.
        steps: the columns.
    """
    spatial = _required(record, "spatial")
    _require_steps(record, steps)
    figure = _figure((1.5 * len(steps), 3.5))
    panels = figure.subplots(2, len(steps), squeeze=False)
    high = max(float(spatial[step].mean(0).max()) for step in steps)
    for (above, below), step in zip(panels.T, steps, strict=True):
        y, x, _ = record.frames[step].shape
        above.imshow(record.frames[step], interpolation="nearest", extent=(0, x, y, 0))
        below.imshow(spatial[step].mean(0), cmap="magma", vmin=0, vmax=high, extent=(0, x, y, 0))
        for panel in (above, below):
            for top, left, bottom, right in _boxes(record, step):
                across, down = [left, right, right, left, left], [top, top, bottom, bottom, top]
                panel.plot(across, down, color=GAZE, linewidth=1.4)
            panel.set(xlim=(0, x), ylim=(y, 0))
            panel.set_axis_off()
        above.set_title(f"step {step}", fontsize=8)
    figure.suptitle(f"attention from 0 (black) to {high:.2g}; boxes: what matters", fontsize=8, color=SOFT)
    return _save(figure, path)


def _boxes(record: EpisodeRecord, step: int) -> np.ndarray:
    """Return boxes of visible things that matter, in pixels of the drawn frame: ``[n, 4]``."""
    objects = record.objects
    if objects is None:
        return np.zeros((0, 4))
    shown, seen = record.frames.shape[1:3], picture_size(record)
    scale = np.array([shown[0] / seen[0], shown[1] / seen[1]] * 2)
    return objects.boxes[step][objects.visible[step] & objects.matters[step]] * scale


Shown = list[tuple[str, np.ndarray, np.ndarray]]  # title, frame and map of every panel


def _on_present(record: EpisodeRecord, step: int, most: int) -> Shown:
    maps = _required(record, "spatial")[step][:most]
    return [(head.name, record.frames[step], one) for head, one in zip(record.heads, maps, strict=False)]


def _on_past(record: EpisodeRecord, step: int, most: int) -> Shown:
    past = record.spacetime
    if past is None:
        raise ValueError("kind='spacetime': this record has no attention to places of past frames; give another kind")
    totals: dict[int, np.ndarray] = {}
    for s, cell, weight in zip(past.step[step].flat, past.cell[step].flat, past.weight[step].flat, strict=True):
        if s >= 0:
            totals.setdefault(int(s), np.zeros(past.grid)).flat[int(cell)] += float(weight)
    if not totals:
        raise ValueError(f"step={step}: nothing of the past is attended to there; give a later step")
    chosen = sorted(totals, key=lambda s: -totals[s].sum())[:most]
    return [(f"on step {s}", record.frames[s], totals[s]) for s in chosen]


def _heat_rows(record: EpisodeRecord, step: int, most: int) -> Any:
    rows = _required(record, "temporal")[step][:most]
    figure = _figure((8, 0.42 * len(rows) + 0.9))
    panels = figure.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0]
    for panel, row, head in zip(panels, rows, record.heads, strict=False):
        panel.imshow(_spread(row)[None, : step + 1], cmap="jet", aspect="auto", interpolation="nearest")
        panel.set(yticks=[])
        panel.set_ylabel(head.name, rotation=0, ha="right", va="center", fontsize=8)
    panels[-1].set_xlabel("step attended to", fontsize=9)
    return figure


def _spread(weights: np.ndarray) -> np.ndarray:
    """Scale a map between its own smallest and largest number."""
    low, high = np.nanmin(weights), np.nanmax(weights)
    return (weights - low) / (high - low) if high > low else np.zeros_like(weights)


def _weights(record: EpisodeRecord, head: int | None) -> np.ndarray:
    """Return attention to steps ``[T, T]`` of a head, or the mean of all heads."""
    temporal = _required(record, "temporal")
    _require_head(record, head)
    return mean_of_heads(temporal) if head is None else temporal[:, head]


def _required(record: EpisodeRecord, name: str) -> np.ndarray:
    array = getattr(record, name)
    if array is None or not record.heads:
        notes = "; ".join(record.info.notes) or "choose another figure"
        raise ValueError(f"record.{name} is None: {record.info.core} keeps nothing of that kind; {notes}")
    if name == "spatial" and not record.frames.size:
        raise ValueError("record.frames is empty: there is no picture to lay a map on")
    return array


def _require_head(record: EpisodeRecord, head: int | None) -> None:
    fits = head is None or 0 <= head < len(record.heads)
    require(fits, "head", head, f"this record has {len(record.heads)} heads, counted from 0")


def _require_steps(record: EpisodeRecord, steps: Sequence[int]) -> None:
    for step in steps:
        exists = 0 <= step < record.num_steps
        require(exists, "step", step, f"this record has {record.num_steps} steps, counted from 0")
    require(len(steps) > 0, "steps", list(steps), "give at least one step")


def _head_name(record: EpisodeRecord, head: int | None) -> str:
    return f"mean of {len(record.heads)} heads" if head is None else record.heads[head].name


def _figure(size: tuple[float, float]) -> Any:
    return require_matplotlib().figure.Figure(figsize=size, dpi=150, layout="constrained")


def _save(figure: Any, path: str | PathLike[str]) -> Path:
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target)
    except OSError as error:
        raise ValueError(f"path={str(target)!r} cannot be written ({error}): give another folder") from error
    return target
