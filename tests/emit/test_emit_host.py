"""Host operators as C are the exact host bit for bit: real functions, recurrences and data movement by indices."""

from __future__ import annotations

import ctypes
import hashlib
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from board import compiled, needs_gcc
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import compile_model
from rewrite_compiler.emit.c.program import program_files
from rewrite_compiler.hostrun import exact_host as exact
from rewrite_compiler.hostrun.exact_host import leaf_of
from rewrite_compiler.lang.binders import array
from rewrite_compiler.lang.expr import call
from rewrite_compiler.lang.libm.functions import DEFINITIONS
from rewrite_compiler.lowering.lower import lower_array
from rewrite_compiler.readings.c.printer import Style, Tables, print_c
from rewrite_compiler.readings.c.runtime import PRELUDE, RUNTIME
from rewrite_compiler.readings.native.single_precision import NativeArray

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, 3.4e38, 88.72, -87.3, -103.9, 0.5], np.float32)
MEANT = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": np.vectorize(math.erf), "sin": np.sin, "cos": np.cos, "pow": np.power,
}  # fmt: skip
ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, 3.4e38, 0.5, -0.5, 2, -3, 1 + 2**-23, 1 - 2**-24, 16777216, -16777215]
RNG = np.random.default_rng(9)


def every_exponent() -> np.ndarray:
    """Return numbers of both signs and all 256 exponents, each with the smallest, the largest and three other fractions."""
    fractions = np.array([0, 1, (1 << 23) - 1, *RNG.integers(0, 1 << 23, 3)], np.uint32)
    return (np.arange(512, dtype=np.uint32)[:, None] << 23 | fractions).reshape(-1).view(np.float32)


def wide_values(count: int) -> np.ndarray:
    """Return numbers of all magnitudes, and those where functions end or bend."""
    bits = RNG.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([SPECIAL, bits, RNG.normal(0, 3, count).astype(np.float32), RNG.uniform(-110, 95, count).astype(np.float32)])


def operands_of(name: str) -> list[np.ndarray]:
    """Return operands of a real function; of powers also those whose results are of all magnitudes, and all pairs of ends."""
    x = np.concatenate([wide_values(4000), every_exponent()])
    if name != "pow":
        return [x]
    ends = np.array(ENDS, np.float32)
    near = np.abs(np.concatenate([x, (1 + RNG.normal(0, 1e-5, 4000)).astype(np.float32)]))
    with np.errstate(all="ignore"):
        exponents = (RNG.uniform(-150, 129, near.size) / np.log2(near.astype(np.float64))).astype(np.float32)
    pairs = [(x, x[::-1]), (near, exponents), (np.repeat(ends, ends.size), np.tile(ends, ends.size))]
    return [np.concatenate([p[k] for p in pairs]) for k in range(2)]


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_real_functions_are_within_three_units_of_the_last_place(name: str) -> None:
    """The sign, zeros, infinities and what is no number are those of IEEE 754."""
    x = operands_of(name)
    with np.errstate(all="ignore"):
        found = np.asarray(exact._Evaluator({}, "", "").real_function(name, *x), np.float32)
        meant = MEANT[name](*(v.astype(np.float64) for v in x))
        rounded = meant.astype(np.float32)
    normal = np.isfinite(rounded) & (np.abs(rounded) > np.finfo(np.float32).tiny)
    units = np.abs(found[normal] - meant[normal]) / np.spacing(np.abs(rounded[normal]))
    assert units.max() < 3
    assert np.array_equal(np.isnan(found), np.isnan(rounded))
    assert np.array_equal(np.isinf(found), np.isinf(rounded))
    zero = (found == 0) != (rounded == 0)
    assert np.max(np.abs(np.where(zero, found, 0) - np.where(zero, rounded, 0))) <= np.finfo(np.float32).tiny


# of the bits of each function's values: the same on every machine, and of every release until this table is changed on purpose
BITS = {
    "cos": "b529749b93d4d6fa", "erf": "935ed97469a82649",
    "exp": "31ed4bd9fbc93ade", "log": "cb98ffec3c672177",
    "pow": "8758a4e2301c55c8", "sin": "a3acc99cfe53ba01",
    "tanh": "977046e16716e569",
}  # fmt: skip


def test_real_functions_keep_their_bits() -> None:
    """On numbers of every exponent and both signs, those near 1, and where functions end."""
    wide, near = np.arange(4096, dtype=np.uint64) * 0x9E3779B9, (0x3F000000 + np.arange(0, 1 << 24, 1 << 14)).astype(np.uint32)
    x = np.concatenate([np.array(ENDS, np.float32), SPECIAL, wide.astype(np.uint32).view(np.float32), near.view(np.float32)])
    ends = x[: len(ENDS)]
    pairs = [np.concatenate([x, np.repeat(ends, ends.size)]), np.concatenate([x[::-1], np.tile(ends, ends.size)])]
    with np.errstate(all="ignore"):
        found = {f: exact._Evaluator({}, "", "").real_function(f, *(pairs if f == "pow" else [x])) for f in DEFINITIONS}
    values = {f: np.where(np.isnan(y), np.float32(np.nan), y) for f, y in found.items()}
    assert {f: hashlib.sha256(values[f].tobytes()).hexdigest()[:16] for f in sorted(values)} == BITS


def read_thrice(folder: Path, name: str, x: list[np.ndarray]) -> list[bytes]:
    """Return the bytes of a function's values in machine code, by numpy and in C."""
    leaves = [leaf_of(v.shape, "float32", f"x{k}") for k, v in enumerate(x)]
    whole = array(lambda i: call(name, *(leaf[i] for leaf in leaves)), x[0].shape)
    memories = dict(zip(leaves, x, strict=True))
    tables, found = Tables(), np.zeros_like(x[0])
    made = print_c(lower_array(whole), "values", tables, Style("float", True, False))
    text = "".join([PRELUDE, RUNTIME, *tables.texts, tables.fill_text, made.text])
    pointers = ", ".join(f"p[{k}]" for k in range(len(made.memories)))
    text += f"int run(float **p) {{ fm_scratch s = {{0}}; fm_fill_tables(); return values(&s, {pointers}); }}\n"
    library = ctypes.CDLL(str(compiled({"t.c": text.encode()}, folder, "-O1")))
    places = (ctypes.c_void_p * len(made.memories))(*(memories.get(leaf, found).ctypes.data for leaf in made.memories))
    assert library.run(places) == 0
    return [NativeArray(whole).elements(memories).tobytes(), exact.by_numpy([whole], memories)[0].tobytes(), found.tobytes()]


@needs_gcc
@pytest.mark.parametrize("name", [*sorted(DEFINITIONS), "sqrt"])
def test_real_functions_have_one_result_in_machine_code_numpy_and_c(name: str, tmp_path: Path) -> None:
    """On random numbers, those where functions end, and every exponent; what is no number has the same bits too."""
    native, numpy, c = read_thrice(tmp_path, name, operands_of(name))
    assert native == numpy
    assert c == numpy


def lstm() -> list[onnx.NodeProto]:
    return [helper.make_node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["all", "y", "last"], hidden_size=3)]


MODELS = {
    "softmax": ([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": (2, 9)}, {}),
    "log_softmax": ([helper.make_node("LogSoftmax", ["x"], ["y"], axis=-1)], {"x": (2, 9)}, {}),
    "sigmoid": ([helper.make_node("Sigmoid", ["x"], ["y"])], {"x": (3, 40)}, {}),
    "tanh": ([helper.make_node("Tanh", ["x"], ["y"])], {"x": (3, 40)}, {}),
    "erf": ([helper.make_node("Erf", ["x"], ["y"])], {"x": (3, 40)}, {}),
    "exp_log": ([helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Log", ["t"], ["y"])], {"x": (3, 40)}, {}),
    "pow": ([helper.make_node("Abs", ["x"], ["t"]), helper.make_node("Pow", ["t", "x"], ["y"])], {"x": (3, 40)}, {}),
    "embedding": ([helper.make_node("Gather", ["table", "words"], ["y"])], {"words": (2, 3)}, {"table": (7, 5)}),
    "lstm": (lstm(), {"x": (4, 1, 5)}, {"w": (1, 12, 5), "r": (1, 12, 3), "b": (1, 24), "h": (1, 1, 3), "c": (1, 1, 3)}),
}


def model_of(name: str, path: Path) -> dict[str, np.ndarray]:
    """Write a model and return a sample of its inputs."""
    nodes, inputs, constants = MODELS[name]
    indices = TensorProto.INT64 if name == "embedding" else TensorProto.FLOAT
    declared = [helper.make_tensor_value_info(n, indices, shape) for n, shape in inputs.items()]
    values = [numpy_helper.from_array(RNG.normal(0, 1, shape).astype(np.float32), n) for n, shape in constants.items()]
    graph = helper.make_graph(nodes, name, declared, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    if name == "embedding":
        return {"words": np.array([[0, 6, -1], [-7, 3, 3]], np.int64)}
    return {n: RNG.normal(0, 3, shape).astype(np.float32) for n, shape in inputs.items()}


@needs_gcc
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_program_of_host_operators_has_the_bits_of_the_exact_host(name: str, tmp_path: Path) -> None:
    given = model_of(name, tmp_path / "m.onnx")
    plan = compile_model(tmp_path / "m.onnx", ["hlscnn"])
    assert plan.offloads == ()
    p = plan.program
    values = {**p.constants, **{v: given[p.names[v]] for v in p.inputs}}
    for node in p.nodes:
        operands = [values[v] for v in node.inputs]
        made = exact.run_node(p, node, operands)
        leaves = [leaf_of(x.shape, str(x.dtype), "x") for x in operands]
        meaning = node.operator.meaning(*leaves, **dict(node.attributes))
        arrays = meaning if isinstance(meaning, tuple) else (meaning,)
        by_numpy = exact.by_numpy(arrays, dict(zip(leaves, operands, strict=True)))
        assert [x.tobytes() for x in made] == [x.tobytes() for x in by_numpy]
        values.update(zip(node.outputs, made, strict=True))
    expected = values[p.outputs[0]]
    library = ctypes.CDLL(str(compiled(program_files(plan), tmp_path / "c", "-O0")))
    found = np.zeros_like(expected)
    inputs = (ctypes.c_void_p * len(p.inputs))(*(given[p.names[v]].ctypes.data for v in p.inputs))
    assert library.infer(inputs, (ctypes.c_void_p * 1)(found.ctypes.data)) == 0
    assert found.tobytes() == expected.tobytes()
