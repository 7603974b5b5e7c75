"""The parser of rules in the text form: a grammar and tables; no code of the file is run, no name of it reaches Python."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput

from ..errors import FlexmatchError, InputError, SpecError, UsageError, did_you_mean
from ..intake import FileBound, read_bytes
from ..lang.arithmetic import maximum, minimum
from ..lang.expr import Expr, lift, select, var
from ..ops.op import OPS, Apply, Tensor, Variable
from ..ops.static import Condition, HasType, Ints, Inverse, IsConstant, NamedList, as_ints
from .float_condition import OperandBound, graded
from .rule import GRADES, MARKS, PHASES, Float, Rule, Str, check_rule, guard_condition
from .text import tensor_text

MAX_BYTES = 1 << 16  # a thousand rules and more, which take a second to parse
NESTING = 60
MAX_TERMS = 1 << 15  # of a file, each name counted as what it is bound to: terms are compared by their text
CONSTANTS = {"inf": float("inf"), "nan": float("nan")}
MAX_DEPTH = 128  # of terms in one another, counted so, too
Node = Tree[Token]

KINDS: dict[str, Callable[[str], Any]] = {
    "tensor": Variable, "ints": NamedList, "int": lambda name: var(name, (0, None)), "float": Float, "str": Str,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv, "mod": operator.mod,
    "bitor": operator.or_, "bitand": operator.and_,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "constant": IsConstant,
    "type": lambda x, *names: HasType(x, tuple(names)),
    "permuted": lambda x, perm: as_ints(x).permuted(as_ints(perm)),
    "inverse": lambda perm: Inverse(as_ints(perm)),
    "replaced": lambda x, at, value: as_ints(x).with_element(at, value),
    "len": lambda x: as_ints(x).length,
    "prod": lambda x: as_ints(x).product,
    "min": lambda a, b: minimum(lift(a), lift(b)),
    "max": lambda a, b: maximum(lift(a), lift(b)),
    "select": lambda c, a, b: select(lift(c), lift(a), lift(b)),
    "not": lambda a: 1 - lift(a),
}
MEMBERS: dict[str, Callable[[Any], Any]] = {"shape": lambda x: x.shape, "rank": lambda x: x.rank, "size": lambda x: x.size}


# what the words of the grammar are called in a refusal; others are the characters themselves
WORDS = {
    "RULE_NAME": "the name of a rule", "NAME": "a name", "KIND": f"one of {', '.join(KINDS)}", "TEXT": "a text in quotes",
    "NUMBER": "a number", "INT": "a whole number", "COMPARE": "a comparison", "BOUNDS": "a condition",
}  # fmt: skip
NAMED = {"KIND": tuple(KINDS), **{name: () for name in WORDS if name != "KIND"}}  # the texts that a word may be, where they are few
MAX_WORDS = 5  # that a remedy lists


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def rules_of_file(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a file in the text form.

    Raises:
        UsageError: F101, there is no such file.
        InputError: R100 or R101, it cannot be read as rules.
    """
    if not path.is_file():
        raise UsageError("F101", f"there is no rule file {path}", help="give the path of a file of rules")
    data = read_bytes(path, FileBound("a rule", MAX_BYTES, "share the rules among several files", code="R100"))
    try:
        return rules_of_text(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InputError("R100", f"a rule file must be UTF-8; byte {error.start} is not", place=str(path)) from None


def rules_of_text(text: str, place: str) -> tuple[Rule, ...]:
    """Return the rules of a text; `place` names it in refusals.

    Raises:
        InputError: R100, the text does not parse; R101, a rule has no meaning.
    """
    _check_nesting(text, place)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        sentence = f"the rule text cannot be read: {_reason(error)}"
        raise InputError("R100", sentence, place=f"{place}:{_line(error, text)}", help=_remedy(error)) from None
    return tuple(_Reader(place).rule(t) for t in tree.children if isinstance(t, Tree))


def _line(error: UnexpectedInput, text: str) -> int:
    return error.line if isinstance(error.line, int) and error.line > 0 else text.count("\n") + 1


def _reason(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedCharacters):
        return f"character {error.column} of the line begins nothing that can stand here"
    token = getattr(error, "token", None)
    if isinstance(error, UnexpectedEOF) or token is None or token.type == "$END":
        return "it ends inside of a rule"
    return f'"{token}" cannot stand here'


def _remedy(error: UnexpectedInput) -> str:
    """Return what can stand where a text does not go on as the grammar says, nothing where that is too much to list."""
    literals = {t.name: str(t.pattern.value) for t in _parser().terminals}
    expected = set(getattr(error, "expected", None) or getattr(error, "allowed", None) or ()) - {"$END"}
    text = str(getattr(error, "token", ""))
    if text == "=" and "COLON" not in expected:
        return "a comparison is written =="
    words = sorted(WORDS.get(name) or f"`{literals.get(name, name)}`" for name in expected)
    guess = did_you_mean(text, [x for name in expected for x in NAMED.get(name, (literals.get(name, ""),))])
    if guess or not 0 < len(words) <= MAX_WORDS:
        return guess or ("an equation has two sides: left = right" if "EQUAL" in expected else "")
    return f"here stands {' or '.join(words)}"


def _check_nesting(text: str, place: str) -> None:
    depth = 0
    for n, line in enumerate(text.split("\n"), 1):
        for c in line:
            depth += (c in "([") - (c in ")]")
            if depth > NESTING:
                raise InputError("R100", f"brackets must be nested at most {NESTING} deep", place=f"{place}:{n}")


class _Reader:
    """Builds one rule; equal terms are one term, so that a guard can name the shape of a side."""

    def __init__(self, place: str) -> None:
        self.file = place
        self.names: dict[str, Any] = {**CONSTANTS}
        self.terms: dict[str, Any] = {}
        self.extents: dict[str, tuple[int, int]] = {}  # terms and depth of what a name is bound to
        self.term_count = 0

    def rule(self, t: Node) -> Rule:
        """Return the rule of a statement."""
        place = f"{self.file}:{t.meta.line}"
        try:
            return self._rule(t, place)
        except FlexmatchError as error:
            raise InputError("R101", error.problem.sentence, place=error.problem.place or place, help=error.problem.help) from None
        except (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, OverflowError) as error:
            raise InputError("R101", f"a part of the rule has no meaning: {error}", place=place) from None

    def _rule(self, t: Node, place: str) -> Rule:
        parts = [c for c in t.children if isinstance(c, Tree)]
        variables = {}
        for p in parts:
            if p.data == "parameter":
                name, kind = map(str, p.children)
                variables[name] = self.names[name] = KINDS[kind](name)
                self.extents[name] = 1, 1
        for p in parts:
            if p.data == "binding":
                name, expression = str(p.children[0]), p.children[1]
                self.extents[name] = self._bounded(expression)
                self.names[name] = self.value(expression)
        pairs = tuple(self._equation(p) for p in parts if p.data == "equation")
        where = tuple(self._condition(c) for p in parts if p.data == "where" for c in p.children if self._bounded(c))
        doc = next((json.loads(str(c)) for c in t.children if isinstance(c, Token) and c.type == "TEXT"), "")
        grade, bounds, phase, marks = _settings(parts)
        result = Rule(str(t.children[0]), doc, place, pairs, where, phase, grade, marks, variables, bounds=bounds)
        check_rule(result)
        return result

    def _condition(self, t: Any) -> Condition:
        """Return a condition of the guard; one that is none is told at its line."""
        try:
            return guard_condition(self.value(t))
        except SpecError as error:
            raise error.at(f"{self.file}:{t.meta.line}") from None

    def _equation(self, t: Node) -> tuple[Tensor, Tensor]:
        left, right = (self.value(c) for c in t.children if self._bounded(c))
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            raise SpecError("R101", "both sides of an equation must be tensors", place=f"{self.file}:{t.meta.line}")
        return left, right

    def _bounded(self, expression: Any) -> tuple[int, int]:
        """Return how many terms an expression has and how deep they lie in one another when its names are written out."""
        extents: dict[int, tuple[int, int]] = {}
        for t in expression.iter_subtrees():  # what is inside first
            inside = [extents[id(c)] for c in t.children if isinstance(c, Tree)]
            bound = self.extents.get(str(t.children[0])) if t.data == "name" else None
            extents[id(t)] = bound or (1 + sum(n for n, _ in inside), 1 + max((d for _, d in inside), default=0))
        count, depth = extents[id(expression)]
        self.term_count += count
        place = f"{self.file}:{expression.meta.line}"
        if self.term_count > MAX_TERMS:
            sentence = f"the rules must have at most {MAX_TERMS} terms up to here, with their names written out, not {self.term_count}"
            raise SpecError("R101", sentence, place=place, help="share the rules among several files")
        if depth > MAX_DEPTH:
            sentence = f"terms must lie at most {MAX_DEPTH} deep in one another, with their names written out, not {depth}"
            raise SpecError("R101", sentence, place=place, help="write a law for each part: laws are applied one after the other")
        return count, depth

    def value(self, t: Any) -> Any:
        """Return what an expression stands for: a tensor, a list, an integer term, a number, a text or a condition."""
        return READERS[t.data](self, t)

    def name(self, t: Node) -> Any:
        """Return what a name stands for."""
        value = self.names.get(str(t.children[0]))
        if value is None:
            raise self._unknown("variable", str(t.children[0]), self.names, t)
        return value

    def call(self, t: Node) -> Any:
        """Return the application of an operator or a function."""
        name, *arguments = t.children
        keywords = {str(a.children[0]): self.value(a.children[1]) for a in arguments if isinstance(a, Tree) and a.data == "keyword"}
        positional = [self.value(a) for a in arguments if isinstance(a, Tree) and a.data != "keyword"]
        if str(name) in FUNCTIONS and not (str(name) in OPS and any(isinstance(x, Tensor) for x in positional)):
            return FUNCTIONS[str(name)](*positional, **keywords)
        op = OPS.get(str(name))
        if op is None:
            raise self._unknown("operator", str(name), OPS, t)
        try:
            return self._interned(op(*positional, **{key: _attribute(x) for key, x in keywords.items()}))
        except FlexmatchError as error:
            raise error.at(f"{self.file}:{t.meta.line}") from None

    def output(self, t: Node) -> Any:
        """Return one of several outputs."""
        outputs, n = self.value(t.children[0]), int(str(t.children[1]))
        if not isinstance(outputs, tuple) or n >= len(outputs):
            raise SpecError("R101", f"there is no output {n} here", place=f"{self.file}:{t.meta.line}")
        return outputs[n]

    def member(self, t: Node) -> Any:
        """Return the shape, rank or size of a tensor."""
        tensor, name = self.value(t.children[0]), str(t.children[1])
        if name not in MEMBERS or not isinstance(tensor, Tensor):
            raise SpecError("R101", f'a tensor has shape, rank and size; there is no "{name}" here', place=f"{self.file}:{t.meta.line}")
        return MEMBERS[name](tensor)

    def part(self, t: Node) -> Any:
        """Return a part of a list."""
        base, *bounds = t.children
        ends: dict[str, Any] = {str(b.data): _constant_int(self.value(b.children[0])) for b in bounds if isinstance(b, Tree)}
        return as_ints(self.value(base))[ends.get("from") : ends.get("to")]

    def _interned(self, term: Any) -> Any:
        key = tensor_text(term[0] if isinstance(term, tuple) else term)
        return self.terms.setdefault(key, term)

    def _unknown(self, kind: str, name: str, names: Mapping[str, Any], t: Node) -> SpecError:
        listed = f"the names are {', '.join(n for n in names if n not in CONSTANTS)}" if names is self.names else ""
        remedy = did_you_mean(name, names) or listed
        return SpecError("R101", f'there is no {kind} called "{name}"', place=f"{self.file}:{t.meta.line}", help=remedy)


def _settings(parts: Sequence[Node]) -> tuple[str, tuple[OperandBound, ...], str, frozenset[str]]:
    settings = {str(p.data): [str(c) for c in p.children] for p in parts if p.data in ("grade", "phase", "marks")}
    grade, bounds = graded(" ".join(" ".join(settings.get("grade", ["A"])).split()))
    phase, marks = settings.get("phase", ["ir"])[0], frozenset(settings.get("marks", ()))
    for setting, value, allowed in (
        ("grade", grade, tuple(GRADES)),
        ("phase", phase, PHASES),
        *(("mark", m, MARKS) for m in sorted(marks)),
    ):
        if value not in allowed:
            remedy = did_you_mean(value, allowed) or f"change it after the parameters: {setting} {allowed[0]}"
            raise SpecError("R101", f'{setting} must be one of {", ".join(allowed)}, not "{value}"', help=remedy)
    return grade, bounds, phase, marks


def _attribute(x: Any) -> Any:
    if isinstance(x, Apply | Variable):
        raise SpecError("R101", "an attribute is a list, a number or a text, not a tensor")
    return x


def _constant_int(x: Any) -> int:
    value = x.value if isinstance(x, Expr) else x
    if not isinstance(value, int):
        raise SpecError("R101", "the bounds of a part of a list must be numbers")
    return value


def _number(_: _Reader, t: Node) -> int | float:
    text = str(t.children[0])
    return int(text) if text.isascii() and text.isdigit() else float(text)


def _listed(reader: _Reader, t: Node) -> Ints:
    return as_ints([reader.value(c) for c in t.children])


def _binary(reader: _Reader, t: Node) -> Any:
    return ARITHMETIC[str(t.data)](reader.value(t.children[0]), reader.value(t.children[1]))


def _compare(reader: _Reader, t: Node) -> Any:
    left, sign, right = t.children
    return COMPARISONS[str(sign)](reader.value(left), reader.value(right))


def _element(reader: _Reader, t: Node) -> Any:
    index = reader.value(t.children[1])
    return as_ints(reader.value(t.children[0]))[index]


READERS: dict[str, Callable[[_Reader, Any], Any]] = {
    "number": _number,
    "negative": lambda reader, t: -reader.value(t.children[0]),
    "text": lambda _, t: json.loads(str(t.children[0])),
    "name": _Reader.name,
    "call": _Reader.call,
    "listed": _listed,
    "member": _Reader.member,
    "output": _Reader.output,
    "element": _element,
    "part": _Reader.part,
    "compare": _compare,
    **dict.fromkeys(ARITHMETIC, _binary),
}
