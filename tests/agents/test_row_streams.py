"""Streams of models: any rows of many step alone, in any order, and are saved, copied, added and removed."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents.config import (
    ActivityDetectorConfig,
    ActorCriticConfig,
    DecisionTransformerConfig,
    SequenceModelConfig,
)
from recollect.agents.contract import ActorInputs
from recollect.cores import CORES
from recollect.state import concatenate

ROWS, CALLS = 5, 30
HCAM = CORES["hcam"](dim=8, num_layers=1, num_heads=2, memory_len=3, chunk_len=2, num_chunks=3, top_k=2)
SEEN, MOVES = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)


def actor():
    return ActorCriticConfig(width=8, policy_gain=1.0).build(HCAM, SEEN, MOVES)


def sequence_model():
    return SequenceModelConfig().build(HCAM, num_classes=3, input_dim=4)


def pointer():
    config = SequenceModelConfig(embedding_dim=7, readout="pointer")
    return config.build(CORES["gru"](dim=8), num_classes=3, input_dim=4)


def detector():
    memory = CORES["ttm"](dim=8, num_tokens=3, num_slots=4, num_reads=2, num_heads=2)
    config = ActivityDetectorConfig(width=8, num_tokens=3)
    return config.build(memory, class_names=("a", "b"), frame_shape=None, feature_dim=4)


def planner():
    config = DecisionTransformerConfig(width=8, context=4, stride=2, max_timestep=9)
    core = CORES["causal-transformer"](dim=8, num_layers=1, num_heads=2, memory_len=11, positions="none")
    return config.build(core, SEEN, MOVES)


MODELS = {one.__name__: one for one in (actor, sequence_model, pointer, detector, planner)}


def build(name, seed=0):
    torch.manual_seed(seed)
    return MODELS[name]().double().eval()


def inputs_for(name, rows, draws):
    if name in ("actor", "planner"):
        seen, reward = torch.randn(rows, 3, generator=draws), torch.randn(rows, generator=draws)
        return ActorInputs(seen.double(), torch.randint(4, (rows,), generator=draws), reward.double())
    return torch.randn(rows, 4, generator=draws).double()


def pick(inputs, rows):
    if isinstance(inputs, torch.Tensor):
        return inputs[rows]
    return ActorInputs(*(None if part is None else part[rows] for part in inputs))


def answer(output):
    return output if isinstance(output, torch.Tensor) else torch.cat((output.policy, output.value[:, None]), 1)


@pytest.mark.parametrize("name", MODELS)
def test_random_rows_equal_a_stream_a_row(name, tmp_path):
    model, draws = build(name), torch.Generator().manual_seed(1)
    many, alone = model.stream(ROWS), [model.stream(1) for _ in range(ROWS)]
    for call in range(CALLS):
        rows = torch.randperm(ROWS, generator=draws)[: 1 + call % ROWS].tolist()
        if call % 7 == 6:
            rows = list(range(ROWS))
        inputs, first = inputs_for(name, len(rows), draws), torch.rand(len(rows), generator=draws) < 0.15
        got = many.step(inputs, first) if call % 7 == 6 else many.step_rows(inputs, rows, first)
        for place, row in enumerate(rows):
            want = alone[row].step(pick(inputs, [place]), first[place : place + 1])
            torch.testing.assert_close(answer(got)[place : place + 1], answer(want), msg=f"call {call}, row {row}")
        if call == 8:
            many.reset([3])
            alone[3].reset()
        if call == 12:
            many.fork_rows([1], into=[4])
            alone[4].load_state(alone[1].state)
        if call == 16:
            many.save_rows(tmp_path / "two", [2, 0])
            many.reset([0, 2])
            many.load_rows(tmp_path / "two", [2, 0])
        if call == 20:
            many.fork_rows([2])
            many.remove_rows([0])
            copied = model.stream(1)
            copied.load_state(alone[2].state)
            alone = [*alone[1:], copied]
    state, want = many.state, concatenate([one.state for one in alone])
    if name == "planner":  # what a context held before it began anew is left in its tokens
        used = (torch.arange(4) < state.count[:, None] - 1)[..., None, None]
        state, want = (one._replace(tokens=one.tokens * used) for one in (state, want))
    torch.testing.assert_close(state, want)


@pytest.mark.parametrize("name", MODELS)
def test_save_load_and_fork_go_on_with_the_same_answers(name, tmp_path):
    model, draws = build(name), torch.Generator().manual_seed(2)
    live = model.stream(3)
    for _ in range(5):
        live.step(inputs_for(name, 3, draws), False)
    live.save(tmp_path / "memory")
    loaded, forked = model.stream(3), live.fork()
    loaded.load(tmp_path / "memory")
    later = [inputs_for(name, 3, draws) for _ in range(4)]
    for inputs in later:
        want = answer(live.step(inputs, False))
        torch.testing.assert_close(answer(loaded.step(inputs, False)), want)
        torch.testing.assert_close(answer(forked.step(inputs, False)), want)


@pytest.mark.parametrize("name", MODELS)
def test_arrays_in_give_arrays_out(name):
    model, draws = build(name).float(), torch.Generator().manual_seed(3)
    inputs = inputs_for(name, 2, draws)
    arrays = inputs.float().numpy() if isinstance(inputs, torch.Tensor) else ActorInputs(
        inputs.observation.float().numpy(), inputs.action.numpy(), inputs.reward.float().numpy()
    )  # fmt: skip
    tensors = inputs.float() if isinstance(inputs, torch.Tensor) else ActorInputs(
        inputs.observation.float(), inputs.action, inputs.reward.float()
    )  # fmt: skip
    for step in ("step", "step_rows"):
        more = ([3, 1],) if step == "step_rows" else ()
        got = getattr(model.stream(4 if more else 2), step)(arrays, *more, is_first=True)
        want = getattr(model.stream(4 if more else 2), step)(tensors, *more, is_first=True)
        leaves = (got,) if isinstance(want, torch.Tensor) else got
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
        np.testing.assert_array_equal(leaves[0], (want if isinstance(want, torch.Tensor) else want[0]).numpy())


@pytest.mark.parametrize("name", MODELS)
def test_memories_go_on_under_new_weights(name):
    model, other, draws = build(name), build(name, seed=1), torch.Generator().manual_seed(4)
    live = model.stream(3)
    for _ in range(3):
        live.step(inputs_for(name, 3, draws), False)
    fresh = other.stream(3)
    fresh.load_state(live.state)
    live.swap_weights(other)
    inputs = inputs_for(name, 3, draws)
    torch.testing.assert_close(answer(live.step(inputs, False)), answer(fresh.step(inputs, False)))

    with torch.no_grad():  # its own weights change
        for weight in other.parameters():
            weight.mul_(1.1)
    with pytest.raises(ValueError, match="swap_weights"):
        live.step(inputs, False)
    live.swap_weights()
    live.step(inputs, False)


def test_another_model_is_refused_and_the_stream_goes_on():
    live, draws = build("actor").stream(2), torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match=r"model=SequenceModel: .*give a model of the same description"):
        live.swap_weights(build("sequence_model"))
    torch.manual_seed(0)
    wider = ActorCriticConfig(width=9).build(HCAM, SEEN, MOVES).double().eval()
    with pytest.raises(ValueError, match="not those of this stream's ActorCritic"):
        live.swap_weights(wider)
    live.step(inputs_for("actor", 2, draws))


@pytest.mark.parametrize(
    ("rows", "says"), [([0, 0], "named twice"), ([5], "has 3 rows"), ([True, False], "mask of 3 bools")]
)
def test_bad_rows_are_named(rows, says):
    live, draws = build("actor").stream(3), torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match=says):
        live.step_rows(inputs_for("actor", len(rows), draws), rows)


def test_a_file_of_another_number_of_rows_is_named(tmp_path):
    live = build("actor").stream(3)
    live.save_rows(tmp_path / "one", [2])
    assert live.load_rows(tmp_path / "one") == range(3, 4) and live.batch_size == 4
    with pytest.raises(ValueError, match="the batch is 2"):
        live.load_rows(tmp_path / "one", [0, 1])
    with pytest.raises(ValueError, match="the batch is 4"):
        live.load(tmp_path / "one")
    with pytest.raises(ValueError, match="keep at least one"):
        live.remove_rows([0, 1, 2, 3])


def test_segments_of_a_detector_are_counted_row_by_row(monkeypatch):
    model = build("detector")
    monkeypatch.setattr(type(model), "frames_per_step", 2)
    monkeypatch.setattr(model, "tokens", lambda frames: model.project(frames.mean(1)).unflatten(-1, (3, -1)))
    live, alone, frames = model.stream(3), model.stream(1), torch.randn(3, 4).double()
    assert live.step_rows(frames[:1], [1]) is None
    with pytest.raises(ValueError, match="different frames of their segments"):
        live.step_rows(frames[:2], [0, 1])
    with pytest.raises(ValueError, match="unfinished"):
        live.add_rows(1)
    assert live.step_rows(frames[:1], [0]) is None
    got = live.step_rows(frames[1:], [1, 0])
    assert alone.step(frames[:1]) is None
    torch.testing.assert_close(got[:1], alone.step(frames[1:2]))
    twin = copy.copy(live.fork())
    assert twin.batch_size == 3
