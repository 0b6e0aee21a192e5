"""One step of an optimiser, and its state for checkpoints; settings are in ``config.py``."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from recollect.cores.weight_changes import count_change
from recollect.learners import present
from recollect.runs.errors import NonFiniteError
from recollect.training.config import OptimizerConfig

FACTOR = "rate_factor"
"""Key in a group of parameters: factor of its learning rate."""


def begin_step(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters and clear their gradients; call it before the forward pass."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(FACTOR, 1.0)
    optimizer.zero_grad(set_to_none=True)


def split_rates(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply the learning rate of some parameters by ``factor``; a factor of 1 changes nothing."""
    if factor == 1.0:
        return
    chosen = {id(parameter) for parameter in parameters}
    for group in list(optimizer.param_groups):
        slow = [parameter for parameter in group["params"] if id(parameter) in chosen]
        if slow:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in chosen]
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
    """Compute and clip the gradient, check the numbers, and update the weights.

    With several learners all of these are sums over them (``recollect.learners``).

    Args:
        model: whose weights change.
        optimizer: made by ``config.build(model)``.
        config: of the optimiser.
        loss: to minimise, a scalar.
        finite: scalars to report that must be finite, like the norm of the gradient.
        others: scalars to report that may have any value.

    Returns:
        The numbers of ``finite``, ``gradient_norm`` (before clipping) and those of ``others``.

    Raises:
        NonFiniteError: the gradient's norm or one of ``finite`` is NaN or infinite; no weight has changed.
    """
    loss.backward()
    sums = present().add_gradients(model.parameters(), {**finite, **(others or {})})
    checked = {name: sums[name] for name in finite} | {"gradient_norm": config.clip(model)}
    reported = checked | sums
    numbers = torch.stack([value.detach() for value in reported.values()]).tolist()  # one synchronisation
    found = dict(zip(reported, numbers, strict=True))
    for name in checked:
        if not math.isfinite(found[name]):
            optimizer.zero_grad(set_to_none=True)
            raise NonFiniteError(f"the {name.replace('_', ' ')} is {found[name]}")
    optimizer.step()
    count_change(parameter for parameter in model.parameters() if parameter.grad is not None)
    return found


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser by names that begin with ``optimizer.``; its settings follow from the config."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{index}.{name}": value for index, part in state.items() for name, value in part.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Continue from the return values of :func:`optimizer_tensors`; other names are ignored."""
    saved = optimizer.state_dict()
    saved["state"] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            saved["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(saved)


@contextmanager
def restore_on_error(generator: torch.Generator) -> Iterator[None]:
    """Restore a generator when the block raises, so that a failed step can be repeated."""
    before = generator.get_state()
    try:
        yield
    except BaseException:
        generator.set_state(before)
        raise


class Undo:
    """Copy of weights, optimiser and generator before a step of several updates; calling it restores them.

    Args:
        model: whose weights and statistics change.
        optimizer: of the model.
        generator: that the step draws from.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        self.model, self.optimizer, self.generator = model, optimizer, generator
        # copy.deepcopy takes twenty times as long, which dominates a step of a small agent.
        self.weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        self.averages = optimizer.state_dict()
        self.averages["state"] = {
            index: {name: average.clone() for name, average in entries.items()}
            for index, entries in self.averages["state"].items()
        }
        self.generator_state = generator.get_state()

    def __call__(self) -> None:
        """Restore weights, optimiser and generator as they were before the step."""
        self.model.load_state_dict(self.weights)
        self.optimizer.load_state_dict(self.averages)
        self.generator.set_state(self.generator_state)
