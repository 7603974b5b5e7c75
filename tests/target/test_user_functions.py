"""A target's functions are its user's code: wrong operands, exceptions and wrong results are told with file and line, never as a bug."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.errors import SpecError
from rewrite_compiler.target import find_target, load_target

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-accelerator.md"
MORE = """

def describe(ila, parameters):
    clock = Clock(100_000_000, "the tutorial")
    memories = (Memory("x", 8, INPUTS * LANES), Memory("w", 8, WEIGHTS * LANES), Memory("y", 8, RESULTS * LANES))
    units = (Unit("core", ("dense",), ("int8",), {"k": LANES}),)
    return Resources(clock, memories, units, (Link("host", "x", 8), Link("host", "w", 8), Link("y", "host", 8)))


target = replace(target, describe=describe)


@dense.costs
def costs(t, k, n, resources):
    return Cost("core", t * k * n // LANES, t * k + k * n + t * n, {"x": t * k, "w": k * n, "y": t * n})


@dense.residency
def residency(t, k, n):
    return Room("x", t * k, "x", (t, k)), Room("w", k * n, "w", lasting=True), Room("y", t * n, "y", (t, n))


@dense.levels
def levels(t, k, n):
    return {"x": {"x": (t * k * n, t * k)}, "w": {"w": (k * n, k * n)}, "y": {"y": (t * n, t * n)}}
"""
# function → its first line with its operands, what it is called in sentences
FUNCTIONS = {
    "build": ("def build()", "model"),
    "describe": ("def describe(ila, parameters)", "resources"),
    "costs": ("def costs(t, k, n, resources)", "costs"),
    "capacities": ("def capacities(t, k, n)", "limits"),
    "levels": ("def levels(t, k, n)", "levels"),
    "residency": ("def residency(t, k, n)", "residency"),
    "drive": ("def drive(device, x, w, f)", "driver"),
    "dense": ("def dense(x: Tensor, w: Tensor)", "mapping|toy.dense"),
    "codes": ("def codes(x, w, f)", "numerics"),
}
FAULTS = {
    "another operand": lambda line: (line.replace("(", "(another, ").replace(", )", ")"), ""),
    "an exception": lambda line: (line, "    raise KeyError('lost')\n"),
    "None": lambda line: (line, "    return None\n"),
    "a text": lambda line: (line, "    return 'a text'\n"),
    "a list of numbers": lambda line: (line, "    return [1, 2.5]\n"),
    "an exit": lambda line: (line, "    raise SystemExit('enough')\n"),
    "the end of an iterator": lambda line: (line, "    raise StopIteration\n"),
    "the end of a generator": lambda line: (line, "    raise GeneratorExit\n"),
    "a tuple of None": lambda line: (line, "    return None, None\n"),
    "nothing at all": lambda line: (line, "    return ()\n"),
    "an array of another shape": lambda line: (line, "    return np.zeros((3, 5), np.int64)\n"),
    "a term of another shape": lambda line: (line, "    return array(lambda t: t, (3,))\n"),
    "fractions": lambda line: (line, "    return np.zeros((1, 4)) + 0.5\n"),
    "a generator": lambda line: (line, "    yield None\n"),
    "a number that is too long to print": lambda line: (line, "    return 10**5000\n"),
    "nested counts": lambda line: (line, "    return {'x': {'x': (1, None)}, 3: None}\n"),
}
# what is wrong → the function, what is put at its start, the words of the refusal
KINDS = {
    "an exit": ("costs", "raise SystemExit('enough')", "The costs of toy.dense must return a Cost, not end with SystemExit: enough"),
    "an exit without words": ("drive", "raise SystemExit", "tuple of them, not end with SystemExit"),
    "the end of a generator": ("costs", "raise GeneratorExit", "The costs of toy.dense must return a Cost, not end with GeneratorExit"),
    "an end of iteration": ("drive", "raise StopIteration", "tuple of them, not end with StopIteration"),
    "rooms that are None": ("residency", "return None, None", "The residency of toy.dense must return Rooms, not None among them"),
    "counts that are None": (
        "levels",
        "return {'x': {'x': None}}",
        "must return (bytes read, bytes written) by memory and tensor, not None",
    ),
    "counts below 0": ("levels", "return {'x': {'x': (1, -2)}}", "by memory and tensor, not (1, -2)"),
    "negative cycles": (
        "costs",
        "return Cost('core', -1, 0, {})",
        "Compute cycles of core must be a whole number that is not negative, not -1",
    ),
    "bytes that are no number": ("costs", "return Cost('core', 1, 0, {'x': None})", "Bytes of x that are moved must be a whole number"),
    "a room of no tensor": ("residency", "return (Room('x', 8, 'z'),)", "must return Rooms of x, w, y, or of no tensor, not of z"),
    "a room without a size": (
        "residency",
        "return (Room('x', float('nan')),)",
        "room in x must be a whole number that is not negative, not nan",
    ),
    "results that are None": ("drive", "return None, None", "must return an array of codes, or a tuple of them, not None"),
    "one result too many": (
        "drive",
        "return np.zeros((1, 4), int), np.zeros(4, int)",
        "must return as many arrays as it has results (y), not 2",
    ),
    "results with a fraction": ("drive", "return np.zeros((1, 4)) + 0.5", "not an array of float64"),
    "results of another shape": ("drive", "return np.zeros((3, 5), int)", "returns an array of shape (3, 5), its numerics one of (1, 1)"),
    "numerics of another shape": (
        "codes",
        "return array(lambda t: t, (3,))",
        "must return y with the axes t=1, n=1, not an array of shape (3,)",
    ),
    "no numerics": ("codes", "return ()", "must return as many arrays as it has results (y), not 0 of them"),
    "limits that cannot be told": ("capacities", "return 1 // 0", "not end with ZeroDivisionError"),
}
# classes whose objects fail when they are asked anything, put before the functions of the target
HOSTILE = """

def failing(*_, **__):
    raise RuntimeError("hostile")


ATTRIBUTES = ("shape", "dtype", "ndim", "size", "__array_interface__")
METHODS = (
    "__getattr__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __len__ __iter__ __next__ __contains__ __getitem__"
    " __repr__ __str__ __format__ __array__ __array_ufunc__ __array_function__ __int__ __index__ __float__ __add__ __radd__ __mul__"
    " __rmul__ __sub__ __rsub__ __call__ __reduce__ __reduce_ex__ __copy__ __deepcopy__ __sizeof__ __dir__ keys items values get astype"
)


def hostile(kind, methods=METHODS):
    attributes = {name: property(failing) for name in ATTRIBUTES if methods is METHODS}
    return type("Hostile", (kind,), {**dict.fromkeys(methods.split(), failing), **attributes})


def made(kind, *contents):
    return hostile(kind)(*contents)


class NoClass:
    __class__ = property(failing)


class Shaped:
    def __init__(self, shape):
        self.shape = shape


class BadMeta(type):
    __name__ = property(failing)
    __repr__ = failing


class OfBadMeta(metaclass=BadMeta): ...


class Homeless(Exception):
    __module__ = None


class Mute(Exception):
    def __str__(self):
        raise SystemExit("no text")

    __repr__ = __str__


class Codes(np.ndarray):
    dtype = shape = property(failing)
    __array_ufunc__ = __array_function__ = astype = __getitem__ = failing


def again():
    return again()


def half():
    yield None
    raise RuntimeError("half")
"""
ASKED = {  # what a hostile function returns or does
    "no attribute": "return hostile(object, '__getattr__')()",
    "no access": "return hostile(object, '__getattribute__')()",
    "nothing": "return made(object)",
    "no class": "return NoClass()",
    "nothing in a tuple": "return (made(object),)",
    "no access in a tuple": "return (hostile(object, '__getattribute__')(),)",
    "no class in a list": "return [NoClass()]",
    "nothing by name": "return {'x': made(object)}",
    "nothing by names": "return {'x': {'x': (made(object), made(int, 1))}}",
    "a tuple by names": "return {'x': {'x': made(tuple, (1, 1))}}",
    "dictionaries": "return made(dict, {'x': made(dict, {'x': (1, None)})})",
    "a tuple": "return made(tuple, (None,))",
    "a list": "return made(list, (None,))",
    "a number": "return made(int, 3)",
    "a text": "return made(str, 'x')",
    "no shape": "return Shaped(None)",
    "a shape of texts": "return Shaped('ab')",
    "a shape of nothing": "return Shaped(made(object))",
    "a shape": "return Shaped((1, 4))",
    "a class": "return OfBadMeta",
    "of a class without a name": "return OfBadMeta()",
    "codes": "return np.zeros((1, 4), np.int64).view(Codes) + 0.5",
    "codes of nothing": "a = np.empty((1, 4), object); a.fill(made(object)); return a",
    "codes of None": "return np.full((1, 4), None, object)",
    "complex codes": "return np.zeros((1, 4), complex)",
    "texts": "return np.array([['a'] * 4])",
    "dates": "return np.zeros((1, 4), 'M8[s]')",
    "records": "return np.zeros((1, 4), [('a', 'i4')])",
    "an exception without a module": "raise Homeless('x')",
    "an exception that exits": "raise Mute",
    "exceptions": "raise ExceptionGroup('g', [ValueError('x')])",
    "memory": "return np.zeros(10**15, np.int64)",
    "no end": "return again()",
    "half a generator": "return half()",
    "not implemented": "return NotImplemented",
    "control characters": "raise ValueError('\\x1b[31m \\ud800')",
}
ODD = (
    "None",
    "'nowhere'",
    "2.5",
    "-1",
    "[1]",
    "(1,)",
    "made(object)",
    "10**40",
    "made(int, 3)",
    "float('nan')",
    "{}",
    "{'k': None}",
    "{3: 1}",
)
# function and record → the record with its fields, the fields that are made odd, what the function returns
RECORDS = {
    "costs": ("Cost", "unit='core', compute_cycles=1, transfer_cycles=1, moved={'x': 1}", "*", "RECORD"),
    "residency": ("Room", "memory='x', size=8, tensor='x', form=(1, 8), scratch=''", "*", "(RECORD,)"),
    "capacities": ("Limit", "what='x', needs=1, most=2, reason=''", "*", "(RECORD,)"),
    "levels": ("dict", "x={'x': (1, 1)}", "*", "RECORD"),
    "describe": ("Resources", "clock=CLOCK, memories=(), units=(UNIT,), links=(), notes=()", "*", "RECORD"),
    "describe clock": ("Clock", "hertz=10**8, source='it'", "*", "Resources(RECORD, (), (UNIT,), ())"),
    "describe memory": (
        "Memory", "name='x', width_bits=8, depth=512", "* banks instances read_energy buffering", "Resources(CLOCK, (RECORD,), (UNIT,), ())"
    ),
    "describe unit": (
        "Unit", "name='core', operations=('dense',), types=('int8',), step={'k': 8}", "* instances energy packs",
        "Resources(CLOCK, (), (RECORD,), ())",
    ),
    "describe link": (
        "Link", "source='host', sink='x', width_bytes=8", "* cycles latency_cycles",
        "Resources(CLOCK, (Memory('x', 8, 512),), (UNIT,), (RECORD,))",
    ),
}  # fmt: skip
PLAIN = {"CLOCK": "Clock(10**8, 'the tutorial')", "UNIT": "Unit('core', ('dense',), ('int8',), {'k': 8})"}


def odd_records() -> Iterator[tuple[str, str]]:
    """Yield functions, each with a body that returns a record of which one field is odd."""
    for function, (record, fields, odd, result) in RECORDS.items():
        names = odd.replace("*", " ".join(re.findall(r"(\w+)=", fields))).split()
        for name, value in itertools.product(names, ODD):
            text = result.replace("RECORD", f"{record}(**{{**dict({fields}), {name!r}: {value}}})")
            yield function.partition(" ")[0], "return " + re.sub("|".join(PLAIN), lambda found: PLAIN[found[0]], text)


ACCOUNTS = {"costs": "cost", "residency": "rooms", "levels": "accesses"}  # function → the method that calls it
COMMANDS = (
    ("prove", "--accel", "./toy.py", "--no-rules", "--jobs", "1"),
    ("check", "./toy.py", "--groups", "1"),
    ("show", "target", "./toy.py"),
    ("compile", "dense.onnx", "--accel", "./toy.py"),
    ("compile", "dense.onnx", "--accel", "./toy.py", "--objective", "cycles"),
    ("cosim", "dense.onnx", "--accel", "./toy.py", "--data", "data.npz"),
)


def text() -> str:
    """Return the tutorial's accelerator with all functions that a target may have."""
    page = re.search(r"```python file=toy.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert page is not None
    names = "Clock, Cost, Limit, Link, Memory, Resources, Room, Target, Unit"
    source = page[1].replace("from rewrite_compiler.target import Limit, Target", f"from rewrite_compiler.target import {names}")
    return source.replace("import math\n", "import math\nfrom dataclasses import replace\n", 1) + MORE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    numbers = np.random.default_rng(0)
    w = numpy_helper.from_array(numbers.normal(size=(16, 4)).astype(np.float32), "w")
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 16)), ("y", (1, 4)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "dense.onnx")
    np.savez(tmp_path / "data.npz", x=numbers.normal(size=(40, 1, 16)).astype(np.float32), labels=numbers.integers(0, 4, 40))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(source: str) -> list[tuple[int, str]]:
    """Return exit code and words of every command that uses a target."""
    Path("toy.py").write_text(source, "utf-8")
    return [(a.code, a.out + a.err) for a in (flexmatch(*command) for command in COMMANDS)]


def test_the_target_without_faults_passes(folder: Path) -> None:
    assert [code for code, _ in answers(text())] == [0] * len(COMMANDS)


def with_first_line(function: str, body: str) -> tuple[str, int]:
    """Return the target with a statement put at the start of one of its functions, and its line."""
    source, line = text(), FUNCTIONS[function][0]
    start = source.index(":\n", source.index(line)) + 2
    return f"{source[:start]}    {body}\n{source[start:]}", source[:start].count("\n") + 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_is_told_with_its_line(kind: str, folder: Path) -> None:
    function, body, sentence = KINDS[kind]
    source, line = with_first_line(function, body)
    Path("toy.py").write_text(source, "utf-8")
    if function in ACCOUNTS:
        target = load_target("./toy.py")
        operands = ({"t": 1, "k": 16, "n": 4}, {}, target.resources())[: 3 if function == "costs" else 2]
        with pytest.raises(SpecError) as refusal:
            getattr(target.mappings["dense"], ACCOUNTS[function])(*operands)
        words = str(refusal.value)
    else:
        words = " ".join(flexmatch(*COMMANDS[0]).out.split())
        assert "X100" not in words
    assert sentence in words
    if kind != "results of another shape":  # which says that driver and numerics differ, not which of them is wrong
        assert re.search(
            rf"toy\.py:({line - 2}|{line - 1}|{line})\b.* must|(must|Bytes|room|cycles).* at \S*toy\.py:({line - 2}|{line - 1}|{line})\b",
            words,
        )


def test_a_target_that_cannot_be_loaded_is_told_whatever_options_are_given(folder: Path) -> None:
    source, line = with_first_line("dense", "return None")
    Path("toy.py").write_text(source, "utf-8")
    for options in ([], ["--groups", "1"]):
        answer = flexmatch("check", "./toy.py", *options)
        assert answer.code == 1
        assert re.search(rf"toy\.py:({line - 2}|{line - 1}|{line})\b", answer.out + answer.err)


def test_a_plan_whose_offload_is_refused_now_runs_on_the_host(folder: Path) -> None:
    Path("toy.py").write_text(text(), "utf-8")
    assert flexmatch("compile", "dense.onnx", "--accel", "./toy.py", "--calibrate", "data.npz", "--trust-unproved", "toy.dense").code == 0
    Path("toy.py").write_text(with_first_line("capacities", "return (None,)")[0], "utf-8")
    assert flexmatch("cosim", "dense.toy.json", "--accel", "./toy.py", "--data", "data.npz").code in (0, 1)


def test_a_room_that_is_larger_than_its_memory_is_told_with_its_line(folder: Path) -> None:
    source, line = with_first_line("residency", "return (Room('x', 4097, 'x', (t, k)),)")
    Path("toy.py").write_text(source, "utf-8")
    answer = flexmatch("compile", "dense.onnx", "--accel", "./toy.py", "--trust-unproved", "toy.dense")
    assert re.search(
        rf"toy\.py:({line - 2}|{line - 1})\b.* must return Rooms that fit .x has 512 elements., not one of 4,097", answer.err
    ), answer


def test_counts_of_numpy_are_counts(folder: Path) -> None:
    Path("toy.py").write_text(text().replace('return Cost("core", t * k', 'return Cost("core", np.int64(t) * k'), "utf-8")
    target = load_target("./toy.py")
    cost = target.mappings["dense"].cost({"t": 1, "k": 16, "n": 4}, {}, target.resources())
    assert type(cost.compute_cycles) is int


FILES = {
    "bytes that are no text": (b"x = 1\n\xff\xfe", "2 must be text in utf-8, which the byte 0xff is not"),
    "a null byte": (b"x = 1\ny = '\0'\n", "2 must be text, not hold a null byte"),
    "an unknown encoding": (b"# -*- coding: nonsense -*-\n", "1 must be text: unknown encoding"),
    "an exception of its own kind": (b"class Own(BaseException): ...\nraise Own('x')\n", "2 cannot be imported: Own: x"),
    "an exception that cannot say itself": (
        b"class Own(Exception):\n    def __str__(self):\n        raise ValueError\nraise Own\n", "4 cannot be imported: Own"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_target(name: str, folder: Path) -> None:
    data, end = FILES[name]
    Path("toy.py").write_bytes(data)
    for command in (("prove", "--accel", "./toy.py", "--no-rules"), ("check", "./toy.py")):
        answer = flexmatch(*command)
        line, _, rest = end.partition(" ")
        assert f"toy.py:{line}: error[R100]: the target file {rest}" in answer.out + answer.err


def test_a_file_in_an_encoding_that_it_names_is_read(folder: Path) -> None:
    source = text().replace('"""A toy', '"""Réseau: a toy', 1)
    Path("toy.py").write_bytes(b"# -*- coding: latin-1 -*-\n" + source.encode("latin-1", "replace"))
    assert flexmatch("show", "target", "./toy.py").code == 0


def with_fault(source: str, function: str, fault: str) -> str:
    """Return a target one of whose functions is wrong."""
    line, _ = FUNCTIONS[function]
    head, body = FAULTS[fault](line)
    start = source.index(line)
    end = source.index(":\n", start) + 2
    return f"{source[:start]}{head}{source[start + len(line) : end]}{body}{source[end:]}"


@pytest.mark.parametrize("fault", ["another operand", "an exception", "None", "a text", "an exit"])
def test_check_names_all_functions_that_are_wrong_at_once(fault: str, folder: Path) -> None:
    wrong, source = [name for name in FUNCTIONS if name not in ("build", "dense")], text()
    for function in wrong:
        source = with_fault(source, function, fault)
    Path("toy.py").write_text(source, "utf-8")
    answer = flexmatch("check", "./toy.py", "--groups", "1")
    assert (answer.code, f"problems  {len(wrong)}" in answer.out) == (1, True), answer
    said = " ".join((answer.out + answer.err).split())
    if fault == "another operand":
        assert "help: it is called with ila, parameters " in said
        assert "help: it is called with those of t, k, n, resources, p that it names " in said
        assert "help: it is called with device, x, w, and those of f, p that it names" in said
    for function in wrong:
        assert re.search(rf"toy\.py:\d+: error\[I102\]: The {FUNCTIONS[function][1]} of ", answer.out + answer.err), function


@pytest.mark.parametrize("unit", ['"core"', "resources.units[0].name"])
@pytest.mark.parametrize("function", ["describe", "build"])
def test_sound_costs_are_not_blamed_for_resources_that_cannot_be_had(function: str, unit: str, folder: Path) -> None:
    source = text().replace('return Cost("core"', f"return Cost({unit}")
    Path("toy.py").write_text(with_fault(source, function, "None"), "utf-8")
    answer = flexmatch("check", "./toy.py", "--groups", "1")
    assert (answer.code, "problems  1" in answer.out, "The costs of" in answer.out + answer.err) == (1, True, False), answer


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_is_wrong_is_told_with_its_line(function: str, fault: str, folder: Path) -> None:
    line, what = FUNCTIONS[function]
    source = text()
    start = source.index(line)
    source = with_fault(source, function, fault)
    said = answers(source)
    assert all("X100" not in words and "Traceback" not in words for _, words in said), said
    first = source[:start].count("\n") + 1
    refusals = [words for code, words in said if code != 0]
    assert refusals
    assert any(re.search(rf"toy\.py:({first - 1}|{first}|{first + 1})\b", words) for words in refusals), refusals
    assert any(re.search(what, words) for words in refusals), refusals


@pytest.mark.filterwarnings("error")
def test_limits_that_nobody_asks_for_any_more_are_no_failure() -> None:
    """The first limit that does not hold decides, and the generator of the others is closed."""
    m = find_target("vta").mappings["dense"]
    sizes = {"t": 1 << 20, "k": 1 << 20, "n": 1 << 20}
    assert m.exceeded_limit(sizes) is not None
    limits = m.limits_at(sizes)
    next(limits)
    limits.close()


def hostile_source(function: str, body: str) -> str:
    """Return the target with a hostile function, beside the classes of hostile objects."""
    return with_first_line(function, body)[0].replace("\nLANES,", f"{HOSTILE}\n\nLANES,", 1)


def refusals_of(said: list[tuple[int, str]]) -> list[str]:
    """Return what those commands say that refuse a target; none of all may end as a bug."""
    assert all("X100" not in words and "Traceback" not in words for _, words in said), said
    return [words for code, words in said if code != 0]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_object_that_fails_when_it_is_asked_is_told_with_its_line(function: str, asked: str, folder: Path) -> None:
    refusals = refusals_of(answers(hostile_source(function, ASKED[asked])))
    assert refusals
    assert any(re.search(r"toy\.py:\d+\b", words) for words in refusals), refusals
    assert any(re.search(rf"{FUNCTIONS[function][1]}.* must return ", words) for words in refusals), refusals


@pytest.mark.parametrize(("function", "body"), list(odd_records()))
def test_a_record_with_an_odd_field_is_no_bug(function: str, body: str, folder: Path) -> None:
    """Some are what they may be (a name of two letters, a number); the others are refused with their line."""
    source = hostile_source(function, body)
    Path("toy.py").write_text(source, "utf-8")
    shown = flexmatch("show", "target", "./toy.py")  # every command asks for the resources as it does
    is_decided = function == "describe" and shown.code != 0
    refusals = refusals_of([(shown.code, shown.out + shown.err)] if is_decided else answers(source))
    assert all(re.search(r"toy\.py:\d+\b", words) for words in refusals if "I102" in words), refusals
