"""The house rules of words: names are nouns of the field, and docstrings say what a function raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from house import CONTENT, Definition, Function, Module, modules

pytestmark = pytest.mark.xdist_group("house")  # one worker parses the tree once

# Words that say nothing about what they name: pronouns, adverbs, and participles without a noun.
FILLERS = frozenset(
    [
        "again",
        "alike",
        "alone",
        "anew",
        "apart",
        "around",
        "aside",
        "asked",
        "beside",
        "both",
        "chosen",
        "done",
        "else",
        "elsewhere",
        "everything",
        "few",
        "found",
        "further",
        "given",
        "gone",
        "here",
        "held",
        "instead",
        "kept",
        "known",
        "left",
        "loose",
        "made",
        "many",
        "meant",
        "more",
        "most",
        "moved",
        "named",
        "next",
        "now",
        "nothing",
        "one",
        "other",
        "others",
        "own",
        "passed",
        "placed",
        "plain",
        "played",
        "ran",
        "read_",
        "said",
        "same",
        "seen",
        "settled",
        "several",
        "shown",
        "so",
        "some",
        "spent",
        "such",
        "taken",
        "that",
        "them",
        "then",
        "there",
        "these",
        "this",
        "those",
        "told",
        "tried",
        "twin",
        "used",
        "waiting",
        "wanted",
        "what",
        "where",
        "which",
        "whole",
        "written",
    ]
)
# What a mathematician or the standard library calls so: the other operand, what is left, masks of numpy's `where`.
USUAL_LOCALS = frozenset(
    {"one", "other", "others", "then", "next", "most", "more", "now", "left", "same", "both", "used", "where", "several"}
)
# Sides of a rule, branches, the guard `where`, and fields that users of `target` and readers of documents know.
USUAL_PUBLIC = frozenset({"left", "other", "then", "where", "kept", "moved", "whole", "what", "most", "chosen", "same", "found"})
EXEMPT_ERRORS = {"AssertionError", "NotImplementedError", "StopIteration", "SystemExit", "KeyboardInterrupt"}


def listed(lines: Iterator[str]) -> None:
    """Fail with every line."""
    text = sorted(lines)
    assert not text, "\n" + "\n".join(text)


def own_nodes(node: Definition) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but for those of functions, lambdas and classes inside of it."""
    pending: list[ast.AST] = list(node.body)
    while pending:
        n = pending.pop()
        if not isinstance(n, Function | ast.Lambda | ast.ClassDef):
            yield n
            pending.extend(ast.iter_child_nodes(n))


def raised(node: Function) -> set[str]:
    """Return the classes of errors that a function itself raises."""
    names = set()
    for n in own_nodes(node):
        if isinstance(n, ast.Raise) and n.exc is not None:
            callee = n.exc.func if isinstance(n.exc, ast.Call) else n.exc
            name = callee.attr if isinstance(callee, ast.Attribute) else callee.id if isinstance(callee, ast.Name) else ""
            names |= {name} if name[:1].isupper() else set()
    return names - EXEMPT_ERRORS


def is_public(name: str) -> bool:
    return not any(part.startswith(("_", "<")) for part in name.split("."))


def public_functions() -> Iterator[tuple[Module, str, Function]]:
    """Yield functions and methods that others call; those inside of functions are nobody's."""
    return ((m, name, n) for m in modules() for name, n in m.definitions if isinstance(n, Function) and is_public(name))


def undocumented(node: Function) -> set[str]:
    """Return the errors that a function raises and its section `Raises:` does not name."""
    section = (ast.get_docstring(node) or "").partition("Raises:")[2]
    return {name for name in raised(node) if name not in section}


def test_docstrings_say_what_is_raised() -> None:
    listed(f"{m}:{n.lineno} {name} raises {error}" for m, name, n in public_functions() for error in undocumented(n))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('def f():\n    """Return."""\n    raise SpecError("I1", "x")', {"SpecError"}),
        ('def f():\n    """Return.\n\n    Raises:\n        SpecError: always.\n    """\n    raise SpecError("I1", "x")', set()),
        ('def f():\n    """Return."""\n    def g():\n        raise SpecError("I1", "x")\n    return g', set()),
        ('def f():\n    """Return."""\n    raise errors.InputError', {"InputError"}),
        ('def f():\n    """Return."""\n    raise NotImplementedError', set()),
    ],
)
def test_what_is_raised_is_found(text: str, expected: set[str]) -> None:
    (node,) = ast.parse(text).body
    assert isinstance(node, Function)
    assert undocumented(node) == expected


def test_modules_are_named_by_what_they_are() -> None:
    names = {(str(m), part) for m in modules() for part in m.name.split(".")}
    listed(f"{m}: {part}" for m, part in names if part in FILLERS)


def test_public_names_say_what_they_are() -> None:
    """Functions, classes, methods, fields and parameters of what others call."""
    functions = ((m, n.lineno, part) for m in modules() for name, n in m.definitions if is_public(name) for part in name.split(".")[-1:])
    parameters = ((m, n.lineno, a.arg) for m, _, n in public_functions() for a in (*n.args.posonlyargs, *n.args.args, *n.args.kwonlyargs))
    fields = (
        (m, x.lineno, x.target.id)
        for m in modules()
        for name, n in m.definitions
        if isinstance(n, ast.ClassDef) and is_public(name)
        for x in n.body
        if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)
    )
    listed(
        f"{m}:{line} {name}" for part in (functions, parameters, fields) for m, line, name in part if name.lower() in FILLERS - USUAL_PUBLIC
    )


def test_locals_say_what_they_hold() -> None:
    def locals_of(m: Module) -> Iterator[ast.Name]:
        fields = {id(x.target) for n in m.nodes if isinstance(n, ast.ClassDef) for x in n.body if isinstance(x, ast.AnnAssign)}
        names = (n for n in m.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        return (n for n in names if id(n) not in fields)

    engine = (m for m in modules() if m.folder not in CONTENT)
    listed(f"{m}:{n.lineno} {n.id}" for m in engine for n in locals_of(m) if n.id in FILLERS - USUAL_LOCALS)


def test_targets_do_not_know_who_evaluates_them() -> None:
    """A driver's data are numbers or terms of a proof; only the array operations of `target` tell them apart."""
    operands = (
        (m, x)
        for m in modules()
        if m.folder == "targets"
        for n in m.nodes
        if isinstance(n, ast.Compare | ast.Call | ast.IfExp)
        for x in ast.iter_child_nodes(n)
    )
    listed(f"{m}:{x.lineno} object" for m, x in operands if isinstance(x, ast.Name) and x.id == "object")
