"""Accelerator models by name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

from ..errors import UsageError, did_you_mean
from ..public_calls import NAME, public
from .model import Ila

SHIPPED = "rewrite_compiler.ila_models"


def model_names() -> list[str]:
    """Return the names of the shipped models."""
    package = importlib.import_module(SHIPPED)
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__))


@public("ila", name=NAME)
def ila(name: str, **parameters: Any) -> Ila:
    """Return an accelerator model, e.g. ila("flexasr", sigmoid="3.4").

    Raises:
        UsageError: F201, there is no such model, or F203, it cannot be built with these parameters.
    """
    names = model_names()
    if name not in names:
        remedy = " ".join(filter(None, (did_you_mean(name, names), f"known: {', '.join(names)}")))
        raise UsageError("F201", f'there is no accelerator model called "{name}"', help=remedy)
    module = importlib.import_module(f"{SHIPPED}.{name}")
    accepted = inspect.signature(module.build).parameters.values()
    accepted_names = [p.name for p in accepted]
    unknown = [] if any(p.kind is p.VAR_KEYWORD for p in accepted) else [k for k in parameters if k not in accepted_names]
    if unknown:
        remedy = did_you_mean(unknown[0], accepted_names) or f"known: {', '.join(accepted_names) or 'none'}"
        raise UsageError("F203", f'{name} has no parameter "{unknown[0]}"', help=remedy)
    model = module.build(**parameters)
    assert isinstance(model, Ila)
    return model
