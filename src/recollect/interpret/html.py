"""The memory explorer: an episode as one HTML file that needs no network, no server and no library.

    write_html(record, score(record), "episode.html")
    write_html([first, second], [scores_1, scores_2], "two.html")      two episodes with a shared time cursor
    load_report("episode.html")                                        the scores again

Format ``memx-1``: ``<script id="meta">`` is JSON that describes everything; ``data-0`` is the base64 of one gzip of
all arrays of the first record (:mod:`~recollect.interpret.quantization`); ``frames-0-0`` is the base64 of a PNG with
many frames. What was left out to stay below ``max_mb`` is listed on the page. A content security policy forbids all
requests, and allows no script but the page's own.
"""

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from recollect.config import require
from recollect.files import path_errors, without_nan, write_atomically
from recollect.interpret.atlas import Atlas, atlases
from recollect.interpret.colours import STOPS
from recollect.interpret.header import align, describe
from recollect.interpret.packing import Packed, Plan, fit, headers, pack
from recollect.interpret.quantization import Encoded, decode
from recollect.interpret.record import EpisodeRecord, check_record
from recollect.interpret.report import Report
from recollect.interpret.template import block, fill

FORMAT = "memx-1"
HARD_STOP = 25  # megabytes that no page may exceed: browsers and mail refuse more or slow down
STYLES = ("default", "thesis")
Scores = Report | Mapping[str, Any] | None  # of a record: a report, the same as JSON data, or nothing


class Page(NamedTuple):
    """Data of an explorer page: facts, and the arrays of every record."""

    meta: dict[str, Any]
    arrays: list[dict[str, np.ndarray]]  # of each record, by name, up to rounding; NaN is absent


class _Shown(NamedTuple):
    """A record with everything that is written of it."""

    record: EpisodeRecord
    report: Mapping[str, Any] | None
    sheets: list[Atlas]
    packed: Packed


def write_html(
    record: EpisodeRecord | Sequence[EpisodeRecord],
    report: Scores | Sequence[Scores],
    path: str | PathLike[str],
    *,
    max_mb: float = 10,
    style: str = "default",
) -> list[Path]:
    """Write the explorer of one episode, or of two with a shared time cursor.

    Args:
        record: the recorded episode, or two.
        report: its scores, or None; for two records a list.
        path: of the page; an existing file is replaced.
        max_mb: megabytes of a page, at most 25. What does not fit is left out in a fixed order and listed; if that is
            not enough, one episode is split into several pages and ``path`` becomes their index.
        style: ``thesis`` colours as the heat maps of the seed thesis: jet, each frame by its own largest number,
            smooth.

    Returns:
        The files, ``path`` first.

    Raises:
        ValueError: an impossible record (:func:`~recollect.interpret.record.check_record`), more than two, too small a
            ``max_mb``, or a folder that cannot be written.
    """
    records = [record] if isinstance(record, EpisodeRecord) else list(record)
    given = [report] if report is None or isinstance(report, Report | Mapping) else list(report)
    reports = [one.to_json() if isinstance(one, Report) else one for one in given]
    require(1 <= len(records) <= 2, "records", len(records), "give one, or two to compare")
    require(len(reports) == len(records), "reports", len(reports), "give one for each record, or None")
    require(0 < max_mb <= HARD_STOP, "max_mb", max_mb, f"give a number above 0 and at most {HARD_STOP}")
    require(style in STYLES, "style", style, f"give one of {', '.join(STYLES)}")
    for one in records:
        check_record(one)
    target = Path(path)
    pages = _pages(records, reports, target.name, int(max_mb * 1e6), style)
    with path_errors("path", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            write_atomically(target.with_name(name), text)
    return [target.with_name(name) for name in pages]


def load_report(path: str | PathLike[str]) -> dict[str, Any] | list[dict[str, Any] | None] | None:
    """Read the scores of a page; of two records a list.

    Raises:
        ValueError: the file is no memory explorer.
    """
    reports = [record["report"] for record in _read_meta(Path(path).read_text(encoding="utf-8"), path)["records"]]
    return reports[0] if len(reports) == 1 else reports


def read_html(path: str | PathLike[str]) -> Page:
    """Read facts and arrays from a page that ``recollect explore`` has written.

    Raises:
        ValueError: the file is no memory explorer.
    """
    text = Path(path).read_text(encoding="utf-8")
    meta, arrays = _read_meta(text, path), []
    for number, record in enumerate(meta["records"]):
        data = gzip.decompress(base64.b64decode(_read_element(text, f"data-{number}", path)))
        found = {}
        for array in record["arrays"]:
            part = data[array["off"] :][: array["bytes"]]
            found[array["name"]] = decode(Encoded(array["enc"], tuple(array["shape"]), array["map_axes"], part))
        arrays.append(found)
    return Page(meta, arrays)


def _read_meta(text: str, path: str | PathLike[str]) -> dict[str, Any]:
    meta = json.loads(_read_element(text, "meta", path))
    require(meta.get("format") == FORMAT, "format", meta.get("format"), f"this version reads {FORMAT}")
    return meta


def _read_element(text: str, name: str, path: str | PathLike[str]) -> str:
    found = re.search(rf'<script type="[a-z/]+" id="{name}">(.*?)</script>', text, re.DOTALL)
    if found is None:
        raise ValueError(f"{path}: no memory explorer (it has no {name!r}); give a page that write_html wrote")
    return found[1]


def _pages(
    records: list[EpisodeRecord], reports: list[Mapping[str, Any] | None], name: str, max_bytes: int, style: str
) -> dict[str, str]:
    """Return the text of every page, by file name; more than one where one would be too large."""
    empty = Packed([], b"", Plan(), [])
    bare = [
        _Shown(record, report, list(atlases(record.frames)) if record.frames.size else [], empty)
        for record, report in zip(records, reports, strict=True)
    ]
    room = max(1, (max_bytes - len(_page(bare, style))) * 3 // 4 // len(records))
    shown = [one._replace(packed=fit(one.record, room)) for one in bare]
    page = _page(shown, style)
    if len(page) <= max_bytes:
        return {name: page}
    if len(records) > 1:
        raise ValueError(
            f"max_mb={max_bytes / 1e6:g}: two records need {len(page) / 1e6:.1f} MB even with everything left out that "
            "may be; write a page for each, or record fewer steps"
        )
    return _split(shown[0], name, max_bytes, style)


def _split(shown: _Shown, name: str, max_bytes: int, style: str) -> dict[str, str]:
    """Return pages with the maps of some steps each; all have every frame and curve. The first file is an index."""
    stem, ending = name.rsplit(".", 1) if "." in name else (name, "html")
    steps, packed = shown.record.num_steps, shown.packed
    for count in range(2, min(steps, 200) + 1):
        bounds = np.linspace(0, steps, count + 1).round().astype(int).tolist()
        names = [f"{stem}-{part + 1}.{ending}" for part in range(count)]
        links = [
            {"href": quote(names[part]), "text": f"maps of steps {bounds[part]} to {bounds[part + 1] - 1}"}
            for part in range(count)
        ]
        pages: dict[str, str] = {}
        for part in range(count):
            plan = replace(packed.plan, rows=(bounds[part], bounds[part + 1]))
            cut = pack(shown.record, plan)._replace(dropped=packed.dropped)
            here = [link | {"here": number == part} for number, link in enumerate(links)]
            pages[names[part]] = _page([shown._replace(packed=cut)], style, here)
            if len(pages[names[part]]) > max_bytes:
                break
        else:
            return {name: _index(shown, links)} | pages
    raise ValueError(
        f"max_mb={max_bytes / 1e6:g} does not hold the frames and curves of {steps} steps: give more, at most "
        f"{HARD_STOP}, or record fewer steps"
    )


def _page(shown: Sequence[_Shown], style: str, parts: Sequence[Mapping[str, Any]] = ()) -> str:
    described, payload = [], []
    for number, (record, report, sheets, packed) in enumerate(shown):
        header = describe(record, report, packed) | {"arrays": headers(packed), "parts": list(parts), "frames": None}
        if sheets:
            _, height, width, _ = record.frames.shape
            tiles = [{"first": sheet.first, "count": sheet.frames, "columns": sheet.columns} for sheet in sheets]
            header["frames"] = {"width": width, "height": height, "atlases": tiles}
        described.append(header)
        payload.append(block(f"data-{number}", packed.data))
        payload += [block(f"frames-{number}-{place}", sheet.png) for place, sheet in enumerate(sheets)]
    meta: dict[str, Any] = {"format": FORMAT, "style": style, "colours": STOPS, "records": described}
    if len(shown) > 1:
        meta["knots"] = align(shown[0].record, shown[1].record)
    return fill("explorer", " and ".join(header["title"] for header in described), meta, "\n".join(payload))


def _index(shown: _Shown, links: Sequence[Mapping[str, str]]) -> str:
    """Return a page with links to the parts; it has the scores, so that :func:`load_report` reads it too."""
    info = shown.record.info
    title = f"{escape(info.task)}, {escape(info.core)}: {len(links)} parts"
    rows = "".join(f'<li><a href="{escape(link["href"])}">{escape(link["text"])}</a></li>' for link in links)
    records = [{"report": shown.report, "arrays": []}]
    meta = json.dumps(without_nan({"format": FORMAT, "records": records}), allow_nan=False)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="dark light"><title>{title}</title></head><body><main><h1>{title}</h1>'
        "<p>One page would have been too large. Every part has all frames and curves, and maps of its own steps.</p>"
        f'<ul>{rows}</ul></main><script type="application/json" id="meta">'
        f"{meta.replace('<', chr(92) + 'u003c')}</script></body></html>\n"
    )
