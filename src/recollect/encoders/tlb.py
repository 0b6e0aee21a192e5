"""The temporal latent bottleneck as an encoder: two-way chunks, and slots that summarize the row.

    outputs, state = core.encode(row, padding);   summary = mean over slots of LN(I)

Paper:    Didolkar et al. 2022, section 3.3: the mean of the slots is classified. Equations and deviations:
          cores/tlb/core.py.
"""

from torch import Tensor

from recollect.cores.tlb import SlotReadout
from recollect.encoders.config import TwoWayTLBConfig
from recollect.encoders.contract import Encoding, SequenceEncoder, require_rows


class TwoWayTLB(SequenceEncoder):
    """Encoder around a two-way temporal latent bottleneck."""

    def __init__(self, config: TwoWayTLBConfig, input_dim: int) -> None:
        super().__init__()
        self.core = config.core.build(input_dim)
        self.slots = SlotReadout(config.core)
        self.output_dim = config.core.dim

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode whole rows, chunk by chunk, with attention in both directions inside a chunk."""
        require_rows(inputs, padding)
        outputs, state = self.core.encode(inputs, padding)
        return Encoding(outputs, self.slots(state))
