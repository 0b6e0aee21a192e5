from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect.cores import CORES
from recollect.evaluation.sequences import confidence_interval, evaluate, evaluate_run, load_config, load_model
from recollect.tasks import Recall
from recollect.training import FitConfig, SupervisedConfig, fit

TASK = Recall(num_keys=3, num_values=2, num_cues=1, num_queries=1, min_blank=0, max_blank=2, length=11)
CONFIG = SupervisedConfig(
    task=TASK,
    core=CORES["gru"](dim=6, num_layers=1),
    fit=FitConfig(steps=3, evaluate_every=3, checkpoint_every=2),
    batch_size=4,
    evaluation_rows=8,
)


def model(seed=0):
    torch.manual_seed(seed)
    return CONFIG.build_agent()


def test_scores_equal_a_literal_loop():
    scored = evaluate(model(), TASK, rows=10, batch_size=4, seed=3)
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
    whole = evaluate(model(), TASK, rows=12, batch_size=4, unroll=3)
    again = evaluate(model(), TASK, rows=12, batch_size=4)
    assert whole.correct == again.correct
    assert whole.loss == pytest.approx(again.loss, rel=1e-4)


def test_mode_and_generator_are_put_back():
    one = model().train()
    before = torch.get_rng_state()
    evaluate(one, TASK, rows=2)
    assert one.training
    assert torch.equal(before, torch.get_rng_state())


def test_the_interval_has_its_level():
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        low, high = confidence_interval(generator.binomial(4, 0.3, 100), np.full(100, 4))
        hits += low <= 0.3 <= high
    assert 180 <= hits <= 199


def test_the_interval_of_a_perfect_score_is_a_point():
    assert confidence_interval(np.full(5, 2), np.full(5, 2)) == (1.0, 1.0)


def test_no_rows_is_refused():
    with pytest.raises(ValueError, match="rows=0"):
        evaluate(model(), TASK, rows=0)


def test_a_run_is_loaded_and_scored(tmp_path):
    outcome = fit(CONFIG, tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert not loaded.training
    assert load_config(tmp_path / "run") == CONFIG
    for name, value in outcome.agent.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    scored = evaluate_run(tmp_path / "run", rows=16)
    assert scored == evaluate_run(tmp_path / "run", rows=16)
    assert scored.correct != evaluate_run(tmp_path / "run", rows=16, seed=1).correct


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"not a run directory: there is no config\.json"):
        evaluate_run(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        evaluate_run(tmp_path)


def test_a_run_without_a_checkpoint_is_named(tmp_path):
    run = tmp_path / "run"
    fit(replace(CONFIG, fit=replace(CONFIG.fit, steps=1)), run)
    (run / "checkpoint" / "step-000000001" / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"no complete checkpoint yet .*manifest\.json is missing"):
        evaluate_run(run)
