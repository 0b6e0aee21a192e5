"""The certificate passes cores that keep the contract, and catches each broken one on the right line."""

import pytest
import torch
import zoo

from recollect.certify import LINES, SLOW_LINES, certify


@pytest.fixture(autouse=True)
def ordinary_memory(seeded):
    """`ReadsUnwritten` must be caught as a stranger would meet it, with whatever torch.empty holds."""
    torch.use_deterministic_algorithms(False)


QUICK = [name for name in LINES if name not in SLOW_LINES]


@pytest.mark.parametrize("name", zoo.CORRECT)
def test_correct_core_passes_every_line(name):
    card = certify(zoo.CORRECT[name](), rebuild=zoo.CORRECT[name], input_shape=(zoo.WIDTH,), long_steps=3000)
    assert card.passed, str(card)
    assert [line.name for line in card.lines] == list(LINES)
    skipped = [line.name for line in card.lines if line.status == "skip"]
    assert skipped == (["stream"] if name == "plain" else [])


@pytest.mark.parametrize("core", zoo.BROKEN, ids=lambda core: core.__name__)
def test_broken_core_is_caught_by_the_right_line(core):
    line, companions = zoo.BROKEN[core]
    # Seconds are spent only on the slow lines that the mistake is about.
    lines = [*QUICK, *({line, *companions} & set(SLOW_LINES))]
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), lines=lines, long_steps=2000, long_seconds=1.0)
    assert line in card.failed, f"{line} does not see it\n{card}"
    assert set(card.failed) <= {line} | companions, f"lines that should not mind do\n{card}"
    assert card[line].cause, "a failed line names its likely cause"


def test_every_line_catches_something():
    assert {line for line, _ in zoo.BROKEN.values()} | {"export"} == set(LINES)
    assert "export" in zoo.BROKEN[zoo.Branches][1]


def test_the_right_line_at_other_seeds():
    for seed in (1, 2, 3):
        for core in (zoo.ResetsOneStepLate, zoo.PeeksAhead, zoo.ChunksAnchoredAtCall, zoo.SoftmaxLeaks):
            line, _ = zoo.BROKEN[core]
            card = certify(core(), input_shape=(zoo.WIDTH,), lines=[line], seed=seed)
            assert card.failed == (line,), str(card)
        for core in (zoo.Recurrent, zoo.Window, zoo.Chunked):
            card = certify(core(), lines=["splits", "stream", "reset", "poison", "future"], seed=seed)
            assert card.passed, str(card)
