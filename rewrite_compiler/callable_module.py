"""Packages that are called by their own name: `flexmatch.compile(…)`, `flexmatch.ila(…)`; and names imported on first use."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Let the module `name` be called as `function`."""
    _install(name, {}, lambda: function)


def import_on_use(package: str, modules: Mapping[str, str], principal: str = "") -> None:
    """Let names of a package be imported when they are first used, and the package be called as the principal one of them.

    `modules` says in which module of the package each name is defined: what only some uses need costs the others no start-up time.
    """
    _install(package, modules, (lambda: getattr(sys.modules[package], principal)) if principal else None)


def _install(name: str, modules: Mapping[str, str], principal: Callable[[], Callable[..., Any]] | None) -> None:
    """Let a module import names when they are first used, and be called as its principal function, if it has one."""

    class LazyModule(ModuleType):
        """A module whose names are imported when they are first used."""

        def __getattr__(self, attribute: str) -> Any:
            """Return a name of the package, importing the module that defines it."""
            if attribute not in modules:
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            value = getattr(import_module(f".{modules[attribute]}", name), attribute)
            self.__dict__[attribute] = value
            return value

        def __dir__(self) -> list[str]:
            """Return the names, used or not."""
            return sorted({*super().__dir__(), *modules})

    class CallableModule(LazyModule):
        """A module with a principal function."""

        @property
        def __signature__(self) -> inspect.Signature:
            """The signature of the principal function: what inspect, help and editors show."""
            assert principal is not None
            return inspect.signature(principal())

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            """Call the principal function."""
            assert principal is not None
            return principal()(*arguments, **options)

    sys.modules[name].__class__ = CallableModule if principal else LazyModule
