"""The module under test, and the material it is tested with: inputs, resets and memories that are in use."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recollect.certify.compare import Comparison
from recollect.state import clone, leaves, map_state

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-9}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes and limits of a certificate."""

    steps: int
    """Length of the sequences; should cross every window and chunk of the core several times."""
    batch: int
    """Rows; at least 3."""
    seed: int
    """Of inputs and resets."""
    backend: str
    """Of ``torch.compile``."""
    long_steps: int
    """Length of the long run."""
    long_seconds: float
    """Time after which the long run stops early."""


class Subject:
    """A private copy of a core, in evaluation mode, with tools to exercise it.

    Parameters that are exactly zero (fresh biases, gates and learned memories often are) get small random
    values in the copy: a path that is multiplied by zero could hide any mistake.

    Args:
        core: follows the contract of :mod:`recollect.cores.contract`, by inheritance or only by its methods.
        input_shape: shape of one step's input.
        rebuild: makes another module of the same config with other weights.
        options: sizes and limits.
    """

    def __init__(
        self,
        core: nn.Module,
        *,
        input_shape: tuple[int, ...],
        rebuild: Callable[[], nn.Module] | None,
        options: Options,
    ) -> None:
        self.discrete = bool(getattr(core, "discrete", False))
        self.single: Any = copy.deepcopy(core).cpu().float().eval()  # what autocast, compile and export are tried on
        fill_zeros(self.single, options.seed)
        self.core: Any = copy.deepcopy(self.single).double() if self.discrete else self.single
        self.dtype = torch.float64 if self.discrete else torch.float32
        self.input_shape = input_shape
        self.rebuild = rebuild
        self.options = options
        self.steps = options.steps
        self.batch = options.batch
        self.seed = options.seed

    def doubled(self) -> "Subject":
        """The same subject in float64."""
        twin = copy.copy(self)
        twin.core = copy.deepcopy(self.single).double()
        twin.dtype = torch.float64
        return twin

    def comparison(self) -> Comparison:
        """A fresh comparison at the tolerance of the dtype."""
        return Comparison(TOLERANCES[self.dtype])

    def generator(self, salt: int) -> torch.Generator:
        """Random numbers that depend on the seed and on ``salt`` alone."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + salt)

    def inputs(self, salt: int, *, batch: int | None = None, steps: int | None = None) -> Tensor:
        """Normal inputs ``[b, t, *input_shape]``, always the same for the same ``salt``."""
        shape = (batch or self.batch, steps or self.steps, *self.input_shape)
        return torch.randn(shape, generator=self.generator(salt), dtype=torch.float64).to(self.dtype)

    def never(self, *, batch: int | None = None, steps: int | None = None) -> Tensor:
        """No reset at all ``[b, t]``."""
        return torch.zeros(batch or self.batch, steps or self.steps, dtype=torch.bool)

    def resets(self, salt: int, *, steps: int | None = None) -> Tensor:
        """Resets that try every place.

        Row 0 has none; row 1 at the first steps, twice in a row and at the very end; the others at random, rarely to
        often.
        """
        is_first = self.never(steps=steps)
        t = is_first.shape[1]
        draw = torch.rand(is_first.shape, generator=self.generator(salt))
        rates = torch.tensor([0.0, 0.06, *[0.03 + 0.3 * i / self.batch for i in range(self.batch - 2)]])
        is_first = draw < rates[:, None]
        is_first[1, [0, min(1, t - 1), t // 2, min(t // 2 + 1, t - 1), t - 1]] = True
        return is_first

    def __call__(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        """The core on copies, so that a core that writes into what it gets spoils nothing but its own line."""
        return self.core(inputs.clone(), clone(state), is_first.clone())

    def used_state(self, salt: int = 0, *, steps: int | None = None) -> Any:
        """A memory in the middle of life: windows are full, rows stand at different places of their episodes."""
        t = steps or self.steps
        is_first = self.never(steps=t)
        for row in range(1, self.batch):
            is_first[row, max(0, t - 1 - 3 * row)] = True
        with torch.no_grad():
            _, state = self(self.inputs(900 + salt, steps=t), self.core.initial_state(self.batch), is_first)
        return clone(state)

    def fresh_state(self, batch: int | None = None) -> Any:
        """``initial_state``, without gradients."""
        with torch.no_grad():
            return clone(self.core.initial_state(batch or self.batch))

    @contextmanager
    def training(self, seed: int = 0) -> Iterator[None]:
        """Training mode with reproducible dropout, and buffers put back afterwards."""
        kept = {name: buffer.clone() for name, buffer in self.core.named_buffers()}
        self.core.train()
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                yield
        finally:
            self.core.eval()
            with torch.no_grad():
                for name, buffer in self.core.named_buffers():
                    buffer.copy_(kept[name])

    def weights(self) -> dict[str, Tensor]:
        """Parameters that learn, by name."""
        return {name: p for name, p in self.core.named_parameters() if p.requires_grad}


def fill_zeros(module: nn.Module, seed: int) -> None:
    """Replace exact zeros among the parameters by numbers of size 0.1, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.1
            parameter.copy_(torch.where(parameter == 0, noise.to(parameter), parameter))


def gradient_state(state: Any) -> Any:
    """The same numbers as leaves of a new graph."""

    def leaf_of_graph(leaf: Tensor) -> Tensor:
        leaf = leaf.detach().clone()
        return leaf.requires_grad_() if leaf.is_floating_point() else leaf

    return map_state(leaf_of_graph, state)


def float_leaves(state: Any) -> list[Tensor]:
    """Leaves that can carry a gradient."""
    return [leaf for leaf in leaves(state) if leaf.is_floating_point()]


def probe(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A random weighted sum: its gradient is the gradient of everything in ``tensor`` at once.

    Entries that are not finite are left out by selection, so they cannot spoil the sum itself.
    """
    weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)
    return (tensor * weights).sum()


def gradients(loss: Tensor, targets: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """Gradient of ``loss`` for each target; None where there is no path at all."""
    if not loss.requires_grad:
        return dict.fromkeys(targets)
    found = torch.autograd.grad(loss, list(targets.values()), allow_unused=True, retain_graph=True)
    return dict(zip(targets, found, strict=True))
