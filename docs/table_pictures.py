"""Makes the pictures of docs/robots.md: ``python docs/table_pictures.py`` (seconds). The oracle plays."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from recollect.tasks import TASKS, WorldConfig

ASSETS = Path(__file__).parent / "assets"
KEYS = ("goal-shown-once", "order-shown-once", "covered-objects")
FRAMES, LARGER, GAP = 8, 2, 4
"""Stills of an episode, pixels along a pixel, and white pixels between stills."""


def main() -> None:
    """One strip a world."""
    for key in KEYS:
        config = TASKS[key](delay=4, side=64)  # type: ignore[call-arg]
        assert isinstance(config, WorldConfig)
        world = config.build(1, seed=4)
        step, stills = world.reset(), []
        while True:
            stills.append(step.observation["image"][0].numpy())
            if step.is_last.all():
                break
            action = world.oracle()
            assert isinstance(action, torch.Tensor)
            step = world.step(action)
        chosen = np.linspace(0, len(stills) - 1, FRAMES).round().astype(int)
        Image.fromarray(strip([world_picture(stills[at]) for at in chosen])).save(ASSETS / f"{key}.png", optimize=True)


def world_picture(still: np.ndarray) -> np.ndarray:
    """Larger."""
    return still.repeat(LARGER, 0).repeat(LARGER, 1)


def strip(stills: list[np.ndarray]) -> np.ndarray:
    """Side by side."""
    gap = np.full((stills[0].shape[0], GAP, 3), 255, np.uint8)
    parts = [part for still in stills for part in (still, gap)]
    return np.concatenate(parts[:-1], 1)


if __name__ == "__main__":
    main()
