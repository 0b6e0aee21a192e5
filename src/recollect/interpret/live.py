"""The live page: the agent itself with a small world, in one HTML file that needs no network and no server.

    write_live(agent, TMazeConfig(length=20), "live.html")

A person lets it act step by step, sees what it remembers, erases a memory or exchanges it with that of a twin (who
sees the same episode with the other cue), and sees what it does then. The agent is run by onnxruntime-web
(onnx_step.py, onnxruntime_web.py); the world is a port to JavaScript (``page/live/worlds.js``).
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
from recollect.interpret.onnx_step import ExportedStep, Leaf, export_step, has_moments, require_exportable
from recollect.interpret.onnxruntime_web import VERSION, Runtime, find_runtime
from recollect.interpret.playback import core_key
from recollect.interpret.template import block, fill
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.t_maze import TMaze, TMazeConfig
from recollect.training.config import FRESH_SEED

EPISODES = 8  # episodes that a page offers by their seeds
GROUPS = 8  # groups of steps in which a window is shown


def episode_seed(seed: int, number: int = 0) -> int:
    """Return the seed of the ``number``-th fresh episode behind ``seed``; no training has seen it."""
    return (FRESH_SEED + seed + number) % 2**32  # a clock's time is a valid seed, and so is -5000


class LiveWorld(NamedTuple):
    """A world that is ported to JavaScript."""

    key: str  # in ``WORLDS`` of ``page/live/worlds.js``
    secrets: Callable[[WorldConfig, int], dict[str, Any]]  # hidden variables of the episode of a seed


def _side(config: WorldConfig, seed: int) -> dict[str, Any]:
    world = config.build(1, seed=seed)
    assert isinstance(world, TMaze)
    world.reset()
    assert world.state is not None
    return {"seed": seed, "up": bool(world.state.up[0])}


LIVE_WORLDS: dict[type[WorldConfig], LiveWorld] = {TMazeConfig: LiveWorld("t-maze", _side)}
"""Worlds with a port in the page's script. To add one: a class there, and its line here."""


def require_live(agent: ActorCritic, world: WorldConfig) -> None:
    """Raise ``ValueError`` where there can be no live page: the world has no port, or the agent cannot be exported."""
    if type(world) not in LIVE_WORLDS:
        known = ", ".join(one.key for one in LIVE_WORLDS.values())
        raise ValueError(f"world={world.title!r}: only worlds with a JavaScript port can be played in a page: {known}")
    require_exportable(agent)


def write_live(
    agent: ActorCritic,
    world: WorldConfig,
    path: str | PathLike[str],
    *,
    runtime: str | PathLike[str] | Runtime | None = None,
    seed: int = 0,
) -> Path:
    """Write the live page of an agent, about 6 MB.

    Args:
        agent: in ``eval`` mode.
        world: one of :data:`LIVE_WORLDS`.
        path: of the page; an existing file is replaced.
        runtime: onnxruntime-web, or the folder or archive that has it; None looks in the cache, then runs npm.
        seed: of the first episode; none of them was seen in training.

    Raises:
        ValueError: a world without port, an agent that cannot be exported, no runtime, or a folder that cannot be
            written.
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
    """Return the text of the live page of an agent whose step is ``step``."""
    found = LIVE_WORLDS[type(world)]
    meta = {
        "format": "live-1",
        "title": f"{found.key}, {core_key(agent)}: live",
        "about": f"the agent itself acts here, offline · Recollect {__version__}, onnxruntime-web {VERSION} (MIT)",
        "unit": _describe_unit(agent),
        "agent": _describe_agent(agent, step, world.spec.action_names),
        "world": {
            "key": found.key,
            "config": asdict(world),
            "episodes": [found.secrets(world, episode_seed(seed, number)) for number in range(EPISODES)],
        },
    }
    payload = {"model": step.model, "runtime": runtime.script, "binary": gzip.compress(runtime.binary, 9, mtime=0)}
    blocks = "\n".join(block(name, data) for name, data in payload.items())
    return fill("live", meta["title"], meta, blocks, scripts=" blob: 'wasm-unsafe-eval'")


def _describe_agent(agent: ActorCritic, step: ExportedStep, names: Sequence[str]) -> dict[str, Any]:
    """Return the properties of the agent that the script needs."""
    config, space, chunks = agent.core_config, agent.action_space, None
    assert isinstance(space, Discrete) and isinstance(agent.observation_space, Box)
    if isinstance(config, HierarchicalChunkMemoryConfig) and has_moments(agent):
        fields = {"size": "chunk_len", "stride": "stride", "overlap": "chunk_overlap", "number": "num_chunks"}
        chunks = {name: getattr(config, field) for name, field in fields.items()}
    return {
        "unit": has_moments(agent),
        "window": step.window,
        "group": max(1, step.window // GROUPS),
        "chunks": chunks,
        "actions": list(names),
        "start": int(space.start),
        "observation": list(agent.observation_space.shape),
        "leaves": [_describe_leaf(leaf) for leaf in step.leaves],
    }


def _describe_leaf(leaf: Leaf) -> dict[str, Any]:
    first = leaf.first
    return {
        "input": leaf.input,
        "output": leaf.output,
        "dtype": str(first.dtype),
        "shape": list(first.shape),
        "axis": None if leaf.axis is None else leaf.axis.kind,
        "place": None if leaf.axis is None else leaf.axis.place,
        "first": first.ravel().tolist() if np.any(first) else None,
    }


def _describe_unit(agent: ActorCritic) -> str:
    """Explain the units in which memory is erased."""
    swap = "Swap exchanges it with that of a twin, who sees the same episode with the other cue."
    if not has_moments(agent):
        return f"This memory can only be edited as a whole here. Erase empties it. {swap}"
    if isinstance(agent.core_config, HierarchicalChunkMemoryConfig):
        return f"Each card is a complete chunk of the memory. Erase removes it for good. {swap}"
    return f"Each card is a group of steps in the window. Erase hides them from now on. {swap}"
