"""Compact encodings of arrays in the page format ``memx-1``, and their inverse.

Attention is peaked: most entries are near zero and a few carry the mass. Codes of equal steps would round the small
ones to nothing, so the *root* of a number is rounded (square-root companding), relative to the largest number of its
map, which is kept as float32:

    code = 1 + round(254 sqrt(x / scale))          x = scale ((code - 1) / 254)^2

Code 0 means "absent": a step in the future, before the window, or not measured. It is NaN in arrays and never drawn as
zero. Numbers with a sign (attribution, change of value) are rounded the same way on both sides of code 128.

| encoding | bytes | for |
|---|---|---|
| ``f32``, ``i32``, ``u16``, ``bool`` | 4, 4, 2, 1 | curves, actions, indices, marks: exact |
| ``f16`` | 2 | effects of removal: IEEE half precision, 3 digits |
| ``u8``  | 1 | maps of numbers that are not negative; error at most 1/254 of the map's largest number |
| ``s8``  | 1 | maps of signed numbers; at most 1/127 of the largest |
| ``u4``  | 1/2 | the last resort for maps; at most 1/14 of the largest |
"""

import math
from typing import Any, NamedTuple

import numpy as np

PLAIN = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "u16": "<u2", "bool": "?"}
LEVELS = {"u8": 254, "u4": 14, "s8": 127}  # steps between nothing and the largest number of a map
ERROR_BOUND = {"u8": 1 / 254, "u4": 1 / 14, "s8": 1 / 127}
"""Largest error of a number, as a share of the largest number of its map."""


class Encoded(NamedTuple):
    """An array as bytes, with what is needed to read them."""

    encoding: str  # a key of the table above
    shape: tuple[int, ...]
    map_axes: int  # last axes that share a scale; 0 where there is none
    data: bytes  # codes, then (where ``map_axes``) the scales as float32, one for each map

    def header(self) -> dict[str, Any]:
        """Return the description of the array for the page's JSON."""
        return {"enc": self.encoding, "shape": list(self.shape), "map_axes": self.map_axes}


def encode(array: np.ndarray, encoding: str, *, map_axes: int = 1) -> Encoded:
    """Encode an array as bytes.

    Args:
        array: any shape; NaN is "absent" in maps and stays NaN in ``f32``.
        encoding: a key of the table above.
        map_axes: number of last axes that share a scale.

    Raises:
        ValueError: infinite numbers, or negative ones where the encoding has no sign.
    """
    if encoding in PLAIN:
        return Encoded(encoding, array.shape, 0, np.ascontiguousarray(array, PLAIN[encoding]).tobytes())
    numbers = np.asarray(array, np.float32)
    if np.isinf(numbers).any():
        raise ValueError("a map has infinite numbers; give finite ones, or NaN where nothing was measured")
    present = ~np.isnan(numbers)
    numbers = np.where(present, numbers, 0)
    if encoding != "s8" and (numbers < 0).any():
        raise ValueError(f"a map has the negative number {numbers.min():.3g}; attention and effects are never negative")
    axes = tuple(range(numbers.ndim - map_axes, numbers.ndim))
    scale = np.abs(numbers).max(axes, initial=0).astype(np.float32)
    parts = numbers / np.where(scale > 0, scale, 1).reshape(*scale.shape, *(1,) * map_axes)
    steps = np.rint(LEVELS[encoding] * np.sqrt(np.abs(parts)))
    codes = np.where(present, 128 + np.sign(parts) * steps if encoding == "s8" else 1 + steps, 0).astype(np.uint8)
    if encoding == "u4":
        flat = codes.reshape(-1)
        flat = np.concatenate((flat, np.zeros(flat.size % 2, np.uint8)))
        codes = flat[::2] | flat[1::2] << 4
    return Encoded(encoding, array.shape, map_axes, codes.tobytes() + scale.astype("<f4").tobytes())


def decode(encoded: Encoded) -> np.ndarray:
    """Return the encoded array, up to rounding; NaN where absent."""
    encoding, shape, map_axes, data = encoded
    if encoding in PLAIN:
        return np.frombuffer(data, PLAIN[encoding]).reshape(shape)
    size = math.prod(shape)
    stored = (size + 1) // 2 if encoding == "u4" else size
    codes = np.frombuffer(data[:stored], np.uint8)
    if encoding == "u4":
        codes = np.stack((codes & 15, codes >> 4), -1).reshape(-1)[:size]
    maps = shape[: len(shape) - map_axes]
    scale = np.frombuffer(data[stored:], "<f4").reshape(*maps, *(1,) * map_axes)
    steps = codes.reshape(shape).astype(np.float32) - (128 if encoding == "s8" else 1)
    numbers = np.sign(steps) * np.square(steps / LEVELS[encoding]) * scale
    return np.where(codes.reshape(shape) == 0, np.float32(np.nan), numbers)
