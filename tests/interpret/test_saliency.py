"""Saliency against the papers' equations, written as plain loops."""

import math

import gymnasium
import numpy as np
import pytest
import torch

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.image_encoders import accept_float_images
from recollect.interpret.episodes import record_episode
from recollect.interpret.playback import Playback
from recollect.interpret.saliency import (
    gaussian_matrix,
    gradient_saliency,
    masks,
    perturbation_saliency,
    sarfa,
    upsample,
)
from recollect.recipes.agent_sizes import lite_core
from recollect.tasks.worlds.arcade.catch import CatchConfig
from recollect.tasks.worlds.ballet.world import BalletConfig
from recollect.tasks.worlds.t_maze import TMazeConfig

CATCH = CatchConfig(side=42, balls=1)


def _agent(key="transformer-xl", world=CATCH):
    torch.manual_seed(1)
    core = lite_core(key, steps=20, window=4, chunk=4, top_k=2)
    spec = world.spec
    return ActorCriticConfig(policy_gain=1.0).build(core, spec.observation_space, spec.action_space).eval()


@pytest.fixture(scope="module")
def record():
    return record_episode(_agent(), CATCH, seed=1, longest=8)


def _gaussian_filter(image, sigma):
    """scipy.ndimage.gaussian_filter: separable, cut at four sigmas, edges mirrored."""
    reach = int(4 * sigma + 0.5)
    kernel = np.array([math.exp(-0.5 * (i / sigma) ** 2) for i in range(-reach, reach + 1)])
    kernel /= kernel.sum()
    for axis in (0, 1):
        padding = [(reach, reach) if a == axis else (0, 0) for a in (0, 1)]
        padded = np.pad(image, padding, mode="symmetric")
        image = np.apply_along_axis(np.convolve, axis, padded, kernel, mode="valid")
    return image


def _mask(place, size):
    """A disc of radius 1, blurred, its largest value 1."""
    y, x = np.ogrid[-place[0] : size[0] - place[0], -place[1] : size[1] - place[1]]
    mask = np.zeros(size)
    mask[x * x + y * y <= 1] = 1
    mask = _gaussian_filter(mask, 5)
    return mask / mask.max()


def test_every_place_as_in_the_equations(record):
    """Equations 2.37 to 2.39, one blurred picture at a time, the memory from a plain run over the steps before."""
    agent, t = record.agent, 5
    frames = record.inputs.observation
    state, says = agent.initial_state(1), None
    with torch.no_grad():
        for step in range(t):
            now = type(record.inputs)(*(part[:, step : step + 1] for part in record.inputs))
            _, state = agent(now, state, torch.tensor([[step == 0]]))
        told = record.inputs.action[:, t : t + 1], record.inputs.reward[:, t : t + 1]

        def say(picture):
            inputs = type(record.inputs)(torch.as_tensor(picture, dtype=torch.float32)[None, None], *told)
            with accept_float_images(agent):
                output, _ = agent(inputs, state, torch.tensor([[False]]))
            return output.policy[0, 0].numpy(), float(output.value)

        picture = frames[0, t].numpy().astype(float)  # c y x
        blurred = np.stack([_gaussian_filter(channel, 3) for channel in picture])
        says = say(picture)
        actor, critic = np.zeros((9, 9)), np.zeros((9, 9))
        for i in range(0, 42, 5):
            for j in range(0, 42, 5):
                mask = _mask((i, j), (42, 42))
                policy, value = say(picture * (1 - mask) + blurred * mask)
                actor[i // 5, j // 5] = 0.5 * ((says[0] - policy) ** 2).sum()
                critic[i // 5, j // 5] = 0.5 * (says[1] - value) ** 2
    found = perturbation_saliency(Playback(agent, record.inputs), record.action, steps=[t], rows=7)
    assert actor.max() > 0
    assert np.allclose(found.actor[0], actor, rtol=1e-2, atol=1e-4 * actor.max())
    assert np.allclose(found.critic[0], critic, rtol=1e-2, atol=1e-4 * critic.max())


def test_filters_are_scipy_s():
    image = np.random.default_rng(0).random((13, 30))
    ours = gaussian_matrix(13, 3.0).double() @ torch.as_tensor(image) @ gaussian_matrix(30, 3.0).double().T
    assert np.allclose(ours.numpy(), _gaussian_filter(image, 3), atol=1e-6)
    assert np.allclose(masks((42, 42))[3, 8].numpy(), _mask((15, 40), (42, 42)), atol=1e-6)
    assert masks((84, 84)).shape == (17, 17, 84, 84)
    assert float(masks((84, 84))[4, 4].amax()) == 1.0


def test_what_nobody_sees_has_no_saliency(record):
    agent = _agent("gru")
    with torch.no_grad():
        agent.join.weight[:, : agent.encoder.dim] = 0
    blind = record_episode(agent, CATCH, seed=1, longest=3).with_saliency()
    assert np.allclose(blind.saliency[0].actor, 0, atol=1e-9)
    assert record.with_saliency(every=4).saliency[0].actor.max() > 0


def test_sarfa_by_hand():
    plain, other = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    drop = math.exp(2) / (math.exp(2) + 2) - 1 / 3
    first, second, third = sarfa(plain, other, 0).tolist()
    assert first == pytest.approx(2 * drop / (1 + drop))  # the relation of the others is as it was: K = 1
    assert second == 0.0  # the action became more likely
    p = math.e / (1 + math.e)
    near = 1 / (1 + p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
    drop = math.exp(2) / (math.exp(2) + 2) - 1 / (2 + math.e)
    assert third == pytest.approx(2 * near * drop / (near + drop))


def test_targets_and_gradient(record):
    several = record.with_saliency(of="action", every=3).with_saliency(of="sarfa", every=3, targets=("actor",))
    several = several.with_saliency(method="gradient", every=3)
    action, relevant, gradient = several.saliency
    assert action.actor.shape == relevant.actor.shape == (3, 9, 9) and relevant.critic is None
    assert gradient.actor.shape == (3, 42, 42) and gradient.actor.max() > 0
    assert (relevant.actor >= 0).all() and (relevant.actor <= 1).all()
    assert upsample(action.actor, (42, 42)).shape == (3, 42, 42)
    assert not torch.is_grad_enabled() or record.agent.value_head[-1].weight.grad is None


def test_gradient_is_the_slope(record):
    """Beside finite differences of the value, on noise: a flat picture has kinks everywhere (max pooling)."""
    agent, t = record.agent, 3
    noise = record.inputs._replace(observation=255 * torch.rand(record.inputs.observation.shape))
    with accept_float_images(agent):
        playback = Playback(agent, noise)
        found = gradient_saliency(playback, record.action, steps=[t]).critic[0]
    place = np.unravel_index(int(found.argmax()), found.shape)
    state, slopes = playback.state_before(t), []
    for channel in range(noise.observation.shape[2]):
        values = []
        for change in (-0.5, 0.5):
            inputs = playback.part(t, t + 1)
            inputs.observation[0, 0, channel, place[0], place[1]] += change
            with accept_float_images(agent):
                encoded = agent.encode(inputs, playback.is_first[:, t : t + 1])
            values.append(float(playback.step(t, state, encoded)[0].value))
            inputs.observation[0, 0, channel, place[0], place[1]] -= change
        slopes.append(abs(values[1] - values[0]))
    assert max(slopes) == pytest.approx(float(found[place]), rel=0.1)


def test_pictures_inside_a_dict_with_channels_last():
    world = BalletConfig(dancers=(2,), delays=(16,))
    record = record_episode(_agent("gru", world), world, seed=1, longest=2).with_saliency(stride=20)
    assert record.saliency[0].actor.shape == (2, 5, 5) and np.isfinite(record.saliency[0].actor).all()


def test_a_picture_in_a_dict_under_the_name_of_a_lone_one():
    space = gymnasium.spaces.Dict(observation=gymnasium.spaces.Box(0, 255, (42, 42, 3), np.uint8))
    core = lite_core("gru", steps=20, window=4, chunk=4, top_k=2)
    agent = ActorCriticConfig().build(core, space, gymnasium.spaces.Discrete(3)).eval()
    picture = torch.randint(0, 255, (1, 2, 42, 42, 3), dtype=torch.uint8)
    reward, unknown = torch.zeros(1, 2), torch.zeros(1, 2, 0)
    inputs = ActorInputs({"observation": picture}, reward.long(), reward, unknown, unknown)
    found = perturbation_saliency(Playback(agent, inputs), np.zeros(2, int), stride=20)
    assert found.actor.shape == (2, 3, 3) and np.isfinite(found.actor).all()


def test_bad_questions(record):
    with pytest.raises(ValueError, match="stride=0: give at least 1 pixel"):
        record.with_saliency(stride=0)
    with pytest.raises(ValueError, match=r"saliency of 'logit'.*did you mean 'logits'"):
        record.with_saliency(of="logit")
    with pytest.raises(ValueError, match="targets"):
        record.with_saliency(targets=("world",))
    with pytest.raises(ValueError, match="steps"):
        perturbation_saliency(record.playback(), record.action, steps=[99])
    maze = TMazeConfig(length=3)
    with pytest.raises(ValueError, match="saliency is of pixels"):
        record_episode(_agent("gru", maze), maze, longest=2).with_saliency()
