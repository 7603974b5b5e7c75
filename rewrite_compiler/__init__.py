"""The public names; everything heavy is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import lang, ops, target
    from .compile.compile import compile_model as compile
    from .cosim.cosimulate import Settings, cosimulate
    from .fit.traffic import traffic
    from .ila.registry import ila
    from .ops.static import Ints, IsConstant
    from .ops.term import Tensor
    from .prove.document import prove
    from .rewrite.rule import Float, Int, Law, Rule, Str, Where, rule

# name → the module that defines it
_NAMES = {
    "Float": "rewrite.rule",
    "Int": "rewrite.rule",
    "Ints": "ops.static",
    "IsConstant": "ops.static",
    "Law": "rewrite.rule",
    "Rule": "rewrite.rule",
    "Settings": "cosim.cosimulate",
    "Str": "rewrite.rule",
    "Tensor": "ops.term",
    "Where": "rewrite.rule",
    "cosimulate": "cosim.cosimulate",
    "rule": "rewrite.rule",
    "traffic": "fit.traffic",
}
# packages that are namespaces, or called by their own name
_PACKAGES = ("compile", "ila", "lang", "ops", "prove", "target")

__all__ = [
    "Float", "Int", "Ints", "IsConstant", "Law", "Rule", "Settings", "Str", "Tensor", "Where", "compile", "cosimulate", "ila",
    "lang", "ops", "prove", "rule", "target", "traffic",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module on first use."""
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
