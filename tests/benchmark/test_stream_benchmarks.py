"""The benchmarks of reduced weights and of the store of live streams, on few steps."""

import json
import math

import pytest
import torch

from recollect.benchmark import (
    HTTPBenchmark,
    NeighboursBenchmark,
    PrecisionBenchmark,
    ServingBenchmark,
    SoakBenchmark,
    render_http,
    render_precision,
    render_serving,
    render_soak,
    run_http,
    run_soak,
)
from recollect.benchmark import run_precision as measure_precision
from recollect.benchmark import run_serving as measure_serving
from recollect.benchmark.precision import mean_of_parts

SMALL = {"memory_len": 4, "repeats": 2, "seconds": 0.0, "quick": True, "batches": (1,)}


def test_formats_agree_with_float32_and_results_are_saved(tmp_path):
    results = measure_precision(PrecisionBenchmark(**SMALL, output=str(tmp_path)))
    # A strict reader takes the file: what a measurement has no number for is null.
    [saved] = [json.loads(path.read_text(), parse_constant=pytest.fail) for path in tmp_path.glob("precision-*.json")]
    assert {row["measure"]: row["agreement"] is None for row in saved["rows"]} == {"speed": True, "agreement": False}
    assert saved["bandwidth"] == results.bandwidth > 0
    speed = {row.format: row for row in results.rows if row.measure == "speed"}
    agreement = {row.format: row for row in results.rows if row.measure == "agreement"}
    assert set(speed) == {*agreement, "float32"}
    assert speed["int8"].weight_bytes < 0.3 * speed["float32"].weight_bytes
    assert speed["cache"].stream_bytes < 0.6 * speed["float32"].stream_bytes
    for row in agreement.values():
        assert row.steps == 640
        assert row.agreement > 0.99
        assert 0 < row.last_drift < 0.05
    assert render_precision(results)


def test_tenths_of_other_lengths_are_means_too():
    assert mean_of_parts(torch.full((15,), 0.5).unbind()) == [0.5] * 10


def test_models_that_do_not_act_are_refused():
    with pytest.raises(ValueError, match="does not act in a world"):
        measure_precision(PrecisionBenchmark(model="model:shape-activities-ttm", **SMALL, output=""))


def test_store_answers_all_askers():
    results = measure_serving(ServingBenchmark(quick=True, output=""))
    assert [(row.askers, row.cache, row.age) for row in results.rows] == [
        (askers, cache, age) for askers in (2, 4) for cache in ("float32", "bfloat16") for age in (20, 9)
    ]
    for row in results.rows:
        assert row.steps >= row.askers
        assert row.steps_per_s > 0 and math.isfinite(row.p99_ms)
        assert 1 <= row.rows_per_call <= row.askers
    assert results.rows[2].store_bytes < 0.6 * results.rows[0].store_bytes
    assert results.rows[0].fill > results.rows[1].fill > 0
    assert all(row.last_age > row.age for row in results.rows)
    assert render_serving(results)


def test_a_soak_test_takes_all_steps_and_reads_the_memory(tmp_path):
    config = SoakBenchmark(quick=True, output=str(tmp_path))
    results = run_soak(config)
    assert [row.steps // 50 for row in results.rows] == [1, 2, 3, 4] and results.rows[-1].steps < 200 + config.askers
    first = results.rows[0].resident_bytes
    assert [row.growth for row in results.rows] == [row.resident_bytes - first for row in results.rows]
    [saved] = [json.loads(path.read_text()) for path in tmp_path.glob("soak-*.json")]
    assert saved["rows"][-1]["steps"] == results.rows[-1].steps
    assert render_soak(results)


@pytest.mark.long
def test_a_server_answers_all_connections():
    pytest.importorskip("uvicorn")
    results = run_http(HTTPBenchmark(quick=True, output=""))
    assert [(row.connections, row.together) for row in results.rows] == [(2, 1), (2, 3)]
    for row in results.rows:
        assert row.steps >= row.connections * row.together
        assert row.steps_per_s > 0 and row.p50_ms <= row.p99_ms <= row.worst_ms
    assert render_http(results)


def test_a_server_that_does_not_start_is_named():
    with pytest.raises(ValueError, match=r"model='nowhere': recollect serve did not start: .*nowhere"):
        run_http(HTTPBenchmark(model="nowhere", quick=True, output=""))


def test_settings_name_the_remedy():
    with pytest.raises(ValueError, match=r"together=.*at least 1"):
        HTTPBenchmark(together=())
    with pytest.raises(ValueError, match=r"formats='int8'.*give WEIGHTS/CACHE"):
        ServingBenchmark(formats=("int8",))
    with pytest.raises(ValueError, match=r"askers=.*use at most streams=4"):
        ServingBenchmark(streams=4, askers=(5,))
    for broken, field in (
        (lambda: ServingBenchmark(askers=()), "askers"),
        (lambda: ServingBenchmark(formats=()), "formats"),
        (lambda: ServingBenchmark(seconds=0.0), "seconds"),
        (lambda: HTTPBenchmark(seconds=0.0), "seconds"),
        (lambda: PrecisionBenchmark(batches=()), "batches"),
        (lambda: NeighboursBenchmark(neighbours=()), "neighbours"),
        (lambda: NeighboursBenchmark(cores=()), "cores"),
    ):
        with pytest.raises(ValueError, match=f"^{field}=.*give"):
            broken()
