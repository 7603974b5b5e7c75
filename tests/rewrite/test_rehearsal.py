"""Files that a user names are imported within limits; whatever they do, one sentence tells where."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rewrite_compiler.errors import BudgetError, FlexmatchError
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.user_file import module_at

LIMITS = replace(DEFAULT, import_seconds=1, import_bytes=1 << 28)
STUBBORN = """x = 1
while True:
    try:
        while True:
            x += 1
    except BaseException:
        pass
"""
SECONDS = "the target file must be imported within 1 seconds"
ENDED = "importing the target file ended the process with"
CASES = {
    "catches_everything": (STUBBORN, (4, 5), SECONDS),
    "never_leaves_c": ("x = 3\ny = pow(3, 10**9)\n", (2,), SECONDS),
    "waits_in_a_function": ("def wait():\n    import time\n    time.sleep(100)\n\n\nwait()\n", (3,), SECONDS),
    "needs_memory": ("x = 3\ny = bytearray(1 << 32)\n", (2,), "the target file must be imported within 268435456 bytes"),
    "falls": ("import os\nos.kill(os.getpid(), 11)\n", (), f"{ENDED} signal SIGSEGV"),
    "leaves": ("import os\nos._exit(0)\n", (), f"{ENDED} code 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_does_not_end_its_import(name: str, tmp_path: Path) -> None:
    text, lines, sentence = CASES[name]
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    with pytest.raises(BudgetError) as refused:
        module_at(path, "target", "F201", LIMITS)
    problem = refused.value.problem
    assert (problem.code, problem.sentence, refused.value.exit_code) == ("R107", sentence, 4)
    assert problem.place in ([f"{path}:{n}" for n in lines] or [str(path)])


def test_a_file_is_imported_with_its_effects_on_this_process(tmp_path: Path) -> None:
    path = tmp_path / "fine.py"
    path.write_text("FOUND = [1, 2]\nprint('said once')\n")
    assert module_at(path, "target", "F201", LIMITS).FOUND == [1, 2]


def test_a_setting_that_a_rule_does_not_have_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from rewrite_compiler import ops as o, rule\n\n\n@rule(grade='Q')\ndef twice(x):\n    return o.relu(o.relu(x)), o.relu(x)\n"
    )
    with pytest.raises(FlexmatchError) as refusal:
        module_at(path, "rule", "F101", LIMITS)
    assert refusal.value.problem.sentence == 'grade must be one of E, Z, A, F, not "Q"'
    assert (refusal.value.problem.place or "").endswith("mine.py:4")


def test_a_file_that_is_edited_within_a_second_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for value in ("1", "2"):
        path.write_text(f"value = {value}\n", "utf-8")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert module_at(path, "target", "R100").value == int(value)
    assert not (tmp_path / "__pycache__").exists()


NESTED = """from pathlib import Path

from rewrite_compiler.rewrite.user_file import module_at

VALUE = module_at(Path(__file__).with_name("inner.py"), "target", "F201").VALUE
"""


@pytest.mark.parametrize("seconds", [1, 10])
def test_a_file_that_imports_another_one_has_one_rehearsal(seconds: int, tmp_path: Path) -> None:
    """Its own: what the other one takes counts in it, and a watchdog in a child of its child would wait for the first one's."""
    (tmp_path / "outer.py").write_text(NESTED)
    (tmp_path / "inner.py").write_text("import time\n\ntime.sleep(1.5)\nVALUE = 5\n")
    if seconds > 1:
        assert module_at(tmp_path / "outer.py", "target", "F201", replace(LIMITS, import_seconds=seconds)).VALUE == 5
        return
    with pytest.raises(BudgetError) as refused:
        module_at(tmp_path / "outer.py", "target", "F201", LIMITS)
    assert (refused.value.problem.sentence, refused.value.problem.place) == (SECONDS, f"{tmp_path / 'outer.py'}:5")
