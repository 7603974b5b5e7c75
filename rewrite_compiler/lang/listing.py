"""Listings of steps for readers: short variables, choices on one value as cases, long common subterms named beside them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .binders import Array, Comprehension, FoldResult, Leaf, Table
from .expr import Expr
from .printer import INFIX
from .step import Let, Loop, Require, Seq, Step, Together, Update, When, children

LONG_TERM = 48  # characters of a term worth a name when it occurs again
HEXADECIMAL = 1 << 12


@dataclass
class StepWriter:
    """Writes the terms of one step; variables and names are numbered in the order in which they occur."""

    names: dict[object, str] = field(default_factory=dict)
    named_terms: dict[Expr, str] = field(default_factory=dict)
    texts: dict[Expr, str] = field(default_factory=dict)
    fresh_names: Iterator[str] = field(default_factory=lambda: (f"{c}{n or ''}" for n in itertools.count() for c in "ijklmnpqruv"))

    def step(self, step: Step) -> list[str]:
        """Return a step as indented lines; diagnostics are left out."""
        if isinstance(step, Update):
            return self._statement([step])
        if isinstance(step, Together):
            return self._statement(step.updates)
        if isinstance(step, Seq):
            return [line for part in step.steps for line in self.step(part)]
        if isinstance(step, Loop):
            head = f"for {self.variable(step.variable)} in 0 … {self.last_value(step.extent)}:"
            return self._block(head, step.body)
        if isinstance(step, When):
            self._find_names([step.condition])
            if not _is_listed(step.then):
                return self._block(f"when not ({self.expr(step.condition)}):", step.otherwise)
            lines = self._block(f"when {self.expr(step.condition)}:", step.then)
            return lines + self._block("else:", step.otherwise)
        if isinstance(step, Let):
            self._find_names(_inner_terms(step.array))
            first = f"let {step.local.name} = {self.array(step.array)}"
            return [*self._with_names([first]), *self.step(step.body)]
        return []

    def _block(self, head: str, body: Step) -> list[str]:
        if not _is_listed(body):
            return []
        definitions = self._with_names([head])
        return [*definitions, *("    " + line for line in self.step(body))]

    def _statement(self, updates: Sequence[Update]) -> list[str]:
        lines = []
        for u in updates:
            over = ", ".join(f"{self.variable(v)} in 0 … {self.last_value(n)}" for v, n in zip(u.variables, u.extents, strict=True))
            self._find_names([*u.address, u.value])
            place = f"{u.memory.name}[{', '.join(self.expr(a) for a in u.address)}]" if u.address else u.memory.name
            lines += self._with_names([f"{place} := {self.expr(u.value)}" + (f"   for {over}" if over else "")])
        return lines

    def _find_names(self, terms: Sequence[Expr]) -> None:
        """Choose names for the long terms that occur more than once."""
        counts: dict[Expr, int] = {}
        work = list(terms)
        while work:
            e = work.pop()
            counts[e] = counts.get(e, 0) + 1
            if counts[e] == 1:
                work += e.args
                work += _inner_terms(e.data) if e.op == "load" else []
        for e, n in counts.items():
            if n > 1 and e.op not in ("const", "var") and e not in self.named_terms and len(self.expr(e)) > LONG_TERM:
                self.named_terms[e] = f"t{len(self.named_terms) + 1}"
                self.texts.clear()

    def _with_names(self, lines: list[str]) -> list[str]:
        """Return lines with the definitions of the names they use that were not given yet."""
        defined, pending = list(lines), list(lines)
        while pending:
            text = pending.pop()
            for e, name in list(self.named_terms.items()):
                if name not in self.names.values() and _uses(text, name):
                    self.names[("given", name)] = name
                    line = f"    with {name} = {self._expr(e, 0)}"
                    defined.append(line)
                    pending.append(line)
        return defined

    # -- terms

    def variable(self, v: Expr) -> str:
        """Return the short name of an index variable."""
        if v.data not in self.names:
            self.names[v.data] = next(self.fresh_names)
        return self.names[v.data]

    def last_value(self, extent: Expr) -> str:
        """Return the last value of a loop variable over an extent, as text."""
        return str(extent.value - 1) if extent.value is not None else f"{self.expr(extent, 7)} - 1"

    def expr(self, e: Expr, level: int = 0) -> str:
        """Return a term, in parentheses where its operator binds less than `level`."""
        if e in self.named_terms:
            return self.named_terms[e]
        return self._expr(e, level)

    def _expr(self, e: Expr, level: int) -> str:
        if e.op == "const":
            return _number(e.data)
        if e.op == "var":
            return self.variable(e)
        if e.op in INFIX:
            sign, rank = INFIX[e.op]
            text = f"{self.expr(e.args[0], rank)} {sign} {self.expr(e.args[1], rank + 1)}"
            return f"({text})" if rank < level else text
        if e not in self.texts:
            self.texts[e] = self._call(e)
        return self.texts[e]

    def _call(self, e: Expr) -> str:
        if e.op == "reduce":
            monoid, variables = e.data
            over = ", ".join(f"{self.variable(v)} in 0 … {self.last_value(n)}" for v, n in zip(variables, e.args[1:], strict=True))
            return f"{monoid}({self.expr(e.args[0])} for {over})"
        if e.op == "load":
            index = ", ".join(self.expr(i) for i in e.args)
            return f"{self.array(e.data)}[{index}]" if index else self.array(e.data)
        if e.op == "select":
            return self._cases(e)
        operands = ", ".join(self.expr(a) for a in e.args)
        if isinstance(e.data, Table):
            return f"{e.data.name}({operands})"
        if e.op == "extract":
            low, width = e.data
            return f"{self.expr(e.args[0], 9)}[{low + width - 1}:{low}]" if width > 1 else f"{self.expr(e.args[0], 9)}[{low}]"
        if e.op == "wrap":
            bits, signed = e.data
            return f"{'signed' if signed else 'unsigned'}{bits}({operands})"
        return f"{e.data}({operands})" if e.op == "call" else f"{e.op}({operands})"

    def _cases(self, e: Expr) -> str:
        """Return a choice; a chain of comparisons of one term as its cases."""
        subject, branches = _subject(e), []
        default = e
        while subject is not None and default.op == "select" and _subject(default) is subject:
            branches.append((default.args[0].args[1], default.args[1]))
            default = default.args[2]
        if len(branches) > 1 and subject is not None:
            listing = ", ".join(f"{self.expr(c)}: {self.expr(x)}" for c, x in branches)
            return f"({self.expr(subject)} → {listing}, else {self.expr(default)})"
        condition, yes, no = (self.expr(a) for a in e.args)
        return f"({yes} if {condition} else {no})"

    def array(self, a: Array) -> str:
        """Return an array term."""
        if isinstance(a, Leaf):
            return a.name
        if isinstance(a, Comprehension):
            over = ", ".join(f"{self.variable(v)} in 0 … {self._last(n)}" for v, n in zip(a.variables, a.shape, strict=True))
            return f"[{self.expr(a.body)} for {over}]" if over else self.expr(a.body)
        if isinstance(a, FoldResult):
            f = a.fold
            over = f"{self.variable(f.variable)} in 0 … {self.last_value(f.extent)}"
            starts = "; ".join(f"{x.name} from {self.array(i)}" for x, i in zip(f.accumulators, f.initial, strict=True))
            bodies = "; ".join(f"{x.name} := {self.array(b)}" for x, b in zip(f.accumulators, f.bodies, strict=True))
            return f"{'history' if a.history else 'fold'}({starts}; for {over}: {bodies})"
        return "array"

    def _last(self, n: object) -> str:
        return self.last_value(n) if isinstance(n, Expr) else str(int(n) - 1)  # type: ignore[call-overload]


def _is_listed(step: Step) -> bool:
    """Tell whether a listing has a line for a step: not for one of diagnostics alone."""
    return isinstance(step, Update | Together | Let) or any(map(_is_listed, children(step)))


def _inner_terms(a: object) -> list[Expr]:
    """Return the terms inside an array."""
    if isinstance(a, Comprehension):
        return [a.body]
    if isinstance(a, FoldResult):
        return [e for part in (*a.fold.initial, *a.fold.bodies) for e in _inner_terms(part)]
    return []


def _subject(e: Expr) -> Expr | None:
    """Return what a choice compares with a constant."""
    c = e.args[0] if e.op == "select" else None
    return c.args[0] if c is not None and c.op == "eq" and c.args[1].value is not None else None


def _uses(text: str, name: str) -> bool:
    at = text.find(name)
    while at >= 0:
        neighbours = (text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]).replace("[", "").replace("]", "")
        if not any(c.isalnum() or c == "_" for c in neighbours):
            return True
        at = text.find(name, at + 1)
    return False


def _number(x: object) -> str:
    return hex(x) if isinstance(x, int) and x >= HEXADECIMAL and x % 16 == 0 else str(x)


def step_listing(step: Step) -> list[str]:
    """Return the listing of a step, line by line, without its diagnostics."""
    return StepWriter().step(step) or ["nothing changes"]


def diagnostics_of(step: Step) -> list[tuple[str, str]]:
    """Return the (code, sentence) of every diagnostic in a step, each once, in order."""
    diagnostics: dict[tuple[str, str], None] = {}
    _collect(step, diagnostics)
    return list(diagnostics)


def _collect(step: Step, diagnostics: dict[tuple[str, str], None]) -> None:
    if isinstance(step, Require):
        diagnostics[step.code, step.sentence] = None
    elif isinstance(step, Seq):
        for part in step.steps:
            _collect(part, diagnostics)
    elif isinstance(step, When):
        _collect(step.then, diagnostics)
        _collect(step.otherwise, diagnostics)
    elif isinstance(step, Loop | Let):
        _collect(step.body, diagnostics)
