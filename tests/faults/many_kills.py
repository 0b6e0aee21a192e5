"""Kills many tiny runs with SIGKILL at moments that nobody chose, and resumes each; prints JSON.

Run by test_many_kills.py: ``many_kills.py FOLDER KIND NUMBER``. One interpreter forks a process per attempt.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from recollect.evaluation.recordings import demonstrate, write_recording
from recollect.runs import checkpoints
from recollect.runs.metrics import read_rows
from recollect.training import FitConfig, OfflineDataConfig, ScheduleConfig, fit
from small_runs import GRU, RUNS

PLAN = FitConfig(
    steps=12, report_every=2, report_seconds=None, evaluate_every=3, checkpoint_every=2, keep_checkpoints=2
)
DROPOUT = replace(GRU, dropout=0.2)  # the global generator matters too


def _killed(key, **changes):
    return replace(RUNS[key], fit=PLAN, batch_size=2, **changes)


CONFIGS = {
    "supervised": _killed("supervised", core=DROPOUT, unroll=5),
    "classification": _killed("classification", encoder=replace(RUNS["classification"].encoder, dropout=0.2)),
    "self-supervised": _killed("self-supervised", encoder=replace(RUNS["self-supervised"].encoder, dropout=0.2)),
    "detection": _killed("detection"),
    "cloning": _killed("cloning"),
    "decision-transformer": _killed("decision-transformer", core=DROPOUT),
    "synchronous": _killed("impala"),
    "asynchronous": _killed("impala", schedule=ScheduleConfig(mode="asynchronous", actors=2, queue_length=3)),
}
CLOCKS = ("seconds", "frames_per_second")


def child(config, directory):
    pid = os.fork()
    if pid == 0:
        fit(config, directory, resume=True)
        os._exit(0)
    return pid


def finish(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def result(directory, exact):
    found, torn = checkpoints.read_newest(directory / "checkpoint")
    assert found is not None and not torn
    rows = read_rows(directory / "metrics.csv")
    steps = [int(row["step"]) for row in rows]
    if not exact:
        return [found.progress["step"], steps]
    kept = [[value for name, value in row.items() if name not in CLOCKS] for row in rows]
    weights = {name: value.tolist() for name, value in found.weights.items()}
    return [found.progress["step"], steps, kept, weights]


def saved(directory):
    """Step of the newest whole checkpoint."""
    found, _ = checkpoints.read_newest(directory / "checkpoint")
    return 0 if found is None else found.progress["step"]


def main(folder, kind, number):
    torch.set_num_threads(1)
    os.fsync = lambda handle: None
    config, exact = CONFIGS[kind], kind != "asynchronous"
    if kind == "decision-transformer":
        source = folder / "episodes.npz"
        write_recording(demonstrate(config.world, 8), source)
        config = replace(config, data=OfflineDataConfig(source=str(source)))
    if kind not in ("synchronous", "asynchronous", "cloning"):
        config.build().evaluate()  # load here what torch loads late; no thread may survive a fork
    began = time.perf_counter()
    assert finish(child(config, folder / "whole")) == 0
    duration = time.perf_counter() - began
    whole = result(folder / "whole", exact)
    clock = random.Random(kind)
    report = {"kills": 0, "wrong": []}
    attempt = 0
    while report["kills"] < number:
        directory, before = folder / f"run-{attempt}", 0
        attempt += 1
        for _ in range(4):
            pid = child(config, directory)
            time.sleep(clock.uniform(0, 0.8 * duration))
            os.kill(pid, signal.SIGKILL)
            report["kills"] += finish(pid) == -signal.SIGKILL
            if saved(directory) < before:
                report["wrong"].append([attempt, "lost what was saved"])
            before = saved(directory)
        code = finish(child(config, directory))
        if code or result(directory, exact) != whole:
            report["wrong"].append([attempt, code])
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
