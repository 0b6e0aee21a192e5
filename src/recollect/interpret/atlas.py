"""Frames of an episode as lossless PNG pictures of many tiles, written with zlib alone.

Neighbours in time are side by side, so that deflate, which looks 32 kB back, finds unchanged pixels. Few colours
(games, tile worlds) are written as a palette: a third of the bytes, and the same pixels.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

MAX_SIDE = 16_383  # pixels; the widest and highest picture that every browser opens
MAX_PIXELS = 12_000_000
"""Of one picture, so that a browser decodes it at once. More frames make more pictures, opened when needed."""


class Atlas(NamedTuple):
    """One picture of consecutive frames, row by row."""

    png: bytes
    first: int  # number of its first frame
    frames: int  # number of frames
    columns: int  # frames in a row


def atlases(frames: np.ndarray) -> Iterator[Atlas]:
    """Yield pictures of all frames, uint8 ``[t, y, x, 3]``."""
    steps, y, x, _ = frames.shape
    columns = max(1, min(MAX_SIDE // x, steps))
    rows = max(1, min(MAX_SIDE // y, MAX_PIXELS // (columns * x * y)))
    for first in range(0, steps, columns * rows):
        part = frames[first : first + columns * rows]
        used = -(-len(part) // columns)
        missing = used * columns - len(part)
        tiles = np.concatenate((part, np.zeros((missing, y, x, 3), np.uint8)))
        sheet = tiles.reshape(used, columns, y, x, 3).swapaxes(1, 2).reshape(used * y, columns * x, 3)
        yield Atlas(png(sheet), first, len(part), columns)


def png(pixels: np.ndarray) -> bytes:
    """Encode a picture, uint8 ``[y, x, 3]``, as a PNG file."""
    y, x, _ = pixels.shape
    joined = (pixels[..., 0].astype(np.uint32) << 16) | (pixels[..., 1].astype(np.uint32) << 8) | pixels[..., 2]
    is_used = np.zeros(1 << 24, bool)
    is_used[joined.reshape(-1)] = True
    colours = np.flatnonzero(is_used)
    lines, kind, palette = pixels.reshape(y, x * 3), 2, b""
    if len(colours) <= 256:
        table = np.zeros(1 << 24, np.uint8)
        table[colours] = np.arange(len(colours))
        lines, kind = table[joined], 3
        rgb = np.stack((colours >> 16, colours >> 8 & 255, colours & 255), -1).astype(np.uint8)
        palette = _chunk(b"PLTE", rgb.tobytes())
    unfiltered = np.concatenate((np.zeros((y, 1), np.uint8), lines), 1)
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", x, y, 8, kind, 0, 0, 0))
    body = _chunk(b"IDAT", zlib.compress(unfiltered.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + header + palette + body + _chunk(b"IEND", b"")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
