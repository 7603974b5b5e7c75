"""Verilog in z3: symbolic execution on bit-vectors by the rules of IEEE 1364 for widths and signs.

What Verilog leaves undefined (a word never assigned, a read outside of a memory, a division by zero) is a fresh unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from ...errors import SpecError
from ..smt.solver import limited_solver
from .reader import Expression, Statement, Word

INDEX_BITS = 32
INDEX_SECONDS = 0.5  # of an idle processor, in which z3 tells whether an index always lies inside
ROUNDS = 1 << 17  # of one loop
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
TRUTHS = frozenset({"&&", "||", "unary!"})
SHIFTS = frozenset({"<<", ">>", "<<<", ">>>"})
Value = Any  # z3.BitVecRef, or z3.ArrayRef of a memory


@dataclass
class Machine:
    """The symbolic state of a module; loops with a symbolic end are unrolled `rounds` times, under `premises` that they end by then."""

    words: dict[str, Word]
    values: dict[str, Value]
    rounds: int
    premises: list[z3.BoolRef] = field(default_factory=list)
    unknown_count: int = 0
    delayed: frozenset[str] = frozenset()  # words that are assigned by `<=`, and not read
    wires: Mapping[str, Expression] = field(default_factory=dict)  # what each is, of the state before the clock
    before: dict[str, Value] | None = None  # that state, with the values of wires that were asked for
    hidden: frozenset[str] = frozenset()  # memories of other modules, which statements do not name

    def fresh(self, width: int) -> z3.BitVecRef:
        """Return an unknown word."""
        self.unknown_count += 1
        return z3.BitVec(f"unknown!{self.unknown_count}", width)

    def value(self, name: str) -> Value:
        """Return the value of a word or a memory.

        Raises:
            SpecError: the name is not declared.
        """
        if name not in self.words or name in self.hidden:
            raise SpecError("I102", f"{name} is not declared")
        if name in self.wires:
            return self.wire_value(name)
        if name not in self.values:
            w = self.words[name]
            self.unknown_count += 1
            label = f"unknown!{self.unknown_count}"
            self.values[name] = z3.Array(label, z3.BitVecSort(INDEX_BITS), z3.BitVecSort(w.width)) if w.count else z3.BitVec(label, w.width)
        return self.values[name]

    def wire_value(self, name: str) -> Value:
        """Return the value of a wire, which follows the state before the clock."""
        if self.before is None:
            return self.assigned_value(self.wires[name], self.words[name].width)
        if name not in self.before:
            now, self.values, state = self.values, self.before, self.before
            try:
                state[name] = self.assigned_value(self.wires[name], self.words[name].width)
            finally:
                self.values = now
        return self.before[name]

    # -- statements

    def run(self, statements: Sequence[Statement]) -> None:
        """Execute statements in order."""
        for s in statements:
            STATEMENTS[s.kind](self, s)

    def block(self, s: Statement) -> None:
        """Execute a block; its words go out of scope after it.

        Raises:
            SpecError: a word of the block is declared outside, too.
        """
        shadowed = {n: self.words[n] for n in s.words if n in self.words}
        if shadowed:
            raise SpecError("I102", f"{next(iter(shadowed))} is declared twice")
        self.words |= s.words
        self.run(s.bodies[0])
        for n in s.words:
            del self.words[n]
            self.values.pop(n, None)

    def assign(self, s: Statement) -> None:
        """Execute an assignment.

        Raises:
            SpecError: it takes effect at another time than assignments of this word do.
        """
        target, term = s.terms
        if (s.name == "<=") != (target.name in self.delayed):
            raise SpecError("I102", f"{target.name} must be assigned with {'<=' if target.name in self.delayed else '='}")
        self.store(target, self.assigned_value(term, self.size(target)))

    def choose(self, s: Statement) -> None:
        """Execute an if: both branches, merged, where the condition is symbolic."""
        condition = self.truth(s.terms[0])
        if z3.is_true(condition) or z3.is_false(condition):
            self.run(s.bodies[0 if z3.is_true(condition) else 1])
            return
        before = dict(self.values)
        self.run(s.bodies[0])
        then, self.values = self.values, before
        self.run(s.bodies[1])
        self.merge(condition, then)

    def merge(self, condition: z3.BoolRef, then: Mapping[str, Value]) -> None:
        """Merge the state `then`, where the condition holds, with the current one."""
        for name in dict.fromkeys((*then, *self.values)):
            a, b = then.get(name), self.values.get(name)
            if a is None or b is None:
                self.values.pop(name, None)  # assigned on one side only: unknown on the other
            elif not a.eq(b):
                self.values[name] = z3.If(condition, a, b)

    def loop(self, s: Statement) -> None:
        """Execute a loop.

        Raises:
            SpecError: it runs more than `ROUNDS` times.
        """
        start, following, body = s.bodies
        self.run(start)
        for n in range(ROUNDS):
            condition = self.truth(s.terms[0])
            if z3.is_false(condition):
                return
            if z3.is_true(condition):
                self.run((*body, *following))
            elif n >= self.rounds:
                self.premises.append(z3.Not(condition))
                return
            else:
                self.choose(Statement("if", s.line, s.terms, (body, ())))
                self.run(following)
        raise SpecError("I102", f"a loop runs more than {ROUNDS:,} times")

    def case(self, s: Statement) -> None:
        """Refuse a case statement.

        Raises:
            SpecError: always; only the choice of an instruction may be a case.
        """
        raise SpecError("I102", "a case may only choose the instruction")

    # -- places

    def store(self, target: Expression, value: z3.BitVecRef) -> None:
        """Store a word, an element of a memory, or a part select of a vector."""
        stored, word = self.value(target.name), self.words[target.name]
        if target.op == "name":
            self.values[target.name] = value
        elif target.op == "at" and word.count:
            offset, inside = self.index(target.args[0], word.count)
            updated = z3.Store(stored, offset, value)
            self.values[target.name] = updated if inside is None else z3.If(inside, updated, stored)
        else:
            low, width = self.place(target), self.size(target)
            mask = z3.ZeroExt(word.width - width, z3.BitVecVal((1 << width) - 1, width)) if word.width > width else None
            if mask is None:
                self.values[target.name] = value
                return
            shift = resize(low, word.width, False)
            other_bits = stored & ~(mask << shift)
            self.values[target.name] = z3.simplify(other_bits | (z3.ZeroExt(word.width - width, value) << shift))

    def place(self, target: Expression) -> z3.BitVecRef:
        """Return the index of the lowest bit of a part select."""
        if target.op == "bits":
            return z3.BitVecVal(target.value, INDEX_BITS)
        return self.index(target.args[0], 0)[0]

    def index(self, term: Expression, count: int) -> tuple[z3.BitVecRef, z3.BoolRef | None]:
        """Return an index, and the condition that it lies inside; None where it always does."""
        width, signed = self.size(term), self.signed(term)
        offset = z3.simplify(resize(self.value_in_context(term, width, signed), INDEX_BITS, signed))
        if not count:
            return offset, None
        inside = z3.simplify(z3.ULT(offset, count))
        if not z3.is_true(inside) and self.is_always_true(inside):
            return offset, None
        return offset, None if z3.is_true(inside) else inside

    def is_always_true(self, condition: z3.BoolRef) -> bool:
        """Tell whether a condition holds in every state."""
        return bool(limited_solver([z3.Not(condition)], INDEX_SECONDS).check() == z3.unsat)

    # -- expressions

    def truth(self, term: Expression) -> z3.BoolRef:
        """Return the condition that an expression is not 0."""
        return z3.simplify(self.value_in_context(term, self.size(term), self.signed(term)) != 0)

    def assigned_value(self, term: Expression, width: int) -> z3.BitVecRef:
        """Return the value of an expression that is assigned to a word of `width` bits."""
        signed, context_width = self.signed(term), max(width, self.size(term))
        return resize(self.value_in_context(term, context_width, signed), width, signed)

    def size(self, t: Expression) -> int:
        """Return the self-determined width of an expression."""
        if t.op in ("number", "bits", "part"):
            return t.width
        if t.op == "name" or t.op == "at":
            self.value(t.name)
            w = self.words[t.name]
            return w.width if t.op == "name" or w.count else 1
        if t.op in COMPARISONS or t.op in TRUTHS:
            return 1
        if t.op in SHIFTS or len(t.args) == 1:
            return self.size(t.args[0])
        return max(self.size(a) for a in t.args[-2:])

    def signed(self, t: Expression) -> bool:
        """Tell whether an expression is signed, by itself."""
        if t.op == "number":
            return t.signed
        if t.op == "name" or (t.op == "at" and self.words[t.name].count):
            self.value(t.name)
            return self.words[t.name].signed
        if t.op in ("at", "bits", "part", "$unsigned") or t.op in COMPARISONS or t.op in TRUTHS:
            return False
        if t.op in SHIFTS:
            return self.signed(t.args[0])
        return t.op == "$signed" or all(self.signed(a) for a in t.args[-2:])

    def value_in_context(self, t: Expression, width: int, signed: bool) -> z3.BitVecRef:
        """Return the value of an expression in a context of a width and a sign, which propagate to its operands."""
        if t.op in SELF_DETERMINED:
            self_determined = SELF_DETERMINED[t.op](self, t)
            return resize(self_determined, width, signed and self.signed(t))
        if t.op == "?":
            condition = self.truth(t.args[0])
            return z3.If(condition, self.value_in_context(t.args[1], width, signed), self.value_in_context(t.args[2], width, signed))
        if t.op in SHIFTS:
            amount = self.value_in_context(t.args[1], self.size(t.args[1]), self.signed(t.args[1]))
            return self.shift(t.op, self.value_in_context(t.args[0], width, signed), amount, signed)
        operands = [self.value_in_context(a, width, signed) for a in t.args]
        if t.op in ("/", "%"):
            return self.divide(t.op, operands[0], operands[1], signed)
        return CONTEXT_DETERMINED[t.op](*operands)

    def shift(self, op: str, x: z3.BitVecRef, amount: z3.BitVecRef, signed: bool) -> z3.BitVecRef:
        """Return a shift; the amount is unsigned."""
        common_width = max(x.size(), amount.size())
        a, n = resize(x, common_width, signed), resize(amount, common_width, False)
        result = a << n if op in ("<<", "<<<") else a >> n if op == ">>>" and signed else z3.LShR(resize(x, common_width, False), n)
        return resize(result, x.size(), signed)

    def divide(self, op: str, a: z3.BitVecRef, b: z3.BitVecRef, signed: bool) -> z3.BitVecRef:
        """Return a quotient or remainder, rounded toward zero; unknown where the divisor is 0."""
        result = (a / b if signed else z3.UDiv(a, b)) if op == "/" else (z3.SRem(a, b) if signed else z3.URem(a, b))
        nonzero = z3.simplify(b != 0)
        return result if z3.is_true(nonzero) or self.is_always_true(nonzero) else z3.If(nonzero, result, self.fresh(a.size()))

    # -- self-determined expressions

    def word_value(self, t: Expression) -> z3.BitVecRef:
        """Return the value of a word.

        Raises:
            SpecError: the name is that of a memory, or is assigned by `<=`.
        """
        if t.name in self.delayed:
            raise SpecError("I102", f"{t.name} may only be read by its memory")
        value: z3.BitVecRef = self.value(t.name)
        if self.words[t.name].count:
            raise SpecError("I102", f"{t.name} is a memory")
        return value

    def element(self, t: Expression) -> z3.BitVecRef:
        """Return an element of a memory, or a bit."""
        word = self.words.get(t.name)
        if word is None or not word.count or t.name in self.hidden:
            return z3.Extract(0, 0, self.part_vector(t, 1))
        offset, inside = self.index(t.args[0], word.count)
        value = z3.Select(self.value(t.name), offset)
        return value if inside is None else z3.If(inside, value, self.fresh(word.width))

    def part_vector(self, t: Expression, width: int) -> z3.BitVecRef:
        """Return a vector shifted right to the start of a part select; bits beyond its end are unknown."""
        vector, low = self.word_value(Expression("name", name=t.name)), self.place(t)
        padded_width = max(vector.size(), width, INDEX_BITS)
        shifted = z3.simplify(z3.LShR(resize(vector, padded_width, False), resize(low, padded_width, False)))
        inside = z3.simplify(z3.ULE(z3.ZeroExt(1, low), vector.size() - width))
        return (
            shifted
            if vector.size() >= width and (z3.is_true(inside) or self.is_always_true(inside))
            else z3.If(inside, shifted, self.fresh(padded_width))
        )

    def part_select(self, t: Expression) -> z3.BitVecRef:
        """Return a part select of a vector."""
        if t.op == "bits" and t.value + t.width <= self.word_value(Expression("name", name=t.name)).size():
            return z3.Extract(t.value + t.width - 1, t.value, self.value(t.name))
        return z3.Extract(t.width - 1, 0, self.part_vector(t, t.width))

    def comparison(self, t: Expression) -> z3.BitVecRef:
        """Return a comparison as one bit."""
        common_width, signed = max(self.size(a) for a in t.args), all(self.signed(a) for a in t.args)
        a, b = (self.value_in_context(x, common_width, signed) for x in t.args)
        return z3.If(ORDER[t.op, signed](a, b), z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))

    def logical(self, t: Expression) -> z3.BitVecRef:
        """Return a logical operator as one bit."""
        truths = [self.truth(a) for a in t.args]
        result = z3.Not(truths[0]) if t.op == "unary!" else z3.And(*truths) if t.op == "&&" else z3.Or(*truths)
        return z3.If(result, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))


def resize(x: z3.BitVecRef, width: int, signed: bool) -> z3.BitVecRef:
    """Return a word extended by its sign or by zeros, or its lowest bits."""
    if x.size() == width:
        return x
    if x.size() > width:
        return z3.Extract(width - 1, 0, x)
    return z3.SignExt(width - x.size(), x) if signed else z3.ZeroExt(width - x.size(), x)


ORDER: Mapping[tuple[str, bool], Callable[[Any, Any], Any]] = {
    **{(op, s): f for s in (False, True) for op, f in {"==": lambda a, b: a == b, "!=": lambda a, b: a != b}.items()},
    ("<", True): lambda a, b: a < b, ("<=", True): lambda a, b: a <= b, (">", True): lambda a, b: b < a, (">=", True): lambda a, b: b <= a,
    ("<", False): z3.ULT, ("<=", False): z3.ULE, (">", False): z3.UGT, (">=", False): z3.UGE,
}  # fmt: skip
CONTEXT_DETERMINED: Mapping[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "unary-": lambda a: -a, "unary~": lambda a: ~a,
}  # fmt: skip
SELF_DETERMINED: Mapping[str, Callable[[Machine, Expression], Any]] = {
    "number": lambda m, t: z3.BitVecVal(t.value, t.width), "name": Machine.word_value, "at": Machine.element,
    "bits": Machine.part_select, "part": Machine.part_select,
    **dict.fromkeys(("$signed", "$unsigned"), lambda m, t: m.value_in_context(t.args[0], m.size(t.args[0]), m.signed(t.args[0]))),
    **dict.fromkeys(COMPARISONS, Machine.comparison), **dict.fromkeys(TRUTHS, Machine.logical),
}  # fmt: skip
STATEMENTS: Mapping[str, Callable[[Machine, Statement], None]] = {
    "block": Machine.block, "set": Machine.assign, "if": Machine.choose, "for": Machine.loop, "case": Machine.case,
}  # fmt: skip
