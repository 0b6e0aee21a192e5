"""A first call before all lines, so that a wrong signature or shape is reported once and not on every line."""

from typing import Any

import torch
from torch import Tensor, nn

from recollect.certify.card import Line
from recollect.certify.comparison import Violation
from recollect.certify.subject import Subject
from recollect.state import named_leaves


def first_call(subject: Subject) -> Line | None:
    """Return the only line of the card of a core that cannot be called, else None."""
    try:
        with torch.no_grad():
            _check_initial_state(subject)
            _check_call(subject)
    except Violation as found:
        return Line(name="call", status="fail", detail=found.detail, cause=found.cause)
    return None


def _raised(what: str, error: Exception, cause: str) -> Violation:
    return Violation(f"{what} raised {type(error).__name__}: {' '.join(str(error).split())[:400]}", cause)


def _check_initial_state(subject: Subject) -> None:
    batch, what = subject.batch, f"initial_state({subject.batch})"
    try:
        state = subject.core.initial_state(batch)
    except Exception as error:
        raise _raised(what, error, "initial_state takes a batch size and returns a state") from None
    try:
        found = list(named_leaves(state))
    except ValueError as error:
        cause = "a state is a tensor, or a (nested) tuple of tensors; never None"
        raise Violation(f"{what}: {error}", cause) from None
    for name, leaf in found:
        if leaf.ndim == 0 or leaf.shape[0] != batch:
            raise Violation(
                f"{what}: leaf {name or 'state'} has shape {list(leaf.shape)}; its leading axis must be b, the batch "
                f"({batch})",
                "rows of a state are selected along its leading axis: nn.LSTM and nn.GRU have layers there, so keep "
                "the state as [b, layers, d] and transpose it on the way in and out; a scalar counter becomes [b]",
            )


def _check_call(subject: Subject) -> None:
    inputs, is_first = subject.inputs(0), subject.no_resets()
    what = f"a call with inputs of shape {list(inputs.shape)}"
    try:
        result = subject.core(inputs, subject.fresh_state(), is_first)
    except Exception as error:
        raise _raised(what, error, _advice(subject)) from None
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        kind = f"{len(result)} things" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise Violation(f"a call returns {kind}", "a call returns (outputs, state), outputs [b, t, ...]")
    outputs = result[0]
    if tuple(outputs.shape[:2]) != tuple(inputs.shape[:2]):
        raise Violation(
            f"{what} returns outputs of shape {list(outputs.shape)}",
            "outputs must be batch first, then time, one per step: [b, t, ...] (nn.LSTM and nn.GRU need "
            "batch_first=True)",
        )


def _advice(subject: Subject) -> str:
    given = subject.input_shape
    own = getattr(subject.core, "input_shape", None)
    want = _first_width(subject.core) if own is None else tuple(own)
    if want is not None and tuple(want) != tuple(given):
        words = " ".join(map(str, want))
        return f"--input-shape (input_shape) is {list(given)}, the module seems to take {list(want)}: give {words}"
    return "the module must take inputs [b, t, *input_shape], a state of its own and is_first [b, t] (bool)"


def _first_width(core: Any) -> tuple[int, ...] | None:
    for module in core.modules():
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        if isinstance(module, nn.RNNBase):
            return (module.input_size,)
    return None
