"""Tap: an identity through which attention weights pass, where a recorder may listen.

Attention hands its weights to a Tap only when somebody listens; otherwise the fused kernel
runs and no weights exist. Both paths give the same numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

Listener = Callable[[str, Tensor], None]


class Tap(nn.Module):
    """A named point of observation.

    Args:
        axes: what the axes of the tensor mean, for example ``"b h t s"``.
    """

    def __init__(self, axes: str) -> None:
        super().__init__()
        self.axes = axes
        self._listeners: list[Callable[[Tensor], None]] = []

    @property
    def listening(self) -> bool:
        """Whether anybody wants the tensor (if not, the caller need not compute it)."""
        return bool(self._listeners)

    def forward(self, tensor: Tensor) -> Tensor:
        """Show ``tensor`` to the listeners and return it unchanged."""
        for listener in self._listeners:
            listener(tensor)
        return tensor

    def extra_repr(self) -> str:
        """Shown when the module is printed."""
        return self.axes


@contextmanager
def listen(module: nn.Module, listener: Listener, *, gradients: bool = False) -> Iterator[list[str]]:
    """Within this context ``listener(name, tensor)`` hears every Tap below ``module``.

    With ``gradients`` it hears tensors that can be differentiated, for a loss on attention; else constants.

    Yields the names of the Taps. Raises ``ValueError`` when there is none. Compiled modules
    hear nothing: pass the module that was given to ``torch.compile``.
    """
    taps = {name: child for name, child in module.named_modules() if isinstance(child, Tap)}
    if not taps:
        raise ValueError(f"{type(module).__name__} has no Tap: there is nothing to record in it")

    def hear(name: str) -> Callable[[Tensor], None]:
        return lambda tensor: listener(name, tensor if gradients else tensor.detach())

    hooks = {name: hear(name) for name in taps}
    for name, tap in taps.items():
        tap._listeners.append(hooks[name])
    try:
        yield list(taps)
    finally:
        for name, tap in taps.items():
            tap._listeners.remove(hooks[name])
