"""Benchmark of reduced weights and caches: agreement with float32 over a long run of an agent, and speed of steps.

Agreement: the agent acts in its world with float32 weights, and streams in other formats see the same inputs. Speed: a
gated Transformer-XL whose weights do not fit into the processor's own cache, beside the time in which the machine can
read them. All on one thread.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from rich.console import Group
from rich.table import Table
from torch import Tensor, nn

from recollect.agents.contract import ActorInputs, as_previous_output, no_previous_output
from recollect.benchmark.config import PrecisionBenchmark
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.benchmark.roofline import measured_bandwidth
from recollect.benchmark.timing import interleave, ratio
from recollect.cores import CORES
from recollect.evaluation.agents import initial_action
from recollect.ops.reduced_linear import Precision
from recollect.ops.threads import one_thread
from recollect.training.saved_models import load_model
from recollect.training.saved_run import load_config

FORMATS = {
    "float32": Precision(),
    "bfloat16": Precision(weights="bfloat16"),
    "int8": Precision(weights="int8"),
    "cache": Precision(cache="bfloat16"),
    "int8, cache": Precision(weights="int8", cache="bfloat16"),
}
"""What is compared, by name."""
PARTS = 10
"""Parts of the run whose drift is reported."""
READ = 2**27
"""Bytes that are read to measure the memory: about as many as the weights that are timed."""


@dataclass(frozen=True)
class PrecisionRow:
    """One format in one measurement."""

    measure: str  # agreement, or speed
    format: str
    batch: int
    steps: int  # single steps of one row that were compared; 0 in speed
    agreement: float  # share of equal most likely actions
    first_drift: float  # relative difference of the policy parameters in the first tenth of the run, mean
    last_drift: float  # in the last tenth
    step_us: float  # best round
    ratio: float  # float32 over this format: median over the rounds
    weight_bytes: int  # of the linear maps that a step reads
    stream_bytes: int
    limit_us: float  # weight_bytes over the measured bandwidth


@dataclass(frozen=True)
class PrecisionResults(Measurements):
    """Results of one run of the benchmark."""

    bandwidth: float
    rows: list[PrecisionRow]


def run_precision(config: PrecisionBenchmark, progress: Progress = no_progress) -> PrecisionResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of each part.

    Raises:
        ValueError: there is no such model, or it does not act in a world; the output folder cannot be written.
    """
    with one_thread():
        bandwidth = measured_bandwidth(READ // 64 if config.quick else READ, config.repeats)
        results = PrecisionResults(describe(), asdict(config), bandwidth, [])
        for batch in config.batches:
            progress(f"speed, {batch} rows")
            results.rows.extend(measure_speed(config, batch, bandwidth))
        progress(f"agreement, {config.model}")
        results.rows.extend(measure_agreement(config))
    save_rows(config.output, "precision", results, results.rows)
    return results


def measure_speed(config: PrecisionBenchmark, batch: int, bandwidth: float) -> list[PrecisionRow]:
    """Time steps of a gated Transformer-XL in all formats, in turns."""
    width, layers = (32, 2) if config.quick else (config.dim, config.layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        settings: Any = CORES["transformer-xl"]
        core = settings(dim=width, num_layers=layers, num_heads=8, memory_len=config.memory_len, gate="gru")
        core = core.build(width).eval()
        inputs = torch.randn(batch, width)
    streams = {name: core.stream(batch, **vars(precision)) for name, precision in FORMATS.items()}
    for stream in streams.values():
        for _ in range(config.memory_len + 1):
            stream.step(inputs)
    steps = {name: partial(stream.step, inputs) for name, stream in streams.items()}
    timings = interleave(steps, config.repeats, min_seconds=config.seconds)
    full = sum(layer.weight.nbytes for layer in core.modules() if isinstance(layer, nn.Linear))
    rows = []
    for name, stream in streams.items():
        read = stream.reduced_nbytes or full
        rows.append(
            PrecisionRow(
                measure="speed",
                format=name,
                batch=batch,
                steps=0,
                agreement=float("nan"),
                first_drift=float("nan"),
                last_drift=float("nan"),
                step_us=round(1e6 * timings[name].best, 1),
                ratio=round(ratio(timings["float32"], timings[name])[0], 2),
                weight_bytes=read,
                stream_bytes=stream.nbytes,
                limit_us=round(1e6 * read / bandwidth, 1),
            )
        )
    return rows


@torch.no_grad()
def measure_agreement(config: PrecisionBenchmark) -> list[PrecisionRow]:
    """Let a trained agent act with float32 weights, and compare what streams in other formats would have done."""
    agent: Any = load_model(config.model).eval()
    settings: Any = load_config(config.model)
    if not hasattr(settings, "world"):
        raise ValueError(f"model={config.model!r}: it does not act in a world: give an agent, as model:t-maze-hcam")
    rows, turns = config.rows, max(PARTS, (640 if config.quick else config.steps) // config.rows)
    world = settings.world.build(rows, seed=config.seed)
    full, others = agent.stream(rows), {name: agent.stream(rows, **vars(FORMATS[name])) for name in list(FORMATS)[1:]}
    equal: dict[str, int] = dict.fromkeys(others, 0)
    drifts: dict[str, list[Tensor]] = {name: [] for name in others}
    step, action = world.reset(), initial_action(world)
    policy, features = no_previous_output(agent, rows, step.reward)
    for _ in range(turns):
        inputs = ActorInputs(step.observation, action, step.reward, policy, features)
        output = full.step(inputs, step.is_first)
        action = agent.distribution(output.policy).mode()
        for name, stream in others.items():
            found = stream.step(inputs, step.is_first).policy
            equal[name] += int(_same_action(agent, found, action).sum())
            drifts[name].append((found - output.policy).norm() / output.policy.norm())
        policy, features = as_previous_output(agent, output)
        step = world.step(action)
    world.close()
    return [
        PrecisionRow(
            measure="agreement",
            format=name,
            batch=rows,
            steps=turns * rows,
            agreement=equal[name] / (turns * rows),
            first_drift=mean_of_parts(drifts[name])[0],
            last_drift=mean_of_parts(drifts[name])[-1],
            step_us=float("nan"),
            ratio=float("nan"),
            weight_bytes=stream.core.reduced_nbytes,
            stream_bytes=stream.nbytes,
            limit_us=float("nan"),
        )
        for name, stream in others.items()
    ]


def mean_of_parts(drifts: Sequence[Tensor]) -> list[float]:
    """Return the mean of each tenth of a run; tenths may differ by one in length."""
    return [float(part.mean()) for part in torch.stack(list(drifts)).tensor_split(PARTS)]


def _same_action(agent: Any, policy: Tensor, action: Tensor) -> Tensor:
    same = agent.distribution(policy).mode() == action
    return same if same.ndim == 1 else same.flatten(1).all(1)


def render_precision(results: PrecisionResults) -> Group:
    """Return the results as tables for a terminal."""
    speed = Table(title="One step of a gated Transformer-XL, one thread")
    for name in ("format", "rows", "step\nµs", "float32 /\nthis", "limit of\nmemory, µs", "weights\nMB", "stream\nMB"):
        speed.add_column(name, justify="left" if name == "format" else "right")
    agreement = Table(title=f"{results.config['model']} beside its float32 weights")
    for name in ("format", "steps", "same\naction", "difference of the policy\nfirst tenth", "last tenth"):
        agreement.add_column(name, justify="left" if name == "format" else "right")
    for row in results.rows:
        if row.measure == "speed":
            sizes = f"{row.weight_bytes / 1e6:.1f}", f"{row.stream_bytes / 1e6:.1f}"
            speed.add_row(
                row.format, str(row.batch), f"{row.step_us:,.0f}", f"{row.ratio:.2f}", f"{row.limit_us:,.0f}", *sizes
            )
        else:
            drifts = f"{row.first_drift:.5f}", f"{row.last_drift:.5f}"
            agreement.add_row(row.format, f"{row.steps:,}", f"{100 * row.agreement:.3f} %", *drifts)
    read = f"Memory was read at {results.bandwidth / 1e9:.1f} GB/s."
    return Group(
        speed, agreement, results.hardware(), f"{read} Best of the rounds; ratios are medians over the rounds."
    )
