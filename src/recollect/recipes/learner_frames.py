"""Frames per second of the learner by core: the table of appendix D.9 of Lampinen et al. 2021, from result files.

The speed of a run is that of its last rollouts, up to 49: environment steps divided by the time of acting and learning,
without evaluations (:class:`~recollect.training.impala.trainer.ImpalaTrainer`). Cores are compared within one
experiment and one way of training only, because worlds differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recollect.evaluation.confidence_interval import interquartile_mean
from recollect.recipes.result_tables import markdown_table

COLUMNS = ("hcam", "transformer-xl", "transformer-xl-full-window")
"""Rows of the experiments that are compared, by their labels: the paper's core, and two windows of its baseline."""
MARK = "-imitated"
"""End of the labels of imitated rows, where an experiment has each row twice."""
ABOUT = (
    "Steps of the world per second of acting and learning in the last 49 rollouts of a run, interquartile mean over "
    "seeds (lowest to highest; number of seeds), and how many times as fast hcam is as transformer-xl with the same "
    "window and with one that covers the episode. "
    "The paper has hcam 30 to 40 % faster than a gated transformer-xl, on TPUs (figure 15). Runs shared their machines "
    "with others: ranges are wide, and small differences mean nothing."
)


def frames_table(experiments: Mapping[str, Sequence[Mapping[str, Any]]]) -> str | None:
    """Return a Markdown table of speeds; None where no experiment has hcam beside transformer-xl.

    Args:
        experiments: the results of one scale each, by heading.
    """
    rows = []
    for title, results in experiments.items():
        for kind in ("reinforcement", "imitated"):
            speeds = [_speeds([one for one in results if _kind(one) == kind], name) for name in COLUMNS]
            means = [float(interquartile_mean(found)) if len(found) else None for found in speeds]
            ours, *others = means
            if ours is None or not any(others):
                continue
            ratios = ["-" if other is None else f"{ours / other:.2f}" for other in others]
            rows.append([title, kind, *map(_cell, speeds), *ratios])
    if not rows:
        return None
    heads = ["", "trained by", *(name.replace("-full", ", full").replace("-window", " window") for name in COLUMNS)]
    heads += ["hcam to transformer-xl", "to its full window"]
    return "\n".join(["### Learner frames per second", "", ABOUT, "", markdown_table(heads, rows, "l" * len(heads))])


def _cell(speeds: np.ndarray) -> str:
    if not len(speeds):
        return "not run"
    middle, low, high = (f"{value:,.0f}".replace(",", " ") for value in
                         (interquartile_mean(speeds), speeds.min(), speeds.max()))  # fmt: skip
    return f"{middle} ({low} to {high}; {len(speeds)})"


def _kind(result: Mapping[str, Any]) -> str:
    """Return the way of training: rows of some experiments are imitated without a word in their labels."""
    return "imitated" if _label(result).endswith(MARK) or result.get("taught_by") else "reinforcement"


def _label(result: Mapping[str, Any]) -> str:
    """Return a label without the scale at its end."""
    return result["label"].removesuffix(f"-{result['scale']}")


def _speeds(results: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Return the speeds of finished runs of a row."""
    mine = [r for r in results if r["status"] == "ok" and _label(r).removesuffix(MARK) == name]
    return np.array([r["frames_per_second"] for r in mine if r.get("frames_per_second")])
