"""Text as bytes: token = byte + 1, cut or padded with 0; and made-up text that stands in where there is none."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recollect.tasks.disk_cache import data_folder, expand_folder
from recollect.tasks.streams.contract import Batch

VOCABULARY = 257
STAND_IN = "stand-in"
"""As a path: made-up rows, which are no data."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
USUAL = ["".join(LETTERS[(7 * i + j * (i + 3)) % 26] for j in range(2 + i % 6)) for i in range(60)]
"""Words of made-up text that every topic uses."""


def encode(text: str | bytes, length: int) -> np.ndarray:
    """The first bytes of a text as tokens 1..256, uint16."""
    raw = text.encode() if isinstance(text, str) else text
    return np.frombuffer(raw[:length], np.uint8).astype(np.uint16) + np.uint16(1)


def filled(rows: Sequence[np.ndarray], length: int) -> tuple[Tensor, Tensor]:
    """Rows of tokens as long ``[b, length]``, and their padding."""
    inputs = torch.zeros(len(rows), length, dtype=torch.long)
    padding = torch.ones(len(rows), length, dtype=torch.bool)
    for place, row in enumerate(rows):
        inputs[place, : len(row)] = torch.from_numpy(row.astype(np.int64))
        padding[place, : len(row)] = False
    return inputs, padding


def asked_at_the_end(inputs: Tensor, padding: Tensor, labels: Tensor) -> Batch:
    """Rows of one episode, whose class is asked at their last step that is not padding."""
    steps = torch.arange(1, inputs.shape[1] + 1)
    last = torch.where(padding, 0, steps).amax(1).clamp(min=1)
    asked = steps == last[:, None]
    is_first = (steps == 1).expand_as(asked).clone()
    targets = torch.where(asked, labels[:, None], 0)
    return Batch(inputs, is_first, targets, asked, asked, torch.full_like(inputs, -1), padding)


def split_words(text: bytes, chunk_len: int) -> bytes:
    """A text whose words lie over the borders of chunks: half of each word in one chunk, half in the next.

    Spaces are put in, at least one between two words, so that a chunk ends in the middle of every word: at the first
    border that the word before leaves room for. Longer words are cut to two chunks. A word of one letter has no
    middle, and begins a chunk.

    Source: Didolkar et al. 2022, section 7.3 (the study of half words); how a word is put there is ours.
    """
    found = bytearray()
    for word in text.split():
        part = word[: 2 * chunk_len]
        start = len(found) + bool(found)  # behind a space, where there is a word before
        border = -(-(start + len(part) // 2) // chunk_len) * chunk_len
        found += b" " * (border - len(part) // 2 - len(found)) + part
    return bytes(found)


def where(path: str, name: str) -> Path:
    """The folder that a task's ``path`` means; empty is ``name`` below the folder of data."""
    return expand_folder(path, "path") if path else data_folder() / name


def batches_of(rows: Tensor, batch_size: int, make: Callable[[Tensor], Batch]) -> Iterator[Batch]:
    """Batches of some rows, in order."""
    for numbers in rows.split(batch_size):
        yield make(numbers)


def words(random: np.random.Generator, count: int, topic: int) -> str:
    """Made-up text: words of two letters upon letters, some of which only one topic uses."""
    own = [f"{LETTERS[(5 * i + topic) % 26]}{LETTERS[(11 * i + 3) % 26]}{topic % 10}" for i in range(12)]
    rare = random.random(count) < 0.15
    drawn = random.integers(0, 60, count), random.integers(0, 12, count)
    return " ".join(own[b] if r else USUAL[a] for a, b, r in zip(*drawn, rare, strict=True))
