import json
import subprocess
import sys

import pytest

from recollect.cli import COMMANDS, ROOMS, main
from recollect.recipes.contents import CONTENTS

TINY = ["--task.length=56", "--task.max-blank=12", "--fit.steps=4", "--fit.evaluate-every=2", "--batch-size=4"]
TINY += ["--evaluation-rows=8", "--core.dim=8", "--core.num-layers=1", "--agent.embedding-dim=8"]


def run(capsys, *words):
    status = main(words)
    out, err = capsys.readouterr()
    return status, out, err


def test_help_names_every_command(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for name in COMMANDS:
        assert name in out


def test_help_and_version_do_not_wait_for_torch():
    code = "import sys; from recollect.cli import main; main(['--help']); main(['--version']); "
    code += "print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "False"


@pytest.mark.parametrize("command", [name for name, (kind, _) in COMMANDS.items() if isinstance(kind, type)])
def test_each_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: recollect {command}" in capsys.readouterr().out


def test_help_of_train_names_what_can_be_trained(capsys):
    status, out, _ = run(capsys, "train", "--help")
    assert status == 0 and out.startswith("usage: recollect train TASK")
    assert "t-maze" in out and "hcam" in out


@pytest.mark.parametrize("room", ROOMS)
def test_tables_are_not_clipped_in_a_narrow_terminal(capsys, monkeypatch, room):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "list", room)
    assert "…" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lst"], "unknown command 'lst': did you mean 'list'?"),
        (["list", "core"], "unknown table 'core': did you mean 'cores'?"),
        (["train"], "name a task: recollect train TASK --core KEY"),
        (["train", "recal"], "unknown task 'recal': did you mean 'recall'?"),
        (["train", "recall", "--core", "lsmt"], "unknown core 'lsmt': did you mean 'lstm'?"),
        (["train", "recall", "--core"], "--core needs the key of a core"),
        (["certify", "hcan"], "core 'hcan' is unknown; did you mean 'hcam'?"),
        (["certify", "no_such_module:make"], "cannot import 'no_such_module'"),
        (["reproduce", "copyin"], "unknown recipe 'copyin': did you mean 'copying'?"),
        (["reproduce", "recall", "--scale", "huge"], "scale='huge'"),
        (["benchmark", "core"], "unknown benchmark 'core': did you mean 'cores'?"),
        (["benchmark", "op"], "unknown benchmark 'op': did you mean 'ops'?"),
        (["evaluate", "no/such/run"], "no/such/run is not a run directory"),
        (["compare", "no/such/run"], "no/such/run"),
        (["train", "gym:CartPol-v1", "--core", "lsmt"], "unknown core 'lsmt': did you mean 'lstm'?"),
    ],
)
def test_mistakes_are_named_with_a_remedy_and_status_2(capsys, words, message):
    status, _, err = run(capsys, *words)
    assert status == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_list_as_json_has_every_room(capsys):
    status, out, _ = run(capsys, "list", "--json")
    tables = json.loads(out)
    assert status == 0 and tuple(tables) == ROOMS == tuple(CONTENTS)
    assert {"hcam", "tlb", "ttm", "memoryless"} <= {row["key"] for row in tables["cores"]}
    assert {"sequence-model", "actor-critic"} <= {row["key"] for row in tables["agents"]}


def test_train_evaluate_resume_and_a_directory_that_exists(capsys, tmp_path):
    where = str(tmp_path / "run")
    words = ["train", "recall", "--core", "gru", *TINY, "--directory", where]
    status, out, _ = run(capsys, *words)
    assert status == 0 and f"next: recollect evaluate {where}" in "".join(out.split("\n"))
    assert (tmp_path / "run/metrics.csv").is_file()

    status, out, _ = run(capsys, "evaluate", where, "--rows", "8", "--json")
    assert status == 0 and 0 <= json.loads(out)["score"] <= 1

    status, _, err = run(capsys, *words)
    assert status == 2 and "continue it with --resume" in " ".join(err.split())

    status, out, _ = run(capsys, *words, "--resume")
    assert status == 0 and "nothing to do" in out

    status, _, err = run(capsys, *words, "--resume", "--core.num-layers=2")
    assert status == 2 and "core.num_layers: 1, now 2" in " ".join(err.split())


def test_certify_one_core_as_json(capsys):
    status, out, _ = run(capsys, "certify", "gru", "--lines", "splits", "purity", "--processes", "1", "--json")
    (card,) = json.loads(out)
    assert status == 0 and card["passed"] and [line["name"] for line in card["lines"]] == ["splits", "purity"]


def test_a_broken_core_ends_with_status_1(capsys, tmp_path, monkeypatch):
    (tmp_path / "broken_core.py").write_text(
        "from recollect.cores.recurrent.core import GRUConfig\n"
        "def make():\n"
        "    core = GRUConfig(dim=4).build(3)\n"
        "    unroll = core.unroll\n"
        "    core.unroll = lambda inputs, state, is_first: unroll(inputs, state, is_first & False)\n"
        "    return core\n"
    )
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(capsys, "certify", "broken_core:make", "--lines", "reset", "splits")
    assert status == 1 and "fail" in out


WORLD = ["--world.length=3", "--fit.steps=4", "--fit.evaluate-every=2", "--batch-size=4", "--unroll=4"]
WORLD += ["--evaluation.episodes=4", "--core.dim=8", "--agent.width=8"]


def test_train_evaluate_film_and_compare_in_a_world(capsys, tmp_path):
    runs = []
    for core in ("gru", "lstm"):
        runs.append(str(tmp_path / core))
        status, out, _ = run(capsys, "train", "t-maze", "--core", core, *WORLD, "--directory", runs[-1])
        assert status == 0 and "finished 4 steps" in out
    status, out, _ = run(capsys, "evaluate", runs[0], "--episodes", "4", "--json")
    found = json.loads(out)
    assert status == 0
    assert 0 <= found["low"] <= found["score"] <= found["high"] <= found["oracle"] == 1
    assert run(capsys, "evaluate", runs[0], "--episodes", "2", "--video", str(tmp_path / "videos"))[0] == 0
    assert {path.suffix for path in (tmp_path / "videos").iterdir()} == {".mp4", ".gif"}
    status, out, _ = run(capsys, "compare", *runs, "--out", str(tmp_path / "page"), "--axis", "environment_steps")
    assert status == 0 and "gru" in out and "lstm" in out and "chance" in out
    assert {path.name for path in (tmp_path / "page").iterdir()} == {
        "comparison.html", "comparison.json", "comparison.png"
    }  # fmt: skip


def test_any_gymnasium_environment_can_be_trained_in(capsys, tmp_path):
    words = ["--world.masked", "1", "3", "--fit.steps=2", "--batch-size=4", "--unroll=4"]
    words += ["--evaluation.episodes=2", "--directory", str(tmp_path / "run")]
    status, out, _ = run(capsys, "train", "gym:CartPole-v1", "--core", "lstm", *words)
    assert status == 0 and "finished 2 steps" in out


def test_benchmark_ops_prints_a_row_per_operation(capsys):
    words = ("benchmark", "ops", "--quick", "--repeats", "2", "--seconds", "0", "--output", "")
    status, out, _ = run(capsys, *words)
    assert status == 0 and "packed-linear" in out and "times as fast" in out
    status, out, _ = run(capsys, *words, "--ops", "gru", "--json")
    assert status == 0 and [row["op"] for row in json.loads(out)["rows"]] == ["gru"]
