"""Makes ``flags.json``, the flags of every core on every task: ``python -m recollect.cli.make_flags``.

cores, trainers    their keys;   recipes    the scales of each;   agents    the core of each that ``--agent`` names
benchmarks    for every benchmark, {flag: [metavar, number of values, text, default]}
lists    the rows of ``recollect list``, by table
texts    for every flag, the [metavar, number of values, text] that it has in one run or another
runs     for every task, and every world with the other trainers on worlds, {flag: [which text, default]}: what all
         cores have in common, and what each has of its own
"""

import json
import warnings
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro
from tyro.conf import arg

from recollect.benchmark import BENCHMARKS
from recollect.cli.flags import TABLE
from recollect.cli.options import TrainOptions
from recollect.cores import CORES
from recollect.files import write_atomically
from recollect.recipes import RECIPES
from recollect.recipes.attention_agents import ATTENTION_AGENTS
from recollect.recipes.contents import CONTENTS
from recollect.recipes.train import core_name, training
from recollect.tasks import TASKS, CatchConfig, WorldConfig
from recollect.terminal import PrintOptions
from recollect.training import TRAINERS

Values = dict[str, tuple[int, str]]
OTHER_WAYS = ("cloning", "decision-transformer")
"""Trainers on worlds that are not the first choice."""


def table() -> str:
    """The text of ``flags.json``."""
    texts: dict[str, list[list[str]]] = {}
    runs = {task: _parts(_cores(task, texts)) for task in TASKS}
    worlds = [task for task, kind in TASKS.items() if issubclass(kind, WorldConfig)]
    runs |= {f"{task} {way}": _parts(_cores(task, texts, way)) for way in OTHER_WAYS for task in worlds}
    benchmarks = {name: _entries(settings(), PrintOptions()) for name, (settings, _, _) in BENCHMARKS.items()}
    keys: dict[str, Any] = {"cores": list(CORES), "trainers": list(TRAINERS)}
    keys["agents"] = {name: core_name(make(CatchConfig())) for name, make in ATTENTION_AGENTS.items()}
    keys["recipes"] = {key: list(recipe.runs) for key, recipe in RECIPES.items()}
    lines = ["{" + "".join(f"{json.dumps(room)}: {json.dumps(names)}, " for room, names in keys.items()).rstrip()]
    lines += [f'"benchmarks": {json.dumps(benchmarks)},', '"lists": {']
    lines.append(",\n".join(f"{json.dumps(room)}: {_lines(rows())}" for room, rows in CONTENTS.items()))
    lines.append('}, "texts": {')
    lines.append(",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in texts.items()))
    lines.append('}, "runs": {')
    lines.append(",\n".join(_run(task, *parts) for task, parts in runs.items()))
    lines.append("}}")
    return "\n".join(lines) + "\n"


def _lines(rows: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "]"


def _cores(task: str, texts: dict[str, list[list[str]]], trainer: str | None = None) -> dict[str, Values]:
    cores = {}
    for core in CORES:
        try:
            default = training(task, core, trainer=trainer)
        except ValueError:  # the recipe's sizes do not suit this core: training says why
            continue
        cores[core] = _values(default, texts)
    return cores


def _run(task: str, common: Values, cores: dict[str, Values]) -> str:
    own = ",\n".join(f"{json.dumps(core)}: {json.dumps(values)}" for core, values in cores.items())
    return f'{json.dumps(task)}: {{"common": {json.dumps(common)},\n"cores": {{\n{own}}}}}'


def _parts(cores: dict[str, Values]) -> tuple[Values, dict[str, Values]]:
    first, *others = cores.values()
    common = {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
    return common, {
        core: {name: value for name, value in values.items() if name not in common} for core, values in cores.items()
    }


def _values(default: Any, texts: dict[str, list[list[str]]]) -> Values:
    values: Values = {}
    for name, (*entry, value) in _entries(default, TrainOptions()).items():
        known = texts.setdefault(name, [])
        if entry not in known:
            known.append(entry)
        values[name] = known.index(entry), value
    return values


def _entries(default: Any, extra: Any) -> dict[str, list[str]]:
    entries = {}
    for action in _parser(default, extra)._actions:
        name = action.option_strings[0] if action.option_strings else ""
        if name in ("", "-h"):
            continue
        # tyro doubles the percent signs, as argparse wants it, and writes the default behind the text.
        text, _, value = (action.help or "").replace("%%", "%").rpartition(" (default: ")
        metavar = str(action.metavar or "")
        entries[name] = [metavar, str(action.nargs), " ".join(text.split()), " ".join(value.removesuffix(")").split())]
    return entries


def _parser(default: Any, extra: Any) -> Any:
    @dataclass(frozen=True)
    class Flags:
        config: Annotated[type(default), arg(name="")] = field(default_factory=lambda: default)  # type: ignore[valid-type]
        options: Annotated[type(extra), arg(name="")] = field(default_factory=lambda: extra)  # type: ignore[valid-type]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # only used here and in the test, with the pinned version
        return tyro.extras.get_parser(Flags)


if __name__ == "__main__":
    write_atomically(TABLE, table())
