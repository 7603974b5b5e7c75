"""Atomic writes of output files: all of a set or none of it, and never over an input."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import UsageError

UNFINISHED: set[str] = set()  # temporary files that have no name yet


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path | None] = ()) -> None:
    """Check, before the work whose result they hold, that files can be written; inputs are never written over.

    Raises:
        UsageError: a path is no file name, its folder is missing or read-only, or it is one of the inputs (F100).
    """
    existing_inputs = [path for path in inputs if path is not None and path.exists()]
    for path in outputs:
        reason = _obstacle(path)
        if reason:
            raise UsageError("F100", f"{path} cannot be written: {reason}", help="choose another name or folder")
        if path.exists() and any(path.samefile(input_path) for input_path in existing_inputs):
            raise UsageError("F100", f"{path} cannot be written: it is an input of this command", help="choose another name")


def _obstacle(path: Path) -> str:
    if not path.name or "\0" in str(path):
        return "this is not the name of a file"
    if path.is_dir():
        return "there is a folder of this name"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "" if os.access(path.parent, os.W_OK | os.X_OK) else f"no permission to write in {path.parent}"


def write_atomically(files: Mapping[Path, bytes]) -> None:
    """Write files atomically: each to a temporary file beside it first, then all of them renamed into place.

    Raises:
        UsageError: a file cannot be written; none of them is there then (F100).
    """
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
