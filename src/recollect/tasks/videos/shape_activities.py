"""Moving shapes with overlapping activities, some of which can only be named from an earlier frame.

    frame    [size, size, 3]: some boxes at the bottom, a ball above them, noise; shapes come and go

    put X    a shape X (red square, green disc, ...) moves down into a box       visible: one frame tells
    ball     moves left, right, up or down                                       lag 1: two frames tell
    take X   a white hand moves up from a box, and X is inside it                the frame in which X was put, lag ago

Boxes are filled and emptied independently, so that activities overlap; a box is filled again after it was emptied.
``lag`` is counted from the last frame of ``put`` to the first of ``take``: a model of the last lag - 1 frames sees only
that something is taken. The logarithm of the lag is uniform, so that short lags give early training signal; near
the end of a video only short ones fit. The necessary memory is one shape per box: ``boxes * log2(shapes)`` bits.

Score: mean average precision over activities. From one frame alone it is 1 for ``put``, a quarter for the ball and
``1 / shapes`` for ``take``: that is ``chance``. A little more is possible, 0.33 for the ball, as it cannot have come
from beyond its area: 0.53 over all where chance is 0.5.

Source: ours; a test of the memory that Ryoo et al. 2023, section 3.1 (temporal activity detection) need.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import NamedTuple

from recollect.config import require
from recollect.lazy import torch
from recollect.tasks.streams.contract import Batch, TaskSpec, single_episode_batch
from recollect.tasks.videos.contract import VideoTask

SIDE = 32  # pixels along a side of the picture that all coordinates refer to; size scales it
SHAPES: tuple[tuple[str, tuple[int, int, int]], ...] = (
    ("red square", (230, 50, 40)),
    ("green disc", (60, 200, 70)),
    ("blue diamond", (70, 110, 250)),
    ("yellow cross", (240, 210, 50)),
    ("cyan square", (60, 210, 220)),
    ("magenta disc", (220, 80, 210)),
    ("orange diamond", (245, 150, 40)),
    ("grey cross", (170, 170, 170)),
)  # shapes that are put into boxes; the last word is the form
DIRECTIONS = ("left", "right", "up", "down")
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # y, x
BALL, HAND, WALL = (235, 235, 235), (255, 255, 255), (110, 80, 50)
PUT, TAKE = 2, 3  # frames of putting and taking
SPEED = 2  # pixels of SIDE per frame of the ball
TURN = 0.12  # probability that the ball takes a new direction in a frame
BEGINS = 8  # most frames before the first shape; fewer in a short video
AREA = (3, 15, 3, 28)  # least and largest y and x of the ball
BOX_Y, RADIUS = 27, 3.2


@dataclass(frozen=True, kw_only=True)
class ShapeActivities(VideoTask):
    """Name the activities of moving shapes, which go into boxes and come out hidden."""

    shapes: int = 4
    """Kinds of shapes, 2 to 8."""
    boxes: int = 2
    """Boxes, 1 to 3: each holds one shape at a time."""
    min_lag: int = 2
    """Fewest frames from the last one that shows a shape to the first in which it is taken."""
    max_lag: int = 28
    """Most frames between them."""
    length: int = 40
    """Frames of a video."""
    size: int = SIDE
    """Pixels along a side of a frame."""
    noise: float = 8.0
    """Standard deviation of the pixel noise, on a scale of 255."""

    def __post_init__(self) -> None:
        require(2 <= self.shapes <= len(SHAPES), "shapes", self.shapes, f"give 2 to {len(SHAPES)}")
        require(1 <= self.boxes <= 3, "boxes", self.boxes, "give 1 to 3")
        require(1 <= self.min_lag <= self.max_lag, "min_lag", self.min_lag, f"give 1 to max_lag={self.max_lag}")
        least = PUT + self.max_lag + TAKE
        require(self.length >= least, "length", self.length, f"the longest lag needs {least} frames or more")
        require(self.size >= 16, "size", self.size, "give at least 16 pixels")
        require(self.noise >= 0, "noise", self.noise, "give 0 or more")

    @property
    def spec(self) -> TaskSpec:
        """Sizes, the score from one frame alone, and the necessary memory."""
        visible, guessed = self.shapes, 1.0 + len(DIRECTIONS) / 4  # sums of the classes' average precisions
        return TaskSpec(
            num_classes=len(self.class_names),
            length=self.length,
            chance=(visible + guessed) / len(self.class_names),
            memory_span=self.max_lag + TAKE - 1,
            bits=self.boxes * log2(self.shapes),
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the activities: put, ball, take."""
        names = [name for name, _ in SHAPES[: self.shapes]]
        return (
            *(f"put {name}" for name in names),
            *(f"ball {direction}" for direction in DIRECTIONS),
            *(f"take {name}" for name in names),
        )

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Rows, columns and 3 of a frame."""
        return self.size, self.size, 3

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw fresh videos."""
        story = self._draw_story(batch_size, generator)
        ball, direction = _ball(batch_size, self.length, generator)
        b, t, k = batch_size, self.length, len(self.class_names)
        targets = torch.zeros(b, t, k)
        targets.scatter_(2, self.shapes + direction[..., None], 1.0)
        source = torch.full((b, t), -1)
        for box in story:
            for stage, offset in ((box.putting, 0), (box.taking, self.shapes + len(DIRECTIONS))):
                rows, steps = torch.nonzero(stage >= 0, as_tuple=True)
                targets[rows, steps, offset + box.shape[rows, steps]] = 1.0
            source = torch.maximum(source, torch.where(box.taking >= 0, box.source, -1))
        frames = self._render(story, ball, generator)
        return single_episode_batch(frames, targets, torch.ones(b, t, dtype=torch.bool), source=source)

    def count_items(self, batch: Batch) -> torch.Tensor:
        """Count shapes that are put into boxes, each at the last step that shows it."""
        put = batch.targets[..., : self.shapes] > 0
        return (put & ~torch.cat((put[:, 1:], torch.zeros_like(put[:, :1])), 1)).sum(-1)

    def _draw_story(self, batch_size: int, generator: torch.Generator) -> list[_Box]:
        """Draw the story of every box: wait, put, lag, take, repeated as long as there are frames."""
        b, t = batch_size, self.length
        cycles = t // (PUT + self.min_lag + TAKE)
        waits = min(t - (PUT + self.max_lag + TAKE), BEGINS)
        boxes = []
        for _ in range(self.boxes):
            putting, taking = torch.full((b, t), -1), torch.full((b, t), -1)
            shape, source = torch.zeros(b, t, dtype=torch.long), torch.full((b, t), -1)
            begin = torch.randint(waits + 1, (b,), generator=generator)
            steps = torch.arange(t)
            for _ in range(cycles):
                lag = self._lags(torch.rand(b, generator=generator))
                kind = torch.randint(self.shapes, (b,), generator=generator)
                pause = torch.randint(1, 5, (b,), generator=generator)
                shown = begin + PUT - 1  # the last frame in which the shape is seen
                leaves = shown + lag
                fits = (leaves + TAKE <= t)[:, None]
                stage = steps - begin[:, None]
                putting = torch.where(fits & (stage >= 0) & (stage < PUT), stage, putting)
                out = steps - leaves[:, None]
                now = fits & (out >= 0) & (out < TAKE)
                taking = torch.where(now, out, taking)
                cycle = fits & (stage >= 0) & (out < TAKE)
                shape = torch.where(cycle, kind[:, None], shape)
                source = torch.where(now, shown[:, None], source)
                begin = torch.where(fits[:, 0], leaves + TAKE + pause, begin)
            boxes.append(_Box(putting, taking, shape, source))
        return boxes

    def _lags(self, uniform: torch.Tensor) -> torch.Tensor:
        """Map numbers in [0, 1) to lags, long, with a uniform logarithm."""
        low, high = float(self.min_lag), float(self.max_lag + 1)
        return (low * (high / low) ** uniform).long().clamp(self.min_lag, self.max_lag)

    def _render(self, story: list[_Box], ball: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Render frames, uint8 ``[b, t, size, size, 3]``."""
        b, t = ball.shape[:2]
        scale = SIDE / self.size
        axis = (torch.arange(self.size) + 0.5) * scale - 0.5
        frames = torch.full((b, t, self.size, self.size, 3), 24.0)
        edges = _box_walls(axis, [_box_x(i, self.boxes) for i in range(self.boxes)])
        frames[:, :, edges] = torch.tensor(WALL, dtype=torch.float32)
        y, x = ball.float().unbind(-1)
        _stamp(frames, axis, y, x, "disc", BALL, torch.ones(b, t, dtype=torch.bool))
        for place, box in enumerate(story):
            x = torch.full((b, t), float(_box_x(place, self.boxes)))
            for kind in range(self.shapes):
                name, colour = SHAPES[kind]
                seen = (box.putting >= 0) & (box.shape == kind)
                _stamp(frames, axis, BOX_Y - 9.0 + 4 * box.putting, x, name.split()[-1], colour, seen)
            _stamp(frames, axis, BOX_Y - 5.0 - 2 * box.taking, x, "hand", HAND, box.taking >= 0)
        if self.noise:
            frames += self.noise * torch.randn(frames.shape, generator=generator)
        return frames.round_().clamp_(0, 255).to(torch.uint8)


class _Box(NamedTuple):
    """Story of a box, step by step; all long ``[b, t]``."""

    putting: torch.Tensor  # frames since putting began, -1 outside
    taking: torch.Tensor  # frames since taking began, -1 outside
    shape: torch.Tensor  # shape inside, or on its way
    source: torch.Tensor  # step that last showed the shape, where something is taken


def _box_x(place: int, boxes: int) -> int:
    return round(SIDE * (place + 0.5) / boxes)


def _ball(batch_size: int, length: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw positions ``[b, t, 2]`` and the directions of arrival ``[b, t]``."""
    low, high = torch.tensor([AREA[0], AREA[2]]), torch.tensor([AREA[1], AREA[3]])
    place = low + (torch.rand(batch_size, 2, generator=generator) * (high - low + 1)).long()
    direction = torch.randint(4, (batch_size,), generator=generator)
    moves = torch.tensor(MOVES)
    places, directions = [], []
    for _ in range(length):
        turn = torch.rand(batch_size, generator=generator) < TURN
        direction = torch.where(turn, torch.randint(4, (batch_size,), generator=generator), direction)
        there = place + SPEED * moves[direction]
        outside = ((there < low) | (there > high)).any(1)
        direction = torch.where(outside, direction ^ 1, direction)  # left and right, up and down are pairs
        place = place + SPEED * moves[direction]
        places.append(place)
        directions.append(direction)
    return torch.stack(places, 1), torch.stack(directions, 1)


def _box_walls(axis: torch.Tensor, centres: list[int]) -> torch.Tensor:
    """Return the walls of the boxes, open above: bool ``[size, size]``."""
    y, x = axis[:, None], axis[None, :]
    walls = torch.zeros(len(axis), len(axis), dtype=torch.bool)
    for centre in centres:
        inside = (abs(x - centre) <= 5) & (abs(y - BOX_Y) <= 4)
        hollow = (abs(x - centre) <= 4) & (y - BOX_Y <= 3)
        walls |= inside & ~hollow
    return walls


def _stamp(
    frames: torch.Tensor,
    axis: torch.Tensor,
    y: torch.Tensor,
    x: torch.Tensor,
    form: str,
    colour: tuple[int, int, int],
    shown: torch.Tensor,
) -> None:
    """Draw one form per frame at centres ``[b, t]`` where ``shown``, in place."""
    rows, steps = torch.nonzero(shown, as_tuple=True)
    if not len(rows):
        return
    dy = (axis[None, :, None] - y[rows, steps, None, None]).abs()
    dx = (axis[None, None, :] - x[rows, steps, None, None]).abs()
    if form == "disc":
        inside = dy**2 + dx**2 <= RADIUS**2
    elif form == "diamond":
        inside = dy + dx <= RADIUS + 0.5
    elif form == "cross":
        inside = ((dy <= 1) & (dx <= RADIUS)) | ((dx <= 1) & (dy <= RADIUS))
    elif form == "hand":
        inside = (dy <= RADIUS) & (dx <= RADIUS) & (dy + dx > 1.5)
    else:
        inside = (dy <= RADIUS - 0.5) & (dx <= RADIUS - 0.5)
    drawn = frames[rows, steps]
    frames[rows, steps] = torch.where(inside[..., None], torch.tensor(colour, dtype=torch.float32), drawn)
