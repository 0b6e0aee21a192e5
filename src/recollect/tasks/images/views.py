"""Augmented views of pictures for self-supervised learning: rotation, random crops, colour jitter and corruption.

    view        a random part of the picture (half to all of its area) at its old size, mirrored half of the time,
                with another brightness, contrast and saturation, and grey with probability 1/10
    corruption  boxes of 1/20 to 1/4 of a side: one grey, one blurred, four of noise, four of another picture

Source: Ahmed et al., SiT: Self-supervised Vision Transformer (2021), section 3 and its code (commit 1767b91).
Differs: strengths of the colour jitter, the number of boxes and applying all four corruptions are ours; the code
draws noise until up to 30 % of the pixels are gone (four boxes are 25 % at most).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

AREA = (0.5, 1.0)
JITTER = 0.4
GREY_ODDS = 0.1
BOX_SIDES = (0.05, 0.25)
BOXES = 4
GREY = (0.2989, 0.587, 0.114)


def rotate(images: Tensor, quarters: Tensor) -> Tensor:
    """Rotate pictures ``[b, c, y, x]`` counter-clockwise by 0 to 3 quarters, long ``[b]``."""
    found = images.clone()
    for quarter in (1, 2, 3):
        rows = quarters == quarter
        found[rows] = torch.rot90(images[rows], quarter, (2, 3))
    return found


def random_view(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a random view of every picture ``[b, 3, y, x]``, 0..1."""
    b = len(images)
    drawn = torch.rand(8, b, generator=generator)
    side = (AREA[0] + (AREA[1] - AREA[0]) * drawn[0]).sqrt()
    mirror = torch.where(drawn[1] < 0.5, -1.0, 1.0)
    zero = torch.zeros(b)
    middle_x, middle_y = ((1 - side) * (2 * drawn[i] - 1) for i in (2, 3))
    cut = torch.stack((torch.stack((mirror * side, zero, middle_x), 1), torch.stack((zero, side, middle_y), 1)), 1)
    grid = F.affine_grid(cut, list(images.shape), align_corners=False)
    found = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    bright, contrast, saturation = (1 + JITTER * (2 * drawn[i].view(b, 1, 1, 1) - 1) for i in (4, 5, 6))
    saturation = torch.where(drawn[7].view(b, 1, 1, 1) < GREY_ODDS, 0.0, saturation)
    found = found * bright
    found = torch.lerp(found.mean((1, 2, 3), keepdim=True), found, contrast)
    return torch.lerp(to_grey(found), found, saturation).clamp(0, 1)


def corrupt(images: Tensor, generator: torch.Generator) -> Tensor:
    """Corrupt pictures ``[b, 3, y, x]`` with boxes of grey, blur, noise and the next picture of the batch."""
    noise = torch.rand(images.shape, generator=generator)
    blurred = F.avg_pool2d(F.avg_pool2d(images, 5, 1, 2, count_include_pad=False), 5, 1, 2, count_include_pad=False)
    for number, inside in ((1, to_grey(images)), (1, blurred), (BOXES, noise), (BOXES, images.roll(1, 0))):
        images = torch.where(draw_boxes(images, number, generator)[:, None], inside, images)
    return images


def draw_boxes(images: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Draw a mask of boxes for each picture, bool ``[b, y, x]``."""
    b, _, y, x = images.shape
    drawn = torch.rand(4, b, number, 1, generator=generator)
    found = []
    for pixels, side, place in ((y, drawn[0], drawn[1]), (x, drawn[2], drawn[3])):
        long = BOX_SIDES[0] + (BOX_SIDES[1] - BOX_SIDES[0]) * side
        begin, places = place * (1 - long), (torch.arange(pixels) + 0.5) / pixels
        found.append((places >= begin) & (places < begin + long))
    return (found[0][..., :, None] & found[1][..., None, :]).any(1)


def to_grey(images: Tensor) -> Tensor:
    """Set all channels to the luminance."""
    weights = torch.tensor(GREY, device=images.device, dtype=images.dtype).view(3, 1, 1)
    return (images * weights).sum(1, keepdim=True).expand_as(images)
