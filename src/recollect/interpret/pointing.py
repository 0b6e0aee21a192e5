"""Pointing game: is the most salient place on a thing that matters?

    hit      the largest value of a map lies in the box of a visible thing that matters, or ``NEAR`` pixels around it
    chance   the share of the picture that these boxes cover, margins included

Mass on things: the share of a map that lies in those boxes, without a margin; chance is their share of the picture.

Pointing at one kind of thing alone stands beside the hits of another step's map: what never moves is found by chance.
Things whose names differ in their number alone (``ball 0``, ``ball 1``) are of one kind, and look alike: of the maps
that fall on one of them, the right ones are those that fall on one that matters.

Source: Zhang et al., Top-down neural attention by excitation backprop (2016), with boxes from the world's truth. An
object that never moves would be found by a static map too: read it beside ``staticness``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
                found.setdefault(f"mass on things, {name}", []).append(mass_on(values, when, record.objects, size))
                for kind, alone in _each(record.objects):
                    ratio = _against_another_step(values, when, alone, size)
                    found.setdefault(f"pointing at {kind}, {name}", []).append(ratio)
                for kind, alike in _look_alikes(record.objects):
                    ratio = choose(values, when, alike, size)
                    found.setdefault(f"right {kind}, {name}", []).append(ratio)
    return found


def _kinds(objects: Objects) -> dict[str, np.ndarray]:
    """Names without their numbers, and which things have them: bool ``[things]``."""
    names = [name.rstrip("0123456789").rstrip() for name in objects.names]
    return {kind: np.array([name == kind for name in names]) for kind in dict.fromkeys(names)}


def _each(objects: Objects) -> Iterator[tuple[str, Objects]]:
    """Every kind of which one ever matters, as the only one that does; nothing where there is one only."""
    ever = np.any(objects.visible & objects.matters, axis=0)
    kinds = {kind: of_it for kind, of_it in _kinds(objects).items() if ever[of_it].any()}
    for kind, of_it in kinds.items() if len(kinds) > 1 else ():
        yield kind, replace(objects, matters=objects.matters & of_it)


def _look_alikes(objects: Objects) -> Iterator[tuple[str, Objects]]:
    """Every kind of which some matter where others do not, as the only kind there is."""
    for kind, of_it in _kinds(objects).items():
        seen, matters = objects.visible[:, of_it], (objects.visible & objects.matters)[:, of_it]
        if (matters.any(1) & (seen & ~matters).any(1)).any():
            names = tuple(name for name, chosen in zip(objects.names, of_it, strict=True) if chosen)
            boxes, visible, matter = (part[:, of_it] for part in (objects.boxes, objects.visible, objects.matters))
            yield kind, Objects(names=names, boxes=boxes, visible=visible, matters=matter)


def choose(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Ratio:
    """Of maps that fall on one of things that look alike: those on one that matters; chance is the share that does.

    Arguments as of :func:`play`; steps where none matters, or all that are visible, are left out.
    """
    hits, chance, number = 0.0, 0.0, 0
    all_matter = replace(objects, matters=objects.visible)
    for values, t in zip(maps, steps, strict=True):
        seen, matters = objects.visible[t], objects.visible[t] & objects.matters[t]
        only = values[None], np.array([t])
        if not matters.any() or (seen == matters).all() or not play(*only, all_matter, size).total:
            continue
        hits, chance, number = hits + play(*only, objects, size).total, chance + matters.sum() / seen.sum(), number + 1
    return Ratio(float(hits), float(chance), number)


def _against_another_step(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Ratio:
    """Hits, and in the place of chance those of the map of a step half an episode away: a static map has as many."""
    if len(maps) < 2:
        return Ratio(0.0, 0.0, 0)
    hits, _, number = play(maps, steps, objects, size)
    other, _, tried = play(np.roll(maps, len(maps) // 2, 0), steps, objects, size)
    return Ratio(hits, other * number / max(tried, 1), number)


def mass_on(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Ratio:
    """The share of maps ``[n, m, k]`` in the boxes of visible things that matter; arguments as of :func:`play`."""
    masses, chance, number = 0.0, 0.0, 0
    places = [np.arange(n) * m // n for n, m in zip(size, maps.shape[1:], strict=True)]
    for values, t in zip(maps, steps, strict=True):
        covered = cover(objects, t, size, 0)
        if covered is None or np.isnan(values).any() or values.sum() <= 0:
            continue
        pixels = values[np.ix_(*places)]
        masses, chance, number = masses + pixels[covered].sum() / pixels.sum(), chance + covered.mean(), number + 1
    return Ratio(float(masses), float(chance), number)


def cover(objects: Objects, t: int, size: tuple[int, int], near: int) -> np.ndarray | None:
    """The pixels of visible things that matter, and ``near`` ones around; None where there is no such thing."""
    chosen = objects.visible[t] & objects.matters[t]
    covered = np.zeros(size, bool)
    for top, left, bottom, right in objects.boxes[t, chosen]:
        covered[max(top - near, 0) : max(bottom + near, 0), max(left - near, 0) : max(right + near, 0)] = True
    return covered if chosen.any() else None


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
        covered = cover(objects, t, size, NEAR)
        if covered is None or np.isnan(values).any() or values.max() <= values.min():
            continue
        row, column = np.unravel_index(int(np.argmax(values)), values.shape)
        y, x = (min(int((i + 0.5) * n / m), n - 1) for i, n, m in zip((row, column), size, values.shape, strict=True))
        hits, chance, number = hits + covered[y, x], chance + covered.mean(), number + 1
    return Ratio(float(hits), float(chance), number)
