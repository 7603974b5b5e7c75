"""Small ONNX models built in memory, imported, and compared with onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.file.tensors import CODES
from rewrite_compiler.frontend.graph.opaque import node_proto
from rewrite_compiler.frontend.load import LoadedModel, import_model
from rewrite_compiler.hostrun.sign_conversion import with_unsigned_codes
from rewrite_compiler.ir.evaluate import OpaqueRunner, random_tensor, run
from rewrite_compiler.ir.program import Data, Node, Program, Value
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.limits import DEFAULT, Limits

onnxruntime.set_default_logger_severity(4)

FILE = "app.onnx"
Operand = Any  # an array (a constant), a shape (a float32 input), (dtype, shape) (an input), or None (omitted)


def info(name: str, type_: TensorType) -> Any:
    """Return a declaration of a tensor."""
    return helper.make_tensor_value_info(name, CODES[type_.dtype], list(type_.shape))


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, TensorType | Any],
    outputs: Sequence[str | Any],
    constants: Mapping[str, Data] | None = None,
    *,
    opset: int = 21,
    functions: Sequence[Any] = (),
    domains: Mapping[str, int] | None = None,
    value_info: Sequence[Any] = (),
) -> Any:
    """Return a model; inputs by type or declaration, outputs by name (undeclared) or declaration."""
    graph = helper.make_graph(
        list(nodes),
        "app",
        [info(n, t) if isinstance(t, TensorType) else t for n, t in inputs.items()],
        [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in (constants or {}).items()],
        value_info=list(value_info),
    )
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def single(op: str, operands: Sequence[Operand], *, results: int = 1, opset: int = 21, domain: str = "", **attributes: Any) -> Any:
    """Return a model of one node; constants become initializers, shapes float32 inputs."""
    names = ["" if x is None else f"x{n}" for n, x in enumerate(operands)]
    node = helper.make_node(op, names, [f"y{n}" for n in range(results)], name=op.lower(), domain=domain, **attributes)
    constants = {n: x for n, x in zip(names, operands, strict=True) if isinstance(x, np.ndarray)}
    inputs = {n: _type(x) for n, x in zip(names, operands, strict=True) if x is not None and not isinstance(x, np.ndarray)}
    domains = {domain: 1} if domain else {}
    return model([node], inputs, list(node.output), constants, opset=opset, domains=domains)


def _type(x: Operand) -> TensorType:
    return TensorType(x[1], x[0]) if x and isinstance(x[0], str) else TensorType(tuple(x))


def imported(proto: Any, shapes: Mapping[str, tuple[int, ...]] | None = None, limits: Limits = DEFAULT) -> LoadedModel:
    """Import a model as if it stood in a file, and check that the program is well formed and every node accounted for."""
    loaded = import_model(proto, Path(FILE), "", shapes or {}, limits)
    verify(loaded.program)
    check_accounts(loaded.program, len(proto.graph.node))
    return loaded


def check_accounts(p: Program, nodes: int) -> None:
    """Every source node is in the origins of a live operation, or absorbed with a reason, never both."""
    live = {origin for n in p.nodes for origin in n.origins}
    assert len(p.sources) == nodes
    assert live | p.absorbed.keys() == set(range(nodes))
    assert not live & p.absorbed.keys()
    assert all(p.absorbed.values())
    assert len({s.name for s in p.sources}) == nodes
    defined = [*p.inputs, *p.constants, *(v for n in p.nodes for v in n.outputs)]
    assert len({p.names[v] for v in defined}) == len(defined)


def refusal(proto: Any, shapes: Mapping[str, tuple[int, ...]] | None = None, limits: Limits = DEFAULT) -> str:
    """Return the sentence with which a model is refused."""
    try:
        import_model(proto, Path(FILE), "", shapes or {}, limits)
    except FlexmatchError as error:
        return str(error.at(FILE))
    raise AssertionError("the model was accepted")


def session(proto: Any) -> Any:
    """Return onnxruntime on a model, without its optimisations; products of codes by kernels that are exact on every processor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(with_unsigned_codes(proto.SerializeToString()), options, providers=["CPUExecutionProvider"])


def host(loaded: LoadedModel) -> OpaqueRunner:
    """Return how opaque operations are run: each as a model of its own in onnxruntime."""
    p = loaded.program

    def declared(prefix: str, values: Sequence[Value]) -> list[Any]:
        return [info(f"{prefix}{k}", p.types[v]) for k, v in enumerate(values)]

    def run_node(node: Node, operands: Sequence[Data]) -> Sequence[Data]:
        ins, outs = declared("i", node.inputs), declared("o", node.outputs)
        proto = node_proto(p.opaque_of(node), [i.name for i in ins], [o.name for o in outs])
        imports = [helper.make_opsetid(d, v) for d, v in loaded.imports.items()]
        whole = helper.make_model(helper.make_graph([proto], "one", ins, outs), opset_imports=imports, ir_version=10)
        fed = {f"i{k}": np.asarray(x).astype(p.types[v].dtype) for k, (v, x) in enumerate(zip(node.inputs, operands, strict=True))}
        return list(session(whole).run(None, fed))

    return run_node


def feeds(p: Program, seed: int = 0) -> dict[Value, Data]:
    """Return inputs for a program."""
    random = np.random.default_rng(seed)
    return {v: random_tensor(p.types[v], random) for v in p.inputs}


def agrees(
    proto: Any,
    *,
    ops: Sequence[str] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Data] | None = None,
    tolerance: float = 1e-5,
    real: Any = np.float64,
) -> LoadedModel:
    """Import a model and require onnxruntime's results within `tolerance` of the largest; `ops` are the operations expected."""
    loaded = imported(proto, shapes)
    p = loaded.program
    if ops is not None:
        assert Counter(n.op for n in p.nodes) == Counter(ops)
    fed = {v: (values or {}).get(p.names[v], x) for v, x in feeds(p).items()}
    found = run(p, fed, real=real, opaque=host(loaded))
    wanted = session(proto).run([o.name for o in proto.graph.output], {p.names[v]: x for v, x in fed.items()})
    for v, output, expected in zip(p.outputs, proto.graph.output, wanted, strict=True):
        close(np.asarray(found[v]), expected, tolerance)
        assert p.types[v] == TensorType(expected.shape, str(expected.dtype))
        assert p.names[v] == output.name
    return loaded


def close(found: Data, expected: Data, tolerance: float) -> None:
    """Require equal shapes, equal integers, and floats within `tolerance` of the largest."""
    assert found.shape == expected.shape
    if expected.dtype.kind not in "fc":
        assert np.array_equal(found, expected)
        return
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(largest, 1e-6))


def normal_model() -> Any:
    """Return a model with nothing wrong: a convolution, a reshape and a matrix product."""
    weights = {
        "w": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 2, 2),
        "shape": np.asarray([1, -1], np.int64),
        "m": np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", strides=[1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Reshape", ["b", "shape"], ["c"], name="reshape"),
        helper.make_node("MatMul", ["c", "m"], ["y"], name="matmul"),
    ]
    return model(nodes, {"x": TensorType((1, 3, 3, 3))}, [info("y", TensorType((1, 3)))], weights)
