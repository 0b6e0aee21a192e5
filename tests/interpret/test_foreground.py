"""Overlap and pointing on maps whose scores can be counted by hand, and on models."""

import numpy as np
import pytest
import torch

from recollect.agents import SequenceClassifierConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.config import ViTConfig, ViTTLBConfig
from recollect.interpret.colours import top_mask
from recollect.interpret.figures import figure_patches
from recollect.interpret.foreground import (
    ForegroundOverlap,
    ForegroundPointing,
    attention_to_patches,
    evaluate_attention,
    overlap,
    pointing,
)
from recollect.tasks import CIFAR, Shapes

TASK = Shapes(size=16)


def model():
    torch.manual_seed(0)
    vit = ViTConfig(dim=8, num_layers=1, num_heads=2)
    return SequenceClassifierConfig(embedding_dim=8, positions="grid").build(vit, TASK.spec)


def test_overlap_is_counted_in_pixels():
    maps, seen = torch.rand(6, 16), TASK.pictures(6, torch.Generator().manual_seed(0)).foreground
    for share, count in ((0.2, 3), (0.3, 5), (0.5, 8), (0.01, 1)):
        found = overlap(maps, seen, share)
        for row in range(6):
            grey = np.full((16, 16, 3), 200, np.uint8)
            kept = top_mask(grey, maps[row].view(4, 4).numpy(), count / 16)[..., 0] == 200
            truth = seen[row].numpy()
            assert kept.sum() == 16 * count
            assert found.scores[row] == pytest.approx((kept & truth).sum() / (kept | truth).sum())


def test_a_map_of_the_foreground_is_right_and_its_chance_is_that_of_a_lot():
    seen = torch.zeros(1, 16, 16, dtype=torch.bool)
    seen[:, 4:8, 8:16] = True  # two patches of 16
    maps = torch.zeros(1, 16)
    maps[0, [6, 7]] = torch.tensor([0.5, 0.4])
    assert overlap(maps, seen, 2 / 16).scores == 1
    assert overlap(maps, seen, 4 / 16).scores == 0.5
    chance = overlap(maps, seen, 4 / 16).chance.item()
    assert chance == pytest.approx(0.5 / (2 + 4 - 0.5))
    lots = torch.stack([overlap(torch.rand(1, 16), seen, 4 / 16).scores for _ in range(400)])
    assert abs(lots.mean().item() - chance) < 0.02
    hit = pointing(maps, seen)
    assert hit.scores == 1 and hit.chance.item() == pytest.approx(6 / 16), "two pixels around it count"
    assert pointing(1 - maps, seen).scores == 0


def test_one_softmax_over_the_picture_keeps_the_order_in_a_chunk_and_weighs_the_chunks():
    sizes = {"dim": 8, "num_layers": 2, "num_heads": 1, "chunk_len": 4, "num_slots": 1, "self_per_cross": 1}
    core = TemporalLatentBottleneckConfig(**sizes, causal=False, positions="none")
    torch.manual_seed(0)
    agent = SequenceClassifierConfig(embedding_dim=8, positions="grid").build(ViTTLBConfig(core=core), TASK.spec)
    for weight in agent.parameters():
        weight.data *= 2  # weights of new models are nearly uniform
    by_chunk, joined = (
        attention_to_patches(agent, TASK, samples=5, seed=1, across_chunks=across)[0] for across in (False, True)
    )
    torch.testing.assert_close(by_chunk.unflatten(1, (4, 4)).sum(-1), torch.ones(5, 4))
    torch.testing.assert_close(joined.sum(1), torch.ones(5))
    parts = joined.unflatten(1, (4, 4))
    torch.testing.assert_close(parts / parts.sum(-1, keepdim=True), by_chunk.unflatten(1, (4, 4)))
    assert parts.sum(-1).std(1).min() > 1e-3, "chunks differ"
    scored = ForegroundOverlap(0.3, across_chunks=True)(agent, TASK, samples=5, seed=1)
    seen = attention_to_patches(agent, TASK, samples=5, seed=1)[1]
    assert scored.rows == pytest.approx(overlap(joined, seen, 0.3).scores.tolist())


def test_a_vision_transformer_has_one_softmax_anyway():
    maps = [attention_to_patches(model(), TASK, samples=3, seed=1, across_chunks=across)[0] for across in (False, True)]
    assert torch.equal(*maps)


def test_models_are_looked_at_on_fresh_pictures_and_stay_as_they_were():
    agent = model().train()
    maps, seen = attention_to_patches(agent, TASK, samples=70, seed=1)
    assert maps.shape == (70, 16) and seen.shape == (70, 16, 16) and agent.training
    again, _ = attention_to_patches(agent, TASK, samples=70, seed=1)
    assert torch.equal(maps, again)
    found = ForegroundOverlap(0.3)(agent, TASK, samples=70, seed=1)
    assert found.score == pytest.approx(overlap(maps, seen, 0.3).scores.mean().item(), rel=1e-5)
    static = overlap(maps.mean(0).expand_as(maps), seen, 0.3).scores.mean().item()
    assert found.static == pytest.approx(static) and found.low <= found.score <= found.high
    assert found.by_row() == (found.rows, [1] * 70) and found.to_json()["rows"] == 70
    assert "chance" in found.describe() and ForegroundPointing()(agent, TASK, samples=9, seed=1).score <= 1


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="share=0"):
        ForegroundOverlap(0)(model(), TASK, samples=2, seed=0)
    for measure in (ForegroundOverlap(0.3), ForegroundPointing()):
        with pytest.raises(ValueError, match="samples=0: give at least one picture"):
            measure(model(), TASK, samples=0, seed=0)
    unknown = type("Unknown", (Shapes,), {"pictures": lambda *args: Shapes.pictures(*args)._replace(foreground=None)})
    with pytest.raises(ValueError, match=r"Unknown: the foreground of these pictures is unknown.*take Shapes"):
        evaluate_attention(model(), unknown(size=16), pointing, samples=2, seed=0)
    with pytest.raises(ValueError, match="does not exist"):
        attention_to_patches(model(), CIFAR(size=16), samples=2, seed=0)


def test_a_figure_shows_the_top_patches(tmp_path):
    pictures = TASK.pictures(3, torch.Generator().manual_seed(0))
    path = figure_patches(pictures.images, torch.rand(3, 16), tmp_path / "top.png")
    assert path.stat().st_size > 5000
    with pytest.raises(ValueError, match="k=120"):
        figure_patches(pictures.images, torch.rand(3, 16), tmp_path / "top.png", k=(120,))
