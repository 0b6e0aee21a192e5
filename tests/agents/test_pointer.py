"""The pointer readout: the newest items of an episode are the choices."""

from dataclasses import replace

import pytest
import torch

from recollect.agents import SequenceModelConfig
from recollect.agents.pointer import PointerState, newest, point
from recollect.cores import CORES
from recollect.state import leaves

POINTER = SequenceModelConfig(embedding_dim=7, readout="pointer", norm_inputs=True)


def model(key="gru", num_classes=3, config=POINTER):
    torch.manual_seed(0)
    return config.build(CORES[key](dim=8), num_classes=num_classes, input_dim=4).double().eval()


def rows(b=3, t=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    is_first = torch.rand(b, t, generator=generator) < 0.25
    is_first[:, 0] = True
    return torch.randn(b, t, 4, generator=generator).double(), is_first


def test_choices_are_the_newest_items_of_the_episode():
    items = torch.arange(1.0, 8)[None, :, None]
    is_first = torch.tensor([[False, False, False, True, False, False, False]])
    choices, recent = newest(items, torch.tensor([[[-1.0], [-2.0]]]), is_first)
    assert choices[0, :, :, 0].tolist() == [
        [-1, -2, 1], [-2, 1, 2], [1, 2, 3], [0, 0, 4], [0, 4, 5], [4, 5, 6], [5, 6, 7],
    ]  # fmt: skip
    assert recent[0, :, 0].tolist() == [6, 7]


def test_logits_are_scaled_dot_products():
    output, choices = torch.randn(5, 7), torch.randn(5, 3, 7)
    expected = torch.stack([(choices[:, i] * output).sum(-1) / 7**0.5 for i in range(3)], -1)
    torch.testing.assert_close(point(output, choices), expected)


@pytest.mark.parametrize("cuts", [[1] * 10, [3, 1, 6], [9, 1]])
def test_calls_may_be_split_anywhere(cuts):
    agent = model()
    inputs, is_first = rows()
    whole, after = agent(inputs, agent.initial_state(3), is_first)
    state, parts = agent.initial_state(3), []
    for part, first in zip(inputs.split(cuts, 1), is_first.split(cuts, 1), strict=True):
        logits, state = agent(part, state, first)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(list(leaves(state)), list(leaves(after)))


def test_an_identity_readout_points_at_what_is_most_like_the_output():
    config = replace(POINTER, embedding_dim=8, identity_readout=True)
    agent = model(config=config)
    inputs, is_first = rows()
    items = agent.embed(inputs)
    state = agent.initial_state(3)
    outputs, _ = agent.core(items, state.core, is_first)
    choices, _ = newest(items, state.recent, is_first)
    expected = point(agent.norm(outputs) + agent.readout.bias, choices)
    torch.testing.assert_close(agent(inputs, state, is_first)[0], expected)
    with pytest.raises(ValueError, match="identity_readout=True: outputs of width 8 and items of width 7"):
        model(config=replace(POINTER, identity_readout=True))
    with pytest.raises(ValueError, match="identity_readout=True: readout='linear' gives classes: choose 'pointer'"):
        SequenceModelConfig(identity_readout=True)


def test_items_of_earlier_episodes_are_no_choices():
    agent = model()
    inputs, is_first = rows()
    is_first[:, 5] = True
    inputs[:, :5] = torch.nan
    logits, _ = agent(inputs, agent.initial_state(3), is_first)
    fresh, _ = agent(inputs[:, 5:], agent.initial_state(3), is_first[:, 5:])
    torch.testing.assert_close(logits[:, 5:], fresh)


def test_stream_equals_the_whole_sequence_and_keeps_its_items():
    agent = model()
    inputs, is_first = rows()
    with torch.no_grad():
        expected, _ = agent(inputs, agent.initial_state(3), is_first)
    stream = agent.stream(3)
    size = stream.nbytes
    assert size == agent.core.stream(3).nbytes + 3 * 2 * 7 * 8
    for t in range(6):
        torch.testing.assert_close(stream.step(inputs[:, t], is_first[:, t]), expected[:, t])
    twin, saved = stream.fork(), stream.state
    assert isinstance(saved, PointerState) and stream.nbytes == size
    later = stream.step(inputs[:, 6], is_first[:, 6])
    torch.testing.assert_close(later, expected[:, 6])
    torch.testing.assert_close(twin.step(inputs[:, 6], is_first[:, 6]), later)
    twin.load_state(saved)
    torch.testing.assert_close(twin.step(inputs[:, 6], is_first[:, 6]), later)
    twin.reset([1])
    assert (twin.recent[1] == 0).all() and (twin.recent[0] != 0).any()
    twin.reset()
    torch.testing.assert_close(twin.step(inputs[:, 0], True), agent.stream(3).step(inputs[:, 0], True))


def test_norm_inputs_makes_scale_and_offset_irrelevant():
    agent = model()
    inputs, is_first = rows()
    one, _ = agent(inputs, agent.initial_state(3), is_first)
    two, _ = agent(100 * inputs + 3, agent.initial_state(3), is_first)
    torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3)
    for sizes in ({"input_dim": 1}, {"vocabulary": 5}):
        with pytest.raises(ValueError, match="norm_inputs=True: input_dim="):
            POINTER.build(CORES["gru"](dim=8), num_classes=2, **sizes)


def test_a_saved_model_points_again(tmp_path):
    agent = model().float()
    agent.save(tmp_path)
    again = type(agent).load(tmp_path)
    inputs, is_first = rows()
    one, two = (m(inputs.float(), m.initial_state(3), is_first)[0] for m in (agent, again))
    assert torch.equal(one, two)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 1e200])
def test_an_invalid_item_is_no_choice(broken):
    agent = model(config=replace(POINTER, norm_inputs=False))
    inputs, is_first = rows()
    is_first[:, 1:] = False
    inputs[0, 4] = broken
    logits, _ = agent(inputs, agent.initial_state(3), is_first)
    assert logits.isnan().any(-1).nonzero().tolist() == [[0, 4]]
    live = agent.stream(3)
    steps = [live.step(x, first) for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True)]
    torch.testing.assert_close(torch.stack(steps, 1), logits, equal_nan=True)


def test_autocast_keeps_the_dtype_of_the_state():
    agent = model().float()
    inputs, is_first = rows()
    with torch.autocast("cpu", torch.bfloat16):
        _, state = agent(inputs.float(), agent.initial_state(3), is_first)
    assert {leaf.dtype for leaf in leaves(state)} == {torch.float32}


@pytest.mark.parametrize("forgotten", [[], [True, False, False], [-1]])
def test_a_stream_resets_the_given_rows(forgotten):
    agent = model().eval()
    live, inputs = agent.stream(3), rows()[0][:, :3]
    for x in inputs.unbind(1):
        live.step(x)
    before = live.state.recent
    live.reset(forgotten)
    cleared = torch.zeros(3, dtype=torch.bool)
    cleared[forgotten if forgotten else slice(0)] = True
    torch.testing.assert_close(live.state.recent, torch.where(cleared[:, None, None], 0.0, before))


def test_a_state_of_another_model_is_refused():
    ours = model()
    x, is_first = rows()
    with pytest.raises(ValueError, match="state is a GRUState: give one of this model's initial_state"):
        ours(x, ours.core.initial_state(3), is_first)
    stream, state = ours.stream(3), ours.initial_state(3)
    with pytest.raises(ValueError, match="state is a GRUState; this stream continues from a PointerState"):
        stream.load_state(state.core)
    with pytest.raises(ValueError, match=r"state.recent is torch.float32 .* this stream keeps torch.float64"):
        stream.load_state(state._replace(recent=state.recent.float()))
