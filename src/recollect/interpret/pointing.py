"""Do maps of the picture point at the things that matter, and do two maps of it agree?

    pointing        the largest value of a map lies in the box of a visible thing that matters, or ``NEAR`` pixels
                    around it; chance: the share of the picture that these boxes cover, margins included
    mass on things  the share of a map that lies in those boxes, without a margin; chance: their share of the picture
    pointing at k   the same for one kind of thing alone, beside the hits of another step's map: a map that never moves
                    has as many
    right k         things whose names differ in their number alone (``ball 0``, ``ball 1``) are of one kind and look
                    alike: of the maps that fall on one of them, those that fall on one that matters
    IoU             of the fifth of places that attention favours and the fifth that saliency favours, beside the same
                    with attention at another step: two maps may agree because neither ever moves

Source: Zhang et al., Top-down neural attention by excitation backprop (2016), with boxes from the world's ground truth.
A static map finds an object that never moves: read these numbers beside ``staticness``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from recollect.interpret.record import EpisodeRecord, Objects
from recollect.interpret.report import Ratio, Sample, Samples, add_up

NEAR = 2  # pixels around a box that still count: maps are coarser than things
TOP = 0.2  # share of places that a map favours
GRID = 10  # rows and columns of places in which two maps are compared


def pointing_game(records: Sequence[EpisodeRecord]) -> dict[str, list[Ratio]]:
    """Return the scores of every spatial map of the records, by the name of the metric."""
    found: dict[str, list[Ratio]] = {}
    for record in records:
        objects = record.objects
        if objects is None:
            continue
        size = picture_size(record)
        attention = (
            [] if record.spatial is None else [("attention", np.arange(record.num_steps), record.spatial.mean(1))]
        )
        for name, steps, maps in (*attention, *record.saliency_maps()):
            scores = {
                f"pointing, {name}": add_up(hits(maps, steps, objects, size)),
                f"mass on things, {name}": add_up(mass_on_things(maps, steps, objects, size)),
            }
            for kind, alone in _kinds_that_matter(objects):
                scores[f"pointing at {kind}, {name}"] = _against_another_step(maps, steps, alone, size)
            for kind, alike in _kinds_that_look_alike(objects):
                scores[f"right {kind}, {name}"] = add_up(right_choices(maps, steps, alike, size))
            for metric, ratio in scores.items():
                found.setdefault(metric, []).append(ratio)
    return found


def _kinds(objects: Objects) -> dict[str, np.ndarray]:
    """Return names without their numbers, and which things have them: bool ``[things]``."""
    names = [name.rstrip("0123456789").rstrip() for name in objects.names]
    return {kind: np.array([name == kind for name in names]) for kind in dict.fromkeys(names)}


def _kinds_that_matter(objects: Objects) -> Iterator[tuple[str, Objects]]:
    """Yield every kind of which one ever matters, as the only one that does; none where there is one kind only."""
    ever = np.any(objects.visible & objects.matters, axis=0)
    kinds = {kind: of_it for kind, of_it in _kinds(objects).items() if ever[of_it].any()}
    for kind, of_it in kinds.items() if len(kinds) > 1 else ():
        yield kind, replace(objects, matters=objects.matters & of_it)


def _kinds_that_look_alike(objects: Objects) -> Iterator[tuple[str, Objects]]:
    """Yield every kind of which some things matter where others do not, as the only kind there is."""
    for kind, of_it in _kinds(objects).items():
        seen, matters = objects.visible[:, of_it], (objects.visible & objects.matters)[:, of_it]
        if (matters.any(1) & (seen & ~matters).any(1)).any():
            names = tuple(name for name, chosen in zip(objects.names, of_it, strict=True) if chosen)
            boxes, visible, matter = (part[:, of_it] for part in (objects.boxes, objects.visible, objects.matters))
            yield kind, Objects(names=names, boxes=boxes, visible=visible, matters=matter)


def hits(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Samples:
    """Yield whether the largest value lies on a thing that matters, at steps where one is visible.

    Args:
        maps: ``[n, m, k]``; the largest cell stands for the pixel at its middle.
        steps: of the episode, ``[n]``.
        objects: of the episode.
        size: of the observation.
    """
    for values, t in zip(maps, steps, strict=True):
        sample = _hit(values, t, objects, size)
        if sample is not None:
            yield sample


def _hit(values: np.ndarray, t: int, objects: Objects, size: tuple[int, int]) -> Sample | None:
    covered = cover(objects, t, size, NEAR)
    if covered is None or np.isnan(values).any() or values.max() <= values.min():
        return None
    row, column = np.unravel_index(int(np.argmax(values)), values.shape)
    y, x = (min(int((i + 0.5) * n / m), n - 1) for i, n, m in zip((row, column), size, values.shape, strict=True))
    return covered[y, x], covered.mean()


def right_choices(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Samples:
    """Yield, of maps that fall on one of things that look alike, whether that one matters; chance is their share.

    Arguments as of :func:`hits`. Steps where no visible thing matters, or all do, are left out.
    """
    all_matter = replace(objects, matters=objects.visible)
    for values, t in zip(maps, steps, strict=True):
        seen, matters = objects.visible[t], objects.visible[t] & objects.matters[t]
        if not matters.any() or (seen == matters).all():
            continue
        on_any, on_right = (_hit(values, t, things, size) for things in (all_matter, objects))
        if on_any is not None and on_right is not None and on_any[0]:
            yield on_right[0], matters.sum() / seen.sum()


def _against_another_step(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Ratio:
    """Return the hits, and as chance those of the map of a step half an episode away."""
    if len(maps) < 2:
        return Ratio(0.0, 0.0, 0)
    own = add_up(hits(maps, steps, objects, size))
    other = add_up(hits(np.roll(maps, len(maps) // 2, 0), steps, objects, size))
    return Ratio(own.total, other.total * own.number / max(other.number, 1), own.number)


def mass_on_things(maps: np.ndarray, steps: np.ndarray, objects: Objects, size: tuple[int, int]) -> Samples:
    """Yield the share of maps in the boxes of visible things that matter; arguments as of :func:`hits`."""
    places = [np.arange(n) * m // n for n, m in zip(size, maps.shape[1:], strict=True)]
    for values, t in zip(maps, steps, strict=True):
        covered = cover(objects, t, size, 0)
        if covered is None or np.isnan(values).any() or values.sum() <= 0:
            continue
        pixels = values[np.ix_(*places)]
        yield pixels[covered].sum() / pixels.sum(), covered.mean()


def cover(objects: Objects, t: int, size: tuple[int, int], near: int) -> np.ndarray | None:
    """Mark the pixels of visible things that matter, and ``near`` ones around; None where there is no such thing."""
    chosen = objects.visible[t] & objects.matters[t]
    covered = np.zeros(size, bool)
    for top, left, bottom, right in objects.boxes[t, chosen]:
        covered[max(top - near, 0) : max(bottom + near, 0), max(left - near, 0) : max(right + near, 0)] = True
    return covered if chosen.any() else None


def picture_size(record: EpisodeRecord) -> tuple[int, int]:
    """Return rows and columns of the observation in which boxes are counted."""
    for part in record.observations.values():
        if part.ndim == 4:
            tall, wide = part.shape[1:3] if part.shape[-1] in (1, 3) else part.shape[2:]
            return int(tall), int(wide)
    return int(record.frames.shape[1]), int(record.frames.shape[2])


def agreement(record: EpisodeRecord) -> dict[str, Ratio]:
    """Return the IoU of attention with every saliency map of the record, by the name of the metric."""
    found: dict[str, Ratio] = {}
    if record.spatial is None:
        return found
    attention = record.spatial.mean(1)
    for name, steps, maps in record.saliency_maps():
        if len(maps) > 1:
            ours, theirs = on_grid(attention[steps]), on_grid(maps)
            other = np.roll(ours, len(ours) // 2, 0)
            found[f"IoU of attention and {name}"] = add_up(
                (_iou(own, saliency), _iou(elsewhere, saliency))
                for own, elsewhere, saliency in zip(ours, other, theirs, strict=True)
            )
    return found


def on_grid(maps: np.ndarray) -> np.ndarray:
    """Resample attention maps ``[n, y, x]`` to a square grid, ``[n, GRID ** 2]``."""
    return F.interpolate(torch.as_tensor(maps)[:, None].float(), (GRID, GRID), mode="area").flatten(1).numpy()


def _iou(one: np.ndarray, other: np.ndarray) -> float:
    number = round(TOP * one.size)
    first, second = (set(np.argsort(-part, kind="stable")[:number]) for part in (one, other))
    return len(first & second) / len(first | second)
