"""Pictures without labels (Didolkar et al. 2022, sections 3.1 and 7.2, figures 3 and 8) as configs: SiT, SiT + TLB.

``paper`` trains on the 100 000 pictures of STL-10 without labels at 224 pixels, or on CIFAR-10, and probes CIFAR-10 and
STL-10. ``lite`` trains and probes on generated shapes, lit from any side, in pairs that share their shape alone. With
light from above and two views of one picture, light tells how a picture was turned and colours which views belong
together, and features get worse by training. The paper has curves and no table; the initial weights are probed too,
because random features already contain much information.

Differs: a probe is solved to its end (evaluation/probe.py). The published rate of 5e-4 is that of 512 pictures a step,
as in SiT's code, so that 72 have 7e-5; gradients have a norm of 1 at most. The bottleneck and SiT have the published
widths and layers at the paper scale, so the bottleneck has more parameters there (its cross layers come on top); at the
lite scale both have as many. A tenth of the training pictures is kept for evaluations during a run: CIFAR-10 is
learned, and probed, on the first 45 000 of 50 000, and STL-10 is probed on the first 4500 of 5000. All 10 000 and 8000
test pictures are scored.
"""

from dataclasses import replace
from typing import Any

from recollect.agents.config import SiTConfig
from recollect.config import lookup
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders.config import EncoderConfig, TransformerConfig, ViTTLBConfig
from recollect.recipes.base import Recipe, Run, Scale, Test, make_memoryless_config, require_scale
from recollect.tasks.images.cifar import CIFAR
from recollect.tasks.images.contract import ImageTask
from recollect.tasks.images.shapes import Shapes
from recollect.tasks.images.stl10 import STL10
from recollect.training import FitConfig, OptimizerConfig, SelfSupervisedConfig

ROWS = {"transformer": "SiT", "vit-tlb": "SiT + TLB"}
LITE = Shapes(size=32, patch=4, light="any-side", pair="same-shape")
"""Pictures whose light and colours answer none of the three questions."""
PAPER_STL, PAPER_CIFAR = STL10(size=224, patch=16, unlabelled=True), CIFAR(size=224, patch=16, augment=False)
BATCH = 72
PROBED = 45_000
"""Most pictures that train a probe of the paper scale: all of CIFAR-10's training part; STL-10's has 4500."""
SCORED = {"shapes": 1024, "cifar10": 10_000, "stl10": 8000}
"""Test pictures of finished runs: the whole test parts of published sets."""


def encoder(core: str, scale: Scale) -> EncoderConfig:
    """Return the settings of SiT's Transformer, or of the bottleneck."""
    lookup(ROWS, core, "encoder")
    sizes: dict[str, Any]
    if scale == "paper":
        sizes = {"dim": 768, "num_layers": 12, "num_heads": 12, "hidden_dim": 3072}
        chunk_len = 20
    else:
        sizes = {"dim": 64, "num_layers": 4, "num_heads": 4, "hidden_dim": 190 if core == "transformer" else 52}
        chunk_len = 8
    if core == "transformer":
        return TransformerConfig(**sizes)
    own: dict[str, Any] = {"chunk_len": chunk_len, "num_slots": 5, "self_per_cross": 2}
    return ViTTLBConfig(core=TemporalLatentBottleneckConfig(**sizes, **own, causal=False, positions="none"))


def self_supervised(
    core: str = "vit-tlb", scale: Scale = "lite", task: ImageTask | None = None
) -> SelfSupervisedConfig:
    """Return the run of a self-supervised encoder.

    Args:
        core: transformer (SiT) or vit-tlb.
        scale: lite or paper.
        task: None takes shapes at the lite scale and STL-10 at the paper's.
    """
    require_scale(scale, "lite", "paper")
    if scale == "lite":
        return SelfSupervisedConfig(
            task=task or LITE,
            encoder=encoder(core, scale),
            agent=SiTConfig(embedding_dim=64, contrast_dim=64),
            optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=50, schedule="cosine", weight_decay=0.05),
            fit=FitConfig(steps=1000, evaluate_every=500, checkpoint_every=250),
            batch_size=32,
            probe_rows=2000,
        )
    chosen = task or PAPER_STL
    epoch = (100_000 if isinstance(chosen, STL10) else 45_000) // BATCH
    return SelfSupervisedConfig(
        task=chosen,
        encoder=encoder(core, scale),
        agent=SiTConfig(embedding_dim=768),
        optimizer=OptimizerConfig(
            learning_rate=5e-4 * BATCH / 512, warmup_steps=5 * epoch, schedule="cosine", weight_decay=0.05
        ),
        fit=FitConfig(steps=400 * epoch, evaluate_every=10 * epoch, checkpoint_every=epoch),
        batch_size=BATCH,
        probe_rows=PROBED,
        evaluation_rows=500,
        device="auto",
    )


def _rows(scale: Scale) -> list[Run]:
    paper = scale == "paper"
    sets: dict[str, ImageTask] = {"stl10": PAPER_STL, "cifar10": PAPER_CIFAR} if paper else {"shapes": LITE}
    rows = []
    for name, task in sets.items():
        wheres = {name: replace(task, unlabelled=False) if isinstance(task, STL10) else task}
        if isinstance(task, STL10):
            wheres = {"cifar10": PAPER_CIFAR, **wheres}
        tests = {
            f"probe of {probed}": Test(where=where.scored_on(final=True), samples=SCORED[probed])
            for probed, where in wheres.items()
        }
        for core, row in ROWS.items():
            rows.append(
                Run(
                    label=f"{name}-{core}-{scale}" if paper else core,
                    row=f"{row}, trained on {name}" if paper else row,
                    core=core,
                    config=self_supervised(core, scale, task),
                    tests=tests,
                    untrained=True,
                )
            )
    config = make_memoryless_config(LITE, FitConfig(steps=50, evaluate_every=50))
    row = "memoryless (with labels, the last patch of shapes alone)"
    label = f"memoryless-{scale}" if paper else "memoryless"
    return [*rows, Run(label=label, row=row, core="memoryless", config=config, tests={"": Test(where=LITE)})]


SELF_SUPERVISED = Recipe(
    name="tlb-self-supervised",
    title="Pictures without labels: a linear probe of what was learned",
    source="Temporal Latent Bottleneck (Didolkar et al. 2022), sections 3.1 and 7.2, figures 3 and 8",
    about=(
        "Restore damaged pictures, say how they were turned, know another view again; then a linear map from the "
        "frozen features to labels is scored. The paper scale trains on STL-10 or CIFAR-10 at 224 pixels; the paper "
        "has curves, no table. The lite scale has **shapes of 32 pixels, drawn by us**, lit from any side; the two "
        "views are of two scenes that share their shape alone. *Untrained* are the weights that training begins with."
    ),
    config=self_supervised,
    runs={"lite": lambda: _rows("lite"), "paper": lambda: _rows("paper")},
    seeds={"lite": 3, "paper": 1},
)
