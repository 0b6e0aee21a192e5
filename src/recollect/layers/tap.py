"""Tap: an identity through which attention weights pass, where a recorder may listen and an experiment may edit.

Attention hands its weights to a Tap only when somebody listens; otherwise the fused kernel
runs and no weights exist. Both paths give the same numbers.

Hiding a key from attention is an edit too: softmax without a key is the same weights, with a zero there, divided by
their sum (:func:`without`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Listener = Callable[[str, Tensor], None]
Editor = Callable[[Tensor], Tensor]


class Tap(nn.Module):
    """A named point of observation.

    Args:
        axes: what the axes of the tensor mean, for example ``"b h t s"``.
    """

    def __init__(self, axes: str) -> None:
        super().__init__()
        self.axes = axes
        self._listeners: list[Callable[[Tensor], None]] = []
        self._editors: list[Editor] = []

    @property
    def listening(self) -> bool:
        """Whether anybody wants the tensor (if not, the caller need not compute it)."""
        return bool(self._listeners or self._editors)

    @property
    def editing(self) -> bool:
        """Whether anybody changes the tensor."""
        return bool(self._editors)

    def forward(self, tensor: Tensor) -> Tensor:
        """Show ``tensor`` to the listeners and return it unchanged."""
        for listener in self._listeners:
            listener(tensor)
        return tensor

    def edit(self, tensor: Tensor) -> Tensor:
        """What :func:`editing` makes of the tensor, before it is shown and used; without an edit the tensor itself."""
        for editor in self._editors:
            tensor = editor(tensor)
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


@contextmanager
def editing(taps: Mapping[str, Tap], editors: Mapping[str, Editor]) -> Iterator[None]:
    """Within this context each named Tap hands its caller what an editor makes of the tensor.

    Calls of the windowed cores obey (``causal-transformer``, ``transformer-xl``, ``hcam``'s windows and the
    ``long-short-transformer``); streams and the other Taps do not, and a long call edits block by block.

    Args:
        taps: by name.
        editors: for some of them: a function of the tensor, with the axes that the Tap names.
    """
    for name, editor in editors.items():
        taps[name]._editors.append(editor)
    try:
        yield
    finally:
        for name, editor in editors.items():
            taps[name]._editors.remove(editor)


def times_relevance(weights: Tensor, relevance: Tensor) -> Tensor:
    """Weights of the steps inside chunks times the relevance of their chunks, as two Taps of a layer hear them.

    Args:
        weights: ``[b, h, t, n, c]``.
        relevance: ``[b, t, n]`` of all heads together, or ``[b, h, t, n]`` of each.
    """
    by_head = relevance if relevance.ndim == weights.ndim - 1 else relevance.unsqueeze(1)
    return weights * by_head.unsqueeze(-1)


def without(weights: Tensor, hidden: Tensor) -> Tensor:
    """Attention weights as if some keys were not there; zeros where no other key has any weight.

    Args:
        weights: ``[..., s]``, from a softmax.
        hidden: bool, broadcastable to ``weights``.
    """
    kept = weights.masked_fill(hidden, 0.0)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)
