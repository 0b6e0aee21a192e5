"""The command line: parse, call, print.

Every command is a frozen dataclass whose fields are its flags and whose docstring is its help; what it does is a
function of the library, named in ``run``. Rooms are imported by the command that needs them, so that help is fast.
"""

import difflib
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

ROOMS = ("cores", "tasks", "agents", "trainers", "recipes")


class UsageError(ValueError):
    """A mistake in what was typed."""


@dataclass(frozen=True)
class List:
    """Show what there is: cores, tasks, agents, trainers, recipes."""

    room: Positional[str] = "all"
    """Which table: cores, tasks, agents, trainers, recipes or all."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Print the tables."""
        if self.room != "all":
            _choose("table", self.room, ROOMS)
        tables = {room: _ROWS[room]() for room in ROOMS if self.room in ("all", room)}
        if self.json:
            print(json.dumps(tables, indent=2))
            return 0
        for room, rows in tables.items():
            console.print(_table(room, rows))
            console.print()
        return 0


@dataclass(frozen=True)
class Evaluate:
    """Score the newest checkpoint of a run: on fresh rows of its task, or in fresh episodes of its world."""

    directory: Positional[Path]
    """The run directory."""
    samples: Annotated[int | None, arg(aliases=("--rows", "--episodes"))] = None
    """How many rows of a stream task, or episodes in a world; None takes 512 rows or 128 episodes."""
    policy: Literal["run", "greedy", "sampled"] = "run"
    """Actions in a world: as in the run's own evaluations, the likeliest, or drawn from the policy."""
    video: Path | None = None
    """Folder that gets a video (MP4 and GIF) of four episodes; None films nothing."""
    seed: int = 0
    """Seed of the rows or episodes."""
    device: str = "cpu"
    """Where to compute."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Evaluate and print."""
        from recollect.training.trained import evaluate_run, record_run

        greedy = None if self.policy == "run" else self.policy == "greedy"
        found = evaluate_run(self.directory, samples=self.samples, greedy=greedy, seed=self.seed, device=self.device)
        if self.json:
            print(json.dumps({name: _number(value) for name, value in found.to_json().items()}))
        else:
            console.print(f"{self.directory}: {found.describe()}", soft_wrap=True)
        if self.video is not None:
            film = record_run(self.directory, self.video, seed=self.seed, greedy=greedy, device=self.device)
            Console(stderr=True).print(f"video: {film.mp4}, {film.gif}", highlight=False, soft_wrap=True)
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare runs: learning curves, interquartile means with intervals, probability of improvement."""

    directories: Positional[tuple[Path, ...]]
    """Run directories. Runs that differ in nothing but their seed are one group."""
    out: Path | None = Path("comparison")
    """Folder that gets comparison.html, .png and .json; None only prints."""
    axis: Literal["step", "environment_steps", "seconds"] = "step"
    """Along which the curves are drawn."""
    names: tuple[str, ...] = ()
    """A label for every run, in their order; empty takes cores and the settings that differ."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Compare, write and print."""
        from recollect.comparison.compare import compare
        from recollect.comparison.page import table_rows, write_report

        found = compare(self.directories, axis=self.axis, names=self.names or None)
        if self.json:
            print(json.dumps(found.to_json(), indent=2))
        else:
            for task in found.tasks:
                table = _table(task, table_rows(found.of(task)))
                for column in table.columns:
                    column.no_wrap, column.justify = True, "left" if column is table.columns[0] else "right"
                console.print(table)
            for note in found.notes:
                console.print(f"note: {note}", style="yellow", highlight=False, soft_wrap=True, markup=False)
        if self.out is not None:
            report = write_report(found, self.out)
            Console(stderr=True).print(f"page: {report.html}, picture: {report.png}", highlight=False, soft_wrap=True)
        return 0


@dataclass(frozen=True)
class Certify:
    """Prove the streaming contract: of cores here, or of package.module:factory for a module of yours."""

    cores: Positional[tuple[str, ...]] = ("all",)
    """Keys of cores, package.module:factory, or all."""
    lines: tuple[str, ...] = ()
    """Only these lines of the card; empty runs all."""
    input_shape: tuple[int, ...] = ()
    """Shape of one step's input, for a module that does not say."""
    steps: int = 100_000
    """Steps of the long run (line state-bytes)."""
    seconds: float | None = None
    """Time limit of the long run of each core; None takes the library's."""
    backend: str = "eager"
    """Backend of torch.compile; inductor is the slow and thorough choice."""
    seed: int = 0
    """Seed of weights, inputs and resets."""
    processes: int | None = None
    """Cores that are certified at a time; the number of processors when None."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Print a card per core, and a summary of many. Exit status 1 when a line fails."""
        from recollect.certify import certify_many, summary
        from recollect.cores import CORES

        names = [key for name in self.cores for key in (CORES if name == "all" else [name])]
        options: dict[str, Any] = {"long_steps": self.steps, "backend": self.backend, "seed": self.seed}
        if self.seconds is not None:
            options["long_seconds"] = self.seconds
        if self.lines:
            options["lines"] = self.lines
        if self.input_shape:
            options["input_shape"] = self.input_shape
        cards = []
        for card in certify_many(names, processes=self.processes, options=options):
            cards.append(card)
            if not self.json:
                console.print(card, "")
        if self.json:
            print(json.dumps([card.as_dict() for card in cards], indent=2))
        elif len(cards) > 1:
            console.print(summary(cards))
        return 0 if all(card.passed for card in cards) else 1


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of a paper, write its result files and make docs/results.md again from them."""

    name: Positional[str]
    """Key of a recipe."""
    scale: str = "lite"
    """lite (minutes on two processor cores) or paper (the paper's own sizes)."""
    cores: tuple[str, ...] = ()
    """Only the rows of these cores; empty runs all."""
    seeds: int | None = None
    """How many seeds; None takes the recipe's number."""
    device: str | None = None
    """Where to compute; None leaves it to the recipe."""
    root: Path = Path(".")
    """Folder that gets results/, docs/results.md and runs/."""
    again: bool = False
    """Also run what has a result already."""

    def run(self, console: Console) -> int:
        """Reproduce; an interrupted command goes on where it was when it is typed again."""
        from recollect.recipes import RECIPES
        from recollect.recipes.reproduce import reproduce

        recipe = RECIPES[_choose("recipe", self.name, RECIPES)]
        path = reproduce(
            recipe,
            scale=self.scale,
            cores=self.cores or None,
            seeds=self.seeds,
            root=self.root,
            device=self.device,
            again=self.again,
            console=console,
        )
        console.print(f"tables: {path}", highlight=False)
        return 0


@dataclass(frozen=True)
class Demo:
    """Train an agent with a memory, film it, and stream it for 100 000 steps: it neither forgets nor grows."""

    steps: int = 100_000
    """Steps of the live stream."""
    directory: Path = Path("runs")
    """Folder for the two run directories and the film."""

    def run(self, console: Console) -> int:
        """Run the demo."""
        from recollect.recipes.demo import demo

        demo(self.directory, steps=self.steps, console=console)
        return 0


@dataclass(frozen=True)
class TrainOptions:
    """Where a run is kept."""

    directory: Path | None = None
    """Run directory; runs/<task>-<core>-seed<seed> when None."""
    resume: bool = False
    """Continue the run in that directory, bit for bit."""
    tensorboard: bool = False
    """Also write for TensorBoard."""


def _train(words: list[str], console: Console) -> int:
    """``recollect train TASK --core KEY [--core.FIELD ...]``: task and core choose the flags that follow."""
    from recollect.cores import CORES
    from recollect.recipes import training
    from recollect.tasks import TASKS
    from recollect.training import fit

    task, core, rest = _task_and_core(words)
    if task is None:
        raise UsageError(f"name a task: recollect train TASK --core KEY; tasks: {', '.join(TASKS)}, gym:ID")
    default = training(task, core)

    @dataclass(frozen=True)
    class Train:
        config: Annotated[type(default), arg(name="")] = field(default_factory=lambda: default)  # type: ignore[valid-type]
        options: Annotated[TrainOptions, arg(name="")] = field(default_factory=TrainOptions)

    about = f"Train the {core} core on {task}. Choose another core with --core {{{','.join(CORES)}}}."
    parsed = tyro.cli(Train, prog=f"recollect train {task} --core {core}", description=about, args=rest)
    config, options = parsed.config, parsed.options
    name = task.replace(":", "-").replace("/", "-")
    directory = options.directory or Path("runs") / f"{name}-{core}-seed{config.fit.seed}"
    outcome = fit(config, directory, resume=options.resume, tensorboard=options.tensorboard, console=console)
    console.print(outcome.message, highlight=False, soft_wrap=True)
    if outcome.status == "interrupted":
        return 130
    console.print(f"next: recollect evaluate {directory}", highlight=False, soft_wrap=True)
    return 0


def _task_and_core(words: Sequence[str]) -> tuple[str | None, str, list[str]]:
    # Two choices decide which flags exist, so they are read before the others.
    task, core, rest = None, "hcam", []
    queue = list(words)
    if queue and not queue[0].startswith("-"):
        task = queue.pop(0)
    while queue:
        word = queue.pop(0)
        if word == "--core" and not queue:
            raise UsageError("--core needs the key of a core")
        if word == "--core":
            core = queue.pop(0)
        elif word.startswith("--core="):
            core = word.removeprefix("--core=")
        else:
            rest.append(word)
    return task, core, rest


def _benchmark(words: list[str], console: Console) -> int:
    """``recollect benchmark cores`` and ``recollect benchmark ops``."""
    from recollect.benchmark import BENCHMARKS

    name, *words = ["cores", *words] if words[:1] in (["--help"], ["-h"]) else words or [""]
    settings, measure, render = BENCHMARKS[_choose("benchmark", name, tuple(BENCHMARKS))]

    @dataclass(frozen=True)
    class Benchmark:
        config: Annotated[settings, arg(name="")] = field(default_factory=settings)  # type: ignore[valid-type]
        json: bool = False
        """Print JSON."""

    parsed = tyro.cli(Benchmark, prog=f"recollect benchmark {name}", description=settings.__doc__, args=words)
    if parsed.json:
        print(json.dumps(measure(parsed.config).to_json(), indent=2))
        return 0
    with console.status("measuring") as status:
        results = measure(parsed.config, lambda line: status.update(line))
    console.print(render(results))
    return 0


COMMANDS: dict[str, tuple[Any, str]] = {
    "list": (List, "cores, tasks, agents, trainers and recipes"),
    "train": (_train, "train a core on a task: recollect train recall --core hcam"),
    "evaluate": (Evaluate, "score a run: recollect evaluate runs/recall-hcam-seed0"),
    "compare": (Compare, "runs side by side: recollect compare runs/t-maze-*"),
    "certify": (Certify, "prove the streaming contract: recollect certify all"),
    "benchmark": (_benchmark, "measure every core or kernel: recollect benchmark cores"),
    "reproduce": (Reproduce, "an experiment of a paper: recollect reproduce copying --scale lite"),
    "demo": (Demo, "train an agent, film it, stream it for 100 000 steps"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 a promise is broken, 2 a mistake in the input."""
    words = list(sys.argv[1:] if words is None else words)
    console, errors = Console(), Console(stderr=True)
    if not words or words[0] in ("-h", "--help"):
        _help(console)
        return 0
    if words[0] == "--version":
        import recollect

        print(recollect.__version__)
        return 0
    try:
        command, _ = COMMANDS[_choose("command", words[0], COMMANDS)]
        if isinstance(command, type):
            parsed = tyro.cli(command, prog=f"recollect {words[0]}", args=words[1:])
            return parsed.run(console)
        return command(words[1:], console)
    except KeyboardInterrupt as interrupt:
        errors.print(str(interrupt) or "interrupted", style="yellow", highlight=False, soft_wrap=True)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("RECOLLECT_TRACEBACK") or not _is_ours(error):
            raise
        errors.print(f"error: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        return 2


def _is_ours(error: Exception) -> bool:
    # Mistakes of the user are ValueErrors and the trainer's RunErrors; another RuntimeError is a defect and keeps
    # its traceback.
    if isinstance(error, (ValueError, OSError)):
        return True
    from recollect.runs.checkpoints import RunError

    return isinstance(error, RunError)


def _choose(what: str, name: str, known: Any) -> str:
    if name in known:
        return name
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(f"unknown {what} {name!r}: {hint}known: {', '.join(known)}")


def _help(console: Console) -> None:
    console.print("[bold]recollect[/]: memory for agents and long streams\n")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, (_, about) in COMMANDS.items():
        table.add_row(f"[bold]{name}[/]", about)
    console.print(table)
    console.print("\nrecollect COMMAND --help shows its flags. RECOLLECT_TRACEBACK=1 shows tracebacks of errors.")


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value  # JSON knows no NaN


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in rows[0] if rows else ():
        number = isinstance(rows[0][name], (int, float))
        table.add_column(name, justify="right" if number else "left", no_wrap=name == "key")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else f"{cell}" for cell in row.values()))
    return table


def _core_rows() -> list[dict[str, Any]]:
    from recollect.cores import CORES
    from recollect.state import nbytes

    rows = []
    for key, config in CORES.items():
        core = config().build(input_dim=128)
        rows.append(
            {
                "key": key,
                "core": type(core).__name__,
                "parameters": sum(p.numel() for p in core.parameters()),
                "state bytes": nbytes(core.initial_state(1)),
                "MFLOP per step": round(core.flops_per_step() / 1e6, 2),
            }
        )
    return rows


def _task_rows() -> list[dict[str, Any]]:
    from recollect.tasks import TASKS, TaskSpec

    rows = []
    for key, task in TASKS.items():
        spec = task().spec
        about = (task.__doc__ or "").splitlines()[0]
        kind = "rows" if isinstance(spec, TaskSpec) else "world"
        chance = "-" if math.isnan(spec.chance) else f"{spec.chance:.3f}"
        span = f"{spec.memory_span}" if spec.memory_span else "-"
        rows.append({"key": key, "kind": kind, "chance": chance, "memory span": span, "about": about})
    return rows


def _recipe_rows() -> list[dict[str, Any]]:
    from recollect.recipes import RECIPES

    return [
        {"key": key, "scales": ", ".join(recipe.runs), "about": recipe.title, "source": recipe.source}
        for key, recipe in RECIPES.items()
    ]


def _trainer_rows() -> list[dict[str, Any]]:
    from recollect.training import TRAINERS

    return [{"key": key, "about": (config.__doc__ or "").splitlines()[0]} for key, config in TRAINERS.items()]


def _agent_rows() -> list[dict[str, Any]]:
    from recollect.agents import AGENTS

    return [{"key": key, "about": (config.__doc__ or "").splitlines()[0]} for key, config in AGENTS.items()]


_ROWS = {
    "cores": _core_rows,
    "tasks": _task_rows,
    "agents": _agent_rows,
    "trainers": _trainer_rows,
    "recipes": _recipe_rows,
}


if __name__ == "__main__":
    sys.exit(main())
