"""Where recorded episodes come from: a file, a dataset of Minari or LeRobot, or minigrid's bot, recorded now."""

import os
from pathlib import Path

from recollect.config import require
from recollect.evaluation.demonstrations import DemonstrationsConfig, record_demonstrations
from recollect.evaluation.recordings import Recording, read_recording
from recollect.tasks import GymnasiumConfig
from recollect.tasks.gymnasium.babyai import level_name
from recollect.tasks.long_range.kept import data_folder
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.imitation.teachers import BOT


def recorded_episodes(source: str, world: WorldConfig) -> Recording:
    """Read episodes that an agent in a world could have seen and done.

    Args:
        source: FILE.npz, minari:DATASET, lerobot:FOLDER, or babyai-bot:N.
        world: where the agent will act.

    Raises:
        ValueError: nothing there, or it is of another world.
    """
    path = str(demonstrations(int(source.removeprefix(BOT)), world)) if source.startswith(BOT) else source
    recording = read_recording(path).spoken_as(world.spec, source)
    recording.require(world.spec, source)
    return recording


def demonstrations(episodes: int, world: WorldConfig) -> Path:
    """The file with so many demonstrations of each of a world's levels; recorded where it is not there yet.

    It lies in the folder ``babyai`` of the data folder, and is the same on every machine.

    Raises:
        ValueError: the world is not one of BabyAI.
    """
    remedy = "only BabyAI has this bot: train gym:BabyAI-GoToLocal-v0, or give recorded episodes"
    require(isinstance(world, GymnasiumConfig), "teacher.name", f"{BOT}{episodes}", remedy)
    assert isinstance(world, GymnasiumConfig)
    levels = levels_of(world)
    require(bool(levels), "teacher.name", f"{BOT}{episodes}", remedy)
    config = DemonstrationsConfig(levels=levels, episodes=episodes, words=world.words, vocabulary=world.vocabulary)
    name = "+".join(map(level_name, levels))
    path = data_folder() / "babyai" / f"{name}-{episodes}-seed0-words{world.words}-{world.vocabulary}.npz"
    if not path.is_file():
        record_demonstrations(config, path, processes=os.cpu_count() or 1)
    return path


def levels_of(world: GymnasiumConfig) -> tuple[str, ...]:
    """The BabyAI levels that a Gymnasium world plays; none where it plays something else."""
    if world.id.startswith("BabyAI-"):
        return (world.id,)
    return tuple(world.options.get("levels", ())) if world.id == "recollect/BabyAI-v0" else ()
