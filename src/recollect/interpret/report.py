"""Metrics of recorded episodes with their chance level and interval, sanity checks, and the report of both.

A measure yields one :data:`Sample` for every decision, step or episode that it judges: the value, and what a head
without any information would score. :func:`add_up` sums the samples of a record, :func:`pool` the sums of records.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from recollect.evaluation.confidence_interval import confidence_interval
from recollect.files import without_nan

Sample = tuple[float, float]  # value and chance level
Samples = Iterator[Sample]


class Ratio(NamedTuple):
    """Sums of the samples of one record, and their number."""

    total: float
    chance: float
    number: int


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number with its control."""

    name: str
    value: float
    chance: float = math.nan  # value of the control that ``against`` names; NaN without one
    against: str = "chance"
    number: int = 0  # decisions, steps or episodes behind the value
    low: float = math.nan  # of the 95 % bootstrap interval over episodes; NaN for a single one
    high: float = math.nan
    unit: str = ""

    def describe(self) -> str:
        """Return one line for a person."""
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        control = "" if math.isnan(self.chance) else f", {self.against} {self.chance:.2f}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} {self.value:.2f}{unit}{interval}{control} (n {self.number})"


@dataclass(frozen=True, kw_only=True)
class HeadReport:
    """Measures of one attention head."""

    name: str
    label: str  # ``recency``, ``offset n``, ``content``, ``diffuse``, ``static`` or ``unread``
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A sanity check; without it no picture should be believed."""

    name: str
    passed: bool | None  # None where it could not be tried
    says: str  # the finding in words


@dataclass(frozen=True, kw_only=True)
class Report:
    """Scores of one or several episodes of one agent."""

    episodes: int
    metrics: tuple[Metric, ...]  # of the memory: the mean over chunk heads, or over all heads where there are none
    heads: tuple[HeadReport, ...]
    coupling: Mapping[str, int] = field(default_factory=dict)
    """Episodes by ``recalled and succeeded``, ``recalled and failed``, ``missed and succeeded``, ``missed and
    failed``."""
    gates: tuple[Gate, ...] = ()
    verdict: str = ""
    """Whether the agent acts on its memory, in one or two sentences; see :mod:`recollect.interpret.verdict`."""
    answer: str = ""
    """The verdict's first word: ``yes``, ``no`` or ``cannot tell``."""
    key_numbers: Mapping[str, str] = field(default_factory=dict)
    """The two or three numbers that decide it, as text by what they are."""
    findings: str = ""
    """What the measures show, and which failed checks forbid to believe it, in one line."""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Metric:
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(f"{name!r}: this report has {', '.join(metric.name for metric in self.metrics)}")

    def __contains__(self, name: str) -> bool:
        return any(metric.name == name for metric in self.metrics)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, with null for an unknown number."""
        return without_nan(asdict(self))


def add_up(samples: Iterable[Sample]) -> Ratio:
    """Sum samples in their order."""
    total, chance, number = 0.0, 0.0, 0
    for value, by_chance in samples:
        total, chance, number = total + value, chance + by_chance, number + 1
    return Ratio(float(total), float(chance), number)


def pool(name: str, ratios: Sequence[Ratio], *, against: str = "chance", unit: str = "") -> list[Metric]:
    """Return the mean over all samples of all records with its interval over records; empty without samples."""
    number = sum(ratio.number for ratio in ratios)
    if not number:
        return []
    totals, numbers = (np.array([getattr(ratio, part) for ratio in ratios], float) for part in ("total", "number"))
    low, high = confidence_interval(totals, numbers)
    chance = sum(ratio.chance for ratio in ratios) / number
    value = float(totals.sum() / number)
    return [
        Metric(name=name, value=value, chance=chance, against=against, number=number, low=low, high=high, unit=unit)
    ]
