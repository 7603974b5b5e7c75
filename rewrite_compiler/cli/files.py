"""Atomic writes of output files: all of a set or none of it, never over an input of the command."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import tempfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from ..errors import UsageError
from ..intake import FileIdentity, identity, opened_files

UNFINISHED: set[str] = set()  # temporary files that have no name yet


def check_outputs(outputs: Iterable[Path], inputs: Container[FileIdentity] = frozenset(), *, about: str = "") -> None:
    """Check, before the work whose result they hold, that files can be written; inputs are never written over.

    Raises:
        UsageError: a path is no file name, its folder is missing or read-only, it is one of the inputs, or two are one file (F100).
    """
    paths = [*outputs]
    for path in paths:
        obstacle = _obstacle(path)
        if obstacle is not None:
            reason, remedy = obstacle
            raise UsageError("F100", f"{path} cannot be written: {reason}", help=remedy)
        _check_no_input(path, inputs, about)
    for path, other_path in itertools.combinations(paths, 2):
        if path.resolve() == other_path.resolve():
            raise UsageError("F100", f"{path} cannot be written: another output has this name", help="choose two names")


def _check_no_input(path: Path, inputs: Container[FileIdentity], about: str = "") -> None:
    file = identity(path)
    if file is not None and file in inputs:
        raise UsageError("F100", f"{path} cannot be written: it is an input of this command{about}", help="choose another name")


def named_files(values: Iterable[object]) -> frozenset[FileIdentity]:
    """Return the files that arguments name: as they are, before a colon (FILE.py:key=value), between commas, by their folder or plan."""
    texts = [str(part) for value in values for part in (value if isinstance(value, list) else [value]) if isinstance(part, str | Path)]
    paths = {Path(name) for text in texts for name in (text, text.partition(":")[0], *text.split(",")) if name and "\0" not in name}
    return frozenset(file for path in paths for part in (path, *_parts(path)) if (file := identity(part)) is not None)


def _parts(path: Path) -> list[Path]:
    """Return the samples in a folder, nothing where it cannot be listed, or the other file of a plan."""
    try:
        return [*path.glob("*.npz")] if path.is_dir() else [path.with_suffix(".onnx")] if path.suffix == ".json" else []
    except OSError:
        return []


def _obstacle(path: Path) -> tuple[str, str] | None:
    """Return why a file cannot be written and what to do about it; None where it can."""
    if not path.name or "\0" in str(path):
        return "this is not the name of a file", "give the name of a file, such as out.json"
    if path.is_dir():
        return "there is a folder of this name", f"give a file in it, such as {shlex.quote(str(path / 'out'))}"
    if path.parent.is_dir():
        return None if os.access(path.parent, os.W_OK | os.X_OK) else (f"no permission to write in {path.parent}", "choose another folder")
    folder = next(p for p in path.parents if p.exists())
    if not folder.is_dir():
        return f"{folder} is a file, not a folder", "choose another folder"
    return f"there is no folder {path.parent}", f"mkdir -p {shlex.quote(str(path.parent))} makes it"


def write_atomically(files: Mapping[Path, bytes], *, is_update: bool = False) -> None:
    """Write files atomically: each to a temporary file beside it first, then all of them renamed into place.

    Raises:
        UsageError: a file cannot be written, or this command has read it and does not update it; none of them is there then (F100).
    """
    for path in () if is_update else files:
        _check_no_input(path, opened_files())
    staged: dict[Path, str] = {}
    path = next(iter(files), Path())
    try:
        for path, data in files.items():
            staged[path] = _staged(path, data)
        for path, temporary in staged.items():
            os.replace(temporary, path)
            UNFINISHED.discard(temporary)
    except OSError as error:
        raise UsageError("F100", f"{path} cannot be written: {error.strerror}", help="choose another name or folder") from None
    finally:
        remove_unfinished()


def page_file(path: str | None, text: str) -> dict[Path, bytes]:
    """Return a page as {path: bytes}, empty without a path; lone surrogates are written as escapes."""
    return {} if path is None else {Path(path): text.encode("utf-8", "backslashreplace")}


def _staged(path: Path, data: bytes) -> str:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    UNFINISHED.add(temporary)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(temporary, 0o666 & ~umask)
    return temporary


def remove_unfinished() -> None:
    """Remove the temporary files that were not renamed into place."""
    for temporary in list(UNFINISHED):
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        UNFINISHED.discard(temporary)
