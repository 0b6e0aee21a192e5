from dataclasses import replace

import pytest
import torch

from recollect.cli import main
from recollect.cores import CORES
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.training import (
    FitConfig,
    SupervisedConfig,
    evaluate_run,
    fit,
    load_config,
    load_model,
    record_run,
    saved_run,
)
from recollect.training.saved_run import require_recordable, save_episodes
from run_maker import make_run
from small_runs import recall

CONFIG = SupervisedConfig(
    task=recall(),
    core=CORES["gru"](dim=6, num_layers=1),
    fit=FitConfig(steps=3, evaluate_every=3, checkpoint_every=2),
    batch_size=4,
    evaluation_rows=8,
)


def test_a_run_is_loaded_and_scored(tmp_path):
    outcome = fit(CONFIG, tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert not loaded.training
    assert load_config(tmp_path / "run") == CONFIG
    for name, value in outcome.agent.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    scored = evaluate_run(tmp_path / "run", samples=16)
    assert scored == evaluate_run(tmp_path / "run", samples=16)
    assert scored.correct != evaluate_run(tmp_path / "run", samples=16, seed=1).correct


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


def test_only_runs_in_a_world_have_episodes_and_only_for_a_place_that_can_be_written_to(tmp_path):
    run = make_run(tmp_path, "gru", 0, [0.5])
    require_recordable(run, None)
    for look in (require_recordable, save_episodes):
        with pytest.raises(ValueError, match="only runs in a world have episodes"):
            look(run, tmp_path / "e.npz")
        with pytest.raises(ValueError, match=r"record='.*e\.txt': give FILE\.npz"):
            look(run, tmp_path / "e.txt")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--noise", "0.5"], "noise=[0.5]: it is for recorded episodes"),
        (["--record", "e.npz", "--noise", "1.5"], "noise=[1.5]: give shares of the actions, from 0 to 1"),
        (["--policy", "sampled"], "only runs in a world have a policy"),
        (["--video", "films"], "only runs in a world can be filmed"),
    ],
)
def test_what_a_run_cannot_do_is_refused_before_it_is_scored(tmp_path, capsys, monkeypatch, words, message):
    run = make_run(tmp_path, "gru", 0, [0.5])  # on a stream task, without a checkpoint
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(run), *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


def test_only_runs_in_a_world_can_be_filmed(tmp_path):
    with pytest.raises(ValueError, match="only runs in a world can be filmed"):
        record_run(make_run(tmp_path, "gru", 0, [0.5]), tmp_path)
    with pytest.raises(ValueError, match="only runs in a world can be filmed"):
        CONFIG.film(None, tmp_path / "film", episodes=1, seed=0)


def test_what_is_played_filmed_or_kept_is_of_a_config_that_was_read_once(tmp_path, monkeypatch):
    maze = short_t_maze("gru")
    world, short = replace(maze.world, length=3, slack=1), replace(maze.fit, steps=1, report_every=1)
    fit(replace(maze, world=world, batch_size=4, unroll=4, fit=short), tmp_path / "run")
    read, load = [], saved_run.load_config
    monkeypatch.setattr(saved_run, "load_config", lambda *given, **more: read.append(given) or load(*given, **more))
    evaluate_run(tmp_path / "run", samples=2)
    record_run(tmp_path / "run", tmp_path / "films", episodes=1)
    save_episodes(tmp_path / "run", tmp_path / "kept.npz", episodes=2)
    assert len(read) == 3
