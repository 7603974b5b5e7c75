"""Make the page of supported operators: python docs/reference/operators.py writes supported-operators.md beside this file.

The first column is the import table, the middle one the core operators that each import function applies, read from its
source; the others come from the patterns and guards of the mappings, and from the laws that lead to these patterns.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from rewrite_compiler.compile.matching.recurrences import RECURRENT
from rewrite_compiler.frontend.classical.operators import DEFINITIONS as CLASSICAL
from rewrite_compiler.frontend.normalise import BY_DOMAIN
from rewrite_compiler.ops.op import COMPUTE, LAYOUT, OPS, Apply, Tensor, Variable, subterms
from rewrite_compiler.ops.static import IsConstant
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import every_rule, shipped_rules
from rewrite_compiler.rewrite.text import attribute_text, condition_text
from rewrite_compiler.target import Mapping as Offload
from rewrite_compiler.target.discovery import find_target

PAGE = Path(__file__).resolve().parent / "supported-operators.md"
ACCELERATORS = ("flexasr", "hlscnn", "vta", "genesys", "hvx")
FRONTEND = "rewrite_compiler.frontend."
Steps = Mapping[str, Mapping[str, list[str]]]
MOST_LAWS = 2  # laws on the way from an imported operator to a pattern
OF_FORM = r"rank|extent|ax[ei]s|keepdims|ceil"  # words of conditions that laws meet, or that make sense only beside a pattern
OPTION = "with `--rules lowering`"
OPERANDS = {
    "x": "input",
    "z": "second input",
    "w": "weights",
    "r": "recurrent weights",
    "b": "bias",
    "g": "scale",
    "q": "queries",
    "e": "keys",
}
SENTENCES = (  # a condition as the text form of rules writes it, and in words
    (r"constant\((\w+)\)", "{0} constant"),
    (r"x\.rank == (\d+)", "rank {0}"),
    (r"(\w+)\.rank == (\d+)", "{0} of rank {1}"),
    (r'type\((\w+), "(\w+)"\)', "{0} {1}"),
    (r"(\w+)\.shape == (\w+)\.shape", "{0} and {1} of one shape"),
    (r"0 < e\.shape\[0\]", "at least one key"),
    (r"(\w+)\.shape\[(\d+)\] == (\w+)\.shape\[\2\]", "{0} and {2} of one extent along axis {1}"),
    (r"x\.shape\[1\] == group", "as many groups as channels"),
    (r"w\.shape\[0\] == group", "one filter a group"),
    (r"1 < group", "more than one group"),
    (r"(\w+)\.shape\[(\d+)\] == (\d+)", "extent {2} along axis {1} of {0}"),
    (r"(\w+)\.shape\[(\d+)\] % (\d+) == 0", "extent along axis {1} of {0} a multiple of {2}"),
    (r"(\d+) % (\w+)\.shape\[(\d+)\] == 0", "extent along axis {2} of {1} a divisor of {0}"),
    (r"(\d+) < (\w+)\.shape\[(\d+)\]", "extent along axis {2} of {1} more than {0}"),
)  # fmt: skip
INTRODUCTION = f"""\
# Supported operators

Made from the import table, the laws and the mappings by `python docs/reference/operators.py`; a test compares.

A cell says as which operation of an accelerator an operator can be offloaded, and under which condition. *By* names the laws
on the way, *in* an operation that takes the operator only together with others, *{OPTION.replace("`", "")}* what needs this option;
*folded* one that a law computes into the weights of the operator before it where its own operands are constants; a dash: it runs
on the host. What takes an operator whole is named, else the larger patterns that it is part of. An operator that becomes
several has a part for each that is taken; where some of these compute and others are
functions of each element, only those that compute are named.

Conditions hold for the form that the accelerator takes, after the laws, which bring other ranks and spellings to it: those on
axes are in the table of [operations](#operations) alone. A layer that is larger than a memory is tiled, and the objective
decides whether an offload is chosen: `flexmatch explain` says which condition a node of your model fails.
"""


class Laws(NamedTuple):
    """What the laws make of an operator: those always used, lowerings too; into what they fold an operator behind it."""

    always: Steps
    asked: Steps
    folds: Steps


def page() -> str:
    """Return the whole page."""
    imported = {(domain, name): applied_operators(f) for domain, table in BY_DOMAIN.items() for name, f in table.items()}
    computed = {key: core for key, names in imported.items() if (core := _computing(names))}
    moving = sorted(_label(key) for key in imported.keys() - computed.keys())
    offloads = {name: list(find_target(name).mappings.values()) for name in ACCELERATORS}
    laws = Laws(law_steps(shipped_rules()), law_steps(every_rule()), foldings(shipped_rules()))
    heading = ["ONNX operator", "imported as", *ACCELERATORS]
    rows = [
        [_label(key), ", ".join(f"`{n}`" for n in sorted(names)), *(_cell(names, ms, laws) for ms in offloads.values())]
        for key, names in sorted(computed.items())
    ]
    return "\n".join(
        [
            INTRODUCTION,
            "## ONNX operators\n",
            _table(heading, rows),
            "## Operators that compute nothing on an accelerator\n",
            "They move data, name it, or are computed at import where their inputs are known; laws move them out of the way, and "
            f"what is left runs on the host: {', '.join(moving)}.\n",
            f"Of `ai.onnx.ml`, these become core operators first: {', '.join(f'`{n}`' for n in sorted(CLASSICAL))}.\n",
            "Every other operator, of any domain, is unsupported: it runs on the host as it stands, in onnxruntime, "
            "and the rest of the model is offloaded.\n",
            "## Operations\n",
            _table(["accelerator", "operation", "takes", "if"], [row for ms in offloads.values() for row in _operations(ms)]),
        ]
    )


def applied_operators(f: Callable[..., Any]) -> set[str]:
    """Return the core operators that an import function, and what it calls in the importer, applies."""
    names: set[str] = set()
    seen: set[int] = set()
    pending: list[Any] = [f]
    while pending:
        x = pending.pop()
        if isinstance(x, partial):
            pending += [x.func, *x.args, *x.keywords.values()]
        elif isinstance(x, str):
            names |= {x} & OPS.keys()
        elif is_dataclass(x) and not isinstance(x, type):
            pending += vars(x).values()
        elif isinstance(x, type) and x.__module__.startswith(FRONTEND) and id(x) not in seen and x.__name__ != "Site":
            seen.add(id(x))
            pending += [m for m in vars(x).values() if isinstance(m, FunctionType) and m.__code__.co_filename == inspect.getsourcefile(x)]
        elif isinstance(x, FunctionType) and x.__module__.startswith(FRONTEND) and id(x) not in seen:
            seen.add(id(x))
            pending += _references(x)
    return names


@cache
def _references(f: FunctionType) -> tuple[Any, ...]:
    """Return what a function closes over, the functions and classes that it names, and the operators that it passes on."""
    captured = inspect.getclosurevars(f)
    found = [*captured.nonlocals.values(), *(x for x in captured.globals.values() if isinstance(x, type | FunctionType | partial))]
    for call in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(f)))):
        if isinstance(call, ast.Call) and (isinstance(call.func, ast.Name) or getattr(call.func, "attr", "") in ("apply", "apply_all")):
            arguments = call.args if isinstance(call.func, ast.Name) else call.args[:1]
            found += [c.value for a in arguments for c in _choices(a) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
    return tuple(found)


def _choices(x: ast.expr) -> list[ast.expr]:
    return [x.body, x.orelse] if isinstance(x, ast.IfExp) else [x]


def law_steps(rules: tuple[Rule, ...]) -> Steps:
    """Return, for each core operator, those that a law makes of it alone, each with the names of these laws."""
    steps: dict[str, dict[str, list[str]]] = {}
    for r in rules:
        constants = {id(c.tensor) for c in r.where if isinstance(c, IsConstant)}
        before, after = (_operators(side, constants) for side in r.pairs[0])
        source = _computing(before)
        if len(source) != 1 or (OPS[min(source)].kind != COMPUTE and source != before):
            continue
        for name in _computing(after) - before:
            steps.setdefault(min(source), {}).setdefault(name, []).append(r.name)
    return steps


def foldings(rules: tuple[Rule, ...]) -> Steps:
    """Return, for each function of an element, the operators before it into whose constants a law folds it."""
    folds: dict[str, dict[str, list[str]]] = {}
    for r in rules:
        left, right = r.pairs[0]
        constants = {id(c.tensor) for c in r.where if isinstance(c, IsConstant)}
        core, after = _computing(_operators(left, constants)), _operators(right, constants)
        if isinstance(left, Apply) and len(core) == 1 and core <= after and left.op.name not in core | after:
            folds.setdefault(left.op.name, {}).setdefault(min(core), []).append(r.name)
    return folds


def _folded(name: str, offloads: list[Offload], laws: Laws) -> list[str]:
    """Return into what, of the operators that are taken, a law folds an operator, at most one law before."""
    cores = {core for b in (name, *laws.always.get(name, {})) if OPS[b].kind != LAYOUT for core in laws.folds.get(b, {})}
    taken = [f"`{core}`" for core in sorted(cores) if _taking(core, offloads)]
    return [f"folded into constants of {' or '.join(taken)} before it"] if taken else []


def _operators(t: Tensor, constants: Collection[int] = ()) -> set[str]:
    """Return the operators of a pattern, without those on constants alone, which are folded."""
    return {x.op.name for x in subterms(t) if isinstance(x, Apply) and not _is_folded(x, constants)}


def _is_folded(x: Apply, constants: Collection[int]) -> bool:
    variables = [v for v in subterms(x) if isinstance(v, Variable)]
    return bool(variables) and all(id(v) in constants for v in variables)


def _computing(names: set[str]) -> set[str]:
    """Return the operators that a program is about: those that compute, else functions of each element."""
    return {n for n in names if OPS[n].kind == COMPUTE} or {n for n in names if OPS[n].kind != LAYOUT}


def _cell(names: set[str], offloads: list[Offload], laws: Laws) -> str:
    """Return as what an accelerator takes an ONNX operator that becomes some core operators."""
    ways = {n: _ways(n, offloads, laws) for n in sorted(names)}
    if len(names) > 1:  # what such functions take part in depends on their neighbours
        ways = {n: [t for t in texts if OPS[n].kind == COMPUTE or not t.startswith("in ")] for n, texts in ways.items()}
    else:
        ways = {n: [*texts, *_folded(n, offloads, laws)] for n, texts in ways.items()}
    parts = [(f"{n}: " if len(names) > 1 else "") + " or ".join(texts) for n, texts in ways.items() if texts]
    return "; ".join(parts) or "–"


def _ways(name: str, offloads: list[Offload], laws: Laws) -> list[str]:
    """Return how an accelerator takes one core operator: as it is, by the fewest laws, or inside a larger pattern."""
    known = [m for m in offloads if not m.runtime_weights]
    written = [m for m in offloads if m.runtime_weights]
    ways = _taking(name, known) or _by_laws(name, known, laws.always)
    ways += [f"{w} {OPTION}" for w in _taking(name, written)]
    ways = ways or [f"{w} {OPTION}" for w in _by_laws(name, known, laws.asked)]
    if not ways and name in RECURRENT:
        return [f"written out step by step, its products as {w}" for w in _ways("dense", offloads, laws)]
    spellings = {name, *laws.always.get(name, {})}
    inside = dict.fromkeys(f"in `{m.operation}`" for m in known if spellings & _operators(m.rule.left))
    return list(dict.fromkeys(ways)) or list(inside)


def _by_laws(name: str, offloads: list[Offload], steps: Steps) -> list[str]:
    """Return the operations that the fewest laws lead to, with these laws."""
    paths: dict[str, list[str]] = {name: []}
    for _ in range(MOST_LAWS):
        reached = {b: [*laws, " or ".join(law)] for a, laws in paths.items() for b, law in steps.get(a, {}).items() if b not in paths}
        ways = [f"{text} by {', then '.join(laws)}" for b, laws in reached.items() for text in _taking(b, offloads)]
        if ways:
            return ways
        paths |= reached
    return []


def _taking(name: str, offloads: list[Offload]) -> list[str]:
    """Return the operations whose pattern is about one core operator, with what all their forms ask for."""
    forms: dict[str, list[Offload]] = {}
    for m in offloads:
        if _computing(_operators(m.rule.left)) == {name}:
            forms.setdefault(m.operation, []).append(m)
    return [f"`{operation}`{_common(ms)}" for operation, ms in forms.items()]


def _common(forms: list[Offload]) -> str:
    """Return the conditions of all forms of an operation, in parentheses: none on axes, and of element types all that are taken."""
    taken = [dict.fromkeys(_conditions(m)) for m in forms]
    types = dict.fromkeys(c for conditions in taken for c in conditions if c.startswith("input ") and c.endswith("int8"))
    is_typed = all(any(c in types for c in conditions) for conditions in taken)
    shared = [c for c in taken[0] if c not in types and not re.search(OF_FORM, c) and all(c in conditions for conditions in taken)]
    common = [*([" or ".join(types)] if types and is_typed else []), *shared]
    return f" ({', '.join(common)})" if common else ""


def _conditions(m: Offload) -> list[str]:
    """Return the conditions of a pattern in words: its guard, and the attributes that it fixes."""
    first = next(x for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.kind != LAYOUT)
    fixed = [f"{name} {text}" for name, value in first.attributes.items() if (text := _fixed(attribute_text(value)))]
    return [*(_sentence(condition_text(c)) for c in m.rule.where), *fixed]


def _operations(offloads: list[Offload]) -> Iterator[list[str]]:
    """Yield a row for each operation and each set of conditions, with the patterns that it takes."""
    patterns: dict[tuple[str, str, str], list[str]] = {}
    for m in offloads:
        terms = [x for x in subterms(m.rule.left) if isinstance(x, Apply) and (x.op.kind != LAYOUT)]
        conditions = [*_conditions(m), *([f"weights written at run time {OPTION}"] if m.runtime_weights else [])]
        patterns.setdefault((m.target, m.operation, ", ".join(conditions)), []).append(" then ".join(f"`{x.op.name}`" for x in terms))
    for (target, operation, conditions), taken in patterns.items():
        yield [target, f"`{operation}`", "; ".join(dict.fromkeys(taken)), conditions]


def _fixed(text: str) -> str:
    """Return the value of an attribute that a pattern fixes; nothing where any is taken."""
    return f"`{text}`" if re.fullmatch(r'-?\d+|\[[\d, ]+\]|"\w+"', text) else ""


def _sentence(text: str) -> str:
    """Return a condition in words, or as it is written where no words are known."""
    for pattern, words in SENTENCES:
        match = re.fullmatch(pattern, text)
        if match:
            return words.format(*(OPERANDS.get(g, g) for g in match.groups()))
    return f"`{text}`"


def _label(key: tuple[str, str]) -> str:
    return f"`{'.'.join(part for part in key if part)}`"


def _table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(line)} |\n" if line[0] != "---" else f"|{'|'.join(line)}|\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
