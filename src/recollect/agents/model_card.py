"""Model card: the ``README.md`` of a model folder, made from its ``results.json``.

``results.json`` has the keys of the files that ``recollect reproduce`` writes (``results/NAME/*.json``): scores of
every test with intervals and chance, seed, steps, command, hardware, versions and commit.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

PICTURE = "film.png"


def model_card(name: str, results: Mapping[str, Any], *, source: str, picture: bool = False) -> str:
    """Return the card as Markdown with the front matter that a hub reads.

    Args:
        name: of the model, its title.
        results: of the run, as JSON data; what is not known is left out.
        source: what to give ``recollect.load``, for the example.
        picture: show ``film.png``.
    """
    core = str(results.get("core", "unknown"))
    tags = ["recollect", "memory", *([core] if core.isascii() and core.replace("-", "").isalnum() else [])]
    lines = ["---", "library_name: recollect", f"tags: [{', '.join(tags)}]", "---", "", f"# {name}", ""]
    task = f", trained on {results['task']}" if "task" in results else ""
    lines += [f"A model around the memory `{_plain(core)}` of the library Recollect{_plain(task)}.", ""]
    lines += [f"![A frame of an episode]({PICTURE})", ""] if picture else []
    lines += [*_scores(results), *_training(results)]
    lines += ["## Use", "", "```python", "import recollect", "", f'model = recollect.load("{source}")', "```", ""]
    return "\n".join(lines)


def score_rows(results: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield test, score, interval, chance and number of evaluated episodes, rows or videos, as text."""
    for name, test in results.get("tests", {}).items():
        low, high = (_number(test.get(end)) for end in ("low", "high"))
        interval = f"{low} to {high}" if "-" not in (low, high) else "-"
        counts = (test[kind] for kind in ("episodes", "rows", "videos") if test.get(kind) is not None)
        yield name, _number(test.get("score")), interval, _number(test.get("chance")), str(next(counts, "-"))


def _scores(results: Mapping[str, Any]) -> list[str]:
    rows = list(score_rows(results))
    if not rows:
        return ["It was not scored.", ""]
    lines = ["| test | score | 95 % interval | chance | evaluated |", "|---|---:|---:|---:|---:|"]
    lines += ["| " + " | ".join(_plain(cell) or "as trained" for cell in row) + " |" for row in rows]
    return ["## Score", "", *lines, "", "Chance: the expected score of a model that cannot remember.", ""]


def _training(results: Mapping[str, Any]) -> list[str]:
    hardware, versions = results.get("hardware") or {}, results.get("versions") or {}
    machine = hardware.get("accelerator") or f"{hardware.get('processor')}, {hardware.get('threads')} threads"
    known = {
        "Command": f"`{_plain(results['command'])}`" if results.get("command") else None,
        "Seed": results.get("seed"),
        "Steps": results.get("steps"),
        "Time": f"{results['seconds']:.0f} s" if results.get("seconds") is not None else None,
        "Hardware": machine if hardware else None,
        "Commit": results.get("commit"),
        "Versions": ", ".join(f"{package} {version}" for package, version in versions.items()) or None,
        "Parameters": results.get("parameters"),
        "Taught by": results.get("taught_by"),
    }
    lines = [f"- {what}: {_plain(value)}" for what, value in known.items() if value is not None]
    return ["## Training", "", *lines, ""] if lines else []


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) and not math.isnan(value) else "-"


def _plain(text: Any) -> str:
    """Return text in one line, without what a table of Markdown would read as its own."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
