"""What ``recollect train`` can say before torch is there: its help, and mistakes in what was typed.

Task and core choose the flags. Their names, kinds, defaults and texts are in ``flags.json``, which ``make_flags.py``
makes from the configs; a task or core that is not in it (of somebody else, or not entered yet) is left to the parser.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recollect.config import lookup

TABLE = Path(__file__).with_name("flags.json")

COMMON: tuple[tuple[str, str], ...] = (
    ("--steps", "--fit.steps"),
    ("--seed", "--fit.seed"),
    ("--lr", "--optimizer.learning-rate"),
    ("--num-envs", "--batch-size"),
    ("--unroll", "--unroll"),
    ("--gamma", "--loss.discount"),
    ("--ent-coef", "--loss.entropy-cost"),
    ("--dim", "--core.dim"),
    ("--num-layers", "--core.num-layers"),
    ("--evaluate-every", "--fit.evaluate-every"),
    ("--stop-score", "--fit.stop-score"),
    ("--device", "--device"),
)
"""The flags that people reach for: a short name, and ours."""

ALIASES: dict[str, str] = {
    **{short: flag for short, flag in COMMON if short != flag},
    **dict.fromkeys(("--learning-rate",), "--optimizer.learning-rate"),
    **dict.fromkeys(("--n-envs", "--num-environments"), "--batch-size"),
    **dict.fromkeys(("--num-steps", "--n-steps", "--rollout-length", "--unroll-length"), "--unroll"),
    **dict.fromkeys(("--discount", "--discounting"), "--loss.discount"),
    **dict.fromkeys(("--entropy-coef", "--entropy-cost"), "--loss.entropy-cost"),
    **dict.fromkeys(("--vf-coef", "--value-coef", "--baseline-cost"), "--loss.baseline-cost"),
    **dict.fromkeys(("--max-grad-norm", "--clip-norm", "--grad-norm-clipping"), "--optimizer.clip-norm"),
    **dict.fromkeys(("--n-epochs", "--update-epochs"), "--loss.reuse.passes"),
    **dict.fromkeys(("--num-minibatches",), "--loss.reuse.minibatches"),
    **dict.fromkeys(("--clip-coef", "--clip-range"), "--loss.reuse.surrogate-clip"),
    **dict.fromkeys(("--gae-lambda",), "--loss.vtrace.lambda_"),
    **dict.fromkeys(("--imitate",), "--loss.imitation.steps"),
    **dict.fromkeys(("--teacher",), "--loss.imitation.teacher.name"),
    **dict.fromkeys(("--data", "--dataset"), "--data.source"),
    **dict.fromkeys(("--hidden-size", "--d-model"), "--core.dim"),
    **dict.fromkeys(("--weight-decay",), "--optimizer.weight-decay"),
    **dict.fromkeys(("--report-every",), "--fit.report-every"),
    **dict.fromkeys(("--report-seconds",), "--fit.report-seconds"),
    **dict.fromkeys(("--checkpoint-every",), "--fit.checkpoint-every"),
}
"""Usual names of flags that mean the same as ours: they are taken."""

USUAL: dict[str, str] = {
    **dict.fromkeys(
        ("--total-timesteps", "--timesteps", "--total-steps", "--frames", "--num-frames", "--max-steps"),
        "use --steps, which counts optimiser steps (in a world, one is batch-size x unroll steps there)",
    ),
    **dict.fromkeys(("--epochs", "--num-epochs"), "use --steps (of the optimiser) or --n-epochs (over a rollout)"),
    **dict.fromkeys(("--eval-freq", "--eval-every", "--eval-interval"), "use --evaluate-every"),
    **dict.fromkeys(("--save-freq", "--save-every", "--save-interval"), "use --checkpoint-every"),
    **dict.fromkeys(("--log-interval", "--log-every", "--log-freq"), "use --report-every or --report-seconds"),
    **dict.fromkeys(("--eval-episodes", "--n-eval-episodes"), "use --evaluation.episodes"),
    **dict.fromkeys(("--env", "--env-id", "--task", "--env-name"), "the task comes first: recollect train gym:ID"),
    **dict.fromkeys(("--model", "--policy", "--network", "--memory", "--arch"), "use --core KEY"),
    **dict.fromkeys(
        ("--logdir", "--log-dir", "--output", "--output-dir", "--out", "--save-dir", "--savedir", "--run-dir"),
        "use --directory",
    ),
    **dict.fromkeys(("--wandb", "--track", "--use-wandb"), "use --log wandb"),
    **dict.fromkeys(("--cuda", "--gpu", "--use-cuda"), "use --device cuda"),
    **dict.fromkeys(("--optimizer", "--optim"), "use --optimizer.algorithm"),
    **dict.fromkeys(("--momentum",), "use --optimizer.betas or --optimizer.smoothing"),
    **dict.fromkeys(
        ("--num-workers", "--num-actors", "--workers"), "use --schedule.actors, with --schedule.mode asynchronous"
    ),
    **dict.fromkeys(("--checkpoint", "--load", "--load-path", "--pretrained", "--init-from"), "use --from RUN"),
    **dict.fromkeys(("--continue", "--restore"), "use --resume"),
}  # fmt: skip
"""Usual names of flags that ours do not quite match, and what to type instead."""


class Flag(NamedTuple):
    """A flag of a run."""

    metavar: str
    """What follows it, as ``INT``; empty for a switch."""
    words: str
    """How many words follow it: a number, or ``*``."""
    about: str
    """Its text."""
    default: str
    """Its value unless it is given."""

    def wrong(self, values: Sequence[str]) -> str | None:
        """What is wrong with the words that follow it, None when nothing is."""
        if self.words == "*":
            return None
        if self.words == "0" and values:
            return "it takes no value"
        if len(values) != int(self.words):
            return f"give {self.metavar}" if not values else f"{self.words} value(s) were expected, not {len(values)}"
        if self.metavar.startswith("{") and self.metavar.endswith("}"):
            known = self.metavar[1:-1].split(",")
            return None if values[0] in known else f"choose one of {', '.join(known)}"
        kind = self.metavar.removeprefix("{None}|")
        if kind in ("INT", "FLOAT") and not (kind != self.metavar and values[0] == "None"):
            try:
                (int if kind == "INT" else float)(values[0])
            except ValueError:
                return "give a whole number" if kind == "INT" else "give a number"
        return None


@cache
def _data() -> dict[str, Any]:
    return json.loads(TABLE.read_text())


def names() -> tuple[list[str], list[str]]:
    """Keys of tasks and of cores."""
    return [task for task in _data()["runs"] if " " not in task], _data()["cores"]


def recipes() -> dict[str, list[str]]:
    """Keys of recipes, and the scales of each."""
    return _data()["recipes"]


def require_scale(recipe: str, scale: str) -> None:
    """Raise ``ValueError`` where a recipe of the table does not have this scale."""
    scales = recipes().get(recipe, [scale])
    if scale not in scales:
        raise ValueError(f"scale={scale!r}: {recipe} has {', '.join(scales)}")


HOMES = {room: f"{room}/__init__.py" for room in ("cores", "tasks", "agents", "recipes")} | {
    "trainers": "training/trainers.py"
}
"""The file with the table of each room."""


def rows(room: str) -> list[dict[str, Any]] | None:
    """What ``recollect list`` shows of a room; None where its table has an entry that is newer than ``flags.json``."""
    listed = _data()["lists"][room]
    entered = re.findall(r'^    "([\w-]+)": ', (TABLE.parents[1] / HOMES[room]).read_text(), re.MULTILINE)
    return listed if set(entered) <= {row["key"] for row in listed} else None


def require_key(room: str, key: str) -> None:
    """Look at a key without importing its room. One that is newer than ``flags.json`` stands in the room's table.

    Args:
        room: cores, tasks or recipes.
        key: what was typed.

    Raises:
        ValueError: there is none; says which is meant.
    """
    known = {"tasks": names()[0], "cores": names()[1], "recipes": list(recipes())}[room]
    if key not in known and f'"{key}"' not in (TABLE.parents[1] / room / "__init__.py").read_text():
        lookup(dict.fromkeys(known), key, room.removesuffix("s"))


def benchmarks() -> dict[str, dict[str, Flag]]:
    """The flags of every benchmark."""
    return {name: {flag: Flag(*entry) for flag, entry in rows.items()} for name, rows in _data()["benchmarks"].items()}


def trainers() -> list[str]:
    """Keys of trainers that may be asked for, beside those that tasks have of their own."""
    return _data()["trainers"]


def agents() -> dict[str, str]:
    """The agents that ``--agent`` may name, and the key of the core of each."""
    return _data()["agents"]


def flags(task: str, core: str, trainer: str | None = None) -> dict[str, Flag] | None:
    """The flags of a core on a task; None where the table does not know them."""
    data = _data()
    key = "gym" if task.startswith("gym:") else task
    runs = data["runs"].get(f"{key} {trainer}", data["runs"].get(key))
    if runs is None or core not in runs["cores"]:
        return None
    values = runs["common"] | runs["cores"][core]
    return {name: _flag(data["texts"][name][text], value) for name, (text, value) in values.items()}


def possible(task: str, core: str, trainer: str | None = None) -> tuple[dict[str, Flag], tuple[str, ...]]:
    """Flags of a task or core of somebody's own, as far as the table can tell.

    Args:
        task: key of a task, ``gym:ID`` or ``package.module:Name``.
        core: key of a core or ``package.module:Name``.
        trainer: key of a trainer; None for the task's own.

    Returns:
        The flags of its like (of a task: of all tasks, environments first), and what the names of those begin with that
        only its own class knows.
    """
    foreign = ":" in task and not task.startswith("gym:")
    known: dict[str, Flag] = {}
    for like in ("gym", *names()[0]) if foreign else (task,):
        known = (flags(like, "lstm" if ":" in core else core, trainer) or {}) | known
    own = (*(["--task.", "--world."] if foreign else []), *(["--core."] if ":" in core else []))
    return {name: flag for name, flag in known.items() if ":" not in core or not name.startswith("--core.")}, own


def full_names(words: Sequence[str]) -> list[str]:
    """The words, with short and usual names of flags replaced by ours."""
    return [_full(word) for word in words]


def require_known(
    task: str, core: str, words: Sequence[str], trainer: str | None = None, agent: str | None = None
) -> None:
    """Look at what was typed behind task and core.

    Args:
        task: key of a task.
        core: key of a core.
        words: flags and their values, as :func:`full_names` gives them.
        trainer: key of a trainer; None for the task's own.
        agent: name of the agent that brings the core; None where the core was typed.

    Raises:
        ValueError: an unknown task, core or flag, or a flag without its value or with a wrong one; says what to type.
    """
    if ":" not in task:
        require_key("tasks", task)
    if ":" not in core:
        require_key("cores", core)
    known, own = flags(task, core, trainer), ()
    if known is None and (":" in task or ":" in core):
        known, own = possible(task, core, trainer)
    if known:
        command = f"recollect train {task} " + (f"--agent {agent}" if agent else f"--core {core}")
        command += f" --trainer {trainer}" if trainer else ""
        where = f"{command} --help shows " + ("them" if agent else "the common ones, --help-all all")
        require_among(known, words, where, own)


def require_among(known: Mapping[str, Flag], words: Sequence[str], where: str, own: tuple[str, ...] = ()) -> None:
    """Look at flags and their values.

    Args:
        known: the flags there are.
        words: what was typed.
        where: what is said of where to find them.
        own: beginnings of flags that are left to the parser.

    Raises:
        ValueError: an unknown flag, or one without its value or with a wrong one.
    """
    by_name = {_plain(name): (name, flag) for name, flag in known.items()}
    switches = {_plain(_negated(name)) for name, flag in known.items() if flag.words == "0"}
    for word, values in _grouped(words):
        if _plain(word) in switches or word.startswith(own):
            continue
        if _plain(word) not in by_name:
            raise ValueError(f"unknown flag {word}: {_instead(word, known)}{where}")
        name, flag = by_name[_plain(word)]
        wrong = flag.wrong(values)
        if wrong is not None and flag.words == "0":
            raise ValueError(f"{' '.join([name, *values])}: {wrong}: type {name} or {_negated(name)}")
        if wrong is not None:
            raise ValueError(f"{' '.join([name, *values])}: {wrong}. {_first_sentence(flag.about)}")


def common(known: Mapping[str, Flag]) -> dict[str, str]:
    """Those of the flags that people reach for, by their short names, and what each does: rows of a help."""
    rows = {}
    for short, name in COMMON:
        if name in known:
            flag = known[name]
            also = "" if short == name else f" ({name})"
            rows[f"{short} {flag.metavar}"] = f"{_first_sentence(flag.about)}{also} [{flag.default}]"
    return rows


def everything(known: Mapping[str, Flag]) -> dict[str, str]:
    """All flags and their whole texts: rows of a help."""
    return {
        f"{name} {flag.metavar}" if flag.metavar else f"{name}, {_negated(name)}": f"{flag.about} [{flag.default}]"
        for name, flag in sorted(known.items(), key=lambda item: ("." in item[0], item[0]))
    }


def _full(word: str) -> str:
    flag, equals, value = word.partition("=")
    return ALIASES.get(_plain(flag), flag) + equals + value if flag.startswith("--") else word


def _grouped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Every flag with the words that follow it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            groups.append((flag, [value] if equals else []))
        elif not groups:
            raise ValueError(f"unexpected word {word!r}: flags begin with --, and a core is named with --core KEY")
        else:
            groups[-1][1].append(word)
    yield from groups


def _instead(word: str, known: Mapping[str, Flag]) -> str:
    if _plain(word) in USUAL:
        return USUAL[_plain(word)] + ". "
    ends = {name.rpartition(".")[2].removeprefix("--"): name for name in known}
    end = _plain(word).rpartition(".")[2].removeprefix("--")
    if end in ends:
        return f"did you mean {ends[end]}? "
    near = difflib.get_close_matches(word, [*known, *ALIASES], n=1, cutoff=0.7)
    return f"did you mean {near[0]}? " if near else ""


def _plain(flag: str) -> str:
    return flag.replace("_", "-").rstrip("-")


def _negated(flag: str) -> str:
    start, dot, end = flag.rpartition(".")
    return f"{start}.no-{end}" if dot else f"--no-{flag.removeprefix('--')}"


def _first_sentence(text: str) -> str:
    sentence = " ".join(text.split()).split(". ")[0]
    return sentence if sentence.endswith(".") else f"{sentence}."


def _flag(entry: Sequence[str], default: str) -> Flag:
    metavar, count, about = entry
    return Flag(metavar, count, about, default)
