"""Backbones from frames to tokens: a small convolution of ours, or a pretrained vision model.

    patches   one convolution whose stride is its width, and one of 3 x 3; trained with the rest
    image     any image model of the package transformers, frame by frame (ViT, Swin, DINOv2, EfficientNet, ...)
    vivit     ViViT (Arnab et al. 2021), which reads 32 frames at once: they are one step of the core

Tokens of a step form a grid [times, rows, columns] and are averaged to as many as the core reads: over space first, so
that ViViT's 16 x 14 x 14 become 16 x 1 x 1, "spatial average pooling per frame" (Ryoo et al. 2023, section 3.1.2).
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.config import require
from recollect.layers.positions import sinusoid

Grid = tuple[int, int, int]  # times, rows and columns of a step's tokens
Colours = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of red, green and blue


class Backbone(nn.Module, ABC):
    """Base of the maps from the frames of a step to tokens."""

    grid: Grid  # shape of its tokens
    dim: int  # width of a token
    frames_per_step: int = 1  # number of frames in one step of the core

    def describe(self) -> dict[str, Any] | None:
        """Return what :func:`build_pretrained` needs, as JSON data; None for a backbone that its config describes."""
        return None

    @abstractmethod
    def forward(self, frames: Tensor) -> Tensor:
        """Map uint8 ``[n, frames_per_step, y, x, 3]`` to ``[n, times * rows * columns, dim]``."""


class Patches(Backbone):
    """Embedded patches of a small image, each with its neighbours.

    Args:
        size: side of the image in pixels.
        patch: side of a patch in pixels.
        dim: width of a token.
    """

    def __init__(self, size: int, patch: int, dim: int) -> None:
        super().__init__()
        require(size % patch == 0, "patch", patch, f"give a divisor of size={size}")
        self.size, self.dim = size, dim
        self.grid = (1, size // patch, size // patch)
        self.patches = nn.Conv2d(3, dim, patch, stride=patch)
        self.neighbours = nn.Conv2d(dim, dim, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        """Encode the patches of frames as tokens."""
        pixels = resize(frames[:, 0], self.size).to(self.patches.weight.dtype) * (4 / 255) - 0.5
        seen = F.gelu(self.patches(pixels))
        return F.gelu(self.neighbours(seen) + seen).flatten(2).mT


class PretrainedBackbone(Backbone):
    """Base of backbones around a model of transformers."""

    model: Any
    colours: Colours

    def describe(self) -> dict[str, Any]:
        """Return what a folder of the model has to know to be loaded without the published weights."""
        settings = json.loads(self.model.config.to_json_string(use_diff=False))
        return {"settings": settings, "dtype": str(self.model.dtype).removeprefix("torch."), "colours": self.colours}


class ImageModel(PretrainedBackbone):
    """Image model of transformers, applied frame by frame.

    Args:
        model: from ``AutoModel``.
        frozen: keep its weights, and compute it without gradients.
        colours: mean and standard deviation of its training images.
    """

    def __init__(self, model: Any, frozen: bool, colours: Colours) -> None:
        super().__init__()
        self.model, self.frozen, self.colours = model, frozen, colours
        self.size = _image_size(model.config)
        model.requires_grad_(not frozen)
        with torch.no_grad():
            seen = self._encode(torch.zeros(1, 3, self.size, self.size))
        side = math.isqrt(seen.shape[1])
        self.grid, self.dim = (1, side, side), seen.shape[2]

    def forward(self, frames: Tensor) -> Tensor:
        """Encode the frame of every step as image features."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self._encode(normalize_colours(resize(frames[:, 0], self.size), self.colours))

    def _encode(self, pixels: Tensor) -> Tensor:
        found = self.model(pixel_values=pixels).last_hidden_state
        if found.ndim == 4:  # n d y x
            return found.flatten(2).mT
        side = math.isqrt(found.shape[1])  # patches come behind the tokens for the class and the registers
        return found[:, found.shape[1] - side * side :]


class ViViT(PretrainedBackbone):
    """ViViT, which reads a segment of frames at once.

    Args:
        model: ``VivitModel`` of transformers.
        frozen: as in :class:`ImageModel`.
        colours: as in :class:`ImageModel`.
    """

    def __init__(self, model: Any, frozen: bool, colours: Colours) -> None:
        super().__init__()
        self.model, self.frozen, self.colours = model, frozen, colours
        config = model.config
        times, rows, columns = config.tubelet_size
        self.size, self.frames_per_step, self.dim = config.image_size, config.num_frames, config.hidden_size
        self.grid = (config.num_frames // times, self.size // rows, self.size // columns)
        model.requires_grad_(not frozen)

    def forward(self, frames: Tensor) -> Tensor:
        """Encode the tubes of frames as tokens."""
        n, f = frames.shape[:2]
        pixels = normalize_colours(resize(frames.flatten(0, 1), self.size), self.colours).unflatten(0, (n, f))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.model(pixel_values=pixels).last_hidden_state[:, 1:]  # the first token is for the class


def load_pretrained(kind: str, name: str, frozen: bool) -> Backbone:
    """Load a vision model from a folder, or from the Hugging Face Hub.

    Args:
        kind: image or vivit.
        name: folder that ``save_pretrained`` wrote, or the Hub's name.
        frozen: keep its weights.

    Raises:
        ValueError: transformers is missing, or there is no such model.
    """
    require(bool(name), "model", name, "name a folder, or a model of the Hub such as facebook/dinov2-small")
    transformers = _transformers(kind)
    from transformers.image_processing_base import ImageProcessingMixin

    here = Path(name).is_dir()
    maker: Any = transformers.VivitModel if kind == "vivit" else transformers.AutoModel
    try:
        model = maker.from_pretrained(name, local_files_only=here, dtype=torch.float32)  # else that of its file
    except (ImportError, OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"model={name!r} cannot be loaded ({reason}): give a folder or a name of the Hub") from error
    try:
        known = ImageProcessingMixin.get_image_processor_dict(name, local_files_only=here)[0]
    except OSError:  # the model has no description of its images
        known = {}
    half = [0.5] * 3
    colours = tuple(known.get("image_mean") or half), tuple(known.get("image_std") or half)
    return ViViT(model, frozen, colours) if kind == "vivit" else ImageModel(model, frozen, colours)


def build_pretrained(kind: str, described: Mapping[str, Any], frozen: bool) -> Backbone:
    """Return a backbone that :meth:`Backbone.describe` described, with new weights and without its folder.

    Raises:
        ValueError: transformers is missing, or has no such model.
    """
    transformers = _transformers(kind)
    settings, (mean, std) = _without_code(described["settings"]), described["colours"]
    try:
        config = transformers.AutoConfig.for_model(settings.pop("model_type", ""), **settings)
        model = (transformers.VivitModel if kind == "vivit" else transformers.AutoModel.from_config)(config)
    except (ImportError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        remedy = "install what it needs, or a newer transformers"
        raise ValueError(f"pretrained: transformers cannot make this model ({reason}): {remedy}") from error
    colours, dtype = (tuple(mean), tuple(std)), getattr(torch, described["dtype"])
    # In evaluation mode, as after from_pretrained: batch norms cannot train on the one image that asks for the grid.
    return (ViViT if kind == "vivit" else ImageModel)(model.to(dtype).eval(), frozen, colours)


CODE = ("attn_implementation", "experts_implementation", "auto_map")
"""Settings that may name code in the Hub, which transformers would fetch and run."""


def _without_code(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a model, and of the models in it, without those that name code."""
    kept = {name: value for name, value in settings.items() if name.removeprefix("_") not in CODE}
    return {name: _without_code(value) if isinstance(value, Mapping) else value for name, value in kept.items()}


def _transformers(kind: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            f"backbone={kind!r} needs the package transformers: run pip install 'transformers>=5,<6'"
        ) from error
    return transformers


def resize(frames: Tensor, size: int) -> Tensor:
    """Resize frames ``[n, y, x, 3]`` of bytes to floats ``[n, 3, size, size]`` in 0..255, averaged over areas."""
    pixels = frames.permute(0, 3, 1, 2).float()
    if pixels.shape[-2:] == (size, size):
        return pixels
    return F.interpolate(pixels, (size, size), mode="area")


def normalize_colours(pixels: Tensor, colours: Colours) -> Tensor:
    """Normalise ``[n, 3, y, x]`` in 0..255 by the colours of a model's training images."""
    mean, std = (torch.tensor(part, device=pixels.device)[:, None, None] for part in colours)
    return (pixels / 255 - mean) / std


def pool_shape(grid: Grid, count: int) -> Grid:
    """Return the grid of ``count`` tokens to which a grid is averaged: most times first, then as square as possible.

    Raises:
        ValueError: no such grid.
    """
    times, rows, columns = grid
    found = [
        (-t, abs(count // t // y - y), (t, y, count // t // y))
        for t in range(1, times + 1)
        if count % t == 0
        for y in range(1, rows + 1)
        if count // t % y == 0 and count // t // y <= columns
    ]
    if not found:
        shape = " x ".join(map(str, grid))
        raise ValueError(f"num_tokens={count}: the backbone's {shape} tokens of a step cannot be averaged to so many")
    return min(found)[2]


def pool(tokens: Tensor, grid: Grid, count: int) -> Tensor:
    """Average tokens ``[n, times * rows * columns, d]`` to ``[n, count, d]``."""
    shape = pool_shape(grid, count)
    if shape == grid:
        return tokens
    weights = torch.ones(1, 1, dtype=torch.float64, device=tokens.device)
    for size, cells in zip(grid, shape, strict=True):
        weights = torch.kron(weights, cell_averages(size, cells, tokens.device))
    return weights.to(tokens.dtype) @ tokens


def cell_averages(size: int, cells: int, device: torch.device) -> Tensor:
    """Return the weights ``[cells, size]``, in float64, of adaptive average pooling along one axis.

    Cell i averages the places from floor(i size / cells) to ceil((i + 1) size / cells) - 1. A product with weights
    can be exported everywhere; ONNX has no adaptive pooling.
    """
    cell, place = torch.arange(cells, device=device)[:, None], torch.arange(size, device=device)
    inside = (place >= cell * size // cells) & (place * cells < (cell + 1) * size)
    return inside / inside.sum(1, keepdim=True, dtype=torch.float64)


def initial_positions(grid: Grid, dim: int) -> Tensor:
    """Return initial values of learned positions of a grid, ``[count, dim]``."""
    return sinusoid(torch.arange(math.prod(grid)), dim) * 0.1


def _image_size(config: Any) -> int:
    """Return the side in pixels from a model's config; 224 where it has none."""
    size = config.to_dict().get("image_size", 224)
    return size if isinstance(size, int) else size[0]
