"""The sorts, constructors and tables of the e-graph, as egglog text.

One flat sort X for tensors. Every constructor has a birth table (the first rule that made a row; absent: from the
program); constructors that stand for work have an origin table (the source nodes a row stands for). An operator of several
results has it by the class of all of them: as a `whole`, to which `Joined` adds that of others. `dims`, `kind` and
`size` are `:no-merge`: a union of different shapes or types panics, which is a free alarm for unsound rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...ir.types import FLOATS
from ...ops import OPS
from ...ops.op import FLOAT, INT, INTS, LAYOUT, STRING, Op

SORTS = {INT: "i64", INTS: "Ints", FLOAT: "String", STRING: "String"}
PRELUDE = """
(sort Ints (Vec i64))
(sort I2I (UnstableFn (i64) i64))
(sort Ids (Set i64))
(sort X)
(sort Xs (Vec X))
(constructor Input (String) X)
(constructor Constant (String) X)
(constructor Opaque (String Xs) X)
(constructor Result (X i64) X)
(function at (i64) X :no-merge)
(function dims (X) Ints :no-merge)
(function size (X) i64 :no-merge)
(function kind (X) String :no-merge)
(relation Known (X Ints i64 String))
(relation Fixed (X))
(relation Real (X))
(function whole (X) Ids :merge (set-union old new))
(relation Joined (X X))
(function inverse (Ints) Ints :no-merge)
(function b_Opaque (String Xs) i64 :merge (min old new))
(function f_Opaque (String Xs) Ids :merge (set-union old new))
(ruleset facts) (ruleset ir) (ruleset fold) (ruleset late) (ruleset map)
(rule ((Known x s n k)) ((set (dims x) s) (set (size x) n) (set (kind x) k)) :ruleset facts :name "known")
(rule ((Joined e x) (= g (whole x))) ((set (whole e) g)) :ruleset fold :name "origins")
(rule ((= e (Result x n)) (Fixed x)) ((Fixed e)) :ruleset facts :name "fixed-Result")
"""


@dataclass(frozen=True)
class Constructor:
    """A constructor: its name in egglog, number of operands, kinds of attributes, whether its rows carry origins, number of results."""

    name: str
    operands: int
    attributes: tuple[str, ...]
    is_work: bool
    results: int = 1

    @property
    def sorts(self) -> str:
        """The argument sorts."""
        return " ".join(["X"] * self.operands + [SORTS[k] for k in self.attributes])

    @property
    def text(self) -> str:
        """The declarations of the constructor and its tables."""
        lines = [f"(constructor {self.name} ({self.sorts}) X)", f"(function b_{self.name} ({self.sorts}) i64 :merge (min old new))"]
        if self.is_work and self.results == 1:
            lines.append(f"(function f_{self.name} ({self.sorts}) Ids :merge (set-union old new))")
        return "\n".join(lines)

    @property
    def fixed_rule(self) -> str:
        """The rule that a term of compile-time constants is a compile-time constant."""
        operands = [f"x{n}" for n in range(self.operands)]
        arguments = " ".join([*operands, *(f"a{n}" for n in range(len(self.attributes)))])
        body = " ".join([f"(= e ({self.name} {arguments}))", *(f"(Fixed {x})" for x in operands)])
        return f'(rule ({body}) ((Fixed e)) :ruleset facts :name "fixed-{self.name}")'


def op_constructor(op: Op) -> Constructor:
    """Return the constructor of a core operator."""
    return Constructor(f"o_{op.name}", len(op.operands), tuple(a.kind for a in op.attributes), op.kind != LAYOUT, op.outputs)


def operators(names: Iterable[str] | None = None) -> list[Constructor]:
    """Return the constructors of core operators, restricted to `names` unless it is None."""
    constructors = (op_constructor(op) for op in OPS.values())
    selected = None if names is None else set(names)
    return [c for c in constructors if selected is None or c.name in selected]


def schema_text(core: Sequence[Constructor], devices: Sequence[Constructor] = ()) -> str:
    """Return the schema of an e-graph of core operators and device operations."""
    reals = [f'(rule ((Known x s n "{t}")) ((Real x)) :ruleset facts :name "real-{t}")' for t in FLOATS]
    return PRELUDE + "\n".join([*(c.text for c in (*core, *devices)), *reals, *(c.fixed_rule for c in core)])


def string_literal(text: str) -> str:
    """Return an egglog string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def literal(value: object, kind: str) -> str:
    """Return an attribute value as an egglog literal; a float is the string of its shortest text, so that it round-trips."""
    if kind == INTS:
        values = list(value)  # type: ignore[call-overload]
        return f"(vec-of {' '.join(str(int(v)) for v in values)})" if values else "(vec-empty)"
    if kind == INT:
        return str(int(value))  # type: ignore[call-overload]
    return string_literal(repr(float(value)) if kind == FLOAT else str(value))  # type: ignore[arg-type]
