"""Best checkpoints, longer runs, and runs that begin with the weights of another."""

import io
import json
import shutil
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from recollect.cores import CORES
from recollect.runs import checkpoints
from recollect.runs.interrupts import Interrupted
from recollect.runs.metrics import read_rows
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import (
    CloningConfig,
    CloningLossConfig,
    EvaluationConfig,
    FitConfig,
    ImitationConfig,
    ImpalaConfig,
    LossConfig,
    OptimizerConfig,
    SupervisedConfig,
    SupervisionConfig,
    evaluate_run,
    fit,
    load_model,
)
from recollect.training.streams.supervised import SupervisedTrainer
from small_runs import recall

TASK = recall(10)


def config(schedule="constant", dim=6, evaluation_rows=8, **settings):
    settings = {
        "steps": 8,
        "report_every": 4,
        "evaluate_every": 2,
        "checkpoint_every": 4,
        "report_seconds": None,
    } | settings
    return SupervisedConfig(
        task=TASK,
        core=CORES["gru"](dim=dim, num_layers=1),
        optimizer=OptimizerConfig(schedule=schedule),
        fit=FitConfig(**settings),
        batch_size=4,
        evaluation_rows=evaluation_rows,
    )


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def weights(agent):
    return {name: value.clone() for name, value in agent.state_dict().items()}


def scores(monkeypatch, *chosen):
    """Let evaluations have these scores, one after the other; the weights at each are kept."""
    seen, coming = [], iter(chosen)

    def evaluate(self):
        seen.append(weights(self.model))
        return {"score": next(coming), "low": 0.0, "high": 1.0, "perfect": 0.0}

    monkeypatch.setattr(SupervisedTrainer, "evaluate", evaluate)
    return seen


def shown():
    return Console(record=True, width=300, force_terminal=False, file=io.StringIO())


@pytest.mark.parametrize(
    ("chosen", "best"),
    [((0.2, 0.9, 0.5, 0.1), 1), ((0.5, 0.5, 0.5, 0.4), 2), ((0.1, 0.2, 0.3, 0.4), 3), ((float("nan"), -5, -9, -7), 1)],
)
def test_the_best_is_kept_and_of_equal_ones_the_newest(tmp_path, monkeypatch, chosen, best):
    with monkeypatch.context() as patched:
        seen = scores(patched, *chosen)
        outcome = fit(config(), tmp_path / "run")
    assert outcome.best == (chosen[best], 2 * best + 2)
    assert checkpoints.steps(tmp_path / "run" / "best") == [2 * best + 2]
    assert same(weights(load_model(tmp_path / "run", best=True)), seen[best])
    assert same(weights(load_model(tmp_path / "run")), seen[-1])
    assert f"score {chosen[-1]:.4f}; best {chosen[best]:.4f} at step {2 * best + 2}" in outcome.message


def test_the_best_survives_a_resume(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        seen = scores(patched, 0.2, 0.9, 0.5, 0.1)
        fit(config(), tmp_path / "run")
    with monkeypatch.context() as patched:
        scores(patched, 0.8, 0.3)
        outcome = fit(config(steps=12), tmp_path / "run", resume=True)
    assert outcome.best == (0.9, 4)
    assert same(weights(load_model(tmp_path / "run", best=True)), seen[1])
    assert evaluate_run(tmp_path / "run", samples=8, best=True) != evaluate_run(tmp_path / "run", samples=64)


def test_a_run_without_a_best_checkpoint_is_named(tmp_path):
    fit(config(), tmp_path / "run")
    for path in (tmp_path / "run" / "best").glob("*/manifest.json"):
        path.unlink()
    with pytest.raises(ValueError, match=r"has no best checkpoint yet .*manifest.json is missing.* take the newest"):
        evaluate_run(tmp_path / "run", best=True)


def test_a_longer_run_goes_on_where_the_shorter_one_ended(tmp_path):
    whole = fit(config(steps=12), tmp_path / "whole")
    fit(config(steps=6), tmp_path / "run")
    console = shown()
    longer = config(steps=12, evaluate_every=3, report_every=2, stop_score=2.0, evaluation_rows=4)
    resumed = fit(longer, tmp_path / "run", resume=True, console=console)
    assert (resumed.status, resumed.step) == ("finished", 12)
    assert same(weights(whole.agent), weights(resumed.agent))
    assert "learning rate" not in console.export_text()
    assert json.loads((tmp_path / "run/config.json").read_text())["fit"]["steps"] == 12
    assert [int(row["step"]) for row in read_rows(tmp_path / "run/metrics.csv") if row["score"]] == [2, 4, 6, 9, 12]


def test_a_run_that_was_solved_goes_on_to_a_higher_goal(tmp_path):
    solved = fit(config(stop_score=0.0), tmp_path / "run")
    assert (solved.status, solved.step) == ("solved", 2)
    assert fit(config(stop_score=0.0, steps=9), tmp_path / "run", resume=True).step == 2
    assert fit(config(stop_score=2.0), tmp_path / "run", resume=True).step == 8
    assert fit(config(steps=9), tmp_path / "run", resume=True).step == 9


def test_a_schedule_that_falls_to_the_last_step_is_said_to_move(tmp_path):
    fit(config("cosine", steps=6), tmp_path / "run")
    console = shown()
    fit(config("cosine", steps=12), tmp_path / "run", resume=True, console=console)
    text = console.export_text()
    assert "the last step, which is now 12 instead of 6: it continues at 0.0005 (it would have been 0)" in text


def test_training_aids_that_come_back_with_more_steps_are_said_too():
    aids = SupervisionConfig(label_cost=1.0)
    loss = LossConfig(imitation=ImitationConfig(steps=2), supervision=aids)
    short = ImpalaConfig(world=TMazeConfig(), core=CORES["gru"](dim=8), loss=loss, fit=FitConfig(steps=10))
    longer = replace(short, fit=FitConfig(steps=40))
    said = "falls towards the last step, which is now 40 instead of 10: it continues at {} (it would have been 0)"
    supervision = f"the weight of supervision {said.format('0.5')}"
    assert longer.moved_schedules(short, 10) == [supervision, f"the weight of the teacher {said.format('0.579')}"]
    assert replace(short, evaluation=EvaluationConfig(episodes=3)).moved_schedules(short, 10) == []
    cloning = CloningConfig(
        world=TMazeConfig(), core=short.core, loss=CloningLossConfig(supervision=aids), fit=short.fit
    )
    assert replace(cloning, fit=longer.fit).moved_schedules(cloning, 10) == [supervision]


def test_fewer_steps_than_are_done_are_refused_and_nothing_is_written(tmp_path):
    fit(config(steps=6), tmp_path / "run")
    before = (tmp_path / "run/config.json").read_text()
    with pytest.raises(ValueError, match=r"fit\.steps=5: .*run is at step 6 already: give at least that"):
        fit(config(steps=5), tmp_path / "run", resume=True)
    assert (tmp_path / "run/config.json").read_text() == before


@pytest.mark.parametrize("limit", [{"steps": 4}, {"processor_seconds": 1e-9}])
def test_a_killed_run_may_be_told_that_it_has_done_enough(tmp_path, monkeypatch, limit):
    original, killed = SupervisedTrainer.step, KeyError("killed")

    def step(self):
        if self.updates == 6:
            raise killed
        return original(self)

    with monkeypatch.context() as patched:
        patched.setattr(SupervisedTrainer, "step", step)
        with pytest.raises(KeyError, match="killed"):
            fit(config(evaluate_every=3), tmp_path / "run")
    resumed = fit(config(evaluate_every=3, **limit), tmp_path / "run", resume=True)
    assert (resumed.status, resumed.step) == ("finished", 4)
    assert [int(row["step"]) for row in read_rows(tmp_path / "run/metrics.csv") if row["score"]] == [3, 4]
    assert fit(config(evaluate_every=3), tmp_path / "run", resume=True).step == 8


@pytest.mark.parametrize(
    ("changed", "name"),
    [(config(dim=7), r"core\.dim"), (config(seed=1), r"fit\.seed"), (config("linear"), r"optimizer\.schedule")],
)
def test_what_changes_a_step_is_refused_by_name(tmp_path, changed, name):
    fit(config(), tmp_path / "run")
    with pytest.raises(ValueError, match=f"another config: {name}"):
        fit(changed, tmp_path / "run", resume=True)


MAZE = ImpalaConfig(
    world=TMazeConfig(length=3),
    core=CORES["gru"](dim=6, num_layers=1),
    fit=FitConfig(steps=2, evaluate_every=2),
    evaluation=EvaluationConfig(episodes=4),
    batch_size=4,
    unroll=4,
)


def test_an_evaluation_of_a_world_may_change_on_resume(tmp_path):
    fit(MAZE, tmp_path / "run")
    other = replace(MAZE, fit=replace(MAZE.fit, steps=3), evaluation=EvaluationConfig(episodes=6, greedy=False))
    assert fit(other, tmp_path / "run", resume=True).step == 3


def test_rows_by_time_change_no_number(tmp_path):
    plain = fit(config(report_seconds=None), tmp_path / "plain")
    timed = fit(config(report_seconds=1e-9), tmp_path / "timed")
    assert same(weights(plain.agent), weights(timed.agent))

    def rows(name):
        return {row["step"]: row | {"seconds": ""} for row in read_rows(tmp_path / name / "metrics.csv")}

    assert sorted(map(int, rows("timed"))) == list(range(1, 9))
    assert {step: row for step, row in rows("timed").items() if step in rows("plain")} == rows("plain")
    with pytest.raises(ValueError, match="report_seconds=0"):
        FitConfig(report_seconds=0)


def heard(monkeypatch):
    """Weights before the first step."""
    found = []
    original = SupervisedTrainer.step

    def step(self):
        if not self.updates:
            found.append(weights(self.model))
        return original(self)

    monkeypatch.setattr(SupervisedTrainer, "step", step)
    return found


@pytest.mark.parametrize("best", [False, True])
def test_a_run_starts_with_the_weights_of_another(tmp_path, monkeypatch, best):
    with monkeypatch.context() as patched:
        scores(patched, 0.2, 0.9, 0.5, 0.1)
        fit(config(), tmp_path / "first")
    source = tmp_path / "first" / "best" if best else tmp_path / "first"
    found = heard(monkeypatch)
    console = shown()
    fit(config(seed=3), tmp_path / "second", start_from=source, console=console)
    assert same(found[0], weights(load_model(tmp_path / "first", best=best)))
    assert f"starts with the weights of {source}, step {4 if best else 8}" in console.export_text()
    (entry,) = json.loads((tmp_path / "second" / "environment.json").read_text())
    assert entry["started_from"] == {"run": str(source), "step": 4 if best else 8}
    assert [int(row["step"]) for row in read_rows(tmp_path / "second/metrics.csv")][-1] == 8


def test_actors_play_with_the_weights_that_a_run_starts_from(tmp_path, monkeypatch):
    from recollect.training.impala.rollouts import Collector

    fit(MAZE, tmp_path / "first")
    played = []
    original = Collector.collect
    monkeypatch.setattr(
        Collector, "collect", lambda self, buffer: (played.append(weights(self.agent)), original(self, buffer))[1]
    )
    fit(replace(MAZE, fit=FitConfig(steps=1, seed=5)), tmp_path / "second", start_from=tmp_path / "first")
    assert same(played[0], weights(load_model(tmp_path / "first")))


def test_weights_of_other_shapes_are_refused_before_anything_is_written(tmp_path):
    fit(config(), tmp_path / "first")
    with pytest.raises(ValueError, match=r"do not fit this run: .* there and .* here.*more.*config\.json"):
        fit(config(dim=7), tmp_path / "second", start_from=tmp_path / "first")
    with pytest.raises(ValueError, match=r"is only here; .* more"):
        fit(replace(config(), core=CORES["memoryless"](dim=6)), tmp_path / "second", start_from=tmp_path / "first")
    with pytest.raises(ValueError, match="is not a run directory"):
        fit(config(), tmp_path / "second", start_from=tmp_path / "nowhere")
    assert not (tmp_path / "second").exists()


def crash_at(stop):
    original = SupervisedTrainer.step
    return lambda self: 1 / (self.updates < stop) and original(self)


def test_a_run_that_started_from_another_resumes_like_any(tmp_path, monkeypatch):
    fit(config(), tmp_path / "first")
    whole = fit(config(seed=1), tmp_path / "whole", start_from=tmp_path / "first")
    for stop in (2, 6):  # before and after the first checkpoint
        with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
            patched.setattr(SupervisedTrainer, "step", crash_at(stop))
            fit(config(seed=1), tmp_path / f"run{stop}", start_from=tmp_path / "first")
    with pytest.raises(
        ValueError, match=r"began with the weights of .*first and has no checkpoint yet: name that run again"
    ):
        shutil.rmtree(tmp_path / "run2" / "best", ignore_errors=True)
        fit(config(seed=1), tmp_path / "run2", resume=True)
    again = fit(config(seed=1), tmp_path / "run2", resume=True, start_from=tmp_path / "first")
    (tmp_path / "first" / "config.json").unlink()  # no longer needed
    resumed = fit(config(seed=1), tmp_path / "run6", resume=True, start_from=tmp_path / "first")
    assert same(weights(whole.agent), weights(again.agent)) and same(weights(whole.agent), weights(resumed.agent))


@pytest.mark.parametrize("later", [0.95, 0.5])
def test_the_best_of_a_lost_past_is_not_that_of_the_run_that_went_on_otherwise(tmp_path, monkeypatch, later):
    how = {"evaluate_every": 8, "checkpoint_every": 5}
    with monkeypatch.context() as patched:
        scores(patched, 0.9)
        patched.setattr(SupervisedTrainer, "step", crash_at(9))
        with pytest.raises(ZeroDivisionError):
            fit(config("cosine", steps=16, **how), tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run" / "best") == [8]
    with monkeypatch.context() as patched:
        seen = scores(patched, later, 0.3)
        outcome = fit(config("cosine", steps=12, **how), tmp_path / "run", resume=True)
    assert outcome.best == (later, 8)
    assert same(weights(load_model(tmp_path / "run", best=True)), seen[0])


def test_a_run_whose_last_evaluation_was_given_up_is_over_when_it_was_made_up_for(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(SupervisedTrainer, "evaluate", lambda self: (_ for _ in ()).throw(Interrupted))
        assert fit(config(evaluate_every=8), tmp_path / "run").status == "interrupted"
    assert fit(config(evaluate_every=8), tmp_path / "run", resume=True).status == "finished"
    monkeypatch.setattr(SupervisedTrainer, "evaluate", lambda self: pytest.fail("evaluated again"))
    assert "nothing to do" in fit(config(evaluate_every=8), tmp_path / "run", resume=True).message


def test_a_run_whose_only_checkpoint_is_torn_starts_from_the_other_run_again(tmp_path):
    fit(config(), tmp_path / "first")
    whole = fit(config(seed=1), tmp_path / "whole", start_from=tmp_path / "first")
    fit(config(seed=1, keep_checkpoints=1), tmp_path / "run", start_from=tmp_path / "first")
    (tmp_path / "run" / "checkpoint" / "step-000000008" / "manifest.json").unlink()
    shutil.rmtree(tmp_path / "run" / "best")  # else the run continues from there
    with pytest.raises(ValueError, match="name that run again"):
        fit(config(seed=1), tmp_path / "run", resume=True)
    again = fit(config(seed=1), tmp_path / "run", resume=True, start_from=tmp_path / "first")
    assert same(weights(whole.agent), weights(again.agent))
