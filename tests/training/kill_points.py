"""Trains a tiny run in many real processes that are killed with SIGKILL, and resumes each; prints JSON.

Run by test_kills.py. One interpreter forks a process per attempt, so that torch is imported once.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from recollect import files
from recollect.cores import CORES
from recollect.evaluation import sequences
from recollect.runs import checkpoints
from recollect.runs.folder_lock import FolderLock
from recollect.runs.metrics import MetricsFile, read_rows
from recollect.runs.run_directory import RunDirectory
from recollect.training import FitConfig, SupervisedConfig, fit
from recollect.training.streams.supervised import SupervisedTrainer
from small_runs import recall

CONFIG = SupervisedConfig(
    task=recall(12),
    core=CORES["gru"](dim=8, num_layers=1, dropout=0.2),
    fit=FitConfig(
        steps=12, report_every=2, report_seconds=None, evaluate_every=6, checkpoint_every=3, keep_checkpoints=1
    ),
    batch_size=4,
    unroll=5,
    evaluation_rows=8,
)


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(owner, name, number, before):
    """Kill this process at the number-th call of ``owner.name``, before or after it."""
    original = getattr(owner, name)
    calls = []

    def wrapped(*arguments, **named):
        calls.append(1)
        if len(calls) == number and before:
            die()
        result = original(*arguments, **named)
        if len(calls) == number:
            die()
        return result

    setattr(owner, name, wrapped)


def half_written(number):
    """Kill in the middle of the number-th file of a checkpoint."""
    original = files.write_synced
    calls = []

    def write(path, content):
        calls.append(1)
        if len(calls) == number:
            path.write_bytes(content[: len(content) // 2])
            die()
        original(path, content)

    files.write_synced = write


def half_a_row(number):
    """Kill in the middle of the number-th row of metrics.csv."""
    calls = []
    original = MetricsFile.append

    def append(self, step, metrics):
        calls.append(1)
        if len(calls) == number:
            with open(self.path, "a") as file:
                file.write(f"{step},0.1")
            die()
        original(self, step, metrics)

    MetricsFile.append = append


# Files written: 2 when the directory is opened, 1 for the metrics' head, then 4 per checkpoint: of step 3, of the best
# evaluation (step 6), of step 6, of step 9, of step 12.
POINTS = {
    "before the model": lambda: at_call(SupervisedConfig, "build_agent", 1, True),
    "before the lock": lambda: at_call(FolderLock, "acquire", 1, True),
    "behind the lock": lambda: at_call(FolderLock, "acquire", 1, False),
    "before the config": lambda: at_call(RunDirectory, "open", 1, True),
    "in config.json": lambda: half_written(1),
    "in environment.json": lambda: half_written(2),
    "in the metrics' head": lambda: half_written(3),
    "at the first step": lambda: at_call(SupervisedTrainer, "step", 1, True),
    "between checkpoints": lambda: at_call(SupervisedTrainer, "step", 8, False),
    "in an evaluation": lambda: at_call(SupervisedTrainer, "evaluate", 2, True),
    "at the beginning of an evaluation": lambda: at_call(sequences, "answer_score", 1, True),
    "at the end of an evaluation": lambda: at_call(SupervisedTrainer, "evaluate", 1, False),
    "at the end of the last evaluation": lambda: at_call(SupervisedTrainer, "evaluate", 2, False),
    "in a row of metrics": lambda: half_a_row(4),
    "after a row of metrics": lambda: at_call(MetricsFile, "append", 3, False),
    "in the first checkpoint": lambda: half_written(4),
    "in the best weights": lambda: half_written(8),
    "in the best manifest": lambda: half_written(11),
    "in the weights": lambda: half_written(12),
    "in the optimiser": lambda: half_written(13),
    "in the progress": lambda: half_written(14),
    "in the manifest": lambda: half_written(15),
    "before the best is renamed": lambda: at_call(Path, "rename", 2, True),
    "after the best is renamed": lambda: at_call(Path, "rename", 2, False),
    "before the rename": lambda: at_call(Path, "rename", 3, True),
    "after the rename": lambda: at_call(Path, "rename", 3, False),
    "while old ones are dropped": lambda: at_call(shutil, "rmtree", 1, True),
    "in the last checkpoint": lambda: half_written(3 + 4 * 4 + 2),
    "before the last rename": lambda: at_call(Path, "rename", 5, True),
    "at the end": lambda: at_call(FolderLock, "release", 1, True),
}


def child(directory, prepare, resume):
    pid = os.fork()
    if pid == 0:
        prepare()
        fit(CONFIG, directory, resume=resume)
        os._exit(0)
    return pid


def finish(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def result(directory):
    found, torn = checkpoints.read_newest(directory / "checkpoint")
    assert found is not None and not torn
    rows = [[v for k, v in row.items() if k != "seconds"] for row in read_rows(directory / "metrics.csv")]
    weights = {name: value.tolist() for name, value in found.weights.items()}
    training = {name: value.tolist() for name, value in found.training.items()}
    best, torn = checkpoints.read_newest(directory / "best")
    assert best is not None and not torn
    evaluated = {"best": best.progress["best"], "of": {name: value.tolist() for name, value in best.weights.items()}}
    return {"step": found.progress["step"], "weights": weights, "training": training, "rows": rows} | evaluated


def main(folder):
    torch.set_num_threads(1)
    os.fsync = lambda handle: None  # only a machine that stops loses what was not synced; a killed process does not
    # Load here what torch loads late. No backward pass: its threads would not survive a fork.
    CONFIG.build().evaluate()
    began = time.perf_counter()
    assert finish(child(folder / "whole", lambda: None, False)) == 0
    duration = time.perf_counter() - began
    whole = result(folder / "whole")
    report = {}
    for number, (name, prepare) in enumerate(POINTS.items()):
        directory = folder / f"point-{number}"
        killed = finish(child(directory, prepare, True))
        resumed = finish(child(directory, lambda: None, True))
        report[name] = [killed, resumed, resumed == 0 and result(directory) == whole]
    clock = random.Random(0)
    for number in range(4):  # and at moments that nobody chose, several times in one run
        directory = folder / f"clock-{number}"
        codes = []
        for _ in range(2):
            pid = child(directory, lambda: None, True)
            time.sleep(clock.uniform(0, duration))
            os.kill(pid, signal.SIGKILL)
            codes.append(finish(pid))
        resumed = finish(child(directory, lambda: None, True))
        report[f"by the clock, {number}"] = [codes[0], resumed, resumed == 0 and result(directory) == whole]
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
