"""Tables of live streams: reduced weights, the store, a server over HTTP, and steps beside busy processes."""

import source_tree  # noqa: F401
from report_tables import ResultTable, read_newest, table_with_source, with_aim

FORMATS = {
    "bfloat16": '`weights="bfloat16"`',
    "int8": '`weights="int8"`',
    "cache": '`cache="bfloat16"`',
    "int8, cache": "both `int8` and `cache`",
}


def precision_table() -> str:
    """Agreement of reduced streams with float32, and the time of a step."""
    found = read_newest("precision")
    rows = found["rows"]
    speed = {(row["format"], row["batch"]): row for row in rows if row["measure"] == "speed"}
    agreed = {row["format"]: row for row in rows if row["measure"] == "agreement"}
    batches = found["config"]["batches"]
    lines = [
        ["float32", "-", "-", *(f"{speed['float32', batch]['step_us'] / 1e3:.2f} ms" for batch in batches)],
        *(
            [
                name,
                f"{100 * agreed[key]['agreement']:.3f} %",
                f"{agreed[key]['first_drift']:.4f}, {agreed[key]['last_drift']:.4f}",
                *(f"{speed[key, n]['step_us'] / 1e3:.2f} ms, {speed[key, n]['ratio']:.2f}x" for n in batches),
            ]
            for key, name in FORMATS.items()
        ),
    ]
    config = found["config"]
    steps = f"same action in {config['steps']:,} steps"
    heads = [
        "format",
        steps,
        "difference of the policy, first and last tenth",
        *(f"a step, rows: {n}" for n in batches),
    ]
    limits = [f"{speed[key, batches[0]]['limit_us'] / 1e3:.2f}" for key in ("float32", "bfloat16", "int8")]
    note = (
        f"Agent: `{config['model']}`, seed {config['seed']}. Steps: a gated Transformer-XL of {config['layers']} x "
        f"{config['dim']} ({speed['float32', batches[0]]['weight_bytes'] / 1e6:.0f} MB of weights, window "
        f"{config['memory_len']}), one thread; least of {config['repeats']} rounds, and the median of the ratios to "
        f"float32. Reading the weights alone takes {', '.join(limits)} ms in float32, bfloat16 and int8, at "
        f"{found['bandwidth'] / 1e9:.1f} GB/s. "
    )
    return table_with_source(heads, lines, found["environment"], note)


SERVING = ResultTable(
    "serving-*",
    {
        "requests at once": "{askers}",
        "cache": "{cache}",
        "steps of each stream": lambda row: f"{row['age']} to {row['last_age']:.0f}",
        "chunks filled at the start": lambda row: f"{100 * row['fill']:.0f} %",
        "steps/s": "{steps_per_s:,}",
        "steps per processor second": "{steps_per_cpu_s:,}",
        "p50 ms": "{p50_ms:.1f}",
        "p99 ms": "{p99_ms:.1f}",
        "memories, MB": lambda row: f"{row['store_bytes'] / 1e6:,.0f}",
    },
    note="{streams:,} streams of `{model}`, of which as many ask for a step at once as the first column says. ",
)


def soak_table() -> str:
    """Resident memory of the store over many steps, at every fourth reading and at the last one."""
    found = read_newest("soak")
    *first, last = found["rows"]
    rows = [
        [f"{row['steps']:,}", f"{row['resident_bytes'] / 1e6:,.1f}", f"{row['growth'] / 1e6:+.1f}"]
        for row in (*first[::4], last)
    ]
    return table_with_source(["steps", "resident memory, MB", "growth, MB"], rows, found["environment"])


HTTP = ResultTable(
    "http-*",
    {
        "connections": "{connections}",
        "streams of one request": "{together}",
        "steps/s": "{steps_per_s:,}",
        "p50 ms": "{p50_ms:.1f}",
        "p99 ms": "{p99_ms:.1f}",
    },
    note="`recollect serve {model}` and its clients, a process each. ",
)
NEIGHBOURS = ResultTable(
    "neighbours-*",
    {
        "core": "`{core}`",
        "busy processes": "{neighbours}",
        "p50 µs": "{p50_us:,.0f}",
        "p99 µs": "{p99_us:,.0f}",
        "worst µs": "{worst_us:,.0f}",
        "p99 / p50": "{p99_over_p50:.1f}",
    },
    keeps=lambda row: row["form"] == "default",
)
PEERS = ResultTable(
    "peers-*",
    {
        "what": "{about}",
        "ours, ms": lambda row: f"{min(row['ours_us']) / 1e3:,.1f}",
        "theirs, ms": lambda row: f"{min(row['other_us']) / 1e3:,.1f}",
        "theirs / ours": lambda row: (
            f"{row['ratio']:.2f}" if row["aim"] is None else with_aim(row["ratio"], row["aim"])
        ),
        "lowest to highest": "{lowest:.2f} to {highest:.2f}",
    },
)
