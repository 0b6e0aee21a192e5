"""The two tiers of the suite: ``make test`` leaves out what is marked ``long``, ``make test-all`` runs everything."""

from collections.abc import Iterable

import pytest


def first(count: int, values: Iterable[object]) -> list[object]:
    """Return parameters of a test of which all but the first ``count`` are in the long tier."""
    return [value if i < count else _long(value) for i, value in enumerate(values)]


def only(short: Iterable[object], values: Iterable[object]) -> list[object]:
    """Return parameters of a test of which all but ``short`` are in the long tier."""
    kept = set(short)
    return [value if value in kept else _long(value) for value in values]


def _long(value: object) -> object:
    values = value if isinstance(value, tuple) else (value,)
    if type(value).__name__ == "ParameterSet":
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.long], id=value.id)
    return pytest.param(*values, marks=pytest.mark.long)
