"""Small steps of streams run on one thread; the caller's number is restored."""

import pytest
import torch

from recollect.cores import CORES
from recollect.ops.threads import SMALL, threads_for


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


class Watched(torch.nn.Module):
    """Input projection that notes the number of threads, and may fail."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.seen, self.fails = inner, [], False

    def forward(self, inputs):
        self.seen.append(torch.get_num_threads())
        if self.fails:
            raise RuntimeError("as told")
        return self.inner(inputs)


def test_blocks_choose_by_size():
    for operations, wanted in ((SMALL, 1), (SMALL + 1, 3)):
        with threads_for(operations):
            assert torch.get_num_threads() == wanted
        assert torch.get_num_threads() == 3


def test_steps_of_few_rows_run_on_one_thread():
    core = CORES["transformer-xl"](dim=8, num_layers=1, num_heads=2, memory_len=4).build(6).eval()
    rows = SMALL // core.flops_per_step()
    watched = core.project = Watched(core.project)
    stream = core.stream(rows + 5)
    inputs, watched.seen = torch.randn(rows + 5, 6), []
    stream.step(inputs)
    stream.step_rows(inputs[:2], [7, 1])
    stream.step_rows(inputs[: rows + 1], range(rows + 1))
    stream.unroll(inputs[:, None])
    assert watched.seen == [3, 1, 3, 3]
    small = core.stream(2)
    watched.seen = []
    small.step(inputs[:2])
    small.unroll(inputs[:2, None].expand(-1, 4, -1))
    assert watched.seen == [1, 1]
    watched.fails = True
    with pytest.raises(RuntimeError, match="as told"):
        small.step(inputs[:2])
    assert torch.get_num_threads() == 3
