"""The memory cores: one paper, one folder. ``CORES`` is the table of contents."""

from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.contract import CoreConfig
from recollect.cores.feedback import FeedbackTransformerConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.long_short import LongShortTransformerConfig
from recollect.cores.memoryless import MemorylessConfig
from recollect.cores.recurrent import GRUConfig, LSTMConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.cores.transformer_xl import TransformerXLConfig
from recollect.cores.ttm import RecurrentTransformerConfig, TokenTuringMachineConfig

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
