"""Files from outside are bounded before memory or time is spent: sparse gigabytes, and hostile texts of a mebibyte."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch, onnx_model, perceptron, process, samples
from onnx import helper
from pace import within_steps

from rewrite_compiler.compile.document import _has_hash, read_plan
from rewrite_compiler.cosim.journal import Journal
from rewrite_compiler.data import load_data
from rewrite_compiler.errors import FlexmatchError, InputError, UsageError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.garbage import paused_collection
from rewrite_compiler.intake import (
    MAX_JSON_NESTING,
    MAX_JSON_VALUES,
    MAX_KEY_PARTS,
    ExcessiveText,
    FileBound,
    MalformedText,
    RepeatedKey,
    open_bounded,
    parse_json,
    parse_toml,
    read_bytes,
)
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.text_file import rules_of_file
from rewrite_compiler.rewrite.user_file import module_at

GIB = 1 << 30
SIZES = (5 * GIB, 20 * GIB)
IMAGE = {"x": TensorType((1, 3, 4, 5), "float32")}


def begun_log(file: Path) -> Journal:
    """Open a log that has a header and no sample yet, and then whatever the file has behind it."""
    return Journal(file, {"plan": "p", "samples": 4})


def described(text: str) -> Callable[[Path], Any]:
    """Return how data are read by a description that names the file."""

    def read(file: Path) -> Any:
        (file.parent / "vocabulary.txt").write_text("a b", "utf-8")
        (file.parent / "d.toml").write_text(text.format(file.name), "utf-8")
        return load_data(file.parent / "d.toml", IMAGE).inputs

    return read


def imports_beside(file: Path) -> Any:
    """Import a package that has the file."""
    (file.parent / "__init__.py").write_text("", "utf-8")
    return module_at(file.parent / "__init__.py", "rule", "F200")


READERS: dict[str, Callable[[Path], Any]] = {
    "app.onnx": load,
    "plan.json": read_plan,
    "run.log": begun_log,
    "d.toml": lambda file: load_data(file, IMAGE),
    "d.npz": lambda file: load_data(file, IMAGE),
    "x.npy": lambda file: load_data(file.parent, IMAGE),
    "x.txt": described('[inputs.x]\ntext = "{}"\nvocabulary = "vocabulary.txt"\nwindow = 4\n'),
    "x.rules": rules_of_file,
    "x.py": lambda file: module_at(file, "target", "F200"),
    "__init__.py": lambda file: module_at(file, "target", "F200"),
    "beside.py": imports_beside,
    "trace.jsonl": lambda file: read_bytes(file, FileBound("a trace", 1 << 29)),
}


@pytest.mark.parametrize("size", SIZES, ids="{:_}".format)
@pytest.mark.parametrize("name", READERS)
def test_a_sparse_file_is_refused_without_its_memory(name: str, size: int, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(b"")
    os.truncate(file, size)
    tracemalloc.start()
    try:
        within_steps(25_000_000, lambda: refusal(lambda: READERS[name](file)))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_a_plan_names_is_read_in_blocks(tmp_path: Path) -> None:
    model, digest = tmp_path / "m.onnx", hashlib.sha256(bytes(1 << 28)).hexdigest()
    model.write_bytes(b"")
    tracemalloc.start()
    for size, is_found in ((1 << 28, True), (2 << 28, False), (5 * GIB, False)):
        os.truncate(model, size)
        assert _has_hash(model, digest) is is_found
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_a_log_with_a_hole_behind_its_header_is_cut_without_its_memory(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    log = begun_log(file)
    os.close(log.file)
    size = file.stat().st_size
    os.truncate(file, 20 * GIB)
    tracemalloc.start()
    log = begun_log(file)
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    assert (file.stat().st_size, log.batches) == (size, [])
    log.close()


def test_an_archive_of_little_in_much_or_much_in_little(tmp_path: Path) -> None:
    file, out = tmp_path / "d.npz", io.BytesIO()
    np.savez(out, x=np.zeros((1, 3, 4, 5), np.float32))
    file.write_bytes(b"")
    os.truncate(file, GIB)
    with file.open("r+b") as behind:
        behind.seek(0, 2)
        behind.write(out.getvalue())
    with pytest.raises(FlexmatchError, match=r"archive must have at most \d+ bytes for its arrays, not 1073742\d+"):
        load_data(file, IMAGE)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(3):
            archive.writestr(f"{n}.npy", bytes(60 << 20))
    file.write_bytes(out.getvalue())
    with pytest.raises(FlexmatchError, match=r"archive must unpack to at most 67108864 bytes, not 188743680"):
        load_data(file, IMAGE)
    with zipfile.ZipFile(file, "w") as archive:
        for n in range(5000):
            archive.writestr(f"{n}.npy", b"")
    with pytest.raises(FlexmatchError, match=r"archive must have at most 4096 arrays, not 5000"):
        load_data(file, IMAGE)


TWICE = {
    '{"a": 1, "a": 1}': 'it has the key "a" twice',
    '[0, {"b": [{"c": 1}, {"c": 1, "d": 2, "c": 3}]}]': 'it has the key "c" twice, in [1].b[1]',
    '{"a": {"x": 1, "x": 2}, "a": 3}': 'it has the key "a" twice',
    '{"a": 1, "\\u0061": 2}': 'it has the key "a" twice',
    '{"a": {"b": {"q": 1, "q": 2}}}': 'it has the key "q" twice, in a.b',
}


@pytest.mark.parametrize("text", TWICE)
def test_a_key_that_an_object_has_twice_is_named_with_its_place(text: str) -> None:
    with pytest.raises(RepeatedKey) as caught:
        parse_json(text.encode())
    assert str(caught.value) == TWICE[text]


def test_documents_with_a_key_twice_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text('{"schema": "x", "offloads": [{"id": "a", "id": "b"}]}', "utf-8")
    with pytest.raises(FlexmatchError) as caught:
        read_plan(Path("p.json"))
    assert str(caught.value).splitlines()[0] == 'p.json: error[F103]: the file is not a plan: it has the key "id" twice, in offloads[0]'
    answer = flexmatch("map", "p.json", "--arch", "edge")
    assert answer.err.splitlines()[0] == 'p.json: error[F230]: The file is not JSON: it has the key "id" twice, in offloads[0]'
    answer = flexmatch("show", "p.json")
    assert answer.err.splitlines()[0].endswith('it has the key "id" twice, in offloads[0]')


MEBIBYTE = 1 << 20
HOSTILE_MODELS = {
    "graphs without end": b"\x3a\x00" * (MEBIBYTE // 2),
    "nodes without anything": b"\x3a\x80\x80\x40" + b"\x0a\x00" * (MEBIBYTE // 2),
    "functions without anything": b"\xca\x01\x00" * (MEBIBYTE // 3),
    "fields that nobody knows": b"\xf8\x07\x01" * (MEBIBYTE // 3),
}


def refusal(action: Callable[[], object], kind: type[Exception] = FlexmatchError) -> Exception:
    with pytest.raises(kind) as caught:
        action()
    return caught.value


@pytest.mark.parametrize("name", HOSTILE_MODELS)
def test_a_hostile_model_is_answered_at_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "app.onnx").write_bytes(perceptron((4, 3)).SerializeToString() + HOSTILE_MODELS[name])

    def read() -> None:
        with contextlib.suppress(FlexmatchError):
            load(tmp_path / "app.onnx")

    within_steps(25_000_000, read)


# field of a graph → what it holds; each entry takes two bytes
COUNTED = {b"\x2a": "initializers", b"\x5a": "inputs", b"\x62": "outputs", b"\x6a": "declared values", b"\x7a": "sparse initializers"}


@pytest.mark.parametrize("field", COUNTED, ids=COUNTED.values())
def test_what_a_model_has_too_many_of_is_counted_first(field: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.frontend.load.check_names", lambda *_: pytest.fail("they were looked at"))
    (tmp_path / "app.onnx").write_bytes(perceptron((4, 3)).SerializeToString() + b"\x3a\x82\xb5\x18" + (field + b"\x00") * 200_001)
    with pytest.raises(FlexmatchError, match=f"the model must have at most 200000 {COUNTED[field]}"):
        load(tmp_path / "app.onnx")


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("kind", "most"), [("inputs", DEFAULT.operands), ("outputs", DEFAULT.results)])
def test_a_node_has_no_more_values_than_its_bound(kind: str, most: int, inside: bool) -> None:
    values = [f"s{n}" for n in range(most + 1)]
    nodes = [
        helper.make_node("Sum", ["x"] * len(values), ["s0"], name="wide")
        if kind == "inputs"
        else helper.make_node("Split", ["x"], values, name="wide")
    ]
    if inside:
        branches = {b: helper.make_graph(nodes, b, [], [onnx.ValueInfoProto(name="s0")]) for b in ("then_branch", "else_branch")}
        nodes = [helper.make_node("If", ["x"], ["s0"], **branches)]
    with pytest.raises(FlexmatchError, match=f'node "wide": .* must have at most {most} {kind}, not {most + 1}'):
        load(onnx_model(nodes, {"x": [1, 4]}, ["s0"]))


def test_a_rule_file_that_would_take_long_to_parse_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.rules").write_text("rule a(x: tensor) { relu(x) = x }\n" * 30_000, "utf-8")
    error = within_steps(25_000_000, lambda: refusal(lambda: rules_of_file(tmp_path / "x.rules")))
    assert "a rule file must have at most 65536 bytes, not 1020000" in str(error)


HOSTILE_JSON = {
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", "it has a number of thousands of digits"),
    "many": (b"[" + b"0," * MAX_JSON_VALUES + b"0]", f"it has more than {MAX_JSON_VALUES} values"),
    "deep": (b"[" * (1 << 20), "it is nested too deeply"),
    "text": (b"\xff", "it is not UTF-8 text: byte 0"),
    "cut": (b'{"a":\n', "Expecting value, line 2"),
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_a_hostile_json_text_has_its_true_reason(name: str) -> None:
    data, said = HOSTILE_JSON[name]
    assert str(within_steps(25_000_000, lambda: refusal(lambda: parse_json(data), MalformedText))) == said


def nested(depth: int) -> str:
    """Return lists and objects in one another, in turn."""
    return "".join(("[", '{"a":')[k % 2] for k in range(depth)) + "0" + "".join("]}"[k % 2] for k in reversed(range(depth)))


# texts around a value that is nested one less deep; brackets of their strings are no nesting
AROUND = ('[{}, {{"b": [1]}}]', '["[[", {}, "\\\\", "\\"[", []]', '{{"}}]": {}, "[": "[\\\\\\"[", "{{": [""]}}')


@pytest.mark.parametrize("around", AROUND)
def test_json_is_nested_to_a_bound(around: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = around.format(nested(MAX_JSON_NESTING - 1))
    assert parse_json(text.encode()) == json.loads(text)
    monkeypatch.setattr("rewrite_compiler.intake.json.loads", lambda _: pytest.fail("the text was parsed"))
    with pytest.raises(MalformedText, match="it is nested too deeply"):
        parse_json(around.format(nested(MAX_JSON_NESTING)).encode())


LONG = ".".join(["a"] * (MAX_KEY_PARTS + 1))
KEYED = (
    f"{LONG} = 1", f"[{LONG}]", f"[[{LONG}]]", f"b = {{ {LONG} = 1 }}", f"{LONG.replace('.', ' . ')} = 1",
    f"{LONG.replace('a', chr(34) + 'x.y' + chr(34))} = 1", f"{LONG.replace('a', chr(39) * 2)} = 1",
    f'b = [""" """", {{ {LONG} = 1 }}]', f"b = 'x' # '\n{LONG} = 1", f'b = """\n"""\n{LONG} = 1', f"b = '''\n'''''\n{LONG} = 1",
)  # fmt: skip
PLAIN = (
    f"{LONG[:-2]} = 1", f'b = "{LONG}"', f"b = '{LONG}'", f"# {LONG}", f'b = """\n{LONG} = 1"""', f"b = '''\n{LONG} = 1'''",
    f'"{LONG}" = 1', f"b = 1 # {LONG}",
)  # fmt: skip


@pytest.mark.parametrize("text", KEYED)
def test_a_toml_key_of_too_many_parts_is_refused_before_it_is_parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.intake.tomllib.loads", lambda _: pytest.fail("the text was parsed"))
    with pytest.raises(MalformedText, match=f"it has a key of more than {MAX_KEY_PARTS} parts"):
        parse_toml(text.encode())


@pytest.mark.parametrize("text", PLAIN)
def test_dots_elsewhere_are_no_key(text: str) -> None:
    assert parse_toml(text.encode()) is not None


@pytest.mark.parametrize("number", ["9" * 30, "9223372036854775808", "-9223372036854775809", "0x" + "f" * 20_000])
def test_a_toml_number_must_be_one_of_toml(number: str) -> None:
    with pytest.raises(MalformedText, match="it has a whole number of more than 64 bits"):
        parse_toml(f"a = [{{ b = {number} }}]".encode())
    assert parse_toml(b"a = 9223372036854775807\nb = -9223372036854775808") == {"a": (1 << 63) - 1, "b": -1 << 63}


HOSTILE_TOML = {
    "parts": b".".join([b"a"] * (1 << 17)) + b" = 1",
    "quotes": b'\\"' * (1 << 17),
    "apostrophes": b"'''" * 80_000,
    "tables": b"[[a.b]]\n" * 30_000,
    "deep": b"a = " + b"[" * 200_000,
    "inline": b"a = " + b"{a=" * 60_000,
    "digits": b"a = " + b"9" * 200_000,
    "blanks": b"a" + b" " * 250_000 + b"\n",
    "dots": b"a." * 120_000,
}


@pytest.mark.parametrize("name", HOSTILE_TOML)
def test_a_hostile_configuration_is_answered_at_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flexmatch.toml").write_bytes(HOSTILE_TOML[name])
    within_steps(25_000_000, lambda: flexmatch("show", "config"))


def test_a_configuration_beyond_all_bounds_does_not_stop_a_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(perceptron((4, 3)), "app.onnx")
    for content, said in (
        (
            HOSTILE_TOML["parts"][:200_000],
            f"the configuration cannot be read within bounds: it has a key of more than {MAX_KEY_PARTS} parts",
        ),
        (b"#" * 300_000, "a configuration file must have at most 262144 bytes, not 300000"),
    ):
        Path("flexmatch.toml").write_bytes(content)
        answer = flexmatch("compile", "app.onnx", "--accel", "flexasr", "-q")
        assert answer.code == 0
        assert answer.err.rpartition("flexmatch.toml: ")[2] == f"warning[F105]: {said}, and is not used\n"


def test_what_a_document_says_too_much_of_is_told_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_bytes(HOSTILE_JSON["digits"][0])
    answer = flexmatch("show", "plan.json")
    assert (answer.code, answer.err) == (
        3, "plan.json: error[F103]: the file is not a plan: it has a number of thousands of digits\n  help: compile the model again\n"
    )  # fmt: skip


def test_a_log_of_too_many_samples_without_their_batch_ends_soon(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    log = begun_log(file)
    log._write([{"sample": 0}] * 20)
    os.close(log.file)
    with pytest.raises(FlexmatchError, match="the log has lines that no run wrote, behind 0 samples"):
        begun_log(file)


def test_memory_of_a_process_that_refuses(tmp_path: Path) -> None:
    """The whole command stays near what it takes without the file."""
    file, data = tmp_path / "plan.json", samples(tmp_path / "d.npz", 2, 4)
    file.write_bytes(b"")
    os.truncate(file, 5 * GIB)
    answer = process("cosim", file, "--data", data, preexec_fn=_little_memory)
    assert answer.returncode == 3
    assert answer.stderr.decode().startswith(f"{file}: error[F105]: a plan file must have at most")


def _little_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))


@pytest.mark.parametrize("change", ["none", "other bytes", "more bytes", "fewer bytes"])
def test_a_file_that_changes_while_it_is_read_is_refused(change: str, tmp_path: Path) -> None:
    """By its size or its time: other bytes of as many may have been read in part."""
    path, bound = tmp_path / "data", FileBound("A document", 100)
    path.write_bytes(b"before")
    os.utime(path, ns=(1, 1))
    with contextlib.ExitStack() as stack:
        if change != "none":
            stack.enter_context(pytest.raises(InputError, match="the file changed while it was read"))
        with open_bounded(path, bound) as file:
            assert file.read() == b"before"
            if change != "none":
                path.write_bytes({"other bytes": b"after.", "more bytes": b"before and after", "fewer bytes": b"be"}[change])


@pytest.mark.parametrize("text", [b"[1,2,3]", b"[[],[]]", b"[{},{}]", b'{"a":1,"b":2,"c":3}', b'{"a":{"b":{}}}'])
def test_values_of_a_json_text_are_counted_before_it_is_parsed(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, objects and what stands between commas."""
    count = sum(text.count(c) for c in (b",", b"[", b"{"))
    monkeypatch.setattr("rewrite_compiler.intake.MAX_JSON_VALUES", count)
    parse_json(text)
    monkeypatch.setattr("rewrite_compiler.intake.MAX_JSON_VALUES", count - 1)
    with pytest.raises(ExcessiveText, match=f"it has more than {count - 1} values"):
        parse_json(text)


@pytest.mark.parametrize("value", ["0", "00", "-1", "", "1.5", "²", "many"])
def test_a_limit_is_a_positive_integer(value: str) -> None:
    assert DEFAULT.with_overrides(["nodes=1", "rank=007"]) == replace(DEFAULT, nodes=1, rank=7)
    with pytest.raises(UsageError) as caught:
        DEFAULT.with_overrides([f"nodes={value}"])
    assert str(caught.value) == f'error[F203]: limit nodes must be a positive integer, not "{value}"'


def test_a_limit_has_as_many_digits_as_a_word() -> None:
    assert DEFAULT.with_overrides(["nodes=" + "9" * 18]).nodes == 10**18 - 1
    with pytest.raises(UsageError, match="limit nodes must have at most 18 digits, not 5000"):
        DEFAULT.with_overrides(["nodes=" + "9" * 5000])


def test_a_bound_in_steps_of_python_is_exceeded_by_more_steps() -> None:
    runs: list[int] = []

    def squares(steps: int) -> int:
        runs.append(steps)
        return sum(step * step for step in range(steps))

    assert within_steps(3_000_000, lambda: squares(500_000)) == sum(step * step for step in range(500_000))
    with pytest.raises(AssertionError, match=r"steps .* steps .* steps .*, where at most 500,000 are allowed"):
        within_steps(500_000, lambda: squares(3_000_000))
    assert runs[1:] == [3_000_000] * 3


def test_a_bound_in_steps_of_python_leaves_out_what_earlier_tests_left() -> None:
    with paused_collection():
        heap = [[step] for step in range(2_000_000)]
    assert within_steps(400_000, gc.collect) == 0
    assert len(heap) == 2_000_000
