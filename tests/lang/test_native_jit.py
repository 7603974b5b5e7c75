"""Machine code is kept on disk and rebuilt when damaged; where there is none, that is said."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.lang import Fixed, Leaf
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.readings.kernels import selection
from rewrite_compiler.readings.kernels.format_conversion import codes_of
from rewrite_compiler.readings.native import jit
from rewrite_compiler.readings.native.code_cache import cached_step
from rewrite_compiler.readings.native.printer import NativeFunction


def test_compiled_objects_are_kept_and_rebuilt_when_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    counts = jit.Counts()
    monkeypatch.setattr(jit, "counts", counts)
    text = 'define i64 @"run"(i64 %x) {\n  %y = add i64 %x, 41\n  ret i64 %y\n}\n'

    def answer() -> int:
        jit.compile_text.cache_clear()
        _, address = jit.compile_text(text)
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(1))

    assert answer() == answer() == 42
    assert (counts.compiled, counts.loaded, counts.rebuilt) == (1, 1, 0)
    (entry,) = (tmp_path / "objects").iterdir()
    assert entry.stat().st_mode & 0o077 == 0
    whole = entry.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b"x" * len(whole)):
        entry.write_bytes(damaged)
        assert answer() == 42
        assert entry.read_bytes() == whole
    assert (counts.compiled, counts.rebuilt) == (5, 4)


def test_without_machine_code_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such library")

    monkeypatch.setattr(jit, "host", broken)
    assert selection.machine_code_refusal() == "machine code cannot be made here: no such library"


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_codes_of_floats(rounding: str) -> None:
    """Machine code encodes as the definition says: ties, both ends."""
    jit.host()
    values = np.concatenate([np.arange(-70_000, 70_000) / 256, [1e30, -1e30, -0.0]])
    f = Fixed(16, 7, rounding)
    whole = codes_of(f, values)
    assert [int(codes_of(f, values[n : n + 1])[0]) for n in range(0, len(values), 997)] == whole[::997].tolist()
    assert (whole[-3], whole[-2]) == (f.codes[1], f.codes[0])


@pytest.mark.parametrize("has_tables", [False, True])
def test_a_step_with_tables_is_made_anew(has_tables: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is kept is its code, which reads tables of this process."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    monkeypatch.setattr(NativeFunction, "from_cache", lambda memories, code, raises: ("kept", memories, code, [r.sentence for r in raises]))
    x, y = (Leaf((4,), (0, 255), False, name) for name in "xy")
    diagnostic = SimpleNamespace(code="I102", sentence="it is too large", values=())
    function: Any = SimpleNamespace(tables=[1] if has_tables else [], memories=[y], raises=[diagnostic], code=("aGk=", 3))
    made = [cached_step("digest", (x, y), lambda: function) for _ in range(2)]
    assert made == [function, function if has_tables else ("kept", [y], ("aGk=", 3), ["it is too large"])]
    assert cached_step("another", (x, y), lambda: function) is function
