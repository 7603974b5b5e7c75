"""Wrong verbs, options, accelerators, shapes and limits: exit code 2 and one sentence with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import flexmatch, refused

from rewrite_compiler.apps import APPS, GALLERY
from rewrite_compiler.cli.verb_table import VERBS

FORM = "\n  help: write flexmatch compile MODEL.onnx [OPTION …]"
MODEL = "\n  help: MODEL.onnx: its file, or an application of `flexmatch list` by name"
LISTED = "\n  help: flexmatch compile --help lists the options"
REQUIRED = "\n  help: --require-offload N: fail unless at least N offloads are found"
SHAPE = "--shape must be NAME=1,3,32,32 with positive sizes, not"
BIND = "\n  help: bind it with --shape NAME=1,3,224,224"
ACCEL = "\n  help: add --accel NAME; `flexmatch list` shows the names"
NAMES = "\n  help: `flexmatch list` shows the names"
APP = ("app.onnx", "--accel", "flexasr")

WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no accelerator": (("app.onnx",), f"error[F201]: no accelerator is given{ACCEL}"),
    "empty accelerator": (("app.onnx", "--accel", ""), f"error[F201]: no accelerator is given{ACCEL}"),
    "accelerator without value": (("app.onnx", "--accel"), "error[F203]: --accel needs a value"
        "\n  help: --accel NAME[:key=value,…]: accelerator by name or path; repeat for several"),
    "missing target file": (
        ("app.onnx", "--accel", "./mine.py"),
        "error[F201]: there is no target file mine.py\n  help: give the path of a Python file that defines a Target",
    ),
    "twice the same": (
        ("app.onnx", "--accel", "flexasr,flexasr"),
        'error[F202]: two targets are called "flexasr"\n  help: give each accelerator once',
    ),
    "no name between two commas": (
        ("app.onnx", "--accel", "flexasr,, vta"),
        'error[F203]: a name is missing in --accel "flexasr,, vta"\n  help: write flexasr,vta',
    ),
    "a comma alone": (("app.onnx", "--accel", ","), 'error[F203]: a name is missing in --accel ","\n  help: write one name'),
    "a space behind the comma": (
        ("app.onnx", "--accel", "flexasr, flexasr"),
        'error[F202]: two targets are called "flexasr"\n  help: give each accelerator once',
    ),
    "unknown parameter": (
        ("app.onnx", "--accel", "flexasr:speed=1"),
        'error[F203]: flexasr has no parameter "speed"\n  help: parameters: behaviour, sigmoid',
    ),
    "unknown value": (
        ("app.onnx", "--accel", "flexasr:sigmoid=9"),
        'error[F203]: parameter sigmoid of flexasr must be one of 3.2, 3.4, not "9"\n  help: leave it out for 3.2',
    ),
    "parameter without value": (
        ("app.onnx", "--accel", "flexasr:sigmoid"),
        'error[F203]: a parameter of flexasr is written key=value, not "sigmoid"\n  help: parameters: behaviour, sigmoid',
    ),
    "no model": (("--accel", "flexasr"), f"error[F203]: MODEL.onnx is missing{MODEL}"),
    "nothing at all": (("compile",), f"error[F203]: MODEL.onnx is missing{MODEL}"),
    "unknown flag": ((*APP, "--bogus"), f'error[F203]: there is no option "--bogus"{LISTED}'),
    "misspelt flag": (
        ("app.onnx", "--acel", "flexasr"),
        'error[F203]: there is no option "--acel"\n  help: did you mean "--accel"?',
    ),
    "abbreviated flag": ((*APP, "--requ", "1"), f'error[F203]: there is no option "--requ"{LISTED}'),
    "flag with a value": ((*APP, "--exact=yes"), 'error[F203]: --exact takes no value, not "yes"'
        '\n  help: --exact: match the program as written, no rewriting'),
    "one argument too many": ((*APP, "other.onnx"), f'error[F203]: "other.onnx" is one argument too many{FORM}'),
    "no number": ((*APP, "--require-offload", "x"), f'error[F203]: --require-offload must be a whole number from 0 on, not "x"{REQUIRED}'),
    "negative number": (
        (*APP, "--require-offload=-1"),
        f'error[F203]: --require-offload must be a whole number from 0 on, not "-1"{REQUIRED}',
    ),
    "unknown mapping": ((*APP, "--only", "bogus"), f'error[F203]: there is no mapping or rule called "bogus"{NAMES}'),
    "unknown rule": ((*APP, "--without", "bogus"), f'error[F203]: there is no mapping or rule called "bogus"{NAMES}'),
    "limit that is no number": (
        (*APP, "--limits", "rounds=x"),
        'error[F203]: limit rounds must be a positive integer, not "x"\n  help: --limits KEY=VALUE: change a limit',
    ),
    "unknown verb": (
        ("compil", "app.onnx"),
        'error[F203]: there is no verb "compil"\n  help: did you mean "compile"? verbs: '
        f"{', '.join(VERBS)}; or give a model",
    ),
    "unknown application": (
        ("demo", "nope"),
        'error[F203]: there is no application called "nope"\n  help: known applications: ' + ", ".join(a.name for a in (*APPS, *GALLERY)),
    ),
    "unknown rule to prove": (("prove", "--only", "nope"), f'error[F203]: there is no rule called "nope"{NAMES}'),
    "list of nothing": (
        ("list", "rulez"),
        'error[F203]: there is nothing called "rulez" to list\n  help: did you mean "rules"?',
    ),
    "nothing to explain": (("explain",), "error[F203]: CODE|MODEL|PLAN|MAP is missing"
        "\n  help: CODE|MODEL|PLAN|MAP: an error code, an application of `flexmatch list`, or a file: a model, a plan, what map wrote"),
    "no file to explain": (
        ("explain", "plan.json"),
        "plan.json: error[F101]: there is no such file\n  help: give a plan or a model, or an error code",
    ),
    "unknown code": (
        ("explain", "X999"),
        'error[F203]: there is no error code "X999"\n  help: codes: X100, X101; for a node give MODEL NODE',
    ),
    "misspelt code": (
        ("explain", "X10O"),
        'error[F203]: there is no error code "X10O"\n  help: did you mean "X100"? codes: X100, X101; for a node give MODEL NODE',
    ),
    "misspelt option without a model": (
        ("--versoin",),
        'error[F203]: there is no option "--versoin"\n  help: did you mean "--version"?',
    ),
    "model without accelerator": (
        ("explain", "app.onnx"),
        "error[F201]: no accelerator is given\n  help: add --accel NAME; `flexmatch list` shows the names",
    ),
    "unknown node": (
        ("explain", "app.onnx", "gemm9", "--accel", "flexasr"),
        'error[F203]: the model has no node, operator or tensor called "gemm9"\n'
        '  help: did you mean "gemm0"? nodes: linear_0, linear_1, gemm0, relu0, gemm1',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command(name: str, folder: Path) -> None:
    arguments, said = WRONG[name]
    refused(flexmatch(*arguments), 2, said)


@pytest.mark.parametrize("text", ["x", "x=", "=3", "x=0", "x=-1", "x=1,a", "x=1,,2", "x=1²", "x=9999999999999999999999"])
def test_a_shape_that_is_none(text: str, folder: Path) -> None:
    refused(flexmatch(*APP, "--shape", text), 2, f'error[F160]: {SHAPE} "{text}"{BIND}')


def test_shapes_for_other_inputs_or_against_the_declared_ones(folder: Path) -> None:
    said = 'app.onnx: error[F203]: the model has no input called "image"\n  help: its inputs are "x"'
    refused(flexmatch(*APP, "--shape", "image=1,16"), 2, said)
    answer = flexmatch(*APP, "--shape", "x=2,17")
    assert (answer.code, answer.out, answer.new) == (2, "", ())
    sentence = 'The shape of input "x" given by --shape must agree with the declared [1, 16], not be [2, 17]'
    assert answer.err.startswith(f"app.onnx: error[F134]: {sentence}\n  help: ")


@pytest.mark.parametrize(
    ("name", "guess"),
    [("flexsar", 'did you mean "flexasr"? '), ("flexas", 'did you mean "flexasr"? '), ("hlscn", 'did you mean "hlscnn"? '), ("tpu", "")],
)
def test_an_unknown_accelerator_and_what_was_meant(name: str, guess: str, folder: Path) -> None:
    for verb in ((), ("cosim",)):
        answer = flexmatch(*verb, "app.onnx", "--accel", name, *(("--data", "test.npz") if verb else ()))
        assert (answer.code, answer.out, answer.new) == (2, "", ())
        assert answer.err.startswith(
            f'error[F201]: there is no accelerator called "{name}"\n  help: {guess}known: flexasr, genesys, hlscnn'
        )
        assert answer.err.endswith(" (or give a path ending in .py)\n")


def test_an_unknown_limit_lists_the_known_ones(folder: Path) -> None:
    answer = flexmatch(*APP, "--limits", "depth=1")
    assert answer.code == 2
    known = "known limits: alternatives_seconds, data_bytes, data_pixels, data_seconds, e_nodes, "
    assert answer.err.startswith(f'error[F203]: there is no limit called "depth"\n  help: {known}')


def test_a_limit_beyond_every_clock_is_no_limit(folder: Path) -> None:
    assert flexmatch(*APP, "-q", "--limits", "saturation_seconds=999999999999999999").err == ""


def test_fewer_offloads_than_required_is_a_no_with_the_plan(folder: Path) -> None:
    answer = flexmatch(*APP, "-q", "-o", "plan", "--require-offload", "9")
    remedy = "\n  help: ask flexmatch explain MODEL NODE why a node was not sent\n"
    assert (answer.code, answer.new) == (1, ("plan.json", "plan.onnx"))
    assert answer.err == f"app.onnx: error[F213]: Offloads must be at least 9, not 2{remedy}"


TARGETS = {
    "syntax": ("x = 1\ndef (\n", "mine.py:2: error[R100]: the target file cannot be imported: SyntaxError: "),
    "exception": ("x = 1\n\nx / 0\n", "mine.py:3: error[R100]: the target file cannot be imported: ZeroDivisionError: division by zero"),
    "no target": ("x = 1\n", "mine.py: error[F201]: ./mine.py must define exactly one Target, not 0"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_file_that_cannot_be_used(name: str, folder: Path) -> None:
    text, said = TARGETS[name]
    Path("mine.py").write_text(text, "utf-8")
    answer = flexmatch("app.onnx", "--accel", "./mine.py")
    assert answer.code == (2 if name == "no target" else 3)
    assert answer.err.replace(f"{folder}/", "").startswith(said)
    assert "Traceback" not in answer.err
    assert answer.err.count("\n  help: ") == 1
