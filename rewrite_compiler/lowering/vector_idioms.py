"""Idiom recognition: loops over adjacent elements that are copies or conjunctions become one statement each.

A loop whose indices are taken modulo a constant is versioned: without the modulus for a run that does not wrap around, and
as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..lang import intervals as iv
from .dead_code import names_written
from .loop_ir import Assign, Bind, Conjunction, Copy, For, If, Statement, Store, Tree, constant, folded_sum_or_product

MAX_ELEMENTS = 64
MAX_MODULI = 4
MAX_STRIDE = 2
LANE_COUNTS = (8, 16, 32, 64)  # iterations: lanes of vectors


def recognise_idioms(statements: Sequence[Statement]) -> list[Statement]:
    """Return statements with `Copy` and `Every` in place of the loops that are such."""
    return [statement for s in statements for statement in _recognised(s)]


def _recognised(s: Statement) -> list[Statement]:
    if isinstance(s, If):
        return [If(s.condition, recognise_idioms(s.then), recognise_idioms(s.otherwise))]
    if not isinstance(s, For):
        return [s]
    if not all(isinstance(x, Bind | Store) for x in s.body):
        return _every(s) or [For(s.name, s.extent, recognise_idioms(s.body))]
    invariant, variant = _partition(s)
    run = _run(For(s.name, s.extent, variant))
    return [*invariant, *run] if run else [s]


def _every(s: For) -> list[Statement]:
    """Return the `Every` that a loop is, after its invariants; nothing when it is something else."""
    *bindings, last = s.body or [s]
    if not isinstance(last, Assign) or not all(isinstance(x, Bind) for x in bindings) or s.extent.op != "const":
        return []
    count, (accumulator, value) = int(s.extent.data), last.value.args if last.value.op == "min" else (constant(0), constant(0))
    if count not in LANE_COUNTS or accumulator.data != last.name or not (accumulator.interval == value.interval == (0, 1)):
        return []
    invariant, variant = _partition(For(s.name, s.extent, [*bindings, Store("", constant(0), value)]))
    *definitions, conjunct = variant
    values: dict[str, Tree] = {}
    for x in definitions:
        assert isinstance(x, Bind)
        values[x.name] = _substituted(x.value, values)
    assert isinstance(conjunct, Store)
    return [*invariant, Conjunction(last.name, _substituted(conjunct.value, values), count, s)]


def _substituted(t: Tree, values: dict[str, Tree]) -> Tree:
    """Return a tree with names replaced by their values."""
    return values[t.data] if t.op == "name" and t.data in values else replace(t, args=tuple(_substituted(a, values) for a in t.args))


def _partition(s: For) -> tuple[list[Statement], list[Statement]]:
    """Return the loop-invariant bindings of a body, and its other statements."""
    stored_arrays = {x.array for x in s.body if isinstance(x, Store)}
    varying, invariant, variant = {s.name}, list[Statement](), list[Statement]()
    for x in s.body:
        if isinstance(x, Bind) and _reads(x.value).isdisjoint(varying | stored_arrays):
            invariant.append(x)
            continue
        variant.append(x)
        varying |= {x.name} if isinstance(x, Bind) else set()
    return invariant, _inlined(variant)


def _inlined(statements: Sequence[Statement]) -> list[Statement]:
    """Return statements with names of affine sums replaced by these."""
    sums, remaining = dict[str, Tree](), list[Statement]()

    def tree(t: Tree) -> Tree:
        return sums[t.data] if t.op == "name" and t.data in sums else replace(t, args=tuple(map(tree, t.args)))

    for x in statements:
        if isinstance(x, Bind) and (value := tree(x.value)).op in ("add", "mul") and _is_sum(value):
            sums[x.name] = value
        elif isinstance(x, Bind):
            remaining.append(Bind(x.name, tree(x.value)))
        else:
            remaining.append(Store(x.array, tree(x.index), tree(x.value)) if isinstance(x, Store) else x)
    return remaining


def _is_sum(t: Tree) -> bool:
    return t.op in ("name", "const") or (t.op in ("add", "mul") and all(map(_is_sum, t.args)))


def _reads(t: Tree) -> set[str]:
    """Return the names and arrays that a tree reads."""
    read = {str(t.data)} if t.op in ("name", "load") else set()
    return read.union(*map(_reads, t.args))


def _run(s: For) -> list[Statement] | None:
    """Return a loop of stores as a copy, or versioned by whether its indices wrap; None when it stays a loop."""
    if s.extent.op != "const" or not 1 < int(s.extent.data) <= MAX_ELEMENTS:
        return None
    count = int(s.extent.data)
    varying = names_written(s.body)  # an index that reads such a name or array is not known before the loop
    moduli = [t for t in _moduli(s) if _reads(t).isdisjoint(varying)]
    if not moduli:
        copy = _copy(s, count)
        return None if copy is None else [copy]
    if len(moduli) > MAX_MODULI:
        return None
    version = _without_moduli(s, moduli, count)
    if version is None:
        return None
    starts, fits, unwrapped_indices = version
    unwrapped = For(s.name, s.extent, [_replaced(x, unwrapped_indices) for x in s.body])
    return [*starts, If(fits, _run(unwrapped) or [unwrapped], [s])]


def _without_moduli(s: For, moduli: Sequence[Tree], count: int) -> tuple[list[Statement], Tree, dict[Tree, Tree]] | None:
    """Return the bindings of the first indices, the test that none wraps around, and each index without its modulus.

    Indices that differ by a constant share a binding. None where an index is no affine function of the loop variable.
    """
    groups: dict[tuple[Tree, Tree], list[tuple[Tree, int, int]]] = {}
    for tree in moduli:
        (value, modulus), step = tree.args, coefficient_of(tree.args[0], s.name)
        start, offset = _split(first_value(value, s.name))
        if step is None or int(modulus.data) <= offset + step * (count - 1):
            return None
        groups.setdefault((start, modulus), []).append((tree, step, offset))
    starts, fits, unwrapped = list[Statement](), constant(1), dict[Tree, Tree]()
    counter = Tree("name", (), s.name, (0, count - 1), False)
    for n, ((start, modulus), parts) in enumerate(groups.items()):
        size, reach = int(modulus.data), max(step * (count - 1) + distance for _, step, distance in parts)
        base = Tree("name", (), f"{s.name}_{n}", (0, size - 1), False)
        starts.append(Bind(f"{s.name}_{n}", _modulo(start, modulus)))
        room = Tree("lt", (base, constant(size - reach)), None, (0, 1), False)
        fits = room if fits.op == "const" else Tree("bitand", (fits, room), None, (0, 1), False)
        fitting = replace(base, interval=(0, size - 1 - reach))
        for tree, step, offset in parts:
            unwrapped[tree] = folded_sum_or_product(
                "add", folded_sum_or_product("add", fitting, constant(offset)), folded_sum_or_product("mul", counter, constant(step))
            )
    return starts, fits, unwrapped


def _split(t: Tree) -> tuple[Tree, int]:
    """Return a sum without the positive constant that is added to it, and that constant."""
    if t.op == "sub" and t.args[0].op == "add":
        inner, offset = _split(t.args[0])
        return replace(t, args=(inner, t.args[1]), interval=iv.sub(t.interval, (offset, offset))), offset
    constants = [a for a in t.args if a.op == "const" and int(a.data) > 0] if t.op == "add" else []
    if not constants:
        return t, 0
    return next(a for a in t.args if a is not constants[0]), int(constants[0].data)


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
    loads, stride = _loads(value), coefficient_of(store.index, s.name)
    if not loads or stride is None or not 1 <= stride <= MAX_STRIDE:
        return None
    if any(coefficient_of(x.args[0], s.name) != len(loads) for x in loads):
        return None
    start, *next_starts = (first_value(x.args[0], s.name) for x in loads)
    if any(_split(x) != (start, n) for n, x in enumerate(next_starts, 1)) or (len(loads) != 2 and stride > 1):
        return None
    return Copy(store.array, first_value(store.index, s.name), loads[0].data, start, count, s, stride, len(loads), low)


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
    lower_bytes, (high, shift) = _loads(t.args[0]), t.args[1].args
    is_next = bool(lower_bytes) and high.op == "load" and high.data == lower_bytes[0].data and shift.data == 8 * len(lower_bytes)
    return (*lower_bytes, high) if is_next and high.interval == lower_bytes[0].interval == (0, 255) else ()


def _moduli(s: For) -> list[Tree]:
    """Return the indices modulo a constant that are affine in the loop variable."""
    indices: dict[Tree, None] = {}
    for x in s.body:
        if isinstance(x, Store | Bind):
            _collect(x.value, s.name, indices)
        if isinstance(x, Store):
            _collect(x.index, s.name, indices)
    return list(indices)


def _collect(t: Tree, name: str, indices: dict[Tree, None]) -> None:
    if t.op == "mod" and t.args[1].op == "const" and int(t.args[1].data) > 0 and coefficient_of(t.args[0], name):
        indices[t] = None
        return
    for a in t.args:
        _collect(a, name, indices)


def coefficient_of(t: Tree, name: str) -> int | None:
    """Return the coefficient of the loop variable `name` in an affine value; None when the value is not affine in it."""
    if not _names(t, name):
        return 0
    if t.op == "name":
        return 1
    parts = [coefficient_of(a, name) for a in t.args] if t.op in ("add", "sub", "mul") else [None]
    if None in parts or (t.op == "sub" and parts[1]):
        return None
    a, b = (p or 0 for p in parts)
    if t.op == "sub":
        return a
    if t.op == "add":
        return a + b
    factor = t.args[1] if a else t.args[0]
    return (a or b) * int(factor.data) if factor.op == "const" and int(factor.data) > 0 else None


def first_value(t: Tree, name: str) -> Tree:
    """Return the value of an affine index in the first iteration of the loop over `name`."""
    if not _names(t, name):
        return t
    if t.op == "name":
        return constant(0)
    if t.op == "sub":
        return replace(t, args=(first_value(t.args[0], name), t.args[1]))
    return folded_sum_or_product(t.op, *(first_value(a, name) for a in t.args))


def _names(t: Tree, name: str) -> bool:
    return (t.op == "name" and t.data == name) or any(_names(a, name) for a in t.args)


def _replaced(s: Statement, by: dict[Tree, Tree]) -> Statement:
    if isinstance(s, Store):
        return Store(s.array, _tree(s.index, by), _tree(s.value, by))
    assert isinstance(s, Bind)
    return Bind(s.name, _tree(s.value, by))


def _tree(t: Tree, by: dict[Tree, Tree]) -> Tree:
    return by[t] if t in by else replace(t, args=tuple(_tree(a, by) for a in t.args))


def can_exit_early(s: For) -> bool:
    """Tell whether a loop may end at the first iteration whose condition is 0, because the condition is then invariant."""
    if not s.body:
        return False
    *bindings, last = s.body
    if not isinstance(last, If) or last.otherwise or not all(isinstance(x, Bind) for x in bindings):
        return False
    return not any(_names(t, s.name) for t in (last.condition, *(x.value for x in bindings if isinstance(x, Bind))))
