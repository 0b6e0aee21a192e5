"""``recollect train ... --seeds 0 1 2``: a process for each seed, then a table of them all.

Each run is a process of its own, so that its numbers are those of a single run and a crash ends no other. Run one after
the other, each has the whole machine; ``--parallel N`` divides the processor's cores among N runs.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console

from recollect.runs.interrupts import PARENT, Interrupts
from recollect.terminal import print_status, print_table


def train_seeds(
    words: Sequence[str], seeds: Sequence[int], parallel: int, folders: Mapping[int, Path], console: Console
) -> int:
    """Run ``recollect train`` for every seed and compare.

    Args:
        words: the command line, ``--seeds`` included.
        seeds: of the runs.
        parallel: number of runs at a time.
        folders: run directory of every seed.
        console: for the table.

    Returns:
        The exit status: 0, or that of the first run that failed.
    """
    plain = _without(words)
    environment = os.environ | {PARENT: str(os.getpid())}
    if parallel > 1:
        environment.setdefault("OMP_NUM_THREADS", f"{max(1, (os.cpu_count() or 1) // parallel)}")
    running: list[subprocess.Popen[str]] = []
    stopped: list[int] = []

    def run(seed: int) -> int:
        if stopped:
            return 130
        own = [*plain, "--directory", str(folders[seed]), "--seed", str(seed)]
        command = [sys.executable, "-m", "recollect", "train", *own]
        piped = subprocess.PIPE if parallel > 1 else None
        console.print(f"seed {seed}: {folders[seed]}", highlight=False, soft_wrap=True, markup=False)
        with subprocess.Popen(command, stdout=piped, text=True, env=environment) as process:
            running.append(process)
            for line in process.stdout or ():
                console.print(f"seed {seed}: {line.rstrip()}", highlight=False, soft_wrap=True, markup=False)
        return process.returncode

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        for process in running:  # Ctrl-C reaches them by itself, as they share the terminal
            if number != signal.SIGINT and process.poll() is None:
                process.send_signal(number)

    before = {number: signal.signal(number, stop) for number in Interrupts.SIGNALS}
    try:
        with ThreadPoolExecutor(max(1, parallel)) as pool:
            codes = list(pool.map(run, seeds))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped:
        print_status("stopped: the same command with --resume continues every seed", style="yellow")
        return 130
    for seed, code in zip(seeds, codes, strict=True):
        if code:
            print_status(f"seed {seed} ended with status {code}", style="red")
    print_comparison([folders[seed] for seed, code in zip(seeds, codes, strict=True) if not code], console)
    return next((code for code in codes if code), 0)


def print_comparison(directories: Sequence[Path], console: Console) -> None:
    """Print a table that compares runs; nothing without runs."""
    if not directories:
        return
    from recollect.comparison.compare import compare
    from recollect.comparison.page import table_rows

    found = compare(directories)
    for task in found.tasks:
        print_table(console, task, table_rows(found.of(task)), figures=True)
    names = " ".join(quote(str(directory)) for directory in directories)
    console.print(f"next: recollect compare {names}", highlight=False, soft_wrap=True, markup=False)


def _without(words: Sequence[str]) -> list[str]:
    """Remove ``--seeds``, ``--parallel`` and ``--directory`` from the words."""
    kept, skipping = [], False
    for word in words:
        if word.startswith("-"):
            skipping = word.partition("=")[0] in ("--seeds", "--parallel", "--directory")
        if not skipping:
            kept.append(word)
    return kept
