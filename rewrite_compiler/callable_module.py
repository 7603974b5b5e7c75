"""Packages that are called by their own name: `flexmatch.compile(…)`, `flexmatch.prove(…)`, `flexmatch.ila(…)`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
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
