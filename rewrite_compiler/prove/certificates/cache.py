"""The cache of the court: verdicts by the hash of everything they depend on.

The key of a verdict is its statement, and the court with this machine's Python, numpy and LLVM. The statement of a rule is its text
and what it is compiled to, that of an operation or a model all files and parameters of its target. No folder is in a key.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...disk_cache import DiskCache, private_cache_folder
from ...rewrite.rule import Rule
from ...target import Target
from .sources import Court, call_court, court_of, shipped_courts
from .statements import key_of, statement_of_model, statement_of_operation, statement_of_rule

DATE = "kept"  # of a record: the day on which it was judged


class Cache:
    """An on-disk cache of verdicts, one file each; without a folder nothing is stored.

    With `anew` every look-up misses while results are still stored; verdicts that differ from the stored ones are then listed.
    """

    def __init__(self, folder: Path | None, *, anew: bool = False) -> None:
        self.store = DiskCache(folder)
        self.anew = anew
        self.hits = 0
        self.changed_verdicts: list[str] = []

    @property
    def folder(self) -> Path | None:
        """The folder of the entries, None when nothing is stored."""
        return self.store.folder

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record stored under a key, None when there is none or it is damaged."""
        record = None if self.anew else self._read(key)
        self.hits += record is not None
        return record

    def put(self, key: str, record: dict[str, Any]) -> None:
        """Store a record atomically, with the day; a full disk costs the entry only."""
        previous = self._read(key) if self.anew else None
        if previous is not None and previous.get("verdict") != record.get("verdict"):
            self.changed_verdicts.append(f"{record['name']}: {previous['verdict']} (kept {previous[DATE]}), now {record['verdict']}")
        self.store.put(key, json.dumps({**record, DATE: time.strftime("%Y-%m-%d", time.gmtime())}).encode())

    def _read(self, key: str) -> dict[str, Any] | None:
        data = self.store.get(key)
        return None if data is None else dict(json.loads(data))


def court_cache(*, recheck: bool = False) -> Cache:
    """Return the user's cache of verdicts."""
    return Cache(private_cache_folder("court"), anew=recheck)


def rule_key(rule: Rule, **bounds: Any) -> str:
    """Return the key of a rule's verdict; `bounds` are what limits the search for instances."""
    return key_of(statement_of_rule(rule), json.dumps(bounds, sort_keys=True), *_court("rule"))


def mapping_key(target: Target, name: str) -> str:
    """Return the key of the verdict on an operation of a target."""
    return key_of(statement_of_operation(target, name), *_court("target"))


def call_key(target: Target, name: str, call: str) -> str:
    """Return the key of the verdict on one call of an operation, which a text describes."""
    return key_of(statement_of_operation(target, name), call, *_named(call_court()))


def model_key(target: Target) -> str:
    """Return the key of the verdict on a target's accelerator model."""
    return key_of(statement_of_model(target), *_court("target"))


@cache
def _court(kind: str) -> tuple[str, ...]:
    """Return what judges a kind on this machine: numbers are drawn and computed by its numpy, its Python and its LLVM."""
    return _named(court_of(kind, shipped_courts().get(kind)))


def _named(court: Court) -> tuple[str, ...]:
    return (court.sha256, *court.versions, sys.version, version("numpy"), version("llvmlite"))
