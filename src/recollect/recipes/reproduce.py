"""Run a recipe's seeds, write a result file per run, and generate the tables from these files alone.

    results/NAME/<label>-seed<k>.json     one run: command, commit, hardware, seed, steps, times, every score;
                                          scored_by where another process only scored it
    docs/results.md                       one table per recipe and scale, between markers

A run is scored on its own task, or on each of its recipe's tests; every test is a row of the table. A failed run has a
file and a row, too. Several commands can share the work: each skips runs that another process works on.

The score of a row is the interquartile mean over seeds (the mean of the middle half; the mean of fewer than four
seeds). Its interval is a 95 % percentile bootstrap on two levels, seeds and then evaluated rows, so that it also exists
for a single seed.

Source: Agarwal et al., Deep RL at the edge of the statistical precipice (2021), for mean and bootstrap.
"""

import glob
import hashlib
import json
import shutil
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from os import PathLike
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from rich.console import Console

from recollect.agents.sequence_classifier import SequenceClassifier
from recollect.agents.sequence_model import SequenceModel
from recollect.agents.sit import SiT
from recollect.config import to_json
from recollect.evaluation.confidence_interval import interquartile_mean, seeds_interval
from recollect.files import replace_between, without_nan, write_atomically
from recollect.recipes.base import Recipe, Run, Test
from recollect.recipes.learner_frames import frames_table
from recollect.recipes.memory_requirements import policies_of, requirements_of
from recollect.recipes.result_files import has_result, of_one_config, read_result, read_results, result_aids
from recollect.recipes.result_tables import markdown_cell, markdown_table
from recollect.runs.errors import RunError
from recollect.runs.folder_lock import FolderLock, InUseError
from recollect.runs.provenance import environment, short_commit
from recollect.runs.random_states import seed_everything
from recollect.runs.run_directory import RunRecord
from recollect.state import nbytes
from recollect.tasks import GymnasiumConfig
from recollect.training import REGISTRY, DetectionConfig, TrainerConfig, fresh_seed
from recollect.training.devices import choose_device, peak_memory, reset_peak_memory
from recollect.training.loop import Outcome, fit
from recollect.training.saved_models import load_model

FINAL_SAMPLES = 512
"""Rows or episodes in the score of a finished run."""
FILLED, TIMED = 200, 100
"""Steps of a stream before the timed ones, and timed steps."""
PERFECT = (
    "Perfect after: rows that had been trained on when an evaluation on the way first had no mistake, median over "
    "seeds. The score is of other rows, and may have one."
)


def reproduce(  # noqa: PLR0913  (each one is an option of the command)
    recipe: Recipe,
    *,
    scale: str = "lite",
    cores: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    seeds: int | None = None,
    root: str | PathLike[str] = ".",
    device: str | None = None,
    again: bool = False,
    console: Console | None = None,
) -> Path:
    """Run the missing runs of a recipe, then generate its tables.

    Args:
        recipe: from RECIPES.
        scale: lite, long or paper, where the recipe has it.
        cores: only the rows of these cores; None runs all. ``package.module:Config`` adds rows, where the recipe takes
            them.
        rows: only the rows whose names fit one of these patterns, such as ``ballet*``; None runs all.
        seeds: number of seeds of every row; None takes the recipe's number, which is smaller for some rows.
        root: folder for ``results/``, ``docs/results.md`` and ``runs/``.
        device: overrides the recipe's; results of other devices count.
        again: also run rows that have a result of the same config.
        console: for progress; None is silent.

    Returns:
        The path of ``docs/results.md``.

    Raises:
        ValueError: an unknown scale, core, row or device, or a file in ``results/`` that is no result.
        KeyboardInterrupt: stopped by Ctrl-C or SIGTERM; the run is saved, and the same command resumes it.
    """
    runs = recipe.chosen_rows(scale, cores or (), rows or ())
    number = recipe.seeds[scale] if seeds is None else seeds  # type: ignore[index]
    if number < 1:
        raise ValueError(f"seeds={number}: run at least one")
    if device is not None:
        choose_device(device)  # fail once, not in every row
    base = Path(root)
    read_results(base / "results" / recipe.name)  # a damaged file is an error before hours of training, not after them
    for seed in range(number):  # the first seed of everything, then the second: what is there early means something
        for run in runs:
            if seeds is None and run.seeds is not None and seed >= run.seeds:
                continue
            config = replace(run.config, fit=replace(run.config.fit, seed=seed), device=device or run.config.device)
            one = replace(run, config=config)
            path = base / "results" / recipe.name / f"{run.label}-seed{seed}.json"
            if not again and has_result(path, one):
                _say(console, f"{run.row}, seed {seed}: already in {path}")
                continue
            try:
                result = run_once(recipe, one, scale, base, console, anew=again)
            except InUseError as error:  # another command works on this run and will write its result
                _say(console, f"{run.row}, seed {seed}: left out: {error}")
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(without_nan(result), indent=1) + "\n")
            _say(console, f"{run.row}, seed {seed}: {_summary(result)}")
    return write_tables(recipe, base)


def run_once(
    recipe: Recipe, run: Run, scale: str, root: Path, console: Console | None = None, *, anew: bool = False
) -> dict[str, Any]:
    """Train and score one run; failures are recorded in the result, not raised.

    Args:
        recipe: of the run.
        run: to train.
        scale: of the recipe.
        root: folder of ``runs/``.
        console: for progress; None is silent.
        anew: train a finished run again; an interrupted one is resumed.

    Raises:
        InUseError: another process works on this run.
        KeyboardInterrupt: stopped by Ctrl-C or SIGTERM.
    """
    description, directory = to_json(run.config, REGISTRY), run_folder(recipe, run, root)
    if not anew:
        _take_over(directory, description)
    elif _has_ended(directory):
        shutil.rmtree(directory)
    here = {key: value for key, value in environment().items() if key != "command"}
    seed, usual = run.config.fit.seed, recipe.seeds.get(scale) if run.seeds is None else run.seeds  # type: ignore[call-overload]
    more = "" if usual is None or seed < usual else f" --seeds {seed + 1}"  # of which the plain command has fewer
    more += f" --cores {run.core}" if ":" in run.core else ""  # which the plain command does not run
    result: dict[str, Any] = {
        "recipe": recipe.name,
        "scale": scale,
        "label": run.label,
        "row": run.row,
        "core": run.core,
        "paper": run.paper,
        "seed": seed,
        "taught_by": run.config.teacher_description,
        "helps": list(run.config.training_aids),
        "command": f"recollect reproduce {recipe.name} --scale {scale}{more}",
        **here,
        "config": description,
    }
    reset_peak_memory()
    try:
        if isinstance(run.config.trained_on, GymnasiumConfig):
            run.config.trained_on.register()  # says in one line which package is missing
        outcome = fit(run.config, directory, resume=True, console=console, hint="the same command goes on from there")
        if outcome.status == "interrupted":
            raise KeyboardInterrupt(outcome.message)
        return result | _scores(run, outcome) | _trained_elsewhere(outcome, here)
    except InUseError:
        raise
    except (RunError, ValueError, RuntimeError, MemoryError) as error:
        lines = traceback.format_exception_only(error)
        return result | {"status": "failed", "error": lines[-1].strip().splitlines()[0]}


def run_folder(recipe: Recipe, run: Run, root: Path) -> Path:
    """Return the run directory of a row: a changed config gets a new one, the same config resumes."""
    description = json.dumps(to_json(run.config, REGISTRY), sort_keys=True)
    digest = hashlib.sha256(description.encode()).hexdigest()[:8]
    return root / "runs" / "reproduce" / recipe.name / f"{run.label}-seed{run.config.fit.seed}-{digest}"


def _take_over(directory: Path, config: Mapping[str, Any]) -> None:
    """Rename the directory of a run that had less processor time, so that it goes on: more of it changes no step."""
    pattern = glob.escape(directory.name.rpartition("-")[0]) + "-*"
    shorter = [path for path in sorted(directory.parent.glob(pattern)) if _has_less_time(path, config)]
    if shorter and not directory.exists():
        FolderLock(shorter[0]).check()
        shorter[0].rename(directory)


def _has_less_time(directory: Path, config: Mapping[str, Any]) -> bool:
    """Return whether a directory has a run of a config but for a lower limit of processor time."""
    try:
        before = RunRecord(directory).config
        limit, now = before["fit"]["processor_seconds"], config["fit"]["processor_seconds"]
    except (KeyError, ValueError):  # damaged, or of an older version
        return False
    lower = limit is not None and (now is None or limit < now)
    return lower and config == {**before, "fit": before["fit"] | {"processor_seconds": now}}


def _has_ended(directory: Path) -> bool:
    progress = RunRecord(directory).progress
    return progress.get("status") in ("finished", "solved")


def _trained_elsewhere(outcome: Outcome, here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of a training by an earlier process, which this one only scores; else nothing."""
    trained = outcome.trained_by
    if trained == RunRecord(outcome.directory.path).processes[-1]:
        return {}
    there = {key: trained[key] for key in here if key in trained}
    return {**there, "scored_by": dict(here), "peak_memory_mib": None}  # the peak was that of scoring


def _scores(run: Run, outcome: Outcome) -> dict[str, Any]:
    config = run.config
    rows = RunRecord(outcome.directory.path).rows
    curve = [[int(r["step"]), float(r["score"])] for r in rows if r["score"]]
    numbers: dict[str, Any] = {
        "status": "ok",
        "error": None,
        "parameters": sum(p.numel() for p in outcome.agent.parameters()),
        "steps": outcome.step,
        "seconds": round(outcome.seconds, 1),
        "processor_seconds": round(outcome.processor_seconds, 3),
        "peak_memory_mib": peak_memory(),
        **_memory(outcome.agent),
        "curve": curve,
    }
    numbers |= config.experience(rows)
    scores = {
        name: _test(run, _best(run, outcome) if test.best else outcome.agent, test) for name, test in run.scored.items()
    }
    if run.untrained:
        seed_everything(config.fit.seed)  # as a run begins
        agent = config.build().agent
        scores |= {_untrained(name): _test(run, agent, replace(test, paper="-")) for name, test in run.scored.items()}
    return numbers | {"tests": scores}


def _best(run: Run, outcome: Outcome) -> Any:
    """Load the agent of the run's best evaluation; modules that a recipe names are trusted."""
    return load_model(outcome.directory.path, run.config.device, best=True, trust=True)


def _untrained(test: str) -> str:
    return f"{test}, untrained" if test else "untrained"


def _trained(test: str) -> str:
    return test.removesuffix("untrained").removesuffix(", ")


def _test(run: Run, agent: Any, test: Test) -> dict[str, Any]:
    """Score an agent on one test, with row-by-row sums and counts for the intervals."""
    config = run.config
    measure = config.evaluate if test.measure is None else test.measure
    found = measure(
        agent,
        test.where,
        samples=FINAL_SAMPLES if test.samples is None else test.samples,
        seed=fresh_seed(config.fit.seed),
    )
    right, asked = found.by_row()
    return {"paper": test.paper, **found.to_json(), "correct": right, "asked": asked}


def _memory(agent: Any) -> dict[str, Any]:
    """Measure the state bytes of one row and the processor time of a streamed step.

    Empty for models that read whole rows and have no state.
    """
    whole = isinstance(agent, SequenceModel) and agent.config.whole_rows
    if whole or isinstance(agent, (SequenceClassifier, SiT)):
        return {}
    core = agent.core
    weight = next(core.parameters())
    step = torch.randn(1, *core.input_shape, device=weight.device, dtype=weight.dtype)
    stream = core.stream(1)
    for _ in range(FILLED):
        stream.step(step)
    began = process_time()
    for _ in range(TIMED):
        stream.step(step)
    microseconds = round(1e6 * (process_time() - began) / TIMED, 1)
    return {"state_bytes": nbytes(core.initial_state(1)), "step_microseconds": microseconds}


def write_tables(recipe: Recipe, root: str | PathLike[str] = ".") -> Path:
    """Regenerate the recipe's tables in ``docs/results.md`` from its result files."""
    base = Path(root)
    results = read_results(base / "results" / recipe.name)
    made: dict[str, str | None] = {}
    for scale in recipe.runs:
        mine, notes = of_one_config([one for one in results if one["scale"] == scale], recipe.rows(scale))
        make = table if recipe.pages is None else partial(_paged, root=base)
        content = "\n\n".join([make(recipe, scale, mine), *notes]) if mine else None
        made[f"recollect:{recipe.name}-{scale}"] = content
    made["recollect:learner-frames"] = frames_table(_experiments(base))
    path, lock = base / "docs" / "results.md", base / "runs" / "reproduce" / "tables.lock"
    for written in (path, lock):
        written.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):  # another recipe's command may write its tables now
        text = path.read_text() if path.is_file() else "# Results\n"
        for name, content in made.items():
            text = _without(text, name) if content is None else replace_between(text, name, content)
        write_atomically(path, text)
    return path


def _without(text: str, name: str) -> str:
    """Remove two markers and the text between them from a page."""
    before, begin, rest = text.partition(f"<!-- {name}:begin -->")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    return "\n\n".join(filter(None, (before.rstrip("\n"), after.lstrip("\n")))) if begin and end else text


def _experiments(base: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the speeds of all results under a folder, by recipe and scale."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((base / "results").glob("*/*-seed*.json")):
        status = path.stat()
        result = _read_speed(path, status.st_mtime_ns, status.st_size)
        found.setdefault(f"{result['recipe']}, {result['scale']}", []).append(result)
    return found


@cache
def _read_speed(path: Path, modified: int, size: int) -> dict[str, Any]:
    """Return what :func:`frames_table` needs of a result; the tables of the next recipe do not read the file again."""
    result = read_result(path)
    kept = ("recipe", "scale", "label", "status", "taught_by", "frames_per_second")
    return {key: result.get(key) for key in kept}


def _paged(recipe: Recipe, scale: str, results: Sequence[Mapping[str, Any]], root: Path) -> str:
    """Return the table of a recipe that has its own pages, and write these."""
    assert recipe.pages is not None
    own = recipe.pages(with_memory_requirements(recipe, scale, results), root)
    if own is None:
        return table(recipe, scale, results)
    return "\n".join([*_title(recipe, scale), own, "", *_caption(results)])


def with_memory_requirements(recipe: Recipe, scale: str, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the results with ``lag`` and ``reach`` in each test, where the lag is known (see
    :func:`lag_and_reach`).
    """
    rows = {run.label: run for run in recipe.rows(scale)}
    found = []
    for result in results:
        run, tests = rows.get(result["label"]), {}
        for name, test in result.get("tests", {}).items():
            where = None if run is None else run.scored.get(_trained(name))
            needs = None if where is None else requirements_of(where.where)
            known = {} if run is None or needs is None else {"lag": needs.lag, "reach": reach_of(run.config)}
            tests[name] = {**test, **known}
        found.append({**result, "tests": tests})
    return found


def failed(recipe: Recipe, scale: str, root: str | PathLike[str] = ".") -> list[str]:
    """Return the runs of a scale whose newest result is a failure, each with its reason."""
    lines = []
    for result in read_results(Path(root) / "results" / recipe.name):
        if result["scale"] == scale and result["status"] != "ok":
            lines.append(f"{result['row']}, seed {result['seed']}: {result['error']}")
    return lines


def table(recipe: Recipe, scale: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of all results of a scale, in the recipe's order, failures included."""
    rows = recipe.rows(scale)
    order = {run.label: place for place, run in enumerate(rows)}
    asked = {(run.label, name): lag_and_reach(run, test) for run in rows for name, test in run.scored.items()}
    labels = sorted({result["label"] for result in results}, key=lambda label: (order.get(label, len(order)), label))
    lines: list[list[str]] = []
    for label in labels:
        runs = [result for result in results if result["label"] == label]
        good = [result for result in runs if result["status"] == "ok"]
        for name in good[0]["tests"] if good else ():
            with_test = [result for result in good if name in result["tests"]]
            lines.append(_row(runs[0], name, with_test, asked.get((label, _trained(name)), "-")))
        for result in runs:
            if result["status"] != "ok":
                error = markdown_cell(f"failed: {result['error']}")
                row = f"{markdown_cell(result['row'])}, seed {result['seed']}"
                lines.append([row, result["paper"], error, "0", *"---", f"`{result['command']}`"])
    heads = ["", "paper", "ours", "n", "interval", "chance", "lag / reach", "command"]
    cells = markdown_table(heads, lines, "l" * len(heads))
    perfect = [PERFECT, ""] if "(perfect after " in cells else []
    return "\n".join([*_title(recipe, scale), cells, "", *perfect, *_caption(results), *_reference_lines(rows)])


def _title(recipe: Recipe, scale: str) -> list[str]:
    return [f"### {recipe.title} ({scale} scale)", "", f"{recipe.about} Source: {recipe.source}.", ""]


def lag_and_reach(run: Run, test: Test) -> str:
    """Return the lag of a test and the reach of the core's windows as text; "-" where the lag is unknown."""
    needs = requirements_of(test.where)
    if needs is None:
        return "-"
    reach = reach_of(run.config)
    return f"{needs.lag:g} / {'∞' if reach is None else reach}"


def reach_of(config: TrainerConfig) -> int | None:
    """Return how many steps of the task the core's windows reach back; None for recurrent cores."""
    # One frame may be several steps of a detector's core.
    return config.reach if isinstance(config, DetectionConfig) else config.core.reach  # type: ignore[attr-defined]


def _reference_lines(rows: Sequence[Run]) -> list[str]:
    """Return a paragraph per world with the scores of its named policies."""
    lines = []
    for name, where in {name: test.where for run in rows for name, test in run.scored.items()}.items():
        known = policies_of(where)
        if known:
            scores = {"chance": where.spec.chance, **known, "oracle": where.spec.oracle}
            told = ", ".join(f"{policy} {score:.1f}" for policy, score in scores.items())
            lines += ["", f"Reference lines{f', {name}' if name else ''}: {told}."]
    return lines


def _row(first: Mapping[str, Any], name: str, good: Sequence[Mapping[str, Any]], asked: str) -> list[str]:
    tests = [result["tests"][name] for result in good]
    low, high = seeds_interval(
        [np.array(test["correct"]) for test in tests], [np.array(test["asked"]) for test in tests]
    )
    score = f"{interquartile_mean(np.array([test['score'] for test in tests])):.3f}{_samples(good)}"
    aids = ", ".join(result_aids(first))
    title = markdown_cell(first["row"] + (f" ({aids})" if aids else "") + (f", {name}" if name else ""))
    chance = "-" if tests[0]["chance"] is None else f"{tests[0]['chance']:.3f}"
    numbers = [score, str(len(good)), f"{low:.3f} to {high:.3f}", chance, asked]
    return [title, tests[0]["paper"], *numbers, f"`{first['command']}`"]


def _caption(results: Sequence[Mapping[str, Any]]) -> list[str]:
    hardware = sorted({_machine(result["hardware"]) for result in results})
    commits = sorted({short_commit(result["commit"]) for result in results})
    seconds = sum(result.get("seconds", 0.0) for result in results)
    number = sum(result["status"] != "ok" for result in results)
    runs = f"{len(results)} runs" + (f", **{number} failed**" if number else "")
    return [
        "Score: share of answers that are right, or an episode's score in its world. "
        "Ours: interquartile mean over n seeds; interval: 95 % bootstrap over seeds and evaluated rows. "
        "Lag: steps between what must be kept and its use (median, by the oracle's play). Reach: steps back that the "
        "core's windows show, layers x window; chunks reach further still; ∞ marks a recurrent state without a fixed "
        f"reach. {runs}, {seconds / 60:.1f} minutes of training on {'; '.join(hardware)}; "
        f"commit {', '.join(commits)}.",
    ]


def _machine(hardware: Mapping[str, Any]) -> str:
    if hardware["accelerator"]:
        return hardware["accelerator"]
    return f"{hardware['processor']}, {hardware['threads']} threads"


def _samples(results: Sequence[Mapping[str, Any]]) -> str:
    reached = [result["samples_to_perfect"] for result in results]
    if any(samples is None for samples in reached):
        return ""
    return f" (perfect after {int(np.median(reached)):,} samples)".replace(",", " ")


def _summary(result: Mapping[str, Any]) -> str:
    if result["status"] != "ok":
        return f"failed: {result['error']}"
    scores = ", ".join(f"{name or 'score'} {test['score']:.4f}" for name, test in result["tests"].items())
    return f"{scores} after {result['steps']} steps, {result['seconds']:.0f} s"


def _say(console: Console | None, line: str) -> None:
    if console is not None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
