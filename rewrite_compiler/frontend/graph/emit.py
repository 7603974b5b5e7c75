"""Export of a program as an ordinary ONNX model; offloads become local functions whose bodies are their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import onnx
from onnx import helper

from ...errors import InputError, SpecError
from ...ir.program import OPAQUE, Node, Program, Value
from ...ir.types import TensorType
from ...limits import DEFAULT
from ..file.tensors import CODES
from .onnx_spelling import NodeExport, export_node
from .opaque_nodes import is_supported, restored_node
from .writer import Names, Writer

OPSETS = range(21, 27)
FUNCTION_DOMAIN = "flexmatch."
LEAST_IR_VERSION = 8
BodyOf = Callable[[Node], Program]


@dataclass(frozen=True)
class FileMetadata:
    """What the exported file says about itself: documentation text and metadata entries."""

    doc: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def to_onnx(p: Program, body_of: BodyOf | None = None, *, opset: int = 0, about: FileMetadata | None = None) -> bytes:
    """Return a program as the bytes of an ONNX model.

    A device node "target.operation" becomes a call of a local function in the domain flexmatch.target; its body is
    `body_of(node)`, a program of core operators whose inputs are the node's. Value names are the program's, made
    unique; equal programs give equal bytes. `opset` is the model's; 0 takes the least one that has every opaque operator.
    Other domains have the operator sets that their nodes were read in.

    Raises:
        InputError: the operator set or an operator cannot be written, or the constants exceed a protobuf message.
        SpecError: a body's inputs or results have other types than its device node's.
    """
    return bytes(to_model(p, body_of, opset=opset, about=about).SerializeToString(deterministic=True))


def to_model(p: Program, body_of: BodyOf | None = None, *, opset: int = 0, about: FileMetadata | None = None) -> Any:
    """Return a program as an ONNX ModelProto; the contract of `to_onnx`.

    Raises:
        InputError: the operator set or an operator cannot be written, or the constants exceed a protobuf message.
        SpecError: a body's inputs or results have other types than its device node's.
    """
    opset = opset or least_opset(p)
    if opset not in OPSETS:
        raise InputError("F111", f"Opset of a written model must be {OPSETS[0]} to {OPSETS[-1]}, not {opset}", place=p.name)
    _check_size(p)
    functions = Functions(body_of, opset)
    graph = _graph(p, functions)
    domain_versions = {o.domain: o.version for o in sorted(p.opaque.values(), key=lambda o: o.version) if o.domain not in ("", "ai.onnx")}
    versions = {"": opset, **dict(sorted(domain_versions.items())), **dict.fromkeys(functions.domains, 1)}
    imports = [helper.make_opsetid(d, v) for d, v in versions.items()]
    model = helper.make_model(
        graph, opset_imports=imports, functions=functions.protos, producer_name="flexmatch", producer_version=version("flexmatch"),
        ir_version=max(LEAST_IR_VERSION, helper.find_min_ir_version_for(imports, ignore_unknown=True)),
    )  # fmt: skip
    about = about or FileMetadata()
    model.doc_string = about.doc
    helper.set_model_props(model, dict(sorted(about.metadata.items())))
    return model


def least_opset(p: Program) -> int:
    """Return the least operator set, 21 or later, that has every opaque operator of a program with its attributes."""
    payloads = [onnx.NodeProto.FromString(o.payload) for o in p.opaque.values()]
    return next((opset for opset in OPSETS if all(is_supported(node, opset) for node in payloads)), OPSETS[-1])


def _check_size(p: Program) -> None:
    total = sum(p.types[v].nbytes for v in p.constants)
    if total >= DEFAULT.protobuf_bytes:
        raise InputError(
            "F105", f"Constants of a written model must take less than {DEFAULT.protobuf_bytes} bytes, not {total}", place=p.name
        )


class Functions:
    """The local functions of a model: one for each distinct body, in order of first call."""

    def __init__(self, body_of: BodyOf | None, opset: int) -> None:
        self.body_of = body_of
        self.opset = opset
        self.protos: list[Any] = []
        self._names_by_body: dict[tuple[str, str, bytes], str] = {}
        self._names: dict[str, Names] = {}

    @property
    def domains(self) -> list[str]:
        """The domains in use, sorted."""
        return sorted(self._names)

    def call(self, p: Program, node: Node) -> tuple[str, str]:
        """Return domain and name of the function that a device node calls, adding it on first use.

        Raises:
            InputError: there is no body for the node.
            SpecError: the body's inputs or results have other types than the node's.
        """
        target, dot, operation = node.op.partition(".")
        if self.body_of is None or not dot:
            raise InputError("F161", f"operator {node.op} has no spelling in ONNX", place=f'node "{p.names[node.outputs[0]]}"')
        body = self.body_of(node)
        _check_body(p, node, body)
        domain = FUNCTION_DOMAIN + target
        function = _function(body, domain, self.opset)
        key = (domain, operation, function.SerializeToString(deterministic=True))
        if key not in self._names_by_body:
            function.name = self._names_by_body[key] = self._names.setdefault(domain, Names()).unique(operation)
            self.protos.append(function)
        return domain, self._names_by_body[key]


def _check_body(p: Program, node: Node, body: Program) -> None:
    for kind, outer, inner in (("inputs", node.inputs, body.inputs), ("results", node.outputs, body.outputs)):
        actual, expected = [body.types[v] for v in inner], [p.types[v] for v in outer]
        if actual != expected:
            texts = [", ".join(map(str, t)) for t in (expected, actual)]
            raise SpecError("F131", f"Body of {node.op} must have the {kind} {texts[0]}, not {texts[1]}")


def _function(body: Program, domain: str, opset: int) -> Any:
    emission = Emission(body, Functions(None, opset), in_function=True)
    inputs, outputs = emission.emit()
    return helper.make_function(domain, "", inputs, outputs, emission.writer.nodes, [helper.make_opsetid("", opset)])


def _graph(p: Program, functions: Functions) -> Any:
    emission = Emission(p, functions)
    inputs, outputs = emission.emit()
    port_names = {*inputs, *outputs}
    infos = [_info(emission.names[v], p.types[v]) for n in p.nodes for v in n.outputs if emission.names[v] not in port_names]
    return helper.make_graph(
        emission.writer.nodes, p.name or "model",
        [_info(name, p.types[v]) for name, v in zip(inputs, p.inputs, strict=True)],
        [_info(name, p.types[v]) for name, v in zip(outputs, p.outputs, strict=True)],
        initializer=emission.writer.initializers, value_info=infos,
    )  # fmt: skip


def _info(name: str, t: TensorType) -> Any:
    return helper.make_tensor_value_info(name, CODES[t.dtype], t.shape)


class Emission:
    """One program while it is exported as a graph or a function body."""

    def __init__(self, p: Program, functions: Functions, *, in_function: bool = False) -> None:
        self.p = p
        self.functions = functions
        names = Names()
        computed = [v for n in p.nodes for v in n.outputs]
        # inputs and outputs keep their names; what is inside gives way
        order: Iterable[Value] = dict.fromkeys((*p.inputs, *(v for v in p.outputs if v not in p.constants), *computed, *p.constants))
        self.names = {v: names.unique(p.names[v]) for v in order}
        self.writer = Writer(names, in_function=in_function)
        self._written: set[Value] = set()

    def emit(self) -> tuple[list[str], list[str]]:
        """Write all nodes and return the names of inputs and outputs."""
        for node in self.p.nodes:
            self._node(node)
        computed = {v for n in self.p.nodes for v in n.outputs}
        outputs: list[str] = []
        for v in self.p.outputs:
            name = self.names[v]
            if v not in computed or name in outputs:  # an output has its own name and is the result of a node
                name = self.writer.step(name, "Identity", self.read(v))
            outputs.append(name)
        return [self.names[v] for v in self.p.inputs], outputs

    def read(self, value: Value) -> str:
        """Return the name of a value; a constant is written on first use."""
        data = self.p.constants.get(value)
        if data is not None and value not in self._written:
            self._written.add(value)
            self.writer.constant(self.names[value], data, self.p.types[value].dtype)
        return self.names[value]

    def _node(self, node: Node) -> None:
        results = [self.names[v] for v in node.outputs]
        if node.operator is not None:
            labels = [self.names[v] for v in node.inputs]
            export_node(NodeExport(self.p, node, results, labels, self.read, self.writer))
            return
        operands = [self.read(v) for v in node.inputs]
        if node.op == OPAQUE:
            self.writer.nodes.append(restored_node(self.p.opaque_of(node), operands, results, self.writer.names))
            return
        domain, name = self.functions.call(self.p, node)
        self.writer.node(name, operands, results, domain)
