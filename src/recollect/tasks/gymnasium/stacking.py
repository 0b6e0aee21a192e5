"""Stacks of the latest observations, for agents that need several frames to see movement.

    vectors     [k]                 the last n, concatenated: [n k]
    images      [y, x]              a new axis in front: [n, y, x]
                [y, x, c], [c, y, x]   concatenated along the channels: [y, x, n c], [n c, y, x]

Oldest first. At the first step of an episode there are n copies of the first observation. In a Dict all Boxes are
stacked, and other parts are unchanged.
"""

from __future__ import annotations

from typing import Any

from recollect.lazy import gymnasium, np, spaces
from recollect.tasks.gymnasium.checked_values import MemoryNeed
from recollect.tasks.gymnasium.rows import Rows, RowsStep
from recollect.tasks.gymnasium.spaces import Arrays


def stacked_space(space: gymnasium.Space[Any], count: int) -> gymnasium.Space[Any]:
    """Return the space of stacked observations.

    Raises:
        ValueError: there is no Box to stack.
    """
    if isinstance(space, spaces.Box):
        low, high = (_join([bound[None]] * count, space)[0] for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, spaces.Dict) and (boxes := _boxes(space)):
        return spaces.Dict(
            {name: stacked_space(part, count) if name in boxes else part for name, part in space.items()}
        )
    raise ValueError(f"stack={count}: only Boxes can be stacked, and the observation is {space}: use stack=1")


class StackedRows:
    """Rows that return a stack of their latest observations.

    Args:
        rows: the rows.
        space: space of one observation.
        count: observations per stack.
    """

    def __init__(self, rows: Rows, space: gymnasium.Space[Any], count: int) -> None:
        self.rows, self.space, self.count = rows, space, count
        self.latest: dict[str, list[np.ndarray]] = {}

    @property
    def needs(self) -> list[MemoryNeed | None]:
        """Memory needs that the environments named in the last step."""
        return self.rows.needs

    def render(self, row: int) -> Any:
        """Return the picture that a row's environment draws, not a stack."""
        return self.rows.render(row)

    def reset(self, seed: int | None) -> Arrays:
        """Begin new episodes in all rows."""
        observation = self.rows.reset(seed)
        self.latest = {name: [part] * self.count for name, part in self._parts(observation).items()}
        return self._shown(observation)

    def step(self, actions: np.ndarray, first: np.ndarray) -> RowsStep:
        """Advance every row."""
        answer = self.rows.step(actions, first)
        for name, newest in self._parts(answer.observation).items():
            anew = first.reshape(-1, *[1] * (newest.ndim - 1))
            older = self.latest[name][1:]
            self.latest[name] = [np.where(anew, newest, part) if first.any() else part for part in older] + [newest]
        return answer._replace(observation=self._shown(answer.observation))

    def close(self) -> None:
        """Close the environments."""
        self.rows.close()

    def _parts(self, observation: Arrays) -> dict[str, np.ndarray]:
        if isinstance(self.space, spaces.Dict):
            return {name: observation[name] for name in _boxes(self.space)}  # type: ignore[index]
        return {"": observation}  # type: ignore[dict-item]

    def _shown(self, observation: Arrays) -> Arrays:
        if isinstance(self.space, spaces.Dict):
            shown = {name: _join(parts, self.space[name]) for name, parts in self.latest.items()}
            return {**observation, **shown}  # type: ignore[dict-item]
        return _join(self.latest[""], self.space)


def _boxes(space: spaces.Dict) -> list[str]:
    return [name for name, part in space.items() if isinstance(part, spaces.Box) and name != "action_mask"]


def _join(parts: list[np.ndarray], space: gymnasium.Space[Any]) -> np.ndarray:
    """Combine observations ``[b, ...]``, oldest first."""
    shape = space.shape or ()
    if len(shape) == 3:
        return np.concatenate(parts, 1 if shape[0] < shape[2] else 3)
    return np.concatenate(parts, 1) if len(shape) == 1 else np.stack(parts, 1)
