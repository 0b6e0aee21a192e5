"""What every evaluation can say, whatever was trained and wherever it is scored."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Score(ABC):
    """A score with its 95 % interval, and what stands beside it."""

    score: float
    """Share of right answers, or mean score of an episode in the world's own measure."""
    low: float
    """Lower end of the 95 % interval; NaN when a single row played."""
    high: float
    """Upper end of the 95 % interval; NaN when a single row played."""
    chance: float
    """Expected score of a model that cannot remember; NaN when the world does not say."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """The numbers of a row of metrics.csv."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All numbers but those of single rows, as JSON data."""

    @abstractmethod
    def by_row(self) -> tuple[list[float], list[int]]:
        """Sum of what is averaged in each row, and how many things that sum is over. Rows are independent."""

    @abstractmethod
    def describe(self) -> str:
        """One line for a person."""

    def interval(self) -> str:
        """The interval for a person, with a comma behind it; nothing where nobody knows it."""
        return "" if math.isnan(self.low) else f"95 % interval {self.low:.4f} to {self.high:.4f}, "
