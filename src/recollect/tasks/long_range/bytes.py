"""Text as bytes: token = byte + 1, cut or padded with 0; and synthetic text that replaces missing data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recollect.lazy import np, torch
from recollect.tasks.streams.contract import Batch, single_episode_batch

VOCABULARY = 257
STAND_IN = "stand-in"  # as a path: synthetic rows instead of data
REMEDY = "download it as docs/datasets.md says, or set path to its folder, or to 'stand-in' for synthetic rows"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
USUAL = ["".join(LETTERS[(7 * i + j * (i + 3)) % 26] for j in range(2 + i % 6)) for i in range(60)]
"""Words of synthetic text that every topic uses."""


def encode(text: bytes, length: int) -> np.ndarray:
    """Encode the first bytes of a text as tokens 1..256, uint16."""
    return np.frombuffer(text[:length], np.uint8).astype(np.uint16) + np.uint16(1)


def pad_rows(rows: Sequence[np.ndarray], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of tokens as long ``[b, length]``, and their padding."""
    inputs = torch.zeros(len(rows), length, dtype=torch.long)
    padding = torch.ones(len(rows), length, dtype=torch.bool)
    for place, row in enumerate(rows):
        inputs[place, : len(row)] = torch.from_numpy(row.astype(np.int64))
        padding[place, : len(row)] = False
    return inputs, padding


def ask_at_last_step(inputs: torch.Tensor, padding: torch.Tensor, labels: torch.Tensor) -> Batch:
    """Make a batch whose rows are asked for their class at the last step that is not padding."""
    steps = torch.arange(1, inputs.shape[1] + 1)
    last = torch.where(padding, 0, steps).amax(1).clamp(min=1)
    asked = steps == last[:, None]
    return single_episode_batch(inputs, torch.where(asked, labels[:, None], 0), asked, padding=padding)


def require_utf8(text: bytes, file: Path, line: int, remedy: str) -> None:
    """Raise ``ValueError`` unless bytes, which begin at a line of a file, are UTF-8 text."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line += text[: error.start].count(b"\n")
        raise ValueError(f"{file}, line {line}: this is no UTF-8 text ({error.reason}): {remedy}") from None


def split_words(text: bytes, chunk_len: int) -> bytes:
    """Space a text so that every word crosses a chunk border: half of it in one chunk, half in the next.

    Each word is placed at the first border after the word before, with at least one space between them. Longer words
    are cut to two chunks. A word of one letter begins a chunk.

    Source: Didolkar et al. 2022, section 7.3 (the study of half words); the placement of a word is ours.
    """
    found = bytearray()
    for word in text.split():
        part = word[: 2 * chunk_len]
        start = len(found) + bool(found)  # after a space, where there is a word before
        border = -(-(start + len(part) // 2) // chunk_len) * chunk_len
        found += b" " * (border - len(part) // 2 - len(found)) + part
    return bytes(found)


def synthesize_text(random: np.random.Generator, count: int, topic: int) -> str:
    """Draw synthetic text: words of two letters or more, some of which only one topic uses."""
    own = [f"{LETTERS[(5 * i + topic) % 26]}{LETTERS[(11 * i + 3) % 26]}{topic % 10}" for i in range(12)]
    rare = random.random(count) < 0.15
    drawn = random.integers(0, 60, count), random.integers(0, 12, count)
    return " ".join(own[b] if r else USUAL[a] for a, b, r in zip(*drawn, rare, strict=True))
