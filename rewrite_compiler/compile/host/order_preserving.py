"""Order: operators that leave the elements of a tensor in the order in which they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ops.op import Op


def keeps_order(op: Op | None, attributes: Mapping[str, Any], shape: Sequence[int]) -> bool:
    """Tell whether an operator on a tensor of a shape only renames it: a reshape, or a transposition of axes of extent 1."""
    if op is None or op.name not in ("reshape", "transpose"):
        return False
    moved = [axis for axis in attributes.get("perm", ()) if shape[axis] > 1]
    return moved == sorted(moved)
