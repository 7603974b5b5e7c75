"""The site's contents from the page that lists all pages, and links that leave the documentation."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

SECTION = re.compile(r"^\*\*([\w-]+)\*\*")
PAGE = re.compile(r"^\| \[([^\]]+)\]\(([\w/.-]+\.md)\) \|")
OUTSIDE = re.compile(r"\]\(((?:\.\./)+)([\w./-]+)(#[\w-]+)?\)")


def on_config(config: Any) -> Any:
    """Make the navigation from the tables of docs/README.md."""
    with open(f"{config.docs_dir}/README.md", encoding="utf-8") as page:
        config.nav = navigation(page.read())
    return config


def navigation(text: str) -> list[Any]:
    """Return the sections and pages that the tables list, in their order."""
    found: list[Any] = [{"Start": "README.md"}]
    for line in text.splitlines():
        if section := SECTION.match(line):
            found.append({section[1]: []})
        elif page := PAGE.match(line):
            (pages,) = found[-1].values()
            pages.append({page[1][:1].upper() + page[1][1:]: page[2]})
    return found


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links to files outside of the documentation point into the repository."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)

    def target(m: re.Match[str]) -> str:
        inside = m[1].count("../") <= depth
        return m[0] if inside else f"]({config.repo_url}/blob/main/{m[2]}{m[3] or ''})"

    return OUTSIDE.sub(target, markdown)
