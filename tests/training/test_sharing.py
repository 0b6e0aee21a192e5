"""Models that are pushed to a hub on loopback, and loaded again."""

import json
import pickle
import sys
from dataclasses import replace

import pytest
import torch

import recollect
from fake_hub import TOKEN, running_hub
from recollect.agents import model_sources
from recollect.cli import main
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training.loop import fit
from recollect.training.sharing import write_shared_folder

constants = pytest.importorskip("huggingface_hub.constants")
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client's own requests


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = short_t_maze("gru")
    folder = tmp_path_factory.mktemp("runs") / "maze"
    config = replace(
        config,
        core=lite_core("gru", steps=8),
        world=TMazeConfig(length=3, slack=4),
        batch_size=4,
        unroll=4,
        evaluation=replace(config.evaluation, episodes=4),
        fit=replace(config.fit, steps=1, evaluate_every=1),
    )
    fit(config, folder)
    return folder


@pytest.fixture
def online(monkeypatch, tmp_path):
    """A hub on loopback that is the client's own hub, with an empty cache."""
    with running_hub() as fake:
        for name, value in {
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
            "ENDPOINT": fake.endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{fake.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        model_sources._fetch.cache_clear()
        yield fake


def push(source, repository, online, **options):
    return recollect.push_to_hub(source, repository, token=TOKEN, endpoint=online.endpoint, **options)


def pull(repository, online, tmp_path, **options):
    there = {"endpoint": online.endpoint, "cache": tmp_path / "cache"}
    return recollect.from_pretrained(repository, **there, **options)


def assert_same(ours, theirs):
    assert type(ours) is type(theirs) and not theirs.training
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)


def test_a_run_is_pushed_with_its_card_and_comes_back_bit_for_bit(run, online, tmp_path):
    assert push(run, "me/maze", online, samples=8) == f"{online.endpoint}/me/maze"
    assert_same(recollect.load(run), pull("me/maze", online, tmp_path))
    assert_same(recollect.load(run), recollect.load("hub:me/maze"))
    files = online.files("me/maze")
    results, card = json.loads(files["results.json"]), files["README.md"].decode()
    test = results["tests"][""]
    assert test["episodes"] == 8 and test["chance"] == 0.5
    assert f"| as trained | {test['score']:.3f} | {test['low']:.3f} to {test['high']:.3f} | 0.500 | 8 |" in card
    environment = json.loads((run / "environment.json").read_text())[0]
    for said in (environment["command"], environment["commit"], environment["hardware"]["processor"], "gru", "Seed: 0"):
        assert said in card
    assert 'recollect.load("hub:me/maze")' in card and "![A frame of an episode](film.png)" in card
    assert files["film.png"].startswith(b"\x89PNG")


def test_what_was_pushed_is_pushed_again_with_the_same_scores(run, online, tmp_path):
    push(run, "me/maze", online, samples=8)
    push("hub:me/maze", "you/maze", online)
    assert online.files("you/maze")["results.json"] == online.files("me/maze")["results.json"]
    assert_same(pull("me/maze", online, tmp_path), pull("you/maze", online, tmp_path))


def test_the_results_of_a_single_episode_are_json_for_every_reader(run, tmp_path):
    write_shared_folder(run, tmp_path, shared_as="hub:me/maze", samples=1)
    text = (tmp_path / "results.json").read_text()
    assert json.loads(text)["tests"][""]["episodes"] == 1
    assert "NaN" not in text and "Infinity" not in text


def test_a_model_in_memory_is_pushed_without_scores(online, tmp_path):
    core = recollect.LSTMConfig(dim=8)
    model = recollect.SequenceModelConfig(embedding_dim=8).build(core, vocabulary=5, num_classes=3).eval()
    push(model, "me/model", online)
    assert_same(model, pull("me/model", online, tmp_path))
    assert "It was not scored." in online.files("me/model")["README.md"].decode()


def test_the_command_pushes_and_commands_take_what_was_pushed(run, online, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main(["push", str(run), "me/maze", "--samples", "4"]) == 0
    assert f"{online.endpoint}/me/maze" in capsys.readouterr().out
    assert main(["evaluate", "hub:me/maze", "--samples", "4", "--json"]) == 0
    pushed = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(run), "--samples", "4", "--json"]) == 0
    assert pushed == json.loads(capsys.readouterr().out)
    words = ["explore", "hub:me/maze", "-o", str(tmp_path / "out"), "--episodes", "1", "--longest", "4"]
    assert main(words) == 0 and (tmp_path / "out" / "metrics.json").is_file()


BROKEN = {  # name of the file: what becomes of it, and what is said
    "weights.safetensors": [
        (lambda data: data[: len(data) // 2], "weights.safetensors"),
        (lambda _: b"", "weights.safetensors"),
    ],
    "config.json": [
        (lambda data: data[:40], "config.json is not JSON"),
        (lambda data: data.replace(b'"gru"', b'"evil.module:Core"'), "evil.module"),
        (lambda data: data.replace(b'"dim": 64', b'"dim": 65'), "weights.safetensors"),
        (lambda data: data.replace(b'"dim": 64', b'"dim": 6400000'), "config.json"),
    ],
    "spec.json": [(lambda _: b"[]", "spec.json")],
}
BROKEN["weights.safetensors"].append((lambda _: pickle.dumps({"a": 1}), "weights.safetensors"))


@pytest.mark.parametrize(
    ("name", "change", "said"), [(name, *case) for name, cases in BROKEN.items() for case in cases]
)
def test_a_repository_that_is_cut_or_hostile_is_refused_in_one_line(run, online, tmp_path, name, change, said):
    push(run, "me/maze", online, samples=0)
    before = online.files("me/maze")[name]
    assert change(before) != before
    online.commit("me/maze", {name: change(before)})
    with pytest.raises(ValueError, match=said) as caught:
        pull("me/maze", online, tmp_path)
    assert "\n" not in str(caught.value)
    assert "evil" not in sys.modules


def test_a_source_that_is_not_there_is_one_line(online, capsys):
    assert main(["evaluate", "hub:me/nothing"]) == 2
    assert "hub:me/nothing: there is no such repository" in capsys.readouterr().err
    assert main(["explore", "model:t-maze-hcan"]) == 2
    assert "did you mean 't-maze-hcam'" in capsys.readouterr().err


def test_the_folder_of_the_best_weights_is_shared_as_the_run_with_best(run, tmp_path):
    write_shared_folder(run, tmp_path / "one", shared_as="hub:a/one", best=True, samples=4)
    write_shared_folder(run / "best", tmp_path / "two", shared_as="hub:a/one", samples=4)
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two"))
    assert one["tests"] == two["tests"]
