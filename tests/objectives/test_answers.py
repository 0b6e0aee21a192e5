import math

import pytest
import torch

from recollect.objectives.answers import answer_loss, answer_score, mean_score
from recollect.objectives.cross_entropy import accuracy, cross_entropy

OUTPUTS = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.tensor([[True, False, True], [False, False, True]])


def test_classes_are_those_of_cross_entropy():
    targets = torch.tensor([[1, 2, 3], [0, 0, 2]])
    assert torch.equal(answer_loss(OUTPUTS, targets, MASK), cross_entropy(OUTPUTS, targets, MASK))
    assert mean_score(OUTPUTS, targets, MASK) == accuracy(OUTPUTS, targets, MASK)
    weights, total = torch.tensor([1.0, 2.0, 3.0, 4.0]), 0.0
    for row, step in MASK.nonzero().tolist():
        target = int(targets[row, step])
        total -= float(weights[target]) * float(OUTPUTS[row, step].log_softmax(-1)[target])
    assert float(answer_loss(OUTPUTS, targets, MASK, weights)) == pytest.approx(total / 3)


def test_values_are_squared():
    values = torch.randn(2, 3, 4, dtype=torch.float64)
    values[~MASK] = math.nan  # what is not asked may be anything
    outputs = OUTPUTS.clone().requires_grad_()
    loss = answer_loss(outputs, values, MASK)
    wanted = sum(float((OUTPUTS[r, s] - values[r, s]).square().mean()) for r, s in MASK.nonzero().tolist()) / 3
    assert loss.item() == pytest.approx(wanted)
    loss.backward()
    assert outputs.grad.isfinite().all() and (outputs.grad[~MASK] == 0).all()
    score = answer_score(OUTPUTS, values, MASK)
    assert (score[~MASK] == 0).all() and float(score.sum() / 3) == pytest.approx(1 - wanted)
    assert float(mean_score(OUTPUTS, values, MASK)) == pytest.approx(1 - wanted)
    assert answer_loss(OUTPUTS, values, torch.zeros_like(MASK)) == 0
    with pytest.raises(ValueError, match="do not agree"):
        answer_loss(OUTPUTS, values[..., :1], MASK)
