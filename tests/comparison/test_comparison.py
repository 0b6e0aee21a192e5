import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from recollect.agents.registry import REGISTRY
from recollect.comparison.compare import compare, curve
from recollect.comparison.curves import distinguish, flatten, read_run
from recollect.config import to_json
from recollect.cores import CORES
from recollect.evaluation.confidence_interval import Interval
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import CurriculumConfig, FitConfig, SupervisedConfig, fit
from run_maker import TASKS, make_run


def test_a_comparison_by_hand(tmp_path):
    plain = [make_run(tmp_path, "memoryless", seed, [0.2, score]) for seed, score in enumerate((0.3, 0.3, 0.4))]
    gru = [make_run(tmp_path, "gru", seed, [0.2, score]) for seed, score in enumerate((0.9, 0.3, 1.0, 0.8))]
    found = compare([*gru, *plain])
    assert [group.label for group in found.groups] == ["memoryless", "gru"]  # the ablation comes first
    assert [group.task for group in found.groups] == ["recall", "recall"]
    base, ours = found.groups
    assert base.score == pytest.approx(1 / 3) and base.versus is None and base.improvement is None
    assert ours.score == pytest.approx(0.85)  # 0.3 and 1.0 are cut
    assert ours.versus == "memoryless"
    assert ours.improvement == pytest.approx((3 + 3 + 0.5 * 2 + 3) / 12)
    assert ours.interval.low < 0.85 < ours.interval.high
    assert ours.median("step") == 20 and ours.median("seconds") == 2.0 and ours.median("reward") is None
    assert base.runs[0].chance == pytest.approx(1 / 3) and base.runs[0].oracle == 1.0
    assert (found.notes, found.overall) == ([], [])
    json.dumps(found.to_json(), allow_nan=False)


def test_curves_equal_a_literal_interpolation(tmp_path):
    one = read_run(make_run(tmp_path, "gru", 0, [0.0, 1.0, 0.5]))
    two = read_run(make_run(tmp_path, "gru", 1, [0.4, 0.8], every=20))
    found = curve([one, two], "step")
    assert (found.at[0], found.at[-1]) == (20, 30)  # both have been evaluated; the first ends
    for at, middle in zip(found.at, found.middle, strict=True):
        first = 1.0 - 0.5 * (at - 20) / 10
        second = 0.4 + 0.4 * (at - 20) / 20
        assert middle == pytest.approx((first + second) / 2)
    low, high = np.minimum(found.low, found.high), found.high
    assert (low <= found.middle + 1e-9).all() and (found.middle <= high + 1e-9).all()
    np.testing.assert_allclose(curve([one, two], "seconds").at * 10, found.at)


def test_a_run_that_ran_out_of_processor_time_is_finished(tmp_path):
    plan = {"steps": 3, "evaluate_every": 1, "checkpoint_every": 1}
    made = SupervisedConfig(task=TASKS["recall"], core=CORES["gru"](dim=4, num_layers=1), batch_size=2)
    fit(replace(made, fit=FitConfig(**plan, processor_seconds=1e-9)), tmp_path / "short")
    assert (read_run(tmp_path / "short").ending, read_run(tmp_path / "short").last("step")) == ("finished", 1)
    path = tmp_path / "short" / "config.json"
    path.write_text(path.read_text().replace("1e-09", "1000.0"))  # as if it went on, and was killed at once
    assert read_run(tmp_path / "short").ending == "unfinished"


def test_a_solved_run_keeps_its_score_and_an_unfinished_one_ends_the_curve(tmp_path):
    solved = read_run(make_run(tmp_path, "gru", 0, [0.5, 1.0], planned=80, stop_score=0.95))
    whole = read_run(make_run(tmp_path, "gru", 1, [0.5] * 8))
    killed = read_run(make_run(tmp_path, "gru", 2, [0.0] * 4, planned=80))
    assert [run.ending for run in (solved, whole, killed)] == ["solved", "finished", "unfinished"]
    found = curve([solved, whole], "step")
    assert found.at[-1] == 80 and found.middle[-1] == pytest.approx(0.75)
    assert curve([solved, whole, killed], "step").at[-1] == 40
    assert curve([solved], "step").low is None and curve([solved], "step").at[-1] == 20


def test_what_a_reader_has_to_know_is_noted(tmp_path):
    runs = [
        make_run(tmp_path, "gru", 0, [0.5, 0.6], planned=40),
        make_run(tmp_path, "gru", 0, [0.5, 0.6, 0.7, 0.8]),
        make_run(tmp_path, "lstm", 0, [0.5]),
        make_run(tmp_path, "lstm", 1, [None]),
    ]
    found = compare(runs)
    assert len(found.groups[0].runs) == 2 and found.groups[0].score == pytest.approx(0.7)  # it is not left out
    notes = "\n".join(found.notes)
    assert f"{runs[0]} is unfinished, at step 20 of 40" in notes
    assert "recall, gru: 2 runs have seed 0; they are not independent" in notes
    assert f"{runs[3]} has no score yet: left out" in notes
    assert "a single run has no interval" in notes
    assert found.groups[1].interval is None and found.groups[1].improvement == 0.0


def test_runs_of_other_settings_are_other_groups(tmp_path):
    runs = [make_run(tmp_path, "gru", seed, [0.5], batch_size=size) for seed, size in ((0, 8), (1, 8), (0, 16))]
    found = compare(runs)
    assert [(group.label, len(group.runs)) for group in found.groups] == [
        ("gru (batch_size=8)", 2),
        ("gru (batch_size=16)", 1),
    ]
    named = compare(runs, names=["small", "small", "large"])
    assert [(group.label, len(group.runs)) for group in named.groups] == [("small", 2), ("large", 1)]


def test_what_helped_in_learning_is_in_every_label(tmp_path):
    helped = make_run(tmp_path, "gru", 0, [0.5], curriculum=CurriculumConfig(field="max_blank", values=(0,)))
    plain = make_run(tmp_path, "gru", 0, [0.5])
    (label, other) = (group.label for group in compare([helped, plain]).groups)
    assert label.startswith("gru, curriculum over max_blank") and "curriculum over" not in other
    assert compare([helped]).groups[0].label == "gru, curriculum over max_blank"


def test_settings_that_are_nested_are_told_by_their_shortest_name():
    settings = [flatten({"a": {"n": size}, "b": {"n": size}, "lr": 0.1, "kind": "x"}) for size in (1, 2)]
    assert distinguish(["gru"] * 2, settings) == ["gru (a.n=1, b.n=1)", "gru (a.n=2, b.n=2)"]
    assert distinguish(["gru"] * 2, [flatten({"a": {"n": 1}}), {}]) == ["gru (n=1)", "gru (n=absent)"]


def test_over_all_tasks_scores_are_scaled_and_strata_kept(tmp_path):
    runs = []
    for task, scores in {"recall": (0.4, 0.8), "copying": (0.5, 0.9)}.items():
        for seed, score in enumerate(scores):
            runs.append(make_run(tmp_path, "memoryless", seed, [score - 0.1], task=task))
            runs.append(make_run(tmp_path, "gru", seed, [score], task=task))
    found = compare(runs)
    assert found.tasks == ["recall", "copying"]
    assert [row.label for row in found.overall] == ["gru", "memoryless"]
    chance = {group.task: group.runs[0].chance for group in found.groups}
    scaled = [(0.4 - 1 / 3) * 1.5, (0.8 - 1 / 3) * 1.5]
    scaled += [(score - chance["copying"]) / (1 - chance["copying"]) for score in (0.5, 0.9)]
    assert found.overall[0].score == pytest.approx(stats.trim_mean(scaled, 0.25))
    assert isinstance(found.overall[0].interval, Interval)


def test_axes_are_columns(tmp_path):
    run = make_run(tmp_path, "gru", 0, [0.1, 0.2], extra={"environment_steps": [1000.0, 2000.0]})
    assert compare([run], axis="environment_steps").groups[0].curve.at[-1] == 2000
    other = make_run(tmp_path, "gru", 1, [0.1, 0.2])
    with pytest.raises(ValueError, match=r"axis='environment_steps': .* all runs have step, seconds"):
        compare([run, other], axis="environment_steps")


def test_a_trained_run_is_read(tmp_path):
    config = SupervisedConfig(
        task=TASKS["recall"], core=CORES["gru"](dim=4), fit=FitConfig(steps=2), batch_size=2, evaluation_rows=4
    )
    outcome = fit(config, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.score == pytest.approx(outcome.evaluation["score"])
    assert (run.ending, run.seed, run.task_kind, run.core_kind) == ("finished", 0, "recall", "gru")
    assert "torch" in run.where


def test_a_run_of_a_changed_source_tree_says_so(tmp_path):
    path = make_run(tmp_path, "gru", 0, [0.5])
    entry = {"hardware": {"accelerator": "GPU"}, "versions": {"torch": "2"}, "commit": f"{'0123456789' * 4}+changes"}
    (path / "environment.json").write_text(json.dumps([entry]))
    assert read_run(path).where == "GPU; torch 2; commit 012345678901+changes"


def test_chance_and_oracle_of_worlds_are_known(tmp_path):
    path = make_run(tmp_path, "gru", 0, [0.5])
    config = json.loads((path / "config.json").read_text())
    config["kind"], config["world"] = "impala", to_json(TMazeConfig(length=5), REGISTRY)
    del config["task"]
    (path / "config.json").write_text(json.dumps(config))
    run = read_run(path)
    assert (run.chance, run.oracle) == (0.5, 1.0)
    config["world"] = {"kind": "nobody.knows:This"}
    (path / "config.json").write_text(json.dumps(config))
    run = read_run(path)
    assert (run.chance, run.oracle, run.task_kind) == (None, None, "This")


def test_a_damaged_run_is_left_out_and_named(tmp_path):
    whole = [make_run(tmp_path, "gru", seed, [0.5]) for seed in range(2)]
    damages = {
        "a number as text": lambda text: text.replace('"steps": ', '"steps": "six", "was": '),
        "a list for an object": lambda text: text.replace('"task": {', '"task": [1], "was": {'),
        "half a file": lambda text: text[: len(text) // 2],
    }
    broken = []
    for number, damage in enumerate(damages.values()):
        path = make_run(tmp_path, "lstm", number, [0.5])
        config = path / "config.json"
        config.write_text(damage(config.read_text()))
        broken.append(path)
    found = compare([*whole, *broken])
    assert [run.path for group in found.groups for run in group.runs] == whole
    for path in broken:
        assert sum(f"{path} is left out: {path / 'config.json'}" in note for note in found.notes) == 1, found.notes
    with pytest.raises(ValueError, match=r"config\.json"):
        compare(broken)


def test_mistakes_are_named(tmp_path):
    run = make_run(tmp_path, "gru", 0, [0.5])
    for arguments, message in (
        (([],), "no run is named"),
        (([tmp_path],), r"not a run directory"),
        (([run, run],), "is named twice"),
        (([make_run(tmp_path, "gru", 1, [], planned=10)],), "has no score yet"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(*arguments)
    with pytest.raises(ValueError, match="2 names for 1 runs"):
        compare([run], names=["a", "b"])
    assert math.isnan(read_run(make_run(tmp_path, "gru", 2, [None])).score)
