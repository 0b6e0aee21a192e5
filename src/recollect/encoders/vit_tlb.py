"""A Vision Transformer with a temporal latent bottleneck: chunks of patches, and slots that summarize the image.

    64 pixels    256 patches, chunks of K        128 pixels    1024 patches, chunks of 4 K

An image of higher resolution keeps its number of chunks: each has more patches. A smaller one keeps the length of its
chunks and has fewer of them, the last one shorter if necessary: 32 pixels have 64 patches in 4 chunks of K.

Paper:    Didolkar et al. 2022, sections 3.1 and 7.1: chunks of 16 patches (a row of them) at 64 pixels, of 64 (two
          rows) at 128. Equations and deviations: cores/tlb/core.py; ``core.feedback`` has the two ablations of table
          2, "none" (no past information) and "per_layer" (no top-down conditioning).
Differs:  the chunks of a larger image are as long as those the encoder was built for, times the quotient of the patch
          numbers, rounded down. The paper reads no images smaller than those it trains on.
"""

import torch
from torch import Tensor

from recollect.encoders.config import ViTTLBConfig
from recollect.encoders.contract import Encoding, require_rows
from recollect.encoders.tlb import TwoWayTLB
from recollect.layers.tap import listen, listen_to_scores


class ViTTLB(TwoWayTLB):
    """Temporal latent bottleneck over patches of images, trained on images of ``length`` patches."""

    def __init__(self, config: ViTTLBConfig, input_dim: int, length: int) -> None:
        super().__init__(config, input_dim)
        self.length = length

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode the patches of whole pictures, chunk by chunk, through the slots of a temporal latent bottleneck.

        Raises:
            ValueError: padding in rows of more than ``length`` patches.
        """
        require_rows(inputs, padding)
        chunk_len = self.core.config.chunk_len
        if inputs.shape[1] > self.length:
            if padding is not None:
                raise ValueError(
                    f"padding: rows of {inputs.shape[1]} patches are longer than the {self.length} that this encoder "
                    "was built for, and their number sets the length of a chunk: give such images without padding"
                )
            chunk_len = chunk_len * inputs.shape[1] // self.length
        outputs, state = self.core.encode(inputs, padding, chunk_len=chunk_len)
        return Encoding(outputs, self.slots(state))

    def summary_attention(self, inputs: Tensor, *, across_chunks: bool = False) -> Tensor:
        """Return the attention of the top slots when they are written, mean over heads and slots: ``[b, t]``.

        It is a softmax over each chunk, so that all chunks have the same sum; or, with ``across_chunks``, one softmax
        of the same scores over the whole picture, which shows the chunks that match the slots best.
        """
        recorded: list[Tensor] = []  # b h N K, of each chunk
        write = self.core.levels[-1].write
        if across_chunks:
            with listen_to_scores(write.attention.tap, recorded.append):
                self(inputs)
            return torch.cat(recorded, -1)[..., : inputs.shape[1]].float().softmax(-1).mean((1, 2))
        with listen(write, lambda name, weights: recorded.append(weights)):
            self(inputs)
        return torch.cat([weights.mean((1, 2)) for weights in recorded], 1)[:, : inputs.shape[1]]
