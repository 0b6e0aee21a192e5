"""Taps: named points that attention weights pass, where they can be recorded, or edited in an experiment.

Attention computes explicit weights for a Tap only while it has listeners; otherwise the fused kernel runs and no
weights exist. Both paths give the same numbers.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Listener = Callable[[str, Tensor], None]
Editor = Callable[[Tensor], Tensor]


class Tap(nn.Module):
    """Identity that passes its tensor to listeners.

    Args:
        axes: meaning of the tensor's axes, for example ``"b h t s"``.
    """

    def __init__(self, axes: str) -> None:
        super().__init__()
        self.axes = axes
        self._listeners: list[Callable[[Tensor], None]] = []
        self._score_listeners: list[Callable[[Tensor], None]] = []
        self._editors: list[Editor] = []

    @property
    def has_listeners(self) -> bool:
        """Whether the tensor is recorded or edited; if not, the caller need not compute it."""
        return bool(self._listeners or self._score_listeners or self._editors)

    @property
    def has_editors(self) -> bool:
        """Whether the tensor is edited."""
        return bool(self._editors)

    def forward(self, tensor: Tensor, scores: Tensor | None = None) -> Tensor:
        """Pass ``tensor`` to the listeners and return it unchanged.

        Args:
            tensor: for example attention weights.
            scores: of which the weights are the softmax, for :func:`listen_to_scores`.
        """
        for listener in self._listeners:
            listener(tensor)
        if scores is not None:
            for listener in self._score_listeners:
                listener(scores)
        return tensor

    def edit(self, tensor: Tensor) -> Tensor:
        """Apply the editors of :func:`edit_taps`; callers do so before the tensor is recorded and used."""
        for editor in self._editors:
            tensor = editor(tensor)
        return tensor

    def extra_repr(self) -> str:
        """Return the axes, for the module's printed form."""
        return self.axes


@contextmanager
def listen(module: nn.Module, listener: Listener, *, gradients: bool = False) -> Iterator[list[str]]:
    """Within this context, call ``listener(name, tensor)`` for every tensor that passes a Tap below ``module``.

    Compiled modules pass nothing on: give the module that was given to ``torch.compile``.

    Args:
        module: a module with Taps.
        listener: receives the name of the Tap and its tensor.
        gradients: pass tensors that can be differentiated, for a loss on attention, instead of constants.

    Yields:
        The names of the Taps.

    Raises:
        ValueError: the module has no Tap.
    """
    taps = {name: child for name, child in module.named_modules() if isinstance(child, Tap)}
    if not taps:
        raise ValueError(f"{type(module).__name__} has no Tap: there is nothing to record in it")

    def make_hook(name: str) -> Callable[[Tensor], None]:
        return lambda tensor: listener(name, tensor if gradients else tensor.detach())

    hooks = {name: make_hook(name) for name in taps}
    for name, tap in taps.items():
        tap._listeners.append(hooks[name])
    try:
        yield list(taps)
    finally:
        for name, tap in taps.items():
            tap._listeners.remove(hooks[name])


@contextmanager
def listen_to_scores(tap: Tap, listener: Callable[[Tensor], None]) -> Iterator[None]:
    """Within this context, call ``listener`` with the scores of :func:`~recollect.layers.attention.attend` before their
    softmax, of hidden keys too, so that softmaxes over parts of a row can be joined.
    """
    tap._score_listeners.append(listener)
    try:
        yield
    finally:
        tap._score_listeners.remove(listener)


@contextmanager
def edit_taps(taps: Mapping[str, Tap], editors: Mapping[str, Editor]) -> Iterator[None]:
    """Within this context, let each named Tap replace its tensor by what an editor returns for it.

    Calls of the windowed cores obey (``causal-transformer``, ``transformer-xl``, ``hcam``'s windows and the
    ``long-short-transformer``), block by block if they are long; streams and other Taps do not.

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


def multiply_by_relevance(weights: Tensor, relevance: Tensor) -> Tensor:
    """Multiply the weights of steps inside chunks by the relevance of their chunks, as two Taps of a layer pass them.

    Args:
        weights: ``[b, h, t, n, c]``.
        relevance: ``[b, t, n]`` of all heads together, or ``[b, h, t, n]`` of each.
    """
    by_head = relevance if relevance.ndim == weights.ndim - 1 else relevance.unsqueeze(1)
    return weights * by_head.unsqueeze(-1)


def remove_keys(weights: Tensor, hidden: Tensor) -> Tensor:
    """Return attention weights as if some keys did not exist; zeros where no other key has any weight.

    Args:
        weights: ``[..., s]``, from a softmax.
        hidden: bool, broadcastable to ``weights``.
    """
    kept = weights.masked_fill(hidden, 0.0)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)
