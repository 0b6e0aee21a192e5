import pytest
import torch

from recollect.layers import window_attention
from recollect.layers.window_attention import (
    next_count,
    plan_window,
    slide,
    slide_layers,
    sliding_attention,
    softmax_top_k,
    steps_since_first,
    to_full,
    to_window,
    visible_steps,
)


def history(is_first, count, window):
    """Per row and step, the ids of the steps that it may see: cached ones are -1 (newest), -2, ..."""
    seen, counts = [], []
    for firsts, have in zip(is_first.tolist(), count.tolist(), strict=True):
        past, row = [-(i + 1) for i in range(have)][::-1], []
        for step, first in enumerate(firsts):
            past = [] if first else past
            row.append([*(past[-window:] if window else []), step])
            past = [*past, step]
        seen.append(row)
        counts.append(min(len(past), window))
    return seen, counts


@pytest.mark.parametrize("window", [0, 1, 3, 9])
@pytest.mark.parametrize("t", [1, 2, 7])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_mask_count_and_slide_follow_the_history(window, t, rate):
    b = 6
    is_first = torch.rand(b, t) < rate
    count = torch.randint(0, window + 1, (b,))
    seen, counts = history(is_first, count, window)
    mask = to_full(visible_steps(steps_since_first(is_first, count), window))
    assert mask.shape == (b, t, window + t)
    for row in range(b):
        for step in range(t):
            ids = [key - window for key in mask[row, step].nonzero().flatten().tolist()]
            assert ids == seen[row][step]
    assert next_count(is_first, count, window).tolist() == counts
    plan = plan_window(is_first, count, window)
    assert torch.equal(to_full(plan.visible), mask) and plan.count.tolist() == counts
    for row in range(b):
        assert [j - window for j in plan.held[row, :, 0].nonzero().flatten().tolist()] == seen[row][0][:-1]

    cached = torch.where(torch.arange(window, 0, -1) <= count[:, None], torch.arange(-window, 0) * 1.0, 0.0)
    new = torch.arange(t).expand(b, t) + 100.0
    after = slide(cached, new, next_count(is_first, count, window))
    for row in range(b):
        past = [i + 100.0 if i >= 0 else float(i) for i in seen[row][-1]]
        past = past[-counts[row] :] if counts[row] else []
        assert after[row].tolist() == [0.0] * (window - len(past)) + past


def test_slide_drops_nan_of_an_earlier_episode():
    cache, new = torch.full((1, 3, 2), torch.nan), torch.tensor([[[torch.nan, 1.0], [2.0, 3.0]]])
    is_first = torch.tensor([[False, True]])
    after = slide(cache, new, next_count(is_first, torch.tensor([3]), 3))
    assert after.tolist() == [[[0.0, 0.0], [0.0, 0.0], [2.0, 3.0]]]


def test_steps_since_first_counts_within_the_running_episode():
    is_first = torch.tensor([[False, True, False, True], [False, False, False, False]])
    assert steps_since_first(is_first, torch.tensor([5, 2])).tolist() == [[5, 0, 1, 0], [2, 3, 4, 5]]


@pytest.mark.parametrize(("t", "w"), [(1, 1), (1, 5), (4, 1), (5, 3), (3, 5)])
def test_window_layout_and_back(t, w):
    full = torch.arange(2.0 * t * (w + t)).view(2, t, w + t)
    window = to_window(full, w)
    for i in range(t):
        for j in range(w + 1):
            assert window[1, i, j] == full[1, i, i + j]
    again = to_full(window)
    near = to_full(torch.ones(2, t, w + 1, dtype=torch.bool))
    assert near.sum() == 2 * t * (w + 1)
    assert torch.equal(again, full.masked_fill(~near, 0.0))


def literal(queries, keys, values, age, w, p=None, r=None, bias=None, top_k=None):
    h, b, t, _ = queries.shape
    out = torch.zeros_like(queries)
    for head in range(h):
        for row in range(b):
            for i in range(t):
                offsets = range(min(w, int(age[row, i])) + 1)
                scores = []
                for o in offsets:
                    score = queries[head, row, i] @ keys[head, row, w + i - o]
                    score = score + (p[head, row, i] @ r[head, w - o] if p is not None else 0)
                    scores.append(score + (bias[head, w - o] if bias is not None else 0))
                best = sorted(offsets, key=lambda o: -scores[o].item())[:top_k]
                total = sum(scores[o].exp() for o in best)
                out[head, row, i] = sum(scores[o].exp() / total * values[head, row, w + i - o] for o in best)
    return out


@pytest.mark.parametrize("t", [4, 20])  # less than a block; three blocks of which one is short
@pytest.mark.parametrize("kind", ["plain", "offsets", "bias", "top_k"])
def test_equals_the_literal_loop_in_values_and_gradients(t, kind, monkeypatch):
    monkeypatch.setattr(window_attention, "MIN_BLOCK", 8)
    h, b, w, e = 2, 2, 3, 2
    leaves = {
        "queries": torch.randn(h, b, t, e, dtype=torch.float64),
        "keys": torch.randn(h, b, w + t, e, dtype=torch.float64),
        "values": torch.randn(h, b, w + t, e, dtype=torch.float64),
    }
    if kind == "offsets":
        leaves |= {"p": torch.randn(h, b, t, e).double(), "r": torch.randn(h, w + 1, e).double()}
    if kind == "bias":
        leaves["bias"] = torch.randn(h, w + 1, dtype=torch.float64)
    for leaf in leaves.values():
        leaf.requires_grad_()
    age = torch.randint(0, 6, (b, t))
    top_k = 2 if kind == "top_k" else None
    names = {"p": "offset_queries", "r": "offset_keys"}
    fast = sliding_attention(
        visible=visible_steps(age, w), top_k=top_k, **{names.get(name, name): leaf for name, leaf in leaves.items()}
    )
    slow = literal(age=age, w=w, top_k=top_k, **leaves)
    torch.testing.assert_close(fast, slow)
    weight = torch.randn_like(slow)
    for one, other in zip(
        torch.autograd.grad((fast * weight).sum(), leaves.values()),
        torch.autograd.grad((slow * weight).sum(), leaves.values()),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_top_k_of_fewer_visible_steps_ignores_the_hidden_ones():
    scores = torch.tensor([[torch.finfo(torch.float32).min, 2.0, 1.0]])
    weights = softmax_top_k(scores, torch.tensor([[False, True, True]]), 3)
    assert weights[0, 0] == 0
    torch.testing.assert_close(weights[0, 1:], torch.tensor([2.0, 1.0]).softmax(-1))


@pytest.mark.parametrize("t", [2, 5])
def test_all_layers_slide_as_one_does(t):
    cache, new = torch.randn(3, 2, 4, 6), [torch.randn(3, t, 6) for _ in range(2)]
    count = torch.tensor([1, 3, 4])
    together = slide_layers(cache, new, count)
    for layer in range(2):
        assert torch.equal(together[:, layer], slide(cache[:, layer], new[layer], count))
