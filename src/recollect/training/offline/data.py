"""Contexts of recorded episodes: the training data of a Decision Transformer.

    episode            0 1 2 3 4 5 6 7 8 9 |          a step is drawn, uniformly over all episodes; the context begins
    context of C = 4         3 4 5 6                  there, or sooner if it would not end within the episode
    short episode      0 1 2 - |                      steps after an episode's end do not count

Differs from the authors' code, whose contexts reach back into the previous episode where an episode is short.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.config import require
from recollect.evaluation.dqn_replay import read_dqn_replay
from recollect.evaluation.recordings import Recording, read_recording
from recollect.objectives.returns import returns_to_go
from recollect.tasks.disk_cache import data_folder
from recollect.tasks.worlds.contract import WorldSpec
from recollect.training.imitation.demonstrations import nested
from recollect.training.offline.config import OfflineDataConfig

REPLAY, KEPT = "dqn-replay:", "kept:"
AT_ONCE = 256
"""Steps whose observations are returned at a time."""


def read_episodes(config: OfflineDataConfig, spec: WorldSpec, seed: int) -> tuple[Recording, int]:
    """Read the episodes; return them, and the number of frames that an agent is shown at a time.

    Args:
        config: source of the episodes.
        spec: of the world that the agent will act in.
        seed: of the parts of a DQN replay.

    Raises:
        ValueError: nothing is there, or it is of another world.
    """
    source = config.source
    remedy = "name the data: --data FILE.npz, minari:DATASET or dqn-replay:FOLDER"
    require(bool(source), "data.source", source, remedy)
    if not source.startswith(REPLAY):
        recording = read_recording(_path(source)).with_words_of(spec, source)
        recording.require(spec, source)
        return recording, 1
    folder = data_folder() / source.removeprefix(REPLAY)  # joining an absolute path replaces the data folder
    recording = read_dqn_replay(folder, config.transitions, seed=seed)
    frames, shown = recording.observation[""], spec.observation_space.shape or ()
    if len(shown) != 3 or shown[1:] != frames.shape[1:]:
        raise ValueError(
            f"{source}: its frames are {list(frames.shape[1:])}, and the world shows {list(shown)}: give "
            "the world AtariRules(side=84, stack=4)"
        )
    stacked = np.broadcast_to(frames[:, None], (len(frames), *shown))  # a view: for its shape alone
    recording._replace(observation={"": stacked}).require(spec, source)
    return recording, shown[0]


class Contexts(NamedTuple):
    """b contexts of t steps."""

    observation: Any
    """A tree of ``[b, t, ...]``."""
    action: Tensor
    """``[b, t, *action_shape]``: action at each step."""
    return_to_go: Tensor
    """float32 ``[b, t]``: sum of the rewards from this step on."""
    timestep: Tensor
    """Long ``[b]``: steps from the episode's start to the context's first."""
    valid: Tensor
    """bool ``[b, t]``: a step of the episode with an action."""


class OfflineData:
    """Recorded episodes that contexts are drawn from.

    Args:
        recording: the episodes.
        stack: frames that are shown at a time, if the recording has single ones; zeros before an episode's first.
        device: of the contexts.
    """

    def __init__(self, recording: Recording, *, stack: int = 1, device: torch.device | str = "cpu") -> None:
        self.device, self.stack = torch.device(device), stack
        lengths = torch.from_numpy(recording.lengths).long()
        starts = lengths.cumsum(0) - lengths
        self.actions = lengths - 1  # in each episode
        self.starts = starts
        self.last = self.actions.cumsum(0)
        self.observation = {name: torch.from_numpy(leaf) for name, leaf in recording.observation.items()}
        self.action = torch.from_numpy(recording.action)
        self.to_go = torch.from_numpy(returns_to_go(recording.reward, recording.lengths))
        self.returns = self.to_go[starts]
        """Returns of all episodes, ``[e]``."""

    def draw(self, batch_size: int, steps: int, generator: torch.Generator) -> Contexts:
        """Draw contexts of so many steps."""
        drawn = torch.randint(int(self.last[-1]), (batch_size,), generator=generator)
        episode = torch.searchsorted(self.last, drawn, right=True)
        step = drawn - (self.last - self.actions)[episode]
        return self.contexts(episode, torch.minimum(step, (self.actions[episode] - steps).clamp(min=0)), steps)

    def contexts(self, episode: Tensor, step: Tensor, steps: int) -> Contexts:
        """Return the contexts of episodes ``[b]`` that begin at their steps ``[b]``."""
        inside = step[:, None] + torch.arange(steps)
        valid = inside < self.actions[episode][:, None]
        begin = self.starts[episode][:, None]
        index = begin + torch.minimum(inside, self.actions[episode][:, None])
        seen = {name: self._frames(leaf, index, begin) for name, leaf in self.observation.items()}
        parts = (nested(seen), self.action[index], self.to_go[index], step, valid)
        observation, *others = parts
        return Contexts(_to(observation, self.device), *(part.to(self.device) for part in others))

    def observations(self, steps: int) -> Iterator[Any]:
        """Yield observations ``[b, 1, ...]`` of about so many steps, evenly spread over all episodes."""
        total = int(self.starts[-1] + self.actions[-1] + 1)
        index = torch.arange(0, total, max(1, total // steps))
        begin = self.starts[torch.searchsorted(self.starts, index, right=True) - 1]
        for some, first in zip(index[:, None].split(AT_ONCE), begin[:, None].split(AT_ONCE), strict=True):
            seen = {name: self._frames(leaf, some, first) for name, leaf in self.observation.items()}
            yield _to(nested(seen), self.device)

    def _frames(self, leaf: Tensor, index: Tensor, begin: Tensor) -> Tensor:
        if self.stack == 1:
            return leaf[index]
        earlier = index[..., None] - torch.arange(self.stack - 1, -1, -1)  # b t stack
        missing = earlier < begin[..., None]
        frames = leaf[torch.where(missing, index[..., None], earlier)]
        return frames.masked_fill_(missing.reshape(*missing.shape, *[1] * (leaf.ndim - 1)), 0)


def _path(source: str) -> str:
    if not source.startswith(KEPT):
        return source
    path = data_folder() / "offline" / f"{source.removeprefix(KEPT)}.npz"
    if not Path(path).is_file():
        raise ValueError(
            f"{source}: there is no {path}: record it from a trained run (recollect evaluate RUN --record {path} "
            "--policy sampled --noise 0 0.25 0.5 0.75 1 --episodes 640), see docs/imitation.md"
        )
    return str(path)


def _to(tree: Any, device: torch.device) -> Any:
    return {name: _to(part, device) for name, part in tree.items()} if isinstance(tree, dict) else tree.to(device)
