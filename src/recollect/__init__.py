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
    from recollect.cores.base import CoreConfig, MemoryCore
    from recollect.cores.causal_transformer import CausalTransformer, CausalTransformerConfig
    from recollect.cores.feedback_transformer import FeedbackTransformer, FeedbackTransformerConfig
    from recollect.cores.hierarchical_chunk_memory import HierarchicalChunkMemory, HierarchicalChunkMemoryConfig
    from recollect.cores.long_short_transformer import LongShortTransformer, LongShortTransformerConfig
    from recollect.cores.memoryless import Memoryless, MemorylessConfig
    from recollect.cores.recurrent import GRU, LSTM, GRUConfig, LSTMConfig
    from recollect.cores.recurrent_transformer import RecurrentTransformer, RecurrentTransformerConfig
    from recollect.cores.stream import Stream
    from recollect.cores.temporal_latent_bottleneck import TemporalLatentBottleneck, TemporalLatentBottleneckConfig
    from recollect.cores.token_turing_machine import TokenTuringMachine, TokenTuringMachineConfig
    from recollect.cores.transformer_xl import TransformerXL, TransformerXLConfig

__version__ = "0.1.0"
_register()

_HOMES = {
    "CORES": "cores",
    "CoreConfig": "cores.base",
    "MemoryCore": "cores.base",
    "Stream": "cores.stream",
    "Memoryless": "cores.memoryless",
    "MemorylessConfig": "cores.memoryless",
    "LSTM": "cores.recurrent",
    "LSTMConfig": "cores.recurrent",
    "GRU": "cores.recurrent",
    "GRUConfig": "cores.recurrent",
    "CausalTransformer": "cores.causal_transformer",
    "CausalTransformerConfig": "cores.causal_transformer",
    "TransformerXL": "cores.transformer_xl",
    "TransformerXLConfig": "cores.transformer_xl",
    "HierarchicalChunkMemory": "cores.hierarchical_chunk_memory",
    "HierarchicalChunkMemoryConfig": "cores.hierarchical_chunk_memory",
    "TemporalLatentBottleneck": "cores.temporal_latent_bottleneck",
    "TemporalLatentBottleneckConfig": "cores.temporal_latent_bottleneck",
    "TokenTuringMachine": "cores.token_turing_machine",
    "TokenTuringMachineConfig": "cores.token_turing_machine",
    "FeedbackTransformer": "cores.feedback_transformer",
    "FeedbackTransformerConfig": "cores.feedback_transformer",
    "RecurrentTransformer": "cores.recurrent_transformer",
    "RecurrentTransformerConfig": "cores.recurrent_transformer",
    "LongShortTransformer": "cores.long_short_transformer",
    "LongShortTransformerConfig": "cores.long_short_transformer",
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
