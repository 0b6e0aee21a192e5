import errno
import io
import json
import os
import signal
import sys
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from recollect import files
from recollect.cores import CORES
from recollect.recipes import training
from recollect.runs import checkpoints
from recollect.runs.checkpoints import RunError
from recollect.runs.metrics import read_rows
from recollect.tasks import IMDB
from recollect.training import FitConfig, OptimizerConfig, SupervisedConfig, fit
from recollect.training.streams.supervised import SupervisedTrainer
from small_runs import recall
from tiers import only

TASK = recall(10)


def config(unroll=None, dropout=0.3, **settings):
    settings = {
        "steps": 12,
        "report_every": 3,
        "evaluate_every": 5,
        "checkpoint_every": 4,
        "report_seconds": None,
    } | settings
    return SupervisedConfig(
        task=TASK,
        core=CORES["gru"](dim=6, num_layers=2, dropout=dropout),  # dropout: the global generator matters too
        optimizer=OptimizerConfig(warmup_steps=3, schedule="cosine"),
        fit=FitConfig(**settings),
        batch_size=4,
        unroll=unroll,
        evaluation_rows=8,
    )


def weights(outcome):
    return {name: value.clone() for name, value in outcome.agent.state_dict().items()}


def rows(path):
    """Metrics without the clock."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(path / "metrics.csv")]


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class CrashError(Exception):
    """Stands in for a crash at a chosen step."""


def crash_at(step):
    calls = []
    original = SupervisedTrainer.step

    def stepping(self):
        calls.append(1)
        if len(calls) > step:
            raise CrashError
        return original(self)

    return stepping


@pytest.mark.parametrize("unroll", [None, 4])
@pytest.mark.parametrize("crash", only({1, 5}, range(12)))
def test_a_crash_at_any_step_changes_nothing(tmp_path, monkeypatch, unroll, crash):
    whole = fit(config(unroll), tmp_path / "whole")
    with monkeypatch.context() as patched, pytest.raises(CrashError):
        patched.setattr(SupervisedTrainer, "step", crash_at(crash))
        fit(config(unroll), tmp_path / "crashed")
    torch.manual_seed(crash)  # whatever the process did meanwhile
    resumed = fit(config(unroll), tmp_path / "crashed", resume=True)
    assert same(weights(whole), weights(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "crashed")
    assert resumed.evaluation == whole.evaluation


def test_every_row_is_there_once(tmp_path):
    fit(config(), tmp_path / "run")
    assert [int(row["step"]) for row in rows(tmp_path / "run")] == [3, 5, 6, 9, 10, 12]
    assert [int(row["step"]) for row in rows(tmp_path / "run") if row["score"]] == [5, 10, 12]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at", [1, 6, 7])
def test_a_signal_saves_first_and_the_run_goes_on(tmp_path, number, at):
    whole = fit(config(unroll=4), tmp_path / "whole")
    original = SupervisedTrainer.step

    def stepping(self):
        if self.updates + 1 == at:
            os.kill(os.getpid(), number)
        return original(self)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SupervisedTrainer, "step", stepping)
        outcome = fit(config(unroll=4), tmp_path / "run")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert outcome.status == "interrupted"
    assert outcome.step == at
    assert f"at step {at}: saved in" in outcome.message and "--resume" in outcome.message
    resumed = fit(config(unroll=4), tmp_path / "run", resume=True)
    assert resumed.status == "finished"
    assert same(weights(whole), weights(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    def stepping(self):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second Ctrl-C was not heard")

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(SupervisedTrainer, "step", stepping)
        fit(config(), tmp_path / "run")
    assert fit(config(), tmp_path / "run", resume=True).status == "finished"


@pytest.mark.parametrize(("step", "unroll"), [(1, None), (3, None), (7, 4)])
def test_nan_stops_saves_and_says_where(tmp_path, step, unroll):
    whole = fit(config(unroll), tmp_path / "whole")
    from recollect.training.streams import supervised

    original = supervised.answer_loss
    calls = []

    def poisoned(logits, targets, mask, class_weights):
        if logits.requires_grad:
            calls.append(1)
        return original(logits, targets, mask, class_weights) * (torch.nan if len(calls) == step else 1.0)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(supervised, "answer_loss", poisoned)
        saved = f"step {step - 1} is saved in" if step > 1 else "nothing to save yet"
        with pytest.raises(RunError, match=f"the loss is nan at step {step}: stopped, {saved}.*lower learning rate"):
            fit(config(unroll), tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run" / "checkpoint")[-1:] == ([step - 1] if step > 1 else [])
    resumed = fit(config(unroll), tmp_path / "run", resume=True)  # this time it was a passing fault
    assert same(weights(whole), weights(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")


def test_a_gradient_that_overflows_stops_too(tmp_path):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(torch.inf))
        with pytest.raises(RunError, match="the gradient norm is inf at step 1"):
            fit(config(), tmp_path / "run")


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    original = files.write_synced

    def full(path, content):
        if "step-000000008" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path, content)

    whole = fit(config(), tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "write_synced", full)
        with pytest.raises(RunError, match=r"checkpoint of step 8 .*the checkpoint of step 4 is intact"):
            fit(config(), tmp_path / "run")
    resumed = fit(config(), tmp_path / "run", resume=True)
    assert same(weights(whole), weights(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")


def test_metrics_on_a_full_disk_say_what_stands(tmp_path):
    from recollect.runs.metrics import MetricsFile

    def full(self, step, row):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MetricsFile, "append", full)
        with pytest.raises(RunError, match="at step 3: No space left on device; there is no checkpoint yet"):
            fit(config(), tmp_path / "run")


def test_a_torn_checkpoint_falls_back_to_the_one_before(tmp_path):
    whole = fit(config(), tmp_path / "whole")
    fit(config(), tmp_path / "run")
    newest = tmp_path / "run" / "checkpoint" / "step-000000012" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-4])
    console = Console(record=True, width=200, force_terminal=False, file=io.StringIO())
    resumed = fit(config(), tmp_path / "run", resume=True, console=console)
    assert "step-000000012 is torn" in console.export_text()
    assert same(weights(whole), weights(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")


def test_torn_checkpoints_fall_back_to_the_best_evaluation(tmp_path):
    whole = fit(config(), tmp_path / "whole")
    fit(config(), tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoint").rglob("weights.safetensors"):
        path.write_bytes(path.read_bytes()[:-4])
    (best,) = (tmp_path / "run" / "best").iterdir()
    console = Console(record=True, width=200, force_terminal=False, file=io.StringIO())
    resumed = fit(config(), tmp_path / "run", resume=True, console=console)
    assert f"continues from the best evaluation, at step {int(best.name[5:])}" in console.export_text()
    assert same(weights(whole), weights(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
    for path in (tmp_path / "run").rglob("weights.safetensors"):
        path.write_bytes(path.read_bytes()[:-4])
    fit(config(), tmp_path / "run", resume=True, console=console)
    assert "no checkpoint and no best evaluation is complete: the run begins again at step 0" in console.export_text()


def test_a_run_ends_with_the_process_that_started_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_PARENT", str(os.getppid()))
    assert fit(config(), tmp_path / "run").status == "finished"
    monkeypatch.setenv("RECOLLECT_PARENT", "1" if os.getppid() != 1 else "2")  # another process has adopted this one
    outcome = fit(config(), tmp_path / "orphan")
    assert (outcome.status, outcome.step) == ("interrupted", 1)
    assert "the end of the process that started it" in outcome.message
    monkeypatch.delenv("RECOLLECT_PARENT")
    assert fit(config(), tmp_path / "orphan", resume=True).status == "finished"


def test_an_existing_directory_is_refused(tmp_path):
    fit(config(), tmp_path / "run")
    with pytest.raises(ValueError, match=r"run exists: choose another, or continue it with --resume"):
        fit(config(), tmp_path / "run")


def test_another_config_is_refused_by_name(tmp_path):
    fit(config(), tmp_path / "run")
    with pytest.raises(ValueError, match=r"another config: core\.dropout: 0\.3, now 0\.1\. Resume with"):
        fit(config(dropout=0.1), tmp_path / "run", resume=True)


def test_a_checkpoint_of_another_config_is_refused_by_name(tmp_path):
    fit(config(), tmp_path / "run")
    other = tmp_path / "run" / "config.json"
    other.write_text(other.read_text().replace('"batch_size": 4', '"batch_size": 5'))
    with pytest.raises(ValueError, match=r"checkpoint of step 12 .* another config: batch_size: 4, now 5"):
        fit(replace(config(), batch_size=5), tmp_path / "run", resume=True)


def test_what_changes_no_number_may_change(tmp_path):
    whole = fit(config(), tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patched, pytest.raises(CrashError):
        patched.setattr(SupervisedTrainer, "step", crash_at(9))
        fit(config(), tmp_path / "run")
    resumed = fit(config(checkpoint_every=2, keep_checkpoints=1), tmp_path / "run", resume=True)
    assert same(weights(whole), weights(resumed))


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "metrics.csv").write_text("mine")
    with pytest.raises(ValueError, match="is not a run"):
        fit(config(), tmp_path, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        fit(config(), tmp_path / "file")
    with pytest.raises(ValueError, match="cannot be written"):
        fit(config(), tmp_path / "file" / "run")


FILES = ("imdb", "aan", "charades", "thumos", "cifar", "stl-10", "grey-cifar")


@pytest.mark.parametrize("task", FILES)
def test_data_that_are_not_there_leave_no_directory(tmp_path, monkeypatch, task):
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path / "data"))
    for again in range(2):
        with pytest.raises(ValueError, match=r"docs/datasets\.md"):
            fit(training(task, "lstm"), tmp_path / "run", resume=bool(again))
        assert not (tmp_path / "run").exists()


def test_data_of_evaluations_are_looked_at_too(tmp_path):
    reviews = tmp_path / "aclImdb"
    for label, points in (("neg", 1), ("pos", 9)):
        (reviews / "train" / label).mkdir(parents=True)
        (reviews / "train" / label / f"0_{points}.txt").write_text("so so")
    with pytest.raises(ValueError, match=r"test/neg has no reviews"):
        fit(replace(training("imdb", "lstm"), task=IMDB(path=str(reviews), validation=0)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_with_a_checkpoint_does_not_look_at_its_data_first(tmp_path, monkeypatch):
    fit(config(), tmp_path / "run")
    monkeypatch.setattr(SupervisedTrainer, "check_data", crash_at(0))
    fit(config(), tmp_path / "run", resume=True)


def test_looking_at_the_data_moves_no_generator():
    ours, alone = config().build(), config().build()
    alone.agent.load_state_dict(ours.agent.state_dict())
    torch.manual_seed(5)
    ours.check_data()
    losses = [ours.step()["loss"] for _ in range(3)]
    torch.manual_seed(5)
    assert losses == [alone.step()["loss"] for _ in range(3)]


def test_a_finished_run_has_nothing_to_do(tmp_path):
    done = fit(config(), tmp_path / "run")
    again = fit(config(), tmp_path / "run", resume=True)
    assert again.message.startswith("nothing to do: finished 12 steps with score ")
    assert again.message.endswith("; more --steps go on")
    assert again.evaluation == done.evaluation
    assert same(weights(done), weights(again))


def test_processor_time_ends_a_run_which_then_is_over(tmp_path, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(sys.modules["recollect.training.loop"], "process_time", lambda: next(clock))  # 1 s a step
    outcome = fit(config(processor_seconds=4.0), tmp_path / "run")
    assert (outcome.status, outcome.step, outcome.processor_seconds) == ("finished", 4, 4.0)
    assert "; fit.processor_seconds=4.0 ended it before step " in outcome.message
    assert rows(tmp_path / "run")[-1]["score"], "the last step is always evaluated"
    assert checkpoints.steps(tmp_path / "run" / "checkpoint")[-1] == 4, "and saved"
    assert fit(config(processor_seconds=4.0), tmp_path / "run", resume=True).step == 4, "nothing to do"
    longer = fit(config(processor_seconds=6.0), tmp_path / "run", resume=True)
    assert (longer.step, longer.processor_seconds) == (6, 6.0), "what the steps took before counts"
    whole = fit(config(), tmp_path / "whole")
    resumed = fit(config(), tmp_path / "run", resume=True)
    assert same(weights(whole), weights(resumed)), "no number changes"
    with pytest.raises(ValueError, match="processor_seconds=0"):
        config(processor_seconds=0)


def test_a_reached_goal_ends_the_run(tmp_path):
    outcome = fit(config(stop_score=0.0), tmp_path / "run")
    assert (outcome.status, outcome.step) == ("solved", 5)
    assert checkpoints.steps(tmp_path / "run" / "checkpoint")[-1] == 5
    again = fit(config(stop_score=0.0), tmp_path / "run", resume=True)
    assert again.status == "solved" and "fit.stop_score=0.0" in again.message and "--stop-score None" in again.message


def test_loggers_hear_every_row(tmp_path):
    heard = []
    fit(config(), tmp_path / "run", loggers=[lambda step, row: heard.append((step, dict(row)))])
    assert [step for step, _ in heard] == [3, 5, 6, 9, 10, 12]
    assert {"loss", "score", "seconds"} <= heard[1][1].keys()


def test_tensorboard_on_request(tmp_path):
    pytest.importorskip("tensorboard")
    fit(config(), tmp_path / "run", log=["csv", "tensorboard"])
    assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_the_directory_describes_itself(tmp_path):
    fit(config(), tmp_path / "run")
    fit(config(), tmp_path / "run", resume=True)
    seen = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert len(seen) == 2, "one entry per process that worked on it"
    assert {"python", "torch", "numpy", "recollect"} <= seen[0]["versions"].keys()
    assert {"processor", "cores", "threads", "memory_gib", "accelerator"} <= seen[0]["hardware"].keys()
    assert "commit" in seen[0] and "command" in seen[0]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "best", "checkpoint", "config.json", "environment.json", "metrics.csv",
    ]  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False])
def test_a_person_sees_progress(tmp_path, terminal):
    console = Console(record=True, width=160, force_terminal=terminal, file=io.StringIO())
    fit(config(), tmp_path / "run", console=console)
    text = console.export_text()
    assert "recall" in text and "12/12" in text and "score" in text
    assert "best" in text and "steps/s" in text
    assert terminal or "left" in text


@pytest.mark.parametrize("field", ["steps", "report_every", "evaluate_every", "checkpoint_every", "keep_checkpoints"])
def test_bad_settings_are_named(field):
    with pytest.raises(ValueError, match=f"{field}=0"):
        FitConfig(**{field: 0})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FitConfig(steps=1e1), r"steps=10\.0: give a whole number"),
        (lambda: FitConfig(report_seconds="1"), r"report_seconds='1': give a finite number or None"),
        (lambda: config(seed=0.5), r"seed=0\.5: give a whole number"),
        (lambda: config(unroll=2.5), r"unroll=2\.5: give a whole number or None"),
        (lambda: replace(config(), batch_size=4.0), r"batch_size=4\.0: give a whole number"),
        (lambda: replace(config(), optimizer=None), r"optimizer=None: give a OptimizerConfig"),
    ],
)
def test_settings_of_another_kind_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
