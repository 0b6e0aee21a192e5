"""ListOps: the expressions, their distribution beside the published generator's, and how they are kept."""

import errno
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recollect import lazy
from recollect.tasks import ListOps
from recollect.tasks.long_range import listops
from recollect.tasks.long_range.expressions import CLOSE, MAX, MEDIAN, MIN, SUM, WORDS, Rows, Shape, draw

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import listops as recursion

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "listops_stats.json").read_text())
PUBLISHED = Shape(500, 2000, 10, 10)
NAMES = {MIN: "[MIN", MAX: "[MAX", MEDIAN: "[MED", SUM: "[SM"}


def read(tokens):
    stack = [[]]
    for token in map(int, tokens):
        if 1 <= token <= 10:
            stack[-1].append(token - 1)
        elif MIN <= token <= SUM:
            stack.append([token])
        elif token == CLOSE and len(stack) > 1:
            operator, *values = stack.pop()
            ordered, n = sorted(values), len(values)
            by_operator = {MIN: min, MAX: max, SUM: lambda all_: sum(all_) % 10}
            by_operator[MEDIAN] = lambda _, o=ordered, n=n: (o[(n - 1) // 2] + o[n // 2]) // 2
            stack[-1].append(by_operator[operator](values))
        else:
            raise ValueError(f"unexpected token {token}")
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError("brackets do not close")
    return stack[0][0]


def drawn(rows, shape=PUBLISHED, seed=0):
    """At least so many expressions."""
    generator, parts = np.random.default_rng(seed), []
    while sum(len(part.labels) for part in parts) < rows:
        parts.append(draw(shape, generator))
    ends = np.cumsum(np.concatenate([np.diff(part.ends, prepend=0) for part in parts]))
    return Rows(np.concatenate([part.tokens for part in parts]), ends, np.concatenate([part.labels for part in parts]))


def deviation(found, expected):
    """Chi-square of two counts of the same classes (homogeneity), less its mean, over its standard deviation."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    both = found + expected
    statistic = 0.0
    for counts in (found, expected):
        wanted = both * counts.sum() / both.sum()
        statistic += ((counts - wanted) ** 2 / wanted).sum()
    freedom = len(found) - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


def looks(rows):
    """What the golden file has, of our rows."""
    lengths = np.diff(rows.ends, prepend=0)
    starts = rows.ends - lengths
    operators = (rows.tokens >= MIN) & (rows.tokens <= SUM)
    step = np.where(operators, 1, np.where(rows.tokens == CLOSE, -1, 0))
    depth = np.cumsum(step) + (rows.tokens == CLOSE)  # of a bracket itself; a digit stands one below its operator
    level = np.where(operators | (rows.tokens == CLOSE), depth, depth + 1)
    per_level = {
        str(k): ((level == k) & operators).sum() / ((level == k) & (rows.tokens != CLOSE)).sum() for k in range(1, 11)
    }
    return {
        "labels": np.bincount(rows.labels, minlength=10),
        "roots": [(rows.tokens[starts] == token).sum() for token in (MAX, MEDIAN, MIN, SUM)],
        "lengths": np.histogram(lengths, [500, 600, *range(700, 2001, 100)])[0],
        "operators": np.add.reduceat(operators, starts, dtype=np.int64),
        "per_level": per_level,
    }


def compare(rows, most):
    found = looks(rows)
    assert abs(deviation(found["labels"], list(GOLDEN["label_counts"].values()))) < most
    roots = GOLDEN["root_operator_counts"]
    assert abs(deviation(found["roots"], [roots[name] for name in ("[MAX", "[MED", "[MIN", "[SM")])) < most
    assert abs(deviation(found["lengths"], GOLDEN["length"]["histogram"])) < most
    kept = GOLDEN["operators_per_tree"]
    error = kept["std"] * (1 / len(rows.labels) + 1 / GOLDEN["n_kept"]) ** 0.5
    assert abs(found["operators"].mean() - kept["mean"]) < most * error
    for depth, share in GOLDEN["operator_fraction_per_depth"].items():
        assert found["per_level"][depth] == pytest.approx(share, abs=0.012 * 60 / len(rows.labels) ** 0.5)


def test_the_distribution_is_that_of_the_published_generator():
    compare(drawn(4000), most=4.0)


@pytest.mark.slow
def test_the_distribution_is_that_of_the_published_generator_at_many_rows():
    compare(drawn(100_000, seed=1), most=4.0)


@pytest.mark.long
def test_another_distribution_is_told_apart():
    with pytest.raises(AssertionError):
        compare(drawn(4000, Shape(550, 2000, 10, 10)), most=4.0)
    with pytest.raises(AssertionError):
        compare(drawn(4000, Shape(500, 2000, 10, 9)), most=4.0)


def test_shares_of_all_trees_are_those_of_the_published_generator():
    """A third of the trees with an operator at the root are kept: who is dropped on the way would show here."""
    shares = GOLDEN["unfiltered"]["length_class_counts"]
    wanted = shares["kept"] / (shares["<=500"] + shares["kept"] + shares[">=2000"])
    kept = sum(len(draw(PUBLISHED, np.random.default_rng(seed)).labels) for seed in range(10))
    assert kept / 20480 == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / 20480) ** 0.5 * 1.2)


def test_numbers_of_arguments_are_uniform():
    rows = drawn(700)
    stack, counts = [], np.zeros(11, int)
    for token in rows.tokens[: rows.ends[500]].tolist():
        if MIN <= token <= SUM:
            stack.append(0)
        elif token == CLOSE:
            counts[stack.pop()] += 1
            if stack:
                stack[-1] += 1
        else:
            stack[-1] += 1
    golden = list(GOLDEN["args_per_operator_counts"].values())
    assert counts[:2].sum() == 0 and abs(deviation(counts[2:], golden)) < 5


@pytest.mark.parametrize("shape", [PUBLISHED, Shape(3, 30, 4, 4), Shape(50, 60, 3, 10), Shape(3, 8, 2, 10)])
def test_values_lengths_and_brackets(shape):
    rows = drawn(200, shape)
    for number in range(200):
        row = rows.row(number)
        assert shape.min_length < len(row) < shape.max_length
        assert read(row) == rows.labels[number]
        depth = np.cumsum(np.where((row >= MIN) & (row <= SUM), 1, np.where(row == CLOSE, -1, 0)))
        assert depth.max() < shape.max_depth and depth[-1] == 0 and (depth[:-1] > 0).all()


def test_published_examples_are_read_as_published():
    numbers = {word: token for token, word in enumerate(WORDS)}
    for example in GOLDEN["examples_short"]:
        assert read([numbers[word] for word in example["tokens"].split()]) == example["target"]
    with pytest.raises(ValueError, match="brackets"):
        read([MAX, 3, 4])


def test_the_recursion_beside_which_we_are_timed_means_the_same():
    random.seed(0)
    numbers = {word: token for token, word in enumerate(WORDS)}
    for written, value in recursion.recursion(20, Shape(10, 60, 10, 10)):
        tokens = [numbers[word] for word in written.split() if word not in "()"]
        assert 10 < len(tokens) < 60 and read(tokens) == value


def small(folder, **changes):
    return ListOps(
        **{
            "min_length": 5,
            "max_length": 30,
            "train_rows": 300,
            "validation_rows": 40,
            "test_rows": 50,
            "folder": str(folder),
            **changes,
        }
    )


def all_of(task):
    return next(task.batches(10_000, 10_000, torch.Generator()))


def test_parts_are_apart_and_the_rest_is_padding(tmp_path):
    task = small(tmp_path)
    parts = [all_of(part) for part in (task, task.scored_on(final=False), task.scored_on(final=True))]
    assert [len(part.inputs) for part in parts] == [300, 40, 50]
    every = {tuple(row) for part in parts for row in part.inputs.tolist()}
    assert len(every) == 390, "no expression comes twice"
    batch = parts[0]
    assert torch.equal(batch.padding, batch.inputs == 0)
    for row in range(20):
        end = int(batch.score_mask[row].nonzero())
        assert batch.inputs[row, end] == CLOSE and not batch.inputs[row, end + 1 :].any()
        assert read(batch.inputs[row, : end + 1].tolist()) == batch.targets[row, end]


@pytest.mark.long
def test_seeds_decide_and_processes_do_not(tmp_path):
    one = small(tmp_path / "one").prepare()
    two = small(tmp_path / "two").prepare(processes=2)
    assert one.name == two.name and one.read_bytes() == two.read_bytes()
    other = small(tmp_path / "one", data_seed=1)
    assert not torch.equal(all_of(other).inputs, all_of(small(tmp_path / "one")).inputs)
    assert len(list((tmp_path / "one").iterdir())) == 2, "nothing unfinished is left"


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_is_made_again(tmp_path, damage):
    path = small(tmp_path).prepare()
    whole = path.read_bytes()
    middle = len(whole) // 3
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    path.write_bytes({"cut": whole[:middle], "flip": flipped, "empty": b""}[damage])
    listops._rows.cache_clear()
    with pytest.warns(UserWarning, match=r"is damaged .* made again"):
        small(tmp_path).prepare()
    assert path.read_bytes() == whole


def test_a_file_of_another_config_is_made_again(tmp_path):
    path, other = small(tmp_path).prepare(), small(tmp_path, train_rows=200).prepare()
    whole = path.read_bytes()
    shutil.copy(other, path)
    listops._rows.cache_clear()
    with pytest.warns(
        UserWarning, match=r"holds rows of \[1, .* not of \[1, 5, 30, 10, 10, 390, 0\]: it is made again"
    ):
        all_of(small(tmp_path))
    assert path.read_bytes() == whole
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(tmp_path).prepare()


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError("no more")])
def test_a_whole_file_survives_a_machine_in_need(tmp_path, monkeypatch, error):
    path = small(tmp_path).prepare()
    whole = path.read_bytes()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(lazy.np, "load", fail)
    with pytest.raises(type(error), match=error.args[-1]):
        small(tmp_path).prepare()
    assert path.read_bytes() == whole


def test_a_file_that_was_removed_is_made_again_though_its_rows_are_in_memory(tmp_path):
    task = small(tmp_path)
    path = task.prepare()
    whole = path.read_bytes()
    all_of(task)
    path.unlink()
    assert task.prepare().read_bytes() == whole


def test_rows_are_in_memory_once_however_many_processes_drew_them(tmp_path):
    listops._rows.cache_clear()
    task = small(tmp_path)
    task.prepare()
    for part in (task, task.scored_on(final=True), replace(task, folder=str(tmp_path))):
        part.prepare(processes=2)
        all_of(part)
    assert listops._rows.cache_info().currsize == 1


def test_what_killed_processes_left_is_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name, host = small(tmp_path)._path.name, socket.gethostname()
    gone = [f".writing-{ended.pid}-{name}", f".writing-{ended.pid}@{host}@listops-other.npz"]
    others = [
        f".writing-{os.getppid()}-{name}",
        f".writing-{os.getppid()}@{host}@{name}",
        f".writing-{ended.pid}@{host}-2@{name}",
        f".writing-{ended.pid}-other.npz",
    ]
    for left in gone + others:
        (tmp_path / left).touch()
    small(tmp_path).prepare()
    assert {path.name for path in tmp_path.iterdir()} == {name, *others}


def test_folders_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert small("~/x").prepare() == tmp_path / "x" / small("")._path.name
    monkeypatch.setenv("RECOLLECT_DATA", "~/y")
    assert small("").prepare().parent == tmp_path / "y"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_folder_that_cannot_be_written_is_told_before_rows_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(listops, "_make", lambda *_: pytest.fail("rows were drawn"))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / small("")._path.name).mkdir(parents=True)
    for folder, reason in (
        ("file", "it is a file"),
        ("file/below", "Not a directory"),
        ("taken", r"listops-.*\.npz is a folder there"),
        ("n" * 300, "File name too long"),
    ):
        given = str(tmp_path / folder)
        with pytest.raises(ValueError, match=rf"folder='{given}': {reason}: give a folder that can be written"):
            small(given).prepare()
    assert (tmp_path / "file").read_text() == "mine"


def test_bad_settings_are_named(tmp_path):
    for field, value in {"min_length": 1, "max_length": 501, "max_depth": 1, "max_args": 1, "test_rows": 0}.items():
        with pytest.raises(ValueError, match=f"{field}={value}"):
            ListOps(**{field: value})
    with pytest.raises(ValueError, match=r"min_length=500: with max_depth=2 and max_args=10 .* more than 12 tokens"):
        ListOps(max_depth=2)
    assert ListOps(min_length=11, max_length=13, max_depth=2), "twelve tokens are possible"


@pytest.mark.long
def test_where_there_are_too_few_expressions_the_given_numbers_are_said(tmp_path):
    rows = "train_rows=900, validation_rows=40, test_rows=50 there are too few such expressions"
    shape = "max_length=5: with min_length=3, max_depth=2, max_args=10, "
    with pytest.raises(ValueError, match=rf"{shape}{rows} \(400 were found\): raise max_length, max_depth"):
        small(tmp_path, min_length=3, max_length=5, max_depth=2, train_rows=900).prepare()
    assert not [*tmp_path.iterdir()]


def test_chance_is_the_share_of_the_commonest_value():
    assert ListOps().spec.chance == pytest.approx(GOLDEN["majority_rate"], abs=0.025)
