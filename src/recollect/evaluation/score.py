"""Base of all evaluation results."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Score(ABC):
    """A score with its 95 % interval and the chance level."""

    score: float
    """Share of right answers, or mean score of an episode in the world's own measure."""
    low: float
    """Lower end of the 95 % interval; NaN for a single row."""
    high: float
    """Upper end of the 95 % interval; NaN for a single row."""
    chance: float
    """Expected score of a model that cannot remember; NaN when unknown."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Return the numbers of a row of metrics.csv."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return all numbers but those of single rows, as JSON data."""

    @abstractmethod
    def by_row(self) -> tuple[list[float], list[int]]:
        """Return the sum of what is averaged in each row, and the count behind it. Rows are independent."""

    @abstractmethod
    def describe(self) -> str:
        """Describe the score in one line."""

    def interval(self) -> str:
        """Format the interval with a trailing comma; empty where it is unknown."""
        return "" if math.isnan(self.low) else f"95 % interval {self.low:.4f} to {self.high:.4f}, "
