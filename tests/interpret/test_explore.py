"""From a run directory to a verdict; controls that need the agent."""

import json
import shutil
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import pytest
import torch

from recollect.cli import main
from recollect.interpret.ablation import play_without_memory
from recollect.interpret.controls import Areas, chunk_areas, score_with_controls
from recollect.interpret.episodes import record_episode
from recollect.interpret.explore import explore_run, record_run
from recollect.interpret.gates import depends_on_weights
from recollect.interpret.html import load_report, write_html
from recollect.interpret.record import Pair
from recollect.interpret.score import score
from recollect.interpret.swaps import memory_swap
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.demo import demo_config
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.runs import checkpoints
from recollect.tasks import GymnasiumConfig
from recollect.tasks.worlds.arcade.catch import CatchConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import FRESH_SEED
from recollect.training.loop import fit

MAZE = TMazeConfig(length=6, slack=10, penalty=0.05)


def _config(core="hcam", world=MAZE):
    config = short_t_maze(core)
    memory = lite_core(core, steps=20, window=4, chunk=4, top_k=2)
    short = replace(config.fit, steps=1, report_every=1)
    evaluation = replace(config.evaluation, episodes=4)
    return replace(config, core=memory, world=world, batch_size=8, unroll=4, fit=short, evaluation=evaluation)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "maze"
    fit(_config(), folder)
    return folder


@pytest.fixture(scope="module")
def episodes(run):
    found = record_run(run, episodes=3, greedy=False)
    # An untrained agent never gets to the junction: say that something depends on the first step all the same.
    return [replace(one, pairs=(Pair(query=(10, 14), key=(0, 2)),)) for one in found]


def test_the_command_writes_metrics_and_a_verdict(run, tmp_path, capsys):
    assert main(["explore", str(run), "-o", str(tmp_path / "out"), "--episodes", "2", "--longest", "12"]) == 0
    shown = capsys.readouterr()
    assert str(run) in shown.out and "metrics.json" in shown.err and "replaced" not in shown.err
    data = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert data["report"]["episodes"] == 2 and data["episode"]["core"] == "hcam"
    assert data["episode"]["checkpoint_step"] == 1 and data["environment"]["command"]
    assert {gate["name"] for gate in data["report"]["gates"]} >= {"causality", "heard as acted", "equal seeds"}
    assert main(["explore", str(run), "-o", str(tmp_path / "out"), "--episodes", "1", "--longest", "4"]) == 0
    assert "replaced what an earlier command wrote in" in capsys.readouterr().err


def test_a_run_that_still_trains_is_read_once_so_that_the_step_is_that_of_the_weights(run, monkeypatch):
    read, found = checkpoints.read_newest, []
    monkeypatch.setattr(checkpoints, "read_newest", lambda folder: found.append(read(folder)) or found[-1])
    (episode,) = record_run(run, episodes=1, longest=2)
    assert len(found) == 1 and episode.info.checkpoint_step == found[0][0].progress["step"]


@pytest.mark.parametrize("seed", [-3_000_000, 2**64])
def test_episodes_of_any_seed(run, seed):
    found = record_run(run, episodes=2, longest=1, seed=seed)
    assert [one.info.seed for one in found] == [(FRESH_SEED + seed + number) % 2**32 for number in range(2)]


def test_another_world_than_that_of_the_run(run, tmp_path, capsys):
    assert main(["explore", str(run), "-o", str(tmp_path), "--env", "catch"]) == 2
    assert "give a world like that of its run" in capsys.readouterr().err
    assert main(["explore", str(run), "-o", str(tmp_path), "--env", "recall"]) == 2
    assert "not a stream task" in capsys.readouterr().err
    longer = record_run(run, world=replace(MAZE, length=9), episodes=1, longest=12)
    assert longer[0].num_steps == 12


def test_a_live_page_without_its_runtime(run, tmp_path, capsys):
    assert main(["explore", str(run), "-o", str(tmp_path / "out"), "--live", "--runtime", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "npm pack onnxruntime-web" in said and "--runtime" in said
    assert not list((tmp_path / "out").iterdir())  # said before anything was computed


@pytest.mark.parametrize(
    ("missing", "world", "message"),
    [
        ("onnx", None, r"pip install 'recollect-torch\[export\]'"),
        ("", CatchConfig(), "only worlds with a JavaScript port"),
    ],
)
def test_what_cannot_be_live_is_said_before_anything_is_fetched_or_recorded(
    run, tmp_path, monkeypatch, missing, world, message
):
    find = "recollect.export.trace.find_spec"
    monkeypatch.setattr(find, lambda name: None if name == missing else True)
    for name in ("find_runtime", "record_run"):
        monkeypatch.setattr(f"recollect.interpret.explore.{name}", lambda *_, **__: pytest.fail("too late"))
    with pytest.raises(ValueError, match=message):
        explore_run(run, tmp_path / "out", live=True, world=world)


def test_an_unknown_writer_is_named_before_anything_is_recorded(run, tmp_path, monkeypatch):
    monkeypatch.setattr("recollect.interpret.explore.record_run", lambda *_, **__: pytest.fail("too late"))
    with pytest.raises(ValueError, match="did you mean 'movie'"):
        explore_run(run, tmp_path / "out", writers=("metrics", "movies"))


def test_memory_is_tried_in_episodes_that_no_training_has_seen(run, tmp_path, monkeypatch):
    seeds = []

    def play(*given, seed, **options):
        seeds.append(seed)
        return play_without_memory(*given, seed=seed, **options)

    monkeypatch.setattr("recollect.interpret.explore.play_without_memory", play)
    explore_run(run, tmp_path / "out", writers=(), controls=False, episodes=1, seed=5)
    assert seeds == [FRESH_SEED + 5]


def test_a_runtime_without_a_live_page_is_refused_before_anything_is_made(run, tmp_path, capsys):
    assert main(["explore", str(run), "-o", str(tmp_path / "out"), "--runtime", str(tmp_path)]) == 2
    assert "--live" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_bad_runs_and_folders(run, tmp_path, capsys):
    assert main(["explore", str(tmp_path)]) == 2
    assert "not a run directory" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["explore", str(run), "-o", str(tmp_path / "file")]) == 2
    assert "cannot be made" in capsys.readouterr().err
    assert main(["explore", str(run), "-o", str(tmp_path / "file" / "deep")]) == 2
    assert "give another folder" in capsys.readouterr().err
    with pytest.raises(ValueError, match="episodes=0"):
        explore_run(run, tmp_path, episodes=0)


def test_a_run_of_another_version(run, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    config = json.loads((other / "config.json").read_text())
    config["core"]["later_field"] = 3
    (other / "config.json").write_text(json.dumps(config))
    assert main(["explore", str(other), "-o", str(tmp_path / "out")]) == 2
    assert "core.later_field" in capsys.readouterr().err


def test_an_episode_of_one_step(run, tmp_path, capsys):
    assert main(["explore", str(run), "-o", str(tmp_path), "--episodes", "1", "--longest", "1"]) == 0
    assert "no step here is known to depend on an earlier one" in capsys.readouterr().out
    assert load_report(tmp_path / "explorer.html")["episodes"] == 1


class Broken(gymnasium.Env):
    """Its third picture has a hole."""

    observation_space = gymnasium.spaces.Box(0, 1, (1, 12, 12), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros((1, 12, 12), np.float32), {}

    def step(self, action):
        self.clock += 1
        picture = np.full((1, 12, 12), 0.5, np.float32)
        if self.clock == 2:
            picture[0, 3] = np.nan
        return picture, 0.0, self.clock >= 5, False, {}


def test_pictures_that_are_not_numbers(tmp_path):
    world = GymnasiumConfig(id=f"{__name__}:Broken")
    record = record_episode(_config("hcam", world).build_agent().eval(), world).with_removal()
    report = score_with_controls([record])
    finite = next(gate for gate in report.gates if gate.name == "finite")
    assert not finite.passed and "observation of episode 0 from step 2 on" in finite.says
    assert "do not believe the picture; failed checks: finite" in report.findings
    assert write_html(record, report, tmp_path / "episode.html")


@dataclass(frozen=True, kw_only=True)
class Restless(TMazeConfig):
    """Shows something else every time that it is played."""

    def build(self, batch_size, *, seed=0, device="cpu"):
        world = super().build(batch_size, seed=seed, device=device)
        observe = world.observe
        world.observe = lambda state: observe(state) + torch.rand(1, generator=NOISE)
        return world


NOISE = torch.Generator().manual_seed(0)


def test_a_world_that_does_not_repeat_itself_is_told_and_scored_all_the_same(episodes):
    world = Restless(length=6, slack=10, penalty=0.05)
    record = record_episode(episodes[0].agent, world, seed=1, greedy=False).with_removal()
    record = replace(record, pairs=(Pair(query=(10, 14), key=(0, 2)),))
    report = score_with_controls([record])
    repeated = next(gate for gate in report.gates if gate.name == "equal seeds")
    assert repeated.passed is False and "equal seeds" in report.findings
    names = [metric.name for metric in report.metrics]
    assert "deletion AUC" in names and not any(name.startswith("success with the") for name in names)


@pytest.mark.parametrize("core", ["mott", "spatio-temporal", "timesformer"])
def test_maps_of_places_where_nothing_is_a_picture(core, tmp_path, capsys):
    fit(_config(core), tmp_path / "run")
    words = ["explore", str(tmp_path / "run"), "-o", str(tmp_path / "out"), "--episodes", "2", "--longest", "12"]
    assert main(words) == 0, capsys.readouterr().err
    report = json.loads((tmp_path / "out" / "metrics.json").read_text())["report"]
    assert not [metric for metric in report["metrics"] if "of places" in metric["name"]]


def test_two_runs_on_one_cursor(run, tmp_path, capsys):
    how = ["--episodes", "1", "--longest", "12", "-o", str(tmp_path)]
    other = tmp_path / "again"
    shutil.copytree(run, other)
    assert main(["explore", str(run), str(other), *how, "--json"]) == 0
    shown = capsys.readouterr()
    assert f"both on one cursor: {tmp_path / 'compare.html'}" in shown.err.replace("\n", "")
    told = {one.pop("run"): one for one in json.loads(shown.out)}
    assert told == {str(path): load_report(tmp_path / path.name / "explorer.html") for path in (run, other)}
    assert len(load_report(tmp_path / "compare.html")) == 2
    assert (tmp_path / run.name / "explorer.html").is_file() and (tmp_path / "again" / "metrics.json").is_file()


def test_runs_of_one_name_do_not_write_over_each_other(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for parent in ("a", "b"):
        shutil.copytree(run, tmp_path / parent / "seed0")
    how = ["--episodes", "1", "--longest", "4", "-o", "out"]
    assert main(["explore", "a/seed0", "b/seed0", *how]) == 0
    assert "replaced" not in capsys.readouterr().err
    for parent in ("a", "b"):
        told = json.loads((tmp_path / "out" / parent / "seed0" / "metrics.json").read_text())["episode"]["provenance"]
        assert told["run"] == f"{parent}/seed0"
    assert main(["explore", "a/seed0", "b/../a/seed0", *how]) == 2
    assert "is named twice" in capsys.readouterr().err


@pytest.mark.long
def test_controls_stand_beside_the_scores(episodes):
    report = score_with_controls(episodes)
    gates = {gate.name: gate for gate in report.gates}
    assert gates["heard as acted"].passed and gates["equal seeds"].passed and gates["causality"].passed
    assert "untrained agent recalls less" in gates
    for name in ("deletion AUC", "insertion AUC", "deletion AUC, best order"):
        assert 0 < report[name].value < 1 and report[name].against == "random order"
    assert report.verdict


def test_deletion_of_nothing_that_is_used_keeps_the_action(episodes):
    one = episodes[0]
    probability = float(np.mean([np.exp(_log_softmax(one.logits[t])[one.action[t]]) for t in range(10, 14)]))
    found = chunk_areas(one, take=True)
    assert isinstance(found, Areas)
    # The first point of every curve is the plain policy, so areas are near it for an untrained agent.
    assert found.attention == pytest.approx(probability, abs=0.1)
    assert chunk_areas(replace(one, removal=None), take=True) is None


def _log_softmax(logits):
    return logits - np.log(np.exp(logits).sum())


def test_memory_swap_counts_actions_of_the_other(episodes):
    one, other = episodes[:2]
    steps = [t for t in range(10, 14) if one.action[t] != other.action[t]]
    found = memory_swap([one, other])
    assert bool(found) == bool(steps)
    same = memory_swap([one, one])
    assert same == []


def test_maps_that_do_not_depend_on_weights_fail(episodes):
    assert depends_on_weights(episodes[0]).passed is not None
    agentless = record_episode(episodes[0].agent, MAZE, longest=3)
    assert depends_on_weights(agentless).passed is None  # too short to say
    bare = replace(episodes[0], temporal=None)
    assert depends_on_weights(bare).passed is None


def test_pointing_game_of_an_agent_with_objects(tmp_path):
    world = CatchConfig(side=42, balls=1)
    config = _config("gru", world)
    agent = config.build_agent().eval()
    record = record_episode(agent, world, longest=6).with_saliency(every=3).with_removal()
    report = score_with_controls([record])
    metric = report["pointing, perturbation actor"]
    assert 0 <= metric.value <= 1 and 0.02 < metric.chance < 0.9 and metric.number == 2
    assert "removal KL of all" in report and "without the memory" in report.findings


@pytest.mark.slow
def test_a_trained_agent_s_picture_can_be_believed(tmp_path):
    """The agent of the demo: it recalls the cue, uses it, and follows a memory that is not its own."""
    fit(demo_config(), tmp_path / "run")
    found = explore_run(tmp_path / "run", tmp_path / "out", world=TMazeConfig(length=40, penalty=0.05))
    report = found.report
    assert report["recall@1"].value == 1.0 and report["recall@1"].chance < 0.3
    assert report["lift"].low > 5
    assert report["removal KL"].low > 0.3 > report["removal KL"].chance
    assert report["deletion AUC"].value < report["deletion AUC"].chance
    assert report["insertion AUC"].value > report["insertion AUC"].chance
    assert report["memory swap followed"].value > 0.9
    assert report["cue swap followed"].value > 0.9 > report["cue swap followed"].chance
    assert report["success with the 1 most attended"].value > report["success with the 1 most attended"].chance
    assert report["recall@1, boundaries moved"].value > 0.9
    assert all(gate.passed for gate in report.gates)
    assert "do not believe" not in found.report.findings


@pytest.mark.long
@pytest.mark.parametrize("draw", range(4))
def test_an_untrained_agent_that_looks_at_the_cue_is_not_believed(draw):
    """Half of all fresh weights look at the cue, which looks unlike a corridor; none of them acts on it."""
    torch.manual_seed(draw)
    agent = demo_config().build_agent()
    records = [record_episode(agent, TMazeConfig(length=40), seed=seed, longest=60) for seed in range(4)]
    keyed = [replace(one, pairs=(Pair(query=(50, 60), key=(0, 1)),)).with_removal() for one in records]
    report = score(keyed)
    used = next(gate for gate in report.gates if gate.name == "what is recalled is used")
    assert not used.passed and "do not believe the picture" in report.findings
