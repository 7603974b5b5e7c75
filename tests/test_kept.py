"""Kept results: what is damaged, foreign or too much is not there, and nobody else can make it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler import disk_cache as kept
from rewrite_compiler.disk_cache import DiskCache, private_cache_folder, user_key


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    return tmp_path / "some"


def test_what_is_kept_is_found_again(folder: Path) -> None:
    DiskCache(private_cache_folder("some")).put("key", b"result")
    assert DiskCache(private_cache_folder("some")).get("key") == b"result"
    assert DiskCache(private_cache_folder("some")).get("other") is None
    assert DiskCache(private_cache_folder("others")).get("key") is None
    assert [p.name for p in folder.iterdir()] == ["key"]


@given(st.binary(max_size=8), st.integers(0, 47), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, result: bytes, byte: int, bit: int) -> None:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("FLEXMATCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        store = DiskCache(private_cache_folder("some"))
        store.put("key", result)
        file = store.folder / "key"  # type: ignore[operator]
        data = bytearray(file.read_bytes())
        data[byte % len(data)] ^= 1 << bit
        file.write_bytes(data)
        assert store.get("key") is None


@pytest.mark.parametrize("size", [0, 1, 31, 32, 37])
def test_a_torn_file_is_noticed(folder: Path, size: int) -> None:
    DiskCache(private_cache_folder("some")).put("key", b"result")
    file = folder / "key"
    file.write_bytes(file.read_bytes()[:size])
    assert DiskCache(private_cache_folder("some")).get("key") is None


def test_an_entry_under_another_key_is_noticed(folder: Path) -> None:
    DiskCache(private_cache_folder("some")).put("key", b"result")
    (folder / "key").rename(folder / "other")
    assert DiskCache(private_cache_folder("some")).get("other") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o720])
@pytest.mark.parametrize("at", ["entries", "base", "parent"])
def test_a_folder_that_others_can_write_is_not_used(at: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "parent" / "base"))
    store = DiskCache(private_cache_folder("some"))
    store.put("key", b"result")
    folder = store.folder
    assert folder is not None
    {"entries": folder, "base": folder.parent, "parent": folder.parent.parent}[at].chmod(mode)
    assert (private_cache_folder("some"), store.get("key"), DiskCache(private_cache_folder("some")).get("key")) == (None, None, None)
    store.put("new", b"result")
    assert not (folder / "new").exists()


def test_a_folder_that_others_may_only_add_to_is_a_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "base"))
    DiskCache(private_cache_folder("some")).put("key", b"result")
    assert DiskCache(private_cache_folder("some")).get("key") == b"result"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("at", ["key", "some/key", "some", "", ".."])
def test_what_another_user_owns_is_not_used(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "parent" / "base"))
    store = DiskCache(private_cache_folder("some"))
    store.put("key", b"result")
    os.chown(tmp_path / "parent" / "base" / at, 1234, 1234)
    assert store.get("key") is None


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602])
def test_an_entry_that_others_can_write_is_not_used(mode: int, folder: Path) -> None:
    DiskCache(private_cache_folder("some")).put("key", b"result")
    (folder / "key").chmod(mode)
    assert DiskCache(private_cache_folder("some")).get("key") is None


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    store = DiskCache(private_cache_folder("some"))
    store.put("key", b"result")
    (folder / "key").rename(tmp_path / "elsewhere")
    (folder / "key").symlink_to(tmp_path / "elsewhere")
    assert store.get("key") is None
    (folder / "key").unlink()
    (tmp_path / "elsewhere").rename(folder / "key")
    assert store.get("key") == b"result"
    (tmp_path / "key").rename(tmp_path / "moved")
    (tmp_path / "key").symlink_to(tmp_path / "moved")
    assert store.get("key") is None


def test_a_link_that_is_swapped_in_on_the_way_is_not_followed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskCache(private_cache_folder("some"))
    store.put("key", b"result")
    resolved = os.path.realpath

    def swapped(path: object) -> str:
        found = resolved(path)  # type: ignore[arg-type,type-var]
        if not (tmp_path / "moved").exists():
            folder.rename(tmp_path / "moved")
            folder.symlink_to(tmp_path / "moved")
        return str(found)

    monkeypatch.setattr("rewrite_compiler.disk_cache.os.path.realpath", swapped)
    assert store.get("key") is None


def test_entries_are_sealed_with_a_key_of_the_user_alone(folder: Path, tmp_path: Path) -> None:
    store = DiskCache(private_cache_folder("some"))
    store.put("key", b"result")
    secret = tmp_path / "key"
    assert (secret.stat().st_mode & 0o777, len(secret.read_bytes())) == (0o600, 32)
    assert user_key() == secret.read_bytes()
    (folder / "key").write_bytes(hashlib.sha256(b"key\0forged").digest() + b"forged")
    assert (store.get("key"), store.damaged) == (None, 1)
    store.put("key", b"result")
    (tmp_path / "other").mkdir(mode=0o700)
    (folder / "key").rename(tmp_path / "other" / "key")
    assert DiskCache(private_cache_folder("other")).get("key") is None
    secret.chmod(0o640)
    assert user_key() is None
    secret.unlink()
    store.put("new", b"result")
    assert store.get("new") == b"result"
    secret.write_bytes(bytes(32))
    assert (store.get("new"), user_key()) == (None, bytes(32))
    secret.write_bytes(bytes(31))
    assert user_key() is None


def test_no_folder_costs_nothing_but_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "file"))
    DiskCache(private_cache_folder("some")).put("key", b"result")
    assert DiskCache(private_cache_folder("some")).get("key") is None


def test_a_relative_cache_folder_is_no_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLEXMATCH_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert private_cache_folder("some") == tmp_path / "home" / ".cache" / "flexmatch" / "some"
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


def test_the_oldest_entries_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_FOLDER_BYTES", 3 * (32 + 100))
    for n in range(5):
        DiskCache(private_cache_folder("some")).put(str(n), bytes(100))
        os.utime(folder / str(n), ns=(n, n))
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3", "4"]


def test_an_entry_that_another_run_takes_away_meanwhile_costs_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_FOLDER_BYTES", 2 * (32 + 100))
    store = DiskCache(private_cache_folder("some"))
    (folder / "gone").symlink_to(folder / "nothing")  # as an entry that is listed and cannot be looked at any more
    for n in range(4):
        store.put(str(n), bytes(100))
        os.utime(folder / str(n), ns=(n, n))
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3", "gone"]


def test_an_entry_larger_than_its_folder_may_be_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(private_cache_folder("some"))
    cache.put("key", bytes(100))
    size = (folder / "key").stat().st_size
    for bound, found in ((size, bytes(100)), (size - 1, None)):
        monkeypatch.setattr(kept, "MAX_FOLDER_BYTES", bound)
        assert cache.get("key") == found
    assert not cache.damaged
