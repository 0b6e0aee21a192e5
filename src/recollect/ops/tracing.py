"""Whether somebody traces the operations now, to whom a hand-written kernel means nothing."""

import torch


def is_traced() -> bool:
    """Whether ``torch.compile``, ``torch.export``, ``vmap``, ``jvp`` or another transform of ``torch.func`` is at work.

    A kernel then leaves the work to its plain twin. A torch that cannot tell (see :func:`can_tell`) counts as traced.
    """
    return torch.compiler.is_compiling() or _is_transformed()


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
