"""The file of the memory explorer: what is in it, how exact it is, how large, and what it refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from synthetic_records import ballet_like, without_attention

from recollect.interpret import packing
from recollect.interpret.atlas import atlases, png
from recollect.interpret.header import bookmarks, describe
from recollect.interpret.html import load_report, read_html, write_html
from recollect.interpret.packing import KEPT, Plan, fit, pack
from recollect.interpret.quantization import ERROR_BOUND, decode, encode
from recollect.interpret.record import EpisodeInfo, Event, Head, SpaceTime
from recollect.interpret.score import score


@pytest.fixture(scope="module")
def record():
    return ballet_like()


@pytest.mark.parametrize("encoding", ["u8", "u4", "s8"])
def test_maps_come_back_within_the_stated_error(encoding):
    rng = np.random.default_rng(0)
    maps = (rng.random((5, 3, 41)) ** 6).astype(np.float32)
    maps *= rng.choice([-1, 1], maps.shape) if encoding == "s8" else 1
    maps[0, 1, :7] = np.nan
    maps[2, 2] = np.nan
    maps[1, 1] = 0
    back = decode(encode(maps, encoding))
    assert (np.isnan(back) == np.isnan(maps)).all()
    scale = np.nanmax(np.where(np.isnan(maps), 0, abs(maps)), -1, keepdims=True)
    assert np.nanmax(abs(back - maps) - ERROR_BOUND[encoding] * scale) <= 1e-7


def test_square_root_codes_keep_the_mass_and_the_top_of_peaked_rows():
    logits = 3 * np.random.default_rng(1).standard_normal((300, 1, 200))
    rows = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    back = decode(encode(rows, "u8"))
    assert abs(back - rows).sum(-1).mean() < 0.01
    assert abs(back.sum(-1) - 1).max() < 0.01
    assert (back.argmax(-1) == rows.argmax(-1)).mean() > 0.98


@pytest.mark.parametrize("encoding", ["f32", "f16", "i32", "u16", "bool"])
def test_plain_encodings_are_exact(encoding):
    numbers = np.array([[0, 1, 1], [1, 0, 1]]) if encoding == "bool" else np.array([[0, 1, 500], [7, 2, 60]])
    assert (decode(encode(numbers, encoding)) == numbers).all()


@pytest.mark.parametrize("terminated", [True, False])
def test_what_is_expected_behind_the_end_surprises_only_where_time_cut_the_episode(record, terminated):
    expected = 9 * np.eye(1, record.num_steps, record.num_steps - 1, dtype=np.float32)[0]
    other = replace(record, value=expected, reward=0 * expected, removal=None, temporal=None, terminated=terminated)
    assert [mark["t"] for mark in bookmarks(other)] == ([] if terminated else [record.num_steps - 2])


def test_actions_without_an_entry_in_the_legend_are_counted(record):
    actions = np.arange(record.num_steps) % 13
    actions[50:] = 12
    other = replace(record, action=actions, actions=tuple(f"a{number}" for number in range(12)), discrete=True)
    header = describe(other, None, pack(other, Plan()))
    assert header["actionKeys"][:2] == [(12, "action 12"), (0, "a0")] and len(header["actionKeys"]) == 10
    assert header["trackNotes"][0] == "and 3 more actions"


def test_pictures_hold_every_pixel(tmp_path):
    rng = np.random.default_rng(0)
    for frames in (rng.integers(0, 256, (7, 9, 2500, 3), np.uint8), rng.integers(0, 2, (7, 9, 30, 3), np.uint8) * 200):
        seen = 0
        for number, sheet in enumerate(atlases(frames)):
            path = tmp_path / f"{number}.png"
            path.write_bytes(sheet.png)
            with Image.open(path) as opened:
                pixels = np.asarray(opened.convert("RGB"))
            y, x = frames.shape[1:3]
            for place in range(sheet.frames):
                row, column = divmod(place, sheet.columns)
                tile = pixels[row * y : (row + 1) * y, column * x : (column + 1) * x]
                assert (tile == frames[sheet.first + place]).all()
            seen += sheet.frames
        assert seen == len(frames)
    assert len(png(np.zeros((400, 400, 3), np.uint8))) < 400


def test_numbers_and_scores_come_back(record, tmp_path):
    report = score(record)
    (path,) = write_html(record, report, tmp_path / "deep" / "episode.html")
    assert load_report(path) == json.loads(json.dumps(report.to_json()))
    arrays = read_html(path).arrays[0]
    for name in ("temporal", "chunk_rel", "spatial"):
        maps = getattr(record, name)
        axes = (2, 3) if name == "spatial" else 2
        top = np.nan_to_num(maps).max(axes, keepdims=True)
        assert (np.isnan(arrays[name]) == np.isnan(maps)).all()
        assert np.nanmax(abs(arrays[name] - maps) - ERROR_BOUND["u8"] * top) <= 1e-7
    for name in ("value", "reward", "logits"):
        assert (arrays[name] == getattr(record, name)).all()
    assert (arrays["action"][:, 0] == record.action).all()
    assert np.allclose(arrays["mem_kl"], record.removal.kl, rtol=1e-3, atol=1e-6, equal_nan=True)
    assert path.stat().st_size < 500_000


def test_the_page_is_alone_and_its_script_small(record, tmp_path):
    (path,) = write_html(record, None, tmp_path / "episode.html")
    text = path.read_text()
    assert not re.search(r"https?://|<link|@import|\bsrc=|innerHTML|fetch\(|XMLHttp|WebSocket|eval\(", text)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(script) == 1 and len(script[0].encode()) < 63_000
    assert "default-src 'none'" in text and "unsafe" not in text


def test_words_with_html_in_them_stay_words(tmp_path):
    bad = "</script><script>window.broken=1</script><img src=x onerror=alert(1)>&amp;\u2028{{script}}"
    record = ballet_like(30)
    record = replace(
        record,
        info=replace(record.info, task=bad, notes=(bad,), provenance={bad: bad}),
        events=(Event(t=0, t1=20, kind=bad, label=bad, id=bad),),
        actions=(bad, *record.actions[1:]),
    )
    (path,) = write_html(record, {"metrics": [], "heads": [], "gates": [], "verdict": bad}, tmp_path / "bad.html")
    text = path.read_text()
    assert "<img" not in text and text.count("</script>") == len(re.findall(r"<script[ >]", text))
    assert load_report(path)["verdict"] == bad
    assert read_html(path).meta["records"][0]["events"][0]["label"] == bad


def test_bad_records_are_refused_with_a_remedy(record, tmp_path):
    future = record.temporal.copy()
    future[10, 2, 15] = 0.0
    pictures = record.frames.astype(np.float32)
    pictures[3, 0, 0] = np.nan
    ahead = record.chunk_rel.copy()
    ahead[3, 1, 5] = 0.5
    negative = record.spatial.copy()
    negative[4] = -1
    cases = [
        (replace(record, temporal=future), "temporal: head 2 at step 10 .* future"),
        (replace(record, chunk_rel=ahead), "chunk_rel: head 1 at step 3 .* future"),
        (replace(record, frames=pictures), "frames: NaN or infinite pixels at step 3"),
        (replace(record, frames=record.frames[1:]), "frames=.* give uint8"),
        (replace(record, spatial=negative), "spatial: .* negative"),
        (replace(record, temporal=record.temporal[:, :2]), "temporal=.* give"),
        (replace(record, reward=record.reward[:0]), "num_steps=0"),
    ]
    for broken, message in cases:
        with pytest.raises(ValueError, match=message):
            write_html(broken, None, tmp_path / "x.html")
    for given, message in (
        ({"max_mb": 0}, "max_mb=0"),
        ({"max_mb": 26}, "at most 25"),
        ({"style": "rainbow"}, "style="),
    ):
        with pytest.raises(ValueError, match=message):
            write_html(record, None, tmp_path / "x.html", **given)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_and_files_that_are_none(record, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ValueError, match=r"cannot be written .* give another folder"):
        write_html(record, None, tmp_path / "file" / "x.html")
    with pytest.raises(ValueError, match="no memory explorer"):
        load_report(tmp_path / "file")


def test_one_step_no_attention_and_no_pictures(tmp_path):
    one = ballet_like(1)
    blind = replace(without_attention(), frames=np.zeros((20, 0, 0, 3), np.uint8))
    for record in (one, without_attention(), blind):
        (path,) = write_html(record, score(record), tmp_path / "page.html")
        assert read_html(path).meta["records"][0]["T"] == record.num_steps


@pytest.mark.long
def test_the_ladder_is_climbed_down_in_order_and_told():
    record = ballet_like(520, layers=4, grid=(8, 8), side=42)
    whole = fit(record, 10**9)
    assert not whole.dropped and whole.plan == Plan()
    told = fit(record, 1).dropped
    firsts = ["attention to the past", "heads: 12 of 16", "saliency: every second", "saliency: every fourth"]
    firsts += ["attention to the frame", "maps: 4 bits"]
    assert [words.startswith(first) for words, first in zip(told, firsts, strict=True)] == [True] * 6
    half = fit(record, len(whole.data) // 2)
    assert len(half.data) <= len(whole.data) // 2 and half.dropped == told[: len(half.dropped)]


def test_sparse_rows_keep_the_largest_and_tell_the_rest():
    record = ballet_like(560, spatial=False, saliency=False)
    blocks = {block.name: decode(block.encoded) for block in pack(record, Plan(sparse=True)).blocks}
    t, head = 540, 2
    row = record.temporal[t, head]
    kept = blocks["temporal_step"][t, head]
    assert len(kept) == KEPT and set(kept) == set(np.argsort(-np.nan_to_num(row))[:KEPT])
    assert np.allclose(blocks["temporal"][t, head].sum() + blocks["temporal_tail"][t, head], 1, atol=0.01)
    assert (blocks["temporal_step"][5, head][6 - KEPT :] == 65_535).sum() == KEPT - 6


def test_many_heads_make_short_episodes_sparse_too(monkeypatch):
    record = ballet_like(100)
    monkeypatch.setattr(packing, "DENSE_LIMIT", record.temporal.size - 1)
    packed = fit(record, 10**7)
    assert packed.plan.sparse and "largest" in packed.dropped[0]


def test_what_cannot_fit_is_split_into_parts(tmp_path):
    record = ballet_like(300, layers=2)
    paths = write_html(record, {"verdict": "v"}, tmp_path / "long.html", max_mb=0.3)
    assert len(paths) > 2 and paths[0].name == "long.html" and "long-1.html" in paths[0].read_text()
    assert load_report(paths[0]) == {"verdict": "v"} == load_report(paths[1])
    rows = 0
    for path in paths[1:]:
        assert path.stat().st_size <= 300_000
        first = next(a for a in read_html(path).meta["records"][0]["arrays"] if a["name"] == "temporal")
        assert first["row0"] == rows
        rows += first["shape"][0]
    assert rows == 300


def atari_like(steps=500, layers=2, heads=8, grid=(21, 16)):
    """Frames with 200 colours and noisy attention, 16 heads: worse than what any game gives."""
    rng = np.random.default_rng(0)
    scores = 2 * rng.standard_normal((steps, layers * heads, steps), np.float32)
    temporal = np.exp(scores)
    future = np.arange(steps) > np.arange(steps)[:, None]
    temporal[np.broadcast_to(future[:, None], temporal.shape)] = np.nan
    temporal /= np.nansum(temporal, -1, keepdims=True)
    spatial = np.exp(2 * rng.standard_normal((steps, layers * heads, *grid), np.float32))
    frames = np.full((steps, 210, 160, 3), 40, np.uint8)
    for t in range(steps):
        for i in range(12):
            y, x = (37 * i + 3 * t) % 200, (53 * i + 2 * t) % 150
            frames[t, y : y + 9, x : x + 8] = (17 * i, 255 - 20 * i, 9 * i)
    base = ballet_like(steps, spatial=False, saliency=False)
    return replace(
        base,
        info=EpisodeInfo(task="Atari-like", core="synthetic", provenance={"synthetic": "noise"}),
        frames=frames,
        heads=tuple(Head(layer=layer, head=head, kind="window") for layer in range(layers) for head in range(heads)),
        temporal=temporal, spatial=spatial / spatial.sum((2, 3), keepdims=True), chunk_rel=None, pairs=(),
    )  # fmt: skip


@pytest.mark.long
def test_a_long_game_with_sixteen_heads_fits_ten_megabytes_whole(tmp_path):
    (path,) = write_html(atari_like(), None, tmp_path / "atari.html")
    assert path.stat().st_size < 10e6
    assert read_html(path).meta["records"][0]["dropped"] == []


@pytest.mark.long
def test_five_thousand_steps(tmp_path):
    steps = 5000
    short = ballet_like(60, spatial=False, saliency=False)
    temporal = np.full((steps, 1, steps), np.nan, np.float32)
    for t in range(steps):
        temporal[t, 0, max(0, t - 99) : t + 1] = 1 / min(t + 1, 100)
    rng = np.random.default_rng(0)
    record = replace(
        short, frames=np.resize(short.frames, (steps, *short.frames.shape[1:])), action=rng.integers(0, 8, steps),
        reward=np.zeros(steps, np.float32), value=rng.random(steps).astype(np.float32),
        logits=rng.standard_normal((steps, 8)).astype(np.float32), done=np.zeros(steps, bool), heads=short.heads[:1],
        temporal=temporal, chunks=(), chunk_rel=None, removal=None, pairs=(),
    )  # fmt: skip
    (path,) = write_html(record, None, tmp_path / "long.html")
    assert path.stat().st_size < 2e6
    assert read_html(path).meta["records"][0]["T"] == steps


def test_places_in_past_frames_come_back(tmp_path):
    record = ballet_like(40, spatial=False, saliency=False)
    rng = np.random.default_rng(0)
    step = np.minimum(rng.integers(0, 40, (40, 4, 6)), np.arange(40)[:, None, None]).astype(np.int32)
    past = SpaceTime(
        step=step, cell=rng.integers(0, 12, step.shape).astype(np.int32), grid=(3, 4),
        weight=np.sort(rng.random(step.shape).astype(np.float32))[..., ::-1],
        tail=rng.random((40, 4)).astype(np.float32),
    )  # fmt: skip
    (path,) = write_html(replace(record, spacetime=past), None, tmp_path / "joint.html")
    arrays = read_html(path).arrays[0]
    assert (arrays["past_step"] == step).all() and (arrays["past_cell"] == past.cell).all()
    ahead = replace(past, step=step + 1)
    with pytest.raises(ValueError, match=r"spacetime: head .* later step"):
        write_html(replace(record, spacetime=ahead), None, tmp_path / "joint.html")


def test_effects_too_large_for_half_precision_come_back(record, tmp_path):
    """Forbidden actions have logits of -1e30, and values may count in millions."""
    logits, dv = record.removal.logits.copy(), 1e6 * record.removal.dv
    logits[..., 2] = np.where(np.isnan(logits[..., 2]), np.nan, -1e30)
    (path,) = write_html(
        replace(record, removal=replace(record.removal, logits=logits, dv=dv)), None, tmp_path / "x.html"
    )
    arrays = read_html(path).arrays[0]
    assert (np.isfinite(arrays["mem_logits"]) == np.isfinite(logits)).all()
    assert np.nanmax(arrays["mem_logits"][..., 2]) < -1e4  # a probability of nothing
    assert np.allclose(arrays["mem_dv"], dv, rtol=1e-3, equal_nan=True)


def test_why_there_is_no_attention_is_a_sentence(tmp_path):
    bare = without_attention()
    cut = replace(bare, info=replace(bare.info, notes=("a GRU has no attention", "cut after 20 steps")))
    told = read_html(write_html(cut, None, tmp_path / "cut.html")[0]).meta["records"][0]["nothing"]
    assert told == "This core keeps no attention to show; a GRU has no attention; cut after 20 steps."
