"""Settings of demonstrations of minigrid's bot in BabyAI levels."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from recollect.config import require, require_types
from recollect.lazy import np
from recollect.tasks.gymnasium.babyai_levels import level_id, level_name


@dataclass(frozen=True, kw_only=True)
class DemonstrationsConfig:
    """Settings of recorded demonstrations."""

    levels: tuple[str, ...] = ("GoToLocal",)
    """BabyAI levels, as GoToLocal or BabyAI-GoToLocal-v0."""
    episodes: int = 1000
    """Episodes of each level."""
    seed: int = 0
    """Seed that determines the seeds of all episodes."""
    words: int = 16
    """Most words of an instruction, as in the training world; a longer one ends the recording."""
    vocabulary: int = 1024
    """Size of the hashed vocabulary, as in the training world."""
    seconds: float = 10.0
    """Time limit of an episode in seconds."""
    attempts: int = 50
    """Seeds that are tried for one episode before the recording fails."""

    def __post_init__(self) -> None:
        require_types(self)
        require(bool(self.levels), "levels", self.levels, "name at least one level")
        require(len(set(map(level_id, self.levels))) == len(self.levels), "levels", self.levels, "name each level once")
        require(self.episodes >= 1, "episodes", self.episodes, "record at least one")
        require(self.seconds > 0, "seconds", self.seconds, "give some seconds")
        require(self.attempts >= 1, "attempts", self.attempts, "try at least one seed")
        require(self.words >= 1, "words", self.words, "keep at least one word")
        require(2 <= self.vocabulary <= 2**15, "vocabulary", self.vocabulary, "give 2 to 32768")

    def seed_of(self, level: str, episode: int, attempt: int) -> int:
        """Return the seed of an attempt at an episode."""
        name = zlib.crc32(level_name(level).encode())
        return int(np.random.SeedSequence([self.seed % 2**32, name, episode, attempt]).generate_state(1)[0] >> 1)
