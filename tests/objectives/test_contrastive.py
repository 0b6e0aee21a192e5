"""NT-Xent beside a literal loop."""

import math

import pytest
import torch

from recollect.objectives.contrastive import nt_xent


def test_it_is_the_papers_equation():
    one, other = torch.randn(2, 5, 7, dtype=torch.float64)
    views = [*one, *other]
    total = 0.0
    for i, z in enumerate(views):
        likeness = [math.exp(torch.cosine_similarity(z, w, dim=0).item() / 0.5) for w in views]
        total -= math.log(likeness[(i + 5) % 10] / (sum(likeness) - likeness[i]))
    assert abs(nt_xent(one, other, 0.5).item() - total / 10) < 1e-9


def test_equal_views_that_differ_from_all_others_cost_next_to_nothing():
    one = torch.eye(6)
    assert nt_xent(one, one, 0.05) < 1e-6 < nt_xent(one, one.roll(1, 0), 0.05)
    assert nt_xent(one.bfloat16(), one.bfloat16(), 0.05).dtype == torch.float32


def test_under_autocast_it_is_computed_in_float32():
    one, other = torch.randn(2, 16, 32)
    with torch.autocast("cpu", torch.bfloat16):
        found = nt_xent(one, other, 0.1)
    assert found == nt_xent(one, other, 0.1)


@pytest.mark.parametrize(
    ("views", "temperature", "message"),
    [
        ((torch.ones(3, 4), torch.ones(2, 4)), 0.5, r"\[3, 4\] and \[2, 4\] do not agree"),
        ((torch.ones(3), torch.ones(3)), 0.5, r"\[3\] and \[3\] do not agree"),
        ((torch.ones(3, 4), torch.ones(3, 4)), 0.0, "temperature=0.0: give a positive"),
    ],
)
def test_bad_arguments_are_named(views, temperature, message):
    with pytest.raises(ValueError, match=message):
        nt_xent(*views, temperature)
