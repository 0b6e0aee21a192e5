"""The table of chunk lengths: what it measures, and its files."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from rich.console import Console

from recollect.benchmark import ChunksBenchmark, chunks, render_chunks, run_chunks
from recollect.encoders.config import TransformerConfig
from recollect.ops.allocation import keep_freed_memory, return_freed_memory

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import report_speed


@pytest.mark.long
def test_a_quick_run_has_every_row_and_writes_its_files(tmp_path):
    told = []
    results = run_chunks(ChunksBenchmark(quick=True, repeats=2, chunks=(16, 10), output=str(tmp_path)), told.append)
    encoders = ["explicit attention", "fused attention", "chunks of 16", "chunks of 10"]
    assert told == [f"{encoder}: memory" for encoder in encoders] + encoders
    assert [row.chunk for row in results.rows] == [None, None, 16, 10]
    for row in results.rows:
        assert row.train_s > row.inference_s > 0
        assert 0 < row.inference_share < 3 and row.train_share > 0
    explicit, fused = results.rows[:2]
    assert explicit.encoder == "explicit attention" and fused.encoder == "fused attention"
    (file,) = tmp_path.glob("chunks-*.json")
    assert json.loads(file.read_text())["rows"][2]["chunk"] == 16
    assert len(next(iter(tmp_path.glob("chunks-*.csv"))).read_text().splitlines()) == 5
    assert "chunks of 10" in render_text(results) and "0.7x" in render_text(results)


def render_text(results):
    with open("/dev/null", "w") as nothing:
        console = Console(width=200, record=True, file=nothing)
        console.print(render_chunks(results))
        return console.export_text()


def test_explicit_attention_can_be_left_out():
    assert [*chunks._encoders(ChunksBenchmark(chunks=(16,), explicit=False))] == ["fused attention", "chunks of 16"]


def test_explicit_attention_needs_the_memory_of_its_table():
    keep_freed_memory()
    blocks = [torch.ones(rows, 1000) for rows in (5000, 10) * 10]
    del blocks[::2]  # holes, in which a process that has done much before has room for what is measured
    found = {}
    for fused in (False, True):
        encoder = TransformerConfig(dim=16, num_layers=4, num_heads=4, fused=fused).build(16, 500)
        inputs = torch.randn(1, 500, 16)
        with return_freed_memory():
            found[fused] = chunks._most(lambda e=encoder, x=inputs: e(x).outputs.sum().backward(), torch.device("cpu"))
    if found[True] is not None:
        table = 4 * 4 * 500 * 500 * 4  # heads, bytes, queries, keys, layers
        assert found[False] > table * 0.9
        assert found[True] < found[False] / 2


def test_bad_settings_are_named():
    for field, value in {"length": 0, "batch_size": 0, "chunks": (0,), "dtype": "int8", "repeats": 1}.items():
        with pytest.raises(ValueError, match=field):
            ChunksBenchmark(**{field: value})
    with pytest.raises(ValueError, match=r"chunks=\(\): give at least one length"):
        ChunksBenchmark(chunks=())
    with pytest.raises(ValueError, match="device='gpu': torch has no such device; use cpu, cuda or auto"):
        run_chunks(ChunksBenchmark(device="gpu", quick=True, output=""))


@pytest.mark.parametrize(
    "change",
    [{"quick": True}, {"explicit": False}, {"length": 2000}, {"batch_size": 2}, {"dtype": "bfloat16"}],
)
def test_the_page_uses_the_measurements_that_it_names(tmp_path, change):
    rows = [
        {
            "encoder": name,
            "chunk": chunk,
            **{f"{what}_{number}": 1.0 for what in ("train", "inference") for number in ("s", "bytes", "share")},
        }
        for name, chunk in (("explicit attention", None), ("fused attention", None), ("chunks of 10", 10))
    ]
    good = {"config": asdict(ChunksBenchmark()), "environment": {"cpu": "one"}, "peak": 1e9, "rows": rows}
    shown = rows[1:] if "explicit" in change else rows
    other = good | {"config": good["config"] | change, "environment": {"cpu": "other"}, "rows": shown}
    (tmp_path / "chunks-1.json").write_text(json.dumps(good))
    (tmp_path / "chunks-2.json").write_text(json.dumps(other))
    ((lines, where, _),) = report_speed.chunk_tables(tmp_path)
    assert where == {"cpu": "one"} and [line[0] for line in lines] == [row["encoder"] for row in rows]
