"""Broken cores of the third kind: right on every usual path, wrong in one corner where two circumstances meet."""

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from correct_cores import WIDTH, Recurrent, RecurrentState
from torch import Tensor, nn
from zoo_paths import LastState, Rotating

from recollect.cores.stream import Stream
from recollect.state import where_first

State = RecurrentState


# -- with gradients, as training has them: the weights ask for some, the inputs do not -----------------------------


class FreshWhenInputsNeedNoGradient(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if torch.is_grad_enabled() and not inputs.requires_grad:
            state = self.initial_state(inputs.shape[0])
        return super().unroll(inputs, state, is_first)


class CutsWhenInputsNeedNoGradient(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if not x.requires_grad:
            state = state._replace(hidden=state.hidden.detach())
        return super().advance(x, state)


class ScalesGradientOfManyRows(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(x.detach() + (x - x.detach()) / 4 if x.shape[0] > 4 else x, state)


class AnotherStartInTraining(Recurrent):
    """In training a fresh memory is zeros, and a reset gives the learned one."""

    def initial_state(self, batch_size: int) -> State:
        state = super().initial_state(batch_size)
        return state._replace(hidden=state.hidden * 0) if self.training and torch.is_grad_enabled() else state

    def clear(self, first: Tensor, state: State) -> State:
        return where_first(first, Recurrent.initial_state(self, first.shape[0]), state)


# -- single steps --------------------------------------------------------------------------------------------------


class IgnoresResetsOnceOld(Recurrent):
    """Single steps ignore resets when the episode is a thousand steps old."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[1] == 1:
            is_first = is_first & (state.steps < 1000)[:, None]
        return super().unroll(inputs, state, is_first)


class IgnoresResetsToSingleStepsInInference(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if torch.is_inference_mode_enabled() and inputs.shape[1] == 1:
            is_first = torch.zeros_like(is_first)
        return super().unroll(inputs, state, is_first)


class SingleStepLeaks(nn.Module):
    """Multiplies the memory by zero where a call has one step, and selects where it has more."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.recur = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> LastState:
        return LastState(self.read.weight.new_zeros(batch_size, WIDTH))

    def forward(self, inputs: Tensor, state: LastState, is_first: Tensor) -> tuple[Tensor, LastState]:
        clean, h, outs = torch.where(inputs.isfinite(), inputs, 0.0), state.last, []
        for x, first in zip(clean.unbind(1), is_first.unbind(1), strict=True):
            h = h * (~first)[:, None] if len(clean[0]) == 1 else torch.where(first[:, None], 0.0, h)
            h = torch.tanh(self.read(x) + self.recur(h))
            outs.append(h)
        return torch.stack(outs, 1), LastState(h)


class ClearsRealPartOfSingleStepsInTraining(Rotating):
    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        self.half = self.training and inputs.shape[1] == 1
        return super().forward(inputs, state, is_first)

    half = False

    def clear(self, first: Tensor, z: Tensor) -> Tensor:
        return torch.complex(torch.where(first[:, None], 0.0, z.real), z.imag) if self.half else super().clear(first, z)


# -- beside the state ----------------------------------------------------------------------------------------------

_LOG: list[float] = []


def _note(number: Tensor) -> None:
    _LOG[:] = [float(number)]


class HidesBehindFunction(Recurrent):
    """A function of the module's file keeps the last mean in a global list."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        _note(inputs.detach().mean())
        return super().unroll(inputs, state, is_first)


class HidesInHook(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        kept: list[float] = []
        self.read.register_forward_pre_hook(lambda module, given: kept.append(float(given[0].detach().mean())))


class FusesByVersion(Recurrent):
    """Packs weights again when their version counts up, which it does not when `weight.data` is replaced."""

    packed: tuple[Any, Tensor] | None = None

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if torch.is_grad_enabled() or x.requires_grad:
            return super().advance(x, state)
        key = (self.read.weight._version, self.recur.weight._version, x.dtype)
        if self.packed is None or self.packed[0] != key:
            self.packed = key, torch.cat((self.read.weight, self.recur.weight), 1).detach().clone()
        both = torch.cat((x, state.hidden), 1) @ self.packed[1].t()
        hidden = torch.tanh(both + self.read.bias + self.recur.bias)
        return self.out(hidden) + torch.sin(0.1 * state.steps.to(x.dtype))[:, None], State(hidden, state.steps + 1)


class SharesReadoutWithCopies(Recurrent):
    def __deepcopy__(self, memo: dict[int, Any]) -> "SharesReadoutWithCopies":
        memo[id(self.out)] = self.out
        twin = type(self)()
        twin._modules = {name: copy.deepcopy(child, memo) for name, child in self._modules.items()}
        twin._parameters = {name: copy.deepcopy(weight, memo) for name, weight in self._parameters.items()}
        return twin


class Reseeds(Recurrent):
    """The same noise in every call, at the price of everybody's random numbers."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        torch.manual_seed(0)
        return super().unroll(inputs + 0.1 * torch.randn(inputs.shape[-1]).to(inputs), state, is_first)


class ReseedsNumpy(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        np.random.seed(0)
        return super().unroll(inputs + 0.1 * float(np.random.rand()), state, is_first)


class DrawsInVain(Recurrent):
    """Draws dropout's mask in evaluation mode too, and does not use it."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        torch.rand_like(inputs)
        return super().unroll(inputs, state, is_first)


# -- where no row begins an episode, and the selection that copies is left out ---------------------------------------


class WritesIntoStateWithoutResets(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        outputs, new = super().unroll(inputs, state, is_first)
        if not is_first.any():
            state.hidden.detach().copy_(new.hidden.detach())
        return outputs, new


class WritesIntoInputsWithoutResets(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out = super().unroll(inputs.clone(), state, is_first)
        if not is_first.any():
            inputs.detach().clamp_(-0.5, 0.5)
        return out


# -- layout, cost, numbers -----------------------------------------------------------------------------------------


class AssumesContiguousState(Recurrent):
    """Reads the storage behind the memory and not the memory."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        h = state.hidden
        if not h.requires_grad:
            h = h.as_strided(h.shape, (h.shape[1], 1))
        return super().unroll(inputs, state._replace(hidden=h), is_first)


class LongCallsSlow(Recurrent):
    """A call of more than one step replays as many steps as the counter says."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[1] > 1:
            sum(float(i) for i in range(100 * int(state.steps.max())))
        return super().unroll(inputs, state, is_first)


class RoundsManyRows(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        narrow = x.shape[0] > 6 and x.dtype == torch.float32
        return super().advance(x.bfloat16().to(x.dtype) if narrow else x, state)


class BranchesOnRows(Recurrent):
    """Chooses its product by the number of rows, before it asks whether it is traced: right numbers in every call."""

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[0] >= 64 and not torch.compiler.is_compiling():
            return super().advance(x.contiguous(), state)
        return super().advance(x, state)


class StartsFromViews(Recurrent):
    """A program that is exported with its first memory takes no other."""

    def initial_state(self, batch_size: int) -> State:
        state = super().initial_state(batch_size)
        return state._replace(hidden=self.start.expand(batch_size, -1))


class TwoMeans(NamedTuple):
    fast: Tensor  # b d
    slow: Tensor  # b d


class StartsFromOneTensor(nn.Module):
    """Two leaves are the same tensor at first, and the same for ever in a program that is exported with it."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(2 * WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> TwoMeans:
        zeros = self.read.weight.new_zeros(batch_size, WIDTH)
        return TwoMeans(zeros, zeros)

    def forward(self, inputs: Tensor, state: TwoMeans, is_first: Tensor) -> tuple[Tensor, TwoMeans]:
        outs = []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            fast, slow = (torch.where(first[:, None], 0.0, mean) for mean in state)
            state = TwoMeans(fast + 0.5 * (x - fast), slow + 0.1 * (x - slow))
            outs.append(self.read(torch.cat(state, 1)))
        return torch.stack(outs, 1), state


# -- streams -------------------------------------------------------------------------------------------------------


class IgnoresResetsInInference(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return super().advance(inputs, is_first & (not torch.is_inference_mode_enabled()))


class StreamIgnoresResetsInInference(Recurrent):
    stream_type = IgnoresResetsInInference


class AgingStream(Stream):
    age = 0

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.age += 1
        return super().advance(inputs, is_first) * (1.0 if self.age < 1200 else 1.001)


class StreamAges(Recurrent):
    stream_type = AgingStream


class OneForAll(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return super().advance(inputs, is_first.any().expand_as(is_first))


class StreamResetsAllRows(Recurrent):
    stream_type = OneForAll


class ForgetfulFork(Stream):
    def fork(self) -> Stream:
        return self.core.stream(self.batch_size)


class StreamForksForget(Recurrent):
    stream_type = ForgetfulFork


# -- transforms of torch --------------------------------------------------------------------------------------------


class RegistersOneLayerTwice(Recurrent):
    """The gain that both names share is replaced under one of them and put back under the other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = self.norm_again = nn.LayerNorm(WIDTH)

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(self.norm(x) + self.norm_again(x), state)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        y = args[0].tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # type: ignore[override]
        return grads[0] * (1 - ctx.saved_tensors[0].square())


class HasFirstDerivativesOnly(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        out, state = super().advance(x, state)
        return out.tanh() if torch.compiler.is_compiling() else _Tanh.apply(out), state


class ReadsWeightsOfThePast(Recurrent):
    """A functional call gets the bias that the module had when it was first called."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        own = self.out.bias
        outputs, state = super().unroll(inputs, state, is_first)
        if isinstance(own, nn.Parameter):
            return outputs, state
        return outputs - 0.5 * own, state  # what functional_call gives is no Parameter


CORNERS: dict[type[nn.Module], str] = {
    RegistersOneLayerTwice: "transforms",
    HasFirstDerivativesOnly: "transforms",
    ReadsWeightsOfThePast: "transforms",
    FreshWhenInputsNeedNoGradient: "modes",
    CutsWhenInputsNeedNoGradient: "backward",
    ScalesGradientOfManyRows: "backward",
    AnotherStartInTraining: "reset",
    IgnoresResetsOnceOld: "long",
    IgnoresResetsToSingleStepsInInference: "modes",
    SingleStepLeaks: "poison",
    ClearsRealPartOfSingleStepsInTraining: "splits",
    HidesBehindFunction: "hidden-state",
    HidesInHook: "hidden-state",
    FusesByVersion: "weights",
    SharesReadoutWithCopies: "save-load",
    Reseeds: "hidden-state",
    ReseedsNumpy: "hidden-state",
    DrawsInVain: "hidden-state",
    WritesIntoStateWithoutResets: "purity",
    WritesIntoInputsWithoutResets: "purity",
    AssumesContiguousState: "splits",
    LongCallsSlow: "cost",
    RoundsManyRows: "rows",
    BranchesOnRows: "export",
    StartsFromViews: "export",
    StartsFromOneTensor: "export",
    StreamIgnoresResetsInInference: "stream",
    StreamAges: "long",
    StreamResetsAllRows: "stream",
    StreamForksForget: "stream",
}
"""Which line must catch a core."""
