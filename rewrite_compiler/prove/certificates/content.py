"""The files that an accelerator depends on: its own package, its model's, and what they import, imports statically.

A unit is a module or a package directly below a folder of content, or a file of a user; all files of a unit count, its data, too.
Imports are read from the text, in functions, too. A file that imports by computed names may need anything: then all content counts.
Of installed packages each is followed alone: what numpy is does not change what a target in the folder beside it says.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages, getusersitepackages

from .sources import ENGINE, court_of, import_closure, shipped_courts

LIBRARY = "rewrite_compiler"
FACADE = "flexmatch"  # a package that has the library's public names and nothing else
CONTENT = ("ila_models", "targets", "rules")
IMPORTERS = frozenset({"import_module", "__import__"})  # functions that import a module by its name
COMPUTED_IMPORTS = frozenset({"importlib", "pkgutil", "runpy", "__import__", "exec", "eval"})
IMPORTING = (ast.Name, ast.Import, ast.ImportFrom, ast.Call)  # the nodes that say what a file imports


@dataclass(frozen=True)
class Imports:
    """What the text of a file imports: files of content or of a user, modules of the engine, and whether names are computed."""

    files: tuple[Path, ...]
    engine: tuple[str, ...]
    are_computed: bool


@cache
def content_hash(roots: tuple[Path, ...]) -> str:
    """Return the hash of all files that some files depend on, the court itself left out."""
    content, engine = content_closure(roots)
    digest = hashlib.sha256()
    for file in (*content, *(ENGINE / name for name in engine)):
        digest.update(f"{_name(file)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def content_closure(roots: Iterable[Path]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the files of content or of a user that some files depend on, and the engine's that are no part of the court."""
    pending = [*(_unit(file) for file in roots), *(folder / "__init__.py" for folder in _content_folders())]
    units, engine = set[Path](), set[str]()
    while pending:
        unit = pending.pop()
        if unit in units:
            continue
        units.add(unit)
        for file in _files(unit):
            imports = imports_of(file) if file.suffix == ".py" else Imports((), (), are_computed=False)
            engine |= {*imports.engine}
            pending += [_unit(f) for f in imports.files]
            pending += [u for folder in _content_folders() for u in folder.iterdir()] if imports.are_computed else []
    files = {f for unit in units for f in _files(unit)}
    court = frozenset(court_of("target", shipped_courts().get("target")).files)
    return tuple(sorted(files, key=_name)), import_closure(sorted(engine), court)


@cache
def imports_of(file: Path) -> Imports:
    """Return what a file imports; of what is neither content nor engine, the modules beside it and of its own package."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # what is not Python imports nothing; its bytes count
        return Imports((), (), are_computed=False)
    parts = [x for x in ast.walk(tree) if isinstance(x, IMPORTING)]
    names = {x.id for x in parts if isinstance(x, ast.Name)}
    modules = [m for x in parts for m in _modules(file, x)]
    computed = not COMPUTED_IMPORTS.isdisjoint(names | {a.name.partition(".")[0] for x in parts for a in _aliases(x)})
    content = [m for m in modules if _is_content(m) or not (m.is_relative_to(ENGINE) or _is_other_installation(m, file))]
    engine = [m.relative_to(ENGINE).as_posix() for m in modules if m not in content and m.is_relative_to(ENGINE)]
    return Imports(tuple(dict.fromkeys(content)), tuple(dict.fromkeys(engine)), computed)


def _aliases(x: ast.AST) -> list[ast.alias]:
    return x.names if isinstance(x, ast.Import | ast.ImportFrom) else []


def _modules(file: Path, x: ast.AST) -> Iterator[Path]:
    """Yield the files of the modules that a statement imports."""
    if isinstance(x, ast.Import):
        for alias in x.names:
            yield from _module(_base(file, alias.name))
    elif isinstance(x, ast.Call):
        yield from _module_of_call(file, x)
    elif isinstance(x, ast.ImportFrom) and x.level == 0 and x.module in (LIBRARY, FACADE):
        for alias in x.names:
            yield from _module(_base(file, f"{LIBRARY}.{alias.name}")) or _public(alias.name)
    elif isinstance(x, ast.ImportFrom):
        base = file.parents[x.level - 1] / (x.module or "").replace(".", "/") if x.level else _base(file, x.module or "")
        for alias in x.names:
            yield from _module(base / alias.name) or _module(base)


def _module_of_call(file: Path, call: ast.Call) -> list[Path]:
    """Return the file that a call of an importing function with a literal name imports, relative to a package or not."""
    f = call.func
    name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
    texts = [x.value if isinstance(x, ast.Constant) and isinstance(x.value, str) else "" for x in call.args]
    texts += [x.value.value for x in call.keywords if isinstance(x.value, ast.Constant) and isinstance(x.value.value, str)]
    if name not in IMPORTERS or not texts or not texts[0]:
        return []
    module = texts[0].lstrip(".")
    dots = len(texts[0]) - len(module)
    if not dots:
        return _module(_base(file, module))
    package = _base(file, texts[1]) if len(texts) > 1 and texts[1] else file.parent
    return _module((package, *package.parents)[dots - 1].joinpath(*module.split(".")))


def _base(file: Path, name: str) -> Path:
    """Return where a module of a dotted name lies, without its suffix: in the library, or from where a file's package lies."""
    first, *rest = name.split(".")
    if first not in (LIBRARY, FACADE):
        root = file.parent
        while (root / "__init__.py").is_file():
            root = root.parent
        return root.joinpath(first, *rest)
    folder = {f.name: f for f in _content_folders()}.get(rest[0] if rest else "")
    return ENGINE.joinpath(*rest) if folder is None else folder.joinpath(*rest[1:])


def _module(base: Path) -> list[Path]:
    """Return the file of a module or of a package."""
    return [f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()][:1]


@cache
def _public(name: str) -> list[Path]:
    """Return the module that defines a public name of the library."""
    library = ENGINE / "__init__.py"
    statements = [x for x in ast.walk(ast.parse(library.read_bytes())) if isinstance(x, ast.ImportFrom) and x.level]
    bound = [(x, alias) for x in statements for alias in x.names if (alias.asname or alias.name) == name]
    return [f for x, alias in bound for f in _module(ENGINE.joinpath(*(x.module or alias.name).split(".")))]


@cache
def _content_folders() -> tuple[Path, ...]:
    specs = [find_spec(f"{LIBRARY}.{name}") for name in CONTENT]
    return tuple(Path(p) for spec in specs if spec is not None for p in spec.submodule_search_locations or ())


def _is_content(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in _content_folders())


def _is_other_installation(module: Path, file: Path) -> bool:
    """Tell whether a module is installed beside the package that imports it, as its requirements are."""
    folder = next((f for f in _installation_folders() if file.is_relative_to(f) and module.is_relative_to(f)), None)
    return folder is not None and module.relative_to(folder).parts[0] != file.relative_to(folder).parts[0]


def _installation_folders() -> tuple[Path, ...]:
    return tuple(map(Path, (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *getsitepackages(), getusersitepackages())))


def _unit(file: Path) -> Path:
    """Return the module or the package below a folder of content that a file belongs to, the file itself where there is none."""
    return next((f / file.relative_to(f).parts[0] for f in _content_folders() if file.is_relative_to(f) and file != f), file)


@cache
def _files(unit: Path) -> tuple[Path, ...]:
    if unit.is_dir():
        return tuple(f for f in sorted(unit.rglob("*")) if f.is_file() and "__pycache__" not in f.parts)
    return (unit,) if unit.is_file() else ()


def _name(file: Path) -> str:
    """Return what a file is called in a hash, on any machine: its path in the library, of others the name."""
    folder = next((f for f in (*_content_folders(), ENGINE) if file.is_relative_to(f)), file.parent)
    return f"{folder.name if folder != file.parent or _is_content(file) else ''}/{file.relative_to(folder).as_posix()}"
