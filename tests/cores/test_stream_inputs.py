"""What every stream takes and gives, and that it belongs to the weights it was made with."""

import copy
import dataclasses
import re

import numpy as np
import pytest
import torch

from recollect.certify.loading import from_config, small_config
from recollect.cores import CORES
from recollect.cores.stream import Stream
from recollect.cores.weight_changes import WeightChanges, count_change
from recollect.state import leaves
from tiers import first, only


def small_core(key):
    return from_config(small_config(CORES[key]), name=key).core.eval()


def frames(core, steps=3, rows=2):
    torch.manual_seed(0)
    return torch.randn(steps, rows, *core.input_shape)


@pytest.mark.parametrize("key", CORES)
def test_numpy_in_numpy_out(key):
    core = small_core(key)
    inputs, given, wanted = frames(core), core.stream(2), core.stream(2)
    firsts = [None, np.array([True, False]), [False, True]]
    for frame, is_first in zip(inputs, firsts, strict=True):
        got = given.step(frame.numpy().astype(np.float64), is_first)
        want = wanted.step(frame, None if is_first is None else torch.tensor(is_first))
        assert type(got) is np.ndarray and got.dtype == np.float32
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)
    got, want = given.step(inputs[0].tolist(), True), wanted.step(inputs[0], torch.tensor([True] * 2))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)
    assert type(wanted.step(inputs[0], True)) is torch.Tensor
    given.reset(np.array([False, True]))
    wanted.reset([1])
    np.testing.assert_allclose(given.step(inputs[1].numpy()), wanted.step(inputs[1]).numpy(), rtol=1e-5, atol=1e-6)


def test_an_output_array_is_nobody_elses():
    core = small_core("memoryless")
    stream, frame = core.stream(2), frames(core)[0].numpy()
    before, out = frame.copy(), stream.step(frame)
    out[:] = 7
    np.testing.assert_array_equal(frame, before)
    assert not (stream.step(frame) == 7).all()


@pytest.mark.parametrize(
    ("inputs", "first", "message"),
    [
        (np.zeros((2, 3)), None, "inputs have shape [2, 3]; a step of this stream takes [2, 10]"),
        (np.zeros((2, 10), dtype=object), None, "inputs are object, no numbers"),
        (np.array([["a"] * 10] * 2), None, "inputs are <U1, no numbers"),
        ([[0.0] * 10, [0.0] * 9], None, "lists of the same length"),
        (np.zeros((2, 10)), 1, "is_first is int64 []; it must be bool [2], or one bool for all rows"),
        (np.zeros((2, 10)), [True], "is_first is bool [1]; it must be bool [2]"),
        (np.zeros((2, 10)), [0, 1], "is_first is int64 [2]; it must be bool [2]"),
        (torch.zeros(2, 10, device="meta"), None, "inputs: on meta, this stream is on cpu: move one"),
        (torch.zeros(2, 10), torch.zeros(2, device="meta").bool(), "is_first: on meta, this stream is on cpu"),
    ],
)
def test_a_stream_says_what_it_takes(inputs, first, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small_core("gru").stream(2).step(inputs, first)


def by_fused_adam(core):
    for weight in core.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.Adam(core.parameters(), fused=True).step()


def by_sgd(core):
    for weight in core.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.SGD(core.parameters(), lr=1e-3).step()


CHANGES = {
    "fused adam": by_fused_adam,
    "sgd": by_sgd,
    "load_state_dict": lambda core: core.load_state_dict(core.state_dict()),
    "others in their place": lambda core: core.load_state_dict(
        {name: weight.clone() for name, weight in core.state_dict().items()}, assign=True
    ),
    "another precision": lambda core: core.double(),
    "one number": lambda core: torch.nn.init.zeros_(list(core.parameters())[-1]),
}


@pytest.mark.parametrize("key", only({"gru", "hcam", "memoryless"}, CORES))
@pytest.mark.parametrize("change", CHANGES)
def test_a_stream_refuses_to_go_on_with_other_weights(key, change):
    core = small_core(key)
    frame, stream, plain = frames(core)[0], core.stream(2), Stream(core, 2)
    stream.step(frame)
    core.train().eval().requires_grad_(False).requires_grad_(True).to("cpu")
    stream.step(frame)
    CHANGES[change](core)
    for live in (stream, plain):
        with pytest.raises(ValueError, match=re.escape("have changed since its stream was made: make a new stream")):
            live.step(frame)
        with pytest.raises(ValueError, match="make a new stream"):
            live.fork()
    again = core.stream(2)
    if change != "another precision":
        again.load_state(stream.state)
    assert again.step(frame.to(again.like)).isfinite().all()


@pytest.mark.parametrize("key", CORES)
def test_a_stream_takes_a_state_without_its_gradients(key):
    core = small_core(key)
    inputs = frames(core).transpose(0, 1).clone().requires_grad_()
    _, state = core(inputs, core.initial_state(2), torch.zeros(2, 3, dtype=torch.bool))
    for stream in (core.stream(2), Stream(core, 2)):
        stream.load_state(state)
        assert not any(leaf.requires_grad for leaf in leaves(stream.state))
        stream.step(inputs[:, 0])
        assert not any(leaf.requires_grad for leaf in [*leaves(stream.state), *stream.buffers()])


def test_a_lifelong_stream_refuses_too():
    core = small_core("hcam")
    stream = core.lifelong_stream(1, capacity_steps=64)
    by_sgd(core)
    with pytest.raises(ValueError, match="make a new stream"):
        stream.extend(torch.zeros(1, 3, 10))
    with pytest.raises(ValueError, match="make a new stream"):
        stream.fork()


def lives(core):
    """Every kind of stream that a core has."""
    lifelong = [core.lifelong_stream(2, capacity_steps=64)] if hasattr(core, "lifelong_stream") else []
    return [core.stream(2), Stream(core, 2), *lifelong]


@pytest.mark.parametrize("key", CORES)
@pytest.mark.parametrize("weights", first(1, ["made inside", "made outside"]))
def test_a_stream_is_stepped_inside_and_outside_of_inference_mode(key, weights):
    with torch.inference_mode(weights == "made inside"):
        core = small_core(key)
    inputs, first = frames(core, steps=4), torch.tensor([False, True])
    is_first = torch.tensor([[False] * 3, [False, True, False]])
    with torch.no_grad():
        want, _ = core(inputs[:3].transpose(0, 1), core.initial_state(2), is_first)
    with torch.inference_mode():
        inside = lives(core)
    for stream in (*lives(core), *inside):
        with torch.inference_mode():
            stream.step(inputs[3])
            stream.reset([0])
            stream.load_state(core.initial_state(2))
            stream.step(inputs[0])
        torch.testing.assert_close(stream.step(inputs[1], first), want[:, 1], rtol=1e-4, atol=1e-5)
        with torch.inference_mode():
            twin, state = stream.fork(), stream.state
        torch.testing.assert_close(twin.step(inputs[2]), want[:, 2], rtol=1e-4, atol=1e-5)
        stream.load_state(state)
        torch.testing.assert_close(stream.step(inputs[2]), want[:, 2], rtol=1e-4, atol=1e-5)
        stream.reset([1])
        stream.step(inputs[3], first)


def dropping_core(key):
    """A core of which half of all drops out in training."""
    config = dataclasses.replace(small_config(CORES[key]), dropout=0.5)
    return from_config(config, name=key).core


@pytest.mark.parametrize("key", [key for key, config in CORES.items() if hasattr(config, "dropout")])
def test_a_stream_with_caches_never_drops_out_and_the_plain_class_does_as_the_core(key):
    core, found = dropping_core(key), {}
    inputs, kinds = frames(core, steps=9), {type(core.eval().stream(1)), Stream}
    for mode in (False, True):
        core.train(mode)
        for kind in kinds:
            stream, outputs = kind(core, 2), []
            for t, frame in enumerate(inputs):
                outputs.append(stream.step(frame))
                if t in (2, 5):
                    stream.reset([0])  # inside a chunk: what is kept of the other row is made again
            outputs.append(stream.unroll(inputs.transpose(0, 1)).flatten(0, 1))
            found[kind, mode] = torch.cat(outputs), stream.state
    for kind in kinds:
        same = torch.equal(found[kind, False][0], found[kind, True][0])
        assert same == (kind is not Stream)
        for one, other in zip(leaves(found[kind, False][1]), leaves(found[kind, True][1]), strict=True):
            assert torch.equal(one, other) or kind is Stream


def test_a_lifelong_stream_never_drops_out_either():
    core, states = dropping_core("hcam"), []
    inputs = frames(core, steps=9).transpose(0, 1)
    for mode in (False, True):
        stream = core.train(mode).lifelong_stream(2, capacity_steps=64)
        stream.extend(inputs)
        stream.unroll(inputs)
        states.append(stream.state)
    assert all(torch.equal(one, other) for one, other in zip(*map(leaves, states), strict=True))


def test_changes_are_counted_for_those_who_do_not_count():
    weights = [torch.nn.Parameter(torch.zeros(3, 2)) for _ in range(9)]
    changes = WeightChanges(weights)
    assert not changes.any()
    count_change(weights[4:5])
    assert changes.any()
    assert not copy.deepcopy(changes).any()
    with torch.inference_mode():
        assert not WeightChanges([torch.zeros(3)]).any()


def test_a_change_of_a_single_number_is_seen():
    scale = torch.nn.Parameter(torch.ones(()))
    changes = WeightChanges([scale])
    assert not changes.any()
    scale.data.mul_(2)
    assert changes.any()
