"""Macros: what no summary expresses is written by hand with its reason, and everything around it is generated, tried and proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewrite_compiler.cli.main import main
from rewrite_compiler.cli.verbs.check import lines
from rewrite_compiler.errors import FlexmatchError, SpecError
from rewrite_compiler.lang import assign
from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.sched.driver.generation import Request, program_of
from rewrite_compiler.sched.instructions.macros import planned
from rewrite_compiler.study.checks.check import CheckResult, Kind, check_document
from rewrite_compiler.target import MacroStep, Target, load_target

ACCELERATOR = Path(__file__).parent / "accelerators" / "strides.py"
DECORATOR = "@target.macro("


def changed(folder: Path, right: str, wrong: str) -> Target:
    text = ACCELERATOR.read_text()
    assert text.count(right) == 1
    path = folder / "strides.py"
    path.write_text(text.replace(right, wrong))
    return load_target(str(path))


def blocks(target: Target, t: int, k: int, n: int) -> list[tuple[str, int]]:
    m = target.mappings["dense"]
    formats = m.formats_for(dict.fromkeys(m.format_choices, 3.0))
    return [(b.instruction, b.count) for b in program_of(planned(target), Request(m, {"x": (t, k), "w": (n, k)}, formats, {})).blocks]


def test_a_driver_has_the_commands_of_a_macro_in_place_of_its_steps() -> None:
    """What the engine sets itself stays: the shift is a register of its own."""
    target = load_target(str(ACCELERATOR))
    assert blocks(target, 3, 10, 5) == [
        ("put_x", 9), ("put_w", 15), ("scale", 1), ("set_count", 3), ("set_stride", 9), ("go", 1), ("get", 15),
    ]  # fmt: skip
    assert "multiply" not in target.ila().instructions
    proof = prove_mapping(target.mappings["dense"], target.ila())
    assert str(proof.verdict) == "proved", proof.evidence
    assert "symbolic at t=1, k=4, n=3 (21 instructions), random codes at 2 sizes" in proof.strength


def test_without_its_macro_the_model_has_no_driver(tmp_path: Path) -> None:
    target = changed(tmp_path, "@target.macro(reason", "@(lambda **declared: lambda f: f)(reason")
    with pytest.raises(SpecError) as refusal:
        blocks(target, 3, 10, 5)
    assert refusal.value.problem.sentence == (
        "No driver of strides.dense follows from strides at t=3, n=5, k=10: "
        "elements of count, stride decide what go does, and nothing sets those: a macro may"
    )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "((x_row, 0, x_vector), (0, w_column, w_vector), (y_row, y_column))",
            "((x_row, 0, x_vector), (0, w_vector, w_column), (y_row, 1))",
        ),
        ("(rows, columns, vectors), ((x_row", "(columns, rows, vectors), ((x_row"),
        ('"value": f[name]}', '"value": 1}'),
        ('"set_stride", {"index": n', '"set_stride", {"index": 8 - n'),
        ('        yield "go", {}\n', ""),
        ("strides = [[stride[a, n] for", "strides = [[stride[n, a] for"),
    ],
)
def test_a_macro_that_says_what_its_commands_do_not_do_is_refused(right: str, wrong: str, tmp_path: Path) -> None:
    """In its effect, in its commands, or in the model below it: the codes of the trials are others."""
    with pytest.raises(SpecError) as refusal:
        blocks(changed(tmp_path, right, wrong), 3, 10, 5)
    assert refusal.value.problem.code == "I116"


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ('yield "go", {}', 'yield "gone", {}', 'The macro configured_loops yields "gone", which strides does not have'),
        (
            'yield "go", {}',
            'yield "go"',
            "The macro configured_loops must return pairs of an instruction and its fields, not 'go' among them",
        ),
        ('"multiply": MacroStep', '"go": MacroStep', 'A step of configured_loops is called "go", as an instruction is'),
    ],
)
def test_mistakes_in_a_macro_are_told_at_its_line(right: str, wrong: str, sentence: str, tmp_path: Path) -> None:
    target = changed(tmp_path, right, wrong)
    with pytest.raises(SpecError) as refusal:
        blocks(target, 3, 10, 5)
    assert refusal.value.problem.sentence == sentence
    line = ACCELERATOR.read_text().splitlines().index(next(x for x in ACCELERATOR.read_text().splitlines() if x.startswith(DECORATOR))) + 1
    assert str(refusal.value.problem.place).startswith(f"{tmp_path / 'strides.py'}:")
    assert int(str(refusal.value.problem.place).rpartition(":")[2]) >= line


def declaring(name: str, reason: str = "loops are stored", steps: tuple[str, ...] = ()) -> Callable[[Target], Any]:
    def f(p: Any, steps: Any) -> Any:
        yield from ()

    f.__name__ = name
    step = MacroStep(lambda m: assign(m.s.y, 0, 0), {})
    return lambda target: target.macro(reason=reason, steps=dict.fromkeys(steps or (f"{name}_step",), step))(f)


@pytest.mark.parametrize(
    ("before", "last", "sentence"),
    [
        ((), declaring("one", " "), 'The macro "one" of strides must give its reason'),
        (
            (declaring("one"), declaring("two")), declaring("three"),
            "strides may have at most 3 macros, not three beside configured_loops, one, two",
        ),
        ((), declaring("one", steps=("multiply",)), 'strides already has a macro, or a step of one, "multiply"'),
    ],
)  # fmt: skip
def test_macros_have_reasons_and_are_few(before: tuple[Any, ...], last: Callable[[Target], Any], sentence: str) -> None:
    target = load_target(str(ACCELERATOR))
    held = dict(target.macros)
    try:
        for declare in before:
            declare(target)
        with pytest.raises(FlexmatchError) as refusal:
            last(target)
    finally:
        target.macros.clear()
        target.macros.update(held)
    assert refusal.value.problem.sentence == sentence


def test_macros_are_shown_with_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "counts and strides lie in arrays of registers"
    assert main(["show", "target", str(ACCELERATOR)]) == 0
    assert f"macro configured_loops  multiply: {reason}" in capsys.readouterr().out
    target = load_target(str(ACCELERATOR))
    document = check_document(CheckResult("strides", Kind.TARGET, (), macros=tuple(target.macros.values())))
    assert f"macro     configured_loops: {reason}" in lines(document, verbose=False)
