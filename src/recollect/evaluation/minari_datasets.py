"""Reader and writer of recorded episodes in Minari's format. Needs the extra ``minari``.

Observations are read in the form of our Gymnasium worlds (Tuples and Dicts by joined keys, floats as float32), without
their masks, stacks and wrappers. Parts are those of a :class:`~recollect.evaluation.recordings.Recording`. Minari has
no place for the vocabulary of ``language`` and for scores: they are stored in the dataset's metadata under
:data:`WORDS` and :data:`SCORES`. Without scores, the score of an episode is the sum of its rewards.
"""

import re
import shutil
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

from recollect.config import require
from recollect.evaluation.recorded_parts import require_finite, require_finite_parts
from recollect.tasks.gymnasium.spaces import ActionWriter, ObservationReader

WORDS, SCORES = "recollect_words", "recollect_scores"  # keys of the metadata
NAME = re.compile(r"([-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")  # names of datasets, with a version, that Minari accepts


def read(name: str) -> dict[str, Any]:
    """Read the parts of a recording from a local dataset.

    Raises:
        ValueError: minari is missing, the dataset is missing or damaged, a reward or an observation is not finite, or
            its spaces are not supported.
    """
    minari = _minari()
    try:
        dataset = minari.load_dataset(name)
        episodes = list(dataset.iterate_episodes())
        words, scores = (dataset.storage.metadata.get(key) for key in (WORDS, SCORES))
    except Exception as error:  # minari and h5py raise anything for a missing or damaged file
        raise ValueError(
            f"minari:{name}: {type(error).__name__}: {error}; minari list local lists datasets, minari download gets "
            "more; remove the folder of a damaged one first"
        ) from None
    if not episodes:
        raise ValueError(f"minari:{name} has no episodes")
    _require_all(dataset, len(episodes), name)
    words = _list(words, str, "texts", f"minari:{name}: {WORDS}") or []
    scores = _list(scores, (int, float), "numbers", f"minari:{name}: {SCORES}")
    if scores is not None and len(scores) != len(episodes):
        raise ValueError(
            f"minari:{name}: {SCORES} in its metadata has {len(scores)} numbers, and there are {len(episodes)} "
            "episodes: write the dataset again"
        )
    space = _readable(dataset.action_space, name)
    reader = ObservationReader(
        source=dataset.observation_space, scalars=scores is not None
    )  # ours: a Box of one is a scalar
    start = getattr(dataset.action_space, "start", 0)
    shown, done = [], []
    for number, episode in enumerate(episodes):
        shown.append(_seen(reader, episode, f"minari:{name}, episode {number}"))
        done.append(np.asarray(episode.actions) - start)
        shapes = [
            {key: leaf.shape[1:] for key, leaf in (_named(shown[at]) | {"action": done[at]}).items()} for at in (0, -1)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"minari:{name}, episode {number}: its steps have the shapes {shapes[1]}, and those of episode 0 "
                f"{shapes[0]}: remove this episode"
            )
    action = np.concatenate([np.concatenate((part, np.zeros_like(part[:1]))) for part in done])
    parts = {
        "observation": {key: np.concatenate([seen[key] for seen in shown]) for key in shown[0]},
        "action": action.astype(np.float32 if action.dtype.kind == "f" else np.int64),
        "reward": np.concatenate([[0.0, *episode.rewards] for episode in episodes]).astype(np.float32),
        "lengths": np.array([len(episode.rewards) + 1 for episode in episodes]),
        "terminated": np.array([bool(episode.terminations[-1]) for episode in episodes]),
        "score": np.array([np.sum(one.rewards) for one in episodes] if scores is None else scores, np.float32),
        "action_space": space,
        "words": tuple(words),
    }
    for part, array in {"reward": parts["reward"], **_named(parts["observation"])}.items():
        require_finite(part, array, parts["lengths"], f"minari:{name}")
    return parts


def require_new(name: str) -> None:
    """Require that a dataset of this name can be written.

    Raises:
        ValueError: minari is missing, refuses the name, or the dataset exists.
    """
    _minari()
    remedy = "give it a version, as in minari:mine/good-v0; letters, digits, - and _ make a name"
    require(NAME.fullmatch(name) is not None, "record", f"minari:{name}", remedy)
    from minari.storage import get_dataset_path

    folder = get_dataset_path(name)
    require(not folder.exists(), "record", f"minari:{name}", f"{folder} exists already: give another name or version")


def write(name: str, parts: Mapping[str, Any]) -> None:
    """Write the parts of a recording as a new local dataset.

    Raises:
        ValueError: minari is missing, or refuses the name or the parts, or :func:`read` could not read them; the
            dataset is removed.
    """
    require_new(name)
    minari = _minari()
    from minari.storage import get_dataset_path

    lengths, steps = parts["lengths"], len(parts["action"])
    whole = len(lengths) > 0 and int(min(lengths)) >= 2 and int(sum(lengths)) == steps
    require(whole, "lengths", lengths, f"minari:{name}: give at least 2 to each episode, and {steps} in all")
    require(parts["action_space"] is not None, "action_space", None, f"minari:{name}: a dataset needs it")
    _readable(parts["action_space"], name)
    require_finite_parts(parts, np.asarray(lengths), f"minari:{name}")
    seen = parts["observation"]
    for leaf in seen:
        require("/" not in leaf, "observation", leaf, f"minari:{name}: Minari reads a / as a group: rename it")
    try:
        space: Any = gymnasium.spaces.Dict({key: _box(leaf) for key, leaf in seen.items()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing author, environment and code
            dataset = minari.create_dataset_from_buffers(
                dataset_id=name,
                buffer=_buffers(parts),
                observation_space=space[""] if "" in seen else space,
                action_space=parts["action_space"],
                jpeg_encoding=False,  # JPEG is lossy
            )
        kept = {SCORES: np.asarray(parts["score"], float).tolist()}
        dataset.storage.update_metadata(kept | ({WORDS: list(parts["words"])} if parts.get("words") else {}))
    except BaseException as error:
        shutil.rmtree(get_dataset_path(name), ignore_errors=True)
        if isinstance(error, (ValueError, TypeError)):
            raise ValueError(f"minari:{name}: {error}") from None
        raise


def _list(found: Any, kind: type | tuple[type, ...], of: str, where: str) -> list[Any] | None:
    """Check a list in the metadata; None where it is missing."""
    if found is not None and not (isinstance(found, list) and all(isinstance(one, kind) for one in found)):
        raise ValueError(f"{where} in its metadata is no list of {of}: write the dataset again")
    return found


def _buffers(parts: Mapping[str, Any]) -> list[Any]:
    """Convert episodes to Minari's buffers."""
    from minari.data_collector import EpisodeBuffer

    seen, buffers, begin = parts["observation"], [], 0
    for number, (length, ended) in enumerate(zip(parts["lengths"], parts["terminated"], strict=True)):
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
    return buffers


def _readable(space: gymnasium.Space[Any], name: str) -> gymnasium.Space[Any]:
    """Return our form of a dataset's action space."""
    try:
        return ActionWriter(target=space).space
    except ValueError as error:
        raise ValueError(f"minari:{name}: {error}") from None


def _require_all(dataset: Any, number: int, name: str) -> None:
    """Raise ``ValueError`` where another episode follows: Minari silently reads as many as the metadata say."""
    try:
        next(iter(dataset.storage.get_episodes([number])))
    except Exception:  # each storage format raises another error for a missing episode
        return
    raise ValueError(
        f"minari:{name}: total_episodes={number} in its metadata, and there are more: put it right, or download the "
        "dataset again"
    )


def _seen(reader: ObservationReader, episode: Any, where: str) -> dict[str, np.ndarray]:
    """Read the observations of an episode, and check the lengths of its parts."""
    try:
        found = reader.read(episode.observations)
    except Exception as error:  # NumPy raises anything for a ragged part
        raise ValueError(f"{where}: its observations are none of the dataset's space ({error}): remove it") from None
    seen = found if isinstance(found, dict) else {"": found}
    steps = {key: len(leaf) for key, leaf in _named(seen).items()}
    steps |= {"action": len(episode.actions) + 1, "terminations": len(episode.terminations) + 1}
    reward = np.asarray(episode.rewards)
    numbers = reward.ndim == 1 and reward.dtype.kind in "biuf"
    if not numbers or not len(reward) or set(steps.values()) != {len(reward) + 1}:
        raise ValueError(
            f"{where}: {steps} of {reward.dtype} {list(reward.shape)} rewards; every reward needs an action, a "
            "termination, and an observation before and after it"
        )
    return seen


def _named(seen: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the parts of an observation by their names in messages."""
    return {f"observation.{key}" if key else "observation": leaf for key, leaf in seen.items()}


def _box(leaf: np.ndarray) -> gymnasium.spaces.Box:
    """Return a space that holds these observations; the dataset is read by its shapes."""
    if leaf.dtype.kind == "b":
        return gymnasium.spaces.Box(0, 1, leaf.shape[1:], np.bool_)  # type: ignore[arg-type]  (valid, but not in its types)
    whole = np.issubdtype(leaf.dtype, np.integer)
    low, high = (np.iinfo(leaf.dtype).min, np.iinfo(leaf.dtype).max) if whole else (-np.inf, np.inf)
    return gymnasium.spaces.Box(low, high, leaf.shape[1:], leaf.dtype.type)


def _minari() -> ModuleType:
    try:
        import minari
    except ImportError as error:
        raise ValueError("datasets of Minari need the package minari: run pip install 'minari[hdf5]'") from error
    return minari
