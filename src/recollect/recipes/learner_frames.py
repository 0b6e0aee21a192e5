"""Frames per second of the learner by core: the table of appendix D.9 of Lampinen et al. 2021, from result files.

The speed of a run is its environment steps divided by the time of training, with acting and evaluations. Cores are
compared within one experiment and one way of training only, because worlds differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recollect.evaluation.confidence_interval import interquartile_mean
from recollect.recipes.result_tables import markdown_table

COLUMNS = ("hcam", "transformer-xl", "transformer-xl-full-window")
"""Rows of the experiments that are compared, by their labels: the paper's core, and two windows of its baseline."""
ABOUT = (
    "Steps of the world per second of training, interquartile mean over seeds (lowest to highest; number of seeds), "
    "and how many times as fast hcam is as transformer-xl with the same window and with one that covers the episode. "
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
        for kind, mark in (("reinforcement", ""), ("imitated", "-imitated")):
            speeds = [_speeds(results, f"{name}{mark}") for name in COLUMNS]
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


def _speeds(results: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Return the speeds of finished runs with a label, with or without the scale at its end."""
    mine = [r for r in results if r["status"] == "ok" and r["label"].removesuffix(f"-{r['scale']}") == name]
    return np.array([r["frames_per_second"] for r in mine if r.get("frames_per_second")])
