"""Paired associative inference: from pairs A-B and B-C, infer whether C belongs to A.

An episode has ``num_chains`` chains of items, A-B-C or A-B-C-D. First all pairs of neighbours in a chain are shown, in
random order and with either item first; then a trial asks which of two items belongs to a cue. One item a step:

    A4 B4   C1 B1   B9 C9   ...   A1   C7 C1            answer: 1, the right one
    |-- pairs, two steps each --|     cue  left right

The answer (class 0 left, 1 right) is given at the last step of a trial. The lure is the item of the same letter in
another chain. Trials of the types AB, BC, CD repeat a pair that was shown; AC, BD, AD combine two or three pairs, as no
pair holds both items. AC is what is reported; ``types`` chooses the types for training and scoring alike:
``replace(task, types=("AC",))``. ``trials`` is the number of trials per episode.

``form="streamed"`` is one episode: trials follow the pairs and each other. ``form="paper"`` marks every trial as a
sequence of its own (``is_first``): the first episode of a row is the memory, each later one a trial, and the model
must be given the memory (``SequenceModelConfig.given_memory``).

Items are random unit vectors, unless ``folder`` holds the published embeddings of photographs. A pair fills a chunk
of two steps, counted from the start of the episode.

Chance is exactly 1/2 for a model that forgets the pairs: which of the two items is the lure, and its side, are drawn
independently, so a trial alone looks the same for both answers. Several trials in one stream tell a little about each
other (an item that is right once is the same item everywhere): score streams on one trial.

Paper: Lampinen et al. 2021, section 3.4 and appendix B.4; the task and its embeddings are those of Banino et al.,
"MEMO" (2020).

Differs: ``form="streamed"``, the default: the paper puts the pairs into the memory of every layer by hand and reads
each trial as a sequence of its own, which is ``form="paper"``. Random vectors replace photographs by default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Self

from recollect.config import require, require_one_of
from recollect.files import read_arrays
from recollect.lazy import np, torch
from recollect.tasks.disk_cache import expand_folder
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

TYPES = {3: ("AB", "BC", "AC"), 4: ("AB", "BC", "AC", "CD", "BD", "AD")}
"""Types of trials by chain length, in the order of the published numbers 1, 2, ..."""
ARRAYS = ("memory", "trials", "correct_answer", "trial_type")
PUBLISHED = "gs://deepmind-memo"
SHARDS = {"train": 500, "valid": 150, "test": 100}


@dataclass(frozen=True, kw_only=True)
class AssociativeInference(StreamTask):
    """Choose which of two items belongs to a cue, from pairs seen before."""

    chain: Literal[3, 4] = 3
    """Items of a chain."""
    num_chains: int = 16
    """Chains of an episode."""
    width: int = 1000
    """Numbers of an item."""
    types: tuple[str, ...] = ()
    """Types of trials, all equally likely; () takes all that the chain has."""
    folder: str = ""
    """Folder of the published embeddings, which replace random vectors; see :func:`read_published`."""
    split: Literal["train", "valid", "test"] = "train"
    """Part of the published episodes; random ones need no split."""
    form: Literal["streamed", "paper"] = "streamed"
    """One episode of pairs and trials, or the pairs as one and every trial as another (paper)."""
    trials: int = 1
    """Trials per episode; 0 asks every type of every chain once (paper)."""

    def __post_init__(self) -> None:
        require_one_of(self, "chain", "split", "form")
        require(self.num_chains >= 2, "num_chains", self.num_chains, "give at least 2, a lure is of another chain")
        require(self.width >= 1, "width", self.width, "give at least 1")
        known = TYPES[self.chain]
        for name in self.types:
            require(name in known, "types", name, f"not a type of chains of {self.chain}; use {known}")
        require(len(set(self.types)) == len(self.types), "types", self.types, "name each type once")
        most = len(self.asked) * self.num_chains
        remedy = f"give 1 to {most}, one of each of {len(self.asked)} types for {self.num_chains} chains; 0 asks all"
        require(0 <= self.trials <= most, "trials", self.trials, remedy)

    @property
    def asked(self) -> tuple[str, ...]:
        """Types of trials that are asked."""
        return self.types or TYPES[self.chain]

    @property
    def num_pairs(self) -> int:
        """Pairs of an episode."""
        return self.num_chains * (self.chain - 1)

    @property
    def num_trials(self) -> int:
        """Trials of an episode."""
        return self.trials or len(self.asked) * self.num_chains

    @property
    def spec(self) -> TaskSpec:
        """Pairs, then cue, left and right of each trial; the pair that matters may be the first."""
        length = 2 * self.num_pairs + 3 * self.num_trials
        return TaskSpec(
            input_dim=self.width,
            num_classes=2,
            length=length,
            chance=0.5,
            solved=0.95,
            memory_span=2 * self.num_pairs + 2 if self.form == "paper" else length - 1,
            given_memory=self.form == "paper",
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows. ``source`` is the step that showed the right item in the last pair needed."""
        draw = self._draw_published if self.folder else self._draw_random
        inputs, answer, source = draw(batch_size, generator)
        asked = torch.zeros(inputs.shape[:2], dtype=torch.bool)
        asked[:, 2 * self.num_pairs + 2 :: 3] = True
        is_first = torch.zeros_like(asked)
        is_first[:, 0] = True
        if self.form == "paper":
            is_first[:, 2 * self.num_pairs :: 3] = True
        nothing = torch.zeros(inputs.shape[:2], dtype=torch.long)
        targets = nothing.masked_scatter(asked, answer)
        return Batch(inputs, is_first, targets, asked, asked, (nothing - 1).masked_scatter(asked, source))

    def count_items(self, batch: Batch) -> torch.Tensor:
        """Count the pairs, each at its first item."""
        steps = torch.arange(batch.inputs.shape[1])
        return ((steps < 2 * self.num_pairs) & (steps % 2 == 0)).long().expand(len(batch.inputs), -1)

    def scored_on(self, *, final: bool) -> Self:
        """Return itself, whose rows are always fresh; for published episodes the split valid, or test at the end."""
        return replace(self, split="test" if final else "valid") if self.folder else self

    def _draw_random(self, b: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw inputs ``[b, t, d]``, answers and sources ``[b, trials]`` from random vectors."""
        chains, letters = self.num_chains, self.chain
        # Items are numbered chain by chain, pairs too: pair j of chain i is number i * (letters - 1) + j.
        items = torch.nn.functional.normalize(torch.randn(b, chains * letters, self.width, generator=generator), dim=-1)
        first = (torch.arange(chains)[:, None] * letters + torch.arange(letters - 1)).flatten()
        order = torch.rand(b, self.num_pairs, generator=generator).argsort(-1)  # pair at each place
        flipped = torch.randint(2, (b, self.num_pairs), generator=generator)  # whether its later letter comes first
        pairs = torch.stack((first[order] + flipped, first[order] + 1 - flipped), 2)  # b pairs 2

        kind, chain, other = self._draw_trials(b, generator)
        ends = torch.tensor([["ABCD".index(letter) for letter in name] for name in self.asked])
        cue_letter, letter = ends[kind].unbind(-1)  # each b trials
        right, lure = chain * letters + letter, other * letters + letter
        answer = torch.randint(2, kind.shape, generator=generator)
        choices = torch.where(answer[..., None] == torch.arange(2), right[..., None], lure[..., None])
        trials = torch.cat(((chain * letters + cue_letter)[..., None], choices), -1)  # b trials 3

        needed = chain * (letters - 1) + letter - 1  # the pair whose later letter is the right item
        place = order.argsort(-1).gather(1, needed)
        source = 2 * place + 1 - flipped.gather(1, place)
        shown = torch.cat((pairs.flatten(1), trials.flatten(1)), 1)
        return items[torch.arange(b)[:, None], shown], answer, source

    def _draw_trials(self, b: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw type, chain and the lure's chain of each trial, ``[b, trials]``; no type of a chain repeats."""
        kinds, chains = len(self.asked), self.num_chains
        if self.num_trials == 1:  # drawn as in earlier versions, which had one trial
            kind = torch.randint(kinds, (b,), generator=generator)[:, None]
            two = torch.rand(b, chains, generator=generator).argsort(-1)
            return kind, two[:, :1], two[:, 1:2]
        chosen = torch.rand(b, kinds * chains, generator=generator).argsort(-1)[:, : self.num_trials]
        chain = chosen % chains
        other = (chain + torch.randint(1, chains, chosen.shape, generator=generator)) % chains
        return chosen // chains, chain, other

    def _draw_published(self, b: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw the same from the published episodes."""
        data = read_published(self.folder, self.split, self.chain)
        found = (*data.memory.shape[1:2], *data.memory.shape[3:])
        if found != (self.num_pairs, self.width):
            raise ValueError(
                f"folder={self.folder!r} has {found[0]} pairs of width {found[1]}; num_chains={self.num_chains} and "
                f"width={self.width} need {self.num_pairs} pairs of width {self.width}: make them agree"
            )
        wanted = np.isin(data.trial_type, [TYPES[self.chain].index(name) + 1 for name in self.asked])
        if (wanted.sum(1) < self.num_trials).any():
            raise ValueError(
                f"types={self.asked}, trials={self.trials}: an episode in {self.folder!r} has fewer such trials; "
                "choose other types or fewer trials"
            )
        episode = torch.randint(len(data.memory), (b,), generator=generator).numpy()
        chance = torch.rand(b, wanted.shape[1], generator=generator).numpy()
        trial = (-np.where(wanted[episode], chance, -1.0)).argsort(1, kind="stable")[:, : self.num_trials]
        memory, trials = data.memory[episode], data.trials[episode[:, None], trial]  # b p 2 d, b k 3 d
        answer = data.correct_answer[episode[:, None], trial].astype(np.int64)
        source = [
            [last_link(m, t[0], t[1 + right]) for t, right in zip(asked, rights, strict=True)]
            for m, asked, rights in zip(memory, trials, answer, strict=True)
        ]
        inputs = np.concatenate(
            (memory.reshape(b, -1, self.width), trials.reshape(b, -1, self.width)), 1, dtype=np.float32
        )
        return torch.from_numpy(inputs), torch.from_numpy(answer), torch.tensor(source)


class Published(NamedTuple):
    """Published episodes: n of them with p pairs and k trials each."""

    memory: np.ndarray  # float32 [n, p, 2, d]: the pairs
    trials: np.ndarray  # float32 [n, k, 3, d]: cue, left, right
    correct_answer: np.ndarray  # int [n, k]: 0 left, 1 right
    trial_type: np.ndarray
    """int ``[n, k]``: 1 is the first of :data:`TYPES`."""


@lru_cache(maxsize=4)
def read_published(folder: str, split: str, chain: int) -> Published:
    """Read the published episodes from ``folder/length<chain>/<split>/``; a leading ``~`` is the user's home.

    The folder holds either four files ``memory.npy``, ``trials.npy``, ``correct_answer.npy`` and ``trial_type.npy``,
    which are memory-mapped, or any number of ``.npz`` files with arrays of these names, which are read at once.
    Shapes are those of :class:`Published`; a file of one episode may leave out the first axis.

    Raises:
        ValueError: there is no such data, or it has other shapes.
    """
    here = expand_folder(folder, "folder") / f"length{chain}" / split
    shards = sorted(here.glob("*.npz"))
    if all((here / f"{name}.npy").is_file() for name in ARRAYS):
        shards, parts = [here], [[_memory_map(here / f"{name}.npy") for name in ARRAYS]]
    elif shards:
        parts = [_read_shard(shard) for shard in shards]
    else:
        raise ValueError(
            f"folder={folder!r}: no episodes in {here}. Download {PUBLISHED}/length{chain}/{split} "
            f"({SHARDS[split]} TFRecord shards; examples with the features {', '.join(ARRAYS)}), and save these arrays "
            f"there, as {ARRAYS[0]}.npy and so on or as .npz shards; or leave folder empty for random vectors"
        )
    columns = []
    for name, *arrays in zip(ARRAYS, *parts, strict=True):
        axes = 4 if name in ("memory", "trials") else 2
        whole = [array if array.ndim == axes else array[None] for array in arrays]
        for shard, array in zip(shards, whole, strict=True):
            if array.ndim != axes or array.shape[1:] != whole[0].shape[1:]:
                raise ValueError(
                    f"{shard}: {name} is {list(array.shape)}, and that of {shards[0].name} {list(whole[0].shape)}: an "
                    f"array of episodes has {axes} axes, all but the first of one size: save this shard again"
                )
        columns.append(whole[0] if len(whole) == 1 else np.concatenate(whole))
    data = Published(*columns)
    (n, k), (p, d) = data.correct_answer.shape, (data.memory.shape[1], data.memory.shape[-1])
    for name, array, shape in zip(ARRAYS, data, ((n, p, 2, d), (n, k, 3, d), (n, k), (n, k)), strict=True):
        if array.shape != shape:
            raise ValueError(f"folder={folder!r}: {name} is {list(array.shape)}, the others need {list(shape)}")
    for name, low, high in (("correct_answer", 0, 1), ("trial_type", 1, len(TYPES[chain]))):
        array = getattr(data, name)
        if array.min() < low or array.max() > high:
            raise ValueError(f"folder={folder!r}: {name} has {array.min()}..{array.max()}; it should be {low}..{high}")
    return data


def last_link(memory: np.ndarray, cue: np.ndarray, right: np.ndarray) -> int:
    """Find the step that shows ``right`` in the last pair of the shortest path to it from ``cue``; -1 without a path.

    Args:
        memory: ``[p, 2, d]``: the pairs. Items are the same where all their numbers are.
        cue: ``[d]``.
        right: ``[d]``.
    """
    names = [[item.tobytes() for item in pair] for pair in np.ascontiguousarray(memory)]
    reached, goal = {cue.tobytes()}, right.tobytes()
    while True:
        steps = {
            pair[1 - side]: 2 * number + 1 - side
            for number, pair in enumerate(names)
            for side in (0, 1)
            if pair[side] in reached and pair[1 - side] not in reached
        }
        if goal in steps or not steps:
            return steps.get(goal, -1)
        reached |= steps.keys()


def _memory_map(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError) as error:  # NumPy raises any of these for a damaged file
        raise ValueError(f"{path}: it is damaged or no .npy file of numbers ({error}): save it again") from None


def _read_shard(path: Path) -> list[np.ndarray]:
    shard = read_arrays(path)
    missing = [name for name in ARRAYS if name not in shard]
    if missing:
        raise ValueError(f"{path}: no array {missing[0]!r}; save {', '.join(ARRAYS)} in every shard")
    return [shard[name] for name in ARRAYS]
