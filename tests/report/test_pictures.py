"""The pictures of the documentation are what the program shows now: the page within a tolerance, the terminal word for word."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from once import once
from pages import ROOT, normal

from rewrite_compiler.data.png import decode_png

IMAGES = ROOT / "docs" / "images"
BLOCK = 20  # pixels of a square whose mean is compared: fonts differ from machine to machine
MEAN, LARGEST = 4.0, 90.0  # of 255, over squares


def coarse(picture: bytes) -> Any:
    """Return the means of squares of a picture."""
    pixels = decode_png(picture)[..., :3].astype(float).mean(axis=-1)
    tall, wide = (n // BLOCK * BLOCK for n in pixels.shape)
    return pixels[:tall, :wide].reshape(tall // BLOCK, BLOCK, wide // BLOCK, BLOCK).mean(axis=(1, 3))


def words(svg: str) -> str:
    """Return the text of a picture of a terminal, a row a line."""
    rows: dict[str, str] = {}
    for y, text in re.findall(r'<text class="flexmatch-r\d+"[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        rows[y] = rows.get(y, "") + html.unescape(text).replace("\xa0", " ")
    return "\n".join(line for line in rows.values() if line.strip())


pytestmark = pytest.mark.xdist_group("pictures")  # one worker compiles and co-simulates for all of them


@pytest.fixture(scope="module")
def made() -> tuple[Any, Path, list[str]]:
    """The script that makes the pictures, a folder in which its commands ran, once for all processes, and what they said."""
    spec = importlib.util.spec_from_file_location("make_pictures", IMAGES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    folder = Path(os.environ["FLEXMATCH_CACHE"]) / "pictures"  # gone at the end of the run
    folder.mkdir(exist_ok=True)
    return script, folder, json.loads(once("pictures", lambda: json.dumps(script.workshop(folder))))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_looks_as_in_the_picture(scheme: str, made: tuple[Any, Path, list[str]], browser: Any) -> None:
    script, folder, _ = made
    now, then = (
        coarse(p) for p in (script.photograph(browser, folder / "report.html", scheme), (IMAGES / f"report-{scheme}.png").read_bytes())
    )
    assert now.shape == then.shape
    difference = np.abs(now - then)
    assert difference.mean() < MEAN
    assert difference.max() < LARGEST
    other = coarse((IMAGES / f"report-{'dark' if scheme == 'light' else 'light'}.png").read_bytes())
    assert np.abs(now - other).mean() > 100  # the comparison can fail


def test_the_terminal_says_what_the_picture_shows(made: tuple[Any, Path, list[str]]) -> None:
    script, _, lines = made
    svg = (IMAGES / "terminal.svg").read_text("utf-8")
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
    assert normal(words(svg)) == normal(words(script.terminal(lines)))
