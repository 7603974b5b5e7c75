"""Every error code in the source has its page, and every page can be read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from command import flexmatch

from rewrite_compiler.cli.error_codes import CODES

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("rewrite_compiler", "rules", "ila_models", "targets", "apps")
CODE = re.compile(r"\b[FRICX]\d{3}\b")


@cache
def used() -> dict[str, str]:
    """Return every error code in a string of the source, and where it stands."""
    return dict(_used())


def _used() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if path.name == "codes.py" and path.parent.name == "cli":
                continue
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if CODE.search(text) else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from ((code, f"{path.relative_to(ROOT)}:{node.lineno}") for code in CODE.findall(node.value))


def test_every_code_that_is_used_has_a_page() -> None:
    found = used()
    assert len(found) > 40
    assert not {code: place for code, place in found.items() if code not in CODES}


def test_every_page_is_about_a_code_that_is_used() -> None:
    assert CODES.keys() <= used().keys()


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_what_a_code_means_and_one_thing_to_do(code: str) -> None:
    means, remedy = CODES[code]
    assert CODE.fullmatch(code)
    assert means[0].isupper()
    assert remedy[0].islower() or remedy[:2].isupper()
    assert not means.endswith(".")
    assert not remedy.endswith(".")
    answer = flexmatch("explain", code.lower())
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"{code}  {means}\n  ")
    assert " ".join(answer.out.split()) == f"{code} {means} {remedy}"


def test_the_pages_are_in_order_by_family() -> None:
    families = ["F", "R", "I", "C", "X"]
    assert list(CODES) == sorted(CODES, key=lambda code: (families.index(code[0]), code))
