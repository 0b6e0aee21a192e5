"""Pathfinder, Text, Retrieval and Image of Long Range Arena (Didolkar et al. 2022, tables 4 and 9) as configs.

``paper`` has the settings of the authors' code in Long Range Arena: base rates, steps, sizes, slots. The retrieval head
reads [a, b, a * b, a - b] through one hidden layer, as Zhu et al.'s does; the arena's reads [a, b] through two.
long_range.py lists the other differences. ``lite`` is smaller in everything. Pathfinder's pictures are generated. The
other three read published files at the paper scale, and synthetic rows at the lite scale, which only show that
everything runs and learns.
"""

from dataclasses import dataclass, replace
from typing import Any

from recollect.agents.config import SequenceClassifierConfig
from recollect.config import lookup
from recollect.cores.tlb import TemporalLatentBottleneckVariant
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, make_memoryless_config, require_scale
from recollect.recipes.long_range import encoder
from recollect.tasks.long_range.aan import AAN
from recollect.tasks.long_range.bytes import STAND_IN
from recollect.tasks.long_range.cifar import GreyCIFAR
from recollect.tasks.long_range.imdb import IMDB
from recollect.tasks.long_range.pathfinder import Pathfinder
from recollect.tasks.streams.contract import StreamTask
from recollect.training import ClassificationConfig, FitConfig, OptimizerConfig, PretrainingConfig

PRETRAINING = PretrainingConfig(steps=2500)
"""Pretraining steps of lite rows that have it: half of their steps."""
ENCODERS = ("two-way-tlb", "transformer", "linear-transformer", "performer", "linformer")


@dataclass(frozen=True, kw_only=True)
class Study:
    """One task of the arena."""

    name: str
    title: str
    about: str
    paper: StreamTask
    lite: StreamTask
    sizes: dict[str, Any]
    """Sizes of every encoder at the paper scale."""
    bottleneck: dict[str, Any]
    """Sizes of the bottleneck at the paper scale, with chunks and slots."""
    chunk_len: int
    """At the lite scale."""
    num_layers: int = 2
    """At the lite scale."""
    lite_rate: float = 1e-3
    """Learning rate at the lite scale."""
    optimizer: OptimizerConfig
    """At the paper scale."""
    steps: int
    batch_size: int
    global_positions: bool = False
    """Give the bottleneck positions in the whole row instead of in the chunk."""
    test_rows: int
    """Test rows at the paper scale: the whole test part, or as many fresh pictures."""
    others: tuple[str, ...] = ()
    """Encoders with a row in this task only."""
    pretrained: tuple[str, ...] = ()
    """Encoders that the lite scale also trains after pretraining on masked tokens."""
    stop_score: float | None = None
    """Score at which a lite run ends; synthetic rows may be learned long before its last step."""
    published: dict[str, str]


def _rsqrt(base: float) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=base / 8000**0.5,
        warmup_steps=8000,
        schedule="rsqrt",
        weight_decay=0.1,
        betas=(0.9, 0.98),
        epsilon=1e-9,
        clip_norm=None,
    )


def _cosine(peak: float, warmup: int) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=peak, warmup_steps=warmup, schedule="cosine", betas=(0.9, 0.98), epsilon=1e-9, clip_norm=None
    )


_OF_BYTES: dict[str, Any] = {
    "num_layers": 2,
    "self_per_cross": 2,
    "num_slots": 10,
    "chunk_len": 10,
    "positions": "sinusoid",
    "details": TemporalLatentBottleneckVariant.released(),
}
_NARROW = TemporalLatentBottleneckVariant.released(head_dim=8)
_ROWS = ("linear-transformer", "performer", "linformer")

STUDIES = {
    study.name: study
    for study in (
        Study(
            name="pathfinder",
            title="Pathfinder: two discs, one path?",
            about=(
                "Drawn by us to the published numbers; the lite scale has 16 pixels a side and paths of five dashes. "
                "Rows that are *pretrained* restored hidden pixels for the first half of 5000 steps; the others have "
                "1500 steps, which is too early for any of them. Brightness around the discs alone tells 0.66 at this "
                "size, so that less than that is no evidence of paths being followed."
            ),
            paper=Pathfinder(),
            lite=Pathfinder(size=16),
            sizes={"dim": 128, "num_layers": 2, "num_heads": 8, "hidden_dim": 128, "dropout": 0.1},
            bottleneck={"self_per_cross": 2, "num_slots": 5, "chunk_len": 64, "details": _NARROW, "positions": "none"},
            chunk_len=32,
            optimizer=_cosine(5e-4, 312),
            steps=62_400,
            batch_size=512,
            test_rows=20_000,
            global_positions=True,
            pretrained=("two-way-tlb", "transformer"),
            published={"two-way-tlb": "0.791", **dict(zip(_ROWS, ("0.753", "0.771", "0.763"), strict=True))},
        ),
        Study(
            name="text",
            title="Text: is a review positive, byte by byte?",
            about=(
                "IMDB at the paper scale, where slots have positions, as in section 7.3; one row has learned slots "
                "instead. The lite scale has **made-up rows, which are no reviews**."
            ),
            paper=IMDB(),  # with a validation part of its own: the test part must not choose the best evaluation
            lite=IMDB(path=STAND_IN, length=400, validation=100),
            stop_score=1.0,
            sizes={"dim": 256, "num_layers": 4, "num_heads": 4, "hidden_dim": 1024, "dropout": 0.1},
            bottleneck=_OF_BYTES,
            chunk_len=10,
            optimizer=_rsqrt(0.05),
            steps=20_000,
            batch_size=32,
            test_rows=25_000,
            others=("two-way-long-short",),
            published={
                "two-way-tlb": "0.821",
                "transformer": "0.640",
                "two-way-long-short": "0.655",
                **dict(zip(_ROWS, ("0.659", "0.654", "0.539"), strict=True)),
            },
        ),
        Study(
            name="retrieval",
            title="Retrieval: does one paper cite the other?",
            about="AAN at the paper scale. The lite scale has **made-up rows, which are no papers**.",
            paper=AAN(),
            lite=AAN(path=STAND_IN, length=200),
            stop_score=1.0,
            sizes={"dim": 128, "num_layers": 4, "num_heads": 4, "hidden_dim": 512, "dropout": 0.1},
            bottleneck=_OF_BYTES,
            chunk_len=50,
            optimizer=_rsqrt(0.05),
            steps=20_000,
            batch_size=128,
            test_rows=17_437,
            published={"two-way-tlb": "0.769", **dict(zip(_ROWS, ("0.531", "0.538", "0.523"), strict=True))},
        ),
        Study(
            name="image",
            title="Image: what is on a grey picture, pixel by pixel?",
            about=(
                "CIFAR-10 at the paper scale. The lite scale has **made-up pictures, which are none of CIFAR's**, of "
                "16 pixels a side."
            ),
            paper=GreyCIFAR(),
            lite=GreyCIFAR(path=STAND_IN, validation=500, size=16),
            stop_score=1.0,
            sizes={"dim": 128, "num_layers": 1, "num_heads": 8, "hidden_dim": 128, "dropout": 0.3},
            bottleneck={
                "self_per_cross": 1,
                "num_slots": 5,
                "chunk_len": 32,
                "details": replace(_NARROW, attention_dropout=0.2),
                "positions": "learned",
            },
            chunk_len=32,
            num_layers=1,
            lite_rate=3e-3,
            optimizer=_cosine(1e-3, 175),
            steps=35_000,
            batch_size=256,
            test_rows=10_000,
            published={"two-way-tlb": "0.575", **dict(zip(_ROWS, ("0.423", "0.428", "0.386"), strict=True))},
        ),
    )
}


def arena(name: str, key: str = "two-way-tlb", scale: Scale = "lite") -> ClassificationConfig:
    """Return the run of one encoder on one task of the arena.

    Args:
        name: pathfinder, text, retrieval or image.
        key: of an encoder of tokens.
        scale: lite or paper.
    """
    study = lookup(STUDIES, name, "task of the arena")
    require_scale(scale, "lite", "paper")
    bottleneck = key == "two-way-tlb"
    if scale == "paper":
        own = study.bottleneck if bottleneck else {"chunk_len": study.bottleneck["chunk_len"], "num_slots": 1}
        halved = bottleneck and study.optimizer.schedule == "rsqrt"  # "lower the learning rate by half"
        rate = study.optimizer.learning_rate / (2 if halved else 1)
        return ClassificationConfig(
            task=study.paper,
            encoder=encoder(key, study.sizes, **own),
            agent=SequenceClassifierConfig(
                embedding_dim=study.sizes["dim"],
                positions="none" if bottleneck and not study.global_positions else "sinusoid",
                hidden_dim=study.sizes["hidden_dim"],
                dropout=0.0 if bottleneck else study.sizes["dropout"],  # the bottleneck drops its inputs itself
            ),
            optimizer=replace(study.optimizer, learning_rate=rate),
            fit=FitConfig(steps=study.steps, report_every=50, evaluate_every=1000, checkpoint_every=1000),
            batch_size=study.batch_size,
            evaluation_rows=2000,
            device="auto",
        )
    sizes = {"dim": 64, "num_layers": study.num_layers, "num_heads": 4, "hidden_dim": 128}
    changes = {"positions": "none"} if bottleneck and study.global_positions else {}
    return ClassificationConfig(
        task=study.lite,
        encoder=encoder(key, sizes, chunk_len=study.chunk_len, num_slots=8, **changes),
        agent=SequenceClassifierConfig(positions="none" if bottleneck and not study.global_positions else "learned"),
        optimizer=OptimizerConfig(learning_rate=study.lite_rate, warmup_steps=100, schedule="cosine"),
        fit=FitConfig(
            steps=1500, report_every=50, evaluate_every=250, checkpoint_every=250, stop_score=study.stop_score
        ),
        batch_size=32,
        evaluation_rows=500,
    )


def _rows(study: Study, scale: Scale) -> list[Run]:
    task = study.paper if scale == "paper" else study.lite
    final, last = task.scored_on(final=True), "-paper" if scale == "paper" else ""

    samples = study.test_rows if scale == "paper" else 500

    def run(key: str, config: Any) -> Run:
        said = study.published.get(key, "-") if scale == "paper" else "-"
        tests = {"": Test(where=final, samples=samples, paper=said, best=True)}
        return Run(label=f"{key}{last}", row=key, core=key, config=config, tests=tests)

    rows = [run(key, arena(study.name, key, scale)) for key in (*ENCODERS, *study.others)]
    for key in study.pretrained if scale == "lite" else ():
        config = arena(study.name, key)
        fit = replace(config.fit, steps=2 * PRETRAINING.steps, evaluate_every=500, checkpoint_every=500)
        pretrained = run(key, replace(config, fit=fit, pretraining=PRETRAINING))
        rows.append(replace(pretrained, label=f"{key}-pretrained", row=f"{key}, pretrained"))
    if isinstance(task, IMDB):
        rows.append(_other_slots(run("two-way-tlb", arena(study.name, scale=scale)), scale))
        chunk_len = study.bottleneck["chunk_len"]
        halves = replace(task, split_words=chunk_len)
        config = replace(arena(study.name, scale=scale), task=halves)
        said = "0.813" if scale == "paper" else "-"
        tests = {"": Test(where=halves.scored_on(final=True), samples=samples, paper=said, best=True)}
        label, row = f"half-words{last}", f"two-way-tlb, every word in two chunks of {chunk_len}"
        rows.append(Run(label=label, row=row, core="two-way-tlb", config=config, tests=tests))
    return [*rows, run("memoryless", make_memoryless_config(task, FitConfig(steps=200, evaluate_every=100)))]


def _other_slots(run: Run, scale: Scale) -> Run:
    """Return a row with positions on the slots, which section 7.3 calls crucial; at the paper scale without them."""
    encoder = run.config.encoder  # type: ignore[attr-defined]
    details, paper = encoder.core.details, scale == "paper"
    more = {"initial_slots": "learned", "empty_chunk": "keep"} if paper else {"initial_slots": "sinusoid_every_chunk"}
    core = replace(encoder.core, details=replace(details, **more))
    name = "no positions on slots" if paper else "positions on slots"
    tests = {"": replace(run.tests[""], paper="-")}
    return replace(
        run,
        label=f"{file_name(name)}{'-paper' if paper else ''}",
        row=f"two-way-tlb, {name}",
        config=replace(run.config, encoder=replace(encoder, core=core)),
        tests=tests,
    )


def _recipe(study: Study) -> Recipe:
    return Recipe(
        name=f"arena-{study.name}",
        title=study.title,
        source="Temporal Latent Bottleneck (Didolkar et al. 2022), section 3.3 and 7.3, tables 4 and 9",
        about=f"{study.about} Whole rows are read at once.",
        config=lambda core="two-way-tlb", scale="lite": arena(study.name, core, scale),
        runs={"lite": lambda: _rows(study, "lite"), "paper": lambda: _rows(study, "paper")},
        seeds={"lite": 1, "paper": 1},
    )


ARENA_RECIPES = tuple(_recipe(study) for study in STUDIES.values())
