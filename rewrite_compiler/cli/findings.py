"""Findings of a check or a proof for continuous integration: JUnit XML and SARIF."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .files import check_outputs, write_atomically
from .options import Parser

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
    verb_parser.add_argument("--junit", type=Path, metavar="FILE", help="write the findings as JUnit XML, too")
    verb_parser.add_argument("--sarif", type=Path, metavar="FILE", help="write what is wrong as SARIF, too")


def check_finding_files(args: argparse.Namespace) -> None:
    """Check that the files of findings can be written; UsageError F100 where one cannot."""
    check_outputs([path for path in (args.junit, args.sarif) if path is not None])


def write_findings(args: argparse.Namespace, verb: str, findings: Sequence[Finding]) -> None:
    """Write the files of findings that the arguments ask for."""
    files = {}
    if args.junit is not None:
        files[args.junit] = junit(verb, findings)
    if args.sarif is not None:
        files[args.sarif] = (json.dumps(sarif(findings), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
    write_atomically(files)


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
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": [_result(f) for f in failures]}]}


def _result(f: Finding) -> Mapping[str, Any]:
    file, line = split_place(f.place)
    location = {"artifactLocation": {"uri": Path(file).as_posix()}, **({"region": {"startLine": line}} if line else {})}
    return {
        "ruleId": f.code or "refuted",
        "level": "error",
        "message": {"text": f"{f.name}: {f.problem}"},
        **({"locations": [{"physicalLocation": location}]} if file else {}),
    }


def split_place(place: str) -> tuple[str, int]:
    """Return the file and the line of a place, line 0 where it has none."""
    file, colon, line = place.rpartition(":")
    return (file, int(line)) if colon and line.isdigit() else (place, 0)


def _xml(text: str) -> str:
    return CONTROLS.sub("�", text)
