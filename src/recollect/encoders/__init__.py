"""Encoders that read whole rows both ways, without a state. ``ENCODERS`` is the table of contents."""

from recollect.encoders.contract import EncoderConfig, Encoding, SequenceEncoder
from recollect.encoders.linear_transformer import LinearTransformerConfig
from recollect.encoders.linformer import LinformerConfig
from recollect.encoders.long_short import TwoWayLongShortConfig
from recollect.encoders.past_chunks import PastChunksConfig
from recollect.encoders.performer import PerformerConfig
from recollect.encoders.swin_v2 import SwinV2Config
from recollect.encoders.tlb import TwoWayTLBConfig
from recollect.encoders.transformer import TransformerConfig
from recollect.encoders.vit import ViTConfig
from recollect.encoders.vit_tlb import ViTTLBConfig

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

__all__ = ["ENCODERS", "EncoderConfig", "Encoding", "SequenceEncoder"]
