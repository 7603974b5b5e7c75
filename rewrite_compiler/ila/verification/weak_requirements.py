"""Requirements that are weaker than the index they protect: an address taken modulo its memory wraps without a diagnosis.

An index `x % n` into n elements never leaves them, so nothing else notices a wrong bound. Where requirements speak of everything
that x depends on, z3 is asked for fields and registers which they admit and at which x is outside of 0 … n − 1 in the last turns of its
loops; loops to a register turn twice and reductions run over one element, so that the question is linear. An answer is a problem;
nothing is proved.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, reduce

from ...errors import Problem, SpecError
from ...lang import intervals as iv
from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Leaf
from ...lang.expr import Expr, const
from ...lang.step import Let, Loop, Require, Step, Together, Update, When, children
from ...lang.substitution import substitute
from ...lang.traversal import terms_of
from ..model import DATA, Ila, Instruction
from .path_conditions import counterexample

WEAK = "I103"
HELP = "require that it is smaller than the memory, or do not let requirements speak of it"
TURNS = 2  # of a loop
MOST = 64  # elements of a reduction that is written out
COMBINE = {"sum": operator.add, "max": maximum, "min": minimum}


@dataclass(frozen=True)
class _Site:
    """An index before it is taken modulo a memory's size, with what holds there and the loops around it."""

    memory: str
    size: int
    index: Expr
    conditions: tuple[Expr, ...]
    requirements: tuple[Expr, ...]
    loops: tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True)
class _Path:
    """What holds at a step: conditions, requirements that were checked before, loops around it, and leaves of unknown contents."""

    conditions: tuple[Expr, ...] = ()
    requirements: tuple[Expr, ...] = ()
    loops: tuple[tuple[Expr, Expr], ...] = ()
    unknown: frozenset[Leaf] = frozenset()


def weak_requirements(ila: Ila) -> Iterator[Problem]:
    """Yield a problem for each instruction whose requirements admit an index of a memory that wraps."""
    data = frozenset(s.leaf for s in ila.states.values() if s.binding == DATA)
    memories = {s.name for s in ila.states.values() if s.is_memory}
    for i in ila.instructions.values():
        sites = {(s.memory, s.index): s for s in _sites(i.update, _Path(unknown=data)) if s.memory in memories and _is_protected(s)}
        yield from _first_problem(i, sites.values())


def _is_protected(site: _Site) -> bool:
    """Tell whether requirements speak of all leaves that an index depends on, so that its wrap is no intention."""
    reads = frozenset[Leaf]().union(*(r.reads for r in site.requirements))
    return bool(site.index.reads) and site.index.reads <= reads


def _sites(step: Step, path: _Path) -> Iterator[_Site]:
    if isinstance(step, Update):
        yield from _update_sites(step, path)
    elif isinstance(step, When):
        yield from _sites(step.then, replace(path, conditions=(*path.conditions, step.condition)))
        yield from _sites(step.otherwise, replace(path, conditions=(*path.conditions, ~step.condition)))
    elif isinstance(step, Loop):
        yield from _sites(step.body, replace(path, loops=(*path.loops, (step.variable, step.extent))))
    elif isinstance(step, Let):
        yield from _sites(step.body, replace(path, unknown=path.unknown | {step.local}))
    elif isinstance(step, Together):
        for u in step.updates:
            yield from _update_sites(u, path)
    else:
        for part in children(step):
            if isinstance(part, Require):
                path = replace(path, requirements=(*path.requirements, part.condition))
            else:
                yield from _sites(part, path)


def _update_sites(u: Update, path: _Path) -> Iterator[_Site]:
    loops = (*path.loops, *zip(u.variables, u.extents, strict=True))
    bound = {v for v, _ in loops}
    accesses = [(u.memory, u.address, ()), *(a for e in (u.value, *u.address) for a in _loads(e, ()))]
    if any(not e.reads.isdisjoint(path.unknown) for e in (*path.conditions, *path.requirements)):
        return  # what holds here depends on data
    for memory, indices, choices in accesses:
        for i, n in zip(indices, memory.shape, strict=True):
            if not isinstance(n, int) or i.op != "mod" or i.args[1].value != n or iv.inside(i.args[0].interval, (0, n - 1)):
                continue
            parts = (i.args[0], *choices)
            if all(e.free <= bound and e.reads.isdisjoint(path.unknown) for e in parts):
                yield _Site(memory.name, n, i.args[0], (*path.conditions, *choices), path.requirements, loops)


def _loads(e: Expr, choices: tuple[Expr, ...]) -> Iterator[tuple[Leaf, tuple[Expr, ...], tuple[Expr, ...]]]:
    """Yield every reading of a leaf in a term, with what must hold for it to be chosen."""
    if e.op == "load" and isinstance(e.data, Leaf):
        yield e.data, e.args, choices
    if e.op == "select":
        condition, consequent, alternative = e.args
        yield from _loads(condition, choices)
        yield from _loads(consequent, (*choices, condition))
        yield from _loads(alternative, (*choices, ~condition))
        return
    for x in e.args:
        yield from _loads(x, choices)


def _first_problem(i: Instruction, sites: Iterable[_Site]) -> Iterator[Problem]:
    """Yield the problem of the first site at which fields that all requirements admit have an index outside."""
    for site in sites:
        fields = _witness(site)
        if fields is not None:
            text = ", ".join(f"{name}={n}" for name, n in sorted(fields.items()) if "[" not in name)
            sentence = f"{i.name}: what it requires admits an element of {site.memory} from {site.size} on, which has {site.size}"
            yield Problem(WEAK, f"{sentence} ({text})", i.place, HELP)
            return


def _witness(site: _Site) -> dict[str, int] | None:
    """Return fields and registers at which an index wraps, None where none are found."""
    premises = [*site.requirements, *site.conditions]
    reductions = [x for e in (*premises, site.index) for x in terms_of(e) if x.op == "reduce"]
    singles = {n for x in reductions for n in x.args[1:] if n.value is None}
    extents = [n for _, n in site.loops if n.value is None and n not in singles]
    lasts = {n for n in extents if n.op != "load" and len(n.reads) == 1}  # its last turn is a term of one register
    lengths: dict[Expr, int] = {**{n: TURNS for n in extents if n not in lasts}, **dict.fromkeys(singles, 1)}
    fixed = {n: const(k) for n, k in lengths.items() if n.op == "load"}
    ties = [*((n >= k) & (n <= k) for n, k in lengths.items() if n.op != "load"), *(n >= 1 for n in lasts)]
    places: dict[Expr, Expr] = {}
    for v, n in site.loops:  # an extent may depend on the loops outside
        places[v] = substitute(maximum(n - 1, 0), places) if n in lasts else const(int(lengths.get(n, n.value or 1)) - 1)
    try:
        *premise_terms, index = (
            _without_loads(substitute(_without_reductions(substitute(e, places)), fixed)) for e in (*premises, *ties, site.index)
        )
        return counterexample(premise_terms, (index >= 0) & (index < site.size))
    except SpecError:
        return None


def _without_reductions(e: Expr) -> Expr:
    """Return a term in which each reduction is written out: of an unknown extent over one element.

    Raises:
        SpecError: one has too many elements.
    """
    return substitute(e, {x: _written_out(x) for x in terms_of(e) if x.op == "reduce"})


def _written_out(x: Expr) -> Expr:
    (monoid, variables), extents = x.data, [int(n.value) if n.value is not None else 1 for n in x.args[1:]]
    if not 0 < math.prod(extents) <= MOST:
        raise SpecError("I102", f"a reduction over {math.prod(extents)} elements is not written out")
    elements = (dict(zip(variables, map(const, point), strict=True)) for point in itertools.product(*map(range, extents)))
    return reduce(COMBINE[monoid], (substitute(x.args[0], at) for at in elements))


def _without_loads(e: Expr) -> Expr:
    """Return a term whose readings of memories are scalars, equal ones equal."""
    return substitute(e, {x: _scalar(x) for x in terms_of(e) if x.op == "load" and isinstance(x.data, Leaf) and x.args and not x.free})


@cache
def _scalar(load: Expr) -> Expr:
    return Leaf((), load.interval, False, f"{load!r}")[()]
