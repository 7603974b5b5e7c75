"""Parser of the emitted subset of Verilog: one module of ports, declarations and statements; anything else is refused with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...errors import InputError

NAME = re.compile(r"\$?[A-Za-z_]\w*")
TOKEN = re.compile(
    rf"(?P<space>\s+|//[^\n]*)|\d+'s?[dhb][0-9a-fA-F]+|\d+|{NAME.pattern}"
    r"|(?:<<<|>>>|<<|>>|<=|>=|==|!=|&&|\|\||\+:|[-+*/%&|^~!<>?:;,.=()\[\]{}@#])"
)
END_OF_FILE = "the end of the file"
END = re.compile(r"^endmodule\b", re.MULTILINE)
BASES = {"d": 10, "h": 16, "b": 2}
# binary operators from the weakest to the strongest
LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >> <<< >>>", "+ -", "* / %")
PRECEDENCE = {op: level for level, ops in enumerate(LEVELS) for op in ops.split()}


@dataclass(frozen=True)
class Expression:
    """An expression: `number`, `name`, `at` (element or bit), `bits` (part select), `part` (indexed part select), or an operator."""

    op: str
    args: tuple[Expression, ...] = ()
    name: str = ""
    value: int = 0  # of a number: its bits, without a sign
    width: int = 0
    signed: bool = False


def constant(e: Expression) -> int | None:
    """Return the number that a constant is, `4'sd11` is -5; None of another expression."""
    if e.op == "unary-":
        value = constant(e.args[0])
        return None if value is None else -value
    if e.op != "number":
        return None
    return e.value - (1 << e.width) if e.signed and e.value >> (e.width - 1) else e.value


@dataclass(frozen=True)
class Statement:
    """`set` (target, value), `if`, `for` (start, condition, next), `case`, or `block` (its declarations in `words`).

    The name of an assignment is `<=` where it takes effect after the clock.
    """

    kind: str
    line: int
    terms: tuple[Expression, ...] = ()
    bodies: tuple[tuple[Statement, ...], ...] = ()
    labels: tuple[int, ...] = ()  # of a case; its last body is the default
    name: str = ""
    words: Mapping[str, Word] = field(default_factory=dict)


@dataclass(frozen=True)
class Word:
    """A declared word: its width, whether it is signed, the words of a memory (0: not one), and its direction as a port or `wire`."""

    width: int
    signed: bool
    count: int = 0
    port: str = ""


@dataclass(frozen=True)
class Instance:
    """An instance of another module: its parameters and what is connected to its ports."""

    module: str
    parameters: Mapping[str, int]
    ports: Mapping[str, str]


@dataclass(frozen=True)
class Module:
    """A module: its words, its initial statements, and the statement at the rising edge of the clock.

    `instances` are by name, `rest` is the text after the module.
    """

    name: str
    words: Mapping[str, Word]
    initial: tuple[Statement, ...]
    always: Statement
    instances: Mapping[str, Instance] = field(default_factory=dict)
    wires: Mapping[str, Expression] = field(default_factory=dict)
    rest: str = ""


def read_verilog(text: str, place: str = "") -> Module:
    """Parse a module.

    Raises:
        InputError: F103, with the line that is not of the emitted subset.
    """
    end = END.search(text)
    body, rest = (text[: end.end()], text[end.end() :]) if end else (text, "")
    return replace(_Reader(body, place).module(), rest=rest.lstrip())


class _Reader:
    def __init__(self, text: str, place: str) -> None:
        self.file, self.position, self.wires = place, 0, dict[str, Expression]()
        self.tokens, self.lines = list[str](), list[int]()
        line, start = 1, 0
        while start < len(text):
            match = TOKEN.match(text, start)
            if match is None:
                raise self.refusal(f'"{text[start]}" is not Verilog that is written here', line)
            if match.lastgroup == "space":
                line += match[0].count("\n")
            else:
                self.tokens.append(match[0])
                self.lines.append(line)
            start = match.end()
        self.tokens.append(END_OF_FILE)
        self.lines.append(line)

    # -- tokens

    def refusal(self, sentence: str, line: int = 0) -> InputError:
        return InputError("F103", sentence, place=f"{self.file}:{line or self.lines[self.position]}".lstrip(":"))

    def advance(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1]

    def peeks(self, text: str) -> bool:
        return self.tokens[self.position] == text

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.peeks(text):
                raise self.refusal(f'"{text}" must stand here, not "{self.tokens[self.position]}"')
            self.position += 1

    def accept(self, text: str) -> bool:
        if not self.peeks(text):
            return False
        self.position += 1
        return True

    def name(self) -> str:
        if NAME.fullmatch(self.tokens[self.position]) is None:
            raise self.refusal(f'a name must stand here, not "{self.tokens[self.position]}"')
        return self.advance()

    def integer(self) -> int:
        if not self.tokens[self.position].isdigit():
            raise self.refusal(f'a number must stand here, not "{self.tokens[self.position]}"')
        return int(self.advance())

    # -- declarations

    def module(self) -> Module:
        self.expect("module")
        name, words = self.name(), dict[str, Word]()
        self.expect("(")
        while not self.accept(")"):
            direction = self.advance()
            if direction not in ("input", "output"):
                raise self.refusal(f'"input" or "output" must stand here, not "{direction}"')
            self.accept("reg")
            self.declare(words, direction)
            self.accept(",")
        self.expect(";")
        self.declarations(words)
        instances = dict[str, Instance]()
        while self.tokens[self.position + 1] == "#":
            self.instance(instances)
            self.declarations(words)
        initial: tuple[Statement, ...] = ()
        if self.accept("initial"):
            initial = (self.statement(),)
        self.expect("always", "@", "(", "posedge", "clock", ")")
        always = self.statement()
        self.expect("endmodule")
        if self.tokens[self.position] != END_OF_FILE:
            raise self.refusal("a file must have one module")
        return Module(name, words, initial, always, instances, self.wires)

    def instance(self, instances: dict[str, Instance]) -> None:
        module = self.name()
        self.expect("#")
        parameters = {name: self.integer_of(term) for name, term in self.connections().items()}
        name = self.name()
        ports = {port: term.name for port, term in self.connections().items()}
        self.expect(";")
        if name in instances:
            raise self.refusal(f"{name} is declared twice")
        instances[name] = Instance(module, parameters, ports)

    def connections(self) -> dict[str, Expression]:
        self.expect("(")
        connected = dict[str, Expression]()
        while not self.accept(")"):
            self.expect(".")
            name = self.name()
            self.expect("(")
            connected[name] = self.term()
            self.expect(")")
            self.accept(",")
        return connected

    def integer_of(self, term: Expression) -> int:
        value = constant(term)
        if value is None:
            raise self.refusal("a parameter must be a number")
        return value

    def declarations(self, words: dict[str, Word]) -> None:
        while self.peeks("reg") or self.peeks("integer") or self.peeks("wire"):
            if self.accept("integer"):
                self.add(words, self.name(), Word(32, True))
            elif self.accept("wire"):
                self.wire(words)
            else:
                self.expect("reg")
                self.declare(words, "")
            self.expect(";")

    def wire(self, words: dict[str, Word]) -> None:
        self.declare(words, "wire")
        name = next(reversed(words))
        if self.accept("="):
            self.wires[name] = term = self.term()
            unknown = next((n for n in _names(term) if n not in words or n == name), None)
            if unknown is not None:
                raise self.refusal(f"{unknown} is not declared before {name}, which uses it")

    def declare(self, words: dict[str, Word], port: str) -> None:
        signed, width, count = self.accept("signed"), 1, 0
        if self.accept("["):
            width = self.integer() + 1
            self.expect(":", "0", "]")
        name = self.name()
        if self.accept("["):
            self.expect("0", ":")
            count = self.integer() + 1
            self.expect("]")
        self.add(words, name, Word(width, signed, count, port))

    def add(self, words: dict[str, Word], name: str, word: Word) -> None:
        if name in words:
            raise self.refusal(f"{name} is declared twice")
        words[name] = word

    # -- statements

    def statement(self) -> Statement:
        line = self.lines[self.position]
        if self.accept("begin"):
            return self.block(line)
        if self.accept("if"):
            return self.choice(line)
        if self.accept("for"):
            return self.loop(line)
        if self.accept("case"):
            return self.cases(line)
        assignment = self.assignment()
        self.expect(";")
        return assignment

    def block(self, line: int) -> Statement:
        words, body = dict[str, Word](), list[Statement]()
        name = self.name() if self.accept(":") else ""
        self.declarations(words)
        while not self.accept("end"):
            body.append(self.statement())
        return Statement("block", line, (), (tuple(body),), name=name, words=words)

    def choice(self, line: int) -> Statement:
        self.expect("(")
        condition = self.term()
        self.expect(")")
        then = self.statement()
        otherwise = (self.statement(),) if self.accept("else") else ()
        return Statement("if", line, (condition,), ((then,), otherwise))

    def loop(self, line: int) -> Statement:
        self.expect("(")
        start = self.assignment()
        self.expect(";")
        condition = self.term()
        self.expect(";")
        following = self.assignment()
        self.expect(")")
        return Statement("for", line, (condition,), ((start,), (following,), (self.statement(),)))

    def cases(self, line: int) -> Statement:
        self.expect("(")
        selector = self.term()
        self.expect(")")
        labels, bodies, default = list[int](), list[tuple[Statement, ...]](), ()
        while not self.accept("endcase"):
            if self.accept("default"):
                self.expect(":")
                default = (self.statement(),)  # type: ignore[assignment]
                continue
            labels.append(self.integer())
            self.expect(":")
            bodies.append((self.statement(),))
        return Statement("case", line, (selector,), (*bodies, default), tuple(labels))

    def assignment(self) -> Statement:
        line, target = self.lines[self.position], self.operand()
        if target.op not in ("name", "at", "bits", "part"):
            raise self.refusal("what is assigned must be a name or a part of one")
        is_delayed = self.accept("<=")
        if not is_delayed:
            self.expect("=")
        return Statement("set", line, (target, self.term()), name="<=" if is_delayed else "")

    # -- expressions

    def term(self) -> Expression:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        then = self.term()
        self.expect(":")
        return Expression("?", (condition, then, self.term()))

    def binary(self, weakest: int) -> Expression:
        """Parse operands joined by operators of at least a precedence, those of one precedence from the left."""
        left = self.operand()
        while (level := PRECEDENCE.get(self.tokens[self.position], -1)) >= weakest:
            left = Expression(self.advance(), (left, self.binary(level + 1)))
        return left

    def operand(self) -> Expression:
        text = self.tokens[self.position]
        if text[0].isdigit():
            return self.number()
        if text in ("-", "~", "!"):
            self.position += 1
            return Expression(f"unary{text}", (self.operand(),))
        if self.accept("("):
            inner = self.term()
            self.expect(")")
            return inner
        if text in ("$signed", "$unsigned"):
            self.position += 1
            self.expect("(")
            inner = self.term()
            self.expect(")")
            return Expression(text, (inner,))
        name = self.name()
        return self.part(name) if self.accept("[") else Expression("name", name=name)

    def part(self, name: str) -> Expression:
        first = self.term()
        if self.accept("]"):
            return Expression("at", (first,), name)
        if self.accept("+:"):
            width = self.integer()
            self.expect("]")
            return Expression("part", (first,), name, width=width)
        self.expect(":")
        low = self.integer()
        self.expect("]")
        high = constant(first)
        if high is None or high < low:
            raise self.refusal("a range of bits must be two constants, the higher first")
        return Expression("bits", (), name, value=low, width=high - low + 1)

    def number(self) -> Expression:
        text = self.advance()
        if text.isdigit():
            return Expression("number", value=int(text), width=32, signed=True)
        size, _, digits = text.partition("'")
        signed = digits[0] == "s"
        base, digits = digits[signed], digits[signed + 1 :]
        width = int(size)
        return Expression("number", value=int(digits, BASES[base]) % (1 << width), width=width, signed=signed)


def _names(e: Expression) -> Iterator[str]:
    if e.name:
        yield e.name
    for a in e.args:
        yield from _names(a)
