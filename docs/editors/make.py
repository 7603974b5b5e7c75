"""Write the highlighting of `.rules` files for editors: words come from the grammar and the tables of its reader.

Run from a clone: `python docs/editors/make.py`. The folder is an extension of VS Code; TextMate and Sublime Text take the one grammar file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from lark import Lark
from lark.lexer import PatternStr

from rewrite_compiler.rewrite import text_file
from rewrite_compiler.rewrite.rule import GRADES, MARKS, PHASES

FOLDER = Path(__file__).parent
NAME = "[A-Za-z_][A-Za-z0-9_]*"
RULE_NAME = f"{NAME}(?:-[A-Za-z0-9_]+)*"


def grammar_terminals() -> tuple[set[str], set[str]]:
    """Return the words and the signs that the grammar writes out."""
    grammar = Path(text_file.__file__).with_name("grammar.lark").read_text("utf-8")
    literals = {t.pattern.value for t in Lark(grammar, parser="lalr").terminals if isinstance(t.pattern, PatternStr)}
    return {x for x in literals if x.isalpha()}, {x for x in literals if not x.isalpha()}


def one_of(words: Iterable[str]) -> str:
    """Return a regular expression of some words, longer ones first."""
    return "(?:" + "|".join(sorted(words, key=lambda w: (-len(w), w))) + ")"


def highlighting() -> dict[str, object]:
    """Return the TextMate grammar of rule files; of the patterns that match at a place the first one is used."""
    keywords, _ = grammar_terminals()
    settings = {"grade": GRADES, "phase": PHASES, "marks": MARKS}
    return {
        "name": "flexmatch rules",
        "scopeName": "source.rules",
        "fileTypes": ["rules"],
        "patterns": [
            {"name": "comment.line.number-sign", "match": "#.*$"},
            {"name": "string.quoted.double", "match": '"(?:\\\\.|[^"\\\\\\n])*"'},
            {"match": rf"\b(rule)\s+({RULE_NAME})", "captures": _scopes("keyword.control", "entity.name.type")},
            {"match": rf"\b(let)\s+({NAME})", "captures": _scopes("keyword.control", "variable.other.constant")},
            *(
                {
                    "match": rf"\b({word})\s+({one_of(values)}(?:\s*,\s*{one_of(values)})*)\b",
                    "captures": _scopes("keyword.other", "constant.language"),
                }
                for word, values in settings.items()
            ),
            {"match": rf"\b({NAME})\s*:\s*({one_of(text_file.KINDS)})\b", "captures": _scopes("variable.parameter", "storage.type")},
            {"name": "support.function", "match": rf"\b{one_of(text_file.FUNCTIONS)}(?=\s*\()"},
            {"name": "entity.name.function", "match": rf"\b{NAME}(?=\s*\()"},
            {"name": "keyword.control", "match": rf"\b{one_of(keywords)}\b"},
            {"name": "entity.other.attribute-name", "match": rf"\b{NAME}(?==(?!=))"},
            {"match": rf"\.({one_of(text_file.MEMBERS)})\b", "captures": _scopes("support.variable.property")},
            {"name": "constant.language", "match": r"\binf\b"},
            {"name": "variable.other", "match": rf"\b{NAME}\b"},
            {"name": "constant.numeric", "match": r"\b[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\b"},
            {"name": "keyword.operator", "match": r"==|!=|<=|>=|//|[-+*%|&<>=]"},
        ],
    }


def _scopes(*names: str) -> dict[str, dict[str, str]]:
    return {str(n): {"name": name} for n, name in enumerate(names, 1)}


def extension() -> dict[str, object]:
    """Return the manifest that makes the folder an extension of VS Code."""
    language = {"id": "flexmatch-rules", "extensions": [".rules"], "configuration": "./language-configuration.json"}
    return {
        "name": "flexmatch-rules",
        "displayName": "flexmatch rules",
        "publisher": "flexmatch",
        "version": "0.1.0",
        "license": "Apache-2.0",
        "engines": {"vscode": "^1.60.0"},
        "contributes": {
            "languages": [language],
            "grammars": [{"language": "flexmatch-rules", "scopeName": "source.rules", "path": "./rules.tmLanguage.json"}],
        },
    }


def editing() -> dict[str, object]:
    """Return what an editor closes and comments out."""
    pairs = [["(", ")"], ["[", "]"], ["{", "}"]]
    return {"comments": {"lineComment": "#"}, "brackets": pairs, "autoClosingPairs": [*pairs, ['"', '"']]}


FILES = {"rules.tmLanguage.json": highlighting, "package.json": extension, "language-configuration.json": editing}

if __name__ == "__main__":
    for file, content in FILES.items():
        (FOLDER / file).write_text(json.dumps(content(), indent=2) + "\n", "utf-8")
