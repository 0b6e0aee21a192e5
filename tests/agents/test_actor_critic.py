from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.policies import policy_for
from recollect.agents.registry import REGISTRY
from recollect.config import from_json, to_json
from recollect.cores import CORES
from recollect.cores.recurrent import GRUConfig
from recollect.state import detach, leaves
from tiers import first, only

TINY = {
    "dim": 16, "num_layers": 1, "num_heads": 2, "hidden_dim": 24, "memory_len": 6, "chunk_len": 3, "num_slots": 3,
    "num_tokens": 4, "num_reads": 2, "top_k": 2, "self_per_cross": 1,
}  # fmt: skip
MOVES = spaces.Discrete(4)
PLACE = spaces.Box(-1, 1, (3,))
SCENE = spaces.Dict({"image": spaces.Box(0, 255, (20, 20, 3), np.uint8), "language": spaces.MultiDiscrete([5, 5])})


def tiny_core(key):
    cls = CORES[key]
    return cls(**{name: value for name, value in TINY.items() if name in cls.__dataclass_fields__})


def tiny_agent(key="gru", observation_space=PLACE, action_space=MOVES, seed=0, **fields):
    torch.manual_seed(seed)
    fields = {"width": 12, "encoders": EncoderConfig(hidden=(8,), sentence_dim=8), "policy_gain": 1.0} | fields
    return ActorCriticConfig(**fields).build(tiny_core(key), observation_space, action_space).double().eval()


def sample(space, b, t):
    if isinstance(space, spaces.Dict):
        return {key: sample(child, b, t) for key, child in space.spaces.items()}
    tensor = torch.from_numpy(np.stack([space.sample() for _ in range(b * t)])).unflatten(0, (b, t))
    return tensor.double() if tensor.is_floating_point() else tensor


def tiny_inputs(observation_space=PLACE, action_space=MOVES, b=3, t=11, seed=0):
    observation_space.seed(seed)
    action_space.seed(seed)
    is_first = torch.rand(b, t, generator=torch.Generator().manual_seed(seed)) < 0.2
    is_first[:, 0] = True
    reward, said = (torch.randn(b, t, *width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
                    for width in ((), (policy_for(action_space).num_parameters,)))  # fmt: skip
    return ActorInputs(sample(observation_space, b, t), sample(action_space, b, t), reward, said), is_first


def at(inputs, t):
    """One step of the inputs; a slice keeps the time axis."""
    seen = inputs.observation
    seen = {key: leaf[:, t] for key, leaf in seen.items()} if isinstance(seen, dict) else seen[:, t]
    return ActorInputs(seen, inputs.action[:, t], inputs.reward[:, t], inputs.policy[:, t])


KINDS = ("lstm", "hcam", "ttm", "mott", "spatio-temporal")
"""Cores that read vectors, tokens or maps, with and without output feedback."""


@pytest.mark.parametrize("key", CORES)
def test_every_core_acts_at_every_step_and_learns(key):
    agent = tiny_agent(key)
    inputs, is_first = tiny_inputs()
    out, state = agent(inputs, agent.initial_state(3), is_first)
    assert out.policy.shape == (3, 11, 4)
    assert out.value.shape == (3, 11)
    assert out.features.shape == (3, 11, agent.core.output_shape[-1])
    (agent.distribution(out.policy).log_prob(inputs.action).sum() + out.value.sum()).backward()
    assert all(parameter.grad is not None for name, parameter in agent.named_parameters() if "core" not in name)
    assert [leaf.shape for leaf in leaves(state)] == [leaf.shape for leaf in leaves(agent.initial_state(3))]


@pytest.mark.parametrize("key", only(KINDS, CORES))
@pytest.mark.parametrize("skip", first(1, [True, False]))
def test_stream_and_split_calls_equal_the_whole_sequence(key, skip):
    agent = tiny_agent(key, clip_reward=1.0, head_dim=7, skip=skip, past_dim=5 if skip else None)
    inputs, is_first = tiny_inputs()
    with torch.no_grad():
        expected, _ = agent(inputs, agent.initial_state(3), is_first)
        state, halves = agent.initial_state(3), []
        for part in (slice(0, 4), slice(4, 11)):
            out, state = agent(at(inputs, part), state, is_first[:, part])
            halves.append(out)
    stream = agent.stream(3)
    size = stream.nbytes
    steps = [stream.step(at(inputs, i), is_first[:, i]) for i in range(11)]
    for name in expected._fields:
        whole = getattr(expected, name)
        torch.testing.assert_close(torch.stack([getattr(step, name) for step in steps], 1), whole)
        torch.testing.assert_close(torch.cat([getattr(half, name) for half in halves], 1), whole)
    assert stream.nbytes == size
    assert not steps[0].value.requires_grad


@pytest.mark.parametrize("key", ["lstm", "ttm"])
def test_skip_gives_the_heads_the_cores_input(key):
    inputs, is_first = tiny_inputs()
    for skip in (False, True):
        agent = tiny_agent(key, skip=skip)
        agent.core.requires_grad_(False)
        for norm in (agent.norm.weight, agent.norm.bias):
            norm.data.zero_()  # nothing comes through the memory
        out, _ = agent(inputs, agent.initial_state(3), is_first)
        assert out.features.shape[-1] == agent.core.output_shape[-1]
        assert (out.policy.std(1).min() > 1e-3) == skip
        assert (out.value.std(1).min() > 1e-3) == skip


def test_stream_of_a_scene_with_words_and_continuous_actions():
    actions = spaces.Box(-2, 2, (2,))
    agent = tiny_agent("lstm", SCENE, actions)
    inputs, is_first = tiny_inputs(SCENE, actions, t=5)
    expected, _ = agent(inputs, agent.initial_state(3), is_first)
    stream = agent.stream(3)
    got = torch.stack([stream.step(at(inputs, i), is_first[:, i]).policy for i in range(5)], 1)
    torch.testing.assert_close(got, expected.policy)
    drawn = agent.distribution(got).sample()
    assert drawn.shape == (3, 5, 2)
    assert drawn.abs().max() <= 2


def test_stream_forks_resets_and_continues_from_a_state():
    agent = tiny_agent()
    inputs, is_first = tiny_inputs()
    stream, never = agent.stream(3), torch.zeros(3, dtype=torch.bool)
    for i in range(4):
        stream.step(at(inputs, i), is_first[:, i])
    twin, saved = stream.fork(), stream.state
    expected = stream.step(at(inputs, 4), never).policy
    torch.testing.assert_close(twin.step(at(inputs, 4), never).policy, expected)
    twin.load_state(saved)
    torch.testing.assert_close(twin.step(at(inputs, 4), never).policy, expected)
    twin.reset()
    torch.testing.assert_close(
        twin.step(at(inputs, 0), never).policy, agent.stream(3).step(at(inputs, 0), never).policy
    )


@pytest.mark.parametrize(
    ("observations", "actions"), [(None, None), (SCENE, spaces.Box(-2, 2, (2,)))], ids=["image", "scene"]
)
def test_a_stream_takes_numpy_and_gives_numpy(observations, actions):
    args = () if observations is None else (observations, actions)
    agent = tiny_agent("lstm", *args)
    inputs, is_first = tiny_inputs(*args, t=4)
    wanted, given = agent.stream(3), agent.stream(3)
    for i in range(4):
        here = at(inputs, i)
        seen = here.observation
        seen = {k: v.numpy() for k, v in seen.items()} if isinstance(seen, dict) else seen.numpy()
        arrays = ActorInputs(seen, here.action.tolist(), here.reward.double().numpy())
        want, got = wanted.step(here, is_first[:, i]), given.step(arrays, is_first[:, i].tolist())
        for expected, found in zip(want, got, strict=True):
            assert type(found) is np.ndarray
            np.testing.assert_array_equal(found, expected.numpy())
    assert type(given.step(arrays).policy) is np.ndarray
    with pytest.raises(ValueError, match=r"inputs=\w+: give ActorInputs\(observation, action, reward\)"):
        given.step(seen)
    with torch.no_grad():
        next(agent.core.parameters()).add_(1)
    with pytest.raises(ValueError, match="make a new stream"):
        given.step(arrays, False)


@pytest.mark.parametrize(
    "actions", [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))], ids=str
)
@pytest.mark.parametrize("past_dim", [None, 6])
def test_previous_action_and_reward_count_except_at_the_first_step(actions, past_dim):
    agent = tiny_agent(action_space=actions, past_dim=past_dim)
    inputs, is_first = tiny_inputs(action_space=actions)
    out, _ = agent(inputs, agent.initial_state(3), is_first)
    garbage = torch.nan if inputs.action.is_floating_point() else 99
    axes = (..., *[None] * len(actions.shape))
    action = torch.where(is_first[axes], garbage, inputs.action)
    dirty = ActorInputs(inputs.observation, action, torch.where(is_first, torch.nan, inputs.reward))
    got, _ = agent(dirty, agent.initial_state(3), is_first)
    torch.testing.assert_close(got, out)
    for change in ({"action": 1 - inputs.action}, {"reward": inputs.reward + 1}):
        other, _ = agent(inputs._replace(**change), agent.initial_state(3), is_first)
        differs = (other.policy != out.policy).any(-1)
        assert torch.equal(differs[:, :2], torch.stack((~is_first[:, 0], ~is_first[:, 1]), 1))


@pytest.mark.parametrize(
    "actions", [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))], ids=str
)
def test_the_previous_policy_counts_in_the_place_of_the_action_except_at_the_first_step(actions):
    agent = tiny_agent(action_space=actions, previous_action="logits")
    inputs, is_first = tiny_inputs(action_space=actions)
    assert agent.join.in_features == 8 + agent.policy.num_parameters + 1
    out, _ = agent(inputs, agent.initial_state(3), is_first)
    never_read = torch.full_like(inputs.action, 77)
    dirty = inputs._replace(policy=torch.where(is_first[..., None], torch.nan, inputs.policy), action=never_read)
    torch.testing.assert_close(agent(dirty, agent.initial_state(3), is_first)[0], out)
    other, _ = agent(inputs._replace(policy=inputs.policy + 1), agent.initial_state(3), is_first)
    differs = (other.policy != out.policy).any(-1)
    assert torch.equal(differs[:, :2], torch.stack((~is_first[:, 0], ~is_first[:, 1]), 1))
    live, steps = agent.stream(3), []
    for t in range(11):
        arrays = (part if part is None else part.numpy() for part in at(inputs, t))
        steps.append(torch.from_numpy(live.step(ActorInputs(*arrays), is_first[:, t]).policy))
    torch.testing.assert_close(torch.stack(steps, 1), out.policy)


def test_a_previous_policy_that_is_missing_or_masked_is_named():
    agent = tiny_agent(previous_action="logits")
    inputs, is_first = tiny_inputs()
    with pytest.raises(
        ValueError, match=r"policy: missing; this agent takes \[3, 11, 4\]: give the policy of its output"
    ):
        agent(inputs._replace(policy=None), agent.initial_state(3), is_first)
    with pytest.raises(ValueError, match=r"policy: of shape \[3, 11, 2\]; this agent takes \[3, 11, 4\]"):
        agent(inputs._replace(policy=inputs.policy[..., :2]), agent.initial_state(3), is_first)
    masked = spaces.Dict({"place": PLACE, "action_mask": spaces.MultiBinary(4)})
    with pytest.raises(ValueError, match=r"previous_action='logits': .* use previous_action='action'"):
        tiny_agent(observation_space=masked, previous_action="logits")
    with pytest.raises(ValueError, match="previous_action=True: choose one of 'none', 'action', 'logits'"):
        ActorCriticConfig(previous_action=True)


def test_old_files_with_a_boolean_previous_action_load():
    for old, new in ((True, "action"), (False, "none")):
        data = to_json(ActorCriticConfig(), REGISTRY) | {"previous_action": old}
        assert from_json(data, ActorCriticConfig, REGISTRY).previous_action == new


@dataclass(frozen=True, kw_only=True)
class EchoConfig(GRUConfig):
    """A GRU that is told its own last output."""

    @property
    def output_feedback_dim(self):
        return self.dim


def test_a_core_with_output_feedback_reads_the_actors_previous_output():
    config = ActorCriticConfig(width=None, norm=False, encoders=EncoderConfig(hidden=(8,)))
    agent = config.build(EchoConfig(dim=5, num_layers=1), PLACE, MOVES).double().eval()
    assert agent.feature_dim == 5 and agent.core.input_shape == (8 + 4 + 1 + 5,)
    inputs, is_first = tiny_inputs()
    live, features, seen = agent.stream(3), torch.full((3, 5), torch.nan, dtype=torch.float64), []
    for t in range(11):
        seen.append(features)
        features = live.step(at(inputs, t)._replace(features=features), is_first[:, t]).features
    told = inputs._replace(features=torch.stack(seen, 1))
    out, _ = agent(told, agent.initial_state(3), is_first)
    torch.testing.assert_close(out.features[:, -1], features)
    with pytest.raises(ValueError, match=r"features: missing; this agent takes \[3, 11, 5\]"):
        agent(inputs, agent.initial_state(3), is_first)


def test_previous_action_and_reward_can_be_left_out_and_clipped():
    inputs, is_first = tiny_inputs()
    blind = tiny_agent(previous_action="none", previous_reward=False)
    changed = inputs._replace(action=inputs.action.flip(0), reward=inputs.reward + 5)
    torch.testing.assert_close(*(blind(x, blind.initial_state(3), is_first)[0] for x in (inputs, changed)))
    clipped = tiny_agent(clip_reward=1.0)
    tenfold = [inputs._replace(reward=factor * inputs.reward.sign()) for factor in (1, 10)]
    torch.testing.assert_close(*(clipped(x, clipped.initial_state(3), is_first)[0] for x in tenfold))


@pytest.mark.parametrize("key", ["lstm", "ttm"])
def test_without_a_width_the_core_reads_the_encoders(key):
    agent = tiny_agent(key, width=None)
    assert agent.core.input_shape[-1] == 8 + 4 + 1
    inputs, is_first = tiny_inputs()
    out, _ = agent(inputs, agent.initial_state(3), is_first)
    assert out.policy.shape == (3, 11, 4)


@pytest.mark.parametrize("space", [spaces.Discrete(5), spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3])])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_choices_are_encoded_in_the_dtype_of_the_weights(space, dtype):
    agent = tiny_agent(observation_space=space, past_dim=3, previous_reward=False).to(dtype)
    inputs, is_first = tiny_inputs(space)
    output, state = agent(inputs, agent.initial_state(3), is_first)
    assert {leaf.dtype for leaf in leaves((output.features, state))} == {dtype}


def test_an_embedded_past_is_as_large_as_an_embedded_symbol():
    """Of a grid of symbols, each of 64 numbers, and one action: how far each of them moves what the core reads."""
    grid, moved = spaces.Box(0, 9, (1, 3), np.int64), {}
    for past_dim in (None, 64):
        agent = tiny_agent(
            observation_space=grid, width=64, past_dim=past_dim, encoders=EncoderConfig(hidden=(), tile_dim=64)
        )
        inputs, _ = tiny_inputs(grid, b=64, t=1)
        never, other = torch.zeros(64, 1, dtype=torch.bool), inputs.observation.clone()
        other[..., 0] = 1 + other[..., 0] % 9
        plain = inputs._replace(action=torch.zeros_like(inputs.action))
        acted, elsewhere = plain._replace(action=torch.ones_like(plain.action)), plain._replace(observation=other)
        by_action, by_symbol = (
            (agent.encode(changed, never) - agent.encode(plain, never)).norm() for changed in (acted, elsewhere)
        )
        moved[past_dim] = (by_action / by_symbol).item()
    assert moved[None] < 0.3 and 0.7 < moved[64] < 1.4, moved


def test_an_unread_past_cannot_be_embedded():
    with pytest.raises(ValueError, match=r"past_dim=8: this agent reads neither .* use None"):
        tiny_agent(previous_action="none", previous_reward=False, past_dim=8)


def test_the_first_policy_is_nearly_uniform():
    agent = ActorCriticConfig().build(tiny_core("lstm"), PLACE, spaces.Discrete(4))
    inputs, is_first = tiny_inputs()
    inputs = ActorInputs(inputs.observation.float(), inputs.action, inputs.reward.float())
    out, _ = agent(inputs, agent.initial_state(3), is_first)
    probabilities = agent.distribution(out.policy).log_prob(inputs.action).exp()
    assert ((probabilities - 0.25).abs() < 0.02).all()
    assert (out.policy != 0).all()


def test_reconstruction_reaches_the_memory():
    agent = tiny_agent("gru", SCENE, reconstruct=True)
    inputs, is_first = tiny_inputs(SCENE, t=4)
    out, _ = agent(inputs, agent.initial_state(3), is_first)
    logits = agent.decoders(out.features)
    assert {name: tuple(tensor.shape) for name, tensor in logits.items()} == {
        "image": (3, 4, 20, 20, 3),
        "language": (3, 4, 2, 5),
    }
    losses = agent.reconstruction_losses(out.features, inputs.observation, valid=~is_first, reduction="mean")
    sum(losses.values()).backward()
    assert all(parameter.grad.any() for parameter in agent.core.parameters() if parameter.ndim > 1)
    plain = tiny_agent("gru", SCENE)
    assert plain.decoders is None
    assert plain.reconstruction_losses(out.features, inputs.observation) == {}


def test_bfloat16_autocast_gives_float32_policies_and_values():
    agent = tiny_agent("lstm").float()
    inputs, is_first = tiny_inputs()
    inputs = ActorInputs(inputs.observation.float(), inputs.action, inputs.reward.float())
    wide, _ = agent(inputs, agent.initial_state(3), is_first)
    with torch.autocast("cpu", torch.bfloat16):
        narrow, state = agent(inputs, agent.initial_state(3), is_first)
    assert narrow.policy.dtype == narrow.value.dtype == torch.float32
    torch.testing.assert_close(narrow.policy, wide.policy, atol=0.1, rtol=0.1)
    assert detach(state) is not state


@pytest.mark.parametrize("key", only(KINDS, CORES))
def test_save_and_load(key, tmp_path):
    space = SCENE if key == "hcam" else PLACE
    agent = tiny_agent(key, space, spaces.Box(-2, 2, (2,)), reconstruct=space is SCENE).float()
    agent.save(tmp_path / "agent")
    loaded = ActorCritic.load(tmp_path / "agent")
    assert loaded.config == agent.config
    assert loaded.observation_space == agent.observation_space
    inputs, is_first = tiny_inputs(space, spaces.Box(-2, 2, (2,)))
    seen = inputs.observation
    inputs = ActorInputs(seen.float() if torch.is_tensor(seen) else seen, inputs.action.float(), inputs.reward.float())
    with torch.no_grad():
        one, _ = agent(inputs, agent.initial_state(3), is_first)
        two, _ = loaded(inputs, loaded.initial_state(3), is_first)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": torch.zeros(3, 11, 4)}, r"observation has shape \[3, 11, 4\]; this agent takes \[b, t, 3\]"),
        ({"action": torch.zeros(3, dtype=torch.long)}, r"action has shape \[3\]; this agent takes \[3, 11\]"),
        ({"reward": torch.zeros(3, 10)}, r"reward has shape \[3, 10\]; is_first has \[3, 11\]"),
    ],
)
def test_bad_inputs_are_named(change, message):
    agent = tiny_agent()
    inputs, is_first = tiny_inputs()
    with pytest.raises(ValueError, match=message):
        agent(inputs._replace(**change), agent.initial_state(3), is_first)


@pytest.mark.parametrize(
    ("space", "right", "wrong"),
    [
        (spaces.Discrete(3, start=5), 7, [4, 8, 0, 6.5]),
        (spaces.MultiDiscrete([2, 3], start=[1, 0]), [2, 2], [[0, 0], [1, 3], [-1, -1]]),
        (spaces.MultiBinary(2), [0, 1], [[0, 2], [-1, 1]]),
    ],
    ids=str,
)
def test_a_stream_names_a_previous_action_outside_of_its_space(space, right, wrong):
    agent = tiny_agent(action_space=space)
    stream, twin = agent.stream(2), agent.stream(2)
    seen, reward = torch.randn(2, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    valid = ActorInputs(seen, torch.tensor([right, right]), reward)
    for action in wrong:
        inputs = valid._replace(action=torch.tensor([right, action]))
        with pytest.raises(ValueError, match=r"action=.* in row 1: it is not in .*; give the action that was taken"):
            stream.step(inputs, torch.tensor([True, False]))
        with pytest.raises(ValueError, match="in row 0: it is not in"):
            stream.step_rows(ActorInputs(*(part[1:] for part in inputs[:3])), [0], False)
        stream.step(inputs, torch.tensor([False, True]))  # anything where an episode begins
        twin.step(valid, torch.tensor([False, True]))
    torch.testing.assert_close(stream.state, twin.state)
    silent = tiny_agent(action_space=space, previous_action="none").stream(2)
    silent.step(valid._replace(action=torch.tensor([right, wrong[0]])), False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width=0"),
        ({"head_dim": -1}, "head_dim=-1"),
        ({"clip_reward": 0.0}, "clip_reward=0.0"),
        ({"past_dim": 0}, "past_dim=0"),
        ({"policy_gain": 0.0}, "policy_gain=0.0"),
    ],
)
def test_bad_config_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        ActorCriticConfig(**fields)


@pytest.mark.parametrize("key", ["gru", "ttm"])
def test_the_cores_input_is_normalised(key):
    agent = tiny_agent(key)
    inputs, is_first = tiny_inputs()
    read = agent.encode(inputs, is_first)
    assert read.shape[2:] == agent.core.input_shape
    torch.testing.assert_close(read.mean(-1), torch.zeros_like(read.mean(-1)), atol=1e-6, rtol=0)
    plain = tiny_agent(key, norm_inputs=False).encode(inputs, is_first)
    assert plain.mean(-1).abs().max() > 1e-3
    torch.testing.assert_close(torch.nn.functional.layer_norm(plain, plain.shape[-1:]), read)


def test_without_a_width_encoders_and_core_are_connected_directly():
    agent = tiny_agent("gru", width=None)
    assert isinstance(agent.norm_inputs, torch.nn.Identity)


MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(4), "place": PLACE})


def test_actions_that_are_not_allowed_are_never_taken():
    agent = tiny_agent("gru", MASKED)
    inputs, is_first = tiny_inputs(MASKED, b=3, t=11)
    mask = inputs.observation["action_mask"]
    mask[0, 0], mask[0, 1] = torch.tensor([0, 0, 1, 0]), 0  # one action, and none: a row without a choice is as it is
    out, _ = agent(inputs, agent.initial_state(3), is_first)
    allowed = (mask != 0) | (mask == 0).all(-1, keepdim=True)
    policy = agent.distribution(out.policy)
    for actions in (policy.mode(), *(policy.sample() for _ in range(50))):
        assert allowed.gather(-1, actions[..., None]).all()
    probabilities = policy.log_probs.exp()
    assert (probabilities[~allowed] == 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 11, dtype=torch.float64))
    assert policy.entropy()[0, 0] == 0 and policy.log_prob(policy.mode())[0, 0] == 0
    (policy.log_prob(policy.mode()).sum() + policy.entropy().sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in agent.policy_head.parameters())
    stream = agent.stream(3)
    got = torch.stack([stream.step(at(inputs, i), is_first[:, i]).policy for i in range(11)], 1)
    torch.testing.assert_close(got, out.policy)


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (spaces.Dict({"action_mask": spaces.MultiBinary(3)}), MOVES),
        (MASKED, spaces.Box(-1, 1, (4,))),
        (spaces.Dict({"action_mask": spaces.Discrete(4)}), MOVES),
    ],
)
def test_a_mask_must_fit_the_actions(observations, actions):
    with pytest.raises(ValueError, match="a mask needs Discrete actions and one number for each"):
        tiny_agent("gru", observations, actions)


@pytest.mark.parametrize(
    "space",
    [PLACE, MOVES, spaces.MultiDiscrete(np.full((4, 4), 3)), spaces.MultiDiscrete([3, 4]), SCENE],
    ids=["numbers", "choice", "tiles", "choices", "scene"],
)
def test_a_step_of_no_row_moves_nothing(space):
    agent = tiny_agent("gru", space)
    inputs, _ = tiny_inputs(space, b=1, t=1)
    step = at(inputs, 0)
    seen = step.observation
    none = {key: leaf[:0] for key, leaf in seen.items()} if isinstance(seen, dict) else seen[:0]
    stream = agent.stream(2)
    before = stream.state
    output = stream.step_rows(ActorInputs(none, step.action[:0], step.reward[:0]), [])
    assert output.policy.shape == (0, 4) and output.value.shape == (0,)
    assert all(torch.equal(one, other) for one, other in zip(leaves(stream.state), leaves(before), strict=True))


def test_flags_and_parts_of_other_rows_are_refused():
    agent = tiny_agent("gru", spaces.Dict({"one": PLACE, "two": PLACE}))
    inputs, is_first = tiny_inputs(agent.observation_space, b=2, t=3)
    state, seen = agent.initial_state(2), inputs.observation
    with pytest.raises(ValueError, match=r"is_first has dtype torch.int64: give bools"):
        agent(inputs, state, is_first.long())
    with pytest.raises(ValueError, match=r"observations are of \[2, 4\] steps; is_first has \[2, 3\]"):
        agent(
            inputs._replace(observation={name: leaf[:, [0, 1, 2, 2]] for name, leaf in seen.items()}), state, is_first
        )
    # As many steps in all: they would be mixed.
    with pytest.raises(ValueError, match=r"two has shape \[3, 2, 3\]; the parts before it begin with \[2, 3\]"):
        agent(inputs._replace(observation=seen | {"two": seen["two"].transpose(0, 1)}), state, is_first)
    with pytest.raises(ValueError, match="two is a list; this agent takes a tensor"):
        agent(inputs._replace(observation=seen | {"two": [0.0]}), state, is_first)


def test_a_mask_in_half_precision():
    agent = tiny_agent("gru", MASKED).half()
    inputs, _ = tiny_inputs(MASKED, b=1, t=1)
    step = at(inputs, 0)
    seen = {"action_mask": torch.tensor([[0, 1, 0, 0]]), "place": step.observation["place"].half()}
    output = agent.stream(1).step(ActorInputs(seen, step.action, step.reward.half()), True)
    assert agent.distribution(output.policy).mode().tolist() == [1]


def test_a_loaded_agent_acts_in_its_world_whatever_the_dtype_of_the_actions(tmp_path):
    actions = spaces.MultiDiscrete([3, 2], dtype=np.int32)
    tiny_agent("gru", PLACE, actions).save(tmp_path)
    loaded = ActorCritic.load(tmp_path)
    loaded.require_actions(actions, "a world")
    with pytest.raises(ValueError, match="action_space="):
        loaded.require_actions(spaces.MultiDiscrete([3, 3], dtype=np.int32), "a world")
