"""Pictures (Didolkar et al. 2022, sections 3.1 and 7.1, tables 1 and 2, figures 2 and 7) as configs.

    train at 64 x 64 pixels, test at 64 and 128: positions are interpolated, chunks have four times the patches

``paper`` has the published settings on CIFAR-10 and CIFAR-100, and the same models on shapes, where the foreground is
known. ``lite`` is small in everything and has shapes alone: patches of 8 pixels, width 64.

Models of a scale have equal numbers of parameters (within a twentieth): the paper's have 9.65 (bottleneck), 10.25
(ViT) and 10.44 million (Swin V2). It gives neither widths nor heads nor how pictures were varied, and no schedule:
width 320, 8 heads, shifts and mirroring, 5 epochs of warm-up, a cosine and gradients of norm 1 at most are ours.
"""

from dataclasses import dataclass, replace
from typing import Any

from recollect.agents.config import SequenceClassifierConfig
from recollect.config import lookup
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.config import EncoderConfig, SwinV2Config, ViTConfig, ViTTLBConfig
from recollect.recipes.base import Recipe, Run, Scale, Test, make_memoryless_config, require_scale
from recollect.tasks.images.cifar import CIFAR
from recollect.tasks.images.contract import ImageTask
from recollect.tasks.images.shapes import Shapes
from recollect.training import ClassificationConfig, FitConfig, OptimizerConfig

LARGE = 128
"""Side of the larger test pictures in pixels."""
PATCH = {"lite": 8, "paper": 4}
EPOCH = 45_000 // 128
"""Steps of an epoch of CIFAR's training part."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A row of table 1 or 2."""

    key: str
    """Key of its encoder."""
    row: str
    """Its name in tables."""
    published: tuple[str, str, str, str] = ("-", "-", "-", "-")
    """CIFAR-10 at 64 and 128 pixels, CIFAR-100 at 64 and 128."""
    attends: bool = True
    """Whether its summary attends to single patches."""
    changes: dict[str, Any]
    """Config fields besides the sizes of the scale, by scale."""


def _sizes(lite: dict[str, Any], paper: dict[str, Any]) -> dict[str, Any]:
    return {"lite": lite, "paper": paper}


MODELS = {
    "vit": Model(
        key="vit",
        row="ViT",
        published=("0.938", "0.732", "0.695", "0.474"),
        changes=_sizes({"num_layers": 4, "hidden_dim": 206}, {"num_layers": 9, "hidden_dim": 1100}),
    ),
    "swin-v2": Model(
        key="swin-v2",
        row="Swin V2",
        published=("0.977", "0.849", "0.800", "0.586"),
        attends=False,
        changes=_sizes(
            {"dim": 44, "depths": (2, 2), "num_heads": (2, 4), "mlp_ratio": 2.0, "drop_path": 0.0},
            {"dim": 57, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)},
        ),
    ),
    "vit-tlb": Model(
        key="vit-tlb",
        row="ViT + TLB",
        published=("0.948", "0.844", "0.792", "0.592"),
        changes=_sizes({"hidden_dim": 63}, {"hidden_dim": 920}),
    ),
    "no-past": Model(
        key="vit-tlb",
        row="ViT + TLB, no past information",
        published=("0.913", "0.729", "-", "-"),
        changes=_sizes({"hidden_dim": 140, "feedback": "none"}, {"hidden_dim": 1600, "feedback": "none"}),
    ),
    "no-top-down": Model(
        key="vit-tlb",
        row="ViT + TLB, no top-down conditioning",
        published=("0.938", "0.836", "-", "-"),
        changes=_sizes({"hidden_dim": 39, "feedback": "per_layer"}, {"hidden_dim": 660, "feedback": "per_layer"}),
    ),
}


def encoder(name: str, scale: Scale) -> EncoderConfig:
    """Return the config of the image encoder that a row of the tables names."""
    model = lookup(MODELS, name, "model")
    paper, own = scale == "paper", model.changes[scale]
    if model.key == "swin-v2":
        return SwinV2Config(window=4, **own)
    sizes = {"dim": 320, "num_heads": 8} if paper else {"dim": 64, "num_heads": 4}
    if model.key == "vit":
        return ViTConfig(**sizes, **own)
    bottleneck = {"num_layers": 6 if paper else 4, "chunk_len": 16 if paper else 8, "num_slots": 5}
    core = TemporalLatentBottleneckConfig(
        **sizes, **bottleneck, **own, self_per_cross=2, causal=False, positions="none"
    )
    return ViTTLBConfig(core=core)


def images(core: str = "vit-tlb", scale: Scale = "lite", task: ImageTask | None = None) -> ClassificationConfig:
    """Return the run of one model on pictures of 64 pixels.

    Args:
        core: vit, swin-v2, vit-tlb, no-past or no-top-down.
        scale: lite or paper.
        task: None takes shapes at the lite scale and CIFAR-10 at the paper's.
    """
    require_scale(scale, "lite", "paper")
    paper, reader = scale == "paper", encoder(core, scale)
    chosen = task or (CIFAR() if paper else Shapes(patch=PATCH["lite"]))
    width = 320 if paper else 64
    return ClassificationConfig(
        task=chosen,
        encoder=reader,
        agent=SequenceClassifierConfig(
            embedding_dim=width,
            embedding_std=0.02,
            positions="none" if reader.reads_patches else "grid",
            hidden_dim=width,
        ),
        optimizer=OptimizerConfig(
            learning_rate=1e-3,
            warmup_steps=5 * EPOCH if paper else 50,
            schedule="cosine",
            weight_decay=0.05,
        ),
        fit=FitConfig(
            steps=100 * EPOCH if paper else 1500,
            report_every=50,
            evaluate_every=10 * EPOCH if paper else 500,
            checkpoint_every=10 * EPOCH if paper else 250,
        ),
        batch_size=128 if paper else 32,
        evaluation_rows=5000 if paper else 256,
        device="auto" if paper else "cpu",
    )


def _tests(task: ImageTask, model: Model) -> dict[str, Test]:
    """Return the tests at both resolutions, and of attention where the foreground is known."""
    from recollect.interpret.foreground import SHARES, ForegroundOverlap, ForegroundPointing

    final, samples = task.scored_on(final=True), 10_000 if isinstance(task, CIFAR) else 1024
    said = ("-", "-")
    if isinstance(task, CIFAR):
        said = model.published[:2] if task.classes == 10 else model.published[2:]
    wheres = {f"{size} px": replace(final, size=size) for size in (task.size, LARGE)}
    tests = {
        name: Test(where=where, samples=samples, paper=paper)
        for (name, where), paper in zip(wheres.items(), said, strict=True)
    }
    if not model.attends or not isinstance(task, Shapes):
        return tests
    for name, where in wheres.items():
        for share in SHARES:
            measure = ForegroundOverlap(share)
            tests[f"{name}, IoU of the top {share:.0%}"] = Test(where=where, samples=samples, measure=measure)
        tests[f"{name}, pointing"] = Test(where=where, samples=samples, measure=ForegroundPointing())
    return tests


def _rows(scale: Scale) -> list[Run]:
    paper = scale == "paper"
    shapes = Shapes(patch=PATCH[scale])
    few = ("vit", "swin-v2", "vit-tlb")
    sets: dict[str, tuple[ImageTask, tuple[str, ...]]] = {"shapes": (shapes, few if paper else tuple(MODELS))}
    if paper:
        sets = {"cifar10": (CIFAR(), tuple(MODELS)), "cifar100": (CIFAR(classes=100), few), **sets}
    rows = []
    for name, (task, models) in sets.items():
        for key in models:
            model = MODELS[key]
            rows.append(
                Run(
                    label=f"{name}-{key}-{scale}" if paper else key,
                    row=f"{model.row}, {name}" if paper else model.row,
                    core=model.key,
                    config=images(key, scale, task),
                    tests=_tests(task, model),
                )
            )
    config = make_memoryless_config(shapes, FitConfig(steps=50, evaluate_every=50))
    label = f"memoryless-{scale}" if paper else "memoryless"
    row = "memoryless (the last patch alone)" + (", shapes" if paper else "")
    tests = {f"{shapes.size} px": Test(where=shapes, samples=1024)}
    return [*rows, Run(label=label, row=row, core="memoryless", config=config, tests=tests)]


IMAGES = Recipe(
    name="tlb-images",
    title="Pictures: trained at 64 pixels, tested at 64 and 128",
    source="Temporal Latent Bottleneck (Didolkar et al. 2022), sections 3.1 and 7.1, tables 1 and 2, figures 2 and 7",
    about=(
        "The paper scale has CIFAR-10 and CIFAR-100. **Shapes are drawn by us, and are none of CIFAR's pictures**: one "
        "of eight shapes before a cluttered background. The lite scale has shapes alone, patches of 8 pixels and "
        "networks of 0.2 million parameters (paper: 10 million). IoU and pointing measure whether attention finds the "
        "shape. Of a ViT it is the attention of the class token in the last layer, of a bottleneck that of the slots "
        "as they are written, in which every chunk has the same share. Chance: patches drawn at random."
    ),
    config=images,
    runs={"lite": lambda: _rows("lite"), "paper": lambda: _rows("paper")},
    seeds={"lite": 3, "paper": 3},
)
