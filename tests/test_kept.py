"""Kept results: what is damaged, foreign or too much is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler import kept
from rewrite_compiler.kept import Kept, private_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    return tmp_path / "some"


def test_what_is_kept_is_found_again(folder: Path) -> None:
    Kept(private_folder("some")).put("key", b"result")
    assert Kept(private_folder("some")).get("key") == b"result"
    assert Kept(private_folder("some")).get("other") is None
    assert Kept(private_folder("others")).get("key") is None
    assert [p.name for p in folder.iterdir()] == ["key"]


@given(st.binary(max_size=8), st.integers(0, 47), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, result: bytes, byte: int, bit: int) -> None:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("FLEXMATCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        store = Kept(private_folder("some"))
        store.put("key", result)
        file = store.folder / "key"  # type: ignore[operator]
        data = bytearray(file.read_bytes())
        data[byte % len(data)] ^= 1 << bit
        file.write_bytes(data)
        assert store.get("key") is None


@pytest.mark.parametrize("size", [0, 1, 31, 32, 37])
def test_a_torn_file_is_noticed(folder: Path, size: int) -> None:
    Kept(private_folder("some")).put("key", b"result")
    file = folder / "key"
    file.write_bytes(file.read_bytes()[:size])
    assert Kept(private_folder("some")).get("key") is None


def test_an_entry_under_another_key_is_noticed(folder: Path) -> None:
    Kept(private_folder("some")).put("key", b"result")
    (folder / "key").rename(folder / "other")
    assert Kept(private_folder("some")).get("other") is None


def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    Kept(private_folder("some")).put("key", b"result")
    folder.chmod(0o777)
    assert Kept(private_folder("some")).get("key") is None
    Kept(private_folder("some")).put("new", b"result")
    assert not (folder / "new").exists()


def test_no_folder_costs_nothing_but_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "file"))
    Kept(private_folder("some")).put("key", b"result")
    assert Kept(private_folder("some")).get("key") is None


def test_a_relative_cache_folder_is_no_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLEXMATCH_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert private_folder("some") == tmp_path / "home" / ".cache" / "flexmatch" / "some"
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


def test_the_oldest_entries_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 3 * (32 + 100))
    for n in range(5):
        Kept(private_folder("some")).put(str(n), bytes(100))
        os.utime(folder / str(n), ns=(n, n))
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3", "4"]


def test_an_entry_that_another_run_takes_away_meanwhile_costs_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 2 * (32 + 100))
    store = Kept(private_folder("some"))
    (folder / "gone").symlink_to(folder / "nothing")  # as an entry that is listed and cannot be looked at any more
    for n in range(4):
        store.put(str(n), bytes(100))
        os.utime(folder / str(n), ns=(n, n))
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3", "gone"]
