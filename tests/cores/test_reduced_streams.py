"""Streams with reduced weights and caches: the numbers that the formats stand for, rows, files, bytes and refusals."""

import math
import pickle

import pytest
import torch
from torch import nn

from recollect.agents import SequenceModelConfig
from recollect.certify.loading import from_config, small_config
from recollect.cores import CORES
from recollect.ops import reduced_linear
from recollect.ops.reduced_linear import PlainReducedLinear, ReducedLinear, quantize, quantize_rows
from recollect.state import leaves

QUICK = ("lstm", "transformer-xl", "hcam", "tlb", "ttm", "hybrid")
WHOLE = sorted(set(CORES) - {"instructed"})
CACHES = ("transformer-xl", "causal-transformer", "hcam", "hybrid", "spatio-temporal")


def made(key):
    torch.manual_seed(0)
    return from_config(small_config(CORES[key]), name=key).core.eval().float()


def steps_of(core, rows=3, steps=14):
    return torch.randn(steps, rows, *core.input_shape, generator=torch.Generator().manual_seed(1))


def run(stream, inputs):
    return torch.stack([stream.step(x) for x in inputs])


@pytest.fixture
def plain(monkeypatch):
    """Products in int8 by their plain twin from here on."""

    def use_twin():
        for name in ("has_fbgemm", "multiplies_integers"):
            monkeypatch.setattr(reduced_linear, name, lambda: False)

    return use_twin


@pytest.fixture(params=["fbgemm", "integers", "twin"])
def int8_form(request, monkeypatch):
    """One of the three forms of a product in int8, as far as this processor has it."""
    if request.param == "fbgemm" and not reduced_linear.has_fbgemm():
        pytest.skip("FBGEMM is not exact here")
    if request.param == "integers" and not reduced_linear.multiplies_integers():
        pytest.skip("int8 products are not exact here")
    monkeypatch.setattr(reduced_linear, "has_fbgemm", lambda: request.param == "fbgemm")
    monkeypatch.setattr(reduced_linear, "multiplies_integers", lambda: request.param == "integers")


@pytest.mark.parametrize("weights", ["int8", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_products_are_those_of_the_numbers_that_were_kept(weights, rows, int8_form):
    torch.manual_seed(0)
    weight, bias, x, z = torch.randn(24, 40), torch.randn(24), torch.randn(rows, 40), torch.randn(rows, 24)
    weight[3], weight[5], x[0] = 0.0, 1e6 * weight[5], 0.0
    parts = ReducedLinear(weight, bias, rows=rows, weights=weights), PlainReducedLinear(weight, bias, weights=weights)
    for mine, twin in ((part(x), part.plus(x, z)) for part in parts):
        assert mine.dtype == twin.dtype == torch.float32
    tolerance = {"rtol": 1e-6, "atol": 1e-5} if weights == "int8" else {"rtol": 1e-2, "atol": 2e-2}
    torch.testing.assert_close(parts[0](x), parts[1](x), **tolerance)
    torch.testing.assert_close(parts[0].plus(x, z), parts[1].plus(x, z), **tolerance)
    # Every channel has a scale of its own: one of 1e6 takes no precision from the others, and zeros stay zeros.
    exact, found = x @ weight.t() + bias, parts[0](x)
    error = (found - exact).norm(dim=0) / (x.norm() * weight.norm(dim=1)).clamp_min(1e-6)
    assert error.max() < 0.01
    assert torch.equal(found[:, 3], bias[3].expand(rows))
    assert torch.equal(found[0], bias)


def test_a_row_has_the_same_bits_in_any_batch(int8_form):
    torch.manual_seed(0)
    product = ReducedLinear(torch.randn(24, 40), torch.randn(24), rows=8, weights="int8")
    x = torch.randn(8, 40)
    alone = torch.cat([product(row[None]) for row in x])
    loud = x.clone()
    loud[2], loud[5, 3] = 1e7, math.nan
    others = [row for row in range(8) if row not in (2, 5)]
    assert torch.equal(product(x), alone)
    assert torch.equal(product(loud)[others], alone[others])
    assert product(loud)[5].isnan().all()


def test_a_scale_of_the_whole_batch_would_be_noticed(monkeypatch, int8_form):
    def of_the_batch(x):
        return x.abs().max().expand(len(x), 1).clone()

    torch.manual_seed(0)
    product = ReducedLinear(torch.randn(24, 40), None, rows=2, weights="int8")
    x = torch.randn(2, 40)
    before = product(x)[0]
    x[1] *= 100
    assert torch.equal(product(x)[0], before)
    monkeypatch.setattr(reduced_linear, "largest_of_rows", of_the_batch)
    assert not torch.equal(product(x)[0], before)


def test_lstm_is_the_literal_loop_with_dequantized_weights():
    core = CORES["lstm"](dim=6, num_layers=2).build(5).eval()
    inputs = steps_of(core)
    got = run(core.stream(3, weights="int8"), inputs)
    layers = [core.cells.layer(layer) for layer in range(2)]
    h, c = torch.zeros(2, 3, 6), torch.zeros(2, 3, 6)
    for t, x in enumerate(inputs):
        for layer, (w, u, b, e) in enumerate(layers):
            numbers, scale = quantize(torch.cat((w, u), 1).detach())
            rounded, most = quantize_rows(torch.cat((x, h[layer]), 1))
            gates = (rounded * most / 127) @ (numbers * scale[:, None]).t() + b + e
            i, f, g, o = gates.chunk(4, 1)
            c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
            h[layer] = x = o.sigmoid() * c[layer].tanh()
        torch.testing.assert_close(got[t], h[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", [*QUICK, *(pytest.param(k, marks=pytest.mark.long) for k in WHOLE if k not in QUICK)])
def test_int8_streams_compute_with_the_dequantized_weights(key, plain):
    """Bit for bit, through resets, subsets of rows and broken steps; near the core's numbers, which do not change."""
    core = made(key)
    before = {name: tensor.clone() for name, tensor in core.state_dict().items()}
    inputs, full = steps_of(core), core.stream(3)
    kernel = core.stream(3, weights="int8")
    plain()
    twin = core.stream(3, weights="int8")
    first = torch.tensor([False, True, False])
    for t, x in enumerate(inputs):
        if t == 9:  # one row is broken, and another one begins
            x = x.index_fill(0, torch.tensor([0]), math.nan)
        answers = [stream.step(x, first if t == 9 else None) for stream in (kernel, twin, full)]
        assert torch.equal(answers[0].isnan(), answers[2].isnan())
        torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=0, equal_nan=True)
        same = answers[2].isfinite()
        error = (answers[0] - answers[2])[same].norm() / answers[2][same].norm()
        assert 0 < error < 0.15
        if t % 3 == 2:
            some = [stream.step_rows(x[:2], [2, 1]) for stream in (kernel, twin, full)]
            torch.testing.assert_close(some[0], some[1], rtol=0, atol=0, equal_nan=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in core.state_dict().items())


@pytest.mark.parametrize("key", QUICK)
@pytest.mark.parametrize("weights", ["int8", "bfloat16"])
def test_other_rows_change_no_bit(key, weights):
    core = made(key)
    inputs = steps_of(core)
    other = inputs.clone()
    other[:, 1] *= 50.0
    other[7, 2] = math.nan
    one, two = (run(core.stream(3, weights=weights), x)[:, 0] for x in (inputs, other))
    assert torch.equal(one, two)


@pytest.mark.parametrize("key", QUICK)
def test_forks_files_copies_and_new_weights_keep_the_formats(key, tmp_path):
    core = made(key)
    formats = {"weights": "int8", **({"cache": "bfloat16"} if key in CACHES else {})}
    stream, inputs = core.stream(3, **formats), steps_of(core)
    run(stream, inputs[:8])
    assert [leaf.dtype for leaf in leaves(stream.state)] == [leaf.dtype for leaf in leaves(core.initial_state(3))]
    stream.save(tmp_path / "memory")
    loaded = core.stream(3, **formats)
    loaded.load(tmp_path / "memory")
    others = [stream.fork(), pickle.loads(pickle.dumps(stream)), loaded]
    want = run(stream, inputs[8:])
    for other in others:
        found = run(other, inputs[8:])
        assert (found - want).norm() < 0.05 * want.norm()
        assert other.precision == stream.precision
        assert other.reduced_nbytes == stream.reduced_nbytes > 0
    with torch.no_grad():
        for weight in core.parameters():
            weight.mul_(1.01)
    with pytest.raises(ValueError, match="have changed"):
        stream.step(inputs[0])
    stream.swap_weights()
    fresh = core.stream(3, **formats)
    fresh.load_state(stream.state)
    found, want = stream.step(inputs[0]), fresh.step(inputs[0])
    assert (found - want).norm() < 0.05 * want.norm()
    assert stream.precision == fresh.precision


@pytest.mark.parametrize("key", CACHES)
def test_caches_in_bfloat16_take_half_the_bytes_and_files_say_so(key, tmp_path):
    core = made(key)
    inputs = steps_of(core, steps=30)
    full, narrow = core.stream(3), core.stream(3, cache="bfloat16")
    want, got = run(full, inputs), run(narrow, inputs)
    assert 0 < (got - want).norm() / want.norm() < 0.05
    assert narrow.nbytes < (0.75 if key == "hybrid" else 0.6) * full.nbytes
    blocks = core.stream(3, cache="bfloat16").unroll(inputs.transpose(0, 1)).transpose(0, 1)
    assert (blocks - want).norm() / want.norm() < 0.05
    narrow.save(tmp_path / "memory")
    with pytest.raises(ValueError, match="cache='bfloat16', this one has cache='float32'"):
        full.load(tmp_path / "memory")
    full.load_state(narrow.state)
    torch.testing.assert_close(full.step(inputs[0]), narrow.step(inputs[0]), rtol=0.05, atol=0.05)


def test_reduced_weights_take_fewer_bytes():
    core = CORES["transformer-xl"](dim=64, num_layers=2, num_heads=2, memory_len=8).build(64).eval()
    full = sum(4 * layer.weight.numel() for layer in core.modules() if isinstance(layer, nn.Linear))
    for weights, share in (("bfloat16", 0.5), ("int8", 0.25)):
        stream = core.stream(1, weights=weights)
        stream.step(torch.randn(1, 64))
        assert stream.reduced_nbytes < 1.1 * share * full
    assert not core.stream(1).reduced_nbytes


def test_agents_have_streams_with_reduced_cores():
    torch.manual_seed(0)
    config = CORES["transformer-xl"](dim=8, num_layers=1, num_heads=2, memory_len=4)
    model = SequenceModelConfig(embedding_dim=8).build(config, num_classes=3, vocabulary=7).eval()
    tokens = torch.randint(0, 7, (10, 2))
    full, reduced = model.stream(2), model.stream(2, weights="int8", cache="bfloat16")
    for step in tokens:
        torch.testing.assert_close(reduced.step(step), full.step(step), rtol=0.1, atol=0.1)
    assert reduced.fork().core.precision == reduced.core.precision == reduced.precision
    assert reduced.cache == "bfloat16"


def test_refusals_name_the_format_and_the_remedy():
    core = made("lstm")
    for arguments, message in (
        ({"weights": "int4"}, "weights='int4'.*choose float32, bfloat16, int8"),
        ({"cache": "int8"}, "cache='int8'.*choose float32, bfloat16"),
        ({"cache": "bfloat16"}, "cache='bfloat16': LSTM cannot reduce it.*use cache='float32'"),
    ):
        with pytest.raises(ValueError, match=message):
            core.stream(1, **arguments)
    with pytest.raises(ValueError, match=r"InstructedTransformer cannot reduce them.*use weights='float32'"):
        made("instructed").stream(1, weights="int8")
    with pytest.raises(ValueError, match=r"LSTM is torch.float64 on cpu: use core.float"):
        made("lstm").double().stream(1, weights="int8")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="outside of it"):
        core.stream(1, weights="int8")
    stream = core.stream(1, weights="int8")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="autocast is on"):
        stream.step(torch.randn(1, *core.input_shape))
