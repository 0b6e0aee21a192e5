"""SiT, a self-supervised vision Transformer: it restores an image, predicts its rotation and matches its views.

    e_t = W_in patch_t + P_t                    P: a learned table of the grid, interpolated for other resolutions
    y   = encoder(r, c, e_1, ..., e_n)          r, c: learned tokens, where the encoder has no summary of its own
    rotation = W_r y_r,   contrast = W_c y_c,   restored_t = W_o y_t

An encoder with a summary s of its own (the bottleneck's mean over slots) needs no tokens: y_r = y_c = s. The feature
vector of a probe is (y_r + y_c) / 2.

Paper:    Ahmed et al., SiT: Self-supervised Vision Transformer (2021), section 3; Didolkar et al. 2022, section 3.1.
Differs:  the restoring map is linear in each patch, as a transposed convolution of the patch's size and stride.
          The paper does not say which of SiT's two tokens the probe reads: here their mean.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recollect.agents.config import SiTConfig
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.config import from_json, require, to_json
from recollect.encoders.config import EncoderConfig
from recollect.layers.positions import resize_grid


class SiTOutput(NamedTuple):
    """Output of the model for b images of n patches."""

    rotation: Tensor  # logits `[b, 4]`
    contrast: Tensor  # `[b, contrast_dim]`
    restored: Tensor  # normalised patches `[b, n, 3 * p * p]`


class SiT(SavedModel):
    """Patches -> encoder -> three answers without labels. Made by :meth:`SiTConfig.build`."""

    def __init__(self, config: SiTConfig, encoder: EncoderConfig, **task: Any) -> None:
        super().__init__()
        self.config, self.encoder_config, self.task = config, encoder, task
        length, width = task["length"], config.embedding_dim
        require(isqrt(length) ** 2 == length, "length", length, "give images with a square grid of patches")
        self.embedding = nn.Linear(task["input_dim"], width)
        self.positions = nn.Parameter(torch.randn(length, width) * config.embedding_std)
        self.tokens = None if encoder.has_summary else nn.Parameter(torch.randn(2, width) * config.embedding_std)
        self.encoder = encoder.build(width, length if self.tokens is None else length + 2)
        out = self.encoder.output_dim
        self.rotation = nn.Linear(out, 4)
        self.contrast = nn.Linear(out, config.contrast_dim)
        self.restore = nn.Linear(out, task["input_dim"])
        self.log_variances = nn.Parameter(torch.ones(3))
        """s of the losses of rotation, contrast and restoration, by which the trainer weights them."""

    def forward(self, inputs: Tensor) -> SiTOutput:
        """Return all three answers for normalised patches, float ``[b, n, 3 * p * p]``."""
        rotation, contrast, outputs = self._encode(inputs)
        return SiTOutput(self.rotation(rotation), self.contrast(contrast), self.restore(outputs))

    def features(self, inputs: Tensor) -> Tensor:
        """Return the feature vector of a probe, ``[b, d]``."""
        rotation, contrast, _ = self._encode(inputs)
        return (rotation + contrast) / 2

    def _encode(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of the heads for rotation and contrast, ``[b, d]`` each, and the patches' outputs."""
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

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        agent, encoder = to_json(self.config, REGISTRY), to_json(self.encoder_config, REGISTRY)
        return {"agent": agent, "encoder": encoder, **self.task}

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "SiT":
        """Make a model, without weights, from the description in its folder."""
        return cls(
            from_json(description["agent"], SiTConfig, REGISTRY, trust=trust),
            from_json(description["encoder"], EncoderConfig, REGISTRY, trust=trust),
            **{name: description[name] for name in ("input_dim", "length")},
        )
