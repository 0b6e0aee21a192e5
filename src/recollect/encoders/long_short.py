"""The Long-Short Transformer as an encoder: home segments with their neighbours, and landmarks of the whole row.

Paper:    Zhu et al. 2021; a baseline of Didolkar et al. 2022, table 4. Equations and deviations:
          cores/long_short/core.py.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from recollect.config import require
from recollect.cores.long_short import LongShortTransformerConfig
from recollect.encoders.contract import EncoderConfig, Encoding, SequenceEncoder, require_rows


@dataclass(frozen=True, kw_only=True)
class TwoWayLongShortConfig(EncoderConfig):
    """Windows and landmarks, for whole rows."""

    paper: ClassVar[str] = "Zhu et al. 2021"

    core: LongShortTransformerConfig = field(
        default_factory=lambda: LongShortTransformerConfig(causal=False, memory_len=8, num_landmarks=32)
    )
    """The core; whole rows need causal=False."""

    def __post_init__(self) -> None:
        require(not self.core.causal, "core.causal", self.core.causal, "whole rows need causal=False")

    def build(self, input_dim: int, length: int) -> "TwoWayLongShort":
        """Make the encoder."""
        return TwoWayLongShort(self, input_dim)


class TwoWayLongShort(SequenceEncoder):
    """Reads a row with a Long-Short Transformer.

    Args:
        config: of the encoder.
        input_dim: width of the inputs.
    """

    def __init__(self, config: TwoWayLongShortConfig, input_dim: int) -> None:
        super().__init__()
        self.core = config.core.build(input_dim)
        self.output_dim = config.core.dim

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """See :class:`SequenceEncoder`."""
        require_rows(inputs, padding)
        return Encoding(self.core.encode(inputs, padding), None)
