"""Decision Transformer: the order of its tokens, and play that equals reading the whole context again."""

import gymnasium
import numpy as np
import pytest
import torch

from recollect.agents.config import DecisionTransformerConfig
from recollect.agents.contract import ActorInputs
from recollect.cores import CORES
from recollect.state import leaves
from tiers import first

CORE_CONFIGS = {
    "causal-transformer": CORES["causal-transformer"](
        dim=16, num_layers=2, num_heads=2, memory_len=29, positions="none"
    ),
    "tlb": CORES["tlb"](
        dim=16, num_layers=2, num_heads=2, chunk_len=6, num_slots=2, self_per_cross=1, positions="none"
    ),
    "gru": CORES["gru"](dim=16, num_layers=1),
}
SEEN = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gymnasium.spaces.Discrete(4)


def agent_for(key, stride=1, timestep="first"):
    torch.manual_seed(0)
    config = DecisionTransformerConfig(
        width=16, context=10, stride=stride, timestep=timestep, target_return=5.0, return_scale=2.0, max_timestep=9
    )
    agent = config.build(CORE_CONFIGS[key], SEEN, ACTIONS).eval()
    torch.nn.init.normal_(agent.positions.weight)
    torch.nn.init.normal_(agent.timesteps.weight)
    return agent


@pytest.mark.parametrize("timestep", ["first", "each", "none"])
def test_tokens_are_interleaved_as_in_a_literal_loop(timestep):
    agent = agent_for("causal-transformer", timestep=timestep)
    observation, action, to_go = torch.randn(2, 4, 3), torch.randint(0, 4, (2, 4)), torch.randn(2, 4)
    begins = torch.tensor([0, 7])
    found = agent(observation, action, to_go, begins)
    for row in range(2):
        tokens = []
        for t in range(4):
            for kind in range(3):
                if kind == 0:
                    token = torch.tanh(agent.embed_return.weight[:, 0] * to_go[row, t] / 2 + agent.embed_return.bias)
                elif kind == 1:
                    token = torch.tanh(agent.embed_observation(agent.encoder(observation[row, t][None], 1)))[0]
                else:
                    token = torch.tanh(agent.embed_action.weight[:, action[row, t]])
                token = token + agent.positions.weight[3 * t + kind]
                step = int(begins[row]) + (t if timestep == "each" else 0)
                if timestep != "none":
                    token = token + agent.timesteps.weight[min(step, 9)]
                tokens.append(token)
        first = torch.zeros(1, 12, dtype=torch.bool)
        first[:, 0] = True
        outputs, _ = agent.core(torch.stack(tokens)[None], agent.core.initial_state(1), first)
        for t in range(4):
            torch.testing.assert_close(found[row, t], agent.head.weight @ outputs[0, 3 * t + 1])


def test_no_policy_sees_its_own_action_or_what_comes_later():
    agent = agent_for("tlb")
    observation, action, to_go = torch.randn(1, 6, 3), torch.randint(0, 4, (1, 6)), torch.randn(1, 6)
    before = agent(observation, action, to_go, torch.zeros(1, dtype=torch.long))
    action[:, 3], observation[:, 4:], to_go[:, 4:] = (action[:, 3] + 1) % 4, 9.0, 9.0
    after = agent(observation, action, to_go, torch.zeros(1, dtype=torch.long))
    assert torch.equal(before[:, :4], after[:, :4]) and not torch.allclose(before[:, 4], after[:, 4])


@pytest.mark.parametrize("key", CORE_CONFIGS)
@pytest.mark.parametrize(("stride", "timestep"), first(1, [(4, "first"), (1, "first"), (5, "each"), (9, "none")]))
@pytest.mark.parametrize("b", first(1, [3, 1]))
def test_play_equals_reading_the_whole_context_again(key, stride, timestep, b):
    agent = agent_for(key, stride, timestep)
    steps = 26
    observation, action = torch.randn(b, steps, 3), torch.randint(0, 4, (b, steps))
    reward, first = torch.randn(b, steps), torch.zeros(b, steps, dtype=torch.bool)
    first[:, 0] = first[1 % b, 7] = first[2 % b, 21] = True  # some rows alone; of one row, all of them
    stream, said, values = agent.stream(b), [], []
    for t in range(steps):
        before = action[:, t - 1] if t else torch.full((b,), -1)
        output = stream.step(ActorInputs(observation[:, t], before, reward[:, t]), first[:, t])
        said.append(output.policy)
        values.append(output.value)
        if t == 15:  # a state is enough to go on
            kept, stream = stream.state, agent.stream(b)
            stream.load_state(kept)
    for row in range(b):
        wished = []
        begin = low = 0
        for t in range(steps):
            if first[row, t]:
                begin = low = t
            wished.append(5.0 if first[row, t] else wished[-1] - float(reward[row, t]))
            low += stride if t - low == 10 else 0
            context = slice(low, t + 1)
            with torch.no_grad():
                again = agent(
                    observation[None, row, context],
                    action[None, row, context],
                    torch.tensor(wished[context])[None],
                    torch.tensor([low - begin]),
                )[0, -1]
            torch.testing.assert_close(said[t][row], again, atol=1e-5, rtol=1e-4)
            assert float(values[t][row]) == pytest.approx(wished[-1], abs=1e-4)


def test_play_names_a_previous_action_outside_of_its_space():
    stream, twin = agent_for("tlb").stream(2), agent_for("tlb").stream(2)
    inputs = ActorInputs(torch.randn(2, 3), torch.tensor([9, 9]), torch.zeros(2))
    for one in (stream, twin):
        one.step(inputs)  # a context begins: there is no previous action
    with pytest.raises(ValueError, match=r"action=9 in row 1: it is not in Discrete\(4\)"):
        stream.step(inputs, [True, False])
    valid = inputs._replace(action=torch.tensor([9, 3]))
    torch.testing.assert_close(stream.step(valid, [True, False]).policy, twin.step(valid, [True, False]).policy)


@pytest.mark.parametrize("key", CORE_CONFIGS)
def test_play_continues_outside_of_inference_mode(key):
    agent = agent_for(key, 4, "first")
    inputs = ActorInputs(torch.randn(2, 3), torch.zeros(2, dtype=torch.long), torch.zeros(2))
    with torch.inference_mode():
        prepared = agent.stream(2)
    plain = agent.stream(2)
    for t in range(12):
        first = torch.full((2,), t == 0)
        torch.testing.assert_close(prepared.step(inputs, first).policy, plain.step(inputs, first).policy)
    with torch.inference_mode():
        prepared.step(inputs)
    plain.step(inputs)
    some = ActorInputs(inputs.observation[:1], inputs.action[:1], inputs.reward[:1])
    for stream in (prepared, plain):
        stream.reset([1])
        stream.step_rows(some, [0])
    torch.testing.assert_close(prepared.step(inputs).policy, plain.step(inputs).policy)


def test_masked_actions_are_never_taken():
    torch.manual_seed(0)
    seen = gymnasium.spaces.Dict({"x": SEEN, "action_mask": gymnasium.spaces.MultiBinary(4)})
    agent = DecisionTransformerConfig(width=16, context=10).build(CORE_CONFIGS["gru"], seen, ACTIONS).eval()
    allowed = torch.rand(3, 8, 4) < 0.5
    allowed[..., 2] |= ~allowed.any(-1)
    observation = {"x": torch.randn(3, 8, 3), "action_mask": allowed.to(torch.int8)}
    action, to_go = torch.randint(0, 4, (3, 8)), torch.full((3, 8), 1.0)
    policy = agent(observation, action, to_go, torch.zeros(3, dtype=torch.long))
    likely = agent.distribution(policy).log_probs.exp()
    assert (likely[~allowed] == 0).all() and (likely[allowed] > 0).all() and agent.masks_actions
    stream = agent.stream(3)
    for t in range(8):
        here = {name: part[:, t] for name, part in observation.items()}
        inputs = ActorInputs(here, action[:, max(t - 1, 0)], torch.zeros(3))
        torch.testing.assert_close(stream.step(inputs, torch.full((3,), t == 0)).policy, policy[:, t])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"stride=10: give 1 to 9 steps"):
        DecisionTransformerConfig(context=10, stride=10)
    agent = agent_for("gru")
    with pytest.raises(ValueError, match="context=11: give at most 10 steps"):
        agent(torch.zeros(1, 11, 3), torch.zeros(1, 11, dtype=torch.long), torch.zeros(1, 11), torch.zeros(1).long())
    with pytest.raises(ValueError, match=r"core='TokenTuringMachineConfig': choose a core that reads plain vectors"):
        DecisionTransformerConfig(width=16).build(CORES["ttm"](), SEEN, ACTIONS)


def test_a_step_that_is_refused_leaves_the_memory_as_it_was():
    stream = agent_for("causal-transformer").stream(2)
    good = ActorInputs(torch.randn(2, 3), torch.tensor([1, 2]), torch.ones(2))
    stream.step(good, True)
    stream.step(good)
    before = leaves(stream.state)
    refused = {
        r"observation has shape \[2, 7\]": (good._replace(observation=torch.zeros(2, 7)), False),
        r"observation=1: give 2 rows": (good._replace(observation=torch.zeros(1, 3)), False),
        r"reward has shape \[2, 1\]; this stream takes \[2\]": (good._replace(reward=torch.ones(2, 1)), False),
        r"action has shape \[2, 1\]; this stream takes \[2\]": (good._replace(action=torch.ones(2, 1).long()), False),
        r"action=9 in row 1": (good._replace(action=torch.tensor([0, 9])), False),
        r"reward=nan in row 1: give the finite reward": (good._replace(reward=torch.tensor([1, torch.nan])), False),
        r"reward=inf in row 0": (good._replace(reward=torch.tensor([torch.inf, torch.nan])), [False, True]),
        r"is_first has dtype torch.int64": (good, torch.zeros(2, dtype=torch.long)),
        r"is_first has shape \[3\]": (good, torch.zeros(3, dtype=torch.bool)),
    }
    for line, (inputs, is_first) in refused.items():
        with pytest.raises(ValueError, match=line):
            stream.step(inputs, is_first)
        assert all(torch.equal(one, other) for one, other in zip(before, leaves(stream.state), strict=True)), line
    with pytest.raises(ValueError, match="reward=nan in row 0"):
        stream.step_rows(ActorInputs(torch.randn(1, 3), torch.tensor([1]), torch.tensor([torch.nan])), [1])
    assert all(torch.equal(one, other) for one, other in zip(before, leaves(stream.state), strict=True))


def test_an_episode_begins_whatever_the_reward_before_it():
    stream = agent_for("gru").stream(2)
    output = stream.step(ActorInputs(torch.randn(2, 3), torch.tensor([1, 2]), torch.full((2,), torch.nan)), True)
    assert output.value.tolist() == [5.0, 5.0] and output.policy.isfinite().all()
