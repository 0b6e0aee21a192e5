"""Steps per second of other people's environments: their vector form, one process, several.

python benchmarks/processes.py [--rows 16] [--seconds 2] [--repeats 3] [--output benchmarks/results/processes.json]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.tasks import GymnasiumConfig
from worlds import measure

IDS = ("CartPole-v1", "MiniGrid-MemoryS7-v0")
FORMS: dict[str, dict[str, Any]] = {
    "vector form": {"native": True},
    "this process": {"native": False},
    **{f"--world.processes {number}": {"native": False, "processes": number} for number in (1, 2, 4)},
}


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", default="benchmarks/results/processes.json", help="'' saves nothing")
    options = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.repeats):  # in turns, so that other work on the machine meets all of them alike
        for id in IDS:
            for form, fields in FORMS.items():
                config = GymnasiumConfig(id=id, **fields)
                if form == "vector form" and config.register().vector_entry_point is None:
                    continue
                speed = measure(config, options.rows, options.seconds, time.perf_counter)
                found.setdefault((id, form), []).append(speed)
                print(f"{id:24s} {form:22s} {speed:10,.0f} steps/s")
    rows = [{"id": id, "form": form, "steps_per_s": round(max(all_of))} for (id, form), all_of in found.items()]
    result = {"environment": describe() | {"command": f"processes.py --rows {options.rows}"}, "rows": rows}
    if options.output:
        Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
