"""The page in a real browser: no error, no request, search, choose, sort, filter, zoom, theme; with a hostile model too."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch
from test_report_views import COSIM, PLAN, drawn

from rewrite_compiler.apps import find_application
from rewrite_compiler.report.page.comparison import comparison_page, entry_of
from rewrite_compiler.report.page.html import page as page_of

AXE = os.environ.get("FLEXMATCH_AXE")  # a checked-out axe.min.js
ATTACK = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a shipped application."""
    folder = tmp_path_factory.mktemp("page")
    back = os.getcwd()
    os.chdir(folder)
    try:
        answer = flexmatch("show", find_application("digits_cnn").model, "--accel", "flexasr", "--html", "report.html")
    finally:
        os.chdir(back)
    assert (answer.code, answer.err) == (0, "")
    return folder / "report.html"


class Watched:
    """A page with everything the browser complained about or asked for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri())

    def column(self, caption: str, number: int) -> list[str]:
        """Return the visible cells of a column of the table with a caption."""
        rows = self.page.locator(f"table:has(caption:text('{caption}')) tbody tr:visible")
        return [rows.nth(n).locator("td").nth(number).inner_text() for n in range(rows.count())]


@pytest.fixture
def seen(browser: Any, report: Path) -> Iterator[Watched]:
    """The page, watched; it may complain of nothing and ask for nothing."""
    watched = Watched(browser, report)
    yield watched
    assert watched.complaints == []
    assert watched.requests == [report.as_uri()]
    watched.page.close()


def test_search_finds_a_node_and_a_click_says_why(seen: Watched) -> None:
    page = seen.page
    assert page.locator(".box").count() == 9
    page.fill("#search", "maxpool")
    assert page.inner_text("#hits") == "1 found"
    page.press("#search", "Enter")
    chosen = page.locator(".detail:visible")
    assert chosen.locator("h3").inner_text().startswith("maxpool")
    assert "max_pool on flexasr" in page.inner_text("#panel")
    page.fill("#search", "flatten")
    page.locator(".box.found").click()
    assert page.locator(".detail:visible").count() == 1
    assert "only moves data" in page.inner_text("#panel")
    assert "max_pool on flexasr" not in page.inner_text("#panel")
    page.fill("#search", "nothing like that")
    assert page.inner_text("#hits") == "0 found"


def test_tables_sort_by_number_and_filter(seen: Watched) -> None:
    page = seen.page
    head = page.locator("table:has(caption:text('4 offloads')) th:text-is('MACs')")
    head.click()
    macs = [int(x.replace(",", "")) for x in seen.column("4 offloads", 4)]
    assert macs == sorted(macs)
    head.click()
    assert [int(x.replace(",", "")) for x in seen.column("4 offloads", 4)] == macs[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    page.fill("#filter", "max_pool")
    assert seen.column("4 offloads", 0) == ["max_pool_0"]


def test_zoom_drag_whole_and_theme(seen: Watched) -> None:
    page = seen.page
    first = page.get_attribute("#graph", "viewBox")
    page.click("#in")
    closer = page.get_attribute("#graph", "viewBox")
    assert float(closer.split()[2]) < float(first.split()[2])
    page.hover("#graph")
    page.mouse.wheel(0, -300)
    page.mouse.down()
    page.mouse.move(600, 500, steps=4)
    page.mouse.up()
    assert page.get_attribute("#graph", "viewBox") != closer
    page.click("#fit")
    whole = [float(x) for x in page.get_attribute("#graph", "viewBox").split()]
    assert whole[3] == 9 * 74 or whole[3] > 400
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("#theme")
    dark = page.evaluate(paper)
    page.click("#theme")
    assert page.evaluate(paper) == light != dark


def test_a_hostile_model_runs_nothing(browser: Any, tmp_path: Path) -> None:
    plan = {**PLAN, "host": [{"node": ATTACK, "op": ATTACK, "why_not": ATTACK}], "notes": [ATTACK]}
    (tmp_path / "hostile.html").write_text(page_of(plan, COSIM, drawn(ATTACK)), "utf-8")
    watched = Watched(browser, tmp_path / "hostile.html")
    assert watched.page.evaluate("window.hacked === undefined")
    assert watched.page.locator("img").count() == 0
    assert ATTACK in watched.page.inner_text("body")
    assert (watched.complaints, len(watched.requests)) == ([], 1)
    watched.page.close()


LUMINANCE = """(c) => {
  const part = (x) => { const v = x / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const [r, g, b] = c.match(/[\\d.]+/g).map(part);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}"""


def contrast(page: Any, selector: str) -> float:
    """Return the contrast of an element's text with the page, as WCAG defines it."""
    paper, ink = (
        page.evaluate(f"({LUMINANCE})(getComputedStyle(document.querySelector('{s}')).{what})")
        for s, what in (("body", "backgroundColor"), (selector, "color"))
    )
    return float((max(paper, ink) + 0.05) / (min(paper, ink) + 0.05))


def test_readers_who_do_not_see_the_page_or_have_no_mouse(seen: Watched) -> None:
    page = seen.page
    nameless = "[...document.querySelectorAll('input, button')].filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim()))"
    assert page.evaluate(f"{nameless}.length") == 0
    assert (
        page.evaluate("[...document.querySelectorAll('svg')].filter((e) => !e.querySelector('title') || !e.getAttribute('role')).length")
        == 0
    )
    assert (
        page.evaluate("[...document.querySelectorAll('table')].filter((t) => !t.caption || t.querySelector('th:not([scope])')).length") == 0
    )
    assert page.locator("h1").count() == page.locator("main").count() == page.locator("nav").count() == 1
    for link in page.locator("nav a").all():
        assert page.locator(f"section{link.get_attribute('href')}").count() == 1
    page.focus("#n0")
    page.keyboard.press("Enter")
    assert page.inner_text(".detail:visible h3") == "conv_0"
    page.focus("th.sort >> nth=0")
    page.keyboard.press(" ")
    assert page.locator("th.sort >> nth=0").get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes_and_fits(scheme: str, browser: Any, report: Path) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 800})
    page.goto(report.as_uri())
    assert min(contrast(page, s) for s in ("body", ".good .big", ".bad .big", ".good", ".look", "nav a", ".about")) >= 4.5
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".verdict").bounding_box()["y"] + page.locator(".verdict").bounding_box()["height"] < 800
    page.close()


@pytest.mark.parametrize("wide", [390, 768, 1400])
def test_the_page_fits_and_its_letters_are_no_smaller_than_eleven_pixels(wide: int, browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": wide, "height": 900})
    page.goto(report.as_uri())
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    sizes = "(e) => parseFloat(getComputedStyle(e).fontSize) * (e.getScreenCTM ? e.getScreenCTM().a : 1)"
    assert page.evaluate(f"Math.min(...[...document.querySelectorAll('td, p, dd, summary, svg text')].map({sizes}))") >= 11
    bottom = max(t.bounding_box()["y"] + t.bounding_box()["height"] for t in page.locator(".tile").all())
    assert bottom < 900
    page.close()


@pytest.mark.parametrize("wide", [768, 1400])
@pytest.mark.parametrize("shown", ["plan", "report"])
def test_no_table_scrolls_sideways(shown: str, wide: int, browser: Any, report: Path, tmp_path: Path) -> None:
    file = report
    if shown == "report":
        file = tmp_path / "page.html"
        file.write_text(page_of(PLAN, COSIM, drawn("relu_1")), "utf-8")
    page = browser.new_page(viewport={"width": wide, "height": 900})
    page.goto(file.as_uri())
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    tables = page.locator(".wide")
    cut = "(all) => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.querySelector('caption').innerText)"
    assert tables.count() >= 5
    assert tables.evaluate_all(cut) == []
    page.close()


def test_links_lead_to_an_offload_a_node_and_a_folded_section(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(f"{report.as_uri()}#offload=linear_1")
    assert page.inner_text("tr.chosen td >> nth=0") == "linear_1"
    assert page.locator(".box.found").count() == 3
    page.goto("about:blank")
    page.goto(f"{report.as_uri()}#node=maxpool_6")
    assert page.inner_text(".detail:visible h3") == "maxpool_6"
    page.click(".go:text-is('linear_2')")
    assert page.url.endswith("#offload=linear_2")
    page.click("nav a[href='#rules']")
    assert page.locator("#rules table").is_visible()
    page.close()


def serious(browser: Any, address: str, scheme: str, wide: int) -> list[list[str]]:
    """Return what axe-core calls serious or critical on a page with all its folds open: rule and first place."""
    page = browser.new_context(color_scheme=scheme, viewport={"width": wide, "height": 900}, bypass_csp=True).new_page()
    page.goto(address)
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run().then((r) => r.violations.map((v) => [v.impact, v.id, String(v.nodes[0].target)]))")
    page.context.close()
    return [place for impact, *place in found if impact in ("serious", "critical")]


@pytest.mark.skipif(AXE is None, reason="no axe-core: npm install axe-core, and name its axe.min.js in FLEXMATCH_AXE")
@pytest.mark.parametrize("shown", ["plan", "report", "comparison"])
def test_axe_finds_nothing_serious(shown: str, browser: Any, report: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(
        {
            "plan": lambda: report.read_text("utf-8"),
            "report": lambda: page_of(PLAN, COSIM, drawn("relu_1")),
            "comparison": lambda: comparison_page([entry_of(PLAN, COSIM), entry_of(PLAN, None)]),
        }[shown](),
        "utf-8",
    )
    for scheme, wide in itertools.product(("light", "dark"), (390, 768, 1400)):
        assert serious(browser, file.as_uri(), scheme, wide) == []


@pytest.mark.skipif(AXE is None, reason="no axe-core: npm install axe-core, and name its axe.min.js in FLEXMATCH_AXE")
def test_axe_finds_a_control_without_name(browser: Any, report: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        report.read_text("utf-8").replace(' aria-label="filter all tables"', "").replace(' placeholder="filter all tables"', "")
    )
    assert serious(browser, (tmp_path / "page.html").as_uri(), "light", 768) == [["label", "#filter"]]


def test_a_printed_page_has_the_tables_and_no_controls(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    assert not any(page.locator(s).first.is_visible() for s in ("#filter", "#search", "#panel", "nav"))
    assert all(page.locator(s).first.is_visible() for s in (".verdict", "#graph", "#offloads table", "#egraph svg", "#again pre"))
    assert page.pdf()[:5] == b"%PDF-"
    page.close()


SECTIONS = ("host", "accuracy", "model", "offloads", "values", "cost", "timeline", "egraph", "rules", "certificates", "again")


def test_a_co_simulation_is_all_there_in_one_small_document(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = flexmatch("demo", "digits_cnn", "--samples", "8", "--html", "report.html")
    assert (answer.code, answer.err) == (0, "")
    assert "wrote      report.html: " in answer.out
    watched = Watched(browser, tmp_path / "report.html")
    page = watched.page
    assert page.locator("details[open]").count() == 0
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert [s.get_attribute("id") for s in page.locator("main > section").all()] == list(SECTIONS)
    assert "top1" in page.inner_text(".verdict")
    assert page.locator("#values svg .held").count() == page.locator("#values svg").count() >= 12
    assert page.locator("#accuracy svg rect").count() >= 4
    lanes = page.evaluate("[...document.querySelectorAll('#timeline svg text')].map((t) => t.textContent)")
    assert {"configuration", "constants", "inputs", "run", "results", "device works"} <= set(lanes)
    assert "conv2d-as-dense-of-windows" in page.inner_text("#egraph")
    assert "rules/convolution.py:" in page.inner_text("#egraph")
    assert "flexmatch prove" in page.inner_text("#certificates") or "proved" in page.inner_text("#certificates")
    assert "--data test.npz --metric top1 --samples 8" in page.inner_text("#again")
    assert 1000 < page.evaluate("document.querySelectorAll('*').length") < 9_000  # what a browser lays out at once
    assert (watched.complaints, len(watched.requests)) == ([], 1)
    page.close()
