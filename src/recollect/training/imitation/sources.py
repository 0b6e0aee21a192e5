"""Sources of recorded episodes: a file, a dataset of Minari or LeRobot, or new recordings of minigrid's bot."""

import os
from pathlib import Path

import numpy as np

from recollect.config import require
from recollect.evaluation.demonstrations import record_demonstrations
from recollect.evaluation.demonstrations_config import DemonstrationsConfig
from recollect.evaluation.recordings import Recording, read_recording
from recollect.gymnasium_ids import BABYAI
from recollect.tasks import GymnasiumConfig
from recollect.tasks.disk_cache import data_folder
from recollect.tasks.gymnasium.babyai_levels import DEFAULT_LEVELS, level_id, level_name
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.imitation.config import BOT


def recorded_episodes(source: str, world: WorldConfig) -> Recording:
    """Read recorded episodes, and check that their observations and actions are those of a world.

    Args:
        source: FILE.npz, minari:DATASET, lerobot:FOLDER, or babyai-bot:N.
        world: where the agent will act.

    Raises:
        ValueError: nothing there, or it is of another world.
        RunError: the bot finds no way in one of its levels.
    """
    path = str(demonstrations(int(source.removeprefix(BOT)), world)) if source.startswith(BOT) else source
    recording = read_recording(path).with_words_of(world.spec, source)
    recording.require(world.spec, source)
    scored_by_success = isinstance(world, GymnasiumConfig) and world.id == BABYAI
    return successes(recording) if scored_by_success else recording


def demonstrations(episodes: int, world: WorldConfig) -> Path:
    """Return the file with this number of demonstrations of each of a world's levels; record it where it is missing.

    It is in the folder ``babyai`` of the data folder, and is the same on every machine. It is recorded by as many
    processes as there are processors: a script calls this under ``if __name__ == "__main__":``.

    Raises:
        ValueError: the world is not one of BabyAI, or changes its levels.
        RunError: the bot fails in one of the levels, or a process died.
    """
    remedy = "only BabyAI has this bot: train gym:BabyAI-GoToLocal-v0, or give recorded episodes"
    require(isinstance(world, GymnasiumConfig), "teacher.name", f"{BOT}{episodes}", remedy)
    assert isinstance(world, GymnasiumConfig)
    require(world.id == BABYAI or world.id.startswith("BabyAI-"), "teacher.name", f"{BOT}{episodes}", remedy)
    _require_plain(world)
    levels = levels_of(world)
    config = DemonstrationsConfig(levels=levels, episodes=episodes, words=world.words, vocabulary=world.vocabulary)
    name = "+".join(map(level_name, levels))
    path = data_folder() / "babyai" / f"{name}-{episodes}-seed0-words{world.words}-{world.vocabulary}.npz"
    if not path.is_file():
        record_demonstrations(config, path, processes=os.cpu_count() or 1)
    return path


def levels_of(world: GymnasiumConfig) -> tuple[str, ...]:
    """Return the BabyAI levels of a Gymnasium world, each once."""
    levels = world.options.get("levels", DEFAULT_LEVELS) if world.id == BABYAI else (world.id,)
    return tuple(dict.fromkeys(map(level_id, levels)))


def _require_plain(world: GymnasiumConfig) -> None:
    """Raise ``ValueError`` where a world changes minigrid's levels, which the bot plays unchanged."""
    remedy = "the bot plays the levels as minigrid has them: leave this away, or give episodes recorded in this world"
    others = {name: value for name, value in world.options.items() if (world.id, name) != (BABYAI, "levels")}
    require(not others, "world.options", others, remedy)
    require(not world.wrappers, "world.wrappers", world.wrappers, remedy)
    require(world.stack == 1, "world.stack", world.stack, remedy)
    _ = world.spec  # says which level does not exist, or that they are no list


def successes(recording: Recording) -> Recording:
    """Return the same episodes with the reward of ``recollect/BabyAI-v0``: 1 at the end of successful ones, else 0.

    minigrid's levels give a smaller reward after more steps. Episodes with earlier rewards come from other
    environments, and stay unchanged.
    """
    last = recording.lengths.cumsum() - 1
    if np.count_nonzero(np.delete(recording.reward, last)):
        return recording
    return recording._replace(
        reward=(recording.reward > 0).astype(np.float32), score=(recording.reward[last] > 0).astype(np.float32)
    )
