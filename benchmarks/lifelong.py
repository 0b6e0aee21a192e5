"""What a step costs a stream that forgets nothing, from position 10^3 to 10^6.

    python benchmarks/lifelong.py [--steps 2000] [--threads 2] [--folder FOLDER] [--output FILE]
    python benchmarks/lifelong.py --plot docs/assets/lifelong.png        draws what FILE holds, measures nothing

One stream of a hierarchical chunk memory (width 128, 2 layers, chunks of 64, exact top-8) comes to each position by
``extend``, which the tests prove equal to stepping, and then makes single steps, each of which is timed. Contents
are in host memory for one stream and in a memory-mapped file for another, which takes over its memory.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.cores.hcam.config import HierarchicalChunkMemoryConfig
from recollect.cores.hcam.lifelong import LifelongStream
from recollect.machine import resident_bytes

RESULTS = Path(__file__).parent / "results" / "lifelong.json"
POSITIONS = (1_000, 10_000, 100_000, 1_000_000)
BLOCK = 10_000
"""Steps of one ``extend``."""
AIM_MS = 5.0
"""At most this at the last position, on 2 cores."""
CONFIG = HierarchicalChunkMemoryConfig(
    dim=128, num_layers=2, num_heads=4, memory_len=64, chunk_len=64, num_chunks=16, top_k=8
)


def measure(steps: int, folder: str) -> dict[str, Any]:
    """Walk to all positions and time ``steps`` single steps at each, in memory and in a file."""
    torch.manual_seed(0)
    core = CONFIG.build(CONFIG.dim).eval()
    stream = core.lifelong_stream(1, POSITIONS[-1])
    on_disk = core.lifelong_stream(1, POSITIONS[-1], folder=folder)
    rows, reached, filling = [], 0, 0.0
    for position in POSITIONS:
        begun = time.perf_counter()
        while reached < position:
            size = min(BLOCK, position - reached)
            stream.extend(torch.randn(1, size, CONFIG.dim))
            reached += size
        filling += time.perf_counter() - begun
        on_disk.load_state(stream.state)
        for where, live in (("memory", stream), ("file", on_disk)):
            row = {"position": position, "contents": where, **time_steps(live, steps)}
            row |= {"held_chunks": live.held[0], "resident_bytes": resident_bytes()}
            rows.append(row | {"extend_seconds_so_far": round(filling, 1)})
            print({name: row[name] for name in ("position", "contents", "us_mean", "us_median", "us_p99")}, flush=True)
        reached += steps  # the stream in memory has gone on by these
    return {
        "environment": describe(),
        "config": asdict(CONFIG) | {"capacity_steps": POSITIONS[-1], "batch_size": 1},
        "aim": f"at most {AIM_MS:g} ms per step at position {POSITIONS[-1]:,} on 2 cores",
        "steps_timed": steps,
        "bytes": {"memory": stream.footprint._asdict(), "file": on_disk.footprint._asdict()},
        "file_blocks_bytes": on_disk.store.disk_bytes,  # type: ignore[attr-defined]
        "rows": rows,
    }


def time_steps(stream: LifelongStream, steps: int) -> dict[str, float]:
    """Microseconds of single steps; those that write a chunk are among them."""
    inputs = torch.randn(steps, 1, CONFIG.dim)
    for step in inputs[:10]:  # after a long copy the caches of the processor are cold
        stream.step(step)
    times = []
    for step in inputs[10:]:
        begun = time.perf_counter()
        stream.step(step)
        times.append(1e6 * (time.perf_counter() - begun))
    spread = torch.tensor(times, dtype=torch.float64)
    quantiles = spread.quantile(torch.tensor([0.5, 0.99, 1.0], dtype=torch.float64)).tolist()
    return {
        "us_mean": round(spread.mean().item(), 1),
        **{name: round(q, 1) for name, q in zip(("us_median", "us_p99", "us_max"), quantiles, strict=True)},
    }


def plot(found: dict[str, Any], path: Path) -> None:
    """Median time of a step against position; the band ends at the 99th percentile."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    chart, axes = plt.subplots(figsize=(8, 4.2), dpi=160)
    for where, colour, words in (("memory", "C0", "contents in host memory"), ("file", "C1", "in a mapped file")):
        rows = [row for row in found["rows"] if row["contents"] == where]
        x = [row["position"] for row in rows]
        middle, high = ([row[name] / 1000 for row in rows] for name in ("us_median", "us_p99"))
        axes.plot(x, middle, marker="o", color=colour, label=words)
        axes.fill_between(x, middle, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(AIM_MS, color="0.5", linestyle="--", linewidth=1)
    axes.annotate(f"aim: {AIM_MS:g} ms", (POSITIONS[0], AIM_MS), xytext=(0, 4), textcoords="offset points", color="0.4")
    axes.set(xscale="log", xlabel="steps remembered", ylabel="time of one step (ms)")
    axes.set_ylim(0, 1.05 * max(AIM_MS, *(row["us_p99"] / 1000 for row in found["rows"])))
    threads = found["environment"]["threads"]
    axes.set_title(f"A million steps, exact recall (width 128, 2 layers, threads: {threads})", loc="left", fontsize=12)
    axes.legend(frameon=False, loc="center left")  # the aim stands above
    chart.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="single steps that are timed at each position")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", help="where the file is made; a temporary one when not given")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, help="draw the results in --output and measure nothing")
    options = parser.parse_args()
    if options.plot is not None:
        plot(json.loads(options.output.read_text()), options.plot)
        return
    torch.set_num_threads(options.threads)
    with TemporaryDirectory(dir=options.folder) as folder:
        found = measure(options.steps, folder)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
