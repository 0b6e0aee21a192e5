import pytest
import torch

from recollect.layers.rings import MirrorRing, Rows


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
    ring.clear(torch.tensor([0]))
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


def test_rows_that_are_apart_have_windows_of_their_own_and_come_together_again():
    ring, alone = MirrorRing(5, 3, (2,), torch.zeros(1)), [MirrorRing(1, 3, (2,), torch.zeros(1)) for _ in range(5)]
    chosen = torch.Generator().manual_seed(0)
    for step in range(40):
        rows = torch.randperm(5, generator=chosen)[: 5 if step % 9 == 8 else 1 + step % 4]
        entries = torch.randn(len(rows), 2)
        if step % 9 == 8:  # all of them, in order
            rows = torch.arange(5)
            ring.push(entries)
        else:
            ring.push(entries, rows)
        for row, entry in zip(rows.tolist(), entries, strict=True):
            alone[row].push(entry[None])
        if step % 7 == 6:
            window = torch.randn(1, 3, 2)
            ring.load(window, torch.tensor([step % 5]))
            alone[step % 5].load(window)
        if step % 11 == 10:
            ring.clear(torch.tensor([step % 5]))
            alone[step % 5].clear(torch.tensor([0]))
        some = torch.tensor([4, 0, 2])
        assert torch.equal(ring.window(some), torch.cat([alone[row].window() for row in some.tolist()]))
        if step % 5 == 0:
            assert torch.equal(ring.window(), torch.cat([one.window() for one in alone]))


def test_rows_of_buffers_with_parts():
    rows = Rows(torch.tensor([3, 1]), batch_size=4)
    assert rows.of_parts(2).tolist() == [6, 7, 2, 3]
