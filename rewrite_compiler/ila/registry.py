"""Accelerator models by name."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from ..errors import UsageError
from .model import Ila

SHIPPED = "rewrite_compiler.ila_models"


def model_names() -> list[str]:
    """Return the names of the shipped models."""
    package = importlib.import_module(SHIPPED)
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__))


def ila(name: str, **parameters: Any) -> Ila:
    """Return an accelerator model, e.g. ila("flexasr", sigmoid="3.4").

    Raises:
        UsageError: F201, there is no such model, or F203, it cannot be built with these parameters.
    """
    if name not in model_names():
        raise UsageError("F201", f'there is no accelerator model called "{name}"', help=f"known: {', '.join(model_names())}")
    module = importlib.import_module(f"{SHIPPED}.{name}")
    try:
        model = module.build(**parameters)
    except TypeError as error:
        raise UsageError("F203", f"{name} cannot be built with these parameters: {error}") from None
    assert isinstance(model, Ila)
    return model
