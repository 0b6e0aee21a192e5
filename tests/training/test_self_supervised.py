"""Learning without labels: the losses, going on, probes of other pictures."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from broken_steps import assert_a_step_without_memory_leaves_the_generator

from recollect.agents.config import SiTConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.config import TransformerConfig, ViTTLBConfig
from recollect.layers.positions import patches
from recollect.objectives.contrastive import nt_xent
from recollect.tasks import Shapes
from recollect.tasks.images.contract import normalize
from recollect.training import FitConfig, OptimizerConfig, SelfSupervisedConfig, fit
from recollect.training.streams.self_supervised import weigh

SIZES = {"dim": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 24}
TLB = ViTTLBConfig(
    core=TemporalLatentBottleneckConfig(**SIZES, chunk_len=4, num_slots=3, causal=False, positions="none")
)


def config(**changes):
    defaults = {
        "task": Shapes(size=16),
        "encoder": TransformerConfig(**SIZES),
        "agent": SiTConfig(embedding_dim=16, contrast_dim=8),
        "optimizer": OptimizerConfig(learning_rate=3e-3),
        "batch_size": 8,
        "probe_rows": 60,
        "evaluation_rows": 40,
    }
    return SelfSupervisedConfig(**(defaults | changes))


def trainer(**changes):
    torch.manual_seed(0)
    return config(**changes).build()


def test_a_step_is_the_three_losses_weighed():
    ours = trainer()
    twin, generator = copy.deepcopy(ours.model), ours.generator.get_state()
    inputs, targets, quarters = ours._draw_views()
    assert inputs.shape == targets.shape == (16, 16, 48) and not torch.equal(inputs, targets)
    assert set(quarters.tolist()) <= {0, 1, 2, 3}
    ours.generator.set_state(generator)
    numbers = ours.step()
    rotation, contrast, restored = twin(inputs)
    parts = (
        F.cross_entropy(rotation, quarters),
        nt_xent(contrast[:8], contrast[8:], 0.5),
        (restored - targets).abs().mean(),
    )
    found = [numbers[name] for name in ("rotation", "contrast", "restoring")]
    assert found == pytest.approx([part.item() for part in parts], rel=1e-4)
    a, b, c = found
    assert numbers["loss"] == pytest.approx((a + b + c / 2) / math.e + 1.5, rel=1e-4)
    assert not torch.equal(ours.model.log_variances, twin.log_variances), "they are learned"
    losses, s = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, -1.0])
    assert weigh(losses, s).item() == pytest.approx(1 + 2 / math.e + 1.5 * math.e)


def test_views_are_of_the_pair_that_the_task_draws(monkeypatch):
    monkeypatch.setattr("recollect.training.streams.self_supervised.random_view", lambda images, generator: images)
    monkeypatch.setattr("recollect.training.streams.self_supervised.rotate", lambda images, quarters: images)
    task = Shapes(size=16, pair="same-shape")
    ours = trainer(task=task)
    generator = torch.Generator()
    generator.set_state(ours.generator.get_state())
    _, targets, _ = ours._draw_views()
    wanted = torch.cat(task.picture_pairs(8, generator))
    assert torch.equal(targets, patches(normalize(wanted), task.patch))
    assert ours.config.training_aids == ("pairs share their shape alone",) and config().training_aids == ()


def test_it_learns_to_restore_and_to_know_views_again():
    ours = trainer(batch_size=16)
    steps = [ours.step() for _ in range(60)]
    for name in ("restoring", "contrast"):
        first, last = (sum(step[name] for step in part) / 10 for part in (steps[:10], steps[-10:]))
        assert last < 0.95 * first, name


@pytest.mark.parametrize("encoder", [TransformerConfig(**SIZES), TLB], ids=["sit", "sit-tlb"])
def test_a_run_that_goes_on_equals_one_that_was_left_alone(tmp_path, encoder):
    def settings(steps):
        return config(encoder=encoder, fit=FitConfig(steps=steps, checkpoint_every=2, evaluate_every=4))

    whole = fit(settings(4), tmp_path / "whole").agent.state_dict()
    fit(settings(2), tmp_path / "parts")
    again = fit(settings(4), tmp_path / "parts", resume=True).agent.state_dict()
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def test_a_step_without_memory_leaves_the_generator(monkeypatch):
    ours = trainer()
    assert_a_step_without_memory_leaves_the_generator(ours, "forward", monkeypatch)


def test_probes_leave_no_trace_and_other_pictures_can_be_probed():
    ours, settings = trainer(), config()
    before = ours.generator.get_state(), copy.deepcopy(ours.model.state_dict())
    found = settings.evaluate(ours.model, Shapes(size=32), samples=30, seed=1)
    assert len(found.asked) == 30 and found.chance == 1 / 8
    ours.evaluate()
    assert torch.equal(ours.generator.get_state(), before[0]) and ours.model.training
    assert all(torch.equal(value, before[1][name]) for name, value in ours.model.state_dict().items())
    for make, message in (
        (lambda: config(batch_size=1), "batch_size=1"),
        (lambda: config(probe_rows=1), "probe_rows=1: give at least two pictures"),
        (lambda: settings.evaluate(ours.model, samples=0, seed=1), "samples=0: score one picture at least"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
