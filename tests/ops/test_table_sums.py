import torch

from recollect.ops.table_sums import plain_table_sums, table_sums


def test_every_entry_of_a_table_gets_the_sum_of_its_gradients():
    """Against a plain loop; one row is used often, one never, and one twice in the same sum."""
    index = torch.tensor([[0, 3], [0, 3], [4, 4], [0, 1]], dtype=torch.int32)
    table = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn(4, 3, dtype=torch.float64)
    expected = torch.zeros(6, 3, dtype=torch.float64)
    for row, entries in enumerate(index.tolist()):
        for entry in entries:
            expected[entry] += cotangent[row]
    sums = table_sums(index, table)
    torch.testing.assert_close(sums, torch.stack([table[i] + table[j] for i, j in index.tolist()]))
    torch.testing.assert_close(torch.autograd.grad((sums * cotangent).sum(), table)[0], expected)
    assert (expected[[2, 5]] == 0).all()


def test_can_be_differentiated_twice():
    index, table = torch.randint(5, (7, 2)), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: table_sums(index, rows), table)
    assert torch.autograd.gradgradcheck(lambda rows: table_sums(index, rows).square(), table)


def test_nothing_is_saved_without_gradients():
    index, table = torch.randint(5, (7, 2)), torch.randn(5, 3, requires_grad=True)
    with torch.no_grad():
        sums = table_sums(index, table)
    assert sums.grad_fn is None and torch.equal(sums, plain_table_sums(index, table.detach()))
    assert table_sums(index, table.detach()).grad_fn is None


def test_autocast_and_short_integers():
    index, table = torch.randint(5, (7, 1), dtype=torch.int32), torch.randn(5, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        sums = table_sums(index, table)
        assert sums.dtype == plain_table_sums(index, table).dtype
    sums.sum().backward()
    torch.testing.assert_close(table.grad.sum(), torch.tensor(28.0))
