"""The module under test, and the material it is tested with: inputs, resets and memories that are in use."""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recollect.certify.compare import Comparison, NotApplicable, Violation, continuous
from recollect.certify.snapshot import settings
from recollect.state import clone, leaves, map_state

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-9}

Reference = Callable[[Any, Tensor, Any, Tensor], tuple[Tensor, Any]]


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
    quick: bool = False
    """Fewer repetitions and circumstances: for test suites that certify hundreds of configs."""
    reference: Reference | None = None
    """The plain form, where the core does not name one."""


Check = Callable[["Subject"], str]

VARIANTS: dict[str, dict[str, Any]] = {
    "in training mode with gradients": {"is_training": True, "grad": True},
    "in evaluation mode with gradients": {"grad": True},
    "one row, nothing contiguous": {"batch": 1, "strided": True},
    "nine rows": {"batch": 9},
}
"""The circumstances in which a promise is tried again. A core may have another path in each of them."""

QUICK_VARIANTS: dict[str, dict[str, Any]] = {  # one of them or none, by the seed
    "in training mode with gradients, five rows": {"is_training": True, "grad": True, "batch": 5},
    "with gradients, one row, nothing contiguous": {"grad": True, "batch": 1, "strided": True},
}


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
        self.settings = settings()
        self.pristine: Any = copy.deepcopy(core).cpu().float().eval()  # never called here: it has fused nothing yet
        fill_zeros(self.pristine, options.seed)
        self.single: Any = copy.deepcopy(self.pristine)  # what autocast, compile and export are tried on
        self.core: Any = copy.deepcopy(self.single).double() if self.discrete else self.single
        self.dtype = torch.float64 if self.discrete else torch.float32
        self.input_shape = input_shape
        self.rebuild = rebuild
        self.options = options
        self.steps = options.steps
        self.batch = options.batch
        self.seed = options.seed
        self.is_training, self.grad, self.strided, self.brief = False, False, False, False
        self.found: dict[Any, Any] = {}  # measurements that several lines share

    def doubled(self) -> "Subject":
        """The same subject in float64."""
        if self.dtype == torch.float64:
            return self
        twin = copy.copy(self)
        twin.core = copy.deepcopy(self.single).double()
        twin.dtype = torch.float64
        twin.found = {}
        return twin

    def variants(self) -> Iterator[tuple[str, "Subject"]]:
        """The same subject in other circumstances, each with its description; short versions of a check suffice."""
        if self.brief:
            return
        chosen = list(VARIANTS.items())
        if self.options.quick:
            chosen = list(QUICK_VARIANTS.items())[self.turn - 1 : self.turn] if self.turn else []
        for label, changes in chosen:
            if changes.get("is_training") and self.noisy:
                continue
            yield label, self.variant(**changes)

    @property
    def turn(self) -> int:
        """In a quick certificate: which circumstances this seed tries, 0 for those of the subject itself."""
        return self.seed % (len(QUICK_VARIANTS) + 1)

    def variant(self, **changes: Any) -> "Subject":
        """The same subject with other attributes; it shares the module."""
        twin = copy.copy(self)
        twin.brief = True
        for name, value in changes.items():
            setattr(twin, name, value)
        return twin

    @property
    def noisy(self) -> bool:
        """Whether training mode draws random numbers even without dropout, so that calls cannot be compared."""
        if "noisy" not in self.found:
            twin = self.variant(is_training=True)
            inputs, state, first = twin.inputs(98), twin.fresh_state(), twin.never()
            outs = []
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                for seed in (1, 2):
                    torch.manual_seed(seed)
                    out, end = twin(inputs, state, first)
                    outs.append([out, *leaves(end)])  # noise may be on what is remembered and shown much later
            self.found["noisy"] = not all(torch.equal(*pair) for pair in zip(*outs, strict=True))
        return self.found["noisy"]

    def cast(self, module: nn.Module) -> Any:
        """A module in the subject's precision; complex parameters stay complex."""
        return module.double() if self.dtype == torch.float64 else module.float()

    def comparison(self) -> Comparison:
        """A fresh comparison at the tolerance of the dtype."""
        return Comparison(self.tolerance)

    @property
    def tolerance(self) -> float:
        """Of the dtype in which the core really computes: some leaves stay narrow in a core that is made double."""
        if "tolerance" not in self.found:
            kept = [p.dtype for p in self.core.parameters()] + [b.dtype for b in self.core.buffers()]
            with torch.no_grad():
                kept += [leaf.dtype for leaf in leaves(self.core.initial_state(1))]
            narrow = torch.float32 in kept or torch.complex64 in kept
            self.found["tolerance"] = TOLERANCES[torch.float32 if narrow else self.dtype]
        return self.found["tolerance"]

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
        often. A single row has some at random, and one at the end.
        """
        is_first = self.never(steps=steps)
        t = is_first.shape[1]
        draw = torch.rand(is_first.shape, generator=self.generator(salt))
        if self.batch == 1:
            is_first = draw < 0.08
            is_first[0, [t // 2, t - 1]] = True
            return is_first
        rates = torch.tensor([0.0, 0.06, *[0.03 + 0.3 * i / self.batch for i in range(self.batch - 2)]])
        is_first = draw < rates[:, None]
        is_first[1, [0, min(1, t - 1), t // 2, min(t // 2 + 1, t - 1), t - 1]] = True
        return is_first

    def __call__(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        """The core on copies, so that a core that writes into what it gets spoils nothing but its own line.

        With ``grad`` everything that can asks for gradients and the state that comes back is part of the graph.
        """
        inputs, state, is_first = inputs.clone(), clone(state), is_first.clone()
        if self.strided:
            inputs, state, is_first = stride(inputs), map_state(stride, state), stride(is_first)
        with self.mode():
            if self.grad:
                inputs, state = ask_gradients(inputs), map_state(ask_gradients, state)
            return self.core(inputs, state, is_first)

    @contextmanager
    def mode(self) -> Iterator[None]:
        """The circumstances of this variant: mode of the module, gradients on; no dropout, and buffers put back."""
        if not self.is_training:
            if self.core.training:
                self.core.eval()
            with torch.enable_grad() if self.grad else nullcontext():
                yield
            return
        kept = {name: buffer.clone() for name, buffer in self.core.named_buffers()}
        self.core.train()
        try:
            with NoDropout(self.core), torch.enable_grad() if self.grad else nullcontext():
                yield
        finally:
            self.core.eval()
            with torch.no_grad():
                for name, buffer in self.core.named_buffers():
                    if name in kept and not torch.equal(buffer, kept[name]):  # a copy would upset the graph
                        buffer.copy_(kept[name])

    @property
    def streams(self) -> bool:
        """Whether the core has a method ``stream``; a layer of that name is something else."""
        return callable(getattr(type(self.core), "stream", None))

    def live(self, batch: int | None = None) -> Any:
        """A stream of the core."""
        if not self.streams:
            raise NotApplicable("the module has no stream method")
        self.core.eval()
        return self.core.stream(batch or self.batch)

    def used_state(self, salt: int = 0, *, steps: int | None = None) -> Any:
        """A memory in the middle of life: windows are full, rows stand at different places of their episodes."""
        t = steps or self.steps
        is_first = self.never(steps=t)
        for row in range(1, self.batch):
            is_first[row, max(0, t - 1 - 3 * row)] = True
        with torch.no_grad():
            inputs, state = self.inputs(900 + salt, steps=t), clone(self.core.initial_state(self.batch))
            _, state = self.core(inputs, state, is_first)
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
            if not continuous(parameter):
                continue
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.1
            parameter.copy_(torch.where(parameter == 0, noise.to(parameter), parameter))


def everywhere(check: Check) -> Check:
    """A check that is made as it stands, and then in brief in all other circumstances (:data:`VARIANTS`)."""

    @functools.wraps(check)
    def run(subject: Subject) -> str:
        quick, tried = subject.options.quick and not subject.brief, []
        variants = list(subject.variants())
        # A quick certificate makes the check once, in the circumstances whose turn it is.
        detail = "" if quick and variants else check(subject)
        for label, variant in variants:
            try:
                said = check(variant)
            except Violation as found:
                raise found.during(label) from None
            tried.append(label)
            detail = detail or f"{said}, {label}"
        return f"{detail}; {', '.join(tried)}" if tried and not quick else detail

    return run


class NoDropout(TorchFunctionMode):
    """Within, dropout passes everything: training mode becomes comparable.

    Args:
        module: may hold ``nn.LSTM`` or ``nn.GRU``, which drop out by an attribute of their own.
    """

    ALL = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout)

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.kept = [(child, child.dropout) for child in module.modules() if isinstance(child, nn.RNNBase)]

    def __enter__(self) -> "NoDropout":
        for child, _ in self.kept:
            child.dropout = 0.0
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for child, dropout in self.kept:
            child.dropout = dropout

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.ALL:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            if "dropout_p" in kwargs:
                kwargs = {**kwargs, "dropout_p": 0.0}
            elif len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
        return func(*args, **kwargs)


def stride(tensor: Tensor) -> Tensor:
    """The same numbers, not contiguous: time first in memory and every second element of a larger buffer."""
    wide = torch.stack((tensor, torch.zeros_like(tensor)), -1).transpose(0, 1).contiguous()
    return wide.transpose(0, 1)[..., 0]


def ask_gradients(tensor: Tensor) -> Tensor:
    """A tensor that requires gradients, if it can."""
    if tensor.requires_grad or not continuous(tensor):
        return tensor
    return tensor.requires_grad_() if tensor.is_leaf else tensor


def gradient_state(state: Any) -> Any:
    """The same numbers as leaves of a new graph."""

    def leaf_of_graph(leaf: Tensor) -> Tensor:
        leaf = leaf.detach().clone()
        return leaf.requires_grad_() if continuous(leaf) else leaf

    return map_state(leaf_of_graph, state)


def float_leaves(state: Any) -> list[Tensor]:
    """Leaves that can carry a gradient."""
    return [leaf for leaf in leaves(state) if continuous(leaf)]


def probe(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A random weighted sum: its gradient is the gradient of everything in ``tensor`` at once.

    Entries that are not finite are left out by selection, so they cannot spoil the sum itself.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)
    return (tensor * weights).sum()


def gradients(loss: Tensor, targets: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """Gradient of ``loss`` for each target; None where there is no path at all."""
    if not loss.requires_grad or not targets:
        return dict.fromkeys(targets)
    found = torch.autograd.grad(loss, list(targets.values()), allow_unused=True, retain_graph=True)
    return dict(zip(targets, found, strict=True))
