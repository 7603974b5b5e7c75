"""Rules as text: the parse-only form, safe to share because reading it runs nothing.

rule add-as-bias(x: tensor, b: tensor) grade E marks ring {
    "x + b = bias_add(x, b)"
    add(x, b) = bias_add(x, reshape(b, shape=[b.size]), axis=x.rank - 1)
    where constant(b), b.size == x.shape[-1]
}
"""

from __future__ import annotations

import json
import math

from ..lang.expr import Expr
from ..ops.op import Apply, AttributeTerm, Tensor, Variable
from ..ops.static import (
    ELEMENTS,
    Condition,
    Element,
    HasType,
    Ints,
    Inverse,
    IsConstant,
    ListConcatenation,
    ListLiteral,
    ListsEqual,
    ListSlice,
    ListUpdate,
    NamedList,
    PermutedList,
    RealComparison,
    ShapeOf,
    TermIsTrue,
)
from .rule import Float, Rule, Str

INFIX = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1),
    "bitor": ("|", 2), "bitand": ("&", 3),
    "add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "div": ("//", 5), "mod": ("%", 5),
}  # fmt: skip
FUNCTIONS = {"min": "min", "max": "max", "select": "select", "not": "not"}
TIGHTEST = 6


def rule_text(r: Rule) -> str:
    """Return a rule in the text form; a rule parsed from it is judged alike."""
    parameters = ", ".join(f"{name}: {_kind(v)}" for name, v in r.variables.items())
    marks = f" marks {', '.join(sorted(r.marks))}" if r.marks else ""
    phase = f" phase {r.phase}" if r.phase != "ir" else ""
    lines = [f"rule {r.name}({parameters}) grade {r.full_grade}{marks}{phase} {{"]
    if r.doc:
        lines.append(f"    {json.dumps(' '.join(r.doc.split()), ensure_ascii=False)}")
    lines += [f"    {tensor_text(left)}\n        = {tensor_text(right)}" for left, right in r.pairs]
    if r.where:
        lines.append(f"    where {', '.join(map(condition_text, r.where))}")
    return "\n".join([*lines, "}"])


def _kind(v: object) -> str:
    kinds = ((Variable, "tensor"), (NamedList, "ints"), (Str, "str"), (Float, "float"))
    return next((name for kind, name in kinds if isinstance(v, kind)), "int")


def tensor_text(t: Tensor) -> str:
    """Return a pattern as text."""
    if not isinstance(t, Apply):
        return t.name if isinstance(t, Variable) else repr(t)
    arguments = [*map(tensor_text, t.operands), *(f"{name}={attribute_text(value)}" for name, value in t.attributes.items())]
    output = f".{t.output}" if t.op.outputs > 1 else ""
    return f"{t.op.name}({', '.join(arguments)}){output}"


def attribute_text(value: AttributeTerm | Float) -> str:
    """Return the value of an attribute as text."""
    if isinstance(value, Ints):
        return list_text(value)
    if isinstance(value, Expr):
        return scalar_text(value)
    if isinstance(value, Float):
        return value.name
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return json.dumps(value)


def condition_text(c: Condition) -> str:
    """Return a condition of a guard as text."""
    if isinstance(c, ListsEqual):
        return f"{list_text(c.left)} == {list_text(c.right)}"
    if isinstance(c, TermIsTrue):
        return scalar_text(c.term)
    if isinstance(c, RealComparison):
        return str(c)
    if isinstance(c, IsConstant):
        return f"constant({tensor_text(c.tensor)})"
    if isinstance(c, HasType):
        return f"type({', '.join([tensor_text(c.tensor), *map(json.dumps, c.dtypes)])})"
    return repr(c)


def scalar_text(e: Expr, level: int = 0) -> str:
    """Return an integer term as text, in parentheses where its operator binds less than `level`."""
    if e.op == "const":
        return str(e.data) if e.data >= 0 or level == 0 else f"({e.data})"
    if e.op == "var":
        element = ELEMENTS.get(e)
        return str(e.data[0]) if element is None else _element_text(element)
    if e.op in INFIX:
        sign, rank = INFIX[e.op]
        text = f"{scalar_text(e.args[0], rank)} {sign} {scalar_text(e.args[1], rank + 1)}"
        return f"({text})" if rank < level else text
    if e.op == "neg":
        return f"(0 - {scalar_text(e.args[0], TIGHTEST)})"
    return f"{FUNCTIONS.get(e.op, e.op)}({', '.join(map(scalar_text, e.args))})"


def _element_text(element: Element) -> str:
    if element.kind == "length":
        return f"{tensor_text(element.base.tensor)}.rank" if isinstance(element.base, ShapeOf) else f"len({list_text(element.base)})"
    if element.kind == "product":
        return f"{tensor_text(element.base.tensor)}.size" if isinstance(element.base, ShapeOf) else f"prod({list_text(element.base)})"
    index = "" if element.index is None else scalar_text(element.index)
    return f"{list_text(element.base, TIGHTEST)}[{index}]"


def list_text(x: Ints, level: int = 0) -> str:
    """Return a static list as text."""
    if isinstance(x, ListConcatenation):
        text = " + ".join(list_text(p, TIGHTEST) for p in x.parts)
        return f"({text})" if level else text
    if isinstance(x, NamedList):
        return x.name
    if isinstance(x, ShapeOf):
        return f"{tensor_text(x.tensor)}.shape"
    if isinstance(x, ListLiteral):
        return f"[{', '.join(map(scalar_text, x.elements))}]"
    if isinstance(x, ListSlice):
        return f"{list_text(x.base, TIGHTEST)}[{x.start or ''}:{'' if x.stop is None else x.stop}]"
    return _derived_list_text(x)


def _derived_list_text(x: Ints) -> str:
    if isinstance(x, ListUpdate):
        return f"replaced({list_text(x.base)}, {scalar_text(x.index)}, {scalar_text(x.element)})"
    if isinstance(x, PermutedList):
        return f"permuted({list_text(x.base)}, {list_text(x.perm)})"
    return f"inverse({list_text(x.perm)})" if isinstance(x, Inverse) else repr(x)
