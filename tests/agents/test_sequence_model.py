import numpy as np
import pytest
import torch

from recollect.agents import AGENTS, SequenceModel, SequenceModelConfig
from recollect.cores import CORES
from recollect.state import leaves
from recollect.tasks import Copying
from recollect.training import SupervisedConfig

TINY = {
    "dim": 16, "num_layers": 1, "num_heads": 2, "hidden_dim": 24, "memory_len": 6, "chunk_len": 3, "num_slots": 3,
    "num_tokens": 4, "num_reads": 2, "top_k": 2, "self_per_cross": 1,
}  # fmt: skip


def tiny_core(key):
    cls = CORES[key]
    return cls(**{name: value for name, value in TINY.items() if name in cls.__dataclass_fields__})


def tiny_model(key, *, readout="linear", seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = sizes or {"vocabulary": 7}
    model = SequenceModelConfig(embedding_dim=12, readout=readout).build(tiny_core(key), num_classes=5, **sizes)
    return model.double().eval()


def tiny_inputs(b=3, t=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 7, (b, t), generator=generator)
    is_first = torch.rand(b, t, generator=generator) < 0.2
    is_first[:, 0] = True
    return tokens, is_first


@pytest.mark.parametrize("key", CORES)
def test_every_core_answers_at_every_step_and_learns(key):
    model = tiny_model(key)
    tokens, is_first = tiny_inputs()
    logits, state = model(tokens, model.initial_state(3), is_first)
    assert logits.shape == (3, 11, 5)
    logits.square().sum().backward()
    assert model.encoder.weight.grad.abs().sum() > 0
    assert [leaf.shape for leaf in leaves(state)] == [leaf.shape for leaf in leaves(model.initial_state(3))]


@pytest.mark.parametrize("key", CORES)
def test_stream_equals_the_whole_sequence(key):
    model = tiny_model(key, readout="mlp")
    tokens, is_first = tiny_inputs()
    with torch.no_grad():
        expected, _ = model(tokens, model.initial_state(3), is_first)
    stream = model.stream(3)
    size = stream.nbytes
    got = torch.stack([stream.step(tokens[:, i], is_first[:, i]) for i in range(11)], 1)
    torch.testing.assert_close(got, expected)
    assert stream.nbytes == size


def test_stream_forks_resets_and_continues_from_a_state():
    model = tiny_model("gru")
    tokens, _ = tiny_inputs(b=2)
    stream = model.stream(2)
    for i in range(4):
        stream.step(tokens[:, i])
    twin, saved = stream.fork(), stream.state
    expected = stream.step(tokens[:, 4])
    torch.testing.assert_close(twin.step(tokens[:, 4]), expected)
    twin.load_state(saved)
    torch.testing.assert_close(twin.step(tokens[:, 4]), expected)
    twin.reset()
    torch.testing.assert_close(twin.step(tokens[:, 0]), model.stream(2).step(tokens[:, 0]))


@pytest.mark.parametrize("key", CORES)
@pytest.mark.parametrize("sizes", [{"vocabulary": 7}, {"input_dim": 3}])
def test_save_and_load(key, sizes, tmp_path):
    model = tiny_model(key, **sizes).float()
    model.save(tmp_path / "model")
    loaded = SequenceModel.load(tmp_path / "model")
    tokens, is_first = tiny_inputs()
    inputs = tokens if "vocabulary" in sizes else torch.randn(3, 11, 3)
    with torch.no_grad():
        one, _ = model(inputs, model.initial_state(3), is_first)
        two, _ = loaded(inputs, loaded.initial_state(3), is_first)
    assert torch.equal(one, two)


def test_a_learned_table_of_odd_width_is_saved(tmp_path):
    core = CORES["transformer-xl"](dim=9, num_layers=1, num_heads=3, memory_len=4, positions="learned")
    model = SequenceModelConfig().build(core, num_classes=2, input_dim=3)
    model.save(tmp_path)
    assert torch.equal(SequenceModel.load(tmp_path).core.table, model.core.table)


def test_an_invalid_frame_gives_nan_and_is_not_remembered():
    model = tiny_model("gru", input_dim=3)
    frames = torch.randn(1, 6, 3, dtype=torch.float64)
    frames[0, 2] = torch.nan
    never = torch.zeros(1, 6, dtype=torch.bool)
    logits, _ = model(frames, model.initial_state(1), never)
    assert logits[0, 2].isnan().all()
    assert logits[0, [0, 1, 3, 4, 5]].isfinite().all()


def test_it_is_in_the_table():
    assert AGENTS["sequence-model"]().build(tiny_core("gru"), num_classes=2, input_dim=1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(3, 11), "takes tokens, int64"),
        (torch.zeros(3, dtype=torch.long), "takes tokens, int64"),
        (torch.full((3, 11), 7), "token 7 is outside the vocabulary of 7"),
        (torch.full((3, 11), -1), "token -1"),
    ],
)
def test_bad_tokens_are_named(inputs, message):
    model = tiny_model("gru")
    with pytest.raises(ValueError, match=message):
        model(inputs, model.initial_state(3), torch.zeros(3, 11, dtype=torch.bool))


def test_bad_floats_and_steps_are_named():
    model = tiny_model("gru", input_dim=3)
    with pytest.raises(ValueError, match=r"takes floats \[b, t, 3\]"):
        model(torch.zeros(3, 11, 4), model.initial_state(3), torch.zeros(3, 11, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"takes floats \[b, 3\]"):
        model.stream(1).step(torch.zeros(1, 1, 3))


@pytest.mark.parametrize("sizes", [{}, {"vocabulary": 3, "input_dim": 3}])
def test_tokens_or_floats_not_both(sizes):
    with pytest.raises(ValueError, match="exactly one"):
        SequenceModelConfig().build(tiny_core("gru"), num_classes=2, **sizes)


@pytest.mark.parametrize(
    ("fields", "message"), [({"embedding_dim": 0}, "embedding_dim=0"), ({"readout": "deep"}, "readout='deep'")]
)
def test_bad_config_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        SequenceModelConfig(**fields)


def test_a_stream_takes_numpy_and_lists_and_gives_numpy():
    model = tiny_model("lstm")
    tokens, is_first = tiny_inputs()
    wanted, given = model.stream(3), model.stream(3)
    for i in range(4):
        want = wanted.step(tokens[:, i], is_first[:, i])
        got = given.step(tokens[:, i].tolist() if i % 2 else tokens[:, i].numpy(), is_first[:, i].numpy())
        np.testing.assert_array_equal(got, want.numpy())
    with pytest.raises(ValueError, match="this model takes tokens"):
        given.step(np.zeros(3))
    vectors = tiny_model("lstm", input_dim=2).stream(1)
    assert vectors.step([[1, 2]]).shape == (1, 5)
    with torch.no_grad():
        next(model.core.parameters()).add_(1)
    with pytest.raises(ValueError, match="make a new stream"):
        given.step(tokens[:, 0])


def two_way(**fields):
    torch.manual_seed(0)
    core = CORES["tlb"](dim=16, num_layers=2, num_heads=2, chunk_len=3, num_slots=3, self_per_cross=1, **fields)
    return (
        SequenceModelConfig(embedding_dim=12, whole_rows=True).build(core, num_classes=5, vocabulary=7).double().eval()
    )


def test_whole_rows_let_chunks_look_both_ways():
    model, (tokens, is_first) = two_way(causal=False), tiny_inputs()
    is_first[:, 1:] = False
    logits, _ = model(tokens, model.initial_state(3), is_first)
    later = tokens.clone()
    later[:, 5] = (later[:, 5] + 1) % 7
    changed = (model(later, model.initial_state(3), is_first)[0] != logits).any(-1).all(0)
    assert changed.tolist() == [False] * 3 + [True] * 8, "the chunk of step 5 begins at step 3"
    logits.square().sum().backward()
    assert model.encoder.weight.grad.abs().sum() > 0
    causal = two_way()
    streamed, _ = causal.core(causal.expand(causal.embed(tokens)), causal.core.initial_state(3), is_first)
    torch.testing.assert_close(causal(tokens, None, is_first)[0], causal.decode(streamed))


def test_whole_rows_are_one_episode_of_a_core_that_can_read_them():
    model, (tokens, is_first) = two_way(causal=False), tiny_inputs()
    is_first[0, 4] = True
    with pytest.raises(ValueError, match="every row must be one episode"):
        model(tokens, model.initial_state(3), is_first)
    with pytest.raises(ValueError, match="reads whole rows only"):
        model.stream(1)
    other = SequenceModelConfig(whole_rows=True).build(tiny_core("gru"), num_classes=2, vocabulary=7)
    with pytest.raises(ValueError, match="GRU reads streams only"):
        other(tokens, other.initial_state(3), is_first)
    with pytest.raises(ValueError, match="choose one of the two"):
        SequenceModelConfig(whole_rows=True, given_memory="streamed")
    with pytest.raises(ValueError, match="whole_rows needs whole rows"):
        SupervisedConfig(task=Copying(), core=tiny_core("tlb"), agent=SequenceModelConfig(whole_rows=True), unroll=3)


@pytest.mark.parametrize(
    ("own", "given"),
    [(torch.float32, torch.float16), (torch.float32, torch.bfloat16), (torch.float64, torch.float32)],
)
def test_floats_of_another_dtype_are_refused(own, given):
    model = tiny_model("gru", input_dim=4).to(own)
    is_first = torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=f"inputs are {given}; this model computes in {own}: give inputs.to"):
        model(torch.zeros(2, 3, 4, dtype=given), model.initial_state(2), is_first)
