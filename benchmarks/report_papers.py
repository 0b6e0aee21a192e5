"""Compare the claims of the papers with result files, for the scoreboard, README and the state of the reproduction.

``verdicts.py`` says when a claim holds. Results of a config that is no longer the recipe's count as not run.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

import source_tree  # noqa: F401
from claims import CLAIMS, HTM, LADDER_PLACE, PAGES, SHORT, Claim
from recollect.recipes import RECIPES
from recollect.recipes.base import Run
from recollect.recipes.result_files import is_current, read_results
from recollect.recipes.result_tables import markdown_cell, markdown_table
from recollect.training.training_aids import all_training_aids
from report_tables import RESULTS, Row, finished, middle
from verdicts import SEEDS, amount, verdict

MORE_RECIPES = {HTM: ("htm-t-maze", "htm-visual-match")}
"""Recipes of a paper that no claim names."""
NO_RESULT = ("not run", "needs data", "needs an accelerator")
STATE_HEADS = ["place", "claim, and the paper's numbers", "ours", "verdict", "recipe", "still to run"]


@dataclass(frozen=True)
class Finding:
    """What our results say about a claim."""

    verdict: str
    ours: str
    seeds: tuple[int, int]


def scoreboard() -> str:
    """Return a table with a line per claim that results can be compared with."""
    rows = []
    for claim in CLAIMS:
        found = compare(claim)
        if any(found.seeds):
            link = f"[{SHORT[claim.paper]}]({PAGES[claim.paper]}.md)"
            cells = (markdown_cell(claim.text), claim.published, found.ours, _seeds(found), f"**{found.verdict}**")
            rows.append((link, *cells))
    return markdown_table(["paper", "claim", "paper's numbers", "ours", "seeds", "verdict"], rows, "llllll")


def first_claims() -> str:
    """Return README's table: one claim of each paper."""
    rows = []
    for claim in CLAIMS:
        if claim.how:
            found = compare(claim)
            numbers, helped, _ = found.ours.partition("; training aids")
            ours = f"{numbers}, {_seeds(found)} seeds{', with aids' if helped else ''}"
            rows.append((claim.paper, claim.text, claim.published, ours, f"{found.verdict}; {claim.how}"))
    table = markdown_table(["paper", "claim", "theirs", "ours", "how far it holds"], rows, "lllll")
    return f"{table}\n\n{verdict_counts()}"


def verdict_counts() -> str:
    """Return a sentence with the number of claims by verdict."""
    kinds = Counter(compare(claim).verdict.partition(" (")[0] for claim in CLAIMS)
    order = ("holds", "opposite", "not shown", *NO_RESULT)
    counts = ", ".join(f"{kind} {kinds[kind]}" for kind in order if kinds[kind])
    return f"All {len(CLAIMS)} claims: {counts}."


def current_counts() -> str:
    """Return a sentence with the number of result files whose config is still their recipe's."""
    old, number = [], 0
    for recipe in RECIPES:
        found, current = finished(read_results(RESULTS / recipe)), _current(recipe)
        number += len(current)
        kept = {(run["label"], run["seed"]) for run in current}
        old += [
            f"`{recipe}/{run['label']}-seed{run['seed']}`" for run in found if (run["label"], run["seed"]) not in kept
        ]
    others = f"; of an earlier config, and not counted above: {', '.join(old)}" if old else ""
    return f"{number} finished runs have the config that their recipe has today{others}."


def state(paper: str) -> str:
    """Return the table of a paper: every table, figure and study but our ladders, with its verdict."""
    return _state_table([claim for claim in CLAIMS if claim.paper == paper and claim.place != LADDER_PLACE])


def ladder_claims() -> str:
    """Return the same table of our ladders of levels."""
    return _state_table([claim for claim in CLAIMS if claim.place == LADDER_PLACE])


def _state_table(claims: Sequence[Claim]) -> str:
    rows = []
    for claim in claims:
        found = compare(claim)
        verdict = f"**{found.verdict}**" + (f": {claim.reason}" if claim.reason else "")
        published = f"<br>*{markdown_cell(claim.published)}*" if claim.published != "-" else ""
        text = f"{markdown_cell(claim.text)}{published}"
        rows.append((claim.place, text, found.ours or "-", verdict, claim.recipe, _still_to_run(claim, found)))
    return markdown_table(STATE_HEADS, rows, "llllll")


@cache
def compare(claim: Claim) -> Finding:
    """Return our numbers and the verdict."""
    if not claim.first:
        return Finding(claim.missing, "", (0, 0))
    first, second = (results(claim.recipe, label) for label in (claim.first, claim.second))
    seeds = (len(first), len(second))
    if not first or not second:
        return Finding(claim.missing, "", seeds)
    ours = _numbers(claim, first, second) + _training_aids(first)
    return Finding(verdict(claim, first, second), ours, seeds)


def _numbers(claim: Claim, first: Sequence[Row], second: Sequence[Row]) -> str:
    if claim.kind in ("samples", "frames"):
        field, unit = ("samples_to_perfect", "rows") if claim.kind == "samples" else ("frames_per_second", "steps/s")
        shown = [_shown_amount(runs, field, unit) for runs in (first, second)]
    else:
        scores = [middle([run["tests"][claim.test]["score"] for run in runs]) for runs in (first, second)]
        share = all(0 <= score <= 1 for score in scores)
        shown = [f"{100 * score:.1f} %" if share else f"{score:.1f}" for score in scores]
        shown = [text + _control(runs, claim.test) for text, runs in zip(shown, (first, second), strict=True)]
    return f"{claim.names[0]} {shown[0]} ({claim.names[1]} {shown[1]})"


def _shown_amount(runs: Sequence[Row], field: str, unit: str) -> str:
    found, beyond = middle([amount(run, field) for run in runs]), ""
    if math.isinf(found):  # some runs ended without it
        found, beyond = max(run["samples"] for run in runs), "more than "
    return f"{beyond}{found:,.0f} {unit}".replace(",", " ")


def _control(runs: Sequence[Row], test: str) -> str:
    """Return the score of one fixed map for all pictures, where a test has this control."""
    found = [run["tests"][test]["static"] for run in runs if "static" in run["tests"][test]]
    return f", one map for all {100 * middle(found):.1f} %" if found else ""


def _training_aids(runs: Sequence[Row]) -> str:
    aids = [name for name in all_training_aids(runs[0]["config"]) if name != "reconstruction"]
    return f"; training aids: {markdown_cell(', '.join(aids))}" if aids else ""


def _seeds(found: Finding) -> str:
    return str(found.seeds[0]) if found.seeds[0] == found.seeds[1] else ", ".join(map(str, found.seeds))


def results(recipe: str, label: str) -> list[Row]:
    """Return the finished results of a row, if its config and its tests are still those of the recipe."""
    return [run for run in _current(recipe) if run["label"] == label]


@cache
def _current(recipe: str) -> tuple[Row, ...]:
    rows = {scale: _rows(recipe, scale) for scale in scales(recipe)}
    found = []
    for result in read_results(RESULTS / recipe):
        row = rows.get(result["scale"], {}).get(result["label"])
        if row is not None:
            config = replace(row.config, fit=replace(row.config.fit, seed=result["seed"]))
            if is_current(result, replace(row, config=config)):
                found.append(result)
    return tuple(found)


@cache
def _rows(recipe: str, scale: str) -> Mapping[str, Run]:
    return {run.label: run for run in RECIPES[recipe].rows(scale)}


def _planned(recipe: str, scale: str, run: Run) -> int:
    return RECIPES[recipe].seeds[scale] if run.seeds is None else run.seeds  # type: ignore[index]


def runs(paper: str) -> str:
    """Return a table of the recipes of a paper: runs finished of those planned, and hours, by scale."""
    rows = []
    named = (*MORE_RECIPES.get(paper, ()), *(claim.recipe for claim in CLAIMS if claim.paper == paper))
    for recipe in dict.fromkeys(named):
        for scale in scales(recipe):
            planned = {label: _planned(recipe, scale, run) for label, run in _rows(recipe, scale).items()}
            done = [
                _seconds(run) / 3600
                for run in _current(recipe)
                if run["scale"] == scale and run["seed"] < planned.get(run["label"], 0)
            ]
            total = sum(planned.values())
            limits = [
                planned[label] * (run.config.fit.processor_seconds or 0) for label, run in _rows(recipe, scale).items()
            ]
            left = f"{np.mean(done) * (total - len(done)):.1f}" if done else "not measured"
            left = left if done or not all(limits) else f"{sum(limits) / 3600:.1f}"
            rows.append((recipe, scale, f"{len(done)} of {total}", f"{sum(done):.1f}", left))
    return markdown_table(["recipe", "scale", "runs finished", "hours", "hours for the rest"], rows, "llrrr")


def scales(recipe: str) -> Sequence[str]:
    """Return the names of a recipe's scales."""
    return tuple(RECIPES[recipe].runs)


def _still_to_run(claim: Claim, found: Finding) -> str:
    """Return the runs that a verdict lacks, and their hours of one processor core where these are known."""
    if not claim.first:
        return claim.needs or "-"
    parts = []
    for label, there in zip((claim.first, claim.second), found.seeds, strict=True):
        if there < SEEDS:
            parts.append((SEEDS - there, _hours(claim, label)))
    if not parts:
        return "-"
    number = sum(runs for runs, _ in parts)
    known = [runs * hours for runs, hours in parts if hours is not None]
    cost = f"{sum(known):.1f} h of one core" if len(known) == len(parts) else "hours not measured"
    return f"{number} run{'s' if number > 1 else ''}; {claim.needs or cost}"


def _hours(claim: Claim, label: str) -> float | None:
    """Return the hours of one run of a row: measured, or its limit, or as the recipe's others; None if unknown."""
    scale = next((scale for scale in scales(claim.recipe) if label in _rows(claim.recipe, scale)), "lite")
    runs = results(claim.recipe, label)
    limit = (
        _rows(claim.recipe, scale)[label].config.fit.processor_seconds if label in _rows(claim.recipe, scale) else None
    )
    if not runs and limit is not None:
        return limit / 3600
    for recipe in filter(None, (claim.recipe, claim.like)):
        runs = runs or [run for run in _current(recipe) if run["scale"] == scale]
    return float(np.mean([_seconds(run) for run in runs])) / 3600 if runs else None


def _seconds(run: Row) -> float:
    """Return the processor time of a run; its time by the clock where that was not measured."""
    return float(run.get("processor_seconds") or run["seconds"])


def without_reason() -> list[Claim]:
    """Return the claims whose verdict is the opposite, and that do not say why."""
    return [replace(claim) for claim in CLAIMS if compare(claim).verdict.startswith("opposite") and not claim.reason]
