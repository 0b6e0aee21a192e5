import dataclasses

import pytest
import torch
from largest_tensor import LargestTensor
from samples import hcam as samples
from torch.utils.flop_counter import FlopCounterMode

from recollect.cores.hcam import ChunkAttentionVariant, HierarchicalChunkMemoryConfig
from recollect.cores.hcam import config as settings
from recollect.cores.hcam import core as module
from recollect.layers.tap import listen
from recollect.state import detach, leaves, named_leaves
from tiers import first

PLAIN = HierarchicalChunkMemoryConfig(**samples.TINY)


def make(config, input_dim=5):
    """A core in float64 whose norms and biases are not at their special start values."""
    core = config.build(input_dim).double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return core


def data(batch, steps, input_dim=5, rate=0.2):
    return torch.randn(batch, steps, input_dim, dtype=torch.float64), torch.rand(batch, steps) < rate


@pytest.mark.parametrize("config", first(4, samples.CONFIGS), ids=str)
def test_stream_equals_sequence_with_random_resets(config):
    core = make(config)
    inputs, is_first = data(3, 40, rate=0.08)
    expected, end = core(inputs, core.initial_state(3), is_first)
    stream = core.stream(3)
    sizes = set()
    for t in range(40):
        if t == 23:
            stream = stream.fork()
        out = stream.step(inputs[:, t], is_first[:, t] if is_first[:, t].any() else None)
        torch.testing.assert_close(out, expected[:, t].detach())
        sizes.add(stream.nbytes)
    for one, other in zip(leaves(stream.state), leaves(detach(end)), strict=True):
        torch.testing.assert_close(one, other)
    assert len(sizes) == 1


@pytest.mark.parametrize("overlap", [0, 1])
def test_chunks_are_counted_from_the_start_of_the_episode(overlap):
    config = HierarchicalChunkMemoryConfig(**samples.TINY | {"num_chunks": 9}, chunk_overlap=overlap)
    core = make(config)
    inputs, is_first = data(2, 13, rate=0.0)
    is_first[1, 4] = True
    for t in range(1, 14):
        _, state = core(inputs[:, :t], core.initial_state(2), is_first[:, :t])
        episode = [t, t if t <= 4 else t - 4]
        if not overlap:
            assert config.in_progress(state.steps).tolist() == [steps % 3 for steps in episode]
        complete = [max(0, steps - overlap) // (3 - overlap) for steps in episode]
        assert (state.lengths > 0).sum(1).tolist() == complete
        assert state.steps.tolist() == episode
        assert set(state.lengths.flatten().tolist()) <= {0, 3}
    first = core.project(inputs)[0].detach()  # what the first layer stores
    stride = 3 - overlap
    chunks = torch.stack([first[i * stride : i * stride + 3] for i in range((13 - overlap) // stride)])
    torch.testing.assert_close(state.layers[0].contents[0, -len(chunks) :], chunks)
    torch.testing.assert_close(state.layers[0].keys[0, -len(chunks) :], chunks.mean(1))
    assert (state.layers[0].contents[0, : -len(chunks)] == 0).all()


def test_a_new_chunk_takes_the_place_of_the_oldest():
    core = make(PLAIN)
    inputs, is_first = data(1, 21, rate=0.0)
    _, state = core(inputs, core.initial_state(1), is_first)
    kept = core.project(inputs)[0, 9:21].detach().unflatten(0, (4, 3))  # the newest 4 of 7 chunks
    torch.testing.assert_close(state.layers[0].contents[0], kept)


def relevances(core, inputs, is_first):
    heard = {}
    with listen(core, lambda name, weights: heard.setdefault(name, weights)):
        core(inputs, core.initial_state(inputs.shape[0]), is_first)
    return heard["layers.0.memory.relevance_tap"]  # b t n + f, oldest first


def test_a_chunk_is_visible_from_the_step_after_its_last_and_never_across_a_reset():
    core = make(HierarchicalChunkMemoryConfig(**samples.TINY | {"top_k": 9}))
    inputs, is_first = data(1, 12, rate=0.0)
    is_first[0, 7] = True  # chunks: steps 0-2, 3-5, and 7-9 after the reset
    read = relevances(core, inputs, is_first)[0] > 0
    assert read.sum(-1).tolist() == [0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 1, 1]
    new = read[:, 4:]  # chunks that this call completed
    assert new[6].tolist() == [True, True, False, False] and new[10].tolist() == [False, False, True, False]


def test_nothing_stored_adds_exactly_nothing():
    core = make(PLAIN)
    inputs, is_first = data(2, 5, rate=0.0)
    before, _ = core(inputs, core.initial_state(2), is_first)
    with torch.no_grad():
        for layer in core.layers:
            for parameter in layer.memory.parameters():
                parameter.add_(1.0)
    after, _ = core(inputs, core.initial_state(2), is_first)
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.allclose(before[:, 3:], after[:, 3:])


def test_a_cue_is_recalled_long_after_it_left_the_window_and_until_its_chunk_is_overwritten():
    config = HierarchicalChunkMemoryConfig(**samples.TINY | {"top_k": 9}, num_layers=1)
    core = make(config)
    inputs, is_first = data(1, 20, rate=0.0)
    other = inputs.clone()
    other[0, 1] += 1.0  # in chunk 0, which chunk 4 overwrites when step 14 is over
    one, _ = core(inputs, core.initial_state(1), is_first)
    two, _ = core(other, core.initial_state(1), is_first)
    differs = (one - two).abs().amax(-1)[0] > 1e-9
    assert differs.tolist() == [1 <= t <= 14 for t in range(20)]
    first = torch.zeros_like(is_first)
    first[0, 8] = True
    again, _ = core(other, core.initial_state(1), first)
    plain, _ = core(inputs, core.initial_state(1), first)
    torch.testing.assert_close(again[:, 8:], plain[:, 8:])


def test_no_gradient_enters_a_chunk_wherever_it_was_completed():
    core = make(HierarchicalChunkMemoryConfig(**samples.TINY | {"memory_len": 2, "top_k": 9}, num_layers=1))
    inputs, is_first = data(1, 11, rate=0.0)
    inputs.requires_grad_()
    state = core.initial_state(1)
    state = type(state)(tuple(type(m)(*(leaf.requires_grad_() for leaf in m)) for m in state.layers), *state[1:])
    out, end = core(inputs, state, is_first)
    (grad,) = torch.autograd.grad(out[0, -1].sum(), inputs, retain_graph=True)
    assert (grad[0].abs().sum(-1) > 0).tolist() == [t >= 8 for t in range(11)]  # the window and the step itself
    for name, leaf in named_leaves(end):
        assert leaf.requires_grad == name.endswith("window"), name
    for level in ("chunk_query", "chunk_key", "query", "key", "value", "out"):
        weight = getattr(core.layers[0].memory, level).weight
        assert torch.autograd.grad(out.square().sum(), weight, retain_graph=True)[0].any(), level


def test_gradients_enter_chunks_when_asked_for_wherever_these_were_completed():
    reading = ChunkAttentionVariant(chunk_gradients="call")
    core = make(
        HierarchicalChunkMemoryConfig(**samples.TINY | {"memory_len": 2, "top_k": 9}, num_layers=1, reading=reading)
    )
    inputs, is_first = data(1, 11, rate=0.0)
    inputs.requires_grad_()
    _, middle = core(inputs[:, :5], core.initial_state(1), is_first[:, :5])
    for cut, reached in ((False, range(11)), (True, range(5, 11))):
        state = detach(middle) if cut else middle
        out, _ = core(inputs[:, 5:], state, is_first[:, 5:])
        (grad,) = torch.autograd.grad(out[0, -1].sum(), inputs, retain_graph=True)
        # Chunks of steps 0-2, 3-5 and 6-8, and a window of two: the caller cuts, as with the window.
        assert (grad[0].abs().sum(-1) > 0).tolist() == [t in reached for t in range(11)]


@pytest.mark.parametrize("overlap", [0, 1])
def test_it_knows_which_steps_are_in_the_chunks_that_it_chooses_from(overlap):
    config = dataclasses.replace(PLAIN, chunk_overlap=overlap, num_chunks=3, num_layers=1)
    core = make(config)
    inputs, is_first = data(3, 40, rate=0.06)
    _, state = core(inputs[:, :9], core.initial_state(3), is_first[:, :9])
    episodes, clock = core.project(inputs), torch.zeros(3, 40, dtype=torch.long)
    for t in range(1, 40):
        clock[:, t] = torch.where(is_first[:, t], 0, clock[:, t - 1] + 1)
    heard, asked = {}, []
    core.layers[0].memory.register_forward_pre_hook(lambda _, given: asked.append(given))
    with listen(core, lambda name, weights: heard.setdefault(name, weights)):
        core(inputs[:, 9:], state, is_first[:, 9:])
    ((_, keys, _, _),) = asked
    (name, (first, behind)), *others = core.recalled_steps(clock[:, 9:]).items()
    weights, found = heard[name], 0
    assert not others and torch.equal(weights > 0, (first >= 0).expand_as(weights))
    for row, t, place in (weights > 0).nonzero().tolist():
        began = t + 9 - clock[row, t + 9].item()  # where the episode starts
        steps = episodes[row, began + first[row, t, place] : began + behind[row, t, place]]
        torch.testing.assert_close(keys[row, place], steps.mean(0))
        found += 1
    assert found > 60
    assert not dataclasses.replace(config, carry_across_episodes=True).build(5).recalled_steps(clock)


def test_chunks_that_are_carried_over_hold_the_cut_off_steps_and_are_seen_at_once():
    core = make(HierarchicalChunkMemoryConfig(**samples.TINY | {"top_k": 9}, carry_across_episodes=True))
    assert set(core.exemptions) == {"reset", "poison"} and not make(PLAIN).exemptions
    inputs, is_first = data(1, 9, rate=0.0)
    is_first[0, [5, 6]] = True  # episodes of 5, 1 and 3 steps
    _, state = core(inputs, core.initial_state(1), is_first)
    assert state.lengths.tolist() == [[3, 2, 1, 3]]
    first = core.project(inputs)[0].detach()
    short = state.layers[0].contents[0, 1]
    torch.testing.assert_close(short, torch.cat((torch.zeros_like(first[:1]), first[3:5])))
    torch.testing.assert_close(state.layers[0].keys[0, 1], first[3:5].mean(0))
    seen = (relevances(core, inputs, is_first)[0] > 0).sum(-1)
    assert seen.tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3]


def test_a_step_in_a_chunk_is_carried_over_only_once():
    core = make(HierarchicalChunkMemoryConfig(**samples.TINY, chunk_overlap=1, carry_across_episodes=True))
    inputs, is_first = data(1, 6, rate=0.0)
    is_first[0, 3] = True  # the last step of chunk 0 begins the next, but nothing follows it
    _, state = core(inputs, core.initial_state(1), is_first)
    assert state.lengths.tolist() == [[0, 0, 3, 3]]


@pytest.mark.parametrize("carry", [False, True])
def test_broken_frames_are_seen_once_and_not_remembered(carry):
    core = make(dataclasses.replace(PLAIN, carry_across_episodes=carry))
    inputs, is_first = data(2, 14, rate=0.0)
    is_first[:, 8] = True
    inputs[0, 2, 1] = torch.nan
    inputs[1, 7, 0] = torch.inf
    out, state = core(inputs, core.initial_state(2), is_first)
    broken = torch.zeros_like(is_first)
    broken[0, 2] = broken[1, 7] = True
    assert torch.equal(out.isnan().any(-1), broken)
    assert all(leaf.isfinite().all() for leaf in leaves(state))
    stream = core.stream(2)
    for t in range(14):
        torch.testing.assert_close(stream.step(inputs[:, t], is_first[:, t]), out[:, t].detach(), equal_nan=True)


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("carry", [False, True])
def test_long_calls_are_cut_into_blocks_and_stay_the_same(monkeypatch, overlap, carry):
    core = make(dataclasses.replace(PLAIN, chunk_overlap=overlap, carry_across_episodes=carry))
    inputs, is_first = data(2, 60, rate=0.05)
    whole, end = core(inputs, core.initial_state(2), is_first)
    monkeypatch.setattr(settings, "BLOCK", 1)  # memory_len or the chunks decide
    parts, last = core(inputs, core.initial_state(2), is_first)
    torch.testing.assert_close(whole, parts)
    for one, other in zip(leaves(end), leaves(last), strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
def test_the_scores_of_a_call_do_not_grow_with_the_square_of_the_memory():
    config = HierarchicalChunkMemoryConfig(dim=4, num_layers=1, num_heads=1, chunk_len=16, num_chunks=128)
    core = config.build(4)
    with LargestTensor() as largest:
        core(torch.zeros(1, 2048, 4), core.initial_state(1), torch.zeros(1, 2048, dtype=torch.bool))
    assert largest.numbers <= 1.1 * settings.SCORES
    # As long as the memory up to a thousand steps (the benchmark has 16 x 32), and never shorter than the window.
    for sizes, block in (((16, 32, 256), 512), ((4, 16, 64), 128), ((64, 16, 64), 1024), ((4096, 16, 300), 300)):
        num_chunks, chunk_len, memory_len = sizes
        sizes = {"num_chunks": num_chunks, "chunk_len": chunk_len, "memory_len": memory_len}
        assert dataclasses.replace(config, **sizes).block == block


def test_the_number_of_new_chunks_that_compilers_see_changes_nothing(monkeypatch):
    core = make(dataclasses.replace(PLAIN, carry_across_episodes=True))
    inputs, is_first = data(3, 15, rate=0.4)
    want, end = core(inputs, core.initial_state(3), is_first)
    monkeypatch.setattr(module, "max_new_chunks", lambda config, written: written.shape[1])
    got, last = core(inputs, core.initial_state(3), is_first)
    torch.testing.assert_close(got, want)
    for one, other in zip(leaves(end), leaves(last), strict=True):
        torch.testing.assert_close(one, other)


def test_taps_change_nothing():
    core = make(PLAIN)
    inputs, is_first = data(2, 20)
    quiet, _ = core(inputs, core.initial_state(2), is_first)
    heard = {}
    with listen(core, lambda name, weights: heard.setdefault(name, weights)) as names:
        loud, _ = core(inputs, core.initial_state(2), is_first)
    torch.testing.assert_close(quiet, loud)
    assert sorted(heard) == sorted(names) and len(names) == 8


@pytest.mark.parametrize("num_chunks", [4, 17])  # all chunks in one product; chosen chunks gathered
def test_a_stream_shows_its_attention_in_the_same_order(num_chunks):
    core = make(HierarchicalChunkMemoryConfig(**samples.TINY | {"num_chunks": num_chunks}))
    inputs, is_first = data(2, 25, rate=0.05)
    state, stream = core.initial_state(2), core.stream(2)
    for t in range(25):
        calls, steps = {}, {}
        with listen(core, lambda name, weights, heard=calls: heard.setdefault(name, weights)):
            _, state = core(inputs[:, t : t + 1], state, is_first[:, t : t + 1])
        with listen(core, lambda name, weights, heard=steps: heard.setdefault(name, weights)):
            stream.step(inputs[:, t], is_first[:, t])
        for name, want in calls.items():
            if name.endswith("choice_tap"):  # heard in calls only
                assert name not in steps
            elif name.endswith("local.tap"):
                torch.testing.assert_close(steps[name], want)
            elif name not in steps:  # nothing is stored yet
                assert (calls[name.replace("memory.tap", "memory.relevance_tap")] == 0).all()
            else:
                # A call of one step may complete one chunk, which stands after the others and is not read.
                relevance = calls[name.replace("memory.tap", "memory.relevance_tap")][:, :, :num_chunks]
                want, read = want[:, :, :num_chunks], relevance > 0
                if name.endswith("memory.tap"):
                    want, read = calls[name][:, :, :, :num_chunks], read[:, None, :, :, None]
                torch.testing.assert_close(steps[name] * read, want * read)
    assert "layers.1.memory.tap" in steps


@pytest.mark.parametrize("config", first(4, samples.CONFIGS), ids=str)
def test_flops_are_those_of_a_stream_with_a_full_memory(config):
    core = make(config)
    stream, stride = core.stream(1), config.stride
    inputs = data(1, config.num_chunks * stride + config.memory_len + config.chunk_overlap)[0]
    for x in inputs.unbind(1):
        stream.step(x)
    with FlopCounterMode(display=False) as counter:
        for x in data(1, stride)[0].unbind(1):
            stream.step(x)
    assert counter.get_total_flops() / stride == pytest.approx(core.flops_per_step(), rel=1e-3)


def test_every_reading_gives_other_numbers():
    found = []
    for reading in (
        ChunkAttentionVariant.released(),
        ChunkAttentionVariant(relevance="full_softmax"),
        ChunkAttentionVariant(key_projection=False),
        ChunkAttentionVariant(relevance_heads=True),
        ChunkAttentionVariant.paper(),
    ):
        torch.manual_seed(3)
        core = make(dataclasses.replace(PLAIN, reading=reading))
        torch.manual_seed(4)
        inputs, is_first = data(1, 12, rate=0.0)
        found.append(core(inputs, core.initial_state(1), is_first)[0])
    assert not any(torch.allclose(found[0], other) for other in found[1:])
    assert not any(torch.allclose(other, found[-1]) for other in found[:-1])
