"""TimeSformer: reported sizes, visible frames and places, and the two forms of a joint step."""

import pytest
import torch

from recollect.cores.timesformer import TimeSformerConfig, stream
from recollect.layers.tap import listen
from recollect.ops import unshifted_attention

AGENT = {"dim": 256, "token_dim": 16}
ACTIONS = 6
OTHERS = 1 + ACTIONS
"""Reward, and a logit for every action."""


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def resnet(last):
    """Weights of the encoder of IMPALA with stages of 16, 32 and ``last`` channels, which reads four frames."""
    count, before = 0, 4
    for channels in (16, 32, last):
        count += 9 * before * channels + channels + 4 * (9 * channels * channels + channels)
        before = channels
    return count


def agent(grid, *, encoder=None, **settings):
    """An agent for Pong with heads for policy and value."""
    width = settings.get("token_dim", 16)
    config = TimeSformerConfig(**AGENT | settings, grid=grid, channels=width)
    core = config.build(grid[0] * grid[1] * width + OTHERS)
    return parameters(core) + (resnet(width) if encoder is None else encoder) + 257 * (ACTIONS + 1)


def patches(side):
    """Weights of a convolution whose stride is its width."""
    return 4 * side * side * 16 + 16


# George 2021: 100 frames and the 80 of a call have a row each in the table of times; with joint attention, 10.
DIVIDED = {"time_rows": 180}
JOINT = {"time_rows": 110, "attention": "joint"}


@pytest.mark.parametrize(("layers", "count"), [(1, 558_944), (2, 563_520), (3, 568_096), (4, 572_672)])
def test_layers_as_reported(layers, count):
    assert agent((11, 11), num_layers=layers, **DIVIDED) == count


@pytest.mark.parametrize(("width", "count"), [(8, 302_856), (32, 1_091_472), (64, 2_237_936)])
def test_embeddings_as_reported(width, count):
    assert agent((11, 11), token_dim=width, **DIVIDED) == count


@pytest.mark.parametrize(("side", "count"), [(7, 588_688), (14, 166_096), (28, 95_728)])
def test_patches_as_reported(side, count):
    assert agent((84 // side, 84 // side), encoder=patches(side), **DIVIDED) == count


@pytest.mark.parametrize(("grid", "settings", "count"), [
    ((11, 11), JOINT, 556_480), ((6, 6), JOINT, 216_480), ((6, 6), DIVIDED, 218_944), ((3, 3), DIVIDED, 110_944)
])  # fmt: skip
def test_frames_as_reported(grid, settings, count):
    assert agent(grid, **settings) == count


def small(**settings):
    torch.manual_seed(0)
    base = {"dim": 25, "grid": (2, 3), "channels": 4, "token_dim": 4, "num_heads": 2, "hidden_dim": 5, "memory_len": 4}
    core = TimeSformerConfig(**base | settings).build(24 + 2).double()
    with torch.no_grad():
        for weight in core.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return core


def test_other_features_follow_the_answer():
    core = small()
    inputs = torch.randn(1, 3, 26).double()
    outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(outputs[..., 23:], inputs[..., 24:])
    with pytest.raises(ValueError, match="dim=2: of input_dim=26, 2 go to the output unchanged"):
        small(dim=2)


@pytest.mark.parametrize("attention", ["divided", "joint"])
@pytest.mark.parametrize("live", [False, True])
def test_taps_record_weights_over_window_and_map(attention, live):
    core = small(attention=attention)
    inputs = torch.randn(2, 3, 26).double()
    recorded = {}

    def record(name, weights):
        recorded.setdefault(name, []).append(weights)

    quiet, _ = core(inputs, core.initial_state(2), torch.zeros(2, 3, dtype=torch.bool))
    with listen(core, record), torch.no_grad():
        if live:
            memory = core.stream(2)
            outputs = torch.stack([memory.step(x) for x in inputs.unbind(1)], 1)
        else:
            outputs, _ = core(inputs, core.initial_state(2), torch.zeros(2, 3, dtype=torch.bool))
    torch.testing.assert_close(outputs, quiet)
    taps = {name.removeprefix("layers.0."): torch.cat(parts, 2) for name, parts in recorded.items()}
    steps = taps["window_attention.tap"]  # b h t s
    assert steps.shape == (2, 2, 3, 5)
    assert steps.sum(-1).allclose(torch.ones(2, 2, 3).double())
    assert not steps[:, :, 0, :4].any(), "a first frame sees itself alone"
    assert list(core.recalled_steps(torch.zeros(1, 1).long())) == ["layers.0.window_attention.tap"]
    if attention == "divided":
        places, maps = taps["window_attention.place_tap"], taps["space_attention.map_tap"]
        assert places.shape == (2, 2, 3, 6, 5)
        assert places.mean(3).allclose(steps)
        assert maps.shape == (2, 2, 3, 2, 3)
        assert maps.sum((-1, -2)).allclose(torch.ones(2, 2, 3).double())
    else:
        maps = taps["window_attention.map_tap"]
        assert maps.shape == (2, 2, 3, 5, 2, 3)
        assert maps.sum((-1, -2)).allclose(steps)


def test_a_fresh_divided_core_ignores_time_and_a_joint_one_does_not():
    inputs, never = torch.randn(1, 3, 26), torch.zeros(1, 3, dtype=torch.bool)
    for attention, uses_time in (("divided", False), ("joint", True)):
        torch.manual_seed(0)
        core = TimeSformerConfig(dim=5, grid=(2, 3), channels=4, token_dim=4, attention=attention).build(26)
        last = core(inputs, core.initial_state(1), never)[0][:, -1]
        alone = core(inputs[:, -1:], core.initial_state(1), never[:, -1:])[0][:, -1]
        assert torch.allclose(last, alone, atol=1e-6) is not uses_time


def test_rows_of_the_table_of_times_are_ages_from_the_right():
    core = small(memory_len=2, time_rows=5)
    inputs = torch.randn(1, 4, 26).double()
    outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 4, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(outputs[:, 1].sum(), core.time)
    assert gradient.abs().sum(1).gt(1e-12).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_a_joint_step_handles_scores_of_any_size(size):
    """Small scores are summed as they are, large ones go through the kernel that subtracts the largest first."""
    core = small(attention="joint")
    with torch.no_grad():
        core.layers[0].window_attention.qkv.weight *= size
    inputs = torch.randn(2, 9, 26).double()
    want, _ = core.reference_unroll(inputs, core.initial_state(2), torch.zeros(2, 9, dtype=torch.bool))
    mild, seen = unshifted_attention._is_mild, []
    live = core.stream(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unshifted_attention, "_is_mild", lambda *arguments: seen.append(mild(*arguments)) or seen[-1])
        got = torch.stack([live.step(x) for x in inputs.unbind(1)], 1)
    assert set(seen) == {size == 1.0}
    torch.testing.assert_close(got, want)


def test_joint_rows_that_step_one_by_one_step_as_all_together(monkeypatch):
    core, (inputs, is_first) = small(attention="joint"), (torch.randn(3, 9, 26).double(), torch.rand(3, 9) < 0.2)
    outputs = []
    for scores in (1, 2**21):
        monkeypatch.setattr(stream, "SCORES", scores)
        live = core.stream(3)
        outputs.append(
            torch.stack([live.step(x, f) for x, f in zip(inputs.unbind(1), is_first.unbind(1), strict=True)])
        )
    torch.testing.assert_close(*outputs)


def test_sequences_longer_than_a_block_are_cut_into_blocks():
    core = small(memory_len=2, grid=(1, 1))
    inputs, is_first = torch.randn(1, 70, 26).double(), torch.rand(1, 70) < 0.05
    want, _ = core.reference_unroll(inputs, core.initial_state(1), is_first)
    got, _ = core(inputs, core.initial_state(1), is_first)
    torch.testing.assert_close(got, want)
