"""Discovery of targets: shipped ones by name, installed ones by entry point, others by path."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from ..errors import UsageError, did_you_mean
from ..ila import Ila
from ..limits import Limits
from ..rewrite.entry_points import installed_entries
from ..rewrite.user_file import files_of, module_at
from .target import Target

SHIPPED = "rewrite_compiler.targets"
SCHEDULER = "rewrite_compiler.sched.driver.completion"
ENTRY_POINT_GROUP = "rewrite_compiler.targets"


def target_names() -> list[str]:
    """Return the names of shipped and installed targets."""
    package = importlib.import_module(SHIPPED)
    shipped = {m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")}
    return sorted(shipped | {e.name for e in installed_entries(ENTRY_POINT_GROUP)})


def find_target(text: str, limits: Limits | None = None) -> Target:
    """Return the target of `NAME_OR_PATH[:key=value,…]`.

    Raises:
        UsageError: F201 where there is no such target, F203 where a parameter or value is unknown.
    """
    name, _, parameters = text.partition(":")
    target = load_target(name, limits)
    return target.configured(_parameters(target, name, parameters))


def declares_target(text: str) -> bool:
    """Tell whether `NAME_OR_PATH[:key=value,…]` is a target, not a Python file with a model alone.

    Raises:
        UsageError: F201 where there is no such file.
    """
    name, _, _ = text.partition(":")
    return not name.endswith(".py") or any(isinstance(v, Target) for v in vars(module_at(Path(name), "target", "F201")).values())


def find_ila(text: str) -> Ila:
    """Return the model of `NAME_OR_PATH[:key=value,…]`: a target's, or the only one that a Python file without targets defines.

    Raises:
        UsageError: F201 where there is neither, F203 where a parameter or value is unknown.
    """
    name, _, parameters = text.partition(":")
    values = list(vars(module_at(Path(name), "target", "F201")).values()) if name.endswith(".py") else []
    models = [v for v in values if isinstance(v, Ila)]
    if len(models) != 1 or any(isinstance(v, Target) for v in values):
        return find_target(text).ila()
    if parameters:
        raise UsageError("F203", f"{name} defines a model and no target, so it takes no parameters", help=f"leave out :{parameters}")
    return models[0]


def load_target(name: str, limits: Limits | None = None) -> Target:
    """Return a target by its name or the path of its Python file, its parameters at their defaults.

    Raises:
        UsageError: F201 where there is no such target.
    """
    if name.endswith(".py") or "/" in name:
        target = _target_in(module_at(Path(name), "target", "F201", limits), name)
        files = files_of(Path(name).absolute())
        return target if len(files) == 1 else replace(target, sources=tuple({*target.sources, *files}))
    if name not in target_names():
        raise UsageError("F201", f'there is no accelerator called "{name}"', help=_suggestion(name))
    for entry in installed_entries(ENTRY_POINT_GROUP):
        if entry.name == name:
            loaded = entry.load()
            return _completed(loaded) if isinstance(loaded, Target) else _target_in(loaded, name)
    return _target_in(importlib.import_module(f"{SHIPPED}.{name}"), name)


def _suggestion(name: str) -> str:
    names = target_names()
    listing = f"known: {', '.join(names)} (or give a path ending in .py)"
    return " ".join(filter(None, (did_you_mean(name, names), listing)))


def _parameters(target: Target, name: str, text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError("F203", f'a parameter of {name} is written key=value, not "{part}"', help=target.parameters_text)
        values[key] = value
    return values


def _target_in(module: ModuleType, name: str) -> Target:
    targets = [v for v in vars(module).values() if isinstance(v, Target)]
    if len(targets) != 1:
        raise UsageError("F201", f"{name} must define exactly one Target, not {len(targets)}", place=inspect.getfile(module))
    return _completed(targets[0])


def _completed(target: Target) -> Target:
    """Return a target whose operations without a driver have the one that the scheduler makes of the model."""
    if all(m.drive is not None or m.codes is None for m in target.mappings.values()):
        return target
    completed: Target = importlib.import_module(SCHEDULER).completed(target)  # it stands above this package
    return completed
