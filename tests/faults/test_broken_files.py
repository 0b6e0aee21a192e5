"""Files of strangers, torn and wrong: a ValueError that names the file, before anything is changed."""

import hashlib
import json
import shutil

import pytest
import safetensors.torch
import torch

from recollect.cli import main
from recollect.comparison.compare import compare
from recollect.cores import CORES
from recollect.runs import checkpoints
from recollect.runs.metrics import read_rows
from recollect.training import FitConfig, SupervisedConfig, evaluate_run, fit, load_config
from small_runs import recall

CONFIG = SupervisedConfig(
    task=recall(10),
    core=CORES["gru"](dim=4, num_layers=1),
    fit=FitConfig(steps=4, report_every=1, report_seconds=None, evaluate_every=2, checkpoint_every=2),
    batch_size=2,
    evaluation_rows=4,
)
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    fit(CONFIG, path)
    return path


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def change(path, *keys, value):
    """Put another value into a JSON file; ``...`` removes it."""
    data = json.loads(path.read_text())
    place = data
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    path.write_text(json.dumps(data))


CONFIGS = [
    (("core", "dim"), "lots", r"core\.dim='lots': give a whole number"),
    (("core", "dim"), None, r"core\.dim=None: give a whole number"),
    (("core", "dim"), [4], r"core\.dim=\[4\]"),
    (("core", "dim"), {"kind": "gru"}, r"core\.dim="),
    (("core", "dim"), 4.0, r"core\.dim=4\.0"),
    (("core", "dim"), True, r"core\.dim=True"),
    (("core", "dim"), -4, "dim=-4"),
    (("core", "dim"), 10**15, 'core.dim: 4, now 10{15}. Restore it: "config" in .*progress.json is a copy'),
    (("core", "dim"), 10**30, "core.dim: 4, now 10{30}. Restore it"),
    (("core", "dropout"), "much", r"core\.dropout='much': give a number"),
    (("core",), None, "core=None: give an object"),
    (("core",), "gru", "core='gru': give an object"),
    (("core",), [], r"core=\[\]"),
    (("core",), ..., "core"),
    (("core", "kind"), 7, "kind=7"),
    (("core", "kind"), None, "'kind' is missing"),
    (("core", "kind"), "gruu", "did you mean 'gru'"),
    (("core", "kind"), "antigravity:Core", "cannot import it without --trust"),
    (("core", "kind"), "os.path:", "cannot import it|no CoreConfig"),
    (("core", "kind"), ":", "cannot import it without --trust"),
    (("kind",), "json:loads", "no TrainerConfig"),
    (("kind",), ..., "'kind' is missing"),
    (("fit", "steps"), "4", r"fit\.steps='4'"),
    (("fit",), [1], r"fit=\[1\]"),
    (("fit", "nothing"), 1, "has no such field"),
    (("optimizer", "betas"), [0.9], r"betas=\[0\.9\]: give a list of 2"),
    (("optimizer", "betas"), 0.9, "betas=0.9: give a list"),
    (("optimizer", "algorithm"), "sgd", "algorithm='sgd': give 'adamw' or"),
    (("optimizer", "clip_norm"), "no", "give a number or null"),
    (("bfloat16",), "yes", "bfloat16='yes': give true or false"),
    (("device",), 3, "device=3: give text"),
]


@pytest.mark.parametrize(("keys", "value", "message"), CONFIGS)
def test_a_wrong_value_in_a_config_is_named(run, keys, value, message):
    change(run / "config.json", *keys, value=value)
    with pytest.raises(ValueError, match=message):
        evaluate_run(run)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "3", '"run"', "\x00", DEEP, '{"kind": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("name", ["config.json", "environment.json"])
def test_a_file_that_is_no_json_is_named(run, name, text):
    if name == "environment.json" and text == "[]":
        return
    (run / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name} (is not JSON|holds .*not)"):
        if name == "config.json":
            load_config(run)
        fit(CONFIG, run, resume=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", None), ("score\n1\n", "no file of metrics"), ("\x00\x01\n\n", "no file of metrics"), (b"\xff\xfe\n\n", ""),
        ("step,score,loss,seconds\n2,good,0.5,1\n", "score='good' at step 2 is no number"),
        ("step,score,loss,seconds\n2,1,0.5\n", None), ("step,score\n-2,1\n", None), ("step\n\x00\n", None),
    ],
)  # fmt: skip
def test_broken_metrics_are_named_or_left_out(run, text, message):
    path = run / "metrics.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if message is None:
        read_rows(path)
        return
    with pytest.raises(ValueError, match=f"metrics.csv.*{message}"):
        compare([run])


def test_metrics_stay_sorted_and_unique(run):
    whole = (run / "metrics.csv").read_text()
    head, *rows = whole.splitlines()
    shutil.rmtree(run / "checkpoint" / "step-000000004")
    (run / "metrics.csv").write_text("\n".join([head, *reversed(rows), *rows[:2], rows[1]]) + "\n")
    fit(CONFIG, run, resume=True)
    assert [int(row["step"]) for row in read_rows(run / "metrics.csv")] == [1, 2, 3, 4]


def forge(run, name, content):
    """Replace a file of the newest checkpoint, and make its sum agree."""
    folder = run / "checkpoint" / "step-000000004"
    (folder / name).write_bytes(content)
    change(folder / checkpoints.MANIFEST, name, value=hashlib.sha256(content).hexdigest())


def tensors(run, name, **new):
    kept = safetensors.torch.load_file(run / "checkpoint" / "step-000000004" / name)
    return safetensors.torch.save({**kept, **new})


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 64, b"[]", b"{}", b"\xff" * 8, safetensors.torch.save({"x": torch.zeros(3)})]
)
@pytest.mark.parametrize("name", [checkpoints.WEIGHTS, checkpoints.TRAINING, checkpoints.PROGRESS])
def test_a_checkpoint_with_valid_sums_and_wrong_content_is_named(run, name, content):
    forge(run, name, content)
    change(run / "config.json", "fit", "keep_checkpoints", value=2)
    with pytest.raises(ValueError, match="step-000000004"):
        fit(CONFIG, run, resume=True)
    if name != checkpoints.TRAINING:
        with pytest.raises(ValueError, match="step-000000004"):
            evaluate_run(run, samples=4)
    shutil.rmtree(run / "checkpoint" / "step-000000004")  # the remedy
    assert fit(CONFIG, run, resume=True).status == "finished"


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", 3), ("step", "4"), ("step", None), ("random", {}), ("random", {"python": [3, [1], None]}), ("config", 3),
     ("seconds", ...), ("trainer", []), ("trainer", {"updates": 4}), ("status", ...)],
)  # fmt: skip
def test_progress_that_does_not_fit_is_named(run, key, value):
    path = run / "checkpoint" / "step-000000004" / checkpoints.PROGRESS
    change(path, key, value=value)
    forge(run, checkpoints.PROGRESS, path.read_bytes())
    with pytest.raises(ValueError, match=r"step-000000004|another config"):
        fit(CONFIG, run, resume=True)


def test_weights_of_another_shape_are_named(run):
    name = next(iter(checkpoints.read(run / "checkpoint" / "step-000000004").weights))
    forge(run, checkpoints.WEIGHTS, tensors(run, checkpoints.WEIGHTS, **{name: torch.zeros(7)}))
    with pytest.raises(ValueError, match=r"step-000000004 is complete, but .*size mismatch.*remove it"):
        evaluate_run(run, samples=4)


def test_evaluate_says_which_checkpoint_it_scored(run, capsys):
    (run / "checkpoint" / "step-000000004" / checkpoints.WEIGHTS).write_bytes(b"torn")
    assert main(["evaluate", str(run), "--samples", "4"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "step-000000004 is torn" in said and "the checkpoint of step 2 is used" in said


def test_nothing_is_imported_without_trust(run, capsys, tmp_path, monkeypatch):
    (tmp_path / "strangers_core.py").write_text("raise SystemExit('run by a config.json')")
    monkeypatch.syspath_prepend(tmp_path)
    change(run / "config.json", "core", "kind", value="strangers_core:Config")
    assert main(["evaluate", str(run)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "config.json" in said and "strangers_core" in said and "--trust" in said
    with pytest.raises(SystemExit, match="run by a config"):
        main(["evaluate", str(run), "--trust"])


def test_an_environment_id_imports_nothing_without_trust(tmp_path):
    from recollect.config import from_json
    from recollect.tasks.worlds.contract import WorldConfig
    from recollect.training import REGISTRY

    data = {"kind": "gym", "id": "strangers_package:World-v0"}
    with pytest.raises(ValueError, match=r"strangers_package.*--trust"):
        from_json(data, WorldConfig, REGISTRY)
    assert from_json(data, WorldConfig, REGISTRY, trust=True).id == data["id"]


def test_a_lost_config_has_a_copy_in_the_checkpoints(run):
    (run / "config.json").unlink()
    with pytest.raises(
        ValueError, match=r'no config.json: restore it \("config" in .*000000004/progress.json is a copy\)'
    ):
        fit(CONFIG, run, resume=True)
    copy = json.loads((run / "checkpoint" / "step-000000004" / "progress.json").read_text())["config"]
    (run / "config.json").write_text(json.dumps(copy))
    assert load_config(run) == CONFIG


@pytest.mark.parametrize("name", ["checkpoint", "best"])
def test_a_file_in_the_place_of_checkpoints_is_named_before_a_step(run, name):
    shutil.rmtree(run / name)
    (run / name).write_text("")
    with pytest.raises(ValueError, match=f"{name} is a file, where checkpoints are written: move it away"):
        fit(CONFIG, run, resume=True)


def test_a_name_that_no_folder_can_have_is_named():
    with pytest.raises(ValueError, match=r"run directory 'ddd.*: File name too long: choose another path"):
        fit(CONFIG, "d" * 300)
