"""Commands that need no saved run: demonstrations, certify, reproduce, benchmark, demo."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from recollect.cli.hints import EMPTY, REQUIRED
from recollect.cli.import_checks import require_importable
from recollect.config import lookup, require_name
from recollect.terminal import PrintOptions, print_json, print_status, two_columns


@dataclass(frozen=True)
class Demonstrations:
    """Record episodes of minigrid's bot in BabyAI levels, for the trainer cloning; the same command again resumes."""

    levels: Annotated[Positional[tuple[str, ...]], REQUIRED]
    """Levels, as BabyAI-GoToLocal-v0 or GoToLocal; episodes of several levels go into one file."""
    out: Annotated[Path, arg(aliases=("-o",))]
    """FILE.npz; FILE.json beside it describes the recording."""
    episodes: int = 1000
    """Episodes of each level."""
    seed: int = 0
    """Seed from which those of all episodes follow; the file does not depend on the number of processes."""
    words: int = 16
    """Words kept of an instruction: --world.words of the run that learns from the file."""
    vocabulary: int = 1024
    """Number of values that words are hashed to: --world.vocabulary of that run."""
    seconds: float = 10.0
    """Time limit of an episode, since the bot hangs on some seeds; another seed is then used."""
    processes: int | None = None
    """Episodes recorded at a time; the number of processors when None."""

    def run(self, console: Console) -> int:
        """Record, and print the seeds that were replaced."""
        from recollect.evaluation.demonstrations import record_demonstrations
        from recollect.evaluation.demonstrations_config import DemonstrationsConfig
        from recollect.runs.interrupts import stop_on_signal
        from recollect.runs.progress import ProgressDisplay, ProgressReporter

        names = ("levels", "episodes", "seed", "words", "vocabulary", "seconds")
        config = DemonstrationsConfig(**{name: getattr(self, name) for name in names})
        processes = (os.cpu_count() or 1) if self.processes is None else self.processes
        with stop_on_signal(), ProgressDisplay():
            count = ProgressReporter(self.episodes * len(self.levels), "episodes")
            about = record_demonstrations(
                config, self.out, processes=processes, on_progress=lambda there: count.update(lambda: there)
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
class Certify:
    """Certify the streaming contract, of cores of this library or of package.module:factory."""

    cores: Positional[tuple[str, ...]] = ("all",)
    """Keys of cores, package.module:factory, or all."""
    lines: Annotated[tuple[str, ...], EMPTY] = ()
    """Only these lines of the card; empty runs all."""
    input_shape: Annotated[tuple[int, ...], EMPTY] = ()
    """Shape of one step's input, for a module without the attribute input_shape."""
    steps: int = 100_000
    """Steps of the long run (line state-bytes)."""
    length: int | None = None
    """Steps of the other sequences, longer than every window and chunk of the module; chosen when None."""
    batch: int = 4
    """Rows of the sequences; at least 3."""
    seconds: float | None = None
    """Time limit of the long run of each core; the library's when None."""
    thorough: bool = False
    """Run all steps of the long run without a time limit, every line with three seeds, and exports in onnxruntime."""
    reference: str | None = None
    """Plain form of your module for the line reference: package.module:function."""
    backend: str = "eager"
    """Backend of torch.compile; inductor is slower and tests more."""
    seed: int = 0
    """Seed of weights, inputs and resets."""
    size_seed: int | None = None
    """Seed of the sizes and modes that are drawn; a new one when None, which the card names."""
    processes: int | None = None
    """Cores certified at a time; the number of processors when None."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Print a card per core, and a summary of many. Exit status 1 when a line fails."""
        from recollect.cores import CORES

        named = [name if name == "all" else require_name("cores", name, CORES) for name in self.cores]
        for name in named:
            if ":" in name:
                require_importable(name, "core")
        from recollect.certify import certify_many, summary

        names = [key for name in named for key in (CORES if name == "all" else [name])]
        given = {"long_steps": self.steps, "long_seconds": self.seconds, "steps": self.length}
        given |= {"lines": self.lines or None, "input_shape": self.input_shape or None, "reference": self.reference}
        given["size_seed"] = self.size_seed
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
    """Run an experiment of a paper, write its result files and regenerate docs/results.md from them."""

    name: Positional[str]
    """Key of a recipe."""
    scale: str = "lite"
    """lite (minutes on two processor cores; streets, Pong: up to two hours), long (hours) or paper (its own sizes)."""
    cores: Annotated[tuple[str, ...], EMPTY] = ()
    """Only the rows of these cores; empty runs all. memory-suite and recall also take package.module:Config."""
    rows: Annotated[tuple[str, ...], EMPTY] = ()
    """Only the rows whose names in the table fit one of these patterns, such as 'ballet*'; empty runs all."""
    seeds: int | None = None
    """Number of seeds of every row; the recipe's number when None, which is smaller for some rows."""
    device: str | None = None
    """Device; the recipe's when None."""
    root: Path = Path(".")
    """Folder for results/, docs/results.md and runs/."""
    again: bool = False
    """Also run rows that have a result already."""

    def run(self, console: Console) -> int:
        """Reproduce; the same command resumes an interrupted one."""
        from recollect.cores import CORES
        from recollect.recipes import find_recipe

        recipe = find_recipe(self.name)
        known = {run.core for run in recipe.rows(self.scale)}
        cores = [core if core in known else require_name("cores", core, CORES) for core in self.cores] or None
        for core in cores or ():
            if ":" in core:
                require_importable(core, "core")
        from recollect.recipes.reproduce import failed, reproduce

        options: dict[str, Any] = {"root": self.root, "device": self.device, "again": self.again, "console": console}
        path = reproduce(recipe, scale=self.scale, cores=cores, rows=self.rows, seeds=self.seeds, **options)
        console.print(f"tables: {path}", highlight=False, markup=False)
        failures = failed(recipe, self.scale, self.root)
        for line in failures:
            print_status(f"failed: {line}", style="red")
        return 1 if failures else 0


@dataclass(frozen=True)
class Demo:
    """Train an agent with a memory, record a video of it, and stream it for 10 000 steps at constant cost."""

    steps: int = 10_000
    """Steps of the live stream; a step at 100 000 costs the same."""
    directory: Path = Path("runs")
    """Folder for the run directories, the video and the page."""
    quick: bool = False
    """Train nothing: show what an agent that the library ships remembers, in seconds."""

    def run(self, console: Console) -> int:
        """Run the demo."""
        from recollect.recipes.demo import demo, quick_demo

        if self.quick:
            quick_demo(self.directory, console=console)
            return 0
        demo(self.directory, steps=self.steps, console=console)
        return 0


def run_benchmark(words: Sequence[str], console: Console) -> int:
    """Run ``recollect benchmark NAME`` with these words."""
    from recollect import benchmark
    from recollect.cli import flags
    from recollect.cli.train import parse

    name, *words = ["cores", *words] if words[:1] in (["--help"], ["-h"]) else list(words) or [""]
    settings, measuring, rendering = lookup(benchmark.BENCHMARKS, name, "benchmark")
    named = "ops" if name == "ops" else "cores"
    if words and not words[0].startswith("-") and hasattr(settings, named):
        words = [f"--{named}", *words]  # recollect benchmark cores gru my_module:MyConfig
    known = flags.config_flags(settings()) | flags.config_flags(PrintOptions())
    if any(word in ("-h", "--help", "--help-all") for word in words):
        console.print("usage: recollect benchmark NAME [flags]\n", highlight=False, markup=False)
        console.print(two_columns({key: _about(form) for key, (form, *_) in benchmark.BENCHMARKS.items()}))
        console.print(f"\nFlags of {name}, in brackets the defaults:\n", highlight=False, markup=False)
        console.print(two_columns(flags.all_rows(known)))
        return 0
    flags.require_among(known, words, f"recollect benchmark {name} --help shows all")
    config, options = parse(settings(), PrintOptions(), f"benchmark {name}", settings.__doc__ or "", words)
    measure, render = getattr(benchmark, measuring), getattr(benchmark, rendering)
    if options.json:
        print_json(measure(config).to_json())
        return 0
    with console.status("measuring") as status:
        results = measure(config, lambda line: status.update(line))
    console.print(render(results))
    return 0


def _about(form: type) -> str:
    return (form.__doc__ or "").strip().splitlines()[0]
