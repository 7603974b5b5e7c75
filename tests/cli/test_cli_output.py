"""What is printed where: quiet, JSON alone on standard output, every locale, nobody listening, nothing open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import FLEXMATCH, flexmatch, process

from rewrite_compiler.cli.main import main

EVERY = [
    ("app.onnx", "--accel", "flexasr", "-o", "plan"),
    ("cosim", "ready.json", "--data", "test.npz", "--samples", "4"),
    ("explain", "F101"),
    ("explain", "ready.json", "gemm0"),
    ("list",),
    ("prove", "--only", "add-zero-bias"),
    ("show", "ready.json"),
    ("show", "config"),
    ("show", "target", "vta"),
    ("schema", "list"),
    ("completion", "bash"),
]
NARROW = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
def test_quiet_prints_nothing_and_json_alone(arguments: tuple[str, ...], folder: Path) -> None:
    quiet = flexmatch(*arguments, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    answer = flexmatch(*arguments, "--json", "-", "-v")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert document["schema"].startswith("flexmatch.")
    assert answer.out.endswith("}\n")
    flexmatch(*arguments, "--json", "document.json", "-q")
    again = json.loads(Path("document.json").read_text("utf-8"))
    assert list(again) == list(document)


@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
def test_lines_are_at_most_100_columns(arguments: tuple[str, ...], folder: Path) -> None:
    for more in ((), ("-v",)):
        answer = flexmatch(*arguments, *more)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out
        assert arguments[0] == "completion" or max(map(len, answer.out.splitlines())) <= 100
        assert "\x1b" not in answer.out


def test_a_terminal_without_unicode(folder: Path) -> None:
    run = process("app.onnx", "--accel", "flexasr", env=NARROW)
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.splitlines()[0] == b"app.onnx  3 ops - opset 17"
    run = process("explain", "ready.json", "gemm0", "--json", "-", env=NARROW)
    assert json.loads(run.stdout.decode("utf-8"))["schema"] == "flexmatch.explain/1"
    assert not run.stdout.isascii()
    run = process("näh.onnx", "--accel", "flexasr", env=NARROW)
    assert (run.returncode, run.stdout) == (2, b"")
    assert b"error[F101]" in run.stderr
    assert b"Traceback" not in run.stderr
    for arguments in (("--help",), ("compile", "--help"), ("cosim", "--help")):
        run = process(*arguments, env=NARROW)
        assert (run.returncode, run.stderr) == (0, b"")
        assert run.stdout.isascii()


def test_no_colour_changes_nothing(folder: Path) -> None:
    first, second = (process("explain", "F101", env=env).stdout for env in ({"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}))
    assert first == second


@pytest.mark.parametrize("arguments", [("completion", "bash"), ("schema", "plan", "--json", "-"), ("--help",)], ids=" ".join)
def test_nobody_reads_standard_output(arguments: tuple[str, ...]) -> None:
    with subprocess.Popen([*FLEXMATCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert (run.stderr.read(), run.wait()) == (b"", 0)


def test_closed_streams() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&-"):
        command = ["sh", "-c", f'"$0" -m rewrite_compiler.cli.main explain F101 {closed}', sys.executable]
        run = subprocess.run(command, capture_output=True, check=False)
        assert (run.returncode, run.stderr) == (0, b"")
    command = ["sh", "-c", '"$0" -m rewrite_compiler.cli.main explain --bogus >&- 2>&-', sys.executable]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_a_file_named_in_an_error_cannot_steer_the_terminal(folder: Path) -> None:
    answer = flexmatch("a\x1b[31m\nb.onnx", "--accel", "flexasr")
    assert answer.code == 2
    assert "\x1b" not in answer.err
    assert "\\x1b[31m" in answer.err


def test_an_internal_error_says_so_without_a_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("rewrite_compiler.cli.verbs.list.listing", fails)
    answer = flexmatch("list")
    remedy = "this is a bug of flexmatch; run again with --debug and report what it prints"
    assert (answer.code, answer.out) == (5, "")
    assert answer.err == f"error[X100]: internal error: ZeroDivisionError: division by zero\n  help: {remedy}\n"
    with pytest.raises(ZeroDivisionError):
        main(["list", "--debug"])


def test_a_machine_without_memory_is_no_internal_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise MemoryError

    monkeypatch.setattr("rewrite_compiler.cli.verbs.list.listing", fails)
    answer = flexmatch("list")
    remedy = "free memory, raise the limit of the process, or give a smaller --batch"
    assert (answer.code, answer.out) == (4, "")
    assert answer.err == f"error[X101]: there is not enough memory for this command\n  help: {remedy}\n"


def test_help_is_short_and_names_every_verb() -> None:
    from rewrite_compiler.cli.verb_table import VERBS

    overview = flexmatch("--help")
    assert overview.code == 0
    assert all(f"  {verb} " in overview.out for verb in VERBS)
    assert flexmatch().out == overview.out
    for verb in VERBS:
        answer = flexmatch(verb, "--help")
        assert (answer.code, answer.err) == (0, "")
        assert len(answer.out.splitlines()) <= 40
        every = flexmatch(verb, "--help-all")
        assert (every.code, every.err) == (0, "")
        assert ("--help-all lists" in answer.out) is (len(every.out) > len(answer.out))
        assert answer.out.startswith(f"usage: flexmatch {verb} ")
    assert flexmatch("--version").out.startswith("flexmatch 0.")


def test_demo_writes_its_report_and_says_what_to_do_next(folder: Path) -> None:
    answer = flexmatch("demo", "digits_mlp", "--samples", "8")
    assert (answer.code, answer.new) == (0, ("digits_mlp.html",))
    *_, wrote, following = answer.out.splitlines()
    assert wrote.startswith("wrote      digits_mlp.html: ")
    assert following.startswith("next       your own model: flexmatch MODEL.onnx --accel NAME")
    assert Path("digits_mlp.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert flexmatch("demo", "digits_mlp", "--samples", "8", "-q", "-o", "m.onnx").new == ("m.onnx",)
    assert flexmatch("demo", "digits_mlp", "--samples", "8", "--html", "my.html").new == ("my.html",)


def test_the_module_is_the_command() -> None:
    """As `python -m pip`: with the Python that is named, wherever scripts are."""
    ran = subprocess.run([sys.executable, "-m", "flexmatch", "explain", "F101"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == flexmatch("explain", "F101").out
