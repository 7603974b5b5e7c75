"""The documentation as a site: built without a warning, every page reachable, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import ROOT, built_site

LOADED = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=\"?https?:|<link[^>]*\bhref=\"?https?:[^>]*\brel=\"?stylesheet")


@pytest.fixture(scope="module")
def site() -> Path:
    made, complaints = built_site()
    assert complaints == ""
    return made


def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    pages = sorted(p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md"))
    start = (site / "index.html").read_text("utf-8")
    assert len(pages) > 10
    for page in pages:
        built = Path("index.html") if page.name == "README.md" else page.with_suffix(".html")
        assert (site / built).is_file()
        assert built.name == "index.html" or f'href="{built.as_posix()}"' in start or f"href={built.as_posix()}" in start


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {m.group(0) for page in site.rglob("*.html") for m in LOADED.finditer(page.read_text("utf-8"))}
    assert not loaded


def test_links_out_of_the_documentation_point_into_the_repository(site: Path) -> None:
    page = (site / "tutorial" / "first-model.html").read_text("utf-8")
    assert "https://github.com/flexmatch/flexmatch/blob/main/README.md#install" in page
