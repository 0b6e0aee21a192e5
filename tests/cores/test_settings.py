"""Bad settings are refused with field, value and remedy; plain forms refuse dropout; older configs load."""

import re

import pytest
import torch

from recollect.config import from_json
from recollect.cores import CORES
from recollect.cores.config import CoreConfig

SIZES = {
    "causal-transformer": {},
    "ttm": {"dim": 8, "num_tokens": 3, "num_slots": 5, "num_reads": 2, "num_heads": 2},
    "recurrent-transformer": {"dim": 8, "num_tokens": 3, "num_slots": 5, "num_reads": 2, "num_heads": 2},
}

BAD = [
    ("hcam", {"dim": 10, "num_heads": 3}, "num_heads=3: must divide dim=10"),
    ("hcam", {"num_chunks": 0}, "num_chunks=0: give at least 1"),
    ("hcam", {"top_k": 0}, "top_k=0: give at least 1"),
    ("hcam", {"hidden_dim": 0}, "hidden_dim=0: give at least 1"),
    ("hcam", {"dropout": 1.0}, "dropout=1.0: give a probability below 1"),
    ("hcam", {"chunk_overlap": 2}, "chunk_overlap=2: choose 0 or 1"),
    ("hcam", {"chunk_len": 1, "chunk_overlap": 1}, "chunk_len=1: give more than chunk_overlap=1"),
    ("hcam", {"memory_len": 14}, "memory_len=14: give at least chunk_len - 1 = 15"),
    ("hcam", {"reading": "full_softmax"}, "reading='full_softmax': give a ChunkAttentionVariant"),
    ("tlb", {"dim": 0}, "dim=0: give a positive"),
    ("tlb", {"chunk_len": 0}, "chunk_len=0: give a positive"),
    ("tlb", {"num_slots": -1}, "num_slots=-1: give a positive"),
    ("tlb", {"num_heads": 3}, "num_heads=3: choose a divisor of dim=128"),
    ("tlb", {"hidden_dim": 0}, "hidden_dim=0: give at least 1"),
    ("tlb", {"dropout": 1.0}, "dropout=1.0: give a probability"),
    ("tlb", {"self_per_cross": 3}, "self_per_cross=3: no cross layer comes in 2 layers: lower it"),
    ("memoryless", {"dim": -1}, "dim=-1: give a positive"),
    ("memoryless", {"num_layers": 0}, "num_layers=0: give at least one"),
    ("memoryless", {"hidden_dim": 0}, "hidden_dim=0: give at least 1"),
    ("memoryless", {"dropout": -0.1}, "dropout=-0.1: give a probability"),
    ("lstm", {"dim": 0}, "dim=0: give a positive"),
    ("lstm", {"num_layers": 0}, "num_layers=0: give at least one"),
    ("lstm", {"dropout": 1.5}, "dropout=1.5: give a probability"),
    ("lstm", {"chrono_steps": 2}, "chrono_steps=2: give the longest lag in steps, 3 or more"),
    ("gru", {"state_noise": -0.1}, "state_noise=-0.1: give a deviation"),
    ("gru", {"state_noise": float("inf")}, "state_noise=inf: give a finite number"),
    ("gru", {"gate_stretch": -0.1}, "gate_stretch=-0.1: give a margin"),
    ("gru", {"chrono_steps": 9, "forget_bias": 1.0}, "forget_bias=1.0: chrono_steps sets the initial bias"),
    ("causal-transformer", {"dim": 0}, "dim=0: give at least 1"),
    ("causal-transformer", {"num_layers": 0}, "num_layers=0: give at least 1"),
    ("causal-transformer", {"num_heads": 0}, "num_heads=0: give at least 1"),
    ("causal-transformer", {"dim": 10, "num_heads": 3}, "num_heads=3: must divide dim=10"),
    ("causal-transformer", {"hidden_dim": 0}, "hidden_dim=0: give at least 1, or None"),
    ("causal-transformer", {"memory_len": 0}, "memory_len=0: give at least 1"),
    ("causal-transformer", {"dropout": 1.0}, "dropout=1.0: give a probability below 1"),
    ("causal-transformer", {"dropout": -0.1}, "dropout=-0.1: give a probability below 1"),
    ("causal-transformer", {"dim": 9, "num_heads": 3}, "num_heads=3: rotary positions need heads of even width"),
    ("causal-transformer", {"positions": "relative"}, "positions='relative': choose one of 'rotary', 'bias', 'none'"),
    ("causal-transformer", {"activation": "tanh"}, "activation='tanh': choose one of 'relu', 'gelu', 'gelu_tanh'"),
    ("transformer-xl", {"memory_len": 0}, "memory_len=0: give at least 1"),
    ("transformer-xl", {"gate": "lstm"}, "gate='lstm': choose one of 'residual', 'gru'"),
    ("transformer-xl", {"positions": "rotary"}, "positions='rotary': choose one of 'relative', 'learned', 'none'"),
    ("transformer-xl", {"top_k": 0}, "top_k=0: give at least 1, or None for all"),
    ("transformer-xl", {"activation": "tanh"}, "activation='tanh': choose one of 'relu', 'gelu', 'gelu_tanh'"),
    ("feedback-transformer", {"memory_len": 0}, "memory_len=0: give at least 1"),
    ("feedback-transformer", {"norm": "both"}, "norm='both': choose one of 'pre', 'post'"),
    ("long-short-transformer", {"num_heads": 3}, "num_heads=3: must divide dim=128"),
    ("long-short-transformer", {"memory_len": 14}, "memory_len=14: give at least 15, or steps leave the window"),
    ("long-short-transformer", {"chunk_len": 0}, "chunk_len=0: give at least 1"),
    ("long-short-transformer", {"num_landmarks": 0}, "num_landmarks=0: give at least 1"),
    ("long-short-transformer", {"num_segments": 0}, "num_segments=0: give at least 1"),
    ("long-short-transformer", {"positions": "absolute"}, "positions='absolute': choose one of 'relative', 'none'"),
    ("timesformer", {"time_rows": 2, "memory_len": 2}, "time_rows=2: give at least 3 for memory_len=2"),
    ("ttm", {"num_slots": 0}, "num_slots=0: give at least 1"),
    ("ttm", {"num_heads": 3}, "num_heads=3: the heads must share dim=8 equally"),
    ("ttm", {"dim": 12, "summarizer": "mha"}, "dim=12: the summarizer 'mha' has 8 heads"),
    ("ttm", {"summarizer": "mean"}, "summarizer='mean': choose one of 'mlp'"),
    ("ttm", {"processor": "lstm"}, "processor='lstm': choose one of 'transformer', 'mixer'"),
    ("ttm", {"memory": "all"}, "memory='all': choose one of 'token_summary'"),
    ("ttm", {"memory": "concatenate"}, "num_slots=5: the memory 'concatenate' holds whole steps"),
    ("ttm", {"positions": True}, "positions=True: choose one of 'paper', 'released'"),
    ("ttm", {"hidden_dim": 0}, "hidden_dim=0: give at least 1, or None"),
    ("ttm", {"summarizer": "pooling", "num_reads": 9}, "num_reads=9: pooling cannot make more tokens than it sees"),
    ("recurrent-transformer", {"variant": "first"}, "variant='first': choose one of 'paper', 'released'"),
    ("recurrent-transformer", {"summarizer": "none"}, "summarizer='none': its input is summarized"),
    ("recurrent-transformer", {"summarizer": "pooling", "num_reads": 4}, "num_reads=4: pooling"),
]


@pytest.mark.parametrize(("key", "settings", "message"), BAD, ids=str)
def test_bad_settings_are_named(key, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CORES[key](**SIZES.get(key, {}) | settings)


@pytest.mark.parametrize("key", [key for key, config in CORES.items() if "dropout" in config.__dataclass_fields__])
def test_plain_forms_refuse_dropout(key):
    heads = {"num_heads": 2} if "num_heads" in CORES[key].__dataclass_fields__ else {}
    core = CORES[key](dim=8, **heads, dropout=0.1).build(5)
    arguments = torch.zeros(1, 1, 5), core.initial_state(1), torch.zeros(1, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"dropout=0\.1: the plain form has none, call core\.eval\(\) first"):
        core.reference_unroll(*arguments)
    core.eval().reference_unroll(*arguments)


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("ttm", {"positions": "official"}, {"positions": "released"}),
        ("ttm", {"memory": "erase_add_official"}, {"memory": "erase_add_released"}),
        ("ttm", {"learned_start": True}, {"learned_initial_state": True}),
        ("recurrent-transformer", {"slicing": "natural"}, {"variant": "paper"}),
        (
            "recurrent-transformer",
            {"slicing": "official", "learned_start": True},
            {"variant": "released", "learned_initial_state": True},
        ),
    ],
)
def test_configs_of_earlier_versions_load(key, old, new):
    assert from_json({"kind": key, "dim": 8, **old}, CoreConfig, CORES) == CORES[key](dim=8, **new)
