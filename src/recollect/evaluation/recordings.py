"""Recorded episodes: observations, actions and rewards, for imitation and offline learning.

    recording = record_episodes(agent, world_config, episodes=200)
    recording = demonstrate(world_config, episodes=200)          the world's oracle plays
    write_recording(recording, "episodes.npz")          or "minari:ballet/mine-v0", "lerobot:FOLDER"
    recording = read_recording("episodes.npz")          or any "minari:..." or "lerobot:FOLDER"

Episodes are concatenated. An episode of k actions has k + 1 steps: the last one is the true final observation, without
an action.

    observation    [n, ...]     also observation.NAME, where the observation is a Dict
    action         [n, ...]     taken at each step; 0 at the last one of an episode
    reward         [n]          received with each step; 0 at the first one of an episode
    lengths        [e]          steps of every episode, the last observation included
    terminated     [e]          bool: it ended by itself; else a time limit truncated it
    score          [e]          score in the measure of its world
    action_space   text         JSON, where known
    words          text         word of every number in observation.language, where known
"""

import json
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from recollect.agents.contract import Agent
from recollect.agents.spaces import space_to_json
from recollect.config import require
from recollect.evaluation import lerobot, minari_datasets
from recollect.evaluation.agents import EPISODE_LIMIT, evaluation_mode, named_parts, play, split_episodes
from recollect.evaluation.lerobot.layout import load_packages
from recollect.evaluation.recorded_parts import (
    PARTS,
    parts_of,
    require_finite,
    require_inside,
    to_torch_type,
    whole_bounds,
)
from recollect.evaluation.world_guard import GuardedWorld
from recollect.files import new_file, read_arrays
from recollect.runs.errors import WorldError
from recollect.runs.progress import ProgressReporter
from recollect.tasks.worlds.contract import Step, WorldConfig, WorldSpec

ROWS = 32  # most rows that are recorded in parallel
WAIT = 100_000  # most steps of an episode, in worlds that set no limit


class Recording(NamedTuple):
    """e episodes of n steps in all; the module's docstring describes the parts."""

    observation: Mapping[str, np.ndarray]
    """Parts by name; the name of a lone array is empty."""
    action: np.ndarray
    reward: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    score: np.ndarray
    action_space: gymnasium.Space[Any] | None
    """None where unknown."""
    words: tuple[str, ...] = ()
    """Word of every number in the part ``language``, the first one empty; empty where unknown."""

    def select(self, numbers: np.ndarray) -> "Recording":
        """Return the episodes with these numbers, long ``[e]``, in their order."""
        starts = self.lengths.cumsum() - self.lengths
        steps = np.concatenate([np.arange(int(starts[n]), int(starts[n] + self.lengths[n])) for n in numbers])
        by_step = {"action": self.action[steps], "reward": self.reward[steps]}
        by_episode = {name: getattr(self, name)[numbers] for name in ("lengths", "terminated", "score")}
        observation = {name: leaf[steps] for name, leaf in self.observation.items()}
        return self._replace(observation=observation, **by_step, **by_episode)

    def taken_actions(self) -> np.ndarray:
        """Return all actions but those of last steps, where none is taken."""
        return np.delete(self.action, self.lengths.cumsum() - 1, axis=0)

    def with_words_of(self, spec: WorldSpec, name: str) -> "Recording":
        """Return the same episodes with their sentences in the vocabulary of a world.

        Args:
            spec: of the world.
            name: of the recording, for messages.

        Raises:
            ValueError: the world lacks a word, its sentences are shorter, or a number has no word.
        """
        space = spec.observation_space
        tokens = self.observation.get("language")
        if tokens is None or not self.words or not spec.words or self.words == spec.words:
            return self
        assert isinstance(space, gymnasium.spaces.Dict)
        sentences = tokens.ndim == 2 and tokens.dtype.kind in "iu"
        kind = f"{tokens.dtype} {list(tokens.shape)}"
        require(sentences, "language", kind, f"{name}: give whole numbers [steps, words]")
        known = not tokens.size or (int(tokens.min()) >= 0 and int(tokens.max()) < len(self.words))
        beyond = f"{name}: there are numbers in language beyond its words: is it whole?"
        require(known, "words", len(self.words), beyond)
        missing = ", ".join(self.words[token] for token in np.unique(tokens) if self.words[token] not in spec.words)
        require(not missing, "language", missing, f"{name}: the world's words are {', '.join(spec.words[1:])}")
        length = (space["language"].shape or (0,))[0]
        fits = tokens.shape[1] <= length or not tokens[:, length:].any()
        require(fits, "language", f"{tokens.shape[1]} words", f"{name}: the world's sentences have at most {length}")
        table = np.array([spec.words.index(word) if word in spec.words else 0 for word in self.words])
        numbers = np.zeros((len(tokens), length), np.int64)
        numbers[:, : tokens.shape[1]] = table[tokens][:, :length]
        return self._replace(observation={**self.observation, "language": numbers}, words=spec.words)

    def require(self, spec: WorldSpec, name: str) -> None:
        """Require that the episodes fit the observations and actions of a world.

        Args:
            spec: of the world.
            name: of the recording, for messages.

        Raises:
            ValueError: shapes, names or actions differ, whole numbers are out of range, or a reward or an observation
                is not finite; names the part and the step.
        """
        self.require_steps(name)
        _require_actions(self, spec.action_space, name)
        spaces = dict(named_parts(spec.observation_space))
        wanted = {leaf: tuple(space.shape or ()) for leaf, space in spaces.items()}
        found = {leaf: array.shape[1:] for leaf, array in self.observation.items()}
        if wanted != found:
            raise ValueError(f"{name}: its observations are {_shapes(found)}, and the world shows {_shapes(wanted)}")
        require_finite("reward", self.reward, self.lengths, name)
        for leaf, space in spaces.items():
            part = f"observation.{leaf}" if leaf else "observation"
            require_finite(part, self.observation[leaf], self.lengths, name)
            require_inside(part, self.observation[leaf], space, self.lengths, name)

    def require_steps(self, name: str) -> None:
        """Require that all parts have as many steps and episodes as the lengths say.

        Args:
            name: of the recording, for messages.

        Raises:
            ValueError: there is no episode, or a part has more or fewer.
        """
        steps = int(self.lengths.sum())
        parts = {"action": self.action, "reward": self.reward}
        for part, array in (parts | {f"observation {key}": leaf for key, leaf in self.observation.items()}).items():
            require(len(array) == steps, part.strip(), len(array), f"{name}: its lengths need {steps} steps")
        enough = len(self.lengths) > 0 and int(self.lengths.min()) >= 2
        remedy = f"{name}: give at least one episode, each with an action and an observation after it"
        require(enough, "lengths", self.lengths.tolist()[:8], remedy)
        for part in ("terminated", "score"):
            count = len(getattr(self, part))
            require(count == len(self.lengths), part, count, f"{name}: there are {len(self.lengths)} episodes")


class _Recorder:
    """Recorder of a world's steps until every row has ended its share of episodes."""

    def __init__(self, world: GuardedWorld, share: np.ndarray) -> None:
        self.world, self.share = world, share
        self.limit = int(share.max()) * ((world.spec.max_steps or WAIT) + 1)
        self.steps: list[Step] = []
        self.done = np.zeros(len(share), dtype=np.int64)
        self.count = ProgressReporter(int(share.sum()), "episodes")

    def add(self, step: Step) -> bool:
        """Keep a step; return whether all rows are done.

        Raises:
            WorldError: an episode does not end.
        """
        self.steps.append(step)
        self.done += step.is_last.cpu().numpy()
        if (self.done >= self.share).all():
            return True
        self.count.update(lambda: int(np.minimum(self.done, self.share).sum()), f"step {len(self.steps)}")
        if len(self.steps) > self.limit:
            raise WorldError(f"an episode of {self.world.name} is not over after {self.limit} steps", EPISODE_LIMIT)
        return False


def record_episodes(
    agent: Agent,
    world_config: WorldConfig,
    episodes: int,
    *,
    seed: int = 0,
    greedy: bool = True,
    noise: Sequence[float] = (),
) -> Recording:
    """Record fresh episodes of an agent; its modes and the global generators are restored afterwards.

    Args:
        agent: plays in ``eval`` mode.
        world_config: of the world.
        episodes: exact number; rows that end theirs sooner wait.
        seed: of the world and of sampled actions.
        greedy: take the most probable action; False samples from the policy.
        noise: shares of actions drawn from the marginal policy, cycling over the rows: for episodes of mixed quality.

    Raises:
        ValueError: fewer than one episode, or a share outside 0..1.
        WorldError: the world raises or returns invalid steps, or an episode does not end.
    """
    require(episodes >= 1, "episodes", episodes, "record at least one")
    require(all(0 <= share <= 1 for share in noise), "noise", list(noise), "give shares of the actions, from 0 to 1")
    share = split_episodes(episodes, min(episodes, ROWS))
    with evaluation_mode(agent, seed):
        world = GuardedWorld(world_config, len(share), seed=seed, device=next(agent.parameters()).device)
        recorder, actions = _Recorder(world, share), []
        try:
            for played in play(agent, world, seed=seed, greedy=greedy, noise=noise):
                actions.append(played.action)
                if recorder.add(played.step):
                    break
        finally:
            world.close()
    return _cut(recorder.steps, actions, share, world.spec)


def demonstrate(config: WorldConfig, episodes: int, *, policy: str = "oracle", seed: int = 0) -> Recording:
    """Record fresh episodes of one of the world's own policies.

    Args:
        config: of the world.
        episodes: exact number.
        policy: ``oracle``, or another one of the world.
        seed: of the world.

    Raises:
        ValueError: fewer than one episode, or the world has no such policy.
        WorldError: an episode does not end.
    """
    require(episodes >= 1, "episodes", episodes, "record at least one")
    share = split_episodes(episodes, min(episodes, ROWS))
    world = GuardedWorld(config, len(share), seed=seed, device=torch.device("cpu"))
    recorder, actions = _Recorder(world, share), []
    try:
        step = world.reset()
        while not recorder.add(step):
            chosen = world.expert(policy)
            require(chosen is not None, "policy", policy, f"{config.title} offers no such policy")
            assert chosen is not None
            actions.append(chosen)
            step = world.step(chosen)
    finally:
        world.close()
    return _cut(recorder.steps, [*actions, torch.zeros_like(actions[-1])], share, world.spec)


def require_target(target: str | PathLike[str]) -> None:
    """Require, before anything is played, that episodes can be written to a target.

    Raises:
        ValueError: another ending, a missing package, a name that Minari refuses, a dataset or a folder that exists, or
            no permission to write.
    """
    given = str(target)
    if given.startswith("minari:"):
        minari_datasets.require_new(given.removeprefix("minari:"))
        return
    path = Path(given.removeprefix("lerobot:"))
    if given.startswith("lerobot:"):
        load_packages()
        require(not path.exists(), "record", given, "this folder exists already: name a new one")
    else:
        require(path.suffix == ".npz", "record", given, "give FILE.npz, minari:DATASET or lerobot:FOLDER")
        require(not path.is_dir(), "record", given, "this is a folder: name a file")
    nearest = next(folder for folder in path.absolute().parents if os.path.exists(folder))  # the others are made
    usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    require(usable, "record", given, f"{nearest} is no folder in which you may write: name another place")


def write_recording(recording: Recording, target: str | PathLike[str]) -> None:
    """Write episodes as FILE.npz, minari:DATASET or lerobot:FOLDER.

    Raises:
        ValueError: as :func:`require_target`, or Minari or LeRobot cannot hold the episodes.
    """
    require_target(target)
    if str(target).startswith("minari:"):
        minari_datasets.write(str(target).removeprefix("minari:"), recording._asdict())
        return
    if str(target).startswith("lerobot:"):
        lerobot.write(str(target).removeprefix("lerobot:"), recording._asdict())
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"observation.{name}" if name else "observation": leaf for name, leaf in recording.observation.items()}
    arrays |= {name: getattr(recording, name) for name in PARTS}
    if recording.action_space is not None:
        arrays["action_space"] = np.array(json.dumps(space_to_json(recording.action_space)))
    if recording.words:
        arrays["words"] = np.array(recording.words)
    with new_file(path) as unfinished, open(unfinished, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_recording(source: str | PathLike[str]) -> Recording:
    """Read a file of :func:`write_recording`, or any dataset of Minari or LeRobot.

    Raises:
        ValueError: no such file or dataset, parts are missing or invalid, or a package is missing.
    """
    for prefix, read in (("minari:", minari_datasets.read), ("lerobot:", lerobot.read)):
        if str(source).startswith(prefix):
            found = Recording(**read(str(source).removeprefix(prefix)))
            return found._replace(observation={name: to_torch_type(leaf) for name, leaf in found.observation.items()})
    try:
        arrays = read_arrays(Path(source))
    except ValueError as error:
        raise ValueError(f"{error}: give episodes that recollect evaluate --record wrote") from None
    return Recording(**parts_of(arrays, str(source)))


def _cut(steps: list[Step], actions: list[Tensor], share: np.ndarray, spec: WorldSpec) -> Recording:
    """Concatenate the episodes of every row, without those after its share."""

    def columns(parts: list[Tensor]) -> np.ndarray:
        return torch.stack(parts).cpu().numpy()  # t b ...

    observations = [dict(named_parts(step.observation)) for step in steps]
    is_last, terminated = columns([step.is_last for step in steps]), columns([step.terminated for step in steps])
    reward, score = columns([step.reward for step in steps]), columns([step.score for step in steps])
    places, lengths, ends = [], [], []
    for row, number in enumerate(share):
        begin = 0
        for end in is_last[:, row].nonzero()[0][:number]:
            places.append(np.stack((np.arange(begin, end + 1), np.full(end + 1 - begin, row))))
            lengths.append(end + 1 - begin)
            ends.append((end, row))
            begin = end + 1
    at, last = tuple(np.concatenate(places, 1)), tuple(np.array(ends).T)
    action = columns(actions)[at]
    action[np.cumsum(lengths) - 1] = 0
    return Recording(
        observation={name: columns([seen[name] for seen in observations])[at] for name in observations[0]},
        action=action,
        reward=reward[at],
        lengths=np.array(lengths),
        terminated=terminated[last],
        score=score[last],
        action_space=spec.action_space,
        words=spec.words,
    )


def _require_actions(recording: Recording, space: gymnasium.Space[Any], name: str) -> None:
    own, action = recording.action_space, recording.action
    if own is not None and own != space:
        raise ValueError(f"{name}: its actions are {own}, and the world's are {space}")
    whole, kind = not isinstance(space, gymnasium.spaces.Box), f"{action.dtype} {list(action.shape[1:])}"
    if action.shape[1:] != (space.shape or ()) or np.issubdtype(action.dtype, np.integer) != whole:
        raise ValueError(f"{name}: its actions are {kind}, and the world's are {space}")
    last = recording.lengths.cumsum() - 1  # without an action
    done, bounds = np.delete(action, last, axis=0), whole_bounds(space)
    if bounds is not None and ((done < bounds[0]).any() or (done > bounds[1]).any()):
        raise ValueError(
            f"{name}: its actions are {done.min()} to {done.max()}, and the world's are {space}: leave out episodes "
            "with other actions, and count from 0 also where the environment's space begins elsewhere"
        )
    require_finite("action", done, recording.lengths - 1, name)


def _shapes(parts: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name or 'an array'} {list(shape)}" for name, shape in parts.items())
