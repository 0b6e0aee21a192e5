"""The scoreboard of docs/results: what the papers claim, and whether our runs show it. Read from ``results`` alone.

A claim is that one model does better than another. It *holds* where the 95 % interval of the first lies above that of
the second, is *not shown* where they meet, and is *contradicted* where it lies below.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import source_tree  # noqa: F401
from recollect.evaluation.confidence_interval import seeds_interval
from recollect.recipes.result_tables import markdown_table
from report_tables import Row, finished, middle, read_runs

VERDICTS = {"holds": "hold", "not shown": "not shown", "contradicted": "contradicted"}
HEADS = ["paper", "claim", "paper's numbers", "ours", "seeds", "verdict"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One model against another on a test of a recipe."""

    page: str
    """Page of docs/results."""
    paper: str
    text: str
    published: str
    recipe: str
    first: str
    """Label of the runs that should be better."""
    second: str
    test: str = ""
    names: tuple[str, str] = ("", "")
    """Of both, in the table."""
    by_samples: bool = False
    """Compare the rows of training until an evaluation had no mistake; fewer are better."""
    how: str = ""
    """How far the comparison holds, for README; empty: not shown there."""


HTM, TLB, TTM, THESIS = "Lampinen et al. 2021", "Didolkar et al. 2022", "Ryoo et al. 2023", "George 2021"
SHORT = {HTM: "HTM", TLB: "TLB", TTM: "TTM", THESIS: "George"}
CLAIMS = (
    Claim(
        page="htm", paper=HTM, text="recalls 8 dances after a delay of 48", published="97.2 % (TrXL 49.2 %)",
        recipe="htm-ballet", first="hcam-imitated-lite", second="transformer-xl-full-window-imitated-lite",
        test="8 dances, delay 48", names=("hcam", "transformer-xl, full window"),
        how="symbols for pixels, imitation for reinforcement",
    ),
    Claim(
        page="htm", paper=HTM, text="recalls words after distractors", published="95.5 % (TrXL 32.1 %), 20 distractors",
        recipe="htm-words", first="hcam-imitated-lite", second="transformer-xl-full-window-imitated-lite",
        test="4 distractors", names=("hcam", "transformer-xl, full window"),
    ),
    Claim(
        page="htm", paper=HTM, text="knows what is in closed boxes", published="91.7 % (TrXL 46.1 %), long delay",
        recipe="htm-permanence", first="hcam-imitated-lite", second="transformer-xl-full-window-imitated-lite",
        test="delay 64", names=("hcam", "transformer-xl, full window"),
    ),
    Claim(
        page="htm", paper=HTM, text="joins two pairs that share an item", published="97.5 %",
        recipe="htm-inference", first="hcam-lite", second="transformer-xl-lite", test="AC",
        names=("hcam", "transformer-xl"),
    ),
    Claim(
        page="htm", paper=HTM, text="finds goals in streets never seen", published="26.8 (TrXL 19.9)",
        recipe="htm-streets", first="hcam-imitated-lite", second="transformer-xl-imitated-lite",
        test="a city held out", names=("hcam", "transformer-xl"),
    ),
    Claim(
        page="tlb", paper=TLB, text="learns copying from fewer rows than Feedback Transformer",
        published="6 200 rows (11 800)", recipe="copying", first="tlb", second="feedback-transformer",
        names=("tlb", "feedback-transformer"), by_samples=True,
    ),
    Claim(
        page="tlb", paper=TLB, text="ListOps better than a Transformer", published="38.2 % (37.6 %)",
        recipe="listops", first="two-way-tlb-paper", second="transformer-paper", names=("tlb", "Transformer"),
    ),
    Claim(
        page="tlb", paper=TLB, text="pictures of twice the size", published="better than ViT",
        recipe="tlb-images", first="vit-tlb", second="vit", test="128 px", names=("ViT + TLB", "ViT"),
        how="made-up shapes for CIFAR and STL; the claim is the order",
    ),
    Claim(
        page="tlb", paper=TLB, text="imitation in BabyAI", published="better than a Transformer",
        recipe="tlb-babyai", first="instructed-putnextlocal-lite", second="transformer-putnextlocal-lite",
        names=("Transformer + TLB", "Transformer"),
    ),
    Claim(
        page="tlb", paper=TLB, text="offline learning (Decision Transformer)", published="better than DT",
        recipe="tlb-decision-transformer", first="tlb-catch-lite", second="causal-transformer-catch-lite",
        names=("DT + TLB", "DT"),
    ),
    Claim(
        page="ttm", paper=TTM, text="detects activities that began before the window",
        published="24.96 mAP (21.04)", recipe="ttm-video", first="ttm-mixer-16", second="mixer-16-16",
        test="lag beyond the window", names=("TTM-Mixer", "Mixer over a window"),
        how="procedural videos for Charades; not mAP",
    ),
    Claim(
        page="ttm", paper=TTM, text="a robot needs the memory", published="better than without",
        recipe="ttm-robots", first="ttm-goal-shown-once-lite", second="ttm-no-memory-goal-shown-once-lite",
        names=("ttm", "ttm, no memory"),
    ),
    Claim(
        page="attention", paper=THESIS, text="attention with a memory follows a marked ball (task ours)", published="-",
        recipe="attention-agents", first="mott-track-imitated-lite", second="memoryless-track-imitated-lite",
        names=("mott", "no memory"), how="a world of ours; Atari at full length was not run",
    ),
)  # fmt: skip


def scoreboard() -> str:
    """Return a table with a line per claim."""
    rows = []
    for claim in CLAIMS:
        ours, seeds, verdict = compare(claim)
        rows.append(
            (f"[{SHORT[claim.paper]}]({claim.page}.md)", claim.text, claim.published, ours, seeds, f"**{verdict}**")
        )
    return markdown_table(HEADS, rows, "llllll")


def first_claims() -> str:
    """Return README's table: one claim of each paper."""
    rows, verdicts = [], Counter[str]()
    for claim in CLAIMS:
        ours, seeds, verdict = compare(claim)
        verdicts[verdict] += 1
        if claim.how:
            rows.append((claim.paper, claim.text, claim.published, f"{ours}, {seeds} seeds", f"{verdict}; {claim.how}"))
    counts = ", ".join(f"{verdicts[verdict]} {words}" for verdict, words in VERDICTS.items())
    table = markdown_table(["paper", "claim", "theirs", "ours", "how far it holds"], rows, "lllll")
    return f"{table}\n\nOf all {len(CLAIMS)} claims: {counts}."


def compare(claim: Claim) -> tuple[str, str, str]:
    """Return our numbers, numbers of seeds, and the verdict.

    Raises:
        ValueError: a result is missing.
    """
    pair = [finished(read_runs(claim.recipe, label)) for label in (claim.first, claim.second)]
    if not all(pair):
        raise ValueError(f"{claim.recipe} has no finished run of {claim.first} or {claim.second}")
    seeds = ", ".join(str(len(runs)) for runs in pair)
    seeds = str(len(pair[0])) if len(pair[0]) == len(pair[1]) else seeds
    if claim.by_samples:
        first, second = (float(np.median([run["samples_to_perfect"] for run in runs])) for runs in pair)
        shown = [f"{number:,.0f} rows".replace(",", " ") for number in (first, second)]
        return _words(claim, shown), seeds, _verdict((-first, -first), (-second, -second))
    scores = [middle([run["tests"][claim.test]["score"] for run in runs]) for runs in pair]
    is_share = max(scores) <= 1
    shown = [f"{100 * score:.1f} %" if is_share else f"{score:.1f}" for score in scores]
    return _words(claim, shown), seeds, _verdict(*(_interval(runs, claim.test) for runs in pair))


def _words(claim: Claim, shown: Sequence[str]) -> str:
    return f"{claim.names[0]} {shown[0]} ({claim.names[1]} {shown[1]})"


def _interval(runs: Sequence[Row], test: str) -> tuple[float, float]:
    tests = [run["tests"][test] for run in runs]
    found = seeds_interval([np.array(one["correct"]) for one in tests], [np.array(one["asked"]) for one in tests])
    return found.low, found.high


def _verdict(first: tuple[float, float], second: tuple[float, float]) -> str:
    if first[0] > second[1]:
        return "holds"
    return "contradicted" if first[1] < second[0] else "not shown"
