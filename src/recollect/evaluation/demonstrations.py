"""Demonstrations of minigrid's bot in BabyAI levels, recorded for the trainer ``cloning``.

    found = record_demonstrations(DemonstrationsConfig(levels=("GoToLocal",), episodes=10_000), "demos.npz")

Several processes record parts of :data:`PART` episodes, each a file in ``demos.npz.parts``; a JSON beside it names its
level, its first episode and its checksum. A command that was killed goes on, when it is given again, with the parts
that are missing or damaged. When all are there they become one file, and the folder goes. A file that is there is not
recorded again, nor overwritten. With several processes, a script calls this under ``if __name__ == "__main__":``, as
:mod:`multiprocessing` asks for; with one, in its main thread, where an episode that hangs can be ended.

The bot hangs for ever on some seeds, and raises on others. Every episode has a time limit; one that hangs, raises or
fails is given another seed, and counted. Which seeds are tried follows from ``seed``, the level, the number of the
episode and of the attempt alone: not from the number of processes, and not from what was recorded before.
"""

import json
import multiprocessing
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from recollect.config import require, require_types
from recollect.evaluation.recordings import Recording, read_recording, write_recording
from recollect.files import checksum, read_json, write_atomically
from recollect.gymnasium_ids import entry
from recollect.machine import exit_with_parent
from recollect.runs.errors import RunError
from recollect.runs.folder_lock import FolderLock
from recollect.tasks.gymnasium.babyai import (
    Bot,
    HangingError,
    at_most,
    babyai_bot,
    demonstrate,
    level_id,
    level_name,
    words_of,
)
from recollect.tasks.gymnasium.spaces import Reader, hash_words

PART = 500
"""Episodes of a part."""
COUNTED = ("hung", "raised", "failed")
"""Why an episode is given another seed: no answer in time, an exception, an instruction that was not carried out."""
GUARD = "call it under if __name__ == '__main__': because every process that records runs the script's other lines too"


@dataclass(frozen=True, kw_only=True)
class DemonstrationsConfig:
    """What is recorded."""

    levels: tuple[str, ...] = ("GoToLocal",)
    """BabyAI levels, as GoToLocal or BabyAI-GoToLocal-v0."""
    episodes: int = 1000
    """Episodes of each level."""
    seed: int = 0
    """From which the seeds of all episodes follow."""
    words: int = 16
    """Words of an instruction, as many as the world shows that is learned in; a longer one ends the recording."""
    vocabulary: int = 1024
    """Numbers that the words are hashed to: as many as the world's."""
    seconds: float = 10.0
    """Time limit of an episode."""
    attempts: int = 50
    """Seeds that are tried for one episode, before all is given up."""

    def __post_init__(self) -> None:
        require_types(self)
        require(bool(self.levels), "levels", self.levels, "name at least one level")
        require(len(set(map(level_id, self.levels))) == len(self.levels), "levels", self.levels, "name each level once")
        require(self.episodes >= 1, "episodes", self.episodes, "record at least one")
        require(self.seconds > 0, "seconds", self.seconds, "give some seconds")
        require(self.attempts >= 1, "attempts", self.attempts, "try at least one seed")
        require(self.words >= 1, "words", self.words, "keep at least one word")
        require(2 <= self.vocabulary <= 2**15, "vocabulary", self.vocabulary, "give 2 to 32768")

    def seed_of(self, level: str, episode: int, attempt: int) -> int:
        """The seed of an attempt at an episode."""
        name = zlib.crc32(level_name(level).encode())
        return int(np.random.SeedSequence([self.seed % 2**32, name, episode, attempt]).generate_state(1)[0] >> 1)


def record_demonstrations(
    config: DemonstrationsConfig,
    target: str | PathLike[str],
    *,
    processes: int = 1,
    make_bot: Callable[[Any], Bot] = babyai_bot,
    say: Callable[[int], None] = lambda episodes: None,
) -> dict[str, Any]:
    """Record the episodes that are missing, then write all of them as FILE.npz.

    Args:
        config: what is recorded.
        target: FILE.npz.
        processes: how many record at a time.
        make_bot: makes who plays an episode; a function of a module, as other processes call it.
        say: called with the number of episodes that are there, as parts come in.

    Returns:
        What is in ``FILE.json`` beside it: the settings, the number of episodes and steps, and how many were given
        another seed, and why, level by level.

    Raises:
        ValueError: a level that does not exist, another ending, a file that exists and holds others, a folder of
            parts that was recorded otherwise or that another process is recording, an instruction of more words than
            are kept, or one process in another thread than the main one.
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
        say(about["episodes"])
        return about
    folder = path.with_name(f"{path.name}.parts")
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder):
        return _record(config, path, folder, processes, make_bot, say)


def _record(
    config: DemonstrationsConfig,
    path: Path,
    folder: Path,
    processes: int,
    make_bot: Callable[[Any], Bot],
    say: Callable[[int], None],
) -> dict[str, Any]:
    """Record the parts that are missing from a folder or damaged, and make one file of all."""
    about = _finished(config, path)  # by another process, before the folder was free
    if about is not None:
        shutil.rmtree(folder)
        return about
    _require_same(folder / "settings.json", _settings(config))
    parts = [(level, begin) for level in config.levels for begin in range(0, config.episodes, PART)]
    missing = [(level, begin) for level, begin in parts if not _is_whole(config, folder, level, begin)]
    for level, begin in missing:
        _part(folder, level, begin).unlink(missing_ok=True)
    there = sum(_size(config, begin) for level, begin in parts if (level, begin) not in missing)
    say(there)
    for _, begin in _work(config, folder, missing, processes, make_bot):
        there += _size(config, begin)
        say(there)
    recording = join([read_recording(_part(folder, level, begin)) for level, begin in parts])
    about = _about(config, folder, recording)
    write_atomically(path.with_suffix(".json"), json.dumps(about, indent=1) + "\n")
    write_recording(recording, path)  # last: where it is, it says what is in it
    shutil.rmtree(folder)
    return about


def join(recordings: list[Recording]) -> Recording:
    """Recordings one behind the other, as one."""
    parts = {
        name: np.concatenate([getattr(one, name) for one in recordings])
        for name in Recording._fields
        if name not in ("observation", "action_space", "words")
    }
    first = recordings[0]
    seen = {name: np.concatenate([one.observation[name] for one in recordings]) for name in first.observation}
    return Recording(observation=seen, action_space=first.action_space, words=first.words, **parts)


def _work(
    config: DemonstrationsConfig,
    folder: Path,
    missing: list[tuple[str, int]],
    processes: int,
    make_bot: Callable[[Any], Bot],
) -> Iterator[tuple[str, int]]:
    """Record parts; yields each when its file is there."""
    arguments = [(config, folder, level, begin, make_bot) for level, begin in missing]
    if processes == 1:
        for part in arguments:
            yield _record_part(*part)
        return
    context = multiprocessing.get_context("forkserver")  # torch has threads by now: they would not survive a fork
    workers = min(processes, max(len(missing), 1))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=exit_with_parent)
    try:
        yield from pool.map(_record_part, *zip(*arguments, strict=True)) if arguments else ()
    except (BrokenProcessPool, EOFError, ConnectionError):
        raise RunError(
            f"{folder}: a process that recorded was killed, or did not start. Give the command again, and it goes on; "
            f"in a script, {GUARD}"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _record_part(
    config: DemonstrationsConfig, folder: Path, level: str, begin: int, make_bot: Callable[[Any], Bot]
) -> tuple[str, int]:
    """Record one part, and write its file and its counts."""
    environment = gymnasium.make(entry(level_id(level)), disable_env_checker=True)
    reader = Reader(source=environment.observation_space, words=config.words, vocabulary=config.vocabulary)
    counts: Counter[str] = Counter()
    shown: list[Mapping[str, np.ndarray]] = []
    actions: list[np.ndarray] = []
    rewards: list[np.ndarray] = []
    for episode in range(begin, begin + _size(config, begin)):
        seen, done, given = _episode(environment, config, level, episode, counts, make_bot)
        _require_room(config, level, seen[0]["mission"])
        shown.append(_compact(reader.read(seen)))
        actions.append(np.array([*done, 0], np.int64))
        rewards.append(np.array([0.0, *given], np.float32))
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
    path = _part(folder, level, begin)
    write_recording(recording, path)
    about = _named(config, level, begin) | {
        "checksum": checksum(path),
        "another_seed": {name: counts[name] for name in COUNTED},
    }
    write_atomically(path.with_suffix(".json"), json.dumps(about))  # last: a part without it is recorded again
    return level, begin


def _episode(
    environment: Any,
    config: DemonstrationsConfig,
    level: str,
    episode: int,
    counts: Counter[str],
    make_bot: Callable[[Any], Bot],
) -> tuple[list[Any], list[int], list[float]]:
    """An episode that the bot carried out, with the first seed that allows it."""
    reason = ""
    for attempt in range(config.attempts):
        try:
            with at_most(config.seconds):
                played = demonstrate(environment, config.seed_of(level, episode, attempt), make_bot)
        except HangingError as error:
            counts["hung"] += 1
            reason = str(error)
        except Exception as error:  # the bot asserts, indexes and recurses: whatever it is, another seed
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
    """Bytes for what is seen, and two bytes a word."""
    small = {"image": np.uint8, "direction": np.uint8, "language": np.int16}
    return {name: part.astype(small[name]) for name, part in seen.items()}


def _require_main(processes: int) -> None:
    """Raise ``ValueError`` where no time limit can be held, or where this is the script that a process begins with."""
    inside = threading.current_thread() is threading.main_thread()
    remedy = "only the main thread can end an episode that hangs: call it there, or give two or more processes"
    require(processes > 1 or inside, "processes", processes, remedy)
    begins = getattr(multiprocessing.current_process(), "_inheriting", False)
    require(not begins, "processes", processes, GUARD)


def _require_room(config: DemonstrationsConfig, level: str, instruction: str) -> None:
    """Raise ``ValueError`` unless all words of an instruction are kept."""
    number = int(np.count_nonzero(hash_words(instruction, len(instruction), config.vocabulary)))
    enough = max(number, words_of((level,)))
    remedy = (
        f"{level_id(level)} says {instruction!r}, which has {number} words: give words={enough}, to the world that is "
        f"learned in too (--words {enough}, --world.words {enough})"
    )
    require(number <= config.words, "words", config.words, remedy)


def _finished(config: DemonstrationsConfig, path: Path) -> dict[str, Any] | None:
    """What FILE.json says of a FILE.npz that is there; None where there is none.

    Raises:
        ValueError: it holds other demonstrations, or nothing says which; or FILE.json is something else.
    """
    beside, remedy = path.with_suffix(".json"), "give another file"
    about = read_json(beside, remedy) if beside.is_file() else None
    found = about.get("settings") if isinstance(about, dict) else None
    if not path.exists():
        if beside.exists() and found is None:
            raise ValueError(f"out={str(path)!r}: {beside} would be replaced, and is not of demonstrations: {remedy}")
        return None
    if not beside.is_file():
        raise ValueError(f"out={str(path)!r} exists, and no {beside.name} says what is in it: {remedy}")
    if found != _settings(config):
        raise ValueError(f"out={str(path)!r} exists, and holds other demonstrations ({found}): {remedy}")
    return about


def _settings(config: DemonstrationsConfig) -> dict[str, Any]:
    named = replace(config, levels=tuple(level_name(level) for level in config.levels))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(named).items()}


def _require_same(path: Path, settings: Mapping[str, Any]) -> None:
    remedy = "remove the folder, or give another file"
    any_part = any(path.parent.glob("*.npz"))  # what ended before the first one binds nobody
    if any_part and path.is_file() and (found := read_json(path, remedy)) != settings:
        raise ValueError(f"{path.parent} holds parts of other demonstrations ({found}): {remedy}")
    write_atomically(path, json.dumps(settings))


def _about(config: DemonstrationsConfig, folder: Path, recording: Recording) -> dict[str, Any]:
    again: dict[str, Counter[str]] = {}
    for level in config.levels:
        found = again.setdefault(level_name(level), Counter())
        for begin in range(0, config.episodes, PART):
            found.update(json.loads(_part(folder, level, begin).with_suffix(".json").read_text())["another_seed"])
    lengths = recording.lengths - 1
    return {
        "settings": _settings(config),
        "episodes": len(lengths),
        "steps": int(lengths.sum()),
        "longest": int(lengths.max()),
        "another_seed": {level: dict(counts) for level, counts in again.items()},
    }


def _part(folder: Path, level: str, begin: int) -> Path:
    return folder / f"{level_name(level)}-{begin:07d}.npz"


def _is_whole(config: DemonstrationsConfig, folder: Path, level: str, begin: int) -> bool:
    """Whether a part is there, as it was written, and is the one that its name says."""
    path = _part(folder, level, begin)
    try:
        about = read_json(path.with_suffix(".json"), "")
        return about == _named(config, level, begin) | {
            "checksum": checksum(path),
            "another_seed": {name: int(about["another_seed"][name]) for name in COUNTED},
        }
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _named(config: DemonstrationsConfig, level: str, begin: int) -> dict[str, Any]:
    return {"level": level_name(level), "first": begin, "episodes": _size(config, begin)}


def _size(config: DemonstrationsConfig, begin: int) -> int:
    return min(PART, config.episodes - begin)
