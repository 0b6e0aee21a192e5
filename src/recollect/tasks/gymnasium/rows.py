"""Where the rows of somebody else's environment live: in this process, in others, or in a vector environment.

All of them answer by one rule (``AutoresetMode.NEXT_STEP``): a row that is told ``first`` begins a new episode, its
action is ignored; all other rows take their action. Whoever calls says which rows are first, namely those whose
last answer ended an episode.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
from gymnasium.vector import AutoresetMode

from recollect.lazy import np
from recollect.tasks.gymnasium.silence import Silence
from recollect.tasks.gymnasium.spaces import Arrays, Reader, Writer


class Answer(NamedTuple):
    """What b rows answer to a step."""

    observation: Arrays
    """Observations of all rows."""
    reward: np.ndarray
    """float32 ``[b]``; anything in rows that are first."""
    terminated: np.ndarray
    """bool ``[b]``; anything in rows that are first."""
    truncated: np.ndarray
    """bool ``[b]``; anything in rows that are first."""


class Rows(Protocol):
    """b rows of an environment."""

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows; row i is seeded with ``seed + i`` (None: goes on with its randomness)."""
        ...

    def step(self, actions: np.ndarray, first: np.ndarray) -> Answer:
        """One step of every row."""
        ...

    def close(self) -> None:
        """Let go of the environments."""
        ...


class BrokenEnvironmentError(RuntimeError):
    """An environment raised, or did not answer."""


Make = Callable[[], gymnasium.Env[Any, Any]]


class LocalRows:
    """Environments in this process, one after the other.

    Args:
        make: makes one environment.
        name: of the environment, for errors.
        batch_size: how many rows.
        reader: of observations.
        writer: of actions.
        first_row: number of the first row, for errors.
        notice: called with the number of a row before the row is asked.
    """

    def __init__(
        self,
        make: Make,
        name: str,
        batch_size: int,
        reader: Reader,
        writer: Writer,
        *,
        first_row: int = 0,
        notice: Callable[[int], None] = lambda row: None,
    ) -> None:
        self.name, self.reader, self.writer = name, reader, writer
        self.first_row, self.notice = first_row, notice
        self.environments = [self._ask(row, "make", make) for row in range(batch_size)]

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        seeds = [None if seed is None else seed + row + self.first_row for row in range(len(self.environments))]
        return self.reader.read(
            [self._ask(row, "reset", _begin, self.environments[row], seed) for row, seed in enumerate(seeds)]
        )

    def step(self, actions: np.ndarray, first: np.ndarray) -> Answer:
        """One step of every row."""
        observations = []
        reward = np.zeros(len(first), dtype=np.float32)
        terminated, truncated = np.zeros_like(first), np.zeros_like(first)
        for row, (environment, action) in enumerate(zip(self.environments, self.writer.write(actions), strict=True)):
            if first[row]:
                observation = self._ask(row, "reset", _begin, environment)
            else:
                answer = self._ask(row, "step", _step, environment, action)
                observation, reward[row], terminated[row], truncated[row] = answer
            observations.append(observation)
        return Answer(self.reader.read(observations), reward, terminated, truncated)

    def close(self) -> None:
        """Close all environments."""
        for row, environment in enumerate(self.environments):
            self._ask(row, "close", environment.close)

    def _ask(self, row: int, what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.notice(row + self.first_row)
        try:
            # MiniGrid tells the terminal about every layout that it rejects.
            with Silence() if what == "reset" else contextlib.nullcontext():
                return call(*args, **kwargs)
        except Exception as error:
            raise BrokenEnvironmentError(
                f"row {row + self.first_row} of {self.name} failed in {what}: {type(error).__name__}: {error}"
            ) from error


class ProcessRows:
    """Environments in other processes, each with its share of the rows.

    Args:
        make: makes one environment.
        name: of the environment, for errors.
        batch_size: how many rows.
        reader: of observations.
        writer: of actions.
        processes: how many.
        timeout: seconds that a row may take; after that it is not waited for any more.
    """

    def __init__(
        self,
        make: Make,
        name: str,
        batch_size: int,
        reader: Reader,
        writer: Writer,
        *,
        processes: int,
        timeout: float,
    ) -> None:
        self.name, self.timeout = name, timeout
        self.bounds = np.linspace(0, batch_size, min(processes, batch_size) + 1).astype(int)
        self.asked = multiprocessing.RawArray("q", len(self.bounds) - 1)  # which row a process asks now
        self.pipes, self.workers = [], []
        for number in range(len(self.bounds) - 1):
            low, high = int(self.bounds[number]), int(self.bounds[number + 1])
            self.asked[number] = low
            ours, theirs = multiprocessing.Pipe()
            self.pipes.append(ours)
            worker = multiprocessing.Process(
                target=_serve,
                args=(theirs, self.pipes, self.asked, number, (make, name, high - low, reader, writer), low),
                daemon=True,
            )
            worker.start()
            theirs.close()
            self.workers.append(worker)
        self._collect()  # all environments are made

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        self._send("reset", [(seed,)] * len(self.pipes))
        return _join(self._collect())

    def step(self, actions: np.ndarray, first: np.ndarray) -> Answer:
        """One step of every row."""
        shares = zip(self.bounds[:-1], self.bounds[1:], strict=True)
        self._send("step", [(actions[low:high], first[low:high]) for low, high in shares])
        answers = self._collect()
        numbers = (np.concatenate(part) for part in list(zip(*answers, strict=True))[1:])
        return Answer(_join([answer.observation for answer in answers]), *numbers)

    def close(self) -> None:
        """Close the environments and end the processes, the willing and the others."""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(("close", ()))
        for worker in self.workers:
            worker.join(timeout=1)
            if worker.is_alive():
                worker.kill()
                worker.join()
        for pipe in self.pipes:
            pipe.close()
        self.pipes, self.workers = [], []

    def _send(self, what: str, values: Sequence[tuple[Any, ...]]) -> None:
        for number, (pipe, value) in enumerate(zip(self.pipes, values, strict=True)):
            self.asked[number] = int(self.bounds[number])
            with contextlib.suppress(ConnectionError):  # a process that is gone has no answer either, and is named then
                pipe.send((what, value))

    def _collect(self) -> list[Any]:
        found = []
        for number, pipe in enumerate(self.pipes):
            try:
                self._wait(number)
                good, answer = pipe.recv()
            except (EOFError, ConnectionError):
                good, answer = False, f"row {self.asked[number]} of {self.name} took its process down"
            except BrokenEnvironmentError:
                self._kill()
                raise
            if not good:
                self._kill()
                raise BrokenEnvironmentError(answer)
            found.append(answer)
        return found

    def _wait(self, number: int) -> None:
        """Until a process answers: each of its rows may take ``timeout``."""
        while True:
            row = self.asked[number]
            if self.pipes[number].poll(self.timeout):
                return
            if self.asked[number] == row:
                raise BrokenEnvironmentError(f"row {row} of {self.name} gave no answer for {self.timeout:g} s")

    def _kill(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.close()


class VectorRows:
    """A vector environment with any rule of its own for the end of an episode.

    With ``NEXT_STEP`` nothing is to be done. A vector environment with another rule cannot let one row rest while
    the others step, so a row that is first steps on with its ignored action, and is then reset by a ``reset_mask``:
    the step is lost, the episode that is shown begins at its beginning. ``SAME_STEP`` shows the first observation of
    the next episode in place of the final one, which is then taken from ``info``. An environment that keeps the final
    observation to itself, or resets other rows than the mask names, is refused: its episodes would be wrong unseen.

    Args:
        environment: the vector environment.
        reader: of observations.
        writer: of actions.
        seed_limit: seeds are taken modulo this; None takes them as they are.
        rest: action of a row that is first, where the environment does not ignore it (after a lost life); None where
            it does.
    """

    def __init__(
        self,
        environment: gymnasium.vector.VectorEnv[Any, Any, Any],
        reader: Reader,
        writer: Writer,
        seed_limit: int | None = None,
        rest: int | None = None,
    ) -> None:
        mode = environment.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ValueError(
                f"{environment} does not say what it does at the end of an episode: set metadata['autoreset_mode'], "
                "or use single environments (native=False)"
            )
        self.environment, self.mode, self.reader, self.writer = environment, mode, reader, writer
        self.seed_limit, self.rest = seed_limit, rest
        self.shown: Arrays | None = None  # the last observations of a DISABLED environment

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        if seed is not None and self.seed_limit is not None:
            seed %= self.seed_limit
        observation = self.reader.read(self.environment.reset(seed=seed)[0])
        return self._remembered(observation)

    def step(self, actions: np.ndarray, first: np.ndarray) -> Answer:
        """One step of every row."""
        if self.rest is not None:
            actions = np.where(first, self.rest, actions)
        anew = self.mode is not AutoresetMode.NEXT_STEP and bool(first.any())
        if anew and self.mode is AutoresetMode.DISABLED:  # it refuses to step an episode that is over
            assert self.shown is not None
            self._begin_anew(self.shown, first)
        answer = self.environment.step(self.writer.write(actions))
        observation, reward, terminated, truncated, info = answer
        observation = self.reader.read(observation)
        terminated, truncated = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        if anew:
            self._begin_anew(observation, first)
        if self.mode is AutoresetMode.SAME_STEP:
            self._show_final(observation, (terminated | truncated) & ~first, info)
        if self.rest is not None:  # a game that is over with its first step would begin in the middle of an episode
            over = first & (truncated | (terminated & (info["lives"] == 0)))
            if over.any():
                self._begin_anew(observation, over)
        return Answer(self._remembered(observation), np.array(reward, dtype=np.float32), terminated, truncated)

    def _begin_anew(self, observation: Arrays, rows: np.ndarray) -> None:
        """Reset some rows, bool ``[b]``, and show their first observations in the place of what they showed."""
        fresh = self.reader.read(self.environment.reset(options={"reset_mask": rows.copy()})[0])
        for before, after in zip(_parts(observation), _parts(fresh), strict=True):
            others = np.flatnonzero(~rows)
            moved = [row for row in others if not np.array_equal(before[row], after[row], equal_nan=True)]
            if moved:
                raise ValueError(
                    f"{self.environment}: reset(options={{'reset_mask': ...}}) of rows {np.flatnonzero(rows).tolist()} "
                    f"changed row {moved[0]} in the middle of its episode: it has to leave the other rows as they are, "
                    "or use single environments (native=False)"
                )
        _put(observation, rows, _take(fresh, rows))

    def _show_final(self, observation: Arrays, ended: np.ndarray, info: Any) -> None:
        """Show what rows that ended, bool ``[b]``, saw last in the place of their next first observation."""
        rows = np.flatnonzero(ended)
        if not len(rows):
            return
        told = np.asarray(info.get("_final_obs", ended)) if "final_obs" in info else np.zeros_like(ended)
        if not told[rows].all():
            raise ValueError(
                f"{self.environment} has autoreset_mode SAME_STEP and ended row {rows[~told[rows]][0]} without "
                f"info['final_obs'] (info has {', '.join(map(str, info)) or 'nothing'}): put the final observation "
                "there, or use single environments (native=False)"
            )
        _put(observation, rows, self.reader.read([info["final_obs"][row] for row in rows]))

    def _remembered(self, observation: Arrays) -> Arrays:
        if self.mode is AutoresetMode.DISABLED:
            self.shown = copy.deepcopy(observation)
        return observation

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def _begin(environment: gymnasium.Env[Any, Any], seed: int | None = None) -> Any:
    observation, _ = environment.reset(seed=seed)
    return observation


def _step(environment: gymnasium.Env[Any, Any], action: Any) -> tuple[Any, float, bool, bool]:
    """What it answers, as what it should be: an answer of another form is an error of this environment."""
    observation, reward, terminated, truncated, _ = environment.step(action)
    return observation, float(reward), bool(terminated), bool(truncated)


def _serve(pipe: Any, others: Sequence[Any], asked: Any, number: int, arguments: tuple[Any, ...], low: int) -> None:
    """What a process of :class:`ProcessRows` does: make its rows, then answer until it is told to close."""
    for other in others:  # the far ends that came along: as long as they are open here, nobody's death is noticed
        other.close()
    try:
        rows = LocalRows(*arguments, first_row=low, notice=lambda row: asked.__setitem__(number, row))
        pipe.send((True, None))
        while True:
            what, values = pipe.recv()
            answer = getattr(rows, what)(*values)
            if what == "close":
                return
            pipe.send((True, answer))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
    except BrokenEnvironmentError as error:
        place = "".join(traceback.format_exception(error.__cause__)[-2:])
        pipe.send((False, f"{error}\n{place}".rstrip()))
    except Exception as error:  # what no single row can be blamed for, such as observations of different shapes
        pipe.send((False, f"rows of {arguments[1]} from {low} on: {type(error).__name__}: {error}"))


def _join(parts: Sequence[Arrays]) -> Arrays:
    first = parts[0]
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}  # type: ignore[index]
    return np.concatenate(list(parts))  # type: ignore[arg-type]


def _parts(arrays: Arrays) -> list[np.ndarray]:
    return list(arrays.values()) if isinstance(arrays, dict) else [arrays]


def _put(arrays: Arrays, rows: np.ndarray, new: Arrays) -> None:
    if isinstance(arrays, dict):
        for name, array in arrays.items():
            array[rows] = new[name]  # type: ignore[index]
    else:
        arrays[rows] = new


def _take(arrays: Arrays, rows: np.ndarray) -> Arrays:
    return {name: array[rows] for name, array in arrays.items()} if isinstance(arrays, dict) else arrays[rows]
