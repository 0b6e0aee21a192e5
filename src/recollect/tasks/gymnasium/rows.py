"""Batches of environments in this process, in other processes, or in a vector environment.

All follow one rule (``AutoresetMode.NEXT_STEP``): a row marked ``first`` begins a new episode and ignores its action;
all other rows take their action. The caller marks the rows whose last step ended an episode.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from recollect.lazy import gymnasium, np
from recollect.machine import LIMIT_PARTS
from recollect.tasks.gymnasium.checked_values import (
    OLD_INTERFACE,
    MemoryNeed,
    ObservationError,
    read_reset,
    read_step,
    read_vector_step,
)
from recollect.tasks.gymnasium.silence import Silence
from recollect.tasks.gymnasium.spaces import ActionWriter, Arrays, ObservationReader


class RowsStep(NamedTuple):
    """Result of a step of b rows."""

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

    @property
    def needs(self) -> list[MemoryNeed | None]:
        """What the environments said at the newest step that they must remember; None where one said nothing."""
        ...

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows; row i is seeded with ``seed + i`` (None continues its generator)."""
        ...

    def step(self, actions: np.ndarray, first: np.ndarray) -> RowsStep:
        """Advance every row."""
        ...

    def render(self, row: int) -> Any:
        """Return the picture that a row's environment draws; only where it has a render mode."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


class BrokenEnvironmentError(RuntimeError):
    """An environment raised an error, or did not answer."""


OLD_RESET = re.compile(r"\breset\(\) got an unexpected keyword argument '(seed|options)'")


Make: TypeAlias = "Callable[[], gymnasium.Env[Any, Any]]"


class LocalRows:
    """Environments in this process, stepped one after the other.

    Args:
        make: creates one environment.
        name: name of the environment, for errors.
        batch_size: number of rows.
        reader: converts observations.
        writer: converts actions.
        first_row: index of the first row, for errors.
        before_row: called with the index of a row before the row is used.
    """

    def __init__(
        self,
        make: Make,
        name: str,
        batch_size: int,
        reader: ObservationReader,
        writer: ActionWriter,
        *,
        first_row: int = 0,
        before_row: Callable[[int], None] = lambda row: None,
    ) -> None:
        self.name, self.reader, self.writer = name, reader, writer
        self.first_row, self.before_row = first_row, before_row
        self.environments = [self._call(row, "make", make) for row in range(batch_size)]
        self.needs: list[MemoryNeed | None] = [None] * batch_size

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        seeds = [None if seed is None else seed + row + self.first_row for row in range(len(self.environments))]
        found = []
        for row, one in enumerate(seeds):
            observation, self.needs[row] = self._call(row, "reset", _reset_environment, self.environments[row], one)
            found.append(observation)
        return _read_observations(self.reader, found, self.name, self.first_row)

    def step(self, actions: np.ndarray, first: np.ndarray) -> RowsStep:
        """Advance every row."""
        observations = []
        reward = np.zeros(len(first), dtype=np.float32)
        terminated, truncated = np.zeros_like(first), np.zeros_like(first)
        for row, (environment, action) in enumerate(zip(self.environments, self.writer.write(actions), strict=True)):
            if first[row]:
                observation, self.needs[row] = self._call(row, "reset", _reset_environment, environment)
            else:
                answer = self._call(row, "step", _step_environment, environment, action)
                observation, reward[row], terminated[row], truncated[row], self.needs[row] = answer
            observations.append(observation)
        read = _read_observations(self.reader, observations, self.name, self.first_row)
        return RowsStep(read, reward, terminated, truncated)

    def render(self, row: int) -> Any:
        """Return the picture that a row's environment draws."""
        return self._call(row, "render", self.environments[row].render)

    def close(self) -> None:
        """Close all environments."""
        for row, environment in enumerate(self.environments):
            self._call(row, "close", environment.close)

    def _call(self, row: int, what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.before_row(row + self.first_row)
        try:
            # MiniGrid prints a line about every layout that it rejects.
            with Silence() if what == "reset" else contextlib.nullcontext():
                return call(*args, **kwargs)
        except Exception as error:
            raise BrokenEnvironmentError(
                f"row {row + self.first_row} of {self.name} failed in {what}: {type(error).__name__}: {error}"
            ) from error


class ProcessRows:
    """Environments in other processes, each with a share of the rows.

    Args:
        make: creates one environment.
        name: name of the environment, for errors.
        batch_size: number of rows.
        reader: converts observations.
        writer: converts actions.
        processes: number of processes.
        timeout: seconds that a row may take.
    """

    def __init__(
        self,
        make: Make,
        name: str,
        batch_size: int,
        reader: ObservationReader,
        writer: ActionWriter,
        *,
        processes: int,
        timeout: float,
    ) -> None:
        self.name, self.timeout = name, timeout
        self.needs: list[MemoryNeed | None] = [None] * batch_size
        self.bounds = np.linspace(0, batch_size, min(processes, batch_size) + 1).astype(int)
        self.active_rows = multiprocessing.RawArray("q", len(self.bounds) - 1)  # the row that each process is stepping
        self.pipes, self.workers = [], []
        for number in range(len(self.bounds) - 1):
            low, high = int(self.bounds[number]), int(self.bounds[number + 1])
            self.active_rows[number] = low
            ours, theirs = multiprocessing.Pipe()
            self.pipes.append(ours)
            worker = multiprocessing.Process(
                target=_run_worker,
                args=(theirs, self.pipes, self.active_rows, number, (make, name, high - low, reader, writer), low),
                daemon=True,
            )
            worker.start()
            theirs.close()
            self.workers.append(worker)
        self._receive()  # all environments are made

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        self._send("reset", [(seed,)] * len(self.pipes))
        return _join(self._receive())

    def step(self, actions: np.ndarray, first: np.ndarray) -> RowsStep:
        """Advance every row."""
        shares = zip(self.bounds[:-1], self.bounds[1:], strict=True)
        self._send("step", [(actions[low:high], first[low:high]) for low, high in shares])
        answers = self._receive()
        numbers = (np.concatenate(part) for part in list(zip(*answers, strict=True))[1:])
        return RowsStep(_join([answer.observation for answer in answers]), *numbers)

    def render(self, row: int) -> Any:
        """Return no picture: those that draw are in this process (:meth:`GymnasiumConfig.with_rendering`)."""
        raise ValueError(f"{self.name} cannot draw row {row}: use processes=0")

    def close(self) -> None:
        """Close the environments, and kill processes that do not end."""
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
            self.active_rows[number] = int(self.bounds[number])
            with contextlib.suppress(ConnectionError):  # _receive reports a process that has ended
                pipe.send((what, value))

    def _receive(self) -> list[Any]:
        found: list[Any] = []
        for number, pipe in enumerate(self.pipes):
            answer: Any
            try:
                self._wait(number)
                good, answer = pipe.recv()
            except (EOFError, ConnectionError):
                good, answer = False, f"row {self.active_rows[number]} of {self.name} ended its process"
            except BrokenEnvironmentError:
                self._kill()
                raise
            if not good:
                self._kill()
                raise BrokenEnvironmentError(answer)
            result, needs = answer
            self.needs[self.bounds[number] : self.bounds[number + 1]] = list(needs)
            found.append(result)
        return found

    def _wait(self, number: int) -> None:
        """Wait until a process answers; each of its rows may take ``timeout``.

        In several parts: one of them ends at once where this process was stopped, and with it those that it waits for.
        """
        row, parts = self.active_rows[number], 0
        while not self.pipes[number].poll(self.timeout / LIMIT_PARTS):
            before, row = row, self.active_rows[number]
            parts = parts + 1 if row == before else 0
            if parts == LIMIT_PARTS:
                raise BrokenEnvironmentError(f"row {row} of {self.name} gave no answer for {self.timeout:g} s")

    def _kill(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.close()


class VectorRows:
    """A vector environment with any rule for the end of an episode.

    ``NEXT_STEP`` is used as it is. With another rule a vector environment cannot pause one row while others step. So a
    row that is first takes a step with its ignored action, and is then reset by a ``reset_mask``: the step is lost, and
    the episode starts at its first observation. ``SAME_STEP`` returns the first observation of the next episode instead
    of the final one, which is then taken from ``info``. An environment that does not provide the final observation, or
    resets other rows than those of the mask, is refused, because its episodes would be silently wrong.

    Args:
        environment: the vector environment.
        reader: converts observations.
        writer: converts actions.
        seed_limit: seeds are taken modulo this; None uses them unchanged.
        restart_action: action of a row that is first, where the environment does not ignore it (after a lost life);
            None where it does.
    """

    def __init__(
        self,
        environment: gymnasium.vector.VectorEnv[Any, Any, Any],
        reader: ObservationReader,
        writer: ActionWriter,
        seed_limit: int | None = None,
        restart_action: int | None = None,
    ) -> None:
        mode = environment.metadata.get("autoreset_mode")
        if not isinstance(mode, gymnasium.vector.AutoresetMode):
            raise ValueError(
                f"{environment} does not define what happens at the end of an episode: set metadata['autoreset_mode'], "
                "or use single environments (native=False)"
            )
        self.environment, self.mode, self.reader, self.writer = environment, mode, reader, writer
        self.needs: list[MemoryNeed | None] = [None] * environment.num_envs  # not read from the infos of vector forms
        self.seed_limit, self.restart_action = seed_limit, restart_action
        self.shown: Arrays | None = None  # the last observations of a DISABLED environment

    def _read(self, observations: Any) -> Arrays:
        return _read_observations(self.reader, observations, self.environment)

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        if seed is not None and self.seed_limit is not None:
            seed %= self.seed_limit
        observation = self._read(self.environment.reset(seed=seed)[0])
        return self._store_last(observation)

    def step(self, actions: np.ndarray, first: np.ndarray) -> RowsStep:
        """Advance every row."""
        if self.restart_action is not None:
            actions = np.where(first, self.restart_action, actions)
        needs_reset = self.mode is not gymnasium.vector.AutoresetMode.NEXT_STEP and bool(first.any())
        if needs_reset and self.mode is gymnasium.vector.AutoresetMode.DISABLED:
            assert self.shown is not None
            self._reset_rows(self.shown, first)
        answer = read_vector_step(self.environment.step(self.writer.write(actions)), len(first))
        observation, reward, terminated, truncated, info = answer
        observation = self._read(observation)
        if needs_reset:
            self._reset_rows(observation, first)
        if self.mode is gymnasium.vector.AutoresetMode.SAME_STEP:
            self._use_final(observation, (terminated | truncated) & ~first, info)
        if self.restart_action is not None:  # if the first step ends the game, the next would begin within an episode
            over = first & (truncated | (terminated & (info["lives"] == 0)))
            if over.any():
                self._reset_rows(observation, over)
        return RowsStep(self._store_last(observation), reward, terminated, truncated)

    def _reset_rows(self, observation: Arrays, rows: np.ndarray) -> None:
        """Reset some rows, bool ``[b]``, and replace their observations by the first ones."""
        fresh = self._read(self.environment.reset(options={"reset_mask": rows.copy()})[0])
        for before, after in zip(_parts(observation), _parts(fresh), strict=True):
            others = np.flatnonzero(~rows)
            moved = [row for row in others if not np.array_equal(before[row], after[row], equal_nan=True)]
            if moved:
                raise ValueError(
                    f"{self.environment}: reset(options={{'reset_mask': ...}}) of rows {np.flatnonzero(rows).tolist()} "
                    f"changed row {moved[0]} within its episode: it must not change other rows; or use single "
                    "environments (native=False)"
                )
        _put(observation, rows, _take(fresh, rows))

    def _use_final(self, observation: Arrays, ended: np.ndarray, info: Any) -> None:
        """Replace the observations of rows that ended, bool ``[b]``, by their final ones."""
        rows = np.flatnonzero(ended)
        if not len(rows):
            return
        has_final = np.asarray(info.get("_final_obs", ended)) if "final_obs" in info else np.zeros_like(ended)
        if not has_final[rows].all():
            raise ValueError(
                f"{self.environment} has autoreset_mode SAME_STEP and ended row {rows[~has_final[rows]][0]} without "
                f"info['final_obs'] (info has {', '.join(map(str, info)) or 'nothing'}): put the final observation "
                "there, or use single environments (native=False)"
            )
        _put(observation, rows, self._read([info["final_obs"][row] for row in rows]))

    def _store_last(self, observation: Arrays) -> Arrays:
        if self.mode is gymnasium.vector.AutoresetMode.DISABLED:
            self.shown = copy.deepcopy(observation)
        return observation

    def render(self, row: int) -> Any:
        """Return no picture: those that draw are single (:meth:`GymnasiumConfig.with_rendering`)."""
        raise ValueError(f"{self.environment} cannot draw row {row}: use native=False")

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def _read_observations(reader: ObservationReader, observations: Any, name: Any, first_row: int = 0) -> Arrays:
    """Read the observations of rows from ``first_row`` on; an error names the row and the environment."""
    try:
        return reader.read(observations)
    except ObservationError as error:
        row = error.row + first_row
        raise BrokenEnvironmentError(f"row {row} of {name} returned a wrong observation: {error}") from error


def _reset_environment(environment: gymnasium.Env[Any, Any], seed: int | None = None) -> Any:
    try:
        return read_reset(environment.reset(seed=seed))
    except TypeError as error:
        if OLD_RESET.search(str(error)):
            raise TypeError(f"{error}: {OLD_INTERFACE}") from error
        raise


def _step_environment(
    environment: gymnasium.Env[Any, Any], action: Any
) -> tuple[Any, float, bool, bool, MemoryNeed | None]:
    return read_step(environment.step(action))


def _run_worker(
    pipe: Any, others: Sequence[Any], active_rows: Any, number: int, arguments: tuple[Any, ...], low: int
) -> None:
    """Run a process of :class:`ProcessRows`: create its rows, and answer until it is closed."""
    for other in others:  # inherited ends of pipes: while they are open here, the end of a process goes unnoticed
        other.close()
    try:
        rows = LocalRows(*arguments, first_row=low, before_row=lambda row: active_rows.__setitem__(number, row))
        pipe.send((True, (None, rows.needs)))
        while True:
            what, values = pipe.recv()
            answer = getattr(rows, what)(*values)
            if what == "close":
                return
            pipe.send((True, (answer, rows.needs)))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
    except BrokenEnvironmentError as error:
        place = "".join(traceback.format_exception(error.__cause__)[-2:])
        pipe.send((False, f"{error}\n{place}".rstrip()))
    except Exception as error:  # not caused by a single row
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
