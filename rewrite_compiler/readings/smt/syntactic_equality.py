"""Equality of z3 terms without a solver: identity, the same operations in the same order, the same normal form."""

from __future__ import annotations

import z3

from .evaluator import Value, _constant_value, _normal_forms_equal, _term

RING_KINDS = {z3.Z3_OP_ADD, z3.Z3_OP_SUB, z3.Z3_OP_MUL, z3.Z3_OP_UMINUS, z3.Z3_OP_ANUM}


def is_identical(a: Value, b: Value) -> bool:
    """Tell whether two values are the same number or the same term."""
    if isinstance(a, z3.ExprRef) and isinstance(b, z3.ExprRef):
        return bool(a.eq(b))
    return not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef) and bool(a == b)


def has_same_operations(a: Value, b: Value, *, drop_zeros: bool = False) -> bool:
    """Tell whether two values are the same operations in the same order, up to commutativity of + and ·.

    With `drop_zeros` an added 0 counts as no operation.
    """
    if not isinstance(a, z3.ExprRef) or not isinstance(b, z3.ExprRef):
        return is_identical(a, b) if not drop_zeros else is_identical(_without_zeros(a), _without_zeros(b))
    x, y = (_without_zeros(a), _without_zeros(b)) if drop_zeros else (a, b)
    if x.eq(y):
        return True
    if x.num_args() == 0 or x.num_args() != y.num_args() or not x.decl().eq(y.decl()):
        return False
    left, right = x.children(), y.children()
    if all(has_same_operations(p, q, drop_zeros=drop_zeros) for p, q in zip(left, right, strict=True)):
        return True
    is_swappable = len(left) == 2 and x.decl().kind() in (z3.Z3_OP_ADD, z3.Z3_OP_MUL)
    return is_swappable and all(has_same_operations(p, q, drop_zeros=drop_zeros) for p, q in zip(left, reversed(right), strict=True))


def normal_forms_agree(a: Value, b: Value) -> bool:
    """Tell whether two values are equal as polynomials over variables, function applications and quotients."""
    return _normal_forms_equal(a, b)


def is_ring_term(x: Value) -> bool:
    """Tell whether a value is built from variables and numbers by +, − and · alone."""
    pending, visited = [x], set()
    while pending:
        t = pending.pop()
        if not isinstance(t, z3.ExprRef) or t.get_id() in visited:
            continue
        visited.add(t.get_id())
        if t.decl().kind() not in RING_KINDS and not (t.num_args() == 0 and t.decl().kind() == z3.Z3_OP_UNINTERPRETED):
            return False
        pending.extend(t.children())
    return True


def with_canonical_names(a: Value, b: Value) -> tuple[z3.ExprRef, z3.ExprRef]:
    """Return both values with their variables numbered by first occurrence: equal questions become identical terms."""
    pair = (_term(a), _term(b))
    order: list[z3.ExprRef] = []
    visited: set[int] = set()
    pending = [*reversed(pair)]
    while pending:
        t = pending.pop()
        if t.get_id() in visited:
            continue
        visited.add(t.get_id())
        if t.num_args() == 0 and t.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            order.append(t)
        pending.extend(reversed(t.children()))
    names = [(t, z3.Const(f"variable_{n}", t.sort())) for n, t in enumerate(order)]
    return z3.substitute(pair[0], *names), z3.substitute(pair[1], *names)


def _without_zeros(x: Value) -> Value:
    while isinstance(x, z3.ExprRef) and x.decl().kind() == z3.Z3_OP_ADD:
        nonzero = [p for p in x.children() if not (z3.is_rational_value(p) or z3.is_int_value(p)) or _constant_value(p) != 0]
        if len(nonzero) != 1:
            break
        x = nonzero[0]
    return x
