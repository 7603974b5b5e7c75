"""Statements: what is judged, as a hash: of a rule's text, or of all files and parameters of a target."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...disk_cache import sources_hash
from ...egraph.saturation import rule_text as compiled
from ...errors import FlexmatchError
from ...rewrite.domain import EVERYWHERE
from ...rewrite.rule import Rule
from ...rewrite.text import rule_text
from ...target import Mapping, Target

CONTENT = ("rewrite_compiler.ila_models", "rewrite_compiler.targets")


def statement_of_rule(rule: Rule) -> str:
    """Return the hash of what a rule says: its text and what it is compiled to."""
    rule = replace(rule, domain=EVERYWHERE)  # which is what a verdict gives
    try:
        compiled_text = compiled.rule_text(rule, 0)
    except FlexmatchError as error:  # a rule that cannot be compiled is judged, and refused later
        compiled_text = str(error)
    return key_of("rule", rule_text(replace(rule, doc="")), compiled_text)


def statement_of_operation(target: Target, name: str) -> str:
    """Return the hash of what an operation of a target says."""
    source_hash = _source_hash(target.build, target.mappings[name])
    return key_of("operation", _content(), target.name, target.sha256, name, source_hash)


def statement_of_model(target: Target) -> str:
    """Return the hash of what a target's accelerator model says."""
    return key_of("model", _content(), target.name, target.sha256)


def _source_hash(build: Any, m: Mapping) -> str:
    """Return the hash of the files in which a model, a driver and numerics are written, whatever files their target names."""
    codes = [getattr(f, "__code__", None) for f in (build, m.drive, m.codes, m.capacities)]
    digest = hashlib.sha256()
    for path in {Path(code.co_filename): None for code in codes if code is not None}:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def key_of(*parts: str) -> str:
    """Return the hash of some texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _content() -> str:
    specs = (find_spec(name) for name in CONTENT)
    return sources_hash([Path(p) for spec in specs if spec is not None for p in spec.submodule_search_locations or ()], [])
