"""A core in sb3-contrib's RecurrentPPO, against a literal loop over the core."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("sb3_contrib", exc_type=ImportError)

from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env

from recollect import GRUConfig, HierarchicalChunkMemoryConfig, LSTMConfig
from recollect.adapters.sb3 import CorePolicy
from recollect.state import from_bytes, leaves, map_state, to_bytes

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]
ROWS, STEPS = 3, 24
CORES = {
    "hcam": HierarchicalChunkMemoryConfig(
        dim=16, num_layers=1, num_heads=2, memory_len=4, chunk_len=4, num_chunks=4, top_k=2
    ),
    "gru": GRUConfig(dim=16, num_layers=1),
}


def make_model(core, limit=500, env=None, **policy):
    env = env or make_vec_env(lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit), ROWS, seed=0)
    kwargs = {"core": core, "net_arch": [], **policy}
    return RecurrentPPO(CorePolicy, env, policy_kwargs=kwargs, n_steps=STEPS, batch_size=18, n_epochs=2, seed=0)


@pytest.mark.parametrize("limit", [5, 500])
@pytest.mark.parametrize("key", CORES)
def test_collected_and_trained_on_like_a_loop_over_the_core(key, limit):
    model = make_model(CORES[key], limit)
    _, callback = model._setup_learn(10**6)
    core, policy = model.policy.lstm_actor.packed.core, model.policy
    state = core.initial_state(ROWS)
    for _ in range(2):
        callback.on_rollout_start()
        assert model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=STEPS)
        buffer = model.rollout_buffer
        starts = torch.as_tensor(buffer.episode_starts)
        with torch.no_grad():
            for t in range(STEPS):
                inputs = torch.as_tensor(buffer.observations[t]).float()
                output, state = core(inputs[:, None], state, starts[t].bool()[:, None])
                values = policy.value_net(output[:, 0])[:, 0]
                torch.testing.assert_close(torch.as_tensor(buffer.values[t]), values, atol=1e-5, rtol=1e-5)
        for batch in buffer.get(18):  # any part of a rollout, padded
            with torch.no_grad():
                values, log_prob, _ = policy.evaluate_actions(
                    batch.observations, batch.actions.long().flatten(), batch.lstm_states, batch.episode_starts
                )
            kept = batch.mask > 1e-8
            torch.testing.assert_close(log_prob[kept], batch.old_log_prob[kept], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(values.flatten()[kept], batch.old_values[kept], atol=1e-4, rtol=1e-4)


def test_counters_survive_the_buffer_of_floats():
    memory = make_model(CORES["hcam"]).policy.lstm_actor
    counts = iter([2**24 + 1, 2**53 + 1, 2**31 - 1])
    whole = lambda leaf: not leaf.is_floating_point() and leaf.dtype != torch.bool  # noqa: E731
    state = map_state(
        lambda leaf: leaf.clone().fill_(min(next(counts), torch.iinfo(leaf.dtype).max)) if whole(leaf) else leaf,
        memory.packed.core.initial_state(ROWS),
    )
    assert any(whole(leaf) for leaf in leaves(state))
    content = to_bytes(state)
    content = torch.nn.functional.pad(content, (0, -content.shape[1] % 4)).view(torch.float32).numpy()
    stored = np.zeros((2, *content.shape), dtype=np.float32)
    stored[0] = content
    back = torch.as_tensor(stored[np.array([0])][0]).view(torch.uint8)
    for new, old in zip(leaves(from_bytes(back, state)), leaves(state), strict=True):
        assert torch.equal(new, old)


@pytest.mark.parametrize("critic_core", [False, True])
def test_the_values_train_the_core_of_the_critic_only(critic_core):
    model = make_model(CORES["gru"], critic_core=critic_core)
    model.learn(STEPS * ROWS)
    batch = next(model.rollout_buffer.get(18))
    values, log_prob, _ = model.policy.evaluate_actions(
        batch.observations, batch.actions.long().flatten(), batch.lstm_states, batch.episode_starts
    )
    model.policy.zero_grad()
    values.sum().backward(retain_graph=True)
    assert all(weight.grad is None for weight in model.policy.lstm_actor.parameters())
    assert not critic_core or all(weight.grad is not None for weight in model.policy.lstm_critic.parameters())
    log_prob.sum().backward()
    assert all(weight.grad is not None for weight in model.policy.lstm_actor.parameters())


def test_saved_loaded_and_asked_without_a_state(tmp_path):
    model = make_model(LSTMConfig(dim=16, num_layers=1, learned_initial_state=True))
    model.learn(STEPS * ROWS)
    model.save(tmp_path / "model.zip")
    again = RecurrentPPO.load(tmp_path / "model.zip")
    model.policy.save(tmp_path / "policy.pt")
    policy = CorePolicy.load(tmp_path / "policy.pt")
    observation = model.env.reset()
    state = other = third = None
    for t in range(6):
        starts = np.full(ROWS, t == 0)
        action, state = model.predict(observation, state, starts, deterministic=True)
        same, other = again.predict(observation, other, None, deterministic=True)  # begins with an episode anyway
        also, third = policy.predict(observation, third, starts, deterministic=True)
        assert (action == same).all() and (action == also).all() and (state[0] == other[0])[..., 2:].all()
        observation, *_ = model.env.step(action)


class Room(gymnasium.Env):
    """A picture and a vector; two actions at once."""

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (36, 36, 3), np.uint8), "arm": spaces.Box(-1, 1, (3,), np.float32)}
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.clock += 1
        return self.observation_space.sample(), float(action[0]), self.clock == 7, False, {}


def test_pictures_in_a_dict_and_several_actions():
    model = make_model(CORES["gru"], env=make_vec_env(Room, 2, seed=0))
    model.learn(STEPS * 2)
    assert all(weight.isfinite().all() for weight in model.policy.parameters())


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="core='lstm': give the settings of a core"):
        make_model("lstm")
    from recollect import TokenTuringMachineConfig

    with pytest.raises(ValueError, match="one vector a step"):
        make_model(TokenTuringMachineConfig(num_tokens=4))
