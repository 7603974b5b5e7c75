"""Files that are no model, and places that cannot be written: exit code, whole answer, nothing left behind."""

from __future__ import annotations

import errno
import gzip
import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch, onnx_model, perceptron, process, refused
from onnx import helper, numpy_helper

from rewrite_compiler.cli.files import write_atomically
from rewrite_compiler.cli.options import DESCRIBE, ParserRequest
from rewrite_compiler.cli.verb_table import VERBS
from rewrite_compiler.cli.verbs.show import PARTS
from rewrite_compiler.errors import UsageError

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n"
MODELS: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "empty": (lambda model: b"", 3, "error[F102]: the file is empty\n  help: export the model again"),
    "truncated": (
        lambda model: model[:400],
        3,
        "error[F103]: not an ONNX model: ends inside field 7 (graph) at byte 400\n"
        "  help: export or download it again; the sentence says at which byte it breaks",
    ),
    "text": (
        lambda model: b"hello world what",
        3,
        "error[F103]: not an ONNX model: field 13 (of model) is malformed at byte 2\n"
        "  help: export or download it again; the sentence says at which byte it breaks",
    ),
    "gzip": (gzip.compress, 3, "error[F104]: this is not an ONNX model but gzip\n  help: unpack it and give the .onnx file inside"),
    "json": (lambda model: b'{"a": 1}', 3, "error[F104]: this is not an ONNX model but JSON text\n  help: give the .onnx file"),
    "html": (
        lambda model: b"<!DOCTYPE html><html></html>",
        3,
        "error[F104]: this is not an ONNX model but an HTML page\n  help: the download failed; fetch the file itself",
    ),
    "lfs": (lambda model: LFS, 3, "error[F104]: this is not an ONNX model but a Git LFS pointer\n  help: run git lfs pull"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_that_is_no_model(name: str, folder: Path) -> None:
    make, code, said = MODELS[name]
    Path("bad.onnx").write_bytes(make(Path("app.onnx").read_bytes()))
    refused(flexmatch("bad.onnx", "--accel", "flexasr"), code, f"bad.onnx: {said}")
    refused(flexmatch("cosim", "bad.onnx", "--accel", "flexasr", "--data", "test.npz"), code, f"bad.onnx: {said}")


@pytest.mark.parametrize("verb", [(), ("compile",)])
def test_a_missing_model_and_a_folder(verb: tuple[str, ...], folder: Path) -> None:
    missing = "none.onnx: error[F101]: there is no such file\n  help: check the path"
    refused(flexmatch(*verb, "none.onnx", "--accel", "flexasr"), 2, missing)
    Path("models").mkdir()
    is_folder = "models: error[F100]: a model must be a file, not a directory\n  help: name the .onnx file in it"
    refused(flexmatch(*verb, "models", "--accel", "flexasr"), 2, is_folder)


@pytest.mark.parametrize("verb", ["cosim", "explain"])
def test_a_missing_plan(verb: str, folder: Path) -> None:
    more = ["--data", "test.npz"] if verb == "cosim" else ["gemm0"]
    for name in ("none.json", "none.onnx", "none"):
        said = f"{name}: error[F101]: there is no such file\n  help: give a plan or a model"
        refused(flexmatch(verb, name, *more, "--accel", "flexasr"), 2, said)


def test_a_model_without_shapes(folder: Path) -> None:
    onnx.save(perceptron((16, 8, 4), batch="rows"), "open.onnx")
    assert flexmatch("open.onnx", "--accel", "flexasr", "-q").code == 0  # one open dimension 0 is set to 1
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    onnx.save(onnx_model([node], {"a": ["m", "k"], "b": ["k", "n"]}, ["y"]), "open.onnx")
    answer = flexmatch("open.onnx", "--accel", "flexasr")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith("open.onnx: error[F160]: ")
    remedy = answer.err.rpartition("help: ")[2]
    options = [part for part in remedy.replace(",…", "").split() if "=" in part]
    assert options, answer.err
    assert flexmatch("open.onnx", "--accel", "flexasr", "-q", "--shape", "a=2,3", "--shape", "b=3,4").code == 0


def test_a_node_with_wrong_attributes(folder: Path) -> None:
    w = numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="first", group=3)
    onnx.save(onnx_model([node], {"x": [1, 3, 8, 8]}, ["y"], [w]), "bad.onnx")
    answer = flexmatch("bad.onnx", "--accel", "flexasr")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith('bad.onnx:node "first": error[F131]: ')
    assert answer.err.count("\n") == 2
    node = helper.make_node("Softmax", ["x"], ["y"], name="last", axis="one")
    onnx.save(onnx_model([node], {"x": [1, 3]}, ["y"]), "bad.onnx")
    answer = flexmatch("bad.onnx", "--accel", "flexasr")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith('bad.onnx:node "last": error[F130]: ')


MODEL_AS_OUTPUT = (
    "app.onnx cannot be written: it is an input of this command; a plan is two files, app.json and app.onnx\n  help: choose another name"
)
NOT_WRITTEN = {
    "no such folder": ("no/such", "no/such cannot be written: there is no folder no\n  help: mkdir -p no makes it"),
    "a folder": ("sub", "sub cannot be written: there is a folder of this name\n  help: give a file in it, such as sub/out"),
    "nothing": ("", ". cannot be written: this is not the name of a file\n  help: give the name of a file, such as out.json"),
    "the model": ("app", MODEL_AS_OUTPUT),
    "the model by its name": ("app.onnx", MODEL_AS_OUTPUT),
    "beside the model": ("app.json", MODEL_AS_OUTPUT),
    "the name of a folder": (
        "taken",
        "taken.json cannot be written: there is a folder of this name\n  help: give a file in it, such as taken.json/out",
    ),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_outputs_that_cannot_be_written_are_refused_before_the_work(name: str, folder: Path) -> None:
    output, said = NOT_WRITTEN[name]
    Path("sub").mkdir()
    Path("taken.json").mkdir()
    model = Path("app.onnx").read_bytes()
    refused(flexmatch("app.onnx", "--accel", "flexasr", "-o", output), 2, f"error[F100]: {said}")
    assert Path("app.onnx").read_bytes() == model


def test_a_name_with_an_ending_is_the_stem_of_both_files(folder: Path) -> None:
    answer = flexmatch("app.onnx", "--accel", "flexasr", "-q", "-o", "plan.json")
    assert (answer.code, answer.new) == (0, ("plan.json", "plan.onnx"))


@pytest.mark.parametrize(
    "arguments",
    [("app.onnx", "--accel", "flexasr", "-o", "plan"), ("cosim", "ready.json", "--data", "test.npz"), ("list",), ("explain", "F101")],
    ids=lambda a: a[0],
)
def test_a_document_that_cannot_be_written_is_refused_before_the_work(arguments: tuple[str, ...], folder: Path) -> None:
    Path("sub").mkdir()
    said = "error[F100]: sub cannot be written: there is a folder of this name\n  help: give a file in it, such as sub/out"
    refused(flexmatch(*arguments, "--json", "sub"), 2, said)
    said = "error[F100]: no/x.json cannot be written: there is no folder no\n  help: mkdir -p no makes it"
    refused(flexmatch(*arguments, "--json", "no/x.json"), 2, said)


def test_a_document_never_replaces_an_input(folder: Path) -> None:
    for name in ("ready.json", "test.npz"):
        before = Path(name).read_bytes()
        said = f"error[F100]: {name} cannot be written: it is an input of this command\n  help: choose another name"
        refused(flexmatch("cosim", "ready.json", "--data", "test.npz", "--json", name), 2, said)
        refused(flexmatch("cosim", "ready.json", "--data", "test.npz", "--json", f"./{name}"), 2, said)
        assert Path(name).read_bytes() == before


INPUT_AS_OUTPUT = {
    "prove laws.py": ("--json", "--junit", "--sarif"),
    "check laws.py": ("--json", "--junit", "--sarif"),
    "check ready.json --symbolic --rules laws.py": ("--json",),
    "map layer.json --arch arch.toml": ("--json", "--front"),
    "map app.onnx:gemm0 --arch arch.toml": ("--json", "--front"),
    "emit trace ready.json --data test.npz": ("--json",),
    "emit asm words.asm --accel laws.py": ("--json",),
    "lift laws.py": ("--json", "-o"),
    "learn app.onnx --accel flexasr --rules laws.py": ("--json",),
    "advise app.onnx --accel flexasr": ("--json",),
    "show ready.json --cosim report.json": ("--json", "--html", "--svg", "--dot"),
    "show compare ready.json report.json": ("--json", "--html"),
    "show ila laws.py:width=3": ("--json", "--html", "--markdown"),
    "show acg laws.py": ("--json", "--dot"),
    "show target laws.py": ("--json", "--dot"),
    "show egraph app.onnx --around gemm0": ("--json", "--html", "--dot"),
    "show offload ready.json ready.json": ("--json",),
    "reduce app.onnx --check crash --rules laws.py": ("--json", "-o"),
    "repair ready.json --data test.npz --within 1pt": ("--json",),
    "sweep app.onnx --accel flexasr --data test.npz": ("--json",),
    "diff flexasr laws.py app.onnx --data folder": ("--json",),
    "bench app.onnx --accel flexasr --against report.json": ("--json",),
    "explain app.onnx": ("--json",),
    "cosim ready.json --data test.npz --calibrate calibration.npz": ("--json", "--html", "--log"),
    "compile app.onnx --accel laws.py,flexasr --calibrate test.npz": ("--json", "--html"),
}


@pytest.mark.parametrize(("command", "options"), INPUT_AS_OUTPUT.items(), ids=INPUT_AS_OUTPUT)
def test_no_output_of_any_verb_replaces_an_input(command: str, options: tuple[str, ...], folder: Path) -> None:
    """Whichever argument names the file, and by whatever name; before the work, for the files here hold nothing of use."""
    Path("folder").mkdir()
    for name in ("laws.py", "layer.json", "arch.toml", "words.asm", "report.json", "folder/part.npz"):
        Path(name).write_text("not used")
    inputs = {name: Path(name).read_bytes() for name in map(str, Path().rglob("*.*")) if Path(name).is_file()}
    words = re.split(r"[ ,]|:(?=gemm0|width)", command)
    named = [name for name in inputs if name in words or str(Path(name).parent) in words]
    assert named
    os.link(named[0], "other name")
    for option in options:
        for name in (*named, f"./{named[0]}", "other name"):
            said = f"error[F100]: {name.removeprefix('./')} cannot be written: it is an input of this command\n  help: choose another name"
            refused(flexmatch(*command.split(), option, name), 2, said)
    assert {name: Path(name).read_bytes() for name in inputs} == inputs


def test_a_file_that_an_input_names_is_not_replaced(folder: Path) -> None:
    """A table of data and a plan name further files; they are known once they are read."""
    Path("table.toml").write_text('[inputs.x]\nfile = "test.npz"\narray = "x"\n[labels]\nfile = "test.npz"\narray = "labels"\n')
    before = Path("test.npz").read_bytes()
    said = "error[F100]: test.npz cannot be written: it is an input of this command\n  help: choose another name"
    refused(flexmatch("cosim", "ready.json", "--data", "table.toml", "--html", "test.npz"), 2, said)
    assert Path("test.npz").read_bytes() == before
    assert flexmatch("show", "ready.json", "--html", "ready.onnx").code == 2
    assert flexmatch("list", "--json", "test.npz").code == 0  # another command, which reads nothing


def test_a_report_beside_the_samples_is_written_again(folder: Path) -> None:
    """A folder of samples is an input by its samples, not by whatever else lies there."""
    Path("samples").mkdir()
    Path("test.npz").rename("samples/test.npz")
    for _ in range(2):
        answer = flexmatch("cosim", "ready.json", "--data", "samples", "--samples", "4", "--json", "samples/report.json", "-q")
        assert answer.code == 0, answer.err
    refused(
        flexmatch("cosim", "ready.json", "--data", "samples", "--json", "samples/test.npz"), 2,
        "error[F100]: samples/test.npz cannot be written: it is an input of this command\n  help: choose another name",
    )  # fmt: skip


def test_words_do_not_replace_their_assembly(folder: Path) -> None:
    Path("scale.asm").write_text("FINISH #0,#0,#0,#0\n")
    said = "error[F100]: scale.asm cannot be written: it is an input of this command\n  help: choose another name"
    refused(flexmatch("emit", "asm", "scale.asm", "--accel", "vta", "-o", "scale.asm"), 2, said)


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("show", "schema", "completion")] + [f"show {part}" for part in PARTS])
def test_every_option_that_writes_is_checked(verb: str) -> None:
    """An option whose help says that it writes is one of the outputs that are compared with the inputs."""
    module = importlib.import_module(
        f"rewrite_compiler.cli.verbs.{VERBS[verb].module}" if verb in VERBS else f"rewrite_compiler.cli.verbs.{verb.replace(' ', '_')}"
    )
    with pytest.raises(ParserRequest) as described:
        module.run([DESCRIBE])
    p = described.value.parser
    writing = {a.dest for a in p.all_options() if re.match("write|keep every finished", str(a.help)) and a.metavar is not None}
    assert writing - {"alternatives", "disassemble"} <= p.outputs.keys()
    assert "json" in p.outputs


def test_two_outputs_are_two_files(folder: Path) -> None:
    said = "error[F100]: out cannot be written: another output has this name\n  help: choose two names"
    refused(flexmatch("show", "ready.json", "--html", "out", "--svg", "out"), 2, said)
    said = "error[F100]: plan.onnx cannot be written: another output has this name\n  help: choose two names"
    refused(flexmatch("app.onnx", "--accel", "flexasr", "-o", "plan", "--html", "./plan.onnx"), 2, said)
    answer = flexmatch("app.onnx", "--accel", "flexasr", "-q", "-o", "plan", "--json", "plan.json")
    assert (answer.code, answer.new) == (0, ("plan.json", "plan.onnx"))


UNUSED_OPTIONS = [
    ("check laws.py --groups 2", "--groups is for an accelerator, not for a rule file"),
    ("check app.onnx --seed 2", "--seed is for an accelerator, not for a model"),
    ("check flexasr --shape x=1", "--shape is for a model, not for an accelerator"),
    ("check flexasr --limits host_seconds=9", "--limits is for a model or a plan, not for an accelerator"),
    ("check model.py --shape x=1", "--shape is for a model, not for an accelerator model"),
    ("check flexasr --recheck", "--recheck is for a plan with --symbolic, not for an accelerator"),
    ("check ready.json --groups 2", "--groups is for an accelerator, not for a plan"),
    ("check ready.json --recheck", "--recheck is for a plan with --symbolic, not for a plan"),
    ("check laws.py --rules laws.py", "--rules is for a plan, not for a rule file"),
    ("check ready.json --symbolic --groups=3", "--groups is for an accelerator, not for a plan with --symbolic"),
    ("check ready.json --symbolic --seed 3", "--seed is for an accelerator, not for a plan with --symbolic"),
    ("check ready.json --symbolic --shape x=1", "--shape is for a model, not for a plan with --symbolic"),
    ("emit verilog flexasr --data test.npz", "--data is for emit c or emit trace, not for emit verilog"),
    ("emit device flexasr --accel vta", "--accel is for emit asm or emit c or emit check or emit trace, not for emit device"),
    ("emit c ready.json --form binary", "--form is for emit trace, not for emit c"),
    ("emit trace ready.json --words hex", "--words is for emit asm, not for emit trace"),
    ("emit check trace.jsonl -o x", "--output is for emit asm or emit c or emit device or emit trace or emit verilog, not for emit check"),
    ("explain F101 --accel flexasr", "--accel is for a model or plan, not for an error code"),
    (
        "map gemm:m=4,n=4,k=4 --arch edge --space-only --budget 4",
        "--budget is for --algorithms or --over or a search, not for --space-only",
    ),
    (
        "map gemm:m=4,n=4,k=4 --arch edge --mapping m.json --seed 4",
        "--seed is for --algorithms or --over or a search, not for --mapping",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("command", "said"), UNUSED_OPTIONS, ids=[c for c, _ in UNUSED_OPTIONS])
def test_an_option_that_would_change_nothing_is_refused(command: str, said: str, folder: Path) -> None:
    Path("laws.py").write_text("from flexmatch import Law\n\nfrom rewrite_compiler.rules.linear import *\n")
    Path("model.py").write_text("from rewrite_compiler.ila import ila\n\nmodel = ila('flexasr')\n")
    refused(flexmatch(*command.split()), 2, f"error[F203]: {said}\n  help: leave it out: it would change nothing here")


def test_a_sample_without_data_is_refused(folder: Path) -> None:
    said = "error[F203]: --sample is the number of a sample of --data, which is not given\n  help: add --data FILE"
    refused(flexmatch("emit", "trace", "ready.json", "--sample", "1"), 2, said)


def test_a_folder_without_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, who may write everywhere, so the answer of the system is replaced."""
    Path("locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "locked")
    said = "error[F100]: locked/plan cannot be written: no permission to write in locked\n  help: choose another folder"
    refused(flexmatch("app.onnx", "--accel", "flexasr", "-o", "locked/plan"), 2, said)


def test_a_disk_that_fills_up_while_the_files_are_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, *arguments: object, **more: object) -> object:
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", full)
    said = "error[F100]: plan.onnx cannot be written: No space left on device\n  help: choose another name or folder"
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        write_atomically({Path("plan.onnx"): b"1", Path("plan.json"): b"2"})
    assert not [name for name in os.listdir() if "plan" in name]


def test_two_files_are_written_or_none(folder: Path) -> None:
    Path("plan.json").mkdir()
    with pytest.raises(UsageError, match=r"^error\[F100\]: plan\.json cannot be written: Is a directory\n"):
        write_atomically({Path("plan.json"): b"2", Path("plan.onnx"): b"1"})
    assert not [name for name in os.listdir() if "plan" in name and name != "plan.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_behind_standard_output() -> None:
    with open("/dev/full", "wb") as full:
        run = process("explain", "F101", capture_output=False, stdout=full, stderr=-1)
    said = "error[F100]: standard output cannot be written: No space left on device\n"
    assert (run.returncode, run.stderr.decode()) == (2, f"{said}  help: free some space, or write elsewhere\n")
