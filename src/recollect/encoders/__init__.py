"""Encoders that read whole rows in both directions, without a state. ``ENCODERS`` is the table of contents.

Importing this package does not import torch.
"""

from typing import TYPE_CHECKING

from recollect.encoders.config import EncoderConfig as EncoderConfig
from recollect.encoders.config import (
    LinearTransformerConfig,
    LinformerConfig,
    PastChunksConfig,
    PerformerConfig,
    SwinV2Config,
    TransformerConfig,
    TwoWayLongShortConfig,
    TwoWayTLBConfig,
    ViTConfig,
    ViTTLBConfig,
)
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.encoders.contract import Encoding as Encoding
    from recollect.encoders.contract import SequenceEncoder as SequenceEncoder

ENCODERS: dict[str, type[EncoderConfig]] = {
    "two-way-tlb": TwoWayTLBConfig,
    "transformer": TransformerConfig,
    "two-way-long-short": TwoWayLongShortConfig,
    "past-chunks": PastChunksConfig,
    "linear-transformer": LinearTransformerConfig,
    "performer": PerformerConfig,
    "linformer": LinformerConfig,
    "vit": ViTConfig,
    "vit-tlb": ViTTLBConfig,
    "swin-v2": SwinV2Config,
}

__getattr__ = attach(__name__, {"Encoding": "contract", "SequenceEncoder": "contract"})
