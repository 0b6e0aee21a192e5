"""Tiles as symbols, and small pictures of worlds."""

from types import SimpleNamespace

import numpy as np
import torch

from recollect.tasks.worlds.pictures import SIDE, draw_observation, small_picture
from recollect.tasks.worlds.tile_pictures import CLOSED_BOX, COLOURS, NO_SHAPE, TilePictures, image_space, picture


def test_every_tile_has_its_three_symbols():
    tiles = [(b, s, c) for b in range(CLOSED_BOX + 1) for s in range(NO_SHAPE + 1) for c in range(len(COLOURS))]
    numbers = torch.stack([picture(*tile) for tile in tiles])
    shown = TilePictures("tiles", torch.zeros(1, 1, dtype=torch.long)).show(numbers[:, None], torch.zeros_like(numbers))
    expected = [(b, 0, 0) if s == NO_SHAPE else (b, s + 1, c + 1) for b, s, c in tiles]
    assert shown.flatten(1).tolist() == list(map(list, expected))
    assert all(image_space("tiles", 1).contains(one) for one in shown.numpy())


def test_small_pictures_are_means_over_squares_of_the_shorter_side():
    drawn = np.random.default_rng(0).integers(0, 256, (3 * SIDE + 2, 7 * SIDE, 3), dtype=np.uint8)
    for image in (drawn, drawn.swapaxes(0, 1)):
        small = small_picture(SimpleNamespace(render=lambda row, image=image: image), None, 0)
        tall, wide = (size // 3 for size in image.shape[:2])
        blocks = image[: tall * 3, : wide * 3].astype(float).reshape(tall, 3, wide, 3, 3)
        np.testing.assert_array_equal(small, blocks.mean((1, 3)).astype(np.uint8))
    slim = drawn[:SIDE]  # its longer side is as large
    assert small_picture(SimpleNamespace(render=lambda row: slim), None, 0).shape == slim.shape


def test_the_newest_frame_of_a_stack_is_drawn_whichever_axis_is_that_of_frames():
    frames = np.random.default_rng(0).integers(0, 256, (4, 20, 18), dtype=np.uint8)
    for stack in (frames, np.moveaxis(frames, 0, 2)):
        np.testing.assert_array_equal(
            draw_observation(torch.from_numpy(stack)[None], 0), frames[3][..., None].repeat(3, 2)
        )
