"""Endless Mortar Mayhem (Memory Gym): a list of commands that grows by one every round, until the first mistake.

An oracle (tasks/gymnasium/mortar_mayhem.py) computes actions from the official environment's state; the agent imitates
it and is then reinforced. All cores have the same oracle, about as many parameters and the same processor time.
Training aids: all cores predict the command that is due (by a head that is not used in acting), cores that attend to
the past also get the step at which it was shown, and hcam's chunks get gradients.

Published agents learned by reinforcement alone, from 84 x 84 pixels and hundreds of millions of steps: GRU 84 to 120
commands, TrXL 17 (56 at best). Lite: frames of 42 x 42, ten minutes of one core, episodes truncated after 512 steps in
training and 1024 in the test, at most 20 and 41 commands.
"""

from dataclasses import replace
from typing import Any

from recollect.agents.encoder_config import EncoderConfig
from recollect.config import lookup
from recollect.cores import CORES
from recollect.recipes.agent_sizes import lite
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, require_scale
from recollect.recipes.equal_sizes import equal_core
from recollect.recipes.imitation_recipe import ImitationRecipe, with_teacher
from recollect.tasks.gymnasium.mortar_mayhem import EndlessMortarMayhemConfig
from recollect.training import EvaluationConfig, ImpalaConfig, ReuseConfig, TeacherConfig

WORLD = EndlessMortarMayhemConfig(steps=512, side=42)
LONG = replace(WORLD, steps=1024)
SECONDS = 560.0
"""Processor time of a lite row's training steps, without evaluations."""
TILE, FEATURES = 32, 128
"""Features of a patch, which is a tile of the arena, and of the picture. The Nature convolutions reduce a frame of
42 x 42 to one position with 64 features, too few to find the middle of a tile (docs/log.md)."""
UNROLL = 256
"""Steps of a rollout: half an episode without mistakes, in which the first four commands are shown and repeated."""
WINDOW, CHUNK = 16, 8
"""Steps of a window in each of two layers, and of a chunk, which contains a whole command or half of one."""
IMITATION = ImitationRecipe(
    steps=150,
    reinforced=30,
    teacher=TeacherConfig(acts=60, keeps=0.5),
    batch_size=16,
    unroll=UNROLL,
    reuse=ReuseConfig(passes=2, minibatches=4),  # with pixels the world is slower than the learner
    attention_cost=0.3,
    decision_cost=1.0,
    label_cost=1.0,
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
"""Rows of the table: core, and config fields besides the recipe's. With a chrono start, gates begin with memories of up
to an episode of training."""


def endless(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of a core at the scale lite; published runs took hundreds of millions of steps."""
    require_scale(scale, "lite")
    lookup(CORES, core, "core")
    chunks = LONG.steps // CHUNK
    memory = equal_core(core, memory_len=WINDOW, chunk_len=CHUNK, num_chunks=chunks, top_k=16)
    if core == "transformer-xl":
        # Reaches over an unroll; GRU gates as in GTrXL and Memory Gym's TrXL.
        memory = equal_core(core, dim=48, hidden_dim=96, memory_len=UNROLL // 2, gate="gru", relu_outputs=True)
    config = with_teacher(lite(WORLD, memory, steps=1, discount=0.99, entropy_cost=1e-3), IMITATION)
    encoders = EncoderConfig(
        kinds=(("observation", "patches-7"),), channels=(TILE, TILE, TILE), image_dim=FEATURES, norm_images=True
    )
    return replace(
        config,
        agent=replace(config.agent, encoders=encoders),
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
