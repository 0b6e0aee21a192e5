"""The T-maze: the simplest memory task, for each core alone; ours, only lite."""

from dataclasses import replace

from recollect.recipes.agent_sizes import lite, lite_core
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, require_scale
from recollect.recipes.hierarchical_transformer_memory.rows import CORE_ROWS, memories
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import ImpalaConfig, ReuseConfig


def t_maze(core: str = "hcam", scale: Scale = "lite", length: int = 100) -> ImpalaConfig:
    """Return the run in a corridor of ``length`` steps between the cue and the turn; ours, only lite."""
    require_scale(scale, "lite")
    memory = lite_core(core, steps=length + 64, window=16)
    return lite(TMazeConfig(length=length, penalty=0.05), memory, steps=500, discount=0.95)


def short_t_maze(core: str = "hcam") -> ImpalaConfig:
    """Return the run in a corridor of 20 steps, with room in the memory for one of 200.

    Two layers with windows of 8 reach 16 steps back, so that only chunks contain the cue. All chunks are read, and
    training continues after a perfect score, because a longer corridor has many more irrelevant chunks.
    """
    config = t_maze(core, length=20)
    steps, chunk = 264, 8
    memory = lite_core(core, steps=steps, window=8, chunk=chunk, top_k=steps // chunk)
    return replace(config, core=memory, fit=replace(config.fit, steps=250, stop_score=None))


def demo_config(core: str = "hcam") -> ImpalaConfig:
    """Return the run of ``recollect demo``: the short T-maze with less slack, for one layer.

    A layer's window reaches 8 steps back, and its chunks hold encoded observations: only the first chunk has the cue. A
    second layer stores what the first one has read, so that a later chunk may have the cue too, and a perfect agent may
    read that one. Eight optimiser steps per rollout halve the number of rollouts; the learning rate falls to 0, so that
    the last policy is as good as the best one.
    """
    config = short_t_maze(core)
    world = TMazeConfig(length=20, slack=20, penalty=0.05)
    steps, chunk = 224, 8  # ten times the length, and the slack
    return replace(
        config,
        world=world,
        core=lite_core(core, steps=steps, window=8, chunk=chunk, top_k=steps // chunk, layers=1),
        optimizer=replace(config.optimizer, schedule="linear", warmup_steps=8),
        loss=replace(config.loss, reuse=ReuseConfig(passes=2, minibatches=4)),
        fit=replace(config.fit, steps=90, report_every=5, evaluate_every=30),
    )


def _t_maze_rows() -> list[Run]:
    runs = []
    for core in CORE_ROWS:
        config = t_maze(core)
        for name, memory in memories(core, config.core, few=4, longest=config.world.spec.max_steps):
            made = replace(config, core=memory)
            runs.append(Run(label=file_name(name), row=f"{name}, length 100", core=core, config=made))
    short, long = TMazeConfig(length=20), TMazeConfig(length=200)
    tests = {"length 20": Test(where=short), "length 200": Test(where=long, beyond_window=True)}
    row = "hcam trained on length 20"
    return [*runs, Run(label="hcam-short", row=row, core="hcam", config=short_t_maze(), tests=tests)]


T_MAZE = Recipe(
    name="htm-t-maze",
    title="T-maze",
    source="ours, after Ni et al. (2023)",
    about="A corridor between a cue and the turn that it names. In training an action without progress costs 0.05.",
    config=t_maze,
    runs={"lite": _t_maze_rows},
    seeds={"lite": 3},
)
