"""Statements: what is judged, as a hash: of a rule's text, or of all files and parameters of a target."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...egraph.saturation import rule_text as compiled
from ...errors import FlexmatchError
from ...rewrite.domain import EVERYWHERE
from ...rewrite.rule import Rule
from ...rewrite.text import rule_text
from ...target import Target
from ..mappings.driver_code import bound_functions, function_layers
from .content import content_hash


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
    m = target.mappings[name]
    return key_of("operation", _content(target, m.drive, m.codes, m.capacities), target.name, target.sha256, name)


def statement_of_model(target: Target) -> str:
    """Return the hash of what a target's accelerator model says."""
    return key_of("model", _content(target), target.name, target.sha256)


def _content(target: Target, *functions: Any) -> str:
    """Return the hash of all that the files depend on in which a target and functions of it are written, whatever files it names.

    A function that wraps another one counts as well as that one; one that is generated names in `sources` the files that generate it.
    """
    definitions = [f for x in (target.build, target.describe, *functions) for f in (*function_layers(x), *bound_functions(x))]
    files = {Path(f.__code__.co_filename) for f in definitions} | {p for f in definitions for p in getattr(f, "sources", ())}
    return content_hash(tuple(sorted({*target.sources, *files})))


def key_of(*parts: str) -> str:
    """Return the hash of some texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
