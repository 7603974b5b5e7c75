"""What targets take from their models: constants and designs, and of functions only the declared primitives."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from rewrite_compiler import ila_models
from rewrite_compiler.lang import Table
from rewrite_compiler.prove.mappings.driver_code import literals, reachable_functions, shared_functions
from rewrite_compiler.target import find_target, target_names

MODELS = "rewrite_compiler.ila_models"
SHIPPED = ("flexasr", "hlscnn", "vta")
FOLDER = Path(importlib.import_module("rewrite_compiler.targets").__file__ or "").parent
FILES = sorted(FOLDER.rglob("*.py"))


def computes(value: object) -> bool:
    """Tell whether a value is a function or a table, or holds some."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, FunctionType | Table) for v in values)


def taken(source: str) -> list[tuple[str, str]]:
    """Return the modules of models from which a file imports, each with the name."""
    nodes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith(MODELS))
    return [(n.module or "", a.name) for n in nodes for a in n.names]


def undeclared(source: str) -> list[str]:
    """Return what a file takes from models that computes and is no declared primitive."""
    wrong = []
    for module, name in taken(source):
        found: Any = importlib.import_module(module)
        value = getattr(found, name, found)  # a module of the package
        if not isinstance(value, ModuleType) and computes(value) and name not in getattr(found, "PRIMITIVES", {}):
            wrong.append(f"{module}.{name}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_take_constants_and_declared_primitives(path: Path) -> None:
    assert undeclared(path.read_text("utf-8")) == []


def test_a_function_that_is_no_primitive_is_found() -> None:
    assert undeclared(f"from {MODELS}.flexasr.numerics import _integer, decoded\nfrom {MODELS}.vta.compute import nest") == [
        f"{MODELS}.flexasr.numerics._integer", f"{MODELS}.vta.compute.nest",
    ]  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_primitives_exist_and_are_all_that_numerics_share(name: str) -> None:
    assert name in target_names()
    declared = {}
    for module in ("numerics",):
        with_primitives = Path(ila_models.__path__[0]) / name / f"{module}.py"
        if with_primitives.is_file():
            found = importlib.import_module(f"{MODELS}.{name}.{module}")
            declared |= {f"{name}.{module}.{p}": getattr(found, p) for p in found.PRIMITIVES}
    assert all(computes(value) for value in declared.values())
    for m in find_target(name).mappings.values():
        assert m.codes is not None
        assert set(shared_functions(m.codes, MODELS)) <= declared.keys()


def test_functions_of_a_driver_are_followed() -> None:
    vta = find_target("vta")
    names = {f.__qualname__ for f in reachable_functions(vta.mappings["conv2d"].drive or len)}
    assert {"drive_conv2d", "run_layer", "_pass", "Layer.tile_sizes", "store_bytes", "fetch_words"} <= names
    assert "drive_dense" not in names


@pytest.mark.parametrize("name", SHIPPED)
def test_numbers_in_drivers_are_few(name: str) -> None:
    """Sizes are parameters of the design: what else is above 3 counts axes from the end, or bits."""
    found = {n for m in find_target(name).mappings.values() if m.drive is not None for n, _ in literals(m.drive)}
    assert found <= {"vta": {4, 8}, "hlscnn": {4, 8, 16, 256}, "flexasr": {4}}[name]
