"""The memory cores: one paper, one folder. ``CORES`` lists the configs by key.

Importing this package does not import torch: the classes that need it are imported when they are first used.
"""

from typing import TYPE_CHECKING

from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.config import CoreConfig
from recollect.cores.feedback import FeedbackTransformerConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.hybrid import HybridConfig
from recollect.cores.instructed import InstructedTransformerConfig
from recollect.cores.linear import (
    GatedDeltaNetConfig,
    Mamba2Config,
    MinGRUConfig,
    MLSTMConfig,
    RGLRUConfig,
    RWKV7Config,
)
from recollect.cores.long_short import LongShortTransformerConfig
from recollect.cores.memoryless import MemorylessConfig
from recollect.cores.mott import SpatialAttentionMemoryConfig
from recollect.cores.recurrent import GRUConfig, LSTMConfig
from recollect.cores.spatio_temporal import SpatioTemporalAttentionConfig
from recollect.cores.timesformer import TimeSformerConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.cores.transformer_xl import TransformerXLConfig
from recollect.cores.ttm import RecurrentTransformerConfig, TokenTuringMachineConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.causal_transformer import CausalTransformer as CausalTransformer
    from recollect.cores.contract import MemoryCore as MemoryCore
    from recollect.cores.feedback import FeedbackTransformer as FeedbackTransformer
    from recollect.cores.hcam import HierarchicalChunkMemory as HierarchicalChunkMemory
    from recollect.cores.hybrid import Hybrid as Hybrid
    from recollect.cores.instructed import InstructedTransformer as InstructedTransformer
    from recollect.cores.linear import MLSTM as MLSTM
    from recollect.cores.linear import RGLRU as RGLRU
    from recollect.cores.linear import RWKV7 as RWKV7
    from recollect.cores.linear import GatedDeltaNet as GatedDeltaNet
    from recollect.cores.linear import Mamba2 as Mamba2
    from recollect.cores.linear import MinGRU as MinGRU
    from recollect.cores.long_short import LongShortTransformer as LongShortTransformer
    from recollect.cores.memoryless import Memoryless as Memoryless
    from recollect.cores.mott import SpatialAttentionMemory as SpatialAttentionMemory
    from recollect.cores.recurrent import GRU as GRU
    from recollect.cores.recurrent import LSTM as LSTM
    from recollect.cores.spatio_temporal import SpatioTemporalAttention as SpatioTemporalAttention
    from recollect.cores.stream import Stream as Stream
    from recollect.cores.timesformer import TimeSformer as TimeSformer
    from recollect.cores.tlb import TemporalLatentBottleneck as TemporalLatentBottleneck
    from recollect.cores.transformer_xl import TransformerXL as TransformerXL
    from recollect.cores.ttm import RecurrentTransformer as RecurrentTransformer
    from recollect.cores.ttm import TokenTuringMachine as TokenTuringMachine

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
    "min-gru": MinGRUConfig,
    "rg-lru": RGLRUConfig,
    "mamba2": Mamba2Config,
    "mlstm": MLSTMConfig,
    "gated-deltanet": GatedDeltaNetConfig,
    "rwkv7": RWKV7Config,
    "hybrid": HybridConfig,
    "mott": SpatialAttentionMemoryConfig,
    "spatio-temporal": SpatioTemporalAttentionConfig,
    "timesformer": TimeSformerConfig,
}

GENERAL_CORES = {key: config for key, config in CORES.items() if not (config.reads_map or config.reads_words)}
"""The cores that read any vector: rows of tables whose tasks show no images and give no instructions."""


def _core_sources() -> dict[str, str]:
    """Return the package of every core class: that of its config, which is named ``<class>Config``."""
    return {
        config.__name__.removesuffix("Config"): config.__module__.removeprefix(f"{__name__}.").partition(".")[0]
        for config in CORES.values()
    }


__getattr__ = attach(__name__, {"MemoryCore": "contract", "Stream": "stream", **_core_sources()})
