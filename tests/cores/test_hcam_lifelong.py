import dataclasses
import errno
import os

import pytest
import torch
from samples import hcam as samples

from recollect.cores.hcam import ChunkAttentionVariant, HierarchicalChunkMemoryConfig
from recollect.cores.hcam import lifelong as module
from recollect.cores.hcam import reference as plain
from recollect.cores.hcam.chunk_store import FileStore
from recollect.layers.tap import listen
from recollect.state import leaves, named_leaves
from tiers import first

PLAIN = HierarchicalChunkMemoryConfig(**samples.TINY)
CARRY = dataclasses.replace(PLAIN, carry_across_episodes=True)


def make(config, input_dim=5):
    """A core in float64 whose norms and biases are not at their special start values."""
    core = config.build(input_dim).double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return core


def lifelong(core, batch, **options):
    """A lifelong stream that holds as many chunks as the core's own."""
    return core.lifelong_stream(batch, core.config.num_chunks * core.config.stride, **options)


def data(batch, steps, rate=0.1, input_dim=5):
    return torch.randn(batch, steps, input_dim, dtype=torch.float64), torch.rand(batch, steps) < rate


def stepped(stream, inputs, is_first):
    return torch.stack([stream.step(x, f) for x, f in zip(inputs.unbind(1), is_first.unbind(1), strict=True)], 1)


def grown(state, chunks):
    """The state of a core with ``chunks`` chunks: missing ones are zeros before the others."""

    def pad(leaf):
        return torch.cat((leaf.new_zeros(leaf.shape[0], chunks - leaf.shape[1], *leaf.shape[2:]), leaf), 1)

    layers = tuple(layer._replace(contents=pad(layer.contents), keys=pad(layer.keys)) for layer in state.layers)
    return state._replace(layers=layers, lengths=pad(state.lengths))


def assert_same(one, other):
    for (name, leaf), (_, wanted) in zip(named_leaves(one), named_leaves(other), strict=True):
        torch.testing.assert_close(leaf, wanted, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("config", first(4, samples.CONFIGS), ids=str)
@pytest.mark.parametrize("on_disk", first(1, [False, True]))
def test_equals_the_core_in_outputs_and_memory_with_resets_and_eviction(config, on_disk, tmp_path):
    config = dataclasses.replace(config, dropout=0.0)
    core = make(config)
    inputs, is_first = data(3, 60, 0.05)
    is_first[0, 1:] = False  # one row goes on for long after its memory is full
    stream = lifelong(core, 3, folder=tmp_path if on_disk else None)
    with torch.no_grad():
        wanted, state = core(inputs, core.initial_state(3), is_first)
    torch.testing.assert_close(stepped(stream, inputs, is_first), wanted)
    assert max(stream.held) == stream.num_chunks == config.num_chunks
    assert_same(stream.state, state)


@pytest.mark.parametrize("config", first(4, samples.CONFIGS), ids=str)
def test_extending_is_stepping(config, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT", 2)  # shorter than a chunk and longer than one, by config
    core = make(dataclasses.replace(config, dropout=0.0))
    inputs, is_first = data(3, 50)
    one, other, begin = lifelong(core, 3), lifelong(core, 3), 0
    for size in (1, 7, 2, 20, 5, 15):  # all but the last step of each part are extended: the two forms take turns
        part, first = inputs[:, begin : begin + size], is_first[:, begin : begin + size]
        other.extend(part[:, :-1], first[:, :-1])
        wanted = stepped(one, part, first)[:, -1:]
        torch.testing.assert_close(stepped(other, part[:, -1:], first[:, -1:]), wanted)
        assert_same(one.state, other.state)
        begin += size


def test_long_segments_extend_like_short_ones():
    core = make(dataclasses.replace(PLAIN, memory_len=80, chunk_len=70, num_chunks=3))
    inputs, _ = data(2, 300)
    one, other = lifelong(core, 2), lifelong(core, 2)
    one.extend(inputs)
    for part in inputs.split(41, 1):
        other.extend(part)
    assert_same(one.state, other.state)
    with torch.no_grad():
        _, state = core(inputs, core.initial_state(2), torch.zeros(2, 300, dtype=torch.bool))
    assert_same(one.state, state)


@pytest.mark.parametrize("config", [PLAIN, CARRY], ids=["plain", "carry"])
def test_a_core_trained_with_few_chunks_lives_with_many(config):
    core = make(config)
    many = dataclasses.replace(config, num_chunks=200).build(5).double().eval()
    many.load_state_dict(core.state_dict())
    inputs, is_first = data(2, 500, 0.004)
    stream = core.lifelong_stream(2, 600)
    stream.extend(inputs[:, :-5], is_first[:, :-5])
    with torch.no_grad():
        wanted, state = many(inputs, many.initial_state(2), is_first)
    torch.testing.assert_close(stepped(stream, inputs[:, -5:], is_first[:, -5:]), wanted[:, -5:])
    assert_same(grown(stream.state, 200), state)


def test_the_oldest_chunk_gives_way():
    core = make(PLAIN)  # chunks of 3 steps
    stream = core.lifelong_stream(1, 10)
    assert stream.num_chunks == 3
    inputs, _ = data(1, 14)
    stream.extend(inputs)
    kept = stream.state.layers[0].contents[0].flatten(0, 1)
    torch.testing.assert_close(kept, core.project(inputs[0, 3:12]).detach())


@pytest.mark.parametrize("config", [PLAIN, CARRY], ids=["plain", "carry"])
def test_reset_forgets_the_named_rows_only(config):
    core = make(config)
    inputs, _ = data(3, 40)
    stream, alone, fresh = lifelong(core, 3), lifelong(core, 1), lifelong(core, 2)
    stream.extend(inputs[:, :25])
    stream.reset([0, 2])
    alone.extend(inputs[1:2, :25])
    never = torch.zeros(3, 15, dtype=torch.bool)
    outputs = stepped(stream, inputs[:, 25:], never)
    torch.testing.assert_close(outputs[1:2], stepped(alone, inputs[1:2, 25:], never[:1]))
    torch.testing.assert_close(outputs[[0, 2]], stepped(fresh, inputs[[0, 2], 25:], never[:2]))
    stream.reset()
    assert stream.held == [0, 0, 0]
    assert all((leaf == 0).all() for _, leaf in named_leaves(stream.state))


@pytest.mark.parametrize("on_disk", [False, True])
def test_saves_loads_and_forks(on_disk, tmp_path):
    core = make(CARRY)
    options = {"folder": tmp_path} if on_disk else {}
    inputs, is_first = data(2, 60)
    stream = lifelong(core, 2, **options)
    stream.extend(inputs[:, :40], is_first[:, :40])
    stream.save(tmp_path / "memory.safetensors")
    twin, loaded, plain = stream.fork(), lifelong(core, 2, **options), core.stream(2)
    loaded.load(tmp_path / "memory.safetensors")
    plain.load_state(grown(stream.state, core.config.num_chunks))
    wanted = stepped(stream, inputs[:, 40:], is_first[:, 40:])
    for other in (twin, loaded, plain):
        torch.testing.assert_close(stepped(other, inputs[:, 40:], is_first[:, 40:]), wanted)


@pytest.mark.parametrize("steps", [0, 5, 40])
def test_rows_that_are_added_or_loaded_need_not_hold_as_many_chunks(steps, tmp_path):
    core = make(PLAIN)
    inputs, is_first = data(3, 60)
    stream, other, alone = lifelong(core, 1), lifelong(core, 1), lifelong(core, 3)
    stream.extend(inputs[:1, :steps], is_first[:1, :steps])
    other.extend(inputs[1:2, :20])
    alone.load_state(alone.joined([stream.state, core.initial_state(1), other.state]))
    other.save(tmp_path / "memory.safetensors")
    assert list(stream.add_rows(1)) == [1]
    assert list(stream.load_rows(tmp_path / "memory.safetensors")) == [2]
    assert stream.held == alone.held and stream.held[2] > 0
    assert_same(stream.state, alone.state)
    torch.testing.assert_close(
        stepped(stream, inputs[:, 40:], is_first[:, 40:]), stepped(alone, inputs[:, 40:], is_first[:, 40:])
    )


def test_a_smaller_stream_takes_the_newest_chunks_of_a_state(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 2)
    core = make(PLAIN)
    stream, small = core.lifelong_stream(2, 30), core.lifelong_stream(2, 9)
    inputs, _ = data(2, 32)
    stream.extend(inputs)
    small.load_state(stream.state)
    assert small.held == [3, 3]
    torch.testing.assert_close(small.state.layers[0].contents, stream.state.layers[0].contents[:, -3:])
    # A state of another core is refused as everywhere.
    with pytest.raises(ValueError, match=r"window has shape \[2, 4, 8\], this .* needs \[2, 6, 8\]"):
        dataclasses.replace(PLAIN, memory_len=6).build(5).double().lifelong_stream(2, 9).load_state(stream.state)


@pytest.mark.parametrize("config", [PLAIN, CARRY], ids=["plain", "carry"])
def test_a_file_of_more_chunks_than_the_core_has_is_loaded(config, tmp_path):
    core = make(config)
    inputs, is_first = data(2, 60, rate=0.02)
    stream, loaded, small = (core.lifelong_stream(2, steps, folder=tmp_path, keep_file=True) for steps in (90, 90, 9))
    files = sorted(tmp_path.iterdir())
    stream.extend(inputs[:, :50], is_first[:, :50])
    assert max(stream.held) > config.num_chunks
    stream.save(tmp_path / "memory.safetensors")
    loaded.load(tmp_path / "memory.safetensors")
    assert sorted(file for file in tmp_path.iterdir() if file.suffix == ".bin") == files
    rest = inputs[:, 50:], is_first[:, 50:]
    torch.testing.assert_close(stepped(loaded, *rest), stepped(stream, *rest))
    small.load(tmp_path / "memory.safetensors")
    assert small.held == [3, 3]
    with pytest.raises(ValueError, match=r"window has shape \[2, 4, 8\], this .* needs \[2, 6, 8\]"):
        dataclasses.replace(config, memory_len=6).build(5).double().lifelong_stream(2, 9).load(
            tmp_path / "memory.safetensors"
        )


@pytest.mark.parametrize("config", [PLAIN, CARRY], ids=["plain", "carry"])
def test_chunks_that_were_taken_out_of_a_state_leave_a_gap_for_nobody(config):
    core = make(config)
    inputs, never = data(2, 18, rate=0.0)  # up to where the next chunk is complete
    with torch.no_grad():
        _, state = core(inputs[:, :16], core.initial_state(2), never[:, :16])
        lengths = state.lengths.clone()
        lengths[0, 2] = lengths[1, 1] = lengths[1, 3] = 0
        state = state._replace(lengths=lengths)
        wanted, _ = core(inputs[:, 16:], state, never[:, 16:])
    for stream in (core.stream(2), lifelong(core, 2), core.lifelong_stream(2, 90)):
        stream.load_state(state)
        torch.testing.assert_close(stepped(stream, inputs[:, 16:], never[:, 16:]), wanted)


@pytest.mark.parametrize("on_disk", [False, True])
def test_bytes_are_counted_by_place_and_never_change(on_disk, tmp_path):
    core = make(PLAIN)
    stream = core.lifelong_stream(2, 600, folder=tmp_path if on_disk else None)
    contents = 2 * 200 * 2 * 3 * 8 * 8  # b n layers c d bytes
    means = 2 * 200 * 2 * 8 * 8
    before = stream.footprint
    assert before.device == 0
    assert before.disk == (contents if on_disk else 0)
    assert means < before.host - (0 if on_disk else contents) < means + 40_000
    assert stream.nbytes == sum(before)
    pointers = [buffer.data_ptr() for buffer in stream.buffers()]
    stream.extend(data(2, 800)[0])
    assert stream.footprint == before
    assert [buffer.data_ptr() for buffer in stream.buffers()][-2:] == pointers[-2:]
    if on_disk:
        assert isinstance(stream.store, FileStore)
        assert stream.store.disk_bytes <= contents + 2**16


def test_the_file_vanishes_unless_it_is_kept(tmp_path):
    core = make(PLAIN)
    stream = core.lifelong_stream(1, 30_000, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert stream.store.disk_bytes < 30_000
    kept = core.lifelong_stream(1, 30, folder=tmp_path, keep_file=True)
    kept.extend(data(1, 30)[0])
    numbers = torch.frombuffer(bytearray(kept.store.path.read_bytes()), dtype=torch.float64)
    torch.testing.assert_close(numbers.view(10, 2, 3, 8)[:, 1], kept.state.layers[1].contents[0])


def test_half_precision_keeps_the_choice_and_rounds_the_contents():
    core = make(PLAIN)
    exact, rounded = lifelong(core, 1), lifelong(core, 1, dtype=torch.bfloat16)
    inputs, is_first = data(1, 40, 0.0)
    torch.testing.assert_close(stepped(rounded, inputs, is_first), stepped(exact, inputs, is_first), rtol=0.2, atol=0.2)
    torch.testing.assert_close(
        rounded.state.layers[0].contents, exact.state.layers[0].contents.bfloat16().double(), rtol=0, atol=0
    )
    torch.testing.assert_close(rounded.state.layers[0].keys, exact.state.layers[0].keys)
    assert rounded.store.data.nbytes * 4 == exact.store.data.nbytes


def test_broken_frames_are_seen_once_and_not_remembered():
    core = make(PLAIN)
    inputs, is_first = data(2, 30, 0.0)
    clean = inputs.clone()
    inputs[0, 4, 2], clean[0, 4] = torch.nan, 0.0
    one, other, third = lifelong(core, 2), lifelong(core, 2), lifelong(core, 2)
    outputs, wanted = stepped(one, inputs, is_first), stepped(other, clean, is_first)
    assert outputs[0, 4].isnan().all()
    wanted[0, 4] = torch.nan
    torch.testing.assert_close(outputs, wanted, equal_nan=True)
    third.extend(inputs)
    assert_same(third.state, other.state)


@pytest.mark.parametrize("relevance", ["topk_softmax", "full_softmax"])
def test_what_stood_in_a_file_before_a_reset_has_no_part(relevance, tmp_path):
    core = make(dataclasses.replace(PLAIN, reading=ChunkAttentionVariant(relevance=relevance)))
    stream = lifelong(core, 2, folder=tmp_path)
    inputs, is_first = data(2, 30, 0.0)
    stream.extend(1e6 * inputs)
    is_first[0, 0] = True  # row 1 keeps its chunks, so that row 0 must not look where they end
    torch.testing.assert_close(
        stepped(stream, inputs, is_first)[:1], stepped(lifelong(core, 1), inputs[:1], is_first[:1])
    )


@pytest.mark.parametrize("apart", [False, True])
def test_taps_show_the_held_chunks_and_change_nothing(apart):
    core = make(dataclasses.replace(PLAIN, reading=ChunkAttentionVariant(relevance_heads=apart)))
    inputs, is_first = data(2, 40, 0.0)
    is_first[1, 30] = True
    stream, other = lifelong(core, 2), core.stream(2)
    seen, wanted = [], []
    with listen(core, lambda name, tensor: seen.append((name, tensor))):
        shown = stepped(stream, inputs, is_first)
    with listen(core, lambda name, tensor: wanted.append((name, tensor))):
        stepped(other, inputs, is_first)
    torch.testing.assert_close(shown, stepped(lifelong(core, 2), inputs, is_first))
    n = core.config.num_chunks
    for (name, tensor), (same, full) in zip(seen[-8:], wanted[-8:], strict=True):
        assert name == same
        if name.endswith("relevance_tap"):
            assert tensor.shape == ((2, core.config.num_heads, 1, n) if apart else (2, 1, n))
            torch.testing.assert_close(tensor, full)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity_steps": 2}, "capacity_steps=2: give at least the 3 steps"),
        ({"capacity_steps": 1e6}, "capacity_steps=1000000.0: give a whole number of steps"),
        ({"batch_size": 0}, "batch_size=0: a stream needs at least one row"),
        ({"dtype": torch.float16}, r"dtype=torch.float16: choose None \(torch.float64, exact\)"),
        ({"keep_file": True}, "keep_file=True: there is no file without a folder"),
        ({"folder": "/proc/nowhere"}, "folder='/proc/nowhere': no file can be made there"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(PLAIN).lifelong_stream(**options)


def test_arrays_extend_as_tensors_do():
    inputs, is_first = torch.randn(2, 9, 5, dtype=torch.float64), torch.rand(2, 9) < 0.3
    core = make(PLAIN)
    given, wanted = lifelong(core, 2), lifelong(core, 2)
    given.extend(inputs.numpy(), is_first.numpy())
    wanted.extend(inputs, is_first)
    for got, want in zip(leaves(given.state), leaves(wanted.state), strict=True):
        assert torch.equal(got, want)


def test_extend_takes_under_autocast_what_steps_take():
    inputs = torch.randn(1, 12, 5)
    core = make(PLAIN)
    stream, other = lifelong(core, 1), lifelong(core, 1)
    with torch.autocast("cpu", torch.bfloat16):
        stream.extend(inputs)
        for step in inputs.unbind(1):
            other.step(step)
    for got, want in zip(leaves(stream.state), leaves(other.state), strict=True):
        assert torch.allclose(got, want, atol=1e-12)


def test_wrong_inputs_of_extend_are_named():
    stream = lifelong(make(PLAIN), 2)
    with pytest.raises(ValueError, match=r"inputs have shape \[2, 5\]; this stream extends by \[2, 1, 5\]"):
        stream.extend(torch.zeros(2, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"inputs are torch.float32"):
        stream.extend(torch.zeros(2, 4, 5))
    with pytest.raises(ValueError, match=r"is_first has dtype torch.int64: give bools"):
        stream.extend(torch.zeros(2, 4, 5, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.long))


def test_a_full_disk_is_named_and_the_stream_goes_on(tmp_path, monkeypatch):
    core = make(PLAIN)
    stream, other = lifelong(core, 1, folder=tmp_path), lifelong(core, 1)
    inputs, is_first = data(1, 20, 0.0)
    stepped(stream, inputs[:, :5], is_first[:, :5])
    other.extend(inputs[:, :5])

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(ValueError, match=r"a chunk could not be written \(No space left on device\)"):
            stream.step(inputs[:, 5])
    assert stream.held == [1]
    stepped(stream, inputs[:, 6:9], is_first[:, 6:9])
    other.extend(inputs[:, 5:9])
    assert stream.held == [2]  # the first and the third: only the chunk that found no room is missing
    kept = other.state.layers[0].contents[0, [0, 2]]
    torch.testing.assert_close(stream.state.layers[0].contents[0], kept)


def recalls_a_cue(steps, folder):
    """Plant a cue at step 10, live on for ``steps`` steps, and ask for it."""
    torch.manual_seed(1)
    config = HierarchicalChunkMemoryConfig(
        dim=32, num_layers=1, num_heads=2, memory_len=32, chunk_len=32, num_chunks=4, top_k=1
    )
    core = config.build(32).eval()
    layer = core.layers[0]
    with torch.no_grad():
        layer.local.out.weight.zero_()
        for projection in (layer.memory.chunk_query, layer.memory.chunk_key):
            projection.weight.copy_(torch.eye(32))
    cue = 20 * torch.randn(32)
    stream = core.lifelong_stream(1, steps, folder=folder)
    with torch.no_grad():
        for begin in range(0, steps, 10_000):
            block = torch.randn(1, min(10_000, steps - begin), 32)
            if begin == 0:
                block[0, 10] = cue
                first_chunk = core.project(block[0, :32])
            stream.extend(block)
        assert stream.held == [steps // 32]
        seen = {}
        with listen(core, lambda name, tensor: seen.update({name: tensor})):
            output = stream.step(cue[None])
        relevance = seen["layers.0.memory.relevance_tap"][0, 0]
        assert relevance.argmax() == 0
        assert relevance.sum() == relevance[0] == 1.0
        memory = plain.Memory([], [plain.Chunk(first_chunk, first_chunk.mean(0))])
        wanted = plain.layer_output(layer, core.project(cue), memory)
    torch.testing.assert_close(output[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_cue_of_step_10_is_recalled_after_20_000_steps(on_disk, tmp_path):
    recalls_a_cue(20_000, tmp_path if on_disk else None)


@pytest.mark.slow
def test_a_cue_of_step_10_is_recalled_after_a_million_steps(tmp_path):
    recalls_a_cue(1_000_000, tmp_path)


@pytest.mark.slow
def test_after_a_million_steps_the_stream_is_what_a_core_with_all_chunks_is():
    torch.manual_seed(2)
    config = HierarchicalChunkMemoryConfig(
        dim=16, num_layers=2, num_heads=2, hidden_dim=16, memory_len=64, chunk_len=64, num_chunks=4, top_k=4
    )
    core = make(config, 16)
    many = dataclasses.replace(config, num_chunks=15_625).build(16).double().eval()
    many.load_state_dict(core.state_dict())
    stream = core.lifelong_stream(1)
    for _ in range(100):
        stream.extend(torch.randn(1, 10_000, 16, dtype=torch.float64))
    assert stream.held == [15_625]
    state, inputs = stream.state, torch.randn(1, 70, 16, dtype=torch.float64)
    never = torch.zeros(1, 70, dtype=torch.bool)
    with torch.no_grad():
        wanted, _ = many(inputs, state, never)
    torch.testing.assert_close(stepped(stream, inputs, never), wanted)
