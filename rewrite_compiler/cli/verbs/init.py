"""flexmatch init: the skeleton of an accelerator, a rule or an application, with its own test, in a new folder."""

from __future__ import annotations

import importlib.util
import keyword
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from ...errors import FlexmatchError, UsageError, did_you_mean
from ..files import write_atomically
from ..options import emit_json, parse_arguments, parser
from ..output import print_lines

SCHEMA = "flexmatch.init/1"
TEMPLATES = Path(__file__).parent.parent / "skeletons"
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# what lets a test file run without pytest
RUNNER = """

if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name)
"""


@dataclass(frozen=True)
class Skeleton:
    """One kind of skeleton: templates by file name, the script that writes its data, names in use, and what to run next."""

    about: str
    templates: Mapping[str, str]
    script: str = ""  # of its files, the one that writes the model and data
    example: str = ""  # the shipped application whose model and data it gets
    commands: tuple[str, ...] = ()
    names: Callable[[], Sequence[str]] = field(default=lambda: ())


def _target_names() -> Sequence[str]:
    from ...target import target_names

    return target_names()


def _rule_names() -> Sequence[str]:
    from ...rewrite.ruleset import every_rule

    return [r.name.replace("-", "_") for r in every_rule()]


def _application_names() -> Sequence[str]:
    from ...apps import APPS, GALLERY

    return [a.name for a in (*APPS, *GALLERY)]


SKELETONS: Mapping[str, Skeleton] = {
    "accelerator": Skeleton(
        "a small accelerator in one file: specification, operation, numerics, limits, driver",
        {"$name.py": "accelerator", "test_$name.py": "accelerator_test"},
        example="digits_mlp",
        commands=(
            "flexmatch check $name.py",
            "flexmatch prove --accel ./$name.py --no-rules",
            "flexmatch model.onnx --accel ./$name.py --calibrate calibration.npz",
            "flexmatch cosim model.$name.json --accel ./$name.py --data test.npz",
        ),
        names=_target_names,
    ),
    "rule": Skeleton(
        "a law between programs, and a model in which it has something to do",
        {"$name.py": "rule", "make_model.py": "rule_model", "test_$name.py": "rule_test"},
        script="make_model.py",
        commands=("flexmatch check $name.py", "flexmatch prove $name.py", "flexmatch model.onnx --accel flexasr --rules $name.py"),
        names=_rule_names,
    ),
    "app": Skeleton(
        "an application: a model, test data with labels, calibration data",
        {"$name.py": "app", "test_$name.py": "app_test"},
        script="$name.py",
        commands=(
            "flexmatch check model.onnx",
            "flexmatch model.onnx --accel flexasr --calibrate calibration.npz",
            "flexmatch cosim model.flexasr.json --data test.npz --html report.html",
        ),
        names=_application_names,
    ),
}


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch init` and return its exit code.

    Raises:
        UsageError: the kind or the name is refused (F203), or a file is there already or cannot be written (F100).
    """
    verb_parser = parser("init", f"Write a skeleton with its own test into a new folder: {', '.join(SKELETONS)}.")
    verb_parser.add_argument("kind", metavar="accelerator|rule|app", help="; ".join(f"{k}: {s.about}" for k, s in SKELETONS.items()))
    verb_parser.add_argument("name", metavar="NAME", help="its name: lower case letters, digits and _, first a letter")
    verb_parser.add_output("-o", "--output", is_file=False, type=Path, metavar="FOLDER", help="write there (default: the folder NAME)")
    args = parse_arguments(verb_parser, arguments)
    if args.kind not in SKELETONS:
        remedy = did_you_mean(args.kind, SKELETONS) or f"kinds: {', '.join(SKELETONS)}"
        raise UsageError("F203", f'there is no skeleton of kind "{args.kind}"', help=remedy)
    skeleton = SKELETONS[args.kind]
    check_name(args.name, skeleton.names())
    folder = args.output or Path(args.name)
    contents = _contents(skeleton, args.name)
    _write_new(folder, contents)
    commands = [Template(c).substitute(name=args.name) for c in (f"python test_{args.name}.py", *skeleton.commands)]
    document = {"schema": SCHEMA, "kind": args.kind, "name": args.name, "folder": str(folder), "files": [*contents], "next": commands}
    emit_json(document, args.json)
    print_lines(args, [f"wrote      {folder}: {', '.join(contents)}", f"next       cd {folder}, then", *(f"  {c}" for c in commands)])
    return 0


def check_name(name: str, used_names: Sequence[str]) -> None:
    """Check that a skeleton can have a name: a Python module's that nothing else has.

    Raises:
        UsageError: F203, it is no such name, or is in use.
    """
    if not NAME.fullmatch(name):
        form = "must be at most 40 lower case letters, digits and _, the first a letter"
        raise UsageError("F203", f'a name {form}, not "{name}"', help="it becomes the name of a Python file and of what is in it")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise UsageError("F203", f'a name must not be a word of Python, not "{name}"', help=f"my_{name} is free")
    if name in used_names:
        raise UsageError(
            "F203", f'there is one called "{name}" already', help=f"my_{name} is free; `flexmatch list` shows the names in use"
        )
    if name.startswith("test_") or name == "make_model" or name in sys.stdlib_module_names or _is_installed(name):
        raise UsageError("F203", f'a name must not be that of another Python module, not "{name}"', help=f"my_{name} is free")


def _is_installed(name: str) -> bool:
    """Tell whether Python finds a module of this name outside of the working directory, which is no installation."""
    spec = importlib.util.find_spec(name)
    return spec is not None and (spec.origin is None or Path(spec.origin).parent.resolve() != Path.cwd())


def _contents(skeleton: Skeleton, name: str) -> dict[str, bytes]:
    """Return the files of a skeleton by name, with the data that its script writes or the example application has."""
    files: dict[str, bytes] = {}
    for file, template in skeleton.templates.items():
        file_name = Template(file).substitute(name=name)
        text = Template((TEMPLATES / f"{template}.template").read_text("utf-8")).substitute(name=name, test=file_name)
        files[file_name] = (text + (RUNNER if file.startswith("test_") else "")).encode()
    if skeleton.example:
        files |= _example_files(skeleton.example)
    return files | _script_output(Template(skeleton.script).substitute(name=name), files)


def _example_files(name: str) -> dict[str, bytes]:
    """Return the model and data of a shipped application under the names that skeletons use."""
    from ...apps import App, find_application

    app: Any = find_application(name)
    assert isinstance(app, App)
    paths = {"model.onnx": app.model, "test.npz": app.data, "calibration.npz": app.calibration}
    return {file: path.read_bytes() for file, path in paths.items() if path}


def _script_output(script: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what a skeleton's script writes beside itself, by name; nothing without a script.

    Raises:
        FlexmatchError: the script fails, which only an installation that is not complete can make it do (F100).
    """
    if not script:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        for file, data in files.items():
            (Path(folder) / file).write_bytes(data)
        command = [sys.executable, script]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if result.returncode:
            message = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise FlexmatchError("F100", f"{script} cannot write its model: {message}", help="install flexmatch again")
        return {p.name: p.read_bytes() for p in sorted(Path(folder).iterdir()) if p.is_file() and p.name not in files}


def _write_new(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, made if it is not there; refuse (F100) where one of them is there already."""
    for path in (folder / file for file in contents):
        if path.exists() or path.is_symlink():
            raise UsageError("F100", f"{path} is there already, and is not written over", help="choose another name, or -o FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError("F100", f"{folder} cannot be made: {error.strerror}", help="choose another folder with -o") from None
    write_atomically({folder / file: data for file, data in contents.items()})
