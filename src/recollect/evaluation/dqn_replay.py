"""Reader of the DQN replay dataset: a DQN agent's 200 million frames of an Atari game, as gzipped NumPy arrays.

    FOLDER/$store$_observation_ckpt.N.gz   uint8  [n, 84, 84]   one frame a step
    FOLDER/$store$_action_ckpt.N.gz        int    [n]           action at this step
    FOLDER/$store$_reward_ckpt.N.gz        float  [n]           reward of that action
    FOLDER/$store$_terminal_ckpt.N.gz      uint8  [n]           1 where it ended the game

There are 50 buffers N = 0 ... 49 of a million steps each. As in Decision Transformer, buffers are visited in random
order, each visit reads the next ten trajectories of a buffer, and only the first 100 000 steps of a buffer are used.
Actions, rewards and terminals are decompressed to their end, where the checksum is. Observations are gigabytes, and
only the needed part is decompressed: later damage is not noticed.

Sources: Agarwal et al. (2020), An optimistic perspective on offline reinforcement learning; Chen et al. (2021),
Decision Transformer, create_dataset.py of the authors' code.

Differs: the frame after the last action is not in the files; the last frame is repeated for it. Frames are stacked by
the caller, with zeros before a game's first.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from recollect.config import require
from recollect.evaluation.recordings import Recording

USED = 100_000  # used steps of a buffer
VISIT = 10  # trajectories of a visit
KINDS = {"observation": ("u", 3), "action": ("iu", 1), "reward": ("f", 1), "terminal": ("ub", 1)}
"""NumPy's kinds of numbers and number of axes of each file; published are uint8, int32, float32 and uint8."""
ACTIONS = 18  # most actions of an Atari game
AT_ONCE = 1 << 24  # bytes decompressed per read


def read_dqn_replay(
    folder: str | PathLike[str], transitions: int = 500_000, *, seed: int = 0, visit: int = VISIT, used: int = USED
) -> Recording:
    """Read whole trajectories of a replay, drawn from its buffers, with single frames as observations.

    Args:
        folder: with the files, such as ``dqn/Pong/1/replay_logs``.
        transitions: fewest steps; the last trajectory is read whole.
        seed: of the visits.
        visit: trajectories per visit.
        used: first steps of a buffer that are used.

    Raises:
        ValueError: a file is missing, empty, cut short, damaged or of another kind (names the place), or all buffers
            together have too few trajectories.
    """
    require(transitions >= 1, "transitions", transitions, "read at least one step")
    require(visit >= 1, "visit", visit, "read at least one trajectory of a buffer")
    base = Path(folder)
    buffers = _buffers(base)
    ends = {number: _ends(base, number, used) for number in buffers}
    chosen = _visits(ends, transitions, seed, visit)
    parts = [_buffer(base, number, chosen[number]) for number in buffers if number in chosen]
    shapes = {part[0].shape[1:] for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"{base}: its buffers have frames of {' and '.join(map(str, sorted(shapes)))}: not of one game?"
        )
    observation, action, reward, lengths = (np.concatenate([part[i] for part in parts]) for i in range(4))
    ends_at = lengths.cumsum()
    scores = [float(one.sum()) for one in np.split(reward, ends_at[:-1])]
    return Recording(
        observation={"": observation},
        action=action,
        reward=reward,
        lengths=lengths,
        terminated=np.ones(len(lengths), bool),
        score=np.array(scores, np.float32),
        action_space=None,
    )


def read_array(path: str | PathLike[str], kinds: str, axes: int, rows: int | None = None) -> np.ndarray:
    """Read the first rows of a gzipped NumPy array; all of them where ``rows`` is None.

    An array of one axis is always decompressed to its end, where the checksum is.

    Raises:
        ValueError: missing, empty, cut short, damaged, not NumPy's format, or numbers of another kind.
    """
    with _opened(path, kinds, axes) as (file, shape, kind):
        count = shape[0] if rows is None else min(rows, shape[0])
        require(count > 0, "rows", count, f"{path} has none")
        size = kind.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        data = _read(file, size * count, size, path)
        if count == shape[0] or axes == 1:
            _read_end(file, size * (shape[0] - count), path)
        return np.frombuffer(data, kind).reshape(count, *shape[1:])


@contextmanager
def _opened(
    path: str | PathLike[str], kinds: str, axes: int
) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]]:
    """Open a gzipped array after its header, with its shape and dtype; errors name the file."""
    try:
        with gzip.open(path) as file:
            shape, order, kind = _header(file, path)  # type: ignore[arg-type]
            if kind.kind not in kinds or len(shape) != axes or order or min(shape) < 0:
                raise ValueError(
                    f"{path}: holds {kind} {list(shape)}{' by columns' if order else ''}; expected are numbers of "
                    f"kind {' or '.join(kinds)} with {axes} {'axis' if axes == 1 else 'axes'}: is it another file "
                    "under this name?"
                )
            yield file, shape, kind  # type: ignore[misc]
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file: a buffer has four, see docs/imitation.md") from None
    except gzip.BadGzipFile as error:
        raise ValueError(f"{path}: is not gzip ({error}): download it again") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}): is it a file, and may you read it?") from None


def _header(file: IO[bytes], path: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(file)
    except gzip.BadGzipFile:
        raise
    except Exception as error:  # NumPy parses a header as Python text, and raises anything for a damaged one
        raise ValueError(
            f"{path}: no NumPy array begins at byte 0 ({error}): empty, cut short or another file"
        ) from None


def _read(file: IO[bytes], size: int, row: int, path: Any) -> bytes:
    parts, there = [], 0
    try:
        while there < size:
            part = file.read(min(AT_ONCE, size - there))
            if not part:
                raise EOFError("the file ends")
            parts.append(part)
            there += len(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path}: {error} in row {there // row} of {size // row} needed rows (byte {there} after the header): "
            "cut short or damaged, download it again"
        ) from None
    return b"".join(parts)


def _read_end(file: IO[bytes], size: int, path: Any) -> None:
    """Check that so many bytes follow, and their checksum."""
    try:
        while part := file.read(AT_ONCE):
            size -= len(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: {error} after the needed rows: cut short or damaged, download it again") from None
    if size:
        amount = "less" if size > 0 else "more"
        raise ValueError(f"{path}: there is {amount} in it than its header says: damaged, download it again")


def _buffers(base: Path) -> list[int]:
    found = [re.fullmatch(r"\$store\$_observation_ckpt\.(\d+)\.gz", path.name) for path in base.glob("*.gz")]
    buffers = sorted(int(name[1]) for name in found if name)
    if not buffers:
        raise ValueError(
            f"{base}: there is no $store$_observation_ckpt.N.gz in it: give the folder replay_logs of a game "
            "(docs/imitation.md says how to get it)"
        )
    return buffers


def _path(base: Path, part: str, number: int) -> Path:
    return base / f"$store$_{part}_ckpt.{number}.gz"


def _ends(base: Path, number: int, used: int) -> np.ndarray:
    """Return the positions in a buffer at which trajectories end."""
    path = _path(base, "terminal", number)
    terminal = read_array(path, *KINDS["terminal"], used)
    wrong = np.flatnonzero((terminal != 0) & (terminal != 1))
    if len(wrong):
        raise ValueError(f"{path}: row {wrong[0]} is {terminal[wrong[0]]}; 0 or 1 marks the end of a game")
    return np.flatnonzero(terminal)


def _visits(
    ends: dict[int, np.ndarray], transitions: int, seed: int, visit: int
) -> dict[int, Sequence[tuple[int, int]]]:
    """Choose the first and last steps of the trajectories to read, by buffer."""
    draw = np.random.default_rng(seed % 2**32)  # a run may have the seed -5000
    chosen: dict[int, list[tuple[int, int]]] = {}
    missing = transitions
    while missing > 0:
        left = [number for number, found in ends.items() if len(chosen.get(number, ())) < len(found)]
        if not left:
            have = transitions - missing
            raise ValueError(f"transitions={transitions}: the buffers have {have} in whole trajectories; ask for fewer")
        number = int(draw.choice(left))
        mine = chosen.setdefault(number, [])
        for last in ends[number][len(mine) : len(mine) + visit].tolist():
            first = mine[-1][1] + 1 if mine else 0
            mine.append((first, last))
            missing -= last - first + 1
            if missing <= 0:
                break
    return chosen  # type: ignore[return-value]


def _require_one_buffer(base: Path, number: int) -> None:
    """Raise ``ValueError`` unless the four files of a buffer have equally many rows."""
    rows = {}
    for part, kind in KINDS.items():
        with _opened(_path(base, part, number), *kind) as (_, shape, _):
            rows[part] = shape[0]
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{part} {count}" for part, count in rows.items())
        raise ValueError(
            f"{base}: the files of buffer {number} have other numbers of rows ({found}): not of one buffer?"
        )


def _require_actions(action: np.ndarray, terminal: np.ndarray, path: Path) -> None:
    """Raise ``ValueError`` where actions are out of range, or equal the terminals."""
    wrong = np.flatnonzero((action < 0) | (action >= ACTIONS))
    if len(wrong):
        raise ValueError(f"{path}: row {wrong[0]} is {action[wrong[0]]}; Atari's actions are 0 to {ACTIONS - 1}")
    if np.array_equal(action, terminal):
        raise ValueError(f"{path}: its rows are those of the terminals: is it another file under this name?")


def _buffer(base: Path, number: int, trajectories: Sequence[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    """Read observations, actions, rewards and lengths of a buffer's first trajectories, with final observations."""
    _require_one_buffer(base, number)
    steps = trajectories[-1][1] + 1
    arrays = {part: read_array(_path(base, part, number), *kind, steps) for part, kind in KINDS.items()}
    _require_actions(arrays["action"], arrays["terminal"], _path(base, "action", number))
    reward = arrays["reward"].astype(np.float32)
    if not np.isfinite(reward).all():
        at = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise ValueError(f"{_path(base, 'reward', number)}: row {at} is {reward[at]}, no reward")
    lasts = np.array([last for _, last in trajectories])
    lengths = np.diff(lasts, prepend=-1) + 1
    final = lengths.cumsum() - 1  # positions of final observations
    where = np.insert(np.arange(steps), lasts + 1, lasts)
    action = arrays["action"].astype(np.int64)[where]
    action[final] = 0
    earned = np.insert(reward, lasts + 1, 0.0)
    received = np.concatenate(([np.float32(0)], earned[:-1]))
    return arrays["observation"][where], action, received.astype(np.float32), lengths
