"""Temporal Latent Bottleneck (Didolkar et al. 2022): its experiments as configs.

``copying``: section 7.6, figure 6 and table 6. The Transformer with a temporal latent bottleneck stays perfect up
to 600 blank steps; the Feedback Transformer is perfect to 300 and needs more samples. To the paper's two rows we
add transformer-xl, lstm and the memoryless ablation.

``paper`` has the paper's numbers: 4 layers, width 256, feed-forward 512, R = 1, chunks of 10, Adam with 1e-4, 100 rows
a step; where it is silent, 10 slots, 8 heads, and gradients of norm 1 at most. ``lite`` has a smaller model, a larger
learning rate, and chunks of a tenth of the blank, so that the slots are written equally often at every length: minutes
a row on one processor core. At this scale our rows are at length 100 alone, the paper's two at every length.
"""

from typing import Any

from recollect.agents.config import SequenceModelConfig
from recollect.cores.find import sized_core
from recollect.recipes.base import Recipe, Run, Scale, require_scale
from recollect.tasks.streams.copying import Copying
from recollect.training import FitConfig, OptimizerConfig, SupervisedConfig

ROWS = ("tlb", "feedback-transformer", "transformer-xl", "lstm", "memoryless")
LENGTHS = (100, 200, 300, 400, 500, 600)

# Table 6: unique samples until the score is perfect; figure 6 and its text: perfect or not.
PAPER_SAMPLES = {
    "tlb": dict(zip(LENGTHS, (6200, 9100, 12700, 14600, 13600, 19300), strict=True)),
    "feedback-transformer": dict(zip(LENGTHS, (11800, 16600, 35100, None, None, None), strict=True)),
}


def copying(core: str = "tlb", scale: Scale = "lite", length: int = 100) -> SupervisedConfig:
    """Return the run of a core on the copying task with ``length`` blank steps.

    Args:
        core: key of any core.
        scale: lite or paper.
        length: blank steps (the paper has 100 to 600).
    """
    require_scale(scale, "lite", "paper")
    sizes: dict[str, Any] = {"memory_len": length + 20}  # windows over the whole sequence
    if core == "tlb":
        # It begins to learn length 600 after 1500 steps with chunks of 10, and after 200 with chunks of 60.
        sizes |= {"self_per_cross": 1, "chunk_len": 10 if scale == "paper" else max(10, length // 10), "num_slots": 10}
    if scale == "paper":
        return SupervisedConfig(
            task=Copying(length=length),
            core=sized_core(core, **sizes, dim=256, num_layers=4, num_heads=8, hidden_dim=512),
            agent=SequenceModelConfig(embedding_dim=256),
            optimizer=OptimizerConfig(learning_rate=1e-4),
            fit=FitConfig(steps=2000, report_every=10, evaluate_every=10, checkpoint_every=200, stop_score=1.0),
            batch_size=100,
            device="auto",
        )
    return SupervisedConfig(
        task=Copying(length=length),
        core=sized_core(core, **sizes, dim=64, num_layers=2, num_heads=4, hidden_dim=128),
        agent=SequenceModelConfig(embedding_dim=64),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=50, schedule="cosine"),
        fit=FitConfig(
            steps=1500 if length <= 100 else 4000,
            report_every=25,
            evaluate_every=50,
            checkpoint_every=250,
            stop_score=1.0,
        ),
        batch_size=16,
    )


def _run(core: str, scale: Scale, length: int) -> Run:
    mark = "-paper" if scale == "paper" else ""
    if mark or length > LENGTHS[0]:
        mark += f"-length{length}"
    config, paper = copying(core, scale, length), _paper(core, length)
    return Run(label=f"{core}{mark}", row=f"{core}, length {length}", core=core, config=config, paper=paper)


def _lite() -> list[Run]:
    longer = [_run(core, "lite", length) for length in LENGTHS[1:] for core in PAPER_SAMPLES]
    return [*(_run(core, "lite", LENGTHS[0]) for core in ROWS), *longer]


def _paper(core: str, length: int) -> str:
    if core not in PAPER_SAMPLES:
        return "-"
    samples = PAPER_SAMPLES[core][length]
    return "not perfect" if samples is None else f"1.000 (perfect after {samples:,} samples)".replace(",", " ")


COPYING = Recipe(
    name="copying",
    title="Copying ten digits over a blank",
    source="Temporal Latent Bottleneck (Didolkar et al. 2022), section 7.6, figure 6 and table 6",
    about=(
        "Ten digits, a blank of the given length, then the digits again. The lite scale has a smaller model and a "
        "larger learning rate than the paper, and chunks of a tenth of the blank where the paper has 10 steps at every "
        "length; the paper's numbers are beside it for orientation only."
    ),
    config=copying,
    runs={"lite": _lite, "paper": lambda: [_run(core, "paper", length) for length in LENGTHS for core in ROWS]},
    seeds={"lite": 1, "paper": 3},
)
