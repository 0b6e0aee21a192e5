"""Report of an evaluation: precision, recall and F1 of every class, or the errors of every value.

    precision_k = n_kk / sum_j n_jk      recall_k = n_kk / sum_j n_kj      F1_k = 2 n_kk / (sum_j n_jk + sum_j n_kj)

n_jk is the number of steps of class j that were answered with class k. A class that was never answered has no
precision, and one that does not occur has no recall: NaN.

    mae = mean |a - y|      rmse = sqrt(mean (a - y)^2)      r2 = 1 - mean (a - y)^2 / variance(y)

a is the answer and y the right value. A value that does not vary has no r2: NaN.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recollect.evaluation.predictions import Predictions
from recollect.files import path_errors, without_nan, write_atomically
from recollect.machine import require_matplotlib

MOST_NAMES = 40
"""Classes in a printed table or a picture; report.json has all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerReport:
    """What an evaluation says about each class, or about each value."""

    rows: list[dict[str, Any]]
    """For classes ``class, precision, recall, f1, steps``, for values ``value, mae, rmse, r2, steps`` in the units of
    the data; classes that neither occur nor are answered are left out."""
    averages: dict[str, float]
    """For classes ``accuracy``, ``macro_precision``, ``macro_recall`` and ``macro_f1`` over the classes that occur (one
    that was never answered has precision 0 here), and ``weighted_f1``, weighted by their steps; for values ``mae`` and
    ``rmse`` over all of them, in the units of the data."""
    confusion: np.ndarray | None = None
    """long ``[k, k]``: steps of the class of a line that were answered with that of a column; None for values."""
    names: tuple[str, ...] = ()
    """Names of lines and columns of ``confusion``."""

    def printed_rows(self) -> list[dict[str, Any]]:
        """Return the lines of a printed table: the :data:`MOST_NAMES` most frequent classes, then the averages."""
        most = sorted(self.rows, key=lambda row: -row["steps"])[:MOST_NAMES]
        shown = [_rounded(row) for row in self.rows if row in most]
        if self.confusion is not None:
            figures = [_rounded_number(self.averages[f"macro_{name}"]) for name in ("precision", "recall", "f1")]
            shown.append(dict(zip(self.rows[0], ("mean", *figures, int(self.confusion.sum())), strict=True)))
        return shown

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as JSON data."""
        counts = {} if self.confusion is None else {"names": list(self.names), "confusion": self.confusion.tolist()}
        return {"rows": self.rows, "averages": self.averages, **counts}


def make_report(predictions: Predictions) -> AnswerReport:
    """Compute the report of predictions."""
    return _of_classes(predictions) if predictions.are_classes else _of_values(predictions)


def _of_classes(predictions: Predictions) -> AnswerReport:
    target, answer = predictions.target, predictions.prediction
    count = max(len(predictions.class_names), int(max(target.max(), answer.max())) + 1)
    confusion = np.bincount(target * count + answer, minlength=count * count).reshape(count, count)
    right, asked, answered = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    with np.errstate(invalid="ignore"):
        precision, recall, f1 = right / answered, right / asked, 2 * right / (asked + answered)
    names = predictions.class_names or tuple(map(str, range(count)))
    used, occurs = np.flatnonzero(asked + answered), asked > 0
    rows = [
        {"class": names[k], "precision": float(precision[k]), "recall": float(recall[k]), "f1": float(f1[k])}
        | {"steps": int(asked[k])}
        for k in used
    ]
    averages = {
        "accuracy": float(right.sum() / asked.sum()),
        "macro_precision": float(np.nan_to_num(precision)[occurs].mean()),
        "macro_recall": float(recall[occurs].mean()),
        "macro_f1": float(f1[occurs].mean()),
        "weighted_f1": float((f1[occurs] * asked[occurs]).sum() / asked.sum()),
    }
    chosen = confusion[np.ix_(used, used)]
    return AnswerReport(rows=rows, averages=averages, confusion=chosen, names=tuple(names[k] for k in used))


def _of_values(predictions: Predictions) -> AnswerReport:
    target, error = predictions.target.astype(float), predictions.prediction - predictions.target
    names = predictions.output_names or tuple(map(str, range(target.shape[1])))
    squares, spread = (error**2).mean(0), target.var(0)
    r2 = np.where(spread > 0, 1 - squares / np.where(spread > 0, spread, 1), np.nan)
    rows = [
        {"value": name, "mae": float(np.abs(error[:, k]).mean()), "rmse": float(math.sqrt(squares[k]))}
        | {"r2": float(r2[k]), "steps": len(target)}
        for k, name in enumerate(names)
    ]
    averages = {"mae": float(np.abs(error).mean()), "rmse": float(math.sqrt(squares.mean()))}
    return AnswerReport(rows=rows, averages=averages)


def write_report(report: AnswerReport, folder: str | Path) -> list[Path]:
    """Write ``report.json`` and, for classes, ``confusion.png``.

    Raises:
        ValueError: the folder cannot be written, or matplotlib is missing for the picture.
    """
    folder = Path(folder)
    with path_errors("report", folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "report.json"]
    with path_errors("report", folder):
        write_atomically(files[0], json.dumps(without_nan(report.to_json()), indent=1) + "\n")
        if report.confusion is not None:
            files.append(folder / "confusion.png")
            _draw_confusion(report, files[1])
    return files


def _draw_confusion(report: AnswerReport, path: Path) -> None:
    """Draw the share of each class's steps that were answered with each class, the most frequent classes."""
    assert report.confusion is not None
    most = np.sort(np.argsort(-report.confusion.sum(1), kind="stable")[:MOST_NAMES])
    counts = report.confusion[np.ix_(most, most)]
    share = counts / np.maximum(report.confusion[most].sum(1, keepdims=True), 1)
    side = 2.2 + 0.42 * len(most)
    figure = require_matplotlib().figure.Figure(figsize=(side + 0.8, side), dpi=150, layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    names = [report.names[k] for k in most]
    axes.set_xticks(range(len(most)), names, rotation=45 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(range(len(most)), names)
    axes.set_xlabel("answer")
    axes.set_ylabel("right answer")
    if len(most) <= 20:
        for (line, column), number in np.ndenumerate(counts):
            colour = "white" if share[line, column] > 0.5 else "black"
            axes.text(column, line, f"{number}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(picture, ax=axes, shrink=0.8)
    bar.set_label("share of the steps of a class")
    figure.savefig(path, format="png")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _rounded_number(value) if isinstance(value, float) else value for name, value in row.items()}


def _rounded_number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"
