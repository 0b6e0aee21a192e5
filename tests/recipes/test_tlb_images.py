"""The recipes of pictures: published settings, equal sizes, rows that run, and one that learns."""

import json
from dataclasses import replace

import pytest

from recollect.recipes import RECIPES, Run
from recollect.recipes.reproduce import reproduce
from recollect.recipes.tlb_images import images
from recollect.recipes.tlb_self_supervised import self_supervised
from recollect.tasks import CIFAR, STL10, Shapes
from recollect.training import ClassificationConfig, FitConfig, SelfSupervisedConfig, fit

IMAGES, WITHOUT_LABELS = RECIPES["tlb-images"], RECIPES["tlb-self-supervised"]


def test_the_paper_scale_is_section_7_1():
    config = images(scale="paper")
    core = config.encoder.core
    assert config.task == CIFAR() and (config.task.size, config.task.patch) == (64, 4)
    assert (core.num_layers, core.self_per_cross, core.chunk_len, core.num_slots) == (6, 2, 16, 5)
    assert not core.causal and core.layers.count("cross") == 3
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay, config.batch_size) == (1e-3, 0.05, 128)
    assert config.fit.steps == 100 * (45_000 // 128)
    assert images("vit", "paper").encoder.num_layers == 9 and sum(images("swin-v2", "paper").encoder.depths) == 12
    rows = {run.row: run for run in IMAGES.rows("paper")}
    assert {test.where.size for test in rows["ViT + TLB, cifar100"].tests.values()} == {64, 128}
    published = {row: [test.paper for test in rows[row].tests.values()] for row in rows}
    assert published["ViT, cifar10"] == ["0.938", "0.732"] and published["ViT + TLB, cifar100"] == ["0.792", "0.592"]
    assert published["ViT + TLB, no past information, cifar10"] == ["0.913", "0.729"]
    feedbacks = [run.config.encoder.core.feedback for run in IMAGES.rows("lite") if run.core == "vit-tlb"]
    assert feedbacks == ["top_down", "none", "per_layer"]


@pytest.mark.parametrize("scale", ["lite", "paper"])
def test_models_have_equal_numbers_of_parameters(scale):
    pytest.importorskip("transformers")
    sizes = {}
    for run in IMAGES.rows(scale):
        if isinstance(run.config, ClassificationConfig) and "cifar100" not in run.label:
            sizes[run.row] = sum(p.numel() for p in run.config.build_agent().parameters())
    assert len(sizes) >= 5 and max(sizes.values()) < 1.05 * min(sizes.values()), sizes
    if scale == "paper":
        assert 0.9 * 10_253_578 < min(sizes.values()) < 1.1 * 10_253_578


def pictures_learned_from():
    """Of CIFAR-10's 50 000 pictures for training; STL-10 has fewer."""
    return 50_000 - CIFAR().validation


def test_without_labels_the_paper_scale_is_section_7_2():
    config = self_supervised(scale="paper")
    core = config.encoder.core
    assert config.task == STL10(size=224, patch=16, unlabelled=True) and config.batch_size == 72
    assert (core.dim, core.num_layers, core.num_heads, core.hidden_dim) == (768, 12, 12, 3072)
    assert (core.chunk_len, core.num_slots, core.self_per_cross) == (20, 5, 2)
    assert config.fit.steps == 400 * (100_000 // 72) and config.optimizer.weight_decay == 0.05
    rows = {run.row: run for run in WITHOUT_LABELS.rows("paper")}
    assert list(rows["SiT, trained on stl10"].tests) == ["probe of cifar10", "probe of stl10"]
    assert rows["SiT + TLB, trained on stl10"].tests["probe of stl10"].where == STL10(size=224, patch=16, part="test")
    pictures = CIFAR(size=224, patch=16, augment=False)
    assert rows["SiT, trained on cifar10"].config.task == pictures and config.probe_rows == pictures_learned_from()
    for run in list(rows.values())[:4]:
        for name, test in run.tests.items():
            assert test.samples == {"probe of cifar10": 10_000, "probe of stl10": 8000}[name], "all test pictures"
    lite = [run for run in WITHOUT_LABELS.rows("lite") if isinstance(run.config, SelfSupervisedConfig)]
    sizes = [sum(p.numel() for p in run.config.build_agent().parameters()) for run in lite]
    assert max(sizes) < 1.02 * min(sizes)


def tiny(run, task):
    """A row of small pictures and three steps."""
    rows = {"evaluation_rows": 8, "batch_size": 4} | ({"probe_rows": 20} if hasattr(run.config, "probe_rows") else {})
    config = replace(run.config, task=task, fit=FitConfig(steps=3, evaluate_every=3), **rows)
    tests = {name: replace(test, where=replace(test.where, clutter=1), samples=12) for name, test in run.tests.items()}
    return replace(run, config=config, tests=tests)


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "labels"), [(IMAGES, ("vit", "vit-tlb")), (WITHOUT_LABELS, ("vit-tlb",))])
def test_rows_run_and_their_table_is_made(tmp_path, recipe, labels):
    rows: list[Run] = [tiny(run, run.config.task) for run in recipe.rows("lite") if run.label in labels]
    page = reproduce(replace(recipe, runs={"lite": lambda: rows}), root=tmp_path, seeds=1).read_text()
    assert "failed" not in page
    result = json.loads((tmp_path / f"results/{recipe.name}/vit-tlb-seed0.json").read_text())
    assert result["status"] == "ok" and result["config"]["encoder"]["kind"] == "vit-tlb" and "state_bytes" not in result
    if recipe is IMAGES:
        assert "| ViT + TLB, 128 px, IoU of the top 30% |" in page and "| ViT, 64 px, pointing |" in page
        assert {"static", "chance"} <= result["tests"]["64 px, pointing"].keys()
    else:
        assert "| SiT + TLB (pairs share their shape alone), probe of shapes, untrained |" in page


@pytest.mark.slow
@pytest.mark.parametrize("core", ["vit", "vit-tlb"])
def test_shapes_are_told_apart(tmp_path, core):
    config = images(core)
    outcome = fit(replace(config, fit=replace(config.fit, steps=700)), tmp_path / "run")
    for size in (64, 128):
        found = config.evaluate(outcome.agent, Shapes(size=size, patch=8), samples=256, seed=9)
        assert found.score > (0.55 if size == 64 else 0.3), f"{size} pixels: {found.describe()}"
