"""Normalisation of inputs and outputs, by statistics in buffers beside the weights.

    data sets      z = (x - mean) / std;   y = mean + std * answer           Standardization, in float64
    observations   z = clip((x - mean) / sqrt(var + eps), -10, 10)           RunningNorm
    values         V = mean + std * head(features)                           ReturnNorm (PopArt)

Buffers are saved, resumed and sent to actors with the weights. The scale of a data set is fixed; of the others only the
learner updates the statistics, once per rollout.

Sources: van Hasselt et al. (2016), Learning values across many orders of magnitude (PopArt: when the statistics move,
the head is changed so that every V stays what it was); Chan et al. (1979) for merging variances.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from recollect.learners import present
from recollect.tasks.streams.contract import Scale

LARGEST = 10.0  # bound on a normalised observation
COARSEST = 0.01  # largest distance of neighbouring numbers, in standard deviations, that inputs may have
LEAST_SPREAD = 0.1  # least standard deviation of returns, relative to their root mean square


class Standardization(nn.Module):
    """Fixed scale of raw numbers, ``z = (x - mean) / std``.

    The subtraction is done in float64, because numbers with a large mean and a small deviation are all alike in
    float32. The buffers stay float64 when the model changes its dtype.

    Args:
        scale: of the training data.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(scale.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(scale.std, dtype=torch.float64))

    def forward(self, raw: Tensor, dtype: torch.dtype) -> Tensor:
        """Return standardised numbers, ``[..., dim] -> [..., dim]``, in a dtype."""
        return ((raw.double() - self.mean) / self.std).to(dtype)

    def invert(self, standardized: Tensor) -> Tensor:
        """Return raw numbers, float64 ``[..., dim]``."""
        return standardized.double() * self.std + self.mean

    def require_precision(self, dtype: torch.dtype) -> None:
        """Raise ``ValueError`` where numbers of this dtype are too coarse at the mean to tell their deviations."""
        if dtype in (torch.float64, torch.int32, torch.int64):
            return
        step = self.mean.abs() * torch.finfo(dtype).eps / self.std
        if bool((step > COARSEST).any()):
            column = int(step.argmax())
            mean, std = float(self.mean[column]), float(self.std[column])
            raise ValueError(
                f"inputs are {dtype}, which is too coarse for number {column} of a step, with mean {mean:.6g} and "
                f"deviation {std:.3g}: give float64"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        scale = dict(self.named_buffers())
        super()._apply(fn, recurse)
        for name, buffer in self.named_buffers():
            setattr(self, name, scale[name].to(buffer.device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # Checkpoints of earlier versions have no scale: the present one stays.
        for name, buffer in self.named_buffers():
            state_dict.setdefault(prefix + name, buffer)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def described_scales(description: Mapping[str, Any]) -> dict[str, Scale | None]:
    """Return the arguments ``input_scale`` and ``target_scale`` of a described model, whose numbers are loaded."""
    dims = {"input": description["input_dim"], "target": description["num_classes"]}
    return {
        f"{name}_scale": Scale((0.0,) * dim, (1.0,) * dim) if description.get(f"has_{name}_scale") else None
        for name, dim in dims.items()
    }


class RunningNorm(nn.Module):
    """Normalisation of ``dim`` numbers to mean 0 and variance 1 over all updates; the identity before the first."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise inputs ``[..., dim]`` by the running mean and variance, and clip to -10..10."""
        return ((inputs - self.mean) * (self.variance + 1e-8).rsqrt()).clamp(-LARGEST, LARGEST)

    @torch.no_grad()
    def update(self, seen: Tensor) -> None:
        """Update the statistics with ``[n, dim]`` of every learner; all observations have equal weight."""
        seen = seen.double()
        learners, old = present(), self.count
        (n,) = learners.sum(seen.shape[0])
        total = old + n
        mean = learners.mean(seen)
        variance = learners.variance(seen, mean)
        shift = mean - self.mean
        spread = self.variance * old + variance * n + shift.square() * old * n / total
        self.mean += shift * (n / total)
        # A constant number would be divided by zero.
        self.variance.copy_((spread / total).clamp(min=1e-6))
        self.count.copy_(total)


class ReturnNorm(nn.Module):
    """Scale of returns, V = mean + std * head, so that the head need not grow a hundredfold with them.

    The standard deviation is at least ``LEAST_SPREAD`` of the root mean square: where all returns have become equal,
    their remaining differences are noise and should not be amplified.

    Args:
        rate: weight of a new rollout, once more than ``1 / rate`` have been seen.
    """

    mean: Tensor
    square: Tensor
    count: Tensor

    def __init__(self, rate: float = 0.05) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("square", torch.ones(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @property
    def std(self) -> Tensor:
        """Standard deviation of the returns; 1 before the first update."""
        variance = torch.maximum(self.square - self.mean.square(), LEAST_SPREAD**2 * self.square)
        return variance.clamp(min=1e-8).sqrt()

    def forward(self, outputs: Tensor) -> Tensor:
        """Return values ``[...]`` for the head's outputs ``[...]``."""
        return self.mean + self.std * outputs

    @torch.no_grad()
    def update(self, targets: Tensor, head: nn.Linear) -> None:
        """Update the statistics with the value targets ``[n]`` of a rollout, and keep every value unchanged.

        Args:
            targets: value targets; with several learners, of its own rows.
            head: the linear map whose outputs are passed to :meth:`forward`.
        """
        learners = present()
        if not learners.sum(len(targets))[0]:
            return
        mean, std = self.mean.clone(), self.std
        self.count += 1
        share = max(self.rate, 1.0 / int(self.count))
        self.mean.lerp_(learners.mean(targets).to(self.mean.dtype), share)
        self.square.lerp_(learners.mean(targets.square()).to(self.mean.dtype), share)
        head.weight.mul_(std / self.std)
        head.bias.mul_(std).add_(mean - self.mean).div_(self.std)
