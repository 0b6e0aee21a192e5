import random
import re

import pytest
import torch
from tests.cores.samples.long_short_transformer import CONFIGS, sample
from torch.nn.functional import layer_norm, softmax

from recollect.cores.long_short.core import BLOCK, LongShortTransformerConfig
from recollect.layers.tap import listen
from recollect.state import leaves, named_leaves

CASES = [*CONFIGS, *(sample(random.Random(seed)) for seed in range(6))]


def make(config, input_dim=8):
    """A float64 core whose every parameter matters (norms and biases moved off their initial values)."""
    core = config.build(input_dim).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return core.eval()


def norm(module, x):
    return layer_norm(x, x.shape[-1:], module.weight, module.bias)


def sinusoid(position, dim):
    angles = position * torch.tensor([10000.0 ** (-j / dim) for j in range(0, dim, 2)], dtype=torch.float64)
    return torch.cat([angles.sin(), angles.cos()])[:dim]


def landmarks_of(attention, keys, values, logits):
    """Equation 3 with the outer norm of equation 6: c steps to r pairs [d], one head after the other."""
    heads, slots, dim = attention.config.num_heads, attention.config.num_landmarks, attention.config.dim
    e = dim // heads
    summary_k, summary_v = torch.zeros(slots, dim).double(), torch.zeros(slots, dim).double()
    for i in range(heads):
        projection = softmax(torch.stack(logits)[:, i * slots : (i + 1) * slots], 0)  # P_i: c r
        summary_k[:, i * e : (i + 1) * e] = projection.T @ torch.stack(keys)[:, i * e : (i + 1) * e]
        summary_v[:, i * e : (i + 1) * e] = projection.T @ torch.stack(values)[:, i * e : (i + 1) * e]
    return [
        (norm(attention.landmark_norm, k), norm(attention.landmark_norm, v))
        for k, v in zip(summary_k, summary_v, strict=True)
    ]


def literal_layer(block, xs):
    """One layer over one episode, step by step. xs: list of [d]."""
    attention, config = block.attention, block.attention.config
    dim, heads, scale = config.dim, config.num_heads, (config.dim // config.num_heads) ** -0.5
    e, window, outputs, finished, running = dim // heads, [], [], [], []
    for x in xs:
        q, k, v, logits = attention.project(norm(block.attention_norm, x)).split(
            [dim, dim, dim, heads * config.num_landmarks]
        )
        local = (norm(attention.local_norm, k), norm(attention.local_norm, v))
        window.append(local)
        visible = [pair for segment in finished[-config.num_segments :] for pair in segment]
        near = window[-config.memory_len - 1 :]
        out = []
        for i in range(heads):
            part = slice(i * e, (i + 1) * e)
            scores = []
            for place, (key, _) in enumerate(visible):
                score = scale * q[part] @ key[part]
                if attention.relative:
                    newer = sinusoid(len(visible) - 1 - place, dim)
                    score = score + scale * q[part] @ attention.landmark_position(newer)[part]
                scores.append(score)
            for place, (key, _) in enumerate(near):
                score = scale * q[part] @ key[part]
                if attention.relative:
                    age = attention.window_position(sinusoid(len(near) - 1 - place, dim))[part]
                    score = score + attention.content_bias[i] @ key[part]
                    score = score + (scale * q[part] + attention.position_bias[i]) @ age
                scores.append(score)
            weights = softmax(torch.stack(scores), 0)
            out.append(sum(w * value[part] for w, (_, value) in zip(weights, visible + near, strict=True)))
        hidden = x + attention.out(torch.cat(out))
        outputs.append(hidden + block.feed_forward(norm(block.feed_forward_norm, hidden)))
        running.append((*(local if config.normalise_first else (k, v)), logits))
        if len(running) == config.chunk_len:
            finished.append(landmarks_of(attention, *zip(*running, strict=True)))
            running = []
    return outputs


def literal(core, inputs, is_first):
    """Rows one by one, episodes one by one: no state, no masks."""
    rows = []
    for row, firsts in zip(inputs, is_first.tolist(), strict=True):
        starts = sorted({0, *(t for t, first in enumerate(firsts) if first)})
        outputs = []
        for start, end in zip(starts, [*starts[1:], len(firsts)], strict=True):
            xs = [core.embed(x) for x in row[start:end]]
            for block in core.blocks:
                xs = literal_layer(block, xs)
            outputs += [norm(core.norm, x) for x in xs]
        rows.append(torch.stack(outputs))
    return torch.stack(rows)


def gradients(core, inputs, outputs):
    torch.manual_seed(1)
    (outputs * torch.randn(outputs.shape, dtype=outputs.dtype)).sum().backward()
    found = [inputs.grad, *(p.grad for p in core.parameters())]
    inputs.grad = None
    core.zero_grad()
    return found


def assert_same(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("config", CASES, ids=str)
def test_values_and_gradients_equal_the_literal_loop(config):
    core = make(config)
    inputs = torch.randn(3, 17, 8, dtype=torch.float64, requires_grad=True)
    is_first = torch.rand(3, 17) < torch.tensor([[0.0], [0.1], [0.4]])
    want = literal(core, inputs, is_first)
    expected = gradients(core, inputs, want)
    outputs, _ = core(inputs, core.initial_state(3), is_first)
    assert_same([outputs], [want])
    assert_same(gradients(core, inputs, outputs), expected)


@pytest.mark.parametrize("config", CASES, ids=str)
def test_any_split_and_the_stream_give_the_same_outputs_and_state(config):
    core = make(config)
    inputs, is_first = torch.randn(3, 40, 8).double(), torch.rand(3, 40) < torch.tensor([[0.0], [0.03], [0.3]])
    with torch.no_grad():
        want, final = core(inputs, core.initial_state(3), is_first)
        for sizes in ([1] * 40, [7, 1, 20, 12]):
            outputs, state = [], core.initial_state(3)
            for part, first in zip(inputs.split(sizes, 1), is_first.split(sizes, 1), strict=True):
                out, state = core(part, state, first)
                outputs.append(out)
            assert_same([torch.cat(outputs, 1), *leaves(state)], [want, *leaves(final)])
        stream = core.stream(3)
        assert_same(leaves(stream.state), leaves(core.initial_state(3)))
        got = []
        for t in range(40):
            if t == 23:  # move to another stream in the middle of segments
                stream = stream.fork()
            got.append(stream.step(inputs[:, t], is_first[:, t] if is_first[:, t].any() else None))
        assert_same([torch.stack(got, 1), *leaves(stream.state)], [want, *leaves(final)])


def test_a_long_call_is_cut_into_blocks_without_a_trace():
    core = make(LongShortTransformerConfig(dim=8, num_layers=1, num_heads=2, memory_len=6, chunk_len=5))
    steps = BLOCK + 30
    inputs = torch.randn(1, steps, 8, dtype=torch.float64, requires_grad=True)
    is_first = torch.zeros(1, steps, dtype=torch.bool)
    is_first[0, BLOCK - 3] = True
    want = literal(core, inputs, is_first)
    expected = gradients(core, inputs, want)
    outputs, _ = core(inputs, core.initial_state(1), is_first)
    assert_same([outputs], [want])
    assert_same(gradients(core, inputs, outputs), expected)


def test_poison_of_an_earlier_episode_reaches_neither_values_nor_gradients():
    core = make(CONFIGS[0])
    poisoned = core.initial_state(2)._replace(
        layers=tuple(type(m)(*(torch.full_like(x, torch.nan) for x in m)) for m in core.initial_state(2).layers),
        steps=torch.tensor([7, 8]),
    )
    inputs = torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)
    is_first = torch.zeros(2, 9, dtype=torch.bool)
    is_first[:, 0] = True
    want, fresh = core(inputs, core.initial_state(2), is_first)
    expected = gradients(core, inputs, want)
    outputs, state = core(inputs, poisoned, is_first)
    assert_same([outputs, *leaves(state)], [want, *leaves(fresh)])
    assert_same(gradients(core, inputs, outputs), expected)
    stream = core.stream(2)
    stream.load_state(poisoned)
    assert_same([stream.step(inputs[:, 0].detach(), is_first[:, 0])], [want[:, 0].detach()])


def test_landmarks_carry_what_has_left_the_window_and_eviction_forgets_it():
    config = LongShortTransformerConfig(dim=8, num_layers=1, num_heads=2, memory_len=3, chunk_len=4, num_segments=2)
    core = make(config)
    inputs = torch.randn(1, 24, 8, dtype=torch.float64, requires_grad=True)
    outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 24, dtype=torch.bool))
    reach = torch.stack(
        [torch.autograd.grad(y.sum(), inputs, retain_graph=True)[0][0].abs().sum(-1) for y in outputs[0]]
    )
    for t in range(24):
        segment = t // 4
        kept = range(max(0, segment - 2) * 4, segment * 4)
        assert set(reach[t].nonzero().flatten().tolist()) == {*kept, *range(max(0, t - 3), t + 1)}, t


def test_taps_hear_weights_that_sum_to_one_and_change_nothing():
    core = make(CONFIGS[3])  # without position scores: the fused path
    inputs, is_first = torch.randn(2, 9, 8).double(), torch.rand(2, 9) < 0.2
    heard = {}
    want, _ = core(inputs, core.initial_state(2), is_first)
    with listen(core, heard.__setitem__):
        got, _ = core(inputs, core.initial_state(2), is_first)
    assert_same([got], [want])
    assert len(heard) == 2
    for weights in heard.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def literal_encode(core, inputs, padding):
    """The two-way form, query by query."""
    config, rows = core.config, []
    heads, dim, width = config.num_heads, config.dim, config.memory_len
    e, margin = dim // heads, max(width // 2, 1)
    for row, empty in zip(inputs, padding.tolist(), strict=True):
        xs = [core.embed(x) for x in row]
        for block in core.blocks:
            attention, parts, after = block.attention, [], []
            for x in xs:
                q, k, v, logits = attention.project(norm(block.attention_norm, x)).split(
                    [dim, dim, dim, heads * config.num_landmarks]
                )
                parts.append((q, norm(attention.local_norm, k), norm(attention.local_norm, v), k, v, logits))
            full = [p for p, no in zip(parts, empty, strict=True) if not no]
            pick = (1, 2) if config.normalise_first else (3, 4)
            far = landmarks_of(attention, *([p[i] for p in full] for i in (*pick, 5)))
            for t, x in enumerate(xs):
                home = t // width * width
                seen = [s for s in range(home - margin, home + width + margin) if 0 <= s < len(xs) and not empty[s]]
                pairs, out = far + [parts[s][1:3] for s in seen], []
                for i in range(heads):
                    part = slice(i * e, (i + 1) * e)
                    weights = softmax(torch.stack([parts[t][0][part] @ k[part] / e**0.5 for k, _ in pairs]), 0)
                    out.append(sum(w * v[part] for w, (_, v) in zip(weights, pairs, strict=True)))
                hidden = x + attention.out(torch.cat(out))
                after.append(hidden + block.feed_forward(norm(block.feed_forward_norm, hidden)))
            xs = after
        rows.append(torch.stack([norm(core.norm, x) * (not no) for x, no in zip(xs, empty, strict=True)]))
    return torch.stack(rows)


@pytest.mark.parametrize("normalise_first", [False, True])
@pytest.mark.parametrize(("width", "slots", "steps"), [(4, 3, 13), (1, 2, 5), (8, 4, 8), (3, 1, 11)])
def test_the_two_way_form_equals_its_literal_loop(width, slots, steps, normalise_first):
    core = make(
        LongShortTransformerConfig(
            dim=8, num_heads=2, memory_len=width, num_landmarks=slots, normalise_first=normalise_first, causal=False
        )
    )
    inputs = torch.randn(3, steps, 8, dtype=torch.float64, requires_grad=True)
    padding = torch.arange(steps) >= torch.tensor([[steps], [steps - 2], [1]])
    want = literal_encode(core, inputs, padding)
    expected = gradients(core, inputs, want)
    outputs = core.encode(inputs, padding)
    assert_same([outputs], [want])
    assert_same(gradients(core, inputs, outputs), expected)
    assert_same([core.encode(inputs[:1])], [want[:1]])


def test_padding_changes_nothing_and_an_empty_row_is_zero():
    core = make(LongShortTransformerConfig(dim=8, num_heads=2, memory_len=4, num_landmarks=3, causal=False))
    inputs = torch.randn(2, 9, 8).double()
    padding = torch.tensor([[False] * 6 + [True] * 3, [True] * 9])
    garbage = torch.where(padding[..., None], torch.nan, inputs)
    outputs = core.encode(garbage, padding)
    assert_same([outputs[:1, :6]], [core.encode(inputs[:1, :6])])
    assert not outputs[0, 6:].any() and not outputs[1].any()


def test_each_form_refuses_the_other():
    two_way = LongShortTransformerConfig(dim=8, num_heads=2, causal=False).build(8)
    is_first = torch.zeros(1, 2, dtype=torch.bool)
    for call in (
        lambda: two_way.initial_state(1),
        lambda: two_way.stream(1),
        lambda: two_way(torch.zeros(1, 2, 8), (), is_first),
    ):
        with pytest.raises(ValueError, match=re.escape("causal=False") + ".*core.encode"):
            call()
    with pytest.raises(ValueError, match=r"causal=True.*causal=False"):
        LongShortTransformerConfig(dim=8, num_heads=2).build(8).encode(torch.zeros(1, 2, 8))
    with pytest.raises(ValueError, match=r"padding is torch\.float32"):
        two_way.encode(torch.zeros(1, 2, 8), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"encode takes \[b, t, 8\]"):
        two_way.encode(torch.zeros(1, 2, 7))


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("dim", 0, "at least 1"),
        ("num_heads", 3, "divisor of dim=128"),
        ("hidden_dim", 0, "or None"),
        ("dropout", 1.0, "probability"),
        ("memory_len", 14, "at least 15"),
        ("chunk_len", 0, "at least 1"),
        ("num_landmarks", 0, "at least 1"),
        ("num_segments", 0, "at least 1"),
        ("positions", "absolute", "'relative' or 'none'"),
    ],
)
def test_a_bad_config_is_refused_with_field_value_and_remedy(field, value, remedy):
    with pytest.raises(ValueError, match=re.escape(f"{field}={value!r}") + ".*" + re.escape(remedy)):
        LongShortTransformerConfig(**{field: value})


def test_the_state_has_one_size_for_ever_and_names():
    core = CONFIGS[0].build(8)
    names = [name for name, _ in named_leaves(core.initial_state(1))]
    assert names[:3] == ["layers.0.window", "layers.0.segment", "layers.0.landmarks"] and names[-1] == "steps"
    stream = core.stream(1)
    before = stream.nbytes
    for _ in range(30):
        stream.step(torch.randn(1, 8))
    assert stream.nbytes == before
