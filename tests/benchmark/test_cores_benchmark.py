import csv
import io
import json
import re

import pytest
import torch
from rich.console import Console

from recollect.benchmark import CoresBenchmark, Results, render, run
from recollect.benchmark.cores import core_config
from recollect.benchmark.positions import walk
from recollect.cores import CORES
from recollect.state import leaves


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[Results, object]:
    folder = tmp_path_factory.mktemp("results")
    return run(CoresBenchmark(cores=("memoryless", "gru"), quick=True, output=str(folder))), folder


def test_every_cell_of_the_table_is_measured(results):
    found, _ = results
    cells = {(r.core, r.measure, r.dtype, r.batch, r.position) for r in found.rows}
    sequence = {(m, None) for m in ("train", "train-resets", "forward")}
    wanted = {
        (core, measure, dtype, batch, position)
        for core in ("memoryless", "gru")
        for dtype in ("float32", "bfloat16")
        for batch in (1, 4)
        for measure, position in sequence | {("stream", 100), ("stream", 1000)}
    }
    assert cells == wanted and len(found.rows) == len(wanted)
    for row in found.rows:
        assert 0 < row.us_per_call <= row.us_per_call_median and row.share_of_peak >= 0
        assert row.steps_per_s == pytest.approx(row.batch * row.steps * 1e6 / row.us_per_call, rel=0.01)


def test_the_files_hold_the_numbers_and_where_they_come_from(results):
    found, folder = results
    (as_json,), (as_csv,) = folder.glob("cores-*.json"), folder.glob("cores-*.csv")
    data = json.loads(as_json.read_text())
    assert data["config"]["quick"] is True and data["config"]["dim"] == 16
    assert {"cpu", "cores", "threads", "torch", "commit", "date", "command"} <= set(data["environment"])
    assert len(data["rows"]) == len(found.rows)
    assert [point["how"] for point in data["cores"][0]["walk"]] == ["stepped", "stepped"]
    rows = list(csv.DictReader(as_csv.read_text().splitlines()))
    assert len(rows) == len(found.rows)
    assert rows[0]["core"] == "memoryless" and rows[0]["commit"] and float(rows[0]["matmul_peak"]) > 0
    assert float(rows[-1]["flops_counted"]) > 0


def test_the_table_shows_every_core_and_the_machine(results):
    found, _ = results
    console = Console(width=220, record=True, file=io.StringIO())
    console.print(render(found))
    text = console.export_text()
    for word in (
        "memoryless",
        "gru",
        "Streams, batch 1",
        "Whole sequences, batch 4",
        "GFLOP/s",
        found.environment["cpu"],
    ):
        assert word in text


def test_jumping_gives_the_same_memory_as_stepping(monkeypatch):
    core = core_config("gru", CoresBenchmark(dim=16, heads=2, layers=2)).build(16).eval()
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.full(shape, 0.3))  # the two draw different inputs
    monkeypatch.setattr("recollect.benchmark.positions.PROBE", 20)
    stepped = walk(core, (20, 60), step_seconds=1e9, jump_seconds=1e9)
    jumped = walk(core, (20, 60), step_seconds=0.0, jump_seconds=1e9)
    skipped = walk(core, (20, 60), step_seconds=0.0, jump_seconds=0.0)
    assert [[w.how for w in ws] for ws in (stepped, jumped, skipped)] == [
        ["stepped", "stepped"],
        ["stepped", "jumped"],
        ["stepped", "skipped"],
    ]
    for a, b in zip(leaves(stepped[-1].state), leaves(jumped[-1].state), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CORES)
def test_every_core_takes_the_shape_of_the_benchmark(name):
    config = core_config(name, CoresBenchmark(dim=64, layers=3, heads=2, memory_len=40, chunk_len=8, chunks=5, top_k=3))
    for field, value in {"dim": 64, "num_layers": 3, "num_heads": 2, "memory_len": 40, "chunk_len": 8}.items():
        assert getattr(config, field, value) == value
    assert getattr(config, "top_k", None) in (None, 3)


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("dim", 0, "at least 1"),
        ("heads", 7, "divisor of dim=512"),
        ("repeats", 1, "at least 2"),
        ("patience", 0.0, "some seconds"),
    ],
)
def test_a_bad_config_is_refused_with_field_value_and_remedy(field, value, remedy):
    with pytest.raises(ValueError, match=re.escape(f"{field}={value!r}") + ".*" + remedy):
        CoresBenchmark(**{field: value})


def test_an_unknown_core_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"lstn.*did you mean 'lstm'"):
        CoresBenchmark(cores=("lstn",))


def test_a_folder_that_cannot_be_written_is_named(results, tmp_path):
    found, _ = results
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"output=.*file.*cannot be written"):
        found.save(tmp_path / "file")
