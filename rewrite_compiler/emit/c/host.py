"""Host operators as C functions: the operators' own meaning in single precision."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import FlexmatchError, InputError
from ...hostrun.exact_host import has_form, leaf_of
from ...ir.program import Node, Program, Value
from ...lowering.lower import lower_array
from ...readings.c.printer import PrintedFunction, Style, Tables, print_c


@dataclass(frozen=True)
class Operation:
    """The C function of one result of a node, and the values that its memories hold, in order; the result's is named `out`."""

    function: PrintedFunction
    values: tuple[Value, ...]


def operations_of(p: Program, node: Node, tables: Tables, prefix: str) -> list[Operation]:
    """Return the C functions of a node's results.

    Raises:
        InputError: F161, the node has no C form.
    """
    place = f'node "{p.names[node.outputs[0]]}"'
    label = p.opaque_of(node).label if node.op == "opaque" else node.op
    sentence = f"{label} has no C form"
    dtypes = [p.types[v].dtype for v in (*node.inputs, *node.outputs)]
    if node.operator is None or not has_form(node.operator, dtypes):
        unsupported = min(set(dtypes) - {"float32"}, default="")
        reason = f": it takes {unsupported}, and C has float32 only" if node.operator is not None else ""
        raise InputError("F161", sentence + reason, place=place)
    leaves = {v: leaf_of(p.types[v].shape, p.types[v].dtype, f"x{n}") for n, v in enumerate(dict.fromkeys(node.inputs))}
    try:
        meaning = node.operator.meaning(*(leaves[v] for v in node.inputs), **dict(node.attributes))
        arrays = meaning if isinstance(meaning, tuple) else (meaning,)
        operations = []
        for n, (a, result) in enumerate(zip(arrays, node.outputs, strict=True)):
            function = print_c(lower_array(a), f"{prefix}_{n}", tables, Style(real="float", unbounded=True, heap=False))
            value_of = {leaf: v for v, leaf in leaves.items()}
            operations.append(Operation(function, tuple(value_of.get(leaf, result) for leaf in function.memories)))
    except FlexmatchError as refusal:
        raise InputError("F161", f"{sentence}: {refusal.problem.sentence}", place=place) from None
    return operations
