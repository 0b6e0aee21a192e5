"""Frames per second of the learner by core: the table of appendix D.9 of Lampinen et al. 2021, from result files.

The speed of a run is its environment steps divided by the time of training, with acting and evaluations. Cores are
compared within one experiment only, because worlds differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recollect.evaluation.confidence_interval import interquartile_mean
from recollect.recipes.result_tables import markdown_table

ABOUT = (
    "Steps of the world per second of training, interquartile mean over seeds (lowest to highest), and the ratio to "
    "transformer-xl. The paper has hcam 30 to 40 % faster than a gated transformer-xl, on TPUs (figure 15). Runs "
    "shared their machine with others, so small differences mean nothing."
)


def frames_table(experiments: Mapping[str, Sequence[Mapping[str, Any]]]) -> str | None:
    """Return a Markdown table of speeds; None where no run recorded one.

    Args:
        experiments: the results of one scale each, by heading. Only rows labelled by a core alone are used.
    """
    rows = []
    for title, results in experiments.items():
        speeds = {core: _speeds(results, core) for core in dict.fromkeys(result["core"] for result in results)}
        speeds = {core: found for core, found in speeds.items() if len(found)}
        base = speeds.get("transformer-xl")
        for core, found in speeds.items():
            mean = interquartile_mean(found)
            ratio = "-" if base is None else f"{mean / interquartile_mean(base):.2f}"
            numbers = [f"{mean:,.0f}", f"{found.min():,.0f} to {found.max():,.0f}"]
            rows.append([title, core, *(number.replace(",", " ") for number in numbers), str(len(found)), ratio])
    if not rows:
        return None
    heads = ["", "core", "frames per second", "range", "n", "to transformer-xl"]
    return "\n".join(["### Learner frames per second", "", ABOUT, "", markdown_table(heads, rows, "llllll")])


def _speeds(results: Sequence[Mapping[str, Any]], core: str) -> np.ndarray:
    mine = [r for r in results if r["core"] == core and r["label"] == f"{core}-{r['scale']}" and r["status"] == "ok"]
    return np.array([r["frames_per_second"] for r in mine if r.get("frames_per_second")])
