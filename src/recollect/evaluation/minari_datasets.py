"""Recorded episodes in Minari's format: read anybody's, write ours. Needs the extra ``minari``.

Observations are read as our Gymnasium worlds show them (Tuples and Dicts by joined keys, floats as float32), without
their masks, stacks and wrappers. The parts have the names of those of a
:class:`~recollect.evaluation.recordings.Recording`.
"""

import shutil
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

from recollect.config import require
from recollect.tasks.gymnasium.spaces import Reader, Writer


def read(name: str) -> dict[str, Any]:
    """The parts of a recording, from a local dataset.

    Raises:
        ValueError: minari is missing, there is no such dataset here, it is damaged, or its spaces have no form here.
    """
    minari = _minari()
    try:
        dataset = minari.load_dataset(name)
        episodes = list(dataset.iterate_episodes())
    except Exception as error:  # minari and h5py raise whatever a missing or damaged file leads them to
        raise ValueError(
            f"minari:{name}: {type(error).__name__}: {error}; minari list local shows what is here, minari download "
            "gets more; of a damaged dataset, remove the folder first"
        ) from None
    if not episodes:
        raise ValueError(f"minari:{name} has no episodes")
    reader, space = Reader(source=dataset.observation_space), dataset.action_space
    start = getattr(space, "start", 0)
    shown, actions, rewards, lengths, terminated = [], [], [], [], []
    for number, episode in enumerate(episodes):
        seen = reader.read(episode.observations)
        shown.append(seen if isinstance(seen, dict) else {"": seen})
        sizes = {key: len(leaf) for key, leaf in shown[-1].items()} | {"actions": len(episode.actions) + 1}
        if set(sizes.values()) != {len(episode.rewards) + 1} or not len(episode.rewards):
            raise ValueError(
                f"minari:{name}, episode {number}: {sizes} of {len(episode.rewards)} rewards; every reward wants an "
                "action, and an observation before and behind it"
            )
        done = np.asarray(episode.actions) - start
        actions.append(np.concatenate((done, np.zeros_like(done[:1]))))
        rewards.append(np.concatenate(([0.0], episode.rewards)))
        lengths.append(len(episode.rewards) + 1)
        terminated.append(bool(episode.terminations[-1]))
    action = np.concatenate(actions)
    floating = np.issubdtype(action.dtype, np.floating)
    return {
        "observation": {key: np.concatenate([seen[key] for seen in shown]) for key in shown[0]},
        "action": action.astype(np.float32 if floating else np.int64),
        "reward": np.concatenate(rewards).astype(np.float32),
        "lengths": np.array(lengths),
        "terminated": np.array(terminated),
        "score": np.array([part.sum() for part in rewards], np.float32),
        "action_space": Writer(target=space).space,
    }


def write(name: str, parts: Mapping[str, Any]) -> None:
    """Write the parts of a recording as a new local dataset.

    Raises:
        ValueError: minari is missing, or does not take the name or the parts. Nothing is left of the dataset then.
    """
    minari = _minari()
    from minari.data_collector import EpisodeBuffer
    from minari.storage import get_dataset_path

    lengths, steps = parts["lengths"], len(parts["action"])
    whole = len(lengths) > 0 and int(min(lengths)) >= 2 and int(sum(lengths)) == steps
    require(whole, "lengths", lengths, f"minari:{name}: give at least 2 to each episode, and {steps} in all")
    require(parts["action_space"] is not None, "action_space", None, f"minari:{name}: a dataset has to know it")
    seen, buffers = parts["observation"], []
    space: Any = gymnasium.spaces.Dict({key: _box(leaf) for key, leaf in seen.items()})
    begin = 0
    for number, (length, ended) in enumerate(zip(lengths, parts["terminated"], strict=True)):
        rows, done = slice(begin, begin + length), slice(begin, begin + length - 1)
        last = np.arange(length - 1) == length - 2
        shown = {key: leaf[rows] for key, leaf in seen.items()}
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=shown[""] if "" in seen else shown,
                actions=parts["action"][done],
                rewards=list(parts["reward"][begin + 1 : begin + length]),
                terminations=list(last & ended),
                truncations=list(last & ~ended),
            )
        )
        begin += length
    folder = get_dataset_path(name)
    new = not folder.exists()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it would like to know the author, the environment and the code
            minari.create_dataset_from_buffers(
                dataset_id=name,
                buffer=buffers,
                observation_space=space[""] if "" in seen else space,
                action_space=parts["action_space"],
                jpeg_encoding=False,  # which loses something
            )
    except BaseException as error:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ValueError):
            raise ValueError(f"minari:{name}: {error}") from None
        raise


def _box(leaf: np.ndarray) -> gymnasium.spaces.Box:
    """A space that has room for what was seen: the dataset is read by its shapes."""
    whole = np.issubdtype(leaf.dtype, np.integer)
    low, high = (np.iinfo(leaf.dtype).min, np.iinfo(leaf.dtype).max) if whole else (-np.inf, np.inf)
    return gymnasium.spaces.Box(low, high, leaf.shape[1:], leaf.dtype.type)


def _minari() -> ModuleType:
    try:
        import minari
    except ImportError as error:
        raise ValueError("datasets of Minari need the package minari: run pip install 'recollect[minari]'") from error
    return minari
