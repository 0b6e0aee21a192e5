import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from recollect.agents import SequenceModelConfig
from recollect.cores import CORES
from recollect.evaluation.sequences import evaluate
from recollect.tasks import Arrays
from recollect.tasks.streams.contract import StreamTask
from recollect.training import SupervisedConfig, fit
from small_runs import recall

TASK = recall()


def model(seed=0):
    torch.manual_seed(seed)
    core, spec = CORES["gru"](dim=6, num_layers=1), TASK.spec
    return SequenceModelConfig().build(core, num_classes=spec.num_classes, vocabulary=spec.vocabulary)


def test_scores_equal_a_literal_loop():
    scored = evaluate(model(), TASK, num_rows=10, batch_size=4, seed=3)
    generator = torch.Generator().manual_seed(3)
    right, asked = [], []
    for rows in (4, 4, 2):
        batch = TASK.sample(rows, generator)
        for row in range(rows):
            stream = model().eval().stream(1)
            right.append(0)
            asked.append(0)
            for step in range(11):
                logits = stream.step(batch.inputs[row : row + 1, step], batch.is_first[row : row + 1, step])
                if batch.score_mask[row, step]:
                    asked[-1] += 1
                    right[-1] += int(logits.argmax() == batch.targets[row, step])
    assert (scored.correct, scored.asked) == (right, asked)
    assert scored.score == pytest.approx(sum(right) / sum(asked))
    assert scored.perfect == pytest.approx(np.mean([r == a for r, a in zip(right, asked, strict=True)]))
    assert scored.chance == 1 / 3


def test_unrolls_and_batches_change_no_number():
    whole = evaluate(model(), TASK, num_rows=12, batch_size=4, unroll=3)
    again = evaluate(model(), TASK, num_rows=12, batch_size=4)
    assert whole.correct == again.correct
    assert whole.loss == pytest.approx(again.loss, rel=1e-4)


def test_mode_and_generator_are_put_back():
    one = model().train()
    one.core.eval()  # frozen, as before its head is trained
    before = torch.get_rng_state()
    evaluate(one, TASK, num_rows=2)
    assert one.training
    assert not any(module.training for module in one.core.modules())
    assert torch.equal(before, torch.get_rng_state())


def test_no_rows_is_refused():
    with pytest.raises(ValueError, match="num_rows=0"):
        evaluate(model(), TASK, num_rows=0)


@dataclass(frozen=True, kw_only=True)
class Asks(StreamTask):
    """Asks at the last step of every n-th row."""

    every: int
    part: str = "train"

    @property
    def spec(self):
        return TASK.spec

    def sample(self, batch_size, generator):
        batch = TASK.sample(batch_size, generator)
        asked = torch.zeros_like(batch.score_mask)
        if self.every:
            asked[:: self.every, -1] = True
        return batch._replace(score_mask=asked)


def test_a_row_that_asks_nothing_is_not_perfect():
    scored = evaluate(model(), Asks(every=2), num_rows=12, batch_size=4)
    assert scored.asked == [1, 0] * 6 and 0 < scored.score < 1
    assert scored.perfect == scored.score


def test_rows_of_which_none_asks_anything_are_named_before_training(tmp_path):
    said = r"task=Asks, part='train': none of the 8 rows of an evaluation has a question.*give rows with questions"
    with pytest.raises(ValueError, match=said):
        evaluate(model(), Asks(every=0), num_rows=8, batch_size=4)
    config = SupervisedConfig(task=Asks(every=0), core=CORES["gru"](dim=6, num_layers=1), evaluation_rows=8)
    with pytest.raises(ValueError, match=said):
        fit(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_answers_that_are_values_have_no_mistakes_to_speak_of():
    scored = evaluate(model(), TASK, num_rows=4)
    assert "rows without a mistake" in scored.describe()
    assert "mistake" not in replace(scored, perfect=math.nan).describe()


def test_one_row_has_no_interval():
    scored = evaluate(model(), TASK, num_rows=1)
    assert np.isnan([scored.low, scored.high]).all() and "interval" not in scored.describe()


def test_whole_rows_are_read_without_the_steps_that_fill_them_up():
    torch.manual_seed(0)
    task = Arrays()  # rows of 20 to 40 steps
    core = CORES["tlb"](dim=8, num_heads=2, chunk_len=16, num_slots=2, causal=False)
    config = SupervisedConfig(task=task, core=core, agent=SequenceModelConfig(whole_rows=True), batch_size=8)
    trainer = config.build()
    scored = evaluate(trainer.model, task, num_rows=8, batch_size=8)
    batch, losses = next(iter(task.batches(8, 8, torch.Generator().manual_seed(0)))), []
    lengths = (~batch.padding).sum(1).tolist()
    assert len(set(lengths)) > 1
    for row, length in enumerate(lengths):
        alone = batch._each(lambda field, row=row, length=length: field[row : row + 1, :length])
        logits, _ = trainer.model.eval()(alone.inputs, trainer.model.initial_state(1), alone.is_first)
        losses.append(torch.nn.functional.cross_entropy(logits[alone.score_mask], alone.targets[alone.score_mask]))
    assert scored.loss == pytest.approx(torch.stack(losses).mean().item(), rel=1e-4)

    padded = []
    trainer.model.register_forward_pre_hook(lambda _, arguments: padded.append(arguments[3]))
    trainer.step()
    assert bool(padded[0].any()), "in training too"
