"""A Vision Transformer with a temporal latent bottleneck: chunks of patches, and slots that sum up the picture.

    64 pixels    256 patches, chunks of K        128 pixels    1024 patches, chunks of 4 K

A picture of a higher resolution keeps its number of chunks: each has more patches. A smaller one keeps the length of
its chunks and has fewer of them, the last one shorter where it does not come out even: 32 pixels have 64 patches in 4
chunks of K.

Paper:    Didolkar et al. 2022, sections 3.1 and 7.1: chunks of 16 patches (a row of them) at 64 pixels, of 64 (two
          rows) at 128. Equations and deviations: cores/tlb/core.py; ``core.feedback`` has the two ablations of table
          2, "none" (no past information) and "per_layer" (no top-down conditioning).
Differs:  where the number of patches of a larger picture does not come out even, chunks are as long as those it was
          built for, times the quotient, rounded down. The paper reads no pictures smaller than those it trains on.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.contract import Encoding, require_rows
from recollect.encoders.tlb import TwoWayTLB, TwoWayTLBConfig
from recollect.layers.tap import listen


@dataclass(frozen=True, kw_only=True)
class ViTTLBConfig(TwoWayTLBConfig):
    """A bottleneck over the patches of pictures, whose chunks grow with the resolution, and do not shrink."""

    core: TemporalLatentBottleneckConfig = field(
        default_factory=lambda: TemporalLatentBottleneckConfig(
            causal=False, chunk_len=16, num_slots=5, positions="none"
        )
    )
    """The core; whole rows need causal=False, longer chunks positions="none"."""

    def build(self, input_dim: int, length: int) -> "ViTTLB":
        """Make the encoder."""
        return ViTTLB(self, input_dim, length)


class ViTTLB(TwoWayTLB):
    """Reads the patches of a picture with a temporal latent bottleneck.

    Args:
        config: of the encoder.
        input_dim: width of the inputs.
        length: patches of the pictures that it is trained on.
    """

    def __init__(self, config: ViTTLBConfig, input_dim: int, length: int) -> None:
        super().__init__(config, input_dim)
        self.length = length

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """See :class:`SequenceEncoder`.

        Raises:
            ValueError: padding in rows of more than ``length`` patches.
        """
        require_rows(inputs, padding)
        own = self.core.config.chunk_len
        longer = inputs.shape[1] > self.length
        if longer and padding is not None:
            raise ValueError(
                f"padding: rows of {inputs.shape[1]} patches are longer than the {self.length} that this encoder was "
                "built for, and their number decides how long a chunk is: give such pictures without padding"
            )
        chunk_len = own * inputs.shape[1] // self.length if longer else own
        outputs, state = self.core.encode(inputs, padding, chunk_len=chunk_len)
        return Encoding(outputs, self.slots(state))

    def summary_attention(self, inputs: Tensor) -> Tensor:
        """Attention of the slots when they are written (the top ones), mean over heads and slots: ``[b, t]``.

        It is a softmax over each chunk: every chunk gets as much as every other.
        """
        heard: list[Tensor] = []
        with listen(self.core.levels[-1].write, lambda name, weights: heard.append(weights)):
            self(inputs)
        return torch.cat([weights.mean((1, 2)) for weights in heard], 1)[:, : inputs.shape[1]]
