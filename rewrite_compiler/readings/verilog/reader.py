"""The emitted subset of Verilog read back: a module as ports, declarations and statements; anything else is refused with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import InputError

TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*)|(?P<number>\d+'s?[dhb][0-9a-fA-F]+|\d+)|(?P<name>\$?[A-Za-z_]\w*)"
    r"|(?P<sign><<<|>>>|<<|>>|<=|>=|==|!=|&&|\|\||\+:|[-+*/%&|^~!<>?:;,.=()\[\]{}@#])"
)
BASES = {"d": 10, "h": 16, "b": 2}
# binary operators from the weakest to the strongest
LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>", "<<<", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)


@dataclass(frozen=True)
class Term:
    """An expression: `number`, `name`, `at` (word or bit), `bits` (constant range), `part` (base +: width), or an operator."""

    op: str
    args: tuple[Term, ...] = ()
    name: str = ""
    value: int = 0
    width: int = 0
    signed: bool = False


@dataclass(frozen=True)
class Statement:
    """`set` (target, value), `if`, `for` (start, condition, next), `case`, or `block` (its declarations in `words`)."""

    kind: str
    line: int
    terms: tuple[Term, ...] = ()
    bodies: tuple[tuple[Statement, ...], ...] = ()
    labels: tuple[int, ...] = ()  # of a case; its last body is the default
    name: str = ""
    words: Mapping[str, Word] = field(default_factory=dict)


@dataclass(frozen=True)
class Word:
    """A declared word: its width, whether it is signed, the words of a memory (0: not one), and its direction as a port."""

    width: int
    signed: bool
    count: int = 0
    port: str = ""


@dataclass(frozen=True)
class Module:
    """A module: its words, what it does once, and what it does at the rising edge of the clock."""

    name: str
    words: Mapping[str, Word]
    initial: tuple[Statement, ...]
    always: Statement


def read_verilog(text: str, place: str = "") -> Module:
    """Return the module in a text; InputError F103 names the line that is not of the emitted subset."""
    return _Reader(text, place).module()


class _Reader:
    def __init__(self, text: str, place: str) -> None:
        self.file, self.tokens, self.at = place, list[tuple[str, str, int]](), 0
        line, start = 1, 0
        while start < len(text):
            found = TOKEN.match(text, start)
            if found is None:
                raise self.refused(f'"{text[start]}" is not Verilog that is written here', line)
            kind = str(found.lastgroup)
            if kind != "space":
                self.tokens.append((kind, found[0], line))
            line, start = line + found[0].count("\n"), found.end()
        self.tokens.append(("end", "the end of the file", line))

    # -- tokens

    def refused(self, sentence: str, line: int = 0) -> InputError:
        return InputError("F103", sentence, place=f"{self.file}:{line or self.tokens[self.at][2]}".lstrip(":"))

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1]

    def is_(self, text: str) -> bool:
        return self.tokens[self.at][1] == text

    def want(self, *texts: str) -> None:
        for text in texts:
            if not self.is_(text):
                raise self.refused(f'"{text}" must stand here, not "{self.tokens[self.at][1]}"')
            self.at += 1

    def given(self, text: str) -> bool:
        if not self.is_(text):
            return False
        self.at += 1
        return True

    def name(self) -> str:
        if self.tokens[self.at][0] != "name":
            raise self.refused(f'a name must stand here, not "{self.tokens[self.at][1]}"')
        return self.next()

    def whole(self) -> int:
        if not self.tokens[self.at][1].isdigit():
            raise self.refused(f'a number must stand here, not "{self.tokens[self.at][1]}"')
        return int(self.next())

    # -- declarations

    def module(self) -> Module:
        self.want("module")
        name, words = self.name(), dict[str, Word]()
        self.want("(")
        while not self.given(")"):
            direction = self.next()
            if direction not in ("input", "output"):
                raise self.refused(f'"input" or "output" must stand here, not "{direction}"')
            self.given("reg")
            self.declare(words, direction)
            self.given(",")
        self.want(";")
        self.declarations(words)
        initial: tuple[Statement, ...] = ()
        if self.given("initial"):
            initial = (self.statement(),)
        self.want("always", "@", "(", "posedge", "clock", ")")
        always = self.statement()
        self.want("endmodule")
        if self.tokens[self.at][0] != "end":
            raise self.refused("a file must have one module")
        return Module(name, words, initial, always)

    def declarations(self, words: dict[str, Word]) -> None:
        while self.is_("reg") or self.is_("integer"):
            if self.given("integer"):
                self.add(words, self.name(), Word(32, True))
            else:
                self.want("reg")
                self.declare(words, "")
            self.want(";")

    def declare(self, words: dict[str, Word], port: str) -> None:
        signed, width, count = self.given("signed"), 1, 0
        if self.given("["):
            width = self.whole() + 1
            self.want(":", "0", "]")
        name = self.name()
        if self.given("["):
            self.want("0", ":")
            count = self.whole() + 1
            self.want("]")
        self.add(words, name, Word(width, signed, count, port))

    def add(self, words: dict[str, Word], name: str, word: Word) -> None:
        if name in words:
            raise self.refused(f"{name} is declared twice")
        words[name] = word

    # -- statements

    def statement(self) -> Statement:
        line = self.tokens[self.at][2]
        if self.given("begin"):
            return self.block(line)
        if self.given("if"):
            return self.choice(line)
        if self.given("for"):
            return self.loop(line)
        if self.given("case"):
            return self.cases(line)
        made = self.assignment()
        self.want(";")
        return made

    def block(self, line: int) -> Statement:
        words, body = dict[str, Word](), list[Statement]()
        name = self.name() if self.given(":") else ""
        self.declarations(words)
        while not self.given("end"):
            body.append(self.statement())
        return Statement("block", line, (), (tuple(body),), name=name, words=words)

    def choice(self, line: int) -> Statement:
        self.want("(")
        condition = self.term()
        self.want(")")
        then = self.statement()
        otherwise = (self.statement(),) if self.given("else") else ()
        return Statement("if", line, (condition,), ((then,), otherwise))

    def loop(self, line: int) -> Statement:
        self.want("(")
        start = self.assignment()
        self.want(";")
        condition = self.term()
        self.want(";")
        following = self.assignment()
        self.want(")")
        return Statement("for", line, (condition,), ((start,), (following,), (self.statement(),)))

    def cases(self, line: int) -> Statement:
        self.want("(")
        chosen = self.term()
        self.want(")")
        labels, bodies, default = list[int](), list[tuple[Statement, ...]](), ()
        while not self.given("endcase"):
            if self.given("default"):
                self.want(":")
                default = (self.statement(),)  # type: ignore[assignment]
                continue
            labels.append(self.whole())
            self.want(":")
            bodies.append((self.statement(),))
        return Statement("case", line, (chosen,), (*bodies, default), tuple(labels))

    def assignment(self) -> Statement:
        line, target = self.tokens[self.at][2], self.operand()
        if target.op not in ("name", "at", "bits", "part"):
            raise self.refused("what is assigned must be a name or a part of one")
        self.want("=")
        return Statement("set", line, (target, self.term()))

    # -- expressions

    def term(self) -> Term:
        condition = self.binary(0)
        if not self.given("?"):
            return condition
        then = self.term()
        self.want(":")
        return Term("?", (condition, then, self.term()))

    def binary(self, level: int) -> Term:
        if level == len(LEVELS):
            return self.operand()
        left = self.binary(level + 1)
        while self.tokens[self.at][1] in LEVELS[level]:
            op = self.next()
            left = Term(op, (left, self.binary(level + 1)))
        return left

    def operand(self) -> Term:
        kind, text, _ = self.tokens[self.at]
        if kind == "number":
            return self.number()
        if text in ("-", "~", "!"):
            self.at += 1
            return Term(f"unary{text}", (self.operand(),))
        if self.given("("):
            inner = self.term()
            self.want(")")
            return inner
        if text in ("$signed", "$unsigned"):
            self.at += 1
            self.want("(")
            inner = self.term()
            self.want(")")
            return Term(text, (inner,))
        name = self.name()
        return self.part(name) if self.given("[") else Term("name", name=name)

    def part(self, name: str) -> Term:
        first = self.term()
        if self.given("]"):
            return Term("at", (first,), name)
        if self.given("+:"):
            width = self.whole()
            self.want("]")
            return Term("part", (first,), name, width=width)
        self.want(":")
        low = self.whole()
        self.want("]")
        if first.op != "number" or first.value < low:
            raise self.refused("a range of bits must be two constants, the higher first")
        return Term("bits", (), name, value=low, width=first.value - low + 1)

    def number(self) -> Term:
        text = self.next()
        if text.isdigit():
            return Term("number", value=int(text), width=32, signed=True)
        size, _, digits = text.partition("'")
        signed = digits[0] == "s"
        base, digits = digits[signed], digits[signed + 1 :]
        width = int(size)
        return Term("number", value=int(digits, BASES[base]) % (1 << width), width=width, signed=signed)
