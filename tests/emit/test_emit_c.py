"""The C program of a plan, on the C model of its accelerator, gives the bits of the simulators and the exact host."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board import compiled, gcc, needs_gcc, toy_text
from command import flexmatch, onnx_model, refused
from onnx import helper

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.emit.c.device_model import device_files
from rewrite_compiler.emit.c.program import program_files
from rewrite_compiler.emit.mmio.inference import Inference, Onnxruntime
from rewrite_compiler.errors import InputError
from rewrite_compiler.hostrun import exact_host as exact
from rewrite_compiler.ir.evaluate import run as by_meaning
from rewrite_compiler.target import simulated_device

IMAGES = 2
CLANG = shutil.which("clang")
CASES = (("digits_cnn", "flexasr"), ("digits_cnn", "hlscnn"), ("digits_mlp", "vta"), ("digits_mlp", "toy"))


def images() -> np.ndarray:
    with np.load(find_application("digits_cnn").data) as data:
        return np.ascontiguousarray(data["image"][:: len(data["image"]) // IMAGES][:IMAGES].reshape(-1, 1, 1, 8, 8), np.float32)


def plan_for(app: str, target: str, folder: Path) -> Plan:
    if target == "toy":
        (folder / "toy.py").write_text(toy_text(), "utf-8")
        target = str(folder / "toy.py")
    a = find_application(app)
    with np.load(a.calibration) as data:
        samples = {"image": data["image"].reshape(-1, 1, 1, 8, 8).astype(np.float32)}
    return calibrated(compile_model(a.model, [target]), samples, "calibration.npz", "")


def simulated(plan: Plan, x: np.ndarray, host: Any) -> np.ndarray:
    ilas = {t.name: t.ila() for t in plan.targets}
    devices: dict[str, Any] = {}

    def device_for(o: Any) -> Any:
        return devices.setdefault(o.target.name, simulated_device(ilas[o.target.name], samples=1)), None

    p = plan.program
    return np.asarray(Inference(plan).run({p.names[p.inputs[0]]: x}, device_for, host)[p.outputs[0]])


@needs_gcc
@pytest.mark.parametrize(("app", "target"), CASES)
def test_the_program_on_the_device_gives_the_bits_of_cosimulation(app: str, target: str, tmp_path: Path) -> None:
    """One image after the other on one device that is never reset; one unchanged file for all of them."""
    plan = plan_for(app, target, tmp_path)
    files = {**program_files(plan), **device_files(plan.targets[0].ila(), plan.targets[0].name)}
    if target == "toy":
        assert program_files(plan) == {name: files[name] for name in ("model.h", "model.c")}
    library = ctypes.CDLL(str(compiled(files, tmp_path / "c", "-O0")))
    onnxruntime = Onnxruntime()
    expected = Engine(plan, host="exact").run({"image": images()}, batch=IMAGES).outputs["logits"]
    for n, x in enumerate(images()):
        y = np.zeros((1, 10), np.float32)
        inputs, outputs = ((ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, y))
        assert library.infer(inputs, outputs) == 0
        assert y.tobytes() == expected[n].tobytes(), n
        if target != "hlscnn":  # the others leave the host no sums, so its order of adding cannot show
            assert np.array_equal(y, simulated(plan, x, onnxruntime)), n
        else:
            assert np.allclose(y, simulated(plan, x, onnxruntime), rtol=0, atol=1e-4), n


@needs_gcc
def test_a_program_for_two_accelerators_names_them(tmp_path: Path) -> None:
    """Two memory-mapped ones; the boards of both devices in one library."""
    a, x = find_application("digits_cnn"), images()
    (tmp_path / "toy.py").write_text(toy_text(), "utf-8")
    with np.load(a.calibration) as data:
        samples = {"image": data["image"].reshape(-1, 1, 1, 8, 8).astype(np.float32)}
    plan = calibrated(compile_model(a.model, ["hlscnn", str(tmp_path / "toy.py")]), samples, "calibration.npz", "")
    assert {o.target.name for o in plan.offloads} == {"hlscnn", "toy"}
    files = dict(program_files(plan))
    for t in plan.targets:
        files |= device_files(t.ila(), t.name)
    library = ctypes.CDLL(str(compiled(files, tmp_path / "c", "-O0", "-DMMIO_SEVERAL")))
    expected = Engine(plan, host="exact").run({"image": x}, batch=IMAGES).outputs["logits"]
    for n in range(IMAGES):
        y = np.zeros((1, 10), np.float32)
        assert library.infer((ctypes.c_void_p * 1)(x[n].ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)) == 0
        assert y.tobytes() == expected[n].tobytes(), n


@needs_gcc
def test_the_program_says_what_it_cannot_do(tmp_path: Path) -> None:
    """A value that is not a number, and the answer of a bus that refuses."""
    plan = plan_for("digits_mlp", "toy", tmp_path)
    refusing = b'#include "model.h"\nint mmio_wait(void) { return 0; }\n' + b"".join(
        f"int mmio_{name}(uint64_t a, {kind}uint8_t d[16]) {{ (void)a; (void)d; return 7; }}\n".encode()
        for name, kind in (("write128", "const "), ("read128", ""))
    )
    library = ctypes.CDLL(str(compiled({**program_files(plan), "bus.c": refusing}, tmp_path / "c", "-O0")))
    y = np.zeros((1, 10), np.float32)
    for value, answer in ((np.float32(1), 7), (np.float32(np.nan), -20)):
        x = np.full((1, 1, 8, 8), value, np.float32)
        assert library.infer((ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)) == answer


@needs_gcc
def test_constants_are_sent_again_only_when_they_may_be_gone(tmp_path: Path) -> None:
    """After a failed inference and after `model_forget` every constant is sent; the bits are always the same."""
    plan = plan_for("digits_mlp", "vta", tmp_path)
    files = {**program_files(plan), **device_files(plan.targets[0].ila(), "vta")}
    files["vta_board.c"] = files["vta_board.c"].replace(b"int mmio_run(const", b"int real_run(const")
    counting = "typedef const unsigned char (*words)[16];\nint real_run(words, unsigned long);\nint mmio_run(words, unsigned long);\n"
    counting += "int count;\nint mmio_run(words w, unsigned long n) { count += (int)n; return real_run(w, n); }\n"
    declared = b"int real_run(const uint8_t (*instructions)[16], size_t count);\nstatic"
    files["vta_board.c"] = files["vta_board.c"].replace(b"static", declared, 1)
    library = ctypes.CDLL(str(compiled({**files, "counting.c": counting.encode()}, tmp_path / "c", "-O0")))
    sent, bits = ctypes.c_int.in_dll(library, "count"), set()

    def infer(x: np.ndarray) -> tuple[int, int]:
        sent.value, y = 0, np.zeros((1, 10), np.float32)
        answer = library.infer((ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data))
        bits.update([y.tobytes()] if answer == 0 else [])
        return answer, sent.value

    x = images()[0]
    first, second = infer(x), infer(x)
    assert first[0] == second[0] == 0
    assert 0 < second[1] < first[1]
    assert infer(np.full_like(x, np.nan)) == (-20, 0)
    assert infer(x) == first
    library.model_forget()
    assert [infer(x), infer(x)] == [first, second]
    assert len(bits) == 1


@needs_gcc
def test_c_plus_plus_can_include_the_headers(tmp_path: Path) -> None:
    plan = plan_for("digits_mlp", "toy", tmp_path)
    for name, data in {**program_files(plan), **device_files(plan.targets[0].ila(), "toy")}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "t.c").write_text('#include "model.h"\n#include "toy_device.h"\n')
    gcc(tmp_path, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-fsyntax-only", "t.c")


@pytest.mark.parametrize(("app", "target"), CASES)
def test_every_function_is_called(app: str, target: str, tmp_path: Path) -> None:
    """clang complains of a function of the file that nothing calls, also where it is inline."""
    plan = plan_for(app, target, tmp_path)
    for name, data in {**program_files(plan), **device_files(plan.targets[0].ila(), target)}.items():
        words = Counter(re.findall(r"\w+", data.decode()))
        own = re.findall(r"(?m)^static [^=;{]*?(\w+)\(", data.decode())
        assert [f for f in own if words[f] < 2] == [], name


@pytest.mark.skipif(CLANG is None, reason="clang is not installed: generated C is not compiled with it")
@pytest.mark.parametrize("target", ["flexasr", "hlscnn", "vta"])
def test_clang_has_no_complaint(target: str, tmp_path: Path) -> None:
    plan = plan_for("digits_cnn", target, tmp_path)
    files = {**program_files(plan), **device_files(plan.targets[0].ila(), target)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    sources = [name for name in files if name.endswith(".c")]
    run = [str(CLANG), "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *sources]
    assert subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False).stderr == ""


def refusal(plan: Plan) -> tuple[str, str, str]:
    with pytest.raises(InputError) as caught:
        program_files(plan)
    p = caught.value.problem
    return p.code, p.sentence, p.place


def test_an_operator_without_a_c_form_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("Cos", ["x"], ["y"], name="waves")]
    onnx.save(onnx_model(nodes, {"x": [1, 4]}, ["y"]), tmp_path / "waves.onnx")
    answer = flexmatch("emit", "c", "waves.onnx", "--accel", "vta")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith('node "y": error[F161]: Cos has no C form')


def test_other_types_are_named(tmp_path: Path) -> None:
    import onnx

    nodes = [helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Add", ["t", "t"], ["y"])]
    model = onnx_model(nodes, {"x": [1, 4]}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    onnx.save(model, tmp_path / "double.onnx")
    assert refusal(compile_model(tmp_path / "double.onnx", ["vta"])) == (
        "F161", "x must be float32 or int64 to have a C form, not float64", "",
    )  # fmt: skip


def test_a_plan_without_formats_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = "error[C100]: the plan is not calibrated: its offloads have no formats\n  help: compile with --calibrate FILE"
    refused(flexmatch("emit", "c", find_application("digits_mlp").model, "--accel", "vta"), 2, said)


def test_the_exact_host_is_the_meaning_in_single_precision() -> None:
    """Close to the meaning in double precision, and the same bits as adding one product after the other."""
    source = compile_model(find_application("digits_cnn").model, ["hlscnn"]).source
    for x in images()[:1]:
        given = {source.inputs[0]: x}
        found, meant = exact.run(source, given), by_meaning(source, given)
        assert all(np.allclose(found[v], meant[v], rtol=0, atol=1e-4) and found[v].dtype == np.float32 for v in source.outputs)
    rng = np.random.default_rng(3)
    a, w = rng.normal(0, 1, (5, 70)).astype(np.float32), rng.normal(0, 1, (3, 70)).astype(np.float32)
    from rewrite_compiler.ir.program import Builder
    from rewrite_compiler.ir.types import TensorType

    made = Builder("dense")
    x_, w_ = made.input("x", TensorType((5, 70), "float32")), made.input("w", TensorType((3, 70), "float32"))
    (y_,) = made.apply("dense", [x_, w_], {})
    (found_,) = exact.run(made.finish([y_]), {x_: a, w_: w}).values()
    expected = np.zeros((5, 3), np.float32)
    for k in range(70):
        expected = expected + a[:, None, k] * w[None, :, k]
    assert found_.tobytes() == expected.tobytes()
