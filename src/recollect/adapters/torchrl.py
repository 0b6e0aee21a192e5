"""A core as a TorchRL module, for collectors, replay buffers and objectives of TorchRL.

    memory = CoreModule(LSTMConfig(dim=64).build(4), unroll=64)  # a collected row has 64 steps
    env = TransformedEnv(SerialEnv(16, make), Compose(InitTracker(), memory.make_tensordict_primer()))

    state    acts through         a batch stores                for
    "carry"  core.stream          one state per row             whole rows: PPO, A2C, V-trace, replay of rows
    "step"   a call of the core   two states per row and step   windows that begin anywhere, as with LSTMModule

With "carry" the bytes of a row's state are stored in pieces with the first three quarters of its steps, so that a batch
is an ordinary TensorDict. The last quarter is spare: TorchRL's estimators with ``shifted=True`` drop steps there.
"""

import itertools
from typing import Any

import torch
from torch import Tensor

from recollect.adapters import missing_engine
from recollect.config import require
from recollect.cores.contract import MemoryCore
from recollect.state import from_bytes, to_bytes

try:
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from torchrl.data import Unbounded
    from torchrl.envs.transforms import TensorDictPrimer
    from torchrl.modules.tensordict_module.rnn import recurrent_mode
except ImportError as error:
    raise missing_engine("torchrl", error) from error

MAX_STREAMS, LONGEST = 4, 2**40  # rollouts whose memories are kept (others are dropped), and their steps


class CoreModule(TensorDictModuleBase):
    """A core that reads ``in_key`` and ``"is_init"`` (of TorchRL's ``InitTracker``) and writes ``out_key``.

    It takes one step, whose memory has no gradient, or whole rows within ``torchrl.modules.set_recurrent_mode(True)``.

    Args:
        core: the memory.
        state: ``carry`` or ``step``, see above. Estimators of TorchRL need ``shifted=True`` with ``carry``.
        unroll: steps of a collected row, for ``carry``: ``frames_per_batch`` divided by the number of environments.
        in_key: of the inputs ``[*batch, *core.input_shape]``; out_key: of the outputs ``[*batch, *core.output_shape]``.
        state_key: of everything that is stored about the memory.

    Raises:
        ValueError: no unroll, no primer, a step that was left out, or a row that does not begin with its state.
    """

    def __init__(
        self, core: MemoryCore[Any], state: str = "carry", *, unroll: int = 0, in_key: str = "observation",
        out_key: str = "embed", state_key: str = "memory",
    ) -> None:  # fmt: skip
        super().__init__()
        require(state in ("carry", "step"), "state", state, "use 'carry' or 'step'")
        require(state == "step" or unroll >= 1, "unroll", unroll, "give frames_per_batch / number of environments")
        self.core, self.state, self.unroll = core, state, unroll
        self._clock, self._content, self._index = ((state_key, name) for name in ("clock", "content", "index"))
        self._pieces = max(unroll * 3 // 4, 1) if state == "carry" else 1
        self._width = -(-to_bytes(core.initial_state(1)).shape[1] // self._pieces)
        self._streams: dict[int, tuple[Any, int, Tensor]] = {}  # stream, its steps, bytes where its unroll began
        stored = [self._clock, self._content, self._index] if state == "carry" else [self._content]
        self.in_keys = [in_key, "is_init", *stored]
        self.out_keys = [out_key, *(stored[1:] if state == "carry" else [("next", *self._content)])]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_streams": {}}  # a copy acts in environments of its own

    def make_tensordict_primer(self) -> TensorDictPrimer:
        """Return the transform that environments need, outside of ``SerialEnv`` and ``ParallelEnv``."""
        if self.state == "carry":
            return _Clock({self._clock: Unbounded((), dtype=torch.int64)}, expand_specs=True)
        return TensorDictPrimer({self._content: Unbounded((self._width,), dtype=torch.uint8)}, expand_specs=True)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Take one step, or run over whole rows in recurrent mode."""
        lead, recurrent = tensordict.batch_size, recurrent_mode()
        steps = lead[-1] if recurrent else 1
        inputs = tensordict.get(self.in_keys[0]).reshape(lead.numel() // steps, steps, *self.core.input_shape)
        is_first = tensordict.get("is_init").reshape(len(inputs), steps)
        if self.state == "carry" and not recurrent:
            outputs = self._act(tensordict, inputs[:, 0], is_first[:, 0])
        else:
            outputs, state = self.core(inputs, self._load_states(tensordict, is_first), is_first)
            if not recurrent:
                tensordict.set(("next", *self._content), to_bytes(state).reshape(*lead, self._width))
        return tensordict.set(self.out_keys[0], outputs.reshape(*lead, *self.core.output_shape))

    def _act(self, tensordict: TensorDictBase, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step of a stream, and store a piece of its state."""
        lead, clocks = tensordict.batch_size, tensordict.get(self._clock, inputs.new_empty(0))
        values, remedy = clocks.flatten().tolist(), "use make_tensordict_primer() outside of SerialEnv and ParallelEnv"
        require(len(set(values)) == 1, f"{self._clock}", values, remedy)
        number, clock = divmod(values[0], LONGEST)
        stream, steps, content = self._streams.pop(number, None) or (self.core.stream(len(inputs)), 0, inputs)
        steps = steps if clock else 0  # collectors try a policy on the first step of a rollout
        require(steps == clock, "step", clock, f"call this module once for each step; it took {steps} since the reset")
        if stream.has_changed_weights():
            state, stream = stream.state, self.core.stream(len(inputs))
            stream.load_state(state)
        index = clock % self.unroll
        if index == 0:
            content = to_bytes(stream.state)
            content = torch.nn.functional.pad(content, (0, self._width * self._pieces - content.shape[1]))
        piece = content[:, index % self._pieces * self._width :][:, : self._width]
        tensordict.set(self._content, piece.reshape(*lead, self._width))
        tensordict.set(self._index, torch.full_like(clocks, index))
        self._streams[number] = stream, clock + 1, content
        for oldest in list(self._streams)[:-MAX_STREAMS]:
            del self._streams[oldest]
        return stream.step(inputs, is_first)

    def _load_states(self, tensordict: TensorDictBase, is_first: Tensor) -> Any:
        """Return the state before the first step of every row."""
        (rows, steps), like = is_first.shape, self.core.initial_state(len(is_first))
        content, index = tensordict.get(self._content, None), tensordict.get(self._index, None)
        if content is None:
            require(bool(is_first[:, 0].all()), "is_init", False, "these rows have no state: keep this module's keys")
            return like
        content = content.reshape(rows, steps, self._width)
        if self.state == "step":
            return from_bytes(content[:, 0], like)
        index, wanted = index.reshape(rows, steps), torch.arange(self._pieces, device=content.device)
        place = (index[:, None] == wanted[:, None]).byte().argmax(-1)  # rows pieces
        whole = bool((index[:, 0] == 0).all() and (index.gather(1, place) == wanted).all())
        remedy = f"train on whole rows of unroll={self.unroll} steps (GAE: raise shifted_budget), or use state='step'"
        require(whole, f"{self._index}", index[:, 0].tolist(), remedy)
        return from_bytes(content.gather(1, place[..., None].expand(-1, -1, self._width)).flatten(1), like)


class _Clock(TensorDictPrimer):
    """Number of the rollout times ``LONGEST``, plus the steps in it; a rollout begins where all rows are reset."""

    numbers, now = itertools.count(1), 0

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        if tensordict.get("_reset", None) is None:  # otherwise episodes ended, and the rollout goes on
            self.now = next(self.numbers) * LONGEST
        return self._write(tensordict_reset)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        self.now += 1
        return self._write(next_tensordict)

    def _write(self, tensordict: TensorDictBase) -> TensorDictBase:
        (key,) = self.primers.keys(True, True)
        return tensordict.set(key, torch.full(tensordict.batch_size, self.now))
