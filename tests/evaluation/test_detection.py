import math

import numpy as np
import pytest
import torch

from recollect.evaluation.detection import average_precision, detection_score, evaluate_detector
from recollect.tasks import ShapeActivities


def literal_average_precision(scores, labels):
    """THUMOS'15's evaluation, line by line, as charades_v1_localize has it."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    hits = misses = 0
    total = 0.0
    for i in order:
        hits, misses = (hits + 1, misses) if labels[i] else (hits, misses + 1)
        if labels[i]:
            total += hits / (hits + misses)
    return total / sum(labels)


def test_average_precision_is_the_literal_one():
    random = np.random.default_rng(0)
    scores, labels = random.normal(size=(60, 5)).round(1), random.random((60, 5)) < 0.3  # rounded: with equal scores
    labels[:, 4] = False
    found = average_precision(scores, labels)
    for k in range(4):
        assert math.isclose(found[k], literal_average_precision(scores[:, k].tolist(), labels[:, k].tolist()))
    assert math.isnan(found[4])


def test_a_score_of_videos():
    task, random = ShapeActivities(), torch.Generator().manual_seed(0)
    labels = [torch.rand(25, 12, generator=random) < 0.2 for _ in range(40)]
    perfect = detection_score([part.float() for part in labels], labels, [0.0], task)
    assert perfect.score == perfect.weighted == perfect.low == perfect.high == 1.0
    noisy = detection_score([part + torch.randn(part.shape, generator=random) for part in labels], labels, [0.0], task)
    assert noisy.low < noisy.score < noisy.high < 1
    values, counts = noisy.by_row()
    assert len(values) == 32 and abs(np.sum(values) / np.sum(counts) - noisy.score) < 0.02
    assert noisy.score == np.mean(list(noisy.by_class.values()))


class OneFrame(torch.nn.Module):
    """Knows all that one frame tells: what is put, that the ball moves, that something is taken."""

    def __init__(self, targets):
        super().__init__()
        self.weight, self.targets, self.row = torch.nn.Parameter(torch.zeros(1)), targets, 0

    def initial_state(self, batch_size):
        return None

    def forward(self, inputs, state, is_first):
        targets = self.targets[self.row : self.row + len(inputs)]
        self.row += len(inputs)
        generator = torch.Generator().manual_seed(self.row)
        doubt = 0.1 * torch.rand(*targets.shape[:2], 4, generator=generator)
        take = targets[..., 8:].amax(-1, keepdim=True)
        return torch.cat((targets[..., :4], doubt, take + doubt), -1), state


@pytest.mark.long
def test_chance_is_what_one_frame_tells():
    task = ShapeActivities(boxes=1, size=16, noise=0)
    targets = task.sample(512, torch.Generator().manual_seed(3)).targets
    found = evaluate_detector(OneFrame(targets), task, num_rows=512, batch_size=512, seed=3)
    assert abs(found.score - task.spec.chance) < 0.03 and found.videos == 512
