"""The Long-Short Transformer as an encoder: home segments with their neighbors, and landmarks of the whole row.

Paper:    Zhu et al. 2021; a baseline of Didolkar et al. 2022, table 4. Equations and deviations:
          cores/long_short/core.py.
"""

from torch import Tensor

from recollect.encoders.config import TwoWayLongShortConfig
from recollect.encoders.contract import Encoding, SequenceEncoder, require_rows


class TwoWayLongShort(SequenceEncoder):
    """Encoder around a two-way Long-Short Transformer."""

    def __init__(self, config: TwoWayLongShortConfig, input_dim: int) -> None:
        super().__init__()
        self.core = config.core.build(input_dim)
        self.output_dim = config.core.dim

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode whole rows by windows in both directions and landmarks of the whole row."""
        require_rows(inputs, padding)
        return Encoding(self.core.encode(inputs, padding), None)
