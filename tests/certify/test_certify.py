"""The card, its messages, exemptions, loading of user-defined modules, and the pytest plugin."""

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
import zoo
import zoo_paths
from torch import nn

import recollect.cores
from recollect.certify import (
    LINES,
    SLOW_LINES,
    certify,
    certify_many,
    from_config,
    load,
    small_config,
    summary,
)
from recollect.config import require
from recollect.cores.config import CoreConfig

pytest_plugins = "pytester"

FAST = ["splits", "reset", "purity"]


@dataclass(frozen=True, kw_only=True)
class ToyConfig(CoreConfig):
    dim: int = 128
    window: int = 64
    chunk_len: int = 12
    memory_len: int = 24

    def __post_init__(self) -> None:
        require(self.memory_len % self.chunk_len == 0, "memory_len", self.memory_len, "a multiple of chunk_len")

    def build(self, input_dim: int) -> zoo.Window:
        return zoo.Window(input_dim, self.memory_len)


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(recollect.cores, "CORES", {"toy-window": ToyConfig}, raising=False)


def test_short_sequences_hold_the_resets_of_nine_rows():
    card = certify(zoo.Recurrent(), steps=10, batch=3, lines=["poison", "reset-gradient"])
    assert card.passed, str(card)


def test_card_as_json():
    card = certify(zoo.ResetsOneStepLate(), lines=FAST, name="late", quick=True)
    data = json.loads(card.to_json())
    assert data["core"] == "late"
    assert data["passed"] is False
    assert data["failed"] == ["reset"]
    assert [line["name"] for line in data["lines"]] == ["splits", "reset", "purity"]
    assert data["parameters"] == sum(p.numel() for p in zoo.Recurrent().parameters())
    assert data["state_bytes"] == 4 * zoo.WIDTH + 8
    assert data["dtype"] == "float32"
    assert data["versions"]["torch"] == torch.__version__


def test_name_and_rebuild_replace_those_of_a_loaded_core():
    made = []

    def rebuild() -> torch.nn.Module:
        made.append(load("gru").core)
        return made[-1]

    card = certify(load("gru"), lines=["save-load"], rebuild=rebuild, name="mine", quick=True)
    assert card.passed, str(card)
    assert card.core == "mine"
    assert made


def test_failed_line_says_step_row_size_and_cause():
    card = certify(zoo.ChunksAnchoredAtCall(), lines=["splits"])
    line = card["splits"]
    assert "outputs differ from step 4, row 0 on, by" in line.detail
    assert "one call of 48 steps against 48 calls of one step" in line.detail
    assert "the outputs are up to" in line.detail
    assert "counted from the start of the call" in line.cause
    assert "likely cause" in str(card)
    assert "1 fail: splits" in card.verdict()


def test_message_names_the_row():
    class LateInRowTwo(zoo.Recurrent):
        def clear(self, first, state):
            first = first.clone()
            first[2] = False
            return super().clear(first, state)

    line = certify(LateInRowTwo(), lines=["reset"])["reset"]
    assert line.status == "fail"
    assert "row 2" in line.detail


def test_numbers_of_the_long_run_are_on_the_card():
    card = certify(zoo.Window(), lines=["state-bytes"], long_steps=1234, quick=True)
    line = card["state-bytes"]
    assert line.numbers["steps"] == 1234
    assert line.numbers["bytes"] == 4 * zoo.WIDTH * 5 + 8
    assert "after 1,234 steps" in line.detail
    assert card.long_run().startswith("1 234 steps in")
    card = certify(zoo.Recurrent(), lines=["state-bytes"], long_steps=10**7, long_seconds=0.05, quick=True)
    assert card["state-bytes"].numbers["steps"] < 10**7
    assert "stopped by the time limit of 0.05 s" in card["state-bytes"].detail
    assert "of 10 000 000 steps in" in card.verdict()
    assert certify(zoo.Window(), lines=["purity"]).long_run() == ""


@pytest.mark.long
def test_default_long_run_is_1e5_steps():
    line = certify(zoo.Window(), lines=["state-bytes"], long_seconds=600)["state-bytes"]
    assert line.numbers["steps"] == 100_000


def test_exempt_line_is_run_and_shown_and_cannot_fail():
    card = certify(zoo.ResetsToZero(), lines=FAST, exemptions={"reset": "the paper starts from zeros"}, quick=True)
    assert card.passed
    assert card["reset"].status == "exempt"
    assert "exempt: the paper starts from zeros" in str(card)
    assert "outputs differ from step 0" in card["reset"].detail
    assert "1 exempt" in card.verdict()


def test_exemption_of_a_line_that_passes_is_shown():
    core = zoo.Recurrent()
    core.exemptions = {"splits": "believed impossible", "future-gradient": "old name of a line"}
    card = certify(core, lines=["splits", "future"], quick=True)
    assert card["splits"].status == card["future"].status == "exempt"
    assert "passes without exemption" in card["splits"].detail


@pytest.mark.parametrize(
    ("exemptions", "words"),
    [({"split": "x"}, "did you mean 'splits'"), ({"splits": " "}, "give a reason")],
)
def test_bad_exemption(exemptions, words):
    with pytest.raises(ValueError, match=words):
        certify(zoo.Recurrent(), exemptions=exemptions)


def test_every_exemption_key_is_a_line():
    names = "splits stream reset poison future-gradient reset-gradient rows purity hidden-state state-bytes bfloat16"
    more = ["modes", "copies", "reference", "frames", "weights", "long", "cost", "gradients", "backward", "float32"]
    more += ["row-subset", "transforms", "frames-memory"]
    reasons = dict.fromkeys([*names.split(), *more, "save-load", "device", "float16", "compile", "export"], "because")
    assert set(LINES) <= {*reasons} - {"future-gradient"} | {"future"}
    card = certify(zoo.Recurrent(), lines=["purity"], exemptions=reasons)
    assert card["purity"].status == "exempt"


class Lazy(zoo.Plain):
    """Its weights have no shape before the first call."""

    def __init__(self):
        super().__init__()
        self.keep = nn.LazyLinear(zoo.WIDTH)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"core": 7}, "core is a int: give a torch.nn.Module"),
        ({"core": nn.Linear(3, 3)}, "Linear has no initial_state"),
        ({"core": zoo.Plain()}, "give input_shape="),
        ({"core": Lazy(), "input_shape": (zoo.WIDTH,)}, "Lazy cannot be copied .*: call a lazy module once before"),
        ({"core": zoo.Recurrent(), "lines": ["spilts"]}, "no line 'spilts'; did you mean 'splits'"),
        ({"core": zoo.Recurrent(), "batch": 2}, "batch=2"),
        ({"core": zoo.Recurrent(), "steps": 3}, "steps=3 .--length.: too short to place resets in 4 rows"),
        ({"core": zoo.Recurrent(), "steps": 5}, "steps=5"),
        ({"core": zoo.Recurrent(), "steps": 0}, "steps=0"),
        ({"core": zoo.Recurrent(), "long_steps": -4}, "long_steps=-4: give at least 1 step .--steps."),
        ({"core": zoo.Recurrent(), "long_seconds": -4.0}, "long_seconds=-4.0: give a time limit of 0 or more"),
        ({"core": zoo.Recurrent(), "backend": "nope"}, "unknown backend 'nope': .*inductor"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        certify(**arguments)


def test_at_least_one_process():
    with pytest.raises(ValueError, match="processes=0: give at least 1"):
        list(certify_many(["gru"], processes=0))


def test_core_that_raises_fails_its_lines_and_the_rest_still_run():
    class OnlyLong(zoo.Recurrent):
        def unroll(self, inputs, state, is_first):
            if inputs.shape[1] == 1:
                raise RuntimeError("no single steps, please")
            return super().unroll(inputs, state, is_first)

    card = certify(OnlyLong(), lines=["splits", "future"], quick=True)
    assert "raised RuntimeError: no single steps, please" in card["splits"].detail
    assert card["future"].status == "pass"


def test_the_module_is_never_changed():
    core = zoo.BatchNorm().train()
    before = {name: tensor.clone() for name, tensor in core.state_dict().items()}
    random = torch.get_rng_state()
    certify(core, lines=["rows", "hidden-state", "gradients", "save-load"], quick=True)
    assert core.training
    assert all(torch.equal(before[name], tensor) for name, tensor in core.state_dict().items())
    assert all(p.grad is None for p in core.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_discrete_core_is_compared_in_float64():
    core = zoo.Recurrent()
    core.discrete = True
    card = certify(core, lines=[*FAST, "bfloat16", "save-load"], quick=True)
    assert card.dtype == "float64"
    assert card.passed, str(card)


class Amplifies(zoo.Recurrent):
    """A recurrence that amplifies the last digit, so that no two float32 computations agree."""

    def advance(self, x, state):
        hidden = torch.tanh(self.read(x) + 1.7 * state.hidden - 0.4 * state.hidden.roll(1, 1))
        return self.out(hidden), state._replace(hidden=hidden, steps=state.steps + 1)


class OffByALittle(zoo.Recurrent):
    def unroll(self, inputs, state, is_first):
        out, new = super().unroll(inputs, state, is_first)
        return out + 3e-4 * torch.arange(inputs.shape[1])[:, None], new


class LosesDigits(zoo.Recurrent):
    """Large numbers that cancel: the computation, not the problem, loses digits."""

    def advance(self, x, state):
        return super().advance(self.read(x + 3000.0) - self.read(torch.full_like(x, 3000.0)), state)


def test_rounding_is_distinguished_from_a_mistake():
    card = certify(Amplifies(), lines=["splits", "rows", "float32"], quick=True)
    assert card.passed, str(card)
    assert certify(OffByALittle(), lines=["splits"]).failed == ("splits",)
    assert certify(LosesDigits(), lines=["float32"]).failed == ("float32",)


class LayersFirst(zoo.Plain):
    """The state of nn.LSTM: [layers, b, d]."""

    def initial_state(self, batch_size):
        return (torch.zeros(2, batch_size, zoo.WIDTH),)


class ReturnsOutputsAlone(zoo.Plain):
    def forward(self, inputs, state, is_first):
        return super().forward(inputs, state, is_first)[0]


class TimeFirst(zoo.Plain):
    def forward(self, inputs, state, is_first):
        out, new = super().forward(inputs, state, is_first)
        return out.transpose(0, 1), new


@pytest.mark.parametrize(
    ("core", "shape", "words"),
    [
        (LayersFirst, 6, ["leaf 0 has shape [2, 4, 6]", "leading axis must be b", "nn.LSTM"]),
        (zoo.Plain, 7, ["raised RuntimeError", "--input-shape (input_shape) is [7]", "give 6"]),
        (zoo.Recurrent, 7, ["raised ValueError", "give 6"]),
        (ReturnsOutputsAlone, 6, ["a call returns a Tensor", "(outputs, state)"]),
        (TimeFirst, 6, ["returns outputs of shape [48, 4, 6]", "batch_first=True"]),
    ],
)
def test_wrong_signature_is_one_line(core, shape, words):
    card = certify(core(), input_shape=(shape,))
    assert card.failed == ("call",)
    assert len(card.lines) == 1
    assert all(word in card["call"].text() for word in words), str(card)


def test_thorough_tries_more_seeds_without_a_time_limit():
    card = certify(
        zoo.Window(), lines=["splits", "state-bytes"], long_steps=600, long_seconds=0.0, thorough=True, quick=True
    )
    assert "also at seeds 1 and 2" in card["splits"].detail
    assert card["state-bytes"].numbers["steps"] == 600


def test_reference_by_name():
    core = zoo_paths.EqualsPlainForm()
    assert certify(core, lines=["reference"], reference="zoo_paths:_plain").passed
    assert certify(core, lines=["reference"], reference="zoo_paths:_plain_of_another").failed == ("reference",)
    with pytest.raises(ValueError, match="give package"):
        certify(core, lines=["reference"], reference="zoo_paths:ONE_PATH")


def test_load_takes_a_key_at_certification_size(table):
    candidate = load("toy-window")
    assert candidate.config == "ToyConfig(dim=16, chunk_len=4)"
    assert candidate.core.input_shape == (10,)
    assert candidate.steps == 2 * 24 + 9
    again = load("toy-window").core.state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in candidate.core.state_dict().items())


def test_small_config_keeps_what_must_fit_together():
    # memory_len 6 is no multiple of chunk_len 4, so one of the two stays.
    assert small_config(ToyConfig) == ToyConfig(dim=16, chunk_len=4)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("toy-windw", "core='toy-windw' is unknown; did you mean 'toy-window'"),
        ("nowhere.at_all:core", "cannot import 'nowhere.at_all'"),
        ("user_modules:recurent", "user_modules has no 'recurent'; did you mean 'recurrent'"),
        ("user_modules:sized", "needs the arguments width"),
        ("user_modules:SizedConfig", "needs the arguments width"),
        ("user_modules:number", "made a int"),
        ("user_modules:text", "it is a str"),
    ],
)
def test_bad_names(table, spec, words):
    with pytest.raises(ValueError, match=words):
        load(spec)


@pytest.mark.parametrize("spec", ["user_modules:recurrent", "user_modules:plain", "user_modules:Nested.Core"])
def test_user_modules(spec):
    card = certify(load(spec), lines=FAST, quick=True)
    assert card.passed, str(card)
    assert card.core == spec


def test_a_config_can_be_certified():
    card = certify(from_config(ToyConfig(dim=8), name="mine", input_dim=5), lines=FAST, quick=True)
    assert card.passed, str(card)
    assert card.config == "ToyConfig(dim=8)"


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_many_cores_in_order(monkeypatch, processes):
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", here)  # for new processes
    monkeypatch.chdir(here)
    names = ["user_modules:recurrent", "user_modules:late"]
    options = {"lines": ["splits", "reset"], "quick": True}
    cards = list(certify_many(names, processes=processes, options=options))
    assert [card.core for card in cards] == names
    assert [card.failed for card in cards] == [(), ("reset",)]
    table = summary(cards)
    headers = ["core", "pass", "skip", "fail", "exempt", "long run, steps", "s"]
    assert [column.header for column in table.columns] == headers
    assert [str(cell) for cell in table.columns[3].cells] == ["-", "reset"]


def test_many_rejects_a_bad_name_before_anything_runs():
    with pytest.raises(ValueError, match="cannot import"):
        next(certify_many(["user_modules:recurrent", "nowhere:core"]))


def test_slow_lines_are_lines():
    assert set(SLOW_LINES) < set(LINES)


def _plugin() -> list[str]:
    installed = any(point.value == "recollect.certify.pytest_plugin" for point in entry_points(group="pytest11"))
    return [] if installed else ["-p", "recollect.certify.pytest_plugin"]


def test_plugin_gives_a_three_line_test(pytester, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    pytester.makepyfile(
        """
        import zoo

        def test_good(certify):
            certify(zoo.Plain(), input_shape=(6,), lines=["splits", "reset"], quick=True)

        def test_bad(certify):
            certify(zoo.NeverResets(), lines=["splits", "reset"], quick=True)
        """
    )
    result = pytester.runpytest_inprocess("-q", *_plugin())
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*fail  reset*reset at step 0 against a fresh start*row 0*", "*likely cause*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_plugin_does_not_import_torch():
    code = "import sys, recollect.certify.pytest_plugin; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
