"""The memory cores: one paper, one file. ``CORES`` is the table of contents. (TEMPORARY tolerant form while files are being edited.)"""

import importlib

from recollect.cores.base import CoreConfig

CORES: dict[str, type[CoreConfig]] = {}
for _key, _module, _name in [
    ("memoryless", "memoryless", "MemorylessConfig"),
    ("lstm", "recurrent", "LSTMConfig"),
    ("gru", "recurrent", "GRUConfig"),
    ("causal-transformer", "causal_transformer", "CausalTransformerConfig"),
    ("transformer-xl", "transformer_xl", "TransformerXLConfig"),
    ("hcam", "hierarchical_chunk_memory", "HierarchicalChunkMemoryConfig"),
    ("tlb", "temporal_latent_bottleneck", "TemporalLatentBottleneckConfig"),
    ("ttm", "token_turing_machine", "TokenTuringMachineConfig"),
    ("feedback-transformer", "feedback_transformer", "FeedbackTransformerConfig"),
    ("recurrent-transformer", "recurrent_transformer", "RecurrentTransformerConfig"),
    ("long-short-transformer", "long_short_transformer", "LongShortTransformerConfig"),
]:
    try:
        CORES[_key] = getattr(importlib.import_module(f"recollect.cores.{_module}"), _name)
    except Exception as _error:
        print(f"core {_key}: {_error}")
