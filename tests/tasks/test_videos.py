"""Videos: the procedural world, and loaders on files that these tests write."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect.tasks import Charades, ShapeActivities, Thumos
from recollect.tasks.memory_requirements import measure
from recollect.tasks.videos.thumos import CLASSES
from recollect.tasks.videos.video_files import VideoReader, VideoWriter, read_video

SMALL = ShapeActivities(length=20, max_lag=12)


def draw(task, rows=8, seed=0):
    return task.sample(rows, torch.Generator().manual_seed(seed))


def test_a_batch_of_videos():
    batch, again = draw(SMALL), draw(SMALL)
    assert batch.inputs.shape == (8, 20, 32, 32, 3) and batch.inputs.dtype == torch.uint8
    assert batch.targets.shape == (8, 20, 12) and set(batch.targets.unique().tolist()) == {0.0, 1.0}
    assert all(torch.equal(a, b) for a, b in zip(batch, again, strict=True) if a is not None)
    assert not torch.equal(batch.inputs, draw(SMALL, seed=1).inputs)
    assert (batch.targets[..., 4:8].sum(-1) == 1).all(), "the ball always moves in one direction"
    assert (batch.targets.sum(-1) > 1).any(), "activities overlap"


def test_what_is_taken_was_put_there_a_lag_ago_and_is_not_to_be_seen():
    task = ShapeActivities(boxes=1, min_lag=5, max_lag=9, length=40, noise=0)
    batch = draw(task, 64)
    took = batch.targets[..., 8:]
    assert torch.equal(took.any(-1), batch.source >= 0)
    for row, t in (batch.source >= 0).nonzero().tolist():
        kind, source = int(took[row, t].argmax()), int(batch.source[row, t])
        assert batch.targets[row, source, kind] == 1 and batch.targets[row, source + 1, :4].sum() == 0
        assert 5 <= t - source <= 9 + 2
    # Frames of taking are the same whatever is taken, but for the ball.
    below = batch.inputs[:, :, 20:]
    first = [
        below[row, t] for row in range(64) for t in range(1, 40) if took[row, t].any() and not took[row, t - 1].any()
    ]
    assert len(first) > 20 and all(torch.equal(first[0], other) for other in first)


def test_the_ruler_says_lag_and_bits():
    near, far = measure(ShapeActivities(min_lag=2, max_lag=4), 64), measure(ShapeActivities(min_lag=20), 64)
    assert near.lag_high <= 6 and far.lag >= 20 and near.bits == far.bits == 4.0


def test_larger_frames_show_the_same():
    large = draw(replace(SMALL, size=64, noise=0), 2).inputs.float()
    small = draw(replace(SMALL, noise=0), 2).inputs.float()
    averaged = large.unflatten(2, (32, 2)).unflatten(4, (32, 2)).mean((3, 5))
    assert (averaged - small).abs().mean() < 6


@pytest.mark.parametrize(("field", "value"), [("shapes", 1), ("boxes", 4), ("min_lag", 0), ("length", 10), ("size", 8)])
def test_bad_fields_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}"):
        ShapeActivities(**{field: value})


def write_film(path, frames, rate=10):
    writer = VideoWriter(path, rate, frames[0].shape[:2])
    for frame in frames:
        writer.add(frame)
    writer.close()


def grey(levels, side=32):
    return [np.full((side, side, 3), level, np.uint8) for level in levels]


HEADER = "id,subject,scene,actions,length\n"


@pytest.fixture
def charades(tmp_path):
    pytest.importorskip("av")
    films = tmp_path / "Charades_v1_480"
    films.mkdir()
    for name in ("AAAAA", "BBBBB"):
        write_film(films / f"{name}.mp4", grey(range(0, 250, 10)))  # 2.5 s at 10 a second: brightness tells the time
    for half in ("train", "test"):
        rows = 'AAAAA,s,Kitchen,c001 0.50 1.00;c156 0.00 9.00,2.5\nBBBBB,s,"Hall, dark",,2.5\n'
        (tmp_path / f"Charades_v1_{half}.csv").write_text(HEADER + rows)
    return Charades(path=str(tmp_path), size=16, rate=5, length=8)


def test_charades_frames_and_labels_are_those_of_their_times(charades):
    whole = list(replace(charades, part="test").batches(9, 4, torch.Generator()))
    assert [len(batch.inputs) for batch in whole] == [1, 1]
    batch = whole[0]
    for place, frame in enumerate(batch.inputs[0]):
        assert abs(float(frame.float().mean()) - 10 * place) < 5  # every frame of the film: it is short
    asked = batch.score_mask[0].nonzero()[:, 0]
    assert len(asked) == 25 and not whole[1].targets.any()
    assert batch.targets[0, :, 156].all()
    # charades_v1_localize: moments i / 25 * 2.5 s = 0.1 i, both ends included.
    assert batch.targets[0, asked, 1].nonzero()[:, 0].tolist() == [5, 6, 7, 8, 9, 10]


def literal_labels(seconds, activities):
    """charades_v1_localize, line by line."""
    table = [[0] * 157 for _ in range(25)]
    for j in range(1, 26):
        moment = (j - 1) / 25 * seconds
        for kind, start, end in activities:
            if start <= moment <= end:
                table[j - 1][kind] = 1
    return table


def test_charades_scores_25_moments_of_every_film_as_its_own_code_does(tmp_path):
    (tmp_path / "Charades_v1_480").mkdir()
    random, lines, wanted = np.random.default_rng(0), [], []
    for seconds in (0.8, 3.3, 17.5, 31.7):
        name = f"V{round(10 * seconds)}"
        write_film(tmp_path / "Charades_v1_480" / f"{name}.mp4", grey([9] * round(10 * seconds), side=16))
        # Begin and end at moments themselves: the last bit of a number decides.
        times = [sorted(random.choice(25, 2) / 25 * seconds) for _ in range(40)]
        told = [(k, round(start, 2), round(end, 2)) for k, (start, end) in enumerate(times)]
        lines.append(f"{name},s,K,{';'.join(f'c{k:03d} {start:.2f} {end:.2f}' for k, start, end in told)},{seconds}\n")
        wanted.append(literal_labels(seconds, told))
    (tmp_path / "Charades_v1_test.csv").write_text(HEADER + "".join(lines))
    batches = Charades(path=str(tmp_path), size=8, part="test").batches(9, 1, torch.Generator())
    for batch, labels in zip(batches, wanted, strict=True):
        assert batch.targets[0, batch.score_mask[0]].tolist() == labels


def test_a_film_that_ends_long_before_the_table_says_is_named(charades, tmp_path):
    table = tmp_path / "Charades_v1_test.csv"
    table.write_text(HEADER + "AAAAA,s,Kitchen,,9.0\n")
    with pytest.raises(ValueError, match=r"AAAAA\.mp4 ends before second 2\..*lasts 9\.0"):
        next(replace(charades, part="test").batches(1, 1, torch.Generator()))


def test_a_part_without_a_video_is_named(charades, tmp_path):
    (tmp_path / "Charades_v1_train.csv").write_text(HEADER + "AAAAA,s,Kitchen,,2.5\n")
    with pytest.raises(ValueError, match=r"Charades_v1_train\.csv: part='train' has no video: there are 1"):
        draw(charades, 2)


def test_charades_is_cut_to_pieces_for_training(charades):
    batch = draw(replace(charades, part="validation"), 3)
    assert batch.inputs.shape == (3, 8, 16, 16, 3) and batch.loss_mask.all()
    assert charades.spec.num_classes == len(charades.class_names) == 157


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: no column"),
        ("id,actions\nA,\n", "line 1: no column length"),
        (HEADER, "it has no video"),
        (HEADER + "AAAAA,s,Kitchen\n", "line 2: the line is cut off"),
        (HEADER + "AAAAA,s,K,c157 0 1,3\n", "line 2: class c157"),
        (HEADER + "AAAAA,s,K,c001 0 1,3\nBBBBB,s,K,c1 x 2,3\n", "line 3: start='x'"),
        (HEADER + "AAAAA,s,K,walks 0 1,3\n", "line 2: 'walks 0 1' is no action"),
        (HEADER + "AAAAA,s,K,,zero\n", "line 2: length='zero'"),
    ],
)
def test_damaged_tables_of_charades_name_file_and_line(tmp_path, text, said):
    file = tmp_path / "Charades_v1_test.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=rf"Charades_v1_test\.csv.*{said}"):
        next(Charades(path=str(tmp_path), part="test").batches(1, 1, torch.Generator()))


def test_damaged_films_name_the_film(charades, tmp_path):
    file = tmp_path / "Charades_v1_480" / "AAAAA.mp4"
    whole = file.read_bytes()
    task = replace(charades, part="test")
    for content, said in (
        (whole[: len(whole) // 2], "AAAAA.mp4"),
        (b"", "empty"),
        (b"no film" * 99, "cannot be opened"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            next(task.batches(1, 1, torch.Generator()))
    file.unlink()
    with pytest.raises(ValueError, match="does not exist"):
        next(task.batches(1, 1, torch.Generator()))


@pytest.fixture
def thumos(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "features").mkdir()
    for half in ("val", "test"):
        for name in CLASSES:
            (tmp_path / "annotations" / f"{name}_{half}.txt").write_text("")
        text = "video_1  1.0 2.0\nvideo_1  3.0 3.5\nvideo_2  0.0 1.0\n"
        (tmp_path / "annotations" / f"Diving_{half}.txt").write_text(text)
    np.save(tmp_path / "features" / "video_1.npy", np.arange(40, dtype=np.float32).reshape(10, 4))
    np.savez(tmp_path / "features" / "video_2.npz", np.ones((3, 4), np.float32))
    return Thumos(path=str(tmp_path), feature_dim=4, seconds_per_step=0.5, length=6)


def test_thumos_features_and_labels(thumos):
    one, two = replace(thumos, part="test").batches(9, 4, torch.Generator())
    diving = CLASSES.index("Diving")
    assert one.inputs.shape == (1, 10, 4) and one.inputs[0, 2, 0] == 8
    assert one.targets[0, :, diving].nonzero()[:, 0].tolist() == [2, 3, 4, 6, 7]
    assert two.score_mask.shape == (1, 3) and one.targets.sum() == 5
    batch = draw(thumos, 4)
    assert batch.inputs.shape == (4, 6, 4) and (batch.inputs[~batch.loss_mask] == 0).all()


def test_damaged_files_of_thumos_are_named(thumos, tmp_path):
    task = replace(thumos, part="test")
    file = tmp_path / "features" / "video_1.npy"
    whole = file.read_bytes()
    nan = np.zeros((5, 4), np.float32)
    nan[3, 1] = np.nan
    noise = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    for arrays, cut, said in (
        ({"a": noise, "b": noise}, None, "arrays a, b, and one is needed"),
        ({}, None, "arrays none"),
        ({"a": noise}, slice(200, 260), "cut off or damaged"),
    ):
        packed = tmp_path / "features" / "video_2.npz"
        np.savez_compressed(packed, **arrays)
        if cut is not None:
            content = bytearray(packed.read_bytes())
            content[cut] = bytes(60)
            packed.write_bytes(content)
        with pytest.raises(ValueError, match=rf"video_2\.npz.*{said}"):
            list(task.batches(2, 1, torch.Generator()))
    for broken, said in (
        (whole[:-9], "cut off"),
        (b"", "cut off"),
        (np.zeros((4, 3), np.float32), "width 3"),
        (nan, "step 3"),
    ):
        if isinstance(broken, bytes):
            file.write_bytes(broken)
        else:
            np.save(file, broken)
        with pytest.raises(ValueError, match=rf"video_1\.npy.*{said}"):
            next(task.batches(1, 1, torch.Generator()))
    lines = tmp_path / "annotations" / "Shotput_test.txt"
    lines.write_text("video_1 1 2\nvideo_1 5 4\n")
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "annotations").rename(other / "annotations")
    with pytest.raises(ValueError, match=r"Shotput_test\.txt, line 2: it ends"):
        next(replace(task, path=str(other)).batches(1, 1, torch.Generator()))


def test_a_broken_frame_is_told_and_passed_over(tmp_path):
    pytest.importorskip("av")
    file = tmp_path / "film.avi"
    noise = np.random.default_rng(0).integers(0, 255, (12, 64, 64, 3), dtype=np.uint8)
    write_film(file, list(noise))
    assert [frame.number for frame in read_video(file)] == list(range(12))
    content = bytearray(file.read_bytes())
    size = len(content)
    content[size // 2 : size // 2 + 3000] = bytes(3000)
    file.write_bytes(bytes(content[: size - size // 8]))
    frames = list(read_video(file))
    assert 1 <= sum(frame.pixels is not None for frame in frames) < len(frames) <= 12
    with pytest.raises(ValueError, match="does not exist"):
        VideoReader("/dev/video99")


def test_a_frame_that_the_decoder_guesses_is_broken(tmp_path):
    """Decoders hide damage: they fill it in from the frames around it, and raise nothing."""
    pytest.importorskip("av")
    file = tmp_path / "film.mp4"
    noise = np.random.default_rng(0).integers(0, 255, (12, 64, 64, 3), dtype=np.uint8)
    write_film(file, list(noise))
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    file.write_bytes(content)
    frames = list(read_video(file))
    assert len(frames) == 12 and 1 <= sum(frame.pixels is None for frame in frames) < 6


def test_a_film_of_a_telephone_held_upright_is_turned(tmp_path):
    pytest.importorskip("av")
    file = tmp_path / "film.mp4"
    frame = np.zeros((32, 64, 3), np.uint8)
    frame[:16, :32] = 250
    write_film(file, [frame] * 2)
    content = bytearray(file.read_bytes())
    begin = content.index(b"tkhd") + 40  # of the matrix by which a film is shown
    content[begin : begin + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 32 << 16, 0, 1 << 30)
    file.write_bytes(content)
    for shown in read_video(file):
        assert shown.pixels is not None and shown.pixels.shape == (64, 32, 3)
        assert shown.pixels[4, -4, 0] > 240 and shown.pixels[:, :12].max() < 10
