"""Optimisers: their settings, one step of them, and what they remember."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from recollect.config import require, require_types
from recollect.cores.weight_changes import count_change
from recollect.runs.errors import NonFiniteError

Algorithm = Literal["adamw", "adam", "rmsprop"]
Schedule = Literal["constant", "linear", "cosine", "rsqrt"]
FACTOR = "rate_factor"
"""In a group of parameters: what its learning rate is multiplied by."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """An optimiser, and how its learning rate moves.

    TorchBeast's RMSprop is ``OptimizerConfig(algorithm="rmsprop", learning_rate=4.8e-4, smoothing=0.99, epsilon=0.01,
    schedule="linear", clip_norm=40.0)``.
    """

    algorithm: Algorithm = "adamw"
    """AdamW; Adam, whose weight decay goes through the averages; RMSprop without momentum, not centred."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Schedule = "constant"
    """After warm-up: stay; fall to 0 after the last step as a line or as a cosine; fall as 1 / sqrt(step)."""
    floor: float = 0.0
    """Least share of the peak to which a line or a cosine falls."""
    warmup_steps: int = 0
    """Steps over which the rate rises linearly from 0."""
    weight_decay: float = 0.0
    """Weight decay of parameters with two axes or more: weights of linear maps and convolutions, but also learned
    tables of positions, tokens and slots. Biases, norms and nn.Embedding are spared. 0 makes AdamW plain Adam."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Averaging factors of the gradient and its square, for Adam and AdamW."""
    smoothing: float = 0.99
    """Averaging factor of the squared gradient, for RMSprop."""
    epsilon: float = 1e-8
    """Added to the root of the averaged square."""
    clip_norm: float | None = 1.0
    """Longest gradient; longer ones are scaled down. None does not clip."""

    def __post_init__(self) -> None:
        require_types(self)
        for name, known in (("algorithm", get_args(Algorithm)), ("schedule", get_args(Schedule))):
            require(getattr(self, name) in known, name, getattr(self, name), f"choose one of {', '.join(known)}")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "give a positive rate")
        require(0 <= self.floor <= 1, "floor", self.floor, "give a share of the peak, from 0 to 1")
        require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, "give 0 or more")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "give 0 or more")
        require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "give two factors from 0 to below 1")
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "give a factor from 0 to below 1")
        require(self.epsilon > 0, "epsilon", self.epsilon, "give a small positive number")
        clips = self.clip_norm is None or self.clip_norm > 0
        require(clips, "clip_norm", self.clip_norm, "give a positive length, or None")

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of step ``step`` (from 0) of ``steps``."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.schedule == "rsqrt":
            return self.learning_rate * math.sqrt(max(self.warmup_steps, 1) / max(step, 1))
        share = (step - self.warmup_steps) / max(steps - self.warmup_steps, 1)
        if self.schedule == "linear":
            return self.learning_rate * max(self.floor, 1 - share)
        if self.schedule == "cosine":
            return self.learning_rate * max(self.floor, 0.5 * (1 + math.cos(math.pi * share)))
        return self.learning_rate

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser for a model's parameters.

        Only ``nn.Embedding`` and parameters with one axis are spared weight decay. A position table, a class token or
        a first slot that is a parameter of its own is not, even where a paper decays weights of linear maps alone.
        """
        spared = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        decayed = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in spared]
        others = [p for p in model.parameters() if p.ndim < 2 or id(p) in spared]
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        if self.algorithm == "rmsprop":
            return torch.optim.RMSprop(groups, lr=self.learning_rate, alpha=self.smoothing, eps=self.epsilon)
        build = torch.optim.AdamW if self.algorithm == "adamw" else torch.optim.Adam
        return build(groups, lr=self.learning_rate, betas=self.betas, eps=self.epsilon, fused=True)

    def clip(self, model: nn.Module) -> Tensor:
        """Scale a long gradient down to ``clip_norm``; its length before, a scalar."""
        return nn.utils.clip_grad_norm_(model.parameters(), math.inf if self.clip_norm is None else self.clip_norm)


def begin_step(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Before the forward pass: the learning rate of all parameters, and no gradient left of the step before."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(FACTOR, 1.0)
    optimizer.zero_grad(set_to_none=True)


def split_rates(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Let some parameters learn at ``factor`` times the rate of the others; a factor of 1 changes nothing."""
    if factor == 1.0:
        return
    theirs = {id(parameter) for parameter in parameters}
    for group in list(optimizer.param_groups):
        slow = [parameter for parameter in group["params"] if id(parameter) in theirs]
        if slow:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in theirs]
            optimizer.add_param_group({**group, "params": slow, FACTOR: factor})


def take_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: OptimizerConfig,
    loss: Tensor,
    *,
    finite: Mapping[str, Tensor],
    others: Mapping[str, Tensor] | None = None,
) -> dict[str, float]:
    """After the forward pass: gradient, clipping, a look at the numbers, new weights.

    Args:
        model: whose weights change.
        optimizer: made by ``config.build(model)``.
        config: of the optimiser.
        loss: what is minimised, a scalar.
        finite: scalars to report that must be finite, as the length of the gradient must.
        others: scalars to report that may be anything.

    Returns:
        The numbers of ``finite``, ``gradient_norm`` (before clipping) and those of ``others``.

    Raises:
        NonFiniteError: the gradient's length or one of ``finite`` is NaN or infinite; no weight has changed.
    """
    loss.backward()
    checked = {**finite, "gradient_norm": config.clip(model)}
    reported = checked | dict(others or {})
    numbers = torch.stack([value.detach() for value in reported.values()]).tolist()  # one wait for the device
    found = dict(zip(reported, numbers, strict=True))
    for name in checked:
        if not math.isfinite(found[name]):
            optimizer.zero_grad(set_to_none=True)
            raise NonFiniteError(f"the {name.replace('_', ' ')} is {found[name]}")
    optimizer.step()
    count_change(parameter for parameter in model.parameters() if parameter.grad is not None)
    return found


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, by name. Its settings follow from the config and are left out."""
    saved = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, entries in saved.items() for name, value in entries.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Continue from what :func:`optimizer_tensors` gave."""
    saved = optimizer.state_dict()
    saved["state"] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        saved["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(saved)


@contextmanager
def drawing_again(generator: torch.Generator) -> Iterator[None]:
    """A step that fails within has drawn nothing: the same step can be taken once more."""
    before = generator.get_state()
    try:
        yield
    except BaseException:
        generator.set_state(before)
        raise


class Undo:
    """Weights, optimiser and generator as they were before a step of several updates.

    Args:
        model: whose weights and statistics change.
        optimizer: of the model.
        generator: that the step draws from.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        self.model, self.optimizer, self.generator = model, optimizer, generator
        # Not copy.deepcopy, which takes twenty times as long: a step of a small agent is made of little else.
        self.weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        self.averages = optimizer.state_dict()
        self.averages["state"] = {
            index: {name: average.clone() for name, average in entries.items()}
            for index, entries in self.averages["state"].items()
        }
        self.drawn = generator.get_state()

    def __call__(self) -> None:
        """Put them back."""
        self.model.load_state_dict(self.weights)
        self.optimizer.load_state_dict(self.averages)
        self.generator.set_state(self.drawn)
