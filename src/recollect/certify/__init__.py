"""The streaming certificate: does a memory core keep the contract of :mod:`recollect.cores.contract`?

    from recollect.certify import certify, load
    print(certify(load("hcam")))            # a core of the table, at certification size
    print(certify(MyCore(), input_shape=(8,)))

Names are imported when they are first used, so that the pytest plugin costs nothing where it is not wanted.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.certify.card import Card, Line, summary
    from recollect.certify.loading import Candidate, from_config, load, small_config
    from recollect.certify.run import LINES, SLOW_LINES, certify, certify_many

_HOMES = {
    "Card": "card",
    "Line": "card",
    "summary": "card",
    "Candidate": "loading",
    "from_config": "loading",
    "load": "loading",
    "small_config": "loading",
    "LINES": "run",
    "SLOW_LINES": "run",
    "certify": "run",
    "certify_many": "run",
}

__all__ = [
    "LINES",
    "SLOW_LINES",
    "Candidate",
    "Card",
    "Line",
    "certify",
    "certify_many",
    "from_config",
    "load",
    "small_config",
    "summary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
