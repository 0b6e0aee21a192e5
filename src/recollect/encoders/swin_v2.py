"""Swin Transformer V2 of the package transformers, with fresh weights: moving windows, and merged patches.

Paper:    Liu et al., Swin Transformer V2 (2022); a baseline of Didolkar et al. 2022, table 1. The network is
          ``Swinv2Model`` of the package transformers (extra ``backbones``); with a linear head it is
          ``Swinv2ForImageClassification``.
Differs:  it reads rows of patches, as every encoder here does, and joins them again. transformers fixes windows and
          shifts when it builds a model: where a stage has no more patches per side than a window, the window is as
          large as the stage and never moves. An image of another size is read with the windows and shifts of a model
          built for its size, and with the weights of this one.
"""

from importlib import import_module
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from recollect.config import require
from recollect.encoders.config import SwinV2Config
from recollect.encoders.contract import Encoding, SequenceEncoder, require_rows
from recollect.layers.positions import from_patches


class SwinV2(SequenceEncoder):
    """Encoder around a Swin Transformer, for images of ``length`` patches of ``input_dim = 3 * p * p`` numbers."""

    def __init__(self, config: SwinV2Config, input_dim: int, length: int) -> None:
        super().__init__()
        try:
            swin: Any = import_module("transformers")
        except ImportError:
            raise ValueError("swin-v2 needs the package transformers: pip install 'transformers>=5,<6'") from None
        self.patch, side = isqrt(input_dim // 3), isqrt(length)
        good = 3 * self.patch**2 == input_dim and side**2 == length
        require(good, "input_dim", input_dim, f"swin-v2 reads square images as {length} patches of 3 * p * p numbers")
        self.config, self.side = config, side
        self.swin = self._built(swin, side)
        self.output_dim = config.dim * 2 ** (len(config.depths) - 1)
        self._others: dict[int, nn.Module] = {}
        """Models for other sides, without weights; in a dict, so that they are neither saved nor counted."""

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode whole pictures; outputs are those of the last stage's merged patches."""
        require_rows(inputs, padding)
        if padding is not None and padding.any():
            raise ValueError("padding: swin-v2 reads whole images; none of their patches can be padding")
        images, side = from_patches(inputs, self.patch), isqrt(inputs.shape[1])
        if side == self.side:
            found = self.swin(images)
        else:
            found = functional_call(self._for_side(side), dict(self.swin.named_parameters()), (images,))
        return Encoding(found.last_hidden_state, found.pooler_output)

    def _for_side(self, side: int) -> nn.Module:
        """Return a model for ``side`` patches per side, to be called with the weights of this one."""
        if side not in self._others:
            with torch.random.fork_rng(devices=[]):  # its weights are not used
                made = self._built(import_module("transformers"), side)
            for parameter in made.parameters():
                parameter.data = parameter.data.new_empty(0)
            self._others[side] = made.requires_grad_(False)
        like = next(self.swin.parameters())
        return self._others[side].to(like.device, like.dtype).train(self.training)

    def _built(self, swin: Any, side: int) -> nn.Module:
        """Build a model of the package for images of ``side`` patches per side."""
        config, least = self.config, 2 ** (len(self.config.depths) - 1)
        remedy = f"{len(config.depths)} stages merge {side} patches per side too often"
        require(side % least == 0, "depths", config.depths, remedy)
        settings = swin.Swinv2Config(
            image_size=self.patch * side,
            patch_size=self.patch,
            embed_dim=config.dim,
            depths=list(config.depths),
            num_heads=list(config.num_heads),
            window_size=config.window,
            mlp_ratio=config.mlp_ratio,
            drop_path_rate=config.drop_path,
        )
        return swin.Swinv2Model(settings)
