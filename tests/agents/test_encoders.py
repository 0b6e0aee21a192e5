import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces

from recollect.agents import image_encoders
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.encoders import MLP, ObservationEncoder, Tiles, WordLSTM, choose
from recollect.agents.image_encoders import (
    BalletCNN,
    ImpalaResNet,
    ImpalaResNetInstanceNorm,
    NatureCNN,
    Patches7,
    Patches14,
    ResidualBlock,
)


def pixels(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


CHOICES = [
    (pixels(99, 99, 3), "ballet-cnn"),
    (pixels(84, 84, 4), "impala-resnet"),
    (pixels(4, 84, 84), "impala-resnet"),
    (pixels(84, 84), "impala-resnet"),
    (pixels(7, 7, 3), "tiles"),
    (spaces.Box(0, 30, (11, 11), np.uint8), "tiles"),
    (spaces.Box(0, 65535, (4, 4), np.int32), "tiles"),
    (spaces.Box(0, 131072, (4, 4), np.int32), "mlp"),  # as 2048 has it
    (spaces.Box(-(2**62), 2**62, (3, 3, 2), np.int64), "mlp"),
    (spaces.MultiDiscrete(np.full((11, 11), 9)), "tiles"),
    (spaces.MultiDiscrete([3, 4]), "one-hot"),
    (spaces.Discrete(3), "one-hot"),
    (spaces.MultiBinary(3), "one-hot"),
    (spaces.Box(-1, 1, (4,)), "mlp"),
    (spaces.Box(-1, 1, (3, 5)), "mlp"),
    (pixels(128), "mlp"),
    (spaces.Box(0, 1, (64, 64, 3)), "impala-resnet"),
]


def sample(space, *lead):
    if isinstance(space, spaces.Dict):
        return {key: sample(child, *lead) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sample(child, *lead) for child in space.spaces)
    rows = [np.asarray(space.sample()) for _ in range(int(np.prod(lead)))]
    return torch.from_numpy(np.stack(rows)).reshape(*lead, *space.shape)


def test_a_residual_block_adds_two_convolutions():
    torch.manual_seed(0)
    block, x = ResidualBlock(3), torch.randn(2, 3, 5, 6)
    inner = torch.nn.functional.conv2d(x.clamp(min=0), block.one.weight, block.one.bias, padding=1).clamp(min=0)
    inner = torch.nn.functional.conv2d(inner, block.two.weight, block.two.bias, padding=1)
    torch.testing.assert_close(block(x), x + inner)


@pytest.mark.parametrize(("space", "kind"), CHOICES, ids=str)
def test_every_space_gets_its_encoder_and_a_vector(space, kind):
    assert choose("observation", space) == kind
    torch.manual_seed(0), space.seed(0)
    encoder = ObservationEncoder(space, EncoderConfig(hidden=(8,)))
    observation = sample(space, 2, 3)
    vectors = encoder(observation, 2)
    assert vectors.shape == (2, 3, encoder.dim)
    scale = vectors.detach().abs().max().clamp(min=1)  # numbers may be large and cancel
    torch.testing.assert_close(encoder(observation[:, 1], 1) / scale, vectors[:, 1] / scale)
    vectors.sum().backward() if list(encoder.parameters()) else None
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_impala_resnet_has_the_published_size():
    encoder = ImpalaResNet(pixels(84, 84, 4))
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 97_744
    maps, sides = torch.zeros(1, 16, 84, 84), [84]
    for width, blocks in zip((16, 32, 32), encoder.blocks, strict=True):
        maps = blocks(F.max_pool2d(maps[:, :1].expand(-1, width, -1, -1), 3, 2, 1))
        sides.append(maps.shape[-1])
    assert sides == [84, 42, 21, 11]
    assert encoder.dim == 11 * 11 * 32
    for side, last in ((42, 6), (21, 3)):
        assert ImpalaResNet(pixels(side, side, 4)).map_sides == (last, last)


def test_ballet_cnn_reads_one_tile_per_cell():
    encoder = BalletCNN(pixels(99, 99, 3))
    assert [tuple(p.shape) for p in encoder.parameters() if p.ndim > 1] == [
        (16, 3, 9, 9),
        (32, 16, 3, 3),
        (32, 32, 3, 3),
    ]
    assert encoder.dim == 11 * 11 * 32
    image = torch.zeros(1, 99, 99, 3, dtype=torch.uint8)
    changed = image.clone()
    changed[0, 9:18, 18:27] = 255  # the tile in row 1, column 2
    seen = (encoder(image) - encoder(changed)).reshape(11, 11, 32).abs().sum(-1) > 1e-6
    rows, columns = seen.nonzero().unbind(1)
    assert 0 <= rows.min() <= rows.max() <= 3 and 0 <= columns.min() <= columns.max() <= 4


@pytest.mark.parametrize("kind", [BalletCNN, ImpalaResNet, NatureCNN])
def test_layouts_scales_and_channels_last_change_no_number(kind):
    encoder = kind(pixels(45, 54, 3)).double()
    other = kind(pixels(3, 45, 54)).double()
    raw = kind(pixels(45, 54, 3), scale=False).double()
    floats = kind(spaces.Box(0, 1, (45, 54, 3))).double()
    for twin in (other, raw, floats):
        twin.load_state_dict(encoder.state_dict())
    images = torch.randint(0, 256, (2, 45, 54, 3), dtype=torch.uint8)
    vectors = encoder(images)
    torch.testing.assert_close(other(images.permute(0, 3, 1, 2)), vectors)
    torch.testing.assert_close(floats(images.double() / 255), vectors)
    assert not torch.allclose(raw(images), vectors)
    # The plain way: contiguous maps, scaled pixels.
    plain = (images.double() / 255).permute(0, 3, 1, 2).contiguous()
    first = F.conv2d(plain, encoder.first.weight, encoder.first.bias, encoder.first.stride, encoder.first.padding)
    torch.testing.assert_close(encoder.convolve(first).permute(0, 2, 3, 1).flatten(1), vectors)
    assert encoder.dim == vectors.shape[1]
    with pytest.raises(ValueError, match=r"images have dtype torch.float64: .* built for bytes 0..255"):
        encoder(images.double())
    with pytest.raises(ValueError, match=r"images have dtype torch.uint8: .* built for floats"):
        floats(images)


def test_patches_are_a_linear_map_of_their_pixels():
    encoder = Patches7(pixels(2, 21, 14), (1, 1, 5)).double()
    images = torch.randint(0, 256, (4, 2, 21, 14), dtype=torch.uint8)
    patches = (images.double() / 255).unfold(2, 7, 7).unfold(3, 7, 7)  # n c rows columns 7 7
    weight = encoder.first.weight.flatten(1)
    want = patches.permute(0, 2, 3, 1, 4, 5).flatten(3) @ weight.t() + encoder.first.bias
    torch.testing.assert_close(encoder(images), want.flatten(1))
    assert encoder.map_sides == (3, 2) and encoder.dim == 30
    with pytest.raises(ValueError, match=r"images of 20 x 20 cannot be divided into patches of 14 x 14: choose a"):
        Patches14(pixels(20, 20))


def test_instance_norm_separates_frames_before_training():
    frames = torch.zeros(30, 42, 42, dtype=torch.uint8)
    for number, (y, x) in enumerate(np.ndindex(5, 6)):
        frames[number, 8 * y : 8 * y + 3, 7 * x : 7 * x + 3] = 255
    shares: list[float] = []
    for kind in (ImpalaResNet, ImpalaResNetInstanceNorm):
        torch.manual_seed(0)
        maps = kind(pixels(42, 42))(frames).detach()
        shares.append((maps - maps.mean(0)).norm(dim=1).mean() / maps.mean(0).norm())
    assert shares[0] < 0.3 < 0.8 < shares[1]
    by_channel = maps.unflatten(1, (36, 32))
    assert by_channel.mean(1).abs().max() < 1e-5
    deviations = by_channel.std(1, correction=0)  # 0 where a channel says nothing at all
    assert deviations.max() < 1.001 and (deviations > 0.9).float().mean() > 0.5


def test_a_layer_behind_the_map():
    encoder = ImpalaResNet(pixels(4, 84, 84), dim=249)
    assert encoder.dim == 249 and encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 249)
    assert sum(p.numel() for p in encoder.parameters()) == 97_744 + 3872 * 249 + 249
    assert (encoder(torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)) >= 0).all()
    with pytest.raises(ValueError, match="image_dim=0: give a positive width, or None"):
        EncoderConfig(image_dim=0)


@pytest.mark.parametrize("kind", ["ballet-cnn", "nature-cnn", "mlp", "tiles"])
def test_the_choice_can_be_overruled(kind):
    encoder = ObservationEncoder(pixels(40, 40), EncoderConfig(kinds=(("observation", kind),), hidden=(4,)))
    assert encoder(sample(pixels(40, 40), 2, 1), 2).shape == (2, 1, encoder.dim)


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 9, (4, 5, 2), np.uint8), spaces.MultiDiscrete(np.full((4, 5), 6), start=np.full((4, 5), 2))]
)
def test_tiles_are_the_sum_of_their_embeddings(space):
    encoder = Tiles(space, EncoderConfig(hidden=(), tile_dim=3))
    grid = sample(space, 7)
    expected = torch.zeros(7, 4, 5, 3)
    for n, y, x, c in np.ndindex(7, 4, 5, encoder.sides[2]):
        symbol = int(grid.reshape(7, 4, 5, -1)[n, y, x, c]) - encoder.low
        expected[n, y, x] += encoder.table.weight[c * encoder.vocabulary + symbol].detach()
    torch.testing.assert_close(encoder(grid), expected.flatten(1))


@pytest.mark.parametrize("kind", [ImpalaResNet, BalletCNN])
def test_many_images_are_encoded_in_blocks_with_the_same_numbers(kind, monkeypatch):
    encoder = kind(pixels(24, 24, 4)).double()
    images = torch.randint(0, 256, (7, 24, 24, 4), dtype=torch.uint8)
    sizes = []
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda block: (sizes.append(len(block)), encode(block))[1])
    whole = encoder(images)
    whole.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in encoder.parameters()]
    encoder.zero_grad()
    widest = 16 if kind is ImpalaResNet else 4
    monkeypatch.setattr(image_encoders, "LARGEST_MAP", 3 * 24 * 24 * widest * 8)
    blocks = encoder(images)
    blocks.square().sum().backward()
    assert sizes == [7, 3, 3, 1]
    torch.testing.assert_close(blocks, whole)
    for parameter, gradient in zip(encoder.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("num_words", [1, 4])
def test_words_are_read_one_by_one_up_to_the_last(num_words, normed):
    config = EncoderConfig(sentence_dim=6, word_dim=5, norm_sentences=normed)
    encoder = WordLSTM(spaces.MultiDiscrete([9] * num_words), config)
    words = torch.randint(1, 9, (20, num_words))
    words[3:6, 1:] = 0
    words[6] = 0
    words[9] = words[2]
    got = encoder(words)
    assert got.shape == (20, 6)
    for row in range(20):
        sentence = words[row][words[row] != 0]
        expected = encoder.lstm(encoder.table(sentence)[None])[0][0, -1] if len(sentence) else torch.zeros(6)
        if normed and len(sentence):
            expected = torch.nn.functional.layer_norm(expected, (6,))
        torch.testing.assert_close(got[row], expected)
    got.square().sum().backward()
    shared = [parameter.grad.clone() for parameter in encoder.parameters()]
    encoder.zero_grad()
    torch.cat([encoder(words[row : row + 1]) for row in range(20)]).square().sum().backward()
    for one, two in zip(shared, encoder.parameters(), strict=True):
        torch.testing.assert_close(one, two.grad)


@pytest.mark.filterwarnings("ignore:The tensor attributes .* were assigned during export")  # by nn.LSTM
@pytest.mark.parametrize("num_words", [1, 4])
def test_sentences_are_exported_for_any_number_of_rows(num_words):
    encoder = WordLSTM(spaces.MultiDiscrete([9] * num_words), EncoderConfig(sentence_dim=6, word_dim=5)).eval()
    words = torch.randint(9, (20, num_words))
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(encoder, (words[:3],), dynamic_shapes=({0: rows},)).module()
    for count in (2, 12, 20):
        torch.testing.assert_close(exported(words[:count]), encoder(words[:count]))


def test_parts_stand_side_by_side_in_order_and_may_be_nested():
    space = spaces.Dict(
        {
            "place": spaces.Box(-1, 1, (2,)),
            "language": spaces.MultiDiscrete([5] * 3),
            "inner": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Dict({"image": pixels(20, 20, 3)})]),
        }
    )
    encoder = ObservationEncoder(space, EncoderConfig(hidden=(4,), sentence_dim=6))
    assert list(encoder.parts) == ["inner/0", "inner/1/image", "language", "place"]
    observation = sample(space, 2, 3)
    vectors = encoder(observation, 2)
    assert vectors.shape == (2, 3, 3 + 3 * 3 * 32 + 6 + 4)
    torch.testing.assert_close(vectors[..., :3], F.one_hot(observation["inner"][0] - 1, 3).float())
    place = encoder.encoders["place"](observation["place"].flatten(0, 1)).unflatten(0, (2, 3))
    torch.testing.assert_close(vectors[..., -4:], place)


@pytest.mark.parametrize("name", ["keys", "items", "type", "training", "train"])
def test_parts_may_be_called_what_attributes_of_modules_are(name):
    space = spaces.Dict({name: spaces.Box(0, 1, (3,)), "place": pixels(24, 24, 3)})
    observation = sample(space, 2, 3)
    called = ObservationEncoder(space, EncoderConfig(kinds=((name, "mlp"),), norm_numbers=True))
    assert called.train().training and called.encoders[name].training
    assert [part for part, _ in called.encoders.items()] == list(space.spaces)
    called.update_statistics(observation)
    assert called.encoders[name].norm.count == 6
    assert called(observation, 2).shape == (2, 3, called.dim)
    again = ObservationEncoder(space, EncoderConfig(norm_numbers=True))
    again.load_state_dict(called.state_dict())
    torch.testing.assert_close(again(observation, 2), called(observation, 2), rtol=0, atol=0)


def test_choices_are_as_large_as_normalised_numbers():
    space = spaces.Dict(
        {"many": spaces.Discrete(16), "some": spaces.MultiDiscrete([2, 3]), "two": spaces.MultiBinary(2)}
    )
    observation = {"many": [5], "some": [[1, 0]], "two": [[0, 1]]}
    batch = {name: torch.tensor(value) for name, value in observation.items()}
    plain = ObservationEncoder(space, EncoderConfig())(batch, 1)
    large = ObservationEncoder(space, EncoderConfig(norm_choices=True))(batch, 1)
    lengths = [4.0, 2**0.5, 3**0.5, 2**0.5, 2**0.5]
    torch.testing.assert_close(large[large > 0], torch.tensor(lengths))
    assert torch.equal(large > 0, plain == 1)
    parts = large.split([16, 2, 3, 2, 2], -1)
    for part in parts:
        assert part.square().mean() == pytest.approx(1)


def test_image_settings_reach_the_encoder():
    config = EncoderConfig(channels=(4, 5, 6), scale_images=False)
    encoder = ObservationEncoder(pixels(20, 20, 3), config).encoders["observation"]
    assert encoder.channels == (4, 5, 6)
    assert encoder.scale == 1


def test_bytes_that_are_no_image_are_scaled_too():
    encoder = MLP(pixels(4), EncoderConfig(hidden=()))
    torch.testing.assert_close(
        encoder(torch.tensor([[0, 51, 255, 102]], dtype=torch.uint8)), torch.tensor([[0, 0.2, 1, 0.4]])
    )


def test_bfloat16_autocast_reads_bytes_exactly_enough():
    encoder = ObservationEncoder(pixels(99, 99, 3), EncoderConfig())
    images = sample(pixels(99, 99, 3), 2, 1)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = encoder(images, 2)
    wide = encoder(images, 2)
    assert (narrow.float() - wide).abs().max() < 0.02 * wide.abs().max() + 0.01


@pytest.mark.parametrize(
    ("space", "config", "message"),
    [
        (spaces.Text(4), EncoderConfig(), "observation: an agent cannot read a Text space"),
        (
            spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}),
            EncoderConfig(),
            "a: an agent cannot read a Sequence",
        ),
        (spaces.Dict({"": spaces.Discrete(2)}), EncoderConfig(), r"has the key '', for Discrete\(2\): give it a name"),
        (spaces.Dict({1: spaces.Discrete(2)}), EncoderConfig(), r"has the key 1, for Discrete\(2\): give it a name"),
        (spaces.Dict({}), EncoderConfig(), "is empty"),
        (spaces.Discrete(2), EncoderConfig(kinds=(("image", "tiles"),)), "this observation has the parts observation"),
        (spaces.Discrete(2), EncoderConfig(kinds=(("observation", "tiles"),)), "observation: .*holds no symbols"),
        (spaces.Discrete(2), EncoderConfig(kinds=(("observation", "mlp"),)), "holds no numbers"),
        (spaces.Discrete(2), EncoderConfig(kinds=(("observation", "words"),)), "holds no sentences"),
        (pixels(20, 20), EncoderConfig(kinds=(("observation", "one-hot"),)), "holds no choices"),
        (
            pixels(20, 20),
            EncoderConfig(kinds=(("observation", "nature-cnn"),)),
            "too small for NatureCNN, which needs 36",
        ),
        (
            pixels(8, 7),
            EncoderConfig(kinds=(("observation", "impala-resnet-instance-norm"),)),
            "observation: images of 8 x 7 become a map of one place",
        ),
    ],
)
def test_spaces_without_encoder_are_refused_with_a_remedy(space, config, message):
    with pytest.raises(ValueError, match=message):
        ObservationEncoder(space, config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kinds": (("image", "vgg"),)}, "image: vgg"),
        ({"channels": (16, 32)}, "three positive widths"),
        ({"hidden": (0,)}, "hidden"),
        ({"activation": "gelu"}, "activation='gelu'"),
        ({"tile_dim": 0}, "tile_dim=0"),
    ],
)
def test_bad_config_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        EncoderConfig(**fields)


def test_bad_observations_are_named():
    encoder = ObservationEncoder(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(2)}), EncoderConfig())
    with pytest.raises(ValueError, match="has no part 'b'"):
        encoder({"a": torch.zeros(1, 1, 2)}, 2)
    with pytest.raises(ValueError, match=r"a has shape \[1, 2\]; this agent takes \[b, t, 2\]"):
        encoder({"a": torch.zeros(1, 2), "b": torch.zeros(1, 1)}, 2)
    with pytest.raises(ValueError, match="give a dict"):
        encoder(torch.zeros(1, 1, 2), 2)


def test_empty_cells_begin_as_zeros_in_every_channel():
    space = spaces.Box(0, np.full((2, 3, 2), [4, 6]), (2, 3, 2), np.int16)
    encoder = Tiles(space, EncoderConfig(hidden=(), tile_dim=3))
    grid = torch.zeros(1, 2, 3, 2, dtype=torch.int16)
    assert not encoder(grid).any()
    grid[0, 1, 2, 1] = 5
    cells = encoder(grid).view(2, 3, 3)
    assert cells[1, 2].all()
    assert not cells.flatten(0, 1)[:-1].any()


@pytest.mark.parametrize(
    "shape", [(40, 44, 2), *(pytest.param(s, marks=pytest.mark.long) for s in ((2, 40, 44), (40, 44)))]
)
@pytest.mark.parametrize("kind", ["nature-cnn", "impala-resnet"])
def test_normalised_images_are_those_of_their_own_statistics(kind, shape):
    torch.manual_seed(0)
    encoder = ObservationEncoder(pixels(*shape), EncoderConfig(kinds=(("observation", kind),), norm_images=True))
    plain = ObservationEncoder(
        spaces.Box(-10, 10, shape), EncoderConfig(kinds=(("observation", kind),), scale_images=False)
    )
    plain.load_state_dict(encoder.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(0)
    seen = torch.randint(0, 256, (2, 300, *shape), generator=generator, dtype=torch.uint8)
    seen[..., 3, :] = 87  # never moves
    before = encoder(seen[0, :3], 1)
    torch.testing.assert_close(before, plain(seen[0, :3] / 255, 1))  # the identity, before anything is known
    assert encoder.keeps_statistics
    encoder.update_statistics(seen)
    flat = seen.flatten(0, 1).double()
    moves = flat.var(0, unbiased=False) > 0
    normed = torch.where(moves, (flat - flat.mean(0)) / flat.std(0, unbiased=False), 0.0)
    torch.testing.assert_close(encoder(seen[1, -3:], 1), plain(normed[-3:].float(), 1), atol=2e-4, rtol=2e-4)


def test_a_rarely_lit_pixel_counts_in_a_bright_image():
    """What one of many bright pixels says is a small share of a first map; normalised it is not."""
    seen = torch.full((64, 40, 40), 200, dtype=torch.uint8)
    seen[::2, 20, 20] = 230
    shares: list[float] = []
    for norm in (False, True):
        torch.manual_seed(0)
        kinds = (("observation", "nature-cnn"),)
        encoder = ObservationEncoder(pixels(40, 40), EncoderConfig(kinds=kinds, norm_images=norm))
        encoder.update_statistics(seen[:, None])
        vectors = encoder(seen, 1).detach()
        shares.append(float(vectors.std(0).norm() / vectors.norm(dim=1).mean()))
    assert shares[1] > 10 * shares[0]
