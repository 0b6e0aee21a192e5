"""No command line of a person ends in a traceback: status 2 and a line that names what is wrong."""

import pytest

from recollect.cli import main
from recollect.cores import CORES

TINY = ["--task.length=56", "--task.max-blank=12", "--fit.steps=2", "--batch-size=4", "--evaluation-rows=4"]
TINY += ["--core.dim=8", "--core.num-layers=1", "--agent.embedding-dim=8"]
WORLD = ["--world.length=3", "--fit.steps=1", "--batch-size=2", "--unroll=2", "--evaluation.episodes=2"]
WORLD += ["--core.dim=8", "--agent.width=8"]
HUGE = "9" * 15
BEYOND = "9" * 30


def train(*flags, task="recall", core="gru"):
    return ["train", task, "--core", core, *(TINY if task == "recall" else WORLD), *flags]


def fields(path, values):
    return [f"--{path}={value}" for value in values]


WORDS = [
    ["trian"], ["Train"], [""], ["--nope"], ["train"], ["train", ""], ["train", "--core", "gru"], ["train", "recal"],
    ["train", "[bold]recall"], ["train", "recall", "--core"], ["train", "recall", "--core="], ["train", "gym:"],
    ["train", "gym:NoSuchWorld-v0"], ["train", "gym:no_such_package:World-v0"], ["train", "recall", "stray"],
    ["train", "recall", "--core", "[/red]"], ["list", "nothing"], ["list", "cores", "tasks"], ["evaluate"],
    ["evaluate", "no/such/run"], ["evaluate", "/"], ["evaluate", "/dev/null"], ["evaluate", "x" * 300],
    ["evaluate", ".", "--samples", "many"], ["evaluate", ".", "--policy", "best-of-all"], ["compare"],
    ["compare", "no/such/run"], ["compare", "."], ["compare", ".", "--axis", "luck"], ["certify", "nothing"],
    ["certify", ":"], ["certify", "no.module:make"], ["certify", "json:nothing"], ["certify", "json:dumps"],
    ["certify", "gru", "--lines", "nothing"], ["certify", "gru", "--steps", "x"], ["reproduce"],
    ["reproduce", "nothing"], ["reproduce", "recall", "--scale", "huge"], ["reproduce", "recall", "--seeds", "0"],
    ["reproduce", "recall", "--seeds", "-1"], ["reproduce", "recall", "--cores", "nobody"], ["benchmark"],
    ["benchmark", "nothing"], ["benchmark", "cores", "--nope"], ["demo", "--steps", "x"],
]  # fmt: skip
FLAGS = [
    "--device=cuda:99", "--device=mps", "--device=meta", "--device=tpu", "--device=", "--device=cpu:x", "--device=xla",
    "--nope=1", "--core.dim=lots", "--core.dim=0", "--core.dim=-3", "--core.dim=1.5", f"--core.dim={HUGE}",
    f"--core.dim={BEYOND}", "--core.num-layers=0", "--core.dropout=2", "--core.dropout=nan", "--fit.steps=0",
    "--fit.steps=-1", "--fit.seed=x", "--fit.stop-score=high", "--batch-size=0", f"--batch-size={HUGE}",
    f"--batch-size={BEYOND}", "--unroll=0", "--evaluation-rows=0", "--optimizer.learning-rate=0",
    "--optimizer.learning-rate=fast", "--optimizer.learning-rate=nan", "--optimizer.algorithm=sgd",
    "--optimizer.clip-norm=0", "--optimizer.schedule=steps", "--task.length=0", "--task.num-keys=0",
    "--agent.embedding-dim=0", f"--agent.embedding-dim={HUGE}", "--bfloat16=maybe",
]  # fmt: skip
WORLD_FLAGS = [
    "--world.length=0", "--world.length=x", "--schedule.mode=later", "--schedule.actors=0", "--schedule.timeout=0",
    "--evaluation.episodes=0", "--evaluation.time-limit=0", "--evaluation.time-limit=-1", "--loss.discount=2",
    "--loss.reduction=max", f"--batch-size={HUGE}", f"--unroll={HUGE}", f"--agent.width={HUGE}", "--device=meta",
    "--loss.reuse.minibatches=9", "--loss.vtrace.lambda-=2",
]  # fmt: skip
CASES = [*WORDS, *(train(flag) for flag in FLAGS), *(train(flag, task="t-maze") for flag in WORLD_FLAGS)]


def every_core():
    for key in CORES:
        for flag in ("--core.dim=0", "--core.dim=lots", f"--core.dim={HUGE}", f"--core.dim={BEYOND}", "--core.nope=1"):
            yield [*("train", "recall", "--core", key), *TINY[:5], flag]


def refuse(capsys, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(words)
    except SystemExit as end:  # tyro's way
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2, (words, status, out, err)
    assert "Traceback" not in err + out
    assert (err + out).strip(), "somebody has to say what is wrong"
    assert not any(path.is_file() for path in tmp_path.rglob("*")), "a mistake leaves nothing behind"
    return " ".join((err + out).split())


def short(words):
    return " ".join(word[:30] for word in words if word not in TINY + WORLD)


@pytest.mark.parametrize("words", CASES, ids=short)
def test_a_bad_command_line_ends_with_status_2(capsys, monkeypatch, tmp_path, words):
    refuse(capsys, monkeypatch, tmp_path, words)


@pytest.mark.slow
@pytest.mark.parametrize("words", list(every_core()), ids=short)
def test_bad_flags_of_every_core(capsys, monkeypatch, tmp_path, words):
    refuse(capsys, monkeypatch, tmp_path, words)


def test_enough_is_tried():
    assert len(CASES) >= 60
    assert len(CASES) + len(list(every_core())) >= 150


def test_too_much_memory_says_how_much(capsys, monkeypatch, tmp_path):
    said = refuse(capsys, monkeypatch, tmp_path, train(f"--agent.embedding-dim={HUGE}"))
    assert "bytes" in said and "make the sizes" in said


def test_a_corrected_command_line_just_works(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for flag in ("--device=cuda:99", f"--core.dim={HUGE}"):
        assert main(train(flag)) == 2
    assert main(train()) == 0


def test_markup_in_names_is_text(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(train("--directory", "runs [red]of[/red] [/me]")) == 0
    assert main(["evaluate", "runs [red]of[/red] [/me]", "--samples", "4"]) == 0
    assert main(["compare", "runs [red]of[/red] [/me]", "--out", "None", "--names", "[/bold]mine"]) == 0
    out = capsys.readouterr().out
    assert "runs [red]of[/red] [/me]: score" in out and "[/bold]mine" in out
