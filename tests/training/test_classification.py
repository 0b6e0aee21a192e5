"""Training on whole rows: the loss, pretraining, and going on."""

import copy

import pytest
import torch
import torch.nn.functional as F
from broken_steps import assert_a_step_without_memory_leaves_the_generator

from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.config import TransformerConfig, TwoWayTLBConfig
from recollect.tasks import Arrays, ListOps
from recollect.training import ClassificationConfig, FitConfig, OptimizerConfig, PretrainingConfig, evaluate_run, fit
from recollect.training.saved_models import load_model
from small_runs import LISTOPS

TLB = TwoWayTLBConfig(
    core=TemporalLatentBottleneckConfig(dim=16, num_layers=1, self_per_cross=1, chunk_len=4, num_slots=3, causal=False)
)


def config(**changes):
    defaults = {
        "task": LISTOPS,
        "encoder": TransformerConfig(dim=16, num_layers=1),
        "batch_size": 8,
        "optimizer": OptimizerConfig(clip_norm=None, learning_rate=1e-2),
    }
    return ClassificationConfig(**(defaults | changes))


def trainer(**changes):
    torch.manual_seed(0)
    return config(**changes).build()


def test_steps_equal_a_literal_loop():
    ours = trainer()
    losses = [ours.step()["loss"] for _ in range(4)]
    torch.manual_seed(0)
    model = config().build_agent()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    generator, expected = torch.Generator().manual_seed(0), []
    for _ in range(4):
        batch = LISTOPS.sample(8, generator)
        loss = F.cross_entropy(model(batch.inputs, batch.inputs == 0), batch.targets.amax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-4)


def test_pretraining_restores_hidden_tokens_and_leaves_the_head_alone():
    ours = trainer(pretraining=PretrainingConfig(steps=30, share=0.3), fit=FitConfig(steps=40))
    head = copy.deepcopy(ours.agent.head.state_dict())
    losses = [ours.step()["loss"] for _ in range(30)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5]), "it learns to restore"
    assert all(torch.equal(value, head[name]) for name, value in ours.agent.head.state_dict().items())
    restore = ours.agent.restore.weight.clone()
    ours.step()
    assert not torch.equal(ours.agent.head[0].weight, head["0.weight"])
    assert torch.equal(ours.agent.restore.weight, restore)
    with pytest.raises(ValueError, match=r"pretraining.steps=40: leave some of the 40 steps"):
        config(pretraining=PretrainingConfig(steps=40), fit=FitConfig(steps=40))


@pytest.mark.parametrize("first", [0, 3])
def test_a_run_that_goes_on_equals_one_that_was_left_alone(tmp_path, first):
    def settings(steps):
        schedule = FitConfig(steps=steps, checkpoint_every=2, evaluate_every=4)
        return config(encoder=TLB, fit=schedule, pretraining=PretrainingConfig(steps=first))

    whole = fit(settings(8), tmp_path / "whole").agent.state_dict()
    fit(settings(4), tmp_path / "parts")
    again = fit(settings(8), tmp_path / "parts", resume=True).agent.state_dict()
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    assert len(evaluate_run(tmp_path / "whole", samples=500).asked) == 20, "the test part, once"
    batch = LISTOPS.sample(3, torch.Generator())
    loaded = load_model(tmp_path / "whole")
    torch.testing.assert_close(loaded(batch.inputs, batch.padding), fit_answer(whole, first, batch))


def fit_answer(weights, first, batch):
    model = config(encoder=TLB, pretraining=PretrainingConfig(steps=first)).build_agent().eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        return model(batch.inputs, batch.padding)


def test_a_step_without_memory_leaves_the_generator(monkeypatch):
    ours = trainer()
    assert_a_step_without_memory_leaves_the_generator(ours, "answer", monkeypatch)


def test_data_of_others_is_learned():
    ours = trainer(task=Arrays(), batch_size=32, optimizer=OptimizerConfig(learning_rate=3e-3))
    before = ours.evaluate()["score"]
    for _ in range(80):
        ours.step()
    assert ours.evaluate()["score"] > max(0.5, before + 0.2)


def test_bfloat16_trains():
    assert trainer(encoder=TLB, bfloat16=True).step()["loss"] > 0


@pytest.mark.slow
def test_the_bottleneck_learns_short_expressions():
    torch.manual_seed(0)
    task = ListOps(min_length=4, max_length=30, max_depth=3, max_args=4, train_rows=20_000)
    ours = ClassificationConfig(
        task=task,
        encoder=TwoWayTLBConfig(
            core=TemporalLatentBottleneckConfig(
                dim=64, num_layers=2, self_per_cross=1, chunk_len=10, num_slots=10, causal=False
            )
        ),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=100),
    ).build()
    for _ in range(1000):
        ours.step()
    assert ours.evaluate()["score"] > task.spec.chance + 0.2
