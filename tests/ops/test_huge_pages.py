"""Zeros in huge pages: the same as other zeros, of any size and dtype."""

import pytest
import torch

from recollect.ops.huge_pages import HUGE, LEAST, zeros


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 1, LEAST - 2, LEAST, 3 * HUGE + 2])
def test_zeros_are_zero_and_can_be_written(size, dtype):
    like = torch.ones(2, dtype=dtype)
    used = torch.ones(LEAST, dtype=torch.uint8)  # memory that the next tensor may get
    del used
    found = zeros(size // dtype.itemsize, 1, like=like)
    assert found.shape == (size // dtype.itemsize, 1) and found.dtype == dtype and not found.any()
    found += 1
    assert (found == 1).all()


def test_another_dtype_may_be_asked_for():
    assert zeros(LEAST, like=torch.ones(1), dtype=torch.int64).dtype == torch.int64
