"""Pictures of a row, for videos and windows.

A world with a method ``render(row)`` draws itself, as a Gymnasium environment with ``render_mode="rgb_array"`` does.
For others the observation is drawn: images unchanged, symbols as coloured tiles, vectors as a strip of grey cells,
words not at all.
"""

from __future__ import annotations

import colorsys
from typing import Any

from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import World

SIDE = 160
"""Pictures are enlarged until their shorter side has about this many pixels."""


def picture(world: World, observation: Any, row: int) -> np.ndarray:
    """Return the picture of a row.

    Args:
        world: the world.
        observation: of all rows: ``step.observation``.
        row: index of the row.

    Returns:
        uint8 ``[y, x, 3]``.
    """
    return _enlarge(_drawn(world, observation, row))


def small_picture(world: World, observation: Any, row: int) -> np.ndarray:
    """Return :func:`picture` without enlargement; large pictures have about :data:`SIDE` pixels on their shorter side.

    An explorer keeps one of them for every step.
    """
    found = _drawn(world, observation, row)
    factor = max(1, min(found.shape[:2]) // SIDE)
    if factor == 1:
        return found
    tall, wide = (size // factor for size in found.shape[:2])
    blocks = found[: tall * factor, : wide * factor].reshape(tall, factor, wide, factor, 3)
    return blocks.mean((1, 3)).astype(np.uint8)


def shows_image(space: gymnasium.Space[Any]) -> bool:
    """Return whether a part of an observation is an image: a Box of bytes with three axes."""
    if isinstance(space, gymnasium.spaces.Dict):
        return any(map(shows_image, space.values()))
    return isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def _drawn(world: World, observation: Any, row: int) -> np.ndarray:
    draw = getattr(world, "render", None)
    return np.ascontiguousarray(draw(row) if draw else draw_observation(observation, row), dtype=np.uint8)


def draw_observation(observation: Any, row: int) -> np.ndarray:
    """Draw an observation of any world: uint8 ``[y, x, 3]``, small; the parts of a dict below each other."""
    if isinstance(observation, dict):
        parts = [part for name, part in observation.items() if name != "language"] or list(observation.values())
        drawn = [_enlarge(draw_observation(part, row)) for part in parts]
        width = max(part.shape[1] for part in drawn)
        return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]), (0, 0))) for part in drawn])
    return _draw(observation[row].detach().cpu())


def _draw(values: torch.Tensor) -> np.ndarray:
    array = values.numpy()
    if array.ndim == 3:
        if array.dtype == np.uint8:
            if array.shape[-1] in (1, 3):
                return np.broadcast_to(array, (*array.shape[:2], 3))
            newest = array[-1] if array.shape[0] < array.shape[2] else array[..., -1]  # of a stack of frames
            return np.repeat(newest[:, :, None], 3, 2)
        array = array.reshape(array.shape[0], -1)
    if array.ndim == 2 and not np.issubdtype(array.dtype, np.floating):
        return _tiles(array)
    strip = array.reshape(array.shape[0] if array.ndim == 2 else 1, -1).astype(np.float64)
    # Squashed, because numbers may be unbounded: -inf is black, 0 is grey, inf is white.
    grey = (255 * (0.5 + 0.5 * np.tanh(np.nan_to_num(strip)))).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, 2)


def _tiles(symbols: np.ndarray) -> np.ndarray:
    """Draw every symbol in its own colour, 0 in black."""
    kinds, place = np.unique(symbols, return_inverse=True)
    golden = (5**0.5 - 1) / 2  # neighbouring symbols have very different hues
    hues = [colorsys.hsv_to_rgb(int(kind) * golden % 1, 0.7, 0.9 if kind else 0.0) for kind in kinds]
    return (255 * np.array(hues)).astype(np.uint8)[place.reshape(symbols.shape)]


def _enlarge(small: np.ndarray) -> np.ndarray:
    factor = max(1, SIDE // min(max(small.shape[0], small.shape[1] // 8), SIDE))
    return small.repeat(factor, 0).repeat(factor, 1)
