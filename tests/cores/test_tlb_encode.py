"""Whole sequences, padded or not, with chunks that look both ways or back only."""

import pytest
import torch
from tlb_cases import VARIANTS, Variant, assert_same_with_gradients, build

from recollect.cores.tlb.reference import reference_encode


@pytest.mark.parametrize(("causal", "remainder"), [(False, "update"), (False, "drop"), (True, "update")])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("variant", ["default", "per-layer", "no-past", "released", "cut"])
def test_whole_sequences_equal_the_plain_form(variant, causal, padded, remainder):
    core = build(causal, **VARIANTS[variant])
    inputs = torch.randn(3, 15, 5, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(3, 15, dtype=torch.bool)
    if padded:
        padding[0, 7:] = True
        padding[1] = torch.rand(15) < 0.5
        padding[1, 4:8] = True
        padding[2] = True
    outputs, state = core.encode(inputs, padding if padded else None, remainder=remainder)
    want, plain = reference_encode(core, inputs, padding if padded else None, remainder=remainder)
    assert_same_with_gradients(core, inputs, (outputs, state.slots), (want, plain.slots))
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


@pytest.mark.parametrize("remainder", ["update", "drop"])
def test_how_much_padding_follows_a_row_does_not_decide_what_is_written(remainder):
    core = build()
    inputs = torch.randn(2, 24, 5, dtype=torch.float64)
    _, alone = core.encode(inputs[:, :14], remainder=remainder)
    for longer in (15, 16, 17, 24):
        padding = torch.arange(longer).expand(2, -1) >= 14
        _, state = core.encode(inputs[:, :longer], padding, remainder=remainder)
        torch.testing.assert_close(state.slots, alone.slots)
    _, twelve = core.encode(inputs[:, :12], remainder=remainder)
    assert torch.allclose(alone.slots, twelve.slots) == (remainder == "drop"), "chunks of four: two steps are left over"


def test_a_step_that_is_not_finite_is_nan_and_is_read_as_zeros():
    core = build(causal=False)
    inputs = torch.randn(1, 8, 5, dtype=torch.float64)
    zeros, after = core.encode(torch.where((torch.arange(8) == 2)[:, None], 0.0, inputs))
    broken, state = core.encode(torch.where((torch.arange(8) == 2)[:, None], torch.inf, inputs))
    assert broken[0, 2].isnan().all()
    torch.testing.assert_close(broken[0, 3:], zeros[0, 3:])
    torch.testing.assert_close(state.slots, after.slots)


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
        causal, feedback="none", chunk_len=9, input_dim=8, positions="none", details=Variant(activation="relu")
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
    with pytest.raises(ValueError, match="remainder='keep': choose 'update' or 'drop'"):
        core.encode(inputs, remainder="keep")
