"""What can be installed today, beside our cores, in one process.

    python benchmarks/peers.py [--only WORD ...] [--precision f32 bf16] [--threads 2] [--quick]

Training is forward and backward over 32 x 64 steps at width 512 with 4 layers and 8 heads; a stream step has batch 1.
Needs ``pip install '.[peers]'``; what is not installed is skipped and says so.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import source_tree  # noqa: F401
from pairs import Call, Pair, Shape, arguments, measure_pairs, report, training
from recollect.cores import CORES
from recollect.cores.contract import MemoryCore
from recollect.cores.hcam.attention import HierarchicalAttention
from recollect.cores.stream import Stream
from reference_forms import CellStream, lstm_loop

KINDS = {"lstm": ("LSTM", ("h", "c")), "gru": ("GRU", ("h",))}


def our_training(core: MemoryCore, shape: Shape, reset_rate: float) -> Call:
    """Forward and backward through a core, from a state that is carried on as in training."""
    inputs = torch.randn(shape.batch, shape.steps, shape.dim)
    is_first = torch.rand(shape.batch, shape.steps) < reset_rate
    state = [core.initial_state(shape.batch)]

    def forward() -> Tensor:
        outputs, after = core(inputs, state[0], is_first)
        state[0] = type(after)(*_detached(after))
        return outputs

    return training(core, forward)


def _detached(state):
    return [_detached_leaf(leaf) for leaf in state]


def _detached_leaf(leaf):
    if isinstance(leaf, Tensor):
        return leaf.detach()
    build = getattr(type(leaf), "_make", type(leaf))
    return build(_detached(leaf))


def our_step(core: MemoryCore, shape: Shape, *, plain: bool = False) -> Call:
    """One step of a stream that has run until its memory is full; ``plain``: of the stream without a cache."""
    core.eval()
    stream = Stream(core, 1) if plain else core.stream(1)
    for inputs in torch.randn(shape.memory + 2 * shape.chunk, 1, shape.dim):
        stream.step(inputs)
    inputs = torch.randn(1, shape.dim)
    return lambda: stream.step(inputs)


def no_grad(function: Callable[[], object]) -> Call:
    """The function, without gradients."""
    return torch.no_grad()(function)


def recurrent(shape: Shape, kind: str) -> MemoryCore:
    return CORES[kind](dim=shape.dim, num_layers=shape.layers).build(shape.dim)


def xl(shape: Shape) -> MemoryCore:
    """The gated Transformer-XL that x-transformers' model is compared with."""
    return CORES["transformer-xl"](
        dim=shape.dim, num_layers=shape.layers, num_heads=shape.heads, memory_len=shape.memory, gate="gru"
    ).build(shape.dim)


# -- torchrl -------------------------------------------------------------------------------------------------


def torchrl_module(shape: Shape, kind: str):
    from torchrl import modules

    name, keys = KINDS[kind]
    module = getattr(modules, f"{name}Module")(
        input_size=shape.dim,
        hidden_size=shape.dim,
        num_layers=shape.layers,
        in_keys=["x", *keys],
        out_keys=["y", *(("next", key) for key in keys)],
    )
    return module, keys


def torchrl_training(shape: Shape, kind: str, reset_rate: float) -> Call:
    from tensordict import TensorDict
    from torchrl.modules import set_recurrent_mode

    module, keys = torchrl_module(shape, kind)
    size = [shape.batch, shape.steps]
    inputs = torch.randn(*size, shape.dim)
    is_init = torch.rand(*size, 1) < reset_rate
    is_init[:, 0] |= reset_rate > 0

    def forward() -> Tensor:
        states = {key: torch.zeros(*size, shape.layers, shape.dim) for key in keys}
        with set_recurrent_mode(True):
            return module(TensorDict({"x": inputs, "is_init": is_init, **states}, size))["y"]

    return training(module, forward)


def torchrl_step(shape: Shape, kind: str) -> Call:
    from tensordict import TensorDict

    module, keys = torchrl_module(shape, kind)
    states = {key: torch.zeros(1, shape.layers, shape.dim) for key in keys}
    inputs, never = torch.randn(1, shape.dim), torch.zeros(1, 1, dtype=torch.bool)

    def step() -> None:
        after = module(TensorDict({"x": inputs, "is_init": never, **states}, [1]))
        states.update({key: after["next", key].float() for key in keys})

    return no_grad(step)


def recurrent_pair(kind: str, reset_rate: float, aim: float | None) -> Pair:
    words = f"with resets at {100 * reset_rate:g} % of steps" if reset_rate else "without resets"
    return Pair(
        f"{kind}{' resets' if reset_rate else ''} / torchrl",
        f"training, {words}: {kind} against torchrl's {KINDS[kind][0]}Module",
        lambda shape: (
            our_training(recurrent(shape, kind), shape, reset_rate),
            torchrl_training(shape, kind, reset_rate),
        ),
        aim,
    )


# -- torch -----------------------------------------------------------------------------------------------------


def torch_lstm_training(shape: Shape, *, loop: bool) -> Call:
    lstm = nn.LSTM(shape.dim, shape.dim, shape.layers)
    inputs = torch.randn(shape.steps, shape.batch, shape.dim)
    is_first = torch.rand(shape.batch, shape.steps) < shape.reset_rate
    return training(lstm, lambda: lstm_loop(lstm, inputs, is_first) if loop else lstm(inputs)[0])


def cells_step(shape: Shape) -> Call:
    cells, inputs = CellStream(nn.LSTM(shape.dim, shape.dim, shape.layers), 1), torch.randn(1, shape.dim)
    return lambda: cells.step(inputs)


# -- x-transformers ----------------------------------------------------------------------------------------------


def x_transformers(shape: Shape, rows: int, steps: int):
    """A gated decoder with relative positions and memories: the network, and a forward call that carries them on."""
    from x_transformers import ContinuousTransformerWrapper, Decoder

    layers = Decoder(
        dim=shape.dim,
        depth=shape.layers,
        heads=shape.heads,
        attn_dim_head=shape.dim // shape.heads,
        gate_residual=True,
        rel_pos_bias=True,
    )
    network = ContinuousTransformerWrapper(
        dim_in=shape.dim,
        dim_out=shape.dim,
        max_seq_len=shape.steps,
        max_mem_len=shape.memory,
        use_abs_pos_emb=False,
        attn_layers=layers,
    )
    inputs = torch.randn(rows, steps, shape.dim)
    memories = [torch.randn(rows, shape.memory, shape.dim) for _ in range(shape.layers)]

    def forward() -> Tensor:
        outputs, inside = network(inputs, mems=list(memories), return_intermediates=True)
        # The wrapper returns the hidden states of this call only; the window is kept here.
        for layer, hidden in enumerate(inside.hiddens[: shape.layers]):
            joined = torch.cat((memories[layer], hidden.detach().float()), 1)
            memories[layer] = joined[:, -shape.memory :]
        return outputs

    return network, forward


def x_transformers_step(shape: Shape) -> Call:
    network, forward = x_transformers(shape, 1, 1)
    network.eval()
    return no_grad(forward)


# -- htm-pytorch -------------------------------------------------------------------------------------------------


def hierarchical(shape: Shape, rows: int, steps: int, *, train: bool) -> Call:
    """Our hierarchical attention of one layer over given chunks."""
    attention = HierarchicalAttention(shape.dim, shape.heads, shape.top_k)
    queries = torch.randn(rows, steps, shape.dim)
    contents = torch.randn(rows, shape.chunks, shape.chunk, shape.dim)
    norm = nn.LayerNorm(shape.dim)
    both = nn.ModuleList((attention, norm))

    def forward() -> Tensor:
        return attention(norm(queries), contents.mean(2), contents)

    return training(both, forward) if train else no_grad(forward)


def htm_block(shape: Shape, rows: int, steps: int, *, train: bool) -> Call:
    from htm_pytorch import HTMBlock

    block = HTMBlock(
        dim=shape.dim,
        heads=shape.heads,
        dim_head=shape.dim // shape.heads,
        topk_mems=shape.top_k,
        mem_chunk_size=shape.chunk,
    )
    queries = torch.randn(rows, steps, shape.dim)
    memories = torch.randn(rows, shape.chunks * shape.chunk, shape.dim)
    return training(block, lambda: block(queries, memories)) if train else no_grad(lambda: block(queries, memories))


PAIRS = [
    recurrent_pair("lstm", 1 / 50, 1.5),
    recurrent_pair("lstm", 0.0, None),
    recurrent_pair("gru", 1 / 50, None),
    Pair(
        "lstm resets / nn.LSTM",
        "training: lstm with resets at 2 % of steps against nn.LSTM, which has none",
        lambda s: (our_training(recurrent(s, "lstm"), s, s.reset_rate), torch_lstm_training(s, loop=False)),
    ),
    Pair(
        "lstm resets / loop",
        "training with resets: lstm against nn.LSTM stepped in a loop",
        lambda s: (our_training(recurrent(s, "lstm"), s, s.reset_rate), torch_lstm_training(s, loop=True)),
    ),
    Pair(
        "transformer-xl / x-transformers",
        "training: gated transformer-xl, memory 256, against x-transformers' gated decoder",
        lambda s: (our_training(xl(s), s, 0.0), training(*x_transformers(s, s.batch, s.steps))),
        1.5,
    ),
    Pair(
        "hcam layer / htm-pytorch",
        "training: hierarchical attention of one layer against HTMBlock",
        lambda s: (hierarchical(s, s.batch, s.steps, train=True), htm_block(s, s.batch, s.steps, train=True)),
        10.0,
    ),
    Pair(
        "step lstm / torchrl",
        "stream step: lstm against torchrl's LSTMModule",
        lambda s: (our_step(recurrent(s, "lstm"), s), torchrl_step(s, "lstm")),
    ),
    Pair(
        "step lstm / cells",
        "stream step: lstm against four nn.LSTMCell",
        lambda s: (our_step(recurrent(s, "lstm"), s), cells_step(s)),
        1.0,
    ),
    Pair(
        "step transformer-xl / x-transformers",
        "stream step: gated transformer-xl, memory 256, against x-transformers with 256 memories",
        lambda s: (our_step(xl(s), s), x_transformers_step(s)),
        6.0,
    ),
    Pair(
        "step hcam layer / htm-pytorch",
        "one query: hierarchical attention of one layer against HTMBlock",
        lambda s: (hierarchical(s, 1, 1, train=False), htm_block(s, 1, 1, train=False)),
    ),
]

if __name__ == "__main__":
    chosen = arguments(__doc__, PAIRS)
    report(measure_pairs(PAIRS, chosen), "peers", chosen.output)
