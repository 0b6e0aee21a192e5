"""The command line: parse, call, print.

Every command is a frozen dataclass whose fields are its flags and whose docstring is its help; the work is done by a
function of the library, called in ``run``. Rooms that need torch are imported by the command that needs them, so that
help is fast.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import recollect
from recollect.cli.parser import parse_flags
from recollect.config import lookup
from recollect.learners import process_rank
from recollect.machine import describe_out_of_memory
from recollect.runs.errors import RunError
from recollect.runs.output import Output
from recollect.terminal import print_status, two_columns

COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("listing:List", "cores, tasks, agents, trainers, recipes and models"),
    "train": ("train:train", "train a core on a task: recollect train recall --core hcam"),
    "evaluate": ("run_commands:Evaluate", "score a run: recollect evaluate runs/recall-hcam-seed0"),
    "demonstrations": (
        "other_commands:Demonstrations",
        "record a bot: recollect demonstrations BabyAI-GoToLocal-v0 -o demos.npz",
    ),
    "export": (
        "run_commands:Export",
        "a model that runs without this library: recollect export runs/recall-hcam-seed0 --to out",
    ),
    "serve": ("serve:Serve", "live streams of a model over HTTP: recollect serve runs/t-maze-hcam-seed0"),
    "explore": ("run_commands:Explore", "see what an agent remembers: recollect explore runs/t-maze-hcam-seed0"),
    "compare": ("run_commands:Compare", "runs side by side: recollect compare runs/t-maze-*"),
    "certify": ("other_commands:Certify", "check the streaming contract: recollect certify all"),
    "benchmark": ("other_commands:run_benchmark", "measure every core or kernel: recollect benchmark cores"),
    "reproduce": ("other_commands:Reproduce", "an experiment of a paper: recollect reproduce copying --scale lite"),
    "watch": (
        "run_commands:Watch",
        "a detector on a film or camera: recollect watch FILE --run runs/shape-activities-ttm-seed0",
    ),
    "push": (
        "run_commands:Push",
        "share a model on the Hugging Face Hub: recollect push runs/t-maze-hcam-seed0 OWNER/NAME",
    ),
    "demo": ("other_commands:Demo", "train an agent, record it, stream it for 10 000 steps, explore its memory"),
}
"""Module and name of every command, imported when it is typed, and its description."""


def load_command(name: str) -> Any:
    """Import a command: a dataclass with ``run``, or a function of the words and the console.

    Raises:
        ValueError: an unknown command.
    """
    module, _, attribute = lookup(COMMANDS, name, "command")[0].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done, also a server that a signal ended; 1: a line of a certificate or a run of ``reproduce`` failed; 2: invalid
    input, or a run that had to stop (its message names what is saved); 130: Ctrl-C or SIGTERM, after saving.
    """
    words = list(sys.argv[1:] if words is None else words)
    console = Output()
    try:
        os.getcwd()
    except FileNotFoundError:  # torch's own libraries would end the process without a word of why
        return _fail("the working directory was deleted: go to another one (cd), and type the command again")
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
        command = load_command(words[0])
        if isinstance(command, type):
            return parse_flags(command, words[1:], program=words[0]).run(console)
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
    if not process_rank():  # several learners meet the same error, and the first one reports it
        print_status(f"error: {line}", style="red")
    return 2
