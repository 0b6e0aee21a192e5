import csv
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recollect.agents.normalization import Standardization
from recollect.objectives.answers import mean_score
from recollect.tasks.streams.arrays import Arrays

pytestmark = pytest.mark.filterwarnings("ignore:.*are read as tokens")  # small tables of whole numbers


def npz(folder, **arrays):
    np.savez(folder / "data.npz", **arrays)
    return str(folder / "data.npz")


def table(folder, names, lines):
    with open(folder / "data.csv", "w", newline="") as file:
        csv.writer(file).writerows([names, *lines])
    return str(folder / "data.csv")


@pytest.fixture
def parquet(tmp_path, monkeypatch):
    """Make a path that a stand-in for pyarrow reads as these columns."""

    def make(columns):
        (tmp_path / "data.parquet").write_bytes(b"")
        reader = SimpleNamespace(read_table=lambda path: SimpleNamespace(to_pydict=lambda: columns))
        monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(parquet=reader))
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", reader)
        return str(tmp_path / "data.parquet")

    return make


def rows(task, part="train"):
    """Every row of a part, as one batch."""
    (batch,) = Arrays.batches(replace(task, part=part), 10**6, 10**6, torch.Generator())
    return batch


NUMBERS = np.random.default_rng(0).normal(3, 2, (20, 6, 2))
LENGTHS = np.arange(20) % 6 + 1


def test_classes_of_rows_are_asked_at_the_last_step(tmp_path):
    classes = np.array(["cat", "dog", "cat", "bird"] * 5)
    task = Arrays(path=npz(tmp_path, inputs=NUMBERS, targets=classes, lengths=LENGTHS), validation=0, test=0)
    spec, batch = task.spec, rows(task)
    assert (spec.vocabulary, spec.input_dim, spec.num_classes, spec.length) == (None, 2, 3, 6)
    assert task.class_names == ("bird", "cat", "dog") and spec.chance == 0.5
    lengths = batch.score_mask.long().argmax(1) + 1
    assert batch.score_mask.sum(1).eq(1).all() and sorted(lengths.tolist()) == sorted(LENGTHS.tolist())
    assert batch.targets[batch.score_mask].bincount().tolist() == [5, 10, 5]
    norm = Standardization(spec.input_scale)
    inputs = norm(batch.inputs, torch.float32)
    assert (inputs[torch.arange(6) >= lengths[:, None]] == 0).all()
    lives = np.arange(6) < LENGTHS[:, None]
    assert sorted(batch.inputs[torch.arange(6) < lengths[:, None]].flatten().tolist()) == sorted(NUMBERS[lives].ravel())
    seen = inputs[torch.arange(6) < lengths[:, None]]
    torch.testing.assert_close(seen.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    assert seen.std(0, unbiased=False).sub(1).abs().max() < 1e-5 and seen.shape[0] == lives.sum()
    assert batch.is_first[:, 0].all() and batch.is_first.sum() == 20 and (batch.source == -1).all()


def test_classes_of_steps_and_tokens(tmp_path):
    tokens = np.arange(120).reshape(20, 6) % 7
    asked = np.zeros((20, 6), bool)
    asked[:, ::2] = True
    path = npz(tmp_path, inputs=tokens, targets=tokens * 10 - 5, lengths=LENGTHS, asked=asked)
    task = Arrays(path=path)
    assert task.spec.vocabulary == 7 and task.spec.input_dim is None
    batch = rows(task)
    assert batch.inputs.dtype == torch.long and batch.score_mask.sum() > 20 and not batch.score_mask[:, 1::2].any()
    assert torch.equal(batch.targets[batch.score_mask], batch.inputs[batch.score_mask])
    assert Arrays(path=path, inputs_are="numbers").spec.input_dim == 1


@pytest.mark.parametrize("per_step", [False, True])
def test_values_stay_in_their_units_and_have_a_scale(tmp_path, per_step):
    values = np.random.default_rng(1).normal(100, 20, (20, 6) if per_step else 20)
    path = npz(tmp_path, inputs=NUMBERS, targets=values, lengths=LENGTHS)
    task = Arrays(path=path, validation=0, test=0)
    batch = rows(task)
    assert task.spec.num_classes == 1 and task.spec.chance == 0 and batch.targets.shape == (20, 6, 1)
    wanted = values[np.arange(6) < LENGTHS[:, None]] if per_step else values
    assert sorted(batch.targets[batch.score_mask][:, 0].tolist()) == sorted(wanted)
    found = Standardization(task.spec.target_scale)(batch.targets, torch.float32)[batch.score_mask]
    assert found.mean().abs() < 1e-5 and (found.std(unbiased=False) - 1).abs() < 1e-5


@pytest.mark.parametrize("targets", [True, False])
def test_chance_of_numbers_as_they_are_is_what_their_mean_scores(tmp_path, targets):
    given = {"targets": 100 + 30 * NUMBERS} if targets else {}
    path = npz(tmp_path, inputs=NUMBERS, lengths=LENGTHS, **given)
    task = Arrays(path=path, standardize=False, validation=0, test=0)
    batch = rows(task)
    mean = batch.targets[batch.score_mask].mean(0).expand_as(batch.targets)
    assert task.spec.chance == pytest.approx(float(mean_score(mean, batch.targets, batch.score_mask)), rel=1e-5)
    assert task.spec.chance < -2 and replace(task, standardize=True).spec.chance == 0


@pytest.mark.parametrize("tokens", [True, False])
def test_the_next_input_is_asked_where_there_is_one(tmp_path, tokens):
    inputs = np.arange(120).reshape(20, 6) % 5 if tokens else NUMBERS
    batch = rows(Arrays(path=npz(tmp_path, inputs=inputs, lengths=LENGTHS)))
    assert batch.score_mask.sum() == (batch.score_mask.long().sum(1)).sum() and not batch.score_mask[:, -1].any()
    following = batch.inputs.roll(-1, 1)
    assert torch.equal(batch.targets[batch.score_mask], following[batch.score_mask])


@pytest.mark.filterwarnings("ignore:.*no row of the part train has the class")
def test_parts_are_disjoint_and_the_same_every_time(tmp_path):
    inputs = np.repeat(np.arange(50)[:, None], 4, 1)
    path = npz(tmp_path, inputs=inputs, targets=inputs)
    task = Arrays(path=path, validation=0.2, test=0.1)
    parts = {part: set(rows(task, part).inputs[:, 0].tolist()) for part in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [35, 10, 5] and len(set.union(*parts.values())) == 50
    again = Arrays(path=path, validation=0.2, test=0.1, split_seed=1)
    assert set(rows(again, "test").inputs[:, 0].tolist()) != parts["test"]
    drawn = task.sample(400, torch.Generator().manual_seed(0)).inputs[:, 0]
    assert set(drawn.tolist()) <= parts["train"] and len(set(drawn.tolist())) == 35
    assert task.scored_on(final=False).part == "validation" and task.scored_on(final=True).part == "test"
    sizes = [len(batch.inputs) for batch in task.scored_on(final=False).batches(7, 3, torch.Generator())]
    assert sizes == [3, 3, 1]


@pytest.mark.filterwarnings("ignore:.*no row of the part train has the class")
def test_a_split_of_the_file_wins(tmp_path):
    split = np.array(["train", "test", "validation", "train"])
    task = Arrays(path=npz(tmp_path, inputs=np.arange(8).reshape(4, 2), targets=np.arange(4), split=split))
    assert rows(task, "test").inputs.tolist() == [[2, 3]] and rows(task).inputs.tolist() == [[0, 1], [6, 7]]
    with pytest.raises(ValueError, match="split='dev': the parts are train, validation, test"):
        _ = Arrays(path=npz(tmp_path, inputs=np.zeros((2, 2)), split=np.array(["train", "dev"]))).spec


def test_rare_classes_weigh_more(tmp_path):
    path = npz(tmp_path, inputs=NUMBERS, targets=np.array([0] * 15 + [1] * 5))
    spec = Arrays(path=path, class_weights="balanced", validation=0, test=0).spec
    assert spec.class_weights == pytest.approx((20 / 30, 2.0))
    assert Arrays(path=path).spec.class_weights is None


def test_a_table_of_steps(tmp_path):
    lines = [[row, step, row * 10 + step, "ab"[row % 2]] for row in range(5) for step in range(row + 1)]
    task = Arrays(path=table(tmp_path, ["sequence", "time", "x", "target"], lines), validation=0, test=0)
    batch = rows(task)
    assert task.spec.input_dim == 2 and task.spec.length == 5 and task.class_names == ("a", "b")
    assert sorted((batch.score_mask.long().argmax(1) + 1).tolist()) == [1, 2, 3, 4, 5]
    labelled = [[row, step % 3, step % 2] for row in range(5) for step in range(4)]
    task = Arrays(path=table(tmp_path, ["user", "item", "bought"], labelled), sequence="user", target="bought")
    assert task.spec.vocabulary == 3 and rows(task).score_mask.all() and task.class_names == ("0", "1")


def test_a_table_of_rows(tmp_path):
    lines = [[0.5 * row, row, 7, row % 2] for row in range(10)]
    task = Arrays(path=table(tmp_path, ["t0", "t1", "t2", "label"], lines), target="label")
    assert task.spec.input_dim == 1 and task.spec.length == 3 and task.spec.num_classes == 2
    picked = Arrays(path=task.path, inputs=("t0", "t1"), target="label")
    assert picked.spec.length == 2
    with pytest.raises(ValueError, match="has no input column t9: it has t0, t1, t2, label"):
        _ = Arrays(path=task.path, inputs=("t9",)).spec


STEPS = [[row, step, row % 2] for row in range(6) for step in range(2)]


def test_a_mark_before_the_first_name_is_no_part_of_it(tmp_path):
    path = table(tmp_path, ["sequence", "x", "target"], STEPS)
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + Path(path).read_bytes())
    assert Arrays(path=str(marked)).spec == Arrays(path=path).spec and Arrays(path=path).spec.length == 2


@pytest.mark.parametrize("field", ["sequence", "target"])
def test_a_column_that_is_not_there_is_named(tmp_path, field):
    path = table(tmp_path, ["sequence", "x", "target"], STEPS)
    with pytest.raises(
        ValueError, match=f"{field}='tragte': .*data.csv has no such column: it has sequence, x, target"
    ):
        _ = Arrays(path=path, **{field: "tragte"}).spec
    with pytest.raises(ValueError, match=f"{field}: .*data.npz is no table"):
        _ = Arrays(path=npz(tmp_path, inputs=np.zeros((9, 2))), **{field: "tragte"}).spec


@pytest.mark.parametrize(
    ("names", "line", "said"),
    [
        (["sequence", "x", "target"], [5, 1, ""], "line 14: column 'target' is empty"),
        (["sequence", "x", "target"], ["", 1, 0], "line 14: column 'sequence' is empty"),
        (["sequence", "x", "target"], [5, "n/a", 0], "line 14: column 'x' holds 'n/a'"),
        (["sequence", "x", "target"], [5, "1_0", 0], "line 14: column 'x' holds '1_0'"),
        (["", "x", "target"], [5, 1, 0], "line 1: column 1 has no name: .*index=False"),
        (
            ["row", "x", "Target"],
            [5, 1, 0],
            "has a column 'Target', and no 'target': rename it, or set target='Target'",
        ),
        (["row", "x", " target"], [5, 1, 0], "has a column ' target', and no 'target'"),
        (["sequence", "x", "target"], [5, 1, 0, 7], "line 14: it has more cells than there are names"),
        (["x", "x", "target"], [5, 1, 0], "line 1: two columns are called 'x'"),
        (["row", "x", "target"], [5, "inf", 0], "inputs of row 12 at step 1 are not finite"),
    ],
)
def test_a_cell_that_does_not_fit_is_named_with_its_line(tmp_path, names, line, said):
    with pytest.raises(ValueError, match=said):
        _ = Arrays(path=table(tmp_path, names, [*STEPS, line])).spec


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["007", "7"], ("007", "7")),
        (["+7", "7"], ("+7", "7")),
        (["-1", "0"], ("-1", "0")),
        (["9223372036854775808", "1"], ("1", "9223372036854775808")),
        (["1", "one"], ("1", "one")),
        (["9" * 5000, "1"], ("1", "9" * 5000)),  # more digits than Python converts
        (["1_0", "10"], ("10", "1_0")),
        (["0.5", "1"], ()),  # values
        (["1.0", "2.0"], ()),
    ],
)
def test_answers_become_numbers_only_where_no_two_texts_are_merged(tmp_path, labels, classes):
    task = Arrays(path=table(tmp_path, ["x", "target"], [[row, labels[row % 2]] for row in range(12)]))
    assert task.class_names == classes


def test_answers_that_say_nothing_or_may_be_two_things_are_refused(tmp_path):
    def make(*labels):
        return Arrays(path=table(tmp_path, ["x", "target"], [[row, labels[row % len(labels)]] for row in range(12)]))

    with pytest.raises(ValueError, match="every answer is 'a': there is nothing to learn"):
        _ = make("a").spec
    with pytest.raises(ValueError, match=r"every answer is 2\.5: there is nothing to learn"):
        _ = make("2.5").spec
    with pytest.raises(ValueError, match=r"written in two ways, '1' and '1\.0'"):
        _ = make("1", "1.0").spec


@pytest.mark.parametrize("cell", ["9007199254740993", str(2**70 + 1)])
def test_whole_numbers_that_floats_round_are_named(tmp_path, cell):
    path = table(tmp_path, ["x", "y", "target"], [[2**53, row, row % 2] for row in range(12)])
    assert Arrays(path=path).spec.input_dim == 1  # held exactly
    path = table(tmp_path, ["x", "y", "target"], [[cell if row == 3 else row, row, row % 2] for row in range(12)])
    with pytest.warns(RuntimeWarning, match=f"line 5: column 'x' holds {cell}, which becomes {float(cell):.0f}"):
        _ = Arrays(path=path).spec


def test_a_class_that_is_not_learned_is_named(tmp_path):
    lines = [[row, "abc"[max(row - 9, 0)], "test" if row > 10 else "train"] for row in range(12)]
    task = Arrays(path=table(tmp_path, ["x", "target", "split"], lines))
    with pytest.warns(
        RuntimeWarning, match="no row of the part train has the class 'c', so that no model can learn it"
    ):
        assert task.class_names == ("a", "b", "c")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_recognised(tmp_path, separator):
    path = Path(table(tmp_path, ["sequence", "x", "target"], STEPS))
    other = tmp_path / "other.csv"
    other.write_text(path.read_text().replace(",", separator))
    assert Arrays(path=str(other)).spec == Arrays(path=str(path)).spec


def test_a_decimal_comma_is_named(tmp_path):
    (tmp_path / "data.csv").write_text("x;target\n" + "1,5;0\n2,5;1\n" * 6)
    with pytest.raises(ValueError, match="line 2: column 'x' holds '1,5': write numbers with a decimal point"):
        _ = Arrays(path=str(tmp_path / "data.csv")).spec


def test_a_sequence_belongs_to_one_part(tmp_path):
    lines = [[row, *line[1:], "train" if row < 4 else "test"] for row, line in enumerate(STEPS)]
    names = ["sequence", "x", "target", "split"]
    assert len(Arrays(path=table(tmp_path, names, lines))._data.parts["train"]) == 4
    with pytest.raises(ValueError, match="line 14: column 'split' holds 'test', and 'train' earlier in the same"):
        _ = Arrays(path=table(tmp_path, names, [*lines, [2, 1, 0, "test"]])).spec


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x,target\n1,caf\xe9\n" * 9, r"data.csv: it is not in UTF-8 .*: save it"),
        (b'x,target\n1,a\n2,"b\n3,a\n', "data.csv: no valid CSV after line 2 .* open quote"),
    ],
)
def test_a_csv_that_cannot_be_read_is_named(tmp_path, content, said):
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        _ = Arrays(path=str(tmp_path / "data.csv")).spec


LISTS = {"inputs": [[1, 2, 3], [4, 5], [6], [0, 1]], "target": [0, 1, 0, 1]}


@pytest.mark.filterwarnings("ignore:.*no row of the part train has the class")
def test_parquet_with_lists(parquet, monkeypatch):
    path = parquet(LISTS)
    spec = Arrays(path=path).spec
    assert (spec.vocabulary, spec.length, spec.num_classes) == (7, 3, 2)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "pyarrow.parquet")
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match="this file needs the package pyarrow: run pip install pyarrow"):
        _ = Arrays(path=path).spec


def four(odd):
    return [[1, 2], odd, [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"inputs": four(None), "target": [0, 1, 0, 1]},
            "data.parquet, row 1: column 'inputs' holds None: give a list",
        ),
        ({"inputs": four(["a", "b"]), "target": [0, 1, 0, 1]}, "row 1: column 'inputs' holds .*'a', 'b'"),
        (
            {"a": four([1, 2]), "b": four([1]), "target": [0, 1, 0, 1]},
            r"row 1: column 'b' has a list \[1\] and 'a' one",
        ),
        ({"inputs": [[[1, 2]]] * 3 + [[[1]]]}, r"data.parquet: inputs of row 3 are \[1, 1\], those of row 0 \[1, 2\]"),
        ({"inputs": four([1, 2]), "target": [0, None, 0, 1]}, "data.parquet, row 1: column 'target' is empty"),
        ({"inputs": four([1, 2]), "target": four([0, None])}, "data.parquet, row 1: column 'target' is empty"),
    ],
)
def test_lists_that_do_not_fit_are_named_with_their_row(parquet, columns, said):
    with pytest.raises(ValueError, match=said):
        _ = Arrays(path=parquet(columns)).spec


def test_every_step_of_a_table_may_have_several_values(parquet):
    columns = {"sequence": [0, 0, 1, 1, 2, 2], "x": [0.1, 0.2] * 3, "target": [[1.0, 2.0], [3.0, 5.0]] * 3}
    batch = rows(Arrays(path=parquet(columns), validation=0, test=0, standardize=False))
    assert batch.targets.tolist() == [[[1.0, 2.0], [3.0, 5.0]]] * 3 and batch.score_mask.all()


def test_a_damaged_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "data.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"data.parquet: it is damaged or no Parquet file"):
        _ = Arrays(path=str(tmp_path / "data.parquet")).spec


def test_steps_that_are_asked_may_be_ones_and_zeros(tmp_path):
    arrays = {"inputs": np.zeros((20, 6)), "targets": np.arange(120).reshape(20, 6) % 3}
    asked = np.arange(120).reshape(20, 6) % 2
    batches = [
        rows(Arrays(path=npz(tmp_path, asked=kind, **arrays))) for kind in (asked.astype(bool), asked, asked / 1.0)
    ]
    for batch in batches:
        assert batch.score_mask.sum() == 48 and torch.equal(batch.score_mask, batches[0].score_mask)


def test_a_part_without_rows_is_named(tmp_path):
    arrays = {"inputs": np.zeros((4, 2)), "targets": np.arange(4) % 2}
    with pytest.raises(ValueError, match=r"data.npz: no row has the split 'train'"):
        _ = Arrays(path=npz(tmp_path, split=np.array(["test"] * 4), **arrays)).spec
    task = Arrays(path=npz(tmp_path, split=np.array(["train"] * 4), **arrays), part="test")
    with pytest.raises(ValueError, match="has no rows for test: raise test, or give some rows the split 'test'"):
        task.sample(1, torch.Generator())


class HuggingFace:
    column_names = ("inputs", "target")

    def __getitem__(self, name):
        return LISTS[name]


@pytest.mark.filterwarnings("ignore:.*no row of the part train has the class")
def test_hugging_face_data_sets(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(ValueError, match="needs the package datasets"):
        _ = Arrays(path="hf:somebody/something").spec
    asked = []

    module = SimpleNamespace(load_dataset=lambda name, split: asked.append((name, split)) or HuggingFace())
    module.load_from_disk = lambda path: {"train": HuggingFace()}
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert Arrays(path="hf:somebody/something").spec.length == 3 and asked[-1] == ("somebody/something", "train")
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(ValueError, match="this data set has the parts train"):
        _ = Arrays(path=str(tmp_path)).spec


STILL = {"inputs": np.zeros((4, 2))}


def one_wrong(targets, value):
    targets[2, 1] = value
    return targets


def test_targets_that_nobody_asks_for_may_be_anything(tmp_path):
    values, asked = one_wrong(np.arange(8.0).reshape(4, 2), np.nan), np.ones((4, 2), bool)
    asked[2, 1] = False
    batch = rows(Arrays(path=npz(tmp_path, **STILL, targets=values, asked=asked), validation=0, test=0))
    assert batch.targets.isfinite().all() and batch.score_mask.sum() == 7


@pytest.mark.parametrize(
    ("arrays", "fields", "said"),
    [
        ({**STILL, "target": np.zeros(4)}, {}, "has an array 'target', and no 'targets': rename it, or take it out"),
        (
            {"inputs": np.zeros((4, 2, 0)), "targets": np.zeros(4, int)},
            {},
            r"inputs=\[4, 2, 0\]: give rows of at least",
        ),
        ({"x": np.zeros((3, 2))}, {}, r"needs an array inputs .* it has x \[3, 2\]"),
        ({"inputs": np.zeros((4, 2)), "lengths": np.full(4, 1.5)}, {}, "lengths must be 4 whole numbers from 1 to 2"),
        ({**STILL, "lengths": np.array([2, 2, 0, 1])}, {}, "from 1 to 2, and that of row 2 is 0: leave out rows"),
        ({**STILL, "lengths": np.array([2, 1])}, {}, r"lengths must be 4 .*, and are int64 \[2\]"),
        ({"inputs": np.zeros((4, 2)), "targets": np.zeros(3)}, {}, r"targets has shape \[3\]; it must be \[4\] or"),
        ({"inputs": np.zeros((4, 2))}, {"goal": "regression"}, "has no targets"),
        ({"inputs": np.zeros((4, 2)), "targets": np.zeros(4, int)}, {"goal": "labelling"}, "one for a row"),
        ({"inputs": np.full((4, 2), np.nan), "targets": np.zeros(4, int)}, {}, "are not finite: fill or drop them"),
        ({"inputs": np.full((4, 2), 1e308), "targets": [0, 1, 0, 1]}, {}, "too large to be standardised: give smaller"),
        (
            {"inputs": np.full((4, 2), 1e39), "targets": [0, 1] * 2},
            {"standardize": False},
            "too large for float32: give",
        ),
        ({"inputs": np.zeros((4, 2))}, {"inputs_are": "tokens"}, "not integers from 0 on"),
        (
            {"inputs": np.zeros((2, 2)), "targets": np.zeros(2, int)},
            {},
            "rows=2: that is too few to split: give at least 3",
        ),
        ({"inputs": np.full((4, 2), "word")}, {}, "data.npz: inputs are <U4: give numbers"),
        ({**STILL, "targets": one_wrong(np.zeros((4, 2)), np.nan)}, {}, "the target of row 2 at step 1 is not finite"),
        ({**STILL, "targets": np.array([0, np.inf, 0, 1])}, {}, "the target of row 1 at step 1 is not finite"),
        ({**STILL, "targets": np.array(["a", "", "b", "a"])}, {}, "the target of row 1 at step 1 is empty"),
        ({**STILL, "targets": np.zeros((4, 2), int), "asked": np.full((4, 2), 2)}, {}, "asked holds 2: give True"),
        (
            {**STILL, "targets": np.zeros(4, int), "asked": np.ones((4, 2), bool)},
            {},
            "'classification' has its own",
        ),
        ({**STILL, "asked": np.ones((4, 2), bool)}, {}, "goal='next-step' has its own: leave asked out"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, arrays, fields, said):
    with pytest.raises(ValueError, match=said):
        _ = Arrays(path=npz(tmp_path, **arrays), **fields).spec


def test_bad_fields_and_paths_are_named(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        _ = Arrays(path="nowhere.npz").spec
    (tmp_path / "data.txt").write_text("")
    with pytest.raises(ValueError, match=r"give a file \.npz, \.csv or \.parquet"):
        _ = Arrays(path=str(tmp_path / "data.txt")).spec
    with pytest.raises(ValueError, match="column 'x' holds 'one': inputs are numbers"):
        _ = Arrays(path=table(tmp_path, ["x", "target"], [["one", 1]] * 5)).spec
    with pytest.raises(ValueError, match="column 'x' holds '': fill the cell, and if it matters say where"):
        _ = Arrays(path=table(tmp_path, ["x", "target"], [[1, 1], ["", 1], [2, 0]])).spec
    lines = [[number, number / 2, number % 2] for number in range(9)]
    with pytest.raises(ValueError, match="column 'target' holds the answers: leave it out"):
        _ = Arrays(path=table(tmp_path, ["x", "y", "target"], lines), inputs=("x", "target")).spec
    ahead = Arrays(path=table(tmp_path, ["x", "y", "target"], lines), inputs=("y", "target"), goal="next-step")
    assert ahead.spec.input_dim == 1
    with pytest.raises(ValueError, match="has no inputs: add a column of numbers beside sequence, target"):
        _ = Arrays(path=table(tmp_path, ["sequence", "target"], [line[1:] for line in lines])).spec
    with pytest.raises(ValueError, match=r"this folder holds no data set of datasets\.save_to_disk"):
        _ = Arrays(path=str(tmp_path)).spec
    with pytest.raises(ValueError, match=r"validation=1\.5"):
        Arrays(validation=1.5)
    with pytest.raises(ValueError, match="leave some rows to train"):
        Arrays(validation=0.5, test=0.5)
    with pytest.raises(ValueError, match="split_seed=-1: give a seed of 0"):
        Arrays(split_seed=-1)


def test_whole_numbers_in_the_cells_of_a_table_are_measurements_or_tokens(tmp_path):
    path = table(tmp_path, ["sequence", "degrees"], [[row, 18 + step] for row in range(9) for step in range(5)])
    with pytest.warns(RuntimeWarning, match=r"whole numbers up to 22, are read as tokens.*set inputs_are='numbers' if"):
        assert Arrays(path=path).spec.vocabulary == 23
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Arrays(path=path, inputs_are="numbers").spec.input_dim == 1
        assert Arrays(path=path, inputs_are="tokens").spec.vocabulary == 23
        assert Arrays(path=npz(tmp_path, inputs=np.ones((9, 2), int), targets=np.arange(9) % 2)).spec.vocabulary == 2


def test_a_file_that_changed_is_read_again(tmp_path):
    assert Arrays(path=npz(tmp_path, inputs=np.zeros((9, 2)), targets=np.arange(9) % 2)).spec.num_classes == 2
    path = npz(tmp_path, inputs=np.zeros((9, 2)), targets=np.arange(9) % 3)
    os.utime(path, (1, 1))
    assert Arrays(path=path).spec.num_classes == 3


def test_the_example_is_waves_of_three_frequencies():
    task = Arrays(standardize=False)
    data = task._data
    random = np.random.default_rng(0)
    targets, lengths = random.integers(0, 3, 600), random.integers(20, 41, 600)
    phase, noise = random.uniform(0, 2 * np.pi, 600), random.normal(0, 0.3, (600, 40))
    for row in (0, 7, 599):
        speed = (0.2, 0.4, 0.8)[targets[row]]
        wave = [np.sin(phase[row] + speed * t) + noise[row, t] for t in range(lengths[row])]
        np.testing.assert_allclose(data.inputs[row, : lengths[row], 0], wave, atol=1e-6)
        assert data.lengths[row] == lengths[row] and (data.targets[row, lengths[row] - 1] == targets[row]).all()


def test_one_column_of_whole_numbers_is_tokens_and_several_are_numbers(tmp_path):
    lines = [[row // 3, row % 4, row % 5, row % 2] for row in range(36)]
    one = Arrays(path=table(tmp_path, ["sequence", "x", "y", "target"], lines), inputs=("x",), goal="labelling")
    assert (one.spec.vocabulary, one.spec.input_dim, one.spec.length) == (4, None, 3)
    both = replace(one, inputs=("x", "y"))
    assert (both.spec.vocabulary, both.spec.input_dim) == (None, 2)
    assert both._data.inputs.flatten(0, 1).tolist() == [[float(x), float(y)] for _, x, y, _ in lines]
