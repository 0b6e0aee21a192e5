"""``recollect train TASK --core KEY``: task and core choose the flags that follow.

Help and mistakes are answered from a table (flags.py), before torch is imported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NamedTuple

import tyro
from rich.console import Console
from tyro.conf import arg

from recollect.cli import flags
from recollect.cli.elsewhere import Kept, read_kept, require_there
from recollect.cli.options import TrainOptions
from recollect.cli.seeds import train_seeds
from recollect.config import lookup, needs_user_code
from recollect.terminal import print_status, two_columns

CORE = "hcam"
"""The core where none is named."""

WORLD = {"options": "size=7 render_mode=rgb_array", "wrappers": "gymnasium.wrappers:FlattenObservation"}
"""Fields of a Gymnasium environment that are read before the other flags, because what it shows, and with it the other
flags' defaults, depends on them; and an example of each."""

OPTIONS = {
    "--core KEY": f"The memory: {{cores}}. [{CORE}]",
    "--agent NAME": "In a world of images, a whole agent of George 2021 in the place of --core: {agents}.",
    "--trainer KEY": "How it learns, where a task has several ways: in a world, cloning imitates (--teacher), and "
    "decision-transformer learns from recorded episodes (--data).",
    "--imitate INT": "In a world: imitate a teacher for this many steps, then reinforce; the pull towards the teacher "
    "fades.",
    "--teacher NAME": "Who is imitated: oracle, a run, or, cloning, FILE.npz, minari:NAME or lerobot:FOLDER. [oracle]",
    "--data NAME": "What a decision-transformer learns from: FILE.npz, minari:DATASET or dqn-replay:FOLDER.",
    "--directory PATH": "Run directory. [runs/<task>-<core|agent>-seed<seed>]",
    "--resume": "Go on in that directory; more --steps, another --stop-score or evaluation are allowed.",
    "--config FILE": "Begin with the settings of a run's config.json, in the place of TASK and --core; flags on top.",
    "--from RUN": "Begin with the newest weights of another run; RUN/best for its best ones.",
    "--seeds INT ...": "One run for each seed, one after the other or --parallel N at a time, then a table.",
    "--world.options KEY=VALUE ...": "Keywords of a Gymnasium environment: numbers, true, false, none, JSON or text.",
    "--log NAME ...": "Also write the metrics for tensorboard or wandb; metrics.csv is always written.",
    "--trust": "Import the packages that a run's config.json names: that runs their code.",
    "--help-all": "Every flag: of trainer, task, core, agent, optimiser, loss.",
}


class Request(NamedTuple):
    """What was typed behind ``recollect train``."""

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
    """``--help`` or ``--help-all``, where that is asked for."""
    world: dict[str, list[str]]
    """Words behind ``--world.options`` and ``--world.wrappers``, where they are typed."""
    rest: list[str]
    """All other flags and their values, under our names."""

    def value(self, flag: str) -> str | None:
        """What follows a flag in :attr:`rest`."""
        for place, word in reversed(list(enumerate(self.rest))):  # of a flag that is typed twice the last one counts
            if word.startswith(f"{flag}="):
                return word.removeprefix(f"{flag}=")
            if word == flag and place + 1 < len(self.rest):
                return self.rest[place + 1]
        return None

    @property
    def memory(self) -> str:
        """The core, also where an agent brings it."""
        return self.core or flags.agents().get(self.agent or "", CORE)

    @property
    def model(self) -> str:
        """What a run is called after: the agent, or the core."""
        return self.agent or self.memory

    def called(self, task: str | None = None, core: str | None = None) -> tuple[str, str]:
        """What the parser calls the command, and what it is about.

        Args:
            task: its name, where it was not typed.
            core: its name, where it was not typed.
        """
        task = task or str(self.task)
        with_what = f"--core {core or self.memory}" if self.agent is None else f"--agent {self.agent}"
        with_what += "" if self.trainer is None else f" --trainer {self.trainer}"
        return f"train {task} {with_what}", f"Train {self.agent or core or self.memory} on {task}."

    def kept(self) -> Kept | None:
        """The file with the settings to begin with: of ``--config``, or of the run that ``--resume`` names alone."""
        directory = self.value("--directory") if self.task is None and "--resume" in self.rest else None
        file = Path(directory) / "config.json" if directory is not None else None
        if self.config is not None:
            return read_kept(self.config)
        return read_kept(file) if file is not None and file.is_file() else None


def train(words: Sequence[str], console: Console) -> int:
    """Run ``recollect train`` with these words."""
    request = read(words)
    if request.help is not None and _help(request, console):
        return 0
    _look_at(request)
    if request.help is not None or not request.seeds:
        return _one(request, console)
    return train_seeds(words, request.seeds, request.parallel, _seed_folders(request), console)


def read(words: Sequence[str]) -> Request:
    """Take apart what was typed: what decides about the flags there are, and the flags.

    Raises:
        ValueError: a flag without its value, an unknown trainer, TASK, --core and --trainer beside --config, or
            --parallel without --seeds.
    """
    rest = flags.full_names(words)
    task = rest.pop(0) if rest and not rest[0].startswith("-") else None
    core = _take(rest, "--core", "the key of a core")
    agent = _take(rest, "--agent", f"one of {', '.join(flags.agents())}")
    trainer = _take(rest, "--trainer", f"one of {', '.join(flags.trainers())}")
    config = _take(rest, "--config", "a config.json of a run")
    parallel = _number(_take(rest, "--parallel", "how many runs at a time") or "1", "--parallel", least=1)
    seeds = _take_many(rest, "--seeds")
    if config is not None and (task or core or agent or trainer):
        raise ValueError(
            "--config brings its task and its core, and its trainer: omit TASK, --core, --agent and --trainer"
        )
    if agent is not None:
        lookup(flags.agents(), agent, "agent")
        if core is not None:
            raise ValueError(f"--agent {agent} brings its core: omit --core {core}, or --agent")
    if trainer is not None:
        lookup(dict.fromkeys(flags.trainers()), trainer, "trainer")
    if trainer == "cloning":
        rest = [word.replace("--loss.imitation.teacher.", "--teacher.", 1) for word in rest]
    world = {name: _take_words(rest, f"--world.{name}", example) for name, example in WORLD.items()}
    if seeds and any(word.partition("=")[0] == "--fit.seed" for word in rest):
        raise ValueError("--seeds and --seed: give one of them")
    if parallel > 1 and not seeds:
        raise ValueError(f"--parallel {parallel}: there is one run only: give --seeds too, such as --seeds 0 1 2")
    helps = [word for word in rest if word in ("-h", "--help", "--help-all")]
    asked = None if not helps else "--help-all" if "--help-all" in helps else "--help"
    rest = [word for word in rest if word not in helps]
    return Request(
        task,
        core,
        agent,
        trainer,
        None if config is None else Path(config),
        seeds,
        parallel,
        asked,
        {name: found for name, found in world.items() if found},
        rest,
    )


def _look_at(request: Request) -> None:
    """Find what is wrong with what was typed, as far as that can be known before anything is imported."""
    kept = request.kept()
    if kept is not None:
        flags.require_known(kept.task, kept.core, request.rest, kept.trainer)
    elif request.task is not None:
        core = request.memory
        flags.require_known(request.task, core, request.rest, request.trainer, request.agent)
        for name, what in ((request.task, "task"), (core, "core")):
            if ":" in name:
                require_there(name, what)
    elif "--resume" not in request.rest:
        known = ", ".join(flags.names()[0])
        raise ValueError(f"name a task: recollect train TASK --core KEY; tasks: {known}, gym:ID, module:Class")


def _one(request: Request, console: Console) -> int:
    from recollect.recipes.train import core_name, task_name
    from recollect.training import fit

    default = _default(request)
    task, core = task_name(default), core_name(default)
    words = [*request.rest, *(["--help"] if request.help else [])]
    config, options = parse(default, TrainOptions(), *request.called(task, core), words)
    directory = options.directory or folder(task, request.agent or core, config.fit.seed, request.trainer)
    keep: dict[str, Any] = {"start_from": options.start_from, "log": options.loggers()}
    outcome = fit(config, directory, resume=options.resume, console=console, **keep)
    console.print(outcome.message, highlight=False, soft_wrap=True, markup=False)
    if console.quiet:  # nobody reads the output any more
        print_status(outcome.message)
    if outcome.status == "interrupted":
        return 130
    trust = " --trust" if needs_user_code(config) else ""
    console.print(
        f"next: recollect evaluate {quote(str(directory))}{trust}", highlight=False, soft_wrap=True, markup=False
    )
    return 0


def _default(request: Request) -> Any:
    """The settings that the flags change: of a file, of the run that is resumed, or of the recipe."""
    from recollect.recipes.train import core_name, task_name, training
    from recollect.tasks import GymnasiumConfig
    from recollect.training.saved_run import load_config, read_config

    fields, trust = _fields(request), "--trust" in request.rest
    if request.config is not None:
        return _changed(read_config(request.config, trust=trust), fields)
    chosen = None
    if request.task is not None:
        how: dict[str, Any] = {"trainer": request.trainer, "agent": request.agent}
        chosen = training(request.task, request.memory, **how, **fields)
        if request.agent is not None and any(word.startswith("--world.") for word in request.rest):
            # The map of an image, and with it the core, depend on what the world shows.
            world = parse(chosen, TrainOptions(), *request.called(), request.rest)[0].trained_on
            chosen = training(world, request.memory, **how)
    given = request.value("--directory")
    if "--resume" not in request.rest or (given is None and chosen is None):
        if chosen is None:
            raise ValueError("name a task, or the run that is to go on: recollect train --resume --directory RUN")
        return chosen
    seed = int(request.value("--fit.seed") or (0 if chosen is None else chosen.fit.seed))
    run = Path(given) if given is not None else folder(str(request.task), request.model, seed, request.trainer)
    if not (run / "config.json").is_file() and chosen is not None:
        return chosen
    if chosen is not None and isinstance(chosen.trained_on, GymnasiumConfig):
        chosen.trained_on.register()  # its package was typed, and may be named in the run's config too
    kept = load_config(run, trust=trust)
    if chosen is not None and (task_name(chosen), core_name(chosen)) != (task_name(kept), core_name(kept)):
        return chosen  # another run: fit names what differs
    if request.trainer is not None and type(chosen) is not type(kept):
        return chosen
    return _changed(kept, fields)


def _fields(request: Request) -> dict[str, Any]:
    from recollect.recipes.train import options

    made = {"options": options, "wrappers": tuple}
    return {name: made[name](words) for name, words in request.world.items()}


def _changed(config: Any, fields: dict[str, Any]) -> Any:
    from recollect.recipes.train import with_fields

    return replace(config, **{config.task_field: with_fields(config.trained_on, fields)}) if fields else config


def folder(task: str, core: str, seed: int, trainer: str | None = None) -> Path:
    """Where a run is kept if nobody says where."""
    core = core if trainer is None else f"{core}-{trainer}"
    task = task.removeprefix("gym:") if task.count(":") > 1 else task  # a module of one's own may do without gym:
    return Path("runs") / f"{task}-{core}-seed{seed}".replace(":", "-").replace("/", "-")


def _seed_folders(request: Request) -> dict[int, Path]:
    given = request.value("--directory")
    if given is not None:
        return {seed: Path(given) / f"seed{seed}" for seed in request.seeds}
    if request.config is not None:
        raise ValueError("--seeds with --config: say with --directory where the runs are to be kept")
    if request.task is None:
        seeds = " ".join(map(str, request.seeds))
        raise ValueError(f"--seeds {seeds}: of which runs? Name their task, or with --directory the folder they are in")
    return {seed: folder(request.task, request.model, seed, request.trainer) for seed in request.seeds}


def parse(default: Any, extra: Any, program: str, about: str, words: Sequence[str]) -> tuple[Any, Any]:
    """A config and options whose flags stand side by side, with what was typed."""

    @dataclass(frozen=True)
    class Flags:
        config: Annotated[type(default), arg(name="")] = field(default_factory=lambda: default)  # type: ignore[valid-type]
        options: Annotated[type(extra), arg(name="")] = field(default_factory=lambda: extra)  # type: ignore[valid-type]

    parsed = tyro.cli(Flags, prog=f"recollect {program}", description=about, args=list(words))
    return parsed.config, parsed.options


def _help(request: Request, console: Console) -> bool:
    """Print the help; False where it takes the parser."""
    kept = request.kept()
    if request.agent is not None and request.task is not None:
        return False  # its defaults stand in no table
    task, core = (kept.task, kept.core) if kept else (request.task or "recall", request.memory)
    trainer = kept.trainer if kept else request.trainer
    known, own = flags.flags(task, core, trainer), ()
    if known is None and request.help == "--help" and (":" in task or ":" in core):
        known, own = flags.possible(task, core, trainer)
    if not known:
        return False
    known = kept.defaults(known) if kept else known
    tasks, cores = flags.names()
    show: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}
    console.print("usage: recollect train TASK [--core KEY] [flags]", **show)
    console.print("\nTrain a memory on a task, and keep the run in a directory that describes itself.\n", **show)
    console.print(
        two_columns({"TASK": f"What is learned: {', '.join(tasks)}, gym:ID (any Gymnasium environment), module:Class."})
    )
    console.print(
        two_columns(
            {
                name: text.format(cores=", ".join(cores), agents=", ".join(flags.agents()))
                for name, text in OPTIONS.items()
            }
        )
    )
    which = "All" if request.help == "--help-all" else "Common"
    console.print(f"\n{which} flags of {core} on {task}, in brackets the defaults:\n", **show)
    console.print(two_columns(flags.everything(known) if request.help == "--help-all" else flags.common(known)))
    if own:
        stars = " and ".join(f"{start}*" for start in own)
        console.print(f"\n--help-all imports what you named, and shows its own flags too ({stars}).", **show)
    if request.task is None and kept is None:
        console.print("\nEach task and core has its own: name them. In a world also, as for t-maze:\n", **show)
        world = flags.common(flags.flags("t-maze", core) or {})
        console.print(two_columns({name: world[name] for name in world if name.startswith(("--gamma", "--ent-coef"))}))
    console.print(
        "\nexamples:\n"
        "  recollect train gym:CartPole-v1 --core lstm --steps 300 --lr 1e-3\n"
        "  recollect train recall --core gru --seeds 0 1 2\n"
        "  recollect train --resume --directory runs/recall-gru-seed0 --steps 900",
        **show,
    )
    return True


def _take(words: list[str], flag: str, what: str) -> str | None:
    """Remove a flag and its value from the words; the last value, None where the flag is not there."""
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


def _take_many(words: list[str], flag: str) -> tuple[int, ...]:
    start = next((place for place, word in enumerate(words) if word.partition("=")[0] == flag), None)
    if start is None:
        return ()
    stop = next((place for place in range(start + 1, len(words)) if words[place].startswith("-")), len(words))
    given = [word for word in (words[start].partition("=")[2], *words[start + 1 : stop]) if word]
    if not given:
        raise ValueError(f"{flag} needs numbers, such as {flag} 0 1 2")
    del words[start:stop]
    return tuple(dict.fromkeys(_number(word, flag) for word in given))


def _take_words(words: list[str], flag: str, example: str) -> list[str]:
    """Remove a flag and its values from the words, wherever it is typed; all values, in their order."""
    taken: list[str] = []
    while any(word.partition("=")[0] == flag for word in words):
        start = next(place for place, word in enumerate(words) if word.partition("=")[0] == flag)
        stop = next((place for place in range(start + 1, len(words)) if words[place].startswith("--")), len(words))
        found = [word for word in (words[start].partition("=")[2], *words[start + 1 : stop]) if word]
        if not found:
            raise ValueError(f"{flag}: give values, for example {flag} {example}")
        taken += found
        del words[start:stop]
    return taken


def _number(word: str, flag: str, least: int = 0) -> int:
    if not word.isdecimal() or int(word) < least:
        raise ValueError(f"{flag} {word}: give a whole number of at least {least}")
    return int(word)
