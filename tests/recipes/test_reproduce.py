import json
import math
import shutil
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from rich.console import Console

from recollect.config import to_json
from recollect.cores import CORES
from recollect.recipes import base, training
from recollect.recipes.base import Recipe, Run
from recollect.recipes.reproduce import reproduce, table, write_tables
from recollect.runs.folder_lock import FolderLock
from recollect.runs.provenance import environment
from recollect.runs.random_states import seed_everything
from recollect.tasks import IMDB
from recollect.training import FRESH_SEED, REGISTRY, FitConfig, OptimizerConfig, SupervisedConfig
from recollect.training.saved_models import load_model
from recollect.training.streams.supervised import SupervisedTrainer
from small_runs import recall

reproducing = sys.modules[reproduce.__module__]


def config(core="gru", **optimizer):
    return SupervisedConfig(
        task=recall(12),
        core=CORES[core](dim=6, num_layers=1),
        optimizer=OptimizerConfig(**optimizer),
        fit=FitConfig(steps=4, evaluate_every=2, checkpoint_every=2),
        batch_size=4,
        evaluation_rows=8,
    )


def recipe(*runs):
    rows = runs or (
        Run(label="gru", row="gru, tiny", core="gru", config=config(), paper="0.900"),
        Run(label="lstm", row="lstm, tiny", core="lstm", config=config("lstm")),
    )
    return Recipe(
        name="tiny",
        title="Tiny",
        source="this test",
        about="Nothing is learned.",
        config=lambda core, scale="lite": config(core),
        runs={"lite": lambda: list(rows)},
        seeds={"lite": 2},
    )


def test_a_recipe_without_a_number_of_seeds_for_a_scale_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match=r"seeds=\{'lite': 2\}: give a number for each scale of runs: lite, long"):
        replace(recipe(), runs={"lite": list, "long": list})


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A folder in which the recipe was reproduced with one seed."""
    root = tmp_path_factory.mktemp("once")
    seed_everything(0)
    reproduce(recipe(), root=root, seeds=1)
    return root


@pytest.fixture
def reproduced(once, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(once, tmp_path / "copy")


def results(root):
    return {path.name: json.loads(path.read_text()) for path in (root / "results" / "tiny").iterdir()}


@pytest.mark.long
def test_every_number_has_its_file_and_the_table_its_rows(tmp_path):
    path = reproduce(recipe(), root=tmp_path)
    found = results(tmp_path)
    assert sorted(found) == ["gru-seed0.json", "gru-seed1.json", "lstm-seed0.json", "lstm-seed1.json"]
    one = found["gru-seed1.json"]
    assert {"command", "commit", "hardware", "versions", "seconds", "peak_memory_mib", "config", "time"} <= one.keys()
    assert one["processor_seconds"] > 0
    assert (one["seed"], one["steps"], one["samples"], one["scale"], one["status"]) == (1, 4, 16, "lite", "ok")
    assert one["config"]["fit"]["seed"] == 1
    assert one["command"] == "recollect reproduce tiny --scale lite"
    test = one["tests"][""]
    assert sum(test["correct"]) / sum(test["asked"]) == pytest.approx(test["score"])
    assert [step for step, _ in one["curve"]] == [2, 4]
    text = path.read_text()
    assert path == tmp_path / "docs" / "results.md"
    assert "### Tiny (lite scale)" in text
    row = next(line for line in text.splitlines() if line.startswith("| gru, tiny |"))
    mean = np.mean([found[f"gru-seed{k}.json"]["tests"][""]["score"] for k in (0, 1)])
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:4] == ["gru, tiny", "0.900", f"{mean:.3f}", "2"]
    assert cells[5] == "0.333"
    assert cells[6:] == ["2 / ∞", "`recollect reproduce tiny --scale lite`"]
    low, high = (float(x) for x in cells[4].split(" to "))
    assert low <= mean <= high


def test_the_table_comes_from_the_files_alone_and_leaves_the_rest(reproduced):
    path = reproduced / "docs" / "results.md"
    path.write_text("# Mine\n\nbefore\n\n" + path.read_text().removeprefix("# Results\n\n") + "\nafter\n")
    file = reproduced / "results" / "tiny" / "gru-seed0.json"
    kept = json.loads(file.read_text())
    kept["tests"][""]["score"] = 0.123
    file.write_text(json.dumps(kept))
    write_tables(recipe(), reproduced)
    text = path.read_text()
    assert "| 0.900 | 0.123 |" in text
    assert text.startswith("# Mine\n\nbefore\n") and text.endswith("\nafter\n")
    assert text.count("recollect:tiny-lite:begin") == 1
    write_tables(recipe(), reproduced)
    assert path.read_text() == text, "making it again changes nothing"
    for file in (reproduced / "results" / "tiny").iterdir():
        file.unlink()
    write_tables(recipe(), reproduced)
    assert path.read_text() == "# Mine\n\nbefore\n\nafter\n", "without files there is no table"


DAMAGE = {
    "cut short": lambda path: path.write_text(path.read_text()[:200]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "a list": lambda path: path.write_text("[]"),
    "of something else": lambda path: path.write_text('{"a": 1}'),
    "a copy": lambda path: path.with_name("copy-of-gru-seed0.json").write_text(path.read_text()),
    "another run's": lambda path: path.write_text(path.read_text().replace('"label": "gru"', '"label": "lstm"')),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_no_result_is_named_before_anything_is_run(reproduced, monkeypatch, damage):
    DAMAGE[damage](reproduced / "results" / "tiny" / "gru-seed0.json")
    monkeypatch.setattr(SupervisedTrainer, "step", lambda self: pytest.fail("ran"))
    for again in (True, False):
        with pytest.raises(ValueError, match=r"results/tiny/\S*gru-seed0.json .*: (remove it|it was not written)"):
            reproduce(recipe(), root=reproduced, again=again)


def test_failures_stay_in(tmp_path):
    broken = Run(label="broken", row="broken | run", core="gru", config=config(learning_rate=1e30, clip_norm=None))
    path = reproduce(recipe(broken), root=tmp_path, seeds=1)
    found = results(tmp_path)["broken-seed0.json"]
    assert found["status"] == "failed"
    assert "at step" in found["error"]
    assert "failed: " in path.read_text()
    assert "| 0 | - |" in path.read_text()


def test_the_best_checkpoint_is_scored_too(tmp_path, monkeypatch):
    scores = iter([0.9, 0.1])
    plain = SupervisedTrainer.evaluate
    monkeypatch.setattr(SupervisedTrainer, "evaluate", lambda self: plain(self) | {"score": next(scores)})
    where = config().task
    tests = {"last": base.Test(where=where, samples=24), "best": base.Test(where=where, samples=24, best=True)}
    lively = config(learning_rate=0.5)
    path = reproduce(
        recipe(Run(label="gru", row="gru, tiny", core="gru", config=lively, tests=tests)), root=tmp_path, seeds=1
    )
    found = results(tmp_path)["gru-seed0.json"]["tests"]
    (run,) = (tmp_path / "runs" / "reproduce" / "tiny").iterdir()
    for name, test in found.items():
        model = load_model(run, best=name == "best")
        again = lively.evaluate(model, where, samples=24, seed=FRESH_SEED)
        assert test["correct"] == again.by_row()[0] and len(test["correct"]) == 24
    assert found["last"]["correct"] != found["best"]["correct"]
    assert all(f"| gru, tiny, {name} |" in path.read_text() for name in tests)


def test_a_run_without_tests_is_scored_on_the_test_part():
    run = Run(label="x", row="x", core="gru", config=replace(config(), task=IMDB(path="stand-in", length=20)))
    assert [test.where.part for test in run.scored.values()] == ["test"]


def test_rows_are_chosen_by_the_names_of_the_table(tmp_path):
    reproduce(recipe(), root=tmp_path, seeds=1, rows=["ls*"])
    assert [*results(tmp_path)] == ["lstm-seed0.json"]
    assert [run.label for run in recipe().chosen_rows("lite", rows=["gru, tiny", "*"])] == ["gru", "lstm"]
    assert not recipe().chosen_rows("lite", ["gru"], ["lstm*"])
    with pytest.raises(ValueError, match=r"rows='lstm': no row of tiny has such a name: choose of gru, tiny; lstm"):
        reproduce(recipe(), root=tmp_path, rows=["lstm"])


def test_two_commands_share_the_work(reproduced, monkeypatch, capsys):
    whole = results(reproduced)
    plain = reproducing.run_once

    def beside(recipe, run, *args, **kwargs):
        """As if another process worked on the first row."""
        if run.label != "gru":
            return plain(recipe, run, *args, **kwargs)
        other = FolderLock(
            next(path for path in (reproduced / "runs" / "reproduce" / "tiny").iterdir() if "gru" in path.name)
        )
        other.acquire()
        try:
            return plain(recipe, run, *args, **kwargs)
        finally:
            other.release()

    monkeypatch.setattr(reproducing, "run_once", beside)
    for path in (reproduced / "results" / "tiny").iterdir():
        path.write_text(path.read_text().replace('"batch_size": 4', '"batch_size": 3'))  # of another config
    stale = results(reproduced)["gru-seed0.json"]
    path = reproduce(recipe(), root=reproduced, seeds=1, console=Console())
    assert results(reproduced)["gru-seed0.json"] == stale, "the other process will write it"
    assert results(reproduced)["lstm-seed0.json"]["tests"] == whole["lstm-seed0.json"]["tests"]
    assert "gru, tiny, seed 0: left out: run directory " in capsys.readouterr().out
    assert "failed" not in path.read_text()


def test_a_table_that_another_command_writes_meanwhile_is_kept(reproduced, monkeypatch):
    path = reproduced / "docs" / "results.md"
    plain = reproducing.frames_table

    def slow(found):
        path.write_text(path.read_text() + "\n<!-- recollect:other-lite:begin -->\nother\n")
        return plain(found)

    monkeypatch.setattr(reproducing, "frames_table", slow)
    assert "recollect:other-lite:begin" in write_tables(recipe(), reproduced).read_text()


@pytest.mark.long
def test_a_row_may_have_fewer_seeds(tmp_path):
    one, two = recipe().rows("lite")
    reproduce(recipe(replace(one, seeds=1), two), root=tmp_path)
    assert sorted(results(tmp_path)) == ["gru-seed0.json", "lstm-seed0.json", "lstm-seed1.json"]
    reproduce(recipe(replace(one, seeds=1), two), root=tmp_path, seeds=2)
    found = results(tmp_path)
    assert len(found) == 4, "who asks for two seeds gets them"
    plain = "recollect reproduce tiny --scale lite"
    assert found["gru-seed1.json"]["command"] == f"{plain} --seeds 2", "and the command that gives them"
    assert {found[f"{name}.json"]["command"] for name in ("gru-seed0", "lstm-seed0", "lstm-seed1")} == {plain}


def test_a_test_that_a_recipe_got_later_is_scored(tmp_path):
    one, _ = recipe().rows("lite")
    reproduce(recipe(one), root=tmp_path, seeds=1)
    before = results(tmp_path)["gru-seed0.json"]
    more = replace(one, tests={**one.scored, "again": base.Test(where=config().task, samples=24)})
    path = reproduce(recipe(more), root=tmp_path, seeds=1)
    after = results(tmp_path)["gru-seed0.json"]
    assert after["tests"][""] == before["tests"][""] and after["steps"] == before["steps"]
    assert "| gru, tiny, again |" in path.read_text()


def test_what_is_there_is_not_run_again(reproduced, monkeypatch):
    before = results(reproduced)
    monkeypatch.setattr(SupervisedTrainer, "step", lambda self: pytest.fail("ran again"))
    reproduce(recipe(), root=reproduced, seeds=1)
    assert results(reproduced) == before
    path = reproduced / "results" / "tiny" / "gru-seed0.json"
    older = json.loads(path.read_text())
    del older["config"]["bfloat16"]  # as if the field had come later; it has its default
    path.write_text(json.dumps(older))
    reproduce(recipe(), root=reproduced, seeds=1)
    older["config"]["device"] = "cuda"  # as if it had been measured elsewhere
    path.write_text(json.dumps(older))
    reproduce(recipe(), root=reproduced, seeds=1)
    assert results(reproduced)["gru-seed0.json"] == older
    monkeypatch.undo()
    older["config"]["a_field_that_is_gone"] = 1
    path.write_text(json.dumps(older))
    reproduce(recipe(), root=reproduced, seeds=1)
    assert "a_field_that_is_gone" not in results(reproduced)["gru-seed0.json"]["config"]
    changed = recipe(replace(recipe().rows("lite")[0], config=replace(config(), batch_size=5)))
    reproduce(changed, root=reproduced, seeds=1)
    assert results(reproduced)["gru-seed0.json"]["config"]["batch_size"] == 5


def test_a_score_is_of_one_config_whatever_its_seeds_and_devices(reproduced):
    folder = reproduced / "results" / "tiny"
    one = json.loads((folder / "gru-seed0.json").read_text())

    def another(label="gru", seed=0, device="cpu", **changes):
        fit = one["config"]["fit"] | {"seed": seed}
        found = one | {"label": label, "seed": seed, "row": "lstm" if label == "lstm" else one["row"]}
        found["config"] = one["config"] | {"fit": fit, "device": device} | changes
        (folder / f"{label}-seed{seed}.json").write_text(json.dumps(found))

    another(seed=1, device="cuda")
    another(seed=2, batch_size=3)
    another("lstm", batch_size=3)
    text = write_tables(recipe(), reproduced).read_text()
    cells = {line.split(" | ")[0]: line.split(" | ")[3] for line in text.splitlines() if line.startswith("| ")}
    assert (cells["| gru, tiny"], cells["| lstm"]) == ("2", "1") and "3 runs, " in text
    assert "\n\nLeft out, because their config is not that of their row: `gru-seed2`.\n" in text
    assert "\n\nOf an earlier config than the recipe has today: `lstm`.\n" in text


@pytest.mark.long
def test_an_interrupt_stops_and_the_same_command_goes_on(tmp_path, monkeypatch):
    original = SupervisedTrainer.step

    def stepping(self):
        if self.updates == 2:
            signal.raise_signal(signal.SIGTERM)
        return original(self)

    monkeypatch.setattr(SupervisedTrainer, "step", stepping)
    with pytest.raises(KeyboardInterrupt, match=r"step 3: saved in \S+; the same command goes on from there$"):
        reproduce(recipe(), root=tmp_path, seeds=1)
    monkeypatch.undo()
    reproduce(recipe(), root=tmp_path, seeds=1)
    whole = tmp_path / "whole"
    reproduce(recipe(), root=whole, seeds=1)
    timeless = [{k: v for k, v in r["gru-seed0.json"].items() if k in ("curve", "tests")}
                for r in (results(tmp_path), results(whole))]  # fmt: skip
    assert timeless[0] == timeless[1]


def test_some_rows_only(tmp_path):
    reproduce(recipe(), root=tmp_path, seeds=1, cores=["lstm"])
    assert sorted(results(tmp_path)) == ["lstm-seed0.json"]
    with pytest.raises(ValueError, match="unknown core of tiny 'lstn': did you mean 'lstm'"):
        reproduce(recipe(), root=tmp_path, cores=["lstn"])
    with pytest.raises(ValueError, match="seeds=0"):
        reproduce(recipe(), root=tmp_path, seeds=0)
    before = results(tmp_path)
    with pytest.raises(ValueError, match="device='gpu': torch has no such device"):
        reproduce(recipe(), root=tmp_path, device="gpu")
    assert results(tmp_path) == before, "no result became a failure"


def fake(score, rows=50, asked=4, seed=0):
    generator = np.random.default_rng(seed)
    right = generator.binomial(asked, score, rows)
    return {"correct": right.tolist(), "asked": [asked] * rows, "score": right.sum() / (asked * rows)}


def test_a_mixed_row_shows_score_and_failure():
    common = {"label": "x", "row": "x", "paper": "-", "command": "c", "commit": None, "scale": "lite",
              "hardware": {"accelerator": "GPU"}}  # fmt: skip
    tests = {"": fake(0.7) | {"paper": "-", "chance": 0.5}}
    good = common | {"tests": tests, "seed": 0, "status": "ok", "seconds": 60.0, "samples_to_perfect": 3200}
    bad = common | {"seed": 1, "status": "failed", "error": "NaN | at step 3"}
    text = table(recipe(), "lite", [good, bad])
    assert "(perfect after 3 200 samples) | 1 |" in text
    assert "Perfect after: rows that had been trained on" in text
    assert "Perfect after" not in table(recipe(), "lite", [good | {"samples_to_perfect": None}])
    assert "| x, seed 1 | - | failed: NaN \\| at step 3 | 0 | - | - | - | `c` |" in text
    assert "2 runs, **1 failed**, 1.0 minutes of training on GPU" in text
    changed = table(recipe(), "lite", [good | {"commit": "0123456789abcdef+changes"}])
    assert "0123456789ab+changes" in changed and "abcdef" not in changed


def test_a_score_without_chance_is_null_in_the_file_and_a_dash_in_the_table(tmp_path, monkeypatch):
    unknown = {"": fake(0.7) | {"paper": "-", "chance": math.nan, "oracle": math.nan}}
    common = {"label": "gru", "row": "gru, tiny", "paper": "-", "command": "c", "commit": None, "scale": "lite",
              "seed": 0, "hardware": {"accelerator": None, "processor": "p", "threads": 1}, "seconds": 1.0,
              "recipe": "tiny", "steps": 4, "samples_to_perfect": None, "status": "ok", "tests": unknown}  # fmt: skip
    monkeypatch.setattr(reproducing, "run_once", lambda *_, **__: common)
    reproduce(replace(recipe(), runs={"lite": lambda: recipe().rows("lite")[:1]}), root=tmp_path, seeds=1)
    text = (tmp_path / "results" / "tiny" / "gru-seed0.json").read_text()
    assert json.loads(text)["tests"][""]["chance"] is None and "NaN" not in text
    lines = (tmp_path / "docs" / "results.md").read_text().splitlines()
    heads, cells = (
        next(line for line in lines if start in line).split(" | ") for start in ("| chance |", "| gru, tiny")
    )
    assert cells[heads.index("chance")] == "-"


def test_all_committed_results_are_strict_json():
    folder = Path(__file__).parents[2] / "results"
    wrong = []
    for path in sorted(folder.rglob("*.json")):
        json.loads(path.read_text(), parse_constant=lambda name, path=path: wrong.append(f"{path}: {name}"))
    assert not wrong


def test_tables_wait_for_those_of_another_command(tmp_path):
    """Else the table that the other one adds between our reading and our writing would be lost."""
    place = tmp_path / "docs" / "results.md"
    place.parent.mkdir()
    lock = FileLock(tmp_path / "runs" / "reproduce" / "tables.lock")
    Path(lock.lock_file).parent.mkdir(parents=True)
    with lock:
        ours = threading.Thread(target=write_tables, args=(recipe(), tmp_path))
        ours.start()
        ours.join(0.5)
        assert ours.is_alive() and not place.exists()
        place.write_text("# Results\n\nof another recipe\n")
    ours.join(600)
    assert "of another recipe" in place.read_text()


def test_rows_that_a_recipe_has_no_more_stand_last_in_order():
    tests = {"": fake(0.7) | {"paper": "-", "chance": 0.5}}
    common = {"paper": "-", "command": "c", "commit": None, "scale": "lite", "seed": 0, "tests": tests,
              "hardware": {"accelerator": "GPU"}, "status": "ok", "samples_to_perfect": None}  # fmt: skip
    gone = [f"old{number}" for number in range(9)]
    found = [common | {"label": label, "row": label} for label in (*reversed(gone), "lstm", "gru")]
    lines = table(recipe(), "lite", found).splitlines()
    assert [line.split(" | ")[0] for line in lines if " | - | 0." in line] == [
        f"| {row}" for row in ("gru", "lstm", *gone)
    ]


def test_a_row_says_of_its_teacher_what_its_config_says():
    whole = to_json(training("t-maze", "gru"), REGISTRY)
    whole["loss"]["imitation"]["steps"] = whole["fit"]["steps"]
    result = {"label": "x", "row": "x", "paper": "-", "command": "c", "commit": None, "scale": "lite", "seed": 0,
              "hardware": {"accelerator": "GPU"}, "tests": {"": fake(0.7) | {"paper": "-", "chance": 0.5}},
              "status": "ok", "samples_to_perfect": None, "taught_by": "imitated oracle for 500 steps"}  # fmt: skip
    assert "| x (imitated oracle) |" in table(recipe(), "lite", [result | {"config": whole}])
    assert "| x (imitated oracle for 500 steps) |" in table(recipe(), "lite", [result])


def test_the_weights_that_training_begins_with_are_scored_beside_it(tmp_path):
    run = Run(label="gru", row="gru, tiny", core="gru", config=config(learning_rate=1.0), paper="0.9", untrained=True)
    path = reproduce(recipe(run), root=tmp_path, seeds=1)
    tests = results(tmp_path)["gru-seed0.json"]["tests"]
    assert sorted(tests) == ["", "untrained"] and tests["untrained"]["paper"] == "-"
    seed_everything(0)
    fresh = run.config.evaluate(run.config.build().agent, samples=512, seed=FRESH_SEED)
    assert tests["untrained"]["correct"] == fresh.by_row()[0] != tests[""]["correct"]
    assert "| gru, tiny, untrained | - |" in path.read_text()


def test_again_trains_anew_but_goes_on_with_what_was_stopped(tmp_path, monkeypatch):
    one = recipe(recipe().rows("lite")[0])
    reproduce(one, root=tmp_path, seeds=1)
    steps, original = [], SupervisedTrainer.step

    def stepping(self):
        steps.append(self.updates)
        if len(steps) == 3:
            signal.raise_signal(signal.SIGTERM)
        return original(self)

    monkeypatch.setattr(SupervisedTrainer, "step", stepping)
    with pytest.raises(KeyboardInterrupt):
        reproduce(one, root=tmp_path, seeds=1, again=True)
    reproduce(one, root=tmp_path, seeds=1, again=True)
    assert steps == [0, 1, 2, 3]
    assert "scored_by" not in results(tmp_path)["gru-seed0.json"]


def test_a_run_with_more_processor_time_goes_on_and_one_with_less_begins_anew(tmp_path, monkeypatch):
    steps, original = [], SupervisedTrainer.step
    monkeypatch.setattr(SupervisedTrainer, "step", lambda self: (steps.append(self.updates), original(self))[1])
    row = recipe().rows("lite")[0]
    damaged = tmp_path / "runs" / "reproduce" / "tiny" / "gru-seed0-00000000"
    damaged.mkdir(parents=True)
    (damaged / "config.json").write_text("{")
    for seconds, taken in ((1e-9, [0]), (None, [1, 2, 3]), (1e-9, [0]), (1e9, [1, 2, 3])):
        config = replace(row.config, fit=replace(row.config.fit, processor_seconds=seconds))
        reproduce(recipe(replace(row, config=config)), root=tmp_path, seeds=1)
        assert steps == taken, seconds
        assert results(tmp_path)["gru-seed0.json"]["config"]["fit"]["processor_seconds"] == seconds
        steps.clear()


def test_a_result_says_who_trained_and_who_only_scored(tmp_path, monkeypatch):
    one = recipe(recipe().rows("lite")[0])

    def scored_by(commit):
        """The result, and where the process that made it was."""
        here = {**environment(), "commit": commit, "time": f"{commit} o'clock"}
        for module in ("recollect.runs.run_directory", "recollect.recipes.reproduce"):
            monkeypatch.setattr(sys.modules[module], "environment", lambda: here)
        (tmp_path / "results" / "tiny" / "gru-seed0.json").unlink(missing_ok=True)
        reproduce(one, root=tmp_path, seeds=1)
        return results(tmp_path)["gru-seed0.json"], {key: here[key] for key in here if key != "command"}

    trained, here = scored_by("first")
    assert trained["commit"] == "first" and "scored_by" not in trained and trained["peak_memory_mib"] > 0
    for commit in ("second", "third"):
        scored, there = scored_by(commit)
        assert {key: scored[key] for key in here} == here and scored["scored_by"] == there
        assert scored["tests"] == trained["tests"] and scored["peak_memory_mib"] is None


def test_the_command_of_a_row_of_a_core_of_ones_own_names_it(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise ValueError("stopped")

    monkeypatch.setattr(reproducing, "fit", stopped)
    row = Run(label="own", row="own", core="package.module:Config", config=config())
    command = "recollect reproduce tiny --scale lite --cores package.module:Config"
    assert reproducing.run_once(recipe(row), row, "lite", tmp_path)["command"] == command
