"""The foundation under all cores, with an LSTM as the vehicle."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from recollect import state as trees
from recollect.certify.loading import from_config, small_config
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.cores.hcam import ChunkAttentionVariant, HierarchicalChunkMemoryConfig
from recollect.cores.instructed import InstructedTransformerConfig
from recollect.cores.memoryless import MemorylessConfig
from recollect.cores.mott.config import SpatialAttentionMemoryConfig
from recollect.cores.recurrent import GRUConfig, LSTMConfig, LSTMState
from recollect.cores.stream import Stream
from recollect.cores.tlb import TemporalLatentBottleneckConfig, TemporalLatentBottleneckVariant


def core_of(dim=6, input_dim=5, **options):
    return LSTMConfig(dim=dim, **options).build(input_dim)


def good(core, b=2, t=3):
    return torch.randn(b, t, 5), core.initial_state(b), torch.zeros(b, t, dtype=torch.bool)


WRONG = [
    # what replaces (inputs, state, is_first), then field, value and remedy as the message must say them
    ({"inputs": torch.zeros(2, 5)}, ["inputs", "[2, 5]", "LSTM takes [b, t, 5]", "inputs[:, None]"]),
    ({"inputs": torch.zeros(2, 3, 4)}, ["inputs", "[2, 3, 4]", "LSTM takes [b, t, 5]", "another input_dim"]),
    ({"inputs": torch.zeros(2, 3, 5).long()}, ["inputs", "torch.int64", "encode or cast"]),
    ({"inputs": torch.zeros(2, 3, 5).double()}, ["torch.float64", "torch.float32", "inputs.to(torch.float32)"]),
    ({"inputs": torch.zeros(2, 0, 5)}, ["inputs", "[2, 0, 5]", "at least one step"]),
    ({"is_first": torch.zeros(2, 3)}, ["is_first", "torch.float32", "is_first.bool()"]),
    ({"is_first": None}, ["is_first", "NoneType", "is_first.bool()"]),
    ({"is_first": torch.zeros(2, 4).bool()}, ["is_first", "[2, 4]", "LSTM takes [2, 3]"]),
    ({"is_first": torch.zeros(2, 3, device="meta").bool()}, ["is_first", "meta", "cpu", "move one"]),
    ({"state": None}, ["state", "NoneType", "core.initial_state(2)"]),
    ({"state": torch.zeros(2, 6)}, ["state", "Tensor", "core.initial_state(2)"]),
    ({"state": GRUConfig(dim=6).build(5).initial_state(2)}, ["GRUState", "another core", "core.initial_state(2)"]),
    (
        {"state": LSTMState((torch.zeros(2), torch.zeros(2)), torch.zeros(2))},
        ["['h.0', 'h.1', 'c']", "['h', 'c']", "core.initial_state(2)"],
    ),
    ({"state": core_of().initial_state(4)}, ["state.h", "[4, 2, 6]", "the batch is 2", "take_rows"]),
    ({"state": core_of(dim=7).initial_state(2)}, ["state.h", "[2, 2, 7]", "[2, 2, 6]", "another config"]),
    ({"state": trees.to(core_of().initial_state(2), "meta")}, ["state.h", "meta", "cpu", "state.to(device)"]),
    (
        {"state": trees.to(core_of().initial_state(2), torch.float64)},
        ["state.h", "torch.float64", "torch.float32", "core.initial_state(2)", "state.to(state, torch.float32)"],
    ),
    (
        {"state": LSTMState(torch.zeros(2, 2, 6), torch.zeros(2, 2, 6).long())},
        ["state.c", "torch.int64", "torch.float32", "core.initial_state(2)"],
    ),
]


def test_a_core_of_tokens_that_is_given_one_vector_a_step_says_how():
    first = torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=re.escape("num_tokens=1, give inputs[:, :, None]")):
        core = CORES["ttm"](dim=8).build(5)
        core(torch.zeros(2, 3, 5), core.initial_state(2), first)
    core = CORES["ttm"](dim=8, num_tokens=1).build(5)
    assert core(torch.zeros(2, 3, 5)[:, :, None], core.initial_state(2), first)[0].isfinite().all()
    with pytest.raises(ValueError, match=re.escape("add the batch or time axis")):
        core(torch.zeros(2, 1, 5), core.initial_state(2), first)  # a step without its time axis


@pytest.mark.parametrize(("wrong", "parts"), WRONG, ids=lambda value: None)
def test_bad_input_names_field_value_and_remedy(wrong, parts):
    core = core_of()
    inputs, state, is_first = good(core)
    call = {"inputs": inputs, "state": state, "is_first": is_first} | wrong
    with pytest.raises(ValueError) as error:
        core(**call)
    assert [part for part in parts if part not in str(error.value)] == []


@pytest.mark.parametrize("value", [8.5, 8.0, True, "8", None])
def test_a_size_that_is_no_whole_number_is_named(value):
    for config in CORES.values():
        with pytest.raises(ValueError, match=rf"^dim={re.escape(repr(value))}: give a whole number$"):
            config(dim=value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GRUConfig(dropout=None), "dropout=None: give a finite number"),
        (lambda: GRUConfig(gate_stretch=True), "gate_stretch=True: give a finite number"),
        (lambda: HierarchicalChunkMemoryConfig(dropout="0.1"), "dropout='0.1': give a finite number"),
        (lambda: HierarchicalChunkMemoryConfig(carry_across_episodes=1), "carry_across_episodes=1: give True or False"),
        (lambda: ChunkAttentionVariant(initial_scale="1"), "initial_scale='1': give a finite number"),
        (lambda: ChunkAttentionVariant(initial_scale=math.inf), "initial_scale=inf: give a finite number"),
        (lambda: TemporalLatentBottleneckConfig(details="released"), "details='released': give a TemporalLatent"),
        (lambda: MemorylessConfig(activation=["relu"]), "activation=['relu']: choose one of 'relu', 'gelu', 'gelu_t"),
        (lambda: SpatialAttentionMemoryConfig(grid=5), "grid=5: give a tuple of 2 whole numbers"),
        (lambda: SpatialAttentionMemoryConfig(grid=(2.0, 1)), "grid=(2.0, 1): give a tuple of 2 whole numbers"),
        (lambda: SpatialAttentionMemoryConfig(grid="11"), "grid='11': give a tuple of 2 whole numbers"),
        (lambda: InstructedTransformerConfig(details=None), "details=None: give a TemporalLatentBottleneckVariant"),
        (lambda: TemporalLatentBottleneckVariant(head_dim=2.5), "head_dim=2.5: give a whole number or None"),
        (
            lambda: TemporalLatentBottleneckVariant(attention_dropout="no"),
            "attention_dropout='no': give a finite number or None",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_of_another_kind_is_named(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make()


def test_sizes_may_come_from_numpy_and_some_may_be_none():
    assert GRUConfig(dim=np.int64(8)).build(np.int64(5)).output_shape == (8,)
    assert MemorylessConfig(hidden_dim=None).hidden_dim is None
    assert MemorylessConfig(dropout=np.float32(0.5)).build(3).output_shape == (128,)
    with pytest.raises(ValueError, match=r"hidden_dim=2\.5: give a whole number or None"):
        MemorylessConfig(hidden_dim=2.5)


@pytest.mark.parametrize("key", CORES)
def test_a_core_has_inputs_and_no_negative_number_of_streams(key):
    for width in (0, -1, 8.5, True):
        with pytest.raises(ValueError, match=f"^input_dim={width}: give the width of one input"):
            CORES[key]().build(width)
    core = CORES[key]().build(input_dim=288 if key == "spatio-temporal" else 32)
    with pytest.raises(ValueError, match=r"^batch_size=-1: give the number of streams"):
        core.initial_state(-1)
    for number in (-1, 0):
        with pytest.raises(ValueError, match=f"^batch_size={number}: a stream needs at least one row"):
            core.stream(number)
    assert all(len(leaf) == 0 for leaf in trees.leaves(core.initial_state(0)))


@pytest.mark.parametrize("key", CORES)
def test_a_batch_of_no_rows_gives_nothing_and_goes_on(key):
    core = CORES[key]().build(input_dim=288 if key == "spatio-temporal" else 32)
    state, is_first = core.initial_state(0), torch.zeros(0, 5, dtype=torch.bool)
    for _ in range(2):
        inputs = torch.randn(0, 5, *core.input_shape, requires_grad=True)
        outputs, state = core(inputs, trees.detach(state), is_first)
        outputs.sum().backward()
        assert outputs.shape == (0, 5, *core.output_shape)
        assert inputs.grad is not None
    core.check_state(state, 0, torch.device("cpu"))


def lifelong(rows):
    config = HierarchicalChunkMemoryConfig(dim=8, num_heads=2, chunk_len=3, memory_len=4)
    return config.build(5).lifelong_stream(rows, capacity_steps=30)


@pytest.mark.parametrize("make", [lambda rows: core_of().stream(rows), lifelong], ids=["own", "lifelong"])
@pytest.mark.parametrize("rows", [[5], [-3], [0.5], [True], [True, False, True], 2])
def test_a_stream_resets_only_rows_that_it_has(make, rows):
    stream = make(2)
    with pytest.raises(ValueError, match=r"^rows=.*: this stream has 2 rows, name some of 0 to 1, or give a mask"):
        stream.reset(rows)
    stream.reset([])
    stream.reset([-1])


def test_under_autocast_any_float_is_welcome():
    core = core_of()
    inputs, state, is_first = good(core)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, new = core(inputs.bfloat16(), state, is_first)
    assert outputs.dtype == torch.bfloat16
    assert [leaf.dtype for leaf in new] == [torch.float32] * 2


def test_autocast_does_not_convert_float64():
    core = CORES["memoryless"](dim=6).build(5)
    inputs, state, is_first = good(core)
    message = "inputs are torch.float64; {} computes in torch.float32: give inputs.to"
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match=message.format("Memoryless")):
            core(inputs.double(), state, is_first)
        with pytest.raises(ValueError, match=message.format("this stream")):
            core.stream(2).step(inputs[:, 0].double())


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("gru", {"learned_initial_state": True}),
        ("tlb", {"num_heads": 2}),
        ("instructed", {"num_heads": 2, "words": 1}),
        ("ttm", {"num_heads": 2, "learned_initial_state": True}),
    ],
)
def test_a_program_exported_with_the_initial_state_goes_on_with_what_it_returns(key, settings):
    core = CORES[key](dim=8, **settings).build(40).eval()
    frames, first = torch.randn(3, 1, 1, *core.input_shape), torch.zeros(1, 1, dtype=torch.bool)
    with torch.no_grad():
        got = want = core.initial_state(1)
        program = torch.export.export(core, (frames[0], got, first)).module()
        for frame in frames:
            (said, got), (expected, want) = program(frame, got, first), core(frame, want, first)
            torch.testing.assert_close(said, expected)


def test_a_core_in_double_takes_doubles():
    core = core_of().double()
    inputs, state, is_first = good(core)
    assert core(inputs.double(), state, is_first)[0].dtype == torch.float64
    with pytest.raises(ValueError, match=r"inputs are torch.float32; LSTM computes in torch.float64: give inputs.to"):
        core(inputs, state, is_first)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_step_that_is_not_finite_shows_at_once_and_is_remembered_as_zeros(value):
    core = core_of().double()
    inputs, state, is_first = (
        x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in good(core, t=4)
    )
    zeroed = inputs.clone()
    zeroed[0, 1] = 0.0
    inputs[0, 1, 3] = value
    inputs.requires_grad_()
    outputs, new = core(inputs, state, is_first)
    want, end = core(zeroed, state, is_first)
    assert outputs[0, 1].isnan().all()
    shown = torch.ones(2, 4, dtype=torch.bool)
    shown[0, 1] = False
    assert torch.equal(outputs[shown], want[shown])
    assert all(torch.equal(a, b) for a, b in zip(new, end, strict=True))
    gradients = torch.autograd.grad(outputs[shown].sum(), [inputs, *core.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert gradients[0][0, 1].eq(0).all()
    stream = core.stream(2)
    steps = [stream.step(inputs[:, step].detach()) for step in range(4)]
    torch.testing.assert_close(torch.stack(steps, 1), outputs, equal_nan=True)


@pytest.mark.parametrize("value", [1e19, 1e30, 3e38])
@pytest.mark.parametrize("key", CORES)
def test_a_state_of_finite_numbers_that_are_too_large_ends_at_a_reset(key, value):
    """Products of them overflow, and a mask that is a product with 0 makes NaN of that."""
    core = from_config(small_config(CORES[key]), name=key, input_dim=32 if key == "spatio-temporal" else 10).core.eval()
    inputs, never = torch.randn(2, 12, *core.input_shape), torch.zeros(2, 12, dtype=torch.bool)
    _, used = core(inputs, core.initial_state(2), never)

    def enlarge(leaf):
        large = value * torch.empty_like(leaf).uniform_(-1, 1) if leaf.is_floating_point() else leaf
        return large.detach().requires_grad_(leaf.is_floating_point())

    for reset in (0,) if value < 1e20 else (0, 7):
        state, first = trees.map_state(enlarge, used), never.clone()
        first[:, reset] = True
        outputs, after = core(inputs, state, first)
        want, end = core(inputs[:, reset:], core.initial_state(2), first[:, reset:])
        torch.testing.assert_close(
            [outputs[:, reset:], *trees.leaves(after)], [want, *trees.leaves(end)], rtol=1e-4, atol=1e-4
        )
        large = [leaf for leaf in trees.leaves(state) if leaf.requires_grad]
        found = torch.autograd.grad(outputs[:, reset:].sum(), [*core.parameters(), *large], materialize_grads=True)
        assert all(gradient.isfinite().all() for gradient in found)
        assert not any(gradient.any() for gradient in found[len(found) - len(large) :])


def test_reset_takes_the_initial_state_for_the_named_rows():
    core = core_of(learned_initial_state=True)
    nn.init.normal_(core.initial["h"])
    state = trees.map_state(torch.randn_like, core.initial_state(3))
    new = core.reset(torch.tensor([False, True, False]), state)
    assert torch.equal(new.h[1], core.initial["h"])
    assert torch.equal(new.h[[0, 2]], state.h[[0, 2]])


def streams():
    core = core_of()
    return [pytest.param(lambda b: Stream(core, b), id="plain"), pytest.param(core.stream, id="own")]


@pytest.mark.parametrize("make", streams())
def test_a_stream_refuses_what_it_cannot_take(make):
    with pytest.raises(ValueError, match="batch_size=0"):
        make(0)
    stream = make(2)
    with pytest.raises(ValueError, match=re.escape("inputs have shape [5]; a step of this stream takes [2, 5]")):
        stream.step(torch.zeros(5))
    with pytest.raises(ValueError, match=re.escape("inputs are torch.float64; this stream computes in torch.float32")):
        stream.step(torch.zeros(2, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match=re.escape("is_first has dtype torch.float32: give bools")):
        stream.step(torch.zeros(2, 5), torch.zeros(2))
    with pytest.raises(ValueError, match=re.escape("is_first has shape [3]; this stream takes [2]")):
        stream.step(torch.zeros(2, 5), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="the batch is 2"):
        stream.load_state(stream.core.initial_state(3))


@pytest.mark.parametrize("make", streams())
def test_a_fork_has_the_memory_and_goes_its_own_way(make):
    stream = make(2)
    stream.step(torch.randn(2, 5))
    before = stream.state
    twin = stream.fork()
    x = torch.randn(2, 5)
    torch.testing.assert_close(twin.step(x), stream.core(x[:, None], before, torch.zeros(2, 1).bool())[0][:, 0])
    assert all(torch.equal(a, b) for a, b in zip(stream.state, before, strict=True))


@pytest.mark.parametrize("make", streams())
@pytest.mark.parametrize("rows", [[1], torch.tensor([False, True, False]), torch.tensor([1])])
def test_reset_forgets_the_named_rows_or_all(make, rows):
    stream = make(3)
    stream.step(torch.randn(3, 5))
    before = stream.state
    stream.reset(rows)
    for leaf, old in zip(stream.state, before, strict=True):
        assert leaf[1].eq(0).all() and torch.equal(leaf[[0, 2]], old[[0, 2]])
    stream.reset()
    assert all(leaf.eq(0).all() for leaf in stream.state)


@pytest.mark.parametrize("make", streams())
def test_save_and_load_continue_and_refuse_others(make, tmp_path):
    path = tmp_path / "memory.safetensors"
    stream = make(2)
    stream.step(torch.randn(2, 5))
    stream.save(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    other = make(2)
    other.load(path)
    assert all(torch.equal(a, b) for a, b in zip(other.state, stream.state, strict=True))
    x = torch.randn(2, 5)
    assert torch.equal(other.step(x), stream.step(x))
    with pytest.raises(ValueError, match=r"holds \['c', 'h'\].*GRU stream needs \['h'\].*another core"):
        GRUConfig(dim=6).build(5).stream(2).load(path)
    with pytest.raises(ValueError, match="the batch is 3"):
        make(3).load(path)


@pytest.mark.parametrize("make", streams())
def test_a_stream_gives_no_gradient_and_its_outputs_and_states_are_copies(make):
    stream = make(2)
    first = stream.step(torch.randn(2, 5))
    kept, state = first.clone(), stream.state
    frozen = trees.clone(state)
    size = stream.nbytes
    for _ in range(5):
        stream.step(torch.randn(2, 5))
    assert not first.requires_grad
    assert torch.equal(first, kept)
    assert all(torch.equal(a, b) for a, b in zip(state, frozen, strict=True))
    assert stream.nbytes == size >= trees.nbytes(state)


@pytest.mark.parametrize("key", CORES)
def test_under_float16_an_input_that_is_too_large_for_it_breaks_its_own_step_alone(key):
    torch.manual_seed(0)
    core = from_config(small_config(CORES[key]), name=key).core.eval()
    inputs = torch.randn(2, 12, *core.input_shape)
    inputs[0, 3] = 1e5
    is_first = torch.zeros(2, 12, dtype=torch.bool)
    is_first[0, 9] = True
    with torch.autocast("cpu", torch.float16):
        called, _ = core(inputs, core.initial_state(2), is_first)
        stream = core.stream(2)
        streamed = torch.stack([stream.step(inputs[:, t], is_first[:, t]) for t in range(12)], 1)
    for outputs in (called, streamed):
        finite = outputs.isfinite().flatten(2).all(-1)
        assert finite[1].all() and (~finite[0]).nonzero().flatten().tolist() == [3]


def test_a_core_of_ones_own_without_a_method_is_told_which():
    class Unfinished(MemoryCore):
        def initial_state(self, batch_size):
            return (torch.zeros(batch_size, 2),)

        def unroll(self, inputs, state, is_first):
            return inputs, state

    class UnfinishedConfig(CoreConfig):
        def build(self, input_dim):
            return Unfinished()

    with pytest.raises(ValueError, match=r"flops_per_step'?: define it; a core has initial_state, unroll and"):
        UnfinishedConfig().build(5)
