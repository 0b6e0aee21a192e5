"""Processes that train one model together, each on its share of the rows of a batch.

    torchrun --nproc-per-node 2 -m recollect train recall --core hcam

    every learner    L_r = (sum of the losses of its own rows) / (count over the rows of all learners)
    all learners     g = sum over r of the gradient of L_r,   then one clipping and one update, equal bit for bit

A loss that is a sum has no count, and one that is a mean is divided by the counts of all learners, so that the sum of
the gradients is the gradient of one learner that reads the whole batch. A number that is not finite in one learner is
not finite in the sum, and stops all of them at the same step.

The rest of the library asks :func:`present` and calls the same methods whether there is one learner or many: alone,
every method returns what it was given. Data travel through gloo, on the processor, from any device.

Source: Li et al. (2020), PyTorch distributed: experiences on accelerating data parallel training.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from recollect.config import require
from recollect.lazy import torch

T = TypeVar("T")

TIMEOUT = timedelta(hours=2)
"""Longest wait for another learner that does not answer, such as the first one while it evaluates."""
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets."""


class LearnerLostError(RuntimeError):
    """Another learner ended, so that this one cannot continue."""


def process_rank() -> int:
    """Return the number of this process among those that torchrun started, from 0; 0 without torchrun."""
    return int(os.environ["RANK"]) if process_count() > 1 else 0


def process_count() -> int:
    """Return the number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in VARIABLES) else 1


class Learners:
    """The learners of a run, as one of them sees them.

    Args:
        rank: number of this learner, from 0. The first one owns the run directory, and evaluates.
        size: number of learners.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def share(self, batch_size: int) -> int:
        """Return how many rows of a batch each learner has.

        Raises:
            ValueError: the rows cannot be shared out evenly.
        """
        remedy = f"the {self.size} learners share its rows evenly: give a multiple of {self.size}"
        require(batch_size % self.size == 0, "batch_size", batch_size, remedy)
        return batch_size // self.size

    def rows(self, batch_size: int) -> slice:
        """Return the rows of a batch that are this learner's."""
        share = self.share(batch_size)
        return slice(self.rank * share, (self.rank + 1) * share)

    def sum(self, *numbers: float) -> list[float]:
        """Return the sums of numbers over all learners."""
        if self.size == 1:
            return list(numbers)
        return self.total(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all learners; a constant."""
        if self.size == 1:
            return value
        summed = value.detach().to("cpu", copy=True)
        self._call(torch.distributed.all_reduce, summed)
        return summed.to(value.device)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean of the values ``[n, ...]`` of all learners, each with its own n."""
        if self.size == 1:
            return values.mean(0)
        return self.total(values.sum(0)) / self.total(torch.tensor(float(len(values)), device=values.device))

    def variance(self, values: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """Return the mean squared distance of the values ``[n, ...]`` of all learners from their ``mean``."""
        return values.var(0, unbiased=False) if self.size == 1 else self.mean((values - mean).square())

    def add_gradients(
        self, parameters: Iterable[torch.nn.Parameter], numbers: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Replace the gradients by their sums over all learners, and return the sums of the numbers: one message.

        A parameter without a gradient in some learners counts as 0 there, and has none where no learner has one.
        """
        if self.size == 1:
            return dict(numbers)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        given = grads[0].new_tensor([float(p.grad is not None) for p in trained])
        parts = [*(grad.flatten() for grad in grads), given, *(value.detach().reshape(1) for value in numbers.values())]
        sums = self.total(torch.cat(parts)).split([len(part) for part in parts])
        for parameter, part, count in zip(trained, sums, sums[len(trained)].tolist(), strict=False):
            parameter.grad = part.view_as(parameter).to(parameter.dtype) if count else None
        return {name: value[0] for name, value in zip(numbers, sums[len(trained) + 1 :], strict=True)}

    def lead(self, work: Callable[[], T]) -> T:
        """Do some work in the first learner alone; return its result, or raise its error, in all of them."""
        if self.size == 1:
            return work()
        answer: list[Any] = [None, None]
        if self.rank == 0:
            try:
                with _presence(Learners()):  # what the work calls must not wait for the others
                    answer[0] = work()
            except BaseException as error:
                self._call(torch.distributed.broadcast_object_list, [None, _portable(error)])
                raise
        self._call(torch.distributed.broadcast_object_list, answer)
        if answer[1] is not None:
            raise answer[1]
        return answer[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all learners, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self._call(torch.distributed.all_gather_object, values, value)
        return values

    def whole(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of a whole batch, of which each learner has its share."""
        return rows if self.size == 1 else torch.cat(self.gather(rows.cpu())).to(rows.device)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise an error of this block in all learners, also where it is another learner's; they wait for each other.

        The block calls no method of this class, and an error leaves no trace of it.
        """
        if self.size == 1:
            yield
            return
        mine = None
        try:
            yield
        except BaseException as error:
            mine = error
        failed = self.sum(float(mine is not None))[0]
        others = [error for error in self.gather(mine and _portable(mine)) if error is not None] if failed else []
        if mine is not None or others:
            raise mine or others[0]

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(*arguments)
        except RuntimeError as error:
            raise LearnerLostError(
                f"another of the {self.size} learners ended, was killed or cannot be reached"
            ) from error


_present = Learners()


def present() -> Learners:
    """Return the learners of this process; those of :func:`join` inside it, else a single one."""
    return _present


def total(value: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor over all present learners; alone the tensor itself."""
    return _present.total(value)


@contextmanager
def join() -> Iterator[Learners]:
    """Train together with the other processes of ``torchrun`` in this block; without torchrun, alone."""
    if process_count() == 1 or _present.size > 1:
        yield _present
        return
    # torchrun ends the others as soon as one has ended. They find out by themselves, and report it first.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    # Its functions have the group as default argument. Imported later they would keep the group and its threads alive
    # after destroy_process_group, and a thread that outlives the interpreter aborts the process.
    importlib.import_module("torch.distributed.nn.functional")
    torch.distributed.init_process_group("gloo", timeout=TIMEOUT)
    with _presence(Learners(process_rank(), process_count())):
        yield _present
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    signal.signal(signal.SIGTERM, before)


@contextmanager
def _presence(learners: Learners) -> Iterator[None]:
    global _present
    before, _present = _present, learners
    try:
        yield
    finally:
        _present = before


def _portable(error: BaseException) -> BaseException:
    """Return an error that can be sent to other processes."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
