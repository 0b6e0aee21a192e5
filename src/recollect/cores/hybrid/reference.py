"""The hybrid through the plain forms of its layers; the equations are in ``core.py``."""

from torch import Tensor

from recollect.cores.hybrid.core import Hybrid, HybridState


def reference_unroll(core: Hybrid, inputs: Tensor, state: HybridState, is_first: Tensor) -> tuple[Tensor, HybridState]:
    """Compute ``core(inputs, state, is_first)``; every layer is a loop over rows and steps."""
    plain = [layer.reference_unroll for layer in core.layers]
    return core.unroll_layers(plain, inputs, state, is_first)  # type: ignore[arg-type]
