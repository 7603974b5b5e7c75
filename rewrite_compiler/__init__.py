"""The public names; everything heavy is imported when it is first used."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import lang, ops, target
    from .compile.compile import compile_model as compile
    from .cosim.cosimulate import cosimulate
    from .emit.words import assemble, disassemble
    from .errors import FlexmatchError
    from .fit.api import map
    from .fit.traffic import traffic
    from .ila.registry import ila
    from .ops.op import Tensor
    from .ops.static import IsConstant
    from .prove.certificates.document import prove
    from .rewrite.rule import Law, Rule, Where, rule
    from .study.checks.check import check

# name → the module that defines it
_NAMES = {
    "FlexmatchError": "errors",
    "IsConstant": "ops.static",
    "Law": "rewrite.rule",
    "Rule": "rewrite.rule",
    "Tensor": "ops.op",
    "Where": "rewrite.rule",
    "assemble": "emit.words",
    "check": "study.checks.check",
    "cosimulate": "cosim.cosimulate",
    "disassemble": "emit.words",
    "map": "fit.api",
    "rule": "rewrite.rule",
    "traffic": "fit.traffic",
}
# packages that are namespaces, or called by their own name
_PACKAGES = ("compile", "ila", "lang", "ops", "prove", "target")

# what gives objects that notebooks show
_SHOWN = ("compile", "cosimulate", "prove")

__all__ = [
    "FlexmatchError", "IsConstant", "Law", "Rule", "Tensor", "Where", "assemble", "check", "compile", "cosimulate", "disassemble",
    "ila", "lang", "map", "ops", "prove", "rule", "target", "traffic",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names, used or not."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__"])


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module on first use."""
    if name not in _PACKAGES and name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{name if name in _PACKAGES else _NAMES[name]}", __name__)
    if "IPython" in sys.modules and name in _SHOWN:
        importlib.import_module(".report.page.notebook", __name__).install()
    return module if name in _PACKAGES else getattr(module, name)
