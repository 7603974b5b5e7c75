"""The highlighting of `.rules` files: it is made from the grammar, and says of every word what the parser takes it for."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType
from typing import Any

import pytest
from house import ROOT
from lark import Lark

from rewrite_compiler.rewrite import text_file
from rewrite_compiler.rewrite.rule import GRADES, MARKS, PHASES
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.rewrite.text import rule_text

FOLDER = ROOT / "docs" / "editors"
HIGHLIGHTING = json.loads((FOLDER / "rules.tmLanguage.json").read_text("utf-8"))
GRAMMAR = (ROOT / "rewrite_compiler" / "rewrite" / "grammar.lark").read_text("utf-8")
PUNCTUATION = set("(){}[],:.")
SAMPLE = """\
# the linear family
rule add-as-bias(x: tensor, b: tensor, high: float) grade E phase late marks ring, spelling {
    "x + b = \\"bias_add\\"(x, b)"
    let flat = reshape(b, shape=[b.size])
    add(x, b) = bias_add(x, flat, axis=x.rank - 1)
    where constant(b), b.shape[-1] // 2 == 4, high <= 1.5e3, split(x).0 == inf
}
"""


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("editors_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tokens(text: str, highlighting: dict[str, Any] = HIGHLIGHTING) -> list[tuple[str, str]]:
    """Return (text, scope) of a text as an editor does: line by line, the earliest match, of those the first pattern."""
    patterns = [(re.compile(p["match"]), p.get("name", ""), p.get("captures", {})) for p in highlighting["patterns"]]
    found = []
    for line in text.splitlines():
        at = 0
        while at < len(line):
            hits = [(m.start(), n, m) for n, (regex, _, _) in enumerate(patterns) if (m := regex.search(line, at))]
            start, n, m = min(hits, key=lambda hit: hit[:2], default=(len(line), 0, None))
            found += [(c, "") for c in line[at:start] if not c.isspace()]
            if m is None:
                break
            _, name, captures = patterns[n]
            found += [(m[0], name)] if name else [(m[int(group)], scope["name"]) for group, scope in captures.items()]
            at = m.end()
    return found


def written_words() -> set[str]:
    return set(re.findall(r'"([a-z]+)"', GRAMMAR))


def test_the_files_are_what_the_script_writes() -> None:
    for file, content in script().FILES.items():
        assert json.loads((FOLDER / file).read_text("utf-8")) == content(), f"run python docs/editors/make.py: {file} differs"


def test_every_word_of_the_grammar_is_a_keyword_and_no_other_word_is() -> None:
    (plain,) = (p["match"] for p in HIGHLIGHTING["patterns"] if p.get("name") == "keyword.control")
    assert set(re.findall(r"[a-z]+", plain.replace(r"\b", ""))) == written_words()


def test_every_sign_of_the_grammar_is_an_operator_or_punctuation() -> None:
    signs = set(re.findall(r'"([^"a-zA-Z\s]+)"', "\n".join(x for x in GRAMMAR.splitlines() if not x.startswith(("//", "TEXT", "%")))))
    assert "//" in signs
    assert {x: tokens(f"a {x} b")[1] for x in signs - PUNCTUATION} == {x: (x, "keyword.operator") for x in signs - PUNCTUATION}


@pytest.mark.parametrize(
    ("line", "words", "scope"),
    [
        ("rule r(x: {})", text_file.KINDS, "storage.type"),
        ("where {}(x)", text_file.FUNCTIONS, "support.function"),
        ("where x.{} == 1", text_file.MEMBERS, "support.variable.property"),
        ("grade {} {{", GRADES, "constant.language"),
        ("phase {} {{", PHASES, "constant.language"),
        ("marks {} {{", MARKS, "constant.language"),
    ],
)
def test_every_word_of_the_readers_tables_has_its_scope(line: str, words: Any, scope: str) -> None:
    assert words
    assert not [w for w in words if (w, scope) not in tokens(line.format(w))]


def test_a_sample_is_split_as_the_parser_reads_it() -> None:
    assert Lark(GRAMMAR, parser="lalr").parse(SAMPLE).children
    found = tokens(SAMPLE)
    for expected in [
        ("# the linear family", "comment.line.number-sign"),
        ("rule", "keyword.control"),
        ("add-as-bias", "entity.name.type"),
        ("high", "variable.parameter"),
        ("grade", "keyword.other"),
        ("ring, spelling", "constant.language"),
        ('"x + b = \\"bias_add\\"(x, b)"', "string.quoted.double"),
        ("let", "keyword.control"),
        ("flat", "variable.other.constant"),
        ("reshape", "entity.name.function"),
        ("shape", "entity.other.attribute-name"),
        ("shape", "support.variable.property"),
        ("constant", "support.function"),
        ("//", "keyword.operator"),
        ("1.5e3", "constant.numeric"),
        ("0", "constant.numeric"),
        ("inf", "constant.language"),
    ]:
        assert expected in found
    assert {c for c, scope in found if not scope} <= PUNCTUATION


def test_nothing_of_the_shipped_rules_is_without_a_scope() -> None:
    text = "\n".join(map(rule_text, shipped_rules()))
    assert {c for c, scope in tokens(text) if not scope} <= PUNCTUATION


def test_a_highlighting_without_a_word_is_noticed() -> None:
    without = {**HIGHLIGHTING, "patterns": [p for p in HIGHLIGHTING["patterns"] if p.get("name") != "keyword.operator"]}
    assert ("/", "") in tokens("a // b", without)


def test_the_extension_names_the_files_beside_it() -> None:
    manifest = json.loads((FOLDER / "package.json").read_text("utf-8"))["contributes"]
    named = [manifest["languages"][0]["configuration"], manifest["grammars"][0]["path"]]
    assert all((FOLDER / name).is_file() for name in named)
    assert manifest["grammars"][0]["scopeName"] == HIGHLIGHTING["scopeName"]
