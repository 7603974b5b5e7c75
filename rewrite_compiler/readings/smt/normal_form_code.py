"""Terms of integers, arrays of them and updates as code on normal forms: Python functions that take an evaluator, each made once.

Where all operands are integers, as in addresses and control, they are computed at once; else the operator makes a normal form.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Array, Comprehension, Leaf, Table, entries_of
from ...lang.expr import COMPARISONS, Expr, fold_constant, lift
from ...lang.step import Update
from ..arrays.labelled_array import Data
from ..kernels.evaluate import evaluate
from ..oracle.emit_python import INFIX, table_entries
from .evaluator import UNROLLED_SHIFTS
from .polynomial_terms import Number, Term, Terms, interval_of

INDENT = "    "
LONGEST_TEXT = 600  # of a term, before it becomes a function: Python nests parentheses 200 times at most
LISTED_ENTRIES = 1 << 12  # of a table that code reads without a call
_BOUND = re.compile(r"\bk\d+(?= :?= )|(?<=for )x\d+(?= in )")  # names that a line assigns, which other functions read
_BY_NUMBER: dict[str, tuple[str, Callable[[int], bool]]] = {  # operator with a number → Python's, and for which numbers
    **{op: (op, lambda n: n > 0) for op in ("div", "mod")},
    **{op: (infix, lambda n: 0 <= n <= iv.LARGEST_SHIFT) for op, infix in (("shl", "mul"), ("shr", "div"))},
}


class NotInteger(Exception):
    """A term uses real numbers, which have no normal form here."""


def integer_of(x: Any) -> Any:
    """Return a value as an integer or a term.

    Raises:
        NotInteger: it is another number.
    """
    if type(x) is Term or type(x) is int:
        return x
    if isinstance(x, bool | np.integer):
        return int(x)
    raise NotInteger(repr(x))


Reading = Callable[..., Number]


def _constant_result(e: Expr, a: Number, b: Number) -> int | None:
    return None if isinstance(a, Term) or isinstance(b, Term) else fold_constant(e.op, a, b)


def _negate(terms: Terms, e: Expr, a: Number) -> Number:
    return terms.linear_combination([(-1, a)])


def _complement(terms: Terms, e: Expr, a: Number) -> Number:
    return terms.linear_combination([(1, 1), (-1, a)])


def _shift(terms: Terms, e: Expr, a: Number, b: Number) -> Number:
    constant = _constant_result(e, a, b)
    if constant is not None:
        return constant
    if not isinstance(b, Term):
        return terms.product(a, 1 << b) if e.op == "shl" else terms.quotient(a, 1 << b)
    low, high = e.args[1].interval
    if low is None or high is None or high - low > UNROLLED_SHIFTS:
        raise SpecError("I102", f"a shift by a symbolic amount needs a bounded one, not {(low, high)}")
    result: Number | None = None
    for n in range(max(high, 0), max(low, 0) - 1, -1):
        shifted = terms.product(a, 1 << n) if e.op == "shl" else terms.quotient(a, 1 << n)
        result = shifted if result is None else terms.select(terms.compare("eq", b, n), shifted, result)
    assert result is not None
    return result


_FLOORED = {"div": "fdiv", "mod": "fmod"}  # by a term; those by a number are rewritten
_DIVIDED = {"div": iv.floor_div, "mod": iv.floor_mod, "tdiv": iv.trunc_div, "tmod": iv.trunc_mod}


def _divide(terms: Terms, e: Expr, a: Number, b: Number) -> Number:
    constant = _constant_result(e, a, b)
    if constant is not None:
        return constant
    if not isinstance(b, Term) and b > 0 and e.op in ("div", "mod"):
        return terms.quotient(a, b) if e.op == "div" else terms.modulo(a, b)
    return terms.apply(_FLOORED.get(e.op, e.op), None, (a, b), _DIVIDED[e.op](interval_of(a), interval_of(b)))


def _bits(terms: Terms, e: Expr, a: Number, b: Number) -> Number:
    constant = _constant_result(e, a, b)
    if constant is not None:
        return constant
    if all(iv.inside(x.interval, iv.TRUTH) for x in e.args):
        conjunction = terms.product(a, b)
        disjunction = terms.linear_combination([(1, a), (1, b), (-1 if e.op == "bitor" else -2, conjunction)])
        return conjunction if e.op == "bitand" else disjunction
    for mask, x in ((a, b), (b, a)) if e.op == "bitand" else ():
        if not isinstance(mask, Term) and mask >= 0 and mask & (mask + 1) == 0:  # as many low bits
            return terms.modulo(x, mask + 1)
    word = iv.width_of(iv.hull(*(x.interval for x in e.args)))
    if word is None:
        raise SpecError("I102", f"{e.op} needs bounded operands in a proof")
    return terms.apply(e.op, word, (a, b), e.interval)


def _wrap(terms: Terms, e: Expr, a: Number) -> Number:
    if iv.inside(interval_of(a), iv.of_width(*e.data)):
        return a
    return terms.once(_wrapped, a, e.data) if isinstance(a, Term) else _wrapped(a, e.data)


def _wrapped(a: Number, kind: tuple[int, bool]) -> Any:
    bits, signed = kind
    half = 1 << bits - 1 if signed else 0
    if not isinstance(a, Term):
        return (a + half) % (1 << bits) - half
    return a.terms.plus(a.terms.modulo(a.terms.plus(a, half), 1 << bits), -half)


def _clz(terms: Terms, e: Expr, a: Number) -> Number:
    return terms.apply("clz", e.data, (a,), e.interval) if isinstance(a, Term) else e.data - a.bit_length()


READINGS: dict[str, Reading] = {
    "add": lambda t, e, a, b: a + b,
    "sub": lambda t, e, a, b: a - b,
    "mul": lambda t, e, a, b: t.product(a, b),
    "neg": _negate,
    "not": _complement,
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    **{op: lambda t, e, a, b: t.compare(e.op, a, b) for op in ("eq", "ne", "lt", "le")},
    **{op: lambda t, e, a, b: t.extremum(e.op, a, b) for op in ("min", "max")},
    **dict.fromkeys(("bitand", "bitor", "bitxor"), _bits),
    "wrap": _wrap,
    "extract": lambda t, e, a: t.modulo(t.quotient(a, 1 << e.data[0]), 1 << e.data[1]),
    "clz": _clz,
}


Code = Callable[[Any], Any]  # evaluator → value
CODES = 1 << 12  # that are kept


@lru_cache(maxsize=CODES)
def code_of(root: Expr) -> Code:
    """Return the code of a term that is no constant and no variable."""
    source = _Source([root])
    return source.function(f"return {source.text(root, [source.root])}")


@lru_cache(maxsize=CODES)
def array_code(root: Comprehension) -> Code:
    """Return the code of an array of elements."""
    source = _Source([root.body, *_terms_of(root.shape)])
    return source.function(f"return {source.elements(root, [source.root])}()")


@lru_cache(maxsize=CODES)
def updates_code(updates: tuple[Update, ...]) -> Code:
    """Return the code of updates that go together: for each one the places that it writes with their values."""
    source = _Source([e for u in updates for e in (*u.address, u.value, *u.extents)])
    return source.function(f"return [{', '.join(f'{source.writes(u)}()' for u in updates)}]")


class _Scope:
    """What a loop binds, by names, and what it computes once in each turn."""

    def __init__(self, variables: Mapping[Expr, str]) -> None:
        self.variables = dict(variables)
        self.kept: dict[Any, str] = {}  # the text that gives the value
        self.names: list[str] = []  # of what is kept


Scopes = list[_Scope]


class _Source:
    """Python source on normal forms; subterms that several others share, or that vary less than these, are computed once."""

    def __init__(self, roots: Sequence[Expr]) -> None:
        self.uses = _uses(roots)
        self.root = _Scope({})
        self.globals: dict[str, Any] = dict(_HELPERS)
        self.functions: list[list[str]] = []
        self.memories: dict[Leaf, str] = {}
        self.numbers = itertools.count()

    def function(self, result: str) -> Code:
        """Return the function whose last line is `result`."""
        lines = ["def code(ev):", "    terms, memories, values = ev.terms, ev.memories, ev.variable_values"]
        for e, name in self.root.variables.items():
            lines.append(f"    {name} = values[{self._object(e)}]")
        for leaf, name in self.memories.items():
            lines.append(f"    {name} = memories.get({self._object(leaf)})")
            if leaf.shape:
                extents = ", ".join(f"{name}_{axis}" for axis in range(leaf.rank))
                lines.append(f"    {extents}, = {(0,) * leaf.rank} if {name} is None else {name}.shape")
        names = sorted({name for f in self.functions for line in f for name in _BOUND.findall(line)} | set(self.root.names))
        lines += [f"    {' = '.join(names)} = None"] if names else []
        lines += [f"    {line}" for f in self.functions for line in _with_declarations(f)]
        source = "\n".join([*lines, f"    {result}", ""])
        exec(compile(source, "<normal form>", "exec"), self.globals)  # text of our own making: every identifier is numbered here
        code: Code = self.globals["code"]
        return code

    # -- terms

    def text(self, e: Expr, scopes: Scopes) -> str:
        """Return the text of a term inside of some loops."""
        if e.op == "const":
            return self._literal(e.data)
        if e.op == "var":
            return self._variable(e, scopes)
        outer = scopes[: _depth(e.free, scopes) + 1]
        is_short = e.op not in ("reduce", "load") and not any(a.args for a in e.args)
        if is_short or (self.uses[e] == 1 and len(outer) == len(scopes)):
            return self._spilled(self._operator(e, scopes))
        if e not in outer[-1].kept:
            text = self._operator(e, outer)
            name = self._kept_name(outer[-1])
            outer[-1].kept[e] = _once(
                name, f"({name} := {text})" if self.uses[e] == 1 else f"{self._define([f'return ({name} := {text})'])}()"
            )
        return outer[-1].kept[e]

    def _spilled(self, text: str) -> str:
        """Return a text, as a call where it is long: Python nests parentheses 200 times at most."""
        return text if len(text) < LONGEST_TEXT else f"{self._define([f'return {text}'])}()"

    def _operator(self, e: Expr, scopes: Scopes) -> str:
        op = e.op
        if op == "load":
            return self._load(e, scopes)
        if op == "reduce":
            return f"ev.reduced({self._object(e)}, {self._reduction(e, scopes)}())"
        if op == "table":
            return self._table(e, scopes)
        if op == "select":
            return self._select(e, scopes)
        if op not in READINGS or e.real:
            return f"refuse({op!r})"
        native = self._native(e, scopes)
        return native or (self._binary(e, scopes) if len(e.args) == 2 else self._unary(e, scopes))

    def _table(self, e: Expr, scopes: Scopes) -> str:
        function, interval = self._object(function_of(e.data)), self._object(e.interval)
        if len(e.args) != 1:
            return f"entry(terms, {function}, {interval}, ({self._list(e.args, scopes)}))"
        x = self._name("t")
        otherwise = f"entry(terms, {function}, {interval}, ({x},))"
        if not e.real and e.data.shape[0] <= LISTED_ENTRIES:
            entries = tuple(map(integer_of, table_entries(e.data)))
            otherwise = f"{self._object(entries)}[{x} - {e.data.domains[0][0] or 0}]"
        application = f"terms.make('table', {function}, ({x},), {interval})"
        return f"({application} if type({x} := {self.text(e.args[0], scopes)}) is Term else {otherwise})"

    def _native(self, e: Expr, scopes: Scopes) -> str:
        """Return an operator as Python's on numbers and terms alike, nothing where there is none."""
        op, last = e.op, e.args[-1]
        if op in ("add", "sub", "mul"):
            return f"({self.text(e.args[0], scopes)} {INFIX[op]} {self.text(last, scopes)})"
        if op in ("neg", "not"):
            return f"({'-' if op == 'neg' else '1 - '}{self.text(last, scopes)})"
        if op == "extract":
            return f"({self.text(last, scopes)} // {1 << e.data[0]} % {1 << e.data[1]})"
        n = last.data if last.op == "const" and type(last.data) is int else None
        if n is None or op not in _BY_NUMBER or not _BY_NUMBER[op][1](n):
            return ""
        return f"({self.text(e.args[0], scopes)} {INFIX[_BY_NUMBER[op][0]]} {1 << n if op in ('shl', 'shr') else n})"

    def _binary(self, e: Expr, scopes: Scopes) -> str:
        """Return an operator that differs between numbers and terms."""
        if e.op in ("div", "mod", "tdiv", "tmod"):  # they have no value for some integers
            return f"apply(terms, {self._object(e)}, {self._list(e.args, scopes)})"
        (a, b), bindings = self._named(e.args, scopes)
        otherwise = f"apply(terms, {self._object(e)}, {a}, {b})"
        if e.op in ("shl", "shr"):
            conditions = [bindings] if bindings else []
            return f"({a} {INFIX[e.op]} {b} if {' and '.join([*conditions, f'0 <= {b} <= {iv.LARGEST_SHIFT}'])} else {otherwise})"
        if e.op in COMPARISONS:
            by_numbers = f"(1 if {a} {INFIX[e.op]} {b} else 0)"
        elif e.op in ("min", "max"):
            by_numbers = f"({a} if {a} {'<=' if e.op == 'min' else '>='} {b} else {b})"
        else:
            by_numbers = f"({a} {INFIX[e.op]} {b})"
        return f"({by_numbers} if {bindings} else {otherwise})" if bindings else by_numbers

    def _unary(self, e: Expr, scopes: Scopes) -> str:
        if e.op != "wrap":
            return f"apply(terms, {self._object(e)}, {self.text(e.args[0], scopes)})"
        (a,), bindings = self._named(e.args, scopes)
        otherwise = f"apply(terms, {self._object(e)}, {a})"
        low, high = iv.of_width(*e.data)
        return f"({a} if {bindings + ' and ' if bindings else ''}{low} <= {a} <= {high} else {otherwise})"

    def _select(self, e: Expr, scopes: Scopes) -> str:
        condition, a, b = (self.text(x, scopes) for x in e.args)
        if _is_number(e.args[0]):
            return f"({a} if {condition} else {b})"
        c = self._name("t")
        return f"choose({c} := {condition}, {a} if {c} else None, {b} if type({c}) is Term or not {c} else None)"

    def _named(self, operands: Sequence[Expr], scopes: Scopes) -> tuple[list[str], str]:
        """Return names of operands, and the condition that binds them all and that all are numbers."""
        names, bindings = list[str](), list[str]()
        for e in operands:
            text = self.text(e, scopes)
            if e.op not in ("const", "var"):
                name = self._name("t")
                bindings.append(f"(type({name} := {text}) is int)")
                text = name
            names.append(text)
        return names, " & ".join(bindings)

    def _load(self, e: Expr, scopes: Scopes) -> str:
        array = e.data
        if not isinstance(array, Leaf):
            return f"load(ev, {self._object(e)}, {self._array(array, scopes)}, ({self._list(e.args, scopes)}))"
        memory = self._memory(array)
        if not e.args:
            return f"{memory}[()]"
        names, bindings = self._named(e.args, scopes)
        conditions = [bindings] if bindings else []
        conditions += [f"0 <= {i} < {memory}_{axis}" for axis, i in enumerate(names)]
        index = f"{', '.join(names)},"
        otherwise = f"load(ev, {self._object(e)}, memories[{self._object(array)}], ({index}))"
        return f"({memory}[{index}] if {' and '.join(conditions)} else {otherwise})"

    def _list(self, terms: Sequence[Expr], scopes: Scopes) -> str:
        return "".join(f"{self.text(x, scopes)}, " for x in terms)

    # -- loops

    def _array(self, a: Array, scopes: Scopes) -> str:
        """Return the text of the elements of an array that is no leaf, which are computed once for what they depend on."""
        outer = scopes[: _depth(a.free, scopes) + 1]
        if a not in outer[-1].kept:
            if len(outer) == 1:
                value = f"ev.array({self._object(a)})"
            elif isinstance(a, Comprehension):
                value = f"{self.elements(a, outer)}()"
            else:
                bound = {v: name for s in outer[1:] for v, name in s.variables.items() if v in a.free}
                value = f"ev.array_within({self._object(a)}, {self._object(tuple(bound))}, ({''.join(f'{x}, ' for x in bound.values())}))"
            name = self._kept_name(outer[-1])
            outer[-1].kept[a] = _once(name, f"{self._define([f'return ({name} := {value})'])}()")
        return outer[-1].kept[a]

    def elements(self, a: Comprehension, scopes: Scopes) -> str:
        """Return the name of a function that gives the elements of an array."""
        extents = [lift(n) for n in a.shape]
        result = f"return filled(results, ({''.join(f'n{axis}, ' for axis in range(len(extents)))}))"
        return self._loops(a.variables, extents, scopes, lambda inner: [f"results.append({self.text(a.body, inner)})"], result)

    def _reduction(self, e: Expr, scopes: Scopes) -> str:
        """Return the name of a function that gives the values which a reduction combines."""
        _, variables = e.data
        return self._loops(
            variables, e.args[1:], scopes, lambda inner: [f"results.append({self.text(e.args[0], inner)})"], "return results"
        )

    def writes(self, u: Update) -> str:
        """Return the name of a function that gives the places which an update writes, with their values."""
        memory = self._memory(u.memory)

        def body(inner: Scopes) -> list[str]:
            places = [f"p{axis}" for axis in range(len(u.address))]
            lines = [f"{p} = {self._control(a, inner)}" for p, a in zip(places, u.address, strict=True)]
            place = f"({''.join(f'{p}, ' for p in places)})"
            inside = " and ".join(f"0 <= {p} < {memory}_{axis}" for axis, p in enumerate(places))
            lines += [f"if not ({inside}): outside(ev, {self._object(u)}, {place})"] if places else []
            return [*lines, f"results.append(({place}, {self.text(u.value, inner)}))"]

        return self._loops(u.variables, u.extents, [self.root], body, "return results")

    def _loops(
        self, variables: Sequence[Expr], extents: Sequence[Expr], scopes: Scopes, body: Callable[[Scopes], list[str]], result: str
    ) -> str:  # fmt: skip
        """Return the name of a function that runs lines at every point of extents, the last variable varying fastest."""
        lines = [f"n{axis} = {self._control(n, scopes)}" for axis, n in enumerate(extents)]
        scope = _Scope({v: self._name("x") for v in variables})
        inner = body([*scopes, scope] if variables else scopes)
        lines.append("results = []")
        for axis, name in enumerate(scope.variables.values()):
            lines.append(f"{INDENT * axis}for {name} in range(n{axis}):")
        pad = INDENT * len(variables)
        reset = [f"{' = '.join(scope.names)} = None"] if scope.names else []
        return self._define([*lines, *(pad + line for line in (*reset, *inner)), result])

    def _control(self, e: Expr, scopes: Scopes) -> str:
        """Return the text of a term that must be a number."""
        text = self.text(e, scopes)
        return text if e.op in ("const", "var") else f"(t if type(t := {text}) is int else number(t, {self._object(e)}))"

    # -- names

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self.numbers)}"

    def _object(self, x: Any) -> str:
        """Return the name of an object of the term."""
        name = self._name("o")
        self.globals[name] = x
        return name

    def _literal(self, x: Any) -> str:
        return f"({int(x)})" if isinstance(x, int) else self._object(x)

    def _variable(self, e: Expr, scopes: Scopes) -> str:
        for scope in reversed(scopes):
            if e in scope.variables:
                return scope.variables[e]
        return self.root.variables.setdefault(e, self._name("x"))

    def _memory(self, leaf: Leaf) -> str:
        return self.memories.setdefault(leaf, f"m{len(self.memories)}")

    def _kept_name(self, scope: _Scope) -> str:
        name = self._name("k")
        scope.names.append(name)
        return name

    def _define(self, lines: list[str]) -> str:
        """Define a function; return its name."""
        name = self._name("f")
        self.functions.append([f"def {name}():", *(INDENT + line for line in lines)])
        return name


def _once(name: str, text: str) -> str:
    return f"({name} if {name} is not None else {text})"


def _with_declarations(function: list[str]) -> list[str]:
    """Return the lines of a function, with what it assigns of other functions declared."""
    names = sorted({name for line in function for name in _BOUND.findall(line)})
    declared = [f"{INDENT}nonlocal {', '.join(names)}"] if names else []
    return [function[0], *declared, *function[1:]]


def _uses(roots: Iterable[Expr]) -> Counter[Expr]:
    """Return how often each term is an operand, in the bodies of arrays, too."""
    uses, pending, arrays = Counter[Expr](), list[Expr](), set[Array]()

    def use(terms: Iterable[Expr]) -> None:
        for e in terms:
            uses[e] += 1
            if uses[e] == 1:
                pending.append(e)

    use(roots)
    while pending:
        e = pending.pop()
        use(e.args)
        if e.op == "load" and isinstance(e.data, Comprehension) and e.data not in arrays:
            arrays.add(e.data)
            use((e.data.body, *_terms_of(e.data.shape)))
    return uses


def _terms_of(shape: Sequence[int | Expr]) -> list[Expr]:
    return [n for n in shape if isinstance(n, Expr)]


def _depth(free: frozenset[Expr], scopes: Scopes) -> int:
    """Return the innermost loop that binds one of some variables; 0 is outside of all."""
    depth = len(scopes) - 1
    while depth and scopes[depth].variables.keys().isdisjoint(free):
        depth -= 1
    return depth


def _is_number(e: Expr) -> bool:
    """Tell whether a term is an integer made of variables of loops only."""
    return not e.reads and not e.real


class TableFunction:
    """A table as an uninterpreted function."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def is_function_of(self, table: Table) -> bool:
        """Tell whether a table is the same function: its name, domains and entries are equal."""
        a = self.table
        is_alike = a.name == table.name and a.domains == table.domains
        return a is table or (is_alike and np.array_equal(self.entries, evaluate(entries_of(table), {})))

    @cached_property
    def entries(self) -> Data:
        """All entries."""
        return evaluate(entries_of(self.table), {})


@lru_cache(maxsize=256)
def function_of(table: Table) -> TableFunction:
    """Return a table as a function, which is one object for all tables that are the same."""
    functions = _functions_named(table.name)
    function = next((f for f in functions if f.is_function_of(table)), None)
    if function is None:
        functions.append(function := TableFunction(table))
    return function


@cache
def _functions_named(_: str) -> list[TableFunction]:
    return []


def _entry(terms: Terms, function: TableFunction, interval: iv.Interval, operands: tuple[Any, ...]) -> Number:
    """Return the entry of a table, its name applied to operands where these are no numbers."""
    if any(type(x) is Term for x in operands):
        return terms.apply("table", function, map(integer_of, operands), interval)
    table, flat = function.table, 0
    for x, n, d in zip(operands, table.shape, table.domains, strict=True):
        flat = flat * n + x - (d[0] or 0)
    entry: int = integer_of(table_entries(table)[flat])
    return entry


def _refuse(op: str) -> Any:
    raise NotInteger(op)


def _apply(terms: Terms, e: Expr, *operands: Any) -> Number:
    return READINGS[e.op](terms, e, *map(integer_of, operands))


def _choose(condition: Any, a: Any, b: Any) -> Any:
    if type(condition) is not Term:
        return a if condition else b
    return condition.terms.select(condition, integer_of(a), integer_of(b))


def _loaded(ev: Any, e: Expr, data: Data, index: tuple[Any, ...]) -> Any:
    for i in index:
        if not isinstance(i, int):
            return ev.symbolic_load(data, index)
    ev.check_index(e, index, data)
    return data[index]


def _number(x: Any, e: Expr) -> int:
    if isinstance(x, Term):
        raise SpecError("I102", f"{e!r} depends on data where control is needed")
    return int(x)


def _outside(ev: Any, u: Update, place: tuple[int, ...]) -> None:
    ev.check_index(u.memory[u.address], place, ev.memories[u.memory])


def _filled(values: list[Any], shape: tuple[int, ...]) -> Data:
    data = np.empty(len(values), object)
    for n, x in enumerate(values):
        data[n] = x
    return data.reshape(shape)


_HELPERS: dict[str, Any] = {
    "Term": Term, "refuse": _refuse, "apply": _apply, "choose": _choose, "load": _loaded, "number": _number,
    "entry": _entry, "outside": _outside, "filled": _filled,
}  # fmt: skip
