"""Runs: loops of lowered code over elements which lie side by side, copies and conditions, as one statement.

A loop whose indices are taken modulo a constant is given twice: once for a run that does not wrap, without the modulus, and
once as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..lang import intervals as iv
from .loop_ir import Assign, Bind, Copy, Every, For, If, Statement, Store, Tree, apply, constant

MOST_ELEMENTS = 64
MOST_MODULI = 4
MOST_STRIDE = 2
EVERY = (8, 16, 32, 64)  # iterations: lanes of vectors


def with_runs(statements: Sequence[Statement]) -> list[Statement]:
    """Return statements with copies in place of loops that are copies."""
    return [made for s in statements for made in _made(s)]


def _made(s: Statement) -> list[Statement]:
    if isinstance(s, If):
        return [If(s.condition, with_runs(s.then), with_runs(s.otherwise))]
    if not isinstance(s, For):
        return [s]
    if not all(isinstance(x, Bind | Store) for x in s.body):
        return _every(s) or [For(s.name, s.extent, with_runs(s.body))]
    fixed, moving = _parted(s)
    run = _run(For(s.name, s.extent, moving))
    return [*fixed, *run] if run else [s]


def _every(s: For) -> list[Statement]:
    """Return the conjunction that a loop is; nothing when it is something else."""
    *before, last = s.body or [s]
    if not isinstance(last, Assign) or not all(isinstance(x, Bind) for x in before) or s.extent.op != "const":
        return []
    count, (kept, value) = int(s.extent.data), last.value.args if last.value.op == "min" else (constant(0), constant(0))
    if count not in EVERY or kept.data != last.name or not (kept.interval == value.interval == (0, 1)):
        return []
    fixed, moving = _parted(For(s.name, s.extent, [*before, Store("", constant(0), value)]))
    *names, whole = moving
    known: dict[str, Tree] = {}
    for x in names:
        assert isinstance(x, Bind)
        known[x.name] = _spelt(x.value, known)
    assert isinstance(whole, Store)
    return [*fixed, Every(last.name, _spelt(whole.value, known), count, s)]


def _spelt(t: Tree, known: dict[str, Tree]) -> Tree:
    """Return a tree with the values of names in their places."""
    return known[t.data] if t.op == "name" and t.data in known else replace(t, args=tuple(_spelt(a, known) for a in t.args))


def _parted(s: For) -> tuple[list[Statement], list[Statement]]:
    """Return the binds of a loop that are the same in every iteration, and the rest of its body."""
    written = {x.array for x in s.body if isinstance(x, Store)}
    varying, fixed, moving = {s.name}, list[Statement](), list[Statement]()
    for x in s.body:
        if isinstance(x, Bind) and _used(x.value).isdisjoint(varying | written):
            fixed.append(x)
            continue
        moving.append(x)
        varying |= {x.name} if isinstance(x, Bind) else set()
    return fixed, _inlined(moving)


def _inlined(statements: Sequence[Statement]) -> list[Statement]:
    """Return statements with sums of numbers in the places of their names."""
    sums, found = dict[str, Tree](), list[Statement]()

    def tree(t: Tree) -> Tree:
        return sums[t.data] if t.op == "name" and t.data in sums else replace(t, args=tuple(map(tree, t.args)))

    for x in statements:
        if isinstance(x, Bind) and (value := tree(x.value)).op in ("add", "mul") and _is_sum(value):
            sums[x.name] = value
        elif isinstance(x, Bind):
            found.append(Bind(x.name, tree(x.value)))
        else:
            found.append(Store(x.array, tree(x.index), tree(x.value)) if isinstance(x, Store) else x)
    return found


def _is_sum(t: Tree) -> bool:
    return t.op in ("name", "const") or (t.op in ("add", "mul") and all(map(_is_sum, t.args)))


def _used(t: Tree) -> set[str]:
    """Return the names and arrays that a tree reads."""
    own = {str(t.data)} if t.op in ("name", "load") else set()
    return own.union(*map(_used, t.args))


def _run(s: For) -> list[Statement] | None:
    """Return what a loop of stores is; None when it stays a loop."""
    if s.extent.op != "const" or not 1 < int(s.extent.data) <= MOST_ELEMENTS:
        return None
    count = int(s.extent.data)
    bound = {x.name for x in s.body if isinstance(x, Bind)}
    moduli = [t for t in _moduli(s) if _used(t).isdisjoint(bound)]
    if not moduli:
        copy = _copy(s, count)
        return None if copy is None else [copy]
    if len(moduli) > MOST_MODULI:
        return None
    made = _straight(s, moduli, count)
    if made is None:
        return None
    before, fits, straight = made
    plain = For(s.name, s.extent, [_replaced(x, straight) for x in s.body])
    return [*before, If(fits, _run(plain) or [plain], [s])]


def _straight(s: For, moduli: Sequence[Tree], count: int) -> tuple[list[Statement], Tree, dict[Tree, Tree]] | None:
    """Return where the indices start, whether none of them wraps, and what they are then; those apart by a constant start together."""
    groups: dict[tuple[Tree, Tree], list[tuple[Tree, int, int]]] = {}
    for tree in moduli:
        (value, modulus), step = tree.args, step_of(tree.args[0], s.name)
        start, apart = _split(first_of(value, s.name))
        if step is None or int(modulus.data) <= apart + step * (count - 1):
            return None
        groups.setdefault((start, modulus), []).append((tree, step, apart))
    before, fits, straight = list[Statement](), constant(1), dict[Tree, Tree]()
    counter = Tree("name", (), s.name, (0, count - 1), False)
    for n, ((start, modulus), parts) in enumerate(groups.items()):
        size, reach = int(modulus.data), max(step * (count - 1) + apart for _, step, apart in parts)
        base = Tree("name", (), f"{s.name}_{n}", (0, size - 1), False)
        before.append(Bind(f"{s.name}_{n}", _modulo(start, modulus)))
        room = Tree("lt", (base, constant(size - reach)), None, (0, 1), False)
        fits = room if fits.op == "const" else Tree("bitand", (fits, room), None, (0, 1), False)
        fitting = replace(base, interval=(0, size - 1 - reach))
        for tree, step, apart in parts:
            straight[tree] = apply("add", apply("add", fitting, constant(apart)), apply("mul", counter, constant(step)))
    return before, fits, straight


def _split(t: Tree) -> tuple[Tree, int]:
    """Return a sum without the positive constant that is added to it, and that constant."""
    if t.op == "sub" and t.args[0].op == "add":
        inner, apart = _split(t.args[0])
        return replace(t, args=(inner, t.args[1]), interval=iv.sub(t.interval, (apart, apart))), apart
    known = [a for a in t.args if a.op == "const" and int(a.data) > 0] if t.op == "add" else []
    if not known:
        return t, 0
    return next(a for a in t.args if a is not known[0]), int(known[0].data)


def _modulo(x: Tree, modulus: Tree) -> Tree:
    """Return x mod a constant, without a division where x is less than twice that."""
    size = int(modulus.data)
    low, high = x.interval
    if low is None or high is None or low < 0 or high >= 2 * size:
        return Tree("mod", (x, modulus), None, (0, size - 1), False)
    if high < size:
        return x
    is_less = Tree("lt", (x, modulus), None, (0, 1), False)
    less = Tree("sub", (x, modulus), None, (low - size, high - size), False)
    return Tree("select", (is_less, x, less), None, (0, size - 1), False)


def _copy(s: For, count: int) -> Copy | None:
    """Return the copy that a loop is: of elements, or of words given as m[i] + (m[i + 1] << 8)."""
    if len(s.body) != 1 or not isinstance(s.body[0], Store):
        return None
    store = s.body[0]
    value, low = _low_bits(store.value)
    loads, stride = _loads(value), step_of(store.index, s.name)
    if not loads or stride is None or not 1 <= stride <= MOST_STRIDE:
        return None
    if any(step_of(x.args[0], s.name) != len(loads) for x in loads):
        return None
    start, *others = (first_of(x.args[0], s.name) for x in loads)
    if any(_split(x) != (start, n) for n, x in enumerate(others, 1)) or (len(loads) != 2 and stride > 1):
        return None
    return Copy(store.array, first_of(store.index, s.name), loads[0].data, start, count, s, stride, len(loads), low)


def _low_bits(t: Tree) -> tuple[Tree, int | None]:
    """Return what words are cut from, and how many bits of it at least; None when nothing is cut."""
    if t.op != "wrap":
        return t, None
    inner, more = _low_bits(t.args[0])
    return inner, min(t.data[0], more or t.data[0])


def _loads(t: Tree) -> tuple[Tree, ...]:
    """Return the load that a value is, or those of its bytes, the low one first."""
    if t.op == "load":
        return (t,)
    if t.op != "add" or t.args[1].op != "shl" or t.args[1].args[1].op != "const":
        return ()
    below, (high, shift) = _loads(t.args[0]), t.args[1].args
    is_next = bool(below) and high.op == "load" and high.data == below[0].data and shift.data == 8 * len(below)
    return (*below, high) if is_next and high.interval == below[0].interval == (0, 255) else ()


def _moduli(s: For) -> list[Tree]:
    """Return the indices modulo a constant that run evenly with the loop."""
    found: dict[Tree, None] = {}
    for x in s.body:
        if isinstance(x, Store | Bind):
            _collect(x.value, s.name, found)
        if isinstance(x, Store):
            _collect(x.index, s.name, found)
    return list(found)


def _collect(t: Tree, name: str, found: dict[Tree, None]) -> None:
    if t.op == "mod" and t.args[1].op == "const" and int(t.args[1].data) > 0 and step_of(t.args[0], name):
        found[t] = None
        return
    for a in t.args:
        _collect(a, name, found)


def step_of(t: Tree, name: str) -> int | None:
    """Return by how much a value grows with each iteration; None when it does not grow evenly."""
    if not _names(t, name):
        return 0
    if t.op == "name":
        return 1
    parts = [step_of(a, name) for a in t.args] if t.op in ("add", "sub", "mul") else [None]
    if None in parts or (t.op == "sub" and parts[1]):
        return None
    a, b = (p or 0 for p in parts)
    if t.op == "sub":
        return a
    if t.op == "add":
        return a + b
    factor = t.args[1] if a else t.args[0]
    return (a or b) * int(factor.data) if factor.op == "const" and int(factor.data) > 0 else None


def first_of(t: Tree, name: str) -> Tree:
    """Return the value of an even index in the first iteration."""
    if not _names(t, name):
        return t
    if t.op == "name":
        return constant(0)
    if t.op == "sub":
        return replace(t, args=(first_of(t.args[0], name), t.args[1]))
    return apply(t.op, *(first_of(a, name) for a in t.args))


def _names(t: Tree, name: str) -> bool:
    return (t.op == "name" and t.data == name) or any(_names(a, name) for a in t.args)


def _replaced(s: Statement, by: dict[Tree, Tree]) -> Statement:
    if isinstance(s, Store):
        return Store(s.array, _tree(s.index, by), _tree(s.value, by))
    assert isinstance(s, Bind)
    return Bind(s.name, _tree(s.value, by))


def _tree(t: Tree, by: dict[Tree, Tree]) -> Tree:
    return by[t] if t in by else replace(t, args=tuple(_tree(a, by) for a in t.args))


def ends_early(s: For) -> bool:
    """Tell whether a loop does nothing more once its condition is 0: what it asks then does not change any more."""
    if not s.body:
        return False
    *before, last = s.body
    if not isinstance(last, If) or last.otherwise or not all(isinstance(x, Bind) for x in before):
        return False
    return not any(_names(t, s.name) for t in (last.condition, *(x.value for x in before if isinstance(x, Bind))))
