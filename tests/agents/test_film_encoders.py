"""Images read in the light of a sentence, and their places as tokens."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agents import ActorCriticConfig, ActorInputs
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.encoders import ObservationEncoder
from recollect.agents.film_encoders import FILM_ENCODERS, FiLM, FiLMCNN
from recollect.agents.image_encoders import accept_float_images
from recollect.cores import CORES

SPACE = spaces.Dict({"image": spaces.Box(0, 255, (32, 32, 3), np.uint8), "language": spaces.MultiDiscrete([9] * 4)})
ACTIONS = spaces.Box(-1, 1, (3,), np.float32)
OURS = ["film-cnn", "film-resnet"]


def config(kind):
    return EncoderConfig(kinds=(("image", kind),), sentence_dim=16, word_dim=8)


def seen(*lead):
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(256, (*lead, 32, 32, 3), generator=generator, dtype=torch.uint8)
    return {"image": image, "language": torch.randint(1, 9, (*lead, 4), generator=generator)}


def test_channels_are_scaled_and_shifted_by_a_linear_map():
    torch.manual_seed(0)
    film, x, condition = FiLM(3, 2), torch.randn(4, 2, 5, 6), torch.randn(4, 3)
    torch.nn.init.normal_(film.map.weight), torch.nn.init.normal_(film.map.bias)
    numbers = condition @ film.map.weight.T + film.map.bias
    expected = [
        [x[n, c] * (1 + numbers[n, c]) + numbers[n, 2 + c] for c in range(2)]  # gammas, then betas
        for n in range(4)
    ]
    torch.testing.assert_close(film(x, condition), torch.stack([torch.stack(row) for row in expected]))


@pytest.mark.parametrize("kind", OURS)
def test_the_sentence_changes_the_encoding_of_an_image_after_training(kind):
    torch.manual_seed(0)
    encoder = ObservationEncoder(SPACE, config(kind))
    at, places, depth = encoder.film_map
    one, two = seen(3), seen(3)
    two["language"] = two["language"].flip(1)
    first, second = encoder(one, 1), encoder(two, 1)
    image = slice(at, at + places * depth)
    assert torch.equal(first[:, image], second[:, image]), "gamma and beta begin as 0"
    for film in encoder.encoders["image"].films:
        torch.nn.init.normal_(film.map.weight, std=0.5)
    first, second = encoder(one, 1), encoder(two, 1)
    assert not torch.allclose(first[:, image], second[:, image], atol=1e-3)
    first.sum().backward()
    assert all(p.grad is not None for p in encoder.encoders["language"].parameters() if p.requires_grad)


@pytest.mark.parametrize("kind", OURS)
def test_steps_and_rows_are_read_alike(kind):
    torch.manual_seed(0)
    encoder = ObservationEncoder(SPACE, config(kind))
    observation = seen(2, 3)
    whole = encoder(observation, 2)
    assert whole.shape == (2, 3, encoder.dim)
    for row in range(2):
        one = encoder({name: part[row] for name, part in observation.items()}, 1)
        assert torch.allclose(whole[row], one, atol=1e-5)


def test_points_are_positions():
    torch.manual_seed(0)
    encoder = FiLMCNN(SPACE["image"], 4, None, scale=True)
    images = torch.zeros(3, 32, 32, 3, dtype=torch.uint8)
    for image, (y, x) in zip(images, ((4, 4), (4, 26), (26, 15)), strict=True):
        image[y : y + 3, x : x + 3] = 255
    with torch.no_grad():
        encoder.sharpness.fill_(100.0)
        points = encoder(images, torch.zeros(3, 4))[:, -2 * encoder.points :].unflatten(1, (2, encoder.points))
    inside = points.abs().amax((0, 1)) < 1  # channels that the square makes bright, not its surroundings
    wanted = torch.tensor([[5 / 15.5 - 1, 5 / 15.5 - 1], [5 / 15.5 - 1, 27 / 15.5 - 1], [27 / 15.5 - 1, 16 / 15.5 - 1]])
    away = (points - wanted[..., None]).abs().amax((0, 1))
    assert inside.any() and float(away.min()) < 0.15


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize(("core", "tokens"), [("ttm", 17), ("ttm", 5), ("recurrent-transformer", 5), ("lstm", None)])
def test_any_core_reads_the_map_and_streams_the_same_numbers(kind, core, tokens):
    torch.manual_seed(0)
    sizes = {"num_tokens": tokens, "num_slots": 4, "num_reads": 2} if tokens else {}
    agent = ActorCriticConfig(encoders=config(kind), width=16).build(CORES[core](dim=16, **sizes), SPACE, ACTIONS)
    agent.eval()
    observation, first = seen(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    first[:, 0] = first[1, 3] = True
    inputs = ActorInputs(observation, torch.rand(2, 5, 3), torch.zeros(2, 5))
    with torch.no_grad():
        whole, _ = agent(inputs, agent.initial_state(2), first)
        stream = agent.stream(2)
        for t in range(5):
            now = {name: part[:, t] for name, part in observation.items()}
            step = stream.step(ActorInputs(now, inputs.action[:, t], inputs.reward[:, t]), first[:, t])
            assert torch.allclose(step.policy, whole.policy[:, t], atol=1e-5)


def test_tokens_are_places_and_the_rest():
    torch.manual_seed(0)
    core = CORES["ttm"](dim=16, num_tokens=17, num_slots=4, num_reads=2)
    agent = ActorCriticConfig(encoders=config("film-resnet"), width=16, previous_reward=False).build(
        core, SPACE, ACTIONS
    )
    observation, none = seen(1), torch.zeros(1, dtype=torch.bool)
    changed = {name: part.clone() for name, part in observation.items()}
    changed["language"] = changed["language"].flip(1)
    one, two = (agent.encode(ActorInputs(part, torch.zeros(1, 3), torch.zeros(1)), none)[0]
                for part in (observation, changed))  # fmt: skip
    assert one.shape == (17, 16)
    assert torch.equal(one[:16], two[:16]) and not torch.allclose(one[16], two[16])


@pytest.mark.long
def test_efficientnet_is_film_conditioned_and_keeps_its_statistics():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    encoder = FILM_ENCODERS["film-efficientnet-b0"](SPACE["image"], 4, None, scale=True).train()
    before = {name: part.clone() for name, part in encoder.named_buffers() if "running" in name}
    first = encoder(seen(2)["image"], torch.zeros(2, 4)).detach()
    assert first.shape == (2, encoder.places * 320) and encoder.points == 0
    assert all(torch.equal(part, before[name]) for name, part in encoder.named_buffers() if name in before)
    assert 0.01 < float((first[0] - first[1]).std()) < 100, "two images do not look the same"
    torch.nn.init.normal_(encoder.films[0].map.weight)
    assert not torch.allclose(first, encoder(seen(2)["image"], torch.ones(2, 4)))


def test_impossible_settings_are_named(monkeypatch):
    silent = spaces.Dict({"image": SPACE["image"]})
    with pytest.raises(ValueError, match="no part 'language'"):
        ObservationEncoder(silent, config("film-cnn"))
    with pytest.raises(ValueError, match="images of 8 x 8 are too small"):
        ObservationEncoder(spaces.Dict({**SPACE.spaces, "image": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
                           config("film-cnn"))  # fmt: skip
    with pytest.raises(ValueError, match="num_tokens=18: a map of 16 positions gives 2 to 17 tokens"):
        ActorCriticConfig(encoders=config("film-cnn")).build(CORES["ttm"](num_tokens=18), SPACE, ACTIONS)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match=r"image: EfficientNet needs the package transformers: run pip install"):
        ObservationEncoder(SPACE, config("film-efficientnet-b0"))
    with pytest.raises(ValueError, match="choose one of"):
        EncoderConfig(kinds=(("image", "film"),))


def test_images_of_another_kind_of_number_are_refused():
    encoder = ObservationEncoder(SPACE, config("film-cnn"))
    floats = {**seen(2), "image": torch.rand(2, 32, 32, 3)}
    with pytest.raises(ValueError, match=r"images have dtype torch.float32: this agent was built for bytes"):
        encoder(floats, 1)
    with accept_float_images(encoder):  # of saliency, 0..255
        torch.testing.assert_close(encoder({**seen(2), "image": seen(2)["image"].float()}, 1), encoder(seen(2), 1))
