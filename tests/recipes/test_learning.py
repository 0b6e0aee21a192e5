"""What the lite recipes promise, learned for real. Minutes; run with -m slow."""

from dataclasses import replace

import pytest

from recollect.cores import GENERAL_CORES
from recollect.evaluation.agents import evaluate_agent
from recollect.evaluation.sequences import evaluate
from recollect.recipes import RECIPES
from recollect.recipes.hierarchical_transformer_memory import t_maze, visual_match
from recollect.recipes.htm_inference import inference
from recollect.recipes.recall import recall
from recollect.recipes.temporal_latent_bottleneck import copying
from recollect.training import fit


@pytest.mark.slow
def test_tlb_copies_perfectly(tmp_path):
    outcome = fit(copying("tlb"), tmp_path / "run")
    assert evaluate(outcome.agent, copying("tlb").task, num_rows=512, seed=11).score == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("key", GENERAL_CORES)
def test_every_core_recalls_and_memoryless_is_at_chance(tmp_path, key):
    outcome = fit(recall(key), tmp_path / "run")
    scored = evaluate(outcome.agent, recall(key).task, num_rows=512, seed=11)
    if key == "memoryless":
        assert scored.low <= scored.chance <= scored.high
    else:
        assert scored.score > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("make", "share"), [(t_maze, 0.95), (visual_match, 0.95)])
def test_hcam_agents_remember(tmp_path, make, share):
    config = make("hcam")
    outcome = fit(config, tmp_path / "run")
    score = evaluate_agent(outcome.agent, config.world, 512, seed=11).score
    assert score > share * config.world.spec.oracle > config.world.spec.chance


@pytest.mark.slow
def test_hcam_joins_two_pairs(tmp_path):
    config = inference("hcam")
    joined = replace(config.task, types=("AC",))
    outcome = fit(replace(config, fit=replace(config.fit, steps=1500)), tmp_path / "run")
    asked = {"samples": 128, "seed": 11}
    assert config.evaluate(outcome.agent, joined, **asked).score > 0.85
    untrained = config.evaluate(config.build().agent, joined, **asked)
    assert untrained.low <= untrained.chance <= untrained.high


@pytest.mark.slow
def test_chunks_reach_what_windows_and_no_memory_do_not(tmp_path):
    runs = {run.label: run.config for run in RECIPES["htm-permanence"].rows("lite")}
    scores = {}
    for core in ("hcam", "transformer-xl", "memoryless"):
        config = runs[f"{core}-imitated-lite"]
        agent = fit(config, tmp_path / core).agent
        scores[core] = evaluate_agent(agent, config.world, 512, seed=11)
    chance = scores["hcam"].chance
    assert scores["hcam"].low > 0.9 > scores["transformer-xl"].high
    for core in ("transformer-xl", "memoryless"):
        assert scores[core].low <= chance + 0.05 and scores[core].high >= chance - 0.05
