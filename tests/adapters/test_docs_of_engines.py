"""The code of the page about engines runs as it stands, where the engine is installed."""

import importlib
import re
import sys
import warnings
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/engines.md").read_text()
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize(
    ("part", "engine"),
    [("TorchRL", "torchrl.collectors"), ("Stable-Baselines3", "sb3_contrib"), ("RLlib", "ray.rllib")],
)
def test_an_example_runs(part, engine):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(engine, exc_type=ImportError)
    (code,) = re.findall(rf"^## {part}\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    try:
        exec(compile(code, "engines.md", "exec"), {})
    finally:
        if "ray" in sys.modules:  # the tests after this one start Ray themselves
            sys.modules["ray"].shutdown()


@pytest.mark.parametrize("extra", ["torchrl", "sb3", "rllib"])
def test_a_missing_engine_is_named_with_its_extra(extra, monkeypatch):
    roots = {"torchrl": {"tensordict", "torchrl"}, "sb3": {"sb3_contrib"}, "rllib": {"ray"}}[extra]
    for name in {*roots, *(name for name in sys.modules if name.partition(".")[0] in roots)}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"recollect.adapters.{extra}", raising=False)
    with pytest.raises(ImportError, match=rf"run pip install 'recollect-torch\[{extra}\]'") as caught:
        importlib.import_module(f"recollect.adapters.{extra}")
    assert "\n" not in str(caught.value)
