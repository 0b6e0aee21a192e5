"""Recorded episodes are cloned without a world: spaces from the file, held-out episodes, scores, predictions."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect import GRUConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.spaces import space_to_json
from recollect.cli import main
from recollect.evaluation.recorded_score import score_recorded
from recollect.evaluation.recorded_world import RecordingConfig
from recollect.recipes.train import training
from recollect.training import CloningConfig, TeacherConfig

TINY = ["--core", "gru", "--core.dim", "16", "--batch-size", "4", "--unroll", "8"]


def write(path, kind, episodes=30):
    random = np.random.default_rng(0)
    lengths = random.integers(3, 12, episodes)
    first = np.concatenate(([0], lengths.cumsum()[:-1]))
    observation = np.zeros((lengths.sum(), 4), np.float32)
    shown = random.integers(0, 3, episodes)
    observation[first, shown] = 1  # at the start only
    action = np.repeat(shown, lengths)
    if kind == "floats":
        action = np.stack([action * 2.0 - 1, np.full(len(action), 5.0)], 1).astype(np.float32)
    np.savez(path, observation=observation, action=action, lengths=lengths)
    return observation, action, lengths


def agent_of(config):
    torch.manual_seed(0)
    return config.build_agent().eval()


@pytest.mark.parametrize("whole", [False, True])
def test_actions_may_begin_at_another_number(tmp_path, whole):
    observation, action, lengths = write(tmp_path / "from0.npz", "whole")
    found = []
    for start in (0, 7):
        path, space = str(tmp_path / f"from{start}.npz"), spaces.Discrete(3, start=start)
        described = np.array(json.dumps(space_to_json(space)))
        np.savez(path, observation=observation, action=action + start, lengths=lengths, action_space=described)
        teacher = TeacherConfig(name=path, whole=whole)
        core = GRUConfig(dim=8, num_layers=1)
        config = CloningConfig(world=RecordingConfig(path=path), core=core, teacher=teacher, batch_size=4, unroll=8)
        torch.manual_seed(0)
        trainer = config.build()
        found.append([trainer.step()["loss"] for _ in range(3)] + list(trainer.evaluate().values()))
    assert found[0] == found[1]


def test_spaces_follow_from_the_file(tmp_path):
    path = tmp_path / "mixed.npz"
    lengths = np.array([3, 3, 3])
    image = np.zeros((9, 6, 5, 3), np.uint8)
    seen = {"observation.image": image, "observation.arm.joints": np.zeros((9, 2))}
    seen |= {"observation.held": np.array([0, 1, 4] * 3)}
    np.savez(path, **seen, lengths=lengths, action=np.array([[0, 3], [1, 0], [9, 9]] * 3))
    spec = RecordingConfig(path=str(path)).spec
    assert spec.action_space == spaces.MultiDiscrete([2, 4]), "the action of a last step is not taken"
    seen = spec.observation_space
    assert seen["image"] == spaces.Box(0, 255, (6, 5, 3), np.uint8) and seen["held"] == spaces.Discrete(5)
    assert seen["arm"]["joints"].shape == (2,) and not seen["arm"]["joints"].is_bounded()
    np.savez(path, observation=np.full((9, 2), -1), action=np.zeros(9, int), lengths=lengths)
    with pytest.raises(ValueError, match=r"smallest value=-1: .*categories from 0 on; else give floats"):
        _ = RecordingConfig(path=str(path)).spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": np.full(4, 6)}, r"action=20: .*its lengths need 24 steps"),
        ({"action": np.zeros(19, int)}, r"action=19: .*its lengths need 20 steps"),
        ({"action": np.full((20, 2), np.nan)}, r"action=nan: .*step 0 of episode 0.*: leave this episode out"),
        ({"action": np.zeros(20, int)}, "every action is 0: there is nothing to learn"),
        ({"observation": np.full((20, 3), -1e39)}, r"observation=-1e\+39: .*: scale it, since float32 cannot hold it"),
        ({"action": np.arange(20.0)}, r"action='\[20\]': .*give floats \[steps, width\]"),
        ({"observation": None}, "has no observation: it has action, lengths; name the arrays observation"),
    ],
)
def test_what_no_agent_can_learn_from_is_named(tmp_path, changes, message):
    arrays = {"observation": np.zeros((20, 3)), "action": np.arange(20) % 3, "lengths": np.full(4, 5)} | changes
    np.savez(tmp_path / "a.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=message):
        _ = RecordingConfig(path=str(tmp_path / "a.npz")).spec


def test_the_parts_are_apart_and_together_everything(tmp_path):
    write(tmp_path / "a.npz", "classes")
    config = RecordingConfig(path=str(tmp_path / "a.npz"), validation=0.2)
    parts = [config.numbers(part).tolist() for part in ("train", "validation", "test")]
    assert list(map(len, parts)) == [21, 6, 3] and sorted(n for part in parts for n in part) == list(range(30))
    assert config.numbers("test").tolist() != RecordingConfig(path=config.path, split_seed=1).numbers("test").tolist()


@pytest.mark.parametrize("part", ["test", "validation"])  # the longest episode is the last one, or one before it
@pytest.mark.parametrize("kind", ["classes", "floats"])
def test_the_score_equals_a_literal_loop(tmp_path, kind, part):
    observation, action, lengths = write(tmp_path / "a.npz", kind)
    config = training(f"recording:{tmp_path / 'a.npz'}", "gru")
    agent, world = agent_of(config), replace(config.world, part=part)
    found = score_recorded(agent, world, episodes=100, batch_size=3)
    starts, right, losses, errors = lengths.cumsum() - lengths, [], [], []
    taken = np.concatenate([action[starts[n] : starts[n] + lengths[n] - 1] for n in world.numbers("train")])
    deviation = taken.std(0) if kind == "floats" else None
    for number in world.numbers(part):
        stream, previous = agent.stream(1), torch.as_tensor(np.zeros_like(action[:1]))
        for step in range(lengths[number] - 1):
            at = starts[number] + step
            inputs = ActorInputs(torch.from_numpy(observation[at : at + 1]), previous, torch.zeros(1),
                                 torch.zeros(1, 0), torch.zeros(1, 0))  # fmt: skip
            with torch.no_grad():
                policy = agent.distribution(stream.step(inputs, torch.tensor([step == 0])).policy)
            previous = torch.from_numpy(action[at : at + 1])
            losses.append(-float(policy.log_prob(previous)))
            mode = policy.mode().numpy()[0]
            if kind == "classes":
                right.append(mode == action[at])
            else:
                errors.append((mode - action[at]) ** 2)
                right.append(1 - (errors[-1][0] / deviation[0] ** 2 + errors[-1][1]) / 2)  # constant: deviation 1
    assert found.score == pytest.approx(np.mean(right), abs=1e-5)
    assert found.loss == pytest.approx(np.mean(losses), rel=1e-4)
    error = 1 - np.mean(right) if kind == "classes" else math.sqrt(np.mean(errors))
    assert found.action_error == pytest.approx(error, rel=1e-4)
    assert found.metrics().keys() == {"score", "low", "high", "held_out_loss", "action_error"}


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.longdouble])
def test_numbers_of_every_type_are_learned_from(tmp_path, kind):
    arrays = {"observation": np.arange(60).reshape(20, 3) % 5, "action": np.arange(20) % 3, "reward": np.ones(20)}
    converted = {name: array.astype(kind) for name, array in arrays.items() if name != "action"}
    np.savez(tmp_path / "a.npz", **converted, action=arrays["action"], lengths=np.full(4, 5))
    world = RecordingConfig(path=str(tmp_path / "a.npz"))
    agent = agent_of(training(f"recording:{world.path}", "gru"))
    assert math.isfinite(score_recorded(agent, world, episodes=1, batch_size=1).loss)
    assert (world.recording.observation[""] == arrays["observation"]).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
@pytest.mark.parametrize("kind", ["classes", "floats"])
def test_an_agent_on_an_accelerator_has_the_same_score(tmp_path, kind):
    write(tmp_path / "a.npz", kind)
    config = training(f"recording:{tmp_path / 'a.npz'}", "gru")
    agent = agent_of(config)
    scores = [score_recorded(agent.to(device), config.world, episodes=9, batch_size=3) for device in ("cpu", "cuda")]
    assert scores[1].loss == pytest.approx(scores[0].loss, rel=1e-3)
    assert scores[1].action_error == pytest.approx(scores[0].action_error, rel=1e-3)


def test_a_recording_becomes_a_policy_with_the_best_by_held_out_episodes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, action, lengths = write("a.npz", "classes", episodes=60)
    lengths_of = ["--fit.steps", "60", "--fit.evaluate-every", "20", "--fit.report-every", "20"]
    assert (
        main(
            [
                "train",
                "recording:a.npz",
                *TINY,
                *lengths_of,
                "--directory",
                "runs/a",
                "--optimizer.learning-rate",
                "1e-2",
            ]
        )
        == 0
    )
    assert "next: recollect evaluate runs/a\n" in capsys.readouterr().out
    with open("runs/a/metrics.csv", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["score"]]
    assert [row["step"] for row in rows] == ["20", "40", "60"]
    assert float(rows[-1]["held_out_loss"]) < float(rows[0]["held_out_loss"])
    assert float(rows[-1]["action_error"]) == pytest.approx(1 - float(rows[-1]["score"]))
    assert main(["evaluate", "runs/a", "--best", "--json", "--predictions", "out.csv", "--report", "report"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["score"] > 0.9 > said["chance"] and said["episodes"] == 6
    with open("out.csv", newline="") as opened:
        rows = list(csv.DictReader(opened))
    starts = lengths.cumsum() - lengths
    assert len(rows) == said["steps"]
    for row in rows:
        assert int(row["target"]) == action[starts[int(row["episode"])] + int(row["step"])]
    assert sum(row["target"] == row["prediction"] for row in rows) == pytest.approx(said["score"] * len(rows))
    assert {row["class"] for row in json.loads((tmp_path / "report/report.json").read_text())["rows"]} <= {
        "0",
        "1",
        "2",
    }
    assert main(["train", "--resume", "--directory", "runs/a", "--fit.steps", "61"]) == 0


def test_what_needs_a_world_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write("a.npz", "classes")
    assert main(["train", "recording:a.npz", *TINY, "--fit.steps", "1", "--directory", "runs/a"]) == 0
    for words, said in (
        (["evaluate", "runs/a", "--video", "videos"], "only runs in a world can be filmed"),
        (["explore", "runs/a"], "was trained on recorded episodes: only runs in a world can be explored"),
        (["train", "recording:a.npz", "--trainer", "impala"], "has no world to act in: leave --trainer away"),
        (["train", "recording:b.npz"], "b.npz"),
    ):
        capsys.readouterr()
        assert main(words) == 2, words
        assert said in " ".join(capsys.readouterr().err.split()), words
