"""The memory cores: one paper, one file. ``CORES`` is the table of contents."""

from recollect.cores.base import CoreConfig
from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.feedback_transformer import FeedbackTransformerConfig
from recollect.cores.hierarchical_chunk_memory import HierarchicalChunkMemoryConfig
from recollect.cores.long_short_transformer import LongShortTransformerConfig
from recollect.cores.memoryless import MemorylessConfig
from recollect.cores.recurrent import GRUConfig, LSTMConfig
from recollect.cores.recurrent_transformer import RecurrentTransformerConfig
from recollect.cores.temporal_latent_bottleneck import TemporalLatentBottleneckConfig
from recollect.cores.token_turing_machine import TokenTuringMachineConfig
from recollect.cores.transformer_xl import TransformerXLConfig

CORES: dict[str, type[CoreConfig]] = {
    "memoryless": MemorylessConfig,
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "causal-transformer": CausalTransformerConfig,
    "transformer-xl": TransformerXLConfig,
    "hcam": HierarchicalChunkMemoryConfig,
    "tlb": TemporalLatentBottleneckConfig,
    "ttm": TokenTuringMachineConfig,
    "feedback-transformer": FeedbackTransformerConfig,
    "recurrent-transformer": RecurrentTransformerConfig,
    "long-short-transformer": LongShortTransformerConfig,
}
