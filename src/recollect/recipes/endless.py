"""Endless Mortar Mayhem (Memory Gym): a list of commands that grows by one every round, until the first mistake.

An oracle of ours (tasks/gymnasium/mortar_mayhem.py) reads the official environment's state and shows what to do; the
agent imitates it, and is then reinforced. Every core has the same oracle, about as many parameters and the same
processor time. A target from the environment's state helps all of them: which command is due (a head that is not used
in play). Cores that attend to the past are also told when it was shown, and chunks of hcam get gradients.

Published agents learned by reinforcement alone, from 84 x 84 pixels and hundreds of millions of steps: GRU 84 to 120
commands, TrXL 17 (56 at best). Lite: frames of 42 x 42, ten minutes of one core, episodes that are cut after 512 steps
in training and 1024 in the test, which are 20 and 41 commands at most.
"""

from dataclasses import replace
from typing import Any

from recollect.agents.encoder_config import EncoderConfig
from recollect.config import lookup
from recollect.cores import CORES
from recollect.recipes.agent_sizes import lite
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name
from recollect.recipes.equal_sizes import equal_core
from recollect.recipes.imitation_recipe import ImitationRecipe, with_teacher
from recollect.tasks.gymnasium.mortar_mayhem import EndlessMortarMayhemConfig
from recollect.training import EvaluationConfig, ImpalaConfig, ReuseConfig, TeacherConfig

WORLD = EndlessMortarMayhemConfig(steps=512, side=42)
LONG = replace(WORLD, steps=1024)
SECONDS = 560.0
"""Processor time of a lite row's steps; evaluations come on top."""
TILE, FEATURES = 32, 128
"""Numbers of a patch, which is a tile of the arena, and of the picture. The convolutions of Nature leave of a frame of
42 x 42 one place with 64 numbers, from which nobody can walk to the middle of a tile (docs/log.md)."""
UNROLL = 256
"""Steps of a rollout: half an episode without a mistake, in which the first four commands are learned and repeated."""
WINDOW, CHUNK = 16, 8
"""Steps of a window in each of two layers; of a chunk, in which a command is shown as a whole or in halves."""
IMITATION = ImitationRecipe(
    steps=150,
    reinforced=30,
    teacher=TeacherConfig(acts=60, keeps=0.5),
    batch_size=16,
    unroll=UNROLL,
    reuse=ReuseConfig(passes=2, minibatches=4),  # who plays in pixels waits for the world, not for the learner
    attention_cost=0.3,
    decision_cost=1.0,
    gradients=True,
)
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "hcam": ("hcam", {}),
    "transformer-xl": ("transformer-xl", {}),
    "gru": ("gru", {}),
    "gru, chrono start": ("gru", {"chrono_steps": WORLD.steps}),
    "lstm": ("lstm", {}),
    "lstm, chrono start": ("lstm", {"chrono_steps": WORLD.steps}),
    "memoryless": ("memoryless", {}),
}
"""The table from top to bottom: key of a core, and what its config has beside what the recipe gives. Gates of a chrono
start begin with memories that last up to an episode of training."""


def endless(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Do all commands ever shown, in order.

    Args:
        core: key of any core.
        scale: only lite: published runs took hundreds of millions of steps.
    """
    if scale != "lite":
        raise ValueError(f"scale={scale!r}: endless has only lite")
    lookup(CORES, core, "core")
    chunks = LONG.steps // CHUNK
    memory = equal_core(core, memory_len=WINDOW, chunk_len=CHUNK, num_chunks=chunks, top_k=16)
    if core == "transformer-xl":
        # As many steps in reach as an unroll has; gates of GRUs as GTrXL and Memory Gym's TrXL have them.
        memory = equal_core(core, dim=48, hidden_dim=96, memory_len=UNROLL // 2, gate="gru", relu_outputs=True)
    config = with_teacher(lite(WORLD, memory, steps=1, discount=0.99, entropy_cost=1e-3), IMITATION)
    encoders = EncoderConfig(
        kinds=(("observation", "patches-7"),), channels=(TILE, TILE, TILE), image_dim=FEATURES, norm_images=True
    )
    return replace(
        config,
        agent=replace(config.agent, encoders=encoders),
        loss=replace(config.loss, supervision=replace(config.loss.supervision, label_cost=1.0)),
        evaluation=EvaluationConfig(episodes=32),
        fit=replace(config.fit, processor_seconds=SECONDS, stop_score=None),
    )


def _lite() -> list[Run]:
    tests = {f"{world.steps} steps": Test(where=world, samples=64) for world in (WORLD, LONG)}
    rows = []
    for row, (core, fields) in ROWS.items():
        config = endless(core)
        config = replace(config, core=replace(config.core, **fields))
        rows.append(Run(label=file_name(row), row=row, core=core, config=config, tests=tests))
    return rows


ENDLESS = Recipe(
    name="endless",
    title="Endless Mortar Mayhem",
    source="Memory Gym (Pleines et al. 2025, JMLR 26(6)); published, by reinforcement alone and without a limit of "
    "steps: GRU 84 to 120 commands, TrXL 17",
    about="Commands completed in an episode of the official environment. All rows imitate an oracle of ours, which "
    "reads the environment's state, and are then reinforced; frames of 42 x 42, episodes cut after 512 steps in "
    "training. The oracle completes 20 commands in 512 steps and 41 in 1024.",
    config=endless,
    runs={"lite": _lite},
    seeds={"lite": 3},
)
