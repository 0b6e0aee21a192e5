from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.decoders import Decoders
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.encoders import ObservationEncoder
from recollect.cores import CORES
from recollect.tasks import TASKS, GymnasiumConfig, WorldConfig
from tiers import only


def pixels(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def made(space, dim=6, **config):
    encoder = ObservationEncoder(space, EncoderConfig(**config))
    return encoder, Decoders(encoder, dim)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (pixels(99, 99, 3), "ballet-cnn"),
        (pixels(30, 21, 3), "ballet-cnn"),  # sides that nine does not divide
        (pixels(3, 42, 37), "impala-resnet"),
        (pixels(20, 23), "impala-resnet"),
        (pixels(84, 84, 4), "nature-cnn"),
        (pixels(41, 50, 1), "nature-cnn"),
        (pixels(3, 42, 37), "impala-resnet-instance-norm"),
        (pixels(28, 42, 4), "patches-7"),
        (pixels(28, 42), "patches-14"),
        (pixels(28, 56, 3), "patches-28"),
    ],
)
def test_images_are_restored_in_their_shape(space, kind):
    encoder, decoders = made(space, kinds=(("observation", kind),))
    features = torch.randn(2, 3, 6, requires_grad=True)
    logits = decoders(features)["observation"]
    assert logits.shape == (2, 3, *space.shape)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in decoders.parameters())
    assert all(parameter.grad is None for parameter in encoder.parameters())


@pytest.mark.parametrize(("low", "high", "dtype"), [(-1, 1, np.float32), (0, 255, np.float32), (0, 255, np.int32)])
def test_images_of_other_numbers_are_refused(low, high, dtype):
    with pytest.raises(ValueError, match=r"reconstruct=True: observation is Box.*\[0, 1\]"):
        made(spaces.Box(low, high, (20, 24, 3), dtype))
    made(spaces.Box(0, 1, (20, 24, 3), np.float32))


def test_the_decoder_has_the_weights_of_the_encoder_mirrored():
    encoder, decoders = made(pixels(99, 99, 3))
    forth = [tuple(p.shape) for p in encoder.parameters() if p.ndim == 4]
    back = [tuple(p.shape) for p in decoders.parameters() if p.ndim == 4]
    assert back == forth[::-1]  # a transposed convolution stores [in, out, y, x]
    encoder, decoders = made(pixels(84, 84, 4))
    count = [sum(p.numel() for p in module.parameters() if p.ndim == 4) for module in (encoder, decoders)]
    assert count[0] == count[1]
    encoded, decoded = ({id(p) for p in module.parameters()} for module in (encoder, decoders))
    assert not encoded & decoded


def test_words_and_tiles_are_restored_as_logits_of_symbols():
    space = spaces.Dict(
        {
            "language": spaces.MultiDiscrete([7] * 4),
            "tiles": spaces.Box(2, 9, (5, 4, 2), np.uint8),
            "grid": spaces.MultiDiscrete(np.full((3, 3), 6)),
            "place": spaces.Box(-1, 1, (2,)),
        }
    )
    _, decoders = made(space, sentence_dim=8, hidden=(10, 9))
    logits = decoders(torch.randn(2, 3, 6))
    shapes = {name: tuple(tensor.shape[2:]) for name, tensor in logits.items()}
    assert shapes == {"language": (4, 7), "tiles": (5, 4, 2, 8), "grid": (3, 3, 6)}


@pytest.mark.parametrize("hidden", [pytest.param((), marks=pytest.mark.long), (32,)])
def test_reconstruction_can_overfit(hidden):
    space = spaces.Dict({"language": spaces.MultiDiscrete([7] * 3), "tiles": spaces.Box(2, 5, (4, 4), np.uint8)})
    _, decoders = made(space, hidden=hidden, sentence_dim=16, word_dim=16)
    features = torch.randn(2, 3, 6)
    observation = {
        "language": torch.randint(1, 7, (2, 3, 3)),
        "tiles": torch.randint(2, 6, (2, 3, 4, 4), dtype=torch.uint8),
    }
    optimizer = torch.optim.Adam(decoders.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        losses = decoders.losses(features, observation, valid=None, reduction="mean")
        sum(losses.values()).backward()
        optimizer.step()
    logits = decoders(features)
    assert (logits["language"].argmax(-1) == observation["language"]).float().mean() > 0.95
    assert (logits["tiles"].argmax(-1) + 2 == observation["tiles"]).float().mean() > 0.95


@pytest.mark.parametrize("image", ["image", "items"])  # a ModuleDict has items of its own
def test_losses_count_valid_steps_only(image):
    space = spaces.Dict({image: pixels(20, 20, 3), "language": spaces.MultiDiscrete([7] * 3)})
    _, decoders = made(space)
    features = torch.randn(2, 3, 6)
    observation = {
        image: torch.randint(0, 256, (2, 3, 20, 20, 3), dtype=torch.uint8),
        "language": torch.randint(0, 7, (2, 3, 3)),
    }
    valid = torch.tensor([[True, False, False], [False, False, True]])
    got = decoders.losses(features, observation, valid=valid, reduction="sum")
    kept = {name: leaf[valid][:, None] for name, leaf in observation.items()}
    expected = decoders.losses(features[valid][:, None], kept, valid=None, reduction="sum")
    assert got.keys() == {image, "language"}
    for name in got:
        torch.testing.assert_close(got[name], expected[name])


def test_an_observation_that_no_decoder_restores_is_named():
    with pytest.raises(ValueError, match="none of observation is an image"):
        made(spaces.Box(-1, 1, (4,)))


@pytest.mark.parametrize(
    "hidden", [pytest.param((), marks=pytest.mark.long), pytest.param((16,), marks=pytest.mark.long), (12, 16)]
)
def test_symbols_as_vectors_are_restored_where_there_is_nothing_else(hidden):
    torch.manual_seed(0)
    _, decoders = made(spaces.Box(0, 1, (10,), np.float32), dim=16, hidden=hidden)
    assert decoders(torch.randn(2, 3, 16))["observation"].shape == (2, 3, 10)
    seen = torch.nn.functional.one_hot(torch.randint(10, (4, 8)), 10).float()
    optimizer = torch.optim.Adam(decoders.parameters(), lr=1e-2)
    features = seen @ torch.randn(10, 16)
    for _ in range(200):
        loss = decoders.losses(features, seen, valid=None, reduction="mean")["observation"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(decoders(features)["observation"] > 0, seen > 0.5)
    both = spaces.Dict({"image": pixels(20, 20, 3), "numbers": spaces.Box(0, 1, (3,), np.float32)})
    assert list(made(both)[1].decoders) == ["image"]


def forms(world):
    """The world's config, in every form that its observations have."""
    choices = get_args(get_type_hints(type(world)).get("observation"))
    return [replace(world, observation=form) for form in choices] or [world]


WORLDS = {key: made for key, made in TASKS.items() if issubclass(made, WorldConfig) and made is not GymnasiumConfig}


@pytest.mark.parametrize("key", only(("ballet", "word-learning", "catch"), WORLDS))
def test_observations_of_every_world_can_be_reconstructed(key):
    for config in forms(WORLDS[key]()):
        world = config.build(2)
        step = world.reset()
        settings = ActorCriticConfig(width=8, encoders=EncoderConfig(hidden=(), tile_dim=4), reconstruct=True)
        agent = settings.build(CORES["gru"](dim=8), config.spec.observation_space, config.spec.action_space)
        seen = torch.utils._pytree.tree_map(lambda leaf: leaf[:, None], step.observation)
        drawn = np.stack([config.spec.action_space.sample() for _ in range(2)])
        inputs = ActorInputs(seen, torch.from_numpy(drawn)[:, None], torch.zeros(2, 1))
        output, _ = agent(inputs, agent.initial_state(2), torch.ones(2, 1, dtype=torch.bool))
        losses = agent.reconstruction_losses(output.features, seen)
        assert sum(losses.values()) > 0 and all(loss.isfinite() for loss in losses.values())  # silence costs nothing
        sum(losses.values()).backward()
        assert all(p.grad is not None for p in agent.decoders.parameters())
        assert any(p.grad is not None and p.grad.any() for p in agent.core.parameters())


def test_a_number_without_an_axis_is_restored():
    _, decoders = made(spaces.Box(0, 1, ()))
    features, seen = torch.randn(2, 3, 6), torch.rand(2, 3)
    logits = decoders(features)["observation"]
    assert logits.shape == (2, 3)
    loss = decoders.losses(features, seen, valid=None, reduction="mean")["observation"]
    torch.testing.assert_close(loss, torch.nn.functional.binary_cross_entropy_with_logits(logits, seen))
