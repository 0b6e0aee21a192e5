import pytest
import torch

from recollect.layers.rings import MirrorRing


def test_the_window_is_always_the_last_entries_in_order():
    ring, entries = MirrorRing(2, 4, (3,), torch.zeros(1)), [torch.zeros(2, 3)] * 4
    for step in range(11):
        entry = torch.full((2, 3), float(step))
        ring.push(entry)
        entries.append(entry)
        assert torch.equal(ring.window(), torch.stack(entries[-4:], 1))
        assert ring.window().untyped_storage().data_ptr() == ring.data.untyped_storage().data_ptr()


def test_load_and_clear_rows():
    ring, window = MirrorRing(2, 3, (), torch.zeros(1)), torch.arange(6.0).reshape(2, 3)
    ring.push(torch.ones(2))
    ring.load(window)
    assert torch.equal(ring.window(), window)
    ring.clear(torch.tensor([True, False]))
    ring.push(torch.tensor([7.0, 8.0]))
    assert ring.window().tolist() == [[0.0, 0.0, 7.0], [4.0, 5.0, 8.0]]


def test_an_empty_ring_holds_nothing():
    ring = MirrorRing(2, 0, (3,), torch.zeros(1))
    ring.push(torch.ones(2, 3))
    assert ring.window().shape == (2, 0, 3)


@pytest.mark.parametrize("lengths", [(1, 2, 3, 1, 4), (3, 3, 3), (9, 2), (4, 5)])
def test_many_entries_at_once_are_those_entries_one_by_one(lengths):
    one, many = (MirrorRing(2, 4, (3,), torch.zeros(1)) for _ in range(2))
    for length in lengths:
        entries = torch.randn(2, length, 3)
        many.extend(entries)
        for entry in entries.unbind(1):
            one.push(entry)
        assert torch.equal(many.window(), one.window())
    assert MirrorRing(2, 0, (3,), torch.zeros(1)).extend(torch.zeros(2, 2, 3)) is None
