"""Encoders of images that read them in the light of a sentence: convolutions with FiLM, and their map as tokens.

    x <- (1 + gamma(l)) x + beta(l)           FiLM: per channel, from the sentence's vector l       (Perez et al. 2018)

    film-cnn              three 3x3 convolutions with stride 2, FiLM and ReLU after each; points      (ours)
    film-resnet           three stages of 3x3 stride 2 and two residual blocks, FiLM behind each      (Jang et al. 2022)
    film-efficientnet-b0  EfficientNet as transformers has it, FiLM behind every block; b3 alike     (Ryoo et al. 2023)

film-cnn also says *where* things are: the mean place of each channel of its first map, under a softmax over places
(spatial softmax). A move is nearly linear in such points, which a memory has as part of a token.

The map is a vector ordered row, column, channel; a core that reads tokens gets its places as tokens
(:class:`TokenJoin`), as the Token Turing Machine of Ryoo et al. 2023 (section 3.3) does.

Sources: Perez et al. 2018, FiLM: visual reasoning with a general conditioning layer; Jang et al. 2022, BC-Z, appendix;
Levine et al. 2016, End-to-end training of deep visuomotor policies (spatial softmax);
Ryoo et al. 2023, Token Turing Machines, section 3.3.2.

Differs: gamma and beta begin as 0, so that a new encoder reads images without the sentence. Ryoo et al. have 27 tokens
"after aggregation" and do not say how: here a learned summary (their equation 1) makes n - 1 tokens of the map where it
has more places, and the last token has everything else (the sentence, what was done and given). EfficientNets begin
with new weights; :meth:`FiLMEfficientNet.load_pretrained` takes published ones.
"""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from recollect.agents.image_encoders import ResidualBlock
from recollect.agents.spaces import sides
from recollect.cores.ttm.summarizers import make_summarizer
from recollect.ops.linear import Linear

SMALLEST = 16
"""Shortest side of an image that leaves a map of at least two places."""


PLACE_STD = 0.2
"""Deviation of the first numbers of the table of places, in :class:`TokenJoin`."""


SHARPNESS = 10.0
"""First factor on what the softmax over places reads: the brightest places count, and not the mean of all."""


class FiLM(nn.Module):
    """Scales and shifts channels as a vector says.

    Args:
        condition: width of the vector.
        channels: of the map.
    """

    def __init__(self, condition: int, channels: int) -> None:
        super().__init__()
        self.map = nn.Linear(condition, 2 * channels)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """``[n, c, y, x]`` and ``[n, condition]`` -> ``[n, c, y, x]``."""
        gamma, beta = self.map(condition)[..., None, None].chunk(2, 1)
        return x * (1 + gamma) + beta


class FiLMEncoder(nn.Module):
    """Base of the encoders of this file.

    Args:
        space: Box of images, bytes or floats.
        condition: width of the sentence's vector.
        channels: widths of the three stages; None: ``default_channels``.
        scale: divide uint8 by 255.

    Raises:
        ValueError: a space that holds no images, or too small ones.
    """

    default_channels: tuple[int, ...] = (16, 32, 64)
    keeps_statistics = False
    points = 0
    """Points that it gives beside the map, two numbers each."""

    def __init__(
        self, space: spaces.Space[Any], condition: int, channels: tuple[int, ...] | None, *, scale: bool
    ) -> None:
        super().__init__()
        if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
            raise ValueError(f"{space} holds no images: they are Boxes [y, x, c], [c, y, x] or [y, x]")
        self.sides = sides(space.shape)
        if min(self.sides[:2]) < SMALLEST:
            raise ValueError(
                f"images of {self.sides[0]} x {self.sides[1]} are too small: give {SMALLEST} pixels a side"
            )
        y, x, c = self.sides
        self.axes = len(space.shape)
        self.channels_first = len(space.shape) == 3 and space.shape == (c, y, x) and space.shape != (y, x, c)
        self.scale = 1 / 255 if space.dtype == np.uint8 and scale else 1.0
        self.channels = channels or self.default_channels
        self.build(c, condition)
        with torch.no_grad():
            map_shape = self.convolve(torch.zeros(1, c, y, x), torch.zeros(1, condition))[0].shape[1:]
        self.places, self.depth = map_shape[1] * map_shape[2], map_shape[0]
        """Places of the map, and channels at each."""
        self.dim = self.places * self.depth + 2 * self.points
        self.register_buffer("like", torch.zeros(()), persistent=False)

    like: Tensor
    """A scalar of the dtype that the layers compute in."""

    @abstractmethod
    def build(self, channels: int, condition: int) -> None:
        """Make the layers, for images of so many channels."""

    @abstractmethod
    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, Tensor | None]:
        """``[n, c, y, x]`` and ``[n, condition]`` to a map ``[n, depth, y', x']``, and points ``[n, 2 points]``."""

    def forward(self, observation: Tensor, condition: Tensor) -> Tensor:
        """``[n, *space.shape]`` and ``[n, condition]`` -> ``[n, dim]``: the map, ordered y, x, channel; points."""
        if self.axes == 2:
            observation = observation[..., None]
        images = observation if self.channels_first else observation.permute(0, 3, 1, 2)
        images = images.to(self.like.dtype, memory_format=torch.channels_last) * self.scale
        seen, points = self.convolve(images, condition)
        flat = seen.permute(0, 2, 3, 1).flatten(1)
        return flat if points is None else torch.cat((flat, points), 1)


class FiLMCNN(FiLMEncoder):
    """Three 3x3 convolutions with stride 2; FiLM and ReLU after each. 32 x 32 pixels become 4 x 4 places.

    Points are the mean places of the channels of the first map, under a softmax with a learned sharpness.
    """

    sharpness: Tensor

    def build(self, channels: int, condition: int) -> None:
        """Three convolutions."""
        widths = (channels, *self.channels)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.films = nn.ModuleList(FiLM(condition, width) for width in self.channels)
        self.points = self.channels[0]
        self.sharpness = nn.Parameter(torch.full((self.points, 1), SHARPNESS))

    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """``[n, 3, 32, 32] -> [n, 64, 4, 4]`` and 16 points for images of 32 x 32."""
        points = None
        for convolution, film in zip(self.convolutions, self.films, strict=True):
            images = film(convolution(images), condition)
            if points is None:
                points = self.mean_places(images)
            images = F.relu(images)
        assert points is not None
        return images, points

    def mean_places(self, maps: Tensor) -> Tensor:
        """Rows, then columns, in [-1, 1], of the places of each channel: ``[n, c, y, x] -> [n, 2 c]``."""
        y, x = maps.shape[2:]
        shares = (maps.flatten(2) * self.sharpness).softmax(-1).unflatten(2, (y, x))
        rows = shares.sum(3) @ torch.linspace(-1, 1, y, device=maps.device, dtype=maps.dtype)
        columns = shares.sum(2) @ torch.linspace(-1, 1, x, device=maps.device, dtype=maps.dtype)
        return torch.cat((rows, columns), 1)


class FiLMResNet(FiLMEncoder):
    """Three stages: a 3x3 convolution with stride 2 and two residual blocks, FiLM behind each; ReLU at the end."""

    def build(self, channels: int, condition: int) -> None:
        """Three stages."""
        widths = (channels, *self.channels)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.blocks = nn.ModuleList(ResidualBlock(width) for width in self.channels for _ in range(2))
        self.films = nn.ModuleList(FiLM(condition, width) for width in self.channels for _ in range(2))

    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, None]:
        """``[n, 3, 32, 32] -> [n, 64, 4, 4]`` for images of 32 x 32."""
        layers: Iterator[Any] = zip(self.blocks, self.films, strict=True)
        for convolution in self.convolutions:
            images = convolution(images)
            for _ in range(2):
                block, film = next(layers)
                images = film(block(images), condition)
        return F.relu(images), None


class FiLMEfficientNet(FiLMEncoder):
    """EfficientNet B0: its stem and blocks, FiLM after each block. Needs the extra ``backbones``."""

    depth_factor, width_factor = 1.0, 1.0
    """How much deeper and wider than B0 it is."""

    def build(self, channels: int, condition: int) -> None:
        """The network with new weights.

        Raises:
            ValueError: the package transformers is missing.
        """
        try:
            from transformers import EfficientNetConfig, EfficientNetModel
        except ImportError:
            raise ValueError("it needs the package transformers: pip install 'transformers>=5,<6'") from None
        config = EfficientNetConfig(
            num_channels=channels, depth_coefficient=self.depth_factor, width_coefficient=self.width_factor
        )
        config.hidden_dim = -(-int(1280 * self.width_factor) // 8) * 8
        self.network = EfficientNetModel(config)
        blocks: Any = self.network.encoder.blocks
        _begin_anew(self.network)
        self.films = nn.ModuleList(FiLM(condition, block.projection.project_bn.num_features) for block in blocks)

    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, None]:
        """``[n, 3, 224, 224] -> [n, 320, 7, 7]`` for images of 224 x 224. Its batch norms keep what they know."""
        network: Any = self.network.eval()  # one stream of frames is no batch
        images = network.embeddings(images)
        for block, film in zip(network.encoder.blocks, self.films, strict=True):
            images = film(block(images), condition)
        return images, None

    def load_pretrained(self, name: str) -> None:
        """Take the weights of a published network of the same size, from a folder or a hub's name."""
        from transformers import EfficientNetModel

        self.network.load_state_dict(EfficientNetModel.from_pretrained(name).state_dict())


def _begin_anew(network: Any) -> None:
    """First weights with which maps keep their size: those of transformers are for fine-tuning and leave nothing."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in network.encoder.blocks:
        if not block.projection.apply_dropout:  # nothing goes around this block
            nn.init.constant_(block.projection.project_bn.weight, 2.5)


class FiLMEfficientNetB3(FiLMEfficientNet):
    """The same in the size B3: 1.4 times as deep, 1.2 times as wide."""

    depth_factor, width_factor = 1.4, 1.2


FILM_ENCODERS: dict[str, type[FiLMEncoder]] = {
    "film-cnn": FiLMCNN,
    "film-resnet": FiLMResNet,
    "film-efficientnet-b0": FiLMEfficientNet,
    "film-efficientnet-b3": FiLMEfficientNetB3,
}


class TokenJoin(nn.Module):
    """A vector that holds maps and other numbers to n tokens: n - 1 of the map, and one of all the rest.

    Args:
        dim: width of the vector.
        at: where the map begins in it.
        places: of the map.
        depth: channels at each place.
        shape: n and the width of a token.

    Raises:
        ValueError: the core asks for more tokens than there are.
    """

    def __init__(self, dim: int, at: int, places: int, depth: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        tokens, width = shape
        if not 2 <= tokens <= places + 1:
            raise ValueError(
                f"num_tokens={tokens}: an image of {places} places gives 2 to {places + 1} tokens, the last of all else"
            )
        self.split = (at, places * depth, dim - at - places * depth)
        self.shape = (places, depth)
        self.image = Linear(depth, width)
        self.rest = Linear(dim - places * depth, width)
        self.gather = None if tokens == places + 1 else make_summarizer("mlp", width, tokens - 1, range(places))
        # As large as what is seen at a place: cores add tables too, but small ones, and where a thing is matters here.
        self.table = nn.Parameter(PLACE_STD * torch.randn(places, width))

    def forward(self, joined: Tensor) -> Tensor:
        """``[..., dim] -> [..., n * width]``, token by token."""
        before, maps, behind = joined.split(self.split, -1)
        tokens = self.image(maps.unflatten(-1, self.shape)) + self.table
        if self.gather is not None:
            tokens = self.gather(tokens)
        rest = self.rest(torch.cat((before, behind), -1))
        return torch.cat((tokens, rest[..., None, :]), -2).flatten(-2)
