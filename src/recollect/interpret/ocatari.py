"""Positions of the things in a frame of Pong, from the game's memory, read as OCAtari reads it.

    pip install --no-deps ocatari        its other dependencies are for windows, and it requires an older NumPy
    record = with_things(record)         a record of Pong, with ``objects`` where OCAtari is installed

The vectorised emulator in which agents play shows no memory. But a game without sticky actions repeats itself: the
recorded actions are played again in a second emulator, until its screens equal the observations in every step. Where no
start gives equal screens, there is no ground truth, and a note says so.

Source: Delfosse et al., OCAtari: object-centric Atari 2600 reinforcement learning environments (2024).
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from recollect.interpret.episodes import LiveEpisode
from recollect.interpret.record import Objects
from recollect.tasks import GymnasiumConfig

GAMES = {"ALE/Pong-v5": "pong"}  # ids in Gymnasium, and modules of OCAtari: games with the same things in every frame
STARTS = 40  # no-ops before a game begins, at most; FIRE is pressed up to twice after them
SKIP = 4  # frames of a step; the agent sees the brighter of the last two
SAME = 1.01  # levels of grey by which an equal screen may differ: both are rounded
TALL, WIDE = 210, 160


def with_things(record: LiveEpisode) -> LiveEpisode:
    """Return the record with the things of its frames, where the game is known and OCAtari is installed."""
    game = GAMES.get(record.world.id) if isinstance(record.world, GymnasiumConfig) else None
    if game is None or record.objects is not None or find_spec("ocatari") is None or find_spec("ale_py") is None:
        return record
    memories = replayed(record, game)
    if memories is None:
        note = "no ground truth of things: the game does not repeat itself from these actions"
        return replace(record, info=replace(record.info, notes=(*record.info.notes, note)))
    return replace(record, objects=things_in(memories, _reader(game), _seen(record).shape[1:]))


def _reader(game: str) -> ModuleType:
    """Import OCAtari's module of a game alone: the package would import windows and computer vision."""
    name = "recollect_ocatari_ram"
    if name not in sys.modules:
        spec = find_spec("ocatari")
        assert spec is not None and spec.submodule_search_locations
        package = ModuleType(name)
        package.__path__ = [str(Path(place) / "ram") for place in spec.submodule_search_locations]
        sys.modules[name] = package
    return import_module(f"{name}.{game}")


def _seen(record: LiveEpisode) -> np.ndarray:
    """Return the newest frame of every step, ``[T, y, x]``."""
    (part,) = record.observations.values()
    return part[:, -1] if part.shape[1] < part.shape[-1] else part[..., -1]


def replayed(record: LiveEpisode, game: str) -> np.ndarray | None:
    """Return the emulator's memory ``[T, 128]`` at every step of an episode; None where no start fits."""
    seen = _seen(record)
    down, along = _area(TALL, seen.shape[1]), _area(WIDE, seen.shape[2])
    for noops in range(STARTS):
        for fires in range(3):
            memories = []
            for screen, memory in _play(game, noops, fires, record.action.tolist()):
                shown = seen[len(memories)]
                if memories and np.abs(down @ screen @ along.T - shown).max() > SAME:
                    break
                memories.append(memory)
                if len(memories) == record.num_steps:
                    return np.stack(memories)
    return None


def _play(game: str, noops: int, fires: int, actions: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield screen and memory of every step."""
    from ale_py import ALEInterface, LoggerMode, roms  # an extra

    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator: Any = ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.loadROM(roms.get_rom_path(game))
    for action in [0] * noops + [1] * fires:
        emulator.act(action)
    known, before = emulator.getMinimalActionSet(), emulator.getScreenGrayscale()
    yield before.astype(float), emulator.getRAM().copy()
    for action in actions[:-1]:
        for frame in range(SKIP):
            if frame == SKIP - 1:
                before = emulator.getScreenGrayscale()
            emulator.act(known[action])
        screen = np.maximum(before, emulator.getScreenGrayscale())
        yield screen.astype(float), emulator.getRAM().copy()


def _area(long: int, short: int) -> np.ndarray:
    """Return means over areas as a matrix ``[short, long]``."""
    edges = np.arange(short + 1) * long / short
    places = np.arange(long)
    weights = np.clip(np.minimum(edges[1:, None], places + 1) - np.maximum(edges[:-1, None], places), 0, None)
    return weights / weights.sum(1, keepdims=True)


def things_in(memories: np.ndarray, reader: ModuleType, size: tuple[int, int]) -> Objects:
    """Return the things in a game's memory, with boxes in the observation's pixels; all of them matter."""
    things = reader._init_objects_ram(hud=False)
    names = tuple(type(thing).__name__.lower() for thing in things)
    scale = np.array([*size, *size]) / np.array([TALL, WIDE, TALL, WIDE])
    boxes, visible = np.zeros((len(memories), len(names), 4), np.int32), np.zeros((len(memories), len(names)), bool)
    for t, memory in enumerate(memories):
        reader._detect_objects_ram(things, memory.astype(int), hud=False)
        for number, (name, thing) in enumerate(zip(names, things, strict=True)):
            if type(thing).__name__.lower() == name:  # else it is OCAtari's NoObject
                x, y, wide, tall = thing.xywh
                box = np.array([y, x, y + tall, x + wide]) * scale
                boxes[t, number] = [*np.floor(box[:2]), *np.ceil(box[2:])]
                visible[t, number] = True
    return Objects(names=names, boxes=boxes, visible=visible, matters=np.ones_like(visible))
