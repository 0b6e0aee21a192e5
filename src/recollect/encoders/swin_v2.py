"""Swin Transformer V2 as transformers has it, with weights drawn anew: windows that move, and merged patches.

Paper:    Liu et al., Swin Transformer V2 (2022); a baseline of Didolkar et al. 2022, table 1. The network is
          ``Swinv2Model`` of the package transformers (extra ``backbones``); with a linear head it is
          ``Swinv2ForImageClassification``.
Differs:  it reads rows of patches, as every encoder here does, and puts them together again. transformers fixes windows
          and shifts when it builds a model: where a stage has no more patches a side than a window, the window is as
          large as the stage and never moves. A picture of another size is read with the windows and shifts of a model
          built for its size, and with the weights of this one.
"""

from dataclasses import dataclass
from importlib import import_module
from math import isqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from recollect.config import require
from recollect.encoders.contract import EncoderConfig, Encoding, SequenceEncoder, require_rows
from recollect.layers.positions import from_patches


@dataclass(frozen=True, kw_only=True)
class SwinV2Config(EncoderConfig):
    """Windows that move, and patches that are merged from stage to stage; for pictures alone."""

    paper: ClassVar[str] = "Liu et al. 2022"
    has_summary: ClassVar[bool] = True
    reads_patches: ClassVar[bool] = True

    dim: int = 96
    """Width of the first stage; each later one has twice that of the stage before."""
    depths: tuple[int, ...] = (2, 2, 6, 2)
    """Layers of every stage."""
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads of every stage."""
    window: int = 4
    """Patches of a side of a window."""
    mlp_ratio: float = 4.0
    """Width of the feed-forwards, in widths of their stage."""
    drop_path: float = 0.1
    """Probability of leaving out a layer in training; rises from 0 at the first layer to this at the last."""

    def __post_init__(self) -> None:
        for name in ("dim", "window", "mlp_ratio"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give a positive number")
        good = len(self.depths) == len(self.num_heads) > 0
        require(good, "num_heads", self.num_heads, f"give one number for each of the {len(self.depths)} stages")
        for stage, heads in enumerate(self.num_heads):
            width = self.dim * 2**stage
            require(width % heads == 0, "num_heads", self.num_heads, f"stage {stage} is {width} wide")
        require(0 <= self.drop_path < 1, "drop_path", self.drop_path, "give a probability in [0, 1)")

    def build(self, input_dim: int, length: int) -> "SwinV2":
        """Make the encoder.

        Raises:
            ValueError: transformers is missing, or these are no patches of a square picture.
        """
        return SwinV2(self, input_dim, length)


class SwinV2(SequenceEncoder):
    """Reads the patches of a picture with a Swin Transformer.

    Args:
        config: of the encoder.
        input_dim: numbers of a patch, ``3 * p * p``.
        length: patches of a picture.
    """

    def __init__(self, config: SwinV2Config, input_dim: int, length: int) -> None:
        super().__init__()
        try:
            swin: Any = import_module("transformers")
        except ImportError:
            raise ValueError("swin-v2 needs the package transformers: pip install 'transformers>=5,<6'") from None
        self.patch, side = isqrt(input_dim // 3), isqrt(length)
        good = 3 * self.patch**2 == input_dim and side**2 == length
        require(good, "input_dim", input_dim, f"swin-v2 reads square pictures as {length} patches of 3 * p * p numbers")
        self.config, self.side = config, side
        self.swin = self._built(swin, side)
        self.output_dim = config.dim * 2 ** (len(config.depths) - 1)
        self._others: dict[int, nn.Module] = {}
        """Models for other sides, without weights; no part of this module, so that nothing saves or counts them."""

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """See :class:`SequenceEncoder`; the outputs are those of the merged patches of the last stage."""
        require_rows(inputs, padding)
        if padding is not None and padding.any():
            raise ValueError("padding: swin-v2 reads whole pictures; none of their patches can be padding")
        pictures, side = from_patches(inputs, self.patch), isqrt(inputs.shape[1])
        if side == self.side:
            found = self.swin(pictures)
        else:
            found = functional_call(self._for_side(side), dict(self.swin.named_parameters()), (pictures,))
        return Encoding(found.last_hidden_state, found.pooler_output)

    def _for_side(self, side: int) -> nn.Module:
        """A model for pictures of other patches a side, which is called with the weights of this one."""
        if side not in self._others:
            with torch.random.fork_rng(devices=[]):  # its weights are drawn for nothing: nobody may notice
                made = self._built(import_module("transformers"), side)
            for parameter in made.parameters():
                parameter.data = parameter.data.new_empty(0)
            self._others[side] = made.requires_grad_(False)
        like = next(self.swin.parameters())
        return self._others[side].to(like.device, like.dtype).train(self.training)

    def _built(self, swin: Any, side: int) -> nn.Module:
        """A model of the package for pictures of ``side`` patches a side."""
        config, least = self.config, 2 ** (len(self.config.depths) - 1)
        remedy = f"{len(config.depths)} stages merge {side} patches a side too often"
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
