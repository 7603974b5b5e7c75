"""Steps from text: what `text.show_step` prints is read back, line by line; blocks are indented by four spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import SpecError
from .binders import Array, FoldResult, Leaf, Table
from .expr import Expr
from .parser import MOST_CHARACTERS, Names, TermReader, syntax_tree
from .step import NOTHING, Let, Loop, Require, Step, Update, make_update, reads_of, seq, terms_in, together, updates_of, when
from .traversal import terms_of

INDENT = "    "
FOR_ALL, WITH = "   for all ", "   with "


def parse_step(text: str, leaves: Mapping[str, Leaf], tables: Mapping[str, Table] | None = None) -> Step:
    """Return the step that a text stands for, given the leaves and tables by name.

    Raises:
        SpecError: the text is too long, or a line of it cannot be read; its place is the line.
    """
    if len(text) > MOST_CHARACTERS:
        raise SpecError("I102", f"a step has at most {MOST_CHARACTERS} characters, not {len(text)}")
    lines = [_Line(n, *_depth(n, line)) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    reader = _Steps(leaves, tables or {}, lines)
    step = reader.block(0, {})
    if reader.lines:
        raise SpecError("I102", "the line is indented more than the block it stands in", place=f"line {reader.lines[0].number}")
    return step


def leaves_and_tables(step: Step) -> tuple[dict[str, Leaf], dict[str, Table]]:
    """Return the leaves and the tables that the text of a step names.

    Raises:
        SpecError: two leaves, or two tables, have one name.
    """
    leaves: dict[str, Leaf] = {}
    tables: dict[str, Table] = {}
    for leaf in sorted(reads_of(step).union(u.memory for u in updates_of(step)), key=lambda x: x.name):
        if leaves.setdefault(leaf.name, leaf) is not leaf:
            raise SpecError("I102", f"two leaves of a step are called {leaf.name}")
    for e in (x for top in terms_in(step) for x in terms_of(top)):
        if isinstance(e.data, Table) and tables.setdefault(e.data.name, e.data) is not e.data:
            raise SpecError("I102", f"two tables of a step are called {e.data.name}")
    return leaves, tables


@dataclass(frozen=True)
class _Line:
    number: int
    depth: int
    text: str


def _depth(number: int, line: str) -> tuple[int, str]:
    text = line.lstrip(" ")
    depth, remainder = divmod(len(line) - len(text), len(INDENT))
    if remainder:
        raise SpecError("I102", "a line is indented by a multiple of four spaces", place=f"line {number}")
    return depth, text.rstrip()


@dataclass
class _Steps:
    """Reads blocks off the front of `lines`."""

    leaves: Mapping[str, Leaf]
    tables: Mapping[str, Table]
    lines: list[_Line] = field(default_factory=list)
    variables: dict[tuple[str, Expr], Expr] = field(default_factory=dict)  # what is written alike is one variable
    folds: dict[tuple[str, frozenset[tuple[str, int]]], list[FoldResult]] = field(default_factory=dict)  # and one fold

    def block(self, depth: int, names: Names) -> Step:
        """Return the steps of a block; a `let` holds to its end."""
        steps: list[Step] = []
        while self.lines and self.lines[0].depth == depth:
            line = self.lines.pop(0)
            try:
                steps.append(self.step(line, names))
            except SpecError as refusal:
                raise refusal if refusal.problem.place else refusal.at(f"line {line.number}") from None
        return seq(*steps)

    def step(self, line: _Line, names: Names) -> Step:
        """Return the step that starts at a line."""
        word, _, operand = line.text.partition(" ")
        if line.text == "nothing":
            return NOTHING
        if word in ("for", "when") and operand.endswith(":"):
            return self.loop(operand[:-1], line.depth, names) if word == "for" else self.choice(operand[:-1], line.depth, names)
        if word == "let":
            return self.named(operand, line.depth, names)
        if word == "require":
            return self.required(operand, names)
        updates = [self.update(line.text, names)]
        while self.lines and self.lines[0].depth == line.depth and self.lines[0].text.startswith("and "):
            updates.append(self.update(self.lines.pop(0).text.removeprefix("and "), names))
        return together(*updates)

    def loop(self, over: str, depth: int, names: Names) -> Step:
        """Return a loop in order."""
        reader, ranges = self.ranges(over)
        (variable,), (extent,), inner = reader.bound_variables(ranges, names)
        return Loop(variable, extent, self.block(depth + 1, inner))

    def choice(self, condition: str, depth: int, names: Names) -> Step:
        """Return `when` with what follows its `else`."""
        test = self.expr(condition, names)
        then = self.block(depth + 1, names)
        otherwise: Step = NOTHING
        if self.lines and self.lines[0].depth == depth and self.lines[0].text == "else:":
            self.lines.pop(0)
            otherwise = self.block(depth + 1, names)
        return when(test, then, otherwise)

    def named(self, text: str, depth: int, names: Names) -> Step:
        """Return `let name = array` around the rest of its block."""
        name, _, value = text.partition(" = ")
        array: Array = self.reader(value).array(syntax_tree(value), names)
        local = Leaf(array.shape, array.interval, array.real, name)
        return Let(local, array, self.block(depth, {**names, name: local}))

    def required(self, text: str, names: Names) -> Step:
        """Return `require condition: CODE sentence`, with the values that the sentence names."""
        body, _, with_ = text.partition(WITH)
        head, code, sentence = _diagnostic(body)
        values = tuple((name, self.expr(value, names)) for name, _, value in (v.partition(" = ") for v in with_.split("; ") if v))
        return Require(self.expr(head, names), code.removesuffix("!"), sentence, values, code.endswith("!"))

    def update(self, text: str, names: Names) -> Update:
        """Return `memory[address] := value   for all variables`."""
        body, _, over = text.partition(FOR_ALL)
        place, sign, value = body.partition(" := ")
        if not sign:
            raise SpecError("I102", f"{text!r} is no step")
        ranging, ranges = self.ranges(over) if over else (self.reader(body), [])
        variables, extents, inner = ranging.bound_variables(ranges, names)
        reader, tree = self.reader(place, body), syntax_tree(place)
        target, address = (tree.children[0], tree.children[1:]) if tree.data == "load" else (tree, [])
        memory = reader.array(target, names)
        if not isinstance(memory, Leaf):
            raise SpecError("I102", f"{place!r} is no state that can be written")
        places = tuple(reader.expr(a, inner) for a in address if a is not None)
        return make_update(memory, variables, extents, places, self.reader(value, body).expr(syntax_tree(value), inner))

    def ranges(self, text: str) -> tuple[TermReader, list[Any]]:
        """Return a reader and the trees of `i < n, j < m`."""
        reduction = f"sum({text}: 0)"
        return self.reader(reduction), syntax_tree(reduction).children[1:-1]

    def expr(self, text: str, names: Names) -> Expr:
        """Return a term."""
        return self.reader(text).expr(syntax_tree(text), names)

    def reader(self, text: str, quoted: str = "") -> TermReader:
        """Return a reader of terms; `shown` is what its refusals quote."""
        term_reader = TermReader(text, self.leaves, self.tables)
        term_reader.quoted_text = quoted or text
        term_reader.variables, term_reader.folds = self.variables, self.folds
        return term_reader


def _diagnostic(text: str) -> tuple[str, str, str]:
    """Return condition, code (with ! where it always holds) and sentence."""
    at = text.find(": ")
    while at >= 0:
        code, _, sentence = text[at + 2 :].partition(" ")
        if code.rstrip("!")[1:].isdigit() and code[:1].isupper():
            return text[:at], code, sentence
        at = text.find(": ", at + 1)
    raise SpecError("I102", f"{text!r} has no diagnostic: a condition, a colon, a code and a sentence")
