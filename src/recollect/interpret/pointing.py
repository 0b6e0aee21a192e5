"""Pointing game: is the most salient place on a thing that matters?

    hit      the largest value of a map lies in the box of a visible thing that matters, or ``NEAR`` pixels around it
    chance   the share of the picture that these boxes cover, margins included

Source: Zhang et al., Top-down neural attention by excitation backprop (2016), with boxes from the world's truth. An
object that never moves would be found by a static map too: read it beside ``staticness``.
"""

from collections.abc import Sequence

import numpy as np

from recollect.interpret.recall import Ratio
from recollect.interpret.record import EpisodeRecord, Objects

NEAR = 2
"""Pixels around a box that still count: maps are coarser than things."""


def pointing_game(records: Sequence[EpisodeRecord]) -> dict[str, list[Ratio]]:
    """Hits of every spatial map that the records have, by the name of the metric."""
    found: dict[str, list[Ratio]] = {}
    for record in records:
        if record.objects is None:
            continue
        size = picture_size(record)
        steps = np.arange(record.num_steps)
        maps = [("attention", steps, None if record.spatial is None else record.spatial.mean(1))]
        for one in record.saliency:
            maps += [
                (f"{one.method} {who}", one.steps, part) for who, part in (("actor", one.actor), ("critic", one.critic))
            ]
        for name, when, values in maps:
            if values is not None:
                found.setdefault(f"pointing, {name}", []).append(play(values, when, record.objects, size))
    return found


def picture_size(record: EpisodeRecord) -> tuple[int, int]:
    """Rows and columns of the observation in which boxes are counted."""
    for part in record.observations.values():
        if part.ndim == 4:
            tall, wide = part.shape[1:3] if part.shape[-1] in (1, 3) else part.shape[2:]
            return int(tall), int(wide)
    return int(record.frames.shape[1]), int(record.frames.shape[2])


def play(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Ratio:
    """Hits and chance of maps ``[n, m, k]`` at these steps, without those at which nothing that matters is visible.

    Args:
        maps: any resolution: a place stands for the pixels that are nearest to it.
        steps: of the episode, ``[n]``.
        objects: of the episode.
        size: of the observation.
    """
    hits, chance, number = 0.0, 0.0, 0
    for values, t in zip(maps, steps, strict=True):
        chosen = objects.visible[t] & objects.matters[t]
        if not chosen.any() or np.isnan(values).any() or values.max() <= values.min():
            continue
        covered = np.zeros(size, bool)
        for top, left, bottom, right in objects.boxes[t, chosen]:
            covered[max(top - NEAR, 0) : max(bottom + NEAR, 0), max(left - NEAR, 0) : max(right + NEAR, 0)] = True
        row, column = np.unravel_index(int(np.argmax(values)), values.shape)
        y, x = (min(int((i + 0.5) * n / m), n - 1) for i, n, m in zip((row, column), size, values.shape, strict=True))
        hits, chance, number = hits + covered[y, x], chance + covered.mean(), number + 1
    return Ratio(float(hits), float(chance), number)
