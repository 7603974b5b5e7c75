"""Summaries of instructions: loops, polynomial accesses and values, read from their updates; or why there is none.

A summary keeps the structure of the update (loops, conditions, what goes together) and gives every length and every address as a
polynomial over loop variables, fields and registers. `summary_check` proves it against the update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..lang.binders import Array, Comprehension, Leaf
from ..lang.expr import Expr, lift
from ..lang.intervals import Interval
from ..lang.step import Let, Loop, Require, Seq, Step, Together, Update, When
from ..lang.traversal import inner_terms
from .model import CONTROL, Ila, Instruction
from .polynomial import NotPolynomial, Poly, Symbols, polynomial, text_of


@dataclass(frozen=True)
class Access:
    """An element of a memory: a polynomial for each axis, where a modulus is not None reduced by it."""

    memory: str
    address: tuple[Poly, ...]
    moduli: tuple[int | None, ...]

    def __str__(self) -> str:
        parts = [text_of(p) + (f" mod {m}" if m else "") for p, m in zip(self.address, self.moduli, strict=True)]
        return f"{self.memory}[{', '.join(parts)}]"


@dataclass(frozen=True, eq=False)
class Read:
    """An access that a value makes, and the load that it stands for; `variables` are those of sums and arrays around it."""

    access: Access
    load: Expr
    variables: tuple[tuple[str, Poly], ...] = ()


@dataclass(frozen=True, eq=False)
class Transition:
    """One parallel assignment: the element `write` becomes `value` for all of `loops` at once."""

    loops: tuple[tuple[str, Poly], ...]
    write: Access
    reads: tuple[Read, ...]
    value: Expr
    update: Update


@dataclass(frozen=True, eq=False)
class Repeat:
    """A body for variable = 0 … extent − 1, in order."""

    variable: str
    extent: Poly
    body: Node
    loop: Loop


@dataclass(frozen=True, eq=False)
class Choice:
    """One of two bodies, as a control condition decides."""

    condition: Expr
    then: Node
    otherwise: Node


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes one after the other or, where `parallel`, transitions that read the state before all of them."""

    nodes: tuple[Node, ...]
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Local:
    """An array computed now, as a transition that fills it, and what is done with it."""

    leaf: Leaf
    fill: Transition
    body: Node


Node = Transition | Repeat | Choice | Group | Local


@dataclass(frozen=True, eq=False)
class Summary:
    """What an instruction does: its nodes, what the names in its polynomials stand for, and the diagnostics outside of which it holds."""

    instruction: Instruction
    node: Node
    symbols: Symbols
    requires: tuple[Expr, ...]
    domain: tuple[Expr, ...] = ()  # those of the diagnostics that no condition guards

    @property
    def fields(self) -> Mapping[str, Interval]:
        """The fields of the instruction and their intervals."""
        return {name: o.leaf.interval for name, o in self.instruction.operands.items()}

    @property
    def is_outside(self) -> bool:
        """Whether a diagnostic refuses the instruction in every state, so that its domain is empty."""
        return any(condition.value == 0 for condition in self.requires)

    def transitions(self) -> Iterator[tuple[tuple[Expr, ...], tuple[tuple[str, Poly], ...], Transition]]:
        """Yield every transition with the conditions and the ordered loops around it, outermost first."""
        return _transitions(self.node, (), ())


@dataclass(frozen=True)
class Opaque:
    """An instruction without a summary, and why."""

    instruction: str
    reason: str


def summarise(ila: Ila, name: str) -> Summary | Opaque:
    """Return the summary of an instruction."""
    instruction = ila.instructions[name]
    control = frozenset(s.leaf for s in ila.states.values() if s.binding == CONTROL)
    symbols = Symbols(control | {o.leaf for o in instruction.operands.values() if not o.leaf.shape})
    vectors = frozenset(o.leaf for o in instruction.operands.values() if o.leaf.shape)
    walk = _Walk(symbols, frozenset(s.leaf for s in ila.states.values()) | vectors)
    try:
        node = walk.node(instruction.update)
    except NotPolynomial as reason:
        return Opaque(name, str(reason))
    return Summary(instruction, node, symbols, tuple(walk.requires), tuple(walk.domain))


def read_summary(ila: Ila, name: str) -> tuple[Transition, Symbols] | Opaque | None:
    """Return what a read returns as a transition that writes it, its lanes as loops; None for an instruction that returns nothing."""
    instruction = ila.instructions[name]
    if not isinstance(instruction.result, Comprehension):
        return None
    control = frozenset(s.leaf for s in ila.states.values() if s.binding == CONTROL)
    symbols = Symbols(control | {o.leaf for o in instruction.operands.values() if not o.leaf.shape})
    try:
        return transition_of(instruction.result, "data", symbols, frozenset(s.leaf for s in ila.states.values())), symbols
    except NotPolynomial as reason:
        return Opaque(name, str(reason))


def transition_of(a: Comprehension, name: str, symbols: Symbols, memories: frozenset[Leaf]) -> Transition:
    """Return an array as the transition that writes all of it to an array of a name, reading memories.

    Raises:
        NotPolynomial: a length or an address is no polynomial.
    """
    target = Leaf(a.shape, a.interval, a.real, name)
    return _Walk(symbols, memories).transition(Update(target, a.variables, tuple(map(lift, a.shape)), a.variables, a.body))


def _transitions(
    node: Node, conditions: tuple[Expr, ...], loops: tuple[tuple[str, Poly], ...]
) -> Iterator[tuple[tuple[Expr, ...], tuple[tuple[str, Poly], ...], Transition]]:
    if isinstance(node, Transition):
        yield conditions, loops, node
    elif isinstance(node, Repeat):
        yield from _transitions(node.body, conditions, (*loops, (node.variable, node.extent)))
    elif isinstance(node, Choice):
        yield from _transitions(node.then, (*conditions, node.condition), loops)
        yield from _transitions(node.otherwise, (*conditions, ~node.condition), loops)
    elif isinstance(node, Local):
        yield conditions, loops, node.fill
        yield from _transitions(node.body, conditions, loops)
    else:
        for part in node.nodes:
            yield from _transitions(part, conditions, loops)


class _Walk:
    """One walk over an update."""

    def __init__(self, symbols: Symbols, states: frozenset[Leaf]) -> None:
        self.symbols, self.memories = symbols, states
        self.requires: list[Expr] = []
        self.domain: list[Expr] = []
        self.depth = 0  # of conditions and loops

    def node(self, step: Step) -> Node:
        """Return the node of a step, its diagnostics noted."""
        if not isinstance(step, When | Loop):
            return self.at_depth(step)
        self.depth += 1
        node = self.at_depth(step)
        self.depth -= 1
        return node

    def at_depth(self, step: Step) -> Node:
        if isinstance(step, Update):
            return self.transition(step)
        if isinstance(step, Together):
            return Group(tuple(map(self.transition, step.updates)), parallel=True)
        if isinstance(step, Loop):
            extent = self.extent(step.extent)
            return Repeat(self.symbols.declare(step.variable), extent, self.node(step.body), step)
        if isinstance(step, When):
            self.demand_control(step.condition)
            return Choice(step.condition, self.node(step.then), self.node(step.otherwise))
        if isinstance(step, Let):
            return self.local(step)
        return Group(tuple(self.node(part) for part in self.executed_parts(step)))

    def executed_parts(self, step: Step) -> Iterator[Step]:
        """Yield the parts of a sequence that change the state; its diagnostics are noted."""
        for part in step.steps if isinstance(step, Seq) else (step,):
            if isinstance(part, Require):
                self.requires.append(part.condition)
                self.domain += [part.condition] * (self.depth == 0)
            else:
                yield part

    def demand_control(self, condition: Expr) -> None:
        data = condition.reads - self.symbols.control
        if data:
            raise NotPolynomial(f"its control depends on the data {', '.join(sorted(leaf.name for leaf in data))}")

    def local(self, step: Let) -> Node:
        if not isinstance(step.array, Comprehension):
            raise NotPolynomial(f"{step.local.name} is computed by an ordered loop")
        a = step.array
        fill = self.transition(Update(step.local, a.variables, tuple(map(lift, a.shape)), a.variables, a.body))
        self.memories |= {step.local}
        return Local(step.local, fill, self.node(step.body))

    def transition(self, u: Update) -> Transition:
        loops = tuple((self.symbols.declare(v), self.extent(n)) for v, n in zip(u.variables, u.extents, strict=True))
        write = self.access(u.memory, u.address)
        return Transition(loops, write, tuple(self.reads(u.value)), u.value, u)

    def extent(self, n: Expr) -> Poly:
        try:
            return polynomial(n, self.symbols)
        except NotPolynomial as reason:
            raise NotPolynomial(f"a length {reason}") from None

    def access(self, memory: Array, address: tuple[Expr, ...]) -> Access:
        name = memory.name if isinstance(memory, Leaf) else "an array"
        terms = [without_modulus(a) for a in address]
        try:
            return Access(name, tuple(polynomial(a, self.symbols) for a, _ in terms), tuple(m for _, m in terms))
        except NotPolynomial as reason:
            raise NotPolynomial(f"an address of {name} {reason}") from None

    def reads(self, value: Expr) -> Iterator[Read]:
        """Yield the accesses to memories below a value, each load once; sums and arrays bind the variables of what is in them."""
        visited: set[Expr] = set()
        work: list[tuple[Expr, tuple[tuple[str, Poly], ...]]] = [(value, ())]
        while work:
            e, bound = work.pop()
            if e in visited or not e.reads - self.symbols.control:
                continue
            visited.add(e)
            if e.op == "load" and e.data in self.memories:
                yield Read(self.access(e.data, e.args), e, bound)
            inner = (*bound, *self.bound(e))
            work.extend((x, inner) for x in reversed(inner_terms(e)))

    def bound(self, e: Expr) -> tuple[tuple[str, Poly], ...]:
        """Return the variables that a sum or an array binds, with their extents."""
        if e.op == "reduce":
            return tuple((self.symbols.declare(v), self.extent(n)) for v, n in zip(e.data[1], e.args[1:], strict=True))
        if e.op == "load" and isinstance(e.data, Comprehension):
            a = e.data
            return tuple((self.symbols.declare(v), self.extent(lift(n))) for v, n in zip(a.variables, a.shape, strict=True))
        fold = getattr(e.data, "fold", None) if e.op == "load" else None
        return () if fold is None else ((self.symbols.declare(fold.variable), self.extent(fold.extent)),)


def without_modulus(address: Expr) -> tuple[Expr, int | None]:
    """Return an address without its reduction by a constant, as memories wrap around, and that constant."""
    if address.op == "mod" and address.args[1].value is not None:
        return address.args[0], int(address.args[1].value)
    if address.op == "extract" and address.data[0] == 0:
        return address.args[0], 1 << int(address.data[1])
    return address, None
