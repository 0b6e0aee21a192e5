"""Tables of cores inside other engines: what they learn there, and what they cost beside the engine's own memory."""

from statistics import median

import source_tree  # noqa: F401
from recollect.recipes.result_tables import markdown_table
from report_tables import MEASURED, Row, measured_where, read, table_with_source

ENGINES = {"ours": "Recollect (IMPALA)", "one-file": "`examples/ppo.py`", "sb3": "sb3-contrib RecurrentPPO"}
ENGINES |= {"torchrl": "TorchRL PPO", "rllib": "RLlib PPO"}
WORLDS = {"t-maze": "T-maze of 20, 95 % right", "masked-cartpole": "CartPole without speeds, 400"}


def learning_table() -> str:
    """Environment steps until the goal, by engine and memory."""
    found = read(MEASURED / "engines-learning.json")["rows"]
    rows = []
    for world, goal in WORLDS.items():
        for engine, title in ENGINES.items():
            for memory in ("lstm", "own LSTM"):
                runs = [
                    row for row in found
                    if (row["world"], row["engine"], row["memory"]) == (world, engine, memory)
                ]  # fmt: skip
                if runs:
                    rows.append((goal, title, f"`{memory}`" if memory == "lstm" else "its own LSTM", *_learned(runs)))
    heads = ["goal", "engine", "memory", "reached", "environment steps, by seed", "processor seconds, median"]
    newest = max(found, key=lambda row: row["environment"]["date"])["environment"]
    where = measured_where({**newest, "command": "benchmarks/engines_learning.py ENGINE --world WORLD --seeds ..."})
    return f"{markdown_table(heads, rows, 'lllrrr')}\n\n{where}"


def _learned(runs: list[Row]) -> tuple[str, ...]:
    steps = [f"{row['steps']:,}" if row["reached"] else f"{row['score']:g} after {row['steps']:,}" for row in runs]
    reached = sum(row["reached"] for row in runs)
    return f"{reached} of {len(runs)}", ", ".join(steps), f"{median(row['processor_seconds'] for row in runs):.0f}"


def cost_table(engine: str) -> str:
    """Time and bytes of a core in one engine beside its own memory."""
    found = read(MEASURED / f"engine-{engine}.json")
    rows = [
        (
            row["name"],
            f"{row['ours']:,.2f} {row['unit']}",
            *(f"{row[key]:,.2f}" if key in row else "-" for key in ("own", "ratio")),
        )
        for row in found["rows"]
    ]
    return table_with_source(["measure", "ours", "the engine's own", "ours / own"], rows, found["environment"])
