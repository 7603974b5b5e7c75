"""Kept: results of past runs in a private folder, one checksummed file each; what cannot be trusted is made again.

The folder is below FLEXMATCH_CACHE, else below flexmatch in the user's cache folder, and counts only when no one else can
write it. A full disk, or a folder that cannot be written, costs the entry only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DIGEST = hashlib.sha256().digest_size
MOST_BYTES = 1 << 29  # of one folder; the entries that were written first go first


def private_folder(name: str) -> Path | None:
    """Return the folder of one kind of results, made where it is missing; None when there cannot be a private one."""
    try:
        folder = _base() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    is_private = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return folder if is_private and is_own else None


def _base() -> Path:
    """Return the folder of everything that is kept; a cache folder of the user counts when it is absolute, as XDG has it."""
    own, cache = os.environ.get("FLEXMATCH_CACHE"), Path(os.environ.get("XDG_CACHE_HOME", ""))
    if own:
        return Path(own)
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "flexmatch"


@dataclass
class Kept:
    """The results in a folder; without one nothing is kept. `damaged` counts entries that were there and could not be trusted."""

    folder: Path | None
    damaged: int = 0

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key; None when there is nothing, or it is damaged."""
        if self.folder is None:
            return None
        try:
            with (self.folder / key).open("rb") as file:
                data = file.read(MOST_BYTES) if os.fstat(file.fileno()).st_size <= MOST_BYTES else b""
        except OSError:
            return None
        digest, found = data[:DIGEST], data[DIGEST:]
        if digest == _digest(key, found):
            return found
        self.damaged += 1
        return None

    def put(self, key: str, result: bytes) -> None:
        """Keep a result in one step."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            digest = _digest(key, result)
            handle, name = tempfile.mkstemp(dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(digest + result)
                os.replace(name, self.folder / key)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            if len(result) > MOST_BYTES // 64 or digest[0] < 8:  # looking through thousands of small entries takes its time
                _shrink(self.folder)


def hash_of(folders: Iterable[Path], also: Iterable[str]) -> str:
    """Return the hash of all sources in folders, and of some words."""
    digest = hashlib.sha256("\n".join(also).encode())
    for folder in folders:
        for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.lark"))):
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _digest(key: str, result: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + result).digest()


def _shrink(folder: Path) -> None:
    """Remove the oldest entries until the rest is small enough."""
    entries = _oldest_first(folder)
    size = sum(entry[1] for entry in entries)
    for _, bytes_of, path in entries[:-1]:
        if size <= MOST_BYTES:
            return
        Path(path).unlink(missing_ok=True)
        size -= bytes_of


def _oldest_first(folder: Path) -> list[tuple[int, int, str]]:
    """Return time, size and path of what is in a folder; another run may take entries away meanwhile."""
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                entries.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
    return sorted(entries)
