"""Tables of live streams: reduced weights, the store, a server over HTTP, and steps beside busy processes."""

import source_tree  # noqa: F401
from report_tables import read_newest, table_with_source

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
                *(f"{speed[key, n]['step_us'] / 1e3:.2f} ms, {speed[key, n]['ratio']:.2f} x" for n in batches),
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


def serving_table() -> str:
    """Live streams of one process, all with a full memory."""
    found = read_newest("serving")
    rows = [
        (
            row["askers"],
            row["cache"],
            f"{row['steps_per_s']:,}",
            f"{row['steps_per_cpu_s']:,}",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
            f"{row['store_bytes'] / 1e6:,.0f}",
        )
        for row in found["rows"]
    ]
    heads = ["askers", "cache", "steps/s", "steps per processor second", "p50 ms", "p99 ms", "memories, MB"]
    config = found["config"]
    note = f"{config['streams']:,} streams of `{config['model']}`, of which `askers` at a time ask for a step. "
    return table_with_source(heads, rows, found["environment"], note)


def http_table() -> str:
    """A server and its clients on one machine."""
    found = read_newest("http")
    rows = [
        (
            row["connections"],
            row["together"],
            f"{row['steps_per_s']:,}",
            *(f"{row[key]:.1f}" for key in ("p50_ms", "p99_ms")),
        )
        for row in found["rows"]
    ]
    heads = ["connections", "streams of one request", "steps/s", "p50 ms", "p99 ms"]
    note = f"`recollect serve {found['config']['model']}` and its clients, a process each. "
    return table_with_source(heads, rows, found["environment"], note)


def neighbours_table() -> str:
    """Answer times beside busy processes, by the default number of threads."""
    found = read_newest("neighbours")
    rows = [
        (
            f"`{row['core']}`",
            row["neighbours"],
            *(f"{row[key]:,.0f}" for key in ("p50_us", "p99_us", "worst_us")),
            f"{row['p99_over_p50']:.1f}",
        )
        for row in found["rows"]
        if row["form"] == "default"
    ]
    heads = ["core", "busy processes", "p50 us", "p99 us", "worst us", "p99 / p50"]
    return table_with_source(heads, rows, found["environment"])
