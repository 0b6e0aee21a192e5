"""What scores say: numbers with their chance level and interval, one line for a person, JSON for tools."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number and what to hold against it."""

    name: str
    value: float
    chance: float = math.nan
    """Of a head that knows nothing, or of the control that ``against`` names; NaN where there is none."""
    against: str = "chance"
    """What ``chance`` is."""
    number: int = 0
    """Decisions, steps or episodes behind the value."""
    low: float = math.nan
    """Of the 95 % bootstrap interval over episodes; NaN for a single one."""
    high: float = math.nan
    unit: str = ""

    def describe(self) -> str:
        """One line for a person."""
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        control = "" if math.isnan(self.chance) else f", {self.against} {self.chance:.2f}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} {self.value:.2f}{unit}{interval}{control} (n {self.number})"


@dataclass(frozen=True, kw_only=True)
class HeadReport:
    """One head."""

    name: str
    label: str
    """``recency``, ``offset n``, ``content``, ``diffuse``, ``static`` or ``unread``."""
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A check without which no picture should be believed."""

    name: str
    passed: bool | None
    """None where it could not be tried."""
    says: str
    """What was found, in words."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Scores of one or several episodes of one agent."""

    episodes: int
    metrics: tuple[Metric, ...]
    """Of the memory: the mean over chunk heads, or over all heads where there are none."""
    heads: tuple[HeadReport, ...]
    coupling: Mapping[str, int] = field(default_factory=dict)
    """Episodes by ``recalled and succeeded``, ``recalled and failed``, ``missed and succeeded``, ``missed and
    failed``."""
    gates: tuple[Gate, ...] = ()
    verdict: str = ""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Metric:
        """The metric of that name; ``KeyError`` where it could not be computed."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(f"{name!r}: this report has {', '.join(metric.name for metric in self.metrics)}")

    def __contains__(self, name: str) -> bool:
        """Whether there is such a metric."""
        return any(metric.name == name for metric in self.metrics)

    def to_json(self) -> dict[str, Any]:
        """As JSON data; a number that is not known is null."""
        return without_nan(asdict(self))


def without_nan(value: Any) -> Any:
    """Data for JSON, which knows no NaN and no infinity: null stands there."""
    if isinstance(value, Mapping):
        return {str(name): without_nan(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
