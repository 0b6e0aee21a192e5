import ast
import dataclasses
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import tyro
from rich.console import Console
from tyro.conf import arg

from recollect.benchmark import BENCHMARKS
from recollect.cli import COMMANDS, flags, load_command, main
from recollect.cli.flag_names import ALIASES, COMMON, REMEDIES
from recollect.cli.import_checks import require_importable
from recollect.cli.listing import TABLES, List
from recollect.cli.seeds import _without
from recollect.cli.train_request import read_request
from recollect.recipes import training
from recollect.recipes.table_of_contents import TABLE_OF_CONTENTS
from recollect.terminal import print_json, print_table

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


def test_help_and_version_do_not_wait_for_heavy_packages():
    code = "import sys; from recollect.cli import main; main(['--help']); main(['--version']); "
    code += "[main([command, '--help']) for command in ('train', 'benchmark')]; "
    code += "print([name for name in ('torch', 'numpy', 'gymnasium') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", [name for name in COMMANDS if isinstance(load_command(name), type)])
def test_each_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: recollect {command}" in out
    assert "(default: )" not in re.sub(r"[\s│]+", " ", out), "mark the field: recollect/cli/hints.py"


def test_the_help_of_every_flag_has_no_empty_default_and_no_marks_of_code(capsys):
    for words in (("train", "t-maze", "--core", "hcam"), ("train", "arrays", "--core", "gru"), ("benchmark", "cores")):
        status, out, _ = run(capsys, *words, "--help-all")
        assert status == 0 and "[]" not in out and "``" not in out


def test_a_narrow_terminal_breaks_no_name_and_leaves_room_for_prose():
    shown = Console(width=80, force_terminal=True, color_system=None, record=True, file=io.StringIO())
    List(room="all").run(shown)
    lines = shown.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("HierarchicalChunkMemory " in line for line in lines) and any("parameters" in line for line in lines)
    assert any("Repeat the digits of the first steps after" in line for line in lines)


@pytest.mark.parametrize("room", TABLES)
def test_a_pipe_gets_lines_of_80_columns_and_whole_cells(capsys, monkeypatch, room):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "list", room)
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    cells = [str(row[name]) for row in TABLE_OF_CONTENTS[room]() for name in row if name not in ("about", "source")]
    assert [cell for cell in cells if cell not in out and f"{cell}" not in out.replace(",", "")] == []


def test_numbers_of_tasks_are_explained_below_their_table(capsys):
    _, out, _ = run(capsys, "list", "tasks")
    words = " ".join(out.split())
    numbers = [name for name in TABLE_OF_CONTENTS["tasks"]()[0] if name not in ("key", "kind", "about")]
    assert [name for name in numbers if f"{name}: " not in words] == []


def test_what_is_too_wide_for_one_table_goes_on_in_the_next():
    console = Console(width=40, file=io.StringIO())
    rows = [{"": "a label of more than half the width", "score": "0.500", "its interval": "0.4–0.6", "seconds": "12"}]
    print_table(
        console, "t", [*rows, {"": "chance", "score": "0.100", "its interval": "", "seconds": ""}], figures=True
    )
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    text = " ".join(" ".join(lines).split())
    assert all(word in text for word in ("0.500", "its interval", "0.4–0.6", "seconds", "12", "chance"))
    assert text.count("chance") == 1, "it has nothing in the second table"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lst"], "unknown command 'lst': did you mean 'list'?"),
        (["list", "core"], "unknown table 'core': did you mean 'cores'?"),
        (["train"], "name a task: recollect train TASK --core KEY"),
        (["train", "recal"], "unknown task 'recal': did you mean 'recall'?"),
        (["train", "recall", "--parallel", "3"], "--parallel 3: there is one run only: give --seeds too"),
        (
            ["train", "--resume", "--seeds", "0", "1"],
            "--seeds 0 1: of which runs? Name their task, or with --directory",
        ),
        (["train", "recall", "--core", "lsmt"], "unknown core 'lsmt': did you mean 'lstm'?"),
        (["train", "recall", "--core"], "--core needs the key of a core"),
        (["certify", "hcan"], "unknown core 'hcan': did you mean 'hcam'?"),
        (["certify", "no_such_module:make"], "cannot import 'no_such_module'"),
        (["reproduce", "copyin"], "unknown recipe 'copyin': did you mean 'copying'?"),
        (["reproduce", "recall", "--scale", "huge"], "scale='huge'"),
        (["benchmark", "core"], "unknown benchmark 'core': did you mean 'cores'?"),
        (["benchmark", "op"], "unknown benchmark 'op': did you mean 'ops'?"),
        (["evaluate", "no/such/run"], "no/such/run is not a run directory"),
        (["compare", "no/such/run"], "no/such/run"),
        (["train", "gym:CartPol-v1", "--core", "lsmt"], "unknown core 'lsmt': did you mean 'lstm'?"),
        (["train", "recall", "--steps", "0"], "error: fit.steps=0: give at least 1. recollect train recall"),
        (["train", "recall", "--core.dim", "33"], "error: core.num_heads=4: must divide dim=33."),
        (["evaluate"], "error: missing: Run directory, model folder, model:NAME or hub:OWNER/NAME."),
        (["evaluate", "x", "--polcy", "run"], "error: unknown: --polcy, run, did you mean --policy."),
        (["evaluate", "x", "--policy", "foo"], "error: invalid choice 'foo' for argument '--policy'."),
        (["evaluate", "x", "--seed", "a"], "error: --seed: 'a' is no whole number."),
        (["evaluate", "x", "--episodes", "many"], "error: --rows/--episodes/--samples: 'many' is no whole number."),
        (["evaluate", "x", "--noise", "much"], "error: --noise: cannot read 'much'."),
        (["train", "games:Snake"], "error: task='games:Snake': cannot import 'games'"),
        (["compare", "no:key:run"], "error: no:key:run is not a run directory"),
        (["train", "recall", "--seed", str(2**64)], "fit.seed=18446744073709551616: give a whole number of 64 bits."),
        (["certify", "lstm", "--batch"], "error: --batch: no value was given."),
        (["push"], "error: missing: Run directory, model folder, model:NAME or hub:OWNER/NAME; OWNER/NAME"),
        (
            ["export", "x"],
            "error: missing: -o PATH, --out PATH, --to PATH: Folder to write; an older export is replaced.",
        ),
        (["list", "cores", "tasks"], "error: unknown: tasks."),
        (
            ["benchmark", "cores", "--steps", "9"],
            "error: unknown flag --steps: recollect benchmark cores --help shows all",
        ),
        (
            ["watch", ".", "--run", "model:shape-activities-ttm"],
            "error: film='.': this is a folder: give one of its films",
        ),
    ],
)
def test_mistakes_are_named_with_a_remedy_and_status_2(capsys, words, message):
    status, _, err = run(capsys, *words)
    assert status == 2
    assert message in err and err.startswith("error: ") and err.count("\n") == 1, "one line"
    assert not set("╭│─") & set(err) and "Traceback" not in err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", ["40", "200"])
def test_mistakes_are_one_line_in_any_terminal(encoding, columns):
    environment = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": columns}
    command = [sys.executable, "-m", "recollect", "evaluate", "x", "--polcy", "run"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment)
    message = "error: unknown: --polcy, run, did you mean --policy. recollect evaluate --help shows the flags\n"
    assert (shown.returncode, shown.stderr) == (2, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--total-timesteps", "5"], "unknown flag --total-timesteps: use --steps, which counts optimiser steps"),
        (["--env", "x"], "unknown flag --env: the task comes first"),
        (["--num-lyers", "3"], "unknown flag --num-lyers: did you mean --num-layers?"),
        (["--embedding-dim", "3"], "unknown flag --embedding-dim: did you mean --agent.embedding-dim?"),
        (["--lr"], "--optimizer.learning-rate: give FLOAT. Peak learning rate."),
        (["--steps", "many"], "--fit.steps many: give a whole number"),
        (["--optimizer.schedule", "step"], "choose one of constant, linear, cosine, rsqrt"),
        (["--optimizer.betas", "0.9"], "--optimizer.betas 0.9: 2 value(s) were expected, not 1"),
        (["--bfloat16", "True"], "--bfloat16 True: it takes no value: type --bfloat16 or --no-bfloat16"),
        (["--agent.norm-inputs=0"], "it takes no value: type --agent.norm-inputs or --agent.no-norm-inputs"),
        (["gru"], "unexpected word 'gru': flags begin with --"),
        (["--seeds", "0", "1", "--parallel", "0"], "--parallel 0: give a whole number of at least 1"),
        (["--seeds", "0", "1", "--parallel", "-2"], "--parallel -2: give a whole number of at least 1"),
        (["--seeds"], "--seeds needs numbers, such as --seeds 0 1 2"),
        (["--seeds", "0", "--seed", "1"], "--seeds and --seed: give one of them"),
        (["--seeds", "0", "--seed=1"], "--seeds and --seed: give one of them"),
        (["--config", "x.json"], "--config brings its task and its core"),
    ],
)
def test_mistakes_in_flags_say_what_to_type(capsys, words, message):
    status, _, err = run(capsys, "train", "recall", "--core", "gru", *words)
    assert status == 2
    assert message in " ".join(err.split())


def test_what_the_parser_takes_is_let_through():
    flags.require_known("recall", "gru", ["--agent.embedding_dim=3", "--unroll", "None", "--no-bfloat16", "--resume"])
    flags.require_known("t-maze", "hcam", ["--core.reading.no-key-projection", "--optimizer.betas", "0.5", "0.9"])
    flags.require_known("gym:No/Such-v0", "lstm", ["--agent.encoders.hidden", "--loss.vtrace.lambda_", "0.5"])
    flags.require_known(
        "mine:Task", "mine:Core", ["--task.what", "ever", "--core.own", "3", "--world.x=1", "--fit.steps", "1"]
    )


def test_every_synonym_stands_for_an_existing_flag():
    known = {**flags.run_flags("recall", "gru"), **flags.run_flags("t-maze", "gru")}
    known |= flags.run_flags("t-maze", "gru", "decision-transformer")
    assert set(ALIASES.values()) <= set(known)
    assert {flag for _, flag in COMMON} <= set(known) and len(COMMON) == 12
    assert not set(ALIASES) & set(known), "a flag of ours"
    assert not set(ALIASES) & set(REMEDIES)


@pytest.mark.parametrize(
    ("task", "core", "trainer"),
    [("recall", "hcam", None), ("mixture", "ttm", None), ("shapes", "tlb", None), ("ballet", "lstm", "cloning"),
     ("gym", "timesformer", None), ("arrays", "gru", None), ("catch", "mott", "decision-transformer")],
)  # fmt: skip
def test_flags_are_those_of_the_parser(task, core, trainer):
    run = training(task, core, trainer=trainer)

    @dataclass(frozen=True)
    class Flags:
        config: Annotated[type(run), arg(name="")] = field(default_factory=lambda: run)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        actions = tyro.extras.get_parser(Flags)._actions
    parsed = {a.option_strings[0]: (str(a.metavar or ""), a.nargs) for a in actions if a.option_strings}
    parsed = {name: kind for name, kind in parsed.items() if name.startswith("--") and name != "--help"}
    derived = {
        name: (flag.metavar, "*" if flag.num_values is None else flag.num_values)
        for name, flag in flags.config_flags(run).items()
    }
    assert derived == parsed


FAST = [
    ["train", "--help"], ["train", "gym:CartPole-v1", "--core", "lstm", "--help"], ["train", "recall", "--help-all"],
    ["train", "recal"], ["train", "recall", "--core", "lsmt"], ["train", "recall", "--total-timesteps", "5"],
    ["benchmark", "--help"], ["benchmark", "cores", "--quik"], ["reproduce", "copyin"], ["certify", "hcan"],
    ["evaluate", "no/run"], ["compare", "no/run"], ["list", "core"], ["reproduce", "recall", "--scale", "huge"],
    ["train", "gym:CartPol-v1"], ["train", "gym:CartPole-v7"], ["train", "a_strangers:Task"],
    ["train", "recall", "--core", "a_users:Cor"], ["train", "a_users:Task", "--core", "a_users:Core", "--help"],
    ["train", "a_users:Task", "--core", "a_users:Core", "--stpes", "3"], ["certify", "a_users:mak"],
    ["train", "--config", "no.json"], ["train", "--config", "kept.json", "--help"],
    ["train", "--config", "kept.json", "--stpes", "3"], ["train", "--config", "kept.json", "--lr", "much"],
]  # fmt: skip
A_USERS = "import torch\nclass Task: pass\nclass Core: pass\ndef make(): return torch\n"


def test_a_working_directory_that_was_deleted_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["list"]) == 2
    assert "the working directory was deleted: go to another one (cd)" in " ".join(capsys.readouterr().err.split())


def test_help_and_mistakes_do_not_wait_for_torch(tmp_path):
    (tmp_path / "a_users.py").write_text(A_USERS)
    kept = {"kind": "impala", "world": {"kind": "t-maze"}, "core": {"kind": "gru", "dim": 77}, "fit": {"steps": 123}}
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    code = f"import sys; from recollect.cli import main; [main(words) for words in {FAST}]; print([name for name in "
    code += "('torch', 'a_users') if name in sys.modules])"
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert shown.stdout.splitlines()[-1] == "[]", "a mistake waits for an import"
    said = " ".join(shown.stderr.split())
    for message in (
        "id='CartPol-v1': Environment `CartPol` doesn't exist. Did you mean: `CartPole`?",
        "task='a_strangers:Task': cannot import 'a_strangers'",
        "core='a_users:Cor': a_users has no 'Cor'; did you mean 'Core'?",
        "core='a_users:mak': a_users has no 'mak'; did you mean 'make'?",
        "unknown flag --stpes: did you mean --steps?",
        "config='no.json': No such file or directory: give the config.json of a run",
        "scale='huge': recall has lite",
    ):
        assert message in said
    assert "[77]" in shown.stdout and "[123]" in shown.stdout, "the defaults are those of the file"


@pytest.mark.parametrize(
    "text",
    [
        "from somewhere import *",
        "def __getattr__(name): return 1",
        "globals()['Task'] = 1",
        "if True:\n    Task = 1",
        "from somewhere import other as Task",
        "not python at all (",
    ],
)
def test_a_name_that_text_cannot_decide_is_left_to_the_import(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "a_text_that_binds.py").write_text(text)
    require_importable("a_text_that_binds:Task", "task")
    require_importable("a_text_that_binds.deeper:Task", "task")


def test_help_of_train_shows_the_common_flags_first(capsys):
    status, out, _ = run(capsys, "train", "t-maze", "--core", "gru", "--help")
    assert status == 0 and "usage: recollect train TASK" in out and "[runs/<task>-<core|agent>-seed<seed>]" in out
    for short, _ in COMMON:
        assert f"{short} " in out
    assert "--loss.vtrace.rho-clip" not in out
    status, out, _ = run(capsys, "train", "t-maze", "--core", "gru", "--help-all")
    assert status == 0 and "--loss.vtrace.rho-clip" in out


@pytest.mark.parametrize("columns", ["40", "80"])
def test_help_cuts_no_name_and_no_choice_off(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    status, out, _ = run(capsys, "train", "arrays", "--core", "gru", "--help-all")
    assert status == 0 and "…" not in out


def test_list_as_json_has_every_room(capsys):
    status, out, _ = run(capsys, "list", "--json")
    tables = json.loads(out)
    assert status == 0 and tuple(tables) == TABLES == tuple(TABLE_OF_CONTENTS)
    assert {"hcam", "tlb", "ttm", "memoryless"} <= {row["key"] for row in tables["cores"]}
    assert {"sequence-model", "actor-critic"} <= {row["key"] for row in tables["agents"]}


def test_words_with_an_equals_sign_and_words_that_come_twice():
    words = ["recall", "--core=gru", "--seeds=0", "1", "--core=lstm", "--directory=a", "--directory", "b"]
    request = read_request(words)
    assert (request.core, request.seeds, request.value("--directory")) == ("lstm", (0, 1), "b")
    assert _without(words) == ["recall", "--core=gru", "--core=lstm"]


def test_words_of_a_world_with_an_equals_sign_and_more_than_once():
    request = read_request(
        ["gym:A-v0", "--world.options=size=7", "b=1", "--lr", "1", "--world.options", "c=-2", "--steps=3"]
    )
    assert request.world == {"options": ["size=7", "b=1", "c=-2"]}
    assert request.rest == ["--optimizer.learning-rate", "1", "--fit.steps=3"]


def test_typed_steps_are_done_whatever_score_the_recipe_stops_at(capsys, tmp_path):
    tiny = [word for word in TINY if "fit.steps" not in word]

    def end(*words):
        folder = str(tmp_path / "-".join(words).replace(".", ""))
        status, out, err = run(capsys, "train", "recall", "--core", "gru", *tiny, *words, "--directory", folder)
        assert status == 0
        return json.loads((Path(folder) / "config.json").read_text())["fit"]["stop_score"], out, err

    assert training("recall", "gru").fit.stop_score == 0.98
    stop, out, err = end("--steps", "4")
    assert stop is None and "finished 4 steps" in out
    assert "all of --steps are trained; --fit.stop-score 0.98 would end earlier, as the recipe does" in err
    stop, out, err = end("--steps", "4", "--fit.stop_score", "0")  # both were typed: the first that is reached
    assert stop == 0 and "(fit.stop_score=0.0) at step 2 of 4" in out and "recipe" not in err


@pytest.mark.long
def test_a_run_whose_output_nobody_reads_any_more_is_saved(tmp_path):
    words = ["train", "recall", "--core", "gru", *TINY, "--fit.steps=100000", "--directory", str(tmp_path / "run")]
    command = [sys.executable, "-m", "recollect", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "step 2/" in process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 130 and "closed output at step" in said and "--resume continues" in said
    assert list((tmp_path / "run" / "checkpoint").glob("step-*"))


def test_what_to_type_next_can_be_typed(capsys, tmp_path):
    status, out, _ = run(capsys, "train", "recall", "--core", "gru", *TINY, "--directory", str(tmp_path / "my runs"))
    assert status == 0 and shlex.split(out.rpartition("next: ")[2])[2:] == [str(tmp_path / "my runs")]


def test_json_has_no_numbers_that_json_does_not_know(capsys):
    print_json({"score": float("inf"), "rows": [float("nan"), -float("inf"), 0.5]}, indent=None)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"score": None, "rows": [None, None, 0.5]}


def test_json_goes_into_a_pipe_at_once(monkeypatch):
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
    print_json({"frame": 3}, indent=None)
    assert pipe.getvalue() == b'{"frame": 3}\n'


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

    # What is not typed is as the run has it, and it may go on for longer.
    status, out, _ = run(capsys, "train", "--resume", "--directory", where, "--steps", "6")
    assert status == 0 and "finished 6 steps" in out and "; best" in out

    status, _, err = run(capsys, "train", "recall", "--core", "lstm", "--resume", "--directory", where)
    assert status == 2 and "core.kind: 'gru', now 'lstm'" in " ".join(err.split())

    status, out, _ = run(capsys, "evaluate", where, "--rows", "8", "--best", "--json")
    assert status == 0 and 0 <= json.loads(out)["score"] <= 1

    other = str(tmp_path / "other")
    kept = ["train", "--config", f"{where}/config.json", "--directory", other, "--steps", "2", "--seed", "7"]
    status, out, _ = run(capsys, *kept, "--from", f"{where}/best", "--log", "csv")
    assert status == 0 and "finished 2 steps" in out and "starts with the weights of" in out
    settings = json.loads((tmp_path / "other/config.json").read_text())
    assert settings["core"]["dim"] == 8 and settings["fit"]["seed"] == 7 and settings["fit"]["steps"] == 2


@pytest.mark.long
def test_seeds_are_trained_and_compared(capfd, tmp_path):
    words = ["train", "recall", "--core", "gru", *TINY, "--seeds", "3", "5", "--parallel", "2"]
    status, out, _ = run(capfd, *words, "--directory", str(tmp_path))
    assert status == 0 and out.count("finished 4 steps") == 2 and "IQM" in out
    assert [json.loads((tmp_path / f"seed{seed}/config.json").read_text())["fit"]["seed"] for seed in (3, 5)] == [3, 5]
    status, _, err = run(capfd, *words, "--directory", str(tmp_path))  # they exist
    assert status == 2 and "seed 3 ended with status 2" in err and "seed 5 ended with status 2" in err


@pytest.mark.long
def test_seeds_stop_at_a_signal_and_go_on(tmp_path):
    words = ["recall", "--core", "gru", *TINY, "--steps=100000", "--seeds", "0", "1", "--directory", str(tmp_path)]
    command = [sys.executable, "-m", "recollect", "train", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 600
        while not (tmp_path / "seed0/checkpoint").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.terminate()
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "SIGTERM at step" in out and "the same command with --resume" in err
    assert not (tmp_path / "seed1").exists()


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


@pytest.mark.long
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
    shutil.copytree(runs[1], other := tmp_path / "other" / Path(runs[0]).name)
    _, _, err = run(capsys, "evaluate", str(other), "--episodes", "2", "--video", str(tmp_path / "videos"))
    assert "replaced what an earlier command wrote in" in err and "gru.mp4: another folder (--video)" in err
    for stood in (False, True):
        status, _, err = run(capsys, "evaluate", runs[0], "--episodes", "1", "--record", str(tmp_path / "one.npz"))
        assert status == 0 and ("one.npz: another file (--record) keeps both" in err) == stood
    status, out, err = run(capsys, "evaluate", runs[0], "--episodes", "1", "--video", str(tmp_path / "one.npz"))
    assert status == 2 and "one.npz' cannot be made (File exists): give another folder" in err and not out
    status, out, _ = run(capsys, "compare", *runs, "--out", str(tmp_path / "page"), "--axis", "environment_steps")
    assert status == 0 and "gru" in out and "lstm" in out and "chance" in out
    _, _, err = run(capsys, "compare", *runs, "--out", str(tmp_path / "page"))
    assert "replaced what an earlier command wrote in" in err
    assert {path.name for path in (tmp_path / "page").iterdir()} == {
        "comparison.html", "comparison.json", "comparison.png"
    }  # fmt: skip


def test_any_gymnasium_environment_can_be_trained_in(capsys, tmp_path):
    words = ["--world.masked", "1", "3", "--fit.steps=2", "--batch-size=4", "--unroll=4"]
    words += ["--evaluation.episodes=2", "--directory", str(tmp_path / "run")]
    status, out, _ = run(capsys, "train", "gym:CartPole-v1", "--core", "lstm", *words)
    assert status == 0 and "finished 2 steps" in out


@pytest.mark.parametrize("name", [name for name in COMMANDS if dataclasses.is_dataclass(load_command(name))])
def test_the_help_of_a_flag_has_no_line_breaks_of_its_own(name):
    form = load_command(name)
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(form))).body
    shown = [line.value.value for line in tree.body if isinstance(line, ast.Expr)]
    assert all("\n" not in text.strip() and "``" not in text for text in shown[1:]), "the parser keeps line breaks"


def test_the_help_of_benchmark_says_what_each_measures_and_whose_flags_it_lists(capsys):
    assert main(["benchmark", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {form.__doc__.split()[0]}" in told for name, (form, *_) in BENCHMARKS.items())
    assert "Flags of cores, in brackets the defaults:" in told


def test_benchmark_ops_prints_a_row_per_operation(capsys):
    words = ("benchmark", "ops", "--quick", "--repeats", "2", "--seconds", "0", "--output", "")
    status, out, _ = run(capsys, *words)
    assert status == 0 and "packed-linear" in out and "ratio" in out
    status, out, _ = run(capsys, *words, "--ops", "gru", "--json")
    assert status == 0 and [row["op"] for row in json.loads(out)["rows"]] == ["gru"]


def test_a_world_that_cannot_begin_asks_for_the_command_again_as_there_is_nothing_to_resume(capsys, tmp_path):
    words = ["gym:CartPole-v1", "--core", "gru", "--world.masked", "9", "--directory", str(tmp_path / "run")]
    status, _, err = run(capsys, "train", *words, "--steps", "1")
    assert status == 2 and "nothing was written. Fix the world, then type the command again" in err
    assert not (tmp_path / "run").exists()


def test_options_and_wrappers_come_before_the_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_users_world.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as Cart\n")
    monkeypatch.setattr("sys.path", list(sys.path))
    quick = ["--steps", "1", "--unroll", "4", "--evaluation.episodes", "1", "--num-envs", "2", "--dim", "8"]
    quick += ["--loss.reuse.minibatches", "1"]
    wrapper = "gymnasium.wrappers:NormalizeObservation"
    words = ["a_users_world:Cart", "--core", "lstm", "--world.options", "sutton_barto_reward=true", *quick]
    assert main(["train", *words, "--world.wrappers", wrapper]) == 0
    kept = json.loads((tmp_path / "runs/a_users_world-Cart-lstm-seed0/config.json").read_text())["world"]
    assert kept["options"] == {"sutton_barto_reward": True} and kept["wrappers"] == [wrapper]
    assert main(["evaluate", "runs/a_users_world-Cart-lstm-seed0", "--episodes", "1"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gym:CartPole-v1", "--world.options", "render_mode"], "give key=value"),
        (["gym:CartPole-v1", "--world.options", "--steps", "3"], "give values, for example"),
        (["t-maze", "--world.options", "length=3"], "only Gymnasium environments have it"),
        (["no_module_of_anybody:Task"], "cannot import 'no_module_of_anybody'"),
        (["recall", "--core", "no_module_of_anybody:Core"], "cannot import 'no_module_of_anybody'"),
    ],
)
def test_what_is_wrong_with_a_world_of_others_is_named(words, said, capsys):
    assert main(["train", *words]) == 2
    assert said in capsys.readouterr().err
