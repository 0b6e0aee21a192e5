"""The live page: the agent itself with a small world, in one HTML file that needs no network and no server.

    write_live(agent, TMazeConfig(length=20), "live.html")

A person lets it act step by step, sees what it remembers, takes a memory away or exchanges it with that of a twin (who
lives the same episode with the other cue), and sees what it does then. The agent is run by onnxruntime-web
(onnx_step.py, onnxruntime_web.py); the world is played by a twin of ours, written in JavaScript (``page/live.js``).
"""

import gzip
from collections.abc import Callable, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from recollect import __version__
from recollect.agents.actor_critic import ActorCritic
from recollect.cores import HierarchicalChunkMemoryConfig
from recollect.files import path_errors, write_atomically
from recollect.interpret.occlusion import can_hide_steps
from recollect.interpret.onnx_step import ExportedStep, Leaf, core_key, export_step, require_exportable
from recollect.interpret.onnxruntime_web import VERSION, Runtime, find_runtime
from recollect.interpret.template import block, fill
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.t_maze import TMaze, TMazeConfig
from recollect.training import FRESH_SEED

EPISODES = 8
"""Episodes that a page offers by their seeds."""
GROUPS = 8
"""Groups of steps that a window is shown in."""


def episode_seed(seed: int, number: int = 0) -> int:
    """Seed of an episode that no training has seen: the ``number``-th behind that of any whole number ``seed``."""
    return (FRESH_SEED + seed + number) % 2**32  # as fresh_seed: a clock's time is a seed, and so is -5000


class LiveWorld(NamedTuple):
    """A world that ``page/live.js`` can play."""

    key: str
    """In ``WORLDS`` of the script."""
    secrets: Callable[[WorldConfig, int], dict[str, Any]]
    """What an episode of a seed has drawn."""


def _side(config: WorldConfig, seed: int) -> dict[str, Any]:
    world = config.build(1, seed=seed)
    assert isinstance(world, TMaze)
    world.reset()
    assert world.state is not None
    return {"seed": seed, "up": bool(world.state.up[0])}


LIVE_WORLDS: dict[type[WorldConfig], LiveWorld] = {TMazeConfig: LiveWorld("t-maze", _side)}
"""Worlds with a twin in the page's script. To add one: a class there, and its line here."""


def require_live(agent: ActorCritic, world: WorldConfig) -> None:
    """Raise ``ValueError`` where there can be no live page: the world has no twin, or the agent cannot be exported."""
    if type(world) not in LIVE_WORLDS:
        known = ", ".join(one.key for one in LIVE_WORLDS.values())
        raise ValueError(f"world={world.title!r}: only worlds with a live twin can be played in a page: {known}")
    require_exportable(agent)


def write_live(
    agent: ActorCritic,
    world: WorldConfig,
    path: str | PathLike[str],
    *,
    runtime: str | PathLike[str] | Runtime | None = None,
    seed: int = 0,
) -> Path:
    """Write the live page of an agent.

    Args:
        agent: in ``eval`` mode.
        world: where it acts: one of :data:`LIVE_WORLDS`.
        path: of the page; what stood there is replaced.
        runtime: onnxruntime-web, or the folder or archive that has it; None looks for it, and asks npm.
        seed: of the first episode; none of them was seen in training.

    Returns:
        The file, about 6 MB.

    Raises:
        ValueError: a world without twin, an agent that cannot be exported, no runtime, or a folder that cannot be
            written; each says what to do.
    """
    require_live(agent, world)
    if not isinstance(runtime, Runtime):
        runtime = find_runtime(None if runtime is None else Path(runtime))
    text = page_text(agent, world, export_step(agent), runtime, seed)
    target = Path(path)
    with path_errors("path", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text)
    return target


def page_text(agent: ActorCritic, world: WorldConfig, step: ExportedStep, runtime: Runtime, seed: int = 0) -> str:
    """The page; see :func:`write_live`. ``step`` is the agent's."""
    found = LIVE_WORLDS[type(world)]
    meta = {
        "format": "live-1",
        "title": f"{found.key}, {core_key(agent)}: live",
        "about": f"the agent itself acts here, offline · Recollect {__version__}, onnxruntime-web {VERSION} (MIT)",
        "unit": _unit(agent),
        "agent": _described(agent, step, world.spec.action_names),
        "world": {
            "key": found.key,
            "config": asdict(world),
            "episodes": [found.secrets(world, episode_seed(seed, number)) for number in range(EPISODES)],
        },
    }
    payload = {"model": step.model, "runtime": runtime.script, "binary": gzip.compress(runtime.binary, 9, mtime=0)}
    blocks = "\n".join(block(name, data) for name, data in payload.items())
    return fill("live", meta["title"], meta, blocks, styles=("explorer", "live"), scripts=" blob: 'wasm-unsafe-eval'")


def _described(agent: ActorCritic, step: ExportedStep, names: Sequence[str]) -> dict[str, Any]:
    """What the script must know of the agent."""
    config, space = agent.core_config, agent.action_space
    assert isinstance(space, Discrete) and isinstance(agent.observation_space, Box)
    chunks = None
    if isinstance(config, HierarchicalChunkMemoryConfig):
        chunks = {
            "size": config.chunk_len,
            "stride": config.stride,
            "overlap": config.chunk_overlap,
            "number": config.num_chunks,
        }
    return {
        "unit": can_hide_steps(agent.core),
        "window": step.window,
        "group": max(1, step.window // GROUPS),
        "chunks": chunks,
        "actions": list(names),
        "start": int(space.start),
        "observation": list(agent.observation_space.shape),
        "leaves": [_leaf(leaf) for leaf in step.leaves],
    }


def _leaf(leaf: Leaf) -> dict[str, Any]:
    first = leaf.first
    return {
        "name": leaf.name,
        "dtype": str(first.dtype),
        "shape": list(first.shape),
        "axis": None if leaf.axis is None else leaf.axis.kind,
        "place": None if leaf.axis is None else leaf.axis.place,
        "first": first.ravel().tolist() if np.any(first) else None,
    }


def _unit(agent: ActorCritic) -> str:
    """What the page says of the units in which memory is taken away."""
    swap = "Swap exchanges it with that of a twin, who lives the same episode with the other cue."
    if isinstance(agent.core_config, HierarchicalChunkMemoryConfig):
        return f"Each card is a chunk of the memory, complete since its last step. Erase takes it away for good. {swap}"
    if can_hide_steps(agent.core):
        return f"Each card is a group of steps in the window. Erase hides them from now on. {swap}"
    return f"This memory keeps no single moments: it can only be edited as a whole. Erase empties it. {swap}"
