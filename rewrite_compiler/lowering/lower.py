"""Lowering of terms and steps to the loop IR, from which every compiled reading is printed.

Expressions stay trees; a common subexpression is bound to a name, and one that does not vary with the inner loops and
cannot trap is bound outside of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

from ..errors import SpecError
from ..lang import intervals as iv
from ..lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, Table, array
from ..lang.expr import Expr, lift
from ..lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, children, updates_of
from ..lang.traversal import bodies_of, loads_of
from .loop_ir import Allocate, Assign, Bind, For, If, Mutable, Raise, Routine, Statement, Store, Tree, constant, folded_sum_or_product

INLINE_NODES = 16  # an array element cheaper than this is recomputed where it is read
TRAPS = frozenset({"div", "mod", "tdiv", "tmod", "rdiv", "load", "table", "shl", "shr"})


@dataclass
class _Scope:
    statements: list[Statement]
    barrier: bool = False
    bound: dict[Expr, Tree] = field(default_factory=dict)
    memo: dict[Expr, Tree] = field(default_factory=dict)
    storage: dict[Array, tuple[str, tuple[Tree, ...]]] = field(default_factory=dict)
    folds: dict[Fold, None] = field(default_factory=dict)

    def invalidate(self, memories: frozenset[Leaf]) -> None:
        """Forget what was computed from memories that are written from now on."""
        self.memo = {e: t for e, t in self.memo.items() if e.reads.isdisjoint(memories)}
        self.storage = {a: x for a, x in self.storage.items() if a.reads.isdisjoint(memories)}
        self.folds = {f: None for f in self.folds if f.reads.isdisjoint(memories)}


def lower_step(step: Step, *, strict: bool = False) -> Routine:
    """Return the loop IR of a step; with `strict` that of all its diagnostics, else of those that always hold.

    Raises:
        SpecError: a variable is not bound, or a max or min has no bounded body.
    """
    lowering = _Lowering(strict)
    lowering.uses = _count_uses([*(x for u in updates_of(step) for x in (u.value, *u.address)), *_local_terms(step)])
    lowering.step(step)
    return lowering.routine()


def lower_array(array: Array, name: str = "out") -> Routine:
    """Return the loop IR that stores the elements of an array in the memory `name`, row-major.

    Raises:
        SpecError: a variable is not bound, or a max or min has no bounded body.
    """
    lowering = _Lowering(False)
    out = Leaf(array.shape, array.interval, array.real, name)
    body = array.body if isinstance(array, Comprehension) else None
    lowering.uses = _count_uses([body] if body is not None else [])
    lowering.fill(lowering.memory(out), array)
    return lowering.routine()


def is_pure_scalar(e: Expr) -> bool:
    """Tell whether a term has neither reductions nor loads nor table entries in it."""
    return e.op not in ("reduce", "load", "table") and all(is_pure_scalar(a) for a in e.args)


class _Lowering:
    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.scopes = [_Scope([], barrier=True)]
        self.memories: dict[str, Leaf] = {}
        self.names: dict[Leaf, str] = {}
        self.tables: dict[str, Table] = {}
        self.uses: Counter[Expr] = Counter()
        self.writes: dict[Step, frozenset[Leaf]] = {}
        self.count = 0

    def routine(self) -> Routine:
        return Routine(self.memories, self.tables, self.scopes[0].statements)

    # -- names and scopes

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def emit(self, statement: Statement) -> None:
        self.scopes[-1].statements.append(statement)

    def memory(self, a: Leaf) -> str:
        if a not in self.names:
            self.names[a] = f"m{len(self.names)}"
            self.memories[self.names[a]] = a
        return self.names[a]

    @contextmanager
    def scope(self, statements: list[Statement], *, barrier: bool = False) -> Iterator[_Scope]:
        entered = _Scope(statements, barrier)
        self.scopes.append(entered)
        yield entered
        self.scopes.pop()

    @contextmanager
    def inside(self, home: int) -> Iterator[None]:
        inner = self.scopes[home + 1 :]
        del self.scopes[home + 1 :]
        yield
        self.scopes.extend(inner)

    def home(self, free: frozenset[Expr]) -> int:
        for depth in range(len(self.scopes) - 1, 0, -1):
            s = self.scopes[depth]
            if s.barrier or not free.isdisjoint(s.bound):
                return depth
        return 0

    # -- expressions

    def expr(self, e: Expr) -> Tree:
        """Return the tree of `e`, emitting the statements it needs."""
        if e.op == "const":
            return constant(e.data, e.real)
        for s in reversed(self.scopes):
            value = s.bound.get(e) or s.memo.get(e)
            if value is not None:
                return value
        if e.op == "var":
            raise SpecError("I102", f"variable {e!r} is not bound here")
        home = self.home(e.free)
        if home < len(self.scopes) - 1 and e.op not in TRAPS and is_pure_scalar(e):
            with self.inside(home):
                return self.bind(e, self.build(e))
        tree = self.build(e)
        return self.bind(e, tree) if self.uses[e] > 1 and (e.op in ("reduce", "select") or tree.op not in ("name", "const")) else tree

    def bind(self, e: Expr, tree: Tree) -> Tree:
        name = self.named(tree)
        self.scopes[-1].memo[e] = name
        return name

    def named(self, tree: Tree, prefix: str = "t") -> Tree:
        if tree.op in ("name", "const"):
            return tree
        return self.copied(tree, prefix)

    def copied(self, tree: Tree, prefix: str = "t") -> Tree:
        """Return a name of the present value of a tree, whose scalars may be assigned again."""
        name = self.fresh(prefix)
        self.emit(Bind(name, tree))
        return Tree("name", (), name, tree.interval, tree.real)

    def build(self, e: Expr) -> Tree:
        if e.op == "load":
            return self.load(e)
        if e.op == "reduce":
            return self.reduce(e)
        if e.op == "select":
            return self.select(e)
        if e.op == "table":
            return self.table(e)
        return Tree(e.op, tuple(self.expr(a) for a in e.args), e.data, e.interval, e.real)

    def table(self, e: Expr) -> Tree:
        t: Table = e.data
        name = next((n for n, entry in self.tables.items() if entry is t), None) or f"table{len(self.tables)}"
        self.tables[name] = t
        offsets = [self.shifted(self.expr(a), -(d[0] or 0)) for a, d in zip(e.args, t.domains, strict=True)]
        index = self.flat(offsets, [constant(n) for n in t.shape])
        return Tree("load", (index,), name, e.interval, e.real)

    def shifted(self, x: Tree, by: int) -> Tree:
        return x if by == 0 else folded_sum_or_product("add", x, constant(by))

    def select(self, e: Expr) -> Tree:
        condition = self.expr(e.args[0])
        branches: list[tuple[list[Statement], Tree]] = []
        for branch in e.args[1:]:
            statements: list[Statement] = []
            with self.scope(statements, barrier=True):
                branches.append((statements, self.expr(branch)))
        (then, a), (otherwise, b) = branches
        if not then and not otherwise:
            return Tree("select", (condition, a, b), None, e.interval, e.real)
        name = self.fresh("s")
        self.emit(Mutable(name, _zero(e), e.interval, e.real))
        self.emit(If(condition, [*then, Assign(name, a)], [*otherwise, Assign(name, b)]))
        return Tree("name", (), name, e.interval, e.real)

    def reduce(self, e: Expr) -> Tree:
        monoid, variables = e.data
        body, extents = e.args[0], e.args[1:]
        name = self.fresh("r")
        self.emit(Mutable(name, _neutral(monoid, e), iv.hull(e.interval, (0, 0)) if monoid == "sum" else e.interval, e.real))
        total = Tree("name", (), name, e.interval, e.real)
        operator = "add" if monoid == "sum" else monoid

        def accumulate() -> None:
            value = self.expr(body)
            self.emit(Assign(name, Tree(operator, (total, value), None, e.interval, e.real)))

        self.nest(variables, [self.expr(x) for x in extents], accumulate)
        return total

    def nest(self, variables: Sequence[Expr], extents: Sequence[Tree], inner: Callable[[], None]) -> None:
        """Emit loops over `variables` around what `inner` emits."""
        if not variables:
            return inner()
        name, body = self.fresh("i"), list[Statement]()
        with self.scope(body) as s:
            s.bound[variables[0]] = Tree("name", (), name, variables[0].interval, False)
            self.nest(variables[1:], extents[1:], inner)
        self.emit(For(name, extents[0], body))
        return None

    # -- arrays

    def load(self, e: Expr) -> Tree:
        source: Array = e.data
        indices = [self.expr(i) for i in e.args]
        storage = self.stored(source)
        if storage is None and isinstance(source, Comprehension) and self.is_cheap(source):
            return self.inlined(source, indices)
        if storage is None and isinstance(source, Leaf) and not isinstance(source, Accumulator):
            name, shape = self.memory(source), tuple(self.expr(lift(n)) for n in source.shape)
        else:
            name, shape = storage or self.materialise(source)
        if isinstance(source, Accumulator) and not shape:
            return Tree("name", (), name, e.interval, e.real)
        return Tree("load", (self.flat(indices, shape),), name, e.interval, e.real)

    def stored(self, a: Array) -> tuple[str, tuple[Tree, ...]] | None:
        for s in reversed(self.scopes):
            if a in s.storage:
                return s.storage[a]
        return None

    def is_cheap(self, a: Comprehension) -> bool:
        return not a.variables or _size(a.body, INLINE_NODES) < INLINE_NODES

    def inlined(self, a: Comprehension, indices: Sequence[Tree]) -> Tree:
        with self.scope(self.scopes[-1].statements) as s:
            for v, i in zip(a.variables, indices, strict=True):
                s.bound[v] = self.named(i)
            return self.expr(a.body)

    def materialise(self, a: Array) -> tuple[str, tuple[Tree, ...]]:
        """Compute an array into a local one, as far out as its variables allow."""
        with self.inside(self.home(a.free)):
            if isinstance(a, FoldResult):
                self.fold(a.fold)
                return self.scopes[-1].storage[self.canonical(a)]
            shape = tuple(self.named(self.expr(lift(n))) for n in a.shape)
            name = self.allocate(a, shape)
            self.fill(name, a)
            self.scopes[-1].storage[a] = name, shape
            return name, shape

    def allocate(self, a: Array, shape: Sequence[Tree]) -> str:
        size = constant(1)
        for n in shape:
            size = folded_sum_or_product("mul", size, n)
        name = self.fresh("a")
        self.emit(Allocate(name, size, a.interval, a.real))
        return name

    def fill(self, name: str, a: Array) -> None:
        if not isinstance(a, Comprehension):
            a = _copy_of(a)
        shape = [self.named(self.expr(lift(n))) for n in a.shape]

        def element() -> None:
            index = self.flat([self.expr(v) for v in a.variables], shape)
            self.emit(Store(name, index, self.expr(a.body)))

        self.nest(a.variables, shape, element)

    def flat(self, indices: Sequence[Tree], shape: Sequence[Tree]) -> Tree:
        index = constant(0)
        for i, n in zip(indices, shape, strict=True):
            index = folded_sum_or_product("add", folded_sum_or_product("mul", index, n), i)
        return index

    # -- folds

    def canonical(self, a: FoldResult) -> FoldResult:
        """Return the result under which storage of this (fold, component, history) is kept."""
        for s in reversed(self.scopes):
            for result in s.storage:
                if isinstance(result, FoldResult) and (result.fold, result.component, result.history) == (a.fold, a.component, a.history):
                    s.storage[a] = s.storage[result]
                    return a
        raise SpecError("I102", "a fold was read before it was computed")

    def fold(self, f: Fold) -> None:
        if f in self.scopes[-1].folds:
            return
        self.scopes[-1].folds[f] = None
        extent = self.named(self.expr(f.extent))
        shapes = [tuple(self.named(self.expr(lift(n))) for n in a.shape) for a in f.accumulators]
        current = [self.start(a, first, shape) for a, first, shape in zip(f.accumulators, f.initial, shapes, strict=True)]
        histories = [self.allocate(a, (extent, *shape)) for a, shape in zip(f.accumulators, shapes, strict=True)]
        name, body = self.fresh("k"), list[Statement]()
        with self.scope(body) as s:
            s.bound[f.variable] = Tree("name", (), name, f.variable.interval, False)
            for a, at, shape in zip(f.accumulators, current, shapes, strict=True):
                s.storage[a] = at, shape
            self.advance(f, current, histories, shapes)
        self.emit(For(name, extent, body))
        for n, (a, shape) in enumerate(zip(f.accumulators, shapes, strict=True)):
            last = FoldResult(a.shape, a.interval, a.real, f, n, False)
            every = FoldResult((f.extent, *a.shape), a.interval, a.real, f, n, True)
            self.scopes[-1].storage[last] = self.as_array(a, current[n]), shape
            self.scopes[-1].storage[every] = histories[n], (extent, *shape)

    def start(self, a: Accumulator, first: Array, shape: tuple[Tree, ...]) -> str:
        if shape:
            name = self.allocate(a, shape)
            self.fill(name, first)
            return name
        name = self.fresh("f")
        self.emit(Mutable(name, self.expr(first[()]), a.interval, a.real))
        return name

    def as_array(self, a: Accumulator, name: str) -> str:
        """Return a scalar accumulator as an array of one element."""
        if a.shape:
            return name
        holder = self.allocate(a, ())
        self.emit(Store(holder, constant(0), Tree("name", (), name, a.interval, a.real)))
        return holder

    def advance(self, f: Fold, current: list[str], histories: list[str], shapes: list[tuple[Tree, ...]]) -> None:
        k = self.expr(f.variable)
        values: list[Tree | str] = []
        for body, shape in zip(f.bodies, shapes, strict=True):
            if shape:
                name = self.allocate(body, shape)
                self.fill(name, body)
                values.append(name)
            else:
                scalar = self.named(self.expr(body[()]))
                values.append(self.copied(scalar) if scalar.data in current else scalar)  # accumulators may change places
        for accumulator, value, history, shape, a in zip(current, values, histories, shapes, f.accumulators, strict=True):
            if isinstance(value, Tree):
                self.emit(Assign(accumulator, value))
                self.emit(Store(history, k, value))
            else:
                self.copy(value, accumulator, history, shape, k, a)

    def copy(self, source: str, current: str, history: str, shape: tuple[Tree, ...], k: Tree, a: Array) -> None:
        size = constant(1)
        for n in shape:
            size = folded_sum_or_product("mul", size, n)
        size = self.named(size)
        i = self.fresh("i")
        index = Tree("name", (), i, (0, None), False)
        value = Tree("load", (index,), source, a.interval, a.real)
        history_index = folded_sum_or_product("add", folded_sum_or_product("mul", k, size), index)
        self.emit(For(i, size, [Store(current, index, value), Store(history, history_index, value)]))

    # -- steps

    def step(self, step: Step) -> None:
        if isinstance(step, Seq):
            for part in step.steps:
                self.step(part)
        elif isinstance(step, Update):
            self.together((step,))
        elif isinstance(step, Together):
            self.together(step.updates)
        elif isinstance(step, Loop):
            extent = self.scalar(step.extent)
            self.nest([step.variable], [extent], lambda: self.step(step.body))
        elif isinstance(step, When):
            self.when(step)
        elif isinstance(step, Let):
            self.let(step)
        elif isinstance(step, Require) and (self.strict or step.always):
            self.require(step)

    def scalar(self, e: Expr) -> Tree:
        with self.scope(self.scopes[-1].statements, barrier=True):
            return self.named(self.expr(e))

    def require(self, step: Require) -> None:
        condition = self.scalar(step.condition)
        statements: list[Statement] = []
        with self.scope(statements, barrier=True):
            values = tuple((name, self.named(self.expr(e))) for name, e in step.values)
            self.emit(Raise(step.code, step.sentence, values))
        self.emit(If(condition, [], statements))

    def when(self, step: When) -> None:
        with self.scope(self.scopes[-1].statements, barrier=True):
            condition = self.expr(step.condition)
        branches: list[list[Statement]] = []
        for part in (step.then, step.otherwise):
            statements: list[Statement] = []
            with self.scope(statements, barrier=True):
                self.step(part)
            branches.append(statements)
        self.emit(If(condition, *branches))

    def let(self, step: Let) -> None:
        with self.scope(self.scopes[-1].statements, barrier=True) as s:
            shape = tuple(self.named(self.expr(lift(n))) for n in step.array.shape)
            name = self.allocate(step.array, shape)
            self.fill(name, step.array)
            s.invalidate(self.written_memories(step.body))
            s.storage[step.local] = name, shape
            self.step(step.body)

    def written_memories(self, step: Step) -> frozenset[Leaf]:
        """Return the memories that a step writes; those of the steps inside are kept, as they are asked for again."""
        if step not in self.writes:
            direct_writes = {u.memory for u in ((step,) if isinstance(step, Update) else ())}
            self.writes[step] = frozenset(direct_writes).union(*map(self.written_memories, children(step)))
        return self.writes[step]

    def together(self, updates: Sequence[Update]) -> None:
        if _share_grid(updates) and not _read_elsewhere(updates):
            self.write(updates, [u.value for u in updates])
            return
        pending = [(u, self.staged(u)) for u in updates]
        for u, staged in pending:
            self.write((u,), (staged[u.variables],))

    def staged(self, u: Update) -> Leaf:
        """Compute the values of an update into a local array before any of them is stored."""
        value = Comprehension(u.extents, u.value.interval, u.value.real, u.variables, u.value)
        local = Leaf(value.shape, value.interval, value.real, "staged")
        with self.scope(self.scopes[-1].statements, barrier=True):
            shape = tuple(self.named(self.expr(n)) for n in u.extents)
            name = self.allocate(value, shape)
            self.fill(name, value)
        self.scopes[-1].storage[local] = name, shape
        return local

    def write(self, updates: Sequence[Update], values: Sequence[Expr]) -> None:
        """Store the values of updates over the same variables, all of one element before the next."""
        first = updates[0]
        with self.scope(self.scopes[-1].statements, barrier=True):
            places = [(self.memory(u.memory), [self.expr(lift(n)) for n in u.memory.shape]) for u in updates]
            extents = [self.named(self.expr(n)) for n in first.extents]

            def element() -> None:
                stores = []
                for u, value, (name, shape) in zip(updates, values, places, strict=True):
                    index = self.flat([self.expr(a) for a in u.address], shape)
                    tree = self.expr(value)
                    stores.append(Store(name, index, tree if len(updates) == 1 else self.named(tree)))
                for store in stores:
                    self.emit(store)

            self.nest(first.variables, extents, element)


def _local_terms(step: Step) -> Iterator[Expr]:
    """Yield the elements of the arrays that a step gives a name."""
    if isinstance(step, Let):
        yield from bodies_of(step.array)
    for part in children(step):
        yield from _local_terms(part)


def _share_grid(updates: Sequence[Update]) -> bool:
    """Tell whether updates run over the same variables and write different memories."""
    first = updates[0]
    is_same_grid = all(_same(u.variables, first.variables) and _same(u.extents, first.extents) for u in updates)
    return is_same_grid and len({u.memory for u in updates}) == len(updates)


def _read_elsewhere(updates: Sequence[Update]) -> bool:
    """Tell whether an update may read an element of a written memory that is written at another index."""
    writer = {u.memory: u for u in updates}
    for u in updates:
        if any(load.data in writer and not _same(load.args, writer[load.data].address) for load in loads_of(u.value)):
            return True
        if any(load.data in writer for a in u.address for load in loads_of(a)):
            return True
    return False


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _count_uses(roots: Sequence[Expr]) -> Counter[Expr]:
    uses: Counter[Expr] = Counter(roots)
    work, visited = list(roots), set[int]()
    while work:
        e = work.pop()
        if id(e) in visited:
            continue
        visited.add(id(e))
        operands = [*e.args, *(bodies_of(e.data) if e.op == "load" else [])]
        uses.update(operands)
        work.extend(operands)
    return uses


def _copy_of(a: Array) -> Comprehension:
    return array(lambda *i: a[i], a.shape)


def _size(e: Expr, limit: int) -> int:
    if e.op == "reduce" or (e.op == "load" and not isinstance(e.data, Leaf)):
        return limit
    total = 1
    for a in e.args:
        total += _size(a, limit - total)
        if total >= limit:
            return limit
    return total


def _zero(e: Expr) -> Tree:
    return constant(Fraction(0) if e.real else 0, e.real)


def _neutral(monoid: str, e: Expr) -> Tree:
    if monoid == "sum":
        return _zero(e)
    if e.real:
        return Tree("const", (), -math.inf if monoid == "max" else math.inf, iv.EVERYTHING, True)
    bound = e.interval[0] if monoid == "max" else e.interval[1]
    if bound is None:
        raise SpecError("I102", f"a {monoid} over integers needs a bounded body, not {e.interval}")
    return constant(bound)
