"""Interface of a trainer (the state that learns, and one step of learning), and a base for those that draw batches."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.learners import present
from recollect.state import map_state, named_leaves
from recollect.training.config import TrainerConfig
from recollect.training.devices import choose_device
from recollect.training.optimizers import (
    begin_step,
    load_optimizer,
    optimizer_tensors,
    restore_on_error,
    take_step,
)

ConfigT = TypeVar("ConfigT", bound=TrainerConfig)
ModelT = TypeVar("ModelT", bound=nn.Module)


class Trainer(ABC):
    """Object that ``fit`` drives. Build it after seeding; it may use the global generators of torch."""

    step_metrics: tuple[str, ...]
    """Names of the metrics of :meth:`step`."""
    evaluation_metrics: tuple[str, ...]
    """Names of the metrics of :meth:`evaluate`; ``"score"`` is one of them."""
    counters: tuple[str, ...] = ()
    """Those of ``step_metrics`` whose newest value is reported. Others are means since the last report: over the steps,
    or for names that begin with ``episode_`` over the ``episodes`` of every step."""
    shown: Mapping[str, str] = MappingProxyType({"loss": "loss", "accuracy": "accuracy", "score": "score"})
    """Metrics on the progress bar, and their names there."""
    notice: str = ""
    """Remark of :meth:`load` for the user."""
    shares_rows: bool = False
    """Whether several learners can share the rows of its batches."""

    @property
    @abstractmethod
    def agent(self) -> nn.Module:
        """Model whose weights are trained and saved."""

    def load_initial_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the new weights; called before the first step."""
        self.agent.load_state_dict(dict(weights))

    def agree_on_weights(self) -> None:
        """Begin with the first learner's weights in all of them: two machines may make others of the same seed."""
        if present().size > 1:
            self.load_initial_weights(present().lead(self.agent.state_dict))

    def require_learners(self, size: int) -> None:
        """Raise ``ValueError`` unless this trainer can be one of ``size`` learners."""
        name = type(self).__name__.removesuffix("Trainer").lower()
        remedy = f"the {name} trainer cannot share its rows: start one process, without torchrun"
        require(size == 1 or self.shares_rows, "learners", size, remedy)

    def check_data(self) -> None:
        """Read data from files, where building did not; called before anything of a new run is written.

        Raises:
            ValueError: there are no data, or they cannot be read.
        """
        return

    @abstractmethod
    def step(self) -> dict[str, float]:
        """Take one step of learning. Raises :class:`StepError`, with nothing changed, on a NaN or a broken world."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Score the agent as it is. Changes no weight and no generator."""

    @abstractmethod
    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that the next step reads, beside weights and global generators: tensors, and JSON data."""

    @abstractmethod
    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from the return values of :meth:`save`."""

    def close(self) -> None:
        """Release threads and worlds, at the end of the run or after an error."""
        return


class SampledDataTrainer(Trainer, Generic[ConfigT, ModelT]):
    """Trainer that draws its data with a generator of its own: one optimiser step per batch.

    Args:
        config: of the run.
        model: with new weights, on the CPU.
    """

    step_metrics = ("loss", "accuracy", "gradient_norm", "learning_rate")

    def __init__(self, config: ConfigT, model: ModelT) -> None:
        self.config = config
        self.device = choose_device(config.device)
        self.model = model.to(self.device)
        self.optimizer = config.optimizer.build(self.model)
        self.generator = torch.Generator().manual_seed(config.fit.seed)
        self.updates = 0

    @property
    def agent(self) -> ModelT:
        """The model that learns."""
        return self.model

    @abstractmethod
    def compute_loss(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw the next batch; return its loss, and other scalars to report."""

    def autocast(self) -> torch.autocast:
        """Return a context that computes in bfloat16 where the config says so."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bfloat16)

    def step(self) -> dict[str, float]:
        """Train on the next batch."""
        config = self.config.optimizer
        rate = config.rate(self.updates, self.config.fit.steps)
        with restore_on_error(self.generator):
            self.model.train()
            begin_step(self.optimizer, rate)
            loss, others = self.compute_loss()
            numbers = take_step(self.model, self.optimizer, config, loss, finite={"loss": loss}, others=others)
        self.updates += 1
        return numbers | {"learning_rate": rate}

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state of optimiser and generator for a checkpoint."""
        return {"generator": self.generator.get_state(), **optimizer_tensors(self.optimizer)}, {"updates": self.updates}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from the return values of :meth:`save`."""
        self.updates = data["updates"]
        self.generator.set_state(tensors["generator"])
        load_optimizer(self.optimizer, tensors)


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def state_tensors(prefix: str, state: Any) -> dict[str, Tensor]:
    """Return the leaves of a state tree by their names after ``prefix``."""
    return {f"{prefix}{name}": leaf for name, leaf in named_leaves(state)}


def load_state(prefix: str, tensors: Mapping[str, Tensor], example: Any) -> Any:
    """Return the state that :func:`state_tensors` gave, with the structure and devices of ``example``."""
    names = iter([name for name, _ in named_leaves(example)])
    return map_state(lambda leaf: tensors[f"{prefix}{next(names)}"].to(leaf.device), example)
