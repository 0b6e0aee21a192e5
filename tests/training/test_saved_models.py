"""Models of runs: loaded where neither task nor trainer is, from runs of this version and of older ones."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

import recollect
from recollect.cores import CORES
from recollect.runs import checkpoints
from recollect.tasks import Arrays
from recollect.training import FitConfig, SupervisedConfig, fit
from recollect.training.saved_models import resolve_folder
from small_runs import recall

CONFIG = SupervisedConfig(
    task=recall(),
    core=CORES["gru"](dim=6, num_layers=1),
    fit=FitConfig(steps=3, evaluate_every=2, checkpoint_every=3, seed=5),
    batch_size=4,
    evaluation_rows=8,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "run"
    return run, fit(CONFIG, run)


def same(one, two):
    return all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_run_has_model_folders_of_its_newest_and_best_weights(made, tmp_path):
    run, outcome = made
    newest = recollect.load(run)
    assert same(newest, outcome.agent) and newest.spec.title == CONFIG.title and newest.spec.task == "recall"
    assert newest.spec.run["step"] == 3 and newest.spec.run["seed"] == 5
    assert newest.spec.run["evaluation"] == outcome.evaluation and "recollect" in newest.spec.run["versions"]
    best = recollect.load(run, best=True)
    assert best.spec.run["step"] == outcome.best.step and same(best, recollect.load(run / "best"))
    folder = resolve_folder(run)
    assert folder == run / "checkpoint" / "step-000000003"
    shutil.copytree(folder, tmp_path / "moved")  # alone, without the run
    assert same(recollect.load(tmp_path / "moved"), outcome.agent)


def test_a_checkpoint_whose_description_is_damaged_is_torn(made, tmp_path):
    run, _ = made
    shutil.copytree(run, tmp_path / "run")
    path = resolve_folder(tmp_path / "run") / "spec.json"
    path.write_text(path.read_text().replace("recall", "recoll"))
    with pytest.raises(ValueError, match=r"no complete checkpoint yet .*spec\.json does not agree with its checksum"):
        recollect.load(tmp_path / "run")


def make_old(run):
    """Turn a run into one of an older version, whose checkpoints were no model folders."""
    for path in [*run.glob("checkpoint/step-*"), *run.glob("best/step-*")]:
        manifest = json.loads((path / "manifest.json").read_text())
        for name in ("config.json", "spec.json"):
            del manifest[name]
            (path / name).unlink()
        (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_run_of_an_older_version_is_loaded_with_its_task(made, tmp_path):
    run, outcome = made
    shutil.copytree(run, tmp_path / "run")
    make_old(tmp_path / "run")
    assert checkpoints.newest(tmp_path / "run" / "checkpoint")[1] == []
    model = recollect.load(tmp_path / "run")
    assert same(model, outcome.agent)
    with pytest.raises(ValueError, match=r"recollect\.load\(run\)\.save\(folder\)"):
        resolve_folder(tmp_path / "run")
    model.save(tmp_path / "model")
    assert same(recollect.load(tmp_path / "model"), outcome.agent)


def test_a_run_of_an_older_version_without_its_data_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b,target\n" + "1.5,2,x\n3,4,y\n" * 10)
    fit(replace(CONFIG, task=Arrays(path="rows.csv"), fit=FitConfig(steps=1)), tmp_path / "run")
    (tmp_path / "rows.csv").unlink()
    assert recollect.load(tmp_path / "run").spec.class_names == ("x", "y")
    make_old(tmp_path / "run")
    with pytest.raises(ValueError, match=r"rows\.csv.*older version and needs its task.*\.save\(folder\)"):
        recollect.load(tmp_path / "run")
