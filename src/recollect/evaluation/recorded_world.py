"""Recorded episodes in place of a world: their spaces are read from them, and held-out episodes score an agent.

recollect train recording:episodes.npz --core gru

part of the recording   spaces of the agent
floats                  Box without bounds
bytes [y, x, channels]  an image: Box of bytes
other whole numbers     Discrete or MultiDiscrete, as many values as the recording has
action                  as in the file's ``action_space``; else whole numbers as above, floats a Box within their range
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from recollect.agents.spaces import nest_parts
from recollect.config import require, require_one_of
from recollect.evaluation.recorded_parts import require_finite
from recollect.lazy import gymnasium, np
from recollect.tasks.worlds.contract import WorldConfig, WorldSpec

if TYPE_CHECKING:
    from recollect.evaluation.recordings import Recording

PREFIX = "recording:"
"""Beginning of the names of such tasks: ``recording:FILE.npz``."""


@dataclass(frozen=True, kw_only=True)
class RecordingConfig(WorldConfig):
    """Recorded episodes, which are imitated without a world."""

    path: str
    """FILE.npz, minari:DATASET or lerobot:FOLDER."""
    part: Literal["train", "validation", "test"] = "test"
    """Episodes that score an agent; ``validation`` while it trains."""
    validation: float = 0.1
    """Share of the episodes that evaluations during a run use, which choose its best checkpoint."""
    test: float = 0.1
    """Share of the episodes that score a finished run."""
    split_seed: int = 0
    """Seed of the split."""

    def __post_init__(self) -> None:
        require_one_of(self, "part")
        for name in ("validation", "test"):
            require(0 < getattr(self, name) < 1, name, getattr(self, name), "give a share between 0 and 1")
        held_out = self.validation + self.test
        require(held_out < 1, "validation + test", held_out, "leave some episodes to train")
        require(self.split_seed >= 0, "split_seed", self.split_seed, "give a seed of 0 or more")

    @property
    def title(self) -> str:
        """The name of the recording."""
        return Path(self.path).stem if self.path.endswith(".npz") else self.path

    @property
    def spec(self) -> WorldSpec:
        """Spaces of the recording; the chance is that of the most frequent action in the training part."""
        return _spec(self, self._changed)

    @property
    def recording(self) -> Recording:
        """All episodes of the file, read once."""
        return _read(self.path, self._changed)

    @property
    def _changed(self) -> float:
        """Time of the file's newest change; 0 where it is no file."""
        file = Path(self.path.removeprefix("lerobot:"))
        return file.stat().st_mtime if file.exists() else 0.0

    def numbers(self, part: str) -> np.ndarray:
        """Return the numbers of a part's episodes in the recording, long ``[e]``.

        Raises:
            ValueError: there are too few to split.
        """
        count = len(self.recording.lengths)
        sizes = [max(round(share * count), 1) for share in (self.validation, self.test)]
        remedy = (
            f"{self.path}: {sum(sizes)} are held out, and none is left to train: give at least 3, or smaller shares"
        )
        require(sum(sizes) < count, "episodes", count, remedy)
        order = np.random.default_rng(self.split_seed).permutation(count)
        cuts = {"validation": order[: sizes[0]], "test": order[sizes[0] : sum(sizes)], "train": order[sum(sizes) :]}
        return np.sort(cuts[part])

    def episodes(self, part: str) -> Recording:
        """Return the episodes of a part."""
        return self.recording.select(self.numbers(part))

    def build(self, batch_size: int, *, seed: int = 0, device: Any = "cpu") -> NoReturn:
        """Raise ``ValueError``: nothing can be played."""
        raise ValueError(
            f"world={PREFIX}{self.path}: a recording has no world to act in: name one where agents act (--env WORLD in "
            "recollect explore), or train on gym:ID --trainer cloning --teacher FILE to be scored there"
        )


@lru_cache(maxsize=2)
def _read(path: str, changed: float) -> Recording:
    from recollect.evaluation.recordings import read_recording

    recording = read_recording(path)
    recording.require_steps(path)  # before spaces are made of them
    spec = WorldSpec(
        observation_space=_observation_space(recording, path),
        action_space=_action_space(recording, path),
        max_steps=0,
        memory_span=0,
        chance=float("nan"),
        oracle=float("nan"),
    )
    recording.require(spec, path)
    return recording


@lru_cache(maxsize=8)
def _spec(config: RecordingConfig, changed: float) -> WorldSpec:
    recording = config.recording
    all_taken = recording.taken_actions()
    if (all_taken == all_taken[0]).all():
        raise ValueError(f"{config.path}: every action is {all_taken[0]}: there is nothing to learn; give two or more")
    observation, action = _observation_space(recording, config.path), _action_space(recording, config.path)
    chance = 0.0
    if action.dtype != np.float32:
        taken = config.episodes("train").taken_actions()
        chance = float(np.unique(taken, axis=0, return_counts=True)[1].max() / len(taken))
    return WorldSpec(
        observation_space=observation,
        action_space=action,
        max_steps=int(recording.lengths.max()),
        memory_span=0,
        chance=chance,
        oracle=1.0,
        words=recording.words,
    )


def action_scale(recording: Recording) -> np.ndarray:
    """Return the standard deviation of every number of an action, 1 where it is constant."""
    std = recording.taken_actions().reshape(len(recording.taken_actions()), -1).std(0, dtype=np.float64)
    return np.where(std > 0, std, 1.0)


def _observation_space(recording: Recording, path: str) -> gymnasium.Space[Any]:
    found = {
        name: _space(leaf, f"{path}: observation{f'.{name}' if name else ''}")
        for name, leaf in recording.observation.items()
    }
    return found[""] if "" in found else _dict_space(nest_parts(found, "."))


def _dict_space(parts: dict[str, Any]) -> gymnasium.Space[Any]:
    return gymnasium.spaces.Dict(
        {name: _dict_space(part) if isinstance(part, dict) else part for name, part in parts.items()}
    )


def _space(values: np.ndarray, what: str) -> gymnasium.Space[Any]:
    shape = values.shape[1:]
    if values.dtype.kind == "f":
        require(len(shape) > 0, "shape", list(values.shape), f"{what}: give numbers [steps, width]")
        return gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
    if values.dtype == np.uint8 and len(shape) == 3:
        return gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return _whole_space(values, what)


def _whole_space(values: np.ndarray, what: str) -> gymnasium.Space[Any]:
    lowest = int(values.min()) if values.size else 0
    require(lowest >= 0, "smallest value", lowest, f"{what}: whole numbers are categories from 0 on; else give floats")
    most = np.asarray(values.max(0, initial=0)).astype(np.int64) + 1
    return gymnasium.spaces.MultiDiscrete(most) if most.ndim else gymnasium.spaces.Discrete(int(most))


def _action_space(recording: Recording, path: str) -> gymnasium.Space[Any]:
    if recording.action_space is not None:
        return recording.action_space
    taken = recording.taken_actions()
    require_finite("action", taken, recording.lengths - 1, path)
    if taken.dtype.kind != "f":
        return _whole_space(taken, f"{path}: action")
    require(taken.ndim > 1, "action", str(list(recording.action.shape)), f"{path}: give floats [steps, width]")
    return gymnasium.spaces.Box(taken.min(0), taken.max(0), dtype=np.float32)
