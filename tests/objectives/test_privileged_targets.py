import math

import pytest
import torch

from recollect.objectives.privileged_targets import LEAST_MASS, attention_loss, interval_mass, label_loss


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_both_losses_are_what_a_loop_says(reduction):
    logits = torch.randn(3, 4, 5, requires_grad=True)
    labels = torch.randint(-1, 5, (3, 4))
    mass = torch.rand(3, 4).requires_grad_()
    valid = torch.rand(3, 4) < 0.6
    named, looked = [], []
    for row in range(3):
        for t in range(4):
            if labels[row, t] >= 0:
                named.append(logits[row, t].logsumexp(0) - logits[row, t, labels[row, t]])
            if valid[row, t]:
                looked.append(-mass[row, t].log())
    for got, terms, leaf in (
        (label_loss(logits, labels, reduction=reduction), named, logits),
        (attention_loss(mass, valid, reduction=reduction), looked, mass),
    ):
        want = torch.stack(terms).sum() if reduction == "sum" else torch.stack(terms).mean()
        torch.testing.assert_close(got, want)
        (one,), (other,) = torch.autograd.grad(got, leaf), torch.autograd.grad(want, leaf)
        torch.testing.assert_close(one, other)


def test_several_labels_of_a_step_count_one_by_one():
    logits, labels = torch.randn(3, 4, 2, 5), torch.randint(-1, 5, (3, 4, 2))
    apart = label_loss(logits.flatten(1, 2), labels.flatten(1, 2))
    torch.testing.assert_close(label_loss(logits, labels), apart)


def test_without_a_target_they_are_zero_and_no_loss_is_infinite():
    logits = torch.randn(2, 3, 4, requires_grad=True)
    loss = label_loss(logits, torch.full((2, 3), -1), reduction="mean")
    (grad,) = torch.autograd.grad(loss, logits)
    assert loss == 0 and (grad == 0).all()
    none = torch.zeros(2, 3)
    assert attention_loss(none, none.bool()) == 0
    assert attention_loss(none, ~none.bool(), reduction="mean").item() == pytest.approx(-math.log(LEAST_MASS))
    with pytest.raises(ValueError, match="do not agree"):
        label_loss(logits, torch.zeros(2, 4, dtype=torch.long))


def test_mass_is_what_falls_on_places_that_hold_a_step_of_the_interval():
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.4]]])
    first = torch.tensor([[[-1, 0, 4, 8]]])  # nothing, then chunks of four steps
    places = first, torch.where(first < 0, -1, first + 4)
    for start, stop, want in ((0, 4, 0.2), (3, 5, 0.5), (8, 9, 0.4), (12, 14, 0.0), (-1, 3, 0.0)):
        mass, reached = interval_mass(weights, places, torch.tensor([[start]]), torch.tensor([[stop]]))
        assert mass.item() == pytest.approx(want)
        assert bool(reached) == (want > 0)
