"""Sessions: models on the host by name, refusals in sentences, one run of many samples with the bits of single runs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.frontend.graph.opaque import canonical_node
from rewrite_compiler.frontend.load import load
from rewrite_compiler.hostrun import Session, reference, session
from rewrite_compiler.ir.placement import merge_samples, split_samples
from rewrite_compiler.ir.program import Builder, Node, OpaqueOp
from rewrite_compiler.ir.rebatch import Rebatched, rebatch_cheapest_axis
from rewrite_compiler.ir.types import TensorType

ENGINE = Path(__file__).resolve().parents[2] / "rewrite_compiler"


def affine() -> bytes:
    b = Builder("affine")
    x, i = b.input("x", TensorType((2, 3))), b.input("i", TensorType((2,), "int64"))
    (y,) = b.apply("dense", [x, b.constant(np.ones((4, 3), np.float32))], names=["y"])
    (z,) = b.apply("gather", [y, i], {"axis": 0}, names=["z"])
    return to_onnx(b.finish([y, z]))


LITTLE = """
import resource, sys
from pathlib import Path
import onnxruntime
from rewrite_compiler.errors import BudgetError
from rewrite_compiler.hostrun import Session

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), used + (8 << 20)))
try:
    Session(Path(sys.argv[1]).read_bytes(), threads=64)
except BudgetError as error:
    print(error)
"""


def test_a_machine_without_memory_for_threads_is_not_the_models_fault(tmp_path: Path) -> None:
    (tmp_path / "app.onnx").write_bytes(affine())
    run = subprocess.run([sys.executable, "-c", LITTLE, tmp_path / "app.onnx"], capture_output=True, text=True, check=True)
    said = "error[X101]: the model cannot be run on the host: there is no memory, or no thread, left for it\n  help: "
    assert run.stdout.startswith(said)


X, INDICES = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 0])


def test_outputs_come_by_name() -> None:
    session = Session(affine(), name="affine")
    assert [str(p) for p in session.inputs] == ["float32[2, 3]", "int64[2]"]
    found = session.run({"x": X, "i": INDICES})
    assert list(found) == ["y", "z"]
    assert found["z"][0].tolist() == [12, 12, 12, 12]
    assert list(session.run({"x": X, "i": INDICES}, ["z"])) == ["z"]


def test_parts_share_memory_and_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": X, "i": INDICES}
    alone = Session(affine()).run(x)
    for is_there in (True, False):
        if not is_there:  # an onnxruntime without such memory
            monkeypatch.setattr(session, "_shared", [])
            monkeypatch.setattr("onnxruntime.create_and_register_allocator", None)
        parts = [Session(affine(), is_part=True) for _ in range(3)]
        for found in (part.run(x) for part in parts * 2):
            assert all(found[name].tobytes() == y.tobytes() for name, y in alone.items())
        assert session._shared == [is_there]


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        make()
    return str(caught.value)


def test_wrong_inputs_are_refused_in_sentences() -> None:
    run = Session(affine(), name="affine").run
    assert refusal(lambda: run({"x": X})) == 'error[C100]: affine needs the input "i" of type int64[2]'
    assert (
        refusal(lambda: run({"x": X.astype("float64"), "i": INDICES}))
        == 'error[C100]: Input "x" of affine must be float32[2, 3], not float64[2, 3]'
    )
    assert refusal(lambda: run({"x": X[:1], "i": INDICES})) == 'error[C100]: Input "x" of affine must be float32[2, 3], not float32[1, 3]'
    assert (
        refusal(lambda: run({"x": X, "i": INDICES, "j": INDICES}))
        == 'error[C100]: affine has no input called "j"\n  help: its inputs are "x", "i"'
    )
    assert (
        refusal(lambda: run({"x": X, "i": INDICES}, ["w"]))
        == 'error[C100]: affine has no output called "w"\n  help: its outputs are "y", "z"'
    )


def test_onnxruntime_failing_is_one_sentence() -> None:
    at_run = refusal(lambda: Session(affine(), name="affine").run({"x": X, "i": np.array([5, 0])}))
    assert at_run.startswith("error[C107]: affine failed on the host: ")
    assert "indices element out of data bounds, idx=5" in at_run
    assert "\n" not in at_run
    assert refusal(lambda: Session(b"abc")) == (
        "error[F162]: the model cannot be run on the host: Failed to load model because protobuf parsing failed"
    )
    assert refusal(lambda: Session(affine(), threads=0)) == "error[F203]: Number of threads must be positive, not 0"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "m.onnx"
    assert refusal(lambda: reference(missing)) == f"{missing}: error[F101]: there is no such file"
    assert refusal(lambda: reference(tmp_path)) == f"{tmp_path}: error[F101]: a model must be a regular file"
    missing.write_bytes(affine())
    assert reference(missing).name == "m.onnx"


def test_open_extents_take_any_size(tmp_path: Path) -> None:
    import onnx

    model = onnx.ModelProto.FromString(affine())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    del model.graph.value_info[:], model.graph.output[0].type.tensor_type.shape.dim[:]
    session = Session(model.SerializeToString())
    assert str(session.inputs[0]) == "float32[?, 3]"
    assert session.run({"x": np.ones((5, 3), np.float32), "i": INDICES})["y"].shape == (5, 4)


def test_only_hostrun_imports_onnxruntime() -> None:
    found = set()
    for file, text in ((f, f.read_text("utf-8")) for f in ENGINE.rglob("*.py")):
        for node in ast.walk(ast.parse(text)) if "onnxruntime" in text else ():
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(n.split(".")[0] == "onnxruntime" for n in names):
                found.add(file.relative_to(ENGINE).parts[0])
    assert found == {"hostrun"}


def test_importing_the_package_does_not_load_onnxruntime() -> None:
    code = "import rewrite_compiler.hostrun, sys; print('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_onnxruntime_itself_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    made = helper.make_node("Conv", ["x", "k"], ["y"], auto_pad="SAME_UPPER", pads=[1, 1, 1, 1])
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("x", (1, 1, 8, 8)), ("y", None))]
    kept = [numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "k")]
    model = helper.make_model(helper.make_graph([made], "g", *ends, kept), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    assert refusal(lambda: Session(model.SerializeToString())).startswith("error[F162]: the model cannot be run on the host: ")
    assert capfd.readouterr() == ("", "")


def test_onnxruntime_writes_and_sends_nothing(tmp_path: Path) -> None:
    """From 1.32 on it keeps an id of the machine below the home and sends events unless told otherwise before its import."""
    code = "import rewrite_compiler.hostrun, onnxruntime, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    surroundings = {k: v for k, v in os.environ.items() if k not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")} | {"HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=True)
    assert (run.stdout, list(tmp_path.iterdir())) == ("1\n", [])


def test_float_weights_stay_float_between_quantised_tensors() -> None:
    """Plain onnxruntime would quantise these weights to 8 bits by an optimisation."""
    b = Builder("mixed")
    x = b.input("x", TensorType((1, 1, 1, 4), "int8"))
    scale, zero = b.constant(np.array(1, np.float32)), b.constant(np.array(0, np.int8))
    codes = {"DequantizeLinear": ("float32", [x, scale, zero]), "QuantizeLinear": ("int8", [])}
    values: dict[str, int] = {}
    for op_type, (dtype, operands) in codes.items():
        if op_type == "QuantizeLinear":
            window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
            weights = np.array([100, 0.3, 0.3, 0.3], np.float32).reshape(1, 1, 1, 4)
            (y,) = b.apply("conv", [values["DequantizeLinear"], b.constant(weights)], window)
            (y,) = b.apply("bias_add", [y, b.constant(np.zeros(1, np.float32))], {"axis": 1})
            operands = [y, scale, zero]
        source = helper.make_node(op_type, ["a", "b", "c"], ["d"])
        shape = b.types[operands[0]].shape
        values[op_type] = b.value(TensorType(shape, dtype), op_type)
        b.opaque[op_type] = OpaqueOp(op_type, "", canonical_node(source).SerializeToString(), "not understood")
        b.node(Node("opaque", tuple(operands), (values[op_type],), (("key", op_type),)))
    session = Session(to_onnx(b.finish([values["QuantizeLinear"]])))
    (y,) = session.run({"x": np.array([0, 100, 100, 100], np.int8).reshape(1, 1, 1, 4)}).values()
    assert y.ravel().tolist() == [90]


# -- samples at once


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "axis"),
    [("trained/resnet20_ts17", 0), ("trained/resnet20_ts13_bn", 0), ("trained/mnist-8", 0), ("trained/kws_dscnn_mlperf_int8qdq", 0),
     ("trained/mbv2_cifar10_int8", 0), ("wlm/wlm_h128_lstm_dyn18", 1), ("wlm/wlm_h128_unrolled_dyn18", 1)],
)  # fmt: skip
def test_two_samples_at_once_have_the_bits_of_single_runs(shared_dir: Path, name: str, axis: int) -> None:
    model = load(shared_dir / "models" / f"{name}.onnx")
    p = model.program
    both = rebatch_cheapest_axis(p, 2, p.inputs)
    assert isinstance(both, Rebatched)
    assert {both.places[v].axis for v in p.inputs} == {axis}
    assert both.moves == 0
    alone = Session(to_onnx(p, opset=model.opset))
    together = Session(to_onnx(both.program, opset=model.opset))
    source = reference(shared_dir / "models" / f"{name}.onnx")
    random = np.random.default_rng(0)
    x = {}
    for v in p.inputs:
        t = p.types[v]
        x[v] = (random.standard_normal((2, *t.shape)) if t.is_float else random.integers(0, 99, (2, *t.shape))).astype(t.dtype)
    found = together.run({port.name: merge_samples(x[v], both.places[v]) for v, port in zip(p.inputs, together.inputs, strict=True)})
    for s in range(2):
        inputs = {p.names[v]: np.ascontiguousarray(x[v][s]) for v in p.inputs}
        single, original = list(alone.run(inputs).values()), list(source.run(inputs).values())
        for v, a, b, c in zip(p.outputs, found.values(), single, original, strict=True):
            assert np.array_equal(split_samples(a, both.places[v], 2)[s], b)
            assert np.abs(b.astype(float) - c).max() <= 1e-5 * max(1.0, np.abs(c.astype(float)).max())
