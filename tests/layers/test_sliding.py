import pytest
import torch

from recollect.layers.sliding import keep_top, sliding_attention, to_full, to_window, visible_steps
from recollect.layers.windows import slide, slide_layers


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


@pytest.mark.parametrize("t", [4, 70, 130])  # less than a block, two blocks of which one is short, three
@pytest.mark.parametrize("kind", ["plain", "offsets", "bias", "top_k"])
def test_equals_the_literal_loop_in_values_and_gradients(t, kind):
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
    weights = keep_top(scores, torch.tensor([[False, True, True]]), 3)
    assert weights[0, 0] == 0
    torch.testing.assert_close(weights[0, 1:], torch.tensor([2.0, 1.0]).softmax(-1))


@pytest.mark.parametrize("t", [2, 5])
def test_all_layers_slide_as_one_does(t):
    cache, new = torch.randn(3, 2, 4, 6), [torch.randn(3, t, 6) for _ in range(2)]
    count = torch.tensor([1, 3, 4])
    together = slide_layers(cache, new, count)
    for layer in range(2):
        assert torch.equal(together[:, layer], slide(cache[:, layer], new[layer], count))
