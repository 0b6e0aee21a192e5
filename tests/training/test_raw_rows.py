"""Models of files take raw rows, in calls, in streams and after loading elsewhere, and answer in the file's units.

The numbers have means of 1e4 and deviations of 1e-3, which float32 cannot tell apart.
"""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import recollect
from recollect.cores import CORES
from recollect.encoders import ENCODERS
from recollect.tasks import Arrays
from recollect.training import ClassificationConfig, FitConfig, OptimizerConfig, SupervisedConfig, evaluate_run, fit
from recollect.training.saved_run import load_config

ROWS, STEPS = 120, 6
GRU = CORES["gru"](dim=16, num_layers=1)
FIT = FitConfig(steps=30)
COMMON = {"fit": FIT, "batch_size": 32, "optimizer": OptimizerConfig(learning_rate=2e-2)}


def sensors(seed=0):
    """Return readings ``[rows, steps, 2]``, a class of each row (the sign of a late one), and a value: their mean."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(ROWS, STEPS, 2))
    classes = np.where(noise[:, -2, 0] > 0, "high", "low")
    return 1e4 + 1e-3 * noise, classes, 1e4 + 1e-3 * noise[:, -2:].mean((1, 2))


def write_csv(path, inputs, targets):
    lines = ["sequence,speed,angle,state"]
    lines += [f"{row},{a!r},{b!r},{target}" for row, target in enumerate(targets) for a, b in inputs[row].tolist()]
    path.write_text("\n".join(lines) + "\n")


def test_rows_of_a_file_are_streamed_elsewhere_with_the_score_of_the_evaluation(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    inputs, classes, _ = sensors()
    write_csv(tmp_path / "home" / "sensors.csv", inputs, classes)
    task = Arrays(path="sensors.csv", target="state", test=0.4)
    fit(SupervisedConfig(task=task, core=GRU, **COMMON), "run")
    score = evaluate_run("run").score
    tested = task.scored_on(final=True).part_rows().numpy()
    assert score > 0.8, "standardised rows are easy"

    shutil.move(tmp_path / "home" / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    model = recollect.load("run")
    assert model.spec.input_names == ("speed", "angle") and model.spec.class_names == ("high", "low")
    assert model.spec.output_names == ("state",) and model.spec.units == "raw numbers, as in sensors.csv"
    stream = model.stream(len(tested))
    for step in range(STEPS):
        logits = stream.step(inputs[tested, step])
    names = model.spec.name_classes(logits.argmax(-1))
    assert abs(np.mean(np.array(names) == classes[tested]) - score) < 0.01

    one = model.stream(1)  # row by row, as lists
    for step in range(STEPS):
        alone = one.step([inputs[tested[0], step].tolist()], is_first=step == 0)
    np.testing.assert_allclose(alone[0], logits[0], atol=1e-5)
    is_first = torch.zeros(len(tested), STEPS, dtype=torch.bool)
    is_first[:, 0] = True
    called, _ = model(torch.from_numpy(inputs[tested]), model.initial_state(len(tested)), is_first)
    np.testing.assert_allclose(called[:, -1].detach(), logits, atol=1e-5)


@pytest.mark.parametrize("kind", ["sequence-model", "sequence-classifier"])
def test_values_have_the_units_of_the_file(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, _, values = sensors()
    np.savez("data.npz", inputs=inputs, targets=values)
    task = Arrays(path="data.npz", test=0.4)
    if kind == "sequence-model":
        config = SupervisedConfig(task=task, core=GRU, **COMMON)
    else:
        config = ClassificationConfig(task=task, encoder=ENCODERS["transformer"](num_layers=1, num_heads=2), **COMMON)
    fit(config, "run")
    score, tested = evaluate_run("run").score, task.scored_on(final=True).part_rows().numpy()
    scale = task.spec.target_scale
    (tmp_path / "data.npz").unlink()
    model = recollect.load("run")
    if kind == "sequence-model":
        stream = model.stream(len(tested))
        for step in range(STEPS):
            answers = stream.step(inputs[tested, step])
    else:
        answers = model(torch.from_numpy(inputs[tested])).detach().numpy()
    assert answers.dtype == np.float64 and answers.shape == (len(tested), 1)
    errors = (answers[:, 0] - values[tested]) / scale.std[0]
    assert 1 - np.square(errors).mean() == pytest.approx(score, abs=1e-3) and score > 0


def test_float32_that_cannot_tell_the_numbers_apart_is_refused(tmp_path):
    inputs, classes, _ = sensors()
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=classes)
    model = SupervisedConfig(task=Arrays(path=str(tmp_path / "data.npz")), core=GRU).build_agent()
    message = (
        r"float32, which is too coarse for number 1 of a step, with mean 10000 and deviation 0\.00\d+: give float64"
    )
    with pytest.raises(ValueError, match=message):
        model.stream(2).step(inputs[:2, 0].astype(np.float32))
    with pytest.raises(ValueError, match=message):
        model.stream(2).step(torch.zeros(2, 2))
    is_first = torch.zeros(2, STEPS, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(2, STEPS, 2), model.initial_state(2), is_first)
    model.bfloat16().float()  # the scale keeps its digits
    assert model.input_norm.mean.dtype == torch.float64 and model.input_norm.std[0] < 2e-3


def test_a_run_of_an_earlier_version_takes_the_scale_from_its_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, classes, _ = sensors()
    np.savez("data.npz", inputs=inputs, targets=classes)
    config = SupervisedConfig(task=Arrays(path="data.npz", test=0.4), core=GRU, **COMMON | {"fit": FitConfig(steps=2)})
    outcome = fit(config, "run")
    agent = load_config("run").build_agent()
    earlier = {name: tensor for name, tensor in outcome.agent.state_dict().items() if "_norm." not in name}
    agent.load_state_dict(earlier)
    assert torch.equal(agent.input_norm.mean, outcome.agent.input_norm.mean)
    how = {"samples": 48, "seed": 3}
    assert config.evaluate(agent, **how) == config.evaluate(outcome.agent, **how)
    started = fit(replace(config, fit=FitConfig(steps=1)), "next", start_from="run")
    assert torch.equal(started.agent.input_norm.mean, outcome.agent.input_norm.mean)


def test_a_model_is_scored_on_a_file_of_another_scale_in_its_own_units(tmp_path, monkeypatch):
    """An answer of 300 is right where the target is 300, whatever mean and deviation the two files have."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    inputs = random.normal(size=(60, 4, 1))
    np.savez("one.npz", inputs=inputs, targets=300 + 20 * inputs[:, -1, 0])
    np.savez("two.npz", inputs=3 * inputs + 1, targets=300 + 20 * (3 * inputs[:, -1, 0] + 1))
    config = SupervisedConfig(task=Arrays(path="one.npz"), core=GRU, **COMMON | {"fit": FitConfig(steps=5)})
    model = fit(config, "run").agent.eval()
    other = Arrays(path="two.npz", validation=0, test=0.5)
    score = config.evaluate(model, replace(other, part="test"), samples=60, seed=0).score
    tested = replace(other, part="test").part_rows()
    batch = other.make_batch(tested)
    with torch.no_grad():
        answers, _ = model(batch.inputs, model.initial_state(len(tested)), batch.is_first)
    errors = (answers - batch.targets)[batch.score_mask] / other.spec.target_scale.std[0]
    assert score == pytest.approx(1 - float(errors.square().mean()), abs=1e-4)
