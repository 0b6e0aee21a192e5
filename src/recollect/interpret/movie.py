"""A recorded episode as a movie: the frame with its attention, the heads, the recalled steps, and the value.

    write_movie(record, "episode.mp4")          also .webp (lossless) and .gif

Colours have one scale for the whole episode. MP4 needs imageio's ffmpeg, the others pillow (extra ``video``).
"""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from recollect.config import require
from recollect.evaluation.agent_videos import INK, PAPER, SOFT, load_imageio, load_pillow
from recollect.files import new_file
from recollect.interpret.colours import highest, overlay
from recollect.interpret.recall import mean_of_heads
from recollect.interpret.record import EpisodeRecord, check_record
from recollect.interpret.watch_picture import TALL, WIDE

PANELS = ("frame", "heads", "recall", "value")
ENDINGS = (".mp4", ".webp", ".gif")
THUMB = 104
MOST_HEADS = 6
RECALL, VALUE, CAPTION = 84, 56, 26  # heights of the rows in pixels
MASS, LINE, GRID, BLOCK = (255, 171, 74), (111, 220, 131), (44, 51, 61), (71, 105, 156)


def write_movie(
    record: EpisodeRecord,
    path: str | PathLike[str],
    *,
    panels: tuple[str, ...] = PANELS,
    fps: int = 15,
    head: int | None = None,
) -> Path:
    """Write the episode as a movie; the ending of ``path`` selects the format.

    Args:
        record: the recorded episode.
        path: ends in ``.mp4``, ``.webp`` or ``.gif``.
        panels: some of ``frame``, ``heads``, ``recall``, ``value``; those without data in the record are left out.
        fps: steps per second.
        head: whose recall is shown; None for the mean of all heads.

    Raises:
        ValueError: an unknown ending or panel, a number out of range, nothing to show, or a missing extra.
    """
    target = Path(path)
    require(target.suffix in ENDINGS, "path", str(target), f"end it in one of {', '.join(ENDINGS)}")
    unknown = [panel for panel in panels if panel not in PANELS]
    require(not unknown, "panels", panels, f"choose from {', '.join(PANELS)}")
    require(1 <= fps <= 60, "fps", fps, "give 1 to 60")
    heads = len(record.heads)
    require(head is None or 0 <= head < heads, "head", head, f"this record has {heads} heads, counted from 0")
    check_record(record)
    scene = _Scene(record, panels, head)
    images = (scene.draw(t) for t in range(record.num_steps))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_file(target) as unfinished:
            _write(unfinished, target.suffix, images, fps)
    except OSError as error:
        raise ValueError(f"path={str(target)!r} cannot be written ({error}): give another folder") from error
    return target


def _write(path: Path, ending: str, images: Iterator[Any], fps: int) -> None:
    if ending == ".mp4":
        options: dict[str, Any] = {"fps": fps, "codec": "libx264", "quality": 9, "macro_block_size": 2}
        with load_imageio().get_writer(path, format="FFMPEG", **options) as writer:
            for image in images:
                writer.append_data(np.asarray(image))
        return
    first, *rest = images
    options = {"lossless": True, "method": 4} if ending == ".webp" else {"optimize": False}
    # Durations of a GIF are hundredths of a second, at least two.
    duration = 10 * max(2, round(100 / fps)) if ending == ".gif" else round(1000 / fps)
    first.save(path, ending[1:], save_all=True, append_images=rest, duration=duration, loop=0, **options)


class _Scene:
    """Layout of a picture, and its parts that do not change from step to step."""

    def __init__(self, record: EpisodeRecord, panels: tuple[str, ...], head: int | None) -> None:
        self.record, self.pillow = record, load_pillow()
        self.font = self.pillow.ImageFont.load_default(size=13)
        self.frames = record.frames if "frame" in panels and record.frames.size else None
        self.spatial = record.spatial if "heads" in panels and self.frames is not None else None
        self.past = None
        if "recall" in panels and record.temporal is not None and record.heads:
            self.past = np.nan_to_num(mean_of_heads(record.temporal) if head is None else record.temporal[:, head])
        self.has_value = "value" in panels
        rows = (self.past is not None) * RECALL + self.has_value * VALUE
        require(rows > 0 or self.frames is not None, "panels", panels, "this record has nothing to show in them")
        self.high = 1.0 if self.spatial is None else highest(self.spatial)
        y, x = (0, 0) if self.frames is None else self.frames.shape[1:3]
        # By whole numbers, so that a pixel stays a square.
        factor = max(1, min(round(TALL / max(y, 1)), WIDE // max(x, 1)))
        self.picture = (x * factor, y * factor)
        heads = 0 if self.spatial is None else min(self.spatial.shape[1], MOST_HEADS)
        self.caption = max(self.picture[1], min(heads, 2) * (THUMB + 28))  # its top: a frame may be lower than heads
        width, height = max(self.picture[0] + -(-heads // 2) * (THUMB + 8), 560), self.caption + CAPTION + rows
        self.width, self.height = width + width % 2, height + height % 2

    def draw(self, t: int) -> Any:
        """Draw the frame of step t."""
        record = self.record
        image = self.pillow.Image.new("RGB", (self.width, self.height), PAPER)
        draw = self.pillow.ImageDraw.Draw(image)
        if self.frames is not None:
            self._draw_frames(image, draw, self.frames[t], t)
        top = self.caption
        action, reward = record.action[t], record.reward[t]
        has_name = bool(record.actions) and np.ndim(action) == 0 and int(action) < len(record.actions)
        name = record.actions[int(action)] if has_name else ""
        gained = f"   reward {reward:+.3g}" if reward else ""
        caption = f"step {t}   {name}   value {record.value[t]:.2f}{gained}"
        draw.text((8, top + 6), caption, font=self.font, fill=INK)
        top += CAPTION
        if self.past is not None:
            self._draw_recall(draw, self.past[t], t, top)
            top += RECALL
        if self.has_value:
            self._draw_value(draw, t, top)
        return image

    def _draw_frames(self, image: Any, draw: Any, frame: np.ndarray, t: int) -> None:
        if self.spatial is None:
            image.paste(self._enlarged(frame, self.picture), (0, 0))
            return
        shown = overlay(frame, self.spatial[t].mean(0), self.high)
        image.paste(self._enlarged(shown, self.picture), (0, 0))
        for head in range(min(self.spatial.shape[1], MOST_HEADS)):
            left = self.picture[0] + 8 + head // 2 * (THUMB + 8)
            top = 4 + head % 2 * (THUMB + 28)
            thumb = self._enlarged(overlay(frame, self.spatial[t, head], self.high), (THUMB, THUMB))
            image.paste(thumb, (left, top))
            draw.text((left, top + THUMB + 3), self.record.heads[head].name, font=self.font, fill=SOFT)

    def _enlarged(self, pixels: np.ndarray, size: tuple[int, int]) -> Any:
        return self.pillow.Image.fromarray(pixels).resize(size, self.pillow.Image.Resampling.NEAREST)

    def _x(self, t: float) -> float:
        return 8 + t / self.record.num_steps * (self.width - 16)

    def _draw_recall(self, draw: Any, row: np.ndarray, t: int, top: int) -> None:
        for event in self.record.blocks:
            left, right = self._x(event.t), max(self._x(event.t1) - 1, self._x(event.t) + 1)
            draw.rectangle((left, top, right, top + 14), BLOCK)
            draw.text((left + 3, top), self._fitted(draw, event.label, right - left - 4), font=self.font, fill=INK)
        base, high = top + RECALL - 8, row.max() or 1
        draw.line((self._x(0), base, self._x(self.record.num_steps), base), GRID)
        for s in np.flatnonzero(row > high / 100).tolist():
            left, right = self._x(s), max(self._x(s + 1) - 1, self._x(s) + 1)
            draw.rectangle((left, base - row[s] / high * (RECALL - 34), right, base), MASS)
        draw.line((self._x(t + 0.5), top, self._x(t + 0.5), base), INK)

    def _fitted(self, draw: Any, label: str, width: float) -> str:
        """Cut a label to its block: the next block may begin right behind it."""
        label = " ".join(label.split())  # Pillow measures no text of several lines
        while label and draw.textlength(label, font=self.font) > width:
            label = label[:-1]
        return label

    def _draw_value(self, draw: Any, t: int, top: int) -> None:
        value = np.nan_to_num(self.record.value)
        low, high = value.min(), value.max()
        share = (value - low) / (high - low) if high > low else np.full(len(value), 0.5)
        points = [(self._x(s + 0.5), top + VALUE - 8 - part * (VALUE - 16)) for s, part in enumerate(share.tolist())]
        if len(points) > 1:
            draw.line(points, LINE, 1)
        draw.line((self._x(t + 0.5), top, self._x(t + 0.5), top + VALUE - 4), INK)
        draw.text((8, top), "value", font=self.font, fill=SOFT)
