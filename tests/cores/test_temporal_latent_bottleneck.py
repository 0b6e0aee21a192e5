import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from recollect.cores.tlb.core import (
    SlotReadout,
    TemporalLatentBottleneckConfig,
    TemporalLatentBottleneckVariant,
)
from recollect.layers.positions import sinusoid
from recollect.layers.tap import listen
from recollect.state import leaves

GOLDEN = Path(__file__).parents[1] / "golden" / "tlb_lra.npz"
Details = TemporalLatentBottleneckVariant
SIZES = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "chunk_len": 4, "num_slots": 3}
VARIANTS = {
    "default": {},
    "crosses": {"num_layers": 3, "self_per_cross": 1, "positions": "learned"},
    "alg1": {"num_layers": 4, "positions": "none", "details": Details(cross_placement="alg1_literal")},
    "per-layer": {"num_layers": 3, "feedback": "per_layer", "details": Details(value_norm="separate", head_dim=3)},
    "per-layer-alg1": {
        "num_layers": 3,
        "self_per_cross": 1,
        "feedback": "per_layer",
        "details": Details(cross_placement="alg1_literal", activation="relu"),
    },
    "no-past": {"feedback": "none", "details": Details(initial_slots="sinusoid_once", activation="gelu")},
    "official": {"details": Details.released(cross_feedforward=False, norm_eps=1e-4)},
    "cut": {"num_layers": 2, "self_per_cross": 1, "details": Details(detach_every=2)},
    "one-step": {"chunk_len": 1, "details": Details(detach_every=1)},
    "one-slot": {"num_slots": 1, "chunk_len": 7},
}


def build(causal=True, input_dim=5, **options):
    return TemporalLatentBottleneckConfig(**{**SIZES, **options}, causal=causal).build(input_dim).double()


# -- the paper's equations, literally: one episode, one step or slot at a time ------------------------------------


def attention(block, queries, source, allowed):
    """ATTENTION(LN(queries), LN(source), LN(source)); allowed(i, j) says whether i may read j."""
    a, rows = block.attention, []
    for i, x in enumerate(queries):
        seen = [j for j in range(len(source)) if allowed(i, j)]
        heads = []
        for q, w_k, w_v in zip(
            a.query(block.norm(x)).chunk(a.num_heads),
            a.key.weight.chunk(a.num_heads),
            a.value.weight.chunk(a.num_heads),
            strict=True,
        ):
            if not seen:
                heads.append(torch.zeros_like(q))
                continue
            keys = torch.stack([w_k @ block.norm_keys(source[j]) for j in seen])
            values = torch.stack([w_v @ block.norm_values(source[j]) for j in seen])
            heads.append(((keys @ q) / len(q) ** 0.5).softmax(0) @ values)
        rows.append(a.out(torch.cat(heads)))
    return torch.stack(rows)


def layer(block, queries, source, allowed):
    x = queries + attention(block, queries, source, allowed)
    if block.feedforward is None:
        return x
    f = block.feedforward
    return x + f.contract(f.activation(f.expand(block.norm_feedforward(x))))


def episode(core, inputs, padding=None, drop=False):
    """Outputs [t, d], slots [s, N, d] after the last complete chunk (encode: after the last), for one episode."""
    c, details = core.config, core.config.details
    k, n = c.chunk_len, c.num_slots
    waves = sinusoid(torch.arange(max(k, n)), c.dim).double()
    streaming = padding is None
    padding = torch.zeros(len(inputs), dtype=torch.bool) if streaming else padding
    if details.initial_slots == "learned":
        slots = list(core.slots)
    else:
        start = waves[:n] if details.initial_slots == "sinusoid_once" else torch.zeros(n, c.dim).double()
        slots = [start for _ in core.levels]
    outputs = []
    for number, begin in enumerate(range(0, len(inputs), k)):
        x = core.project(inputs[begin : begin + k])
        pad = padding[begin : begin + k]
        if details.detach_every and number and number % details.detach_every == 0:
            slots = [level.detach() for level in slots]
        before = list(slots)
        if details.initial_slots == "sinusoid_every_chunk":
            slots = [level + waves[:n] for level in slots]
        if c.positions == "sinusoid":
            x = x + waves[: len(x)]
        if c.positions == "learned":
            x = x + core.positions[: len(x)]
        fast = [(i, block) for i, level in enumerate(core.levels) for block in (*level.before, *level.inner)]
        fast += [(None, block) for block in core.tail]
        written = {}
        for i, block in fast:
            if block.cross:
                x = layer(block, x, slots[i], lambda i, j: True)
            else:
                x = layer(block, x, x, lambda i, j, pad=pad: not pad[j] and (j <= i or not c.causal))
            written[i] = x
        for i, level in enumerate(core.levels):
            complete = len(x) == k or not (streaming or drop)
            if complete and not pad.all():
                slots[i] = layer(level.write, slots[i], written[i], lambda i, j, pad=pad: not pad[j])
            elif not (pad.all() and details.empty_chunk == "add_slots" and complete):
                slots[i] = before[i]
        outputs.append(core.final_norm(x))
    return torch.cat(outputs), torch.stack(slots)


def literal(core, inputs, is_first):
    outputs, slots = [], []
    for row, first in zip(inputs, is_first, strict=True):
        begins = [t for t in range(len(row)) if first[t] or t == 0]
        parts = [episode(core, row[a:b]) for a, b in zip(begins, [*begins[1:], len(row)], strict=True)]
        outputs.append(torch.cat([part[0] for part in parts]))
        slots.append(parts[-1][1])
    return torch.stack(outputs), torch.stack(slots)


def assert_same_with_gradients(core, inputs, got, want):
    """Two (outputs, slots): equal in value, and in the gradient of a random weighted sum."""
    weights = [torch.randn_like(tensor) for tensor in want]
    names, targets = zip(("inputs", inputs), *core.named_parameters(), strict=True)
    gradients = []
    for results in (got, want):
        loss = sum((w * r).sum() for w, r in zip(weights, results, strict=True))
        gradients.append(torch.autograd.grad(loss, targets, allow_unused=True, materialize_grads=True))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for name, a, b in zip(names, *gradients, strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"gradient of {name}: {text}"
        )


def random_resets(batch, steps, seed=0):
    is_first = torch.rand(batch, steps, generator=torch.Generator().manual_seed(seed)) < 0.12
    is_first[0] = False
    is_first[0, 0] = True
    return is_first


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_literal_loop_in_value_and_gradient(variant):
    core = build(**VARIANTS[variant])
    inputs = torch.randn(2, 23, 5, dtype=torch.float64, requires_grad=True)
    is_first = random_resets(2, 23)
    outputs, state = core(inputs, core.initial_state(2), is_first)
    assert_same_with_gradients(core, inputs, (outputs, state.slots), literal(core, inputs, is_first))


@pytest.mark.parametrize("variant", VARIANTS)
def test_splits_keep_values_state_and_gradient(variant):
    core = build(**VARIANTS[variant])
    inputs = torch.randn(3, 31, 5, dtype=torch.float64, requires_grad=True)
    is_first = random_resets(3, 31, seed=1)
    whole, end = core(inputs, core.initial_state(3), is_first)
    state, parts = core.initial_state(3), []
    for x, first in zip(
        inputs.split([1, 1, 1, 5, 2, 10, 11], 1), is_first.split([1, 1, 1, 5, 2, 10, 11], 1), strict=True
    ):
        out, state = core(x, state, first)
        parts.append(out)
    assert torch.equal(state.position, end.position)
    torch.testing.assert_close(state.inputs, end.inputs)
    assert_same_with_gradients(core, inputs, (torch.cat(parts, 1), state.slots), (whole, end.slots))


@pytest.mark.parametrize(("causal", "remainder"), [(False, "update"), (False, "drop"), (True, "update")])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("variant", ["default", "per-layer", "no-past", "official", "cut"])
def test_whole_sequences_equal_the_literal_loop(variant, causal, padded, remainder):
    core = build(causal, **VARIANTS[variant])
    inputs = torch.randn(3, 15, 5, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(3, 15, dtype=torch.bool)
    if padded:
        padding[0, 7:] = True
        padding[1] = torch.rand(15) < 0.5
        padding[1, 4:8] = True
        padding[2] = True
    outputs, state = core.encode(inputs, padding if padded else None, remainder=remainder)
    want = [episode(core, x, pad, remainder == "drop") for x, pad in zip(inputs, padding, strict=True)]
    expected = torch.where(padding[..., None], 0.0, torch.stack([out for out, _ in want]))
    assert_same_with_gradients(core, inputs, (outputs, state.slots), (expected, torch.stack([s for _, s in want])))
    assert not state.position.any()
    assert not state.inputs.any()


def test_encode_and_call_agree_and_padding_the_remainder_changes_nothing():
    core = build()
    inputs = torch.randn(2, 16, 5, dtype=torch.float64)
    called, state = core(inputs, core.initial_state(2), torch.zeros(2, 16, dtype=torch.bool))
    encoded, after = core.encode(inputs)
    torch.testing.assert_close(called, encoded)
    torch.testing.assert_close(state.slots, after.slots)
    short, shorter = core.encode(inputs[:, :14])
    padding = torch.arange(16).expand(2, -1) >= 14
    filled, longer = core.encode(torch.where(padding[..., None], torch.nan, inputs), padding)
    torch.testing.assert_close(short, filled[:, :14])
    torch.testing.assert_close(shorter.slots, longer.slots)


def test_a_step_that_is_not_finite_is_nan_and_is_read_as_zeros():
    core = build(causal=False)
    inputs = torch.randn(1, 8, 5, dtype=torch.float64)
    zeros, after = core.encode(torch.where((torch.arange(8) == 2)[:, None], 0.0, inputs))
    broken, state = core.encode(torch.where((torch.arange(8) == 2)[:, None], torch.inf, inputs))
    assert broken[0, 2].isnan().all()
    torch.testing.assert_close(broken[0, 3:], zeros[0, 3:])
    torch.testing.assert_close(state.slots, after.slots)


# -- the official code -----------------------------------------------------------------------------------------


def golden_cases():
    return {case["name"]: case for case in json.loads(str(np.load(GOLDEN)["meta_json"]))["cases"]}


def load_block(block, arrays):
    """A block of the official encoder; the numbers in its names count its sub-modules."""
    first = 2 if block.cross else 1
    norms = [(block.norm, 0), (block.norm_keys, 1)] if block.cross else [(block.norm, 0)]
    if block.feedforward is not None:
        norms.append((block.norm_feedforward, first + 1))
        for linear, name in ((block.feedforward.expand, "Dense_0"), (block.feedforward.contract, "Dense_1")):
            load_dense(linear, arrays(f"MlpBlock_{first + 2}/{name}"))
    for norm, number in norms:
        load_norm(norm, arrays(f"LayerNorm_{number}"))
    attention = arrays(f"MultiHeadDotProductAttention_{first}")
    for name in ("query", "key", "value"):
        getattr(block.attention, name).weight.copy_(attention(f"{name}/kernel").flatten(1).T)
    block.attention.out.weight.copy_(attention("out/kernel").flatten(0, 1).T)


def load_dense(linear, arrays):
    linear.weight.copy_(arrays("kernel").T)
    linear.bias.copy_(arrays("bias"))


def load_norm(norm, arrays):
    norm.weight.copy_(arrays("scale"))
    norm.bias.copy_(arrays("bias"))


def reader(data, prefix):
    """``arrays(name)``: the array of that name, or a reader of what is below it."""

    def arrays(name):
        full = f"{prefix}/{name}"
        return torch.from_numpy(data[full]).double() if full in data else reader(data, full)

    return arrays


@torch.no_grad()
def load_encoder(case, arrays):
    learned = case["learn_pos_emb"] and not case["use_global_pos_encoding"]
    local = "learned" if learned else "sinusoid"
    ratio, blocks = case["self_to_cross_ratio_input_updater"], case["num_cross_layers_input_updater"]
    config = TemporalLatentBottleneckConfig(
        dim=case["emb_dim"],
        num_layers=ratio * blocks,
        num_heads=case["num_heads"],
        hidden_dim=case["mlp_dim"],
        self_per_cross=ratio,
        chunk_len=case["block_size"],
        num_slots=case["num_state_tokens"],
        causal=False,
        positions="none" if case["use_global_pos_encoding"] else local,
        details=Details.released(head_dim=case["qkv_dim"] // case["num_heads"], cross_feedforward=case["use_residual"]),
    )
    core = config.build(case["emb_dim"]).double()
    (level,) = core.levels
    names = [
        f"horizontal_block_{b}_{k}" for b in range(blocks) for k in (*(f"self_{i}" for i in range(ratio)), "cross")
    ]
    for block, name in zip((*level.before, *level.inner), names, strict=True):
        load_block(block, arrays(name))
    load_block(level.write, arrays(f"vertical_block_{blocks - 1}_cross"))
    if learned:
        core.positions.copy_(arrays("posembed_input/pos_embedding")[0, : case["block_size"]])
    readout = SlotReadout(config).double()
    load_norm(readout.norm, arrays("encoder_norm"))
    return core, readout


@pytest.mark.parametrize("name", golden_cases())
@torch.no_grad()
def test_the_official_code_is_reproduced(name):
    data, case = np.load(GOLDEN), golden_cases()[name]
    params = reader(data, f"{name}/param")
    arrays = params("stateful_encoder") if case["dual"] else params
    core, readout = load_encoder(case, arrays)
    means = []
    for key in ("tokens1", "tokens2") if case["dual"] else ("tokens",):
        tokens = torch.from_numpy(data[f"{name}/in/{key}"]).long()
        inputs = arrays("Embed_0/embedding")[tokens]
        if case["use_global_pos_encoding"]:
            table = sinusoid(torch.arange(tokens.shape[1], dtype=torch.float64), case["emb_dim"])
            if case["learn_pos_emb"]:
                table = arrays("global_posembed_input/pos_embedding")[0, : tokens.shape[1]]
            inputs = inputs + table
        means.append(readout(core.encode(inputs, tokens == 0)[1]))
        if f"{name}/out/encoded_after_chunk" in data:
            want = torch.from_numpy(data[f"{name}/out/encoded_after_chunk"]).double()  # b n N d
            for chunk in range(want.shape[1]):
                end = (chunk + 1) * case["block_size"]
                _, state = core.encode(inputs[:, :end], tokens[:, :end] == 0)
                torch.testing.assert_close(readout.norm(state.slots[:, 0]), want[:, chunk], atol=2e-5, rtol=1e-5)
    hidden = means[0]
    if case["dual"]:
        a, b = means
        hidden = torch.cat([a, b, a * b, a - b] if "nli" in name else [a, b], -1)
    for dense in ("mlp", "mlp2") if case["dual"] else ("mlp",):
        hidden = (hidden @ params(f"{dense}/kernel") + params(f"{dense}/bias")).relu()
    logits = hidden @ params("logits/kernel") + params("logits/bias")
    torch.testing.assert_close(logits, torch.from_numpy(data[f"{name}/out/logits"]).double(), atol=2e-5, rtol=1e-5)


# -- properties ------------------------------------------------------------------------------------------------


def test_slots_differ_after_one_update_but_equal_slots_would_stay_equal():
    core = build()
    inputs = torch.randn(1, 12, 5, dtype=torch.float64)
    slots = core.encode(inputs)[1].slots[0, 0]
    assert (slots[0] - slots[1]).abs().max() > 1e-3
    with torch.no_grad():
        core.slots.zero_()
    slots = core.encode(inputs)[1].slots[0, 0]
    torch.testing.assert_close(slots[0], slots[1], rtol=0.0, atol=1e-14)
    torch.testing.assert_close(slots[0], slots[2], rtol=0.0, atol=1e-14)


def test_outputs_do_not_depend_on_later_steps_nor_slots_on_later_chunks():
    core = build()
    inputs = torch.randn(1, 16, 5, dtype=torch.float64, requires_grad=True)
    outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 16, dtype=torch.bool))
    for step in (0, 5, 11):
        (grad,) = torch.autograd.grad(outputs[0, step, 0], inputs, retain_graph=True)
        assert grad[0, : step + 1].abs().sum(-1).gt(0).all()
        assert grad[0, step + 1 :].eq(0).all()
    (grad,) = torch.autograd.grad(core.encode(inputs[:, :8])[1].slots.square().sum(), inputs)
    assert grad[0, :8].abs().sum(-1).gt(0).all()
    assert grad[0, 8:].eq(0).all()


def test_two_way_chunks_see_the_rest_of_their_own_chunk_only():
    core = build(causal=False)
    inputs = torch.randn(1, 12, 5, dtype=torch.float64, requires_grad=True)
    outputs, _ = core.encode(inputs)
    (grad,) = torch.autograd.grad(outputs[0, 4, 0], inputs)
    assert grad[0, :8].abs().sum(-1).gt(0).all()
    assert grad[0, 8:].eq(0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_one_long_chunk_without_past_is_a_plain_transformer(causal):
    core = build(
        causal, feedback="none", chunk_len=9, input_dim=8, positions="none", details=Details(activation="relu")
    )
    (level,) = core.levels
    layers = []
    for block in level.before:
        plain = torch.nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, norm_first=True, batch_first=True, layer_norm_eps=1e-6, dtype=torch.float64
        )
        a = block.attention
        with torch.no_grad():
            plain.self_attn.in_proj_weight.copy_(torch.cat((a.query.weight, a.key.weight, a.value.weight)))
            plain.self_attn.out_proj.weight.copy_(a.out.weight)
        for to, source in (
            (plain.linear1, block.feedforward.expand),
            (plain.linear2, block.feedforward.contract),
            (plain.norm1, block.norm),
            (plain.norm2, block.norm_feedforward),
        ):
            to.load_state_dict(source.state_dict())
        layers.append(plain)
    inputs = torch.randn(2, 9, 8, dtype=torch.float64)
    want = inputs
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64) if causal else None
    for plain in layers:
        want = plain(want, src_mask=mask)
    torch.testing.assert_close(core.encode(inputs)[0], core.final_norm(want))


def test_the_graph_grows_linearly_with_the_sequence():
    core = build().float()

    def nodes(steps):
        outputs, _ = core.encode(torch.randn(1, steps, 5))
        weights = [w for w in core.parameters() if w.requires_grad]
        with torch.autograd.profiler.profile() as profile:
            torch.autograd.grad(outputs.sum(), weights, allow_unused=True)
        return sum(event.count for event in profile.key_averages() if event.key.startswith("aten::"))

    # More than four chunks in all three: from five uses on a matrix is laid out anew, once.
    short, middle, long = nodes(32), nodes(48), nodes(64)
    assert long - middle == pytest.approx(middle - short, rel=0.05)


def test_detach_every_cuts_the_gradient_between_stretches():
    for every, reach in ((None, 0), (1, 8), (2, 8), (3, 0)):
        core = build(details=Details(detach_every=every))
        inputs = torch.randn(1, 12, 5, dtype=torch.float64, requires_grad=True)
        outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 12, dtype=torch.bool))
        (grad,) = torch.autograd.grad(outputs[0, 11, 0], inputs)
        assert grad[0].abs().sum(-1).gt(0).tolist() == [step >= reach for step in range(12)]


def test_dropout_changes_training_only():
    core = build(dropout=0.3)
    inputs = torch.randn(1, 12, 5, dtype=torch.float64)
    train = [core.encode(inputs)[0] for _ in range(2)]
    core.eval()
    still = [core.encode(inputs)[0] for _ in range(2)]
    assert not torch.equal(*train)
    assert torch.equal(*still)


def test_second_gradients_and_changed_weights_are_errors_not_wrong_numbers():
    core = build()
    inputs = torch.randn(1, 20, 5, dtype=torch.float64, requires_grad=True)
    outputs, _ = core.encode(inputs)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(torch.autograd.grad(outputs.sum(), inputs, create_graph=True)[0].square().sum(), inputs)
    outputs, _ = core.encode(inputs)
    with torch.no_grad():
        core.levels[0].write.attention.out.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


# -- streams, taps, errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stream_gives_the_numbers_of_the_whole_sequence(variant):
    core = build(**VARIANTS[variant]).eval()
    inputs = torch.randn(3, 40, 5, dtype=torch.float64)
    inputs[1, 7] = torch.nan
    is_first = random_resets(3, 40, seed=2)
    is_first[:, :13] = False  # rows in step, then out of step
    with torch.no_grad():
        want, end = core(inputs, core.initial_state(3), is_first)
    stream = core.stream(3)
    size, parts = stream.nbytes, []
    for step in range(40):
        parts.append(stream.step(inputs[:, step], is_first[:, step] if is_first[:, step].any() else None))
        if step % 7 == 3:
            stream = stream.fork()
    torch.testing.assert_close(torch.stack(parts, 1), want, equal_nan=True)
    for got, leaf in zip(leaves(stream.state), leaves(end), strict=True):
        torch.testing.assert_close(got, leaf)
    assert stream.nbytes == size
    stream.reset([1])
    assert stream.state.position[1] == 0
    torch.testing.assert_close(stream.state.slots[1], core.initial_state(1).slots[0])


def test_taps_hear_every_attention_and_change_nothing():
    core = build(causal=False, num_layers=3, self_per_cross=1)
    inputs, padding = torch.randn(2, 20, 5, dtype=torch.float64), torch.arange(20).expand(2, -1) >= 17
    quiet = core.encode(inputs, padding)
    heard = {}
    with listen(core, lambda name, weights: heard.setdefault(name, weights)) as names:
        loud = core.encode(inputs, padding)
    assert set(heard) == set(names)
    assert len(names) == 3 + 3 + 1
    assert heard["levels.0.write.attention.tap"].shape == (2, 2, 3, 4)  # b h N K
    torch.testing.assert_close(loud[0], quiet[0])
    torch.testing.assert_close(loud[1].slots, quiet[1].slots)
    stream, causal = build().stream(2), []
    with listen(stream.core, lambda name, weights: causal.append(weights.shape)):
        stream.step(inputs[:, 0])
        stream.step(inputs[:, 1])
    assert causal[-1] == (2, 2, 1, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "dim=0: give a positive"),
        ({"chunk_len": 0}, "chunk_len=0: give a positive"),
        ({"num_slots": -1}, "num_slots=-1: give a positive"),
        ({"num_heads": 3}, "num_heads=3: choose a divisor of dim=8"),
        ({"hidden_dim": 0}, "hidden_dim=0: give a positive"),
        ({"dropout": 1.0}, "dropout=1.0: give a probability"),
        ({"self_per_cross": 3}, "self_per_cross=3: no cross layer comes in 2 layers: lower it"),
    ],
)
def test_bad_configs_name_field_value_and_remedy(changes, message):
    with pytest.raises(ValueError, match=message):
        TemporalLatentBottleneckConfig(**{**SIZES, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 0}, "head_dim=0: give a positive"),
        ({"attention_dropout": -0.1}, "attention_dropout=-0.1: give a probability"),
        ({"norm_eps": 0.0}, "norm_eps=0.0: give a small positive"),
        ({"detach_every": 0}, "detach_every=0: give a positive"),
        ({"empty_chunk": "add_slots"}, "empty_chunk='add_slots': only initial_slots"),
    ],
)
def test_bad_details_name_field_value_and_remedy(changes, message):
    with pytest.raises(ValueError, match=message):
        Details(**changes)


def test_two_way_chunks_in_a_stream_and_bad_padding_are_named():
    core = build(causal=False)
    inputs = torch.randn(1, 3, 5, dtype=torch.float64)
    for call in (
        lambda: core(inputs, core.initial_state(1), torch.zeros(1, 3, dtype=torch.bool)),
        lambda: core.stream(1),
    ):
        with pytest.raises(ValueError, match=r"causal=False: .* causal=True, or read whole sequences with core.encode"):
            call()
    with pytest.raises(ValueError, match=r"padding is torch.int64 \[1, 3\]; it must be bool \[1, 3\]"):
        core.encode(inputs, torch.zeros(1, 3, dtype=torch.long))


@pytest.mark.parametrize("variant", ["default", "crosses", "per-layer", "no-past"])
def test_flops_of_a_step_are_what_a_chunk_of_steps_really_multiplies(variant):
    core = build(**VARIANTS[variant])
    stream = core.stream(1)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        for _ in range(core.config.chunk_len):
            stream.step(torch.randn(1, 5, dtype=torch.float64))
    total, k = counter.get_total_flops(), core.config.chunk_len
    assert 0 <= core.flops_per_step() * k - total < k
