"""Data sheet of every core: how many items it remembers, for how long, with how many distractors and overwrites.

One model per core and seed learns key-value recall on a mixture of levels (:data:`TRAINED_ON`) and is then tested at
every level of four measures, far beyond those of training:

    items         pairs shown before the questions
    delay         blank steps between a pair and the questions
    distractors   share of 16 blank steps that show an irrelevant pair, with one pair to remember
    overwrites    new values of keys that were shown, with four pairs

All cores have about the same number of parameters and train for the same number of steps on the same rows.
A summary number is the largest level up to which the score is at least :data:`GOOD` at every level.
"""

from collections.abc import Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any

from recollect.agents.config import SequenceModelConfig
from recollect.cores import GENERAL_CORES
from recollect.recipes.base import Recipe, Run, Scale, Test, require_scale
from recollect.recipes.equal_sizes import equal_core
from recollect.recipes.recall import OPTIMIZERS
from recollect.tasks.streams.mixture import Mixture
from recollect.tasks.streams.recall import Recall
from recollect.training import FitConfig, OptimizerConfig, SupervisedConfig

GOOD = 0.9
"""Score from which a level counts as remembered."""
KEYS, VALUES, QUESTIONS = 40, 16, 4
TRAINED_ITEMS, TRAINED_DELAY, TRAINED_DISTRACTORS, TRAINED_OVERWRITES = 16, 32, 0.5, 4
"""The hardest levels of training."""
TITLES = {
    "items": "items",
    "delay": "delay, steps",
    "distractors": "distractors, share",
    "overwrites": "overwrites",
}
"""Names of the measures in pictures."""
ROWS = 256
"""Test rows of a level."""


def level(*, items: int, least: int, most: int, overwrites: int = 0, distractors: float = 0.0) -> Recall:
    """Return recall of ``items`` pairs after ``least`` to ``most`` blank steps."""
    longest = items + overwrites + most + QUESTIONS
    return Recall(
        num_keys=KEYS,
        num_values=VALUES,
        num_cues=items,
        num_queries=QUESTIONS,
        min_blank=least,
        max_blank=most,
        length=max(80, most + longest),
        overwrites=overwrites,
        distractors=distractors,
        form="features",
    )


TRAINED_ON = (
    *(level(items=items, least=1, most=8) for items in (1, 2, 4, 8, TRAINED_ITEMS)),
    *(level(items=items, least=1, most=TRAINED_DELAY) for items in (1, 4)),
    *(level(items=items, least=1, most=TRAINED_DELAY, distractors=TRAINED_DISTRACTORS) for items in (1, 4)),
    *(level(items=4, least=1, most=8, overwrites=number) for number in (2, TRAINED_OVERWRITES)),
)
"""Levels of training; each batch has one of them."""


def measures() -> dict[str, dict[float, Recall]]:
    """Return the tasks of every measure, by level."""
    return {
        "items": {n: level(items=n, least=8, most=8) for n in (1, 2, 4, 8, 16, 32)},
        "delay": {n: level(items=1, least=n, most=n) for n in (4, 8, 16, 32, 64, 128, 256, 512)},
        "distractors": {n: level(items=1, least=16, most=16, distractors=n) for n in (0.0, 0.25, 0.5, 0.75, 1.0)},
        "overwrites": {n: level(items=4, least=8, most=8, overwrites=n) for n in (0, 1, 2, 4, 8, 16, 32)},
    }


STEPS = 1000


def data_sheet(core: str = "hcam", scale: Scale = "lite") -> SupervisedConfig:
    """Return the run of one core, at the scale lite."""
    require_scale(scale, "lite")
    return SupervisedConfig(
        task=Mixture(tasks=TRAINED_ON),
        core=equal_core(core),
        agent=SequenceModelConfig(embedding_dim=64),
        optimizer=OPTIMIZERS.get(core, OptimizerConfig(learning_rate=3e-3, warmup_steps=50)),
        fit=FitConfig(steps=STEPS, report_every=50, evaluate_every=STEPS // 4, checkpoint_every=100),
        batch_size=32,
    )


def _tests() -> dict[str, Test]:
    return {
        f"{measure} {level:g}": Test(where=task, samples=ROWS)
        for measure, levels in measures().items()
        for level, task in levels.items()
    }


def _rows() -> list[Run]:
    tests = _tests()
    return [Run(label=core, row=core, core=core, config=data_sheet(core), tests=tests) for core in GENERAL_CORES]


_ABOUT = (
    "How many items does each core remember, for how long, past how many distractors and overwrites, and at what "
    f"cost? The task is key-value recall with {VALUES} values to a key. One model per core and seed is trained for "
    f"{STEPS} steps of 32 "
    "rows on a mixture of levels, and then asked at every level of four measures, far beyond those of training. "
    f"*Items*: pairs shown before {QUESTIONS} questions. *Delay*: blank steps between one pair and the questions. "
    "*Distractors*: share of 16 blank steps that show a pair which is not to be remembered, beside one that is. "
    "*Overwrites*: new values of keys that were shown, four pairs; the newest counts. One question in "
    f"{VALUES + 1} is for a key that was not shown: a model that remembers the value but not the key is right in "
    f"{100 * VALUES / (VALUES + 1):.0f} % of the answers where one pair is shown, and in half as many where two "
    "are.\n\n"
    "All cores have 70 000 to 105 000 parameters and see the same rows in training, whatever a step costs: what a core "
    "has not learned in that time it may learn in more. All have the same optimiser, but for recurrent-transformer, "
    "whose steps are smaller. Windows are 32 steps in each of two layers "
    "(feedback-transformer: 64 in one memory; hcam: 8, with 16 chunks of 8)."
)


def _pages(results: Sequence[Mapping[str, Any]], root: Path) -> str:
    from recollect.recipes.data_sheet_pages import Measure, Sheets, read_sheet

    hardest = dict(
        zip(measures(), (TRAINED_ITEMS, TRAINED_DELAY, TRAINED_DISTRACTORS, TRAINED_OVERWRITES), strict=True)
    )
    shown = [
        Measure(key=key, title=TITLES[key], levels=list(levels), hardest=hardest[key])
        for key, levels in measures().items()
    ]
    found = {core: read_sheet(core, results, shown) for core in GENERAL_CORES}
    failed = {one["core"]: f"failed: {one['error']}" for one in results if one["status"] != "ok"}
    return Sheets(
        sheets=[sheet for sheet in found.values() if sheet is not None],
        missing=[(core, failed.get(core, "not run yet")) for core, sheet in found.items() if sheet is None],
        measures=shown,
        good=GOOD,
        bits=log2(VALUES),
        chance=1 / (VALUES + 1),
        about=_ABOUT,
    ).write(root)


DATA_SHEET = Recipe(
    name="data-sheet",
    title="Data sheets of the cores",
    source="ours (recipes/data_sheet.py)",
    about=(
        f"Key-value recall, {VALUES} values. One model per core and seed, of about 100 000 parameters, is trained for "
        f"{STEPS} steps of 32 rows on a mixture of levels and asked at all of them, and far beyond."
    ),
    config=data_sheet,
    runs={"lite": _rows},
    seeds={"lite": 3},
    pages=_pages,
)
