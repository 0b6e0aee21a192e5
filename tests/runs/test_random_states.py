import random

import numpy as np
import torch

from recollect.runs.random_states import random_states, restore_random_states, seed_everything


def test_states_of_accelerators_that_are_not_here_are_left_out(monkeypatch):
    """A run of one accelerator continues on a machine with fewer of them."""
    restored = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, index: restored.append((index, int(state))))
    tensors, data = random_states()
    tensors |= {f"cuda.{index}": torch.tensor(index + 7) for index in range(2)}
    restore_random_states(tensors, data)
    assert restored == [(0, 7)]


def test_learners_of_a_run_draw_other_numbers_and_the_first_those_of_the_seed():
    before, drawn = random_states(), []
    for seed, rank in ((3, 0), (3, 1), (3, 2), (4, 1), (-3, 1)):
        draws = []
        for _ in range(2):
            seed_everything(seed, rank)
            draws.append((torch.rand(1).item(), random.random(), np.random.rand()))
        assert draws[0] == draws[1]
        drawn.append(draws[0])
    restore_random_states(*before)
    assert drawn[0][0] == torch.rand(1, generator=torch.Generator().manual_seed(3)).item()
    assert all(len(set(numbers)) == 5 for numbers in zip(*drawn, strict=True))
