"""The flags of a run, derived from its config, and the mistakes in flags that are found before torch is imported."""

import ast
import dataclasses
import difflib
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recollect.cli.flag_names import ALIASES, COMMON, REMEDIES
from recollect.cli.options import TrainOptions
from recollect.config import require_name


class Flag(NamedTuple):
    """A flag of a run."""

    metavar: str
    """Placeholder for its value, as ``INT``; empty for a switch."""
    num_values: int | None
    """Number of words that follow it; None for any number."""
    about: str
    """Its help text."""
    default: str
    """Its default value, as it would be typed."""

    def error(self, values: Sequence[str]) -> str | None:
        """Return the error in the words that follow the flag, or None."""
        if self.num_values is None:
            return None
        if self.num_values == 0 and values:
            return "it takes no value"
        if len(values) != self.num_values:
            return (
                f"give {self.metavar}" if not values else f"{self.num_values} value(s) were expected, not {len(values)}"
            )
        if self.metavar.startswith("{") and self.metavar.endswith("}"):
            choices = self.metavar[1:-1].split(",")
            return None if values[0] in choices else f"choose one of {', '.join(choices)}"
        kind = self.metavar.removeprefix("{None}|")
        if kind in ("INT", "FLOAT") and not (kind != self.metavar and values[0] == "None"):
            try:
                (int if kind == "INT" else float)(values[0])
            except ValueError:
                return "give a whole number" if kind == "INT" else "give a number"
        return None


def config_flags(config: Any, prefix: str = "") -> dict[str, Flag]:
    """Return the flags of a config and of the configs inside it, under the names that tyro gives them.

    Args:
        config: dataclass instance; its values are the defaults.
        prefix: beginning of the names, as ``core.``.
    """
    found: dict[str, Flag] = {}
    hints = typing.get_type_hints(type(config))
    texts = field_texts(type(config))
    for field in dataclasses.fields(config):
        value, hint, name = getattr(config, field.name), hints[field.name], field.name
        # tyro writes hyphens, but for underscores at the end
        name = prefix + name.rstrip("_").replace("_", "-") + "_" * (len(name) - len(name.rstrip("_")))
        if dataclasses.is_dataclass(value):
            found |= config_flags(value, f"{name}.")
        elif isinstance(value, tuple) and value and all(map(dataclasses.is_dataclass, value)):
            for place, part in enumerate(value):
                found |= config_flags(part, f"{name}.{place}.")
        elif (kind := _metavar(hint)) is not None:
            metavar, count = kind
            found[f"--{name}"] = Flag(metavar, count, _plain(texts.get(field.name, "")), _typed(value))
    return found


def _plain(text: str) -> str:
    """Return a docstring for a terminal, without the marks of code and of references."""
    return re.sub(r"(?::\w+:)?`{1,2}~?([^`]*)`{1,2}", r"\1", text)


def _metavar(hint: Any) -> tuple[str, int | None] | None:
    """Return the placeholder of a type and how many words it takes; None for what cannot be typed (a mapping)."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [_metavar(kind) for kind in inner if kind is not types.NoneType]
        known = [kind for kind in kinds if kind is not None]
        if not known:
            return None
        texts = [text if count == 1 else f"{{{text}}}" for text, count in known]
        return "|".join([*(["{None}"] if types.NoneType in inner else []), *texts]), known[0][1]
    if origin is typing.Literal:
        return "{" + ",".join(map(str, inner)) + "}", 1
    if origin is tuple:
        items = [_metavar(item) for item in inner if item is not ...]
        text = " ".join(item[0] for item in items if item is not None)
        return (f"[{text} [{text} ...]]", None) if ... in inner else (text, len(inner))
    if hint is bool:
        return "", 0
    names = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
    return (names[hint], 1) if hint in names else None


def _typed(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return " ".join(_typed(item) for item in value)
    return str(value) if value != "" else "''"


def field_texts(cls: type) -> dict[str, str]:
    """Return the docstrings under the fields of a dataclass and of its bases, on one line each."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            texts |= _module_texts(base.__module__).get(base.__qualname__, {})
    return texts


@cache
def _module_texts(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings under the fields of each top-level class of a module; nothing where there is no source."""
    file = getattr(sys.modules[module], "__file__", None)
    try:
        tree = ast.parse(Path(str(file)).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                field.target.id: " ".join(text.value.value.split())
                for field, text in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    return found


def run_flags(task: str, core: str, trainer: str | None = None, agent: str | None = None) -> dict[str, Flag] | None:
    """Return the flags of a core on a task; None where one of them is user-defined and has to be imported first.

    Args:
        task: key of a task, ``gym:ID`` or ``package.module:Name``.
        core: key of a core, or ``package.module:Name``.
        trainer: key of a trainer; None for the task's own.
        agent: name of a whole agent, which brings its core.

    Raises:
        ValueError: the recipe's sizes do not suit the core, or the trainer does not train on the task.
    """
    if ":" in core or (":" in task and not task.startswith("gym:")):
        return None
    default = recipe_config("gym" if task.startswith("gym:") else task, core, trainer, agent)
    return config_flags(default) | config_flags(TrainOptions())


@cache
def recipe_config(task: str, core: str, trainer: str | None = None, agent: str | None = None) -> Any:
    """Return the config that the flags change; made once, for the check of the flags and for the run.

    Args:
        task: key of a task.
        core: key of a core.
        trainer: key of a trainer; None for the task's own.
        agent: name of a whole agent, which brings its core.

    Raises:
        ValueError: as :func:`recollect.recipes.train.training`.
    """
    from recollect.recipes.train import training

    return training(task, core, trainer=trainer, agent=agent)


def likely_flags(task: str, core: str, trainer: str | None = None) -> tuple[dict[str, Flag], tuple[str, ...]]:
    """Return the flags of a user-defined task or core as far as they are known without importing it.

    Args:
        task: key of a task, ``gym:ID`` or ``package.module:Name``.
        core: key of a core or ``package.module:Name``.
        trainer: key of a trainer; None for the task's own.

    Returns:
        The flags of a similar run (for a task: an environment's and a stream task's), and the beginnings of the names
        that only the user-defined class has.
    """
    from recollect.evaluation.recorded_world import PREFIX

    foreign = ":" in task and not task.startswith("gym:")
    trainer = "cloning" if task.startswith(PREFIX) else trainer
    known: dict[str, Flag] = {}
    for similar in ("gym", "recall") if foreign else (task,):
        try:
            known = (run_flags(similar, "lstm" if ":" in core else core, trainer) or {}) | known
        except ValueError:  # this trainer does not train on it
            continue
    own = (*(["--task.", "--world."] if foreign else []), *(["--core."] if ":" in core else []))
    return {name: flag for name, flag in known.items() if ":" not in core or not name.startswith("--core.")}, own


def full_names(words: Sequence[str]) -> list[str]:
    """Replace short names and synonyms of flags by their full names."""
    return [*map(_full, words), *_implied_by_actors(words)]


def _implied_by_actors(words: Sequence[str]) -> list[str]:
    """Return what ``--engine`` and ``--actors`` imply: actors that play while the learner learns, two rollouts each."""
    given = {_full(word).partition("=")[0] for word in words}
    short = {word.partition("=")[0] for word in words} & {"--engine", "--actors"}
    implied = ["--schedule.mode", "asynchronous"] if short and "--schedule.mode" not in given else []
    if "--actors" in short and "--schedule.queue-length" not in given:
        joined = [word for part in words for word in part.split("=", 1)]
        number = joined[joined.index("--actors") + 1 :][:1]
        if number and number[0].isdecimal():
            implied += ["--schedule.queue-length", str(2 * int(number[0]))]
    return implied


def require_known(
    task: str, core: str, words: Sequence[str], trainer: str | None = None, agent: str | None = None
) -> None:
    """Check the flags typed after a task and a core.

    Args:
        task: key of a task.
        core: key of a core.
        words: flags and their values, as :func:`full_names` returns them.
        trainer: key of a trainer; None for the task's own.
        agent: name of the agent that brings the core; None where the core was typed.

    Raises:
        ValueError: an unknown task, core or flag, or a flag without its value or with a wrong one.
    """
    from recollect.cores import CORES
    from recollect.tasks import TASKS

    require_name("tasks", task, TASKS)
    require_name("cores", core, CORES)
    known, own = run_flags(task, core, trainer, agent), ()
    if known is None:
        known, own = likely_flags(task, core, trainer)
    command = f"recollect train {task} " + (f"--agent {agent}" if agent else f"--core {core}")
    command += f" --trainer {trainer}" if trainer else ""
    where = f"{command} --help shows " + ("them" if agent else "the common ones, --help-all all")
    require_among(known, words, where, own)


def require_among(known: Mapping[str, Flag], words: Sequence[str], where: str, own: tuple[str, ...] = ()) -> None:
    """Check flags and their values.

    Args:
        known: the flags there are.
        words: what was typed.
        where: command that lists the flags, for the message.
        own: beginnings of flags that are left to the parser.

    Raises:
        ValueError: an unknown flag, or one without its value or with a wrong one.
    """
    by_name = {_hyphens(name): (name, flag) for name, flag in known.items()}
    switches = {_hyphens(_negated(name)) for name, flag in known.items() if flag.num_values == 0}
    for word, values in _grouped(words):
        if _hyphens(word) in switches or word.startswith(own):
            continue
        if _hyphens(word) not in by_name:
            raise ValueError(f"unknown flag {word}: {_suggestion(word, known)}{where}")
        name, flag = by_name[_hyphens(word)]
        error = flag.error(values)
        if error is not None and flag.num_values == 0:
            raise ValueError(f"{' '.join([name, *values])}: {error}: type {name} or {_negated(name)}")
        if error is not None:
            raise ValueError(f"{' '.join([name, *values])}: {error}. {_first_sentence(flag.about)}")


def common_rows(known: Mapping[str, Flag]) -> dict[str, str]:
    """Return the rows of a short help: the common flags by their short names."""
    rows = {}
    for short, name in COMMON:
        if name in known:
            flag = known[name]
            also = "" if short == name else f" ({name})"
            rows[f"{short} {flag.metavar}"] = f"{_first_sentence(flag.about)}{also} [{flag.default or 'empty'}]"
    return rows


def all_rows(known: Mapping[str, Flag]) -> dict[str, str]:
    """Return the rows of a complete help: every flag with its whole text."""
    rows = {}
    for name, flag in sorted(known.items(), key=lambda item: ("." in item[0], item[0])):
        words = f"{name} {flag.metavar}" if flag.metavar else f"{name}, {_negated(name)}"
        rows[words] = f"{flag.about} [{flag.default or 'empty'}]"
    return rows


def _full(word: str) -> str:
    flag, equals, value = word.partition("=")
    return ALIASES.get(_hyphens(flag), flag) + equals + value if flag.startswith("--") else word


def _grouped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield every flag with the words that follow it."""
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


def _suggestion(word: str, known: Mapping[str, Flag]) -> str:
    if _hyphens(word) in REMEDIES:
        return REMEDIES[_hyphens(word)] + ". "
    by_last_part = {name.rpartition(".")[2].removeprefix("--"): name for name in known}
    last_part = _hyphens(word).rpartition(".")[2].removeprefix("--")
    if last_part in by_last_part:
        return f"did you mean {by_last_part[last_part]}? "
    short = [alias for alias, name in ALIASES.items() if name in known]
    near = difflib.get_close_matches(word, [*known, *short], n=1, cutoff=0.7)
    return f"did you mean {near[0]}? " if near else ""


def _hyphens(flag: str) -> str:
    return flag.replace("_", "-").rstrip("-")


def _negated(flag: str) -> str:
    start, dot, end = flag.rpartition(".")
    return f"{start}.no-{end}" if dot else f"--no-{flag.removeprefix('--')}"


def _first_sentence(text: str) -> str:
    sentence = " ".join(text.split()).split(". ")[0]
    return sentence if sentence.endswith(".") else f"{sentence}."
