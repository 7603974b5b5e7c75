"""Finding targets: by name, by path, by entry point; parameters; every wrong name is one sentence."""

from __future__ import annotations

import os
import py_compile
import shutil
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila import Ila
from rewrite_compiler.target import Target, discovery, find_target, load_target, target_names

FILE = '''"""A target of its own."""
from rewrite_compiler.target import Target

mine = Target("mine", lambda size: None, {"size": ("1", "2")})
'''


def refused(text: str) -> tuple[str, str, str]:
    with pytest.raises(FlexmatchError) as caught:
        find_target(text)
    problem = caught.value.problem
    return problem.code, problem.sentence, problem.help


def listed() -> str:
    return f"known: {', '.join(target_names())} (or give a path ending in .py)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_shipped_targets_are_found_by_name() -> None:
    assert "flexasr" in target_names()
    assert target_names() == sorted(target_names())
    for name in target_names():
        found = load_target(name)
        assert found.name == name
        assert isinstance(found.ila(), Ila)
        assert found.doc
        assert all(path.is_file() for path in found.sources)


@pytest.mark.parametrize("name", ["flexars", "flexsar", "flexas", "flexasrr", "fexars"])
def test_a_close_name_is_suggested(name: str) -> None:
    assert refused(name) == ("F201", f'there is no accelerator called "{name}"', f'did you mean "flexasr"? {listed()}')


@pytest.mark.parametrize("name", ["tpu", "", "flexible"])
def test_a_distant_name_is_not(name: str) -> None:
    assert refused(name) == ("F201", f'there is no accelerator called "{name}"', listed())


def test_parameters_have_defaults_and_can_be_chosen() -> None:
    plain, chosen = find_target("flexasr"), find_target("flexasr:sigmoid=3.4,behaviour=published_ila")
    assert plain.values == {"behaviour": "hardware", "sigmoid": "3.2"}
    assert chosen.values == {"behaviour": "published_ila", "sigmoid": "3.4"}
    assert plain.sha256 == find_target("flexasr:sigmoid=3.2").sha256 != chosen.sha256


@pytest.mark.parametrize(
    ("text", "sentence", "help_"),
    [
        ("flexasr:colour=red", 'flexasr has no parameter "colour"', "parameters: behaviour, sigmoid"),
        ("flexasr:sigmoid=9", 'parameter sigmoid of flexasr must be one of 3.2, 3.4, not "9"', "leave it out for 3.2"),
        ("flexasr:sigmoid", 'a parameter of flexasr is written key=value, not "sigmoid"', "parameters: behaviour, sigmoid"),
    ],
)
def test_wrong_parameters_are_refused(text: str, sentence: str, help_: str) -> None:
    assert refused(text) == ("F203", sentence, help_)


def test_a_target_without_parameters_says_so() -> None:
    with pytest.raises(FlexmatchError) as caught:
        Target("plain", lambda: None).configured({"a": "b"})  # type: ignore[arg-type,return-value]
    assert caught.value.problem.help == "parameters: none"


def test_a_target_is_found_by_path(file: Path) -> None:
    found = find_target(f"{file}:size=2")
    assert (found.name, found.values) == ("mine", {"size": "2"})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    assert refused(str(path)) == ("F201", f"there is no target file {path}", "give the path of a Python file that defines a Target")


def test_a_folder_or_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    remedy = f"give a file of it: {tmp_path}/__init__.py is the target, and may import the others"
    assert refused(f"{tmp_path}/") == ("F201", f"{tmp_path} is a folder", remedy)
    (tmp_path / "target.txt").write_text("")
    assert refused(f"{tmp_path}/target.txt") == ("F201", f"{tmp_path}/target.txt is not a Python file", "a target file ends in .py")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Write a target of three files, one of them in a folder of its own."""
    folder = tmp_path / "my.unit"
    (folder / "parts").mkdir(parents=True)
    texts = {
        "__init__.py": FILE.replace("from rewrite_compiler", "from .sizes import LARGE\nfrom rewrite_compiler").replace('"1"', "LARGE"),
        "sizes.py": "from .parts.width import WIDTH\n\nLARGE = str(WIDTH)\n",
        "parts/width.py": "WIDTH = 16\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder / "__init__.py"


def test_a_folder_is_one_target(package: Path, tmp_path: Path) -> None:
    """What its files say counts, as they are now, though byte code of another text lies beside them."""
    found, width = load_target(str(package)), package.parent / "parts" / "width.py"
    assert found.parameters == {"size": ("16", "2")}
    assert {path.name for path in found.sources} == {"__init__.py", "sizes.py", "width.py"}
    compiled, before = Path(cache_from_source(str(width))), width.stat()
    assert not compiled.exists()
    py_compile.compile(str(width), str(compiled))
    width.write_text("WIDTH = 32\n")
    os.utime(width, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = load_target(str(package))
    assert changed.parameters == {"size": ("32", "2")}
    assert changed.sha256 != found.sha256
    same_name = tmp_path / "elsewhere" / "my.unit"
    shutil.copytree(package.parent, same_name)
    (same_name / "parts" / "width.py").write_text("WIDTH = 64\n")
    assert load_target(str(same_name / "__init__.py")).parameters == {"size": ("64", "2")}


@pytest.mark.parametrize(
    ("file", "text", "cause"),
    [
        ("parts/width.py", "WIDTH = 1 // 0\n", "ZeroDivisionError: integer division or modulo by zero"),
        ("sizes.py", "\nfrom .nowhere import X\n", "ModuleNotFoundError: No module named '.*nowhere'"),
        ("parts/width.py", "WIDTH = = 1\n", r"SyntaxError: invalid syntax(?! \()"),
    ],
)
def test_an_exception_in_a_file_of_a_folder_names_its_line(package: Path, file: str, text: str, cause: str) -> None:
    (package.parent / file).write_text(text)
    with pytest.raises(FlexmatchError, match=f"the target file cannot be imported: {cause}") as caught:
        find_target(str(package))
    assert caught.value.problem.place == f"{package.parent / file}:{text.count(chr(10))}"


@pytest.mark.parametrize("statement", ["from .sizes import LARGE", "import sizes"])
def test_a_file_that_imports_one_beside_it_is_told_what_to_give(package: Path, statement: str) -> None:
    path = package.with_name("unit.py")
    path.write_text(f"{statement}\n")
    with pytest.raises(FlexmatchError) as caught:
        find_target(str(path))
    assert caught.value.problem.help == f"give {package}, and let the files of that folder import each other by `from .name import …`"


@pytest.mark.parametrize(("text", "count"), [("", 0), (FILE + 'other = Target("other", None)\n', 2)])
def test_a_file_defines_exactly_one_target(file: Path, text: str, count: int) -> None:
    file.write_text(text)
    with pytest.raises(FlexmatchError) as caught:
        find_target(str(file))
    assert caught.value.problem.sentence == f"{file} must define exactly one Target, not {count}"
    assert caught.value.problem.place == str(file)


@pytest.mark.parametrize(
    ("text", "cause", "line"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero", 2),
        ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'", 1),
    ],
)
def test_an_exception_at_import_names_the_users_line(file: Path, text: str, cause: str, line: int) -> None:
    file.write_text(text)
    with pytest.raises(FlexmatchError) as caught:
        find_target(str(file))
    problem = caught.value.problem
    assert (problem.code, problem.sentence) == ("R100", f"the target file cannot be imported: {cause}")
    assert problem.place == f"{file}:{line}"


class Entry:
    """An entry point."""

    name = "installed"

    def __init__(self, found: Any) -> None:
        self.found = found

    def load(self) -> Any:
        return self.found


@pytest.mark.parametrize("as_module", [False, True])
def test_installed_targets_are_found_by_entry_point(as_module: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Target("installed", lambda: None)  # type: ignore[arg-type,return-value]
    found: Any = made
    if as_module:
        found = ModuleType("installed_module")
        found.target = made
    monkeypatch.setattr(discovery, "installed_entries", lambda group: [Entry(found)] if group == "rewrite_compiler.targets" else [])
    assert "installed" in target_names()
    assert load_target("installed") is made
    assert refused("instaled")[2] == f'did you mean "installed"? {listed()}'
