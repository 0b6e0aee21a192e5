"""Recorded episodes: what an agent saw, did and was given, kept for a learner that imitates it.

    recording = record_episodes(agent, world_config, episodes=200)
    recording = demonstrate(world_config, episodes=200)          the world's oracle plays
    write_recording(recording, "episodes.npz")          or "minari:ballet/mine-v0", "lerobot:FOLDER"
    recording = read_recording("episodes.npz")          or "minari:..." and "lerobot:FOLDER" of anybody

All episodes lie one behind the other. An episode of k actions has k + 1 steps: its last one is the true final
observation, at which nobody acts.

    observation    [n, ...]     also observation.NAME, where the observation is a Dict
    action         [n, ...]     done at each step; 0 at the last one of an episode
    reward         [n]          received with each step; 0 at the first one of an episode
    lengths        [e]          steps of every episode, the last observation included
    terminated     [e]          bool: it came to its end; else a time limit cut it, and more could have been gained
    score          [e]          how good it was, as its world counts
    action_space   text         JSON, where it is known
    words          text         word of every number in observation.language, where they are known
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
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
from recollect.evaluation.agents import LIMIT, evaluation_mode, play
from recollect.evaluation.lerobot.layout import packages
from recollect.evaluation.recorded_parts import PARTS, parts_of, require_finite, require_inside, whole_bounds
from recollect.evaluation.world_guard import GuardedWorld
from recollect.files import new_file, read_arrays
from recollect.runs.errors import WorldError
from recollect.runs.progress import ProgressReporter
from recollect.tasks.worlds.contract import Step, WorldConfig, WorldSpec

ROWS = 32
"""Most rows that are recorded at a time."""
WAIT = 100_000
"""Steps after which the end of an episode is not waited for, in worlds that set no limit."""


class Recording(NamedTuple):
    """e episodes of n steps in all; the file's docstring says what the parts are."""

    observation: Mapping[str, np.ndarray]
    """By name; the name of a lone array is empty."""
    action: np.ndarray
    reward: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    score: np.ndarray
    action_space: gymnasium.Space[Any] | None
    """None where nobody knows it."""
    words: tuple[str, ...] = ()
    """Word of every number in the part ``language``, the first one empty; empty where nobody knows them."""

    def with_words_of(self, spec: WorldSpec, name: str) -> "Recording":
        """The same episodes, their sentences in the numbers of a world's words.

        Args:
            spec: of the world.
            name: of the recording, for messages.

        Raises:
            ValueError: the world lacks a word, its sentences are shorter, or a number stands for no word.
        """
        space = spec.observation_space
        told = self.observation.get("language")
        if told is None or not self.words or not spec.words or self.words == spec.words:
            return self
        assert isinstance(space, gymnasium.spaces.Dict)
        sentences = told.ndim == 2 and told.dtype.kind in "iu"
        require(sentences, "language", f"{told.dtype} {list(told.shape)}", f"{name}: give whole numbers [steps, words]")
        known = not told.size or (int(told.min()) >= 0 and int(told.max()) < len(self.words))
        require(
            known, "words", len(self.words), f"{name}: there are numbers in language beyond its words: is it whole?"
        )
        missing = [self.words[index] for index in np.unique(told) if self.words[index] not in spec.words]
        require(
            not missing, "language", ", ".join(missing), f"{name}: the world's words are {', '.join(spec.words[1:])}"
        )
        length = (space["language"].shape or (0,))[0]
        short = told.shape[1] <= length or not told[:, length:].any()
        require(short, "language", f"{told.shape[1]} words", f"{name}: the world's sentences have at most {length}")
        table = np.array([spec.words.index(word) if word in spec.words else 0 for word in self.words])
        numbers = np.zeros((len(told), length), np.int64)
        numbers[:, : told.shape[1]] = table[told][:, :length]
        return self._replace(observation={**self.observation, "language": numbers}, words=spec.words)

    def require(self, spec: WorldSpec, name: str) -> None:
        """Look whether an agent of a world could have seen and done this.

        Args:
            spec: of the world.
            name: of the recording, for messages.

        Raises:
            ValueError: shapes, names, actions or whole numbers are others, or a reward or an observation is infinite or
                no number; says which, and where.
        """
        steps = int(self.lengths.sum())
        rows = {
            "action": self.action,
            "reward": self.reward,
            **{f"observation {k}": v for k, v in self.observation.items()},
        }
        for part, array in rows.items():
            require(len(array) == steps, part.strip(), len(array), f"{name}: its lengths ask for {steps} steps")
        require(len(self.lengths) > 0 and int(self.lengths.min()) >= 2, "lengths", self.lengths.tolist()[:8],
                f"{name}: give at least one episode, and every one an action and an observation behind it")  # fmt: skip
        for part in ("terminated", "score"):
            require(len(getattr(self, part)) == len(self.lengths), part, len(getattr(self, part)),
                    f"{name}: there are {len(self.lengths)} episodes")  # fmt: skip
        _require_actions(self, spec.action_space, name)
        wanted = {leaf: tuple(space.shape or ()) for leaf, space in _leaves(spec.observation_space)}
        found = {leaf: array.shape[1:] for leaf, array in self.observation.items()}
        if wanted != found:
            raise ValueError(f"{name}: its observations are {_shapes(found)}, and the world shows {_shapes(wanted)}")
        require_finite("reward", self.reward, self.lengths, name)
        for leaf, space in _leaves(spec.observation_space):
            part = f"observation.{leaf}" if leaf else "observation"
            require_finite(part, self.observation[leaf], self.lengths, name)
            require_inside(part, self.observation[leaf], space, self.lengths, name)


def record_episodes(
    agent: Agent,
    world_config: WorldConfig,
    episodes: int,
    *,
    seed: int = 0,
    greedy: bool = True,
    noise: Sequence[float] = (),
) -> Recording:
    """Let an agent play fresh episodes, and keep them. Leaves no trace on its modes or on global generators.

    Args:
        agent: who plays.
        world_config: where.
        episodes: how many, exactly; rows that end theirs sooner wait.
        seed: of the world and of sampled actions.
        greedy: take the likeliest action; False draws from the policy.
        noise: shares of the actions that know nothing, in turns over the rows: for episodes of mixed quality.

    Raises:
        ValueError: fewer than one episode, or a share that is none.
        WorldError: the world raises or answers nonsense, or an episode does not end.
    """
    require(episodes >= 1, "episodes", episodes, "record at least one")
    require(all(0 <= share <= 1 for share in noise), "noise", list(noise), "give shares of the actions, from 0 to 1")
    rows = min(episodes, ROWS)
    share = np.array([episodes // rows + (row < episodes % rows) for row in range(rows)])
    world = GuardedWorld(world_config, rows, seed=seed, device=next(agent.parameters()).device)
    limit = int(share.max()) * ((world.spec.max_steps or WAIT) + 1)
    steps: list[Step] = []
    actions: list[Tensor] = []
    done, count = np.zeros(rows, dtype=np.int64), ProgressReporter(episodes, "episodes")
    try:
        with evaluation_mode(agent, seed):
            for played in play(agent, world, seed=seed, greedy=greedy, noise=noise):
                steps.append(played.step)
                actions.append(played.action)
                done[:] += played.step.is_last.cpu().numpy()
                if (done >= share).all():
                    break
                count.update(lambda: int(np.minimum(done, share).sum()), f"step {len(steps)}")
                if len(steps) > limit:
                    raise WorldError(f"an episode of {world.name} is not over after {limit} steps", f"set {LIMIT}")
    finally:
        world.close()
    return _cut(steps, actions, share, world.spec)


def demonstrate(config: WorldConfig, episodes: int, *, policy: str = "oracle", seed: int = 0) -> Recording:
    """Let a policy that the world offers play fresh episodes, and keep them: demonstrations.

    Args:
        config: of the world.
        episodes: how many, exactly.
        policy: ``oracle``, or another one that the world names.
        seed: of the world.

    Raises:
        ValueError: fewer than one episode, or the world has no such policy.
        WorldError: an episode does not end.
    """
    require(episodes >= 1, "episodes", episodes, "record at least one")
    rows = min(episodes, ROWS)
    share = np.array([episodes // rows + (row < episodes % rows) for row in range(rows)])
    world = GuardedWorld(config, rows, seed=seed, device=torch.device("cpu"))
    steps, actions, done = [world.reset()], [], np.zeros(rows, dtype=np.int64)
    count = ProgressReporter(episodes, "episodes")
    limit = int(share.max()) * ((world.spec.max_steps or WAIT) + 1)
    try:
        while not (done >= share).all():
            if len(steps) > limit:
                raise WorldError(f"an episode of {world.name} is not over after {limit} steps", f"set {LIMIT}")
            chosen = world.expert(policy)
            require(chosen is not None, "policy", policy, f"{config.title} offers no such policy")
            assert chosen is not None
            actions.append(chosen)
            steps.append(world.step(chosen))
            done[:] += steps[-1].is_last.cpu().numpy()
            count.update(lambda: int(np.minimum(done, share).sum()), f"step {len(steps)}")
    finally:
        world.close()
    return _cut(steps, [*actions, torch.zeros_like(actions[-1])], share, world.spec)


def require_target(target: str | PathLike[str]) -> None:
    """Look whether episodes can be written there: before anybody plays them.

    Raises:
        ValueError: another ending, a missing package, a name that Minari does not take, a dataset or a folder that
            exists, or a place where nothing can be written.
    """
    said = str(target)
    if said.startswith("minari:"):
        minari_datasets.require_new(said.removeprefix("minari:"))
        return
    path = Path(said.removeprefix("lerobot:"))
    if said.startswith("lerobot:"):
        packages()
        require(not path.exists(), "record", said, "this folder exists already: name a new one")
    else:
        require(path.suffix == ".npz", "record", said, "give FILE.npz, minari:DATASET or lerobot:FOLDER")
        require(not path.is_dir(), "record", said, "this is a folder: name a file")
    nearest = next(folder for folder in path.absolute().parents if os.path.exists(folder))  # the others are made
    usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    require(usable, "record", said, f"{nearest} is no folder in which you may write: name another place")


def write_recording(recording: Recording, target: str | PathLike[str]) -> None:
    """Write episodes as FILE.npz, minari:DATASET or lerobot:FOLDER.

    Raises:
        ValueError: as :func:`require_target`, or the episodes are none that Minari or LeRobot can hold.
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
    """Read what :func:`write_recording` wrote, or any dataset of Minari or LeRobot.

    Raises:
        ValueError: no such file or dataset, parts are missing or hold something else, or a package is missing.
    """
    if str(source).startswith("minari:"):
        return Recording(**minari_datasets.read(str(source).removeprefix("minari:")))
    if str(source).startswith("lerobot:"):
        return Recording(**lerobot.read(str(source).removeprefix("lerobot:")))
    try:
        arrays = read_arrays(Path(source))
    except ValueError as error:
        raise ValueError(f"{error}: give episodes that recollect evaluate --record wrote") from None
    return Recording(**parts_of(arrays, str(source)))


def _cut(steps: list[Step], actions: list[Tensor], share: np.ndarray, spec: WorldSpec) -> Recording:
    """The episodes of every row, one behind the other; what a row did after its share is left out."""

    def columns(parts: list[Tensor]) -> np.ndarray:
        return torch.stack(parts).cpu().numpy()  # t b ...

    observations = [dict(_observed(step.observation)) for step in steps]
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
    theirs, action = recording.action_space, recording.action
    if theirs is not None and theirs != space:
        raise ValueError(f"{name}: its actions are {theirs}, and the world's are {space}")
    whole = not isinstance(space, gymnasium.spaces.Box)
    if action.shape[1:] != (space.shape or ()) or np.issubdtype(action.dtype, np.integer) != whole:
        raise ValueError(
            f"{name}: its actions are {action.dtype} {list(action.shape[1:])}, and the world's are {space}"
        )
    last = recording.lengths.cumsum() - 1  # nobody acts there
    done, bounds = np.delete(action, last, axis=0), whole_bounds(space)
    if bounds is not None and ((done < bounds[0]).any() or (done > bounds[1]).any()):
        raise ValueError(f"{name}: its actions are {done.min()} to {done.max()}, and the world's are {space}")
    require_finite("action", done, recording.lengths - 1, name)


def _observed(observation: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(observation, Tensor):
        yield prefix, observation
        return
    for key, part in observation.items():
        yield from _observed(part, f"{prefix}.{key}" if prefix else key)


def _leaves(space: gymnasium.Space[Any], prefix: str = "") -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    if not isinstance(space, gymnasium.spaces.Dict):
        yield prefix, space
        return
    for key, part in space.items():
        yield from _leaves(part, f"{prefix}.{key}" if prefix else key)


def _shapes(parts: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name or 'an array'} {list(shape)}" for name, shape in parts.items())
