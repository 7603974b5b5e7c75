"""Operators that preserve the memory order of elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ops.op import Op


def keeps_order(op: Op | None, attributes: Mapping[str, Any], shape: Sequence[int]) -> bool:
    """Tell whether an operator keeps elements in memory order: a reshape, or a transposition that moves only axes of extent 1."""
    if op is None or op.name not in ("reshape", "transpose"):
        return False
    nontrivial_axes = [axis for axis in attributes.get("perm", ()) if shape[axis] > 1]
    return nontrivial_axes == sorted(nontrivial_axes)
