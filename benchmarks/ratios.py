"""Our cores against the plain form of the same computation, and against peers, as ratios measured in turns.

    python benchmarks/ratios.py [--only WORD ...] [--precision f32 bf16] [--threads 2] [--quick]

Forms: see ``reference_forms.py``. The pairs of ``peers.py`` that have an aim are measured too.
"""

import torch
from torch import nn

import source_tree  # noqa: F401
from pairs import Call, Pair, Shape, arguments, measure_pairs, report, training
from peers import PAIRS as PEERS
from peers import no_grad, our_step, xl
from recollect.cores import CORES
from recollect.cores.contract import MemoryCore
from recollect.cores.hcam.attention import HierarchicalAttention
from reference_forms import chunk_loop, gather_and_project, turing_loop


def hcam(shape: Shape) -> MemoryCore:
    """Hierarchical chunk memory at the shape of the comparison."""
    return CORES["hcam"](
        dim=shape.dim,
        num_layers=shape.layers,
        num_heads=shape.heads,
        memory_len=shape.memory,
        chunk_len=shape.chunk,
        num_chunks=shape.chunks,
        top_k=shape.top_k,
    ).build(shape.dim)


def chunk_attention(shape: Shape, rows: int, steps: int, *, train: bool) -> tuple[Call, Call]:
    """One layer over given chunks: ours, and gathering and projecting them for every query."""
    attention = HierarchicalAttention(shape.dim, shape.heads, shape.top_k)
    queries = torch.randn(rows, steps, shape.dim)
    contents = torch.randn(rows, shape.chunks, shape.chunk, shape.dim)
    ours = lambda: attention(queries, contents.mean(2), contents)  # noqa: E731
    other = lambda: gather_and_project(attention, queries, contents.mean(2), contents)  # noqa: E731
    if not train:
        return no_grad(ours), no_grad(other)
    return training(attention, ours), training(attention, other)


def projecting(core: MemoryCore) -> MemoryCore:
    """The core with hierarchical attention that projects all stored steps at every call, however few its queries."""
    for module in core.modules():
        if isinstance(module, HierarchicalAttention):
            module.form = lambda steps, memory: "project"
    return core


def bottleneck(shape: Shape, chunk: int):
    """The text configuration of the temporal latent bottleneck, for whole sequences."""
    return CORES["tlb"](
        dim=shape.text_dim,
        num_layers=2,
        num_heads=4,
        self_per_cross=2,
        chunk_len=chunk,
        num_slots=10,
        causal=False,
    ).build(shape.text_dim)


def bottleneck_training(shape: Shape, chunk: int, *, literal: bool) -> Call:
    core = bottleneck(shape, chunk)
    inputs = torch.randn(shape.text_batch, shape.text_steps, shape.text_dim)
    return training(core, (lambda: chunk_loop(core, inputs)[1]) if literal else (lambda: core.encode(inputs)[1].slots))


def transformer_training(shape: Shape) -> Call:
    """Four layers of full attention in torch's fused form, at the width of the bottleneck."""
    layer = nn.TransformerEncoderLayer(
        shape.text_dim, 4, 4 * shape.text_dim, 0.0, "gelu", batch_first=True, norm_first=True
    )
    network = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    inputs = torch.randn(shape.text_batch, shape.text_steps, shape.text_dim)
    return training(network, lambda: network(inputs))


def turing(shape: Shape, *, train: bool) -> tuple[Call, Call]:
    """The Token Turing Machine of the paper's size: ours and the literal loop, on the same parameters."""
    core = CORES["ttm"](
        dim=shape.dim,
        num_tokens=shape.tokens,
        num_slots=shape.slots,
        num_reads=shape.reads,
        num_layers=shape.layers,
        num_heads=shape.heads,
    ).build(shape.dim)
    inputs = torch.randn(1, shape.frames, shape.tokens, shape.dim)
    never = torch.zeros(1, shape.frames, dtype=torch.bool)
    state = core.initial_state(1)
    ours = lambda: core(inputs, state, never)[0]  # noqa: E731
    other = lambda: turing_loop(core, inputs, state.memory)[0]  # noqa: E731
    return (training(core, ours), training(core, other)) if train else (no_grad(ours), no_grad(other))


def bottleneck_pairs(chunk: int, loop: float, fused: float) -> list[Pair]:
    return [
        Pair(
            f"tlb K {chunk} / chunk loop",
            f"training, T 4000, d 256, K {chunk}: tlb against the literal loop over chunks",
            lambda s: (
                bottleneck_training(s, chunk, literal=False),
                bottleneck_training(s, chunk, literal=True),
            ),
            loop,
        ),
        Pair(
            f"tlb K {chunk} / Transformer",
            f"training, T 4000, d 256, K {chunk}: tlb against 4 layers of fused full attention",
            lambda s: (bottleneck_training(s, chunk, literal=False), transformer_training(s)),
            fused,
        ),
    ]


OWN = [
    Pair(
        "hcam layer / gather",
        "training: hierarchical attention against gathering and projecting k chunks per query",
        lambda s: chunk_attention(s, s.batch, s.steps, train=True),
        5.0,
    ),
    Pair(
        "step transformer-xl / re-projecting",
        "stream step: gated transformer-xl, memory 256, against projecting the cached window again",
        lambda s: (our_step(xl(s), s), our_step(xl(s), s, plain=True)),
        6.0,
    ),
    Pair(
        "step hcam / re-projecting",
        "stream step: hcam against projecting the cached window and all stored chunks again",
        lambda s: (our_step(hcam(s), s), our_step(projecting(hcam(s)), s, plain=True)),
        6.0,
    ),
    *bottleneck_pairs(10, 2.0, 2.5),
    *bottleneck_pairs(100, 2.0, 5.0),
    Pair(
        "ttm / literal loop",
        "training, n 3136, m 96, r 16: ttm against read, process, write over all tokens",
        lambda s: turing(s, train=True),
        1.5,
    ),
    Pair(
        "ttm forward / literal loop",
        "forward, n 3136, m 96, r 16: ttm against read, process, write over all tokens",
        lambda s: turing(s, train=False),
        1.5,
    ),
]
PAIRS = [*(pair for pair in PEERS if pair.aim is not None), *OWN]

if __name__ == "__main__":
    chosen = arguments(__doc__, PAIRS)
    report(measure_pairs(PAIRS, chosen), "ratios", chosen.output)
