"""The command line: parse, call, print.

Every command is a frozen dataclass whose fields are its flags and whose docstring is its help; the work is done by a
function of the library, called in ``run``. Rooms that need torch are imported by the command that needs them, so that
help is fast.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import tyro

import recollect
from recollect.cli.listing import List
from recollect.cli.other_commands import Certify, Demo, Demonstrations, Reproduce, run_benchmark
from recollect.cli.run_commands import Compare, Evaluate, Explore, Watch
from recollect.cli.train import train
from recollect.config import lookup
from recollect.machine import describe_out_of_memory
from recollect.runs.errors import RunError
from recollect.runs.output import Output
from recollect.terminal import print_status, two_columns

COMMANDS: dict[str, tuple[Any, str]] = {
    "list": (List, "cores, tasks, agents, trainers and recipes"),
    "train": (train, "train a core on a task: recollect train recall --core hcam"),
    "evaluate": (Evaluate, "score a run: recollect evaluate runs/recall-hcam-seed0"),
    "demonstrations": (Demonstrations, "record a bot: recollect demonstrations BabyAI-GoToLocal-v0 -o demos.npz"),
    "explore": (Explore, "see what an agent remembers: recollect explore runs/t-maze-hcam-seed0"),
    "compare": (Compare, "runs side by side: recollect compare runs/t-maze-*"),
    "certify": (Certify, "prove the streaming contract: recollect certify all"),
    "benchmark": (run_benchmark, "measure every core or kernel: recollect benchmark cores"),
    "reproduce": (Reproduce, "an experiment of a paper: recollect reproduce copying --scale lite"),
    "watch": (Watch, "a detector on a film or camera: recollect watch FILE --run runs/shape-activities-ttm-seed0"),
    "demo": (Demo, "train an agent, film it, stream it for 100 000 steps, see what it remembers"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done; 1: a line of a certificate or a run of ``reproduce`` failed; 2: invalid input, or a run that had to stop
    (its message names what is saved); 130: Ctrl-C or SIGTERM, after saving.
    """
    words = list(sys.argv[1:] if words is None else words)
    console = Output()
    if not words or words[0] in ("-h", "--help"):
        console.print("[bold]recollect[/]: memory for agents and long streams\n")
        console.print(
            two_columns({name: about for name, (_, about) in COMMANDS.items()} | {"--version": "the version"})
        )
        console.print("\nrecollect COMMAND --help shows its flags. RECOLLECT_TRACEBACK=1 shows tracebacks of errors.")
        return 0
    if words[0] == "--version":
        print(recollect.__version__)
        return 0
    try:
        command, _ = lookup(COMMANDS, words[0], "command")
        if isinstance(command, type):
            return tyro.cli(command, prog=f"recollect {words[0]}", args=words[1:]).run(console)
        return command(words[1:], console)
    except KeyboardInterrupt as interrupt:
        print_status(str(interrupt) or "interrupted", style="yellow")
        return 130
    except (ValueError, OSError, RunError) as error:
        if os.environ.get("RECOLLECT_TRACEBACK"):
            raise
        return _fail(str(error))
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        reason = describe_out_of_memory(error)
        if reason is None or os.environ.get("RECOLLECT_TRACEBACK"):
            raise
        return _fail(f"{reason}: make the sizes smaller")


def _fail(line: str) -> int:
    print_status(f"error: {line}", style="red")
    return 2
