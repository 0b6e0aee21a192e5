"""The command line: parse, call, print.

Every command is a frozen dataclass whose fields are its flags and whose docstring is its help; what it does is a
function of the library, named in ``run``. Rooms are imported by the command that needs them, so that help is fast.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

import recollect
from recollect.cli import flags
from recollect.cli.elsewhere import require_there
from recollect.cli.listing import List
from recollect.cli.train import parse, train
from recollect.config import lookup
from recollect.machine import describe_out_of_memory
from recollect.runs.errors import RunError
from recollect.runs.output import Output
from recollect.terminal import PrintOptions, print_json, print_status, table, two_columns


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
    record: str | None = None
    """FILE.npz, minari:DATASET or lerobot:FOLDER that gets as many episodes as are scored, to clone or learn from."""
    noise: tuple[float, ...] = ()
    """For --record: shares of random actions, cycled over the rows, so that returns are mixed."""
    best: bool = False
    """Take the checkpoint of the run's best evaluation, instead of the newest."""
    seed: int = 0
    """Seed of the rows or episodes."""
    device: str = "cpu"
    """Where to compute."""
    trust: bool = False
    """Import the packages that the run's config names for its world or core: that runs their code."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Evaluate and print."""
        require_run(self.directory)
        from recollect.runs import interrupts, progress
        from recollect.training.saved_run import describe_torn_checkpoints, evaluate_run, record_run, save_episodes

        self._require_possible()
        how: dict[str, Any] = {"seed": self.seed, "device": self.device, "best": self.best, "trust": self.trust}
        how["greedy"] = None if self.policy == "run" else self.policy == "greedy"
        with interrupts.stop_on_signal(), progress.ProgressDisplay(Console(stderr=True)):
            found = evaluate_run(self.directory, samples=self.samples, **how)
        for line in describe_torn_checkpoints(self.directory, best=self.best):
            print_status(line, style="yellow")
        if self.json:
            print_json(found.to_json(), indent=None)
        else:
            console.print(f"{self.directory}: {found.describe()}", soft_wrap=True, markup=False)
        if self.video is not None:
            stood = set(self.video.glob("*"))
            with interrupts.stop_on_signal(), progress.ProgressDisplay(Console(stderr=True)):
                film = record_run(self.directory, self.video, **how)
            print_status(f"video: {film.mp4}, {film.gif}")
            if film.mp4 in stood:  # runs of recollect train --seeds have names like seed0
                _tell_replaced(film.mp4, "folder (--video)")
        if self.record is not None:
            existed = Path(self.record).is_file()
            with interrupts.stop_on_signal(), progress.ProgressDisplay(Console(stderr=True)):
                kept = save_episodes(self.directory, self.record, episodes=self.samples, noise=self.noise, **how)
            print_status(f"recorded: {len(kept.lengths)} episodes in {self.record}, mean score {kept.score.mean():.4g}")
            if existed:
                _tell_replaced(Path(self.record), "file (--record)")
        return 0

    def _require_possible(self) -> None:
        """Refuse what this run cannot do before it is scored, which may take minutes."""
        from recollect.training.saved_run import require_filmable, require_recordable, require_world

        require_recordable(self.directory, self.record, noise=self.noise, trust=self.trust)
        if self.video is not None:
            require_filmable(self.directory, self.video, trust=self.trust)
        if self.policy != "run":
            require_world(self.directory, "have a policy (--policy)", trust=self.trust)


@dataclass(frozen=True)
class Demonstrations:
    """Record minigrid's bot in BabyAI levels, for the trainer cloning; resumes when it is typed again."""

    levels: Positional[tuple[str, ...]]
    """Levels, as BabyAI-GoToLocal-v0 or GoToLocal; of several, all episodes are in one file."""
    out: Annotated[Path, arg(aliases=("-o",))]
    """FILE.npz; FILE.json beside it says what was recorded."""
    episodes: int = 1000
    """Episodes of each level."""
    seed: int = 0
    """From which the seeds of all episodes follow; the file does not depend on the number of processes."""
    words: int = 16
    """Words of an instruction that are kept: as many as --world.words of the run that learns from them."""
    vocabulary: int = 1024
    """Numbers that the words are hashed to: as many as --world.vocabulary."""
    seconds: float = 10.0
    """Time limit of an episode: on some seeds the bot hangs, and another seed is taken."""
    processes: int | None = None
    """Episodes that are played at a time; the number of processors when None."""

    def run(self, console: Console) -> int:
        """Record, and say what was left out."""
        from recollect.evaluation.demonstrations import DemonstrationsConfig, record_demonstrations
        from recollect.runs.interrupts import stop_on_signal
        from recollect.runs.progress import ProgressDisplay, ProgressReporter

        names = ("levels", "episodes", "seed", "words", "vocabulary", "seconds")
        config = DemonstrationsConfig(**{name: getattr(self, name) for name in names})
        processes = (os.cpu_count() or 1) if self.processes is None else self.processes
        with stop_on_signal(), ProgressDisplay(Console(stderr=True)):
            count = ProgressReporter(self.episodes * len(self.levels), "episodes")
            about = record_demonstrations(
                config, self.out, processes=processes, say=lambda there: count.update(lambda: there)
            )
        print_status(
            f"recorded: {about['episodes']} episodes, {about['steps']} steps, the longest of {about['longest']}"
        )
        for level, counts in about["another_seed"].items():
            print_status(
                f"{level}: another seed for " + ", ".join(f"{number} that {why}" for why, number in counts.items())
            )
        return 0


@dataclass(frozen=True)
class Explore:
    """See what an agent remembers, and whether the picture can be believed: episodes recorded, scored, tested."""

    directories: Positional[tuple[Path, ...]]
    """Run directories."""
    out: Annotated[Path, arg(aliases=("-o",))] = Path("explored")
    """Folder that gets the files; with several runs, a folder in it for each, under as many of their own names as it
    takes to tell them apart."""
    env: str | None = None
    """Another world than that of the run: its key, gym:ID, or package.module:Name."""
    episodes: int = 8
    """How many are recorded and scored; the first one is shown."""
    seed: int = 0
    """Of the first episode; the others count on from it. None of them was seen in training."""
    policy: Literal["greedy", "sampled"] = "greedy"
    """The likeliest actions, or actions drawn from the policy."""
    longest: int = 1000
    """Steps that are recorded of an episode."""
    live: bool = False
    """Write live.html too: the agent itself acts in the page, and its memory can be edited there."""
    runtime: Path | None = None
    """For --live: onnxruntime-web, as a folder or as the archive of npm pack; None asks the cache, then npm."""
    rerun: bool = False
    """Write episode.rrd too, for the viewer rerun; needs pip install rerun-sdk."""
    best: bool = False
    """Take the checkpoint of the run's best evaluation, instead of the newest."""
    trust: bool = False
    """Import the packages that the run's config names for its world or core: that runs their code."""
    json: bool = False
    """Print JSON: the report of a run, or a list with that of every run."""

    def run(self, console: Console) -> int:
        """Record, score, write and print the verdict."""
        if not self.directories:
            raise ValueError("no run is named: give a run directory, as in recollect explore runs/t-maze-hcam-seed0")
        for directory in self.directories:
            require_run(directory)
        from recollect.interpret.explore import available_writers, explore_run, output_folders, write_comparison
        from recollect.recipes.train import find_task
        from recollect.runs.interrupts import stop_on_signal
        from recollect.runs.progress import ProgressDisplay
        from recollect.training.saved_run import describe_torn_checkpoints

        how: dict[str, Any] = {name: getattr(self, name) for name in ("episodes", "seed", "longest", "best", "trust")}
        how |= {"live": self.live, "runtime": self.runtime}
        how["writers"] = (*available_writers(), "rerun") if self.rerun else None
        how |= {"greedy": self.policy == "greedy", "world": None if self.env is None else find_task(self.env)}
        explored = []
        for directory, folder in zip(self.directories, output_folders(self.out, self.directories), strict=True):
            stood = (folder / "metrics.json").exists()
            with stop_on_signal(), ProgressDisplay(Console(stderr=True)):
                found = explore_run(directory, folder, **how)
            explored.append(found)
            if stood:
                _tell_replaced(folder)
            for line in describe_torn_checkpoints(directory, best=self.best):
                print_status(line, style="yellow")
            if not self.json:
                console.print(f"{directory}: {found.verdict}", soft_wrap=True, markup=False, highlight=False)
            print_status(", ".join(f"{name}: {path}" for name, path in found.files.items()))
        if self.json:
            reports = [found.report.to_json() for found in explored]
            named = [{"run": str(run), **report} for run, report in zip(self.directories, reports, strict=True)]
            print_json(named if len(named) > 1 else reports[0])
        if len(explored) == 2:
            print_status(f"both on one cursor: {write_comparison(explored, self.out)}")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare runs: learning curves, interquartile means with intervals, probability of improvement."""

    directories: Positional[tuple[Path, ...]]
    """Run directories. Runs that differ in nothing but their seed are one group."""
    out: Path | None = Path("comparison")
    """Folder that gets comparison.html, .png and .json; None only prints."""
    axis: Literal["step", "environment_steps", "seconds"] = "step"
    """What the curves are drawn against."""
    names: tuple[str, ...] = ()
    """A label for every run, in their order, behind which stands what helped it; empty takes cores and the settings
    that differ."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Compare, write and print."""
        for directory in self.directories:
            require_run(directory)
        from recollect.comparison.compare import compare
        from recollect.comparison.page import can_draw, table_rows, write_report

        found = compare(self.directories, axis=self.axis, names=self.names or None)
        if self.json:
            print_json(found.to_json())
        else:
            for task in found.tasks:
                console.print(table(task, table_rows(found.of(task)), figures=True))
            for note in found.notes:
                console.print(f"note: {note}", style="yellow", highlight=False, soft_wrap=True, markup=False)
        if self.out is not None:
            stood = (self.out / "comparison.html").exists()
            report = write_report(found, self.out, picture=can_draw())
            print_status(
                f"page: {report.html}, picture: {report.png or 'none, it needs matplotlib (pip install matplotlib)'}"
            )
            if stood:
                _tell_replaced(self.out)
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
    length: int | None = None
    """Steps of the other sequences: longer than every window and chunk of the module; None chooses."""
    batch: int = 4
    """Rows of the sequences; at least 3."""
    seconds: float | None = None
    """Time limit of the long run of each core; None takes the library's."""
    thorough: bool = False
    """All steps of the long run however long they take, and every line at three seeds."""
    reference: str | None = None
    """The plain form of a module of yours for the line reference: package.module:function."""
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
        for name in self.cores:
            if ":" in name:
                require_there(name, "core")
            elif name != "all":
                flags.require_key("cores", name)
        from recollect.certify import certify_many, summary
        from recollect.cores import CORES

        names = [key for name in self.cores for key in (CORES if name == "all" else [name])]
        given = {"long_steps": self.steps, "long_seconds": self.seconds, "steps": self.length}
        given |= {"lines": self.lines or None, "input_shape": self.input_shape or None, "reference": self.reference}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        options |= {key: getattr(self, key) for key in ("batch", "thorough", "backend", "seed")}
        cards = []
        for card in certify_many(names, processes=self.processes, options=options):
            cards.append(card)
            if not self.json:
                console.print(card, "")
        if self.json:
            print_json([card.as_dict() for card in cards])
        elif len(cards) > 1:
            console.print(summary(cards))
        return 0 if all(card.passed for card in cards) else 1


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of a paper, write its result files and make docs/results.md again from them."""

    name: Positional[str]
    """Key of a recipe."""
    scale: str = "lite"
    """lite (minutes on two processor cores; streets and Pong take up to two hours a run), long (hours on one) or paper
    (the paper's own sizes)."""
    cores: tuple[str, ...] = ()
    """Only the rows of these cores; empty runs all."""
    seeds: int | None = None
    """How many seeds of every row; None takes the recipe's number, which is less for some rows."""
    device: str | None = None
    """Where to compute; None leaves it to the recipe."""
    root: Path = Path(".")
    """Folder that gets results/, docs/results.md and runs/."""
    again: bool = False
    """Also run what has a result already."""

    def run(self, console: Console) -> int:
        """Reproduce; an interrupted command resumes when it is typed again."""
        flags.require_key("recipes", self.name)
        flags.require_scale(self.name, self.scale)
        from recollect.recipes import RECIPES
        from recollect.recipes.reproduce import failed, reproduce

        recipe, cores = lookup(RECIPES, self.name, "recipe"), self.cores or None
        where: dict[str, Any] = {"root": self.root, "device": self.device, "console": console}
        path = reproduce(recipe, scale=self.scale, cores=cores, seeds=self.seeds, again=self.again, **where)
        console.print(f"tables: {path}", highlight=False, markup=False)
        missed = failed(recipe, self.scale, self.root)
        for line in missed:
            print_status(f"failed: {line}", style="red")
        return 1 if missed else 0


@dataclass(frozen=True)
class Watch:
    """Let a trained detector watch a film or a camera, frame by frame: print activities as they begin and end."""

    source: Positional[str]
    """Film, number of a camera (0 is the first), device, or address (rtsp://, http://)."""
    run_directory: Annotated[Path, arg(name="run")]
    """Run directory of a detector that was trained on frames."""
    out: Annotated[Path | None, arg(aliases=("-o",))] = None
    """Annotated film (.mp4, .mkv, .mov, .avi) that is written; None writes none."""
    threshold: float = 0.5
    """Probability from which an activity goes on."""
    frames: int | None = None
    """Frames after which it ends; None goes on until the film ends, or Ctrl-C."""
    best: bool = False
    """Take the checkpoint of the run's best evaluation, instead of the newest."""
    device: str = "cpu"
    """Where to compute."""
    trust: bool = False
    """Import the packages that the run's config names for its task or core: that runs their code."""
    json: bool = False
    """Print JSON, a line for every activity that begins or ends."""

    def run(self, console: Console) -> int:
        """Watch and print."""
        require_run(self.run_directory)
        from recollect.interpret.watch import WatchSummary, list_events, load_detector, watch
        from recollect.runs.interrupts import Interrupts
        from recollect.training.saved_run import describe_torn_checkpoints

        model = load_detector(self.run_directory, self.device, best=self.best, trust=self.trust)
        for line in describe_torn_checkpoints(self.run_directory, best=self.best):
            print_status(line, style="yellow")
        told = WatchSummary()
        options: dict[str, Any] = {"threshold": self.threshold, "out": self.out, "most_frames": self.frames}
        with Interrupts() as interrupts, closing(watch(model, self.source, summary=told, **options)) as frames:
            for event in list_events(takewhile(lambda _: not interrupts.received, frames), model.class_names):
                if self.json:
                    print_json(event.to_json(), indent=None)
                else:
                    console.print(event.describe(), highlight=False, soft_wrap=True, markup=False)
        if interrupts.received:
            print_status(f"stopped by {interrupts.received}", style="yellow")
        print_status(told.describe())
        if self.out is not None and told.frames > told.broken:
            print_status(f"film: {self.out}")
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


def _benchmark(words: list[str], console: Console) -> int:
    """``recollect benchmark cores`` and ``recollect benchmark ops``."""
    known = flags.benchmarks()
    name, *words = ["cores", *words] if words[:1] in (["--help"], ["-h"]) else words or [""]
    rows = lookup(known, name, "benchmark")
    if any(word in ("-h", "--help", "--help-all") for word in words):
        console.print(f"usage: recollect benchmark {{{','.join(known)}}} [flags]\n", highlight=False, markup=False)
        console.print(two_columns(flags.everything(rows)))
        return 0
    flags.require_among(rows, words, f"recollect benchmark {name} --help shows all")
    from recollect.benchmark import BENCHMARKS

    settings, measure, render = BENCHMARKS[name]
    config, options = parse(settings(), PrintOptions(), f"benchmark {name}", settings.__doc__ or "", words)
    if options.json:
        print_json(measure(config).to_json())
        return 0
    with console.status("measuring") as status:
        results = measure(config, lambda line: status.update(line))
    console.print(render(results))
    return 0


def _tell_replaced(place: Path, remedy: str = "folder (--out)") -> None:
    print_status(f"replaced what an earlier command wrote in {place}: another {remedy} keeps both", style="yellow")


def require_run(directory: Path) -> None:
    """Look whether a folder is a run directory, without importing what reads it."""
    if not (directory / "config.json").is_file():
        raise ValueError(f"{directory} is not a run directory: there is no config.json in it")


COMMANDS: dict[str, tuple[Any, str]] = {
    "list": (List, "cores, tasks, agents, trainers and recipes"),
    "train": (train, "train a core on a task: recollect train recall --core hcam"),
    "evaluate": (Evaluate, "score a run: recollect evaluate runs/recall-hcam-seed0"),
    "demonstrations": (Demonstrations, "record a bot: recollect demonstrations BabyAI-GoToLocal-v0 -o demos.npz"),
    "explore": (Explore, "see what an agent remembers: recollect explore runs/t-maze-hcam-seed0"),
    "compare": (Compare, "runs side by side: recollect compare runs/t-maze-*"),
    "certify": (Certify, "prove the streaming contract: recollect certify all"),
    "benchmark": (_benchmark, "measure every core or kernel: recollect benchmark cores"),
    "reproduce": (Reproduce, "an experiment of a paper: recollect reproduce copying --scale lite"),
    "watch": (Watch, "a detector on a film or camera: recollect watch FILE --run runs/shape-activities-ttm-seed0"),
    "demo": (Demo, "train an agent, film it, stream it for 100 000 steps, see what it remembers"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done; 1 a promise is broken, or a run of ``reproduce`` failed; 2 a mistake in the input, or a run that had to stop
    (its message says what is saved); 130 Ctrl-C or SIGTERM, after saving.
    """
    words = list(sys.argv[1:] if words is None else words)
    console = Output()
    if not words or words[0] in ("-h", "--help"):
        console.print("[bold]recollect[/]: memory for agents and long streams\n")
        console.print(
            two_columns({name: about for name, (_, about) in COMMANDS.items()} | {"--version": "the version"})
        )
        console.print("\nrecollect COMMAND --help shows its flags. RECOLLECT_TRACEBACK=1 shows tracebacks of errors.")
        return 0
    if words[0] == "--version":
        print(recollect.__version__)
        return 0
    try:
        command, _ = lookup(COMMANDS, words[0], "command")
        if isinstance(command, type):
            return tyro.cli(command, prog=f"recollect {words[0]}", args=words[1:]).run(console)
        return command(words[1:], console)
    except KeyboardInterrupt as interrupt:
        print_status(str(interrupt) or "interrupted", style="yellow")
        return 130
    except (ValueError, OSError, RunError) as error:
        if os.environ.get("RECOLLECT_TRACEBACK"):
            raise
        return _mistake(str(error))
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        reason = describe_out_of_memory(error)
        if reason is None or os.environ.get("RECOLLECT_TRACEBACK"):
            raise
        return _mistake(f"{reason}: make the sizes smaller")


def _mistake(line: str) -> int:
    print_status(f"error: {line}", style="red")
    return 2
