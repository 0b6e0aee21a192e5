"""The main job: train a memory, see that it is one, and let it live for 100 000 steps.

1. train an agent-sized hcam on the recall task                 a live progress bar
2. the same without memory                                      a small table, with chance
3. stream the trained model one step at a time                  equal answers, constant time, constant bytes
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from recollect.agents.sequence_model import SequenceModel
from recollect.recipes.recall import recall
from recollect.tasks.base import Batch
from recollect.tasks.recall import Recall
from recollect.training.evaluate import FRESH_SEED, Evaluation, evaluate
from recollect.training.fit import FitConfig, Outcome, fit
from recollect.training.progress import Progress
from recollect.training.supervised import SupervisedConfig

# Four pairs, and up to 87 steps from a pair to the question: hcam's local attention sees 16.
TASK = Recall(num_keys=8, num_values=4, num_cues=4, num_queries=4, min_blank=1, max_blank=80, length=192)
WINDOW = 1000  # steps whose median time is compared, at the start and at the end of the stream


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """What a long stream showed."""

    steps: int
    """Steps, one at a time."""
    queries: int
    """Questions that were asked on the way."""
    agree: int
    """Questions to which stream and whole-sequence pass gave the same answer."""
    correct: int
    """Questions that the stream answered correctly."""
    largest_difference: float
    """Largest difference of any logit at any step between stream and whole-sequence pass."""
    early_us: float
    """Median microseconds of a step in the first thousand (after a warm-up)."""
    late_us: float
    """Median microseconds of a step in the last thousand."""
    early_bytes: int
    """Bytes of memory after the first thousand steps."""
    late_bytes: int
    """Bytes of memory at the end."""
    seconds: float
    """Time of the whole stream."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo showed."""

    memory: Evaluation
    """With memory."""
    memoryless: Evaluation
    """Without."""
    streamed: Streamed
    """The long stream."""
    directory: Path
    """The run directory of the trained memory."""


def demo_config(core: str = "hcam") -> SupervisedConfig:
    """The recall recipe with more to keep for longer, sized for an agent that has half a millisecond per step.

    Args:
        core: ``hcam``, or any core for comparison.
    """
    config = recall(core)
    if core == "hcam":
        sizes = {"num_layers": 1, "memory_len": 16, "chunk_len": 16, "num_chunks": 8, "top_k": 4}
        config = replace(config, core=replace(config.core, **sizes))
    return replace(
        config,
        task=TASK,
        optimizer=replace(config.optimizer, schedule="cosine"),
        fit=FitConfig(
            steps=60 if core == "memoryless" else 250,
            report_every=5,
            evaluate_every=50,
            checkpoint_every=50,
            stop_score=0.99,
        ),
        evaluation_rows=128,
    )


def demo(
    root: str | PathLike[str] = "runs",
    *,
    steps: int = 100_000,
    memory: SupervisedConfig | None = None,
    ablation: SupervisedConfig | None = None,
    rows: int = 512,
    console: Console | None = None,
) -> Demo:
    """Run the main job.

    Args:
        root: folder for the run directories.
        steps: length of the stream.
        memory: another run than the recipe's.
        ablation: another run of the same task without memory.
        rows: fresh rows that both are scored on.
        console: where it is shown; None is silent.

    Raises:
        KeyboardInterrupt: stopped by Ctrl-C or SIGTERM.
    """
    console = Console(quiet=True) if console is None else console
    memory = demo_config("hcam") if memory is None else memory
    ablation = demo_config("memoryless") if ablation is None else ablation
    spec = memory.task.spec
    console.print(
        f"[bold]Recall[/bold]: key-value cues, up to {spec.memory_span} steps later a question; "
        "several episodes per row, separated only by a reset.",
        highlight=False,
    )
    folder = _free(Path(root), "demo")
    with_memory = _train(memory, folder / "hcam", console)
    without = _train(ablation, folder / "memoryless", console)
    models = [outcome.agent.eval() for outcome in (with_memory, without)]
    scores = [evaluate(model, memory.task, rows=rows, seed=FRESH_SEED) for model in models]  # type: ignore[arg-type]
    _show_scores(console, scores, [with_memory, without])
    streamed = stream(models[0], memory, steps, console)  # type: ignore[arg-type]
    _show_stream(console, streamed)
    console.print(
        f"Try next: [bold]recollect evaluate {folder / 'hcam'}[/bold], "
        "or another memory: [bold]recollect train recall --core gru[/bold]",
        highlight=False,
        soft_wrap=True,
    )
    return Demo(memory=scores[0], memoryless=scores[1], streamed=streamed, directory=folder / "hcam")


def stream(model: SequenceModel, config: SupervisedConfig, steps: int, console: Console | None = None) -> Streamed:
    """Stream fresh rows one after the other through one live model, and compare with whole-sequence passes.

    Args:
        model: in ``eval`` mode.
        config: whose task gives the rows.
        steps: steps to stream, rounded up to whole rows.
        console: where a bar is shown; None shows nothing.
    """
    length = config.task.spec.length
    rows = -(-max(steps, 2 * WINDOW) // length)
    batch = config.task.sample(rows, torch.Generator().manual_seed(FRESH_SEED + 1))
    whole = _whole(model, batch)
    tokens, firsts = batch.inputs.flatten().unsqueeze(1), batch.is_first.flatten().tolist()
    live = model.stream(1)
    yes = torch.ones(1, dtype=torch.bool)
    logits = torch.empty(len(firsts), model.num_classes)
    times, early_bytes = [], 0
    began = perf_counter()
    with Progress(console, "streaming · one step at a time", len(firsts), 0) as progress:
        for step, (token, first) in enumerate(zip(tokens, firsts, strict=True)):
            start = perf_counter()
            answer = live.step(token, yes if first else None)
            times.append(perf_counter() - start)
            logits[step] = answer[0]
            if step + 1 == WINDOW:
                early_bytes = live.nbytes
            if step % 500 == 0:
                progress.advance(step)
        progress.advance(len(firsts))
    seconds = perf_counter() - began
    asked, targets = batch.score_mask.flatten(), batch.targets.flatten()
    said, expected = logits.argmax(-1)[asked], whole.argmax(-1)[asked]
    return Streamed(
        steps=len(firsts),
        queries=len(said),
        agree=int((said == expected).sum()),
        correct=int((said == targets[asked]).sum()),
        largest_difference=float((logits - whole).abs().max()),
        early_us=1e6 * statistics.median(times[WINDOW // 2 : WINDOW + WINDOW // 2]),
        late_us=1e6 * statistics.median(times[-WINDOW:]),
        early_bytes=early_bytes,
        late_bytes=live.nbytes,
        seconds=seconds,
    )


@torch.no_grad()
def _whole(model: SequenceModel, batch: Batch) -> torch.Tensor:
    """Logits ``[rows * length, classes]`` of whole rows at once; every row starts with a reset."""
    parts = []
    for inputs, is_first in zip(batch.inputs.split(64), batch.is_first.split(64), strict=True):
        parts.append(model(inputs, model.initial_state(inputs.shape[0]), is_first)[0])
    return torch.cat(parts).flatten(0, 1)


def _train(config: SupervisedConfig, directory: Path, console: Console) -> Outcome:
    outcome = fit(config, directory, console=console)
    if outcome.status == "interrupted":
        raise KeyboardInterrupt(outcome.message)
    return outcome


def _show_scores(console: Console, scores: Sequence[Evaluation], outcomes: Sequence[Outcome]) -> None:
    table = Table(title="Questions answered correctly, on fresh rows")
    for column in ("core", "accuracy", "95 % interval", "trained"):
        table.add_column(column, justify="left" if column == "core" else "right")
    for name, score, outcome in zip(("hcam", "memoryless"), scores, outcomes, strict=True):
        span = f"{score.low:.3f} to {score.high:.3f}"
        table.add_row(name, f"{score.score:.3f}", span, f"{outcome.step} steps, {outcome.seconds:.0f} s")
    table.add_row("chance", f"{scores[0].chance:.3f}", "exact", "")
    console.print(table)


def _show_stream(console: Console, seen: Streamed) -> None:
    table = Table(title=f"hcam, {seen.steps:,} steps one at a time in {seen.seconds:.0f} s".replace(",", " "))
    for column in ("", "step 1 000", f"step {seen.steps:,}".replace(",", " ")):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("time of a step", f"{seen.early_us:.0f} µs", f"{seen.late_us:.0f} µs")
    table.add_row("memory", f"{seen.early_bytes:,} bytes", f"{seen.late_bytes:,} bytes")
    console.print(table)
    equal = seen.agree == seen.queries
    console.print(
        f"{'[green]equal[/green]' if equal else '[red]NOT equal[/red]'}: {seen.agree} of {seen.queries} answers are "
        f"those of the whole-sequence pass; largest difference of a logit {seen.largest_difference:.1e}; "
        f"{seen.correct / seen.queries:.1%} are right.",
        highlight=False,
    )
    grew = seen.late_us / seen.early_us - 1
    bytes_grew = seen.late_bytes - seen.early_bytes
    memory = "no more memory" if bytes_grew == 0 else f"{bytes_grew:+,} bytes of memory"
    console.print(
        f"After {seen.steps:,} steps a step takes {abs(grew):.1%} {'more' if grew > 0 else 'less'} time "
        f"and {memory}.".replace(",", " "),
        highlight=False,
    )


def _free(root: Path, name: str) -> Path:
    for number in itertools.count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
    raise AssertionError("unreachable")
