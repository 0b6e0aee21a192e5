"""Commands on saved runs and models: evaluate, export, explore, compare, watch, push."""

from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from recollect.agents.model_sources import find_model
from recollect.cli.hints import EMPTY, REQUIRED
from recollect.config import require
from recollect.terminal import print_json, print_status, print_table


@dataclass(frozen=True)
class Evaluate:
    """Score the newest checkpoint of a run: on fresh rows of its task, or in fresh episodes of its world."""

    directory: Positional[Path]
    """Run directory, model folder, model:NAME or hub:OWNER/NAME."""
    samples: Annotated[int | None, arg(aliases=("--rows", "--episodes"))] = None
    """Number of rows of a stream task, or of episodes in a world; 512 rows or 128 episodes when None."""
    policy: Literal["run", "greedy", "sampled"] = "run"
    """Actions in a world: as in the run's own evaluations, the most likely, or sampled from the policy."""
    report: Path | None = None
    """Folder for report.json and confusion.png: precision, recall, F1 of classes, or errors of values; printed too."""
    predictions: Path | None = None
    """FILE.csv or FILE.parquet for every answer beside the right one, one line for each scored step."""
    video: Path | None = None
    """Folder for a video (MP4 and GIF) of four episodes; None records no video."""
    log: Annotated[tuple[str, ...], EMPTY] = ()
    """Also send the video to the run's log: tensorboard, wandb or wandb:PROJECT."""
    record: str | None = None
    """FILE.npz, minari:DATASET or lerobot:FOLDER for as many episodes as are scored, as training data."""
    noise: Annotated[tuple[float, ...], EMPTY] = ()
    """For --record: shares of random actions, cycled over the rows, for a mixture of returns."""
    best: bool = False
    """Take the checkpoint of the run's best evaluation, instead of the newest."""
    seed: int = 0
    """Seed of the rows or episodes."""
    device: str = "cpu"
    """Device of the model."""
    trust: bool = False
    """Import the packages that the run's config names for its world or core: that runs their code."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Evaluate and print."""
        require_model(self.directory)
        from recollect.runs import interrupts, progress
        from recollect.runs.loggers import reopen_loggers
        from recollect.training.saved_run import (
            checkpoint_step,
            describe_torn_checkpoints,
            evaluate_run,
            record_run,
            save_episodes,
        )

        self._require_supported()
        options: dict[str, Any] = {"seed": self.seed, "device": self.device, "best": self.best, "trust": self.trust}
        options["greedy"] = None if self.policy == "run" else self.policy == "greedy"
        with interrupts.stop_on_signal(), progress.ProgressDisplay():
            found = evaluate_run(self.directory, samples=self.samples, **options)
        for line in describe_torn_checkpoints(self.directory, best=self.best):
            print_status(line, style="yellow")
        if self.json:
            print_json(found.to_json(), indent=None)
        else:
            console.print(f"{self.directory}: {found.describe()}", soft_wrap=True, markup=False)
        self._write_answers(found, console)
        if self.video is not None:
            existing = set(self.video.glob("*"))
            with interrupts.stop_on_signal(), progress.ProgressDisplay():
                film = record_run(self.directory, self.video, **options)
            print_status(f"video: {film.mp4}, {film.gif}")
            with reopen_loggers(self.log, self.directory) as logs:
                for log in logs:
                    log.log_film("video", checkpoint_step(self.directory, best=self.best), film.mp4, film.gif)
            if film.mp4 in existing:  # runs of recollect train --seeds have names like seed0
                _report_replaced(film.mp4, "folder (--video)")
        if self.record is not None:
            existed = Path(self.record).is_file()
            with interrupts.stop_on_signal(), progress.ProgressDisplay():
                recording = save_episodes(
                    self.directory, self.record, episodes=self.samples, noise=self.noise, **options
                )
            print_status(
                f"recorded: {len(recording.lengths)} episodes in {self.record}, mean score {recording.score.mean():.4g}"
            )
            if existed:
                _report_replaced(Path(self.record), "file (--record)")
        return 0

    def _write_answers(self, found: Any, console: Console) -> None:
        """Write the report and the table of predictions."""
        if self.report is not None:
            from recollect.evaluation.class_report import make_report, write_report

            report = make_report(found.predictions)
            if not self.json:
                print_table(console, "", report.printed_rows(), figures=True)
            print_status(f"report: {', '.join(map(str, write_report(report, self.report)))}")
        if self.predictions is not None:
            from recollect.evaluation.predictions import write_predictions

            print_status(f"predictions: {write_predictions(found.predictions, self.predictions)}")

    def _require_supported(self) -> None:
        """Raise for options that this run does not support before it is scored, which may take minutes."""
        from recollect.runs.loggers import require_log
        from recollect.training.saved_run import (
            require_answers,
            require_filmable,
            require_recordable,
            require_world,
        )

        require(self.video is not None or not self.log, "log", self.log, "there is no video to send: give --video too")
        require_log(self.log, self.directory)
        for option, where in (("report", self.report), ("predictions", self.predictions)):
            if where is not None:
                require_answers(self.directory, option, where, trust=self.trust)
        require_recordable(self.directory, self.record, noise=self.noise, trust=self.trust)
        if self.video is not None:
            require_filmable(self.directory, self.video, trust=self.trust)
        if self.policy != "run":
            require_world(self.directory, "have a policy (--policy)", trust=self.trust)


@dataclass(frozen=True)
class Export:
    """Write one step of a trained model with its state as a folder that runs without this library."""

    source: Positional[str]
    """Run directory or model folder."""
    to: Annotated[Path, arg(aliases=("-o", "--out"))]
    """Folder to write; an older export is replaced."""
    format: Literal["onnx", "pt2", "aoti"] = "onnx"
    """onnx for ONNX Runtime and browsers, pt2 for torch, aoti for torch compiled for this kind of processor."""
    best: bool = False
    """Of a run, take the weights of its best evaluation, instead of the newest."""
    trust: bool = False
    """Import the packages that the config names for its core: that runs their code."""

    def run(self, console: Console) -> int:
        """Export, compare the written program with the model, and print the largest difference."""
        from recollect.export import export_run

        made = export_run(self.source, self.to, format=self.format, best=self.best, trust=self.trust)
        console.print(f"{self.to}: {made.describe()}", soft_wrap=True, markup=False, highlight=False)
        return 0


@dataclass(frozen=True)
class Explore:
    """Show what an agent remembers, and whether that picture is faithful: episodes recorded, scored and tested."""

    directories: Annotated[Positional[tuple[Path, ...]], REQUIRED]
    """Run directories, model folders, model:NAME or hub:OWNER/NAME."""
    out: Annotated[Path, arg(aliases=("-o",))] = Path("explored")
    """Folder for the files; with several runs, a folder in it for each, named by what differs in their paths."""
    env: str | None = None
    """World to explore in, if not that of the run: a key, gym:ID, or package.module:Name."""
    episodes: int = 8
    """Number of episodes that are recorded and scored; the typical one, of median effect, is shown."""
    seed: int = 0
    """Seed of the first episode; the others count on from it. None of them was seen in training."""
    policy: Literal["greedy", "sampled"] = "greedy"
    """The most likely actions, or actions sampled from the policy."""
    longest: int = 1000
    """Most steps recorded of an episode."""
    live: bool = False
    """Also write live.html, a page in which the agent acts and its memory can be edited."""
    runtime: Path | None = None
    """For --live: onnxruntime-web, as a folder or an archive of npm pack; the cache, then npm, when None."""
    rerun: bool = False
    """Also write episode.rrd for the viewer rerun; needs pip install rerun-sdk."""
    log: Annotated[tuple[str, ...], EMPTY] = ()
    """Also send page and verdict to the run's log: tensorboard (the verdict), wandb or wandb:PROJECT."""
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
            require_model(directory)
        from recollect.interpret.explore import available_writers, explore_run, output_folders, write_comparison
        from recollect.recipes.train import find_task
        from recollect.runs.interrupts import stop_on_signal
        from recollect.runs.loggers import reopen_loggers, require_log
        from recollect.runs.progress import ProgressDisplay
        from recollect.training.saved_run import describe_torn_checkpoints

        options: dict[str, Any] = {
            name: getattr(self, name) for name in ("episodes", "seed", "longest", "best", "trust")
        }
        options |= {"live": self.live, "runtime": self.runtime}
        options["writers"] = (*available_writers(), "rerun") if self.rerun else None
        options |= {"greedy": self.policy == "greedy", "world": None if self.env is None else find_task(self.env)}
        for directory in self.directories:
            require_log(self.log, directory)
        explored = []
        for directory, folder in zip(self.directories, output_folders(self.out, self.directories), strict=True):
            existing = (folder / "metrics.json").exists()
            with stop_on_signal(), ProgressDisplay():
                found = explore_run(directory, folder, **options)
            explored.append(found)
            with reopen_loggers(self.log, directory) as logs:
                step = found.shown.info.checkpoint_step or 0
                for log in logs:
                    log.log_page("memory", step, found.files["explorer"], found.verdict)
            if existing:
                _report_replaced(folder)
            for line in describe_torn_checkpoints(directory, best=self.best):
                print_status(line, style="yellow")
            if not self.json:
                console.print(f"{directory}: {found.verdict}", soft_wrap=True, markup=False, highlight=False)
                console.print(f"measures: {found.report.findings}", soft_wrap=True, markup=False, highlight=False)
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

    directories: Annotated[Positional[tuple[Path, ...]], REQUIRED]
    """Run directories. Runs that differ in nothing but their seed are one group."""
    out: Path | None = Path("comparison")
    """Folder for comparison.html, .png and .json; None only prints."""
    axis: Literal["step", "environment_steps", "seconds"] = "step"
    """Horizontal axis of the learning curves."""
    names: Annotated[tuple[str, ...], EMPTY] = ()
    """A label for every run, in their order; training aids are added. Empty: cores and settings that differ."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Compare, write and print."""
        for directory in self.directories:
            require_run_directory(directory)
        from recollect.comparison.compare import compare
        from recollect.comparison.page import COLUMNS, table_rows, write_report
        from recollect.comparison.plots import has_matplotlib

        found = compare(self.directories, axis=self.axis, names=self.names or None)
        if self.json:
            print_json(found.to_json())
        else:
            for task in found.tasks:
                print_table(console, task, table_rows(found.of(task)), figures=True)
            console.print(COLUMNS, style="dim", highlight=False, markup=False)
            for note in found.notes:
                console.print(f"note: {note}", style="yellow", highlight=False, soft_wrap=True, markup=False)
        if self.out is not None:
            existing = (self.out / "comparison.html").exists()
            report = write_report(found, self.out, picture=has_matplotlib())
            picture = report.png or "none without matplotlib (pip install recollect-torch[plots])"
            print_status(f"page: {report.html}, picture: {picture}")
            if existing:
                _report_replaced(self.out)
        return 0


@dataclass(frozen=True)
class Watch:
    """Run a trained detector on a film or a camera, frame by frame: print activities as they begin and end."""

    source: Positional[str]
    """Film, number of a camera (0 is the first), device, or address (rtsp://, http://)."""
    run_directory: Annotated[Path, arg(name="run")]
    """Detector that was trained on frames: run directory, model folder, model:NAME or hub:OWNER/NAME."""
    out: Annotated[Path | None, arg(aliases=("-o",))] = None
    """Annotated film to write (.mp4, .mkv, .mov, .avi); None writes none."""
    threshold: float = 0.5
    """Probability above which an activity is present."""
    frames: int | None = None
    """Most frames to read; None reads until the film ends, or Ctrl-C."""
    best: bool = False
    """Take the checkpoint of the run's best evaluation, instead of the newest."""
    device: str = "cpu"
    """Device of the model."""
    trust: bool = False
    """Import the packages that the run's config names for its task or core: that runs their code."""
    json: bool = False
    """Print JSON, a line for every activity that begins or ends."""

    def run(self, console: Console) -> int:
        """Watch and print."""
        require_model(self.run_directory)
        from recollect.interpret.watch import WatchSummary, list_events, load_detector, watch
        from recollect.runs.interrupts import Interrupts
        from recollect.training.saved_run import describe_torn_checkpoints

        model = load_detector(self.run_directory, self.device, best=self.best, trust=self.trust)
        for line in describe_torn_checkpoints(self.run_directory, best=self.best):
            print_status(line, style="yellow")
        summary = WatchSummary()
        options: dict[str, Any] = {"threshold": self.threshold, "out": self.out, "most_frames": self.frames}
        with Interrupts() as interrupts, closing(watch(model, self.source, summary=summary, **options)) as frames:
            for event in list_events(takewhile(lambda _: not interrupts.received, frames), model.class_names):
                if self.json:
                    print_json(event.to_json(), indent=None)
                else:
                    console.print(event.describe(), highlight=False, soft_wrap=True, markup=False)
        if interrupts.received:
            print_status(f"stopped by {interrupts.received}", style="yellow")
        print_status(summary.describe())
        if self.out is not None and summary.frames > summary.broken:
            print_status(f"film: {self.out}")
        return 0


@dataclass(frozen=True)
class Push:
    """Share a model: its folder with scores, a card and a picture goes to a repository of the Hugging Face Hub."""

    source: Positional[Path]
    """Run directory, model folder, model:NAME or hub:OWNER/NAME."""
    repository: Positional[str]
    """OWNER/NAME; it is made if it does not exist."""
    best: bool = False
    """Take the checkpoint of the run's best evaluation, instead of the newest."""
    samples: int | None = None
    """Fresh rows or episodes that score it; 512 rows or 128 episodes when None, 0 for no scores."""
    private: bool | None = None
    """Make a new repository visible to its owner alone; as the owner's account says when None."""
    trust: bool = False
    """Import the packages that the run's config names for its world or core: that runs their code."""

    def run(self, console: Console) -> int:
        """Push, and print the address."""
        require_model(self.source)
        from recollect.runs import interrupts, progress
        from recollect.training.sharing import push_to_hub

        options: dict[str, Any] = {name: getattr(self, name) for name in ("best", "samples", "private", "trust")}
        with interrupts.stop_on_signal(), progress.ProgressDisplay():
            address = push_to_hub(self.source, self.repository, **options)
        console.print(address, highlight=False, soft_wrap=True, markup=False)
        return 0


def _report_replaced(path: Path, remedy: str = "folder (--out)") -> None:
    print_status(f"replaced what an earlier command wrote in {path}: another {remedy} keeps both", style="yellow")


def require_model(source: Path) -> None:
    """Check that a source of models is a run directory or a model folder, without importing torch."""
    folder = find_model(source)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{source} is not a run directory or a model folder: there is no config.json in it")


def require_run_directory(directory: Path) -> None:
    """Check that a folder is a run directory, without importing torch."""
    if not (directory / "config.json").is_file():
        raise ValueError(f"{directory} is not a run directory: there is no config.json in it")
