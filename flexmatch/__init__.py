"""What whole applications do on an accelerator: compile ONNX models for it and run them on a simulator made from its specification.

These are the public names; what they need is imported when one is first used. The engine is the package `rewrite_compiler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rewrite_compiler

if TYPE_CHECKING:
    from rewrite_compiler import FlexmatchError as FlexmatchError
    from rewrite_compiler import IsConstant as IsConstant
    from rewrite_compiler import Law as Law
    from rewrite_compiler import Rule as Rule
    from rewrite_compiler import Tensor as Tensor
    from rewrite_compiler import Where as Where
    from rewrite_compiler import assemble as assemble
    from rewrite_compiler import check as check
    from rewrite_compiler import compile as compile
    from rewrite_compiler import cosimulate as cosimulate
    from rewrite_compiler import disassemble as disassemble
    from rewrite_compiler import ila as ila
    from rewrite_compiler import lang as lang
    from rewrite_compiler import map as map
    from rewrite_compiler import ops as ops
    from rewrite_compiler import prove as prove
    from rewrite_compiler import rule as rule
    from rewrite_compiler import target as target
    from rewrite_compiler import traffic as traffic

__all__ = rewrite_compiler.__all__


def __dir__() -> list[str]:
    """Return the public names, used or not."""
    return dir(rewrite_compiler)


def __getattr__(name: str) -> Any:
    """Return a public name of the engine; AttributeError for any other."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(rewrite_compiler, name)
