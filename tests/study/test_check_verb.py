"""check: everything that is wrong with a target, a rule file or a model, in one go; how far operations are from their meaning."""

from __future__ import annotations

import json
import lzma
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch, onnx_model, perceptron
from onnx import helper
from pages import ROOT

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verbs.check import lines
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.prove.mappings.mappings import code_difference
from rewrite_compiler.study.checks import golden
from rewrite_compiler.study.checks.accuracy import accuracy, accuracy_sizes, operand_distributions
from rewrite_compiler.study.checks.capacity import is_admitted
from rewrite_compiler.study.checks.check import check
from rewrite_compiler.study.checks.golden import golden_folder, replay
from rewrite_compiler.target import find_target, load_target, target_names
from rewrite_compiler.target.mapping import accepted_arguments

TOY = re.search(r"```python file=toy.py\n(.*?)```", (ROOT / "docs/tutorial/first-accelerator.md").read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toy(folder: Path) -> Callable[..., str]:
    """Return a function that writes the tutorial's target with words replaced, and gives its path."""

    def write(**changes: str) -> str:
        assert TOY is not None
        text = TOY[1]
        for before, after in zip(changes["before"].split("|"), changes["after"].split("|"), strict=True) if changes else ():
            assert text.count(before) >= 1, before
            text = text.replace(before, after)
        path = folder / f"toy{len(list(folder.glob('toy*.py')))}.py"
        path.write_text(text)
        return str(path)

    return write


# -- accuracy


def test_exact_hardware_has_no_error_on_operands_it_holds() -> None:
    """VTA sums exactly: all of its error is the rounding of operands. Another seed gives other figures, the same one the same."""
    m = find_target("vta").mappings["dense"]
    ila = find_target("vta").ila()
    found = accuracy(m, ila, accuracy_sizes(m), groups=1)
    assert found.held_errors.values == (0.0,) * 10
    assert found.rounded_errors.values == (0.0,) * 10
    assert 0.005 < found.drawn_errors.mean < 0.03
    assert found.drawn_errors.deviation < found.drawn_errors.mean < found.drawn_errors.worst
    assert accuracy(m, ila, accuracy_sizes(m), groups=1) == found
    assert accuracy(m, ila, accuracy_sizes(m), groups=1, seed=1).drawn_errors != found.drawn_errors


def test_mean_and_deviation_are_those_of_the_errors() -> None:
    m = find_target("flexasr").mappings["mean_pool"]
    found = accuracy(m, find_target("flexasr").ila(), {"u": 2, "w": 2, "n": 16}, groups=2).held_errors
    assert len(found.values) == 20
    assert found.mean == pytest.approx(np.mean(found.values))
    assert found.deviation == pytest.approx(np.std(found.values))
    assert 0.003 < found.mean < 0.03  # one rounding to four bits of mantissa


def test_operands_are_drawn_as_the_mapping_says_else_by_their_role() -> None:
    """Activations N(0, 1), weights by fan-in, constant vectors N(0, ¼²); layer norm says its own."""
    flexasr, hlscnn = find_target("flexasr").mappings, find_target("hlscnn").mappings["conv2d"]
    linear = operand_distributions(flexasr["linear"], {"t": 1, "k": 64, "n": 2})
    assert {n: str(d) for n, d in linear.items()} == {"x": "N(0, 1²)", "w": "N(0, 0.125²)", "b": "N(0, 0.25²)"}
    conv = operand_distributions(hlscnn, {"b": 1, "n": 3, "c": 4, "i": 5, "j": 5, "r": 2, "s": 2})
    assert str(conv["w"]) == "N(0, 0.25²)"
    norm = operand_distributions(flexasr["layer_norm"], {"t": 1, "n": 16})
    assert {n: str(d) for n, d in norm.items()} == {"x": "N(0, 0.5²)", "g": "N(1, 0.1²)", "b": "N(0, 0.25²)"}


@pytest.mark.parametrize("name", ["dense_bias_uint8", "requantise_int8_2"])
def test_a_models_own_integers_are_drawn_and_meant_as_integers(name: str) -> None:
    """The device computes them exactly, so every figure is 0; a driver that is off by one is seen."""
    m, ila = find_target("vta").mappings[name], find_target("vta").ila()
    found = accuracy(m, ila, accuracy_sizes(m), groups=1)
    assert found.inputs["x"] == {"dense_bias_uint8": "0…255", "requantise_int8_2": "-2147483648…2147483647"}[name]
    assert {found.drawn_errors.worst, found.held_errors.worst, found.rounded_errors.worst} == {0.0}
    drive = m.drive
    assert drive is not None
    wrong = replace(m, drive=lambda device, **given: drive(device, **accepted_arguments(drive, given)) + 1)
    assert accuracy(wrong, ila, accuracy_sizes(m), groups=1).held_errors.mean > 0


def test_drivers_get_codes_in_types_that_do_not_overflow() -> None:
    """A proof, a measurement and a run hand the same types to a driver: signed codes in 64 bits, bytes where the format has bytes."""
    m, ila = find_target("vta").mappings["dense_bias_uint8"], find_target("vta").ila()
    seen = []

    def drive(device: object, **given: np.ndarray) -> Any:
        seen.append({n: str(given[n].dtype) for n in ("x", "w", "b")})
        assert m.drive is not None
        return m.drive(device, **accepted_arguments(m.drive, given))

    watched = replace(m, drive=drive)
    accuracy(watched, ila, accuracy_sizes(m), groups=1)
    assert code_difference(watched, ila, accuracy_sizes(m)) is None
    assert len(seen) > 1
    assert all(types == {"x": "uint8", "w": "int64", "b": "int64"} for types in seen)


# -- targets


def test_sizes_that_limits_refuse_are_none_to_measure() -> None:
    """Eight accumulators hold no run of a requantisation: its driver is not asked for one."""
    for design, is_held in (("vta", True), ("vta:log_batch=2,log_block=5,log_inp_buffer=10,log_wgt_buffer=12,log_acc_buffer=12", False)):
        m = find_target(design).mappings["requantise_int8_2"]
        assert is_admitted(m, accuracy_sizes(m)) is is_held


@pytest.mark.parametrize(("memory", "lies_apart"), [("inp", True), ("dram_before", False), ("dram_after", False)])
def test_a_program_without_an_address_has_memories_of_its_own(memory: str, lies_apart: bool) -> None:
    record = {"name": "p", "instructions_hex": ["0x1"]}
    fault = golden._fault(record, {f"p.{memory}": np.zeros(1)})
    assert ("phys_base" in fault) is not lies_apart


@pytest.mark.parametrize("folder", [f for name in target_names() if (f := golden_folder(find_target(name)))], ids=lambda f: f.name)
def test_vectors_of_shipped_targets_can_be_replayed(folder: Path) -> None:
    records, arrays = golden._records(folder), golden._arrays(folder)
    assert {str(r["name"]): fault for r in records if (fault := golden._fault(r, arrays))} == {}


def test_a_good_target_has_figures_and_no_problems(toy: Callable[..., str]) -> None:
    found = check(toy(), groups=1)
    assert found.is_good, found.problems
    assert [a.name for a in found.accuracies] == ["toy.dense"]
    assert found.golden is None
    assert found.ila is not None
    assert found.ila.decodes_disjoint


# what is wrong with the target → what is said
WRONG = {
    "a shift that drops a bit": ("shift=shift_of(f))", "shift=shift_of(f) + 1)", "I105 driver and numerics of toy.dense differ at"),
    "more weights than there are": (
        "n * vectors, WEIGHTS)|(512, 8)", "n * vectors, 2 * WEIGHTS)|(512, 9)",
        "I106 the limits of toy.dense admit t=1, k=512, n=9, which the device refuses:",
    ),
    "a trial beyond the limits": ("(512, 8)", "(520, 8)", "I106 toy.dense is tried at t=1, k=520, n=8, which its own limits refuse:"),
    "no numerics": ("@dense.numerics", "", "I104 toy.dense has no numerics"),
    "a result too wide": ("wrap(code, 8, False)", "code", "I102 y holds values in 0…255, not -128…127"),
    "two decodes of one address": ("bus.write(0x0010)", "bus.write(0x0000)", "I100 config and dot of toy both decode"),
}  # fmt: skip


FEW_TRIALS = ("(24, 5), (64, 64), (512, 8)", "(24, 5)")  # whose sizes are far from what the memories hold
# what a driver does wrongly only where a memory is full
WRONG_AT_A_CORNER = {
    "the longest input is cut": ("length=length,", "length=min(length, 63),"),
    "two results lie in each other's places": ("to=n)", "to=n ^ (len(w) == 64))"),
    "the last weights lie on those before": ("first=n * length", "first=min(n * length, 500)"),
    "a full memory of weights is read from its second row on": (
        "first=n * length",
        "first=(n + (length * len(w) == 512)) % len(w) * length",
    ),
}


@pytest.mark.parametrize("what", WRONG_AT_A_CORNER)
def test_what_is_wrong_only_where_a_memory_is_full_is_found(what: str, toy: Callable[..., str]) -> None:
    assert check(toy(before=FEW_TRIALS[0], after=FEW_TRIALS[1]), groups=1).is_good
    before, after = WRONG_AT_A_CORNER[what]
    problems = check(toy(before=f"{FEW_TRIALS[0]}|{before}", after=f"{FEW_TRIALS[1]}|{after}"), groups=1).problems
    assert [p.code for p in problems] == ["I105"], problems
    assert "driver and numerics of toy.dense differ at" in problems[0].sentence


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_target_is_found(what: str, toy: Callable[..., str]) -> None:
    before, after, said = WRONG[what]
    problems = check(toy(before=before, after=after), groups=1).problems
    assert f"{problems[0].code} {problems[0].sentence}".startswith(said), problems


def test_a_limit_with_an_odd_field_is_told_with_its_line(toy: Callable[..., str]) -> None:
    path = toy(before='Limit("weight vectors"', after="Limit(None")
    (problem,) = check(path, groups=1).problems
    line = Path(path).read_text().split("Limit(None")[0].count("\n") + 1
    assert (problem.code, problem.sentence) == ("I102", "The name of a capacity must be a text, not None")
    assert problem.place.endswith(f"{Path(path).name}:{line}")


def test_independent_problems_are_found_together(toy: Callable[..., str]) -> None:
    path = toy(before="shift=shift_of(f))|return assign(y, wrap", after="shift=shift_of(f) + 1)|return assign(y, wrap")
    text = Path(path).read_text() + "\nmax8 = target.accelerates(axes='x: n; y: n', formats=dict.fromkeys('xy', fixed8))\n"
    Path(path).write_text(text + "@max8\ndef relu(x: Tensor):\n    '''The larger of x and zero.'''\n    return o.relu(x), Where()\n")
    assert [p.code for p in check(path, groups=1).problems] == ["I105", "I104", "I104"]


def test_vectors_beside_a_target_are_replayed(toy: Callable[..., str], folder: Path) -> None:
    path = toy()
    records = [
        {
            "name": f"byte_{n}",
            "commands": [
                ["W", "0x0", hex(1 | n << 8)],
                ["W", "0x1000", "0x05"],
                ["W", "0x2000", "0x03"],
                ["W", "0x10", "0"],
                ["R", "0x4000"],
            ],
            "reads": [["0x4000", "0x0f"]],
        }
        for n in (0, 1)
    ]
    (folder / "golden" / "toy").mkdir(parents=True)
    (folder / "golden" / "toy" / "traces.json").write_text(json.dumps(records))
    found = check(path, groups=1)
    assert found.golden is not None
    assert found.golden.names == ("byte_0", "byte_1")
    assert [p.sentence for p in found.problems] == ["vector byte_1 of toy: a read of 0x4000 gives 0x8, the design gave 0xf"]
    (folder / "golden" / "toy" / "traces.json").write_text("{}")
    answer = flexmatch("check", path)
    assert (answer.code, "golden vectors must be a list of records" in answer.err) == (3, True)


READ = {"name": "r", "commands": [["R", "0x4000"]], "reads": [["0x4000", "0x0f"]]}
TRACE = {"name": "t", "trace": [["W", "0x0", "0x1", 0]]}


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ("[1, 2", "golden vectors must be a list of records in JSON: "),
        ('[{"name": "r", "name": "s"}]', 'it has the key "name" twice'),
        ([READ | {"name": 5}], "a list of records, each with a name"),
        ([READ | {"commands": 5}], 'golden vector "r" must have commands'),
        ([READ | {"commands": [["R", "no number"]]}], 'golden vector "r" must have commands'),
        ([READ | {"commands": [["R"]]}], 'golden vector "r" must have commands'),
        ([READ | {"reads": []}], "must say what each of its 1 reads gave, not of 0"),
        ([READ | {"reads": [["0x4000", 15]]}], "must have reads [address, data]"),
        ([READ | {"commands": [["I"]], "reads": []}], "compares nothing: none of its commands is a read"),
        ([{"name": "k", "program": []}], 'golden vector "k" has none of commands, trace, instructions_hex'),
        ([TRACE], 'compares nothing: no .npz file has an array "t.STATE_after"'),
        ([{"name": "t", "trace": [["W", "0x0", "0x1"]]}], "must have a trace of"),
        ([{"name": "s", "instructions_hex": ["0x1"], "phys_base": 0}], 'has no array "s.dram_before"'),
        ([{"name": "s", "instructions_hex": "0x1", "phys_base": 0}], "must have instructions_hex"),
        ([{"name": "d", "instructions_hex": ["0x1"]}], "and phys_base, a whole number"),
        (lzma.compress(b"[]")[:-8], "this one is cut off"),
        (b"no xz", "must be a whole .xz file"),
    ],
    ids=str,
)
def test_vectors_that_are_malformed_are_refused(toy: Callable[..., str], folder: Path, records: Any, said: str) -> None:
    path = toy()
    (folder / "golden" / "toy").mkdir(parents=True)
    data = records if isinstance(records, bytes) else (records if isinstance(records, str) else json.dumps(records)).encode()
    (folder / "golden" / "toy" / f"traces.json{'.xz' * isinstance(records, bytes)}").write_bytes(data)
    with pytest.raises(FlexmatchError) as refusal:
        replay(load_target(path), load_target(path).ila())
    assert refusal.value.problem.code == "C100"
    assert said in refusal.value.problem.sentence


def test_packed_vectors_are_unpacked_within_a_bound(toy: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "BOUND", replace(golden.BOUND, bytes=1 << 16))
    path = toy()
    (folder / "golden" / "toy").mkdir(parents=True)
    (folder / "golden" / "toy" / "traces.json.xz").write_bytes(lzma.compress(b" " * (1 << 24)))
    with pytest.raises(FlexmatchError, match="has more than 65,536 bytes when it is unpacked"):
        replay(load_target(path), load_target(path).ila())


@pytest.mark.parametrize(("array", "said"), [("t.no_such_state_after", "no_such_state"), ("t.y_after", "")])
def test_states_of_vectors_are_those_of_the_model(toy: Callable[..., str], folder: Path, array: str, said: str) -> None:
    """Also where an array has another size than its state."""
    path = toy()
    (folder / "golden" / "toy").mkdir(parents=True)
    (folder / "golden" / "toy" / "traces.json").write_text(json.dumps([TRACE]))
    np.savez(folder / "golden" / "toy" / "arrays.npz", **{array: np.zeros(1 << 16, np.uint8)})
    target = load_target(path)
    found = replay(target, target.ila())
    assert found is not None
    assert said in found.differences["t"]


def test_shipped_vectors_are_found_and_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one revision of HLSCNN; a simulator that returns wrong bytes is noticed."""
    target = find_target("hlscnn:revision=orig")
    assert golden_folder(target) == ROOT / "tests" / "golden" / "hlscnn"
    found = replay(target, target.ila())
    assert found is not None
    assert (len(found.names), found.differences, found.other_designs) == (8, {}, 36)
    state = Simulator.state
    monkeypatch.setattr(Simulator, "state", lambda sim, name: state(sim, name) ^ 1)
    wrong = replay(target, target.ila())
    assert wrong is not None
    assert len(wrong.differences) == 8


# -- rules and models

RULES = '''from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o

@rule(grade="E")
def relu_over_add(x: Tensor, y: Tensor) -> Law:
    """relu(x + y) = relu(x) + relu(y)"""
    return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))

@rule(grade="E")
def relu_twice(x: Tensor) -> Law:
    """relu(relu(x)) = relu(x)"""
    return o.relu(o.relu(x)), o.relu(x)

@rule(grade="E")
def relu_is_neg(x: Tensor) -> Law:
    """relu(x) = −x"""
    return o.relu(x), o.neg(x)
'''


def test_every_false_rule_of_a_file_is_found() -> None:
    Path("mine.py").write_text(RULES)
    answer = flexmatch("check", "mine.py")
    assert (answer.code, answer.out) == (1, "rules     3 judged\nproblems  2\n")
    assert [Path(line.split(" is ")[0]).name for line in answer.err.splitlines() if "error" in line] == [
        "mine.py:4: error[R102]: rule relu-over-add", "mine.py:14: error[R102]: rule relu-is-neg",
    ]  # fmt: skip


def test_all_independent_problems_of_a_model_are_found() -> None:
    """Two nodes are wrong; what depends on them is not judged, what does not is."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="fine"),
        helper.make_node("Softmax", ["a"], ["b"], name="first", axis=9),
        helper.make_node("Relu", ["b"], ["c"], name="after_first"),
        helper.make_node("Transpose", ["x"], ["d"], perm=[0, 0]),
    ]
    onnx.save(onnx_model(nodes, {"x": [2, 3]}, ["a", "c", "d"]), "bad.onnx")
    found = check("bad.onnx")
    assert [p.place for p in found.problems] == ['bad.onnx:node "first"', 'bad.onnx:node "Transpose_3"']
    onnx.save(perceptron((4, 3)), "good.onnx")
    assert check("good.onnx").is_good


def test_a_model_that_cannot_be_read_has_one_problem_or_is_refused() -> None:
    Path("broken.onnx").write_bytes(b"\x08\x08" + b"\xff" * 30)
    assert flexmatch("check", "broken.onnx").code == 3
    assert flexmatch("check", "missing.onnx").code == 2
    shutil.copy(find_application("digits_mlp").model, "app.onnx")
    assert flexmatch("check", "app.onnx", "-q").code == 0


# -- the command


def test_the_document_has_every_figure_and_the_seed(toy: Callable[..., str]) -> None:
    answer = flexmatch("check", toy(), "--groups", "1", "--seed", "3", "--json", "-")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert document["schema"] == "flexmatch.check/1"
    assert (document["good"], document["seed"], document["kind"], document["golden"]) == (True, 3, "target", None)
    assert document["ila"]["decodes_disjoint"] is True
    [dense] = document["mappings"]
    assert (dense["name"], dense["inputs"], dense["operands"]["x"]) == ("toy.dense", 10, "N(0, 1²)")
    assert dense["relative_error"]["rounded"] == {"mean": 0.0, "deviation": 0.0, "largest": 0.0}
    assert 0 < dense["relative_error"]["held"]["mean"] < dense["relative_error"]["drawn"]["mean"] < 0.05


def test_the_document_of_a_shipped_target() -> None:
    answer = flexmatch("check", "vta", "--groups", "1", "--seed", "3", "--json", "-")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert document["schema"] == "flexmatch.check/1"
    assert (document["good"], document["seed"], document["kind"]) == (True, 3, "target")
    assert document["golden"] == {"run": 55, "equal": 55, "of_other_designs": 1}
    dense = next(m for m in document["mappings"] if m["name"] == "vta.dense")
    assert dense["inputs"] == 10
    assert dense["relative_error"]["held"] == {"mean": 0.0, "deviation": 0.0, "largest": 0.0}
    assert dense["operands"]["x"] == "N(0, 1²)"


def test_the_range_of_an_operation_is_swept() -> None:
    """FlexASR's layer norm sums squares in a word that wraps; a pool only loses what the format cannot hold; integers are not swept."""
    target = find_target("flexasr")
    swept = {
        n: accuracy(m, target.ila(), accuracy_sizes(m), groups=1, binades=(0, 3))
        for n in ("layer_norm", "max_pool")
        for m in (target.mappings[n],)
    }
    assert swept["layer_norm"].binades[0] == pytest.approx(swept["layer_norm"].drawn_errors.mean)
    assert swept["layer_norm"].binades[0] < 0.1 < 1 < swept["layer_norm"].binades[3]
    assert max(swept["max_pool"].binades.values()) < 0.1
    vta = find_target("vta")
    m = vta.mappings["max_pool_int8"]
    assert accuracy(m, vta.ila(), accuracy_sizes(m), groups=1, binades=(0, 3)).binades == {}


def test_the_worst_magnitude_is_printed() -> None:
    errors = {"mean": 0.0, "deviation": 0.0, "largest": 0.0}
    given = {"inputs": 10, "relative_error": dict.fromkeys(("drawn", "held", "rounded"), errors)}
    document = {"ila": None, "kind": "target", "golden": None, "problems": [], "rules": [], "macros": []}
    norm = {**given, "name": "a.norm", "binades": {"-6": 0.9, "3": 3.5}}
    others = [{**given, "name": "a.pool", "binades": {"-6": 0.25, "3": 0.1}}, {**given, "name": "a.codes", "binades": {}}]
    said = lines({**document, "mappings": [norm, *others]}, verbose=False)
    about = "range     operands of 2^-6 … 2^3 times the magnitudes drawn: "
    assert said[said.index(f"{about}more than 25% off are") + 1 : -1] == ["          a.norm: 350% at 2^3"]
    assert f"{about}no operation is more than 25% off" in lines({**document, "mappings": others}, verbose=False)
    assert not any(line.startswith("range") for line in lines({**document, "mappings": others[1:]}, verbose=False))


def test_what_is_no_subject_is_refused() -> None:
    Path("nothing.py").write_text("x = 1\n")
    for subject, code in (("nothing.py", "F203"), ("nobody", "F201"), ("absent.py", "F101")):
        answer = flexmatch("check", subject)
        assert (answer.code, f"error[{code}]" in answer.err) == (2, True), subject


# -- mistakes in the target of the tutorial, one each

FAILS = "the driver of toy.dense fails at every size that is tried, at t=1, k=8, n=1 because"
ADMITS = "the limits of toy.dense admit t=1, k="
MISTAKES: dict[str, tuple[str, str, str]] = {
    "a name of an instruction": ('issue("dot"', 'issue("dott"', '[F203] toy has no instruction "dott"'),
    "a name of a field": (
        "length=length, shift",
        "len=length, shift",
        f'[I104] {FAILS} config has no operand "len"',
    ),
    "a shift of the wrong sign": (
        'return f["x"].fraction + f["w"].fraction - f["y"].fraction',
        'return f["y"].fraction - f["x"].fraction - f["w"].fraction',
        f"[I104] {FAILS} operand shift of config must be in 0…31, not -6",
    ),
    "too many weights": (
        "n * vectors, WEIGHTS)",
        "n * vectors, 2 * WEIGHTS)",
        f"[I106] {ADMITS}512, n=16, which the device refuses: operand index of store_w must be in 0…511, not 1023",
    ),
    "one input too many": (
        "vectors, INPUTS)",
        "vectors, INPUTS + 1)",
        f"[I106] {ADMITS}520, n=7, which the device refuses: operand index of store_x must be in 0…63, not 64",
    ),
    "one result too far": (
        "index=np.arange(len(w)))",
        "index=np.arange(len(w)) + 1)",
        f"[I104] {FAILS} load_y reads vector 1 of y, which nothing has written",
    ),
    "axes of the result": (
        "[..., None, :]",
        "[..., :, None]",
        "[I105] the driver of toy.dense returns an array of shape (5, 1), its numerics one of (1, 5)",
    ),
    "no guard": (
        "x.shape[1] % LANES == 0, ",
        "",
        "[I102] The driver of toy.dense must return an array of codes, or a tuple of them, "
        "not end with ValueError: cannot reshape array of size 519 into shape (64,8)",
    ),
    "a decode that is never true": (
        "bus.write(0x0010)",
        "bus.write(0x0010, m.s.length[()] == 200)",
        "[I101] dot decodes no command: a condition compares what can never be equal",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_target_of_the_tutorial(name: str, tmp_path: Path) -> None:
    right, wrong, sentence = MISTAKES[name]
    assert TOY is not None
    assert right in TOY[1]
    (tmp_path / "toy.py").write_text(TOY[1].replace(right, wrong), "utf-8")
    first = check(str(tmp_path / "toy.py"), groups=1).problems[0]
    assert f"[{first.code}] {first.sentence}" == sentence
    assert first.place.startswith(str(tmp_path / "toy.py"))
    assert first.help or first.code == "I105"
