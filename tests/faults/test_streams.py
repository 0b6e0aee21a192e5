"""Files of streams: damaged ones are refused, and cores in half precision work."""

import copy

import pytest
import safetensors.torch
import torch

from recollect.cores import CORES
from recollect.state import named_leaves

COUNTED = [key for key in CORES if any(not leaf.is_floating_point() for _, leaf in named_leaves(
    CORES[key](dim=8).build(4).initial_state(1)))]  # fmt: skip


def lived(key, steps=3):
    core = CORES[key](dim=8).build(4).eval()
    stream = core.stream(2)
    for _ in range(steps):
        stream.step(torch.randn(2, *core.input_shape))
    return core, stream


@pytest.mark.parametrize("value", [-1, 10**6, 2**62])
@pytest.mark.parametrize("key", COUNTED)
def test_a_counter_out_of_range_is_refused(tmp_path, key, value):
    core, stream = lived(key)
    stream.save(tmp_path / "memory")
    good = safetensors.torch.load_file(tmp_path / "memory")
    other = core.stream(2)
    other.load(tmp_path / "memory")
    for name, leaf in good.items():
        if leaf.is_floating_point() or leaf.dtype == torch.bool:
            continue
        if name == "steps" and value == 10**6:
            continue  # an episode may be that long
        safetensors.torch.save_file({**good, name: torch.full_like(leaf, value)}, tmp_path / "bad")
        with pytest.raises(ValueError, match=rf"bad: {name} is {value}, not in 0\.\.\d+: the file is damaged"):
            other.load(tmp_path / "bad")


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 99, b"\xff" * 9])
def test_a_file_that_holds_no_memory_is_named(tmp_path, content):
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match="bad holds no memory of a stream"):
        lived("gru")[1].load(tmp_path / "bad")


def test_a_memory_of_another_precision_is_named(tmp_path):
    core, stream = lived("lstm")
    stream.save(tmp_path / "memory")
    with pytest.raises(ValueError, match=r"is torch.float32, this stream keeps torch.bfloat16"):
        copy.deepcopy(core).bfloat16().stream(2).load(tmp_path / "memory")


@pytest.mark.parametrize("memory", ["erase_add", "erase_add_released", "concatenate", "none"])
@pytest.mark.parametrize("summarizer", ["mlp", "mha", "latent_query"])
def test_every_memory_of_a_token_turing_machine_works_in_half_precision(memory, summarizer):
    core = CORES["ttm"](dim=8, num_heads=2, num_tokens=2, memory=memory, summarizer=summarizer).build(4).bfloat16()
    inputs, is_first = torch.randn(2, 3, *core.input_shape).bfloat16(), torch.zeros(2, 3, dtype=torch.bool)
    assert core(inputs, core.initial_state(2), is_first)[0].dtype == torch.bfloat16
    assert core.eval().stream(2).step(inputs[:, 0]).dtype == torch.bfloat16


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.2), (torch.float16, 0.03)])
@pytest.mark.parametrize("key", CORES)
def test_cores_work_in_half_precision(key, dtype, tolerance):
    core = CORES[key](dim=8).build(4).eval()
    low = copy.deepcopy(core).to(dtype)
    inputs, is_first = torch.randn(2, 9, *core.input_shape), torch.zeros(2, 9, dtype=torch.bool)
    is_first[1, 5] = True
    with torch.no_grad():
        right, _ = core(inputs, core.initial_state(2), is_first)
    outputs, state = low(inputs.to(dtype), low.initial_state(2), is_first)
    assert outputs.dtype == dtype
    assert all(leaf.dtype == like.dtype for (_, leaf), (_, like) in zip(
        named_leaves(state), named_leaves(low.initial_state(2)), strict=True))  # fmt: skip
    torch.testing.assert_close(outputs.float(), right, rtol=tolerance, atol=tolerance)
    stream = low.stream(2)
    lived = torch.stack([stream.step(inputs[:, t].to(dtype), is_first[:, t]) for t in range(9)], 1)
    torch.testing.assert_close(lived.float(), right, rtol=tolerance, atol=tolerance)
    outputs.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in low.parameters())
