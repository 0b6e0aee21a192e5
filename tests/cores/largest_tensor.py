"""How much memory a call takes at once, counted instead of measured."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """Within, ``numbers`` is how many the largest tensor has that an operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, out.numel() if isinstance(out, Tensor) else 0)
        return out
