import itertools
import math
import re
import tempfile
import typing
from dataclasses import replace
from pathlib import Path

import image_files
import numpy as np
import pytest
import torch

from recollect.tasks import (
    AAN,
    CIFAR,
    IMDB,
    STL10,
    TASKS,
    Copying,
    GreyCIFAR,
    ListOps,
    Mixture,
    Pathfinder,
    Recall,
    Shapes,
    StreamTask,
)
from recollect.tasks.streams.arrays import Arrays
from recollect.tasks.streams.associative_inference import AssociativeInference
from recollect.tasks.videos.contract import VideoTask

_FOLDER = tempfile.TemporaryDirectory()
CIFAR_10 = str(image_files.cifar(Path(_FOLDER.name) / "cifar"))
STL_10 = str(image_files.stl10(Path(_FOLDER.name) / "stl"))

SMALL = {
    "copying": [Copying(length=0), Copying(length=7, num_digits=3), Copying(length=100, loss_on="all")],
    "recall": [
        Recall(),
        Recall(num_keys=3, num_values=2, num_cues=2, num_queries=4, min_blank=0, max_blank=5, length=40),
        Recall(num_keys=9, num_values=1, num_cues=1, num_queries=1, min_blank=3, max_blank=3, num_blanks=4, length=33),
        Recall(overwrites=3, distractors=0.5, max_blank=9, length=40),
    ],
    "mixture": [Mixture(), Mixture(tasks=(Recall(), Recall(overwrites=2, max_blank=40, length=120)))],
    "arrays": [Arrays(), Arrays(part="validation", class_weights="balanced", standardize=False)],
    "listops": [
        ListOps(min_length=5, max_length=30, train_rows=300, validation_rows=40, test_rows=50),
        ListOps(min_length=5, max_length=30, max_args=4, train_rows=90, validation_rows=9, test_rows=9, part="test"),
    ],
    "pathfinder": [Pathfinder(size=16), Pathfinder()],
    "imdb": [
        IMDB(path="stand-in", length=300, validation=40),
        IMDB(path="stand-in", length=64, validation=0, split_words=10, part="test"),
    ],
    "aan": [AAN(path="stand-in", length=200), AAN(path="stand-in", length=50, part="validation")],
    "grey-cifar": [GreyCIFAR(path="stand-in"), GreyCIFAR(path="stand-in", size=16, zero_is_padding=True, part="test")],
    "shapes": [Shapes(size=16), Shapes(size=32, patch=8, clutter=0)],
    "cifar": [CIFAR(path=CIFAR_10, size=16, validation=4), CIFAR(path=CIFAR_10, size=16, part="test")],
    "stl-10": [STL10(path=STL_10, size=32, patch=8, validation=1), STL10(path=STL_10, patch=32, unlabelled=True)],
    "associative-inference": [
        AssociativeInference(num_chains=3, width=8),
        AssociativeInference(num_chains=2, width=3, types=("AC",)),
        AssociativeInference(chain=4, num_chains=4, width=5, types=("BC", "AD")),
    ],
}
# Videos have tests of their own: their inputs are frames, and several answers are right at a step.
STREAMS = [key for key, kind in TASKS.items() if issubclass(kind, StreamTask) and not issubclass(kind, VideoTask)]
CASES = [pytest.param(task, id=f"{key}-{i}") for key in STREAMS for i, task in enumerate(SMALL[key])]


def draw(task, rows=64, seed=0):
    return task.sample(rows, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("key", TASKS)
def test_numbers_that_are_not_whole_are_named(key):
    given = vars(TASKS[key]()).items()
    whole = {name: value for name, value in given if isinstance(value, int) and not isinstance(value, bool)}
    for name, value in whole.items():
        for wrong in (value + 0.5, True):
            with pytest.raises(ValueError, match=f"{name}={wrong}: "):
                TASKS[key](**{name: wrong})


@pytest.mark.parametrize("task", CASES)
def test_batch_fits_the_spec(task):
    spec, batch = task.spec, draw(task)
    if isinstance(task, Mixture):  # rows are as long as those of the task that was drawn
        assert spec.length == max(part.spec.length for part in task.tasks)
        spec = next(part.spec for part in task.tasks if part.spec.length == batch.inputs.shape[1])
    if spec.vocabulary is None:
        assert batch.inputs.shape == (64, spec.length, spec.input_dim)
        wanted = torch.float32 if spec.input_scale is None else torch.float64
        assert batch.inputs.dtype == wanted and batch.inputs.isfinite().all()
    else:
        assert batch.inputs.shape == (64, spec.length) and batch.inputs.dtype == torch.int64
        assert batch.inputs.min() >= 0 and batch.inputs.max() < spec.vocabulary
    assert batch.targets.shape == batch.source.shape == batch.is_first.shape == (64, spec.length)
    assert batch.targets.dtype == batch.source.dtype == torch.int64
    assert batch.is_first.dtype == batch.loss_mask.dtype == batch.score_mask.dtype == torch.bool
    assert batch.targets.min() >= 0 and batch.targets.max() < spec.num_classes
    assert batch.is_first[:, 0].all()
    assert (batch.score_mask & ~batch.loss_mask).sum() == 0
    assert batch.score_mask.any(1).all(), "every row asks something"
    assert (batch.targets[~batch.score_mask] == 0).all()


@pytest.mark.parametrize("task", CASES)
def test_the_generator_alone_decides(task):
    generator = torch.Generator().manual_seed(5)
    task.sample(3, generator)
    state = generator.get_state()
    torch.manual_seed(1)
    first = task.sample(8, generator)
    torch.manual_seed(2)
    again = task.sample(8, torch.Generator().set_state(state))
    for one, two in zip(first, again, strict=True):
        assert one is two is None or torch.equal(one, two)
    assert not torch.equal(first.inputs, task.sample(8, generator).inputs)


@pytest.mark.parametrize("task", CASES)
def test_source_is_in_the_same_episode_and_within_the_span(task):
    batch = draw(task, 256 if task.spec.memory_span else 16)
    episode = batch.is_first.long().cumsum(1)
    rows, steps = torch.nonzero(batch.source >= 0, as_tuple=True)
    sources = batch.source[rows, steps]
    assert batch.score_mask[rows, steps].all()
    assert (episode[rows, steps] == episode[rows, sources]).all()
    if not task.spec.memory_span:  # nobody knows it
        assert not len(rows)
        return
    distance = steps - sources
    assert distance.min() > 0
    assert distance.max() <= task.spec.memory_span


def test_memory_span_is_reached():
    recall = Recall(num_keys=2, num_cues=1, max_blank=12, length=40)
    for task in (Copying(length=7, num_digits=3), recall, AssociativeInference(num_chains=3, width=2)):
        batch = draw(task, 2048)
        steps = torch.arange(task.spec.length)
        assert int((steps - batch.source)[batch.source >= 0].max()) == task.spec.memory_span


def test_copying_is_the_paper_sequence():
    for length in (0, 1, 100, 600):
        batch = draw(Copying(length=length), 16)
        assert batch.inputs.shape[1] == length + 21
        for row in range(16):
            tokens = batch.inputs[row].tolist()
            digits = tokens[:10]
            assert all(1 <= digit <= 8 for digit in digits)
            assert tokens[10 : 10 + length] == [0] * length
            assert tokens[10 + length] == 9
            assert tokens[11 + length :] == [0] * 10
            assert batch.targets[row, -10:].tolist() == digits
            assert batch.score_mask[row].nonzero().flatten().tolist() == list(range(length + 11, length + 21))
            assert batch.is_first[row].nonzero().flatten().tolist() == [0]


def test_copying_trains_on_the_answer_or_on_all_steps():
    assert torch.equal(draw(Copying()).loss_mask, draw(Copying()).score_mask)
    everywhere = draw(Copying(loss_on="all"))
    assert everywhere.loss_mask.all()
    assert everywhere.score_mask.sum() == 64 * 10


def answers_with_perfect_memory(task, batch, *, resets=True):
    """Walk through every row with a dictionary."""
    cues = task.num_blanks
    queries = cues + task.num_keys * task.num_values
    said = torch.full_like(batch.targets, -1)
    for row, tokens in enumerate(batch.inputs.tolist()):
        memory = {}
        for step, token in enumerate(tokens):
            if resets and batch.is_first[row, step]:
                memory = {}
            if cues <= token < queries:
                key, value = divmod(token - cues, task.num_values)
                memory[key] = (value + 1, step)  # a later cue overwrites an earlier one
            elif queries <= token < queries + task.num_keys:  # what is above is a distractor
                said[row, step], where = memory.get(token - queries, (0, -1))
                if resets:
                    assert batch.source[row, step] == where
    return said


@pytest.mark.parametrize("task", SMALL["recall"])
def test_recall_is_solved_by_a_dictionary_that_is_reset(task):
    batch = draw(task)
    said = answers_with_perfect_memory(task, batch)
    assert torch.equal(said >= 0, batch.score_mask)
    assert torch.equal(said[batch.score_mask], batch.targets[batch.score_mask])


def test_recall_is_what_it_was_before_it_could_be_made_harder():
    batch = draw(Recall(), 16, seed=3)
    steps = torch.arange(80)
    assert [int((batch.inputs * steps).sum()), int((batch.targets * steps).sum())] == [147804, 10158]


def test_overwrites_give_new_values_to_keys_that_were_shown():
    task = Recall(num_keys=9, num_cues=3, num_queries=8, overwrites=4, min_blank=2, max_blank=2, length=40)
    batch = draw(task, 256)
    pairs = (batch.inputs >= 1) & (batch.inputs < 1 + 9 * 4)
    row, start = torch.nonzero(batch.is_first & pairs, as_tuple=True)
    whole = start + 7 + 2 + 8 <= 40
    keys = torch.stack([(batch.inputs[row, (start + i).clamp(max=39)] - 1) // 4 for i in range(7)], 1)[whole]
    assert all(len({*line[:3]}) == 3 and {*line[3:]} <= {*line[:3]} for line in keys.tolist())
    newest = batch.source[row[whole], start[whole] + 9] - start[whole]
    assert {*newest.tolist()} >= {3, 4, 5, 6}, "answers come from the cues that overwrite, too"


def test_distractors_take_their_share_of_the_blank_and_nobody_asks_for_them():
    task = Recall(distractors=0.25, max_blank=30, length=100)
    quiet, batch = Recall(max_blank=30, length=100), draw(task, 512)
    distracting = batch.inputs >= quiet.spec.vocabulary
    blank = (batch.inputs == 0) | distracting
    assert 0.23 < (distracting.sum() / blank.sum()) < 0.27
    assert not (distracting & batch.score_mask).any()
    assert batch.inputs[distracting].unique().numel() == task.num_keys * task.num_values


def test_features_say_what_the_tokens_say():
    tokens = Recall(num_blanks=2, distractors=0.5, overwrites=1)
    features = replace(tokens, form="features")
    one, two = draw(tokens), draw(features)
    assert torch.equal(one.targets, two.targets) and torch.equal(one.source, two.source)
    kinds, keys, values = two.inputs.split((2 + 3, 4, 4), -1)
    assert (kinds.sum(-1) == 1).all()
    kind, key, value = kinds.argmax(-1), keys.argmax(-1), values.argmax(-1)
    pair, query, distractor = kind == 2, kind == 3, kind == 4
    again = torch.where(pair, 2 + 4 * key + value, torch.where(query, 2 + 16 + key, kind))
    again = torch.where(distractor, 2 + 16 + 4 + 4 * key + value, again)
    assert torch.equal(again, one.inputs)
    assert torch.equal(keys.sum(-1) == 1, pair | query | distractor)
    assert torch.equal(values.sum(-1) == 1, pair | distractor)


def test_a_mixture_draws_all_of_its_tasks_and_refuses_strangers():
    generator = torch.Generator().manual_seed(0)
    drawn = {Mixture().sample(2, generator).inputs.shape[1] for _ in range(20)}
    assert drawn == {80, 24}
    with pytest.raises(ValueError, match=r"vocabulary of tasks=.*one model has to fit all of them"):
        Mixture(tasks=(Recall(), Copying()))
    three, four = (AssociativeInference(num_chains=4, width=5, form="paper", chain=chain) for chain in (3, 4))
    assert Mixture(tasks=(three,)).spec.given_memory == three.spec.given_memory
    with pytest.raises(ValueError, match=r"given_memory of tasks="):
        Mixture(tasks=(four, replace(four, form="streamed")))
    with pytest.raises(ValueError, match="at least one"):
        Mixture(tasks=())


def test_a_mixture_has_the_names_on_which_its_tasks_agree(tmp_path):
    tokens = np.random.default_rng(0).integers(5, size=(20, 6))
    labels = {"one": ["cat", "dog"], "other": ["dog", "cat"], "strange": ["cow", "hen"]}
    for name, classes in labels.items():
        np.savez(tmp_path / name, inputs=tokens, targets=classes * 10)
    one, other, strange = (Arrays(path=str(tmp_path / f"{name}.npz")) for name in labels)
    assert Mixture(tasks=(one, other)).model_names() == {"class_names": ("cat", "dog")}
    assert Mixture(tasks=(one, strange)).model_names() == {}
    assert Mixture().model_names() == {}


def test_a_mixture_of_values_keeps_their_kind_and_scales(tmp_path):
    random = np.random.default_rng(0)
    for name in ("one", "other"):
        np.savez(tmp_path / name, inputs=random.normal(size=(20, 5, 2)), targets=random.normal(size=20))
    one, other = (Arrays(path=str(tmp_path / f"{name}.npz")) for name in ("one", "other"))
    spec = Mixture(tasks=(one, one)).spec
    assert spec.are_values and (spec.input_scale, spec.target_scale) == (one.spec.input_scale, one.spec.target_scale)
    with pytest.raises(ValueError, match=r"input_scale of tasks=.*one model has to fit all of them"):
        Mixture(tasks=(one, other))


def test_every_evaluation_asks_all_tasks_of_a_mixture_alike():
    tasks = (Recall(), Recall(min_blank=0, max_blank=4, length=24), Recall(length=90))
    for num_rows, expected in ((10, {80: 4, 24: 3, 90: 3}), (2, {80: 1, 24: 1})):
        rows = dict.fromkeys(expected, 0)
        for batch in Mixture(tasks=tasks).batches(num_rows, 2, torch.Generator()):
            rows[batch.inputs.shape[1]] += len(batch.inputs)
        assert rows == expected


def test_a_mixture_is_scored_on_what_scores_its_tasks():
    kept = ListOps(min_length=5, max_length=30, train_rows=300, validation_rows=40, test_rows=50)
    mixed = Mixture(tasks=(kept,))
    for final, part in ((False, "validation"), (True, "test")):
        assert mixed.scored_on(final=final) == Mixture(tasks=(kept.scored_on(final=final),))
        assert mixed.scored_on(final=final).tasks[0].part == part


def test_recall_without_resets_fails():
    task = Recall()
    batch = draw(task, 256)
    said = answers_with_perfect_memory(task, batch, resets=False)
    score = (said == batch.targets)[batch.score_mask].float().mean()
    assert score < task.spec.solved - 0.03


def test_recall_rows_are_out_of_step():
    task = Recall()
    batch = draw(task, 64)
    starts = [tuple(row.nonzero().flatten().tolist()) for row in batch.is_first]
    assert len(set(starts)) > 32
    assert min(len(row) for row in starts) >= 2, "resets happen in every row"
    assert len({row[1] for row in starts}) > 10, "also the first whole episode starts at different steps"


@pytest.mark.parametrize("task", [case for case in CASES if case.values[0].spec.memory_span])
def test_chance_is_exact_for_anything_that_sees_one_step(task):
    # The answer must be independent of the token, and every answer that can occur equally likely.
    batch = draw(task, 20_000)
    tokens, answers = batch.inputs[batch.score_mask], batch.targets[batch.score_mask]
    if tokens.is_floating_point():  # no two are alike: tell them apart by the signs of their first numbers
        tokens = ((tokens[:, :2] > 0).long() * torch.tensor([1, 2])).sum(1)
    possible = answers.unique()
    assert len(possible) == round(1 / task.spec.chance)
    for token, answer in itertools.product(tokens.unique(), possible):
        asked = tokens == token
        share = (answers[asked] == answer).float().mean()
        deviation = (task.spec.chance * (1 - task.spec.chance) / asked.sum()) ** 0.5
        # Answers of one row are not independent draws: allow five standard deviations of three-fold counts.
        assert abs(share - task.spec.chance) < 5 * 3**0.5 * deviation


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Copying(length=-1), "length=-1"),
        (lambda: Copying(num_digits=0), "num_digits=0"),
        (lambda: Copying(loss_on="last"), "loss_on='last'"),  # type: ignore[arg-type]
        (lambda: Recall(num_cues=6), "num_cues=6"),
        (lambda: Recall(num_values=0), "num_values=0"),
        (lambda: Recall(min_blank=9, max_blank=8), "min_blank=9"),
        (lambda: Recall(length=20), "length=20"),
        (lambda: Recall(overwrites=-1), "overwrites=-1"),
        (lambda: Recall(distractors=1.5), "distractors=1.5"),
        (lambda: Recall(form="images"), "form='images'"),  # type: ignore[arg-type]
    ],
)
def test_bad_fields_are_named(make, field):
    with pytest.raises(ValueError, match=field):
        make()


NUMBERS = [math.nan, math.inf, -math.inf]
TUPLES = {int: [3, (2.5,), ("2",), (True,)], float: [1.0, (math.nan, 1.0), (1.0, "2")], str: ["text", (1,)]}


def _wrong_values():
    for cls in TASKS.values():
        for name, kind in typing.get_type_hints(cls).items():
            of_a_tuple = TUPLES.get(typing.get_args(kind)[0], []) if typing.get_origin(kind) is tuple else []
            values = NUMBERS if kind is float else of_a_tuple
            yield from (pytest.param(cls, name, value, id=f"{cls.__name__}-{name}-{value}") for value in values)


@pytest.mark.parametrize(("cls", "name", "value"), [*_wrong_values()])
def test_a_field_refuses_what_is_no_finite_number_and_no_tuple_of_its_kind(cls, name, value):
    with pytest.raises(ValueError, match=f"^{name}={re.escape(repr(value))}: give a "):
        cls(**{name: value})
