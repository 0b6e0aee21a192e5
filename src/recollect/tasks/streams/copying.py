"""The copying task: read ten digits, wait, repeat them.

    inputs    x_1 ... x_10   0 ... 0 (L times)   9   0 ... 0 (10 times)      x_i ~ U{1..8};  L + 21 steps
    targets   (nothing asked until the last ten steps)   x_1 ... x_10

At an answering step the input is always 0 and the answer is uniform over eight digits: a model without memory scores
exactly 1/8 in expectation.

Paper: Didolkar et al. 2022, Temporal Latent Bottleneck, section 7.6; the task is Hochreiter & Schmidhuber's (1997).

Differs: ``loss_on="all"`` trains on all steps with target 0 before the answer (Arjovsky et al., 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recollect.config import require, require_one_of
from recollect.lazy import torch
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec, single_episode_batch


@dataclass(frozen=True, kw_only=True)
class Copying(StreamTask):
    """Repeat the digits of the first steps after a long blank."""

    length: int = 100
    """Blank steps between the digits and the signal (L)."""
    num_digits: int = 10
    """Digits to repeat."""
    loss_on: Literal["answer", "all"] = "answer"
    """Train on the answer only, or on all steps, with target 0 before the answer."""

    def __post_init__(self) -> None:
        require(self.length >= 0, "length", self.length, "give 0 blank steps or more")
        require(self.num_digits >= 1, "num_digits", self.num_digits, "give at least one digit to repeat")
        require_one_of(self, "loss_on")

    @property
    def spec(self) -> TaskSpec:
        """Ten tokens in, ten classes out; every answer lies L + num_digits + 1 steps back."""
        return TaskSpec(
            vocabulary=10,
            num_classes=10,
            length=self.length + 2 * self.num_digits + 1,
            chance=1 / 8,
            solved=1.0,
            memory_span=self.length + self.num_digits + 1,
            bits=3.0 * self.num_digits,
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows."""
        n = self.num_digits
        digits = torch.randint(1, 9, (batch_size, n), generator=generator)
        inputs = torch.zeros(batch_size, self.spec.length, dtype=torch.long)
        inputs[:, :n] = digits
        inputs[:, -n - 1] = 9
        targets, source = torch.zeros_like(inputs), torch.full_like(inputs, -1)
        targets[:, -n:], source[:, -n:] = digits, torch.arange(n)
        batch = single_episode_batch(inputs, targets, source >= 0, source=source)
        return batch._replace(loss_mask=torch.ones_like(batch.loss_mask)) if self.loss_on == "all" else batch

    def count_items(self, batch: Batch) -> torch.Tensor:
        """Return 1 at the steps that show a digit, and 0 at the others."""
        return (torch.arange(self.spec.length) < self.num_digits).long().expand(len(batch.inputs), -1)
