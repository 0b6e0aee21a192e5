"""Colour maps of pictures and of the explorer: some colours each, at equal distances, and straight lines between them.

The first three are matplotlib's, perceptually uniform; ``cividis`` looks the same to people with a colour-vision
deficiency. ``jet`` is that of the seed thesis: only for ``style="thesis"``, because it shows edges that do not exist.
"""

import numpy as np

STOPS = {
    "inferno": "0000040b0724210c4a3d096557106e71196e8a226aa32c61bc3754d24644e45a31f1731df98e09fcac11f9cb35f2ea69fcffa4",
    "viridis": "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
    "cividis": "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c88789b9476aba072bcae6ccdbb63dec958f0d846fee838",
    "jet": "0000800000c80000ff0040ff0080ff00c0ff16ffe149ffad7dff7ab1ff46e4ff13ffd000ff9400ff5900ff1e00c40000800000",
    "orange": "3a1a00ff8c1affd9a0",
    "blue": "001a3a2a8cffb0d8ff",
    "signed": "1e64dc8cb4f0f5f5f5ffbe6edc6e00",
}
"""Colours as hexadecimal digits, one after the other, from nothing to the largest."""
OPACITY = 0.85  # of the largest number over a frame
PERCENTILE = 99.5  # of a map over the episode: the number of the last colour


def colour_table(name: str) -> np.ndarray:
    """Return 256 colours: uint8 ``[256, 3]``."""
    stops = np.frombuffer(bytes.fromhex(STOPS[name]), np.uint8).reshape(-1, 3)
    at = np.linspace(0, len(stops) - 1, 256)
    return np.stack([np.interp(at, np.arange(len(stops)), stops[:, c]) for c in range(3)], -1).round().astype(np.uint8)


def highest(maps: np.ndarray, default: float = 1.0) -> float:
    """Return the number at which the colours of maps end; ``default`` where they have no finite number."""
    present = maps[np.isfinite(maps)]
    return float(np.percentile(present, PERCENTILE)) if present.size else default


def to_pixels(cells: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Enlarge cells ``[p, q]`` to ``[y, x]`` pixels; cells stay rectangles."""
    rows, columns = (np.arange(n) * m // n for n, m in zip(size, cells.shape, strict=True))
    return cells[rows][:, columns]


def overlay(frame: np.ndarray, weights: np.ndarray, high: float, *, name: str = "inferno") -> np.ndarray:
    """Paint a map over a dark, grey frame; opacity follows the number.

    Args:
        frame: uint8 ``[y, x, 3]``.
        weights: ``[p, q]``, not negative; NaN counts as 0.
        high: number of the last colour.
        name: of the colours.

    Returns:
        uint8 ``[y, x, 3]``.
    """
    share = to_pixels(np.clip(np.nan_to_num(weights) / (high or 1), 0, 1), frame.shape[:2])
    grey = frame.mean(-1, keepdims=True)
    base = 0.6 * (0.3 * frame + 0.7 * grey)
    alpha = OPACITY * share[..., None] ** 0.7
    painted = colour_table(name)[(255 * share).round().astype(int)]
    return (base * (1 - alpha) + painted * alpha).round().astype(np.uint8)


def top_mask(frame: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Darken everything but the patches of the largest weights.

    Args:
        frame: uint8 ``[y, x, 3]``.
        weights: ``[p, q]``.
        share: of the patches that stay.

    Returns:
        uint8 ``[y, x, 3]``. Source: Temporal Latent Bottleneck (Didolkar et al. 2022), figures 2 and 7.
    """
    count = max(1, round(share * weights.size))
    kept = np.zeros(weights.size, bool)
    kept[np.argsort(-np.nan_to_num(weights).reshape(-1), kind="stable")[:count]] = True
    inside = to_pixels(kept.reshape(weights.shape), frame.shape[:2])
    return np.where(inside[..., None], frame, frame // 7)
