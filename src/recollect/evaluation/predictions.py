"""Every answer of an evaluation beside the right one, as a table: CSV or Parquet.

row (or sequence)   step   target   prediction   probability        one line for each scored step
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.config import require
from recollect.files import new_file, path_errors

ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Answers of a model at n scored steps."""

    row: Sequence[int] | np.ndarray
    """Row of each step, of n: its place among ``row_names``, or its number in the data where these are empty."""
    step: np.ndarray
    """long ``[n]``: step in the row, from 0."""
    target: np.ndarray
    """Right answers: classes, long ``[n]``, or values, float ``[n, k]`` in the units of the data."""
    prediction: np.ndarray
    """Answers of the model, as ``target``: the likeliest class, or values."""
    probability: np.ndarray | None = None
    """float32 ``[n]``: probability of the predicted class; None for values."""
    class_names: tuple[str, ...] = ()
    """Names of the classes; empty where they have none."""
    output_names: tuple[str, ...] = ()
    """Names of the k values; empty where they have none."""
    row_names: Sequence[Any] = ()
    """Names of the rows: numbers in the data, or those of a table with a column for that."""
    row_name: str = "row"
    """Heading of the rows."""

    @property
    def are_classes(self) -> bool:
        """Whether answers are classes; else they are values."""
        return self.probability is not None

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns of the table."""
        rows = [self.row_names[number] for number in self.row] if self.row_names else list(self.row)
        places: dict[str, list[Any]] = {self.row_name: rows, "step": self.step.tolist()}
        if self.probability is not None:
            names = {"target": self._named(self.target), "prediction": self._named(self.prediction)}
            return {**places, **names, "probability": self.probability.tolist()}
        values = {"target": self.target, "prediction": self.prediction}
        if self.target.shape[1] == 1:
            return {**places, **{name: found[:, 0].tolist() for name, found in values.items()}}
        names = self.output_names or tuple(map(str, range(self.target.shape[1])))
        return places | {
            f"{what}_{name}": found[:, column].tolist()
            for column, name in enumerate(names)
            for what, found in values.items()
        }

    def _named(self, classes: np.ndarray) -> list[Any]:
        return [self.class_names[number] for number in classes] if self.class_names else classes.tolist()


class PredictionLog:
    """Collects the answers of an evaluation, batch by batch."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Tensor]] = []
        self.rows = 0

    def add(self, answers: Tensor, targets: Tensor, mask: Tensor) -> None:
        """Add the answers of a batch.

        Args:
            answers: float ``[b, t, k]``: logits, or values in the units of the data.
            targets: long ``[b, t]``, or float ``[b, t, k]``.
            mask: bool ``[b, t]``: scored steps.
        """
        row, step = mask.nonzero(as_tuple=True)
        found = answers[mask]
        part = {"row": row + self.rows, "step": step, "target": targets[mask], "prediction": found}
        if not targets.is_floating_point():
            most = found.float().max(-1)
            part |= {"prediction": most.indices, "probability": (most.values - found.float().logsumexp(-1)).exp()}
        self.parts.append({name: values.cpu() for name, values in part.items()})
        self.rows += len(mask)

    def finish(self, row_name: str, names: Sequence[Any], described: Mapping[str, Any]) -> Predictions:
        """Return all answers as :class:`Predictions`.

        Args:
            row_name: heading of their names.
            names: of the rows, in their order.
            described: has ``class_names`` and ``output_names``, where there are any.
        """
        kept: dict[str, Any] = {name: torch.cat([part[name] for part in self.parts]).numpy() for name in self.parts[0]}
        kept |= {name: tuple(described.get(name, ())) for name in ("class_names", "output_names")}
        return Predictions(row_name=row_name, row_names=names, **kept)


def require_writable(path: str | Path) -> Path:
    """Return the path of a table to write.

    Raises:
        ValueError: an ending that is not known, pyarrow is missing for Parquet, or the folder cannot be made.
    """
    path = Path(path)
    require(path.suffix in ENDINGS, "predictions", str(path), f"give a file that ends in {' or '.join(ENDINGS)}")
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ValueError(
                f"predictions={str(path)!r}: Parquet needs pyarrow: run pip install pyarrow, or name a .csv file"
            ) from None
    with path_errors("predictions", path.parent, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_predictions(predictions: Predictions, path: str | Path) -> Path:
    """Write the table of predictions, CSV or Parquet by the ending of the path.

    Raises:
        ValueError: as :func:`require_writable`.
    """
    path = require_writable(path)
    columns = predictions.columns()
    with path_errors("predictions", path), new_file(path) as unfinished:
        if path.suffix == ".csv":
            with open(unfinished, "w", newline="", encoding="utf-8") as opened:
                writer = csv.writer(opened)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
        else:
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(columns), unfinished)
    return path
