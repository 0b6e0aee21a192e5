"""What the lite recipes promise, learned for real. Minutes; run with -m slow."""

import pytest

from recollect.cores import GENERAL_CORES
from recollect.evaluation import sequences as evaluate
from recollect.evaluation.agents import evaluate_agent
from recollect.recipes.hierarchical_transformer_memory import t_maze, visual_match
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
