"""Demo: train an agent with a memory, compare it with one without, and stream it for 10 000 steps.

1. train an hcam agent by IMPALA in a T-maze               a live progress bar
2. the same without memory                                 a small table, with chance, and with ten times the length
3. record a video                                          an MP4 and a GIF
4. stream it, one step at a time                           equal decisions, constant time, constant bytes
5. explore its memory                                      one HTML file, and a verdict

The quick demo does 3 and 5 with an agent that the library ships.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import Any, cast

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs, as_previous_output, no_previous_output
from recollect.config import require
from recollect.evaluation.agent_videos import Video, record_video
from recollect.evaluation.agents import AgentEvaluation, evaluate_agent, initial_action
from recollect.interpret.explore import Exploration, available_writers, explore_run
from recollect.recipes.hierarchical_transformer_memory.t_maze import demo_config
from recollect.runs.progress import Progress
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import FRESH_SEED, ImpalaConfig, load_config
from recollect.training.loop import Outcome, fit

WINDOW = 1000  # last steps, whose median time is compared with that of a new stream
SEGMENT = 1000  # steps of a whole-sequence pass, which the contract leaves free
EXPLORED = 8
"""Episodes that the explorer records and scores; in four, habit and memory may agree so often that no effect shows."""
QUICK = "model:t-maze-hcam"
"""Agent of the quick demo."""


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """Measurements of a long stream."""

    steps: int
    """Steps, one at a time."""
    agree: int
    """Steps at which stream and whole-sequence pass chose the same action."""
    largest_difference: float
    """Largest difference of any policy logit or value between stream and whole-sequence pass."""
    episodes: int
    """Episodes that ended."""
    score: float
    """Their mean score."""
    early_us: float
    """Median microseconds of a step of a new stream, about its first thousand (after a warm-up)."""
    late_us: float
    """Median microseconds of a step in the last thousand, taken in turn with those of the new stream."""
    early_bytes: int
    """Bytes of memory after the first thousand steps."""
    late_bytes: int
    """Bytes of memory at the end."""
    seconds: float
    """Time of the whole stream, without the whole-sequence passes."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Results of the demo."""

    memory: tuple[AgentEvaluation, AgentEvaluation]
    """Scores with memory: in the world of training, and in one ten times as long."""
    memoryless: tuple[AgentEvaluation, AgentEvaluation]
    """Scores without memory."""
    video: Video
    """The video."""
    streamed: Streamed
    """The long stream."""
    explored: Exploration
    """The exploration of its memory."""
    directory: Path
    """The run directory of the agent with memory."""


def longer(world: TMazeConfig, times: int) -> TMazeConfig:
    """Return a T-maze whose corridor is ``times`` as long."""
    return replace(world, length=times * world.length)


def demo(
    root: str | PathLike[str] = "runs",
    *,
    steps: int = 10_000,
    memory: ImpalaConfig | None = None,
    ablation: ImpalaConfig | None = None,
    episodes: int = 256,
    console: Console | None = None,
) -> Demo:
    """Train an agent with a memory and one without, film and stream it, and write the page of its memory.

    Args:
        root: folder for the run directories and the video.
        steps: length of the stream.
        memory: config of a run in a T-maze; the recipe's when None.
        ablation: config of a run without memory in the same world; the recipe's when None.
        episodes: fresh episodes in which both are scored.
        console: for progress; None is silent.

    Raises:
        ValueError: less than one step.
        KeyboardInterrupt: stopped by Ctrl-C or SIGTERM.
    """
    require(steps >= 1, "steps", steps, f"give at least 1; fewer than {2 * WINDOW} count as {2 * WINDOW}")
    console = Console(quiet=True) if console is None else console
    memory = demo_config("hcam") if memory is None else memory
    ablation = demo_config("memoryless") if ablation is None else ablation
    assert isinstance(memory.world, TMazeConfig)
    worlds = (memory.world, longer(memory.world, 10))
    _introduce(console, worlds)
    folder = _free(Path(root), "demo")
    seconds: dict[str, float] = {}
    with _timed(seconds, "training"):
        pairs = (("hcam", memory), ("memoryless", ablation))
        outcomes = [_train(config, folder / name, console) for name, config in pairs]
    agents = [cast(ActorCritic, outcome.agent.eval()) for outcome in outcomes]
    with _timed(seconds, "scores"):
        scores = [_score(agent, worlds, episodes) for agent in agents]
    _show_scores(console, worlds, scores, outcomes)
    with _timed(seconds, "film"):
        video = record_video(agents[0], memory.world, folder / "hcam", episodes=4, seed=FRESH_SEED)
    console.print(f"Film: {video.mp4}", highlight=False, soft_wrap=True, markup=False)
    with _timed(seconds, "stream"):
        streamed = stream(agents[0], worlds[1], steps, console)
    _show_stream(console, streamed)
    with _timed(seconds, "explorer"):
        explored = _explore(console, memory.world, folder / "hcam", folder / "hcam" / "explored")
    parts = ", ".join(f"{stage} {spent:.0f}" for stage, spent in seconds.items())
    console.print(f"Seconds: {parts}; {sum(seconds.values()):.0f} in all.", highlight=False)
    console.print(
        f"Try next: [bold]recollect evaluate {escape(quote(str(folder / 'hcam')))}[/bold], "
        "or another memory: [bold]recollect train t-maze --core gru[/bold]",
        highlight=False,
        soft_wrap=True,
    )
    return Demo(
        memory=scores[0],
        memoryless=scores[1],
        video=video,
        streamed=streamed,
        explored=explored,
        directory=folder / "hcam",
    )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = perf_counter()
    yield
    seconds[stage] = perf_counter() - began


def quick_demo(root: str | PathLike[str] = "runs", *, console: Console | None = None) -> Exploration:
    """Show what an agent that the library ships remembers: a verdict, a page and, where imageio is there, a film.

    Args:
        root: folder for the files.
        console: for progress; None is silent.
    """
    console = Console(quiet=True) if console is None else console
    trained = load_config(QUICK)
    assert isinstance(trained, ImpalaConfig) and isinstance(trained.world, TMazeConfig)
    world = trained.world
    console.print(
        f"[bold]{QUICK}[/bold]: trained in a T-maze whose corridor has {world.length} steps, and shown in one of "
        f"{2 * world.length}. Its window reaches {trained.core.reach} steps back, so it has to read its memory.",
        highlight=False,
        soft_wrap=True,
    )
    folder = _free(Path(root), "demo-quick")
    explored = _explore(console, world, QUICK, folder, episodes=2, controls=False)
    if "movie" in available_writers():
        shown = explored.episodes[0]
        video = record_video(shown.agent, shown.world, folder / "film", episodes=1, seed=FRESH_SEED)
        console.print(f"Film: {video.mp4}", highlight=False, soft_wrap=True, markup=False)
    return explored


@torch.no_grad()
def stream(agent: ActorCritic, world_config: WorldConfig, steps: int, console: Console | None = None) -> Streamed:
    """Stream one agent through episodes, and compare with whole-sequence passes over the same observations.

    Args:
        agent: in ``eval`` mode.
        world_config: world whose observations are one tensor.
        steps: steps to stream.
        console: for a progress bar; None is silent.
    """
    steps = max(steps, 2 * WINDOW)
    world = world_config.build(1, seed=FRESH_SEED + 1)
    live, new = agent.stream(1), agent.stream(1)
    step, action = world.reset(), initial_action(world)
    policy, features = no_previous_output(agent, 1, step.reward)
    told: list[tuple[ActorInputs, torch.Tensor]] = []
    said: list[tuple[torch.Tensor, torch.Tensor]] = []
    early, late, ends, early_bytes = [], [], [], 0
    began = perf_counter()
    with Progress(console, "streaming · one step at a time", steps, 0) as progress:
        for number in range(steps):
            inputs = ActorInputs(step.observation.clone(), action, step.reward, policy, features)
            streams = (live, new) if number >= steps - WINDOW - WINDOW // 2 else (live,)
            outputs = {}
            for one in streams[:: -1 if number % 2 else 1]:  # in turn, each first as often: caches and other programs
                start = perf_counter()
                outputs[one] = one.step(inputs, step.is_first)
                (late if one is live else early).append(perf_counter() - start)
            output = outputs[live]
            told.append((inputs, step.is_first))
            policy, features = as_previous_output(agent, output)
            said.append((policy, output.value))
            if step.is_last[0]:
                ends.append(float(step.score[0]))
            action = agent.distribution(output.policy).mode()
            step = world.step(action)
            if number + 1 == WINDOW:
                early_bytes = live.nbytes
            if number % 500 == 0:
                progress.advance(number)
        progress.advance(steps)
    seconds = perf_counter() - began
    world.close()
    policy, value = (torch.stack(part, 1) for part in zip(*said, strict=True))
    whole_policy, whole_value = (torch.cat(part, 1) for part in zip(*_whole(agent, told), strict=True))
    differences = [(policy - whole_policy).abs().max(), (value - whole_value).abs().max()]
    return Streamed(
        steps=steps,
        agree=int((policy.argmax(-1) == whole_policy.argmax(-1)).sum()),
        largest_difference=float(max(differences)),
        episodes=len(ends),
        score=sum(ends) / max(len(ends), 1),
        early_us=1e6 * statistics.median(early[-WINDOW:]),
        late_us=1e6 * statistics.median(late[-WINDOW:]),
        early_bytes=early_bytes,
        late_bytes=live.nbytes,
        seconds=seconds,
    )


def _whole(
    agent: ActorCritic, told: Sequence[tuple[ActorInputs, torch.Tensor]]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return policies and values ``[1, t, ...]`` of the same steps in one call."""
    state = agent.initial_state(1)
    for start in range(0, len(told), SEGMENT):
        inputs, firsts = zip(*told[start : start + SEGMENT], strict=True)
        parts = ActorInputs(*(torch.stack(part, 1) for part in zip(*inputs, strict=True)))
        output, state = agent(parts, state, torch.stack(firsts, 1))
        yield output.policy, output.value


def _score(
    agent: ActorCritic, worlds: tuple[TMazeConfig, TMazeConfig], episodes: int
) -> tuple[AgentEvaluation, AgentEvaluation]:
    first, second = (evaluate_agent(agent, world, episodes, seed=FRESH_SEED) for world in worlds)
    return first, second


def _train(config: ImpalaConfig, directory: Path, console: Console) -> Outcome:
    outcome = fit(config, directory, console=console, hint="the same command begins anew, in another folder")
    if outcome.status == "interrupted":
        raise KeyboardInterrupt(outcome.message)
    return outcome


def _introduce(console: Console, worlds: tuple[TMazeConfig, TMazeConfig]) -> None:
    short, long = worlds
    console.print(
        f"[bold]T-maze[/bold]: a cue, a corridor of {short.length} steps, and a turn to the side that the cue named. "
        f"Then, untrained, a corridor of {long.length}.",
        highlight=False,
        soft_wrap=True,
    )


def _show_scores(
    console: Console,
    worlds: Sequence[TMazeConfig],
    scores: Sequence[Sequence[AgentEvaluation]],
    outcomes: Sequence[Outcome],
) -> None:
    table = Table(title="Share of right turns, in fresh episodes, with 95 % intervals")
    table.add_column("core")
    for world in worlds:
        table.add_column(f"length {world.length}", justify="right")
    table.add_column("trained", justify="right")
    for name, row, outcome in zip(("hcam", "memoryless"), scores, outcomes, strict=True):
        cells = [f"{score.score:.3f}\n{score.low:.3f} to {score.high:.3f}" for score in row]
        table.add_row(name, *cells, f"{outcome.step} rollouts, {outcome.seconds:.0f} s")
    table.add_row("chance", *(f"{score.chance:.3f}\nexact" for score in scores[0]), "")
    console.print(table)


def _show_stream(console: Console, seen: Streamed) -> None:
    steps = f"{seen.steps:,}".replace(",", " ")
    table = Table(title=f"hcam, {steps} steps one at a time in {seen.seconds:.0f} s")
    for column in ("", "step 1 000", f"step {steps}"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("time of a step", f"{seen.early_us:.0f} µs", f"{seen.late_us:.0f} µs")
    table.add_row("memory", f"{seen.early_bytes:,} bytes", f"{seen.late_bytes:,} bytes")
    console.print(table)
    equal = seen.agree == seen.steps
    console.print(
        f"{'[green]equal[/green]' if equal else '[red]NOT equal[/red]'}: {seen.agree} of {seen.steps} decisions are "
        f"those of the whole-sequence pass; largest difference of a logit or value {seen.largest_difference:.1e}; "
        f"{seen.score:.1%} of {seen.episodes} episodes end with the right turn.",
        highlight=False,
        soft_wrap=True,
    )
    grew = seen.late_us / seen.early_us - 1
    bytes_grew = seen.late_bytes - seen.early_bytes
    memory = "no more memory" if bytes_grew == 0 else f"{bytes_grew:+,} bytes of memory"
    console.print(
        f"After {steps} steps a step takes {abs(grew):.1%} {'more' if grew > 0 else 'less'} time and {memory}.",
        highlight=False,
    )


def _explore(
    console: Console, world: TMazeConfig, source: str | PathLike[str], folder: Path, **options: Any
) -> Exploration:
    """Run the memory explorer in a corridor of twice the length, so that the lag differs from that of training."""
    options = {"episodes": EXPLORED} | options
    found = explore_run(source, folder, writers=("metrics", "explorer"), world=longer(world, 2), **options)
    console.print(f"Does it use its memory? {found.verdict}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"What it remembers: {found.report.findings}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"See for yourself: {found.files['explorer']}", highlight=False, soft_wrap=True, markup=False)
    return found


def _free(root: Path, name: str) -> Path:
    for number in itertools.count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
    raise AssertionError("unreachable")
