"""The sources of the court: the modules that judging depends on, by transitive imports, and the versions of its solvers.

Equal sources judge alike. The list of a court's files is a function of these files, so where all in a
known list are as they were, the list is, too, and only files need to be read; else imports are followed anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ENGINE = Path(__file__).parents[2]
SHIPPED = Path(__file__).with_name("certificates.json")
SOLVERS = ("z3-solver", "egglog")
CALL_ROOTS = ("prove/calls/call_validation.py", "compile/plan/validation.py")  # of what judges single calls; in no shipped certificate
CALLER = frozenset({"compile/plan/plan.py"})  # says which calls there are, and a call is in its key
GRAMMAR = "rewrite/grammar.lark"
ROOTS = {"rule": ("prove/rules/rules.py", "rewrite/text_file.py"), "target": ("prove/certificates/judge.py", "rewrite/text_file.py")}
# beside the court: words, files, limits; and what rules are compiled to, which is in their statement
OUTSIDE_COURT = frozenset({"errors.py", "disk_cache.py", "limits.py", "intake.py", "callable_module.py", "egraph"})


@dataclass(frozen=True)
class Court:
    """What judges rules, or operations and models: the hash of its files, their names, and versions by name."""

    sha256: str
    files: tuple[str, ...]
    versions: tuple[str, ...]

    @property
    def is_installed(self) -> bool:
        """Tell whether this very court is the one that is installed."""
        return self.versions == solver_versions() and self.sha256 == _hash(self.files)


@cache
def shipped_document() -> dict[str, Any]:
    """Return the file of certificates that ships: the courts that judged them, and themselves."""
    return dict(json.loads(SHIPPED.read_text("utf-8")))


def shipped_courts() -> dict[str, Court]:
    """Return the courts that judged the shipped certificates, by kind."""
    read: dict[str, Any] = shipped_document()["courts"]
    return {kind: Court(c["sha256"], tuple(c["files"]), tuple(c["versions"])) for kind, c in read.items()}


def court_of(kind: str, recorded: Court | None = None) -> Court:
    """Return the court of a kind as it is installed; where a known one is, imports need not be followed."""
    return recorded if recorded is not None and recorded.is_installed else _court_by_imports(kind)


@cache
def call_court() -> Court:
    """Return what judges single calls of operations."""
    files = import_closure(CALL_ROOTS, CALLER)
    return Court(_hash(files), files, solver_versions())


def solver_versions() -> tuple[str, ...]:
    """Return the name and version of each solver."""
    return tuple(f"{name} {version(name)}" for name in SOLVERS)


@cache
def _court_by_imports(kind: str) -> Court:
    files = import_closure(ROOTS[kind])
    return Court(_hash(files), files, solver_versions())


def import_closure(roots: Iterable[str], left_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the files that some modules import, directly or not, themselves included; what stands beside the court is left out.

    The files `left_out` are so, too, with what they import. Of packages that run only because a module of theirs is
    imported, the file itself counts: what it imports for others to use is followed where that is used.
    """
    pending, file_names = [ENGINE / name for name in roots], {GRAMMAR} - left_out
    while pending:
        file = pending.pop()
        name = file.relative_to(ENGINE)
        if name.parts[0] not in OUTSIDE_COURT and name.as_posix() not in file_names | left_out:
            file_names.add(name.as_posix())
            pending += _imports(file)
    packages = {(folder / "__init__.py").as_posix() for name in file_names for folder in Path(name).parents}
    return tuple(sorted(file_names | {name for name in packages - left_out if (ENGINE / name).is_file()}))


def _imports(file: Path) -> Iterator[Path]:
    """Yield the modules of the library that one imports, inside of functions, too."""
    for x in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(x, ast.ImportFrom):
            base = (file.parents[x.level - 1] if x.level else ENGINE.parent) / (x.module or "").replace(".", "/")
            modules = [_module(base / name.name) or _module(base) for name in x.names]
        elif isinstance(x, ast.Import):
            modules = [_module(ENGINE.parent / name.name.replace(".", "/")) for name in x.names]
        else:
            continue
        yield from (m for m in modules if m is not None and m.is_relative_to(ENGINE))


def _module(name: Path) -> Path | None:
    """Return the file of a module or of a package."""
    return next((f for f in (name.with_suffix(".py"), name / "__init__.py") if f.is_file()), None)


@cache
def _hash(files: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in files:
        file = ENGINE / name
        data = file.read_bytes() if file.is_file() else b""
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
