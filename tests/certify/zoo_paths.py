"""More broken cores: right where a test usually looks, wrong on one path.

In training mode, with gradients, for single steps, one row, after a thousand steps, in float32, for inputs that are
not contiguous, beside the state, in the stream alone, in the backward pass. Each names the line that must catch it.
"""

import random
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch
from correct_cores import WIDTH, Plain, Recurrent, RecurrentState, Window, WindowState
from torch import Tensor, nn

from recollect.cores.stream import Stream
from recollect.state import map_state

State = RecurrentState


# -- another path in training mode -----------------------------------------------------------------------------


class IgnoresResetsInTraining(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        return super().unroll(inputs, state, torch.zeros_like(is_first) if self.training else is_first)


class ForgetsCallInTraining(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if self.training:
            state = self.initial_state(inputs.shape[0])
        return super().unroll(inputs, state, is_first)


class MutatesInTraining(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out = super().unroll(inputs, state, is_first)
        if self.training:
            state.hidden.detach().mul_(0.5)
        return out


class UpcastsInTraining(Plain):
    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        out, (hidden,) = super().forward(inputs, (state[0].to(inputs.dtype),), is_first)
        return out, (hidden.double() if self.training else hidden,)


class MixesRowsInTraining(Recurrent):
    """Decorrelates rows when more than four are trained together."""

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        out, new = super().advance(x, state)
        return (out + 0.01 * out.mean(0) if self.training and x.shape[0] > 3 else out), new


class CountsInTraining(Recurrent):
    """A deque in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.recent: deque[float] = deque(maxlen=8)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if self.training:
            self.recent.append(float(inputs.detach().mean()))
        return super().unroll(inputs, state, is_first)


# -- another path with gradients -------------------------------------------------------------------------------


class FreshWithGradients(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if torch.is_grad_enabled():
            state = self.initial_state(inputs.shape[0])
        return super().unroll(inputs, state, is_first)


class SmallerWindowWithGradients(Window):
    def unroll(self, inputs: Tensor, state: WindowState, is_first: Tensor) -> tuple[Tensor, WindowState]:
        if torch.is_grad_enabled():
            state = state._replace(valid=state.valid.clamp(max=2))
        return super().unroll(inputs, state, is_first)


class ScalesWithGradients(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out, new = super().unroll(inputs, state, is_first)
        return out * (1.01 if out.requires_grad and inputs.shape[1] == 1 else 1.0), new


class DetachesHidden(Recurrent):
    """Truncates backpropagation to one step."""

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(x, state._replace(hidden=state.hidden.detach()))


class DetachesFinalState(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out, new = super().unroll(inputs, state, is_first)
        return out, map_state(Tensor.detach, new)


class _WrongTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return grad * (1 - y)  # the square is missing


class WrongBackward(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = _WrongTanh.apply(self.read(x) + self.recur(state.hidden))
        return self.out(hidden), State(hidden, state.steps + 1)


class _WrongSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        return x + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return grad, -grad.sum(0)


class WrongSignOfBias(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(WIDTH))

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(_WrongSign.apply(x, self.shift), state)


class WrongBackwardInTraining(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(_WrongTanh.apply(x) if self.training else torch.tanh(x), state)


class WrongBackwardOfOneStep(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        return super().unroll((_WrongTanh.apply if inputs.shape[1] == 1 else torch.tanh)(inputs), state, is_first)


# -- single steps, one row, many rows, layout ------------------------------------------------------------------


class MutatesFlagsOfOneStep(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out = super().unroll(inputs, state, is_first)
        if inputs.shape[1] == 1:
            is_first.zero_()
        return out


class MutatesStateOfOneStep(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out = super().unroll(inputs, state, is_first)
        if inputs.shape[1] == 1:
            state.steps.add_(1)
        return out


class LastState(NamedTuple):
    last: Tensor  # b d


class KeepsInputOfOneStep(nn.Module):
    """Adds the input of the step before; a single step keeps the caller's tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> LastState:
        return LastState(self.read.weight.new_zeros(batch_size, WIDTH))

    def forward(self, inputs: Tensor, state: LastState, is_first: Tensor) -> tuple[Tensor, LastState]:
        clean = torch.where(inputs.isfinite(), inputs, 0.0) if inputs.shape[1] > 1 else inputs
        before = torch.cat((state.last[:, None], clean[:, :-1]), 1)
        before = torch.where(is_first[..., None], 0.0, before)
        last = clean[:, -1] if inputs.shape[1] == 1 else clean[:, -1].clone()
        return self.read(clean) + before, LastState(last)


class IgnoresResetsForOneRow(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        return super().unroll(inputs, state, is_first & (inputs.shape[0] > 1))


class CapsRows(Recurrent):
    """A buffer for eight rows: the ninth shares the memory of the eighth."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[0] > 8:
            state = State(torch.cat((state.hidden[:8], state.hidden[7:8].expand(len(inputs) - 8, -1))), state.steps)
        return super().unroll(inputs, state, is_first)


class AssumesContiguous(Recurrent):
    """Reads the memory behind a tensor and not the tensor."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        steps = inputs.as_strided(inputs.shape, torch.empty(inputs.shape, device="meta").stride())
        return super().unroll(steps if not inputs.requires_grad else inputs, state, is_first)


class PeeksForOneRow(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out, new = super().unroll(inputs, state, is_first)
        return (out + 0.1 * inputs.flip(1) if inputs.shape[0] == 1 else out), new


# -- beside the state ------------------------------------------------------------------------------------------


class _Helper:
    def __init__(self) -> None:
        self.last = np.zeros(WIDTH)


class HidesInHelper(Recurrent):
    """A NumPy array in an object that is no module; single rows read it."""

    def __init__(self) -> None:
        super().__init__()
        self.helper = _Helper()

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        self.helper.last += inputs.detach().double().mean((0, 1)).numpy()
        return super().unroll(inputs, state, is_first)


class HidesInDeque(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[Tensor] = deque([torch.zeros(WIDTH)], maxlen=1)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[:2] == (1, 1):
            inputs = inputs + 0.1 * self.queue[0].to(inputs.dtype)
            self.queue.append(inputs[0, 0].detach().clone())
        return super().unroll(inputs, state, is_first)


def _counter() -> Any:
    calls = [0]

    def count() -> int:
        calls[0] += 1
        return calls[0]

    return count


class HidesInClosure(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.count = _counter()

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        self.count()
        return super().unroll(inputs, state, is_first)


class HidesInClass(Recurrent):
    seen: list[float] = []  # noqa: RUF012 (the mistake)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        type(self).seen[:] = [float(inputs.detach().sum())]
        return super().unroll(inputs, state, is_first)


_LAST: dict[str, Tensor] = {}


class HidesInGlobal(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        _LAST["mean"] = inputs.detach().mean()
        return super().unroll(inputs, state, is_first)


class HidesInGenerator(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.dice = random.Random(0)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        self.dice.random()
        return super().unroll(inputs, state, is_first)


class FusesOnce(Recurrent):
    """Packs its weights at the first call without gradients, for ever."""

    packed: Tensor | None = None

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if torch.is_grad_enabled() or x.requires_grad:
            return super().advance(x, state)
        if self.packed is None or self.packed.dtype != x.dtype:
            self.packed = torch.cat((self.read.weight, self.recur.weight), 1).detach().clone()
        both = torch.cat((x, state.hidden), 1) @ self.packed.t()
        hidden = torch.tanh(both + self.read.bias + self.recur.bias)
        return self.out(hidden) + torch.sin(0.1 * state.steps.to(x.dtype))[:, None], State(hidden, state.steps + 1)


class FusesForOneStep(FusesOnce):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(x, state) if x.shape[0] == 1 else Recurrent.advance(self, x, state)


# -- growth and cost -------------------------------------------------------------------------------------------


class HoardingNumbers(Stream):
    """Keeps plain numbers of every step, no tensors."""

    def __init__(self, core: Any, batch_size: int) -> None:
        self.log: list[float] = []
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.log.extend(inputs.flatten().tolist())
        return super().advance(inputs, is_first)


class StreamHoardsNumbers(Recurrent):
    stream_type = HoardingNumbers


class HoardingBytes(Stream):
    def __init__(self, core: Any, batch_size: int) -> None:
        self.log = bytearray()
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.log += inputs.contiguous().numpy().tobytes()
        return super().advance(inputs, is_first)


class StreamHoardsBytes(Recurrent):
    stream_type = HoardingBytes


class LateHoarder(Stream):
    def __init__(self, core: Any, batch_size: int) -> None:
        self.log: list[Tensor] = []
        self.steps = 0
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.steps += 1
        if self.steps > 1000:
            self.log.append(inputs.clone())
        return super().advance(inputs, is_first)


class StreamHoardsLate(Recurrent):
    stream_type = LateHoarder


class SlowingStream(Stream):
    """Sums over all steps so far, of which it keeps only the number."""

    steps = 0

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.steps += 1
        _ = sum(float(i) for i in range(20 * self.steps))
        return super().advance(inputs, is_first)


class StreamSlows(Recurrent):
    stream_type = SlowingStream


class CoreSlows(Recurrent):
    """Replays as many steps as its counter says."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        _ = sum(float(i) for i in range(20 * int(state.steps.max())))
        return super().unroll(inputs, state, is_first)


class CoreHoards(Recurrent):
    """A global list that nobody empties."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[1] == 1:
            _HOARD.append(inputs.detach().sum().item())
        return super().unroll(inputs, state, is_first)


_HOARD: list[float] = []


class DriftsAfterThousand(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        out, new = super().advance(x, state)
        return out, new

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        out, new = super().unroll(inputs, state, is_first)
        late = (state.steps > 1000)[:, None, None] & (inputs.shape[1] == 1)
        return torch.where(late, out * 1.01, out), new


class LongCallsTruncate(Recurrent):
    """A call of more than 256 steps begins anew at step 256."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[1] > 256:
            is_first = is_first.clone()
            is_first[:, 256] = True
        return super().unroll(inputs, state, is_first)


# -- numbers ---------------------------------------------------------------------------------------------------


def _halved(x: Tensor) -> Tensor:
    return x.half().to(x.dtype) if x.dtype == torch.float32 else x


class HalfInCalls(Recurrent):
    """Longer calls in half precision, if they are in float32."""

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(x, state)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        return super().unroll(_halved(inputs) if inputs.shape[1] > 1 else inputs, state, is_first)


class HalfEverywhere(Recurrent):
    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(_halved(x), state)


class HalfStream(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return _halved(super().advance(inputs, is_first))


class StreamInHalf(Recurrent):
    stream_type = HalfStream


class DiscreteInHalf(Recurrent):
    """Says that it chooses, so that it is compared in float64."""

    discrete = True

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(_halved(x), state)


# -- broken frames ---------------------------------------------------------------------------------------------


class HidesBrokenFrames(Recurrent):
    """Zeros in place of broken steps, and nobody is told."""

    def forward(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        usable = (inputs.abs() < 1e18).flatten(2).all(-1)[..., None]
        return self.unroll(torch.where(usable, inputs, 0.0), state, is_first)


class RemembersBrokenFrames(Recurrent):
    """NaN is shown, and a constant is remembered in its place."""

    def forward(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        usable = (inputs.abs() < 1e18).flatten(2).all(-1)[..., None]
        out, new = self.unroll(torch.where(usable, inputs, 1.0), state, is_first)
        return torch.where(usable, out, torch.nan), new


class HealsBrokenMemory(Recurrent):
    def forward(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        return super().forward(inputs, state._replace(hidden=state.hidden.nan_to_num()), is_first)


# -- complex memories ------------------------------------------------------------------------------------------


class ComplexState(NamedTuple):
    z: Tensor  # b d, complex


class Rotating(nn.Module):
    """z = lambda z + B x, complex; a correct user-defined core."""

    def __init__(self) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.rand(WIDTH))
        self.read = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> ComplexState:
        zeros = self.angle.new_zeros(batch_size, WIDTH)
        return ComplexState(torch.complex(zeros, zeros))

    def clear(self, first: Tensor, z: Tensor) -> Tensor:
        return torch.where(first[:, None], torch.zeros_like(z), z)

    def forward(self, inputs: Tensor, state: ComplexState, is_first: Tensor) -> tuple[Tensor, ComplexState]:
        (z,), outs = state, []
        turn = torch.polar(torch.full_like(self.angle, 0.9), self.angle)
        for x, first in zip(torch.where(inputs.isfinite(), inputs, 0.0).unbind(1), is_first.unbind(1), strict=True):
            z = turn * self.clear(first, z) + self.read(x)
            outs.append(self.out(torch.view_as_real(z).flatten(1)))
        return torch.stack(outs, 1), ComplexState(z)


class ClearsRealPart(Rotating):
    def clear(self, first: Tensor, z: Tensor) -> Tensor:
        return torch.complex(torch.where(first[:, None], 0.0, z.real), z.imag)


class DropsImaginaryPart(Rotating):
    def forward(self, inputs: Tensor, state: ComplexState, is_first: Tensor) -> tuple[Tensor, ComplexState]:
        out, new = super().forward(inputs, state, is_first)
        return out, ComplexState(torch.complex(new.z.real, torch.zeros_like(new.z.real)))


class CutsImaginaryPart(Rotating):
    """The imaginary part of the memory gets no gradient."""

    def forward(self, inputs: Tensor, state: ComplexState, is_first: Tensor) -> tuple[Tensor, ComplexState]:
        z = torch.complex(state.z.real, state.z.imag.detach())
        return super().forward(inputs, ComplexState(z), is_first)


class ImaginaryLeak(Rotating):
    """Multiplies the imaginary part by zero, which keeps NaN."""

    def clear(self, first: Tensor, z: Tensor) -> Tensor:
        return torch.complex(torch.where(first[:, None], 0.0, z.real), z.imag * (~first)[:, None])


# -- streams and copies ----------------------------------------------------------------------------------------


class IgnoresResetsToOneRow(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return super().advance(inputs, is_first & (self.batch_size > 1))


class StreamOfOneIgnoresResets(Recurrent):
    stream_type = IgnoresResetsToOneRow


class KeepsOutputBuffer(Stream):
    """Every step writes its output into the same tensor."""

    def __init__(self, core: Any, batch_size: int) -> None:
        self.out = torch.zeros(batch_size, WIDTH, dtype=next(core.parameters()).dtype)
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return self.out.copy_(super().advance(inputs, is_first))


class StreamReusesOutput(Recurrent):
    stream_type = KeepsOutputBuffer


class KeepsInput(Stream):
    """Reads the frame of the step before once more, and keeps the caller's buffer for that."""

    before: Tensor | None = None
    expected: Tensor | None = None

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        out = super().advance(inputs, is_first)
        if self.before is not None and self.expected is not None:
            out = out + (self.before - self.expected).nan_to_num(1.0)
        self.before, self.expected = inputs, inputs.clone()
        return out


class StreamKeepsInput(Recurrent):
    stream_type = KeepsInput


class SkipsInBlocks(Stream):
    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        out = super().advance_block(inputs, is_first)
        if inputs.shape[1] == 3:  # two of the new steps are not in the memory
            self.load_state(self.core(inputs[:, -1:], self.core.initial_state(self.batch_size), is_first[:, None])[1])
        return out


class BlocksLoseSteps(Recurrent):
    stream_type = SkipsInBlocks


class ClosureStream(Stream):
    """Its step is a closure over a buffer, so a copy steps the original's buffer."""

    def __init__(self, core: Any, batch_size: int) -> None:
        super().__init__(core, batch_size)
        kept = self

        def step(inputs: Tensor, is_first: Tensor) -> Tensor:
            return Stream.advance(kept, inputs, is_first)

        self.go = step

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return self.go(inputs, is_first)

    __reduce__ = object.__reduce__


class StreamCopiesShare(Recurrent):
    stream_type = ClosureStream


class LockedStream(Stream):
    def __reduce_ex__(self, version: Any) -> Any:
        raise TypeError("cannot pickle this stream")


class StreamCannotBeCopied(Recurrent):
    stream_type = LockedStream


# -- the plain form --------------------------------------------------------------------------------------------


def _plain(core: Any, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
    return core.unroll(inputs, state, is_first)


def _plain_of_another(core: Any, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
    out, new = core.unroll(inputs, state, is_first)
    return out, new._replace(hidden=new.hidden * 1.001)


class PartsFromPlainForm(Recurrent):
    reference_unroll = _plain_of_another


class EqualsPlainForm(Recurrent):
    reference_unroll = _plain


ONE_PATH: dict[type[nn.Module], str] = {
    IgnoresResetsInTraining: "reset",
    ForgetsCallInTraining: "splits",
    MutatesInTraining: "purity",
    UpcastsInTraining: "purity",
    MixesRowsInTraining: "rows",
    CountsInTraining: "hidden-state",
    FreshWithGradients: "modes",
    SmallerWindowWithGradients: "modes",
    ScalesWithGradients: "modes",
    DetachesHidden: "backward",
    DetachesFinalState: "backward",
    WrongBackward: "backward",
    WrongSignOfBias: "backward",
    WrongBackwardInTraining: "backward",
    WrongBackwardOfOneStep: "backward",
    MutatesFlagsOfOneStep: "purity",
    MutatesStateOfOneStep: "purity",
    KeepsInputOfOneStep: "purity",
    IgnoresResetsForOneRow: "reset",
    CapsRows: "rows",
    AssumesContiguous: "splits",
    PeeksForOneRow: "future",
    HidesInHelper: "hidden-state",
    HidesInDeque: "hidden-state",
    HidesInClosure: "hidden-state",
    HidesInClass: "hidden-state",
    HidesInGlobal: "hidden-state",
    HidesInGenerator: "hidden-state",
    FusesOnce: "weights",
    FusesForOneStep: "weights",
    StreamHoardsNumbers: "state-bytes",
    StreamHoardsBytes: "state-bytes",
    StreamHoardsLate: "state-bytes",
    StreamSlows: "cost",
    CoreSlows: "cost",
    CoreHoards: "state-bytes",
    DriftsAfterThousand: "long",
    LongCallsTruncate: "long",
    HalfInCalls: "splits",
    HalfEverywhere: "float32",
    StreamInHalf: "stream",
    DiscreteInHalf: "float32",
    HidesBrokenFrames: "frames",
    RemembersBrokenFrames: "frames-memory",
    HealsBrokenMemory: "frames",
    ClearsRealPart: "reset",
    DropsImaginaryPart: "splits",
    CutsImaginaryPart: "backward",
    ImaginaryLeak: "poison",
    StreamOfOneIgnoresResets: "stream",
    StreamReusesOutput: "stream",
    StreamKeepsInput: "stream",
    BlocksLoseSteps: "stream",
    StreamCopiesShare: "copies",
    StreamCannotBeCopied: "copies",
    PartsFromPlainForm: "reference",
}
"""Which line must catch a core."""
