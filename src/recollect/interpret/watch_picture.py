"""A video frame with the probabilities of a detector: a bar for every activity, bright while it goes on.

Words are drawn once and pasted: a frame costs a few copies, however long the video is.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from recollect.evaluation.agent_videos import INK, PAPER, SOFT, load_pillow
from recollect.tasks.videos.video_files import Frame

TALL, WIDE = 336, 1280  # height and width up to which smaller frames are enlarged, by whole numbers
MOST = 14  # activities that are shown; of more the likeliest
PANEL, LINE, TOP = 250, 22, 30  # width of the column of activities, height of one of them, top of the first
ON, OFF, BROKEN, TRACK = (111, 220, 131), (71, 105, 156), (232, 90, 80), (44, 51, 61)

Colour = tuple[int, int, int]


class Painter:
    """Draws frame after frame; all pictures have the size of the first.

    Args:
        class_names: of the activities.
    """

    def __init__(self, class_names: tuple[str, ...]) -> None:
        self.names = class_names
        self.pillow: Any = load_pillow()
        self.font = self.pillow.ImageFont.load_default(size=13)
        self.words = lru_cache(maxsize=1024)(self._words)
        self.size: tuple[int, int] | None = None
        """Rows and columns of the picture of the frame."""
        self.last: np.ndarray | None = None

    def draw(self, frame: Frame, probabilities: np.ndarray | None, going_on: tuple[int, ...]) -> np.ndarray | None:
        """Draw a frame, uint8 ``[y, x, 3]``; None before the first readable frame.

        Args:
            frame: a broken one is shown as the frame before.
            probabilities: of the activities, ``[k]``; None where they are unknown.
            going_on: activities that go on.
        """
        if frame.pixels is not None:
            self.last = self._enlarged(frame.pixels)
        if self.last is None:
            return None
        y, x = self.last.shape[:2]
        tall = max(y, TOP + LINE * min(len(self.names), MOST))
        picture = np.empty((tall + tall % 2, x + PANEL + x % 2, 3), np.uint8)
        picture[:] = PAPER
        picture[(tall - y) // 2 : (tall - y) // 2 + y, :x] = self.last
        minutes, seconds = divmod(round(frame.seconds, 1), 60)  # else 59.96 s would be 00:60.0
        left = x + 10
        _paste(picture, self._words(f"{int(minutes):02d}:{seconds:04.1f}   frame {frame.number}", SOFT), 6, left)
        if frame.pixels is None:
            _paste(picture, self.words("broken frame", BROKEN), 6, 10)
        for place, k in enumerate(self._shown(probabilities)):
            share = 0.0 if probabilities is None else float(probabilities[k])
            self._bar(picture, TOP + place * LINE, left, k, share, k in going_on)
        return picture

    def _shown(self, probabilities: np.ndarray | None) -> list[int]:
        if len(self.names) <= MOST or probabilities is None:
            return list(range(min(len(self.names), MOST)))
        return np.argsort(-probabilities, kind="stable")[:MOST].tolist()

    def _bar(self, picture: np.ndarray, top: int, left: int, k: int, share: float, on: bool) -> None:
        width = PANEL - 24
        picture[top + 16 : top + 19, left : left + width] = TRACK
        picture[top + 16 : top + 19, left : left + round(width * share)] = ON if on else OFF
        _paste(picture, self.words(self.names[k][:26], INK if on else SOFT), top, left)
        if on:
            _paste(picture, self.words(f"{share:.2f}", ON), top, left + width - 30)

    def _words(self, text: str, colour: Colour) -> np.ndarray:
        """Draw a line of text on the page's colour, uint8 ``[16, x, 3]``."""
        image = self.pillow.Image.new("RGB", (max(1, round(self.font.getlength(text)) + 1), 16), PAPER)
        self.pillow.ImageDraw.Draw(image).text((0, 0), text, colour, self.font)
        return np.asarray(image)

    def _enlarged(self, pixels: np.ndarray) -> np.ndarray:
        y, x = pixels.shape[:2]
        if self.size is None:
            factor = max(1, min(TALL // y, WIDE // x))
            self.size = (y * factor, x * factor)
        if (y, x) == self.size:
            return pixels
        image = self.pillow.Image.fromarray(pixels)
        return np.asarray(image.resize(self.size[::-1], self.pillow.Image.Resampling.NEAREST))


def _paste(picture: np.ndarray, words: np.ndarray, top: int, left: int) -> None:
    """Put words into a picture, in place; words beyond its edge are cut."""
    room = picture[top : top + words.shape[0], left : left + words.shape[1]]
    room[:] = words[: room.shape[0], : room.shape[1]]
