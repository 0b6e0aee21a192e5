"""Tables of the benchmark of cores for a terminal."""

from rich.console import Group
from rich.table import Table

from recollect.benchmark.results import CoreFacts, Results, Row


def render(results: Results) -> Group:
    """Return the results as tables for a terminal."""
    batches = sorted({row.batch for row in results.rows})
    positions = sorted({row.position for row in results.rows if row.position is not None})
    return Group(
        *(sequence_table(results, batch) for batch in reversed(batches)),
        *(stream_table(results, batch, positions) for batch in batches),
        footer(results),
    )


def sequence_table(results: Results, batch: int) -> Table:
    """Return the table of training and forward passes at one batch size."""
    steps = next((row.steps for row in results.rows if row.measure == "train"), 0)
    table = Table(title=f"Whole sequences, batch {batch} x {steps} steps: steps/s (share of the matmul peak)")
    table.add_column("core")
    table.add_column("parameters", justify="right")
    for dtype in ("f32", "bf16"):
        for name in ("train", "with resets", "forward"):
            table.add_column(f"{name}\n{dtype}", justify="right")
    for core in results.cores:
        cells = [
            _rate(results.find(core.core, measure, dtype, batch))
            for dtype in ("float32", "bfloat16")
            for measure in ("train", "train-resets", "forward")
        ]
        table.add_row(core.core, _count(core.parameters), *cells)
    return table


def stream_table(results: Results, batch: int, positions: list[int]) -> Table:
    """Return the table of single steps at one batch size."""
    table = Table(title=f"Streams, batch {batch}: microseconds per step, by position")
    table.add_column("core")
    for position in positions:
        table.add_column(f"f32\n{position:,}", justify="right")
    table.add_column(f"bf16\n{positions[-1] if positions else 0:,}", justify="right")
    names = ("last /\n10^3", "resident\ngrowth", "state", "stream\nbuffers", "FLOPs\nper step", "counted /\nformula")
    for name in names:
        table.add_column(name, justify="right")
    for core in results.cores:
        rows = [results.find(core.core, "stream", "float32", batch, position) for position in positions]
        low = results.find(core.core, "stream", "bfloat16", batch, positions[-1]) if positions else None
        table.add_row(
            core.core,
            *map(_microseconds, [*rows, low]),
            _growth(rows, positions),
            _resident(core),
            _bytes(core.state_bytes * batch),
            _bytes(core.stream_bytes) if batch == 1 else "",
            _count(core.flops_per_step),
            f"{core.flops_counted / core.flops_per_step:.3f}" if core.flops_per_step else "-",
        )
    return table


def footer(results: Results) -> str:
    """Return hardware and date, and the meaning of the columns."""
    peaks = results.cores[-1].peak if results.cores else {}
    peak = ", ".join(f"{dtype} {value / 1e9:.0f} GFLOP/s" for dtype, value in peaks.items())
    return "\n".join(
        (
            results.hardware(),
            f"matmul peak ({256 if results.config['quick'] else 2048} cubed): {peak}. {results.environment['date']}",
            "Share: FLOPs that the equations need (x 3 for training) against that peak. Best of the repeats.",
            "Resident growth: from the first position to the last; ~ marks streams that long calls advanced.",
        )
    )


def _rate(row: Row | None) -> str:
    return "-" if row is None else f"{row.steps_per_s:,.0f} ({100 * row.share_of_peak:.0f} %)"


def _microseconds(row: Row | None) -> str:
    return "-" if row is None else f"{row.us_per_call:,.0f}"


def _growth(rows: list[Row | None], positions: list[int]) -> str:
    by_position = dict(zip(positions, rows, strict=True))
    early, late = by_position.get(1_000), next((row for row in reversed(rows) if row is not None), None)
    return f"{late.us_per_call_median / early.us_per_call_median:.2f}" if early and late else "-"


def _resident(core: CoreFacts) -> str:
    reached = [point for point in core.walk if point["how"] != "skipped"]
    mark = "~" if any(point["how"] == "jumped" for point in reached) else ""
    return f"{mark}{reached[-1]['resident_growth'] / 1e6:+.1f} MB" if reached else "-"


def _bytes(value: float) -> str:
    return _scaled(value, (" B", " kB", " MB", " GB"))


def _count(value: float) -> str:
    return _scaled(value, ("", "k", "M", "G"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}{units[-1]}"
