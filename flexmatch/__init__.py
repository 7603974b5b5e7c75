"""What whole applications do on an accelerator: compile ONNX models for it and run them on a simulator made from its specification.

These are the public names; what they need is imported when one is first used. The engine is the package `rewrite_compiler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rewrite_compiler

if TYPE_CHECKING:
    from rewrite_compiler import (
        IsConstant,
        Law,
        Rule,
        Tensor,
        Where,
        check,
        compile,
        cosimulate,
        ila,
        lang,
        ops,
        prove,
        rule,
        target,
        traffic,
    )

__all__ = [
    "IsConstant", "Law", "Rule", "Tensor", "Where", "check", "compile", "cosimulate", "ila", "lang", "ops", "prove", "rule", "target",
    "traffic",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names, used or not."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__"])


def __getattr__(name: str) -> Any:
    """Return a public name of the engine; AttributeError for any other."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(rewrite_compiler, name)
