import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.hcam.attention import (
    ChunkAttentionVariant,
    HierarchicalAttention,
    LocalAttention,
    choose_chunks,
    scatter_topk,
)
from recollect.layers.tap import listen
from recollect.layers.window_attention import visible_steps
from tiers import first

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "htm_attention.npz")
RECORDS = {record["name"]: record for record in json.loads(str(GOLDEN["meta_json"]))["cases"]}
FORMS = ["project", "absorb", "gather"]
PLACES = {  # ours: official
    "chunk_query": "query",
    "chunk_key": "key",
    "query": "within_mem_attn/query",
    "key": "within_mem_attn/key",
    "value": "within_mem_attn/value",
    "out": "within_mem_attn/linear",
}


def golden(case, group, name, dtype):
    return torch.from_numpy(GOLDEN[f"{case}/{group}/{name}"]).to(dtype)


def official(case, dtype):
    """The layer with the recorded parameters, and the recorded gradients by our parameters' names."""
    record, gradients = RECORDS[case], {}
    layer = HierarchicalAttention(
        record["E"],
        record["heads"],
        record["k"],
        memory_dim=record["D"],
        feature_dim=record["F"],
        reading=ChunkAttentionVariant(chunk_positions=record["pos"]),
    ).to(dtype)
    for ours, theirs in PLACES.items():
        name = f"hierarchical_memory_attention/{theirs}"
        child = getattr(layer, ours)
        with torch.no_grad():
            child.weight.copy_(golden(case, "param", f"{name}/w", dtype).T)
            if child.bias is not None:
                child.bias.copy_(golden(case, "param", f"{name}/b", dtype))
        gradients[f"{ours}.weight"] = golden(case, "grad_param", f"{name}/w", dtype).T
        if child.bias is not None:
            gradients[f"{ours}.bias"] = golden(case, "grad_param", f"{name}/b", dtype)
    return layer, gradients


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", RECORDS)
def test_equals_the_released_code_in_values_and_gradients(case, form):
    dtype = torch.float32
    layer, gradients = official(case, dtype)
    queries, keys, contents = (
        golden(case, "in", name, dtype).requires_grad_() for name in ("queries", "keys", "contents")
    )
    mask = torch.from_numpy(GOLDEN[f"{case}/in/mask"]) if f"{case}/in/mask" in GOLDEN else None
    out = layer(queries, keys, contents, mask, form=form)
    torch.testing.assert_close(out, golden(case, "out", "output", dtype), atol=2e-5, rtol=1e-5)
    (out * torch.from_numpy(GOLDEN[f"{case}/cotangent"]).to(dtype)).sum().backward()
    close = {"atol": 2e-4, "rtol": 1e-4}
    torch.testing.assert_close(queries.grad, golden(case, "grad_in", "queries", dtype), **close)
    assert keys.grad is None and contents.grad is None  # the recorded ones are exactly zero
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[name], **close, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("case", RECORDS)
def test_chooses_the_recorded_chunks(case):
    layer, _ = official(case, torch.float64)
    queries, keys = golden(case, "in", "queries", torch.float64), golden(case, "in", "keys", torch.float64)
    mask = torch.from_numpy(GOLDEN[f"{case}/in/mask"]) if f"{case}/in/mask" in GOLDEN else None
    index, weights = layer.choose(queries, keys, mask)
    ours = weights if index is None else scatter_topk(index, weights, keys.shape[1])
    place, weight = (torch.from_numpy(GOLDEN[f"{case}/derived/topk_{name}"]) for name in ("index", "weight"))
    theirs = torch.zeros_like(ours).scatter(-1, place.long(), weight.to(ours))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_key_bias_that_is_left_out_has_no_gradient_in_the_released_code():
    for case in RECORDS:
        name = f"{case}/grad_param/hierarchical_memory_attention/within_mem_attn/key"
        assert np.abs(GOLDEN[f"{name}/b"]).max() < 1e-5 * np.abs(GOLDEN[f"{name}/w"]).max()


def make(top_k=2, dim=8, heads=2, **reading):
    layer = HierarchicalAttention(dim, heads, top_k, reading=ChunkAttentionVariant(**reading)).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def memory(b=2, t=4, n=5, c=3, dim=8):
    queries, contents = torch.randn(b, t, dim).double(), torch.randn(b, n, c, dim).double()
    return queries, contents.mean(2), contents, torch.rand(b, t, n) < 0.6


@pytest.mark.parametrize("relevance", ["topk_softmax", "full_softmax"])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("top_k", [3, 9])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("steps", [1, 4])  # the positions of few queries are scored apart from the contents
def test_all_forms_agree_in_values_and_gradients(relevance, positions, partial, top_k, apart, steps):
    layer = make(top_k, relevance=relevance, chunk_positions=positions, relevance_heads=apart)
    queries, keys, contents, mask = memory(t=steps)
    mask[0, -1] = False
    valid = torch.arange(3) >= torch.randint(0, 3, (2, 5, 1)) if partial else None
    queries.requires_grad_()
    cotangent, found = torch.randn_like(queries), {}
    for form in FORMS:
        out = layer(queries, keys, contents, mask, valid=valid, form=form)
        found[form] = [out, *torch.autograd.grad((out * cotangent).sum(), [queries, *layer.parameters()])]
    for form in FORMS[1:]:
        for one, other in zip(found[form], found["project"], strict=True):
            torch.testing.assert_close(one, other)


def test_the_form_follows_from_the_shapes():
    layer = make(2, dim=8, heads=2)
    assert layer.form(16, torch.Size((1, 5, 3, 8))) == "project"
    assert layer.form(7, torch.Size((1, 5, 3, 8))) == "absorb"
    assert layer.form(8, torch.Size((1, 5, 3, 8))) == "project"
    assert layer.form(1, torch.Size((1, 8, 3, 8))) == "gather"


@pytest.mark.parametrize("form", FORMS)
def test_a_query_without_chunks_gets_exactly_nothing(form):
    layer = make()
    queries, keys, contents, mask = memory()
    mask[1, 2] = False
    out = layer(queries, keys, contents, mask, form=form)
    assert (out[1, 2] == 0).all() and (out[1, 1] != 0).any()
    none = layer(queries, keys[:, :0], contents[:, :0], mask[..., :0])
    assert none.shape == queries.shape and (none == 0).all()


def test_heads_with_relevances_of_their_own_are_as_many_layers_of_one_head():
    """Each reads k chunks of its own; together they are the sum of what layers of a head each would read."""
    layer = make(2, relevance_heads=True)
    queries, keys, contents, mask = memory()
    mask[0, 1] = False
    wanted = torch.zeros(2, 4, 8).double()
    for head in (slice(0, 4), slice(4, 8)):
        one = HierarchicalAttention(8, 1, 2, memory_dim=8, feature_dim=4).double()
        one.load_state_dict(
            {
                "out.weight": torch.eye(4).double(),
                "out.bias": torch.zeros(4).double(),
                **{name: value[head] for name, value in layer.state_dict().items() if not name.startswith("out.")},
            }
        )
        wanted += one(queries, keys, contents, mask) @ layer.out.weight[:, head].T
    wanted += layer.out.bias * mask.any(-1, keepdim=True)
    torch.testing.assert_close(layer(queries, keys, contents, mask), wanted)
    layer.reading = ChunkAttentionVariant()
    assert not torch.allclose(layer(queries, keys, contents, mask), wanted)


@pytest.mark.parametrize("relevance", ["topk_softmax", "full_softmax"])
def test_heads_that_choose_alike_are_one_relevance(relevance):
    """The same features in both heads are one relevance of all features."""
    apart, shared = (make(2, dim=8, heads=2, relevance=relevance, relevance_heads=on) for on in (True, False))
    shared.load_state_dict(apart.state_dict())
    with torch.no_grad():
        for of in ("chunk_query", "chunk_key"):
            weight = getattr(apart, of).weight
            weight[4:] = weight[:4]
            getattr(shared, of).weight.copy_(weight)
        shared.chunk_query.weight.mul_(2**-0.5)  # two heads' products add up, and sqrt(8) is sqrt(2) sqrt(4)
    inputs = memory()
    torch.testing.assert_close(apart(*inputs), shared(*inputs))


def test_equal_keys_and_all_chunks_give_the_mean_of_the_chunks():
    layer = make(5)
    queries, keys, contents, _ = memory()
    keys = keys[:, :1].expand_as(keys)
    single = [layer(queries, keys[:, :1], contents[:, i : i + 1]) for i in range(5)]
    torch.testing.assert_close(layer(queries, keys, contents), sum(single) / 5)


def test_a_masked_chunk_and_the_order_of_chunks_change_nothing():
    layer = make(2)
    queries, keys, contents, mask = memory()
    out = layer(queries, keys, contents, mask)
    wider = torch.cat((mask, torch.zeros(2, 4, 1, dtype=torch.bool)), -1)
    more = torch.cat((contents, 100 * torch.randn(2, 1, 3, 8).double()), 1)
    torch.testing.assert_close(layer(queries, more.mean(2), more, wider), out)
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(layer(queries, keys[:, order], contents[:, order], mask[..., order]), out)


@pytest.mark.parametrize("positions", [True, False])
def test_the_order_of_steps_in_a_chunk_matters_only_with_positions(positions):
    layer = make(2, chunk_positions=positions)
    queries, keys, contents, _ = memory()
    same = torch.allclose(layer(queries, keys, contents.flip(2)), layer(queries, keys, contents))
    assert same != positions


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_full_softmax_is_topk_softmax_times_the_sum_of_the_chosen(top_k):
    layer, full = make(top_k), make(top_k, relevance="full_softmax")
    full.load_state_dict(layer.state_dict())
    queries, keys, contents, mask = memory()
    heard = []
    with listen(full.relevance_tap, lambda name, weights: heard.append(weights)):
        got = full(queries, keys, contents, mask)
    share = heard[0].sum(-1, keepdim=True)
    torch.testing.assert_close(got, layer(queries, keys, contents, mask) * share)
    assert (share < 0.999).any()


def test_the_chunk_that_resembles_the_query_is_chosen():
    layer = make(1, key_projection=False)
    with torch.no_grad():
        layer.chunk_query.weight.copy_(torch.eye(8))
    _, keys, _, _ = memory(n=5)
    keys = torch.nn.functional.normalize(keys, dim=-1)
    index, weights = layer.choose(keys[:, 2:3], keys, None)
    assert index.tolist() == [[[2]], [[2]]] and (weights == 1).all()


def test_taps_hear_both_levels_and_change_nothing():
    layer = make(2)
    queries, keys, contents, mask = memory()
    mask[0, 0] = False
    heard = {}
    with listen(layer, lambda name, weights: heard.setdefault(name, weights)):
        loud = layer(queries, keys, contents, mask, form="gather")
    torch.testing.assert_close(loud, layer(queries, keys, contents, mask, form="gather"))
    relevance, inside = heard["relevance_tap"], heard["tap"]
    assert relevance.shape == (2, 4, 5) and inside.shape == (2, 2, 4, 5, 3)  # b t n, b h t n c
    torch.testing.assert_close(relevance.sum(-1), mask.any(-1).double())
    assert ((relevance > 0).sum(-1) <= 2).all() and (relevance[~mask] == 0).all()
    torch.testing.assert_close(inside.sum(-1), torch.ones_like(inside[..., 0]))


def test_a_relevance_of_every_head_is_told_of_every_head():
    layer = make(2, relevance="full_softmax", relevance_heads=True)
    queries, keys, contents, mask = memory()
    heard = {}
    with listen(layer, lambda name, weights: heard.setdefault(name, weights)):
        layer(queries, keys, contents, mask)
    choice, used = heard["choice_tap"], heard["relevance_tap"]
    assert choice.shape == used.shape == (2, 2, 4, 5)  # b h t n
    torch.testing.assert_close(choice[used > 0], used[used > 0])
    torch.testing.assert_close(choice.sum(-1), mask.any(-1)[:, None].expand(2, 2, 4).double())
    assert not torch.allclose(choice[:, 0], choice[:, 1])


def test_first_level_learns_only_where_there_is_a_choice():
    for top_k, learns in ((1, False), (2, True)):
        layer = make(top_k)
        queries, keys, contents, _ = memory()
        layer(queries, keys, contents).square().sum().backward()
        for child in (layer.chunk_query, layer.chunk_key):
            assert (child.weight.grad != 0).any() == learns


def test_choose_works_without_infinities_in_half_precision():
    scores = torch.randn(3, 6).bfloat16()
    mask = torch.tensor([[True] * 6, [False] * 6, [True] + [False] * 5])
    for relevance in ("topk_softmax", "full_softmax"):
        _, weights = choose_chunks(scores, mask, 2, relevance)
        assert weights.dtype == torch.float32 and weights.isfinite().all() and (weights[1] == 0).all()


def test_variants_have_names():
    paper, released = ChunkAttentionVariant.paper(), ChunkAttentionVariant.released()
    assert released == ChunkAttentionVariant() == HierarchicalAttention(8, 2, 2).reading
    assert (paper.relevance, paper.key_projection, paper.chunk_positions) == ("full_softmax", False, False)
    assert HierarchicalAttention(8, 2, 2, reading=paper).chunk_key is None


def test_weights_start_as_in_the_released_code():
    layer = HierarchicalAttention(128, 4, 2, memory_dim=64, feature_dim=32)
    for child, fan_in in ((layer.chunk_query, 128), (layer.chunk_key, 64), (layer.value, 64), (layer.out, 32)):
        assert child.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.08)
        assert child.weight.abs().max() < 2 * (2 / fan_in) ** 0.5 / 0.879
    assert layer.chunk_query.bias is None and layer.chunk_key.bias is None
    assert (layer.out.bias == 0).all()


@pytest.mark.parametrize(
    ("make_bad", "message"),
    [
        (lambda: HierarchicalAttention(8, 3, 2), "num_heads=3: must divide the 8 features"),
        (lambda: HierarchicalAttention(8, 2, 0), "top_k=0: give at least 1"),
        (
            lambda: ChunkAttentionVariant(relevance="sparsemax"),
            "relevance='sparsemax': choose one of 'topk_softmax', 'full_softmax'",
        ),
        (
            lambda: HierarchicalAttention(8, 2, 2, memory_dim=6, reading=ChunkAttentionVariant(key_projection=False)),
            "key_projection=False: 8 features cannot meet keys of width 6",
        ),
    ],
)
def test_bad_settings_are_named(make_bad, message):
    with pytest.raises(ValueError, match=message):
        make_bad()


def test_a_tied_start_finds_the_chunk_that_is_like_the_query():
    torch.manual_seed(0)
    chunks = 3 * torch.randn(4, 6, 2, 64)
    tied = HierarchicalAttention(64, 4, 6, reading=ChunkAttentionVariant(tied_start=True))
    found = {}
    for name, attention in (("tied", tied), ("free", HierarchicalAttention(64, 4, 6))):
        _, weights = attention.choose(chunks[:, :, 0], chunks.mean(2), None)
        found[name] = (weights.argmax(-1) == torch.arange(6)).float().mean()
    assert found["tied"] == 1.0 and found["free"] < 0.6
    with pytest.raises(ValueError, match="tied_start=True: queries of width 8"):
        HierarchicalAttention(8, 4, 6, memory_dim=16, feature_dim=16, reading=ChunkAttentionVariant(tied_start=True))


def test_a_copying_start_gives_what_was_stored_as_it_is():
    near = {"rtol": 1e-5, "atol": 1e-5}
    reading = ChunkAttentionVariant(copying_start=True, chunk_positions=False)
    attention = HierarchicalAttention(16, 4, 1, reading=reading)
    queries, chunks = torch.randn(2, 3, 16), torch.randn(2, 1, 1, 16)
    torch.testing.assert_close(attention(queries, chunks[:, :, 0], chunks), chunks[:, 0].expand_as(queries), **near)
    local, x = LocalAttention(16, 4, copying_start=True), torch.randn(2, 1, 16)
    alone, features = torch.tensor([[[False, True]]]).expand(2, 1, 2), torch.randn(2, 16)
    torch.testing.assert_close(local(x, None, alone, features), F.layer_norm(x, (16,)), **near)
    drawn = HierarchicalChunkMemoryConfig(dim=16, num_heads=4, num_layers=2, reading=reading).build(16)
    for layer in drawn.layers:
        for values, outputs in (
            (layer.local.qkv.weight[32:], layer.local.out.weight),
            (layer.memory.value.weight, layer.memory.out.weight),
        ):
            torch.testing.assert_close(outputs @ values, torch.eye(16), **near)
    first, second = (layer.memory.value.weight for layer in drawn.layers)
    assert not torch.allclose(first, second), "drawn anew in every layer"
    with pytest.raises(ValueError, match="copying_start=True: 16 features, contents of width 8"):
        HierarchicalAttention(16, 4, 1, memory_dim=8, reading=reading)


def test_nothing_before_is_as_a_window_that_nobody_sees():
    local, x = LocalAttention(8, 2).double(), torch.randn(2, 3, 8).double()
    visible = visible_steps(torch.arange(3).expand(2, 3), 4)
    features = torch.randn(5, 8).double()
    junk = torch.randn(2, 4, 8).double()
    torch.testing.assert_close(local(x, None, visible, features), local(x, junk, visible, features))


def test_the_initial_scale_is_that_of_all_weights_at_the_start():
    drawn = {}
    for scale in (1.0, 0.4):
        torch.manual_seed(0)
        drawn[scale] = HierarchicalAttention(64, 4, 6, reading=ChunkAttentionVariant(initial_scale=scale)).state_dict()
    for name, weight in drawn[0.4].items():
        torch.testing.assert_close(weight, 0.4 * drawn[1.0][name])
    with pytest.raises(ValueError, match=r"initial_scale=0: give a positive factor"):
        ChunkAttentionVariant(initial_scale=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("top_k", first(1, [2, 9]))
@pytest.mark.parametrize("readable", [(3, 6), (0, 2), (7, 9), (4, 5), (0, 0)])
def test_chunks_that_nobody_may_read_are_left_out_and_change_nothing(readable, top_k, form, monkeypatch):
    """Outputs, gradients and what the choice shows, against a call that computes with all nine."""
    torch.manual_seed(0)
    layer = HierarchicalAttention(8, 2, top_k, reading=ChunkAttentionVariant(chunk_gradients="call")).double()
    queries, keys, contents = (torch.randn(2, *shape, dtype=torch.float64) for shape in ((4, 8), (9, 8), (9, 3, 8)))
    mask = torch.zeros(2, 4, 9, dtype=torch.bool)
    mask[0, 1:, readable[0] : readable[1]] = True
    mask[1, 3, readable[0] : readable[0] + (readable[1] > readable[0])] = True
    sees, parts, runs = HierarchicalAttention._readable, [], []

    def watched(self, given, n):
        parts.append(sees(self, given, n))
        return parts[-1]

    for narrow in (watched, lambda self, given, n: slice(0, n)):
        monkeypatch.setattr(HierarchicalAttention, "_readable", narrow)
        sources = [leaf.clone().requires_grad_() for leaf in (queries, keys, contents)]
        heard = []
        with listen(layer.choice_tap, lambda name, weights: heard.append(weights), gradients=True):  # noqa: B023
            read = layer(*sources, mask, form=form)
        weighted = torch.linspace(-1, 1, 9, dtype=torch.float64) * heard[0]
        leaves = [*sources, *layer.parameters()]
        loss = read.square().sum() + weighted.sum()
        runs.append([read, *heard, *torch.autograd.grad(loss, leaves, materialize_grads=True)])
    assert parts == [slice(*readable) if readable[1] else slice(0, 1)]
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        assert sees(layer, mask, 9) == slice(0, 9), "acting costs the same at every age"


@pytest.mark.parametrize("heads", [1, 4])
def test_one_step_of_local_attention_is_the_last_of_many(heads):
    torch.manual_seed(0)
    attention, w = LocalAttention(16, heads).double(), 6
    for weight in attention.parameters():
        nn.init.normal_(weight, std=0.4)
    features = torch.randn(w + 1, 16, dtype=torch.float64)
    visible = visible_steps(torch.tensor([[0], [4], [50]]), w)  # nothing, a part, and the whole window
    window = torch.where(visible[:, 0, :-1, None], torch.randn(3, w, 16, dtype=torch.float64), 0.0)
    x = torch.randn(3, 1, 16, dtype=torch.float64)
    results = []
    for steps in (1, 2):  # in a call of two steps, the first one
        leaves = [leaf.clone().requires_grad_() for leaf in (x, window)]
        out = attention(leaves[0].repeat(1, steps, 1), leaves[1], visible.repeat(1, steps, 1), features)[:, :1]
        learned = [weight for weight in attention.parameters() if weight.requires_grad]
        results.append([out, *torch.autograd.grad(out.square().sum(), [*leaves, *learned])])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)
