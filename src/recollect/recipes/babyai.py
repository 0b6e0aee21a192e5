"""Temporal Latent Bottleneck (Didolkar et al. 2022), imitation in BabyAI: section 3.2, section 7.4, figures 4, 9, 10.

A Transformer imitates a bot that carries out instructions, from whole episodes, and is scored by its share of completed
instructions. The words of the instruction precede the steps: once (the Transformer), or before every chunk (with the
temporal latent bottleneck).

``paper`` has the paper's numbers: 6 layers, width 512, 4 heads, feed-forward 1024, 5 slots, chunks of 30, R = 1, Adam
with 1e-4, 50 000 steps, 100 000 demonstrations of a level. It does not name the batch: 64 here. ``lite`` has
three levels of one room, a smaller model and a larger learning rate: up to 14 minutes of one processor core a run.
Every instruction is read to its end: of up to 72 words in the largest levels, of up to 9 in those of ``lite``.
"""

from collections.abc import Iterator, Sequence

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.config import lookup
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.cores.instructed import InstructedTransformerConfig
from recollect.recipes.base import Recipe, Run, Scale, Test, require_scale
from recollect.tasks import GymnasiumConfig
from recollect.tasks.gymnasium.babyai_levels import PAPER_LEVELS, max_instruction_words
from recollect.training import (
    CloningConfig,
    CloningLossConfig,
    EvaluationConfig,
    FitConfig,
    OptimizerConfig,
    TeacherConfig,
)

ROWS = {"instructed": "Transformer + TLB", "transformer": "Transformer", "memoryless": "memoryless"}
LITE_LEVELS = ("GoToLocal", "PickupLoc", "PutNextLocal")
LITE_WORDS = 10
"""Words that are read of an instruction; those of the lite levels have up to 9."""
LITE_DEMONSTRATIONS = 20_000
LITE_STEPS = {"GoToLocal": 800}
"""Steps of a lite run; of the other levels 2500."""
LITE_SECONDS = {"GoToLocal": 300.0}
"""Processor time of a lite run; of the other levels 1000."""
LONGEST = {"lite": 64, "paper": 576}
"""Steps of an episode that are read, and the Transformer's window."""
WORD_DIM = {"lite": 32, "paper": 128}


def world(levels: Sequence[str], words: int | None = None) -> GymnasiumConfig:
    """Return a world of some levels of BabyAI, scored by success."""
    number = max_instruction_words(levels) if words is None else words
    return GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": list(levels)}, words=number)


def babyai(
    core: str = "instructed",
    scale: Scale = "lite",
    levels: Sequence[str] = ("GoToLocal",),
    *,
    demonstrations: int | None = None,
    chunk_len: int | None = None,
) -> CloningConfig:
    """Return the run that clones minigrid's bot in some levels.

    Args:
        core: instructed (the paper's), transformer (its baseline: the same without slots, in one chunk), or the key of
            another core, whose input has the instruction as one vector.
        scale: lite or paper.
        levels: of BabyAI; each episode is from one of them.
        demonstrations: of each level; None takes the scale's number.
        chunk_len: steps of a chunk; None takes the scale's number.
    """
    require_scale(scale, "lite", "paper")
    lite = scale == "lite"
    where = world(levels, LITE_WORDS if lite else None)
    number = demonstrations or (LITE_DEMONSTRATIONS if lite else 100_000)
    memory = _core(core, scale, where.words, chunk_len)
    told = isinstance(memory, InstructedTransformerConfig)
    encoders = EncoderConfig(
        kinds=(("image", "told-tiles"), *((("language", "word-tokens"),) if told else ())),
        hidden=(128,) if lite else (512,),
        tile_dim=32 if lite else 64,
        word_dim=WORD_DIM[scale],
    )
    width = None if told else (64 if lite else 512)
    agent = ActorCriticConfig(encoders=encoders, width=width, previous_action="none", previous_reward=False)
    rate, warm = (1e-3, 50) if lite else (1e-4, 0)
    return CloningConfig(
        world=where,
        core=memory,
        agent=agent,
        teacher=TeacherConfig(name=f"babyai-bot:{number}", whole=True),
        optimizer=OptimizerConfig(
            algorithm="adam",
            learning_rate=rate,
            warmup_steps=warm,
            schedule="cosine" if lite else "constant",
            clip_norm=1.0 if lite else None,
        ),
        loss=CloningLossConfig(baseline_cost=0.0),
        evaluation=EvaluationConfig(episodes=128 if lite else 512),
        batch_size=64,
        unroll=LONGEST[scale],
        fit=FitConfig(
            steps=LITE_STEPS.get(levels[0], 2500) if lite else 50_000,
            report_every=100,
            evaluate_every=200 if lite else 2500,
            checkpoint_every=200 if lite else 2500,
            processor_seconds=LITE_SECONDS.get(levels[0], 1000.0) if lite else None,
        ),
        device="cpu" if lite else "auto",
    )


def _core(core: str, scale: Scale, words: int, chunk_len: int | None) -> CoreConfig:
    lite = scale == "lite"
    if core not in ("instructed", "transformer"):
        return lookup(CORES, core, "core")()
    sizes = (64, 2, 4, 128) if lite else (512, 6, 4, 1024)
    dim, num_layers, num_heads, hidden_dim = sizes
    bottleneck = core == "instructed"
    chunk = (8 if lite else 30) if bottleneck else LONGEST[scale]
    return InstructedTransformerConfig(
        dim=dim,
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        self_per_cross=1,
        chunk_len=chunk_len or chunk,
        num_slots=5,
        feedback="top_down" if bottleneck else "none",
        words=words,
        word_dim=WORD_DIM[scale],
    )


def _lite() -> Iterator[Run]:
    for level in LITE_LEVELS:
        for core in ROWS:
            yield _run(f"{core}-{level.lower()}-lite", f"{ROWS[core]}, {level}", core, babyai(core, "lite", (level,)))
    for number in (500, 2000, 8000):
        for core in ("instructed", "transformer"):
            row = f"{ROWS[core]}, GoToLocal, {number} demonstrations"
            config = babyai(core, "lite", demonstrations=number)
            yield _run(f"{core}-gotolocal-{number}-lite", row, core, config, seeds=1)
    for chunk in (2, 4, 16):
        row = f"{ROWS['instructed']}, PutNextLocal, chunks of {chunk}"
        config = babyai("instructed", "lite", ("PutNextLocal",), chunk_len=chunk)
        yield _run(f"instructed-putnextlocal-chunk{chunk}-lite", row, "instructed", config, seeds=1)


def _paper() -> Iterator[Run]:
    for core in ("instructed", "transformer"):
        for level in PAPER_LEVELS:
            label, row = f"{core}-{level.lower()}-paper", f"{ROWS[core]}, {level}"
            yield _run(label, row, core, babyai(core, "paper", (level,)))
        config = babyai(core, "paper", PAPER_LEVELS)
        tests = {"": Test(where=config.world)}  # all of them mixed, as the rows of other chunks
        tests |= {level: Test(where=world((level,), config.world.words)) for level in PAPER_LEVELS}  # type: ignore[attr-defined]
        label, row = f"{core}-multi-task-paper", f"{ROWS[core]}, eight levels"
        yield Run(label=label, row=row, core=_key(core), config=config, tests=tests)
    for chunk in (10, 20, 40, 60):
        row = f"{ROWS['instructed']}, eight levels, chunks of {chunk}"
        config = babyai("instructed", "paper", PAPER_LEVELS, chunk_len=chunk)
        yield _run(f"instructed-multi-task-chunk{chunk}-paper", row, "instructed", config)


def _run(label: str, row: str, core: str, config: CloningConfig, seeds: int | None = None) -> Run:
    return Run(label=label, row=row, core=_key(core), config=config, seeds=seeds)


def _key(core: str) -> str:
    return "instructed" if core == "transformer" else core


BABYAI = Recipe(
    name="tlb-babyai",
    title="Imitation in BabyAI",
    source="Temporal Latent Bottleneck (Didolkar et al. 2022), sections 3.2 and 7.4, figures 4, 9 and 10",
    about=(
        "Success rate over 512 fresh episodes of agents that learned from demonstrations of minigrid's bot. The paper "
        "has curves and no numbers: in BossLevel both models converge to similar rates, with the temporal latent "
        "bottleneck in fewer steps; trained on eight levels at once, it also ends higher; among chunk lengths 30 is "
        "best. The lite scale has levels of one room, a smaller model, and 20 000 demonstrations where a row names no "
        "other number."
    ),
    config=babyai,
    runs={"lite": lambda: list(_lite()), "paper": lambda: list(_paper())},
    seeds={"lite": 3, "paper": 3},
)
