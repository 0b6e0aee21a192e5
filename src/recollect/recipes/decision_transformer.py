"""Temporal Latent Bottleneck (Didolkar et al. 2022), offline reinforcement learning: section 3.2, section 7.5, table 3.

Decision Transformer learns from recorded games of any quality, and is conditioned on a target return. DT + TLB is the
same around a temporal latent bottleneck, whose chunks are counted in tokens, three to a step.

``paper`` has the paper's numbers: 6 layers, width 128, 8 heads, contexts of 30 steps (50 in Pong), 500 000 steps of the
DQN replay dataset, 10 epochs, AdamW with 6e-4 and weight decay 0.1. Differs: the learning rate falls until the last
epoch, where the published code has it fall for six epochs and rise again after them; a finished run is scored in 32
games instead of 10.
``lite`` has smaller models, and recordings of ``catch`` and Pong by agents trained with IMPALA, with a share of random
actions, in the data folder (``offline/catch.npz`` and ``offline/pong.npz``; docs/imitation.md has the commands).
"""

from collections.abc import Iterator
from typing import NamedTuple

from recollect.agents.config import DecisionTransformerConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.config import lookup
from recollect.cores import CORES
from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.config import CoreConfig
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.recipes.attention_agents.study import game
from recollect.recipes.base import Recipe, Run, Scale, Test, require_scale
from recollect.tasks import CatchConfig
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import FitConfig, OfflineConfig, OfflineDataConfig, OptimizerConfig, TargetsConfig


class Game(NamedTuple):
    """A game, its target return, and the bottleneck's sizes."""

    world: WorldConfig
    """World in which the agent is scored."""
    source: str
    """Recorded episodes for training."""
    target: float
    """Target return."""
    context: int
    """Steps of a context."""
    batch_size: int
    """Contexts per optimiser step."""
    chunk_len: int
    """K: tokens of a chunk."""
    self_per_cross: int
    """R."""
    num_slots: int
    """N."""
    paper: tuple[str, str] = ("-", "-")
    """The paper's scores of DT and of DT + TLB."""


LITE = {
    "catch": Game(CatchConfig(side=42), "kept:catch", 5.0, 20, 32, 12, 1, 6),
    "Pong": Game(game("Pong", life_loss=False, side=42, stack=4), "kept:pong", 20.0, 20, 32, 12, 1, 6),
}
PAPER = {
    "Breakout": Game(
        game("Breakout", life_loss=False), "Breakout", 90.0, 30, 128, 12, 2, 6, ("71.51 ± 20.58", "87.63 ± 16.24")
    ),
    "Pong": Game(game("Pong", life_loss=False), "Pong", 20.0, 50, 512, 18, 1, 6, ("13.68 ± 2.00", "14.71 ± 1.78")),
    "Qbert": Game(
        game("Qbert", life_loss=False), "Qbert", 14000.0, 30, 128, 12, 2, 12, ("3268 ± 1773.07", "5019.75 ± 1647.13")
    ),
    "Seaquest": Game(
        game("Seaquest", life_loss=False),
        "Seaquest",
        1150.0,
        30,
        128,
        12,
        2,
        6,
        ("1039.11 ± 122.90", "1248.22 ± 86.62"),
    ),
}
TRANSITIONS = 500_000
EPOCHS = 10
ROWS = {"causal-transformer": "DT", "tlb": "DT + TLB", "memoryless": "memoryless"}
GAMES = 32
"""Atari episodes in the score of a run."""
LITE_STEPS = 3000
LITE_SECONDS = 600.0
"""Processor time of a lite run."""


def decision_transformer(core: str = "tlb", scale: Scale = "lite", name: str | None = None) -> OfflineConfig:
    """Return the run of a Decision Transformer around a core, in a game.

    Args:
        core: causal-transformer (DT), tlb (DT + TLB), or the key of another core.
        scale: lite or paper.
        name: of the game; None takes catch (lite) or Breakout (paper).
    """
    require_scale(scale, "lite", "paper")
    lite = scale == "lite"
    games = LITE if lite else PAPER
    where = lookup(games, name or next(iter(games)), "game")
    width = 64 if lite else 128
    agent = DecisionTransformerConfig(
        width=width,
        context=where.context,
        stride=where.context // 2 if lite else 1,
        target_return=where.target,
        max_timestep=where.world.spec.max_steps if name in (None, "catch") and lite else 10_000,
        encoders=_encoders(where, lite),
    )
    steps = LITE_STEPS if lite else EPOCHS * TRANSITIONS // where.batch_size
    warmup = 50 if lite else -(-10_240 // (where.batch_size * where.context))
    return OfflineConfig(
        world=where.world,
        core=_core(core, where, lite),
        agent=agent,
        data=OfflineDataConfig(
            source=where.source if lite else f"dqn-replay:dqn/{where.source}/1/replay_logs", transitions=TRANSITIONS
        ),
        optimizer=OptimizerConfig(
            learning_rate=1e-3 if lite else 6e-4,
            betas=(0.9, 0.95),
            weight_decay=0.1,
            schedule="cosine",
            floor=0.1,
            warmup_steps=warmup,
            clip_norm=1.0,
        ),
        evaluation=TargetsConfig(
            episodes=32 if lite else 10, targets=(1.0, 2.0, 3.0, 4.0) if (lite and where is LITE["catch"]) else ()
        ),
        batch_size=where.batch_size,
        fit=FitConfig(
            steps=steps,
            report_every=50,
            evaluate_every=LITE_STEPS // 4 if lite else steps // 5,
            checkpoint_every=LITE_STEPS // 4 if lite else 2000,
            processor_seconds=LITE_SECONDS if lite else None,
        ),
        device="cpu" if lite else "auto",
    )


def _encoders(where: Game, lite: bool) -> EncoderConfig:
    """Return the published convolutions; for ``catch``, where a column decides, a dense layer over all pixels.

    Pixels of Pong are normalised, because nothing is learned in 1.5 million frames while the background is as bright as
    the ball (docs/log.md).
    """
    if lite and where.world == LITE["catch"].world:
        return EncoderConfig(kinds=(("observation", "mlp"),), hidden=(256,))
    return EncoderConfig(kinds=(("observation", "nature-cnn"),), norm_images=lite)


def _core(core: str, where: Game, lite: bool) -> CoreConfig:
    dim, num_layers, num_heads = (64, 2, 4) if lite else (128, 6, 8)
    if core == "causal-transformer":
        return CausalTransformerConfig(
            dim=dim,
            num_layers=num_layers,
            num_heads=num_heads,
            memory_len=3 * where.context - 1,
            positions="none",
            dropout=0.1,
        )
    if core == "tlb":
        return TemporalLatentBottleneckConfig(
            dim=dim,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=4 * dim,
            chunk_len=where.chunk_len,
            self_per_cross=where.self_per_cross,
            num_slots=where.num_slots,
            positions="none",
            dropout=0.1,
        )
    return lookup(CORES, core, "core")()


def _rows(scale: Scale) -> Iterator[Run]:
    for name, where in (LITE if scale == "lite" else PAPER).items():
        for core in ROWS if scale == "lite" else ("causal-transformer", "tlb"):
            known: dict[str, str] = dict(zip(("causal-transformer", "tlb"), where.paper, strict=True))
            config = decision_transformer(core, scale, name)
            paper = known.get(core, "-")
            # A game of Atari has thousands of steps.
            games = {} if where is LITE["catch"] else {"": Test(where=config.trained_on, samples=GAMES, paper=paper)}
            yield Run(
                label=f"{core}-{name.lower()}-{scale}",
                row=f"{ROWS[core]}, {name}",
                core=core,
                config=config,
                paper=paper,
                tests=games,
            )


DECISION_TRANSFORMER = Recipe(
    name="tlb-decision-transformer",
    title="Decision Transformer",
    source="Temporal Latent Bottleneck (Didolkar et al. 2022), sections 3.2 and 7.5, table 3",
    about=(
        "Scores in fresh episodes of agents that learned from recorded ones, told to reach the best return. The lite "
        "scale learns from episodes that agents of ours played with a share of blind actions; the paper's numbers are "
        "returns of Atari games, from the DQN replay dataset."
    ),
    config=decision_transformer,
    runs={"lite": lambda: list(_rows("lite")), "paper": lambda: list(_rows("paper"))},
    seeds={"lite": 3, "paper": 10},
)
