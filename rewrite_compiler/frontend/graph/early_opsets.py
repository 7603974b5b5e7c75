"""Operator sets before 7: which of their nodes mean the same in operator set 7, so that ONNX's converter may take them further.

The converter drops attributes that later versions lack, so a node is refused here whose meaning depends on one of them.
"""

from __future__ import annotations

from typing import Any

SETTLED = 7  # from this operator set on, the converter knows what has changed
WITHOUT_EFFECT = frozenset({"consumed_inputs"})  # a hint on memory
MODE = "is_test"  # 0, its default, is training
BROADCAST_BY_CHANNEL = frozenset({"PRelu"})  # its slopes belonged to axis 1, and belong to the last axes since


def change_of_meaning(node: Any, old: Any, new: Any) -> str:
    """Return why a node of an early operator set is another one in operator set 7, or nothing; `old` and `new` are its schemas."""
    if old is None or new is None or old.since_version >= new.since_version:
        return ""
    if node.op_type in BROADCAST_BY_CHANNEL:
        return "the axes of its second operand have changed"
    if (old.min_input, old.max_input) != (new.min_input, new.max_input):
        return "an attribute has become an operand"
    values = {a.name: a for a in node.attribute}
    if MODE in old.attributes and (MODE not in values or values[MODE].i == 0):
        return f"{MODE} is 0: it is to be trained"
    for name in sorted({*old.attributes, *new.attributes} - WITHOUT_EFFECT - {MODE}):
        if name in values and name not in new.attributes:
            return f"attribute {name} is gone"
        if name not in values and name in old.attributes and _default(old, name) != _default(new, name):
            return f"the default of {name} has changed"
    return ""


def _default(schema: Any, name: str) -> tuple[bool, bytes]:
    """Return whether an attribute must be given, and its default."""
    if name not in schema.attributes:
        return False, b""
    attribute = schema.attributes[name]
    return attribute.required, attribute.default_value.SerializeToString(deterministic=True)
