"""Correct cores pass the certificate, and each broken core fails on the line for its mistake.

The short tier has one broken core per line; the whole zoo is in the long tier.
"""

import foreign_blocks
import foreign_cores
import foreign_memories
import pytest
import torch
import unusual
import user_cores
import zoo
import zoo_combinations
import zoo_corners
import zoo_paths
import zoo_rows
import zoo_sizes
import zoo_streams
import zoo_training
import zoo_use

from recollect.certify import LINES, SLOW_LINES, certify
from tiers import first

QUICK = [name for name in LINES if name not in SLOW_LINES]

ECHOES = {
    "stream",
    "modes",
    "copies",
    "row-subset",
    "frames",
    "frames-memory",
    "weights",
    "long",
    "cost",
    "backward",
    "float32",
    "bfloat16",
    "transforms",
}
"""Lines that make many kinds of calls, so that a mistake with a line of its own often fails them too."""

ONE_LINE = {
    **zoo_paths.ONE_PATH,
    **zoo_corners.CORNERS,
    **zoo_use.USE,
    **zoo_rows.ROWS,
    **zoo_sizes.SIZES,
    **zoo_streams.STREAMS,
    **zoo_training.TRAINING,
}
DRAWN = {**zoo_sizes.SIZES, **zoo_combinations.COMBINATIONS, **zoo_training.LONG_OR_WIDE}
"""Broken cores that only drawn sizes or modes meet."""
BY_LINE = {line: core for core, line in reversed(ONE_LINE.items())} | {
    line: core for core, (line, _) in reversed(zoo.BROKEN.items())
}
"""The first broken core of every line."""


@pytest.fixture(autouse=True)
def ordinary_memory(seeded):
    """Use the memory of an ordinary program, because `ReadsUnwritten` must be caught in it."""
    torch.use_deterministic_algorithms(False)


def test_every_line_has_a_broken_core():
    assert set(BY_LINE) == set(LINES)


@pytest.mark.parametrize("line", LINES)
def test_line_catches_a_broken_core(line):
    core = BY_LINE[line]
    slow = line in SLOW_LINES
    options = {"rebuild": core, "long_steps": 2000, "long_seconds": 20, "quick": not slow}
    card = certify(core(), input_shape=(zoo.WIDTH,), lines=[line], **options)
    assert card.failed == (line,), str(card)
    assert card[line].cause, "a failed line names its likely cause"


@pytest.mark.parametrize("core", zoo_rows.ROWS, ids=lambda core: core.__name__)
def test_rows_that_step_alone(core):
    card = certify(core(), input_shape=(zoo.WIDTH,), lines=["row-subset"], quick=True)
    assert card.failed == ("row-subset",) and card["row-subset"].cause, str(card)
    assert "raised" not in card["row-subset"].detail, str(card)


def test_stream_of_a_class_of_its_own_passes():
    card = certify(zoo_streams.HasOwnStream(), input_shape=(zoo.WIDTH,), lines=["stream", "copies"], size_seed=0)
    assert card.passed, str(card)


@pytest.mark.parametrize("name", first(1, ["chunked", "plain"]))
def test_correct_core_passes_the_quick_lines(name):
    core = zoo.CORRECT[name]
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), lines=QUICK, quick=True)
    assert card.passed, str(card)


STEPS = 24
"""Steps of test sequences: twice the longest window and chunk of these cores, and more."""


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name in zoo.CORRECT if name != "recurrent"]
)  # "with dropout" is a recurrent one
def test_correct_core_passes_every_line(name):
    core, options = zoo.CORRECT[name], {"steps": STEPS, "long_steps": 3000, "size_seed": 0}
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), **options)
    assert card.passed, str(card)
    assert [line.name for line in card.lines] == list(LINES)
    lacks = ("stream", "copies", "row-subset", "reference", "frames", "float16")
    assert card.named("skip") == (lacks if name == "plain" else ("reference", "float16"))


@pytest.mark.long
@pytest.mark.parametrize("core", [zoo_paths.Rotating, zoo_paths.EqualsPlainForm])
def test_complex_memory_and_reference_pass(core):
    options = {"steps": STEPS, "long_steps": 3000, "size_seed": 0}
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), **options)
    assert card.passed, str(card)
    assert card["reference"].status == ("pass" if core is zoo_paths.EqualsPlainForm else "skip")


@pytest.mark.long
@pytest.mark.parametrize("core", [*user_cores.USER_CORES, *unusual.UNUSUAL], ids=lambda core: core.__name__)
def test_user_defined_core_passes(core):
    options = {"steps": STEPS, "long_steps": 1000, "long_seconds": 0.3, "size_seed": 0}
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), **options)
    assert card.passed, str(card)


FOREIGN = [*foreign_cores.RECURRENT, *foreign_memories.MEMORIES, *foreign_blocks.BLOCKS]


@pytest.mark.long
@pytest.mark.parametrize("core", FOREIGN, ids=lambda core: core.__name__)
def test_core_of_another_author_passes_the_quick_certificate(core):
    shape = getattr(core, "input_shape", (foreign_cores.WIDTH,))
    turn = FOREIGN.index(core) % 3  # in turn without a variant, in training, and with nothing contiguous
    card = certify(core(), rebuild=core, input_shape=shape, quick=True, seed=turn, long_steps=300)
    assert card.passed, str(card)


@pytest.mark.parametrize("line", ["poison", "reset-gradient"])
def test_sums_over_a_call_reach_across_resets(line):
    core = foreign_memories.SumsOverTheCall
    card = certify(core(), rebuild=core, input_shape=(foreign_cores.WIDTH,), lines=[line], quick=True, seed=2)
    assert card.failed == (line,), str(card)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_counter_that_stands_at_zero_has_no_derivative(seed):
    core = foreign_cores.Elman  # its clock of eight steps is at zero after 48
    card = certify(core(), rebuild=core, input_shape=(foreign_cores.WIDTH,), lines=["backward"], seed=seed, size_seed=0)
    assert card.passed, str(card)


@pytest.mark.slow
@pytest.mark.parametrize("core", FOREIGN, ids=lambda core: core.__name__)
def test_core_of_another_author_passes_every_line(core):
    shape = getattr(core, "input_shape", (foreign_cores.WIDTH,))
    card = certify(core(), rebuild=core, input_shape=shape, long_steps=2000, long_seconds=0.5, size_seed=0)
    assert card.passed, str(card)


@pytest.mark.long
def test_a_thorough_certificate_runs_the_step_in_onnxruntime():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    options = {"input_shape": (zoo.WIDTH,), "lines": ["export"], "size_seed": 0}
    assert "onnxruntime" not in certify(zoo.Recurrent(), **options)["export"].detail
    card = certify(zoo.Recurrent(), thorough=True, **options)
    assert card.passed and "(torch and onnxruntime)" in card["export"].detail, str(card)


@pytest.mark.long
@pytest.mark.parametrize("core", ONE_LINE, ids=lambda core: core.__name__)
def test_core_that_is_wrong_on_one_path_is_caught(core):
    line = ONE_LINE[core]
    options = {"lines": [line], "long_steps": 2000, "long_seconds": 20, "size_seed": 0}
    card = certify(core(), rebuild=core, input_shape=(zoo.WIDTH,), **options)
    assert card.failed == (line,), f"{line} does not see it\n{card}"
    assert card[line].cause, "a failed line names its likely cause"
    assert "raised" not in card[line].detail


@pytest.mark.long
@pytest.mark.parametrize("core", zoo.BROKEN, ids=lambda core: core.__name__)
def test_broken_core_is_caught_by_the_right_line(core):
    line, companions = zoo.BROKEN[core]
    # Only the slow lines that the mistake is about. Seed 3 tests the core without variants, in which every line would
    # be repeated.
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
        size_seed=0,
    )
    assert line in card.failed, f"{line} does not see it\n{card}"
    assert set(card.failed) <= {line} | companions | ECHOES, f"unrelated lines fail\n{card}"


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds(seed):
    for core in (zoo.ResetsOneStepLate, zoo.PeeksAhead, zoo.ChunksAnchoredAtCall, zoo.SoftmaxLeaks):
        line, _ = zoo.BROKEN[core]
        card = certify(core(), input_shape=(zoo.WIDTH,), lines=[line], seed=seed, size_seed=seed)
        assert card.failed == (line,), str(card)
    for core in (zoo.Recurrent, zoo.Window, zoo.Chunked):
        card = certify(core(), lines=["splits", "stream", "reset", "poison", "future"], seed=seed, size_seed=seed)
        assert card.passed, str(card)


@pytest.mark.long
@pytest.mark.parametrize("size_seed", [1, 2, 3])
@pytest.mark.parametrize("core", DRAWN, ids=lambda core: core.__name__)
def test_drawn_sizes_meet_what_no_list_has(core, size_seed):
    line = DRAWN[core]
    card = certify(core(), input_shape=(zoo.WIDTH,), lines=[line], size_seed=size_seed)
    assert card.failed == (line,) and card[line].cause and "raised" not in card[line].detail, str(card)
    assert f"--size-seed {size_seed}" in str(card).replace("\n", " ")


@pytest.mark.long
def test_sizes_are_drawn_anew_unless_a_seed_is_given():
    first, again = (certify(zoo.Recurrent(), lines=["rows", "splits"], size_seed=5) for _ in range(2))
    other = certify(zoo.Recurrent(), lines=["rows", "splits"])
    drawn = [[line.detail.partition("drawn: ")[2] for line in card.lines] for card in (first, again, other)]
    assert all(drawn[0]) and drawn[0] == drawn[1] and drawn[0] != drawn[2]
    assert other.size_seed is not None and f"--size-seed {other.size_seed}" in str(other)
