"""Parser of the words after ``recollect train``: task, core, agent, trainer, seeds and the other flags."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from recollect.cli import flags
from recollect.cli.saved_runs import SavedSettings, read_settings
from recollect.config import lookup
from recollect.cores import CORES
from recollect.entry_points import resolve
from recollect.recipes.attention_agents import ATTENTION_AGENTS
from recollect.recipes.train import core_name
from recollect.tasks import TASKS, CatchConfig
from recollect.training.trainers import TRAINERS

CORE = "hcam"
"""The core unless one is named."""

WORLD = {"options": "size=7 render_mode=rgb_array", "wrappers": "gymnasium.wrappers:FlattenObservation"}
"""Fields of a Gymnasium environment that are read before the other flags, whose defaults depend on what the environment
shows; and an example of each."""


class Request(NamedTuple):
    """A parsed command line of ``recollect train``."""

    task: str | None
    """Key of a task, ``gym:ID`` or ``package.module:Name``."""
    core: str | None
    """Key of a core, or ``package.module:Name``."""
    agent: str | None
    """Name of a whole agent, which brings its core."""
    trainer: str | None
    """Key of a trainer; None for the task's own."""
    config: Path | None
    """A config.json to begin with."""
    seeds: tuple[int, ...]
    """One run each; empty for a single run."""
    parallel: int
    """Runs at a time."""
    help: str | None
    """``--help`` or ``--help-all``, where one was typed."""
    world: dict[str, list[str]]
    """Words after ``--world.options`` and ``--world.wrappers``."""
    rest: list[str]
    """All other flags and their values, under their full names."""

    def value(self, flag: str) -> str | None:
        """Return the value of a flag in :attr:`rest`; the last one counts."""
        for place, word in reversed(list(enumerate(self.rest))):
            name, equals, value = word.partition("=")
            if name.replace("_", "-") == flag and (equals or place + 1 < len(self.rest)):
                return value if equals else self.rest[place + 1]
        return None

    @property
    def core_name(self) -> str:
        """The core, also where an agent brings it."""
        return self.core or (CORE if self.agent is None else core_name(ATTENTION_AGENTS[self.agent](CatchConfig())))

    @property
    def model_name(self) -> str:
        """The agent, or the core: the second part of a run's name."""
        return self.agent or self.core_name

    def title(self, task: str | None = None, core: str | None = None) -> tuple[str, str]:
        """Return the parser's program name and description.

        Args:
            task: its name, unless it was typed.
            core: its name, unless it was typed.
        """
        task = task or str(self.task)
        model = f"--core {core or self.core_name}" if self.agent is None else f"--agent {self.agent}"
        model += "" if self.trainer is None else f" --trainer {self.trainer}"
        return f"train {task} {model}", f"Train {self.agent or core or self.core_name} on {task}."

    def saved_settings(self) -> SavedSettings | None:
        """Read the settings to begin with: those of ``--config``, or of the run that ``--resume`` alone names."""
        directory = self.value("--directory") if self.task is None and "--resume" in self.rest else None
        file = Path(directory) / "config.json" if directory is not None else None
        if self.config is not None:
            return read_settings(self.config)
        return read_settings(file) if file is not None and file.is_file() else None


def read_request(words: Sequence[str]) -> Request:
    """Parse the words that decide which flags exist, and keep the flags.

    Raises:
        ValueError: a flag without its value, an unknown trainer, TASK, --core and --trainer beside --config, or
            --parallel without --seeds.
    """
    rest = flags.full_names(words)
    task = rest.pop(0) if rest and not rest[0].startswith("-") else None
    core = _take(rest, "--core", "the key of a core")
    agent = _take(rest, "--agent", f"one of {', '.join(ATTENTION_AGENTS)}")
    trainer = _take(rest, "--trainer", f"one of {', '.join(TRAINERS)}")
    config = _take(rest, "--config", "a config.json of a run")
    parallel = _number(_take(rest, "--parallel", "how many runs at a time") or "1", "--parallel", least=1)
    seeds = _take_numbers(rest, "--seeds")
    if trainer == "cloning":
        rest = [word.replace("--loss.imitation.teacher.", "--teacher.", 1) for word in rest]
    world = {name: _take_words(rest, f"--world.{name}", example) for name, example in WORLD.items()}
    helps = {word for word in rest if word in ("-h", "--help", "--help-all")}
    wanted = None if not helps else "--help-all" if "--help-all" in helps else "--help"
    rest = [word for word in rest if word not in helps]
    task, core = task and resolve("tasks", task, TASKS), core and resolve("cores", core, CORES)
    file = None if config is None else Path(config)
    fields = {name: found for name, found in world.items() if found}
    request = Request(task, core, agent, trainer, file, seeds, parallel, wanted, fields, rest)
    _require_consistent(request)
    return request


def _require_consistent(request: Request) -> None:
    task, core, agent, trainer = request[:4]
    if request.config is not None and (task or core or agent or trainer):
        raise ValueError(
            "--config brings its task and its core, and its trainer: omit TASK, --core, --agent and --trainer"
        )
    if agent is not None:
        lookup(ATTENTION_AGENTS, agent, "agent")
        if core is not None:
            raise ValueError(f"--agent {agent} brings its core: omit --core {core}, or --agent")
    if trainer is not None:
        lookup(TRAINERS, trainer, "trainer")
    if request.seeds and any(word.partition("=")[0] == "--fit.seed" for word in request.rest):
        raise ValueError("--seeds and --seed: give one of them")
    if request.parallel > 1 and not request.seeds:
        only = "there is one run only: give --seeds too, such as --seeds 0 1 2"
        raise ValueError(f"--parallel {request.parallel}: {only}")


def _take(words: list[str], flag: str, what: str) -> str | None:
    """Remove a flag and its value from the words; return the last value, or None."""
    found = None
    for place in reversed(range(len(words))):
        if words[place] == flag:
            if place + 1 == len(words) or words[place + 1].startswith("--"):
                raise ValueError(f"{flag} needs {what}")
            value = words[place + 1]
            del words[place : place + 2]
        elif words[place].startswith(f"{flag}="):
            value = words.pop(place).removeprefix(f"{flag}=")
            if not value:
                raise ValueError(f"{flag} needs {what}")
        else:
            continue
        found = found or value
    return found


def _take_group(words: list[str], flag: str, end: str) -> list[str] | None:
    """Remove the first occurrence of a flag and the words up to the next one; return these words, or None."""
    start = next((place for place, word in enumerate(words) if word.partition("=")[0] == flag), None)
    if start is None:
        return None
    stop = next((place for place in range(start + 1, len(words)) if words[place].startswith(end)), len(words))
    found = [word for word in (words[start].partition("=")[2], *words[start + 1 : stop]) if word]
    del words[start:stop]
    return found


def _take_numbers(words: list[str], flag: str) -> tuple[int, ...]:
    found = _take_group(words, flag, "-")
    if found == []:
        raise ValueError(f"{flag} needs numbers, such as {flag} 0 1 2")
    return tuple(dict.fromkeys(_number(word, flag) for word in found or ()))


def _take_words(words: list[str], flag: str, example: str) -> list[str]:
    taken: list[str] = []
    while (found := _take_group(words, flag, "--")) is not None:
        if not found:
            raise ValueError(f"{flag}: give values, for example {flag} {example}")
        taken += found
    return taken


def _number(word: str, flag: str, least: int = 0) -> int:
    if not word.isdecimal() or int(word) < least:
        raise ValueError(f"{flag} {word}: give a whole number of at least {least}")
    return int(word)
