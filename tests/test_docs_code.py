"""The code of the pages for people who bring something of their own runs as it stands."""

import re
import socket
import sys
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


def run(page, code=None, scope=None):
    scope = {} if scope is None else scope
    for block in code or blocks(page):
        exec(compile(block, f"{page}.md", "exec"), scope)
    return scope


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    return tmp_path


def test_your_own_world(folder):
    (folder / "my_module.py").write_text(blocks("your-own-world")[0])
    scope = run("your-own-world")
    assert scope["action"].shape == (1,) and scope["world"].spec.action_names == ("left", "right")


def test_images(folder):
    scope = run("images")
    assert scope["maps"].shape == (4, 256) and (folder / "top.png").is_file()
    assert torch.equal(scope["pictures"].foreground, scope["foreground"]), "the same four"
    assert scope["outcome"].status == "finished"


def test_datasets(folder):
    scope = run("datasets")
    assert scope["outcome"].status == "finished" and scope["outcome"].step == 3


def test_video(folder):
    assert len(run("video")["outputs"]) == 40


def test_share(folder):
    scope = run("share", code=blocks("share")[:1])  # the other one needs a hub: tests/training/test_sharing.py
    assert scope["action"].shape == (1,) and scope["agent"].spec.run["commit"]


def test_your_own_data(folder):
    scope = run("your-own-data")
    assert scope["cloned"].status == "finished"
    assert scope["outcome"].status == "finished" and scope["task"].class_names == ("down", "up")
    table = scope["Arrays"](path="steps.csv")
    assert table.spec.input_dim == 2 and table.spec.num_classes == 2
    assert scope["Arrays"](path="numbers.csv", sequence="machine").spec.input_dim == 4, "two kinds, a number, its gap"


def test_your_own_loop(folder, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    loop, *rest = blocks("your-own-loop")
    scope = run("your-own-loop", [loop])
    valid, is_first, seen = scope["valid"], scope["first"], scope["seen"]
    assert not valid.all() and torch.equal(is_first[:, 1:], ~valid[:, :-1]), "an episode begins behind each last step"
    assert seen.shape == (8, 64, 4) and seen[is_first].abs().max() <= 0.05, "CartPole begins near 0"
    assert scope["advantage"].isfinite().all()
    run("your-own-loop", rest, scope)

    # The exported step, twice, is the core.
    core, frame = scope["agent"].core, torch.randn(1, 2, 4)
    first = torch.tensor([[True, False]])
    want, _ = core(frame, core.initial_state(1), first)
    memory = scope["inputs"][2:]
    for t in range(2):
        output, *memory = scope["exported"](frame[:, t], first[:, t], *memory)
        torch.testing.assert_close(output, want[:, t])


@pytest.mark.slow
def test_the_loop_of_your_own_learns():
    """45 rollouts of 512 steps: at the beginning an episode has about 20 steps."""
    loop = blocks("your-own-loop")[0].replace("CLIP = 8, 64, 2,", "CLIP = 8, 64, 45,")
    scope = run("your-own-loop", [loop])
    assert (~scope["valid"]).sum() <= 8, "episodes of less than 64 steps on average"


def test_can_this_picture_be_believed(folder, capsys):
    scope = run("believe")
    assert (folder / "explorer.html").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert scope["report"].findings in shown and "causality holds" in shown and "heard as acted holds" in shown


def test_atari(folder):
    pytest.importorskip("ale_py")
    scope = run("atari")
    assert scope["world"].spec.observation_space.shape == (4, 84, 84)
    assert scope["world"].spec.action_names[:2] == ("noop", "fire")
    assert scope["old"].spec.observation_space.shape == (1, 84, 84)


def test_attention_agents(folder):
    pytest.importorskip("ale_py")
    assert run("attention-agents")["world"].spec.observation_space.shape == (1, 42, 42)


def test_deploy(folder):
    scope = run("deploy")
    assert scope["robot"].batch_size == 1 and scope["fleet"].batch_size == 200
    assert sorted(path.suffix for path in folder.glob("*.safetensors")) == [".safetensors"] * 3


def test_home():
    run("index")


def test_serve(folder):
    scope = run("serve")
    assert [answer.steps for answer in scope["answers"]] == [1, 1] and len(scope["store"]) == 3
