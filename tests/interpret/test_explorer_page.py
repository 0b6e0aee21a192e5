"""The memory explorer in a real Chromium: numbers, keys, looks that can be checked, speed, and that it is alone."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from synthetic_records import ballet_like, without_attention

from recollect.interpret import packing
from recollect.interpret.html import read_html, write_html
from recollect.interpret.record import Event, Removal, SlotWeights, SpaceTime
from recollect.interpret.score import score
from tiers import first

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
AXE = Path(os.environ.get("AXE_CORE", Path(__file__).parents[2] / ".venv/node_modules/axe-core/axe.min.js"))
WINDOWS = {"wide": (1440, 960), "narrow": (400, 900)}


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("explorer")


@pytest.fixture(scope="module")
def record():
    return ballet_like(layers=2)


@pytest.fixture(scope="module")
def page(folder, record):
    return write_html(record, score(record), folder / "episode.html")[0]


@pytest.fixture(scope="module")
def pair(folder, record):
    other = ballet_like(150, seed=1)
    return write_html([record, other], [score(record), None], folder / "two.html")[0]


@pytest.fixture
def wide(browser, page):
    browser.window(1440, 960)
    browser.open(page)
    browser.settle()
    yield browser
    assert browser.errors == []


def state(browser):
    return browser.run("memx.state()")


def test_numbers_on_the_page_are_numpys(wide, page):
    arrays = read_html(page).arrays[0]
    for t, h in ((0, 0), (3, 2), (77, 5), (190, 1), (199, 7)):
        for name in ("temporal", "spatial", "chunk_rel"):
            heard = np.array(wide.run(f"memx.values('{name}', {t}, {h})"), float)
            assert np.allclose(heard, arrays[name][t, h].reshape(-1), rtol=1e-5, atol=1e-9, equal_nan=True)
        for name in ("mem_kl", "mem_logits", "logits", "action"):
            heard = np.array(wide.run(f"memx.values('{name}', {t})"), float)
            assert np.allclose(heard, arrays[name][t].astype(float).reshape(-1), rtol=1e-5, equal_nan=True)
        policy = np.exp(arrays["logits"][t] - arrays["logits"][t].max())
        assert np.allclose(wide.run(f"memx.values('policy', {t})"), policy / policy.sum(), atol=1e-6)
        mean = np.array(wide.run(f"memx.values('temporal', {t}, -1)"), float)
        assert np.allclose(mean, arrays["temporal"][t].mean(0), atol=1e-6, equal_nan=True)


def test_four_bit_and_sparse_numbers_too(browser, folder):
    record = ballet_like(520, spatial=False, saliency=False, side=24)
    for megabytes in np.arange(0.5, 0.3, -0.01):  # until 4 bits are needed, and enough
        path, *parts = write_html(record, None, folder / "small.html", max_mb=megabytes)
        if not parts and len((page := read_html(path)).meta["records"][0]["dropped"]) == 2:
            break
    assert not parts and page.arrays[0]["temporal"].shape[-1] == 64
    browser.window(1440, 960)
    browser.open(path)
    for t, h in ((2, 0), (333, 3), (519, 1)):
        dense = np.full(520, np.nan)
        step, weight = page.arrays[0]["temporal_step"][t, h], page.arrays[0]["temporal"][t, h]
        dense[step[step < 65_535]] = weight[step < 65_535]
        heard = np.array(browser.run(f"memx.values('temporal', {t}, {h})"), float)
        assert np.allclose(heard, dense, rtol=1e-5, equal_nan=True)
    browser.run("memx.go(519), memx.head(2)")
    tail = page.arrays[0]["temporal_tail"][519, 2]
    assert f"{100 * tail:.0f} % of the mass is outside" in browser.run("document.getElementById('tail').textContent")
    assert "2 parts left out to fit" in browser.run("document.getElementById('notes').textContent")
    assert browser.errors == []


def _text(browser, name):
    return browser.run(f"document.getElementById('{name}').textContent")


def test_the_mean_of_cut_rows_counts_what_no_head_kept_as_nothing(browser, folder, monkeypatch):
    monkeypatch.setattr(packing, "Plan", partial(packing.Plan, sparse=True))
    path = write_html(ballet_like(120, spatial=False, saliency=False, side=24), None, folder / "cut.html")[0]
    arrays = read_html(path).arrays[0]
    steps, weights, tails = (arrays[name][119] for name in ("temporal_step", "temporal", "temporal_tail"))
    mean = np.zeros(120)
    for step, weight in zip(steps, weights, strict=True):
        mean[step[step < 65_535]] += weight[step < 65_535] / 4
    browser.window(1440, 960)
    browser.open(path)
    browser.run("memx.go(119), memx.head(-1)")
    heard = np.array(browser.run("memx.values('temporal', 119, -1)"), float)
    assert np.allclose(np.nan_to_num(heard), mean, atol=1e-6) and tails.mean() > 0.05
    assert np.nansum(heard) == pytest.approx(1 - tails.mean(), abs=0.01)
    assert f"{100 * tails.mean():.0f} % of the mass is outside the largest entries" in _text(browser, "tail")
    assert _text(browser, "recall-text") == "the mean of 4 heads, 8-step chunks"
    browser.run("memx.go(20)")  # fewer steps than a row keeps
    assert "spread over" in _text(browser, "recall-text") and _text(browser, "tail") == ""
    assert browser.errors == []


def test_a_step_without_a_map_does_not_show_that_of_the_step_before(browser, folder, monkeypatch):
    monkeypatch.setattr(packing, "Plan", partial(packing.Plan, spatial_every=2))
    path = write_html(ballet_like(24, side=24), None, folder / "halves.html")[0]
    browser.window(1440, 960)
    browser.open(path, "#t=6&h=2&ov=att")
    kept = browser.run("memx.values('spatial', 6, 1)")
    assert len(kept) == 144 and "probability per patch" in _text(browser, "legend-text")
    for head in (1, -1):
        browser.run(f"memx.go(7), memx.head({head})")
        assert browser.run(f"memx.values('spatial', 7, {head})") == []
        assert _text(browser, "legend-text") == "no map was kept at step 7"
    browser.run("document.getElementById('frame').click()")
    browser.press("k")
    assert _text(browser, "legend-text") == "no map was kept at step 7" and browser.errors == []


def test_the_sentence_says_what_the_record_says(wide, record):
    wide.run("memx.go(190), memx.head(1)")
    mass = record.temporal[190, 1, 64:80].sum()
    said = wide.run("memx.sentence()")
    assert said.startswith(f"Step 190: layer 1 head 2 puts {100 * mass:.0f} % on steps 64–79 (“zee”, the cued one)")
    assert (
        "about 119 steps ago" in said and "Removing steps 64–71" in said and "changes the policy by 0.90 nats" in said
    )
    assert wide.run("document.getElementById('sentence').textContent") == said
    assert wide.run("document.getElementById('timeline').getAttribute('aria-valuetext')") == said
    wide.run("memx.head(0)")
    assert "The decision depends on steps 64–79" in wide.run("memx.sentence()")


def test_colours_of_actions_and_bookmarks_are_named_below_the_timeline(wide, page):
    meta = read_html(page).meta["records"][0]
    keys = wide.run("[...document.querySelectorAll('#track-keys .key')].map((key) => key.textContent)")
    arrays = read_html(page).arrays[0]
    assert set(keys[:-1]) == {meta["actions"][action] for action in np.unique(arrays["action"])}
    assert keys[-1].startswith("▲ bookmarks: ") and meta["marks"][0]["why"] in keys[-1]
    swatches = wide.run(
        "[...document.querySelectorAll('#track-keys i')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(swatches)) == len(keys) - 1


def test_heads_that_attend_to_places_alone_promise_no_past(browser, folder):
    record = ballet_like(24, side=24)
    heads = tuple(replace(head, kind="places") for head in record.heads)
    bare = replace(record, heads=heads, temporal=None, chunks=(), chunk_rel=None, removal=None)
    browser.window(1440, 960)
    browser.open(write_html(bare, None, folder / "places.html")[0])
    assert "attends to places of the picture, not to earlier steps." in _text(browser, "sentence")
    assert browser.run("document.getElementById('past').hidden") and browser.errors == []


def test_measures_of_heads_stand_in_one_table(wide, page):
    asked = read_html(page).meta["records"][0]["questions"]
    for place, one in enumerate(asked):
        heads = (
            f"[...document.querySelectorAll('#questions details')[{place}].querySelectorAll('.wide tbody tr')].length"
        )
        assert wide.run(heads) == len(one["heads"]["rows"])
    assert asked[0]["heads"]["rows"]


def test_every_key(wide):
    wide.run("memx.go(50), memx.head(1)")
    for key, shift, expected in (
        ("ArrowRight", False, 51), ("ArrowRight", True, 61), ("ArrowLeft", False, 60), ("ArrowLeft", True, 50),
        ("Home", False, 0), ("End", False, 199), ("p", False, 176), ("p", False, 160), ("n", False, 176),
    ):  # fmt: skip
        wide.press(key, shift=shift)
        assert state(wide)["t"] == expected, key
    for key, overlay in (
        ("a", "att"),
        ("s", "actor"),
        ("c", "both"),
        ("k", "topk"),
        ("w", "ww"),
        ("o", "off"),
        ("c", "critic"),
    ):
        wide.press(key)
        assert state(wide)["ov"] == overlay
        chosen = "[...document.querySelectorAll('#overlays [aria-checked=true]')].map((b) => b.dataset.kind)"
        assert wide.run(chosen) == [overlay]
    for key, name in (("d", "dim"), ("g", "smooth"), ("t", "lag"), ("m", "matrix")):
        before = state(wide)[name]
        wide.press(key)
        assert state(wide)[name] is not before
        wide.press(key)
        assert state(wide)[name] is before
    for key, name, by in (("[", "opacity", -0.05), ("]", "opacity", 0.05), (",", "k", -5), (".", "k", 5)):
        before = state(wide)[name]
        wide.press(key)
        assert state(wide)[name] == pytest.approx(before + by)
    for key, head in (("1", 0), ("4", 3), ("l", 4), ("l", 0), ("0", -1)):
        wide.press(key)
        assert state(wide)["h"] == head
    wide.press("Home")
    wide.press("x")
    assert state(wide)["t"] > 0
    wide.press("?")
    assert wide.run("document.getElementById('help').open")
    wide.press("n")
    assert wide.run("document.getElementById('help').open")
    wide.run("document.getElementById('help').close()")


def test_travel_and_back(wide):
    wide.run("memx.go(190), memx.head(1)")
    wide.press("r")
    there = state(wide)["t"]
    assert 64 <= there < 80
    assert wide.run("document.getElementById('live').textContent") == f"went to step {there}"
    wide.press("b")
    assert state(wide)["t"] == 190 and state(wide)["stack"] == []
    wide.run("document.querySelectorAll('#cards button')[1].click()")
    wide.settle()
    assert 64 <= state(wide)["t"] < 80 and state(wide)["stack"] == [190]


def test_play_runs_and_stops_at_the_end(wide):
    wide.run("memx.go(195)")
    wide.run("document.getElementById('speed').value = '30'")
    wide.press(" ")
    wide.run("new Promise((done) => setTimeout(done, 800))")
    assert state(wide)["t"] == 199 and not state(wide)["playing"]


def test_the_timeline_and_the_matrix_take_clicks(wide):
    box = wide.run("JSON.parse(JSON.stringify(document.getElementById('track').getBoundingClientRect()))")
    wide.click(box["x"] + 88 + (box["width"] - 100) * 0.5, box["y"] + 150)
    assert abs(state(wide)["t"] - 100) <= 1
    wide.run("document.getElementById('matrix-picture').scrollIntoView({block: 'center'})")
    wide.settle()
    box = wide.run("JSON.parse(JSON.stringify(document.getElementById('matrix-picture').getBoundingClientRect()))")
    wide.click(box["x"] + 60, box["y"] + box["height"] - 8)
    assert state(wide)["t"] >= 196


def test_keyboard_alone_reaches_and_uses_every_control(wide):
    wanted = wide.run(
        "[...document.querySelectorAll('button, select, input, a[href], summary, [tabindex=\"0\"]')].filter((e) =>"
        " e.checkVisibility({visibilityProperty: true}) && !e.disabled && !e.closest('dialog')).length"
    )
    wide.run("document.activeElement.blur(), window.reached = new Set()")
    for _ in range(wanted + 3):
        wide.press("Tab")
        wide.run("document.activeElement !== document.body && reached.add(document.activeElement), 0")
    assert wide.run("reached.size") == wanted
    wide.run("document.getElementById('smooth').focus()")
    wide.press("Enter")
    assert state(wide)["smooth"]
    wide.run("document.querySelector('#overlays [data-kind=att]').focus()")
    wide.press("ArrowDown")
    assert state(wide)["ov"] == "actor"


def test_the_address_is_read(browser, page):
    browser.open(page, "#t=123&h=3&ov=topk")
    assert {name: state(browser)[name] for name in ("t", "h", "ov")} == {"t": 123, "h": 2, "ov": "topk"}
    browser.open(page, "#t=99999&h=77&ov=%22%5D%3Cscript%3E")
    assert state(browser)["t"] == 199 and state(browser)["h"] < 8 and browser.errors == []


def test_no_request_but_the_file_itself(wide, page):
    for key in "ascko":
        wide.press(key)
    assert [url.split("#")[0] for url in wide.requests if not url.startswith("about:")] == [f"file://{page}"]
    assert wide.run("fetch('file:///etc/hostname').then(() => 'sent', () => 'refused')") == "refused"
    wide.errors.clear()  # what the policy says of the line above


@pytest.mark.parametrize("name", ["page", "pair"])
def test_a_step_draws_few_things(browser, name, request):
    """A count, and not a time: a busy machine draws as many."""
    path = request.getfixturevalue(name)
    browser.window(1440, 960)
    browser.open(path)
    script = """(() => { const counts = [], kind = CanvasRenderingContext2D.prototype;
        let number = 0;
        for (const name of ['fillRect', 'strokeRect', 'fillText', 'fill', 'stroke', 'drawImage', 'putImageData']) {
          const draw = kind[name];
          kind[name] = function (...rest) { number++; return draw.apply(this, rest); };
        }
        const seen = new MutationObserver(changes => { number += changes.length; });
        seen.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
        for (let i = 0; i < 80; i++) {
          number = 0;
          memx.go((i * 37) % 150);
          number += seen.takeRecords().length;
          counts.push(number);
        }
        return counts.sort((a, b) => b - a)[0]; })()"""
    assert 10 < browser.run(script) < 1000


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install --prefix .venv axe-core, or set AXE_CORE")
@pytest.mark.parametrize(
    ("name", "theme", "size"),
    first(1, [("page", theme, size) for theme in ("dark", "light") for size in WINDOWS] + [("pair", "dark", "wide")]),
)
def test_axe_finds_nothing(browser, name, theme, size, request):
    browser.window(*WINDOWS[size], theme=theme)
    browser.open(request.getfixturevalue(name))
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.settle()
    browser.run(AXE.read_text() + ";0")
    found = browser.run(
        "axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes[0].html + v.nodes[0].failureSummary))"
    )
    assert found == []
    browser.run("document.getElementById('help').showModal()")
    found = browser.run("axe.run('#help').then((r) => r.violations.map((v) => v.id))")
    assert found == []


@pytest.mark.parametrize("size", WINDOWS)
def test_nothing_is_wider_than_the_window(browser, page, size):
    browser.window(*WINDOWS[size])
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") <= WINDOWS[size][0]


@pytest.mark.parametrize(("width", "rows"), [(1440, 1), (1300, 1), (1200, 2), (700, 2), (400, 4)])
def test_cards_show_all_their_text_and_sharp_frames_and_absent_ones_take_no_room(browser, page, width, rows):
    browser.window(width, 900)
    browser.open(page)
    browser.run("memx.go(150)")
    browser.settle()
    cards = "[...document.querySelectorAll('#cards button:not(.gone)')]"
    assert browser.run(f"{cards}.length") == 8
    assert browser.run(f"new Set({cards}.map((one) => one.offsetTop)).size") == rows
    cut = "[...document.querySelectorAll('#cards .text')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert browser.run(f"{cut}.map((one) => one.textContent)") == []
    drawn = f"{cards}.map((one) => one.querySelector('canvas')).map((one) => one.width / one.clientWidth)"
    assert all(0.97 < share <= 1.03 for share in browser.run(drawn))
    whole = browser.run("document.getElementById('cards').clientHeight")
    browser.run("memx.go(3)")
    browser.settle()
    assert browser.run("document.getElementById('cards').clientHeight") <= 1.2 * whole / rows


def test_the_first_screen_holds_what_matters(wide):
    parts = "['verdict', 'questions', 'now', 'heads', 'cards', 'timeline']"
    bottoms = wide.run(f"{parts}.map((id) => document.getElementById(id).getBoundingClientRect().bottom)")
    assert max(bottoms) <= 960


def test_two_episodes_share_a_cursor(browser, pair):
    browser.window(1440, 2400)
    browser.open(pair)
    browser.run("memx.go(70)")
    texts = "[...document.querySelectorAll('.pair p')].map((p) => p.textContent.match(/Step (\\d+)/)[1])"
    assert browser.run(texts) == ["70", "70"]
    browser.run("document.getElementById('align').value = 'event'")
    browser.run("document.getElementById('align').dispatchEvent(new Event('change'))")
    browser.settle()
    assert browser.run(texts)[0] == "70" and 48 <= int(browser.run(texts)[1]) < 60
    browser.run("document.querySelectorAll('#records button')[1].click()")
    browser.settle()
    assert state(browser)["record"] == 1 and 48 <= state(browser)["t"] < 60 and state(browser)["steps"] == 150
    assert browser.errors == []


@pytest.mark.long
def test_strange_records_make_safe_pages(browser, folder):
    bad = "</script><img src=x onerror=window.broken=1>"
    short = ballet_like(24)
    rng = np.random.default_rng(0)
    step = np.minimum(rng.integers(0, 24, (24, 4, 6)), np.arange(24)[:, None, None])
    past = SpaceTime(
        step=step,
        cell=rng.integers(0, 12, step.shape),
        weight=rng.random(step.shape),
        tail=rng.random((24, 4)),
        grid=(3, 4),
    )
    records = {
        "words": replace(
            short, info=replace(short.info, task=bad, notes=(bad,)), actions=(bad,) * 8,
            events=(Event(t=0, t1=9, kind=bad, label=bad, id=bad),),
        ),
        "one": ballet_like(1),
        "nothing": without_attention(),
        "blind": replace(without_attention(), frames=np.zeros((20, 0, 0, 3), np.uint8)),
        "holes": replace(short, value=np.full(24, np.nan, np.float32), temporal=np.full_like(short.temporal, np.nan)),
        "joint": replace(short, spacetime=past, what_where=rng.standard_normal((24, 4, 5, 5)).astype(np.float32)),
        "whole": replace(
            without_attention(),
            removal=replace(short.removal, unit="all", **{
                name: getattr(ballet_like(20).removal, name)[:, :1] for name in ("kl", "dv", "logits")}),
            slots=(SlotWeights(name="write", kind="write", weights=rng.random((20, 2, 7)).astype(np.float32)),),
        ),
        "continuous": replace(short, discrete=False, actions=(), action=np.float32(rng.standard_normal((24, 3)))),
    }  # fmt: skip
    browser.window(1440, 2400)
    for name, record in records.items():
        (path,) = write_html(record, None, folder / f"{name}.html")
        browser.open(path)
        for key in ("ArrowRight", "n", "x", "a", "s", "k", "w", "o", "r", "b", "t", "0", "2", "l", "m", "End"):
            browser.press(key)
        assert browser.run("memx.ready") and browser.run("memx.sentence()").startswith("Step "), name
        assert browser.run("window.broken") is None and browser.errors == [], name


def test_a_page_of_another_version_says_so(browser, page, folder):
    other = folder / "other.html"
    other.write_text(page.read_text().replace('"format":"memx-1"', '"format":"memx-9"'))
    browser.open(other)
    assert "format memx-9; its script reads memx-1" in browser.run("document.querySelector('.error').textContent")


def test_the_picture_of_writes_to_slots_says_what_lies_across(browser, folder):
    rows = np.random.default_rng(0).random((20, 2, 7)).astype(np.float32)
    written = SlotWeights(name="write", kind="write", weights=rows, axes="slots x steps of the chunk")
    (path,) = write_html(replace(without_attention(), slots=(written,)), None, folder / "written.html")
    browser.window(1440, 2400)
    browser.open(path)
    told = browser.run("document.getElementById('slots-text').textContent")
    assert "slots x steps of the chunk: mean over the first, down: the second, across: steps" in told


@pytest.mark.parametrize("largest", [1e-6, 3.0])
def test_a_memory_that_is_not_used_has_no_peaks_of_use(browser, folder, largest):
    """The first row of the timeline: effects of the whole memory, from 0 to the largest, but at least 0.01 nats."""
    bare = without_attention()
    kl = largest * np.sin(np.linspace(0, np.pi, bare.num_steps, dtype=np.float32))[:, None]
    removal = Removal(kl=kl, dv=0 * kl, logits=np.zeros((*kl.shape, 8), np.float32), method="set back", unit="all")
    (path,) = write_html(replace(bare, removal=removal, events=()), None, folder / "use.html")
    browser.window(1440, 960)
    browser.open(path)
    drawn = browser.run("""(() => {
      const track = document.getElementById('track'), scale = track.width / track.clientWidth, rows = [];
      for (let y = 0; y < 28 * scale; y++) {
        const { data } = track.getContext('2d').getImageData(90 * scale, y, track.width - 120 * scale, 1);
        for (let i = 0; i < data.length; i += 4) if (data[i + 2] - data[i] > 60) { rows.push(y / scale); break; }
      }
      return rows;
    })()""")
    assert max(drawn) > 21 and (min(drawn) < 6 if largest > 1 else min(drawn) > 20)
