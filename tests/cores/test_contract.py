"""Every core of the table keeps the contract: at the configs in ``samples/``, at a random one, and by default.

A core's ``samples/<key>.py`` has ``CONFIGS``, tiny configs that cover its options, and ``sample(rng)``, which draws one
from the whole space. ``RECOLLECT_CONTRACT_SAMPLES=200`` draws more; tests/certify/test_random_configs.py has all lines.
"""

import importlib.util
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from recollect.certify import LINES, SLOW_LINES, certify, from_config, load
from recollect.cores import CORES
from tiers import first

SAMPLES = Path(__file__).parent / "samples"
DRAWS = int(os.environ.get("RECOLLECT_CONTRACT_SAMPLES", "1"))
OFTEN = [name for name in LINES if name not in SLOW_LINES]
IN_TURN = (
    ["modes", "float32", "row-subset"],
    ["weights", "backward", "transforms"],
    ["frames", "frames-memory", "copies"],
)
"""Lines that take their turns over the configs, as the circumstances (training mode, one row, ...) of the others do."""
RARELY = (["hidden-state"], ["bfloat16", "float16"], ["save-load", "device"])
"""Lines that hardly depend on the options: in turn over the configs after the first, which has them all."""
ELSEWHERE = ["reference"]
"""Made in test_references.py."""


def samples(key: str) -> ModuleType | None:
    path = SAMPLES / f"{key.replace('-', '_')}.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location(f"samples_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases() -> Iterator[pytest.param]:  # type: ignore[valid-type]
    for key in CORES:
        module = samples(key)
        if module is None:
            continue  # test_core_has_samples fails
        found = [pytest.param(key, config, i, id=f"{key}-{i}") for i, config in enumerate(module.CONFIGS)]
        for seed in range(DRAWS):
            config = module.sample(random.Random(f"{key} {seed}"))
            found.append(pytest.param(key, config, seed, id=f"{key}-random-{seed}"))
        yield from first(1, found)


@pytest.mark.parametrize("key", CORES)
def test_core_has_samples(key):
    module = samples(key)
    assert module is not None, f"write {SAMPLES.name}/{key.replace('-', '_')}.py: without it {key} is hardly tested"
    assert module.CONFIGS, f"{key}: CONFIGS is empty"
    for config in [*module.CONFIGS, module.sample(random.Random(0))]:
        assert type(config) is CORES[key]


def lines_of(index: int) -> list[str]:
    resting = ELSEWHERE + [name for turn, names in enumerate(IN_TURN) if turn != index // 2 % 3 for name in names]
    resting += [name for turn, names in enumerate(RARELY) if index and turn != index % 3 for name in names]
    return [name for name in OFTEN if name not in resting]


@pytest.mark.parametrize(("key", "config", "index"), list(cases()))
def test_contract(key, config, index):
    # Inputs as wide as the core (no projection) and otherwise, in turn.
    input_dim = config.dim if index % 2 else config.dim + 3
    card = certify(from_config(config, name=key, input_dim=input_dim), lines=lines_of(index), seed=index, quick=True)
    assert card.passed, str(card)


@pytest.mark.long
@pytest.mark.parametrize("key", CORES)
def test_slow_lines_by_default(key):
    card = certify(load(key), lines=SLOW_LINES, long_steps=10_000, long_seconds=0.5, quick=True)
    assert card.passed, str(card)
