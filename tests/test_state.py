from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from recollect import state as trees


class Inner(NamedTuple):
    clock: Tensor
    memory: Tensor


class Outer(NamedTuple):
    inner: Inner
    hidden: Tensor


def make(b=3, **options):
    return Outer(Inner(torch.arange(b), torch.randn(b, 2, 4, **options)), torch.randn(b, 5, **options))


def test_leaves_come_in_field_order_with_dotted_names():
    state = make()
    assert [name for name, _ in trees.named_leaves(state)] == ["inner.clock", "inner.memory", "hidden"]
    assert all(a is b for a, b in zip(trees.leaves(state), [*state.inner, state.hidden], strict=True))
    assert trees.batch_size(state) == 3


def test_plain_tuples_are_named_by_position():
    assert [name for name, _ in trees.named_leaves((torch.zeros(1), (torch.zeros(1),)))] == ["0", "1.0"]


@pytest.mark.parametrize("wrong", [None, {"h": torch.zeros(1)}, [torch.zeros(1)]])
def test_what_is_no_state_is_named_with_the_remedy(wrong):
    with pytest.raises(ValueError, match=rf"{type(wrong).__name__}.*core.initial_state"):
        trees.leaves(wrong)
    with pytest.raises(ValueError, match="field 'hidden' is a"):
        trees.leaves(Outer(make().inner, wrong))


def test_map_state_keeps_the_types_and_refuses_other_structures():
    state = make()
    doubled = trees.map_state(lambda a, b: a + b, state, state)
    assert type(doubled) is Outer and type(doubled.inner) is Inner
    assert torch.equal(doubled.inner.memory, 2 * state.inner.memory)
    with pytest.raises(ValueError, match="zip"):
        trees.map_state(torch.add, state, state.inner[:1])


def test_where_first_selects_rows_of_every_leaf():
    fresh, old = make(), make()
    new = trees.where_first(torch.tensor([True, False, True]), fresh, old)
    for got, a, b in zip(*map(trees.leaves, (new, fresh, old)), strict=True):
        assert torch.equal(got[[0, 2]], a[[0, 2]]) and torch.equal(got[1], b[1])


def test_where_first_discards_nan_in_value_and_gradient():
    fresh = (torch.zeros(2, 3, requires_grad=True),)
    old = (torch.tensor([[torch.nan] * 3, [1.0] * 3], requires_grad=True),)
    (new,) = trees.where_first(torch.tensor([True, False]), fresh, old)
    assert new.tolist() == [[0.0] * 3, [1.0] * 3]
    to_fresh, to_old = torch.autograd.grad((new * new + new).sum(), (*fresh, *old))
    assert to_old.tolist() == [[0.0] * 3, [3.0] * 3]
    assert to_fresh.tolist() == [[1.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("index", [torch.tensor([2, 0]), torch.tensor([True, False, True]), slice(1, 3)])
def test_take_and_put_rows_are_inverse(index):
    state, other = make(), make()
    put = trees.put_rows(state, index, trees.take_rows(other, index))
    for got, a, b in zip(*map(trees.leaves, (put, state, other)), strict=True):
        inside = torch.zeros(3, dtype=torch.bool)
        inside[index] = True
        assert torch.equal(got[inside], b[inside]) and torch.equal(got[~inside], a[~inside])
    before = trees.clone(state)
    trees.put_rows(state, index, trees.take_rows(other, index))
    assert all(torch.equal(a, b) for a, b in zip(trees.leaves(state), trees.leaves(before), strict=True))


def test_put_rows_keeps_the_dtype():
    state = make()
    rows = trees.to(trees.take_rows(state, slice(0, 1)), torch.float64)
    assert trees.put_rows(state, slice(0, 1), rows).hidden.dtype == torch.float32


def test_concatenate_undoes_a_split():
    state = make()
    joined = trees.concatenate([trees.take_rows(state, slice(0, 1)), trees.take_rows(state, slice(1, 3))])
    assert all(torch.equal(a, b) for a, b in zip(trees.leaves(joined), trees.leaves(state), strict=True))


def test_detach_cuts_the_graph_and_shares_the_memory():
    state = make(requires_grad=True)
    cut = trees.detach(trees.map_state(lambda leaf: leaf * 1, state))
    assert not any(leaf.requires_grad for leaf in trees.leaves(cut))
    assert trees.detach(state).hidden.data_ptr() == state.hidden.data_ptr()
    assert trees.clone(state).hidden.data_ptr() != state.hidden.data_ptr()


def test_a_dtype_moves_floats_only_and_a_device_moves_all():
    state = make()
    double = trees.to(state, torch.float64)
    assert [leaf.dtype for leaf in trees.leaves(double)] == [torch.int64, torch.float64, torch.float64]
    away = trees.to(state, "meta", torch.float16)
    assert all(leaf.device.type == "meta" for leaf in trees.leaves(away))
    assert [leaf.dtype for leaf in trees.leaves(away)] == [torch.int64, torch.float16, torch.float16]


def test_nbytes_counts_every_leaf_and_views_in_full():
    assert trees.nbytes(make()) == 3 * 8 + 3 * 2 * 4 * 4 + 3 * 5 * 4
    assert trees.nbytes((torch.zeros(1, 5).expand(3, 5),)) == 3 * 5 * 4
    assert trees.nbytes((torch.zeros(3, 0),)) == 0


class Packed(NamedTuple):
    counter: Tensor
    nothing: Tensor
    flag: Tensor
    hidden: Outer


def test_bytes_of_rows_are_exact_for_every_dtype():
    state = Packed(
        torch.tensor([2**40 + 1, -3, 0]),
        torch.zeros(3, 0),
        torch.tensor([True, False, True]),
        make(dtype=torch.bfloat16),
    )
    content = trees.to_bytes(state)
    assert content.dtype == torch.uint8 and content.shape == (3, trees.nbytes(state) // 3)
    padded = torch.nn.functional.pad(content, (0, 5), value=7)
    for rows in (slice(None), slice(1, 2)):  # one row is contiguous at any place
        back = trees.from_bytes(padded[rows], state)
        for leaf, old in zip(trees.leaves(back), trees.leaves(trees.take_rows(state, rows)), strict=True):
            assert leaf.dtype == old.dtype and torch.equal(leaf, old)
    state.hidden.hidden[0, 0] = torch.nan
    assert trees.from_bytes(trees.to_bytes(state), state).hidden.hidden[0, 0].isnan()
