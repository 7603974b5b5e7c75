"""Parser of terms: reads what `printer.show` prints, given the leaves, tables and free variables by name.

A bound variable may have any name; `i_12` and `i` name variables that are called i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..errors import SpecError
from .binders import Array, Comprehension, FoldResult, Leaf, Table, fold_arrays, index_variable, reduction
from .expr import FUNCTIONS, Expr, as_real, binary, call, clz, const, extract, floor, round_even, select, unary, wrap
from .intervals import Interval
from .printer import INFIX

GRAMMAR = r"""
?start: e1
?e1: e2 | e1 /==|!=|<=|<(?!<)/ e2 -> infix
?e2: e3 | e2 /\|/ e3 -> infix
?e3: e4 | e3 /\^/ e4 -> infix
?e4: e5 | e4 /&/ e5 -> infix
?e5: e6 | e5 /<<|>>/ e6 -> infix
?e6: e7 | e6 /[+\-]/ e7 -> infix
?e7: e8 | e7 /\/\/|[*%\/]/ e8 -> infix
?e8: atom
   | e8 "[" [e1 ("," e1)*] "]" -> load
   | e8 "[" NUMBER ":" NUMBER "]" -> field
   | e8 "." NUMBER -> component
?atom: "(" e1 ")"
   | FRACTION -> fraction
   | NUMBER -> number
   | NAME -> name
   | NAME "(" [e1 ("," e1)*] ")" -> call
   | NAME "(" [e1 ("," e1)*] ":" e1 ")" -> binder
   | NAME "(" e1 ":" part (";" part)* ")" -> folded
part: NAME ["in" "[" NUMBER "," NUMBER "]"] "=" e1 "then" e1
FRACTION.2: /-?\d+\/\d+/
NUMBER: /-?\d+/
NAME: /[A-Za-z_][A-Za-z_0-9]*/
%ignore /[ \t\n]+/
"""
SIGNS = {sign: op for op, (sign, _) in INFIX.items()}
PREFIX: dict[str, Callable[..., Expr]] = {
    "neg": lambda x: unary("neg", x),
    "not": lambda x: unary("not", x),
    "select": select,
    "floor": floor,
    "rint": round_even,
    "real": as_real,
    **{op: (lambda x, y, op=op: binary(op, x, y)) for op in ("min", "max", "tdiv", "tmod")},
    **{f: (lambda *x, f=f: call(f, *x)) for f in FUNCTIONS},
}
MOST_CHARACTERS = 1 << 20


def parse(
    text: str, leaves: Mapping[str, Leaf], tables: Mapping[str, Table] | None = None, variables: Mapping[str, Expr] | None = None
) -> Expr:
    """Return the term that a text stands for.

    Raises:
        SpecError: the text is too long, cannot be read from some column on, or uses an unknown name.
    """
    if len(text) > MOST_CHARACTERS:
        raise SpecError("I102", f"a term has at most {MOST_CHARACTERS} characters, not {len(text)}")
    return TermReader(text, leaves, tables or {}).expr(syntax_tree(text), dict(variables or {}))


@lru_cache(maxsize=1)
def _parser() -> Any:
    import lark

    return lark.Lark(GRAMMAR, parser="lalr", maybe_placeholders=True, propagate_positions=True)


def syntax_tree(text: str) -> Any:
    """Return the syntax tree of a term's text.

    Raises:
        SpecError: the text ends too early, or cannot be read from some column on.
    """
    import lark

    try:
        return _parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        if isinstance(error, lark.exceptions.UnexpectedToken) and error.token.type == "$END":
            raise SpecError("I102", f"{text!r} is not a whole term: it ends too early") from None
        raise SpecError("I102", f"{text!r} cannot be read as a term from column {error.column} on") from None


Names = Mapping[str, Expr | Array]


class TermReader:
    """Builds terms from the syntax trees of one text; names in scope are leaves, tables and bound variables."""

    def __init__(self, text: str, leaves: Mapping[str, Leaf], tables: Mapping[str, Table]) -> None:
        """Read `text` with these leaves and tables in scope."""
        self.text, self.leaves, self.tables = text, leaves, tables
        self.quoted_text = text  # in refusals
        self.variables: dict[tuple[str, Expr], Expr] = {}  # what is written alike is one variable, one fold
        self.folds: dict[tuple[str, frozenset[tuple[str, int]]], list[FoldResult]] = {}

    def refusal(self, sentence: str) -> SpecError:
        """Return the refusal that quotes this text."""
        return SpecError("I102", f"{sentence} in {self.quoted_text!r}")

    # -- terms

    def expr(self, t: Any, names: Names) -> Expr:
        """Return the term of a syntax tree."""
        if t.data in ("number", "fraction"):
            return const(int(t.children[0]) if t.data == "number" else Fraction(str(t.children[0])))
        if t.data == "infix":
            left, sign, right = t.children
            return binary(SIGNS[str(sign)], self.expr(left, names), self.expr(right, names))
        if t.data == "field":
            low, high = (int(x) for x in t.children[1:])
            return extract(self.expr(t.children[0], names), low, high - low)
        if t.data == "load":
            source = self.array(t.children[0], names)
            return source[tuple(self.expr(i, names) for i in t.children[1:] if i is not None)]
        if t.data == "name":
            return self.variable(str(t.children[0]), names)
        if t.data == "call":
            return self.call(str(t.children[0]), [x for x in t.children[1:] if x is not None], names)
        if t.data == "binder":
            return self.reduction(t, names)
        raise self.refusal("an array stands where a number is wanted")

    def variable(self, name: str, names: Names) -> Expr:
        """Return the variable in scope under a name."""
        bound = names.get(name)
        if not isinstance(bound, Expr):
            raise self.refusal(f"{name} is not known")
        return bound

    def call(self, name: str, args: Sequence[Any], names: Names) -> Expr:
        """Return the application of an operator or a table to its operands."""
        if name in ("wrap", "clz") and len(args) == 2:
            return self.sized_operator(name, args, names)
        operands = [self.expr(a, names) for a in args]
        table = self.tables.get(name)
        is_entry = table is not None and not any(x.real for x in operands)  # a table may be called like a function of reals
        function = table if is_entry else PREFIX.get(name)
        if function is None:
            raise self.refusal(f"{name} is no function")
        try:
            return function(*operands)
        except (TypeError, ValueError):
            raise self.refusal(f"{name} cannot have {len(args)} operands") from None

    def sized_operator(self, name: str, args: Sequence[Any], names: Names) -> Expr:
        """Return wrap(x, i8), wrap(x, u8) or clz(x, 8)."""
        size = str(args[1].children[0])
        if name == "clz" and size.isascii() and size.isdigit():
            return clz(self.expr(args[0], names), int(size))
        if name == "clz" or size[:1] not in ("i", "u") or not (size.isascii() and size[1:].isdigit()):
            raise self.refusal(f"{size} is no width for {name}")
        return wrap(self.expr(args[0], names), int(size[1:]), size[0] == "i")

    def reduction(self, t: Any, names: Names) -> Expr:
        """Return a sum, maximum or minimum over variables."""
        monoid, *ranges, body = t.children
        if str(monoid) not in ("sum", "max", "min"):
            raise self.refusal(f"{monoid} binds no variables of a number")
        variables, extents, inner = self.bound_variables(ranges, names)
        return reduction(str(monoid), variables, extents, self.expr(body, inner))

    def bound_variables(self, ranges: Sequence[Any], names: Names) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Names]:
        """Return bound variables, their extents, and the scope with them; extents do not see the variables."""
        variables, extents = [], []
        inner = dict(names)
        for r in ranges:
            if r is None:
                continue
            if r.data != "infix" or str(r.children[1]) != "<" or r.children[0].data != "name":
                raise self.refusal("a range must be written as variable < length")
            name, extent = str(r.children[0].children[0]), self.expr(r.children[2], names)
            variable = index_variable(_base(name), extent)
            variables.append(variable if name in inner else self.variables.setdefault((name, extent), variable))
            extents.append(extent)
            inner[name] = variables[-1]
        return tuple(variables), tuple(extents), inner

    # -- arrays

    def array(self, t: Any, names: Names) -> Array:
        """Return the array of a syntax tree."""
        if t.data == "name":
            return self.array_named(str(t.children[0]), names)
        if t.data == "binder" and str(t.children[0]) == "array":
            variables, extents, inner = self.bound_variables(t.children[1:-1], names)
            body = self.expr(t.children[-1], inner)
            shape = tuple(int(n.value) if n.value is not None else n for n in extents)
            return Comprehension(shape, body.interval, body.real, variables, body)
        if t.data == "component" and t.children[0].data == "folded":
            return self.fold_result(t.children[0], int(t.children[1]), names)
        raise self.refusal("a number stands where an array is wanted")

    def array_named(self, name: str, names: Names) -> Array:
        """Return the array in scope under a name."""
        array = names.get(name, self.leaves.get(name))
        if not isinstance(array, Array):
            raise self.refusal(f"{name} is no array")
        return array

    def fold_result(self, t: Any, component: int, names: Names) -> FoldResult:
        """Return one accumulator of a fold; equal text in equal scopes is one fold."""
        key = self.text[t.meta.start_pos : t.meta.end_pos], frozenset((name, id(x)) for name, x in names.items())
        if key not in self.folds:
            self.folds[key] = self.fold_results(t, names)
        results = self.folds[key]
        if not 0 <= component < len(results):
            raise self.refusal(f"there is no accumulator {component}")
        return results[component]

    def fold_results(self, t: Any, names: Names) -> list[FoldResult]:
        """Return the accumulators of a fold."""
        kind, over, *parts = t.children
        if str(kind) not in ("fold", "scan"):
            raise self.refusal(f"{kind} runs through no accumulators")
        _, (extent,), _ = self.bound_variables([over], names)
        name = str(over.children[0].children[0])
        initial = [self.array(p.children[3], names) for p in parts]

        def bodies(k: Expr, *accumulators: Array) -> list[Array]:
            inner = {**names, name: k, **{str(p.children[0]): a for p, a in zip(parts, accumulators, strict=True)}}
            return [self.array(p.children[4], inner) for p in parts]

        return fold_arrays(extent, initial, bodies, [_width(p) for p in parts], history=str(kind) == "scan")


def _width(part: Any) -> Interval | None:
    low, high = part.children[1:3]
    return None if low is None else (int(low), int(high))


def _base(name: str) -> str:
    head, _, serial = name.rpartition("_")
    return head if head and serial.isdigit() else name
