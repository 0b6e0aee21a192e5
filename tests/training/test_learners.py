"""Several learners: two real processes under torchrun, on loopback, against one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect import learners
from recollect.agents.image_encoders import STATISTICS_BLOCK, NatureCNN
from recollect.agents.normalization import RunningNorm
from recollect.cli import main
from recollect.config import to_json
from recollect.cores import CORES
from recollect.learners import Learners
from recollect.runs import checkpoints
from recollect.tasks import TMazeConfig
from recollect.training import (
    CurriculumConfig,
    EvaluationConfig,
    FitConfig,
    ImitationConfig,
    ImpalaConfig,
    LossConfig,
    SupervisedConfig,
    TeacherConfig,
)
from recollect.training.streams.classification import ClassificationTrainer
from recollect.training.trainers import REGISTRY
from small_runs import recall

SCRIPT = Path(__file__).with_name("two_learners.py")
GRU = CORES["gru"](dim=8, num_layers=1, dropout=0.1)
TASK = recall(12)
RUN = ImpalaConfig(
    world=TMazeConfig(length=4, slack=4),
    core=GRU,
    batch_size=4,
    unroll=8,
    fit=FitConfig(steps=12, report_every=4, report_seconds=None, evaluate_every=6, checkpoint_every=5),
    evaluation=EvaluationConfig(episodes=4),
)


def start(*words, processes=2):
    """Run the script and return its exit status, standard output, and our lines of its standard error."""
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    here = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *torchrun, str(SCRIPT), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": here, "COLUMNS": "400"},
    )
    return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.fixture
def two():
    with learners._presence(Learners(1, 2)):
        yield


def test_alone_every_method_returns_what_it_was_given():
    one, value = learners.present(), torch.tensor([[1.0, 2.0], [5.0, 4.0]])
    assert (one.rank, one.size, one.share(7), one.rows(7)) == (0, 1, 7, slice(0, 7))
    assert one.total(value) is value and one.whole(value) is value
    assert one.sum(1, 2.5) == [1, 2.5] and one.gather("x") == ["x"] and one.lead(lambda: 3) == 3
    assert one.mean(value).tolist() == [3, 3] and one.variance(value, one.mean(value)).tolist() == [4, 1]
    with learners.join() as joined, joined.together():
        assert joined is one


def test_rows_are_shared_without_overlap():
    parts = [Learners(rank, 3).rows(12) for rank in range(3)]
    assert [row for part in parts for row in range(12)[part]] == list(range(12))
    with pytest.raises(ValueError, match="batch_size=13: the 3 learners share its rows evenly: give a multiple of 3"):
        Learners(0, 3).share(13)


def test_learners_have_worlds_of_their_own(two):
    trainer = RUN.build()
    trainer.close()
    assert trainer.actors.collectors[0].world.batch_size == 2
    seeds = [trainer.setup.seeds(actor, updates) for actor in range(3) for updates in (0, 1, 2)]
    with learners._presence(Learners()):
        alone = RUN.build()
        alone.close()
        seeds += [alone.setup.seeds(actor, updates) for actor in range(3) for updates in (0, 1, 2)]
    assert len(set(seeds)) == 18


def test_the_rows_that_a_teacher_plays_are_counted_over_all_learners(two, monkeypatch):
    monkeypatch.setattr(Learners, "total", lambda self, value: value * self.size)  # the other one has the same numbers
    imitation = ImitationConfig(steps=4, teacher=TeacherConfig(acts=2))
    trainer = replace(RUN, loss=LossConfig(imitation=imitation)).build()
    assert [trainer.step()["teacher_rows"] for _ in range(3)] == [4, 2, 0]
    trainer.close()


def test_trainers_that_cannot_share_say_so(two):
    levels = CurriculumConfig(field="max_blank", values=(1,))
    config = SupervisedConfig(task=TASK, core=GRU, batch_size=4, curriculum=levels)
    with pytest.raises(ValueError, match=r"curriculum\.field='max_blank': the 2 learners of a run would pass"):
        config.build()
    with pytest.raises(ValueError, match="learners=2: the classification trainer cannot share its rows"):
        ClassificationTrainer.require_learners(ClassificationTrainer.__new__(ClassificationTrainer), 2)


def test_learners_with_other_numbers_of_images_exchange_equally_many_messages():
    class Counting(Learners):
        calls = 0

        def total(self, value):
            self.calls += 1
            return value

        def gather(self, value):
            return [1, 2]  # blocks of images

    calls = []
    for images in (STATISTICS_BLOCK - 1, STATISTICS_BLOCK + 1):
        encoder = NatureCNN(spaces.Box(0, 255, (36, 36, 1), np.uint8), norm=True)
        with learners._presence(Counting(0, 2)):
            encoder.update_statistics(torch.zeros(images, 36, 36, 1, dtype=torch.uint8))
            calls.append(learners.present().calls)
    assert calls[0] == calls[1] > 0


def test_runs_of_several_seeds_are_not_started_by_torchrun(monkeypatch, capsys):
    for name, value in zip(learners.VARIABLES, ("0", "2", "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert main(["train", "recall", "--seeds", "0", "1"]) == 2
    assert "--seeds='0 1': torchrun starts the learners of one run" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    assert main(["train", "recall", "--seeds", "0", "1"]) == 2
    assert capsys.readouterr().err == ""


def test_running_statistics_alone_are_those_of_all_numbers():
    norm, seen = RunningNorm(3), torch.randn(50, 3) * 4 + 2
    for part in seen.split(20):
        norm.update(part)
    torch.testing.assert_close(norm.mean, seen.mean(0))
    torch.testing.assert_close(norm.variance, seen.var(0, unbiased=False))


@pytest.fixture(scope="module")
def checks():
    status, text, _ = start("checks")
    assert status == 0
    return json.loads(text.splitlines()[-1])


@pytest.mark.long
def test_two_learners_have_the_gradients_numbers_and_statistics_of_one(checks):
    cases = {name: entry for name, entry in checks.items() if "gradients" in entry}
    assert len(cases) == 7
    for name, found in cases.items():
        assert found["gradients"] < 1e-5, name
        assert found["statistics"] < 1e-6, name
        assert found["numbers"][0] < 1e-5, (name, found["numbers"])
        assert found["updates"][0] == found["updates"][1] >= 1, name


@pytest.mark.long
@pytest.mark.parametrize("name", ["200 updates", "200 steps"])
def test_learners_are_equal_bit_for_bit_after_many_updates(checks, name):
    assert checks[name]["apart"] == 0.0
    assert checks[name]["moved"] > 0.01
    assert not checks[name]["same actors"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that was not disturbed, and one whose second learner is killed in its seventh step."""
    folder = tmp_path_factory.mktemp("runs")
    file = folder / "config.json"
    file.write_text(json.dumps(to_json(RUN, REGISTRY)))
    whole = start("none", "train", "--config", file, "--directory", folder / "whole")
    killed = start("kill", "train", "--config", file, "--directory", folder / "killed")
    return folder, whole, killed


def contents(run):
    checkpoint, _ = checkpoints.read_newest(run / "checkpoint")
    return checkpoint


@pytest.mark.long
def test_the_first_learner_owns_directory_and_output(runs):
    folder, (status, text, errors), _ = runs
    assert (status, errors) == (0, [])
    assert text.count("finished 12 steps") == 1 and text.count("next: ") == 1
    rows = (folder / "whole" / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "4", "6", "8", "12"]
    (entry,) = json.loads((folder / "whole" / "environment.json").read_text())
    assert entry["learners"] == 2
    assert json.loads((folder / "whole" / "config.json").read_text())["batch_size"] == 4
    column = rows[0].split(",").index("environment_steps")
    assert 200 < float(rows[-1].split(",")[column]) <= 4 * 8 * 12


@pytest.mark.long
def test_a_killed_learner_ends_the_other_and_the_run_resumes_bit_for_bit(runs):
    folder, _, (status, _, errors) = runs
    assert status != 0
    (message,) = errors
    assert "another of the 2 learners ended" in message and "the checkpoint of step 5 is intact" in message
    assert not (folder / "killed" / "lock").exists()
    shutil.copytree(folder / "killed", folder / "alone")
    status, _, errors = start("none", "train", "--resume", "--directory", folder / "killed")
    assert (status, errors) == (0, [])
    whole, resumed = contents(folder / "whole"), contents(folder / "killed")
    for one, other in ((whole.weights, resumed.weights), (whole.training, resumed.training)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(name.startswith("trainer.learner1.actor0.") for name in whole.training)
    assert not torch.equal(whole.training["random.torch"], whole.training["learner1.random.torch"])
    first, second = (whole.progress["random"], whole.progress["others_random"][0])
    assert first["python"] != second["python"] and first["numpy"] != second["numpy"]
    # With another number of learners it continues too, and says that it is not the same.
    status, text, _ = start("none", "train", "--resume", "--directory", folder / "alone", processes=1)
    assert status == 0
    assert "this run had 2 learners, and now has one learner: it does not continue bit for bit" in text
    assert "its actors begin new episodes with new memories" in text
    assert contents(folder / "alone").progress["step"] == 12


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "what", "step"), [("reward", "the reward is nan", 5), ("loss", "the loss is nan", 6)]
)
def test_a_nan_in_one_learner_stops_both_with_one_message(tmp_path, fault, what, step):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(to_json(RUN, REGISTRY)))
    status, text, errors = start(fault, "train", "--config", file, "--directory", tmp_path / "run")
    assert status != 0 and "finished" not in text
    (message,) = errors
    assert what in message and f"at step {step}: stopped, step {step - 1} is saved" in message
    assert contents(tmp_path / "run").progress["step"] == step - 1


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
def test_a_signal_to_one_learner_stops_and_saves_both(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(to_json(RUN, REGISTRY)))
    status, text, errors = start("stop", "train", "--config", file, "--directory", tmp_path / "run")
    assert status != 0 and errors == []
    assert "at step 4: saved in" in text
    assert contents(tmp_path / "run").progress["learners"] == 2
