"""Pictures: shapes whose foreground is exact, and loaders of published files on small ones."""

import contextlib
import math
import pickle

import image_files
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from recollect.layers.positions import from_patches, patches
from recollect.tasks import CIFAR, STL10, Shapes
from recollect.tasks.images import shapes
from recollect.tasks.images.cifar_files import read_batch
from recollect.tasks.images.contract import normalize
from recollect.tasks.images.outlines import OUTLINES
from recollect.tasks.images.photographs import shift_and_mirror
from recollect.tasks.images.stl10 import BYTES
from recollect.tasks.images.views import corrupt, draw_boxes, random_view, rotate

SHARED = [0, 1]  # lists that share themselves: few bytes in the file, and twice as many numbers at each level
for _ in range(40):
    SHARED = [SHARED, SHARED]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def corners(name):
    """Corners of those shapes that are polygons, in the shape's own frame."""
    if name == "square":
        return [(-0.7, -0.7), (0.7, -0.7), (0.7, 0.7), (-0.7, 0.7)]
    if name == "bar":
        return [(-1.0, -0.32), (1.0, -0.32), (1.0, 0.32), (-1.0, 0.32)]
    if name == "triangle":
        far, half = 2 * 0.47, math.sqrt(3) / 2
        return [(0.0, -far), (far * half, 0.47), (-far * half, 0.47)]
    if name == "star":
        points = []
        for i in range(10):
            length, angle = (1.0, 0.42)[i % 2], i * math.pi / 5
            points.append((length * math.sin(angle), -length * math.cos(angle)))
        return points
    a, b = 0.28, 0.9
    return [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]


def is_inside(name, x, y):
    """By another way than the outlines go: circles, and rays that cross the edges of polygons."""
    if name == "disc":
        return x * x + y * y < 0.8**2
    if name == "ring":
        return 0.4**2 < x * x + y * y < 0.84**2
    if name == "crescent":
        return x * x + y * y < 0.9**2 and (x - 0.45) ** 2 + y * y > 0.7**2
    found, points = False, corners(name)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
        if (ay > y) != (by > y) and x < ax + (y - ay) / (by - ay) * (bx - ax):
            found = not found
    return found


@pytest.mark.parametrize("name", OUTLINES)
def test_outlines_are_the_shapes(name):
    points = torch.rand(400, 2, generator=generator(), dtype=torch.float64) * 2.2 - 1.1
    found = OUTLINES[name](points[:, 0], points[:, 1]) <= 0
    assert found.tolist() == [is_inside(name, x, y) for x, y in points.tolist()]
    assert 0.1 < found.double().mean() < 0.6


def test_the_foreground_is_the_shape_to_the_pixel():
    labels = torch.arange(8).repeat(2)
    scene = torch.rand(shapes.SCENE_NUMBERS, 16, 1, 1, generator=generator(), dtype=torch.float64)
    found = shapes.draw(labels, scene, torch.zeros(0, 8, 16, 1, 1, dtype=torch.float64), 32)
    scale, dx, dy, turn = (part.flatten().tolist() for part in scene[8:12])
    for row, name in enumerate([*OUTLINES] * 2):
        s = 0.42 + 0.26 * scale[row]
        mx, my, angle = (1 - s) * (2 * dx[row] - 1), (1 - s) * (2 * dy[row] - 1), math.radians(20) * (2 * turn[row] - 1)
        for i, j in [(i, j) for i in range(0, 32, 3) for j in range(0, 32, 3)]:
            x, y = ((j + 0.5) / 16 - 1 - mx) / s, ((i + 0.5) / 16 - 1 - my) / s
            x, y = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
            assert bool(found.foreground[row, i, j]) == is_inside(name, x, y), (name, i, j)


def test_the_same_scene_is_drawn_at_every_size():
    small, large = (Shapes(size=size, patch=8).pictures(32, generator(3)) for size in (64, 128))
    assert torch.equal(small.labels, large.labels)
    shrunk = F.avg_pool2d(large.images, 2)
    assert (shrunk - small.images).abs().mean() < 0.005 and (shrunk - small.images).abs().max() < 0.5
    share = F.avg_pool2d(large.foreground[:, None].float(), 2)[:, 0]
    assert torch.equal(small.foreground[share == 1].all(), torch.tensor(True))
    assert not small.foreground[share == 0].any()
    assert small.foreground.float().mean((1, 2)).min() > 0.05 and small.foreground.float().mean((1, 2)).max() < 0.4


def test_shapes_are_lighter_than_what_is_behind_them_and_strokes_are_in_the_way():
    many, none = (Shapes(clutter=clutter).pictures(64, generator()) for clutter in (8, 0))
    light = none.images.mean(1)
    inside, outside = light[none.foreground].mean(), light[~none.foreground].mean()
    assert inside > outside + 0.2
    assert (many.images - none.images).abs().mean() > 0.01
    again = Shapes().pictures(64, generator())
    assert torch.equal(again.images, many.images) and torch.equal(again.foreground, many.foreground)
    assert not torch.equal(Shapes().pictures(64, generator(1)).images, many.images)


def test_light_from_any_side_tells_nothing_about_how_a_picture_is_turned():
    def slopes(light):
        images = Shapes(clutter=0, light=light).pictures(400, generator()).images.mean(1)
        return images[:, :16].mean((1, 2)) - images[:, -16:].mean((1, 2))  # top less bottom

    above, anywhere = slopes("above"), slopes("any-side")
    assert (above > 0).float().mean() > 0.9
    assert 0.4 < (anywhere > 0).float().mean() < 0.6
    assert anywhere.abs().mean() > 0.3 * above.abs().mean(), "there is light"


def test_a_pair_is_one_picture_or_two_scenes_with_the_same_shape():
    one, same = Shapes().picture_pairs(8, generator())
    assert torch.equal(one, same) and torch.equal(one, Shapes().pictures(8, generator()).images)
    task = Shapes(clutter=0, pair="same-shape", light="any-side")
    one, other = task.picture_pairs(64, generator())
    assert (one - other).abs().mean((1, 2, 3)).min() > 0.02
    inside = task.pictures(64, generator()).foreground  # the first scenes of the same draws
    border = F.max_pool2d(inside[:, None].float(), 5, 1, 2)[:, 0].bool() & ~inside
    for images in (one, other):
        light = images.mean(1)
        inner, outer = ((light * part).sum((1, 2)) / part.sum((1, 2)) for part in (inside, border))
        assert (inner > outer).all(), "the shape is at the same place"
    colours = [(images * inside[:, None]).sum((2, 3)) / inside.sum((1, 2))[:, None] for images in (one, other)]
    assert abs(torch.corrcoef(torch.stack([c.flatten() for c in colours]))[0, 1]) < 0.3, "in other colours"


def test_rows_are_patches_row_by_row():
    task = Shapes(size=16, patch=4)
    pictures, batch = task.pictures(3, generator()), task.sample(3, generator())
    assert batch.inputs.shape == (3, 16, 48) == (3, task.spec.length, task.spec.input_dim)
    wanted = normalize(pictures.images)[:, :, 4:8, 8:12].flatten(1)
    assert torch.equal(batch.inputs[:, 1 * 4 + 2], wanted)
    assert torch.equal(from_patches(patches(pictures.images, 4), 4), pictures.images)
    weight = torch.randn(5, 3, 4, 4)
    convolved = F.conv2d(pictures.images, weight, stride=4).flatten(2).mT
    torch.testing.assert_close(patches(pictures.images, 4) @ weight.flatten(1).T, convolved)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_is_read_in_colour(tmp_path, classes):
    task = CIFAR(path=str(image_files.cifar(tmp_path, classes)), classes=classes, validation=3, augment=False, size=32)
    halves = [task, task.scored_on(final=False), task.scored_on(final=True)]
    found = [next(part.picture_batches(99, 99, generator())) for part in halves]
    assert [len(one.labels) for one in found] == ([17, 3, 4] if classes == 10 else [7, 3, 10])
    first = pickle.loads((tmp_path / ("data_batch_1" if classes == 10 else "train")).read_bytes())
    wanted = torch.from_numpy(first[b"data"][2].reshape(3, 32, 32)).float() / 255
    assert torch.equal(found[0].images[2], wanted)
    assert found[0].labels[:4].tolist() == ([0, 3, 9, 1] if classes == 10 else [0, 99, 5, 42])
    large = next(CIFAR(path=str(tmp_path), classes=classes, validation=3).picture_batches(3, 3, generator())).images
    enlarged = F.interpolate(found[0].images[:3], size=(64, 64), mode="bilinear", align_corners=False)
    torch.testing.assert_close(large, enlarged)
    assert task.spec.num_classes == classes


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "test").write_bytes((f / "train").read_bytes()), r"test is the same as .*train: unpack"),
        (
            lambda f: image_files.cifar_file(f / "train", [1, True], 100),
            r"train.*labels are bool.*, not whole numbers",
        ),
        (lambda f: (f / "train").unlink(), r"train does not exist: .*docs/datasets.md"),
        (lambda f: (f / "train").write_bytes(b""), r"train is damaged, or no batch of CIFAR-100"),
        (lambda f: (f / "train").write_bytes((f / "train").read_bytes()[:5000]), r"train is damaged"),
        (lambda f: image_files.cifar_file(f / "train", [1, 100], 100), r"train, picture 1: the label is 100;.*0..99"),
        (lambda f: image_files.cifar_file(f / "train", [1, 2], 10), r"train is damaged.*fine_labels"),
        (lambda f: image_files.cifar_file(f / "train", [1], 100, np.zeros((2, 3072), np.uint8)), r"\[1\] labels for 2"),
        (lambda f: image_files.cifar_file(f / "train", SHARED, 100), r"train.*labels are list, not whole numbers"),
        (lambda f: image_files.cifar_file(f / "train", np.ones(2, bool), 100), r"train: labels are bool, not whole"),
        (
            lambda f: image_files.cifar_file(f / "train", [1], 100, np.zeros((2, 99), np.uint8)),
            r"not uint8 \[n, 3072\]",
        ),
    ],
)
def test_damaged_files_of_cifar_are_named(tmp_path, damage, message):
    damage(image_files.cifar(tmp_path, 100))
    with pytest.raises(ValueError, match=message):
        CIFAR(path=str(tmp_path), classes=100, validation=2).sample(2, generator())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("protocol", [2, *(pytest.param(number, marks=pytest.mark.long) for number in (4, 5))])
def test_any_damage_of_a_file_of_cifar_is_named(tmp_path, protocol):
    """NumPy's own unpickling ends the process on some of these, and raises other errors on others."""
    draw, file = np.random.default_rng(protocol), tmp_path / "test_batch"
    data = draw.integers(0, 256, (2, 3072), dtype=np.uint8)
    whole = pickle.dumps({b"data": data, b"labels": np.array([3, 9])}, protocol=protocol)
    arguments = {"labels": "labels", "classes": 10, "remedy": ""}
    file.write_bytes(whole)
    pictures, labels = read_batch(file, **arguments)
    assert np.array_equal(pictures, data) and labels.tolist() == [3, 9]
    places = [place for place in range(len(whole)) if place < 200 or place > len(whole) - 200]
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[draw.choice(places)] = draw.integers(256)
        file.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            read_batch(file, **arguments)


def test_stl10_is_read_column_by_column(tmp_path):
    folder = image_files.stl10(tmp_path)
    task = STL10(path=str(folder), patch=16, validation=2, augment=False)
    found = next(task.picture_batches(99, 99, generator()))
    assert found.labels.tolist() == [0, 9, 4, 1] and found.images.shape == (4, 3, 96, 96)
    raw = (folder / "train_X.bin").read_bytes()
    for channel, y, x in ((0, 0, 1), (2, 50, 7)):
        assert found.images[1, channel, y, x] == raw[BYTES + channel * 96 * 96 + x * 96 + y] / 255
    assert len(next(task.scored_on(final=True).picture_batches(99, 99, generator())).labels) == 4
    unlabelled = STL10(path=str(folder), patch=16, validation=2, unlabelled=True)
    assert unlabelled.pictures(3, generator()).labels.tolist() == [0, 0, 0]
    assert len(next(unlabelled.probed_on().picture_batches(99, 99, generator())).labels) == 4


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "train_X.bin").unlink(), r"train_X.bin does not exist: .*docs/datasets.md"),
        (lambda f: (f / "train_y.bin").unlink(), r"train_y.bin does not exist: .*docs/datasets.md"),
        (lambda f: (f / "train_X.bin").write_bytes(b""), r"train_X.bin is empty"),
        (
            lambda f: (f / "train_X.bin").write_bytes(bytes(BYTES + 9)),
            r"train_X.bin, picture 1: the file ends after 9 of",
        ),
        (lambda f: (f / "train_y.bin").write_bytes(bytes([1, 2])), r"train_y.bin: 2 labels for 6 pictures"),
        (lambda f: (f / "train_y.bin").write_bytes(bytes([1, 2, 0, 3, 4, 5])), r"picture 2: the label is 0;.*1..10"),
    ],
)
def test_damaged_files_of_stl10_are_named(tmp_path, damage, message):
    damage(image_files.stl10(tmp_path))
    with pytest.raises(ValueError, match=message):
        STL10(path=str(tmp_path), patch=16, validation=2).sample(2, generator())


def test_pictures_are_shifted_and_mirrored():
    images = torch.rand(64, 3, 8, 8) + 0.1
    found = shift_and_mirror(images, 2, generator())
    padded = F.pad(images, (2, 2, 2, 2))
    seen = set()
    for one, wide in zip(found, padded, strict=True):
        flipped = F.pad(wide[:, 2:-2, 2:-2].flip(2), (2, 2, 2, 2))
        matches = [
            (mirror, dy, dx)
            for mirror, source in enumerate((wide, flipped))
            for dy in range(5)
            for dx in range(5)
            if torch.equal(one, source[:, dy : dy + 8, dx : dx + 8])
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 20 and {mirror for mirror, _, _ in seen} == {0, 1}


def test_views_are_turned_cut_and_damaged():
    images = Shapes(size=32).pictures(64, generator()).images
    quarters = torch.arange(64) % 4
    for row, quarter in enumerate(quarters[:8].tolist()):
        assert torch.equal(rotate(images, quarters)[row], torch.rot90(images[row], quarter, (1, 2)))
    seen = random_view(images, generator())
    assert seen.shape == images.shape and seen.min() >= 0 and seen.max() <= 1 and not torch.equal(seen, images)
    hurt = corrupt(images, generator())
    gone = (hurt != images).any(1).float().mean((1, 2))
    assert gone.min() > 0.03 and 0.15 < gone.mean() < 0.5
    assert (draw_boxes(images, 4, generator()).float().mean((1, 2)) <= 0.3).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shapes(size=30, patch=4), "size=30: give a multiple of patch=4"),
        (lambda: Shapes(patch=0), "patch=0"),
        (lambda: Shapes(clutter=-1), "clutter=-1"),
        (lambda: Shapes(light="below"), "light='below'"),
        (lambda: Shapes(pair="two"), "pair='two'"),
        (lambda: CIFAR(classes=20), "classes=20: choose 10 or 100"),
        (lambda: CIFAR(part="dev"), "part='dev'"),
        (lambda: CIFAR(validation=0), "validation=0"),
        (lambda: CIFAR().sample(1, generator()), r"data_batch_1 does not exist: .*docs/datasets.md"),
    ],
)
def test_bad_settings_of_pictures_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_no_validation_part_takes_all(tmp_path):
    task = CIFAR(path=str(image_files.cifar(tmp_path)), validation=20)
    with pytest.raises(ValueError, match="validation=20: there are 20 training rows"):
        task.sample(1, generator())
