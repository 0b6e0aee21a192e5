import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from recollect.benchmark import OpsBenchmark, render_ops, run_ops
from recollect.ops import OPS


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return run_ops(OpsBenchmark(quick=True, repeats=2, seconds=0, output=str(folder))), folder


def text(found):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(render_ops(found))
    return console.export_text()


def test_every_operation_has_a_row_in_the_table_and_in_the_files(results):
    found, folder = results
    assert [row.op for row in found.rows] == list(OPS)
    for row in found.rows:
        assert row.lowest <= row.ratio <= row.highest and row.kernel_us > 0 and row.twin_us > 0
        assert row.op in text(found)
    assert found.environment["cpu"] in text(found) and "plain twin:" not in text(found)
    (as_json,), (as_csv,) = folder.glob("ops-*.json"), folder.glob("ops-*.csv")
    assert [row["op"] for row in json.loads(as_json.read_text())["rows"]] == list(OPS)
    lines = list(csv.DictReader(as_csv.read_text().splitlines()))
    assert [line["op"] for line in lines] == list(OPS) and lines[0]["commit"]


def test_missing_interfaces_of_torch_are_named_once(results):
    found, _ = results
    lacking = [replace(row, available=row.op not in ("lstm", "gru")) for row in found.rows]
    shown = text(replace(found, rows=lacking))
    assert shown.count(f"plain twin: torch has no {OPS['lstm'].needs}: lstm, gru") == 1


def test_only_the_named_operations_are_measured():
    told = []
    found = run_ops(OpsBenchmark(ops=("gru",), quick=True, repeats=2, seconds=0, output=""), told.append)
    assert [row.op for row in found.rows] == told == ["gru"]


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [("dim", 0, "at least 1"), ("repeats", 1, "at least 2"), ("seconds", -1.0, "single calls")],
)
def test_a_bad_config_is_refused_with_field_value_and_remedy(field, value, remedy):
    with pytest.raises(ValueError, match=re.escape(f"{field}={value!r}") + ".*" + remedy):
        OpsBenchmark(**{field: value})


def test_an_unknown_operation_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"linaer.*did you mean 'linear'"):
        OpsBenchmark(ops=("linaer",))
