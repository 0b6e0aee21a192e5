"""One step of every model, outside of this library: signature, self-test, clients, any number of rows, refusals."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents import ActorCriticConfig, DecisionTransformerConfig, SequenceModelConfig
from recollect.certify.loading import small_config
from recollect.cli import main
from recollect.cores import CORES
from recollect.export import cpp
from recollect.export.folder import describe, export_model, initial_values
from recollect.export.selftest import open_program, record, replay
from recollect.export.step import one_step
from recollect.export.trace import FORMATS, batch_bounds, trace, write_program
from recollect.tasks.streams.contract import Scale

OBSERVATION = spaces.Dict(
    {
        "place": spaces.Box(-1, 1, (5,), np.float32),
        "language": spaces.MultiDiscrete([7, 7, 7]),
        "action_mask": spaces.MultiBinary(4),
    }
)
ROWS = (1, 4, 129)


def _core(key):
    torch.manual_seed(0)
    return small_config(CORES[key]).build(10).eval()


def _agent(key, observation=OBSERVATION, **settings):
    """Untrained; its policy is far from uniform, so that its actions depend on its memory."""
    torch.manual_seed(0)
    config = ActorCriticConfig(width=16, **settings)
    agent = config.build(small_config(CORES[key]), observation, spaces.Discrete(4)).eval()
    with torch.no_grad():
        agent.policy_head[-1].weight.mul_(100)
    return agent


@pytest.mark.parametrize("key", CORES)
def test_a_step_is_the_core_with_named_tensors(key):
    core = _core(key)
    step = one_step(core)
    assert [port.name for port in step.inputs[:2]] == ["inputs", "is_first"]
    recorded = record(step, steps=12, rows=3)
    inputs, is_first = (torch.as_tensor(recorded[f"inputs.{name}"]).transpose(0, 1) for name in ("inputs", "is_first"))
    with torch.no_grad():
        want, _ = core(inputs, core.initial_state(3), is_first)
    torch.testing.assert_close(torch.as_tensor(recorded["outputs.outputs"]).transpose(0, 1), want, rtol=1e-4, atol=1e-4)
    assert initial_values(step) == [0] * len(step.leaves), "zeros with is_first begin an episode"


def test_a_state_that_is_first_does_not_replace_is_in_the_manifest():
    class Counter(torch.nn.Module):
        input_shape = (2,)

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def initial_state(self, batch_size):
            return torch.full((batch_size, 2), 5.0), torch.tensor([[1.0, 2.0]]).repeat(batch_size, 1)

        def forward(self, inputs, state, is_first):
            return inputs + state[0][:, None] + state[1][:, None], state

    step = one_step(Counter())
    assert initial_values(step) == [5.0, [1.0, 2.0]]
    code = cpp.client(step, describe(step, "onnx", initial_values(step), None))
    assert '{"state.0", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {1, 2}, filled<float>(2, 5.0)},' in code
    assert '{"state.1", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {1, 2}, copied<float>({1.0, 2.0})},' in code


def test_a_leaf_without_elements_is_no_argument():
    assert [port.name for port in one_step(_core("memoryless")).inputs] == ["inputs", "is_first"]
    names = [port.name for port in one_step(_core("instructed")).inputs]
    assert "state.slots" in names and "state.words" not in names


def test_what_an_agent_reads_has_a_name_and_a_source():
    step = one_step(_agent("gru"))
    ports = {port.name: port for port in step.inputs}
    told = [
        "observation.action_mask",
        "observation.language",
        "observation.place",
        "previous_action",
        "reward",
        "is_first",
    ]
    assert list(ports)[:6] == told and ports["previous_action"].source == "action"
    assert step.outputs[:3] == ("action", "policy", "value")
    recorded = record(step, steps=40, rows=3)
    allowed = recorded["inputs.observation.action_mask"].astype(bool)
    some = allowed.any(-1)
    assert np.take_along_axis(allowed, recorded["outputs.action"][..., None], -1)[some].all(), "masks hold"
    np.testing.assert_array_equal(recorded["inputs.previous_action"][1:], recorded["outputs.action"][:-1])
    plain = one_step(_agent("gru", spaces.Box(-1, 1, (3,)), previous_action="none", previous_reward=False))
    assert [port.name for port in plain.inputs][:2] == ["observation", "is_first"]


def test_raw_rows_are_standardised_inside(tmp_path):
    """Means of 1e4 and deviations of 1e-3 need float64 up to the subtraction, in the program too."""
    torch.manual_seed(0)
    inputs, targets = Scale((1e4, -3.0), (1e-3, 2.0)), Scale((50.0,), (4.0,))
    config = SequenceModelConfig(embedding_dim=16)
    model = config.build(
        small_config(CORES["gru"]), num_classes=1, input_dim=2, input_scale=inputs, target_scale=targets
    )
    step = one_step(model)
    assert step.inputs[0].dtype == torch.float64 and step.outputs[0] == "values"
    recorded = record(step, steps=20)
    assert abs(recorded["inputs.inputs"][..., 0] - 1e4).max() < 0.01 and recorded["outputs.values"].std() > 0.01
    program = trace(step).module()
    with torch.no_grad():
        found = replay(
            lambda arrays: [tensor.numpy() for tensor in program(*map(torch.as_tensor, arrays))],
            step,
            recorded,
            [leaf.numpy() for leaf in step.initial(3)],
        )
    assert found.worst < 1e-6


def test_what_has_no_step_says_why(tmp_path):
    box, choice = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
    decision = DecisionTransformerConfig(width=16, context=4).build(
        small_config(CORES["causal-transformer"]), box, choice
    )
    with pytest.raises(ValueError, match="DecisionTransformer: it cannot be exported: in play it reads its context"):
        export_model(decision, tmp_path / "out", format="pt2")
    whole = SequenceModelConfig(embedding_dim=16, whole_rows=True).build(
        small_config(CORES["tlb"]), num_classes=2, vocabulary=3
    )
    with pytest.raises(ValueError, match="whole_rows=True: this model reads whole rows only"):
        one_step(whole)
    with pytest.raises(ValueError, match="model=Linear: it has no step that could be exported"):
        one_step(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="dtype='bfloat16': NumPy, which all clients use, does not have it"):
        export_model(_core("gru").bfloat16(), tmp_path / "out", format="pt2")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else_is_kept(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ValueError, match="it exists and is no exported model"):
        export_model(_core("memoryless"), tmp_path, format="pt2")
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_the_command_refuses_in_one_line(tmp_path, capsys):
    assert main(["export", str(tmp_path / "none"), "--to", str(tmp_path / "out")]) == 2
    assert "there is no such folder" in " ".join(capsys.readouterr().err.split())


def test_a_program_that_gives_other_numbers_is_not_written(tmp_path, monkeypatch):
    """A wrong program is found by the replay of the recorded steps."""
    step = one_step(_core("gru"))
    recorded = record(step, steps=10)
    states = [np.zeros((3, *port.shape), np.float32) for port in step.leaves]

    def broken(arrays):
        with torch.no_grad():
            outputs, *state = step(*map(torch.as_tensor, arrays))
        return [outputs.numpy() * 1.001, *(leaf.numpy() for leaf in state)]

    found = replay(broken, step, recorded, states)
    assert not found.holds and found.worst == pytest.approx(1e-3, rel=0.01)


def test_logits_of_masked_actions_do_not_hide_a_difference():
    step = one_step(_agent("gru"))
    recorded = record(step, steps=10)

    def broken(arrays):
        with torch.no_grad():
            found = dict(zip(step.outputs, step(*map(torch.as_tensor, arrays)), strict=True))
        found["policy"] = torch.where(found["policy"] > -1e29, found["policy"] * 1.001, found["policy"])
        return [tensor.numpy() for tensor in found.values()]

    found = replay(broken, step, recorded, [leaf.numpy() for leaf in step.initial(3)])
    assert found.worst == pytest.approx(1e-3, rel=0.01)


def test_spaces_of_few_robots():
    """A self-test draws symbols that the space has; a camera of depths has a C++ client."""
    observation = spaces.Dict(
        {"symbols": spaces.Box(1000, 1010, (5, 5), np.int64), "depth": spaces.Box(0, 65535, (24, 24, 1), np.uint16)}
    )
    step = one_step(_agent("gru", observation))
    drawn = record(step, steps=5)["inputs.observation.symbols"]
    assert drawn.min() >= 1000 and drawn.max() <= 1010
    code = cpp.client(step, describe(step, "onnx", initial_values(step), None))
    assert (
        '{"observation.depth", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, {1, 24, 24, 1}, filled<uint16_t>(576, 0)},' in code
    )


def _require_agreement(step, program, recorded, format, folder, shorter=None):
    """Compare the program with the recorded rows, all of them, then some: the rows of a batch do not mix."""
    path = folder / ("model.onnx" if format == "onnx" else "model.pt2")
    write_program(program, step, path, format)
    run = open_program(path, step, format)
    for number in ROWS:
        steps = None if number == 4 else shorter
        some = {name: np.ascontiguousarray(array[:steps, :number]) for name, array in recorded.items()}
        found = replay(run, step, some, [leaf.numpy() for leaf in step.initial(number)])
        assert found.holds, f"{number} rows: {found}"


def test_a_program_of_any_number_of_rows(tmp_path):
    step = one_step(_core("gru"))
    program = trace(step)
    assert batch_bounds(program) == ""
    _require_agreement(step, program, record(step, steps=20, rows=max(ROWS)), "pt2", tmp_path)


@lru_cache(maxsize=1)  # the formats of one model come one after another
def _traced(build, key):
    model = build(key)
    if getattr(small_config(CORES[key]), "top_k", None):
        model.double()  # in float32, rounding may change which chunks are chosen, once in 100 000 steps
    step = one_step(model)
    program = trace(step)
    assert batch_bounds(program) == ""
    return step, program, record(step, steps=1000, rows=max(ROWS), resets=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("key", CORES)
@pytest.mark.parametrize("build", [_core, _agent], ids=["core", "agent"])
def test_every_core_and_an_agent_of_each_export(build, key, format, tmp_path):
    """1 000 steps of 1, 4 and 129 rows; a program of torch.export is interpreted, so some of its rows take fewer."""
    if format == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    if format == "aoti" and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    _require_agreement(*_traced(build, key), format, tmp_path, 200 if format == "pt2" else None)


def _run_client(folder, *words):
    """Run a client where this library cannot be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import runpy, sys; sys.modules['recollect'] = None; runpy.run_path('client.py', run_name='__main__')"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_a_folder_of_pt2_runs_without_this_library(tmp_path):
    export_model(_agent("lstm"), tmp_path / "out", format="pt2")
    told = _run_client(tmp_path / "out")
    assert told.returncode == 0 and "200 steps, largest relative difference" in told.stdout, told.stderr


@pytest.fixture(scope="module")
def onnx_folder(tmp_path_factory):
    """An agent in ONNX: seconds."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("export") / "out"
    made = export_model(_agent("lstm"), folder, format="onnx")
    assert made.agreement is not None and made.agreement.holds
    return folder


@pytest.mark.long
def test_a_folder_of_onnx_runs_without_this_library(onnx_folder):
    manifest = json.loads((onnx_folder / "manifest.json").read_text())
    assert manifest["format"] == "onnx" and manifest["versions"]["recollect"]
    assert {next(iter(one["shape"])) for one in (*manifest["inputs"], *manifest["state"])} == {"batch"}
    told = _run_client(onnx_folder)
    assert told.returncode == 0, told.stderr
    test = dict(np.load(onnx_folder / "selftest.npz"))
    test["outputs.value"] = test["outputs.value"] + 0.01
    broken = onnx_folder.parent / "broken"
    shutil.copytree(onnx_folder, broken)
    np.savez(broken / "selftest.npz", **test)
    assert _run_client(broken).returncode == 1, "a self-test that does not hold is told"
    test["outputs.value"] = np.full_like(test["outputs.value"], np.nan)
    np.savez(broken / "selftest.npz", **test)
    assert _run_client(broken).returncode == 1, "not even one of NaN"


def test_the_client_converts_lists_and_refuses_what_is_missing_or_unknown(onnx_folder):
    model = runpy.run_path(str(onnx_folder / "client.py"))["Model"](onnx_folder, rows=1)
    recorded = np.load(onnx_folder / "selftest.npz")
    given = {
        name.removeprefix("inputs."): recorded[name][0][:1].tolist()
        for name in recorded.files
        if name.startswith("inputs.")
    }
    first = given.pop("is_first")
    del given["previous_action"]  # of the step before, or zeros
    model.step(first, **given)
    name = next(name for name in given if name != "reward")
    with pytest.raises(ValueError, match=f"{name} is missing; give "):
        model.step(first, **{other: value for other, value in given.items() if other != name})
    with pytest.raises(ValueError, match="rewrad: there is no such input; give "):
        model.step(first, rewrad=[0.0], **given)


HEADERS = [os.environ.get("ONNXRUNTIME_INCLUDE", ""), "/usr/include/onnxruntime", "/usr/local/include/onnxruntime"]


@pytest.mark.long
def test_the_client_in_cpp_gives_the_same_numbers(onnx_folder, tmp_path):
    headers = next((path for path in HEADERS if path and (Path(path) / "onnxruntime_cxx_api.h").is_file()), None)
    if headers is None or shutil.which("g++") is None:
        pytest.skip("no g++ or no headers of ONNX Runtime (ONNXRUNTIME_INCLUDE names their folder)")
    import onnxruntime

    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)  # its name for the loader, under which the wheel lacks it
    command = ["g++", "-std=c++17", str(onnx_folder / "client.cpp"), "-I", headers, str(library)]
    command += [f"-Wl,-rpath,{tmp_path}", "-o", str(tmp_path / "client")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    manifest, test = json.loads((onnx_folder / "manifest.json").read_text()), np.load(onnx_folder / "selftest.npz")
    names = [one["name"] for one in manifest["inputs"]]
    steps = len(test["inputs.is_first"])
    sent = b"".join(test[f"inputs.{name}"][t, 0].tobytes() for t in range(steps) for name in names)
    got = subprocess.run(
        [tmp_path / "client", onnx_folder / "model.onnx"], input=sent, capture_output=True, check=True, timeout=300
    ).stdout
    columns = [test[f"outputs.{one['name']}"][:, :1] for one in manifest["outputs"]]
    at = 0
    for t in range(steps):
        for want in columns:
            found = np.frombuffer(got, want.dtype, want[t].size, at)
            at += found.nbytes
            np.testing.assert_allclose(found, want[t].ravel(), rtol=1e-4, atol=1e-4)
    assert at == len(got)


def test_a_number_that_is_nan_in_both_hides_no_other_difference():
    step = one_step(_core("lstm"))
    recorded = record(step, steps=4, rows=3)
    outputs = recorded["outputs.outputs"]
    outputs[2, 0, 0] = np.nan
    state = [np.zeros((3, *port.shape), np.float32) for port in step.leaves]

    def run_from(outputs):
        steps = iter(outputs)
        return lambda arrays: [next(steps), *state]

    assert replay(run_from(outputs), step, recorded, state).worst == 0
    wrong = outputs.copy()
    wrong[2, 1] += 1
    assert not replay(run_from(wrong), step, recorded, state).holds


def test_an_action_of_a_half_agent_can_be_fed_back():
    torch.manual_seed(0)
    agent = ActorCriticConfig(width=8).build(
        small_config(CORES["lstm"]), spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))
    )
    step = one_step(agent.half())
    (previous,) = [port.dtype for port in step.inputs if port.source == "action"]
    assert previous == torch.float32
    assert record(step, steps=3, rows=2)["outputs.action"].dtype == np.float32
