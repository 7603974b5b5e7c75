"""Places of the engine that can be changed, their changes, and probes that tell which tests run a place."""

from __future__ import annotations

import ast
import compileall
import copy
import hashlib
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from record import ROOT

# files of a part → the tests that are asked first
PARTS = {
    "prove": ("prove/**/*.py", ("tests/prove/", "tests/rules/")),
    "egraph": ("egraph/**/*.py", ("tests/egraph/", "tests/compile/")),
    "lang": ("lang/**/*.py", ("tests/lang/", "tests/ila/", "tests/emit/")),  # the functions of libm are emitted
    "ila": ("ila/**/*.py", ("tests/ila/", "tests/ila_models/")),
    "cosim": ("cosim/**/*.py", ("tests/cosim/", "tests/cli/")),
    "compile": ("compile/**/*.py", ("tests/compile/", "tests/cli/")),
    "fit": ("fit/**/*.py", ("tests/fit/", "tests/compile/")),
    "frontend": ("frontend/**/**/*.py", ("tests/frontend/", "tests/bad_inputs/")),
    "sched": ("sched/**/*.py", ("tests/sched/", "tests/compile/")),
    "study": ("study/**/*.py", ("tests/study/", "tests/cosim/")),
}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn}
SUMS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
LIMITS = ("max", "min")
PROBE = '''"""Writes once for each test which places it runs."""
import os
seen, test = set(), os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
file = os.open(os.environ.get("REACHED_PLACES", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def next_test(name):
    global test
    test = name
    seen.clear()
def reached(place):
    if place not in seen:
        seen.add(place)
        os.write(file, f"{place}\\t{test}\\n".encode())
'''
# certificates are keyed by the text of the engine: a change must be noticed by what it does, not by its text
HASHED = {
    "rewrite_compiler/prove/certificates/sources.py": ("file = ENGINE / name", "file = Path({engine!r}) / name"),
    "rewrite_compiler/prove/certificates/content.py": (
        "hashlib.sha256(file.read_bytes())",
        "hashlib.sha256((f if (f := Path({engine!r}) / os.path.relpath(file, ENGINE)).is_file() else file).read_bytes())",
    ),
}


@dataclass(frozen=True)
class Place:
    """The n-th node of a file that can be changed."""

    part: str
    file: str
    number: int

    @property
    def key(self) -> str:
        """Return its name in what was measured."""
        return f"{self.file}#{self.number}"


def can_change(node: ast.AST) -> bool:
    """Tell whether a node has a wrong copy."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS
    if isinstance(node, ast.BinOp):
        return type(node.op) in SUMS
    if isinstance(node, ast.If):
        return ast.unparse(node.test) != "TYPE_CHECKING"
    if isinstance(node, ast.Dict):
        return len(node.keys) > 1
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in LIMITS and len(node.args) == 2
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.comprehension):
        return bool(node.ifs)
    return isinstance(node, ast.BoolOp) or (isinstance(node, ast.Constant) and type(node.value) in (int, float))


def change(node: ast.AST) -> None:
    """Make a node wrong."""
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp):
        node.op = SUMS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Dict):
        del node.keys[len(node.keys) // 2], node.values[len(node.values) // 2]
    elif isinstance(node, ast.Call):
        node.args = [node.args[0], node.args[0]]
    elif isinstance(node, ast.UnaryOp):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.comprehension):
        node.ifs = []
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1 if isinstance(node.value, int) else 2 * node.value + 1  # type: ignore[assignment, operator]


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that can be changed, in order; annotations are never evaluated."""
    annotations = {id(a) for n in ast.walk(tree) for a in (getattr(n, "annotation", None), getattr(n, "returns", None)) if a is not None}
    found, work = [], deque[ast.AST]([tree])
    while work:
        node = work.popleft()
        found += [node] if can_change(node) else []
        work += [c for c in ast.iter_child_nodes(node) if id(c) not in annotations]
    return found


@cache
def parsed(file: str) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse((ROOT / file).read_text("utf-8"))


def places(part: str) -> Iterator[Place]:
    """Yield every place of a part."""
    for path in sorted((ROOT / "rewrite_compiler").glob(PARTS[part][0])):
        file = path.relative_to(ROOT).as_posix()
        yield from (Place(part, file, number) for number in range(len(nodes_of(parsed(file)))))


@cache
def names(file: str) -> list[str]:
    """Return a name of each place of a file: edits of other lines, and of the same in other definitions, leave it."""
    tree = parsed(file)
    owner: dict[int, str] = {}
    for definition in ast.walk(tree):  # outer ones come first
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            owner.update((id(n), f"{owner.get(id(definition), '')}.{definition.name}") for n in ast.walk(definition))
    lines = (ROOT / file).read_bytes().split(b"\n")
    seen, found = Counter[str](), list[str]()
    for node in nodes_of(tree):
        at = decided(node)
        text = f"{file} {owner.get(id(node), '')} {type(node).__name__} {b' '.join(lines[at.lineno - 1 : at.end_lineno])!r} {at.col_offset}"
        found.append(hashlib.sha256(f"{text} {seen[text]}".encode()).hexdigest()[:10])
        seen[text] += 1
    return found


def decided(node: Any) -> Any:
    """Return the node itself; of a condition, not what it decides on."""
    return node.test if isinstance(node, ast.If) else node.ifs[0] if isinstance(node, ast.comprehension) else node


def name_of(place: Place) -> str:
    """Return the name of a place that later commits have, too."""
    return names(place.file)[place.number]


def in_function(tree: ast.Module, node: ast.AST) -> bool:
    """Tell whether a node is run by a call, not by the import of its file."""
    functions = (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))
    return any(node in ast.walk(s) for f in functions for s in (f.body if isinstance(f.body, list) else [f.body]))


def line_of(place: Place) -> str:
    """Return file, line and text of a place; of a condition, not of what it decides on."""
    node = nodes_of(parsed(place.file))[place.number]
    at = decided(node)
    text = (ROOT / place.file).read_text("utf-8").splitlines()[at.lineno - 1].strip()
    return f"{place.file}:{at.lineno}: {text} [{type(node).__name__}]"


def changed(place: Place) -> ast.Module:
    """Return the tree of a file with one wrong node."""
    tree = copy.deepcopy(parsed(place.file))
    change(nodes_of(tree)[place.number])
    return ast.fix_missing_locations(tree)


def with_probes(file: str, probes: dict[int, int]) -> str:
    """Return the text of a file that tells when nodes are evaluated; `probes` is the probe's number by the node's."""
    tree = copy.deepcopy(parsed(file))
    nodes = nodes_of(tree)
    of_expression: dict[int, int] = {}
    for number, probe in probes.items():
        node = nodes[number]
        if isinstance(node, ast.If):
            node.test = _probed(node.test, probe)
        elif isinstance(node, ast.comprehension):
            node.ifs[0] = _probed(node.ifs[0], probe)
        else:
            of_expression[id(node)] = probe

    class Wrapped(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            probe = of_expression.get(id(node))
            self.generic_visit(node)
            return node if probe is None else _probed(node, probe)

    Wrapped().visit(tree)
    first = sum(isinstance(s, ast.Expr) or (isinstance(s, ast.ImportFrom) and s.module == "__future__") for s in tree.body[:2])
    tree.body[first:first] = ast.parse("from campaign_probe import reached as reached_place_").body
    return ast.unparse(ast.fix_missing_locations(tree))


def _probed(node: Any, probe: int) -> ast.BoolOp:
    call = ast.Call(ast.Name("reached_place_", ast.Load()), [ast.Constant(probe)], [])
    return ast.BoolOp(ast.Or(), [call, node])


def overlay(folder: Path) -> None:
    """Copy the engine, compiled, with links to the content where an installation has it."""
    shutil.copytree(ROOT / "rewrite_compiler", folder / "rewrite_compiler", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("rules", "ila_models", "targets", "apps"):
        link = folder / "rewrite_compiler" / name
        if not link.exists():
            link.symlink_to(ROOT / name)
    for file in HASHED:
        write_text(folder, file, (ROOT / file).read_text("utf-8"))
    (folder / "campaign_probe.py").write_text(PROBE, "utf-8")
    compileall.compile_dir(folder / "rewrite_compiler", quiet=2)


def write_text(folder: Path, file: str, text: str) -> None:
    """Write a file of the copy; what hashes the engine's text still reads the engine's."""
    if file in HASHED:
        actual, wanted = HASHED[file]
        text = text.replace(actual, wanted.format(engine=str(ROOT / "rewrite_compiler"))).replace(
            "import hashlib\n", "import hashlib, os\n"
        )
    path = folder / file
    path.write_text(text, "utf-8")
    status = path.stat()  # what was compiled is not of this text
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 7_000_000_000))


def code_objects(tree: ast.Module, path: str) -> list[CodeType]:
    """Return the code of a tree and of all functions in it, in order."""
    found, work = [], [compile(tree, path, "exec", dont_inherit=True)]
    while work:
        code = work.pop()
        found.append(code)
        work += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found


def new_code(place: Place, folder: Path) -> dict[CodeType, CodeType]:
    """Return the code of each function that a change makes another; empty where functions cannot be told apart."""
    path = str(folder / place.file)
    before, after = code_objects(parsed(place.file), path), code_objects(changed(place), path)
    names = [[(c.co_qualname, c.co_firstlineno, c.co_freevars) for c in codes] for codes in (before, after)]
    return {} if names[0] != names[1] else {b: a for b, a in zip(before, after, strict=True) if b != a}


def test_files(parts: Iterable[str]) -> list[str]:
    """Return the folders of tests that notice changes of some parts."""
    folders = {folder for part in parts for folder in PARTS[part][1]}
    return sorted(f for f in folders if re.match(r"tests/\w+/$", f))
