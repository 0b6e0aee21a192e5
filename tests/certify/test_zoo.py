"""The certificate passes cores that keep the contract, and catches each broken one on the right line."""

import honest
import honest_papers
import pytest
import torch
import unusual
import zoo
import zoo_corners
import zoo_paths
import zoo_use

from recollect.certify import LINES, SLOW_LINES, certify
from tiers import first


@pytest.fixture(autouse=True)
def ordinary_memory(seeded):
    """`ReadsUnwritten` must be caught as a stranger would meet it, with whatever torch.empty holds."""
    torch.use_deterministic_algorithms(False)


QUICK = [name for name in LINES if name not in SLOW_LINES]


ECHOES = {"stream", "modes", "copies", "frames", "weights", "long", "cost", "backward", "float32"}
"""Lines that make many kinds of calls: a mistake that has its own line often shows in them too."""


@pytest.mark.long
@pytest.mark.parametrize("name", zoo.CORRECT)
def test_correct_core_passes_every_line(name):
    card = certify(zoo.CORRECT[name](), rebuild=zoo.CORRECT[name], input_shape=(zoo.WIDTH,), long_steps=3000)
    assert card.passed, str(card)
    assert [line.name for line in card.lines] == list(LINES)
    skipped = [line.name for line in card.lines if line.status == "skip"]
    lacks = ["stream", "copies", "reference", "frames", "float16"]
    assert skipped == (lacks if name == "plain" else ["reference", "float16"])


@pytest.mark.long
@pytest.mark.parametrize("core", [zoo_paths.Rotating, zoo_paths.EqualsPlainForm])
def test_complex_memory_and_plain_form_pass(core):
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), long_steps=3000)
    assert card.passed, str(card)
    assert card["reference"].status == ("pass" if core is zoo_paths.EqualsPlainForm else "skip")


@pytest.mark.long
@pytest.mark.parametrize("core", [*honest.HONEST, *honest_papers.PAPERS], ids=lambda core: core.__name__)
def test_honest_core_of_a_stranger_passes(core):
    card = certify(core(), rebuild=core, input_shape=(honest.WIDTH,), long_steps=2000, long_seconds=0.5)
    assert card.passed, str(card)


@pytest.mark.long
@pytest.mark.parametrize("core", unusual.UNUSUAL, ids=lambda core: core.__name__)
def test_unusual_core_passes(core):
    shape = (unusual.WIDTH,)
    card = certify(core(), rebuild=core, input_shape=shape, steps=24, long_steps=1000, long_seconds=0.3)
    assert card.passed, str(card)


ONE_LINE = {**zoo_paths.ONE_PATH, **zoo_corners.CORNERS, **zoo_use.USE}


@pytest.mark.long
@pytest.mark.parametrize("core", ONE_LINE, ids=lambda core: core.__name__)
def test_core_that_is_wrong_on_one_path_is_caught(core):
    line = ONE_LINE[core]
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), lines=[line], long_steps=2000, long_seconds=20)
    assert card.failed == (line,), f"{line} does not see it\n{card}"
    assert card[line].cause, "a failed line names its likely cause"
    assert "raised" not in card[line].detail


@pytest.mark.parametrize("core", first(6, zoo.BROKEN), ids=lambda core: core.__name__)
def test_broken_core_is_caught_by_the_right_line(core):
    line, companions = zoo.BROKEN[core]
    # Seconds are spent only on the slow lines that the mistake is about. Seed 3 tries the plain circumstances: the
    # others repeat every line, so a mistake would show in all of them.
    lines = [*QUICK, *({line, *companions} & set(SLOW_LINES))]
    quick = line not in SLOW_LINES
    card = certify(
        core(),
        rebuild=core,
        input_shape=(zoo.WIDTH,),
        lines=lines,
        long_steps=2000,
        long_seconds=20,
        quick=quick,
        seed=3 if quick else 0,
    )
    assert line in card.failed, f"{line} does not see it\n{card}"
    assert set(card.failed) <= {line} | companions | ECHOES, f"lines that should not mind do\n{card}"
    assert card[line].cause, "a failed line names its likely cause"


def test_every_line_catches_something():
    caught = {line for line, _ in zoo.BROKEN.values()} | set(ONE_LINE.values())
    assert caught | {"export"} == set(LINES)
    assert "export" in zoo.BROKEN[zoo.Branches][1]


@pytest.mark.long
def test_the_right_line_at_other_seeds():
    for seed in (1, 2, 3):
        for core in (zoo.ResetsOneStepLate, zoo.PeeksAhead, zoo.ChunksAnchoredAtCall, zoo.SoftmaxLeaks):
            line, _ = zoo.BROKEN[core]
            card = certify(core(), input_shape=(zoo.WIDTH,), lines=[line], seed=seed)
            assert card.failed == (line,), str(card)
        for core in (zoo.Recurrent, zoo.Window, zoo.Chunked):
            card = certify(core(), lines=["splits", "stream", "reset", "poison", "future"], seed=seed)
            assert card.passed, str(card)
