"""Colour maps of pictures and of the explorer: 17 colours each, and straight lines between them.

The first three are matplotlib's, perceptually uniform; ``cividis`` looks the same to people with a colour-vision
deficiency. ``jet`` is what the seed thesis used: only for ``style="thesis"``, because it invents edges.
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
OPACITY = 0.85
"""Of the largest number over a frame."""


def colour_table(name: str) -> np.ndarray:
    """256 colours: uint8 ``[256, 3]``."""
    stops = np.frombuffer(bytes.fromhex(STOPS[name]), np.uint8).reshape(-1, 3)
    at = np.linspace(0, len(stops) - 1, 256)
    return np.stack([np.interp(at, np.arange(len(stops)), stops[:, c]) for c in range(3)], -1).round().astype(np.uint8)


def overlay(frame: np.ndarray, weights: np.ndarray, high: float, *, name: str = "inferno") -> np.ndarray:
    """A map over a frame that is made grey and dark; opacity follows the number, patches stay patches.

    Args:
        frame: uint8 ``[y, x, 3]``.
        weights: ``[p, q]``, not negative; NaN counts as 0.
        high: number of the last colour.
        name: of the colours.

    Returns:
        uint8 ``[y, x, 3]``.
    """
    y, x, _ = frame.shape
    p, q = weights.shape
    share = np.clip(np.nan_to_num(weights) / (high or 1), 0, 1)[np.arange(y) * p // y][:, np.arange(x) * q // x]
    grey = frame.mean(-1, keepdims=True)
    base = 0.6 * (0.3 * frame + 0.7 * grey)
    alpha = OPACITY * share[..., None] ** 0.7
    painted = colour_table(name)[(255 * share).round().astype(int)]
    return (base * (1 - alpha) + painted * alpha).round().astype(np.uint8)


def top_mask(frame: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """The frame with everything dark but the patches of the largest weights.

    Args:
        frame: uint8 ``[y, x, 3]``.
        weights: ``[p, q]``.
        share: of the patches that stay.

    Returns:
        uint8 ``[y, x, 3]``. Source: Temporal Latent Bottleneck (Didolkar et al. 2022), figures 2 and 7.
    """
    y, x, _ = frame.shape
    p, q = weights.shape
    count = max(1, round(share * weights.size))
    kept = np.zeros(weights.size, bool)
    kept[np.argsort(-np.nan_to_num(weights).reshape(-1), kind="stable")[:count]] = True
    inside = kept.reshape(p, q)[np.arange(y) * p // y][:, np.arange(x) * q // x]
    return np.where(inside[..., None], frame, frame // 7)
