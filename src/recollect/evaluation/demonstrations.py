"""Recorder of demonstrations of minigrid's bot in BabyAI levels, for the trainer ``cloning``.

    found = record_demonstrations(DemonstrationsConfig(levels=("GoToLocal",), episodes=10_000), "demos.npz")

Processes record parts of :data:`PART` episodes, each a file in ``demos.npz.parts``; a JSON beside it holds its level,
first episode and checksum. A killed command, when repeated, records the parts that are missing or damaged. Complete
parts become one file, and the folder is removed. An existing file is neither recorded again nor overwritten. With
several processes, a script must call this under ``if __name__ == "__main__":``, as :mod:`multiprocessing` requires;
with one, in its main thread, where a hanging episode can be ended.

The bot hangs on some seeds, and raises on others. Every episode has a time limit; one that hangs, raises or fails is
repeated with another seed, and counted. The seeds depend on ``seed``, the level, the episode and the attempt alone, not
on the number of processes or on earlier recordings.
"""

import json
import multiprocessing
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from recollect.config import require
from recollect.evaluation.demonstrations_config import DemonstrationsConfig
from recollect.evaluation.recordings import Recording, read_recording, write_recording
from recollect.files import checksum, path_errors, read_json, write_atomically
from recollect.gymnasium_ids import entry
from recollect.machine import exit_with_parent
from recollect.runs.errors import RunError
from recollect.runs.folder_lock import FolderLock
from recollect.tasks.gymnasium.babyai import Bot, HangingError, babyai_bot, demonstrate, time_limited
from recollect.tasks.gymnasium.babyai_levels import level_id, level_name, max_instruction_words
from recollect.tasks.gymnasium.spaces import ObservationReader, hash_words

PART = 500  # episodes of a part
COUNTED = ("hung", "raised", "failed")
"""Reasons for another seed: no answer in time, an exception, an instruction that was not carried out."""
GUARD = "call it under if __name__ == '__main__': because every process that records runs the script's other lines too"


def record_demonstrations(
    config: DemonstrationsConfig,
    target: str | PathLike[str],
    *,
    processes: int = 1,
    make_bot: Callable[[Any], Bot] = babyai_bot,
    on_progress: Callable[[int], None] = lambda episodes: None,
) -> dict[str, Any]:
    """Record the missing episodes, then write all of them as FILE.npz.

    Args:
        config: settings.
        target: FILE.npz.
        processes: number of parallel processes.
        make_bot: makes the bot of an episode; a function of a module, as other processes call it.
        on_progress: called with the number of recorded episodes, as parts arrive.

    Returns:
        The contents of ``FILE.json`` beside it: the settings, the number of episodes and steps, and the number of
        repeated episodes by level and reason.

    Raises:
        ValueError: an unknown level, another ending, a file that exists and holds other episodes, a folder of parts
            with other settings or in use by another process, an instruction of too many words, or one process outside
            the main thread.
        RunError: one episode after the other fails, or a process died.
    """
    path = Path(target)
    require(path.suffix == ".npz", "out", str(target), "give FILE.npz")
    require(processes >= 1, "processes", processes, "give at least one")
    _require_main(processes)
    for level in config.levels:
        entry(level_id(level))
    about = _finished(config, path)
    if about is not None:
        on_progress(about["episodes"])
        return about
    folder = path.with_name(f"{path.name}.parts")
    with path_errors("out", path):
        folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder):
        return _record(config, path, folder, processes, make_bot, on_progress)


def _record(
    config: DemonstrationsConfig,
    path: Path,
    folder: Path,
    processes: int,
    make_bot: Callable[[Any], Bot],
    on_progress: Callable[[int], None],
) -> dict[str, Any]:
    """Record the missing and damaged parts of a folder, and join all into one file."""
    about = _finished(config, path)  # another process may have finished while we waited
    if about is not None:
        shutil.rmtree(folder)
        return about
    _require_same(folder / "settings.json", _settings(config))
    parts = [(level, begin) for level in config.levels for begin in range(0, config.episodes, PART)]
    missing = [(level, begin) for level, begin in parts if not _is_intact(config, folder, level, begin)]
    for level, begin in missing:
        _part_path(folder, level, begin).unlink(missing_ok=True)
    recorded = sum(_size(config, begin) for level, begin in parts if (level, begin) not in missing)
    on_progress(recorded)
    for begin in _record_parts(config, folder, missing, processes, make_bot):
        recorded += _size(config, begin)
        on_progress(recorded)
    recording = join([read_recording(_part_path(folder, level, begin)) for level, begin in parts])
    about = _about(config, folder, recording)
    write_atomically(path.with_suffix(".json"), json.dumps(about, indent=1) + "\n")
    write_recording(recording, path)  # last: its presence means that all is complete
    shutil.rmtree(folder)
    return about


def join(recordings: list[Recording]) -> Recording:
    """Concatenate recordings of the same world."""
    parts = {
        name: np.concatenate([getattr(one, name) for one in recordings])
        for name in Recording._fields
        if name not in ("observation", "action_space", "words")
    }
    first = recordings[0]
    seen = {name: np.concatenate([one.observation[name] for one in recordings]) for name in first.observation}
    return Recording(observation=seen, action_space=first.action_space, words=first.words, **parts)


def _record_parts(
    config: DemonstrationsConfig,
    folder: Path,
    missing: list[tuple[str, int]],
    processes: int,
    make_bot: Callable[[Any], Bot],
) -> Iterator[int]:
    """Record parts; yields the first episode of each when its file is written."""
    arguments = [(config, folder, level, begin, make_bot) for level, begin in missing]
    if processes == 1:
        yield from (_record_part(*part) for part in arguments)
        return
    context = multiprocessing.get_context("forkserver")  # torch has threads by now, which do not survive a fork
    workers = min(processes, max(len(missing), 1))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=exit_with_parent)
    try:
        yield from pool.map(_record_part, *zip(*arguments, strict=True)) if arguments else ()
    except (BrokenProcessPool, EOFError, ConnectionError):
        raise RunError(
            f"{folder}: a recording process was killed, or did not start. Repeat the command to continue; "
            f"in a script, {GUARD}"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _record_part(
    config: DemonstrationsConfig, folder: Path, level: str, begin: int, make_bot: Callable[[Any], Bot]
) -> int:
    """Record one part, write its file and its counts, and return its first episode."""
    environment = gymnasium.make(entry(level_id(level)), disable_env_checker=True)
    reader = ObservationReader(source=environment.observation_space, words=config.words, vocabulary=config.vocabulary)
    counts: Counter[str] = Counter()
    shown: list[Mapping[str, np.ndarray]] = []
    actions: list[np.ndarray] = []
    rewards: list[np.ndarray] = []
    for episode in range(begin, begin + _size(config, begin)):
        seen, done, rewarded = _episode(environment, config, level, episode, counts, make_bot)
        _require_room(config, level, seen[0]["mission"])
        shown.append(_compact(reader.read(seen)))
        actions.append(np.array([*done, 0], np.int64))
        rewards.append(np.array([0.0, *rewarded], np.float32))
    environment.close()
    steps = [len(part) for part in rewards]
    recording = Recording(
        observation={name: np.concatenate([part[name] for part in shown]) for name in shown[0]},
        action=np.concatenate(actions),
        reward=np.concatenate(rewards),
        lengths=np.array(steps),
        terminated=np.ones(len(steps), bool),
        score=np.ones(len(steps), np.float32),
        action_space=gymnasium.spaces.Discrete(int(environment.action_space.n)),  # type: ignore[attr-defined]
    )
    path = _part_path(folder, level, begin)
    write_recording(recording, path)
    about = _identity(config, level, begin) | {
        "checksum": checksum(path),
        "another_seed": {name: counts[name] for name in COUNTED},
    }
    write_atomically(path.with_suffix(".json"), json.dumps(about))  # last: a part without it is recorded again
    return begin


def _episode(
    environment: Any,
    config: DemonstrationsConfig,
    level: str,
    episode: int,
    counts: Counter[str],
    make_bot: Callable[[Any], Bot],
) -> tuple[list[Any], list[int], list[float]]:
    """Play an episode with the first seed on which the bot succeeds."""
    reason = ""
    for attempt in range(config.attempts):
        try:
            with time_limited(config.seconds):
                played = demonstrate(environment, config.seed_of(level, episode, attempt), make_bot)
        except HangingError as error:
            counts["hung"] += 1
            reason = str(error)
        except Exception as error:  # the bot may raise anything: try another seed
            counts["raised"] += 1
            reason = f"{type(error).__name__}: {error}"
        else:
            if played[2][-1] > 0:
                return played
            counts["failed"] += 1
            reason = "the instruction was not carried out"
    raise RunError(
        f"{level_id(level)}: the bot did not finish episode {episode} with any of {config.attempts} seeds (the last "
        f"one: {reason}); choose another level"
    )


def _compact(seen: Any) -> Mapping[str, np.ndarray]:
    """Store images and directions as bytes, words as int16."""
    small = {"image": np.uint8, "direction": np.uint8, "language": np.int16}
    return {name: part.astype(small[name]) for name, part in seen.items()}


def _require_main(processes: int) -> None:
    """Raise ``ValueError`` where time limits cannot work, or while a child process imports the script."""
    inside = threading.current_thread() is threading.main_thread()
    remedy = "only the main thread can end a hanging episode: call it there, or give two or more processes"
    require(processes > 1 or inside, "processes", processes, remedy)
    starting = getattr(multiprocessing.current_process(), "_inheriting", False)
    require(not starting, "processes", processes, GUARD)


def _require_room(config: DemonstrationsConfig, level: str, instruction: str) -> None:
    """Raise ``ValueError`` unless all words of an instruction fit."""
    number = int(np.count_nonzero(hash_words(instruction, len(instruction), config.vocabulary)))
    enough = max(number, max_instruction_words((level,)))
    remedy = (
        f"{level_id(level)} has the instruction {instruction!r} of {number} words: give words={enough}, to the "
        f"training world too (--words {enough}, --world.words {enough})"
    )
    require(number <= config.words, "words", config.words, remedy)


def _finished(config: DemonstrationsConfig, path: Path) -> dict[str, Any] | None:
    """Return the contents of FILE.json where FILE.npz exists; None where it does not.

    Raises:
        ValueError: it holds other or unknown demonstrations, or FILE.json is another kind of file.
    """
    beside, remedy = path.with_suffix(".json"), "give another file"
    about = read_json(beside, remedy) if beside.is_file() else None
    found = about.get("settings") if isinstance(about, dict) else None
    if not path.exists():
        if beside.exists() and found is None:
            raise ValueError(f"out={str(path)!r}: {beside} would be replaced, and is not of demonstrations: {remedy}")
        return None
    if not beside.is_file():
        raise ValueError(f"out={str(path)!r} exists without {beside.name}, which describes its contents: {remedy}")
    if found != _settings(config):
        raise ValueError(f"out={str(path)!r} exists, and holds other demonstrations ({found}): {remedy}")
    return about


def _settings(config: DemonstrationsConfig) -> dict[str, Any]:
    named = replace(config, levels=tuple(level_name(level) for level in config.levels))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(named).items()}


def _require_same(path: Path, settings: Mapping[str, Any]) -> None:
    remedy = "remove the folder, or give another file"
    any_part = any(path.parent.glob("*.npz"))  # settings without a part do not count
    if any_part and path.is_file() and (found := read_json(path, remedy)) != settings:
        raise ValueError(f"{path.parent} holds parts of other demonstrations ({found}): {remedy}")
    write_atomically(path, json.dumps(settings))


def _about(config: DemonstrationsConfig, folder: Path, recording: Recording) -> dict[str, Any]:
    again: dict[str, Counter[str]] = {}
    for level in config.levels:
        found = again.setdefault(level_name(level), Counter())
        for begin in range(0, config.episodes, PART):
            found.update(json.loads(_part_path(folder, level, begin).with_suffix(".json").read_text())["another_seed"])
    lengths = recording.lengths - 1
    return {
        "settings": _settings(config),
        "episodes": len(lengths),
        "steps": int(lengths.sum()),
        "longest": int(lengths.max()),
        "another_seed": {level: dict(counts) for level, counts in again.items()},
    }


def _part_path(folder: Path, level: str, begin: int) -> Path:
    return folder / f"{level_name(level)}-{begin:07d}.npz"


def _is_intact(config: DemonstrationsConfig, folder: Path, level: str, begin: int) -> bool:
    """Return whether a part exists, is undamaged and matches its name."""
    path = _part_path(folder, level, begin)
    try:
        about = read_json(path.with_suffix(".json"), "")
        return about == _identity(config, level, begin) | {
            "checksum": checksum(path),
            "another_seed": {name: int(about["another_seed"][name]) for name in COUNTED},
        }
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _identity(config: DemonstrationsConfig, level: str, begin: int) -> dict[str, Any]:
    return {"level": level_name(level), "first": begin, "episodes": _size(config, begin)}


def _size(config: DemonstrationsConfig, begin: int) -> int:
    return min(PART, config.episodes - begin)
