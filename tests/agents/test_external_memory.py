"""Questions about a memory that is given: as shared chunks, or as a stream that every question goes on from."""

from dataclasses import replace

import pytest
import torch

from recollect.agents import SequenceModelConfig
from recollect.agents.external_memory import layout
from recollect.cores import CORES
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.hcam.external_memory import read_external_memory, reference_read_external_memory
from recollect.tasks.streams.associative_inference import AssociativeInference
from recollect.training import SupervisedConfig
from tiers import first, only

HCAM = HierarchicalChunkMemoryConfig(
    dim=16, num_layers=2, num_heads=2, hidden_dim=24, memory_len=4, chunk_len=2, num_chunks=10, top_k=10
)
TASK = AssociativeInference(num_chains=3, width=6, form="paper", trials=0)
SHARED = SequenceModelConfig(embedding_dim=12, readout="pointer", norm_inputs=True, given_memory="shared")
STREAMED = replace(SHARED, given_memory="streamed")
SMALL = {
    "dim": 8,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 9,
    "memory_len": 16,
    "num_tokens": 2,
    "num_reads": 2,
    "self_per_cross": 1,
}


def small(key):
    cls = CORES[key]
    return cls(**{name: value for name, value in SMALL.items() if name in cls.__dataclass_fields__})


def model(core=HCAM, config=SHARED):
    torch.manual_seed(0)
    return config.build(core, num_classes=2, input_dim=6).double().eval()


def rows(task=TASK, number=3):
    batch = task.sample(number, torch.Generator().manual_seed(0))
    return batch._replace(inputs=batch.inputs.double())


def answers(agent, batch):
    logits, _ = agent(batch.inputs, agent.initial_state(len(batch.inputs)), batch.is_first)
    return logits


@pytest.mark.parametrize("top_k", first(1, [2, 10]))
def test_shared_chunks_equal_the_plain_loop_in_values_and_gradients(top_k):
    core = model(replace(HCAM, top_k=top_k)).core
    chunks, questions = torch.randn(2, 5, 2, 12).double(), torch.randn(2, 4, 3, 12).double()
    found = []
    for read in (read_external_memory, reference_read_external_memory):
        core.zero_grad()
        asked = questions.clone().requires_grad_()
        out = read(core, chunks, asked)
        out.square().sum().backward()
        found.append([out, asked.grad, *(p.grad for p in core.layers.parameters() if p.grad is not None)])
    assert len(found[0]) > 20
    torch.testing.assert_close(*found)


def test_all_layers_read_the_same_chunks_and_no_gradient_enters_them():
    core = model().core
    chunks = torch.randn(1, 5, 2, 12).double().requires_grad_()
    questions = torch.randn(1, 1, 3, 12).double()
    assert not read_external_memory(core, chunks.detach(), questions).requires_grad or chunks.grad is None
    read_external_memory(core, chunks, questions).sum().backward()
    assert chunks.grad is None
    with torch.no_grad():
        for layer in core.layers[:1]:
            layer.memory.out.weight.zero_(), layer.memory.out.bias.zero_()
        before = read_external_memory(core, chunks, questions)
        assert not torch.equal(before, read_external_memory(core, chunks + 1e-3, questions)), (
            "the second layer reads them too"
        )


@pytest.mark.parametrize("config", [SHARED, STREAMED])
def test_a_question_sees_the_memory_and_no_other_question(config):
    agent, batch = model(config=config), rows()
    asked = answers(agent, batch)
    start, length = layout(batch.is_first)
    assert (start, length, asked.shape[1]) == (12, 3, 12 + 3 * 9)
    assert (asked[:, :start] == 0).all()
    assert torch.equal(asked[:, start], asked[:, start + 2]), "all steps of a question have its answer"
    other = batch.inputs.clone()
    other[:, start + 3 : start + 6] += 1
    changed = answers(agent, batch._replace(inputs=other)) != asked
    assert changed[:, start + 3].any() and not changed[:, start + 6 :].any() and not changed[:, : start + 3].any()
    other = batch.inputs.clone()
    other[:, 0] += torch.randn(6).double()
    assert (answers(agent, batch._replace(inputs=other)) != asked)[:, start:].any(-1).all()


def test_the_answer_does_not_depend_on_the_order_of_the_pairs():
    agent, batch = model(), rows()
    pairs = batch.inputs[:, :12].unflatten(1, (6, 2)).flip(1).flatten(1, 2)
    again = batch._replace(inputs=torch.cat((pairs, batch.inputs[:, 12:]), 1))
    torch.testing.assert_close(answers(agent, again), answers(agent, batch))


@pytest.mark.parametrize("key", only(("lstm", "hcam", "ttm"), CORES))
def test_any_core_reads_the_memory_as_a_stream(key):
    agent, batch = model(small(key), STREAMED), rows()
    asked = answers(agent, batch)
    # One question after the memory, as the core itself reads it.
    items = agent.embed(batch.inputs[:, :15])
    outputs, _ = agent.core(agent.expand(items), agent.core.initial_state(3), torch.zeros(3, 15, dtype=torch.bool))
    pooled = outputs[:, 12:]
    pooled = pooled.mean(2) if pooled.ndim == 4 else pooled
    answer = agent.readout(agent.norm(pooled.mean(1)))
    expected = (items[:, 13:15] @ answer[..., None])[..., 0] / 12**0.5
    torch.testing.assert_close(asked[:, 12], expected)


def test_memoryless_does_not_depend_on_the_memory():
    agent, batch = model(small("memoryless"), STREAMED), rows()
    other = batch.inputs.clone()
    other[:, :12] = torch.randn(3, 12, 6)
    assert torch.equal(answers(agent, batch), answers(agent, batch._replace(inputs=other)))


def test_bad_layouts_and_cores_are_named():
    agent, batch = model(), rows()
    with pytest.raises(ValueError, match="every row needs a memory"):
        answers(agent, batch._replace(is_first=torch.zeros_like(batch.is_first)))
    uneven = batch.is_first.clone()
    uneven[:, 16] = True
    with pytest.raises(ValueError, match=r"questions have \[1, 2, 3\] steps"):
        answers(agent, batch._replace(is_first=uneven))
    with pytest.raises(ValueError, match="LSTM has no chunks to share"):
        answers(model(small("lstm")), batch)
    with pytest.raises(ValueError, match="chunk_len=5: the memory has 12 steps"):
        answers(model(replace(HCAM, chunk_len=5)), batch)
    with pytest.raises(ValueError, match="memory_len=1: a question has 3 steps"):
        answers(model(replace(HCAM, memory_len=1)), batch)
    with pytest.raises(ValueError, match="given_memory='shared': this model reads whole rows only"):
        agent.stream(1)


def test_trainer_requires_a_model_that_fits_the_task():
    SupervisedConfig(task=TASK, core=HCAM, agent=SHARED)
    with pytest.raises(ValueError, match=r"agent\.given_memory='none'"):
        SupervisedConfig(task=TASK, core=HCAM)
    with pytest.raises(ValueError, match="unroll=4"):
        SupervisedConfig(task=TASK, core=HCAM, agent=SHARED, unroll=4)
