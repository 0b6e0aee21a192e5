"""``recollect train --imitate``, ``--trainer cloning`` and ``recollect evaluate --record``, as they are typed."""

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest

from recollect.cli import flags, main
from recollect.recipes.base import Recipe, Run
from recollect.recipes.reproduce import reproduce
from recollect.recipes.train import training
from recollect.tasks import TMazeConfig
from recollect.training import EvaluationConfig, FitConfig

MAZE = ["t-maze", "--core", "gru", "--world.length", "3", "--num-envs", "4", "--unroll", "6", "--dim", "8"]
MAZE += ["--evaluation.episodes", "8"]


def run(capsys, *words):
    status = main([str(word) for word in words])
    return status, *capsys.readouterr()


@pytest.mark.long
def test_imitate_record_clone_reinforce_and_compare(capsys, tmp_path):
    one, two, three, four = (tmp_path / name for name in ("imitated", "cloned", "recorded", "reinforced"))
    status, out, err = run(capsys, "train", *MAZE, "--imitate", 2, "--steps", 4, "--directory", one)
    assert status == 0, err
    status, out, err = run(capsys, "train", "--resume", "--steps", 5, "--directory", one)
    assert status == 0 and "finished 5 steps" in out.replace("\n", " "), err
    teacher = ["--teacher", f"{one}/best"]
    status, _, err = run(capsys, "train", *MAZE, "--trainer", "cloning", *teacher, "--steps", 2, "--directory", two)
    assert status == 0, err
    status, _, err = run(capsys, "evaluate", two, "--episodes", 6, "--record", tmp_path / "e.npz")
    assert status == 0 and "recorded: 6 episodes" in err
    (tmp_path / "file").write_text("")
    for target, message in {
        "e.txt": "record='e.txt': give FILE.npz, minari:DATASET or lerobot:FOLDER",
        tmp_path / "file" / "e.npz": "file is no folder in which you may write",
        "minari:good": "give it a version",
    }.items():  # nothing is played, and nothing is said, before that is known
        if not str(target).startswith("minari:") or find_spec("minari"):
            status, out, err = run(capsys, "evaluate", two, "--episodes", 6, "--record", target)
            assert status == 2 and not out and message in " ".join(err.split())
    teacher = ["--teacher", tmp_path / "e.npz"]
    status, _, err = run(capsys, "train", *MAZE, "--trainer", "cloning", *teacher, "--steps", 2, "--directory", three)
    assert status == 0, err
    status, _, err = run(capsys, "train", *MAZE, "--steps", 1, "--from", three, "--directory", four)
    assert status == 0, err
    status, out, _ = run(capsys, "compare", one, two, three, four, "--out", "None", "--json")
    labels = {group["label"].partition(" (")[0] for group in json.loads(out)["groups"]}
    assert labels == {
        f"gru, after a run that was helped: cloned {tmp_path}/e.npz",
        "gru, imitated oracle for 2 steps",
        f"gru, cloned {one}/best",
        f"gru, cloned {tmp_path}/e.npz",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*MAZE, "--trainer", "clonin"], "unknown trainer 'clonin': did you mean 'cloning'?"),
        (["recall", "--trainer", "cloning"], "--trainer cloning: it does not train on recall"),
        ([*MAZE, "--trainer", "cloning", "--loss.entropy-cost", "1"], "unknown flag --loss.entropy-cost"),
        ([*MAZE, "--imitate", "x"], "--loss.imitation.steps x: give a whole number"),
    ],
)
def test_mistakes_are_named(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, "train", *words)
    assert status == 2 and message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_help_of_cloning_is_its_own(capsys):
    assert "--teacher.name" in flags.run_flags("t-maze", "gru", "cloning")
    assert "--teacher.name" not in flags.run_flags("t-maze", "gru") and "--teacher.name" in flags.run_flags(
        "gym:A-v0", "gru", "cloning"
    )
    status, out, _ = run(capsys, "train", "t-maze", "--core", "gru", "--trainer", "cloning", "--help-all")
    assert status == 0 and "--teacher.acts" in out and "--loss.vtrace" not in out


def test_tables_of_results_name_the_teacher(tmp_path, monkeypatch):
    monkeypatch.setattr("recollect.recipes.reproduce.FINAL_SAMPLES", 8)
    small = training("t-maze", "gru", trainer="cloning")
    few = EvaluationConfig(episodes=8)
    small = replace(small, world=TMazeConfig(length=3), batch_size=4, fit=FitConfig(steps=2), evaluation=few)
    recipe = Recipe(
        name="x", title="X", source="ours", about="A test.", config=lambda core, scale="lite": small,
        runs={"lite": lambda: [Run(label="gru", row="GRU", core="gru", config=small)]}, seeds={"lite": 1},
    )  # fmt: skip
    path = reproduce(recipe, root=tmp_path)
    assert "| GRU (cloned oracle) |" in path.read_text()
    assert json.loads((tmp_path / "results" / "x" / "gru-seed0.json").read_text())["taught_by"] == "cloned oracle"
