"""Encoders of images: convolutional networks, each as published.

    ballet-cnn      9x9 stride 9, 3x3, 3x3; ReLU after each                       (Lampinen et al. 2021, appendix A)
    impala-resnet   three stages of 3x3, pooling and two residual blocks          (Espeholt et al., 2018)
    impala-resnet-instance-norm   the same, its last map normalised frame by frame  (Ulyanov et al., 2016)
    nature-cnn      8x8 stride 4, 4x4 stride 2, 3x3; ReLU after each              (Mnih et al., 2015)
    patches-7       a linear map of every 7x7 pixels; also -14 and -28            (Dosovitskiy et al., 2021)

Images may be [y, x, c], [c, y, x] or [y, x], bytes or floats.

Differs: the padding of ballet-cnn's 3x3 convolutions is not published; here they keep the size, 11 x 11.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from recollect.agents.normalization import RunningNorm
from recollect.agents.spaces import sides
from recollect.layers.feedforward import init_lecun
from recollect.learners import present
from recollect.ops import allocation
from recollect.ops.linear import Linear
from recollect.ops.packed_linear import working_dtype

LARGEST_MAP = allocation.LARGEST  # bytes. Larger tensors get new memory pages from the system at every use
STATISTICS_BLOCK = 256  # images per update of float64 statistics


class Encoder(nn.Module, ABC):
    """Base of the encoders, from one part of an observation to a vector."""

    dim: int  # width of the vector
    keeps_statistics: bool = False  # whether it has running statistics

    @abstractmethod
    def forward(self, observation: Tensor) -> Tensor:
        """Encode observations ``[n, *space.shape]`` as features ``[n, dim]``."""

    def update_statistics(self, observation: Tensor) -> None:
        """Update running statistics with ``[n, *space.shape]``."""
        return


@contextmanager
def accept_float_images(agent: nn.Module) -> Iterator[None]:
    """Let encoders of byte images accept floats 0..255 too, for interpolated images, within a context."""
    encoders: list[Any] = [module for module in agent.modules() if hasattr(module, "accepts_floats")]
    before = [encoder.accepts_floats for encoder in encoders]
    for encoder in encoders:
        encoder.accepts_floats = True
    try:
        yield
    finally:
        for encoder, took in zip(encoders, before, strict=True):
            encoder.accepts_floats = took


def require_image_dtype(observation: Tensor, *, is_float: bool) -> None:
    """Raise ``ValueError`` unless images are floats, or bytes, as the space that an encoder was built for."""
    if observation.is_floating_point() != is_float:
        wanted = "floats" if is_float else "bytes 0..255"
        raise ValueError(
            f"images have dtype {observation.dtype}: this agent was built for {wanted}; give images of its observation "
            "space"
        )


class ImageEncoder(Encoder):
    """Base of the image encoders: any layout and number type to a convolutional network, and its map to a vector.

    Convolutions use the images' own memory layout (channels last), and the scale 1 / 255 is applied to the first
    filters instead of all pixels. A processor takes many images in blocks whose maps stay below :data:`LARGEST_MAP`;
    numbers change only by rounding.

    With ``norm`` every pixel has mean 0 and variance 1 over the running statistics. In many games one pixel in a
    hundred ever changes: without it the constant background dominates the vector for long (docs/log.md).

    Args:
        space: Box of images.
        channels: widths of the three stages (the last one's for patches); None: ``default_channels``.
        scale: divide uint8 by 255.
        dim: width of a layer with ReLU after the map; None: the map is the vector.
        norm: normalise every pixel by running statistics.

    Raises:
        ValueError: a space without images, or with too small ones.
    """

    first: nn.Conv2d
    default_channels: tuple[int, ...] = (16, 32, 32)
    map_sides: tuple[int, int]  # rows and columns of the last map
    smallest = 1  # shortest side of an image
    accepts_floats = False  # whether an encoder of bytes accepts floats 0..255 too; see `accept_float_images`

    def __init__(
        self,
        space: spaces.Space[Any],
        channels: tuple[int, ...] | None = None,
        *,
        scale: bool = True,
        dim: int | None = None,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.sides, self.channels_first = image_layout(space, self.smallest, type(self).__name__)
        y, x, c = self.sides
        self.axes = len(space.shape or ())
        self.is_float = np.issubdtype(space.dtype, np.floating)
        self.scale = 1 / 255 if space.dtype == np.uint8 and scale else 1.0
        self.channels = channels or self.default_channels
        self.build()
        places = self.map_sides[0] * self.map_sides[1] * self.channels[-1]
        self.project = nn.Identity() if dim is None else nn.Sequential(Linear(places, dim), nn.ReLU())
        self.dim = places if dim is None else dim
        self.norm = RunningNorm(y * x * c) if norm else None
        self.keeps_statistics = norm

    @abstractmethod
    def build(self) -> None:
        """Make the layers, from ``sides`` and ``channels``, and set ``map_sides``."""

    @abstractmethod
    def convolve(self, first: Tensor) -> Tensor:
        """Apply the layers after the first convolution: ``[n, c, y, x] -> [n, channels[-1], *map_sides]``."""

    def forward(self, observation: Tensor) -> Tensor:
        """Encode images ``[n, *space.shape]`` as features ``[n, dim]``; a map is flattened in the order y, x, channel.

        Raises:
            ValueError: bytes where the space has floats, or floats where it has bytes.
        """
        if not self.accepts_floats:
            require_image_dtype(observation, is_float=self.is_float)
        if observation.device.type != "cpu" or torch.compiler.is_compiling():
            return self.project(self.encode(observation))
        y, x, c = self.sides
        widest = max(c, self.channels[0]) if self.first.stride == (1, 1) else c
        block = max(1, LARGEST_MAP // (y * x * widest * working_dtype(self.first.weight).itemsize))
        if len(observation) <= block:
            return self.project(self.encode(observation))
        return self.project(torch.cat([self.encode(part) for part in observation.split(block)]))

    def encode(self, observation: Tensor) -> Tensor:
        """Encode one block of images."""
        weight = self.first.weight
        if self.norm is not None:
            observation = self.norm(self._scaled(observation)).view(observation.shape)
        if self.axes == 2:
            observation = observation[..., None]
        images = observation if self.channels_first else observation.permute(0, 3, 1, 2)
        images = images.to(weight.dtype, memory_format=torch.channels_last)
        if self.scale != 1 and self.norm is None:
            weight = weight * self.scale
        first = F.conv2d(images, weight, self.first.bias, self.first.stride, self.first.padding)
        return self.convolve(first).permute(0, 2, 3, 1).flatten(1)

    def update_statistics(self, observation: Tensor) -> None:
        """Update the running statistics, if there are any, with ``[n, *space.shape]``."""
        if self.norm is not None:
            parts = observation.split(STATISTICS_BLOCK)
            # Every learner takes part in all updates, also one with fewer images.
            missing = max(present().gather(len(parts))) - len(parts)
            for part in (*parts, *[observation[:0]] * missing):
                self.norm.update(self._scaled(part))

    def _scaled(self, observation: Tensor) -> Tensor:
        return observation.flatten(1).to(self.first.weight.dtype) * self.scale


class BalletCNN(ImageEncoder):
    """One tile of nine pixels per cell, then two 3x3 convolutions that keep the size; ReLU after each."""

    smallest = 9

    def build(self) -> None:
        """Build the encoder of images, three convolutions."""
        y, x, c = self.sides
        one, two, three = self.channels
        self.first = nn.Conv2d(c, one, 9, stride=9)
        self.second = nn.Conv2d(one, two, 3, padding=1)
        self.third = nn.Conv2d(two, three, 3, padding=1)
        self.map_sides = (y // 9, x // 9)

    def convolve(self, first: Tensor) -> Tensor:
        """Return the map of the third convolution: ``[n, 16, 11, 11] -> [n, 32, 11, 11]`` for images of 99 x 99."""
        return F.relu(self.third(F.relu(self.second(F.relu(first)))))


class ResidualBlock(nn.Module):
    """``x + conv(relu(conv(relu(x))))``, with ``channels`` in and out."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Add two convolutions of a map ``[n, c, y, x]`` to it."""
        return x + self.two(F.relu(self.one(F.relu(x))))


class ImpalaResNet(ImageEncoder):
    """Three stages of 3x3 convolution, 3x3 max pooling with stride 2 and two residual blocks; a ReLU at the end.

    84 x 84 pixels become maps of 42, 21 and 11; 97 744 parameters with 4 input channels.
    """

    def build(self) -> None:
        """Make three stages: convolution, pooling and two residual blocks each."""
        y, x, c = self.sides
        widths = (c, *self.channels)
        convolutions = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths)]
        self.first = convolutions[0]
        self.later = nn.ModuleList(convolutions[1:])
        self.blocks = nn.ModuleList(nn.Sequential(ResidualBlock(b), ResidualBlock(b)) for b in self.channels)
        for _ in self.channels:
            y, x = (y + 1) // 2, (x + 1) // 2
        self.map_sides = (y, x)

    def convolve(self, first: Tensor) -> Tensor:
        """Return the map of the residual stages: ``[n, 16, 84, 84] -> [n, 32, 11, 11]`` for images of 84 x 84."""
        x = self.blocks[0](F.max_pool2d(first, 3, 2, 1))
        for convolution, blocks in zip(self.later, self.blocks[1:], strict=True):  # type: ignore[arg-type]
            x = blocks(F.max_pool2d(convolution(x), 3, 2, 1))
        return F.relu(x)


class ImpalaResNetInstanceNorm(ImpalaResNet):
    """ImpalaResNet with zero initial biases, whose last map is normalised per channel over the places of a frame.

    With torch's initial weights, maps of different frames and places are nearly equal. Attention to places is initially
    their mean, which then hardly depends on the frame (docs/log.md). Sources: Ulyanov et al. 2016, Instance
    normalization; initial weights of :func:`init_lecun`, as in IMPALA's own code.
    """

    def build(self) -> None:
        """Make the three stages of :class:`ImpalaResNet`, and draw their first weights as its authors do."""
        super().build()
        if self.map_sides == (1, 1):
            y, x, _ = self.sides
            raise ValueError(
                f"images of {y} x {x} become a map of one place, over which there is no mean: give images of more than "
                "8 pixels a side, or choose impala-resnet"
            )
        init_lecun(self)

    def convolve(self, first: Tensor) -> Tensor:
        """Return the map of the residual stages: ``[n, 16, 84, 84] -> [n, 32, 11, 11]`` for images of 84 x 84."""
        return F.instance_norm(super().convolve(first))


class NatureCNN(ImageEncoder):
    """Convolutions 8x8 stride 4, 4x4 stride 2 and 3x3; ReLU after each."""

    smallest = 36
    default_channels = (32, 64, 64)

    def build(self) -> None:
        """Build the encoder of images, three convolutions."""
        y, x, c = self.sides
        one, two, three = self.channels
        self.first = nn.Conv2d(c, one, 8, stride=4)
        self.second = nn.Conv2d(one, two, 4, stride=2)
        self.third = nn.Conv2d(two, three, 3)
        self.map_sides = (((y - 4) // 4 - 2) // 2 - 2, ((x - 4) // 4 - 2) // 2 - 2)

    def convolve(self, first: Tensor) -> Tensor:
        """Return the map of the later convolutions: ``[n, 32, 20, 20] -> [n, 64, 7, 7]`` for images of 84 x 84."""
        return F.relu(self.third(F.relu(self.second(F.relu(first)))))


class Patches(ImageEncoder):
    """A linear map of every patch: one convolution whose stride is its side, ``channels[-1]`` wide.

    The tokens of a Vision Transformer; a residual network's map is its hybrid form (Dosovitskiy et al. 2021, section
    3.1; George 2021, sections 2.8 and 4.2.7).
    """

    side: ClassVar[int]  # side of a patch in pixels

    def build(self) -> None:
        """Make the convolution that cuts images into patches."""
        y, x, c = self.sides
        if y % self.side or x % self.side:
            raise ValueError(
                f"images of {y} x {x} cannot be divided into patches of {self.side} x {self.side}: choose a divisor of "
                "both sides (patches-7, patches-14, patches-28), or another kind"
            )
        self.first = nn.Conv2d(c, self.channels[-1], self.side, stride=self.side)
        self.map_sides = (y // self.side, x // self.side)

    def convolve(self, first: Tensor) -> Tensor:
        """Return ``[n, 16, 12, 12]`` unchanged, for images of 84 x 84, patches of 7 and 16 channels."""
        return first


class Patches7(Patches):
    """Patches of 7 x 7 pixels."""

    side = 7


class Patches14(Patches):
    """Patches of 14 x 14 pixels."""

    side = 14


class Patches28(Patches):
    """Patches of 28 x 28 pixels."""

    side = 28


IMAGE_ENCODERS: dict[str, type[ImageEncoder]] = {
    "ballet-cnn": BalletCNN,
    "impala-resnet": ImpalaResNet,
    "impala-resnet-instance-norm": ImpalaResNetInstanceNorm,
    "nature-cnn": NatureCNN,
    "patches-7": Patches7,
    "patches-14": Patches14,
    "patches-28": Patches28,
}


def image_layout(space: spaces.Space[Any], smallest: int, reader: str) -> tuple[tuple[int, int, int], bool]:
    """Return the sides (rows, columns, channels) of a space's images, and whether channels come first.

    Raises:
        ValueError: a space without images, or with images smaller than ``smallest`` for a ``reader``.
    """
    shape = space.shape
    if not isinstance(space, spaces.Box) or shape is None or len(shape) not in (2, 3):
        raise ValueError(f"{space} holds no images: they are Boxes [y, x, c], [c, y, x] or [y, x]")
    y, x, c = sides(shape)
    if min(y, x) < smallest:
        raise ValueError(
            f"images of {y} x {x} are too small for {reader}, which needs {smallest} x {smallest}: choose another kind"
        )
    return (y, x, c), len(shape) == 3 and shape == (c, y, x) and shape != (y, x, c)
