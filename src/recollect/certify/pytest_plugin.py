"""pytest plugin: the streaming certificate as a fixture, for any library with memory cores.

    def test_contract(certify):
        certify(MyCore(), input_shape=(8,))

The test fails with the card as its message. torch is imported only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from recollect.certify.card import Card


@pytest.fixture
def certify() -> Callable[..., Card]:
    """Return :func:`recollect.certify.certify` in a form that fails the test unless the card passes.

    Sizes are drawn from ``seed`` unless ``size_seed`` is given, so that a test is the same every time.
    """

    def run(core: Any, **options: Any) -> Card:
        from recollect.certify import certify as run_certificate

        options.setdefault("size_seed", options.get("seed", 0))  # a suite repeats what it tested
        card = run_certificate(core, **options)
        if not card.passed:
            pytest.fail(str(card), pytrace=False)
        return card

    return run
