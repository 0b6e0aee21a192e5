"""Image encoders with FiLM: a sentence scales and shifts their channels, and their map may become tokens.

    x <- (1 + gamma(l)) x + beta(l)           FiLM: per channel, from the sentence's vector l       (Perez et al. 2018)

    film-cnn              three 3x3 convolutions with stride 2, FiLM and ReLU after each; points      (ours)
    film-resnet           three stages of 3x3 stride 2 and two residual blocks, FiLM after each       (Jang et al. 2022)
    film-efficientnet-b0  EfficientNet of transformers, FiLM after every block; b3 alike              (Ryoo et al. 2023)

film-cnn also returns points: the mean position of each channel of its first map, under a softmax over positions
(spatial softmax). A movement is nearly linear in such points, which a memory gets as part of a token.

The map is a vector ordered row, column, channel; a core that reads tokens gets its positions as tokens
(:class:`TokenJoin`), as the Token Turing Machine of Ryoo et al. 2023 (section 3.3) does.

Sources: Perez et al. 2018, FiLM: visual reasoning with a general conditioning layer; Jang et al. 2022, BC-Z, appendix;
Levine et al. 2016, End-to-end training of deep visuomotor policies (spatial softmax);
Ryoo et al. 2023, Token Turing Machines, section 3.3.2.

Differs: gamma and beta are initially 0, so that a new encoder ignores the sentence. Ryoo et al. have 27 tokens "after
aggregation" without saying how: here a learned summary (their equation 1) makes n - 1 tokens of the map where it has
more positions, and the last token has everything else (the sentence, previous action and reward). EfficientNets have
random initial weights; :meth:`FiLMEfficientNet.load_pretrained` loads published ones.
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

from recollect.agents.image_encoders import ResidualBlock, image_layout, require_image_dtype
from recollect.cores.ttm.summarizers import make_summarizer
from recollect.ops.linear import Linear

SMALLEST = 16  # shortest side of an image whose map has at least two positions
PLACE_STD = 0.2  # standard deviation of the initial position table of `TokenJoin`
SHARPNESS = 10.0
"""Initial factor before the softmax over positions, so that the brightest ones count and not the mean of all."""


class FiLM(nn.Module):
    """Scale and shift of a map's channels by a linear function of a vector of width ``condition``."""

    def __init__(self, condition: int, channels: int) -> None:
        super().__init__()
        self.map = nn.Linear(condition, 2 * channels)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Scale and shift the channels of a map ``[n, c, y, x]`` by linear maps of ``[n, condition]``."""
        gamma, beta = self.map(condition)[..., None, None].chunk(2, 1)
        return x * (1 + gamma) + beta


class FiLMEncoder(nn.Module):
    """Base of the image encoders with FiLM.

    Args:
        space: Box of images, bytes or floats.
        condition: width of the sentence's vector.
        channels: widths of the three stages; None: ``default_channels``.
        scale: divide uint8 by 255.

    Raises:
        ValueError: a space without images, or with too small ones.
    """

    default_channels: tuple[int, ...] = (16, 32, 64)
    keeps_statistics = False
    accepts_floats = False  # as of an `ImageEncoder`
    points = 0  # number of points beside the map, two numbers each

    def __init__(
        self, space: spaces.Space[Any], condition: int, channels: tuple[int, ...] | None, *, scale: bool
    ) -> None:
        super().__init__()
        self.sides, self.channels_first = image_layout(space, SMALLEST, type(self).__name__)
        y, x, c = self.sides
        self.axes = len(space.shape or ())
        self.is_float = np.issubdtype(space.dtype, np.floating)
        self.scale = 1 / 255 if space.dtype == np.uint8 and scale else 1.0
        self.channels = channels or self.default_channels
        self.build(c, condition)
        with torch.no_grad():
            map_shape = self.convolve(torch.zeros(1, c, y, x), torch.zeros(1, condition))[0].shape[1:]
        self.places, self.depth = map_shape[1] * map_shape[2], map_shape[0]
        """Positions of the map, and channels at each."""
        self.dim = self.places * self.depth + 2 * self.points
        self.register_buffer("like", torch.zeros(()), persistent=False)

    like: Tensor  # A scalar of the dtype of the layers

    @abstractmethod
    def build(self, channels: int, condition: int) -> None:
        """Make the layers for images with ``channels`` channels."""

    @abstractmethod
    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, Tensor | None]:
        """Map ``[n, c, y, x]`` and ``[n, condition]`` to a map ``[n, depth, y', x']`` and points ``[n, 2 points]``."""

    def forward(self, observation: Tensor, condition: Tensor) -> Tensor:
        """Encode images, modulated by ``[n, condition]``, as ``[n, dim]``: the map (y, x, channel), then its points.

        Raises:
            ValueError: bytes where the space has floats, or floats where it has bytes.
        """
        if not self.accepts_floats:
            require_image_dtype(observation, is_float=self.is_float)
        if self.axes == 2:
            observation = observation[..., None]
        images = observation if self.channels_first else observation.permute(0, 3, 1, 2)
        images = images.to(self.like.dtype, memory_format=torch.channels_last) * self.scale
        seen, points = self.convolve(images, condition)
        flat = seen.permute(0, 2, 3, 1).flatten(1)
        return flat if points is None else torch.cat((flat, points), 1)


class FiLMCNN(FiLMEncoder):
    """Three 3x3 convolutions with stride 2; FiLM and ReLU after each. 32 x 32 pixels become 4 x 4 positions.

    Points are the mean positions of the first map's channels, under a softmax with a learned sharpness.
    """

    sharpness: Tensor

    def build(self, channels: int, condition: int) -> None:
        """Make three convolutions, each modulated by the condition."""
        widths = (channels, *self.channels)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.films = nn.ModuleList(FiLM(condition, width) for width in self.channels)
        self.points = self.channels[0]
        self.sharpness = nn.Parameter(torch.full((self.points, 1), SHARPNESS))

    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Return the map and its points: ``[n, 3, 32, 32] -> [n, 64, 4, 4]`` and 16 points for images of 32 x 32."""
        points = None
        for convolution, film in zip(self.convolutions, self.films, strict=True):
            images = film(convolution(images), condition)
            if points is None:
                points = self.mean_positions(images)
            images = F.relu(images)
        assert points is not None
        return images, points

    def mean_positions(self, maps: Tensor) -> Tensor:
        """Return the mean position of each channel, rows, then columns, in [-1, 1]: ``[n, c, y, x] -> [n, 2 c]``."""
        y, x = maps.shape[2:]
        shares = (maps.flatten(2) * self.sharpness).softmax(-1).unflatten(2, (y, x))
        rows = shares.sum(3) @ torch.linspace(-1, 1, y, device=maps.device, dtype=maps.dtype)
        columns = shares.sum(2) @ torch.linspace(-1, 1, x, device=maps.device, dtype=maps.dtype)
        return torch.cat((rows, columns), 1)


class FiLMResNet(FiLMEncoder):
    """Three stages: a 3x3 convolution with stride 2 and two residual blocks, FiLM after each; a ReLU at the end."""

    def build(self, channels: int, condition: int) -> None:
        """Make three stages of modulated residual blocks."""
        widths = (channels, *self.channels)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.blocks = nn.ModuleList(ResidualBlock(width) for width in self.channels for _ in range(2))
        self.films = nn.ModuleList(FiLM(condition, width) for width in self.channels for _ in range(2))

    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, None]:
        """Return the map, without points: ``[n, 3, 32, 32] -> [n, 64, 4, 4]`` for images of 32 x 32."""
        layers: Iterator[Any] = zip(self.blocks, self.films, strict=True)
        for convolution in self.convolutions:
            images = convolution(images)
            for _ in range(2):
                block, film = next(layers)
                images = film(block(images), condition)
        return F.relu(images), None


class FiLMEfficientNet(FiLMEncoder):
    """EfficientNet B0: its stem and blocks, FiLM after each block. Needs the extra ``backbones``."""

    depth_factor, width_factor = 1.0, 1.0  # depth and width relative to B0

    def build(self, channels: int, condition: int) -> None:
        """Make the network with random weights.

        Raises:
            ValueError: the package transformers is missing.
        """
        try:
            from transformers import EfficientNetConfig, EfficientNetModel
        except ImportError:
            raise ValueError(
                "EfficientNet needs the package transformers: run pip install 'transformers>=5,<6'"
            ) from None
        config = EfficientNetConfig(
            num_channels=channels, depth_coefficient=self.depth_factor, width_coefficient=self.width_factor
        )
        config.hidden_dim = -(-int(1280 * self.width_factor) // 8) * 8
        self.network = EfficientNetModel(config)
        blocks: Any = self.network.encoder.blocks
        _initialize(self.network)
        self.films = nn.ModuleList(FiLM(condition, block.projection.project_bn.num_features) for block in blocks)

    def convolve(self, images: Tensor, condition: Tensor) -> tuple[Tensor, None]:
        """Return feature maps: ``[n, 3, 224, 224] -> [n, 320, 7, 7]``; batch norms stay as they are."""
        network: Any = self.network.eval()  # one stream of frames is no batch
        images = network.embeddings(images)
        for block, film in zip(network.encoder.blocks, self.films, strict=True):
            images = film(block(images), condition)
        return images, None

    def load_pretrained(self, name: str) -> None:
        """Load the weights of a published network of the same size, from a folder or a name in the Hugging Face Hub."""
        from transformers import EfficientNetModel

        self.network.load_state_dict(EfficientNetModel.from_pretrained(name).state_dict())


def _initialize(network: Any) -> None:
    """Draw initial weights that keep the size of maps; those of transformers, for fine-tuning, let it vanish."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in network.encoder.blocks:
        if not block.projection.apply_dropout:  # no residual connection around this block
            nn.init.constant_(block.projection.project_bn.weight, 2.5)


class FiLMEfficientNetB3(FiLMEfficientNet):
    """EfficientNet B3: 1.4 times as deep and 1.2 times as wide as B0."""

    depth_factor, width_factor = 1.4, 1.2


FILM_ENCODERS: dict[str, type[FiLMEncoder]] = {
    "film-cnn": FiLMCNN,
    "film-resnet": FiLMResNet,
    "film-efficientnet-b0": FiLMEfficientNet,
    "film-efficientnet-b3": FiLMEfficientNetB3,
}


class TokenJoin(nn.Module):
    """Map from a vector with a map and other numbers to n tokens: n - 1 of the map, and one of all the rest.

    Args:
        dim: width of the vector.
        offset: of the map in the vector.
        places: positions of the map.
        depth: channels at each position.
        shape: n and the width of a token.

    Raises:
        ValueError: the core reads more tokens than there are.
    """

    def __init__(self, dim: int, offset: int, places: int, depth: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        tokens, width = shape
        if not 2 <= tokens <= places + 1:
            raise ValueError(
                f"num_tokens={tokens}: a map of {places} positions gives 2 to {places + 1} tokens, the last of all else"
            )
        self.split = (offset, places * depth, dim - offset - places * depth)
        self.shape = (places, depth)
        self.image = Linear(depth, width)
        self.rest = Linear(dim - places * depth, width)
        self.gather = None if tokens == places + 1 else make_summarizer("mlp", width, tokens - 1, range(places))
        # As large as the content of a position: cores add small tables too, but positions matter here.
        self.table = nn.Parameter(PLACE_STD * torch.randn(places, width))

    def forward(self, joined: Tensor) -> Tensor:
        """Map joined features ``[..., dim]`` to tokens ``[..., n * width]``: of the map, then of all the rest."""
        before, maps, behind = joined.split(self.split, -1)
        tokens = self.image(maps.unflatten(-1, self.shape)) + self.table
        if self.gather is not None:
            tokens = self.gather(tokens)
        rest = self.rest(torch.cat((before, behind), -1))
        return torch.cat((tokens, rest[..., None, :]), -2).flatten(-2)
