"""Steps that end in the middle."""

import pytest
import torch


def assert_a_step_without_memory_leaves_the_generator(trainer, part, monkeypatch):
    """Where ``part`` of the model finds no memory."""
    before = trainer.save()[0]["generator"].clone()

    def broken(*arguments, **settings):
        raise MemoryError("not enough memory")

    monkeypatch.setattr(trainer.model, part, broken)
    with pytest.raises(MemoryError):
        trainer.step()
    assert torch.equal(trainer.save()[0]["generator"], before)
