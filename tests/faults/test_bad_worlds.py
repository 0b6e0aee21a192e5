"""Whatever a world does, the run saves what it has, says one clear line, and goes on when the world is right again."""

import os
import re
import signal
import threading
import time

import pytest
import torch
from bad_worlds import BrittleConfig, Plan

from recollect.cli import main
from recollect.cores import CORES
from recollect.runs import checkpoints
from recollect.runs.errors import NonFiniteError, RunError, WorldError
from recollect.runs.metrics import read_rows
from recollect.training import EvaluationConfig, FitConfig, ImpalaConfig, ScheduleConfig, evaluate_run, fit
from tiers import first

RAISING = ("raise", "oserror", "value-error", "assert", "key-error", "memory", "recursion", "stop-iteration")
LEAVING = ("exit", "keyboard")
HANGING = ("hang", "busy", "stubborn")
NONSENSE = (
    *("none", "tuple", "wide-observation", "flat-observation", "one-row", "array-observation", "no-observation"),
    *("dict-observation", "column-reward", "number-reward", "whole-reward", "float-flags", "list-flags", "short-flags"),
)
NUMBERS = ("nan-reward", "inf-reward", "nan-observation")
QUICK = ("raise", "value-error", "exit", "keyboard", "hang", "stubborn", "none", "one-row", "column-reward")


def cases():
    """(fault, moment, world): quick ones, and the others marked slow."""
    for world, moment in ((0, "step"), (1, "step"), (1, "reset"), (1, "constructor"), (0, "reset"), (0, "constructor")):
        silent = moment == "constructor"
        answers = () if silent else (*NONSENSE, *(NUMBERS if moment == "step" else ()))
        starting = world == 0 and moment != "step"  # there a KeyboardInterrupt is a person's, who ends the program
        for fault in (*RAISING, *LEAVING[: 1 if starting else 2], *HANGING, *answers):
            quick = fault in QUICK[:5] if moment != "step" else fault in (*QUICK, *NUMBERS[:1])
            yield pytest.param(fault, moment, world, marks=() if quick else pytest.mark.slow)
    yield pytest.param("nan-score", "step", 1)
    yield pytest.param("no-world", "constructor", 0)


LIMIT = 2.0
"""Seconds that a hanging world gets. Sound ones are never that slow, however busy the machine: see :func:`config`."""
FOREVER = 30.0
"""A world hangs for twice as long."""


def config(limit=FOREVER, **fit_settings):
    plan = {"steps": 6, "report_every": 2, "evaluate_every": 4, "checkpoint_every": 3, "report_seconds": None}
    return ImpalaConfig(
        world=BrittleConfig(),
        core=CORES["gru"](dim=4, num_layers=1),
        fit=FitConfig(**plan | fit_settings),
        batch_size=4,
        unroll=4,
        schedule=ScheduleConfig(timeout=limit),
        evaluation=EvaluationConfig(episodes=4, time_limit=limit),
    )


@pytest.fixture(autouse=True)
def plan(monkeypatch):
    for name, value in (("fault", ""), ("moment", "step"), ("world", 0), ("built", 0), ("release", False)):
        monkeypatch.setattr(Plan, name, value)
    yield monkeypatch
    Plan.release = True


def arrange(fault, moment="step", world=0):
    Plan.fault, Plan.moment, Plan.world, Plan.built = fault, moment, world, 0
    Plan.hangs.clear()


def numbers(path):
    clocks = ("seconds", "frames_per_second")
    return [{k: v for k, v in row.items() if k not in clocks} for row in read_rows(path / "metrics.csv")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    return fit(config(), path).agent.state_dict(), numbers(path)


@pytest.mark.parametrize(("fault", "moment", "world"), first(10, cases()))
def test_a_bad_world_is_named_saved_and_survived(tmp_path, whole, fault, moment, world):
    arrange(fault, moment, world)
    settings = config(LIMIT if fault in HANGING else FOREVER)
    began = time.monotonic()
    with pytest.raises(RunError) as caught:
        fit(settings, tmp_path / "run")
    assert time.monotonic() - began < FOREVER
    line = str(caught.value)
    assert "\n" not in line.strip() and len(line) < 700
    assert "world" in line
    begun = world > 0 or moment == "step"
    if begun:
        step = checkpoints.steps(tmp_path / "run" / "checkpoint")[-1]
        assert step == (4 if world else 2)  # nothing is lost but the step that failed
        assert f"step {step} is saved in" in line
    else:
        assert "nothing was written" in line and not (tmp_path / "run").exists()
    arrange("")
    resumed = fit(settings, tmp_path / "run", resume=begun)
    weights, rows = whole
    assert resumed.status == "finished"
    assert numbers(tmp_path / "run") == rows
    assert all(torch.equal(value, weights[name]) for name, value in resumed.agent.state_dict().items())


def test_rows_that_never_end_are_named(tmp_path):
    arrange("endless")
    with pytest.raises(WorldError, match=r"is not over after 2 s; 2 of 4 rows .*: 1, 3; all of them ended none"):
        fit(config(LIMIT), tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run" / "checkpoint")[-1] == 4


@pytest.mark.long
def test_the_remedies_for_an_environment_without_a_time_limit_help(tmp_path, capsys):
    """An untrained agent never leaves the cliff."""
    small = ["--core.dim", "4", "--steps", "2", "--batch-size", "4", "--unroll", "4", "--evaluation.episodes", "1"]
    begin = ["train", "gym:CliffWalking-v1", "--core", "gru", *small, "--directory"]
    assert main([*begin, str(tmp_path / "run"), "--evaluation.time-limit", "1"]) == 2
    said = capsys.readouterr().err
    assert "CliffWalking-v1: an evaluation of 1 episodes is not over after 1 s" in said
    assert "raise evaluation.time_limit, then resume" in said
    resume = ["train", "--resume", "--directory", str(tmp_path / "run"), "--evaluation.time-limit", "2"]
    assert main(resume) == 2 and "is not over after 2 s" in capsys.readouterr().err
    option, limit = re.search(r"of a Gymnasium environment (\S+) (\w+=\d+)", said).groups()
    assert main([*begin, str(tmp_path / "new"), option, limit, "--from", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("fault", NUMBERS)
def test_numbers_of_a_world_are_not_blamed_on_the_learning_rate(tmp_path, fault):
    arrange(fault)
    with pytest.raises(NonFiniteError, match=r"(?i)the world gave it: fix the world") as caught:
        fit(config(), tmp_path / "run")
    assert "learning rate" not in str(caught.value)


@pytest.mark.parametrize("fault", ["raise", "exit", "hang"])
def test_a_world_that_does_not_close_costs_nothing(tmp_path, whole, monkeypatch, fault):
    monkeypatch.setattr("recollect.evaluation.world_guard.CLOSING", 0.2)
    arrange(fault, "close")
    with pytest.warns(RuntimeWarning, match="left open"):
        assert fit(config(), tmp_path / "run").status == "finished"
    assert numbers(tmp_path / "run") == whole[1]


@pytest.mark.parametrize(
    ("fault", "moment"), [("raise", "step"), ("exit", "reset"), ("none", "step"), ("hang", "step")]
)
def test_an_evaluation_of_a_finished_run_names_the_world(tmp_path, fault, moment):
    fit(config(LIMIT), tmp_path / "run")
    arrange(fault, moment, 1)
    Plan.built = 1
    with pytest.raises(WorldError, match=r"Brittle( in its \w+)?: .*then try again"):
        evaluate_run(tmp_path / "run", samples=4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("world", "step"), [(0, 2), (1, 4)])
def test_one_signal_ends_a_hanging_world_and_saves(tmp_path, whole, monkeypatch, number, world, step):
    monkeypatch.setattr("recollect.training.impala.rollouts.PATIENCE", 0.1)
    arrange("hang", "step", world)
    patient = config(2 * FOREVER)

    def press():
        if Plan.hangs.wait(FOREVER):
            time.sleep(0.2)  # a signal just before Python begins to sleep does not wake it
            os.kill(os.getpid(), number)

    threading.Thread(target=press, daemon=True).start()
    began = time.monotonic()
    outcome = fit(patient, tmp_path / "run")
    assert time.monotonic() - began < FOREVER
    assert (outcome.status, outcome.step) == ("interrupted", step)
    arrange("")
    assert fit(patient, tmp_path / "run", resume=True).status == "finished"
    assert numbers(tmp_path / "run") == whole[1]
