"""Recollect: memory for agents and long streams, in PyTorch.

    from recollect import HierarchicalChunkMemoryConfig

    core = HierarchicalChunkMemoryConfig(dim=128).build(input_dim=32)
    outputs, state = core(inputs, core.initial_state(8), is_first)

Names are imported when they are first used, so that ``import recollect``, the command line's help and the pytest
plugin do not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from recollect.gymnasium_ids import register as _register

if TYPE_CHECKING:
    from recollect import state
    from recollect.agents import ActorCritic, ActorCriticConfig, SequenceModel, SequenceModelConfig
    from recollect.cores import CORES
    from recollect.cores.causal_transformer.core import CausalTransformer, CausalTransformerConfig
    from recollect.cores.contract import CoreConfig, MemoryCore
    from recollect.cores.feedback.core import FeedbackTransformer, FeedbackTransformerConfig
    from recollect.cores.hcam import HierarchicalChunkMemory, HierarchicalChunkMemoryConfig
    from recollect.cores.long_short.core import LongShortTransformer, LongShortTransformerConfig
    from recollect.cores.memoryless.core import Memoryless, MemorylessConfig
    from recollect.cores.recurrent.core import GRU, LSTM, GRUConfig, LSTMConfig
    from recollect.cores.stream import Stream
    from recollect.cores.tlb.core import TemporalLatentBottleneck, TemporalLatentBottleneckConfig
    from recollect.cores.transformer_xl.core import TransformerXL, TransformerXLConfig
    from recollect.cores.ttm import (
        RecurrentTransformer,
        RecurrentTransformerConfig,
        TokenTuringMachine,
        TokenTuringMachineConfig,
    )

__version__ = "0.1.0"
_register()

_HOMES = {
    "CORES": "cores",
    "CoreConfig": "cores.contract",
    "MemoryCore": "cores.contract",
    "Stream": "cores.stream",
    "Memoryless": "cores.memoryless.core",
    "MemorylessConfig": "cores.memoryless.core",
    "LSTM": "cores.recurrent.core",
    "LSTMConfig": "cores.recurrent.core",
    "GRU": "cores.recurrent.core",
    "GRUConfig": "cores.recurrent.core",
    "CausalTransformer": "cores.causal_transformer.core",
    "CausalTransformerConfig": "cores.causal_transformer.core",
    "TransformerXL": "cores.transformer_xl.core",
    "TransformerXLConfig": "cores.transformer_xl.core",
    "HierarchicalChunkMemory": "cores.hcam",
    "HierarchicalChunkMemoryConfig": "cores.hcam",
    "TemporalLatentBottleneck": "cores.tlb.core",
    "TemporalLatentBottleneckConfig": "cores.tlb.core",
    "TokenTuringMachine": "cores.ttm",
    "TokenTuringMachineConfig": "cores.ttm",
    "FeedbackTransformer": "cores.feedback.core",
    "FeedbackTransformerConfig": "cores.feedback.core",
    "RecurrentTransformer": "cores.ttm",
    "RecurrentTransformerConfig": "cores.ttm",
    "LongShortTransformer": "cores.long_short.core",
    "LongShortTransformerConfig": "cores.long_short.core",
    "ActorCritic": "agents",
    "ActorCriticConfig": "agents",
    "SequenceModel": "agents",
    "SequenceModelConfig": "agents",
}

__all__ = [
    "CORES",
    "GRU",
    "LSTM",
    "ActorCritic",
    "ActorCriticConfig",
    "CausalTransformer",
    "CausalTransformerConfig",
    "CoreConfig",
    "FeedbackTransformer",
    "FeedbackTransformerConfig",
    "GRUConfig",
    "HierarchicalChunkMemory",
    "HierarchicalChunkMemoryConfig",
    "LSTMConfig",
    "LongShortTransformer",
    "LongShortTransformerConfig",
    "MemoryCore",
    "Memoryless",
    "MemorylessConfig",
    "RecurrentTransformer",
    "RecurrentTransformerConfig",
    "SequenceModel",
    "SequenceModelConfig",
    "Stream",
    "TemporalLatentBottleneck",
    "TemporalLatentBottleneckConfig",
    "TokenTuringMachine",
    "TokenTuringMachineConfig",
    "TransformerXL",
    "TransformerXLConfig",
    "state",
]


def __getattr__(name: str) -> Any:
    if name == "state":
        return importlib.import_module("recollect.state")
    if name not in _HOMES:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    return getattr(importlib.import_module(f"recollect.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
