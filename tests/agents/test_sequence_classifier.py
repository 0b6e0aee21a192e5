"""One answer for a whole row: padding, pairs, restoring hidden tokens, and its folder."""

import json

import pytest
import torch

from recollect.agents import SequenceClassifier, SequenceClassifierConfig
from recollect.encoders import ENCODERS
from recollect.encoders.config import TransformerConfig
from recollect.tasks import Arrays, ListOps, TaskSpec

ROWS = [key for key, config in ENCODERS.items() if not config.reads_patches]
READER = TransformerConfig(dim=8, num_layers=1, num_heads=2, hidden_dim=12)
SPEC = TaskSpec(vocabulary=7, input_dim=None, num_classes=3, length=12)


def model(spec=SPEC, reader=READER, restores=False, **fields):
    torch.manual_seed(0)
    made = SequenceClassifierConfig(embedding_dim=6, hidden_dim=5, **fields).build(reader, spec, restores=restores)
    return made.double().eval()


@pytest.mark.parametrize("key", ROWS)
@pytest.mark.parametrize("positions", ["learned", "sinusoid", "none"])
def test_padding_changes_no_answer(key, positions):
    ours = model(reader=ENCODERS[key](), positions=positions)
    tokens = torch.randint(0, 7, (2, 12))
    padding = torch.arange(12) >= torch.tensor([9, 4])[:, None]
    logits = ours(tokens, padding)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(ours(tokens.masked_fill(padding, 0), padding), logits)
    torch.testing.assert_close(ours(tokens[:, :10], padding[:, :10]), logits)
    torch.testing.assert_close(ours(tokens[1:, :4]), logits[1:])


@pytest.mark.parametrize("key", ROWS)
def test_rows_of_like_length_may_be_read_together(key):
    together, apart = (model(reader=ENCODERS[key](), length_groups=groups) for groups in (1, 3))
    tokens = torch.randint(0, 7, (7, 12))
    padding = torch.arange(12) >= torch.tensor([12, 3, 7, 1, 0, 9, 5])[:, None]
    torch.testing.assert_close(apart(tokens, padding)[:4], together(tokens, padding)[:4])
    one, two = (ours.encode(tokens, padding)[0].outputs for ours in (together, apart))
    torch.testing.assert_close(one, two)


def test_the_row_is_the_mean_of_its_steps():
    ours = model()
    tokens = torch.randint(0, 7, (1, 12))
    outputs = ours.encoder(ours.embedding(tokens[:, :5]) + ours.positions[:5]).outputs
    padding = torch.arange(12)[None] >= 5
    torch.testing.assert_close(ours(tokens, padding), ours.head(outputs.mean(1)))


def test_two_sequences_are_read_alone_and_compared():
    spec = TaskSpec(vocabulary=7, input_dim=None, num_classes=2, length=12, parts=2)
    ours = model(spec)
    tokens = torch.randint(0, 7, (3, 12))
    padding = (torch.arange(12) % 6) >= torch.tensor([6, 3, 1])[:, None]
    rows = []
    for part in (tokens[:, :6], tokens[:, 6:]):
        outputs, _ = ours.encoder(ours.embedding(part) + ours.positions, padding[:, :6])
        rows.append(outputs.sum(1) / (~padding[:, :6]).sum(1, keepdim=True))
    one, two = rows
    torch.testing.assert_close(ours(tokens, padding), ours.head(torch.cat((one, two, one * two, one - two), -1)))


def test_masked_tokens_have_no_effect():
    ours = model(restores=True)
    tokens = torch.randint(0, 7, (2, 12))
    hidden = torch.rand(2, 12) < 0.4
    logits = ours.restored(tokens, hidden, None)
    assert logits.shape == (2, 12, 7)
    other = torch.where(hidden, (tokens + 3) % 7, tokens)
    torch.testing.assert_close(ours.restored(other, hidden, None), logits)
    assert not torch.allclose(ours.restored(tokens, torch.zeros_like(hidden), None), logits)
    with pytest.raises(ValueError, match="restores=True"):
        model().restored(tokens, hidden, None)


@pytest.mark.parametrize("key", ROWS)
def test_save_and_load_classifier(tmp_path, key):
    ours = model(reader=ENCODERS[key](), restores=True)
    ours.save(tmp_path)
    again = SequenceClassifier.load(tmp_path).double()
    tokens = torch.randint(0, 7, (2, 12))
    torch.testing.assert_close(again(tokens), ours(tokens), rtol=1e-4, atol=1e-5)


def test_the_answer_is_repeated_at_every_step_and_floats_are_read_too():
    task = ListOps(min_length=5, max_length=20, train_rows=50, validation_rows=5, test_rows=5)
    batch = task.sample(4, torch.Generator().manual_seed(0))
    ours = model(task.spec)
    torch.testing.assert_close(ours.answer(batch)[:, 3], ours(batch.inputs, batch.padding))
    waves = Arrays()
    batch = waves.sample(4, torch.Generator().manual_seed(0))
    assert model(waves.spec).float().answer(batch).shape == (4, waves.spec.length, 3)


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("wrong", [-1, 7, 8])
def test_a_token_outside_the_vocabulary_is_named(restores, wrong):
    """One more than the last would else be taken for the mark of hidden tokens."""
    ours = model(restores=restores)
    tokens = torch.zeros(2, 12, dtype=torch.long)
    tokens[1, 3] = wrong
    with pytest.raises(ValueError, match=rf"token {wrong} is outside the vocabulary of 7: use 0..6"):
        ours(tokens)
    if restores:
        with pytest.raises(ValueError, match=rf"token {wrong} is outside the vocabulary of 7"):
            ours.restored(tokens, torch.zeros(2, 12, dtype=torch.bool), None)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_bad_padding_and_rows_without_a_step_are_named(parts, groups):
    ours = model(TaskSpec(vocabulary=7, input_dim=None, num_classes=2, length=12, parts=parts), length_groups=groups)
    tokens = torch.zeros(2, 12, dtype=torch.long)
    for padding in (torch.zeros(2, 12), torch.zeros(1, 12).bool(), torch.zeros(2, 10).bool()):
        with pytest.raises(ValueError, match=r"padding is .*; it must be bool \[2, 12\]: True at steps to be ignored"):
            ours(tokens, padding)
    with pytest.raises(ValueError, match=r"inputs have shape \[2, 0\]: give rows .* of at least one step"):
        ours(tokens[:, :0])


@pytest.mark.parametrize("missing", ["agent", "encoder", "restores", "parts", "vocabulary"])
def test_load_names_what_the_description_lacks(tmp_path, missing):
    model().save(tmp_path)
    file = tmp_path / ("config.json" if missing in ("agent", "encoder") else "spec.json")
    found = json.loads(file.read_text())
    del (found if missing in found else found["sizes"])[missing]
    file.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=rf"{file.name} has no '{missing}': give a folder that"):
        SequenceClassifier.load(tmp_path)


def test_bad_inputs_and_settings_are_named():
    with pytest.raises(ValueError, match=r"inputs are torch.int64 \[1, 13\]; this model takes tokens"):
        model()(torch.zeros(1, 13, dtype=torch.long))
    with pytest.raises(ValueError, match="takes tokens"):
        model()(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="embedding_dim=0"):
        SequenceClassifierConfig(embedding_dim=0)
    with pytest.raises(ValueError, match="give a multiple of the 2 parts"):
        model(TaskSpec(vocabulary=7, input_dim=None, num_classes=2, length=11, parts=2))
    with pytest.raises(ValueError, match="choose a task with tokens"):
        model(Arrays().spec, restores=True)


def test_floats_of_another_dtype_are_refused():
    ours = model(spec=TaskSpec(vocabulary=None, input_dim=4, num_classes=3, length=12))
    with pytest.raises(ValueError, match=r"inputs are torch.float16; this model computes in torch.float64"):
        ours(torch.zeros(2, 12, 4, dtype=torch.float16))
