"""On-disk cache: results of past runs in a private folder, one authenticated file each; an untrusted entry is computed anew.

The folder is below FLEXMATCH_CACHE, else below flexmatch in the user's cache folder. It counts only when nobody else can
write it, or move it away: it is opened component by component without following links, and the owner and mode of every
folder on the way, of the file and of the key are checked. An entry is authenticated by an HMAC under the user's own key, so
that nobody else can forge one. A full disk, or a folder that cannot be written, costs the entry only.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SEAL_BYTES = hashlib.sha256().digest_size
MAX_FOLDER_BYTES = 1 << 29  # of one folder; the entries that were written first go first
KEY, KEY_BYTES = "key", 32
WRITE_BY_OTHERS, ACCESS_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH, stat.S_IRWXG | stat.S_IRWXO
_FOLDER, _FILE = os.O_RDONLY | os.O_DIRECTORY, os.O_RDONLY | os.O_NONBLOCK
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC


def private_cache_folder(name: str) -> Path | None:
    """Return the cache folder of one kind of results, created if missing; None when no private folder can be had."""
    try:
        folder = _base() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    with _open_private(folder) as descriptor:
        return None if descriptor is None else folder


def user_key() -> bytes | None:
    """Return the secret key that only this user can read, created if missing; None when there is no private place for it."""
    with contextlib.suppress(OSError, RuntimeError):
        base = _base()
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_private(base) as folder:
            if folder is None:
                return None
            key = _read(folder, KEY, KEY_BYTES, forbidden=ACCESS_BY_OTHERS)
            if key is None:
                with contextlib.suppress(FileExistsError):
                    _write(folder, KEY, secrets.token_bytes(KEY_BYTES), is_new=True)
                key = _read(folder, KEY, KEY_BYTES, forbidden=ACCESS_BY_OTHERS)
            return key if key is not None and len(key) == KEY_BYTES else None
    return None


def _base() -> Path:
    """Return the root of all cached results; XDG_CACHE_HOME counts when it is absolute, as the XDG specification says."""
    configured, cache = os.environ.get("FLEXMATCH_CACHE"), Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured:
        return Path(configured)
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "flexmatch"


@dataclass
class DiskCache:
    """A cache in one folder; without a folder it stores nothing. `damaged` counts entries that failed authentication."""

    folder: Path | None
    damaged: int = 0

    def get(self, key: str) -> bytes | None:
        """Return the bytes stored under a key; None when there are none, or their authentication fails."""
        if self.folder is None:
            return None
        with _open_private(self.folder) as descriptor:
            data = None if descriptor is None else _read(descriptor, key, MAX_FOLDER_BYTES, forbidden=WRITE_BY_OTHERS)
        if data is None:
            return None
        secret, seal, result = user_key(), data[:SEAL_BYTES], data[SEAL_BYTES:]
        if secret is not None and hmac.compare_digest(seal, self._seal(secret, key, result)):
            return result
        self.damaged += 1
        return None

    def put(self, key: str, result: bytes) -> None:
        """Store a result atomically under a key; where no private folder exists this does nothing."""
        secret = None if self.folder is None else user_key()
        if self.folder is None or secret is None:
            return
        with contextlib.suppress(OSError), _open_private(self.folder) as descriptor:
            if descriptor is None:
                return
            seal = self._seal(secret, key, result)
            _write(descriptor, key, seal + result)
            if len(result) > MAX_FOLDER_BYTES // 64 or seal[0] < 8:  # looking through thousands of small entries takes its time
                _shrink(descriptor)

    def _seal(self, secret: bytes, key: str, result: bytes) -> bytes:
        """Return the HMAC-SHA256 of a result, its key and this folder's name under the user's secret."""
        assert self.folder is not None
        return hmac.digest(secret, b"\0".join((self.folder.name.encode(), key.encode(), result)), "sha256")


def sources_hash(folders: Iterable[Path], texts: Iterable[str]) -> str:
    """Return the SHA-256 over all Python and grammar sources in folders, and over further texts."""
    digest = hashlib.sha256("\n".join(texts).encode())
    for folder in folders:
        for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.lark"))):
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@contextlib.contextmanager
def _open_private(folder: Path) -> Iterator[int | None]:
    """Yield a descriptor of a folder; None where it is missing, or others could write to it or move it away."""
    place = None
    try:
        place = _open_path(Path(os.path.realpath(folder)).parts)
    except OSError:
        yield None
        return
    try:
        yield place
    finally:
        if place is not None:
            os.close(place)


def _open_path(parts: tuple[str, ...]) -> int | None:
    """Return a descriptor of a folder reached from the root component by component; None when others can replace a component."""
    descriptor = os.open(parts[0], _FOLDER | _SAFE)
    try:
        for part in parts[1:]:
            if not _is_safe_parent(os.fstat(descriptor)):
                return None
            child = os.open(part, _FOLDER | _SAFE, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = child
        status = os.fstat(descriptor)
        is_private = status.st_uid == os.getuid() and not status.st_mode & WRITE_BY_OTHERS
        return os.dup(descriptor) if is_private else None
    finally:
        os.close(descriptor)


def _is_safe_parent(status: os.stat_result) -> bool:
    """Tell whether nobody else can replace what is in a folder: it belongs to the user or root, and others at most add to it."""
    return status.st_uid in (0, os.getuid()) and (not status.st_mode & WRITE_BY_OTHERS or bool(status.st_mode & stat.S_ISVTX))


def _read(place: int, name: str, limit: int, *, forbidden: int) -> bytes | None:
    """Return the bytes of the user's own regular file; None where it is not one, or others hold one of the `forbidden` rights."""
    try:
        file = os.open(name, _FILE | _SAFE, dir_fd=place)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(file)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & forbidden
        return stream.read() if is_own and status.st_size <= limit else None


def _write(place: int, name: str, data: bytes, *, is_new: bool = False) -> None:
    """Write a file atomically; with `is_new`, fail when it exists already."""
    temporary = f".{secrets.token_hex(8)}"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=place)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
        if is_new:
            os.link(temporary, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        else:
            os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place)


def _shrink(place: int) -> None:
    """Remove the oldest entries until the folder is within its bound."""
    entries = _oldest_first(place)
    size = sum(entry[1] for entry in entries)
    for _, bytes_of, name in entries[:-1]:
        if size <= MAX_FOLDER_BYTES:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)
        size -= bytes_of


def _oldest_first(place: int) -> list[tuple[int, int, str]]:
    """Return time, size and name of the files in a folder; another run may take entries away meanwhile."""
    entries = []
    with os.scandir(place) as listing:
        for entry in listing:
            with contextlib.suppress(FileNotFoundError):
                state = os.stat(entry.name, dir_fd=place)
                entries.append((state.st_mtime_ns, state.st_size, entry.name))
    return sorted(entries)
