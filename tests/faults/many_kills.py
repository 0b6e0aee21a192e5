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

from recollect.agents import ActivityDetectorConfig, SiTConfig
from recollect.agents.config import DecisionTransformerConfig
from recollect.cores import CORES
from recollect.encoders import TransformerConfig
from recollect.evaluation.recordings import demonstrate, write_recording
from recollect.runs import checkpoints
from recollect.runs.metrics import read_rows
from recollect.tasks import ListOps, Recall, ShapeActivities, Shapes
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import (
    ClassificationConfig,
    CloningConfig,
    DetectionConfig,
    EvaluationConfig,
    FitConfig,
    ImpalaConfig,
    OfflineConfig,
    OfflineDataConfig,
    ScheduleConfig,
    SelfSupervisedConfig,
    SupervisedConfig,
    TargetsConfig,
    fit,
)

PLAN = FitConfig(
    steps=12, report_every=2, report_seconds=None, evaluate_every=3, checkpoint_every=2, keep_checkpoints=2
)
SYNCHRONOUS = ImpalaConfig(
    world=TMazeConfig(length=2),
    core=CORES["gru"](dim=4, num_layers=1),
    fit=PLAN,
    batch_size=2,
    unroll=3,
    evaluation=EvaluationConfig(episodes=4),
)
RUNS = {
    "supervised": SupervisedConfig(
        task=Recall(num_keys=3, num_values=2, num_cues=1, num_queries=1, min_blank=0, max_blank=2, length=12),
        core=CORES["gru"](dim=4, num_layers=1, dropout=0.2),
        fit=PLAN,
        batch_size=2,
        unroll=5,
        evaluation_rows=8,
    ),
    "synchronous": SYNCHRONOUS,
    "classification": ClassificationConfig(
        task=ListOps(min_length=5, max_length=20, train_rows=60, validation_rows=20, test_rows=20),
        encoder=TransformerConfig(dim=8, num_layers=1, num_heads=2, dropout=0.2),
        fit=PLAN,
        batch_size=4,
    ),
    "self-supervised": SelfSupervisedConfig(
        task=Shapes(size=16),
        encoder=TransformerConfig(dim=8, num_layers=1, num_heads=2, dropout=0.2),
        agent=SiTConfig(embedding_dim=8, contrast_dim=4),
        fit=PLAN,
        batch_size=4,
        probe_rows=20,
        evaluation_rows=20,
    ),
    "detection": DetectionConfig(
        task=ShapeActivities(length=12, max_lag=4, size=16, boxes=1),
        core=CORES["ttm"](dim=8, num_tokens=4, num_slots=3, num_reads=2, num_heads=2, hidden_dim=8),
        agent=ActivityDetectorConfig(size=16, width=8),
        fit=PLAN,
        batch_size=2,
        evaluation_rows=4,
    ),
    "cloning": CloningConfig(
        world=TMazeConfig(length=2),
        core=CORES["gru"](dim=4, num_layers=1),
        fit=PLAN,
        batch_size=2,
        unroll=3,
        evaluation=EvaluationConfig(episodes=4),
    ),
    "decision-transformer": OfflineConfig(
        world=TMazeConfig(length=2),
        core=CORES["gru"](dim=8, num_layers=1),
        agent=DecisionTransformerConfig(width=8, context=4, dropout=0.2),
        data=OfflineDataConfig(source="episodes.npz"),
        fit=PLAN,
        batch_size=2,
        evaluation=TargetsConfig(episodes=4, targets=(0.0,)),
    ),
    "asynchronous": replace(SYNCHRONOUS, schedule=ScheduleConfig(mode="asynchronous", actors=2, queue_length=3)),
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
    config, exact = RUNS[kind], kind != "asynchronous"
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
