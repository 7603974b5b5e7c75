"""The cache of the court: verdicts by the hash of everything they depend on.

The key of a rule is its text and what it is compiled to, the meaning of all operators, and the court itself, each by the
source that defines it; the key of an operation adds the target's files. What cannot be read whole is judged again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..egraph import rules as compiled
from ..errors import FlexmatchError
from ..kept import Kept, hash_of, private_folder
from ..rewrite.domain import EVERYWHERE
from ..rewrite.rule import Rule
from ..rewrite.text import rule_text
from ..target import Mapping, Target

ENGINE = Path(__file__).parent.parent
# the packages whose sources a verdict depends on
OF_RULES = ("lang", "ops", "ir", "rewrite", "prove")
OF_TARGETS = (*OF_RULES, "ila", "fit", "target")
CONTENT = ("rewrite_compiler.ila_models", "rewrite_compiler.targets")
SOLVERS = ("z3-solver", "numpy")


class Cache:
    """Verdicts in a folder, one file each; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.kept = Kept(folder)
        self.hits = 0

    @property
    def folder(self) -> Path | None:
        """Where they are."""
        return self.kept.folder

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what is kept under a key, None when there is nothing or it is damaged."""
        found = self.kept.get(key)
        if found is None:
            return None
        self.hits += 1
        return dict(json.loads(found))

    def put(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record in one step; a full disk costs the entry only."""
        self.kept.put(key, json.dumps(record).encode())


def court_cache() -> Cache:
    """Return the user's cache."""
    return Cache(private_folder("court"))


def rule_key(rule: Rule, **bounds: Any) -> str:
    """Return the key of a rule's verdict under bounds."""
    return _key("rule", _engine(OF_RULES), *_rule(rule), json.dumps(bounds, sort_keys=True))


def mapping_key(target: Target, name: str) -> str:
    """Return the key of the verdict on an operation of a target."""
    return _key("mapping", _engine(OF_TARGETS), _content(), target.name, target.sha256, name, _written(target.build, target.mappings[name]))


def _written(build: Any, m: Mapping) -> str:
    """Return the hash of the files in which a model, a driver and numerics are written, whatever files their target names."""
    codes = [getattr(f, "__code__", None) for f in (build, m.drive, m.codes, m.capacities)]
    digest = hashlib.sha256()
    for path in sorted({Path(code.co_filename) for code in codes if code is not None}):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def model_key(target: Target) -> str:
    """Return the key of the verdict on a target's accelerator model."""
    return _key("model", _engine(OF_TARGETS), _content(), target.name, target.sha256)


def statement_of_rule(rule: Rule) -> str:
    """Return the hash of what a rule says: its text, what it is compiled to, and the meaning of the operators."""
    return _key("rule", _meaning(), *_rule(rule))


def statement_of_operation(target: Target, name: str) -> str:
    """Return the hash of what an operation of a target says."""
    return _key("operation", _meaning(), _content(), target.name, target.sha256, name)


def statement_of_model(target: Target) -> str:
    """Return the hash of what a target's accelerator model says."""
    return _key("model", _content(), target.name, target.sha256)


def _rule(rule: Rule) -> tuple[str, str]:
    rule = replace(rule, domain=EVERYWHERE)  # which is what a verdict gives
    try:
        meant = compiled.rule_text(rule, 0)
    except FlexmatchError as error:  # a rule that cannot be compiled is judged, and refused later
        meant = str(error)
    return rule_text(replace(rule, doc="")), meant


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _engine(packages: tuple[str, ...]) -> str:
    versions = [f"{name} {version(name)}" for name in SOLVERS]
    return hash_of([ENGINE / p for p in packages], [sys.version, *versions])


@cache
def _meaning() -> str:
    return hash_of([ENGINE / "ops"], [])


@cache
def _content() -> str:
    found = (find_spec(name) for name in CONTENT)
    return hash_of([Path(p) for spec in found if spec is not None for p in spec.submodule_search_locations or ()], [])
