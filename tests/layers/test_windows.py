import pytest
import torch

from recollect.layers.windows import next_count, slide, steps_since_first, window_mask


def history(is_first, count, window):
    """Per row and step, the ids of the steps that it may see: cached ones are -1 (newest), -2, ..."""
    seen, counts = [], []
    for firsts, have in zip(is_first.tolist(), count.tolist(), strict=True):
        past, row = [-(i + 1) for i in range(have)][::-1], []
        for step, first in enumerate(firsts):
            past = [] if first else past
            row.append([*(past[-window:] if window else []), step])
            past = [*past, step]
        seen.append(row)
        counts.append(min(len(past), window))
    return seen, counts


@pytest.mark.parametrize("window", [0, 1, 3, 9])
@pytest.mark.parametrize("t", [1, 2, 7])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_mask_count_and_slide_follow_the_history(window, t, rate):
    b = 6
    is_first = torch.rand(b, t) < rate
    count = torch.randint(0, window + 1, (b,))
    seen, counts = history(is_first, count, window)
    mask = window_mask(is_first, count, window)
    assert mask.shape == (b, t, window + t)
    for row in range(b):
        for step in range(t):
            ids = [key - window for key in mask[row, step].nonzero().flatten().tolist()]
            assert ids == seen[row][step]
    assert next_count(is_first, count, window).tolist() == counts

    cached = torch.where(torch.arange(window, 0, -1) <= count[:, None], torch.arange(-window, 0) * 1.0, 0.0)
    new = torch.arange(t).expand(b, t) + 100.0
    after = slide(cached, new, next_count(is_first, count, window))
    for row in range(b):
        past = [i + 100.0 if i >= 0 else float(i) for i in seen[row][-1]]
        past = past[-counts[row] :] if counts[row] else []
        assert after[row].tolist() == [0.0] * (window - len(past)) + past


def test_slide_drops_nan_of_an_earlier_episode():
    cache, new = torch.full((1, 3, 2), torch.nan), torch.tensor([[[torch.nan, 1.0], [2.0, 3.0]]])
    is_first = torch.tensor([[False, True]])
    after = slide(cache, new, next_count(is_first, torch.tensor([3]), 3))
    assert after.tolist() == [[[0.0, 0.0], [0.0, 0.0], [2.0, 3.0]]]


def test_steps_since_first_counts_within_the_running_episode():
    is_first = torch.tensor([[False, True, False, True], [False, False, False, False]])
    assert steps_since_first(is_first, torch.tensor([5, 2])).tolist() == [[5, 0, 1, 0], [2, 3, 4, 5]]
