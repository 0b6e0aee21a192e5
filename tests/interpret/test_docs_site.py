"""The site as visitors see it: what axe-core finds, how long pages are, and how many clicks lead to them."""

import html
import json
import os
import posixpath
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser

from recollect.comparison.compare import compare
from recollect.comparison.page import page as compare_page
from run_maker import make_run

ROOT = Path(__file__).parents[2]
AXE = Path(os.environ.get("AXE_CORE", ROOT / ".venv/node_modules/axe-core/axe.min.js"))
PAGES = ("", "cores/hcam", "results", "results/htm", "explore", "memory-suite")
SCREEN, MOST_SCREENS = 900, 12

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as strictly as ``make docs`` builds it."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    opened = Browser()
    # A page that is left may still write its theme, so the next one forgets it before its own scripts run.
    forget = "if (location.protocol === 'file:') localStorage.clear()"
    opened.call("Page.addScriptToEvaluateOnNewDocument", source=forget)
    opened.call("Network.setBlockedURLs", urls=["*/search_index.json"])  # every page would index all words of the site
    yield opened
    opened.close()


def visit(browser, site, page, width, theme):
    """Opens a page in a theme that no earlier page has chosen."""
    browser.window(width, SCREEN, theme=theme)
    browser.open(site / page / "index.html", wait=False)
    wait_for(browser, "document.readyState === 'complete' && location.protocol === 'file:'")
    scheme = {"light": "default", "dark": "slate"}[theme]
    wait_for(browser, f"document.body.dataset.mdColorScheme === '{scheme}'")


def wait_for(browser, condition):
    end = time.monotonic() + 600
    while not browser.run(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.05)


def pages(site):
    return {
        "" if path.parent == site else path.parent.relative_to(site).as_posix() for path in site.rglob("index.html")
    }


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install --prefix .venv axe-core")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 400])
def test_axe_finds_nothing(browser, site, width, theme):
    found = {}
    for page in PAGES:
        visit(browser, site, page, width, theme)
        browser.run(AXE.read_text() + ";1")
        told = json.loads(browser.run("axe.run(document).then(found => JSON.stringify(found.violations))"))
        found |= {(page, one["id"]): [node["html"][:200] for node in one["nodes"]][:3] for one in told}
    assert found == {}


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install --prefix .venv axe-core")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 400])
def test_axe_finds_nothing_on_a_page_that_compares_runs(browser, tmp_path, width, theme):
    runs = [make_run(tmp_path, core, 0, [0.4, score]) for core, score in (("memoryless", 0.5), ("gru", 0.9))]
    page = tmp_path / "comparison.html"
    page.write_text(compare_page(compare(runs), tmp_path))
    browser.window(width, SCREEN, theme=theme)
    browser.open(page, wait=False)
    wait_for(browser, "document.readyState === 'complete' && location.protocol === 'file:'")
    browser.run(AXE.read_text() + ";1")
    found = json.loads(browser.run("axe.run(document).then(found => JSON.stringify(found.violations))"))
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []


def test_pages_are_short_but_the_reference(browser, site):
    long = {}
    for page in pages(site):
        if not page.startswith("reference"):
            visit(browser, site, page, 1440, "light")
            screens = browser.run("document.documentElement.scrollHeight") / SCREEN
            long |= {page: screens} if screens > MOST_SCREENS else {}
    assert long == {}


def test_two_clicks_lead_everywhere(site):
    known = pages(site)

    def linked(page):
        links = re.findall(r'href="([^"#:]+)"', (site / page / "index.html").read_text())
        there = {posixpath.normpath(posixpath.join(page, link)) for link in links}
        return known & {"" if place == "." else place for place in there}

    first = linked("")
    assert known <= first.union(*map(linked, first))


def test_no_markup_of_docstrings_is_shown(site):
    raw = re.compile(
        r"``|:(?:attr|class|data|func|meth|mod):|\bfield\(|object at 0x|<factory>|docs/log\.md|\w::$", re.M
    )
    shown = {}
    for page in pages(site):
        if page.startswith(("reference", "cores")):
            article = (site / page / "index.html").read_text().partition("<article")[2].partition("</article>")[0]
            text = html.unescape(re.sub(r"<[^>]+>", "", article))
            assert "<details class" not in article, f"{page}: an indented line is read as a box with a title"
            shown |= {page: [text[found.start() - 60 : found.end() + 40] for found in raw.finditer(text)]}
    assert {page: found for page, found in shown.items() if found} == {}
    assert len(shown) > 30, "these pages are there"
