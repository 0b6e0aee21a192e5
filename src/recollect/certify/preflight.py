"""One call before everything else, so that an honest mistake is one line of advice and not a line per promise."""

from typing import Any

import torch
from torch import Tensor, nn

from recollect.certify.card import Line
from recollect.certify.subject import Subject
from recollect.state import named_leaves


def first_call(subject: Subject) -> Line | None:
    """The only line of the card of a core that does not even take a call of the right form; else None."""
    try:
        with torch.no_grad():
            found = _state(subject) or _call(subject)
    except _Raised as error:
        found = (str(error), error.cause)
    if found is None:
        return None
    return Line(name="call", status="fail", detail=found[0], cause=found[1])


class _Raised(Exception):  # noqa: N818 (a finding)
    def __init__(self, what: str, error: Exception, cause: str) -> None:
        super().__init__(f"{what} raised {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        self.cause = cause


def _state(subject: Subject) -> tuple[str, str] | None:
    batch = subject.batch
    try:
        state = subject.core.initial_state(batch)
    except Exception as error:
        raise _Raised(f"initial_state({batch})", error, "initial_state takes a batch size and gives a state") from None
    try:
        found = list(named_leaves(state))
    except ValueError as error:
        return f"initial_state({batch}): {error}", "a state is a tensor, or a (nested) tuple of tensors; never None"
    for name, leaf in found:
        if leaf.ndim == 0 or leaf.shape[0] != batch:
            return (
                f"initial_state({batch}): leaf {name or 'state'} has shape {list(leaf.shape)}; its leading axis must "
                f"be b, the batch ({batch})",
                "rows are cut out of a state along its leading axis: nn.LSTM and nn.GRU have layers there, so keep the "
                "state as [b, layers, d] and transpose it on the way in and out; a scalar counter becomes [b]",
            )
    return None


def _call(subject: Subject) -> tuple[str, str] | None:
    inputs, is_first = subject.inputs(0), subject.never()
    shape = list(inputs.shape)
    try:
        result = subject.core(inputs, subject.fresh_state(), is_first)
    except Exception as error:
        raise _Raised(f"a call with inputs of shape {shape}", error, _advice(subject)) from None
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        kind = f"{len(result)} things" if isinstance(result, tuple) else f"a {type(result).__name__}"
        return f"a call returns {kind}", "a call returns (outputs, state), outputs [b, t, ...]"
    outputs = result[0]
    if tuple(outputs.shape[:2]) != tuple(inputs.shape[:2]):
        return (
            f"a call with inputs of shape {shape} gives outputs of shape {list(outputs.shape)}",
            "outputs must be batch first, then time, one per step: [b, t, ...] (nn.LSTM and nn.GRU need "
            "batch_first=True)",
        )
    return None


def _advice(subject: Subject) -> str:
    given = subject.input_shape
    own = getattr(subject.core, "input_shape", None)
    want = _first_width(subject.core) if own is None else tuple(own)
    if want is not None and tuple(want) != tuple(given):
        said = " ".join(map(str, want))
        return f"--input-shape (input_shape) is {list(given)}, the module seems to take {list(want)}: give {said}"
    return "the module must take inputs [b, t, *input_shape], a state of its own and is_first [b, t] (bool)"


def _first_width(core: Any) -> tuple[int, ...] | None:
    for module in core.modules():
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        if isinstance(module, nn.RNNBase):
            return (module.input_size,)
    return None
