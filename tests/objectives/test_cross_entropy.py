import math

import pytest
import torch

from recollect.objectives.cross_entropy import accuracy, cross_entropy, is_correct


def literal(logits, targets, mask):
    total, count, right = 0.0, 0, 0
    for row in range(logits.shape[0]):
        for step in range(logits.shape[1]):
            if not mask[row, step]:
                continue
            scores = logits[row, step]
            normaliser = torch.log(sum(torch.exp(score) for score in scores))
            total = total + normaliser - scores[targets[row, step]]
            right += int(max(range(len(scores)), key=lambda k: scores[k].item()) == targets[row, step])
            count += 1
    return total / count, right / count


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_literal_loop_in_value_and_gradient(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.randint(0, 4, (3, 5), generator=generator)
    mask = torch.rand(3, 5, generator=generator) < 0.5
    expected, right = literal(logits, targets, mask)
    loss = cross_entropy(logits, targets, mask)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, logits)[0] for x in (loss, expected)))
    assert accuracy(logits, targets, mask).item() == pytest.approx(right)


def test_nan_outside_the_mask_stays_there():
    logits = torch.randn(2, 3, 4)
    logits[0, 1] = torch.nan
    logits.requires_grad_()
    mask = torch.tensor([[True, False, True], [False, False, True]])
    loss = cross_entropy(logits, torch.zeros(2, 3, dtype=torch.long), mask)
    loss.backward()
    assert math.isfinite(loss.item())
    assert logits.grad.isfinite().all()
    assert (logits.grad[~mask] == 0).all()


def test_nan_inside_the_mask_is_seen_and_never_correct():
    logits = torch.full((1, 1, 3), torch.nan)
    targets, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)
    assert cross_entropy(logits, targets, mask).isnan()
    assert not is_correct(logits, targets, mask).any()


def test_an_empty_mask_gives_zero_with_a_gradient():
    logits = torch.randn(2, 3, 4, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    loss = cross_entropy(logits, torch.zeros(2, 3, dtype=torch.long), nothing)
    loss.backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()
    assert accuracy(logits, torch.zeros(2, 3, dtype=torch.long), nothing).item() == 0


def test_label_smoothing_spreads_the_target():
    logits = torch.tensor([[[2.0, 0.0, -1.0]]])
    loss = cross_entropy(
        logits, torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool), label_smoothing=0.3
    )
    logs = logits[0, 0].log_softmax(-1)
    torch.testing.assert_close(loss, -(0.8 * logs[0] + 0.1 * logs[1] + 0.1 * logs[2]))


def test_low_precision_logits_are_summed_in_float32():
    logits = torch.randn(4, 8, 5).bfloat16()
    targets, mask = torch.randint(0, 5, (4, 8)), torch.ones(4, 8, dtype=torch.bool)
    loss = cross_entropy(logits, targets, mask)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, cross_entropy(logits.float(), targets, mask))


@pytest.mark.parametrize(
    ("targets", "mask", "message"),
    [
        (torch.zeros(2, 3).long(), torch.ones(2, 2).bool(), "do not agree"),
        (torch.zeros(3).long(), torch.ones(2, 3).bool(), "do not agree"),
        (torch.zeros(2, 3).long(), torch.ones(2, 3), r"mask\.bool"),
    ],
)
def test_bad_shapes_and_dtypes_are_named(targets, mask, message):
    with pytest.raises(ValueError, match=message):
        cross_entropy(torch.zeros(2, 3, 4), targets, mask)
