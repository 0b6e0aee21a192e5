"""Movies and figures of a record: right files, right numbers in them, clear errors."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from synthetic_records import ballet_like, without_attention

from recollect.interpret.colours import colour_table, overlay, top_mask
from recollect.interpret.figures import figure_gaze, figure_heat, figure_lag, figure_matrix, figure_strip, figure_top
from recollect.interpret.movie import CAPTION, THUMB, write_movie
from recollect.interpret.record import Event, SpaceTime


@pytest.fixture(scope="module")
def record():
    return ballet_like(24)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_little_attention_never_tints_and_the_top_is_the_last_colour():
    frame = np.full((8, 8, 3), 90, np.uint8)
    weights = np.zeros((2, 2))
    weights[1, 0] = 5.0
    painted = overlay(frame, weights, 5.0)
    assert (painted[:4] == 54).all() and (painted[4:, 4:] == 54).all()
    assert abs(painted[6, 1].astype(int) - (0.85 * colour_table("inferno")[255] + 0.15 * 54)).max() <= 1


def test_the_mask_keeps_the_top_share_of_patches():
    frame = np.full((40, 40, 3), 210, np.uint8)
    weights = np.random.default_rng(0).random((10, 10))
    for share in (0.2, 0.3, 0.4, 0.5):
        kept = (top_mask(frame, weights, share) == 210).all(-1)
        assert kept.mean() == pytest.approx(share)
    assert kept[::4, ::4][np.unravel_index(weights.argmax(), weights.shape)]


@pytest.mark.parametrize("ending", ["webp", "gif", "mp4"])
def test_movies_have_all_steps(record, tmp_path, ending):
    path = write_movie(record, tmp_path / f"episode.{ending}", fps=10)
    if ending == "mp4":
        assert pytest.importorskip("imageio_ffmpeg").count_frames_and_secs(str(path))[0] == 24
    else:
        with Image.open(path) as movie:
            assert movie.n_frames == 24
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "fps, ending, milliseconds", [(15, "gif", 70), (35, "gif", 30), (60, "gif", 20), (15, "webp", 67), (60, "webp", 17)]
)
def test_movies_play_as_fast_as_their_format_can(record, tmp_path, fps, ending, milliseconds):
    with Image.open(write_movie(record, tmp_path / f"episode.{ending}", panels=("value",), fps=fps)) as movie:
        movie.seek(1)
        movie.load()
        assert movie.info["duration"] == milliseconds


def test_a_lossless_movie_shows_the_overlay(record, tmp_path):
    path = write_movie(record, tmp_path / "episode.webp", panels=("frame", "heads"))
    with Image.open(path) as movie:
        movie.seek(7)
        shown = np.asarray(movie.convert("RGB"))
    high = float(np.percentile(record.spatial, 99.5))
    expected = overlay(record.frames[7], record.spatial[7].mean(0), high)
    assert (shown[2 : 84 * 4 : 4, 2 : 84 * 4 : 4] == expected).all()


def test_movies_of_little_and_of_nothing(tmp_path):
    write_movie(without_attention(), tmp_path / "a.webp")
    write_movie(ballet_like(1), tmp_path / "b.gif")
    lines = Event(t=0, t1=20, kind="two", label="two\nlines", id="e0")
    write_movie(replace(ballet_like(24), events=(lines,)), tmp_path / "d.webp", panels=("recall",))
    blind = replace(without_attention(), frames=np.zeros((20, 0, 0, 3), np.uint8))
    write_movie(blind, tmp_path / "c.webp")
    for given, message in (
        ({"path": "x.avi"}, "path=.*end it in"),
        ({"panels": ("sound",)}, "panels=.*choose from"), ({"fps": 0}, "fps=0"),
        ({"head": 9}, "head=9"), ({"panels": ("recall",)}, "nothing to show"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            write_movie(without_attention(), **{"path": tmp_path / "x.webp", **given})
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="give another folder"):
        write_movie(without_attention(), tmp_path / "file" / "x.webp")


def test_heads_beside_a_low_frame_are_whole(tmp_path):
    low = replace(ballet_like(2), frames=np.zeros((2, 20, 400, 3), np.uint8))
    shown = {}
    for panels in (("frame", "heads"), ("frame", "heads", "recall", "value")):
        with Image.open(write_movie(low, tmp_path / "low.webp", panels=panels)) as movie:
            shown[panels] = np.asarray(movie.convert("RGB"))
    alone, over = shown.values()
    assert len(over) > len(alone) > 2 * THUMB and (over[: len(alone) - CAPTION] == alone[:-CAPTION]).all()


def test_a_long_vector_is_drawn_no_wider_than_a_screen(tmp_path):
    numbers = np.random.default_rng(0).integers(0, 255, (4, 1, 60, 3), dtype=np.uint8)
    path = write_movie(replace(without_attention(4), frames=numbers), tmp_path / "vector.webp", panels=("frame",))
    with Image.open(path) as movie:
        assert movie.size[0] == 60 * 21
        assert (np.asarray(movie.convert("RGB"))[10, 10 : 60 * 21 : 21] == numbers[0, 0]).all()


def test_labels_of_short_events_stay_in_their_blocks(record, tmp_path):
    """Many short events beside each other: no letter stands outside of its block."""
    events = tuple(Event(t=t, t1=t + 1, kind="x", label="junction", id=f"{t}") for t in range(0, 24, 2))
    path = write_movie(replace(record, events=events), tmp_path / "short.webp", panels=("recall",))
    shown = pixels(path)
    wide = (shown.shape[1] - 16) / 24
    strip = shown[CAPTION : CAPTION + 14]
    for t in range(3, 24, 2):  # between two blocks; the line of now is elsewhere
        gap = strip[:, round(8 + t * wide) + 1 : round(8 + (t + 1) * wide) - 1]
        assert (gap.max(axis=(0, 1)) < 60).all(), f"letters behind step {t}"


@pytest.mark.long
def test_figures_are_drawn(record, tmp_path):
    rng = np.random.default_rng(0)
    step = np.minimum(rng.integers(0, 24, (24, 4, 6)), np.arange(24)[:, None, None])
    past = SpaceTime(
        step=step,
        cell=rng.integers(0, 12, step.shape),
        weight=rng.random(step.shape),
        tail=rng.random((24, 4)),
        grid=(3, 4),
    )
    joint = replace(record, spacetime=past)
    for path in (
        figure_strip(record, tmp_path / "strip.png", steps=range(18, 24), head=1),
        figure_top(record, tmp_path / "top.png", step=20),
        figure_lag(record, tmp_path / "lag.png", longest=20),
        figure_matrix(record, tmp_path / "matrix.png", head=3),
        figure_gaze(record, tmp_path / "gaze.png", steps=[1, 12, 20]),
        *(
            figure_heat(joint, tmp_path / f"{kind}.png", step=20, kind=kind)
            for kind in ("spatial", "temporal", "spacetime")
        ),
    ):
        drawn = pixels(path)
        assert drawn.shape[1] > 500 and drawn.std() > 10
    assert figure_lag(record, tmp_path / "lag.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "draw",
    [
        lambda record, folder: write_movie(record, folder / "movie.webp", panels=("recall",)),
        lambda record, folder: figure_strip(record, folder / "strip.png", steps=[20]),
        lambda record, folder: figure_matrix(record, folder / "matrix.png"),
    ],
)
def test_the_mean_of_heads_has_what_only_some_of_them_reach(record, tmp_path, draw):
    """Windows see the last steps and chunk heads the others: no step is in reach of all."""
    drawn = []
    for far in (2, 6):
        temporal = np.full_like(record.temporal, np.nan)
        temporal[range(24), :3, range(24)] = 1.0
        temporal[12:, 3, far] = 1.0
        folder = tmp_path / str(far)
        folder.mkdir()
        path = draw(replace(record, temporal=temporal), folder)
        with Image.open(path) as image:
            image.seek(getattr(image, "n_frames", 1) - 1)
            drawn.append(np.asarray(image.convert("RGB")))
    assert drawn[0].shape == drawn[1].shape and (drawn[0] != drawn[1]).any()


def test_figures_say_what_is_missing(record, tmp_path):
    path = tmp_path / "x.png"
    for draw, message in (
        (
            lambda: figure_strip(without_attention(), path, steps=[1]),
            "gru keeps nothing of that kind; a GRU has no attention",
        ),
        (lambda: figure_strip(record, path, steps=[99]), "step=99"),
        (lambda: figure_strip(record, path, steps=[]), "steps="),
        (lambda: figure_top(record, path, step=1, k=(0,)), "k=0"),
        (lambda: figure_matrix(record, path, head=4), "head=4"),
        (lambda: figure_gaze(record, path, steps=[1, 99]), "step=99"),
        (lambda: figure_gaze(record, path, steps=[]), "steps="),
        (lambda: figure_gaze(without_attention(), path, steps=[1]), "gru keeps nothing of that kind"),
        (lambda: figure_heat(record, path, step=1, kind="spacetime"), "no attention to places of past frames"),
        (lambda: figure_heat(record, path, step=1, kind="smell"), "kind='smell'"),
        (lambda: figure_lag(record, tmp_path / "x.png" / "y.png", longest=0), "longest=0"),
    ):
        with pytest.raises(ValueError, match=message):
            draw()
