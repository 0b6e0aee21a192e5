"""Compiled steps: the numbers of the core, one file for all weights, and the core's own stream where none is compiled.

Most tests replace the C++ compiler by the traced program, which has the same interface; one compiles.
"""

import math
import shutil
import warnings

import pytest
import torch

from recollect.certify.loading import from_config, small_config
from recollect.cores import CORES
from recollect.export import compiled
from recollect.export.compiled import CompiledStream, compiled_stream


class Traced:
    """A traced program with the interface of a compiled one."""

    def __init__(self, path):
        self.module = torch.export.load(path).module()
        self.factor = 1.0

    def __call__(self, *tensors):
        outputs, *state = self.module(*tensors)
        return (outputs * self.factor, *state)

    def get_constant_fqns(self):
        return list(self.module.state_dict())

    def load_constants(self, weights, check_full_update):
        assert not check_full_update
        with torch.no_grad():
            for name, own in self.module.state_dict(keep_vars=True).items():
                own.copy_(weights[name])


@pytest.fixture
def compiler(monkeypatch):
    """Counts what is compiled; the weights in the file are zeros, so that they have to come from the core."""
    made = []

    def write(program, step, path, format):
        made.append(format)
        weights, zeros = program.state_dict, {}
        for name, weight in weights.items():
            zeros[name] = torch.nn.Parameter(torch.zeros_like(weight), requires_grad=False)
        program._state_dict = zeros  # the traced program shares the core's own weights
        torch.export.save(program, path)
        program._state_dict = weights

    monkeypatch.setattr(compiled, "write_program", write)
    monkeypatch.setattr(compiled, "load_compiled", Traced)
    return made


def made(key, seed=0):
    torch.manual_seed(seed)
    return from_config(small_config(CORES[key]), name=key).core.eval().float()


def compare(core, stream, steps=12):
    """Steps with a reset, a broken row, some rows, a fork and a file, beside the core's own stream."""
    own, first = core.stream(3), torch.tensor([False, True, False])
    inputs = torch.randn(steps, 3, *core.input_shape, generator=torch.Generator().manual_seed(1))
    inputs[7, 0] = math.nan
    for t, x in enumerate(inputs):
        answers = [each.step(x, first if t == 5 else None) for each in (stream, own)]
        torch.testing.assert_close(*answers, rtol=1e-5, atol=1e-6, equal_nan=True)
        some = [each.step_rows(x[1:], [2, 0]) for each in (stream, own)]
        torch.testing.assert_close(*some, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(stream.fork().step(inputs[0]), own.step(inputs[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("key", ["lstm", "transformer-xl", "ttm"])
def test_steps_are_those_of_the_core_and_one_file_serves_all_weights(key, compiler, tmp_path):
    core, other = made(key), made(key, seed=1)
    before = [weight.clone() for weight in core.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = compiled_stream(core, 3, folder=tmp_path)
        assert isinstance(stream, CompiledStream)
        compare(core, stream)
        compare(other, compiled_stream(other, 3, folder=tmp_path))
    assert compiler == ["aoti"]
    assert all(torch.equal(*pair) for pair in zip(before, core.parameters(), strict=True))
    stream.swap_weights(other)
    own = other.stream(3)
    own.load_state(stream.state)
    x = torch.randn(3, *core.input_shape)
    torch.testing.assert_close(stream.step(x), own.step(x), rtol=1e-5, atol=1e-6)
    stream.save(tmp_path / "memory")
    own.load(tmp_path / "memory")
    torch.testing.assert_close(stream.step(x), own.step(x), rtol=1e-5, atol=1e-6)


def test_a_damaged_file_is_compiled_again(compiler, tmp_path):
    core = made("lstm")
    compiled_stream(core, 1, folder=tmp_path)
    [file] = tmp_path.glob("*.pt2")
    file.write_bytes(b"torn")
    assert isinstance(compiled_stream(core, 1, folder=tmp_path), CompiledStream)
    assert len(compiler) == 2


@pytest.mark.parametrize("fault", ["compiler", "numbers", "folder", "dtype", "load"])
def test_a_core_that_cannot_be_compiled_has_its_own_stream_and_one_warning(fault, compiler, tmp_path, monkeypatch):
    folder = tmp_path
    if fault == "compiler":
        reason = "no compiler"
        monkeypatch.setattr(compiled, "write_program", lambda *_: (_ for _ in ()).throw(ValueError("no compiler")))
    elif fault == "numbers":
        reason = "computes other numbers"
        monkeypatch.setattr(compiled, "TOLERANCE", -1.0)
    elif fault == "folder":
        folder = tmp_path / "file"
        folder.write_text("")
        reason = "File exists|Not a directory"
    elif fault == "load":  # a folder from which programs may not be run
        reason = "failed to map segment"
        monkeypatch.setattr(compiled, "load_compiled", lambda _: (_ for _ in ()).throw(RuntimeError(reason)))
    else:
        reason = "torch.export fails"
        monkeypatch.setattr(compiled, "trace", lambda _: (_ for _ in ()).throw(ValueError("torch.export fails")))
    core = made("lstm")
    with pytest.warns(UserWarning, match=f"no compiled steps of LSTM .*({reason})") as told:
        stream = compiled_stream(core, 2, folder=folder)
    assert len([warning for warning in told if "compiled" in str(warning.message)]) == 1
    assert type(stream) is type(core.stream(2))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("key", ["lstm", "tlb"])
def test_compiled_programs_compute_the_numbers_of_the_core(key, tmp_path):
    core, other = made(key), made(key, seed=1)
    for one in (core, other):
        stream = compiled_stream(one, 3, folder=tmp_path)
        assert isinstance(stream, CompiledStream)
        compare(one, stream)
    assert len(list(tmp_path.glob("*.pt2"))) == 1
