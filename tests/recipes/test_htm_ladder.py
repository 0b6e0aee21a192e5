"""The recipe of ladders of levels."""

from pathlib import Path

import pytest
from recipe_runs import runs_of

from recollect.config import to_json
from recollect.recipes.htm_ladder import LADDERS, RATES, ROWS, ladder, ladder_table, levels_passed
from recollect.recipes.memory_requirements import requirements_of
from recollect.recipes.reproduce import reach_of
from recollect.training import REGISTRY

ALL = [*runs_of("htm-ladder", "lite"), *runs_of("htm-ladder", "long")]


def test_every_world_has_every_row_at_every_rate():
    for name in LADDERS:
        rows = [run.row for run in ALL if run.row.startswith(f"{name}: ")]
        assert sorted(rows) == sorted(f"{name}: {row}, rate {rate:g}" for row in ROWS for rate in RATES)
    assert len({run.label for run in ALL}) == len(ALL) == len(LADDERS) * len(ROWS) * len(RATES)


@pytest.mark.parametrize("name", LADDERS)
def test_runs_climb_the_levels_that_they_are_scored_on_without_other_help(name):
    levels = LADDERS[name].levels
    for run in (run for run in ALL if run.row.startswith(f"{name}: ")):
        config = run.config
        reconstruction = () if LADDERS[name].layers == 1 else ("reconstruction",)
        assert config.training_aids == (*reconstruction, f"curriculum over {LADDERS[name].field}")
        assert config.teacher_description is None and not config.loss.supervision.on
        assert config.schedule.curriculum.levels(config.world) == tuple(levels.values())
        assert {test: where.where for test, where in run.tests.items()} == levels


@pytest.mark.parametrize("name", LADDERS)
def test_levels_get_longer_and_pass_the_reach_of_short_windows(name):
    lags = [requirements_of(world).lag_high for world in LADDERS[name].levels.values()]
    assert lags == sorted(lags) and lags[-1] > 4 * lags[0]
    reaches = {run.row: reach_of(run.config) for run in ALL if run.row.startswith(f"{name}: ")}
    for row, reach in reaches.items():
        if "full window" in row:
            assert reach >= lags[-1]
        elif "hcam" in row or "transformer-xl" in row:
            assert reach < lags[-1] / 4


@pytest.mark.parametrize("name", LADDERS)
def test_memories_are_of_one_size_and_chunks_hold_the_longest_episode(name):
    cores = {run.row: run.config.core for run in ALL if run.row.startswith(f"{name}: ")}
    sizes = {core: sum(p.numel() for p in core.build(64).parameters()) for core in set(cores.values())}
    assert max(sizes.values()) < 1.1 * min(sizes.values())
    hcam = next(core for row, core in cores.items() if "hcam" in row)
    assert hcam.num_chunks * hcam.chunk_len >= LADDERS[name].world.spec.max_steps and hcam.top_k == hcam.num_chunks


def _result(row, passed, scores, seed=0, status="ok", seconds=60.0):
    levels = [*LADDERS["t-maze"].levels]
    tests = {
        level: {"correct": [round(100 * score)], "asked": [100]} for level, score in zip(levels, scores, strict=False)
    }
    numbers = {"parameters": 250_000, "state_bytes": 5_000, "tests": tests}
    outcome = {"seed": seed, "status": status, "error": "ValueError: x", "processor_seconds": seconds}
    return {"row": f"t-maze: {row}", "levels_passed": passed, **outcome, **numbers}


def test_the_table_shows_the_best_rate_and_what_is_not_trained():
    results = [
        _result("hcam, rate 0.001", 3, [1, 1, 1, 0.5, 0.5, 0.5]),
        _result("hcam, rate 0.0005", 0, [0.5, 1, 1, 1, 1, 1]),
        _result("hcam, rate 0.0005", 3, [1, 1, 1, 0.5, 0.6, 0.5], seed=1, seconds=120.0),
        _result("transformer-xl, rate 0.001", 0, [0.5, 1, 1, 1, 1, 0.5]),
        _result("lstm, rate 0.001", 0, [], status="failed"),
    ]
    assert [levels_passed(result) for result in results[:4]] == [3, 6, 3, 0]
    lines = ladder_table(results, Path()).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:]]
    assert lines[0] == "**t-maze**" and len(lines) == 7
    assert cells[0][:5] == ["hcam", "0.0005 of 2", "2", "250,000", "5.0 kB"]
    assert cells[0][5:] == ["0.75", "1.00", "1.00", "0.75", "0.80", "0.75", "4.5 of 6", "1.5"]
    assert (cells[1][0], cells[1][-2]) == ("transformer-xl", "not trained")
    assert cells[2] == ["lstm", *"----", *"------", "failed: ValueError: x", "-"]


def test_of_two_rates_that_pass_as_many_levels_the_sooner_is_shown():
    results = [
        _result("lstm, rate 0.001", 5, [1] * 6, seconds=90.0),
        _result("lstm, rate 0.002", 5, [1] * 6, seconds=30.0),
    ]
    assert "| lstm | 0.002 of 2 |" in ladder_table(results, Path())


def test_worlds_scales_and_cores_are_chosen_by_name():
    assert ladder("lstm", "long", "words").world == LADDERS["words"].world
    assert ladder().world == LADDERS["t-maze"].world
    for arguments, match in (
        (("gru", "lite"), "gru"),
        (("lstm", "paper"), "scale='paper'"),
        (("lstm", "lite", "words"), "world"),
    ):
        with pytest.raises(ValueError, match=match):
            ladder(*arguments)


CHANGES = {
    "hcam": set(),
    "hcam, chunks of 4": {"core.chunk_len", "core.num_chunks"},
    "hcam, chunks of 16": {"core.chunk_len", "core.num_chunks", "core.memory_len"},
    "hcam, k = 1": {"core.top_k"},
    "hcam, k = 2": {"core.top_k"},
    "hcam, k = 4": {"core.top_k"},
    "hcam, gated": {"core.reading.gate"},
    "hcam, without reconstruction": {"agent.reconstruct"},
    "transformer-xl": set(),
    "transformer-xl, top-k 8": {"core.top_k"},
    "transformer-xl, ungated": {"core.gate", "core.relu_outputs"},
    "transformer-xl, wide": {"core.dim"},
    "transformer-xl, deep": {"core.num_layers"},
    "memoryless": set(),
}


def _flat(data, prefix=""):
    if not isinstance(data, dict):
        return {prefix.removesuffix("."): data}
    return {key: value for name, part in data.items() for key, value in _flat(part, f"{prefix}{name}.").items()}


def test_each_ablation_changes_one_thing():
    runs = {run.row: run for run in runs_of("htm-ablations", "lite")}
    assert [*runs] == [*CHANGES]
    flat = {row: _flat(to_json(run.config, REGISTRY)) for row, run in runs.items()}
    for row, changed in CHANGES.items():
        base = flat[row.split(",")[0]]
        assert {key for key in base | flat[row] if base.get(key) != flat[row].get(key)} == changed, row
