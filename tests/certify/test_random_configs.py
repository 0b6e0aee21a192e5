"""The certificate at random configs of every core: no false alarm.

The quick certificate at random configs is in tests/cores/test_contract.py; this one has the lines in all variants and
drawn sizes, which takes seconds per config. The slow lines (compiled, exported and long runs) are tested once per core,
in tests/cores/test_contract.py; of each family one core is exported here too, at drawn sizes.
`RECOLLECT_CERTIFY_SAMPLES` is the number of configs per core.
"""

import importlib.util
import os
import random
from pathlib import Path

import pytest

from recollect.certify import LINES, SLOW_LINES, certify, from_config
from recollect.cores import CORES

SAMPLES = Path(__file__).parents[1] / "cores" / "samples"
EXPORTED = {"tlb", "instructed", "long-short-transformer", "mamba2", "rwkv7", "hybrid", "timesformer"}
DRAWS = int(os.environ.get("RECOLLECT_CERTIFY_SAMPLES", "1"))


def draw(key, seed):
    spec = importlib.util.spec_from_file_location("samples", SAMPLES / f"{key.replace('-', '_')}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.sample(random.Random(f"whole {key} {seed}"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(DRAWS))
@pytest.mark.parametrize("key", CORES)
def test_no_false_alarm_at_a_random_config(key, seed):
    config = draw(key, seed)
    candidate = from_config(config, name=key, input_dim=config.dim + seed % 4, seed=seed)
    left_out = set(SLOW_LINES) - ({"export"} if key in EXPORTED else set())
    lines = [name for name in LINES if name not in left_out]
    card = certify(candidate, lines=lines, seed=seed, batch=3 + seed % 3, size_seed=seed)
    assert card.passed, f"{config}\n{card}"
