"""SiT: its tokens, what replaces them, other resolutions, and its folder."""

import pytest
import torch

from recollect.agents.config import SiTConfig
from recollect.agents.sit import SiT
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.config import SwinV2Config, TransformerConfig, ViTTLBConfig
from recollect.layers.positions import resize_grid
from recollect.tasks import Shapes

TASK = Shapes(size=16)
SIZES = {"dim": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 12}
PLAIN = TransformerConfig(**SIZES)
TLB = ViTTLBConfig(
    core=TemporalLatentBottleneckConfig(**SIZES, chunk_len=4, num_slots=3, causal=False, positions="none")
)


def model(encoder):
    torch.manual_seed(0)
    return SiTConfig(embedding_dim=8, contrast_dim=5).build(encoder, TASK.spec).eval()


@pytest.mark.parametrize("encoder", [PLAIN, TLB], ids=["sit", "sit-tlb"])
@pytest.mark.parametrize("size", [16, 32])
def test_answers_are_read_from_two_tokens_or_from_the_slots(encoder, size):
    ours = model(encoder)
    inputs = Shapes(size=size).sample(3, torch.Generator().manual_seed(0)).inputs
    n = inputs.shape[1]
    rotation, contrast, restored = ours(inputs)
    assert rotation.shape == (3, 4) and contrast.shape == (3, 5) and restored.shape == (3, n, 48)
    x = ours.embedding(inputs) + resize_grid(ours.positions, n)
    if encoder is PLAIN:
        y = ours.encoder(torch.cat((ours.tokens.expand(3, 2, 8), x), 1)).outputs
        heads = y[:, 0], y[:, 1], y[:, 2:]
    else:
        assert ours.tokens is None
        y, summary = ours.encoder(x)
        heads = summary, summary, y
    torch.testing.assert_close(rotation, ours.rotation(heads[0]))
    torch.testing.assert_close(contrast, ours.contrast(heads[1]))
    torch.testing.assert_close(restored, ours.restore(heads[2]))
    torch.testing.assert_close(ours.features(inputs), (heads[0] + heads[1]) / 2)


def test_a_folder_gives_the_model_back(tmp_path):
    ours, inputs = model(TLB), TASK.sample(2, torch.Generator()).inputs
    ours.save(tmp_path)
    again = SiT.load(tmp_path)
    assert all(torch.equal(one, two) for one, two in zip(ours(inputs), again(inputs), strict=True))


def test_bad_settings_and_inputs_are_named():
    with pytest.raises(ValueError, match="contrast_dim=0"):
        SiTConfig(contrast_dim=0)
    with pytest.raises(ValueError, match="choose one that reads embedded patches"):
        model(SwinV2Config())
    with pytest.raises(ValueError, match=r"inputs are \[2, 15, 48\]; this model takes \[b, n, 48\], n a square"):
        model(PLAIN)(torch.randn(2, 15, 48))
