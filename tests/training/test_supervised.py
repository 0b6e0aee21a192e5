import math

import numpy as np
import pytest
import torch

from recollect.cores import CORES
from recollect.objectives.cross_entropy import cross_entropy
from recollect.state import detach
from recollect.tasks import Arrays, Copying
from recollect.training import FitConfig, OptimizerConfig, SupervisedConfig
from small_runs import recall

TASK = recall()


def config(**changes):
    defaults = {
        "task": TASK,
        "core": CORES["gru"](dim=6, num_layers=1),
        "batch_size": 4,
        "optimizer": OptimizerConfig(clip_norm=None, learning_rate=1e-2),
    }
    return SupervisedConfig(**(defaults | changes))


def trainer(**changes):
    torch.manual_seed(0)
    return config(**changes).build()


@pytest.mark.parametrize("unroll", [None, 4, 11, 50])
def test_steps_equal_a_literal_loop(unroll):
    ours = trainer(unroll=unroll)
    losses = [ours.step()["loss"] for _ in range(7)]

    torch.manual_seed(0)
    model = config().build_agent()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    expected = []
    while len(expected) < 7:
        batch = TASK.sample(4, generator)
        state = model.initial_state(4)
        for start in range(0, 11, unroll or 11):
            part = batch.steps(start, start + (unroll or 11))
            logits, state = model(part.inputs, detach(state), part.is_first)
            loss = cross_entropy(logits, part.targets, part.loss_mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
    assert losses == pytest.approx(expected[:7], rel=1e-5)


@pytest.mark.parametrize("unroll", [None, 4, 11, 50])
def test_rows_are_counted_once_however_many_unrolls_they_have(unroll):
    ours = trainer(unroll=unroll)
    drawn, rows = [], ours._draw_rows
    ours._draw_rows = lambda: drawn.append(1) or rows()
    for step in range(1, 8):
        ours.step()
        found = ours.config.experience([{"step": str(step), "score": "1.0"}])
        assert found == {"samples": 4 * len(drawn), "samples_to_perfect": 4 * len(drawn)}


def test_memory_is_carried_between_unrolls():
    # With unrolls of one step a query can be answered only from the carried memory.
    ours = trainer(unroll=1)
    for _ in range(3):
        ours.step()
    carried = ours.state
    assert any(leaf.abs().sum() > 0 for leaf in carried)
    assert not any(leaf.requires_grad for leaf in carried)


def test_rates():
    warm = OptimizerConfig(learning_rate=2.0, warmup_steps=4)
    assert [warm.rate(step, 100) for step in (0, 1, 3, 4, 99)] == [0.5, 1.0, 2.0, 2.0, 2.0]
    cosine = OptimizerConfig(learning_rate=2.0, warmup_steps=10, schedule="cosine")
    assert cosine.rate(10, 110) == 2.0
    assert cosine.rate(60, 110) == pytest.approx(1.0)
    assert cosine.rate(110, 110) == pytest.approx(0.0)
    root = OptimizerConfig(learning_rate=2.0, warmup_steps=100, schedule="rsqrt")
    assert root.rate(400, 1000) == pytest.approx(1.0)
    assert root.rate(99, 1000) == pytest.approx(root.rate(100, 1000))
    assert OptimizerConfig(schedule="rsqrt").rate(0, 10) == 1e-3


def test_the_rate_reaches_the_optimizer():
    ours = trainer(optimizer=OptimizerConfig(learning_rate=0.5, warmup_steps=2))
    assert ours.step()["learning_rate"] == 0.25
    assert {group["lr"] for group in ours.optimizer.param_groups} == {0.25}


def test_only_matrices_decay():
    ours = trainer(optimizer=OptimizerConfig(weight_decay=0.1))
    decayed, spared = ours.optimizer.param_groups
    assert decayed["weight_decay"] == 0.1 and spared["weight_decay"] == 0.0
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert any(p is ours.agent.encoder.weight for p in spared["params"])
    total = sum(p.numel() for group in ours.optimizer.param_groups for p in group["params"])
    assert total == sum(p.numel() for p in ours.agent.parameters())


def test_long_gradients_are_scaled_down():
    ours = trainer(optimizer=OptimizerConfig(clip_norm=1e-3))
    assert ours.step()["gradient_norm"] > 1e-3
    after = torch.stack([p.grad.norm() for p in ours.agent.parameters() if p.grad is not None]).norm()
    assert after.item() == pytest.approx(1e-3, rel=1e-3)


def test_evaluation_leaves_no_trace():
    ours, alone = trainer(core=CORES["gru"](dim=6, dropout=0.5)), trainer(core=CORES["gru"](dim=6, dropout=0.5))
    torch.manual_seed(3)
    first = ours.evaluate()
    assert first == ours.evaluate()
    one = [ours.step()["loss"] for _ in range(3)]
    torch.manual_seed(3)
    assert one == [alone.step()["loss"] for _ in range(3)]
    assert ours.agent.training


def test_bfloat16_trains():
    ours = trainer(bfloat16=True)
    assert math.isfinite(ours.step()["loss"])
    assert all(p.dtype == torch.float32 for p in ours.agent.parameters())


def test_unrolls_without_a_question_report_no_accuracy():
    ours = trainer(task=Copying(length=9, num_digits=1), unroll=4)
    reported = ["accuracy" in ours.step() for _ in range(3)]
    assert reported == [False, False, True]


def test_classes_of_a_file_are_learned_and_scored_on_its_parts():
    ours = trainer(task=Arrays(), core=CORES["gru"](dim=24, num_layers=1), batch_size=32)
    before = ours.evaluate()["score"]
    for _ in range(100):
        ours.step()
    assert ours.evaluate()["score"] > max(0.7, before + 0.2)
    seen = []

    class Told(Arrays):
        def batches(self, num_rows, batch_size, generator):
            seen.append(self.part)
            return super().batches(num_rows, batch_size, generator)

    told = config(task=Told())
    model = told.build_agent()
    assert len(told.evaluate(model, samples=500, seed=0).asked) == 60
    told.build().evaluate()
    assert seen == ["test", "validation"]


@pytest.mark.parametrize("unroll", [None, 5])
def test_values_are_learned(tmp_path, unroll):
    numbers = np.random.default_rng(0).normal(0, 1, (200, 10, 1))
    np.savez(tmp_path / "data.npz", inputs=numbers, targets=50 + 20 * np.roll(numbers, 1, 1)[:, :, 0])
    task = Arrays(path=str(tmp_path / "data.npz"))
    ours = trainer(task=task, core=CORES["gru"](dim=16, num_layers=1), batch_size=32, unroll=unroll)
    assert ours.model.num_classes == 1 and task.spec.input_dim == 1
    for _ in range(120):
        numbers = ours.step()
    score = ours.evaluate()
    assert 0.6 < score["score"] < 1 and math.isnan(score["perfect"])  # the first step of a row cannot be known
    assert numbers["training_score"] == pytest.approx(1 - numbers["loss"], abs=1e-5)
    assert "training_score" in ours.step_metrics and "accuracy" not in {*ours.step_metrics, *ours.shown}


def test_classes_weigh_as_the_task_says():
    task = Arrays(class_weights="balanced")
    ours, plain = trainer(task=task), trainer(task=Arrays())
    batch = task.sample(4, torch.Generator().manual_seed(0))
    logits, _ = plain.model(batch.inputs, plain.model.initial_state(4), batch.is_first)
    weights = torch.tensor(task.spec.class_weights)
    wanted = cross_entropy(logits, batch.targets, batch.loss_mask, class_weights=weights).item()
    assert ours.step()["loss"] == pytest.approx(wanted, rel=1e-5) != pytest.approx(plain.step()["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: config(batch_size=0), "batch_size=0"),
        (lambda: config(unroll=0), "unroll=0"),
        (lambda: config(evaluation_rows=0), "evaluation_rows=0"),
        (lambda: config(device="gpu").build(), "device='gpu'"),
        (lambda: OptimizerConfig(learning_rate=0), "learning_rate=0"),
        (lambda: OptimizerConfig(schedule="step"), "schedule='step'"),
        (lambda: OptimizerConfig(clip_norm=0), "clip_norm=0"),
        (lambda: OptimizerConfig(warmup_steps=-1), "warmup_steps=-1"),
        (lambda: OptimizerConfig(weight_decay=-1), "weight_decay=-1"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_a_missing_accelerator_is_named():
    with pytest.raises(ValueError, match="device='cuda': no accelerator is visible"):
        config(device="cuda").build()
    assert config(device="auto").build().device.type == "cpu"


def test_the_title_names_task_and_core():
    assert config(fit=FitConfig()).title == "recall · GRU"
