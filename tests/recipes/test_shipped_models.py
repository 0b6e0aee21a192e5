"""Models in the package: their files, their results, and that they do what the results say."""

import io
import json

import pytest
import torch
from rich.console import Console

import recollect
from recollect.agents.model_sources import SHIPPED, find_model, read_results, shipped_models, source_name
from recollect.config import from_json, to_json
from recollect.recipes import pack_models as packing
from recollect.recipes.demo import quick_demo
from recollect.recipes.shipped_models import MODELS
from recollect.training import REGISTRY, evaluate_run, load_config

RUNS = {run.label: run for run in MODELS.rows("lite")}
NAMES = sorted(shipped_models())


def test_every_model_is_a_row_of_the_recipe_and_all_are_small():
    assert NAMES and set(NAMES) <= RUNS.keys()
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    known = {"config.json", "spec.json", "weights.safetensors", "results.json", "film.png"}
    assert {path.name for path in files} <= known
    assert sum(path.stat().st_size for path in files) < 5_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_model_says_where_it_comes_from(name):
    folder, run = shipped_models()[name], RUNS[name]
    assert (folder / "weights.safetensors").stat().st_size <= packing.MOST_BYTES
    results = read_results(folder)
    assert results["status"] == "ok" and results["core"] == run.core and results["seed"] == 0
    assert results["command"].startswith("recollect ") and "/" not in results["command"]
    assert len(results["commit"]) == 40 and results["hardware"]["processor"] and results["steps"] > 0
    assert results["tests"].keys() == run.scored.keys()
    for test in results["tests"].values():
        assert test["chance"] is None or test["chance"] < test["low"] <= test["score"] <= test["high"]
    assert load_config(f"model:{name}") == run.config
    model = recollect.load(f"model:{name}")
    assert not model.training and sum(p.numel() for p in model.parameters()) == results["parameters"]
    assert model.spec.run["commit"] == results["commit"]
    assert from_json(model.spec.run["config"], type(run.config), REGISTRY) == run.config


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_model_scores_what_its_results_say(name):
    (said, *_), run = read_results(shipped_models()[name])["tests"].values(), RUNS[name]
    if run.tests:
        config, (test, *_) = load_config(f"model:{name}"), run.scored.values()
        found = config.evaluate(recollect.load(f"model:{name}"), test.where, samples=64, seed=123)
    else:
        found = evaluate_run(f"model:{name}", samples=64, seed=123)
    low = said["score"] - max(0.1 * abs(said["score"]), 4 * (said["score"] - said["low"]))
    assert found.score >= low and not found.score < found.chance


def test_results_of_the_package_are_those_of_the_repository():
    results = SHIPPED.parents[2] / "results" / MODELS.name
    for name in NAMES:
        there, here = json.loads((results / f"{name}-seed0.json").read_text()), read_results(shipped_models()[name])
        for test, numbers in here["tests"].items():
            for key, value in numbers.items():
                assert value == there["tests"][test][key]
        assert there["commit"] == here["commit"]


def test_sources_of_models(tmp_path):
    assert find_model("model:t-maze-hcam") == SHIPPED / "t-maze-hcam"
    assert find_model(tmp_path) == tmp_path and find_model("other:thing").name == "other:thing"
    assert source_name("model:t-maze-hcam") == "t-maze-hcam" and source_name("hub:me/maze@v1") == "maze"
    assert source_name(tmp_path / "run") == "run"
    with pytest.raises(ValueError, match="unknown model 't-maze-hcan': did you mean 't-maze-hcam'"):
        recollect.load("model:t-maze-hcan")
    with pytest.raises(ValueError, match=r"best=True: .* has one set of weights"):
        evaluate_run("model:t-maze-hcam", best=True)


def test_a_model_that_did_not_learn_its_task_is_not_packed(tmp_path):
    run = RUNS["goal-shown-once-ttm"]
    results = tmp_path / "results" / MODELS.name
    results.mkdir(parents=True)
    result = {"recipe": MODELS.name, "label": run.label, "seed": 0, "status": "ok", "error": None}
    result |= {"config": to_json(run.config, REGISTRY), "tests": {"": {"score": 0.3, "low": 0.2, "chance": 0.25}}}
    (results / f"{run.label}-seed0.json").write_text(json.dumps(result))
    lines = dict(line.split(": ", 1) for line in packing.pack_models(tmp_path, tmp_path / "models"))
    assert lines[run.label] == "left out: its task has 0.300, which is not above chance"
    assert all("no result of its config" in line for name, line in lines.items() if name != run.label)
    assert not (tmp_path / "models").exists()


@pytest.mark.long
def test_the_quick_demo_trains_nothing_and_says_what_is_remembered(tmp_path):
    console = Console(file=io.StringIO(), record=True, width=200)
    explored = quick_demo(tmp_path, console=console)
    text = console.export_text()
    assert "of the recall is on the cued moment" in text and explored.verdict in text
    assert explored.files["explorer"].is_file() and len(explored.episodes) == 2
    assert all(episode.info.success for episode in explored.episodes)


def test_a_shipped_agent_acts_one_step_at_a_time():
    agent = recollect.load("model:cartpole-lstm")
    stream = agent.stream(1)
    inputs = recollect.ActorInputs(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), torch.zeros(1))
    output = stream.step(inputs, torch.ones(1, dtype=torch.bool))
    assert output.policy.shape == (1, 2)
