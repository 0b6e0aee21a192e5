import torch

from recollect.runs.random_states import random_states, restore_random_states


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
