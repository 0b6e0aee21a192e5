"""Decoders from an agent's features back to the present observation, for an auxiliary loss.

Each is the transpose of that part's encoder, with weights of its own (Lampinen et al. 2021, appendix A): a linear map
to the encoder's output, then its layers in reverse, with transposed convolutions, and repetition instead of pooling.

    images      logits of pixels            [b, t, *space.shape]
    tiles       logits of symbols           [b, t, *space.shape, symbols]
    words       logits of words             [b, t, words, vocabulary]
    numbers     logits of numbers in [0, 1] [b, t, *space.shape]            where there are none of the above
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from recollect.agents.encoders import MLP, ByPart, ObservationEncoder, Tiles, WordLSTM
from recollect.agents.image_encoders import ImageEncoder, ImpalaResNet, ResidualBlock
from recollect.objectives.policy_gradient import Reduction
from recollect.objectives.reconstruction import image_loss, language_loss, tile_loss
from recollect.ops.linear import Linear


class Decoders(nn.Module):
    """Decoders of all images, grids of tiles and sentences of an observation; without any, of numbers in [0, 1].

    Images with a FiLM encoder and sentences of ``word-tokens`` have none. With ``image_dim`` a decoder begins at the
    map of the encoder, before that layer.

    Args:
        encoder: of the observation.
        dim: d, width of the features.

    Raises:
        ValueError: the observation has no such part, or images of numbers other than bytes or [0, 1].
    """

    def __init__(self, encoder: ObservationEncoder, dim: int) -> None:
        super().__init__()
        made = {name: _decoder(part, name, encoder.parts[name], dim) for name, part in encoder.encoders.items()}
        self.decoders = ByPart({name: decoder for name, decoder in made.items() if decoder is not None})
        if not self.decoders:
            for name, part in encoder.encoders.items():
                if isinstance(part, MLP) and _is_unit(encoder.parts[name]):
                    self.decoders[name] = NumbersDecoder(part, encoder.parts[name].shape or (), dim)
        if not self.decoders:
            raise ValueError(
                f"reconstruct=True: none of {', '.join(encoder.parts)} is an image without FiLM, a grid of tiles, "
                "a sentence or numbers in [0, 1]; use reconstruct=False"
            )
        self._leaves = encoder.leaves  # a method: the encoder must not become a submodule

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Return logits ``[..., *shape]`` by part, for features ``[..., d]``."""
        lead = features.shape[:-1]
        flat = features.reshape(-1, features.shape[-1])
        return {name: decoder(flat).unflatten(0, lead) for name, decoder in self.decoders.items()}

    def losses(
        self, features: Tensor, observation: Any, *, valid: Tensor | None, reduction: Reduction
    ) -> dict[str, Tensor]:
        """Return the reconstruction losses by part, for features ``[b, t, d]``."""
        logits = self(features)
        seen = dict(self._leaves(observation, 2, flat=False))
        return {
            name: decoder.loss(logits[name], seen[name], valid=valid, reduction=reduction)  # type: ignore[operator]
            for name, decoder in self.decoders.items()
        }


def _decoder(encoder: nn.Module, name: str, space: spaces.Space[Any], dim: int) -> nn.Module | None:
    if isinstance(encoder, ImageEncoder):
        # The sigmoid cross-entropy of other numbers has no minimum.
        if space.dtype != np.uint8 and not _is_unit(space):
            raise ValueError(
                f"reconstruct=True: {name} is {space}; only bytes and floats in [0, 1] can be restored: scale them "
                "in the world, or use reconstruct=False"
            )
        return ImageDecoder(encoder, dim)
    if isinstance(encoder, Tiles):
        return TilesDecoder(encoder, dim)
    return WordDecoder(encoder, dim) if isinstance(encoder, WordLSTM) else None


def _is_unit(space: spaces.Space[Any]) -> bool:
    """Whether a space holds floats in [0, 1]."""
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        return False
    return bool(space.low.min() >= 0 and space.high.max() <= 1)


class ImageDecoder(nn.Module):
    """Decoder from features of width ``dim`` to the logits of pixels."""

    def __init__(self, encoder: ImageEncoder, dim: int) -> None:
        super().__init__()
        self.axes, self.channels_first = encoder.axes, encoder.channels_first
        self.map_shape = (*encoder.map_sides, encoder.channels[-1])
        self.start = Linear(dim, math.prod(self.map_shape))
        residual = isinstance(encoder, ImpalaResNet)
        self.layers = ResNetTranspose(encoder) if residual else ConvolutionTransposes(encoder)

    def forward(self, features: Tensor) -> Tensor:
        """Decode features ``[n, d]`` to the logits of images ``[n, *space.shape]``."""
        maps = F.relu(self.start(features)).unflatten(-1, self.map_shape)
        images = self.layers(maps.permute(0, 3, 1, 2))  # n c y x, in memory n y x c
        if self.axes == 2:
            return images[:, 0]
        return images if self.channels_first else images.permute(0, 2, 3, 1)

    loss = staticmethod(image_loss)


class ConvolutionTransposes(nn.Module):
    """The convolutions of BalletCNN, NatureCNN or Patches in reverse."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        y, x, _ = encoder.sides
        transposes, sizes = [], []
        for layer in (child for child in encoder.children() if isinstance(child, nn.Conv2d)):
            kernel, stride, padding = layer.kernel_size, layer.stride, layer.padding
            transposes.append(nn.ConvTranspose2d(layer.out_channels, layer.in_channels, kernel, stride, padding))  # type: ignore[arg-type]
            sizes.append((y, x))
            y, x = ((side + 2 * p - k) // s + 1 for side, k, s, p in zip((y, x), kernel, stride, padding, strict=True))  # type: ignore[arg-type]
        self.layers = nn.ModuleList(reversed(transposes))
        self.sizes = sizes[::-1]

    def forward(self, maps: Tensor) -> Tensor:
        """Decode maps ``[n, channels, *map_sides]`` to images ``[n, c, y, x]``."""
        for index, (layer, size) in enumerate(zip(self.layers, self.sizes, strict=True)):
            maps = layer(F.relu(maps) if index else maps, output_size=list(size))
        return maps


class ResNetTranspose(nn.Module):
    """The stages of ImpalaResNet in reverse: residual blocks, repetition to the size before pooling, convolution."""

    def __init__(self, encoder: ImpalaResNet) -> None:
        super().__init__()
        y, x, c = encoder.sides
        widths = (c, *encoder.channels)
        self.sizes: list[tuple[int, int]] = []
        blocks, convolutions = [], []
        for before, width in pairwise(widths):
            blocks.append(nn.Sequential(ResidualBlock(width), ResidualBlock(width)))
            convolutions.append(nn.ConvTranspose2d(width, before, 3, padding=1))
            self.sizes.append((y, x))
            y, x = (y + 1) // 2, (x + 1) // 2
        self.blocks, self.convolutions = nn.ModuleList(blocks), nn.ModuleList(convolutions)

    def forward(self, maps: Tensor) -> Tensor:
        """Decode maps ``[n, channels, *map_sides]`` to images ``[n, c, y, x]``."""
        for stage in reversed(range(len(self.sizes))):
            y, x = self.sizes[stage]
            maps = self.blocks[stage](maps)
            # Each cell becomes the 2 x 2 pixels that were pooled; odd sides lose the last row or column.
            maps = maps.repeat_interleave(2, 2).repeat_interleave(2, 3)[..., :y, :x]
            maps = self.convolutions[stage](maps)
        return maps


class TilesDecoder(nn.Module):
    """Decoder from features to the logits of symbols: the hidden layers in reverse, then each cell to symbols."""

    def __init__(self, encoder: Tiles, dim: int) -> None:
        super().__init__()
        y, x, c = encoder.sides
        self.shape = encoder.shape
        self.low, self.vocabulary = encoder.low, encoder.vocabulary
        self.layers = _reversed_layers(encoder, dim)
        self.cells, self.tile_dim = y * x, encoder.table.embedding_dim
        self.symbols = Linear(self.tile_dim, c * self.vocabulary)

    def forward(self, features: Tensor) -> Tensor:
        """Decode features ``[n, d]`` to the logits of every cell's symbols ``[n, y, x(, c), symbols]``."""
        cells = F.relu(self.layers(features)).unflatten(-1, (self.cells, self.tile_dim))
        return self.symbols(cells).reshape(len(features), *self.shape, self.vocabulary)

    def loss(self, logits: Tensor, tiles: Tensor, *, valid: Tensor | None, reduction: Reduction) -> Tensor:
        """Return the cross-entropy of the symbols of every cell."""
        return tile_loss(logits, tiles.long() - self.low, valid=valid, reduction=reduction)


class NumbersDecoder(nn.Module):
    """Decoder from features to the logits of numbers in [0, 1] of a shape: the hidden layers in reverse."""

    def __init__(self, encoder: MLP, shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.shape = shape
        self.layers = _reversed_layers(encoder, dim)

    def forward(self, features: Tensor) -> Tensor:
        """Decode features ``[n, d]`` to the logits of numbers ``[n, *space.shape]``."""
        return self.layers(features).reshape(len(features), *self.shape)  # a shape may have no axis

    def loss(self, logits: Tensor, numbers: Tensor, *, valid: Tensor | None, reduction: Reduction) -> Tensor:
        """Return the sigmoid cross-entropy of the numbers."""
        if not self.shape:
            logits, numbers = logits[..., None], numbers[..., None]
        return image_loss(logits, numbers, valid=valid, reduction=reduction)


class WordDecoder(nn.Module):
    """Decoder from features to the logits of words: an LSTM that reads the features at every word."""

    def __init__(self, encoder: WordLSTM, dim: int) -> None:
        super().__init__()
        self.num_words = encoder.num_words
        self.start = Linear(dim, encoder.dim)
        self.lstm = nn.LSTM(encoder.dim, encoder.table.embedding_dim, batch_first=True)
        self.words = Linear(encoder.table.embedding_dim, encoder.vocabulary)

    def forward(self, features: Tensor) -> Tensor:
        """Decode features ``[n, d]`` to the logits of every word ``[n, words, vocabulary]``."""
        seen = self.start(features)[:, None].expand(-1, self.num_words, -1)
        return self.words(self.lstm(seen)[0])

    loss = staticmethod(language_loss)


def _reversed_layers(encoder: MLP | Tiles, dim: int) -> nn.Sequential:
    """Return a map from features to the encoder's output, and its hidden layers in reverse."""
    widths = [layer.in_features for layer in encoder.layers if isinstance(layer, nn.Linear)][::-1]
    made: list[nn.Module] = [Linear(dim, encoder.dim)]
    for width, before in pairwise((encoder.dim, *widths)):
        made += [nn.ReLU(), Linear(width, before)]
    return nn.Sequential(*made)
