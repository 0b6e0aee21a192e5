"""The memory cores: one paper, one folder. ``CORES`` is the table of contents; what is imported here is exported."""

from recollect.cores.causal_transformer import CausalTransformer, CausalTransformerConfig
from recollect.cores.contract import CoreConfig, MemoryCore
from recollect.cores.feedback import FeedbackTransformer, FeedbackTransformerConfig
from recollect.cores.hcam import HierarchicalChunkMemory, HierarchicalChunkMemoryConfig
from recollect.cores.instructed import InstructedTransformer, InstructedTransformerConfig
from recollect.cores.long_short import LongShortTransformer, LongShortTransformerConfig
from recollect.cores.memoryless import Memoryless, MemorylessConfig
from recollect.cores.mott import SpatialAttentionMemory, SpatialAttentionMemoryConfig
from recollect.cores.recurrent import GRU, LSTM, GRUConfig, LSTMConfig
from recollect.cores.spatio_temporal import SpatioTemporalAttention, SpatioTemporalAttentionConfig
from recollect.cores.stream import Stream
from recollect.cores.timesformer import TimeSformer, TimeSformerConfig
from recollect.cores.tlb import TemporalLatentBottleneck, TemporalLatentBottleneckConfig
from recollect.cores.transformer_xl import TransformerXL, TransformerXLConfig
from recollect.cores.ttm import (
    RecurrentTransformer,
    RecurrentTransformerConfig,
    TokenTuringMachine,
    TokenTuringMachineConfig,
)

CORES: dict[str, type[CoreConfig]] = {
    "memoryless": MemorylessConfig,
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "causal-transformer": CausalTransformerConfig,
    "transformer-xl": TransformerXLConfig,
    "hcam": HierarchicalChunkMemoryConfig,
    "tlb": TemporalLatentBottleneckConfig,
    "instructed": InstructedTransformerConfig,
    "ttm": TokenTuringMachineConfig,
    "feedback-transformer": FeedbackTransformerConfig,
    "recurrent-transformer": RecurrentTransformerConfig,
    "long-short-transformer": LongShortTransformerConfig,
    "mott": SpatialAttentionMemoryConfig,
    "spatio-temporal": SpatioTemporalAttentionConfig,
    "timesformer": TimeSformerConfig,
}

GENERAL_CORES = {key: config for key, config in CORES.items() if not (config.reads_map or config.reads_words)}
"""The cores that read any vector: rows of tables whose tasks show no images and give no instructions."""
