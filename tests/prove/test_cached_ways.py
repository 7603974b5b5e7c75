"""What a driver's modules have cached is forgotten before each traced call, also of modules that came or were replaced meanwhile."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rewrite_compiler.prove.mappings import control_classes

SOURCE = "from functools import cache\n\n\n@cache\ndef tiles(count):\n    return count + 1\n"


def imported(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a module of a driver's folder, in place of one of the same name, and let its function cache something."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(SOURCE, "utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    module.tiles(1)
    return module


def cached_results(module: ModuleType) -> int:
    """Return how many results a module's function has cached."""
    count: int = module.tiles.cache_info().currsize
    return count


def test_modules_that_came_or_were_replaced_since_the_call_before_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "mine", tmp_path / "theirs"
    first = imported("driver_tiles", folder, monkeypatch)
    control_classes._clear_caches(folder)
    assert not cached_results(first)
    later, other = imported("driver_bands", folder, monkeypatch), imported("driver_others", elsewhere, monkeypatch)
    control_classes._clear_caches(folder)
    assert not cached_results(later)
    assert cached_results(other)  # of another folder
    replacement = imported("driver_tiles", folder, monkeypatch)
    control_classes._clear_caches(folder)
    assert not cached_results(replacement)


def test_functions_that_were_put_into_a_module_since_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, source = (imported(name, tmp_path / name, monkeypatch) for name in ("driver_rows", "driver_source"))
    control_classes._clear_caches(tmp_path / "driver_rows")
    module.__dict__["tiles"] = source.tiles
    assert cached_results(module)
    control_classes._clear_caches(tmp_path / "driver_rows")
    assert not cached_results(module)
