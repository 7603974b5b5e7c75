"""The wheel holds every file of the tree under its installed name, and works where there is no checkout."""

from __future__ import annotations

import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from house import CONTENT, ENGINE
from wheels import FOLDERS, build, call

DEPENDENCIES = {"egglog", "numpy", "onnx", "onnxruntime", "lark", "z3-solver", "llvmlite", "highspy", "pillow", "rich"}
IMPORT_ALL = f"import flexmatch, rewrite_compiler, {', '.join(f'{ENGINE}.{name}' for name in CONTENT)}"

pytestmark = pytest.mark.xdist_group("wheel")  # one worker builds and installs it once


def installed_name(name: str) -> str:
    return f"{ENGINE}/{name}" if name.startswith(tuple(f"{folder}/" for folder in CONTENT)) else name


def test_the_wheel_holds_the_tree_and_nothing_else(sources: Path, wheel: Path) -> None:
    files = (path.relative_to(sources).as_posix() for folder in FOLDERS for path in (sources / folder).rglob("*") if path.is_file())
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {installed_name(file) for file in files}


def test_the_wheel_carries_licence_and_type_marker(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{ENGINE}/py.typed" in names
    assert [n for n in names if n.endswith(".dist-info/licenses/LICENSE")]


def test_the_wheel_needs_the_stated_packages_only(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    needed = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    assert {re.split(r"[^\w-]", n)[0] for n in needed if "extra ==" not in n} == DEPENDENCIES


def test_two_builds_give_the_same_bytes(sources: Path, wheel: Path, tmp_path: Path) -> None:
    assert build(sources, tmp_path).read_bytes() == wheel.read_bytes()


def test_everything_imports_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = call(installed / "python", "-c", f"{IMPORT_ALL}; print(rewrite_compiler.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)


CERTIFIED = """
from rewrite_compiler.prove.certificates.shipped_certificates import certificate_of_model, certificate_of_operation, certificate_of_rule
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names
targets = [find_target(name) for name in target_names()]
certificates = [*map(certificate_of_rule, every_rule()), *map(certificate_of_model, targets)]
certificates += [certificate_of_operation(t, name) for t in targets for name in t.mappings]
print(len(certificates), sum(c is None for c in certificates))
"""


def test_the_certificates_of_the_tree_are_those_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    count, lacking = map(int, call(installed / "python", "-c", CERTIFIED, cwd=tmp_path).split())
    assert count > 200
    assert lacking == 0


def test_the_shipped_applications_are_files_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from rewrite_compiler.apps import APPS\n"
        "for app in APPS: print(all(p.is_file() for p in (app.model, app.data, app.calibration) if p is not None))"
    )
    assert set(call(installed / "python", "-c", code, cwd=tmp_path).split()) == {"True"}


def test_the_command_answers_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = call(installed / "flexmatch", "--help", cwd=tmp_path, COLUMNS="100")
    assert "flexmatch MODEL.onnx" in said
    assert len(said.splitlines()) <= 40
