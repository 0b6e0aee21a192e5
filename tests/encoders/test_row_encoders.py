"""Encoders of whole rows against plain loops and quadratic forms; padding changes nothing."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from recollect.cores.recurrent import LSTMConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders import ENCODERS
from recollect.encoders.config import (
    LinearTransformerConfig,
    LinformerConfig,
    PastChunksConfig,
    PerformerConfig,
    TransformerConfig,
    ViTConfig,
)
from recollect.encoders.linear_transformer import kernel_features
from recollect.encoders.performer import log_features, orthogonal_directions

ROWS = [key for key, config in ENCODERS.items() if not config.reads_patches]  # the others read square pictures alone
SIZES = {"dim": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 12}
TLB = TemporalLatentBottleneckConfig(
    dim=8, num_layers=2, num_heads=2, hidden_dim=12, self_per_cross=1, chunk_len=4, num_slots=3, causal=False
)


def sample(key):
    cls = ENCODERS[key]
    if key == "two-way-tlb":
        return cls(core=TLB)
    if key == "vit-tlb":
        return cls(core=replace(TLB, positions="none"))
    if key == "two-way-long-short":
        core = cls().core
        return cls(core=type(core)(**SIZES, causal=False, memory_len=4, num_landmarks=3))
    own = {"past-chunks": {"chunk_len": 4}, "performer": {"num_features": 6}, "linformer": {"num_projected": 5}}
    return cls(**SIZES, **own.get(key, {}))


def build(key, length=20):
    return sample(key).build(5, length).double().eval()


def padded(lengths, steps):
    return torch.arange(steps) >= torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("key", ROWS)
def test_padding_is_not_read_and_may_be_longer(key):
    encoder = build(key)
    inputs = torch.randn(3, 16, 5, dtype=torch.float64)
    padding = padded([16, 11, 3], 16)
    outputs, summary = encoder(inputs, padding)
    assert outputs.shape == (3, 16, encoder.output_dim) and outputs[padding].eq(0).all()
    poison = torch.where(padding[..., None], torch.nan, inputs)
    longer = torch.cat((poison, torch.full((3, 4, 5), torch.inf, dtype=torch.float64)), 1)
    again, longer_summary = encoder(longer, padded([16, 11, 3], 20))
    torch.testing.assert_close(again[:, :16], outputs)
    alone, alone_summary = encoder(inputs[2:, :3])
    torch.testing.assert_close(alone, outputs[2:, :3])
    assert (summary is None) == (longer_summary is None) == (alone_summary is None)
    if summary is not None:
        torch.testing.assert_close(longer_summary, summary)
        torch.testing.assert_close(alone_summary, summary[2:])
    empty, _ = encoder(inputs, torch.ones(3, 16, dtype=torch.bool))
    assert empty.eq(0).all()


@pytest.mark.parametrize("key", ROWS)
def test_gradients_reach_every_parameter_and_every_real_step_and_rows_do_not_mix(key):
    encoder = build(key)
    inputs = torch.randn(2, 12, 5, dtype=torch.float64, requires_grad=True)
    padding = padded([12, 7], 12)
    outputs, summary = encoder(inputs, padding)
    row = outputs.sin().sum(1) if summary is None else summary + outputs.sin().sum(1)
    row[1].square().sum().backward()
    assert inputs.grad[0].eq(0).all() and inputs.grad[1, 7:].eq(0).all()
    assert inputs.grad[1, :7].abs().sum(-1).gt(0).all()
    missing = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing


@pytest.mark.parametrize("key", ROWS)
def test_gradients_are_those_of_finite_differences(key):
    encoder = build(key, 6)
    padding = padded([6, 4], 6)
    inputs = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: encoder(x, padding).outputs, (inputs,), fast_mode=True)


@pytest.mark.parametrize("key", ROWS)
def test_no_rows_give_nothing(key):
    encoder = build(key)
    outputs, summary = encoder(torch.zeros(0, 9, 5, dtype=torch.float64), torch.zeros(0, 9, dtype=torch.bool))
    assert outputs.shape == (0, 9, encoder.output_dim) and (summary is None or len(summary) == 0)


@pytest.mark.parametrize("key", ROWS)
def test_bad_padding_and_rows_without_a_step_are_named(key):
    encoder = build(key)
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    for padding, found in (
        (torch.zeros(2, 6), r"float32 \[2, 6\]"),
        (torch.zeros(1, 6, dtype=torch.bool), r"bool \[1, 6\]"),
        (torch.zeros(2, 5, dtype=torch.bool), r"bool \[2, 5\]"),
    ):
        with pytest.raises(ValueError, match=rf"padding is torch.{found}; it must be bool \[2, 6\]: True at steps"):
            encoder(inputs, padding)
    for padding in (None, torch.zeros(2, 0, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"inputs have shape \[2, 0, 5\]: give rows .* of at least one step"):
            encoder(inputs[:, :0], padding)


def heads_of(attention, x):
    """Queries, keys and values ``[h, t, e]`` of a row ``[t, d]``."""
    made = (attention.query(x), attention.key(x), attention.value(x))
    return (part.unflatten(-1, (attention.num_heads, -1)).transpose(0, 1) for part in made)


def literal(attention, x, real, weight):
    """Attention by a loop over queries and keys; ``weight(q, k, i, j)`` is not divided by its sum yet."""
    queries, keys, values = heads_of(attention, x)
    rows = torch.zeros(len(x), attention.num_heads, values.shape[-1], dtype=x.dtype)
    for h in range(attention.num_heads):
        for i in range(len(x)):
            weights = [weight(queries[h, i], keys[h, j], i, j) * bool(real[j]) for j in range(len(x))]
            total = sum(weights)
            for j, w in enumerate(weights):
                rows[i, h] += w / total * values[h, j]
    return attention.out(rows.flatten(1))


def softmax_weight(q, k, i, j):
    return torch.exp(q @ k / math.sqrt(len(q)))


def compare(mixer, weight, lengths=(9, 6)):
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    padding = padded(lengths, 9)
    found = mixer(x, padding)
    for row, length in enumerate(lengths):
        wanted = literal(mixer.attention, x[row], ~padding[row], weight)
        torch.testing.assert_close(found[row, :length], wanted[:length])


@pytest.mark.parametrize("fused", [True, False])
def test_the_transformer_is_softmax_attention(fused):
    compare(TransformerConfig(**SIZES, fused=fused).mixer(9).double(), softmax_weight)


def test_the_linear_transformer_is_the_quadratic_form_of_its_kernel():
    compare(LinearTransformerConfig(**SIZES).mixer(9).double(), lambda q, k, i, j: (F.elu(q) + 1) @ (F.elu(k) + 1))


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
def test_performer_is_the_quadratic_form_of_its_features(kernel):
    mixer = PerformerConfig(**SIZES, num_features=6, kernel=kernel).mixer(9).double()

    def phi(x):
        if kernel == "relu":
            return (mixer.directions @ x).relu() + 1e-3
        x = x / len(x) ** 0.25
        return torch.exp(mixer.directions @ x - x @ x / 2) / math.sqrt(6)

    compare(mixer, lambda q, k, i, j: phi(q) @ phi(k))


def test_performers_features_estimate_the_softmax_without_bias():
    queries, keys = 0.6 * torch.randn(2, 5, 8, dtype=torch.float64)
    exact = torch.exp(queries @ keys.T / math.sqrt(8))
    products = []
    for _ in range(600):
        w = orthogonal_directions(16, 8).double()
        features = [log_features(x, w).exp() / 4 for x in (queries, keys)]
        products.append(features[0] @ features[1].T)
    products = torch.stack(products)
    error = products.std(0) / math.sqrt(len(products))
    assert ((products.mean(0) - exact).abs() < 5 * error).all()
    assert (error / exact).max() < 0.1
    w = orthogonal_directions(16, 8)
    blocks = F.normalize(w, dim=-1).unflatten(0, (2, 8))
    torch.testing.assert_close(blocks @ blocks.mT, torch.eye(8).expand(2, -1, -1), atol=1e-5, rtol=0)


def test_many_features_come_near_softmax_attention_and_large_scores_stay_finite():
    x = torch.randn(2, 9, 8, dtype=torch.float64) * 0.5
    errors = []
    for number in (4, 4096):
        torch.manual_seed(1)
        mixer = PerformerConfig(**SIZES, num_features=number).mixer(9).double()
        wanted = torch.stack([literal(mixer.attention, row, torch.ones(9), softmax_weight) for row in x])
        errors.append((mixer(x, None) - wanted).norm().item() / wanted.norm().item())
    assert errors[1] < 0.05 < errors[0]
    huge = mixer(x * 1e3, padded([9, 2], 9))
    assert huge.isfinite().all()


def test_linformer_reads_projections_of_the_row():
    mixer = LinformerConfig(**SIZES, num_projected=5).mixer(12).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    found = mixer(x, padded([9, 6], 9))
    for row, length in enumerate((9, 6)):
        queries, keys, values = heads_of(mixer.attention, x[row, :length])
        read = []
        for h in range(2):
            k = sum(mixer.keys[:, j, None] * keys[h, j] for j in range(length))
            v = sum(mixer.values[:, j, None] * values[h, j] for j in range(length))
            read.append((queries[h] @ k.T / 2).softmax(-1) @ v)
        torch.testing.assert_close(found[row, :length], mixer.attention.out(torch.cat(read, -1)))
    with pytest.raises(ValueError, match="steps=13: this encoder was made for rows of at most 12"):
        mixer(torch.randn(1, 13, 8, dtype=torch.float64), None)


@pytest.mark.parametrize("past", [0, 1, 2, 7])
def test_chunks_read_themselves_and_the_chunks_before(past):
    mixer = PastChunksConfig(**SIZES, chunk_len=2, past_chunks=past).mixer(9).double()

    def weight(q, k, i, j):
        near = 0 <= i // 2 - j // 2 <= past
        return softmax_weight(q, k, i, j) * near

    compare(mixer, weight)


def test_one_chunk_of_the_whole_row_is_the_transformer():
    torch.manual_seed(0)
    chunks = PastChunksConfig(**SIZES, chunk_len=16).build(5, 16)
    whole = TransformerConfig(**SIZES).build(5, 16)
    whole.load_state_dict(chunks.state_dict())
    inputs = torch.randn(2, 16, 5)
    torch.testing.assert_close(chunks(inputs).outputs, whole(inputs).outputs)


def test_the_tlb_summarizes_with_the_mean_of_its_slots():
    encoder = build("two-way-tlb")
    inputs = torch.randn(2, 10, 5, dtype=torch.float64)
    _, state = encoder.core.encode(inputs)
    wanted = torch.stack([F.layer_norm(state.slots[row, -1], (8,), eps=1e-6).mean(0) for row in range(2)])
    torch.testing.assert_close(encoder(inputs).summary, wanted)


def test_bad_settings_are_named():
    for make, message in (
        (lambda: TransformerConfig(dim=6, num_heads=4), "num_heads=4: must divide dim=6"),
        (lambda: PerformerConfig(num_features=0), "num_features=0"),
        (lambda: LinformerConfig(num_projected=0), "num_projected=0"),
        (lambda: PastChunksConfig(past_chunks=-1), "past_chunks=-1"),
        (lambda: TransformerConfig(dim="64"), "dim='64': give a whole number"),
        (lambda: PerformerConfig(num_features=1.5), "num_features=1.5: give a whole number"),
        (lambda: ViTConfig(fused="no"), "fused='no': give True or False"),
        (lambda: ENCODERS["two-way-tlb"](core=LSTMConfig()), "core=LSTMConfig.*: give a Temporal"),
        (lambda: TransformerConfig().build(0, 10), "input_dim=0: TransformerConfig reads rows of at least one"),
        (lambda: LinformerConfig().build(8, 0), "length=0: LinformerConfig reads rows of at least one number"),
        (lambda: ENCODERS["two-way-tlb"](core=TemporalLatentBottleneckConfig()), "core.causal=True: whole rows need"),
        (lambda: ENCODERS["vit-tlb"](core=TemporalLatentBottleneckConfig()), "core.causal=True: whole rows need"),
        (lambda: ENCODERS["two-way-long-short"](core=type(sample("two-way-long-short").core)()), "core.causal=True"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_linear_attention_keeps_small_features():
    """elu(x) + 1 by the letter is 0 in float32 from about -17 on."""
    x = torch.linspace(-40, 4, 12, dtype=torch.float64, requires_grad=True)
    features = kernel_features(x)
    assert torch.allclose(features, torch.where(x > 0, x + 1, x.exp()), rtol=1e-12)
    assert torch.allclose(kernel_features(x.float()).double(), features, rtol=1e-5)
    assert (kernel_features(x.float()) > 0).all()
    assert torch.autograd.gradcheck(kernel_features, x)


def test_attention_of_the_class_token_does_not_depend_on_how_it_is_computed():
    maps = []
    for fused in (True, False):
        torch.manual_seed(0)
        encoder = ENCODERS["vit"](dim=8, num_layers=2, num_heads=2, fused=fused).build(6, 9)
        maps.append(encoder.summary_attention(torch.ones(2, 9, 6)))
    assert maps[0].shape == (2, 9) and torch.allclose(*maps)


@pytest.mark.parametrize("fields", [{"num_heads": (0, 6, 12, 24)}, {"depths": (2, 0, 6, 2)}])
def test_stages_without_heads_or_layers_are_refused(fields):
    with pytest.raises(ValueError, match=f"{next(iter(fields))}=.*: give positive numbers"):
        ENCODERS["swin-v2"](**fields)
