"""The code of drivers and numerics: which functions of the target they can reach, which numbers are written there, what they share.

A number above 3 that is written in a driver may be a size from which on it does something else; a function of the model in the
numerics is right in both or wrong in both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

LEAST = 3  # literals up to here are factors, axes and counts of operands


def reachable_functions(f: Callable[..., Any]) -> list[FunctionType]:
    """Return a function and those of its folder that it can reach by name: functions, methods and properties of classes."""
    root = plain_function(f)
    if root is None:
        return []
    folder = Path(root.__code__.co_filename).parent
    visited: dict[CodeType, FunctionType] = {}
    pending, names, classes = [root, *bound_functions(f)], set[str](), set[type]()
    while pending:
        g = pending.pop()
        if g.__code__ in visited or Path(g.__code__.co_filename).parent != folder:
            continue
        visited[g.__code__] = g
        own_names = set(_names(g.__code__))
        names |= own_names
        values = [g.__globals__[n] for n in own_names if n in g.__globals__] + [c.cell_contents for c in g.__closure__ or () if _is_full(c)]
        pending += [h for v in values if (h := plain_function(v)) is not None]
        classes |= {v for v in values if isinstance(v, type)}
        pending += [h for c in classes for n, v in vars(c).items() if n in names and (h := plain_function(v)) is not None]
    return list(visited.values())


def plain_function(value: Any) -> FunctionType | None:
    """Return the function behind a value: of a partial application, a property or a cache; None where it is none."""
    layers = function_layers(value)
    return layers[-1] if layers else None


def function_layers(value: Any) -> list[FunctionType]:
    """Return the functions that a value is made of: wrappers from the outermost on, and last the function behind them."""
    layers: list[FunctionType] = []
    while value is not None and not isinstance(value, type | ModuleType) and value not in layers:
        if isinstance(value, FunctionType):
            layers.append(value)
        if isinstance(value, partial | cached_property):
            value = value.func
        else:
            value = value.fget if isinstance(value, property) else _wrapped(value)
    return layers


def _wrapped(value: Any) -> Any:
    return inspect.getattr_static(value, "__wrapped__", None) if callable(value) else None


def bound_functions(f: Any) -> Iterator[FunctionType]:
    """Yield the functions among the arguments of a partial application."""
    while isinstance(f, partial):
        yield from (g for v in (*f.args, *f.keywords.values()) if (g := plain_function(v)) is not None)
        f = f.func


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # empty
        return False


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those of the functions written inside of it."""
    yield code
    for c in code.co_consts:
        if isinstance(c, CodeType):
            yield from codes_in(c)


def _names(code: CodeType) -> Iterator[str]:
    for c in codes_in(code):
        yield from c.co_names


def literals(f: Callable[..., Any]) -> list[tuple[int, str]]:
    """Return the whole numbers above 3 that are written in a driver and what it reaches, each with file and line."""
    places = set()
    for g in reachable_functions(f):
        for code in codes_in(g.__code__):
            for n in code.co_consts:
                if type(n) is int and abs(n) > LEAST:
                    places.add((abs(n), f"{Path(code.co_filename).name}:{code.co_firstlineno}"))
    return sorted(places)


def shared_functions(f: Callable[..., Any], model: str) -> list[str]:
    """Return the names of a package that numerics and what they reach use and that are no numbers, `module.name`."""
    names = set()
    for g in reachable_functions(f):
        for n in _names(g.__code__):
            value = g.__globals__.get(n)
            module = getattr(value, "__module__", "") or ""
            if isinstance(value, ModuleType):
                continue
            if module.startswith(f"{model}."):
                names.add(f"{module.removeprefix(f'{model}.')}.{n}")
    return sorted(names)
