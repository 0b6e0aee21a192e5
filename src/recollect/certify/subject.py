"""The module under test, and its test data: inputs, resets and states in use."""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recollect.certify.comparison import Comparison, NotApplicable, Result, Violation, is_continuous
from recollect.certify.snapshot import settings
from recollect.state import clone, leaves, map_state, named_leaves

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-9}

Reference = Callable[[Any, Tensor, Any, Tensor], Result]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes and limits of a certificate."""

    steps: int  # length of the sequences; should cross every window and chunk of the core several times
    batch: int  # number of rows; at least 3
    seed: int  # seed of inputs and resets
    backend: str  # backend of `torch.compile`
    long_steps: int  # length of the long run
    long_seconds: float  # time limit of the long run
    size_seed: int = 0  # seed of the sizes that are drawn
    quick: bool = False  # fewer repetitions and variants, for test suites that certify hundreds of configs
    thorough: bool = False  # also what takes long and has another proof: the step in onnxruntime
    reference: Reference | None = None  # reference implementation, where the core does not name one


Check = Callable[["Subject"], str]

VARIANTS: dict[str, dict[str, Any]] = {
    "in training mode with gradients": {"is_training": True, "grad": True},
    "in evaluation mode with gradients": {"grad": True},
    "one row, nothing contiguous": {"batch": 1, "strided": True},
    "nine rows": {"batch": 9},
}
"""Variants in which a promise is tested again, because a core may have another code path in each."""

QUICK_VARIANTS: dict[str, dict[str, Any]] = {  # one of them or none, depending on the seed
    "in training mode with gradients, five rows": {"is_training": True, "grad": True, "batch": 5},
    "with gradients, one row, nothing contiguous": {"grad": True, "batch": 1, "strided": True},
}


class Subject:
    """A private copy of a core, in evaluation mode, with methods to run it.

    Parameters that are exactly zero (often initial biases, gates and learned memories) get small random values in the
    copy, because a path that is multiplied by zero could hide any mistake.

    Args:
        core: follows the contract of :mod:`recollect.cores.contract`, by inheritance or by its methods alone.
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
        self.pristine: Any = copy.deepcopy(core).cpu().float().eval()  # never called here, so that nothing is fused yet
        fill_zeros(self.pristine, options.seed)
        self.single: Any = copy.deepcopy(self.pristine)  # in float32, for autocast, compile and export
        self.core: Any = to_float64(copy.deepcopy(self.single)) if self.discrete else self.single
        self.dtype = torch.float64 if self.discrete else torch.float32
        self.input_shape = input_shape
        self.rebuild = rebuild
        self.options = options
        self.steps = options.steps
        self.batch = options.batch
        self.seed = options.seed
        self.is_training, self.grad, self.strided, self.brief = False, False, False, False
        self.cache: dict[str, Any] = {}  # measurements that several lines share
        self.dropouts: list[Any] = []  # calls of dropout that were seen in training mode
        self.used: WeakKeyDictionary[nn.Module, dict[Any, Any]] = WeakKeyDictionary()  # states of used_state

    def in_float64(self) -> "Subject":
        """Return the same subject in float64."""
        if self.dtype == torch.float64:
            return self
        twin = copy.copy(self)
        twin.core = to_float64(copy.deepcopy(self.single))
        twin.dtype = torch.float64
        twin.cache = {name: self.cache[name] for name in ("is_noisy", "has_dropout") if name in self.cache}
        return twin

    def variants(self) -> Iterator[tuple[str, "Subject"]]:
        """Yield variants of the subject with their descriptions, for short versions of a check."""
        if self.brief:
            return
        chosen = list(VARIANTS.items())
        if self.options.quick:
            chosen = list(QUICK_VARIANTS.items())[self.turn - 1 : self.turn] if self.turn else []
        for label, changes in chosen:
            if not (changes.get("is_training") and self.is_noisy):
                yield label, self.variant(**changes)

    @property
    def turn(self) -> int:
        """Number of the variant that a quick certificate tests at this seed; 0: the subject itself."""
        return self.seed % (len(QUICK_VARIANTS) + 1)

    def variant(self, **changes: Any) -> "Subject":
        """Return the same subject with other attributes; it shares the module."""
        twin = copy.copy(self)
        twin.brief = True
        for name, value in changes.items():
            setattr(twin, name, value)
        return twin

    @property
    def is_noisy(self) -> bool:
        """Whether training mode draws random numbers even without dropout, so that calls cannot be compared."""
        if "is_noisy" not in self.cache:
            twin = self.variant(is_training=True)
            call = twin.inputs(98), twin.fresh_state(), twin.no_resets()
            outs = []
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                for seed in (1, 2):
                    torch.manual_seed(seed)
                    out, end = twin(*call)
                    outs.append([out, *leaves(end)])  # noise in the state may appear in outputs much later
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                twin(*call)  # dropout that is applied only with gradients
            self.cache["has_dropout"] = bool(self.dropouts) or _declares_dropout(self.core)
            self.cache["is_noisy"] = not all(torch.equal(*pair) for pair in zip(*outs, strict=True))
        return self.cache["is_noisy"]

    def cast(self, module: nn.Module) -> Any:
        """Convert a module to the subject's precision; complex parameters stay complex."""
        return to_float64(module) if self.dtype == torch.float64 else module.float()

    def comparison(self) -> Comparison:
        """Return a new comparison at the tolerance of the dtype."""
        return Comparison(self.tolerance)

    @property
    def tolerance(self) -> float:
        """Relative tolerance of the dtype in which the core computes; ``double()`` leaves some tensors in float32."""
        if "tolerance" not in self.cache:
            kept = [p.dtype for p in self.core.parameters()] + [b.dtype for b in self.core.buffers()]
            with torch.no_grad():
                kept += [leaf.dtype for leaf in leaves(self.core.initial_state(1))]
            narrow = torch.float32 in kept or torch.complex64 in kept
            self.cache["tolerance"] = TOLERANCES[torch.float32 if narrow else self.dtype]
        return self.cache["tolerance"]

    def generator(self, salt: int) -> torch.Generator:
        """Return a generator that depends on the seed and on ``salt`` alone."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + salt)

    def inputs(self, salt: int, *, batch: int | None = None, steps: int | None = None) -> Tensor:
        """Return normal inputs ``[b, t, *input_shape]``, the same for the same ``salt``."""
        shape = (batch or self.batch, steps or self.steps, *self.input_shape)
        return torch.randn(shape, generator=self.generator(salt), dtype=torch.float64).to(self.dtype)

    def no_resets(self, *, batch: int | None = None, steps: int | None = None) -> Tensor:
        """Return ``is_first`` ``[b, t]`` without a reset."""
        return torch.zeros(batch or self.batch, steps or self.steps, dtype=torch.bool)

    def resets(self, salt: int, *, steps: int | None = None) -> Tensor:
        """Return ``is_first`` with resets at all kinds of places.

        Row 0 has none; row 1 has resets at the first steps, twice in a row and at the last step; the others at random,
        from rarely to often. A single row has some at random, and one at the end.
        """
        is_first = self.no_resets(steps=steps)
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
        """Call the core with copies, so that an in-place change of its arguments fails only the line ``purity``.

        With ``grad`` all arguments that can require gradients, and the returned state is part of the graph.
        """
        inputs, state, is_first = inputs.clone(), clone(state), is_first.clone()
        if self.strided:
            inputs, state, is_first = make_strided(inputs), map_state(make_strided, state), make_strided(is_first)
        with self.mode():
            if self.grad:
                inputs, state = require_gradients(inputs), map_state(require_gradients, state)
            return self.core(inputs, state, is_first)

    @contextmanager
    def mode(self) -> Iterator[None]:
        """Set training or evaluation mode (without dropout) and gradients of the variant."""
        gradients_on = torch.enable_grad() if self.grad else nullcontext()
        if self.is_training:
            # Without dropout the context would only cost time: it sees every operation.
            has_dropout = self.cache.get("has_dropout", True)
            with self._train(), NoDropout(self.core, self.dropouts) if has_dropout else nullcontext(), gradients_on:
                yield
            return
        if self.core.training:
            self.core.eval()
        with gradients_on:
            yield

    @contextmanager
    def training(self, seed: int = 0) -> Iterator[None]:
        """Set training mode with reproducible dropout."""
        with self._train(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield

    @contextmanager
    def _train(self) -> Iterator[None]:
        """Set training mode, and restore evaluation mode and buffers afterwards."""
        # Without sparse ones, which torch does not compare.
        buffers = {name: buffer for name, buffer in self.core.named_buffers() if buffer.layout == torch.strided}
        kept = {name: buffer.clone() for name, buffer in buffers.items()}
        self.core.train()
        try:
            yield
        finally:
            self.core.eval()
            with torch.no_grad():
                for name, buffer in self.core.named_buffers():
                    if name in kept and not torch.equal(buffer, kept[name]):  # a needless copy would break the graph
                        buffer.copy_(kept[name])

    @property
    def has_stream(self) -> bool:
        """Whether the core has a method ``stream`` (a layer of that name does not count)."""
        return callable(getattr(type(self.core), "stream", None))

    def new_stream(self, batch: int | None = None) -> Any:
        """Return a stream of the core."""
        if not self.has_stream:
            raise NotApplicable("the module has no stream method")
        self.core.eval()
        return self.core.stream(batch or self.batch)

    def used_state(self, salt: int = 0, *, steps: int | None = None) -> Any:
        """Return a state in use: windows are full, and rows are at different steps of their episodes."""
        t = steps or self.steps
        known = self.used.setdefault(self.core, {})
        key = (salt, t, self.batch, self.dtype, self.core.training)
        if key not in known:
            is_first = self.no_resets(steps=t)
            for row in range(1, self.batch):
                is_first[row, max(0, t - 1 - 3 * row)] = True
            with torch.no_grad():
                inputs, state = self.inputs(900 + salt, steps=t), clone(self.core.initial_state(self.batch))
                known[key] = clone(self.core(inputs, state, is_first)[1])
        return clone(known[key])

    def fresh_state(self, batch: int | None = None) -> Any:
        """Return ``initial_state`` without gradients."""
        with torch.no_grad():
            return clone(self.core.initial_state(batch or self.batch))

    def weights(self) -> dict[str, Tensor]:
        """Return the parameters that require gradients, by name."""
        return {name: p for name, p in self.core.named_parameters() if p.requires_grad}


def to_float64(module: nn.Module) -> nn.Module:
    """Convert a module to float64 in place, as the same function of its inputs.

    An ``nn.RMSNorm`` without ``eps`` takes the precision of its dtype, which would be another function.
    """
    for child in module.modules():
        if isinstance(child, nn.RMSNorm) and child.eps is None:
            child.eps = torch.finfo(torch.float32).eps
    return module.double()


def fill_zeros(module: nn.Module, seed: int) -> None:
    """Replace exact zeros among the parameters by random numbers of size 0.1, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if not is_continuous(parameter):
                continue
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.1
            parameter.copy_(torch.where(parameter == 0, noise.to(parameter), parameter))


def in_all_variants(check: Check) -> Check:
    """Decorate a check to run on the subject itself, and briefly in all its variants (:data:`VARIANTS`)."""

    @functools.wraps(check)
    def run(subject: Subject) -> str:
        variants = list(subject.variants())
        # A quick certificate runs the check once, in one of the variants.
        quick = subject.options.quick and not subject.brief
        detail = "" if quick and variants else check(subject)
        for label, variant in variants:
            try:
                result = check(variant)
            except Violation as found:
                raise found.during(label) from None
            detail = detail or f"{result}, {label}"
        return detail if quick or not variants else f"{detail}; {', '.join(label for label, _ in variants)}"

    return run


class NoDropout(TorchFunctionMode):
    """Context without dropout, so that calls in training mode can be compared.

    Args:
        module: its ``nn.LSTM`` and ``nn.GRU`` have a dropout attribute of their own, which is set to 0.
        seen: list that gets the functions with a rate above zero that were replaced.
    """

    ALL = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout)

    def __init__(self, module: nn.Module, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen
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
            if kwargs.get("p", args[1] if len(args) > 1 else 0.5):
                self.seen.append(func)
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            if kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0):
                self.seen.append(func)
            if "dropout_p" in kwargs:
                kwargs = {**kwargs, "dropout_p": 0.0}
            elif len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
        return func(*args, **kwargs)


def _declares_dropout(module: nn.Module) -> bool:
    """Whether a layer has a rate of dropout above zero, whether or not a call was seen to use it."""
    kinds = (nn.modules.dropout._DropoutNd, nn.RNNBase)
    rates = (
        child.dropout if isinstance(child, nn.RNNBase) else child.p
        for child in module.modules()
        if isinstance(child, kinds)
    )
    return any(rates)


def make_strided(tensor: Tensor) -> Tensor:
    """Return the same numbers in non-contiguous memory: time first, and every second element of a larger buffer."""
    wide = torch.stack((tensor, torch.zeros_like(tensor)), -1).transpose(0, 1).contiguous()
    return wide.transpose(0, 1)[..., 0]


def require_gradients(tensor: Tensor) -> Tensor:
    """Return a tensor that requires gradients, if it can."""
    if tensor.requires_grad or not is_continuous(tensor):
        return tensor
    return tensor.requires_grad_() if tensor.is_leaf else tensor


def gradient_state(state: Any) -> Any:
    """Return the same numbers as leaves of a new graph."""
    return map_state(lambda leaf: require_gradients(leaf.detach().clone()), state)


def gradient_targets(inputs: Tensor, state: Any) -> dict[str, Tensor]:
    """Return inputs and continuous leaves of a state by name, as targets of :func:`gradients`."""
    return {
        "inputs": inputs,
        **{f"state.{name}": leaf for name, leaf in named_leaves(state) if is_continuous(leaf)},
    }


def probe(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random weighted sum, whose gradient depends on the gradients of all entries."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)
    return (tensor * weights).sum()


def probe_all(outputs: Tensor, state: Any, generator: torch.Generator) -> Tensor:
    """Return :func:`probe` of outputs and all continuous leaves of a state."""
    loss = probe(outputs, generator)
    for leaf in leaves(state):
        if is_continuous(leaf):
            loss = loss + probe(leaf, generator)
    return loss


def gradients(loss: Tensor, targets: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """Return the gradient of ``loss`` for each target; None where there is no path."""
    if not loss.requires_grad or not targets:
        return dict.fromkeys(targets)
    found = torch.autograd.grad(loss, list(targets.values()), allow_unused=True, retain_graph=True)
    return dict(zip(targets, found, strict=True))
