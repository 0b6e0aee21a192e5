"""What trainers have in common that draw what they learn from: a model, its optimiser, and a generator."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from recollect.training.devices import choose_device
from recollect.training.frame import FitConfig, Trainer, below
from recollect.training.optimizers import OptimizerConfig, load_optimizer, optimizer_tensors

ModelT = TypeVar("ModelT", bound=nn.Module)


class DrawnTrainer(Trainer, Generic[ModelT]):
    """A model, its optimiser and the generator of what it learns from.

    Args:
        model: with new weights, on the CPU.
        optimizer: of its weights.
        fit: of the run: its seed is the generator's.
        device: where to compute.
    """

    def __init__(self, model: ModelT, optimizer: OptimizerConfig, fit: FitConfig, device: str) -> None:
        self.device = choose_device(device)
        self.model = model.to(self.device)
        self.optimizer = optimizer.build(self.model)
        self.generator = torch.Generator().manual_seed(fit.seed)
        self.updates = 0

    @property
    def agent(self) -> ModelT:
        """The model."""
        return self.model

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser and generator."""
        tensors = {"generator": self.generator.get_state()}
        tensors |= {f"optimizer.{name}": value for name, value in optimizer_tensors(self.optimizer).items()}
        return tensors, {"updates": self.updates}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.updates = data["updates"]
        self.generator.set_state(tensors["generator"])
        load_optimizer(self.optimizer, below("optimizer.", tensors))
