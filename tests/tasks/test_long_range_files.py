"""Published data of Long Range Arena: what the loaders make of good files, and what they say of bad ones."""

import pickle
import shutil

import numpy as np
import pytest
import torch

from recollect.tasks import AAN, IMDB, GreyCIFAR, Pathfinder
from recollect.tasks.long_range.bytes import split_words
from recollect.tasks.long_range.cifar import to_grey


def draw(task, rows=16):
    return task.sample(rows, torch.Generator().manual_seed(0))


def all_of(task):
    return next(task.batches(10_000, 10_000, torch.Generator()))


def texts_of(batch):
    """The bytes of every row, and its label."""
    rows = [bytes(token - 1 for token in row[row > 0].tolist()) for row in batch.inputs.numpy()]
    return dict(zip(rows, batch.targets.amax(1).tolist(), strict=True))


@pytest.fixture
def reviews(tmp_path):
    for half, count in (("train", 6), ("test", 4)):
        for name, points in (("pos", 8), ("neg", 2)):
            folder = tmp_path / "aclImdb" / half / name
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}_{points}.txt").write_text(f"{half} {name} é {number}")
    return tmp_path / "aclImdb"


def test_reviews_are_read_as_bytes(reviews):
    task = IMDB(path=str(reviews), length=14, validation=3)
    parts = [texts_of(all_of(part)) for part in (task, task.scored_on(final=False), task.scored_on(final=True))]
    assert [len(part) for part in parts] == [9, 3, 8]
    known = {**parts[0], **parts[1]}
    assert known == {
        f"train {name} é {number}".encode()[:14]: label
        for label, name in enumerate(("neg", "pos"))
        for number in range(6)
    }
    assert parts[2].keys() == {f"test {name} é {number}".encode() for name in ("neg", "pos") for number in range(4)}
    arena = IMDB(path=str(reviews), length=14, validation=0)
    assert len(all_of(arena).inputs) == 12 and texts_of(all_of(arena.scored_on(final=False))) == parts[2]
    batch = all_of(task)
    assert torch.equal(batch.padding, batch.inputs == 0)
    assert torch.equal(batch.score_mask.long().argmax(1), (~batch.padding).sum(1) - 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: shutil.rmtree(folder / "train" / "neg"), r"neg has no reviews .*docs/datasets.md"),
        (lambda folder: (folder / "train/pos/1_8.txt").write_text(""), r"1_8.txt is empty: unpack"),
        (lambda folder: (folder / "train/pos/1_8.txt").write_bytes(b"a\nb\xff"), r"1_8.txt, line 2: .*no UTF-8"),
        (lambda folder: (folder / "train/pos/2_2.txt").write_text("bad"), r"2_2.txt.*pos points"),
        (lambda folder: (folder / "train/neg/readme.txt").write_text("hello"), r"readme.txt.*neg points"),
        (
            lambda folder: (folder / "train/pos/99_77.txt").write_text("good"),
            r"99_77.txt.*pos points: 7 to 10",
        ),
        (
            lambda folder: (folder / "train/neg/\u00b2_2.txt").write_text("bad"),
            r"\u00b2_2.txt.*is called NUMBER_POINTS",
        ),
        (lambda folder: (folder / "train/neg/77_2.txt").mkdir(), r"77_2.txt'?: it is no file"),
        (
            lambda folder: (folder / "train/neg/3_2.txt").unlink(),
            r"train has 5 in neg/ and 6 in pos/; .*unpack the arch",
        ),
    ],
)
def test_damaged_reviews_are_named(reviews, damage, message):
    damage(reviews)
    with pytest.raises(ValueError, match=message):
        draw(IMDB(path=str(reviews), validation=1))


def test_words_lie_over_the_borders_of_chunks():
    words = b"every word is cut in two by the end of a chunk".split()
    text = split_words(b" ".join(words), 10)
    assert text.split() == words
    places = [text.index(word) for word in [b"every", b"word", b"cut", b"chunk"]]
    for word, place in zip([b"every", b"word", b"cut", b"chunk"], places, strict=True):
        assert place // 10 != (place + len(word) - 1) // 10, word
    assert split_words(b"a" * 50, 10).split() == [b"a" * 20]
    assert split_words(b"abcdefghij klmnopqrst uvwx", 10) == b"     abcdefghij          klmnopqrst   uvwx"
    assert split_words(b"four four four", 4) == b"  four    four    four"


def test_any_words_stay_apart_and_are_halved_by_the_first_border_there_is_room_for():
    random = np.random.default_rng(0)
    for _ in range(300):
        chunk_len = int(random.integers(1, 14))
        words = [b"x" * int(size) for size in random.integers(1, 30, int(random.integers(0, 12)))]
        text, end = split_words(b" \n".join(words), chunk_len), 0
        assert text.split() == [word[: 2 * chunk_len] for word in words]
        for word in text.split():
            place, half = text.index(word, end), len(word) // 2
            assert (place + half) % chunk_len == 0 and half <= chunk_len
            assert place - end - (end > 0) in range(chunk_len), "no border is left out that has room"
            end = place + len(word)


LINES = ["1\tx\ty\tone text\tother text", "0.0\tx\tz\tone é\tno"]


def pairs(folder, lines):
    for part in ("train", "eval", "test"):
        (folder / f"new_aan_pairs.{part}.tsv").write_bytes(lines)
    return AAN(path=str(folder), length=10)


def test_pairs_are_read_side_by_side(tmp_path):
    task = pairs(tmp_path, ("\n".join(LINES) + "\n").encode())
    batch = all_of(task)
    assert batch.inputs.shape == (2, 20) and task.spec.parts == 2
    halves = [[bytes(t - 1 for t in half[half > 0].tolist()) for half in row.split(10)] for row in batch.inputs]
    assert halves == [[b"one text", b"other text"], ["one é".encode(), b"no"]]
    assert batch.targets.amax(1).tolist() == [1, 0]
    assert torch.equal(batch.padding, batch.inputs == 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "train.tsv is empty"),
        ((LINES[0] + "\n1\tx\ty\tone te").encode(), r"train.tsv, line 2: 4 columns; 5 are needed"),
        ((LINES[0] + "\n" + LINES[1].replace("0.0", "yes")).encode(), r"line 2: the label is 'yes'"),
        (b"1\tx\ty\t \tother", r"line 1: a text is empty"),
        (b"1\tx\ty\tone\tother\xff\xfe", r"line 1: this is no UTF-8"),
        ((LINES[0] + "\n" + LINES[1]).encode(), r"train.tsv, line 2: the line does not end, as if it were cut short"),
    ],
)
def test_damaged_pairs_are_named(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        draw(pairs(tmp_path, content))
    with pytest.raises(ValueError, match=r"does not exist: .*docs/datasets.md"):
        draw(AAN(path=str(tmp_path / "nowhere")))


def batch_file(path, data, labels):
    path.write_bytes(pickle.dumps({b"data": data, b"labels": labels, b"batch_label": b"x"}, protocol=2))


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(0)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        batch_file(tmp_path / name, random.integers(0, 256, (4, 3072), dtype=np.uint8), [0, 3, 9, 1])
    return tmp_path


def test_pictures_are_read_in_grey(pictures):
    task = GreyCIFAR(path=str(pictures), validation=6)
    parts = [all_of(part) for part in (task, task.scored_on(final=False), task.scored_on(final=True))]
    assert [len(part.inputs) for part in parts] == [14, 6, 4]
    colours = pickle.loads((pictures / "data_batch_1").read_bytes())[b"data"][2]
    wanted = [int((0.2989 * r + 0.587 * g + 0.114 * b) / 255 * 255.5) for r, g, b in colours.reshape(3, -1).T.tolist()]
    assert np.abs(parts[0].inputs[2].numpy() - np.array(wanted)).max() <= 1
    assert parts[0].targets[:, -1].tolist()[:5] == [0, 3, 9, 1, 0]
    assert to_grey(np.full((1, 3072), 255, np.uint8)).max() == 255
    assert not parts[0].padding.any() and all_of(GreyCIFAR(path=str(pictures), validation=6)).score_mask[:, -1].all()
    small = GreyCIFAR(path=str(pictures), validation=6, size=16)
    whole, halved = parts[0].inputs[2].view(32, 32), all_of(small).inputs[2].view(16, 16)
    assert small.spec.length == 256
    assert all(halved[y, x] == whole[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].sum() // 4 for y in (0, 5) for x in (0, 15))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "data_batch_2").unlink(), r"data_batch_2 does not exist: .*docs/datasets.md"),
        (lambda f: shutil.copy(f / "data_batch_1", f / "test_batch"), r"test_batch is the same as .*data_batch_1"),
        (lambda f: (f / "data_batch_2").write_bytes(pickle.dumps(print)), r"_2 is damaged.*it names builtins.print"),
    ],
)
def test_damaged_pictures_are_named_and_run_nothing(pictures, damage, message):
    damage(pictures)
    with pytest.raises(ValueError, match=message):
        draw(GreyCIFAR(path=str(pictures), validation=6))


def test_the_test_file_is_compared_with_the_training_files_whichever_half_is_read(pictures):
    shutil.copy(pictures / "data_batch_4", pictures / "test_batch")
    with pytest.raises(ValueError, match=r"test_batch is the same as .*data_batch_4"):
        draw(GreyCIFAR(path=str(pictures), validation=6, part="test"))


def test_a_path_may_begin_at_home(reviews, monkeypatch):
    monkeypatch.setenv("HOME", str(reviews.parent))
    assert len(all_of(IMDB(path="~/aclImdb", validation=3)).inputs) == 9
    with pytest.raises(ValueError, match="path='~nobody-of-that-name/aclImdb': there is no such home"):
        draw(IMDB(path="~nobody-of-that-name/aclImdb"))


@pytest.mark.parametrize("task", [IMDB(), AAN(), GreyCIFAR()])
def test_missing_data_says_where_to_get_it(task):
    with pytest.raises(ValueError, match=r"docs/datasets.md says.*'stand-in'"):
        draw(task)


@pytest.mark.parametrize("size", [16, 32])
def test_discs_are_at_the_ends_of_paths(size):
    batch = draw(Pathfinder(size=size), 64)
    pictures = batch.inputs.view(64, size, size)
    labels = batch.targets[:, -1]
    assert 15 < int(labels.sum()) < 49
    discs = (pictures > 215).flatten(1).sum(1)
    assert discs.min() >= 6, "two discs of radius 1.5 are to be seen"
    lines = ((pictures > 10) & (pictures < 200)).flatten(1).sum(1)
    assert lines.min() > 2 * size
    again = draw(Pathfinder(size=size), 64)
    assert torch.equal(batch.inputs, again.inputs) and torch.equal(batch.targets, again.targets)


@pytest.mark.long
@pytest.mark.parametrize(("size", "rows", "most"), [(16, 2400, 0.62), (32, 600, 0.6)])
def test_how_far_the_discs_are_apart_hardly_tells_the_answer(size, rows, most):
    batch = draw(Pathfinder(size=size), rows)
    answers = batch.targets[:, -1].numpy()
    apart = np.empty(rows)
    for row, picture in enumerate(batch.inputs.reshape(rows, size, size).numpy()):
        lit = np.argwhere(picture > 200).astype(float)  # nothing but discs is so bright
        between = np.linalg.norm(lit[:, None] - lit, axis=-1)
        one, other = np.unravel_index(between.argmax(), between.shape)
        mine = between[one] < between[other]
        apart[row] = np.linalg.norm(lit[mine].mean(0) - lit[~mine].mean(0))
    half = rows // 2
    classes = np.digitize(apart, np.quantile(apart[:half], np.linspace(0, 1, 13)[1:-1]))
    rule = np.array([answers[:half][classes[:half] == number].mean() > 0.5 for number in range(12)])
    assert (rule[classes[half:]] == answers[half:]).mean() < most


@pytest.mark.long
def test_a_simple_count_does_not_tell_the_answer_of_pathfinder():
    batch = draw(Pathfinder(), 300)
    light, labels = batch.inputs.float().mean(1), batch.targets[:, -1].bool()
    apart = (light[labels].mean() - light[~labels].mean()).abs() / light.std()
    assert apart < 4 * (4 / 300) ** 0.5


def test_bad_settings_of_tasks_are_named():
    for make, message in (
        (lambda: Pathfinder(size=20), "size=20: choose one of 16, 32"),
        (lambda: Pathfinder(contour_length=15), "contour_length=15: give 2 to 14"),
        (lambda: IMDB(length=0), "length=0"),
        (lambda: AAN(part="dev"), "part='dev'"),
        (lambda: GreyCIFAR(size=20), "size=20: choose 32, 16 or 8"),
        (lambda: draw(GreyCIFAR(path="stand-in", validation=6000)), "validation=6000: there are 6000 training rows"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
