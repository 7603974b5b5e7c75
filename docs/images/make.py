"""Make the pictures of the documentation: python docs/images/make.py [FOLDER] runs the commands and writes what they show.

report-light.png and report-dark.png are the page of a co-simulation in headless Chromium (Debian's chromium, playwright of the
extra `test`); terminal.svg is what the commands print, drawn by rich. The tests make them again and compare.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
WIDE, TALL = 1100, 900
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
COMMANDS = (
    "flexmatch digits.onnx --accel flexasr --calibrate calibration.npz",
    "flexmatch cosim digits.flexasr.json --data test.npz --samples 100 --html report.html --json report.json",
    "flexmatch explain digits.flexasr.json conv_3",
)


def workshop(folder: Path) -> list[str]:
    """Run the commands on a shipped application in a folder; return what a terminal shows."""
    from rewrite_compiler.apps import App, find_application

    app = find_application("digits_cnn")
    assert isinstance(app, App)
    for source, name in ((app.model, "digits.onnx"), (app.data, "test.npz"), (app.calibration, "calibration.npz")):
        shutil.copy(source, folder / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    shown = []
    for command in COMMANDS:
        run = subprocess.run(command.split(), cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
        shown += [f"$ {command}", *run.stdout.splitlines(), ""]
    return shown


def terminal(lines: list[str]) -> str:
    """Return the picture of a terminal with these lines."""
    console = Console(record=True, width=max(100, *map(len, lines)), file=StringIO(), legacy_windows=False)
    for line in lines:
        console.print(Text(line, style="bold" if line.startswith("$ ") else ""), soft_wrap=True)
    drawn = console.export_svg(title="flexmatch", unique_id="flexmatch")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # nothing is loaded


def photograph(browser: Any, page: Path, scheme: str) -> bytes:
    """Return the picture of the first screen of a page."""
    seen = browser.new_page(color_scheme=scheme, viewport={"width": WIDE, "height": TALL})
    seen.goto(page.as_uri())
    picture: bytes = seen.screenshot()
    seen.close()
    return picture


def main(into: Path = HERE) -> None:
    """Write all pictures."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        lines = workshop(Path(folder))
        (into / "terminal.svg").write_text(terminal(lines), "utf-8")
        program = next(filter(None, map(shutil.which, PROGRAMS)))
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            (into / f"report-{scheme}.png").write_bytes(photograph(browser, Path(folder) / "report.html", scheme))
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
