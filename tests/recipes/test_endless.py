import importlib.util
import sys
from dataclasses import replace

import pytest

from recollect.recipes.endless import ENDLESS, IMITATION, LONG, ROWS, SECONDS, WORLD, endless
from recollect.recipes.reproduce import run_once
from recollect.training.loop import fit


def test_every_memory_is_taught_the_same_way():
    runs = ENDLESS.rows("lite")
    assert [run.row for run in runs] == list(ROWS)
    for run in runs:
        config = run.config
        assert (
            config.teacher_description == f"imitated oracle for {IMITATION.steps} steps"
            and "label targets" in config.training_aids
        )
        assert config.fit.processor_seconds == SECONDS <= 600 and config.fit.steps > config.loss.imitation.steps
        assert set(run.tests) == {"512 steps", "1024 steps"} and run.config.trained_on == WORLD
        assert 60_000 <= sum(p.numel() for p in config.core.build(64).parameters()) <= 105_000

    def same(config):
        supervision = replace(config.loss.supervision, attention_cost=0.0)
        return str({**vars(config), "core": None, "loss": replace(config.loss, supervision=supervision)})

    assert len({same(run.config) for run in runs}) == 1, "only the memory differs"
    started = {run.row: run.config.core.chrono_steps for run in runs if run.core in ("gru", "lstm")}
    kept = WORLD.steps
    assert started == {"gru": None, "gru, chrono start": kept, "lstm": None, "lstm, chrono start": kept}
    hcam = endless("hcam").core
    assert hcam.num_chunks * hcam.chunk_len >= LONG.steps and hcam.top_k < hcam.num_chunks
    with pytest.raises(ValueError, match="choose lite"):
        endless("gru", "paper")


def test_without_memory_gym_the_row_says_what_to_install(tmp_path, monkeypatch):
    for module in ("memory_gym", "memory_gym.endless_mortar_mayhem"):
        monkeypatch.setitem(sys.modules, module, None)
    result = run_once(ENDLESS, ENDLESS.rows("lite")[2], "lite", tmp_path)
    assert result["status"] == "failed"
    assert "pip install --no-deps memory-gym && pip install pygame-ce" in result["error"]


@pytest.mark.skipif(importlib.util.find_spec("memory_gym") is None, reason="memory-gym is not installed")
def test_it_imitates_and_then_reinforces(tmp_path):
    config = endless("gru")
    short = replace(
        config,
        batch_size=4,
        unroll=48,
        world=replace(WORLD, steps=60),
        loss=replace(config.loss, imitation=replace(config.loss.imitation, steps=1)),
        evaluation=replace(config.evaluation, episodes=2),
        fit=replace(config.fit, steps=2, evaluate_every=2),
    )
    outcome = fit(short, tmp_path / "run")
    assert outcome.status == "finished" and 0 <= outcome.evaluation["score"] <= 2
