"""Hybrid: a residual stack whose layers are cores, each with its own state.

    x = W_in input                          (omitted where the widths agree)
    x = x + core_l(norm_l(x))               l = 1 .. L, with the state of layer l
    y = norm(x)

A recurrent layer carries a summary of everything, and a layer with a window reads the last steps exactly.

Papers: De et al. (2024), Griffin: two layers with a linear recurrence, then one with local attention. Lieber et al.
(2024), Jamba: seven layers of Mamba to one of attention. Yang et al. (2024), Gated Delta Networks, section 3.4, for the
layers of the default.

Differs: a layer is a whole core of one layer: it has its own feed-forward and, where the core has one, its own last
norm; the papers interleave parts of layers. The sum around each core is ours.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.hybrid.config import HybridConfig
from recollect.layers.feedforward import input_projection

EPSILON = 1e-6
"""Added to squares in norms."""


class HybridState(NamedTuple):
    """The states of all layers, side by side."""

    layers: tuple[Any, ...]
    """The state of each layer's core, from the first layer to the last."""


class Hybrid(MemoryCore[HybridState]):
    """Layers of several cores in one residual stack; equations are at the top of this module.

    Raises:
        ValueError: a layer reads or writes something else than one vector of width ``dim`` a step.
    """

    stream_type = companion("recollect.cores.hybrid.stream:HybridStream")
    reference_unroll = companion("recollect.cores.hybrid.reference:reference_unroll")

    layers: Sequence[MemoryCore[Any]]

    def __init__(self, config: HybridConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        cores = [part.build(config.dim) for part in config.parts]
        for index, (key, core) in enumerate(zip(config.layers, cores, strict=True)):
            if (core.input_shape, core.output_shape) != ((config.dim,), (config.dim,)):
                raise ValueError(
                    f"layers[{index}]={key!r}: it maps {core.input_shape} to {core.output_shape}, a layer maps a "
                    f"vector of width dim={config.dim} to another: name a core that does"
                )
        self.discrete = any(core.discrete for core in cores)
        self.stops_gradient = "; ".join(dict.fromkeys(core.stops_gradient for core in cores if core.stops_gradient))
        self.runs_in_float16 = all(core.runs_in_float16 for core in cores)
        self.exemptions = {line: reason for core in cores for line, reason in core.exemptions.items()}
        self.project = input_projection(input_dim, config.dim)
        self.norms = nn.ModuleList(nn.RMSNorm(config.dim, EPSILON) for _ in cores)
        self.layers = nn.ModuleList(cores)  # type: ignore[assignment]
        self.norm = nn.RMSNorm(config.dim, EPSILON)

    def initial_state(self, batch_size: int) -> HybridState:
        """Return the initial states of the layers."""
        return HybridState(tuple(layer.initial_state(batch_size) for layer in self.layers))

    def run_layers(self, inputs: Tensor, layers: Iterable[Callable[[Tensor], Tensor]]) -> Tensor:
        """Return the outputs for inputs ``[..., i]``, with a function ``[..., d] -> [..., d]`` for each layer."""
        x = self.project(inputs).to(self.norm.weight.dtype)  # the residual stream keeps its precision under autocast
        for norm, layer in zip(self.norms, layers, strict=True):
            x = x + layer(norm(x))
        return self.norm(x)

    def unroll(self, inputs: Tensor, state: HybridState, is_first: Tensor) -> tuple[Tensor, HybridState]:
        """Compute all steps at once, layer by layer."""
        return self.unroll_layers([layer.unroll for layer in self.layers], inputs, state, is_first)

    def unroll_layers(
        self, unrolls: Sequence[Callable[..., Any]], inputs: Tensor, state: HybridState, is_first: Tensor
    ) -> tuple[Tensor, HybridState]:
        """Compute :meth:`unroll` with a function ``(x, state, is_first) -> (y, state)`` for each layer."""
        states: list[Any] = []

        def bind(unroll: Callable[..., Any], kept: Any) -> Callable[[Tensor], Tensor]:
            def layer(x: Tensor) -> Tensor:
                y, new = unroll(x, kept, is_first)
                states.append(new)
                return y

            return layer

        outputs = self.run_layers(inputs, map(bind, unrolls, state.layers))
        return outputs, HybridState(tuple(states))

    def largest_counters(self) -> dict[str, int]:
        """Return the counters of the layers."""
        return self._of_layers(lambda layer: layer.largest_counters())

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the steps that the layers with attention see."""
        return self._of_layers(lambda layer: layer.recalled_steps(clock))

    def read_steps(self, clock: Tensor) -> Places:
        """Return the steps that the layers with attention read, single ones inside chunks."""
        return self._of_layers(lambda layer: layer.read_steps(clock))

    def attended_steps(self, clock: Tensor) -> Places:
        """Return the steps of all attention of the layers, for pictures."""
        return self._of_layers(lambda layer: layer.attended_steps(clock))

    def _of_layers(self, ask: Callable[[MemoryCore[Any]], dict[str, Any]]) -> dict[str, Any]:
        return {
            f"layers.{index}.{name}": value
            for index, layer in enumerate(self.layers)
            for name, value in ask(layer).items()
        }

    def flops_per_step(self) -> int:
        """Return the sum over the layers, and ``2 i d`` for a projected input."""
        own = 2 * self.project.weight.numel() if isinstance(self.project, nn.Linear) else 0
        return own + sum(layer.flops_per_step() for layer in self.layers)
