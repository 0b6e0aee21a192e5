import torch

from recollect.cores.memoryless import MemorylessConfig


def test_the_stream_gives_the_same_numbers_and_holds_no_bytes(tmp_path):
    core = MemorylessConfig(dim=8).build(5).double()
    inputs = torch.randn(2, 4, 5, dtype=torch.double)
    want = core(inputs, core.initial_state(2), torch.zeros(2, 4).bool())[0]
    stream = core.stream(2)
    for step in range(4):
        torch.testing.assert_close(stream.step(inputs[:, step]), want[:, step])
    assert stream.nbytes == 0
    stream.save(tmp_path / "memory.safetensors")
    stream.load(tmp_path / "memory.safetensors")


def test_flops_are_those_of_the_products():
    # 2 * 5 * 8 for the input, and 2 * 2 * 8 * 32 for each of two layers.
    assert MemorylessConfig(dim=8).build(5).flops_per_step() == 80 + 2 * 1024
