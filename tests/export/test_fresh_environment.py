"""Every shipped model, exported, runs in a fresh environment that has onnxruntime and NumPy only."""

import re
import subprocess
import sys

import numpy as np
import pytest

from recollect.agents.model_sources import shipped_models
from recollect.export import export_run

WITHOUT = "import importlib.util as u; print([n for n in ('torch', 'recollect', 'onnx') if u.find_spec(n)])"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with onnxruntime and NumPy: seconds, and the packages of this environment's versions."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    made, wanted = str(folder / "bin/python"), [f"onnxruntime=={onnxruntime.__version__}", f"numpy=={np.__version__}"]
    found = subprocess.run([made, "-m", "pip", "install", "-q", *wanted], capture_output=True, text=True, timeout=900)
    if found.returncode:
        pytest.skip(f"no package index: {found.stderr.strip()[-200:]}")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(shipped_models()))
def test_a_shipped_model_passes_its_self_test_without_torch(name, python, tmp_path):
    export_run(f"model:{name}", tmp_path / "out", format="onnx")
    assert subprocess.check_output([python, "-I", "-c", WITHOUT], text=True).strip() == "[]"
    told = subprocess.run(
        [python, "client.py"], cwd=tmp_path / "out", env={}, capture_output=True, text=True, timeout=300
    )
    print(f"{name}: {told.stdout.strip()}")
    assert told.returncode == 0, told.stdout + told.stderr
    assert float(re.findall(r"200 steps, largest relative difference (\S+)", told.stdout)[0]) < 1e-4
