"""Python files that a user names: they are code, and run as such; errors in them are reported at their own lines."""

from __future__ import annotations

import importlib.util
import io
import tokenize
import traceback
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from ..errors import FlexmatchError, InputError, UsageError
from ..limits import DEFAULT, Limits
from ..readings.oracle.counterexample import with_example
from ..user_code import PREFIX, error_text
from .rehearsal import rehearse


class _TextLoader(SourceFileLoader):
    """Loads a module from its text: byte code beside it may be of a text of the same length, a second before."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the text as it is now."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def module_at(path: Path, kind: str, code: str, limits: Limits | None = None) -> ModuleType:
    """Return the module of a Python file of some kind ("target", "rule").

    Raises:
        UsageError: `code`, there is no such file, or it is no Python file.
        BudgetError: R107, importing it exceeds the limits.
        InputError: R100, it is no text, or importing it fails.
    """
    if not path.is_file():
        raise UsageError(code, f"there is no {kind} file {path}", help=f"give the path of a Python file that defines a {kind.capitalize()}")
    if path.suffix != ".py":
        raise UsageError(code, f"{path} is not a Python file", help=f"a {kind} file ends in .py")
    loader = _TextLoader(f"{PREFIX}{kind}_{path.stem}", str(path.absolute()))
    spec = ModuleSpec(loader.name, loader, origin=loader.path)
    spec.has_location = True
    _check_text(path, kind)
    rehearse(path, kind, lambda: loader.exec_module(importlib.util.module_from_spec(spec)), limits or DEFAULT)
    module = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(module)
    except FlexmatchError as error:
        raise with_example(error).at(str(path)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises
        raise InputError("R100", f"the {kind} file cannot be imported: {error_text(error)}", place=_user_line(path, error)) from None
    return module


def _check_text(path: Path, kind: str) -> None:
    """Refuse a file that is no text in the encoding that its first lines name, UTF-8 without."""
    data = path.read_bytes()
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
    """Return the last line of the user's file in an exception's traceback, as `file:line`."""
    if isinstance(error, SyntaxError) and error.lineno and Path(error.filename or path).absolute() == path.absolute():
        return f"{path}:{error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if Path(frame.f_code.co_filename) == path.absolute()]
    return f"{path}:{lines[-1]}" if lines else str(path)
