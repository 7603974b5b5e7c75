"""Make the reference of the Python interface from its docstrings: python docs/reference/make.py writes python.md beside this file."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any

import flexmatch
from rewrite_compiler.compile.compile import compile_model
from rewrite_compiler.ila import ila
from rewrite_compiler.ops import Op, Tensor
from rewrite_compiler.prove.certificates.document import prove

PAGE = Path(__file__).resolve().parent / "python.md"
NAMESPACES = ("target", "ila", "lang", "ops", "rewrite", "compile", "cosim", "prove", "errors")
ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-f]+")
# packages that are called by their own name
CALLED = {"compile": compile_model, "ila": ila, "prove": prove}
ABOUT = {"Law": "What a rule returns: `(left, right)`, `(left, right, Where(…))`, or several such pairs for several results."}
MOST = 200  # characters of a value
INTRODUCTION = """\
# Python

Made from the docstrings by `python docs/reference/make.py`; a test compares. `import flexmatch` gives the names of
the first section; the namespaces below it are imported by their names. Everything is imported when it is first used, and typed: `mypy
--strict` checks a program that uses it. A default that is `…` stands in the source.
"""


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, "## flexmatch\n", *_names(flexmatch, is_long=True)]
    for name in NAMESPACES:
        module = importlib.import_module(f"rewrite_compiler.{name}")
        parts += [f"## rewrite_compiler.{name}\n", f"{_first(module)}\n", *_names(module, is_long=False)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _names(module: ModuleType, *, is_long: bool) -> Iterator[str]:
    """Yield what a module offers: a section a name, or a table with a row a name."""
    listed = sorted(_offered(module), key=str.lower)
    found = [(name, CALLED.get(name, getattr(module, name)) if is_long else getattr(module, name)) for name in listed]
    if not is_long:
        rows = (f"| `{name}{_signature(x) if isinstance(x, Op) else ''}` | {_cell(ABOUT.get(name) or _first(x))} |\n" for name, x in found)
        yield "| name | is |\n|---|---|\n" + "".join(rows)
        return
    for name, x in found:
        yield f"### {name}\n"
        if name not in ABOUT and _signature(x):
            yield f"`{name}{_signature(x)}`\n"
        yield f"{ABOUT.get(name) or _text(x)}\n"
        if x is Tensor:  # it is never called: what a pattern's parameter `x: Tensor` has
            yield "".join(f"* `x.{key}`: {inspect.getdoc(value)}\n" for key, value in vars(x).items() if isinstance(value, property))


def _offered(module: ModuleType) -> list[str]:
    """Return the public names of a module: those it lists, else the functions and classes that it defines."""
    given = getattr(module, "__all__", None)
    defined = (n for n, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__ and not n.startswith("_"))
    return list(defined) if given is None else list(given)


def _signature(x: Any) -> str:
    """Return how something is called; nothing when it is not, or takes anything."""
    if isinstance(x, Op):
        return f"({', '.join([*x.operands, *(f'{a.name}=…' for a in x.attributes)])})"
    if isinstance(x, ModuleType) or not callable(x) or x is Any or x is Tensor:
        return ""
    try:
        found = inspect.signature(x)
    except ValueError:
        return ""
    kept = [p.replace(annotation=inspect.Parameter.empty, default=_default(p.default)) for p in found.parameters.values()]
    return str(found.replace(parameters=kept, return_annotation=inspect.Signature.empty)).replace("Ellipsis", "…")


def _default(value: Any) -> Any:
    """Return a default as it is shown: large ones are left to the source."""
    return value if isinstance(value, str | int | float | bool | NoneType) or value is inspect.Parameter.empty or value == () else ...


def _text(x: Any) -> str:
    """Return a whole docstring, of a constant its value."""
    if isinstance(x, Op):
        return x.doc
    is_own = isinstance(x, ModuleType | type) or inspect.isfunction(x)
    return (inspect.getdoc(x) or "") if is_own else f"`{ADDRESS.sub('', repr(x))}`"


def _first(x: Any) -> str:
    text = _text(x).split("\n\n")[0].replace("\n", " ")
    return text if not text.startswith("`") or (len(text) <= MOST and "<" not in text) else "a value that its module describes"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
