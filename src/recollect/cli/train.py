"""``recollect train TASK --core KEY``: task and core decide which flags exist."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from rich.console import Console

from recollect.cli import flags
from recollect.cli.import_checks import require_importable
from recollect.cli.options import TrainOptions
from recollect.cli.parser import parse_flags
from recollect.cli.seeds import train_seeds
from recollect.cli.train_help import show_help
from recollect.cli.train_request import Request, read_request
from recollect.config import needs_user_code, require
from recollect.entry_points import installed_names
from recollect.learners import process_count, process_rank
from recollect.tasks import TASKS
from recollect.terminal import print_status


def train(words: Sequence[str], console: Console) -> int:
    """Run ``recollect train`` with these words."""
    request = read_request(words)
    if request.help is not None and show_help(request, console):
        return 0
    _require_valid(request)
    if request.help is not None or not request.seeds:
        return _train_one(request, console)
    remedy = "torchrun starts the learners of one run: give one --seed"
    require(process_count() == 1, "--seeds", " ".join(map(str, request.seeds)), remedy)
    return train_seeds(words, request.seeds, request.parallel, _seed_folders(request), console)


def _require_valid(request: Request) -> None:
    """Check everything that can be checked before torch or user code is imported."""
    saved = request.saved_settings()
    if saved is not None:
        flags.require_known(saved.task, saved.core, request.rest, saved.trainer)
    elif request.task is not None:
        core = request.core_name
        flags.require_known(request.task, core, request.rest, request.trainer, request.agent)
        for name, what in ((request.task, "task"), (core, "core")):
            if ":" in name:
                require_importable(name, what)
    elif "--resume" not in request.rest:
        tasks = ", ".join([*TASKS, *installed_names("tasks")])
        raise ValueError(f"name a task: recollect train TASK --core KEY; tasks: {tasks}, gym:ID, module:Class")


def _train_one(request: Request, console: Console) -> int:
    from recollect.recipes.train import core_name, task_name
    from recollect.training import fit

    default, note = _without_recipe_limits(_default_config(request), request)
    task, core = task_name(default), core_name(default)
    words = [*request.rest, *(["--help"] if request.help else [])]
    config, options = parse(default, TrainOptions(), *request.title(task, core), words)
    directory = options.directory or default_folder(task, request.agent or core, config.fit.seed, request.trainer)
    if note and not process_rank():
        print_status(note, style="yellow")
    start: dict[str, Any] = {"start_from": options.start_from, "log": options.loggers()}
    outcome = fit(config, directory, resume=options.resume, console=console, **start)
    if process_rank():  # the first learner says it
        return 130 if outcome.status == "interrupted" else 0
    console.print(outcome.message, highlight=False, soft_wrap=True, markup=False)
    if console.quiet:  # the output was closed
        print_status(outcome.message)
    if outcome.status == "interrupted":
        return 130
    trust = " --trust" if needs_user_code(config) else ""
    command = f"recollect evaluate {quote(str(directory))}{trust}"
    console.print(f"next: {command}", highlight=False, soft_wrap=True, markup=False)
    return 0


def _default_config(request: Request) -> Any:
    """Return the config that the flags change: of a file, of the run that is resumed, or of the recipe."""
    from recollect.training.saved_run import read_config

    fields, trust = _world_fields(request), "--trust" in request.rest
    if request.config is not None:
        return _with_fields(read_config(request.config, trust=trust), fields)
    recipe = None if request.task is None else _recipe_config(request, fields)
    if "--resume" in request.rest:
        return _resumed_config(request, recipe, fields, trust=trust)
    assert recipe is not None  # _require_valid
    return recipe


def _without_recipe_limits(config: Any, request: Request) -> tuple[Any, str]:
    """Return a recipe's config without the settings that would end a run before the steps that were typed.

    Returns:
        The config, and a line that names what was left off; empty where nothing was. Configs of files and of runs that
        are resumed stay as they are: what is in them may have been typed.
    """
    saved = request.config is not None or "--resume" in request.rest
    if saved or request.value("--fit.steps") is None:
        return config, ""
    hidden = {
        name: getattr(config.fit, name)
        for name in ("stop_score", "processor_seconds")
        if getattr(config.fit, name) is not None and request.value(f"--fit.{name.replace('_', '-')}") is None
    }
    if not hidden:
        return config, ""
    flags_typed = " ".join(f"--fit.{name.replace('_', '-')} {value:g}" for name, value in hidden.items())
    note = f"all of --steps are trained; {flags_typed} would end earlier, as the recipe does"
    return replace(config, fit=replace(config.fit, **dict.fromkeys(hidden))), note


def _recipe_config(request: Request, fields: dict[str, Any]) -> Any:
    from recollect.recipes.train import training

    task, names = str(request.task), {"trainer": request.trainer, "agent": request.agent}
    if fields or ":" in f"{task}{request.core_name}":  # what is user-defined is read when it is asked for
        config = training(task, request.core_name, **names, **fields)
    else:
        config = flags.recipe_config(task, request.core_name, **names)
    if request.agent is not None and any(word.startswith("--world.") for word in request.rest):
        # The map of an image, and with it the core, depend on what the world shows.
        world = parse(config, TrainOptions(), *request.title(), request.rest)[0].trained_on
        config = training(world, request.core_name, **names)
    return config


def _resumed_config(request: Request, recipe: Any, fields: dict[str, Any], *, trust: bool) -> Any:
    """Return the config of the run to resume; the recipe's where there is no run, or a run of something else."""
    from recollect.recipes.train import core_name, task_name
    from recollect.tasks import GymnasiumConfig
    from recollect.training.saved_run import load_config

    typed = request.value("--directory")
    if typed is None and recipe is None:
        raise ValueError("name a task, or the run to resume: recollect train --resume --directory RUN")
    seed = int(request.value("--fit.seed") or (0 if recipe is None else recipe.fit.seed))
    folder = default_folder(str(request.task), request.model_name, seed, request.trainer)
    run = folder if typed is None else Path(typed)
    if recipe is not None and not (run / "config.json").is_file():
        return recipe
    if recipe is not None and isinstance(recipe.trained_on, GymnasiumConfig):
        recipe.trained_on.register()  # its package was typed, and may be named in the run's config too
    saved = load_config(run, trust=trust)
    if recipe is not None and (task_name(recipe), core_name(recipe)) != (task_name(saved), core_name(saved)):
        return recipe  # another run: fit names the differences
    if request.trainer is not None and type(recipe) is not type(saved):
        return recipe
    return _with_fields(saved, fields)


def _world_fields(request: Request) -> dict[str, Any]:
    from recollect.recipes.train import options

    parsers = {"options": options, "wrappers": tuple}
    return {name: parsers[name](words) for name, words in request.world.items()}


def _with_fields(config: Any, fields: dict[str, Any]) -> Any:
    from recollect.recipes.train import with_fields

    return replace(config, **{config.task_field: with_fields(config.trained_on, fields)}) if fields else config


def default_folder(task: str, model: str, seed: int, trainer: str | None = None) -> Path:
    """Return the run directory of a run for which none was typed."""
    model = model if trainer is None else f"{model}-{trainer}"
    task = task.removeprefix("gym:") if task.count(":") > 1 else task  # gym:package.module:Name
    return Path("runs") / f"{task}-{model}-seed{seed}".replace(":", "-").replace("/", "-")


def _seed_folders(request: Request) -> dict[int, Path]:
    typed = request.value("--directory")
    if typed is not None:
        return {seed: Path(typed) / f"seed{seed}" for seed in request.seeds}
    if request.config is not None:
        raise ValueError("--seeds with --config: name a folder for the runs with --directory")
    if request.task is None:
        seeds = " ".join(map(str, request.seeds))
        raise ValueError(f"--seeds {seeds}: of which runs? Name their task, or with --directory the folder they are in")
    return {seed: default_folder(request.task, request.model_name, seed, request.trainer) for seed in request.seeds}


def parse(default: Any, extra: Any, program: str, about: str, words: Sequence[str]) -> tuple[Any, Any]:
    """Parse words into a config and options whose flags stand side by side.

    Args:
        default: config with the default values.
        extra: options with their default values.
        program: name of the command, for its usage line.
        about: description of the command.
        words: what was typed.
    """
    from tyro.conf import arg

    @dataclass(frozen=True)
    class Flags:
        config: Annotated[type(default), arg(name="")] = field(default_factory=lambda: default)  # type: ignore[valid-type]
        options: Annotated[type(extra), arg(name="")] = field(default_factory=lambda: extra)  # type: ignore[valid-type]

    parsed = parse_flags(Flags, words, program=program, about=about)
    return parsed.config, parsed.options
