"""Robot policies: rows, sizes of the paper, and that a policy learns from a dataset of LeRobot's format."""

from dataclasses import replace

import pytest
import torch

from recollect.evaluation.recordings import demonstrate, write_recording
from recollect.recipes import RECIPES
from recollect.recipes.robots import WORLDS, robots
from recollect.recipes.train import training
from recollect.training import CloningConfig, FitConfig, ImpalaConfig, TeacherConfig, fit, load_model


def small(config, **changes):
    core = replace(config.core, dim=16, num_slots=2, num_reads=2, num_tokens=3, num_heads=2, hidden_dim=16)
    changes = {"batch_size": 4, "unroll": 8, "fit": FitConfig(steps=3)} | changes
    return replace(
        config,
        core=core,
        agent=replace(config.agent, width=16),
        evaluation=replace(config.evaluation, episodes=4),
        **changes,
    )


def test_every_world_has_ttm_its_own_ablation_and_no_memory():
    rows = [run.row for run in RECIPES["ttm-robots"].rows("lite")]
    for place in WORLDS:
        assert {f"{name}: {place}" for name in ("ttm", "ttm, no memory", "memoryless", "lstm")} <= set(rows)
    assert "memoryless, film-resnet: goal shown once" in rows


def test_lite_policies_see_picture_and_words_alone():
    """With their own last action a policy without memory could hand the secret on."""
    for run in RECIPES["ttm-robots"].rows("lite"):
        assert run.config.agent.previous_action == "none" and not run.config.agent.previous_reward


def test_the_paper_scale_is_section_3_3_2():
    core = robots("ttm", "paper").core
    assert (core.num_slots, core.num_reads, core.num_tokens, core.num_layers) == (96, 16, 27, 8)
    rows = {run.row: run for run in RECIPES["ttm-robots"].rows("paper")}
    assert rows["ttm, no memory"].config.core.memory == "none"
    assert {name: run.paper for name, run in rows.items()} == {
        "ttm": "0.893", "ttm, no memory": "0.793", "BC EfficientNet": "0.801", "BC ResNet": "0.798"}  # fmt: skip


def test_the_worlds_can_be_reinforced_too():
    assert isinstance(training("goal-shown-once", "ttm"), CloningConfig)
    reinforced = training("goal-shown-once", "lstm", trainer="impala")
    assert isinstance(reinforced, ImpalaConfig) and reinforced.loss.imitation.steps is None


def test_a_policy_learns_from_a_dataset_of_lerobot(tmp_path):
    pytest.importorskip("pyarrow")
    world = replace(WORLDS["goal shown once"], side=20, delay=1)
    write_recording(demonstrate(world, 6), f"lerobot:{tmp_path / 'shown'}")
    config = small(robots("ttm", world=world), teacher=TeacherConfig(name=f"lerobot:{tmp_path / 'shown'}"))
    torch.manual_seed(0)
    outcome = fit(config, tmp_path / "run")
    assert outcome is not None and load_model(tmp_path / "run") is not None
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert "recorded_steps" in rows[0]


def test_recorded_episodes_have_no_targets_of_the_world():
    config = robots()
    recorded = replace(config, teacher=TeacherConfig(name="lerobot:somewhere"))
    assert config.training_aids == ("label targets", "weight on decisions") and recorded.training_aids == ()
    assert config.build_agent().num_labels == 4 and recorded.build_agent().num_labels == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", WORLDS)
def test_ttm_remembers_what_no_other_policy_can_know(place):
    torch.manual_seed(0)
    for core, low, high in (("ttm", 0.9, 1.0), ("memoryless", 0.0, WORLDS[place].spec.chance + 0.1)):
        config = robots(core, world=WORLDS[place])
        trainer = config.build()
        for _ in range(config.fit.steps):
            trainer.step()
        assert low <= config.evaluate(trainer.agent, samples=256, seed=5).score.value <= high
