"""Python files that a user names: they are code, and run as such; errors in them are reported at their own lines.

A file `__init__.py` is its folder's: it may import the other files there, `from .name import …`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import tokenize
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from ..errors import FlexmatchError, InputError, UsageError
from ..intake import FileBound, check_size, read_bytes
from ..limits import DEFAULT, MIB, Limits
from ..readings.oracle.counterexample import with_example
from ..user_code import PREFIX
from .import_failure import cause_of, remedy_of
from .rehearsal import rehearse

PACKAGE = "__init__.py"
MAX_SOURCE_BYTES = 4 * MIB  # of a Python file


class _TextLoader(SourceFileLoader):
    """Loads a module from its text: byte code beside it may be of a text of the same length, a second before."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the text as it is now."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


class _TextFinder(MetaPathFinder):
    """Finds the files that a user's package imports, to be loaded from their texts."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a file of a package is; None for any other module."""
        spec = PathFinder.find_spec(name, path, target) if name.startswith(PREFIX) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _TextLoader(name, spec.loader.path)
        return spec


FINDER = _TextFinder()


def module_at(path: Path, kind: str, code: str, limits: Limits | None = None) -> ModuleType:
    """Return the module of a Python file of some kind ("target", "rule").

    Raises:
        UsageError: `code`, there is no such file, or it is no Python file; a folder is given.
        BudgetError: R107, importing it exceeds the limits.
        InputError: F105, it or a file beside it is too large; R100, it is no text, or importing it fails.
    """
    if path.is_dir():
        raise UsageError(code, f"{path} is a folder", help=f"give a file of it: {path / PACKAGE} is the {kind}, and may import the others")
    if not path.is_file():
        raise UsageError(code, f"there is no {kind} file {path}", help=f"give the path of a Python file that defines a {kind.capitalize()}")
    if path.suffix != ".py":
        raise UsageError(code, f"{path} is not a Python file", help=f"a {kind} file ends in .py")
    for file in files_of(path):
        check_size(file.stat().st_size, _bound(kind), str(file))
    _check_text(path, kind)
    rehearse(path, kind, lambda: _imported(path, kind), limits or DEFAULT)
    try:
        return _imported(path, kind)
    except UsageError as error:  # a call that the file makes, not the command
        p = error.problem
        raise InputError("R100", p.sentence, place=p.place or _user_line(path, error), help=p.help) from None
    except FlexmatchError as error:
        raise with_example(error).at(_user_line(path, error)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises
        sentence = f"the {kind} file cannot be imported: {cause_of(error)}"
        remedy = _remedy(path, error) or remedy_of(error)
        raise InputError("R100", sentence, place=_user_line(path, error), help=remedy) from None


def _remedy(path: Path, error: BaseException) -> str:
    """Return what to do where a file imports one beside it in a way that does not find it, nothing elsewhere."""
    if not isinstance(error, ImportError):
        return ""
    neighbour = path.parent / f"{str(error.name).partition('.')[0]}.py"
    if not (neighbour.is_file() or str(error).startswith("attempted relative import")):
        return ""
    return f"give {path.parent / PACKAGE}, and let the files of that folder import each other by `from .name import …`"


def files_of(path: Path) -> tuple[Path, ...]:
    """Return a Python file; of one that is its folder's, all that it can import from there."""
    if path.name != PACKAGE:
        return (path,)
    files = (p for p in path.parent.rglob("*.py") if all(part.isidentifier() for part in p.relative_to(path.parent).parts[:-1]))
    return tuple(sorted(files))


def _imported(path: Path, kind: str) -> ModuleType:
    """Return a file's module, executed anew; that of a folder is known by its name while the process lasts, for the others there."""
    full, is_package = path.absolute(), path.name == PACKAGE
    stem = f"{full.parent.name.replace('.', '_')}_{hashlib.sha256(bytes(full)).hexdigest()[:8]}" if is_package else path.stem
    loader = _TextLoader(f"{PREFIX}{kind}_{stem}", str(full))
    spec = ModuleSpec(loader.name, loader, origin=loader.path, is_package=is_package)
    spec.has_location = True
    if spec.submodule_search_locations is not None:
        spec.submodule_search_locations.append(str(full.parent))
    module = importlib.util.module_from_spec(spec)
    if is_package:
        _forget(loader.name)
        sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def _forget(package: str) -> None:
    """Let the files of a package be found and executed anew."""
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)


def _bound(kind: str) -> FileBound:
    return FileBound(f"a {kind}", MAX_SOURCE_BYTES, f"give a {kind} file that is written by hand, and data in files of their own")


def _check_text(path: Path, kind: str) -> None:
    """Refuse a file that is no text in the encoding that its first lines name, UTF-8 without."""
    data = read_bytes(path, _bound(kind))
    remedy = f"give a {kind} file that is written in Python, in UTF-8"
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        sentence = f"the {kind} file must be text in {error.encoding}, which the byte 0x{byte:02x} is not"
        raise InputError("R100", sentence, place=f"{path}:{line}", help=remedy) from None
    except SyntaxError as error:  # the encoding that the file names
        raise InputError("R100", f"the {kind} file must be text: {error.msg}", place=f"{path}:1", help=remedy) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError("R100", f"the {kind} file must be text, not hold a null byte", place=f"{path}:{line}", help=remedy)


def user_line(place: str, error: BaseException) -> str:
    """Return the last line of a definition's file in an exception's traceback, as `file:line`."""
    return _user_line(Path(place.rpartition(":")[0]), error)


def _user_line(path: Path, error: BaseException) -> str:
    """Return the last line of the user's files in an exception's traceback, as `file:line`."""
    user_files = {p.absolute(): p for p in files_of(path)}
    if isinstance(error, SyntaxError) and error.lineno and Path(error.filename or path).absolute() in user_files:
        return f"{user_files[Path(error.filename or path).absolute()]}:{error.lineno}"
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [f"{user_files[file]}:{line}" for file, line in frames if file in user_files]
    return lines[-1] if lines else str(path)
