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

    class CallableModule(ModuleType):
        """A module with a principal function."""

        __doc__ = function.__doc__

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            """Call the principal function."""
            return function(*arguments, **options)

    module = sys.modules[name]
    module.__class__ = CallableModule
    module.__dict__["__signature__"] = inspect.signature(function)  # what inspect, help and editors show


def import_on_use(package: str, modules: Mapping[str, str], principal: str = "") -> None:
    """Let names of a package be imported when they are first used, and the package be called as the principal one of them.

    `modules` says in which module of the package each name is defined: what only some uses need costs the others no start-up time.
    """

    class LazyModule(ModuleType):
        """A module whose names are imported when they are first used."""

        def __getattr__(self, name: str) -> Any:
            """Return a name of the package, importing the module that defines it."""
            if name not in modules:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            value = getattr(import_module(f".{modules[name]}", package), name)
            self.__dict__[name] = value
            return value

        def __dir__(self) -> list[str]:
            """Return the names, used or not."""
            return sorted({*super().__dir__(), *modules})

    class CallableLazyModule(LazyModule):
        """A lazy module with a principal function."""

        @property
        def __signature__(self) -> inspect.Signature:
            """The signature of the principal function: what inspect, help and editors show."""
            return inspect.signature(getattr(self, principal))

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            """Call the principal function."""
            return getattr(self, principal)(*arguments, **options)

    sys.modules[package].__class__ = CallableLazyModule if principal else LazyModule
