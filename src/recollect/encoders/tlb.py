"""The temporal latent bottleneck as an encoder: chunks that look both ways, and slots that sum up the row.

    outputs, state = core.encode(row, padding);   summary = mean over slots of LN(I)

Paper:    Didolkar et al. 2022, section 3.3: the mean of the slots is what is classified. Equations and deviations:
          cores/tlb/core.py.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from recollect.config import require
from recollect.cores.tlb import SlotReadout, TemporalLatentBottleneckConfig
from recollect.encoders.contract import EncoderConfig, Encoding, SequenceEncoder, require_rows


@dataclass(frozen=True, kw_only=True)
class TwoWayTLBConfig(EncoderConfig):
    """Chunks and a slow stream of slots, for whole rows."""

    paper: ClassVar[str] = "Didolkar et al. 2022"
    has_summary: ClassVar[bool] = True

    core: TemporalLatentBottleneckConfig = field(default_factory=lambda: TemporalLatentBottleneckConfig(causal=False))
    """The core; whole rows need causal=False."""

    def __post_init__(self) -> None:
        require(not self.core.causal, "core.causal", self.core.causal, "whole rows need causal=False")

    def build(self, input_dim: int, length: int) -> "TwoWayTLB":
        """Make the encoder."""
        return TwoWayTLB(self, input_dim)


class TwoWayTLB(SequenceEncoder):
    """Reads a row with a temporal latent bottleneck.

    Args:
        config: of the encoder.
        input_dim: width of the inputs.
    """

    def __init__(self, config: TwoWayTLBConfig, input_dim: int) -> None:
        super().__init__()
        self.core = config.core.build(input_dim)
        self.slots = SlotReadout(config.core)
        self.output_dim = config.core.dim

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """See :class:`SequenceEncoder`."""
        require_rows(inputs, padding)
        outputs, state = self.core.encode(inputs, padding)
        return Encoding(outputs, self.slots(state))
