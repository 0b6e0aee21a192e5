import json
import math
import shutil

import pytest
import torch
import torch.nn.functional as F

import recollect
from recollect.agents import ActivityDetector, ActivityDetectorConfig
from recollect.agents.video_backbones import Patches, load_pretrained, pool, pool_shape
from recollect.cores import CORES
from recollect.objectives.detection import detection_loss

NAMES = ("run", "sit", "eat")
SMALL = {
    "ttm": {"dim": 8, "num_tokens": 4, "num_slots": 3, "num_reads": 2, "num_heads": 2},
    "recurrent-transformer": {"dim": 8, "num_tokens": 4, "num_slots": 3, "num_reads": 2, "num_heads": 2},
    "lstm": {"dim": 8, "num_layers": 1},
    "memoryless": {"dim": 8},
    "causal-transformer": {"dim": 8, "num_layers": 2, "num_heads": 2, "memory_len": 7},
}


def build(core="ttm", frame_shape=(16, 16, 3), **fields):
    torch.manual_seed(0)
    config = ActivityDetectorConfig(**{"size": 16, "width": 8, "num_tokens": 4, **fields})
    feature_dim = None if frame_shape else 5
    memory = CORES[core](**SMALL[core])
    return config.build(memory, class_names=NAMES, frame_shape=frame_shape, feature_dim=feature_dim).eval()


def video(batch=2, steps=12, side=16):
    generator = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (batch, steps, side, side, 3), generator=generator, dtype=torch.uint8)
    is_first = torch.zeros(batch, steps, dtype=torch.bool)
    is_first[:, 0] = is_first[1, 5] = True
    return frames, is_first


def test_patches_are_two_convolutions_of_pixels():
    torch.manual_seed(0)
    backbone = Patches(size=12, patch=4, dim=5)
    frames = torch.randint(256, (2, 1, 12, 12, 3), dtype=torch.uint8)
    pixels = frames[:, 0].movedim(-1, 1) * (4 / 255) - 0.5
    seen = F.gelu(F.conv2d(pixels, backbone.patches.weight, backbone.patches.bias, stride=4))
    mixed = F.gelu(seen + F.conv2d(seen, backbone.neighbours.weight, backbone.neighbours.bias, padding=1))
    expected = torch.stack([mixed[:, :, y, x] for y in range(3) for x in range(3)], 1)
    torch.testing.assert_close(backbone(frames), expected)


@pytest.mark.parametrize("tokens", ["joined", "steps"])
@pytest.mark.parametrize("core", SMALL)
def test_stream_equals_the_whole_video(core, tokens):
    model = build(core, vector_tokens=tokens)
    frames, is_first = video()
    logits, _ = model(frames, model.initial_state(2), is_first)
    stream = model.stream(2)
    said = torch.stack([stream.step(frames[:, t], is_first[:, t]) for t in range(12)], 1)
    assert logits.shape == (2, 12, 3)
    torch.testing.assert_close(said, logits, atol=1e-5, rtol=1e-5)
    before = stream.nbytes
    for t in range(12):
        stream.step(frames[:, t])
    assert stream.nbytes == before


def test_an_unreadable_step_is_nan_and_the_next_one_is_not():
    model, (frames, _) = build(), video()
    stream = model.stream(2)
    stream.step(frames[:, 0], True)
    assert stream.step_unreadable().isnan().all()
    assert stream.step(frames[:, 1]).isfinite().all()


def test_features_instead_of_frames_and_files(tmp_path):
    model = build(frame_shape=None)
    inputs = torch.randn(2, 6, 5)
    logits, _ = model(inputs, model.initial_state(2), torch.zeros(2, 6, dtype=torch.bool))
    model.save(tmp_path)
    again, _ = ActivityDetector.load(tmp_path)(inputs, model.initial_state(2), torch.zeros(2, 6, dtype=torch.bool))
    assert torch.equal(logits, again)
    with pytest.raises(ValueError, match="takes features"):
        model(torch.randn(2, 6, 4), model.initial_state(2), torch.zeros(2, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="takes frames"):
        build()(inputs, model.initial_state(2), torch.zeros(2, 6, dtype=torch.bool))


def test_tokens_are_averaged_as_in_the_paper():
    assert pool_shape((16, 14, 14), 16) == (16, 1, 1) and pool_shape((16, 14, 14), 3136) == (16, 14, 14)
    assert pool_shape((1, 8, 8), 16) == (1, 4, 4) and pool_shape((16, 14, 14), 512) == (16, 4, 8)
    with pytest.raises(ValueError, match="num_tokens=17"):
        pool_shape((1, 8, 8), 17)
    tokens = torch.randn(2, 16, 3)
    means = tokens.unflatten(1, (2, 2, 2, 2)).mean((2, 4)).flatten(1, 2)
    torch.testing.assert_close(pool(tokens, (1, 4, 4), 4), means)


@pytest.mark.long
def test_models_of_transformers_frame_by_frame_and_a_segment_at_a_time(tmp_path):
    transformers = pytest.importorskip("transformers")
    common = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    image = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **common))
    image.save_pretrained(tmp_path / "image")
    segments = transformers.VivitConfig(image_size=16, num_frames=4, tubelet_size=[2, 4, 4], **common)
    transformers.VivitModel(segments).save_pretrained(tmp_path / "vivit")
    frames, is_first = video()
    for kind, f in (("image", 1), ("vivit", 4)):
        model = build("ttm", backbone=kind, model=str(tmp_path / kind)).train()
        assert model.frames_per_step == f and not model.backbone.model.training
        assert not any(weight.requires_grad for weight in model.backbone.parameters())
        resets = torch.zeros_like(is_first)
        logits, _ = model(frames, model.initial_state(2), resets)
        stream = model.eval().stream(2)
        said = [stream.step(frames[:, t]) for t in range(12)]
        assert [x is None for x in said] == [t % f < f - 1 for t in range(12)]
        torch.testing.assert_close(torch.stack(said[f - 1 :: f], 1), logits[:, f - 1 :: f], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="give a multiple"):
        model(frames[:, :6], model.initial_state(2), is_first[:, :6])
    with pytest.raises(ValueError, match="model='': name a folder"):
        build(backbone="vivit")
    tuned = build("ttm", backbone="image", model=str(tmp_path / "image"), frozen=False)
    assert all(weight.requires_grad for weight in tuned.backbone.parameters())


class Pairs(Patches):
    """Two frames are one step: the mean of their patches."""

    frames_per_step = 2

    def forward(self, frames):
        return (super().forward(frames[:, :1]) + super().forward(frames[:, 1:])) / 2


def detector_of_pairs():
    model = build("lstm")
    model.backbone.__class__ = Pairs
    return model


def test_unfinished_segments_survive_new_weights_a_reused_buffer_and_copies_of_no_rows():
    model, (frames, is_first) = detector_of_pairs(), video(steps=6)
    is_first[1, 5] = False
    is_first[1, 2] = True
    logits, _ = model(frames, model.initial_state(2), is_first)
    stream, buffer = model.stream(2), torch.empty_like(frames[:, 0])
    for t in range(6):
        said = stream.step(buffer.copy_(frames[:, t]), is_first[:, t])
        if t % 2:
            torch.testing.assert_close(said, logits[:, t], atol=1e-5, rtol=1e-5)
        stream.swap_weights()
        assert stream.fork_rows([]) == range(2, 2)


def test_a_frame_that_fails_is_no_part_of_a_segment():
    model, (frames, is_first) = detector_of_pairs(), video()
    frames, is_first = frames[:, :2], is_first[:, :2]
    logits, _ = model(frames, model.initial_state(2), is_first)
    stream = model.stream(2)
    with pytest.raises(ValueError, match=r"inputs are torch.uint8 \[2, 0, 16, 3\]; this detector takes frames"):
        stream.step(frames[:, 0, :0])
    stream.step(frames[:, 0], True)
    with pytest.raises(ValueError, match=r"inputs are \[2, 8, 16, 3\]: the segment began with \[16, 16, 3\]"):
        stream.step(frames[:, 1, :8])
    with torch.no_grad():
        next(model.core.parameters()).mul_(1.0)
    with pytest.raises(ValueError, match="have changed since its stream was made"):
        stream.step(frames[:, 1])
    stream.swap_weights()
    torch.testing.assert_close(stream.step(frames[:, 1]), logits[:, 1], atol=1e-5, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["image", "vivit"])
def test_a_folder_needs_the_pretrained_model_no_longer(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    if kind == "image":
        known = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **sizes))
    else:
        known = transformers.VivitModel(
            transformers.VivitConfig(image_size=16, num_frames=4, tubelet_size=[2, 4, 4], **sizes)
        )
    known.to(torch.bfloat16).save_pretrained(tmp_path / "known")  # is computed in float32 all the same
    model = build("ttm", backbone=kind, model=str(tmp_path / "known")).eval()
    model.save(tmp_path / "model")
    shutil.rmtree(tmp_path / "known")
    again, (frames, is_first) = recollect.load(tmp_path / "model"), video()
    assert again.backbone.colours == model.backbone.colours
    want, got = (each(frames, each.initial_state(2), torch.zeros_like(is_first))[0] for each in (model, again))
    assert torch.equal(want, got)
    about = json.loads((tmp_path / "model" / "spec.json").read_text())
    for name in ("attn_implementation", "_attn_implementation"):  # code in the Hub, which is not fetched
        about["sizes"]["pretrained"]["settings"][name] = "somebody/kernel"
    (tmp_path / "model" / "spec.json").write_text(json.dumps(about))
    unchanged = recollect.load(tmp_path / "model")
    assert torch.equal(unchanged(frames, unchanged.initial_state(2), torch.zeros_like(is_first))[0], want)
    about["sizes"]["pretrained"]["settings"]["model_type"] = "vit-9"
    (tmp_path / "model" / "spec.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"pretrained: transformers cannot make this model .*vit-9"):
        recollect.load(tmp_path / "model")
    del about["sizes"]["pretrained"]  # of an earlier version
    (tmp_path / "model" / "spec.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"model='.*known' cannot be loaded .*: give a folder or a name of the Hub"):
        recollect.load(tmp_path / "model")


@pytest.mark.long
def test_a_folder_with_batch_norms_over_a_single_position_loads(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.EfficientNetConfig(image_size=32, width_coefficient=0.25, depth_coefficient=0.1)
    config.hidden_dim = 320
    transformers.EfficientNetModel(config).save_pretrained(tmp_path / "known")
    model = build("lstm", backbone="image", model=str(tmp_path / "known"), num_tokens=1)
    assert model.backbone.grid == (1, 1, 1)
    model.save(tmp_path / "model")
    again, (frames, is_first) = recollect.load(tmp_path / "model"), video()
    want, got = (each(frames, each.initial_state(2), is_first)[0] for each in (model, again))
    assert torch.equal(want, got)


@pytest.mark.long
def test_a_model_of_the_hub_gets_the_colours_of_its_training(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    from transformers.image_processing_base import ImageProcessingMixin

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **sizes))
    hub = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}

    def fetched(name, local_files_only=False):
        if local_files_only:
            raise OSError("nothing but the weights was fetched before")
        return hub, {}

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda name, **_: model)
    monkeypatch.setattr(ImageProcessingMixin, "get_image_processor_dict", fetched)
    assert load_pretrained("image", "somebody/dino", True).colours == (
        tuple(hub["image_mean"]),
        tuple(hub["image_std"]),
    )


def test_smoothed_labels_as_a_loop():
    logits, targets = torch.randn(2, 3, 4), (torch.rand(2, 3, 4) > 0.5).float()
    mask = torch.tensor([[True, False, True], [False, True, False]])
    total, count = 0.0, 0
    for b, t in mask.nonzero().tolist():
        for k in range(4):
            label = 0.9 if targets[b, t, k] else 0.1 / 4
            p = logits[b, t, k].sigmoid()
            total, count = total - label * p.log() - (1 - label) * (1 - p).log(), count + 1
    torch.testing.assert_close(detection_loss(logits, targets, mask, 0.1), total / count)
    logits[0, 0] = torch.nan  # what is not asked may be anything
    logits.requires_grad_()
    loss = detection_loss(logits, targets, torch.zeros_like(mask))
    loss.backward()
    assert loss == 0 and not logits.grad.any()
    with pytest.raises(ValueError, match="do not agree"):
        detection_loss(logits, targets[:, :2], mask)


@pytest.mark.parametrize(("grid", "count"), [((1, 7, 7), 16), ((1, 5, 8), 10), ((2, 6, 6), 18), ((4, 3, 3), 6)])
def test_tokens_are_averaged_as_by_adaptive_pooling(grid, count):
    tokens = torch.randn(2, math.prod(grid), 5, dtype=torch.float64)
    shape = pool_shape(grid, count)
    maps = torch.nn.functional.adaptive_avg_pool3d(tokens.mT.unflatten(-1, grid), shape)
    torch.testing.assert_close(pool(tokens, grid, count), maps.flatten(2).mT)


def test_flags_and_features_of_another_dtype_are_refused():
    detector = build("lstm", frame_shape=None)
    features, is_first = torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"is_first has dtype torch.int64: give bools"):
        detector(features, detector.initial_state(2), is_first.long())
    with pytest.raises(ValueError, match=r"is_first has shape \[2, 2\]; this model takes \[2, 3\]"):
        detector(features, detector.initial_state(2), is_first[:, :2])
    for dtype in (torch.float16, torch.float64):
        with pytest.raises(ValueError, match=f"inputs are {dtype}; this model computes in torch.float32"):
            detector(features.to(dtype), detector.initial_state(2), is_first)
        with pytest.raises(ValueError, match=f"inputs are {dtype}; this model computes in torch.float32"):
            detector.stream(2).step(features[:, 0].to(dtype))
