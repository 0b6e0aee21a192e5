"""SiT, a self-supervised vision Transformer: it restores a picture, says how it was turned, and knows it again.

    e_t = W_in patch_t + P_t                    P: a learned table of the grid, interpolated for other resolutions
    y   = encoder(r, c, e_1, ..., e_n)          r, c: learned tokens, where the encoder has no summary of its own
    rotation = W_r y_r,   contrast = W_c y_c,   restored_t = W_o y_t

An encoder with a summary s of its own (the bottleneck's mean over slots) needs no tokens: y_r = y_c = s. The vector
that a probe reads is (y_r + y_c) / 2.

Paper:    Ahmed et al., SiT: Self-supervised Vision Transformer (2021), section 3; Didolkar et al. 2022, section 3.1.
Differs:  the restoring map is a linear one for each patch, which is what a transposed convolution of the patch's size
          and stride is. What the probe reads of SiT's two tokens is not said: here their mean.
"""

from math import isqrt
from os import PathLike
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recollect.agents.config import SiTConfig
from recollect.agents.folders import read_description, read_weights, write_model
from recollect.agents.registry import REGISTRY
from recollect.config import from_json, require, to_json
from recollect.encoders.contract import EncoderConfig
from recollect.layers.positions import resize_grid


class SiTOutput(NamedTuple):
    """What the model says of b pictures of n patches."""

    rotation: Tensor
    """Logits ``[b, 4]``."""
    contrast: Tensor
    """``[b, contrast_dim]``."""
    restored: Tensor
    """Normalised patches ``[b, n, 3 * p * p]``."""


class SiT(nn.Module):
    """Patches -> encoder -> three answers without labels. Made by :meth:`SiTConfig.build`."""

    def __init__(self, config: SiTConfig, encoder: EncoderConfig, **task: Any) -> None:
        super().__init__()
        self.config, self.encoder_config, self.task = config, encoder, task
        length, width = task["length"], config.embedding_dim
        require(isqrt(length) ** 2 == length, "length", length, "give pictures with a square grid of patches")
        self.embedding = nn.Linear(task["input_dim"], width)
        self.positions = nn.Parameter(torch.randn(length, width) * config.embedding_std)
        self.tokens = None if encoder.has_summary else nn.Parameter(torch.randn(2, width) * config.embedding_std)
        self.encoder = encoder.build(width, length if self.tokens is None else length + 2)
        out = self.encoder.output_dim
        self.rotation = nn.Linear(out, 4)
        self.contrast = nn.Linear(out, config.contrast_dim)
        self.restore = nn.Linear(out, task["input_dim"])
        self.log_variances = nn.Parameter(torch.ones(3))
        """s of the losses of rotation, contrast and restoring, which the trainer weighs with them."""

    def forward(self, inputs: Tensor) -> SiTOutput:
        """All three answers.

        Args:
            inputs: normalised patches, float ``[b, n, 3 * p * p]``.
        """
        turned, known, outputs = self._read(inputs)
        return SiTOutput(self.rotation(turned), self.contrast(known), self.restore(outputs))

    def features(self, inputs: Tensor) -> Tensor:
        """The vector that a probe reads, ``[b, d]``."""
        turned, known, _ = self._read(inputs)
        return (turned + known) / 2

    def _read(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the heads for rotation and contrast read, ``[b, d]`` each, and the outputs of the patches."""
        width, steps = self.task["input_dim"], inputs.shape[1] if inputs.ndim == 3 else 0
        if inputs.ndim != 3 or inputs.shape[2] != width or isqrt(steps) ** 2 != steps:
            raise ValueError(f"inputs are {list(inputs.shape)}; this model takes [b, n, {width}], n a square")
        x = self.embedding(inputs) + resize_grid(self.positions, steps)
        if self.tokens is None:
            outputs, summary = self.encoder(x)
            assert summary is not None
            return summary, summary, outputs
        outputs, _ = self.encoder(torch.cat((self.tokens.expand(len(x), -1, -1), x), 1))
        return outputs[:, 0], outputs[:, 1], outputs[:, 2:]

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``model.json`` and ``weights.safetensors`` into a folder (each beside the old one, then renamed)."""
        description = {"agent": to_json(self.config, REGISTRY), "encoder": to_json(self.encoder_config, REGISTRY)}
        write_model(folder, self, description | self.task)

    @staticmethod
    def load(folder: str | PathLike[str], device: torch.device | str = "cpu") -> "SiT":
        """The model that :meth:`save` wrote, in ``eval`` mode.

        Raises:
            ValueError: a file is missing, or the config names an unknown encoder.
        """
        description = read_description(folder, "SiT")
        model = SiT(
            from_json(description["agent"], SiTConfig, REGISTRY),
            from_json(description["encoder"], EncoderConfig, REGISTRY),
            **{name: description[name] for name in ("input_dim", "length")},
        )
        read_weights(folder, model)
        return model.to(device).eval()
