"""Keys of atoms: the integers they are built from, substitution in them, and how deep ranges are nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .polynomials import Poly, atom, atom_number, key_of

READING = ("div", "within")  # atoms that are functions of integers


def integer_atoms(key: Any) -> frozenset[int]:
    """Return the integer atoms that a key is built from, those inside of divisions included."""
    if isinstance(key, Poly):
        return key.atoms | frozenset(x for a in key.atoms for x in integer_atoms(_inside(a)))
    if is_term(key):
        return integer_atoms(key[0]) | frozenset(x for a in key[1] for x in integer_atoms(key_of(a)))
    if isinstance(key, tuple | frozenset):
        return frozenset(x for part in key for x in integer_atoms(part))
    return frozenset()


def _inside(a: int) -> Any:
    key = key_of(a)
    return key[1:] if key[0] in READING else ()


def renamed(key: Any, names: Mapping[int, Poly]) -> Any:
    """Return a key with polynomials substituted for some atoms."""
    if isinstance(key, Poly):
        for a in key.atoms:
            if a in names:
                key = key.substitute(a, names[a])
            elif key_of(a)[0] in READING and integer_atoms(_inside(a)) & names.keys():
                op, p, n = key_of(a)
                key = key.substitute(a, atom((op, renamed(p, names), renamed(n, names))))
        return key
    if is_term(key):
        return renamed(key[0], names), tuple(sorted(atom_number(renamed(key_of(a), names)) for a in key[1]))
    if isinstance(key, tuple):
        return tuple(renamed(part, names) for part in key)
    return frozenset(renamed(part, names) for part in key) if isinstance(key, frozenset) else key


def places(key: Any) -> Iterator[Poly]:
    """Yield the indices that a key reads at, those of the atoms of its terms included."""
    if isinstance(key, Poly):
        yield key
    elif is_term(key):
        yield from places(key[0])
        for a in key[1]:
            yield from places(key_of(a))
    elif isinstance(key, tuple | frozenset):
        for part in key:
            yield from places(part)


def is_term(x: Any) -> bool:
    """Tell whether a part of a key is a term: conditions, and the numbers of its atoms."""
    return isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], frozenset) and isinstance(x[1], tuple) and all(map(_is_number, x[1]))


def _is_number(x: Any) -> bool:
    return type(x) is int


def height_of(key: Any) -> int:
    """Return how deep ranges are nested in a key."""
    if isinstance(key, Poly):
        return 0
    if is_term(key):
        return max((height_of(key_of(a)) for a in key[1]), default=0)
    if isinstance(key, tuple) and key and key[0] == "range":
        return 1 + max((height_of(part) for part in key[1:]), default=0)
    return max((height_of(part) for part in key), default=0) if isinstance(key, tuple | frozenset) else 0
