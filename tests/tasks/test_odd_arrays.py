import sys
from types import SimpleNamespace

import numpy as np
import pytest

from recollect.tasks.streams.arrays import Arrays

NUMBERS = np.random.default_rng(0).normal(3, 2, (60, 6, 2))
LENGTHS = np.arange(60) % 6 + 1
CLASSES = np.arange(60) % 2


def arrays(folder, fields=None, **content):
    np.savez(folder / "data.npz", **content)
    return Arrays(path=str(folder / "data.npz"), **(fields or {}))


@pytest.mark.parametrize("value", [0.1, 0.3, 273.15, 100000.1])
def test_a_constant_column_keeps_a_deviation_of_1(tmp_path, value):
    inputs = np.where([True, False], NUMBERS, value)
    spec = arrays(tmp_path, inputs=inputs, targets=inputs).spec
    for scale in (spec.input_scale, spec.target_scale):
        assert scale is not None and scale.std[0] == pytest.approx(2, rel=0.2) and scale.std[1] == 1


@pytest.mark.parametrize("filling", [-1, 50256])
def test_what_fills_rows_of_tokens_up_is_no_token(tmp_path, filling):
    tokens = np.where(np.arange(6) < LENGTHS[:, None], np.arange(360).reshape(60, 6) % 7, filling)
    task = arrays(tmp_path, inputs=tokens, lengths=LENGTHS, targets=CLASSES)
    assert (task.spec.vocabulary, task.spec.input_dim) == (7, None) and task._data.inputs.max() < 7


def test_text_may_be_bytes(tmp_path):
    names, parts = np.array(["naïve", "other"])[CLASSES], np.array(["train", "test"])[np.arange(60) % 3 // 2]
    task = arrays(tmp_path, inputs=NUMBERS, targets=np.char.encode(names, "utf-8"), split=parts.astype("S"))
    assert task.class_names == ("naïve", "other") and len(task._data.parts["test"]) == 20
    with pytest.raises(ValueError, match=r"data\.npz: targets holds bytes that are not in UTF-8"):
        _ = arrays(tmp_path, inputs=NUMBERS[:30], targets=np.char.encode(names[:30], "latin1")).spec


@pytest.mark.parametrize(
    ("content", "fields", "said"),
    [
        ({"targets": NUMBERS.astype(int)}, {}, r"targets are int64 \[60, 6, 2\], and a step has one class"),
        ({"targets": NUMBERS}, {"goal": "labelling"}, r"targets are float64 \[60, 6, 2\], and a step has one class"),
        ({"targets": NUMBERS[..., 0], "asked": np.zeros((60, 6), bool)}, {}, "no step of the part train asks for an"),
        ({"lengths": np.ones(60)}, {}, "no step of the part train asks for an answer"),
    ],
)
def test_answers_that_nobody_could_learn_are_named(tmp_path, content, fields, said):
    with pytest.raises(ValueError, match=said):
        _ = arrays(tmp_path, fields, inputs=NUMBERS, **content).spec


def test_the_index_of_a_pandas_table_is_no_input_unless_it_is_named(tmp_path, monkeypatch):
    columns = {"x": NUMBERS[:, 0, 0].tolist(), "target": CLASSES.tolist(), "__index_level_0__": list(range(60))}
    (tmp_path / "data.parquet").write_bytes(b"")
    reader = SimpleNamespace(read_table=lambda path: SimpleNamespace(to_pydict=lambda: columns))
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(parquet=reader))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", reader)
    path = str(tmp_path / "data.parquet")
    with pytest.raises(ValueError, match=r"data.parquet: column '__index_level_0__' is the index of a pandas table"):
        _ = Arrays(path=path).spec
    assert Arrays(path=path, inputs=("x", "__index_level_0__")).spec.length == 2
