"""The block lemma: two designs of a model whose updates differ in nothing but how many lanes an element has.

Terms and steps of the wide design and of the one with a lane an element are read side by side. They correspond when they are the
same up to lanes: an index of a lane axis is a bound variable that runs over all lanes and is used for nothing else, elements are
chosen by the same terms, and lanes are summed over in products of two elements only. Then every element of the wide design is
computed from elements as the narrow one computes a number from numbers, lane by lane, a product of two elements being the sum of
the products of the lanes that both have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...lang.binders import Comprehension, Leaf, static_shape
from ...lang.expr import Expr, lift
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When
from ...lang.substitution import substitute
from ..model import DATA, Ila

Lane = tuple[str, int]  # an axis of an array
Monomial = tuple[Expr, ...]


class LanesDiffer(Exception):
    """Two terms or steps do not correspond; says where and why."""


@dataclass(frozen=True)
class Layout:
    """An element in external memory: its words in the wide design and in the narrow one, and of each lane variable extent and stride."""

    wide: int
    narrow: int
    lanes: tuple[tuple[Expr, int, int], ...]


@dataclass(frozen=True)
class Access:
    """One reading or writing of external memory: the terms that give its addresses, and the extents of the variables in them."""

    memory: Leaf
    wide: Expr
    narrow: Expr
    extents: Mapping[Expr, Expr]
    narrow_extents: Mapping[Expr, Expr]
    layout: Layout


@dataclass
class LaneCorrespondence:
    """Reads terms of a wide and a narrow design side by side.

    `leaves` are pairs of leaves, `lanes` say of the wide ones which axes are lanes, `data` are the wide leaves that hold data, and
    `externals` those outside of the device.
    """

    leaves: Mapping[Leaf, Leaf]
    lanes: Mapping[Leaf, Collection[int]]
    data: frozenset[Leaf]
    externals: frozenset[Leaf] = frozenset()
    bases: frozenset[Leaf] = frozenset()  # addresses of external memories, which are 0
    lengths: frozenset[Leaf] = frozenset()  # of external memories: only whether one is attached may be asked
    counterparts: dict[Expr, Expr] = field(default_factory=dict)
    extents: dict[Expr, tuple[Expr, Expr]] = field(default_factory=dict)
    uses: dict[Expr, set[Lane]] = field(default_factory=dict)
    spans: dict[Expr, set[tuple[int, int]]] = field(default_factory=dict)  # what a variable of lanes must run over, on either side
    number_uses: set[Expr] = field(default_factory=set)  # variables that are used as numbers
    contracted: set[Expr] = field(default_factory=set)  # variables of lanes that are summed
    multiplies: bool = False  # whether data are multiplied lane by lane
    control_leaves: set[Leaf] = field(default_factory=set)  # leaves that are read other than to choose elements of external memory
    accesses: list[Access] = field(default_factory=list)
    equal_pairs: set[tuple[Expr, Expr]] = field(default_factory=set)

    # -- steps

    def steps(self, a: Step, b: Step) -> None:
        """Read two steps side by side.

        Raises:
            LanesDiffer: they do not correspond.
        """
        if type(a) is not type(b) or isinstance(a, Let):
            raise LanesDiffer(f"a step is {type(a).__name__} and {type(b).__name__}, which are not read side by side")
        if isinstance(a, Require):
            return  # refuses, and changes nothing
        if isinstance(a, Seq | Together):
            parts, narrow_terms = (x.steps if isinstance(x, Seq) else x.updates if isinstance(x, Together) else () for x in (a, b))
            if len(parts) != len(narrow_terms):
                raise LanesDiffer(f"{len(parts)} steps correspond to {len(narrow_terms)}")
            for x, y in zip(parts, narrow_terms, strict=True):
                self.steps(x, y)
        elif isinstance(a, When) and isinstance(b, When):
            self.terms(a.condition, b.condition)
            self.steps(a.then, b.then)
            self.steps(a.otherwise, b.otherwise)
        elif isinstance(a, Loop) and isinstance(b, Loop):
            self.bind([a.variable], [b.variable], [a.extent], [b.extent])
            self.steps(a.body, b.body)
        elif isinstance(a, Update) and isinstance(b, Update):
            self._update(a, b)

    def _update(self, a: Update, b: Update) -> None:
        self.bind(a.variables, b.variables, a.extents, b.extents)
        if self.leaves.get(a.memory) is not b.memory:
            raise LanesDiffer(f"an update of {a.memory.name} corresponds to one of {b.memory.name}")
        self.terms(a.value, b.value)
        self.place(a.memory, a.address, b.address)

    def bind(self, variables: Sequence[Expr], narrow_terms: Sequence[Expr], extents: Sequence[Expr], bounds: Sequence[Expr]) -> None:
        """Pair bound variables with their extents.

        Raises:
            LanesDiffer: there are more on one side.
        """
        if len(variables) != len(narrow_terms):
            raise LanesDiffer(f"{len(variables)} variables correspond to {len(narrow_terms)}")
        for v, w, m, n in zip(variables, narrow_terms, extents, bounds, strict=True):
            self.counterparts[v], self.extents[v] = w, (m, n)

    def finish(self) -> None:
        """Check that every variable of lanes runs over all of them and is used for nothing else, and that the narrow_terms have one extent.

        Raises:
            LanesDiffer: one does not.
        """
        for v, (m, n) in list(self.extents.items()):
            if v not in self.uses:
                self.terms(m, n)
                continue
            if v in self.number_uses:
                raise LanesDiffer(f"{v!r} chooses a lane and is used as a number, too")
            if self.spans[v] != {(m.value, n.value)}:
                raise LanesDiffer(f"{v!r} runs over {m!r} lanes and {n!r} elements, which are not all of them")

    # -- terms

    def terms(self, a: Expr, b: Expr) -> None:
        """Read two terms side by side.

        Raises:
            LanesDiffer: they do not correspond.
        """
        if (a, b) in self.equal_pairs:
            return
        if a.op != b.op or len(a.args) != len(b.args):
            raise LanesDiffer(f"{a!r} corresponds to {b!r}")
        if self._is_attached(a, b):
            return
        if a.op == "var":
            self._variable(a, b)
        elif a.op == "load":
            self._load(a, b)
        elif a.op == "reduce":
            self._reduction(a, b)
        else:
            if a.data != b.data:
                raise LanesDiffer(f"{a!r} corresponds to {b!r}")
            self.multiplies |= a.op == "mul" and all(self._is_data(x) for x in a.args)
            for x, y in zip(a.args, b.args, strict=True):
                self.terms(x, y)
        self.equal_pairs.add((a, b))

    def _is_attached(self, a: Expr, b: Expr) -> bool:
        """Tell whether both terms ask whether an external memory is attached, which it is in both designs or in none."""
        asks = (e.op == "lt" and e.args[0].value == 0 and e.args[1].op == "load" and e.args[1].data in self.lengths for e in (a, b))
        return all(asks) and self.leaves.get(a.args[1].data) is b.args[1].data

    def _is_data(self, e: Expr) -> bool:
        return not e.reads.isdisjoint(self.data)

    def _variable(self, a: Expr, b: Expr) -> None:
        if self.counterparts.get(a) is not b:
            raise LanesDiffer(f"the variable {a!r} corresponds to {b!r}")
        self.number_uses.add(a)

    def _load(self, a: Expr, b: Expr) -> None:
        if isinstance(a.data, Comprehension) and isinstance(b.data, Comprehension):
            bodies = (substitute(x.data.body, dict(zip(x.data.variables, x.args, strict=True))) for x in (a, b))
            self.terms(*bodies)
            return
        if not isinstance(a.data, Leaf) or self.leaves.get(a.data) is not b.data:
            raise LanesDiffer(f"{a!r} corresponds to {b!r}")
        if a.data in self.lengths:
            raise LanesDiffer(f"{a.data.name} is read as a number, and the designs have memories of different sizes")
        self.control_leaves.add(a.data)
        self.place(a.data, a.args, b.args)

    def place(self, leaf: Leaf, indices: Sequence[Expr], narrow_terms: Sequence[Expr]) -> None:
        """Read the places of an access side by side: lanes by their variables, elements by equal terms.

        Raises:
            LanesDiffer: they do not correspond.
        """
        if leaf in self.externals:
            self.accesses.append(self._access(leaf, indices[0], narrow_terms[0]))
            return
        lanes, counterpart = self.lanes.get(leaf, ()), self.leaves[leaf]
        for axis, (i, j) in enumerate(zip(indices, narrow_terms, strict=True)):
            if axis not in lanes:
                self.terms(i, j)
                continue
            if i.op != "var" or self.counterparts.get(i) is not j:
                raise LanesDiffer(f"axis {axis} of {leaf.name} is one of lanes; {i!r} is no variable of lanes")
            self.use(i, (leaf.name, axis), (static_shape(leaf)[axis], static_shape(counterpart)[axis]))

    def use(self, v: Expr, lane: Lane, span: tuple[int, int]) -> None:
        """Enter that a variable chooses a lane, and what it must run over in the wide design and in the narrow one."""
        self.uses.setdefault(v, set()).add(lane)
        self.spans.setdefault(v, set()).add(span)

    def _reduction(self, a: Expr, b: Expr) -> None:
        (monoid, variables), (other_monoid, narrow_terms) = a.data, b.data
        if monoid != other_monoid:
            raise LanesDiffer(f"{a!r} corresponds to {b!r}")
        self.bind(variables, narrow_terms, a.args[1:], b.args[1:])
        x, y = a.args[0], b.args[0]
        if x.op != "mul" or y.op != "mul" or monoid != "sum":
            self.terms(x, y)
        else:
            for p, q in zip(x.args, y.args, strict=True):
                self.terms(p, q)
        summed = [v for v in variables if v in self.uses]
        if not summed:
            self.multiplies |= x.op == "mul" and all(self._is_data(p) for p in x.args)
            return
        is_product = monoid == "sum" and x.op == "mul" and all(v in p.free for v in summed for p in x.args)
        if not is_product or not any(p.op == "load" and isinstance(p.data, Leaf) for p in x.args):
            raise LanesDiffer(f"lanes are combined by {a!r}, which is no sum of products of two elements")
        self.contracted.update(summed)

    # -- external memory

    def _access(self, leaf: Leaf, wide: Expr, narrow: Expr) -> Access:
        """Return an access whose addresses are those of elements, times their bytes, plus those of lanes."""
        mine, other = self._polynomial(wide), self._polynomial(narrow)
        offset, narrow_offset = mine.pop((), 0), other.pop((), 0)
        lanes = {v: mine.pop((v,)) for v in self._lane_variables(mine)}
        for v in lanes:
            other.pop((self.counterparts[v],), None)
        unit = math.gcd(*other.values())
        extents = {v: int(self.extents[v][0].value or 0) for v in lanes}
        size = unit * math.prod(extents.values())
        if offset != narrow_offset or not 0 <= offset < max(unit, 1) or not _fills(unit, size, [(lanes[v], extents[v]) for v in lanes]):
            raise LanesDiffer(f"the lanes of an element of {leaf.name} at {wide!r} do not lie side by side")
        self._same_elements(leaf, mine, other, size, unit)
        variables, narrow_terms = {v: self.extents[v][0] for v in wide.free}, {self.counterparts[v]: self.extents[v][1] for v in wide.free}
        table = tuple((v, extents[v], lanes[v]) for v in sorted(lanes, key=lambda v: -lanes[v]))
        return Access(leaf, wide, narrow, variables, narrow_terms, Layout(size, unit, table))

    def _lane_variables(self, polynomial: Mapping[Monomial, int]) -> list[Expr]:
        """Return the variables alone in a monomial whose extents are more in the wide design than one in the narrow one."""
        candidates = [m[0] for m in polynomial if len(m) == 1 and m[0] in self.extents]
        extents = ((v, *self.extents[v]) for v in candidates)
        return [v for v, m, n in extents if n.value == 1 and m.value is not None and m.value > 1]

    def _same_elements(self, leaf: Leaf, mine: Mapping[Monomial, int], other: Mapping[Monomial, int], size: int, unit: int) -> None:
        remaining, equal_pairs, control_leaves = dict(other), set(self.equal_pairs), set(self.control_leaves)
        for monomial, factor in mine.items():
            match = next((m for m in remaining if len(m) == len(monomial) and self._are_same(monomial, m)), None)
            if match is None or factor * unit != remaining.pop(match) * size:
                raise LanesDiffer(f"elements of {leaf.name} are chosen by {monomial!r} times {factor}, which the narrow design does not")
        if remaining:
            raise LanesDiffer(f"elements of {leaf.name} are chosen by {next(iter(remaining))!r} in the narrow design only")
        origins = {m for m in mine if len(m) == 1 and m[0].op == "load"}  # they differ as elements differ in size
        self.equal_pairs, self.control_leaves = equal_pairs, control_leaves.union(*(e.reads for m in mine if m not in origins for e in m))

    def _are_same(self, a: Monomial, b: Monomial) -> bool:
        try:
            for x, y in zip(a, b, strict=True):
                self.terms(x, y)
        except LanesDiffer:
            return False
        return True

    def _polynomial(self, e: Expr) -> dict[Monomial, int]:
        """Return a term as a polynomial; a variable that has one value only is 0, and so is the address of an external memory."""
        if e.op == "const":
            return {(): int(e.data)} if e.data else {}
        if e.interval == (0, 0) or (e.op == "load" and e.data in self.bases):
            return {}
        if e.op in ("add", "sub"):
            left, right = (self._polynomial(x) for x in e.args)
            return _sum(left, right, 1 if e.op == "add" else -1)
        if e.op == "mul":
            left, right = (self._polynomial(x) for x in e.args)
            products = dict[Monomial, int]()
            for m, c in left.items():
                products = _sum(products, {(*m, *n): c * d for n, d in right.items()}, 1)
            return products
        return {(e,): 1}


def _sum(a: Mapping[Monomial, int], b: Mapping[Monomial, int], sign: int) -> dict[Monomial, int]:
    total = dict(a)
    for m, c in b.items():
        total[m] = total.get(m, 0) + sign * c
    return {m: c for m, c in total.items() if c}


def _fills(unit: int, size: int, lanes: Sequence[tuple[int, int]]) -> bool:
    """Tell whether lanes of such strides and extents fill an element of so many bytes, each byte once."""
    at = unit
    for stride, extent in sorted(lanes):
        if stride != at:
            return False
        at = stride * extent
    return at == size


def instruction_correspondence(wide: Ila, narrow: Ila, name: str) -> LaneCorrespondence:
    """Return the correspondence of one instruction of two designs.

    Raises:
        LanesDiffer: its updates do not correspond, or one of the designs lacks it.
    """
    if name not in wide.instructions or name not in narrow.instructions:
        raise LanesDiffer(f"only one of the designs has the instruction {name}")
    mine, other = wide.instructions[name], narrow.instructions[name]
    leaves = {s.leaf: narrow.states[n].leaf for n, s in wide.states.items() if n in narrow.states}
    leaves |= {o.leaf: other.operands[n].leaf for n, o in mine.operands.items() if n in other.operands}
    correspondence = LaneCorrespondence(
        leaves,
        {leaf: lanes for leaf, one in leaves.items() if leaf.rank == one.rank and (lanes := lane_axes(leaf, one))},
        frozenset(s.leaf for s in wide.states.values() if s.binding == DATA),
        frozenset(e.leaf for e in wide.externals.values()),
        frozenset(e.base for ila in (wide, narrow) for e in ila.externals.values()),
        frozenset(e.size for ila in (wide, narrow) for e in ila.externals.values()),
    )
    try:
        correspondence.steps(mine.update, other.update)
        correspondence.finish()
    except LanesDiffer as difference:
        raise LanesDiffer(f"{name}: {difference}") from None
    return correspondence


def lane_axes(wide: Leaf, narrow: Leaf) -> frozenset[int]:
    """Return the axes along which a memory's elements have lanes in the wide design and one in the narrow one."""
    pairs = enumerate(zip(static_shape(wide), static_shape(narrow), strict=True))
    return frozenset(axis for axis, (m, n) in pairs if m != n and n == 1)


def array_correspondence(
    wide: Comprehension, narrow: Comprehension, leaves: Mapping[Leaf, Leaf], lanes: Mapping[Leaf, Collection[int]],
    result: tuple[str, Collection[int]],
) -> LaneCorrespondence:  # fmt: skip
    """Return the correspondence of an array term at two sizes, whose operands and result have lanes along some axes.

    Raises:
        LanesDiffer: they do not correspond.
    """
    correspondence = LaneCorrespondence(leaves, lanes, frozenset(leaves))
    extents = ([lift(n) for n in x.shape] for x in (wide, narrow))
    correspondence.bind(wide.variables, narrow.variables, *extents)
    name, result_lanes = result
    for axis, v in enumerate(wide.variables):
        if axis in result_lanes:
            correspondence.use(v, (name, axis), (static_shape(wide)[axis], static_shape(narrow)[axis]))
    correspondence.terms(wide.body, narrow.body)
    correspondence.finish()
    return correspondence
