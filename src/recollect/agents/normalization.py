"""Running statistics of an agent's observations and returns, as buffers beside its weights.

    observations   z = clip((x - mean) / sqrt(var + eps), -10, 10)           RunningNorm
    values         V = mean + std * head(features)                           ReturnNorm (PopArt)

Buffers are saved, resumed and sent to actors with the weights. Only the learner updates them, once per rollout.

Sources: van Hasselt et al. (2016), Learning values across many orders of magnitude (PopArt: when the statistics move,
the head is changed so that every V stays what it was); Chan et al. (1979) for merging variances.
"""

import torch
from torch import Tensor, nn

LARGEST = 10.0  # bound on a normalised observation
LEAST_SPREAD = 0.1  # least standard deviation of returns, relative to their root mean square


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
        """``[..., dim] -> [..., dim]``."""
        return ((inputs - self.mean) * (self.variance + 1e-8).rsqrt()).clamp(-LARGEST, LARGEST)

    @torch.no_grad()
    def update(self, seen: Tensor) -> None:
        """Update the statistics with ``[n, dim]``; all observations have equal weight."""
        seen = seen.double()
        n, old = seen.shape[0], self.count
        total = old + n
        mean, variance = seen.mean(0), seen.var(0, unbiased=False)
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
            targets: value targets.
            head: the linear map whose outputs are passed to :meth:`forward`.
        """
        if not len(targets):
            return
        mean, std = self.mean.clone(), self.std
        self.count += 1
        share = max(self.rate, 1.0 / int(self.count))
        self.mean.lerp_(targets.mean().to(self.mean.dtype), share)
        self.square.lerp_(targets.square().mean().to(self.mean.dtype), share)
        head.weight.mul_(std / self.std)
        head.bias.mul_(std).add_(mean - self.mean).div_(self.std)
