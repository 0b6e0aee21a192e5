"""A core in TorchRL's collectors, replay buffers, estimators and PPO, against a literal loop over the core."""

import copy
import warnings

import gymnasium
import pytest
import torch
from torch import nn

with warnings.catch_warnings():  # its import warns of its own deprecations
    warnings.simplefilter("ignore")
    pytest.importorskip("torchrl.collectors", exc_type=ImportError)

from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose, InitTracker, SerialEnv, TransformedEnv
from torchrl.envs.libs.gym import GymWrapper
from torchrl.envs.utils import check_env_specs
from torchrl.modules import OneHotCategorical, ProbabilisticActor, set_recurrent_mode
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from recollect import GRUConfig, HierarchicalChunkMemoryConfig, LSTMConfig
from recollect.adapters.torchrl import CoreModule
from recollect.tasks.gymnasium.views import RecollectVectorEnv
from recollect.tasks.worlds.t_maze import TMazeConfig

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]
ROWS, STEPS = 3, 16
CORES = {
    "hcam": HierarchicalChunkMemoryConfig(
        dim=16, num_layers=1, num_heads=2, memory_len=4, chunk_len=4, num_chunks=4, top_k=2
    ),
    "gru": GRUConfig(dim=16, num_layers=1),
}


def make_env(memory, limit, rows=ROWS):
    def make():
        return GymWrapper(gymnasium.make("CartPole-v1", max_episode_steps=limit))

    transforms = Compose(InitTracker(), memory.make_tensordict_primer())
    env = TransformedEnv(SerialEnv(rows, make), transforms)
    env.set_seed(0)
    return env


def make_actor(memory):
    policy = TensorDictModule(nn.Linear(16, 2), in_keys=["embed"], out_keys=["logits"])
    return ProbabilisticActor(
        TensorDictSequential(memory, policy),
        in_keys=["logits"],
        out_keys=["action"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )


def outputs_of_a_loop(core, batches):
    state = core.initial_state(ROWS)
    for data in batches:
        outputs = []
        for t in range(data.shape[1]):
            output, state = core(data["observation"][:, t : t + 1], state, data["is_init"][:, t])
            outputs.append(output)
        yield torch.cat(outputs, 1)


@pytest.mark.parametrize("limit", [5, 11, 500])  # with 5 all rows end together
@pytest.mark.parametrize("state", ["carry", "step"])
@pytest.mark.parametrize("key", CORES)
@torch.no_grad()
def test_collected_and_trained_on_like_a_loop_over_the_core(key, state, limit):
    memory = CoreModule(CORES[key].build(4), state, unroll=STEPS)
    collector = Collector(make_env(memory, limit), make_actor(memory), frames_per_batch=ROWS * STEPS, total_frames=-1)
    stream = iter(collector)
    batches = [next(stream).clone() for _ in range(3)]
    for data, expected in zip(batches, outputs_of_a_loop(memory.core, batches), strict=True):
        torch.testing.assert_close(data["embed"], expected, atol=1e-5, rtol=1e-5)
        with set_recurrent_mode(True):
            again = memory(data.clone())["embed"]
            part = memory(data[1:].clone())["embed"]
        torch.testing.assert_close(again, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(part, expected[1:], atol=1e-5, rtol=1e-5)
    collector.shutdown()


@torch.no_grad()
def test_weights_may_change_between_batches():
    memory = CoreModule(CORES["hcam"].build(4), unroll=STEPS)
    collector = Collector(make_env(memory, 11), make_actor(memory), frames_per_batch=ROWS * STEPS, total_frames=-1)
    for number, data in enumerate(collector):
        with set_recurrent_mode(True):
            torch.testing.assert_close(memory(data.clone())["embed"], data["embed"], atol=1e-5, rtol=1e-5)
        for weight in memory.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
        if number == 3:
            break
    collector.shutdown()


@torch.no_grad()
def test_rows_of_a_replay_buffer_begin_with_their_states():
    memory = CoreModule(CORES["hcam"].build(4), unroll=STEPS)
    collector = Collector(make_env(memory, 30), make_actor(memory), frames_per_batch=ROWS * STEPS, total_frames=-1)
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=7)
    for number, data in enumerate(collector):
        buffer.extend(data)
        if number == 3:
            break
    collector.shutdown()
    data = buffer.sample()
    assert data.shape == (7, STEPS)
    with set_recurrent_mode(True):
        torch.testing.assert_close(memory(data.clone())["embed"], data["embed"], atol=1e-5, rtol=1e-5)


def test_an_evaluation_in_between_does_not_touch_the_memory_of_the_collector():
    memory = CoreModule(CORES["gru"].build(4), unroll=STEPS)
    actor = make_actor(memory)
    collector = Collector(make_env(memory, 500), actor, frames_per_batch=ROWS * STEPS, total_frames=-1)
    evaluation = make_env(memory, 500)
    stream, batches = iter(collector), []
    for _ in range(2):
        batches.append(next(stream).clone())
        evaluation.rollout(3, actor)
    with torch.no_grad():
        for data, expected in zip(batches, outputs_of_a_loop(memory.core, batches), strict=True):
            torch.testing.assert_close(data["embed"], expected, atol=1e-5, rtol=1e-5)
    assert not copy.deepcopy(memory)._streams
    collector.shutdown()


@pytest.mark.parametrize("state", ["carry", "step"])
def test_gradients_of_ppo_reach_the_core(state):
    memory = CoreModule(CORES["hcam"].build(4), state, unroll=STEPS)
    actor = make_actor(memory)
    value = TensorDictSequential(
        memory, TensorDictModule(nn.Linear(16, 1), in_keys=["embed"], out_keys=["state_value"])
    )
    collector = Collector(make_env(memory, 11), actor, frames_per_batch=ROWS * STEPS, total_frames=ROWS * STEPS)
    data = next(iter(collector))
    with torch.no_grad(), set_recurrent_mode(True):
        GAE(gamma=0.99, lmbda=0.95, value_network=value, shifted=True)(data)
    with set_recurrent_mode(True):
        losses = ClipPPOLoss(actor, value)(data[torch.tensor([2, 0])])
    assert 1 - 1e-4 < float(losses["max_ratio"]) < 1 + 1e-4, "the policy that acted is the one that is trained"
    (losses["loss_objective"] + losses["loss_critic"]).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in memory.parameters())
    collector.shutdown()


def test_a_batch_of_default_hcam_is_small():
    memory = CoreModule(HierarchicalChunkMemoryConfig().build(4), unroll=32)
    policy = TensorDictModule(nn.Linear(128, 2), in_keys=["embed"], out_keys=["logits"])
    actor = ProbabilisticActor(
        TensorDictSequential(memory, policy), in_keys=["logits"], distribution_class=OneHotCategorical
    )
    with torch.no_grad():
        data = make_env(memory, 500, rows=32).rollout(32, actor, break_when_any_done=False)
    assert data.shape == (32, 32)
    assert sum(leaf.numel() * leaf.element_size() for leaf in data.values(True, True)) < 30e6


def test_mistakes_are_named():
    core = CORES["gru"].build(4)
    with pytest.raises(ValueError, match="unroll=0: give frames_per_batch"):
        CoreModule(core)
    with pytest.raises(ValueError, match="state='both'"):
        CoreModule(core, "both")
    memory = CoreModule(core, unroll=STEPS)
    actor = make_actor(memory)
    bare = TransformedEnv(SerialEnv(2, lambda: GymWrapper(gymnasium.make("CartPole-v1"))), InitTracker())
    with pytest.raises(ValueError, match="make_tensordict_primer"):
        bare.rollout(2, actor)
    inner = SerialEnv(
        2, lambda: TransformedEnv(GymWrapper(gymnasium.make("CartPole-v1")), memory.make_tensordict_primer())
    )
    with pytest.raises(ValueError, match="outside of SerialEnv"):
        TransformedEnv(inner, InitTracker()).rollout(2, actor)
    env = make_env(memory, 500)
    data = env.rollout(STEPS, actor, break_when_any_done=False)
    with set_recurrent_mode(True), pytest.raises(ValueError, match="whole rows of unroll=16"):
        memory(data[:, 1:].clone())
    with set_recurrent_mode(True), pytest.raises(ValueError, match="keep this module's keys"):
        memory(data.exclude("memory").set("is_init", torch.zeros_like(data["is_init"])))
    env.reset()
    step = env.step(env.rand_action(env.reset()))["next"].set("is_init", torch.zeros(ROWS, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="once for each step"):
        memory(step)


def test_one_environment_without_a_batch():
    memory = CoreModule(LSTMConfig(dim=16, num_layers=1).build(4), unroll=4)
    env = TransformedEnv(
        GymWrapper(gymnasium.make("CartPole-v1")), Compose(InitTracker(), memory.make_tensordict_primer())
    )
    with torch.no_grad(), set_recurrent_mode(False):
        data = env.rollout(4, make_actor(memory))
    with torch.no_grad(), set_recurrent_mode(True):
        again = memory(data.clone())
    assert isinstance(again, TensorDict) and data.shape == (4,)
    torch.testing.assert_close(again["embed"], data["embed"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_our_vector_environments_pass_its_checks(mode):
    envs = RecollectVectorEnv(TMazeConfig(length=3, slack=2), 4, autoreset_mode=mode)
    env = GymWrapper(envs, device="cpu")
    check_env_specs(env)
    data = TransformedEnv(env, InitTracker()).rollout(20, break_when_any_done=False)
    assert data["next", "done"].sum() >= 8 and data["is_init"].sum() >= 8
    done = data["next", "done"][:, :-1]
    assert torch.equal(data["is_init"][:, 1:], done), "an episode begins behind each last step"
