"""Pathfinder: decide whether two discs are at the ends of one dashed path, in pictures read pixel by pixel.

    inputs     size * size grey values 0..255, row by row                            256 kinds of token
    asked      at the last pixel: 1 where both discs are on one path, else 0

A picture has two long paths of ``contour_length`` dashes whose beginnings are near each other, shorter distractor
paths, and two discs: one at the end of one long path, and one at its beginning (1) or at that of the other (0).
Dashes are 2 pixels long and 0.5 wide, with a gap of 1; discs have a radius of 1.5; all is drawn at twice the size and
then downsampled. Pictures are drawn many at a time; one whose long paths find no room is drawn again, before its answer
is drawn. A distractor that finds no room is left out.

Score without following paths: from the distance of the discs, in twenty classes, 0.58 at 16 pixels and 0.53 at 32; at
16 pixels, where paths are short, with the brightness of rings around the discs as well 0.66 (a linear classifier with
products, 2000 pictures).

Paper:    Linsley et al. 2018; Tay et al. 2021, Long Range Arena, whose numbers these are (contours of 14 dashes,
          distractors of 14 // 3, as many of them as 20 // (14 // 3), seeds 7 apart; in smaller pictures less).
Differs:  the drawing is ours, and rows are fresh ones, made on the fly; the published data is 200 000 stored pictures.
          Paths turn by normal angles, with a deviation of 0.4, or more where they would run into something; the
          published program has another rule. Black pixels are pixels; the arena's code reads 0 as padding
          (``zero_is_padding=True``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from recollect.config import require
from recollect.lazy import np, torch
from recollect.tasks.long_range.bytes import ask_at_last_step
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

DASH, GAP, THICKNESS, RADIUS, SEEDS_APART = 2.0, 1.0, 0.5, 1.5, 7.0
DASH_GREY, DISC_GREY = 0.75, 1.0
FINE = 2  # scale at which lines are drawn
EDGE = 1.5  # pixels between paths and the edge
APART = 2.2  # pixels between the centre lines of two paths
TRIES = 24
TURNS = (0.4,) * 8 + (0.8,) * 8 + (1.3,) * 8
"""Deviations of the tried angles, in this order: paths turn sharply only where they must."""
CONTOURS = {16: 5, 32: 14}
TOGETHER = 48  # pictures that are drawn at once


@dataclass(frozen=True, kw_only=True)
class Pathfinder(StreamTask):
    """Decide whether two discs are on one dashed path, pixel by pixel."""

    size: int = 32
    """Pixels of a side; 32 is the arena's."""
    contour_length: int | None = None
    """Dashes of a long path; None takes 14 for 32 pixels (the arena's hard level), 5 for 16."""
    zero_is_padding: bool = False
    """Read black pixels as padding, as the arena's code does."""

    def __post_init__(self) -> None:
        known = self.size in CONTOURS
        require(known, "size", self.size, f"choose one of {', '.join(map(str, CONTOURS))}")
        most = CONTOURS[self.size]
        fits = self.contour_length is None or 2 <= self.contour_length <= most
        require(fits, "contour_length", self.contour_length, f"give 2 to {most} for {self.size} pixels, or None")

    @property
    def spec(self) -> TaskSpec:
        """256 grey values, two answers."""
        return TaskSpec(vocabulary=256, num_classes=2, length=self.size**2, chance=0.5)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh pictures."""
        random = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        pictures, labels = draw_pictures(self.size, self.contour_length or CONTOURS[self.size], batch_size, random)
        inputs = torch.from_numpy(pictures.reshape(batch_size, -1).astype(np.int64))
        return ask_at_last_step(inputs, (inputs == 0) & self.zero_is_padding, torch.from_numpy(labels))


class Paths(NamedTuple):
    """p dashes in each of b pictures."""

    middles: np.ndarray  # [p, b, 2]: y and x, in pixels
    angles: np.ndarray  # [p, b]: directions
    whole: np.ndarray  # bool [p, b]: the path of the dash found room for all its dashes


def draw_pictures(size: int, contour: int, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw pictures with long paths of ``contour`` dashes.

    Returns:
        Grey values, uint8 ``[count, size, size]``, and labels, int64 ``[count]``.
    """
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while sum(len(labels) for _, labels in found) < count:
        paths = _lay_paths(size, contour, TOGETHER, random)
        good = np.flatnonzero(paths.whole[: 2 * contour].all(0))
        paths = Paths(*(part[:, good] for part in paths))
        labels, path = random.integers(0, 2, (2, len(good)))
        found.append((_render(size, contour, paths, path, labels), labels))
    pictures, labels = (np.concatenate(parts)[:count] for parts in zip(*found, strict=True))
    return pictures, labels.astype(np.int64)


def _lay_paths(size: int, contour: int, count: int, random: np.random.Generator) -> Paths:
    """Lay two long paths and the distractors into ``count`` pictures."""
    taken = np.zeros((count, FINE * size, FINE * size), bool)
    short = max(contour // 3, 1)
    first = _start(taken, random, None)
    parts = [_path(taken, first, contour, random)]
    near = parts[0].middles[0]
    parts.append(_path(taken, _start(taken, random, near), contour, random))
    parts += [_path(taken, _start(taken, random, None), short, random) for _ in range(20 // short if size > 16 else 2)]
    return Paths(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _start(taken: np.ndarray, random: np.random.Generator, near: np.ndarray | None) -> np.ndarray:
    """Choose starts of paths ``[b, 2]``: anywhere free, or at the distance of seeds from a point."""
    count, size = len(taken), taken.shape[1] / FINE
    if near is None:
        candidates = random.uniform(EDGE + 1, size - EDGE - 1, (count, TRIES, 2))
    else:
        angle = random.uniform(0, 2 * np.pi, (count, TRIES))
        candidates = near[:, None] + SEEDS_APART * size / 32 * np.stack((np.sin(angle), np.cos(angle)), -1)
    return candidates[np.arange(count), _free(taken, candidates[:, :, None]).argmax(1)]


def _path(taken: np.ndarray, start: np.ndarray, dashes: int, random: np.random.Generator) -> Paths:
    """Lay a path into each picture, and mark its room as taken."""
    count = len(taken)
    rows = np.arange(count)
    angle, middle = random.uniform(0, 2 * np.pi, count), start
    whole = np.ones(count, bool)
    middles, angles = [], []
    for number in range(dashes):
        if number == 0:
            spread = 2 * np.pi * random.random((count, TRIES))
        else:
            spread = np.array(TURNS) * random.normal(size=(count, TRIES))
        tried = angle[:, None] + spread
        towards = np.stack((np.sin(tried), np.cos(tried)), -1)  # b k 2
        if number == 0:
            tip = np.broadcast_to(start[:, None], towards.shape) - towards * (DASH / 2)
        else:
            ahead = np.stack((np.sin(angle), np.cos(angle)), -1)
            tip = (middle + ahead * (DASH / 2))[:, None] + towards * GAP
        along = np.linspace(0, DASH, 4)[:, None]
        free = _free(taken, tip[:, :, None] + towards[:, :, None] * along)  # b k
        chosen = free.argmax(1)
        whole &= free[rows, chosen]
        if number:  # the newest dash may touch the one before, which is marked only now
            _take(taken, middle, angle)
        angle, middle = tried[rows, chosen], tip[rows, chosen] + towards[rows, chosen] * (DASH / 2)
        middles.append(middle)
        angles.append(angle)
    _take(taken, middle, angle)
    return Paths(np.stack(middles), np.stack(angles), np.broadcast_to(whole, (dashes, count)))


def _free(taken: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return whether all s points of a path, ``[b, k, s, 2]``, are inside and not taken by another: bool ``[b, k]``."""
    size = taken.shape[1]
    inside = ((points > EDGE) & (points < size / FINE - EDGE)).all(-1)
    cells = (points * FINE).astype(int).clip(0, size - 1)
    return (inside & ~taken[np.arange(len(taken))[:, None, None], cells[..., 0], cells[..., 1]]).all(-1)


def _take(taken: np.ndarray, middle: np.ndarray, angle: np.ndarray) -> None:
    """Mark cells too near to a dash as taken."""
    ahead = np.stack((np.sin(angle), np.cos(angle)), -1)[:, None] * np.array([[-DASH / 2], [0.0], [DASH / 2]])
    cells = np.floor((middle[:, None] + ahead) * FINE).astype(int)[:, :, None] + _disc(APART * FINE)  # b 3 s 2
    cells = cells.clip(0, taken.shape[1] - 1)
    taken[np.arange(len(taken))[:, None, None], cells[..., 0], cells[..., 1]] = True


@lru_cache(maxsize=2)
def _disc(radius: float) -> np.ndarray:
    offsets = _offsets(int(radius) + 1)
    return offsets[(offsets**2).sum(-1) < radius**2]


def _around(middle: np.ndarray, angle: np.ndarray, size: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Return cells of the fine grid around dashes ``[b, s, 2]``, and their distances to it in pixels ``[b, s]``."""
    cells = np.floor(middle * FINE).astype(int)[:, None] + _offsets(int(np.ceil(reach * FINE)) + 1)
    away = (cells + 0.5) / FINE - middle[:, None]
    ahead = np.stack((np.sin(angle), np.cos(angle)), -1)[:, None]
    along = (away * ahead).sum(-1).clip(-DASH / 2, DASH / 2)
    distance = np.linalg.norm(away - along[..., None] * ahead, axis=-1)
    outside = ((cells < 0) | (cells >= size)).any(-1)
    return cells.clip(0, size - 1), np.where(outside, np.inf, distance)


@lru_cache(maxsize=8)
def _offsets(reach: int) -> np.ndarray:
    steps = np.arange(-reach, reach + 1)
    return np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)


def _render(size: int, contour: int, paths: Paths, path: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Render grey values ``[b, size, size]``, without the paths that found no room.

    Args:
        size: pixels of a side.
        contour: dashes of a long path.
        paths: the two long ones first.
        path: 0 or 1 ``[b]``, the long path with a disc at its end.
        labels: 1 where the other disc is at its beginning, 0 where it is at that of the other.
    """
    count = len(labels)
    fine = np.zeros((count, FINE * size, FINE * size), np.float32)
    for middle, angle, whole in zip(*paths, strict=True):
        cells, distance = _around(middle, angle, FINE * size, DASH / 2 + 1)
        _paint(fine, cells, np.where(whole[:, None], distance, np.inf), THICKNESS / 2, DASH_GREY)
    begins = np.where(labels == 1, path, 1 - path)
    for dash in (contour * path + contour - 1, contour * begins):
        middle = paths.middles[dash, np.arange(count)]
        cells, distance = _around(middle, np.zeros(count), FINE * size, RADIUS + 1)
        from_middle = np.linalg.norm((cells + 0.5) / FINE - middle[:, None], axis=-1)
        _paint(fine, cells, np.where(np.isinf(distance), distance, from_middle), RADIUS, DISC_GREY)
    coarse = fine.reshape(count, size, FINE, size, FINE).mean((2, 4))
    return np.round(255 * coarse).astype(np.uint8)


def _paint(fine: np.ndarray, cells: np.ndarray, distance: np.ndarray, radius: float, grey: float) -> None:
    """Brighten cells nearer than ``radius``, with a soft edge."""
    value = grey * (0.5 + FINE * (radius - distance)).clip(0, 1)
    lit = value > 0
    rows = np.broadcast_to(np.arange(len(fine))[:, None], lit.shape)
    which = rows[lit], cells[..., 0][lit], cells[..., 1][lit]
    fine[which] = np.maximum(fine[which], value[lit])
