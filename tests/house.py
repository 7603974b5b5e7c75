"""The source tree as data: modules under their installed names, their imports, their functions, their repeated blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PUBLIC, ENGINE, CONTENT = "flexmatch", "rewrite_compiler", ("rules", "ila_models", "targets", "apps")
BLOCK = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@cache
def parsed(source: str) -> ast.Module:
    """Parse a text once for all tests."""
    return ast.parse(source)


@dataclass(frozen=True)
class Import:
    """One imported name: `module` alone, or `name` from `module`; eager when it runs as soon as its file is imported."""

    module: str
    name: str
    line: int
    eager: bool

    @property
    def package(self) -> str:
        """Name the top-level package."""
        return self.module.partition(".")[0]

    @property
    def target(self) -> str:
        """Name the deepest thing that is imported, be it a module or something inside one."""
        return f"{self.module}.{self.name}" if self.name else self.module


@dataclass(frozen=True)
class Module:
    """One Python file and the name it is imported by."""

    path: Path
    name: str

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def source(self) -> str:
        """Read the text."""
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Parse the text."""
        return parsed(self.source)

    @cached_property
    def lines(self) -> int:
        """Count the lines."""
        return len(self.source.splitlines())

    @property
    def folder(self) -> str:
        """Name the engine's package or the content folder: the second part of the name."""
        return [*self.name.split("."), ""][1]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """List every node of the tree: several tests look at all of them."""
        return tuple(ast.walk(self.tree))

    def imports(self) -> Iterator[Import]:
        """Yield every import with relative ones spelt out."""
        return _imports(self, self.tree, eager=True)

    @cached_property
    def definitions(self) -> tuple[tuple[str, Definition], ...]:
        """List every function and class, with its dotted name; those inside functions too."""
        return tuple(_definitions(self.tree, ""))

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the full name of the module that a `from` names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        above = parts[: len(parts) - node.level + (self.path.name == "__init__.py")]
        return ".".join([*above, *filter(None, [node.module])])


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what may hold imports and definitions: the children that are no expressions."""
    return (node for node in ast.iter_child_nodes(tree) if not isinstance(node, ast.expr))


def _walked(tree: ast.AST) -> Iterator[ast.AST]:
    for node in _statements(tree):
        yield node
        yield from _walked(node)


def _imports(module: Module, tree: ast.AST, *, eager: bool) -> Iterator[Import]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(module.absolute(node), alias.name, node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _imports(module, node, eager=False)
        else:
            yield from _imports(module, node, eager=eager and not isinstance(node, Function))


def _definitions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in _statements(tree):
        if isinstance(node, Definition):
            yield prefix + node.name, node
            inside = "." if isinstance(node, ast.ClassDef) else ".<locals>."
            yield from _definitions(node, f"{prefix}{node.name}{inside}")
        else:
            yield from _definitions(node, prefix)


@cache
def modules() -> tuple[Module, ...]:
    """Return every module that ships."""
    return tuple(_module(path) for folder in (ENGINE, *CONTENT) for path in sorted((ROOT / folder).rglob("*.py")))


def _module(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    installed = (ENGINE, *parts) if parts[0] in CONTENT else parts
    return Module(path, ".".join(installed).removesuffix(".__init__"))


def calls(module: Module) -> Iterator[tuple[int, str, ast.Call]]:
    """Yield line and last name of every call."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func).rpartition(".")[2], node


def length(node: Definition) -> int:
    """Count the lines of a definition without its decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def share_at_most(values: list[int], share: float) -> int:
    """Return the value that `share` of all values do not exceed."""
    return sorted(values)[int(share * (len(values) - 1))]


def repeated_blocks(paths: list[Path]) -> list[str]:
    """Return where six lines of code in a row stand a second time; imports, docstrings and comments do not count."""
    first: dict[tuple[str, ...], tuple[Path, int]] = {}
    found: dict[tuple[Path, Path, int], str] = {}
    for path in paths:
        lines = code_lines(path.read_text("utf-8"))
        for start in range(len(lines) - BLOCK + 1):
            window = tuple(text for _, text in lines[start : start + BLOCK])
            number = lines[start][0]
            other, at = first.setdefault(window, (path, number))
            if (other, at) != (path, number):
                found.setdefault((path, other, number - at), f"{path.relative_to(ROOT)}:{number} repeats {other.relative_to(ROOT)}:{at}")
    return list(found.values())


def code_lines(source: str) -> list[tuple[int, str]]:
    """Return number and stripped text of each line that holds code, leaving out imports, docstrings, comments and lone brackets."""
    ignored = {number for node in _walked(parsed(source)) for number in _uncounted(node)}
    stripped = ((number, line.strip()) for number, line in enumerate(source.splitlines(), 1) if number not in ignored)
    return [(number, line) for number, line in stripped if line.strip("()[]{}, ") and not line.startswith("#")]


def _uncounted(node: ast.AST) -> range:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.stmt) and (is_text or isinstance(node, ast.Import | ast.ImportFrom)):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)
