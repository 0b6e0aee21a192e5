"""What recipes say about lag and reach, and the file in which it was measured."""

import json
import math

import pytest
from recipe_runs import runs_of

from recollect.cores import CORES
from recollect.recipes import RECIPES, memory_requirements
from recollect.recipes.hierarchical_transformer_memory.words import PAPER_LEVELS
from recollect.recipes.memory_requirements import all_tasks, name_of, policies_of, requirements_of
from recollect.recipes.reproduce import lag_and_reach, reach_of
from recollect.tasks import Copying, Recall, StreetLearnConfig, TMazeConfig
from recollect.tasks.memory_requirements import measure

STUDIES = ["htm-ballet", "htm-generalisation", "htm-visual-match", "htm-words", "htm-permanence", "htm-streets"]
SCALES = [
    pytest.param(RECIPES[key], scale, id=f"{key}-{scale}", marks=() if scale == "lite" else pytest.mark.long)
    for key in RECIPES
    for scale in RECIPES[key].runs
]
STUDY_SCALES = [
    pytest.param(RECIPES[key], scale, id=f"{key}-{scale}") for key in STUDIES for scale in ("lite", "paper")
]


@pytest.mark.parametrize(("recipe", "scale"), SCALES)
def test_what_is_said_to_need_more_than_windows_does(recipe, scale):
    for run in runs_of(recipe.name, scale):
        for name, test in run.scored.items():
            if not test.beyond_window:
                continue
            reach = reach_of(run.config)
            if reach is not None:
                needs = requirements_of(test.where)
                assert needs is not None and needs.lag >= 4 * reach, f"{run.row}, {name}: {needs}, reach {reach}"


@pytest.mark.parametrize(("recipe", "scale"), STUDY_SCALES)
def test_every_study_has_a_full_window_and_an_hcam_that_chooses(recipe, scale):
    rows = {run.row: run for run in runs_of(recipe.name, scale)}
    assert {"hcam", "transformer-xl", "lstm", "memoryless"} <= rows.keys()
    full = rows["transformer-xl, full window"]
    assert all(full.config.core.memory_len >= test.where.spec.max_steps for test in full.scored.values())
    assert not any(test.beyond_window for test in full.scored.values())
    chooses = next(run for name, run in rows.items() if name.startswith("hcam, k = "))
    core = chooses.config.core
    spans = [requirements_of(test.where).lag_high / core.stride for test in chooses.scored.values()]
    assert core.top_k < (min(spans) if scale == "lite" else max(spans)), "as many chunks are read as there are"
    for name in ("hcam", chooses.row):
        core = rows[name].config.core
        longest = max(test.where.spec.max_steps for test in rows[name].scored.values())
        assert core.num_chunks * core.stride >= longest - core.stride or scale == "paper", "chunks hold the episode"
    if scale == "lite":
        for name, run in list(rows.items()):
            taught = rows.get(f"{name}, imitated")
            assert name.endswith("imitated") or taught.config.teacher_description.startswith("imitated ")
            assert run.config.loss.imitation.steps is None or run.config.fit.steps >= run.config.loss.imitation.steps
        assert any(test.beyond_window for test in rows["hcam"].scored.values())
        assert rows["hcam"].config.core.top_k == rows["hcam"].config.core.num_chunks


@pytest.mark.parametrize("key", STUDIES)
def test_the_long_scale_is_the_lite_one_without_a_teacher_for_two_hours(key):
    lite, long = ({run.row: run for run in runs_of(key, scale)} for scale in ("lite", "long"))
    assert set(long) == {"hcam", "memoryless"}
    for name, run in long.items():
        config = run.config
        assert (
            config.teacher_description is None
            and not config.loss.supervision.on
            and config.fit.processor_seconds == 7200
        )
        assert (config.core, config.world) == (lite[name].config.core, lite[name].config.world)
        assert run.tests == lite[name].tests
        assert config == RECIPES[key].config(name, "long")


def test_the_long_levels_of_the_paper_lie_beyond_its_own_windows():
    words = {run.row: run for run in runs_of("htm-words", "paper")}["hcam"]
    assert words.config.core.reach == 4 * 128
    for name in PAPER_LEVELS:
        assert requirements_of(words.tests[name].where).lag > words.config.core.reach, name
    boxes = {run.row: run for run in runs_of("htm-permanence", "paper")}["hcam"]
    assert requirements_of(boxes.tests["longest delay"].where).lag > boxes.config.core.reach


@pytest.mark.long
def test_every_task_of_a_row_is_measured():
    kept = json.loads(memory_requirements.FILE.read_text())
    names = {name_of(task) for task in all_tasks()}
    assert names == kept["demands"].keys(), "python -m recollect.recipes.memory_requirements"
    assert set(kept["policies"]) == {name for name in names if name.startswith("street-learn")}


@pytest.mark.parametrize("task", [Copying(), Recall(), TMazeConfig(), TMazeConfig(length=200)])
def test_the_file_says_what_is_measured(task):
    kept, again = requirements_of(task), measure(task)
    assert (kept is None) == (again is None)
    assert kept == again


def test_what_is_not_in_the_file_is_measured():
    needs = requirements_of(Copying(length=7))
    assert needs.lag == 18 and requirements_of(Copying(length=7)) == needs
    small = StreetLearnConfig(cities=(0,), num_junctions=3, pool=8, steps=20)
    assert policies_of(Copying()) == {} and policies_of(TMazeConfig()) == {}
    before = memory_requirements.POLICY_EPISODES
    try:
        memory_requirements.POLICY_EPISODES = 16
        assert list(policies_of(small)) == ["best mixture", "replay", "explorer"]
    finally:
        memory_requirements.POLICY_EPISODES = before


def test_a_row_states_its_lag_and_its_reach():
    rows = {run.row: run for run in runs_of("htm-t-maze", "lite")}
    said = {name: lag_and_reach(run, test) for name, run in rows.items() for test in run.scored.values()}
    assert said["hcam, length 100"] == "100 / 32"
    assert said["lstm, length 100"] == "100 / ∞" and said["memoryless, length 100"] == "100 / 0"
    foreign = runs_of("gymnasium", "lite")[0]
    assert {lag_and_reach(foreign, test) for test in foreign.scored.values()} == {"-"}


def test_reach_of_every_core():
    windowed = {"causal-transformer", "transformer-xl", "hcam", "long-short-transformer", "timesformer"}
    for key, config in CORES.items():
        core = config()
        expected = core.num_layers * core.memory_len if key in windowed else 0 if key == "memoryless" else None
        assert core.reach == expected, key
    ttm = CORES["ttm"]
    for key in ("tlb", "instructed"):  # without slots, the running chunk
        assert CORES[key](feedback="none", chunk_len=7).reach == 7
    assert ttm(memory="concatenate", num_slots=12, num_tokens=3).reach == 4 and ttm(memory="none").reach == 0
    assert math.isfinite(CORES["hcam"](num_layers=3, memory_len=20).reach)
