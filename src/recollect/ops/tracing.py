"""Whether somebody traces the operations now, to whom a hand-written kernel means nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def is_traced() -> bool:
    """Whether ``torch.compile``, ``torch.export``, ``vmap``, ``jvp`` or another transform of ``torch.func`` is at work.

    A kernel then leaves the work to its plain twin. A torch that cannot tell (see :func:`can_tell`) counts as traced.
    """
    return torch.compiler.is_compiling() or _is_transformed()


def learns_on_cpu(like: Tensor) -> bool:
    """Whether a call with this tensor learns, on a CPU, and nobody traces it: then it may look at numbers to save work.

    Acting costs the same at every age of an episode, which is what streams promise; an accelerator would have to be
    waited for; and who traces must not look.
    """
    return like.device.type == "cpu" and torch.is_grad_enabled() and not is_traced()


def can_tell() -> bool:
    """Whether this torch answers the question, which is a private one."""
    try:
        torch._C._are_functorch_transforms_active()
    except AttributeError:
        return False
    return True


def _is_transformed() -> bool:
    try:
        return torch._C._are_functorch_transforms_active()
    except AttributeError:
        return True


@contextmanager
def recurrent_layers() -> Iterator[None]:
    """Within, ``torch.compile`` takes nn.LSTM and nn.GRU, which it refuses by default."""
    config = torch._dynamo.config
    before, config.allow_rnn = config.allow_rnn, True
    try:
        yield
    finally:
        config.allow_rnn = before
