"""Operations are judged before they are used: refuted ones are refused with codes, open ones noted, known ones not judged anew."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, Plan, compile_model, to_json
from rewrite_compiler.compile.document import plan_of_document
from rewrite_compiler.errors import AnswerNo, UsageError
from rewrite_compiler.prove.certificates import operations

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-accelerator.md"
FAULTS = {
    "a weight row too far": ("first=n * length, to=n", "first=(n + 1) * length % WEIGHTS, to=n"),
    "a shift off by one": ("shift=shift_of(f))", "shift=shift_of(f) + 1)"),
    "results taken as unsigned": ("(lanes + np.int64(128)) % 256 - 128", "lanes"),
}  # fmt: skip


def toy(folder: Path, old: str = "", new: str = "") -> str:
    """Write the tutorial's accelerator with a text exchanged; return its path."""
    found = re.search(r"```python file=toy.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    assert old in found[1]
    folder.mkdir(exist_ok=True)
    (folder / "toy.py").write_text(found[1].replace(old, new) if old else found[1], "utf-8")
    return str(folder / "toy.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32), "w")
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 16)), ("y", (1, 4)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [w])
    path = tmp_path_factory.mktemp("model") / "dense.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def covers(plan: Plan) -> set[str]:
    return {r.covers for o in plan.offloads for r in o.because if r.rule == "toy.dense"}


def test_an_own_operation_is_judged_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "cache"))  # in which no other test has had it judged
    monkeypatch.setattr(operations, "_JUDGEMENTS", {})
    said: list[str] = []
    plan = compile_model(model, toy(tmp_path), progress=said.append)
    assert (covers(plan), said, plan.notes) == ({"symbolic"}, ["toy.dense"], ())
    monkeypatch.setattr(operations, "_JUDGEMENTS", {})  # as another process
    assert covers(compile_model(model, toy(tmp_path), progress=said.append)) == {"symbolic"}
    assert said == ["toy.dense"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refuted_operation_is_refused_with_codes(fault: str, model: Path, tmp_path: Path) -> None:
    accelerator = toy(tmp_path, *FAULTS[fault])
    with pytest.raises(AnswerNo) as refusal:
        compile_model(model, accelerator)
    problem = refusal.value.problem
    assert problem.code == "I105"
    assert re.fullmatch(
        r"operation toy\.dense is false: driver and numerics differ at .*; driver -?\d+, numerics -?\d+ at .*", problem.sentence
    )
    assert problem.place.startswith(accelerator)
    assert "--without toy.dense" in (problem.help or "")


def test_an_edited_model_is_refused_also_for_a_plan_that_was_made_before(model: Path, tmp_path: Path) -> None:
    plan = compile_model(model, toy(tmp_path))
    document = to_json(plan)
    text = Path(toy(tmp_path)).read_text("utf-8").replace("code = dot_product(", "code = narrow_product(", 1)
    twin = text[text.index("def dot_product") : text.index("def build")].replace("dot_product", "narrow_product")
    twin = twin.replace("most = (1 << 19) - 1", "most = (1 << 13) - 1").replace("LANES), 20)", "LANES), 14)")
    (tmp_path / "toy.py").write_text(text.replace("def build", f"{twin}def build", 1), "utf-8")
    with pytest.raises(AnswerNo, match=r"operation toy\.dense is false: driver and numerics differ at t=1, k=\d+, n=\d+"):
        plan_of_document(document, model, "plan.json", [str(tmp_path / "toy.py")])


def test_what_is_trusted_by_name_is_used_and_said(model: Path, tmp_path: Path) -> None:
    accelerator = toy(tmp_path, *FAULTS["a shift off by one"])
    plan = compile_model(model, accelerator, Options(trusted=("toy.dense",)))
    assert (covers(plan), plan.notes) == ({"used on trust"}, ("operation toy.dense is refuted and used on trust (R108)",))
    with pytest.raises(UsageError, match=r'there is no rule or operation called "toy\.gemm"'):
        compile_model(model, accelerator, Options(trusted=("toy.gemm",)))


def test_a_loss_of_simulators_is_not_attributed_to_numerics_that_are_not_what_they_return(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.ones((40, 1, 16), np.float32))
    accelerator = toy(tmp_path, *FAULTS["a shift off by one"])
    arguments = ["cosim", model, "--accel", accelerator, "--data", "data.npz", "--trust-unproved", "toy.dense", "--attribute"]
    answer = flexmatch(*arguments, "--engine", "simulator")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error[F203]: --attribute changes numerics: those of toy.dense are not proved to be what ")
    answer = flexmatch(*arguments)
    assert answer.code == 1
    assert "error[C104]: " in answer.err
    assert "  help: correct driver, numerics or model: flexmatch prove compares all three" in answer.err


def test_what_is_not_used_is_not_judged(model: Path, tmp_path: Path) -> None:
    plan = compile_model(model, toy(tmp_path, *FAULTS["a shift off by one"]), Options(without=("toy.dense",)))
    assert plan.offloads == ()


def test_an_operation_that_the_court_leaves_open_is_used_with_the_reason(model: Path, tmp_path: Path) -> None:
    accelerator = toy(
        tmp_path, "    length = x.shape[-1] // LANES\n    device.issue", "    raise OSError('no such board')\n    device.issue"
    )
    plan = compile_model(model, accelerator)
    (note,) = plan.notes
    reason = "The driver of toy.dense must return an array of codes, or a tuple of them, not end with OSError: no such board"
    assert note.startswith(f"operation toy.dense is unproved and used on trust (R108): {reason} at {accelerator}:")
