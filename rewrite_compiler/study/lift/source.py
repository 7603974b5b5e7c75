"""Terms as Python text of the language: what a target file says in its numerics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import SpecError
from ...lang.binders import Accumulator, Comprehension, FoldResult, Leaf
from ...lang.expr import Expr

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "shl": "<<", "shr": ">>", "bitand": "&", "bitor": "|", "bitxor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
}  # fmt: skip
CALLS = {"min": "minimum", "max": "maximum"}


class Source:
    """Texts of terms; variables are named where they are bound.

    `texts` are those of subterms, which may depend on names of variables; `registers` those of control.
    """

    def __init__(self, texts: Mapping[Expr, Callable[[Source], str]], registers: Mapping[str, str]) -> None:
        """Take the texts."""
        self.texts, self.registers = texts, registers
        self.names: dict[Expr, str] = {}
        self.count = 0

    def of(self, e: Expr) -> str:
        """Return a term as Python text.

        Raises:
            SpecError: I116, it has a form that has no text.
        """
        if e in self.names:
            return self.names[e]
        if e in self.texts:
            return self.texts[e](self)
        if e.value is not None:
            return str(e.value)
        if e.op in INFIX:
            return f"({self._lifted(e.args[0])} {INFIX[e.op]} {self.of(e.args[1])})"
        if e.op in CALLS:
            return f"{CALLS[e.op]}({self.of(e.args[0])}, {self.of(e.args[1])})"
        if e.op == "wrap":
            return f"wrap({self.of(e.args[0])}, {e.data[0]}, {e.data[1]})"
        if e.op == "extract":
            return f"wrap({self.of(e.args[0])} >> {e.data[0]}, {e.data[1]}, False)"
        if e.op in ("neg", "not", "select"):
            return self._other(e)
        return self._bound(e)

    def _lifted(self, e: Expr) -> str:
        """Return a left operand: a number with a term at its right is one, too."""
        return f"lift({self.of(e)})" if e.value is not None else self.of(e)

    def _other(self, e: Expr) -> str:
        texts = [self.of(a) for a in e.args]
        if e.op == "select":
            return f"select({', '.join(texts)})"
        return f"(-{texts[0]})" if e.op == "neg" else f"(1 - {texts[0]})"

    def _bound(self, e: Expr) -> str:
        if e.op == "reduce":
            monoid, variables = e.data
            extents = ", ".join(self.of(n) for n in e.args[1:])
            names = [self._variable(v) for v in variables]
            return f"reduce_{monoid}(lambda {', '.join(names)}: {self.of(e.args[0])}, ({extents},))"
        if e.op == "load" and isinstance(e.data, FoldResult) and not e.args:
            return self._fold(e.data)
        if e.op == "load" and isinstance(e.data, Leaf) and not e.args and e.data.name in self.registers:
            return self.registers[e.data.name]
        raise SpecError("I116", f"The numerics of {e.op} have no text", help="write this operation by hand")

    def _variable(self, v: Expr) -> str:
        self.count += 1
        self.names[v] = f"{v.data[0]}{self.count}"
        return self.names[v]

    def _fold(self, result: FoldResult) -> str:
        f = result.fold
        initial, body, (accumulator,) = f.initial[0], f.bodies[0], f.accumulators
        if len(f.bodies) != 1 or not isinstance(initial, Comprehension) or not isinstance(body, Comprehension) or accumulator.shape:
            raise SpecError("I116", "A fold of several accumulators has no text", help="write this operation by hand")
        extent, start = self.of(f.extent), self.of(initial.body)
        variable = self._variable(f.variable)
        self.names[_load(accumulator)] = total = f"acc{self.count}"
        return f"fold({extent}, {start}, lambda {variable}, {total}: {self.of(body.body)}, {accumulator.interval})"


def _load(a: Accumulator) -> Expr:
    return a[()]
