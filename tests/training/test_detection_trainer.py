from dataclasses import replace

import pytest
import torch

from recollect.agents import ActivityDetectorConfig
from recollect.cores import CORES
from recollect.training import DetectionConfig, FitConfig, OptimizerConfig, evaluate_run, fit, load_model
from small_runs import ACTIVITIES

CONFIG = DetectionConfig(
    task=ACTIVITIES,
    core=CORES["ttm"](dim=8, num_tokens=4, num_slots=3, num_reads=2, num_heads=2, hidden_dim=8),
    agent=ActivityDetectorConfig(size=16, width=8),
    batch_size=4,
    evaluation_rows=8,
    fit=FitConfig(steps=4, evaluate_every=2, checkpoint_every=2, report_every=1),
)


def weights(model):
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path):
    whole = fit(CONFIG, tmp_path / "whole")
    half = replace(CONFIG, fit=replace(CONFIG.fit, steps=2))
    fit(half, tmp_path / "half")
    again = fit(CONFIG, tmp_path / "half", resume=True)
    assert torch.equal(weights(whole.agent), weights(again.agent))
    assert torch.equal(weights(load_model(tmp_path / "half")), weights(whole.agent))
    score = evaluate_run(tmp_path / "half", samples=8)
    assert 0 < score.score <= 1 and "mAP" in score.describe()


def test_the_loss_of_the_last_frame_alone():
    trainer = replace(CONFIG, loss_on="last").build()
    lengths = set()
    for seed in range(12):
        batch = trainer._cut(ACTIVITIES.sample(2, torch.Generator().manual_seed(seed)))
        assert torch.equal(batch.loss_mask.sum(1), torch.ones(2, dtype=torch.long)) and batch.loss_mask[:, -1].all()
        lengths.add(batch.inputs.shape[1])
    assert len(lengths) > 3 and max(lengths) <= 12
    assert trainer.step()["loss"] > 0


def test_the_backbone_learns_at_its_own_rate():
    config = replace(CONFIG, backbone_rate=0.0, optimizer=OptimizerConfig(learning_rate=0.1))
    trainer = config.build()
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.step()
    for name, value in trainer.model.named_parameters():
        assert torch.equal(value, before[name]) or not name.startswith("backbone."), name
    assert not torch.equal(trainer.model.readout.weight, before["readout.weight"])


@pytest.mark.parametrize(("field", "value"), [("label_smoothing", 1.0), ("loss_on", "first"), ("backbone_rate", -1.0)])
def test_bad_fields_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        replace(CONFIG, **{field: value})
