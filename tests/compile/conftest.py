"""Plans that several tests read, compiled once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from rewrite_compiler import apps
from rewrite_compiler.compile import Plan, compile_model


@pytest.fixture(scope="session")
def plan_of() -> Callable[[str], Plan]:
    """Return a shipped application's plan for FlexASR."""

    @cache
    def compiled(name: str) -> Plan:
        return compile_model(apps.find_application(name).model, ["flexasr"])

    return compiled


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "small.onnx"
