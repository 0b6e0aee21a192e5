import importlib.util
import json

import pytest
from recipe_runs import runs_of

from recollect.config import from_json, to_json
from recollect.cores import CORES, GENERAL_CORES
from recollect.recipes import RECIPES
from recollect.recipes.recall import recall
from recollect.recipes.temporal_latent_bottleneck import LENGTHS, ROWS, copying
from recollect.tasks import Copying, GymnasiumConfig, ImageTask, Mixture, StreamTask, WorldConfig
from recollect.tasks.gymnasium.mortar_mayhem import EndlessMortarMayhemConfig
from recollect.tasks.gymnasium.polygons import PolygonsConfig
from recollect.training import REGISTRY, DetectionConfig, SupervisedConfig, TrainerConfig
from tiers import first

SCALES = [pytest.param(recipe, scale, id=f"{key}-{scale}") for key, recipe in RECIPES.items() for scale in recipe.runs]


def is_missing(config):
    """Whether the world needs a package, or a backbone weights, that the tests do not have."""
    if isinstance(config, DetectionConfig) and config.agent.backbone != "patches":
        return True
    prefixes = {"popgym-": "popgym", "MortarMayhem": "memory_gym", "MiniGrid-": "minigrid"}
    world = config.trained_on
    if isinstance(world, EndlessMortarMayhemConfig):
        return importlib.util.find_spec("memory_gym") is None
    if isinstance(world, PolygonsConfig):
        return importlib.util.find_spec("mdp_playground") is None
    packages = [
        p for prefix, p in prefixes.items() if isinstance(world, GymnasiumConfig) and world.id.startswith(prefix)
    ]
    return any(importlib.util.find_spec(package) is None for package in packages)


WITHOUT_ABLATION = {("tlb-babyai", "paper"), ("tlb-decision-transformer", "paper"), ("models", "lite")}
"""The lite scale of the first two has it; at the paper's sizes they are its rows alone. Models are no comparison."""


@pytest.mark.parametrize("key", RECIPES)
def test_entries_carry_their_key(key):
    assert RECIPES[key].name == key
    assert RECIPES[key].seeds.keys() == RECIPES[key].runs.keys()
    assert "lite" in RECIPES[key].runs


@pytest.mark.parametrize(("recipe", "scale"), first(6, SCALES))
def test_runs_are_complete_configs(recipe, scale):
    rows = runs_of(recipe.name, scale)
    assert len({run.label for run in rows}) == len({run.row for run in rows}) == len(rows)
    if (recipe.name, scale) not in WITHOUT_ABLATION:
        assert "memoryless" in {run.core for run in rows}, "every comparison includes the ablation"
    for run in rows:
        data = json.loads(json.dumps(to_json(run.config, REGISTRY)))
        assert (data.get("core") or data["encoder"])["kind"] == run.core
        assert from_json(data, TrainerConfig, REGISTRY) == run.config
        if not is_missing(run.config):
            run.config.build_agent()


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "scale"), SCALES)
def test_tests_are_of_the_kind_that_was_trained_on(recipe, scale):
    for run in runs_of(recipe.name, scale):
        if is_missing(run.config):
            continue
        trained = run.config.trained_on
        for test in run.tests.values():
            parts = trained.tasks if isinstance(trained, Mixture) else (trained,)
            alike = (ImageTask,) if isinstance(trained, ImageTask) else tuple(type(part) for part in parts)
            assert isinstance(test.where, alike), "probes may be of other pictures"
            if isinstance(trained, WorldConfig):
                assert test.where.spec.observation_space == trained.spec.observation_space
                assert test.where.spec.action_space == trained.spec.action_space


@pytest.mark.parametrize(("recipe", "scale"), SCALES)
def test_no_finished_run_is_scored_on_rows_it_learned_from(recipe, scale):
    for run in runs_of(recipe.name, scale):
        for name, test in run.scored.items():
            if isinstance(test.where, StreamTask):
                assert test.where == test.where.scored_on(final=True), f"{run.row}, {name}"


def test_labels_of_the_scales_never_meet():
    for recipe in RECIPES.values():
        labels = [run.label for scale in recipe.runs for run in runs_of(recipe.name, scale)]
        assert len(set(labels)) == len(labels)


def test_an_unknown_scale_is_named():
    with pytest.raises(ValueError, match="scale='huge': copying has lite, paper"):
        runs_of("copying", "huge")
    with pytest.raises(ValueError, match="scale='paper'"):
        recall(scale="paper")


OWN_CORES = {"listops": "two-way-tlb", "tlb-images": "vit", "tlb-self-supervised": "vit-tlb"}


@pytest.mark.parametrize("key", RECIPES)
def test_a_scale_that_a_recipe_has_not_is_not_taken_for_another(key):
    core = OWN_CORES.get(key, "two-way-tlb" if key.startswith("arena") else "lstm")
    for scale in {"huge", "Lite", "long"} - RECIPES[key].runs.keys():
        with pytest.raises(ValueError, match=f"scale='{scale}'"):
            RECIPES[key].config(core, scale)


def test_any_core_can_be_asked_for_and_unknown_ones_get_a_suggestion():
    for key in CORES:
        assert copying(key).core == from_json(to_json(copying(key).core, REGISTRY), type(copying(key).core), REGISTRY)
        recall(key)
    with pytest.raises(ValueError, match="unknown core 'hcan'"):
        recall("hcan")


@pytest.mark.parametrize("length", LENGTHS)
def test_the_paper_scale_is_section_7_6(length):
    config = copying("tlb", "paper", length)
    core = config.core
    assert config.task == Copying(length=length)
    assert (core.num_layers, core.dim, core.hidden_dim) == (4, 256, 512)
    assert (core.self_per_cross, core.chunk_len, core.num_slots, core.num_heads) == (1, 10, 10, 8)
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay, config.batch_size) == (1e-4, 0.0, 100)
    assert config.optimizer.schedule == "constant"
    feedback = copying("feedback-transformer", "paper", length).core
    assert (feedback.num_layers, feedback.dim, feedback.hidden_dim) == (4, 256, 512)


def test_the_paper_scale_has_all_lengths_and_rows():
    rows = runs_of("copying", "paper")
    assert [(run.config.task.length, run.core) for run in rows] == [(n, core) for n in LENGTHS for core in ROWS]
    assert {run.row: run.paper for run in rows}["tlb, length 300"] == "1.000 (perfect after 12 700 samples)"
    assert {run.row: run.paper for run in rows}["feedback-transformer, length 500"] == "not perfect"


@pytest.mark.parametrize(("recipe", "scale"), SCALES)
def test_windows_reach_over_the_blank(recipe, scale):
    for run in runs_of(recipe.name, scale):
        # In worlds, in the data sheets and in the memory suite windows are shorter than what is asked: the point.
        if not isinstance(run.config, SupervisedConfig) or recipe.name in ("data-sheet", "memory-suite"):
            continue
        if hasattr(run.config.core, "memory_len") and run.core != "hcam":
            assert run.config.core.memory_len >= run.config.task.spec.memory_span, run.core


def test_recall_has_every_core_that_reads_any_vector():
    assert [run.core for run in runs_of("recall", "lite")] == list(GENERAL_CORES)


def test_chunks_of_many_levels_are_compared_where_all_are_played():
    rows = {run.row: run for run in runs_of("tlb-babyai", "paper")}
    several = [run for name, run in rows.items() if "eight levels" in name]
    assert len(several) == 6 and all(run.scored[""].where == several[0].config.world for run in several)
