"""Print the seconds that the help of every command takes: the least of five, processor time and wall time.

    python benchmarks/help_times.py [COMMAND ...]

The bar is 0.5 s.
"""

import resource
import subprocess
import sys
import time

import source_tree  # noqa: F401
from recollect.cli import COMMANDS


def seconds_of_help(command: str) -> tuple[float, float]:
    """Return processor seconds and wall seconds of ``recollect COMMAND --help``."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "recollect", command, "--help"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - start


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMANDS:
        processor, wall = zip(*(seconds_of_help(name) for _ in range(5)), strict=True)
        print(f"{name:15} processor {min(processor):.2f} s   wall {min(wall):.2f} s")
