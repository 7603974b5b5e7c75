"""Findings of a check or a proof for continuous integration: JUnit XML and SARIF."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..errors import Problem
from .files import write_atomically
from .options import Parser

SOURCE_ROOT = "SRCROOT"
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
CONTROLS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML has no form for


@dataclass(frozen=True)
class Finding:
    """One thing that was judged: its name, its place (`FILE:LINE` or FILE), what is wrong with it, nothing where it is good."""

    name: str
    place: str
    problem: str = ""
    code: str = ""
    seconds: float = 0.0


def add_finding_options(verb_parser: Parser) -> None:
    """Add the options that ask for findings as files."""
    verb_parser.add_output("--junit", type=Path, metavar="FILE", help="write the findings as JUnit XML, too")
    verb_parser.add_output("--sarif", type=Path, metavar="FILE", help="write what is wrong as SARIF, too")


def write_findings(args: argparse.Namespace, verb: str, findings: Sequence[Finding]) -> None:
    """Write the files of findings that the arguments ask for."""
    files = {}
    if args.junit is not None:
        files[args.junit] = junit(verb, findings)
    if args.sarif is not None:
        files[args.sarif] = (json.dumps(sarif(findings), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
    write_atomically(files)


def write_problems(args: argparse.Namespace, problems: Iterable[Problem]) -> None:
    """Write the problems of what `check` was asked of as findings; without any, one that is good."""
    failures = [Finding(p.code, p.place or args.subject, p.sentence, p.code) for p in problems]
    write_findings(args, "check", failures or [Finding(args.subject, args.subject)])


def junit(verb: str, findings: Sequence[Finding]) -> bytes:
    """Return findings as a JUnit document: one test case each, a failure where something is wrong."""
    counts = {"tests": str(len(findings)), "failures": str(sum(bool(f.problem) for f in findings))}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": f"flexmatch {verb}", **counts, "errors": "0"})
    for f in findings:
        file, _ = split_place(f.place)
        case = ElementTree.SubElement(
            suite, "testcase", {"name": _xml(f.name), "classname": _xml(file or verb), "time": f"{f.seconds:.3f}"}
        )
        if f.problem:
            message = _xml(f.problem.splitlines()[0])
            failure = ElementTree.SubElement(case, "failure", {"message": message, "type": f.code or "refuted"})
            failure.text = _xml(f"{f.place}: {f.problem}")
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def sarif(findings: Iterable[Finding]) -> Mapping[str, Any]:
    """Return what is wrong as a SARIF 2.1.0 log: one result each, with its code and place."""
    failures = [f for f in findings if f.problem]
    codes = sorted({f.code for f in failures if f.code})
    driver = {"name": "flexmatch", "rules": [{"id": code} for code in codes]}
    roots = {SOURCE_ROOT: {"uri": _folder_uri(source_root())}}
    run = {"tool": {"driver": driver}, "originalUriBaseIds": roots, "results": [_result(f) for f in failures]}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(f: Finding) -> Mapping[str, Any]:
    file, line = split_place(f.place)
    location = {"artifactLocation": artifact_location(file), **({"region": {"startLine": line}} if line else {})}
    return {
        "ruleId": f.code or "refuted",
        "level": "error",
        "message": {"text": f"{f.name}: {f.problem}"},
        **({"locations": [{"physicalLocation": location}]} if file else {}),
    }


def artifact_location(file: str) -> Mapping[str, str]:
    """Return a file as SARIF names it: a URI relative to the checkout (else the working folder), absolute for a file outside of it."""
    path, root = Path(os.path.abspath(file)), source_root()
    uri, base = path.as_uri(), _folder_uri(root)
    return {"uri": uri.removeprefix(base), "uriBaseId": SOURCE_ROOT} if uri.startswith(base) else {"uri": uri}


def _folder_uri(folder: Path) -> str:
    return f"{folder.as_uri().rstrip('/')}/"


def source_root() -> Path:
    """Return the checkout that the working folder is in, the working folder where it is in none."""
    folder = Path.cwd()
    return next((f for f in (folder, *folder.parents) if (f / ".git").exists()), folder)


def split_place(place: str) -> tuple[str, int]:
    """Return the file and the line of a place, line 0 where it has none; what follows the name of an existing file is no part of it."""
    ends = [n for n, character in enumerate(place) if character == ":"]
    file = next((place[:n] for n in reversed([*ends, len(place)]) if os.path.isfile(place[:n])), "")
    line = re.match(r":([0-9]{1,9})(?::|$)", place[len(file) :]) if file else re.search(r":([0-9]{1,9})$", place)
    return (file or place[: line.start() if line else None], int(line[1]) if line else 0)


def _xml(text: str) -> str:
    return CONTROLS.sub("�", text)
