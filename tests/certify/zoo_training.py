"""Broken cores of the ninth kind: wrong gradients or numbers in training, and episodes of one length alone."""

from typing import Any

import torch
import torch.nn.functional as F
from correct_cores import WIDTH, Chunked, ChunkState, Plain, Recurrent, RecurrentState
from torch import Tensor, nn

from recollect.state import where_first

Result = tuple[Tensor, RecurrentState]


# -- gradients -----------------------------------------------------------------------------------------------------


class ByHand(Recurrent):
    """A correct core whose first product is replaced by :meth:`product`, wherever it is not traced."""

    def advance(self, x: Tensor, state: RecurrentState) -> Result:
        if torch.compiler.is_compiling():
            return super().advance(x, state)
        hidden = torch.tanh(self.product(x) + self.read.bias + self.recur(state.hidden))
        phase = torch.sin(0.1 * state.steps.to(x.dtype))[:, None]
        return self.out(hidden) + phase, RecurrentState(hidden, state.steps + 1)

    def product(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class _Product(torch.autograd.Function):
    """x W^T; the backward pass multiplies with a given copy of W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.kept = kept
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad @ ctx.kept, grad.t() @ x, None


class BackwardWithFirstWeights(ByHand):
    """The copy of a weight for the backward pass is made once."""

    kept: Tensor | None = None

    def product(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return x @ self.read.weight.t()
        if self.kept is None or self.kept.dtype != x.dtype:
            self.kept = self.read.weight.detach().clone()
        return _Product.apply(x, self.read.weight, self.kept)


class CutsInputsBesideAFrozenMemory(ByHand):
    """Inputs get no gradient where the memory requires none; the product by hand has no forward derivative."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        return super().unroll(inputs if state.hidden.requires_grad else inputs.detach(), state, is_first)

    def product(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self.read.weight, self.read.weight)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


class CannotBeTrainedUnderAutocast(ByHand):
    """The backward pass meets what was saved in float32 and a gradient in bfloat16."""

    def product(self, x: Tensor) -> Tensor:
        return _Linear.apply(x, self.read.weight)


class CastsWeightsOnce(ByHand):
    """Under autocast, a weight is cast at the first call."""

    narrow: Tensor | None = None

    def product(self, x: Tensor) -> Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return x @ self.read.weight.t()
        if self.narrow is None:
            self.narrow = self.read.weight.detach().bfloat16()
        with torch.autocast("cpu", enabled=False):
            return (x.bfloat16() @ self.narrow.t()).float()


class _Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        return x + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return grad, grad[:32].sum(0)


class SumsGradientsOfThirtyTwoRows(Recurrent):
    """The gradient of a bias is summed in blocks of 32 rows, of which there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(WIDTH))

    def advance(self, x: Tensor, state: RecurrentState) -> Result:
        x = x + self.shift if torch.compiler.is_compiling() else _Shift.apply(x, self.shift)
        return super().advance(x, state)


class TruncatesLongCalls(Recurrent):
    """Backpropagation ends after 64 steps of a call."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        outs = []
        for x, first in zip(inputs.split(64, 1), is_first.split(64, 1), strict=True):
            out, state = super().unroll(x, state, first)
            outs.append(out)
            state = state._replace(hidden=state.hidden.detach() if inputs.shape[1] > 64 else state.hidden)
        return torch.cat(outs, 1), state


# -- weights, dtypes -----------------------------------------------------------------------------------------------

_TABLES: dict[Any, Tensor] = {}


class SharesATableOfWeights(Recurrent):
    """A table that is kept for all modules, by its shape."""

    def advance(self, x: Tensor, state: RecurrentState) -> Result:
        table = self.start.tanh()
        if not (torch.is_grad_enabled() or torch.compiler.is_compiling() or table.is_meta):
            table = _TABLES.setdefault((type(self), x.dtype, x.shape[-1]), table.detach().clone())
        return super().advance(x + table, state)


class StartsInFloat32(Plain):
    """Zeros of torch's default dtype, which the first step of a module in float64 promotes."""

    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        return (torch.zeros(batch_size, WIDTH, device=self.read.weight.device),)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        out, (hidden,) = super().forward(inputs, (state[0].to(self.read.weight.dtype),), is_first)
        return out, (hidden,)


class SingleStepsKeepTheDtypeOfAutocast(Plain):
    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        out, new = super().forward(inputs, state, is_first)
        return out, (new if inputs.shape[1] > 1 else (out[:, 0].to(self.read(inputs).dtype),))


# -- numbers of rows, ages and distances ---------------------------------------------------------------------------


class SwapsTwoRowsInTraining(Recurrent):
    def advance(self, x: Tensor, state: RecurrentState) -> Result:
        if len(x) == 2 and self.training:
            state = state._replace(hidden=state.hidden.flip(0))
        return super().advance(x, state)


class LosesTheSecondResetAfterNineteenSteps(Recurrent):
    """Of two resets of a call that are 19 steps apart, with none between them, the second one is lost."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        before = F.pad(is_first.long(), (20, 0))
        since = before.unfold(1, 20, 1)[:, : is_first.shape[1]]  # the twenty steps before each
        return super().unroll(inputs, state, is_first & ~((since[..., 1] == 1) & (since[..., 2:].sum(-1) == 0)))


class KeepsEpisodesOfFifteenSteps(Recurrent):
    """Neither shorter nor longer than the window: the memory outlives a reset."""

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        fresh = self.initial_state(len(first))
        hidden = where_first(first & (state.steps != 15), fresh.hidden, state.hidden)
        return RecurrentState(hidden, torch.where(first, 0, state.steps))


class FoldsAFullChunkIntoTheNextEpisode(Chunked):
    """Looks whether a chunk is full before it looks whether the episode is over."""

    chunk_len = 15

    def unroll(self, inputs: Tensor, state: ChunkState, is_first: Tensor) -> tuple[Tensor, ChunkState]:
        outputs = []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            total, summary, place = state
            border = (place % self.chunk_len == 0) & (place > 0)
            summary = torch.where((first & ~border)[:, None], 0.0, summary)
            summary = torch.where(border[:, None], 0.5 * summary + 0.5 * torch.tanh(total), summary)
            total = torch.where((border | first)[:, None], 0.0, total) + x
            outputs.append(self.out(torch.cat((total, summary), -1)))
            state = ChunkState(total, summary, torch.where(first, 0, place) + 1)
        return torch.stack(outputs, 1), state


class EndsFreshWhereEveryStepBegins(Recurrent):
    """A call in which every step begins an episode ends with a fresh memory."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        if is_first.shape[1] > 1:
            new = where_first(is_first.all(1), self.initial_state(inputs.shape[0]), new)
        return out, new


LONG_OR_WIDE: dict[Any, str] = {SumsGradientsOfThirtyTwoRows: "rows", TruncatesLongCalls: "splits"}

TRAINING: dict[type[nn.Module], str] = {
    BackwardWithFirstWeights: "weights",
    SharesATableOfWeights: "weights",
    CutsInputsBesideAFrozenMemory: "backward",
    CannotBeTrainedUnderAutocast: "bfloat16",
    CastsWeightsOnce: "bfloat16",
    SingleStepsKeepTheDtypeOfAutocast: "bfloat16",
    SwapsTwoRowsInTraining: "rows",
    LosesTheSecondResetAfterNineteenSteps: "splits",
    StartsInFloat32: "purity",
    KeepsEpisodesOfFifteenSteps: "reset",
    FoldsAFullChunkIntoTheNextEpisode: "reset",
    EndsFreshWhereEveryStepBegins: "reset",
}
"""Which line must catch a core."""
