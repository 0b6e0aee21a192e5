"""Encoders of images: positions of another grid, chunks that grow, Swin V2 against transformers."""

import sys

import pytest
import torch
import torch.nn.functional as F

from recollect.agents import SequenceClassifierConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.cores.tlb.reference import reference_encode
from recollect.encoders.config import SwinV2Config, TransformerConfig, ViTConfig, ViTTLBConfig
from recollect.layers.positions import from_patches, resize_grid
from recollect.tasks import ListOps, Shapes

SIZES = {"dim": 8, "num_layers": 4, "num_heads": 2, "hidden_dim": 12}


def bottleneck(**changes):
    own = {"chunk_len": 4, "num_slots": 3, "causal": False, "positions": "none"}
    return ViTTLBConfig(core=TemporalLatentBottleneckConfig(**{**SIZES, **own, **changes}))


def model(encoder, task=None, positions="grid"):
    torch.manual_seed(0)
    agent = SequenceClassifierConfig(embedding_dim=8, embedding_std=0.5, positions=positions, hidden_dim=7)
    return agent.build(encoder, (task or Shapes(size=16)).spec).eval()


def test_positions_are_resized_as_torch_does_and_stay_at_their_own_size():
    table = torch.randn(16, 5)
    assert resize_grid(table, 16) is table
    grid = table.view(4, 4, 5).permute(2, 0, 1)[None]
    wanted = F.interpolate(grid, size=(8, 8), mode="bicubic", align_corners=False)[0].permute(1, 2, 0)
    torch.testing.assert_close(resize_grid(table, 64).view(8, 8, 5), wanted)
    level = torch.full((16, 1), 0.3)
    torch.testing.assert_close(resize_grid(level, 64), torch.full((64, 1), 0.3))


@pytest.mark.parametrize("feedback", ["top_down", "per_layer", "none"])
def test_the_bottleneck_reads_larger_images_in_as_many_chunks_as_the_literal_loop(feedback):
    ours = model(bottleneck(feedback=feedback)).double()
    core = ours.encoder.core
    for size, chunk_len, chunks in ((16, 4, 4), (32, 16, 4), (8, 4, 1)):
        inputs = Shapes(size=size).sample(2, torch.Generator().manual_seed(0)).inputs.double()
        x = ours.embedding(inputs) + resize_grid(ours.positions, (size // 4) ** 2)
        outputs, state = reference_encode(core, x, chunk_len=chunk_len)
        encoding, _ = ours.encode(inputs)
        torch.testing.assert_close(encoding.outputs, outputs)
        slots = F.layer_norm(state.slots[:, -1], (8,), eps=1e-6).mean(1)
        torch.testing.assert_close(ours(inputs), ours.head(slots))
        assert inputs.shape[1] == chunks * chunk_len, "the number of chunks stays, or their length"


def test_chunks_of_another_length_allow_no_positions_in_the_chunk():
    core = TemporalLatentBottleneckConfig(**SIZES, chunk_len=4, causal=False).build(8)
    assert core.encode(torch.randn(1, 8, 8), chunk_len=4)[0].shape == (1, 8, 8)
    with pytest.raises(ValueError, match=r'chunk_len=8: the config has positions of 4 steps.*positions="none"'):
        core.encode(torch.randn(1, 8, 8), chunk_len=8)
    with pytest.raises(ValueError, match="chunk_len=0"):
        bottleneck().build(8, 16).core.encode(torch.randn(1, 8, 8), chunk_len=0)


def test_a_image_that_is_larger_than_those_it_was_built_for_has_no_padding():
    encoder = bottleneck().build(5, 16)
    padding = torch.zeros(1, 32, dtype=torch.bool)
    with pytest.raises(ValueError, match="padding: rows of 32 patches are longer than the 16"):
        encoder(torch.randn(1, 32, 5), padding)


def test_vit_is_a_transformer_with_a_token_in_front():
    vit = ViTConfig(**SIZES).build(8, 16)
    plain = TransformerConfig(**SIZES).build(8, 17)
    plain.load_state_dict({name: x for name, x in vit.state_dict().items() if name != "token"})
    inputs = torch.randn(2, 16, 8)
    wanted, _ = plain(torch.cat((vit.token.expand(2, 1, 8), inputs), 1))
    outputs, summary = vit(inputs)
    torch.testing.assert_close(outputs, wanted[:, 1:])
    torch.testing.assert_close(summary, wanted[:, 0])


def literal_weights(attention, x, y):
    queries, keys = (part.unflatten(-1, (2, -1)).transpose(0, 1) for part in (attention.query(x), attention.key(y)))
    return (queries @ keys.mT / 2).softmax(-1)  # h t s


def test_the_summarys_attention_is_that_of_token_and_slots():
    inputs = torch.randn(2, 16, 8)
    vit = ViTConfig(**{**SIZES, "num_layers": 1}).build(8, 16)
    with_token = torch.cat((vit.token[None], inputs[1]))
    x = vit.mixer_norms[0](with_token)
    wanted = literal_weights(vit.mixers[0].attention, x, x)[:, 0, 1:].mean(0)
    torch.testing.assert_close(vit.summary_attention(inputs)[1], wanted)

    reader = bottleneck(feedback="none", num_layers=1).build(8, 16)
    core = reader.core
    write, block = core.levels[0].write, core.levels[0].before[0]
    chunk = inputs[1, :4]
    x = block.norm(chunk)
    x = chunk + block.attention(x, x)
    x = x + block.feedforward(block.norm_feedforward(x))
    weights = literal_weights(write.attention, write.norm(core.initial_slots()[0]), write.key_norm(x))
    found = reader.summary_attention(inputs)
    torch.testing.assert_close(found[1, :4], weights.mean((0, 1)))
    torch.testing.assert_close(found.unflatten(1, (4, 4)).sum(2), torch.ones(2, 4))
    assert reader.summary_attention(torch.randn(1, 14, 8)).shape == (1, 14)
    with pytest.raises(ValueError, match=r"StackEncoder has no attention from its summary.*use vit or vit-tlb"):
        TransformerConfig(**SIZES).build(8, 16).summary_attention(inputs)


SWIN = SwinV2Config(dim=8, depths=(2, 2), num_heads=(2, 4), window=2)
DEEP = SwinV2Config(dim=8, depths=(2, 2, 2, 2), num_heads=(2, 2, 4, 4))


def test_swin_reads_other_sizes_as_a_model_that_was_built_for_them():
    pytest.importorskip("transformers")
    small, large = (model(DEEP, Shapes(size=size), "none") for size in (64, 128))
    large.load_state_dict(small.state_dict())
    shifts = [[block.shift_size for layer in one.encoder.swin.encoder.layers for block in layer.blocks]
              for one in (small, large)]  # fmt: skip
    assert shifts[0] == [0, 2, 0, 2, 0, 0, 0, 0] and shifts[1] == [0, 2, 0, 2, 0, 2, 0, 0]
    inputs = {size: Shapes(size=size).sample(2, torch.Generator().manual_seed(0)).inputs for size in (64, 128)}
    before, drawn = small(inputs[64]), torch.get_rng_state()
    for reader, built_for, other in ((small, large, 128), (large, small, 64)):
        assert torch.equal(reader(inputs[other]), built_for(inputs[other]))
    assert torch.equal(torch.get_rng_state(), drawn) and torch.equal(small(inputs[64]), before)
    assert small.state_dict().keys() == large.state_dict().keys()

    small(inputs[128]).square().sum().backward()
    large(inputs[128]).square().sum().backward()
    for one, two in zip(small.parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    small.double(), large.double()
    assert torch.equal(small(inputs[128].double()), large(inputs[128].double()))
    with pytest.raises(ValueError, match="4 stages merge 12 patches per side too often"):
        small(Shapes(size=48).sample(1, torch.Generator()).inputs.double())


def test_swin_equals_transformers():
    transformers = pytest.importorskip("transformers")
    ours = model(SWIN, Shapes(size=32), "none")
    settings = ours.encoder.swin.config
    settings.num_labels = 8
    theirs = transformers.Swinv2ForImageClassification(settings).eval()
    theirs.swinv2.load_state_dict(ours.encoder.swin.state_dict())
    for size in (32, 64):
        inputs = Shapes(size=size).sample(2, torch.Generator().manual_seed(0)).inputs
        pooled = theirs.swinv2(from_patches(inputs, 4)).pooler_output
        torch.testing.assert_close(ours(inputs), ours.head(pooled))
        torch.testing.assert_close(theirs(from_patches(inputs, 4)).logits, theirs.classifier(pooled))
    with pytest.raises(ValueError, match="padding: swin-v2 reads whole images"):
        ours.encoder(inputs, torch.ones(2, 256, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"padding is torch.bool \[2, 255\]; it must be bool \[2, 256\]"):
        ours.encoder(inputs, torch.zeros(2, 255, dtype=torch.bool))


def test_swin_names_what_is_missing_or_wrong(monkeypatch):
    pytest.importorskip("transformers")
    for make, message in (
        (lambda: SwinV2Config(depths=(2, 2)), "num_heads=.*one number for each of the 2 stages"),
        (lambda: SwinV2Config(dim=10), "stage 0 is 10 wide"),
        (lambda: SWIN.build(47, 64), "input_dim=47"),
        (lambda: SWIN.build(48, 81), "2 stages merge 9 patches per side too often"),
        (lambda: model(SWIN), "positions='grid': SwinV2Config has positions of its own: choose \"none\""),
        (lambda: model(SWIN, ListOps(min_length=5, max_length=20), "none"), "SwinV2Config reads images only"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"swin-v2 needs the package transformers: pip install 'transformers>=5,<6'"):
        SWIN.build(48, 64)


def test_grids_are_square_and_images_too():
    ours = model(ViTConfig(**SIZES))
    with pytest.raises(ValueError, match="one for each patch of a square image"):
        ours(torch.randn(2, 17, 48))
    with pytest.raises(ValueError, match="positions='grid': 20 steps are no square grid"):
        model(ViTConfig(**SIZES), ListOps(min_length=5, max_length=20))
