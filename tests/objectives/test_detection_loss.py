"""Errors of the loss of activity detectors; its values are in tests/agents/test_activity_detector.py."""

import pytest
import torch

from recollect.objectives.detection import detection_loss


def test_a_mask_of_numbers_is_refused_and_not_read_as_indices():
    logits, targets = torch.randn(2, 3, 4), torch.ones(2, 3, 4)
    with pytest.raises(ValueError, match=r"mask has dtype torch.int64: use mask.bool\(\)"):
        detection_loss(logits, targets, torch.ones(2, 3, dtype=torch.long))
