"""Reports and tables of answers, against literal loops and files read back."""

import csv
import json
from collections import Counter

import numpy as np
import pytest

from recollect.cli import main
from recollect.evaluation.class_report import make_report, write_report
from recollect.evaluation.predictions import Predictions, write_predictions

TARGET = np.array([0, 0, 0, 1, 1, 3])
ANSWER = np.array([0, 1, 0, 1, 4, 3])
NAMES = ("a", "b", "unused", "d", "never asked")
CLASSES = Predictions(
    row=[5, 5, 5, 6, 6, 7],
    step=np.array([0, 1, 2, 0, 1, 0]),
    target=TARGET,
    prediction=ANSWER,
    probability=np.full(6, 0.5, np.float32),
    class_names=NAMES,
)


def test_classes_equal_a_literal_loop(tmp_path):
    report = make_report(CLASSES)
    pairs = Counter((NAMES[t], NAMES[a]) for t, a in zip(TARGET, ANSWER, strict=True))
    assert [row["class"] for row in report.rows] == ["a", "b", "d", "never asked"]
    for row in report.rows:
        name = row["class"]
        right = pairs[name, name]
        asked = sum(n for (t, _), n in pairs.items() if t == name)
        answered = sum(n for (_, a), n in pairs.items() if a == name)
        assert row["steps"] == asked
        assert row["precision"] == pytest.approx(right / answered)
        assert row["recall"] == pytest.approx(right / asked if asked else float("nan"), nan_ok=True)
        assert row["f1"] == pytest.approx(2 * right / (asked + answered))
    assert report.averages["accuracy"] == pytest.approx(4 / 6)
    assert report.averages["macro_recall"] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3), "over the classes that occur"
    assert {(report.names[i], report.names[j]): n for (i, j), n in np.ndenumerate(report.confusion) if n} == pairs
    files = write_report(report, tmp_path / "report")
    assert [file.name for file in files] == ["report.json", "confusion.png"]
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert json.loads(files[0].read_text())["rows"][3]["recall"] is None


def test_values_have_errors_in_their_own_units():
    target, answer = np.array([[1.0, 10.0], [3.0, 10.0]]), np.array([[2.0, 10.0], [3.0, 14.0]])
    made = Predictions(row=[0, 1], step=np.zeros(2, int), target=target, prediction=answer, output_names=("x", "y"))
    first, second = make_report(made).rows
    assert (first["value"], first["mae"], first["rmse"], first["r2"]) == ("x", 0.5, pytest.approx(0.5**0.5), 0.5)
    assert second["mae"] == 2 and np.isnan(second["r2"]), "a constant target has no variance"
    assert list(made.columns()) == ["row", "step", "target_x", "prediction_x", "target_y", "prediction_y"]


def test_a_table_of_steps_is_scored_with_the_names_of_its_sequences(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["trip,speed,target"]
    for row in range(40):
        lines += [f"trip-{row},{(-1) ** row * (1 + 0.1 * step)},{'up' if row % 2 else 'down'}" for step in range(3)]
    (tmp_path / "trips.csv").write_text("\n".join(lines))
    flags = ["--task.path", "trips.csv", "--task.sequence", "trip", "--core", "gru", "--core.dim", "8"]
    flags += ["--fit.steps", "2", "--fit.evaluate-every", "2", "--directory", "runs/trips"]
    assert main(["train", "arrays", *flags]) == 0
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name in ("out.csv", "deep/out.parquet"):
        assert main(["evaluate", "runs/trips", "--predictions", name, "--report", "report"]) == 0
    with open("out.csv", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert list(rows[0]) == ["trip", "step", "target", "prediction", "probability"]
    assert parquet.read_table("deep/out.parquet").column("trip").to_pylist() == [row["trip"] for row in rows]
    for row in rows:
        assert row["step"] == "2", "the class of a row is asked at its last step"
        assert row["target"] == ("up" if int(row["trip"].removeprefix("trip-")) % 2 else "down")
    right = sum(row["target"] == row["prediction"] for row in rows)
    capsys.readouterr()
    assert main(["evaluate", "runs/trips", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["score"] == pytest.approx(right / len(rows))
    assert json.loads((tmp_path / "report/report.json").read_text())["averages"]["accuracy"] == right / len(rows)


def test_values_are_written_in_the_units_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    inputs = random.normal(size=(30, 4, 2))
    np.savez("values.npz", inputs=inputs, targets=1000 + 50 * inputs[..., 0])
    flags = ["--task.path", "values.npz", "--core", "gru", "--core.dim", "8"]
    assert main(["train", "arrays", *flags, "--fit.steps", "2", "--directory", "runs/values"]) == 0
    assert main(["evaluate", "runs/values", "--predictions", "out.csv"]) == 0
    with open("out.csv", newline="") as opened:
        rows = list(csv.DictReader(opened))
    for row in rows:
        true = 1000 + 50 * inputs[int(row["row"]), int(row["step"]), 0]
        assert float(row["target"]) == pytest.approx(true)
        assert 700 < float(row["prediction"]) < 1300, "in the units of the file, not in standard deviations"


def test_what_cannot_be_written_is_refused_before_the_run_is_scored(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"predictions='out.txt': give a file that ends in .csv or .parquet"):
        write_predictions(CLASSES, "out.txt")
    flags = ["--world.length", "3", "--core", "gru", "--core.dim", "8", "--fit.steps", "1", "--batch-size", "2"]
    assert main(["train", "t-maze", *flags, "--directory", "runs/maze"]) == 0
    for option, where in (("--report", "report"), ("--predictions", "out.csv")):
        assert main(["evaluate", "runs/maze", option, where]) == 2
        assert "has no single right answer at a step" in " ".join(capsys.readouterr().err.split())
