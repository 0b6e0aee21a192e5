import pytest
import torch
from tlb_cases import VARIANTS, Variant, build, random_resets
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.layers.tap import listen
from recollect.state import leaves


def test_slots_differ_after_one_update_but_equal_slots_would_stay_equal():
    core = build()
    inputs = torch.randn(1, 12, 5, dtype=torch.float64)
    slots = core.encode(inputs)[1].slots[0, 0]
    assert (slots[0] - slots[1]).abs().max() > 1e-3
    with torch.no_grad():
        core.slots.zero_()
    slots = core.encode(inputs)[1].slots[0, 0]
    torch.testing.assert_close(slots[0], slots[1], rtol=0.0, atol=1e-14)
    torch.testing.assert_close(slots[0], slots[2], rtol=0.0, atol=1e-14)


def test_outputs_do_not_depend_on_later_steps_nor_slots_on_later_chunks():
    core = build()
    inputs = torch.randn(1, 16, 5, dtype=torch.float64, requires_grad=True)
    outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 16, dtype=torch.bool))
    for step in (0, 5, 11):
        (grad,) = torch.autograd.grad(outputs[0, step, 0], inputs, retain_graph=True)
        assert grad[0, : step + 1].abs().sum(-1).gt(0).all()
        assert grad[0, step + 1 :].eq(0).all()
    (grad,) = torch.autograd.grad(core.encode(inputs[:, :8])[1].slots.square().sum(), inputs)
    assert grad[0, :8].abs().sum(-1).gt(0).all()
    assert grad[0, 8:].eq(0).all()


def test_the_graph_grows_linearly_with_the_sequence():
    core = build().float()

    def nodes(steps):
        outputs, _ = core.encode(torch.randn(1, steps, 5))
        weights = [w for w in core.parameters() if w.requires_grad]
        with torch.autograd.profiler.profile() as profile:
            torch.autograd.grad(outputs.sum(), weights, allow_unused=True)
        return sum(event.count for event in profile.key_averages() if event.key.startswith("aten::"))

    # More than four chunks in all three: from five uses on a matrix is laid out anew, once.
    short, middle, long = nodes(24), nodes(36), nodes(48)
    assert long - middle == pytest.approx(middle - short, rel=0.05)


def test_detach_every_cuts_the_gradient_between_stretches():
    for every, reach in ((None, 0), (1, 8), (2, 8), (3, 0)):
        core = build(details=Variant(detach_every=every))
        inputs = torch.randn(1, 12, 5, dtype=torch.float64, requires_grad=True)
        outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 12, dtype=torch.bool))
        (grad,) = torch.autograd.grad(outputs[0, 11, 0], inputs)
        assert grad[0].abs().sum(-1).gt(0).tolist() == [step >= reach for step in range(12)]


def test_dropout_changes_training_only():
    core = build(dropout=0.3)
    inputs = torch.randn(1, 12, 5, dtype=torch.float64)
    train = [core.encode(inputs)[0] for _ in range(2)]
    core.eval()
    still = [core.encode(inputs)[0] for _ in range(2)]
    assert not torch.equal(*train)
    assert torch.equal(*still)


def test_the_paper_has_no_norm_after_the_last_layer_and_a_choice_can_be_changed():
    core = build(details=Variant.paper(detach_every=2))
    assert isinstance(core.final_norm, torch.nn.Identity)
    assert core.config.details == Variant(final_norm=False, detach_every=2)
    assert Variant.released(final_norm=True).initial_slots == "sinusoid_every_chunk"


def test_second_gradients_and_changed_weights_are_errors_not_wrong_numbers():
    core = build()
    inputs = torch.randn(1, 20, 5, dtype=torch.float64, requires_grad=True)
    outputs, _ = core.encode(inputs)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(torch.autograd.grad(outputs.sum(), inputs, create_graph=True)[0].square().sum(), inputs)
    outputs, _ = core.encode(inputs)
    with torch.no_grad():
        core.levels[0].write.attention.out.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_checkpoints_that_hold_a_shared_norm_under_each_of_its_names_still_load():
    core, other = build(), build()
    weights = dict(core.state_dict())
    for name, tensor in core.state_dict().items():  # as version 0.1.0 wrote them
        for former in ("norm_keys", "norm_values"):
            weights.setdefault(name.replace(".norm.", f".{former}."), tensor)
    assert len(weights) > len(core.state_dict())
    other.load_state_dict(weights)
    assert all(torch.equal(a, b) for a, b in zip(core.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stream_gives_the_numbers_of_the_whole_sequence(variant):
    core = build(**VARIANTS[variant]).eval()
    inputs = torch.randn(3, 40, 5, dtype=torch.float64)
    inputs[1, 7] = torch.nan
    is_first = random_resets(3, 40, seed=2)
    is_first[:, :13] = False  # rows in step, then out of step
    with torch.no_grad():
        want, end = core(inputs, core.initial_state(3), is_first)
    stream = core.stream(3)
    size, parts = stream.nbytes, []
    for step in range(40):
        parts.append(stream.step(inputs[:, step], is_first[:, step] if is_first[:, step].any() else None))
        if step % 7 == 3:
            stream = stream.fork()
    torch.testing.assert_close(torch.stack(parts, 1), want, equal_nan=True)
    for got, leaf in zip(leaves(stream.state), leaves(end), strict=True):
        torch.testing.assert_close(got, leaf)
    assert stream.nbytes == size
    stream.reset([1])
    assert stream.state.position[1] == 0
    torch.testing.assert_close(stream.state.slots[1], core.initial_state(1).slots[0])


def test_taps_hear_every_attention_and_change_nothing():
    core = build(causal=False, num_layers=3, self_per_cross=1)
    inputs, padding = torch.randn(2, 20, 5, dtype=torch.float64), torch.arange(20).expand(2, -1) >= 17
    quiet = core.encode(inputs, padding)
    heard = {}
    with listen(core, lambda name, weights: heard.setdefault(name, weights)) as names:
        loud = core.encode(inputs, padding)
    assert set(heard) == set(names)
    assert len(names) == 3 + 3 + 1
    assert heard["levels.0.write.attention.tap"].shape == (2, 2, 3, 4)  # b h N K
    torch.testing.assert_close(loud[0], quiet[0])
    torch.testing.assert_close(loud[1].slots, quiet[1].slots)
    stream, causal = build().stream(2), []
    with listen(stream.core, lambda name, weights: causal.append(weights.shape)):
        stream.step(inputs[:, 0])
        stream.step(inputs[:, 1])
    assert causal[-1] == (2, 2, 1, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 0}, "head_dim=0: give a positive"),
        ({"attention_dropout": -0.1}, "attention_dropout=-0.1: give a probability"),
        ({"norm_eps": 0.0}, "norm_eps=0.0: give a small positive"),
        ({"detach_every": 0}, "detach_every=0: give a positive"),
        ({"empty_chunk": "add_slots"}, "empty_chunk='add_slots': only initial_slots"),
    ],
)
def test_bad_variants_name_field_value_and_remedy(changes, message):
    with pytest.raises(ValueError, match=message):
        Variant(**changes)


@pytest.mark.parametrize("variant", ["default", "crosses", "per-layer", "no-past"])
def test_flops_of_a_step_are_what_a_chunk_of_steps_really_multiplies(variant):
    core = build(**VARIANTS[variant])
    stream = core.stream(1)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        for _ in range(core.config.chunk_len):
            stream.step(torch.randn(1, 5, dtype=torch.float64))
    total, k = counter.get_total_flops(), core.config.chunk_len
    assert 0 <= core.flops_per_step() * k - total < k


@pytest.mark.long
def test_compilers_that_keep_strides_give_the_same_numbers():
    core = TemporalLatentBottleneckConfig(dim=8, num_heads=2, chunk_len=2, num_slots=3).build(8).double()
    inputs, is_first = torch.randn(2, 4, 8).double(), torch.rand(2, 4) < 0.4
    compiled = torch.compile(core, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found = compiled(inputs, core.initial_state(2), is_first)
        wanted = core(inputs, core.initial_state(2), is_first)
    torch.testing.assert_close((found[0], *found[1]), (wanted[0], *wanted[1]))
