import json

import pytest

from recollect.benchmark import run_roofline
from recollect.benchmark.config import RooflineBenchmark
from recollect.benchmark.roofline import full_state
from recollect.cores import CORES
from recollect.state import nbytes


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roofline")
    config = RooflineBenchmark(cores=("gru",), quick=True, batch=2, steps=8, repeats=2, output=str(folder))
    return run_roofline(config), folder


def test_limit_is_the_larger_of_arithmetic_and_bytes(results):
    for row in results[0].rows:
        assert row.arithmetic_us == pytest.approx(1e6 * row.flops / row.peak, abs=1e-3)
        assert row.bytes_us == pytest.approx(1e6 * row.bytes / row.bandwidth, abs=1e-3)
        assert row.limit_us == max(row.arithmetic_us, row.bytes_us)
        assert row.share == pytest.approx(row.limit_us / row.measured_us, abs=1e-3)


def test_flops_and_bytes_are_those_of_the_core(results):
    train, step = (results[0].find("gru", work) for work in ("training", "step"))
    core = CORES["gru"](dim=16, num_layers=2).build(16)
    weights, state = sum(weight.nbytes for weight in core.parameters()), nbytes(full_state(core))
    assert step.flops == core.flops_per_step() and train.flops == min(3 * step.flops, int(train.executed))
    assert step.bytes == weights + state + 4 * (16 + 16)
    assert train.bytes == pytest.approx((3 * weights + 2 * 2 * state) / (2 * 8) + 2 * 4 * (16 + 16))
    assert 0.5 < train.executed / train.flops < 2


def test_results_are_saved(results):
    found, folder = results
    (path,) = folder.glob("roofline-*.json")
    assert [row["work"] for row in json.loads(path.read_text())["rows"]] == ["training", "step"]
    assert json.loads(path.read_text())["rows"][0]["core"] == found.rows[0].core == "gru"
