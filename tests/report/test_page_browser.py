"""The page in a real browser: no error, no request, search, choose, sort, filter, zoom, theme; with a hostile model too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch
from test_report_views import COSIM, PLAN, drawn

from rewrite_compiler.apps import named
from rewrite_compiler.report.html import page as page_of

ATTACK = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a shipped application."""
    folder = tmp_path_factory.mktemp("page")
    back = os.getcwd()
    os.chdir(folder)
    try:
        answer = flexmatch("show", named("digits_cnn").model, "--accel", "flexasr", "--html", "report.html")
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
    assert "max_pool on flexasr" in chosen.inner_text()
    page.fill("#search", "flatten")
    page.locator(".box.found").click()
    assert page.locator(".detail:visible").count() == 1
    assert "only moves data" in page.locator(".detail:visible").inner_text()
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
