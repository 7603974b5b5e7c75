"""Layer norm and root mean square norm from their parts: every spelling is one layer norm on a device that has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.frontend.load import import_model
from rewrite_compiler.ir.program import Program
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

RULES = [r for r in shipped_rules() if "/normalisation.py" in r.place or "/linear.py" in r.place]
NORMS = [m for m in find_target("flexasr").mappings.values() if m.operation == "layer_norm"]
WIDTH = 16
Node = Callable[..., str]


def centred(node: Node) -> tuple[str, str]:
    """Return x − μ and √(variance + ε)."""
    d = node("Sub", "x", node("ReduceMean", "x", axes=[-1]))
    return d, d


def quotient(node: Node) -> str:
    d, e = centred(node)
    return node("Div", d, deviation(node, node("Pow", e, "two")))


def product(node: Node) -> str:
    d, e = centred(node)
    return node("Mul", d, node("Reciprocal", deviation(node, node("Mul", e, e))))


def affine(node: Node) -> str:
    return node("Add", node("Mul", quotient(node), "g"), "b")


def keras(node: Node) -> str:
    """Return x · k + (b − μ · k), k = g / √(variance + ε)."""
    mean = node("ReduceMean", "x", axes=[-1])
    d = node("Sub", "x", mean)
    k = node("Mul", node("Reciprocal", deviation(node, node("Mul", d, d))), "g")
    return node("Add", node("Mul", "x", k), node("Sub", "b", node("Mul", mean, k)))


def root_mean_square(node: Node) -> str:
    return node("Mul", node("Div", "x", deviation(node, node("Pow", "x", "two"))), "g")


def deviation(node: Node, squares: str) -> str:
    return node("Sqrt", node("Add", node("ReduceMean", squares, axes=[-1]), "eps"))


def program(spelling: Callable[[Node], str]) -> Program:
    nodes = []

    def node(op: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    last = spelling(node)
    ramp = np.linspace(0.5, 1.5, WIDTH, dtype=np.float32)
    data = {"two": np.float32(2), "eps": np.float32(1e-5), "g": ramp, "b": -ramp}
    x, y = (helper.make_tensor_value_info(name, 1, [3, WIDTH]) for name in ("x", last))
    graph = helper.make_graph(nodes, "norm", [x], [y], [numpy_helper.from_array(np.asarray(v), k) for k, v in data.items()])
    return import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), Path("norm.onnx"), "", {}, DEFAULT).program


@pytest.mark.parametrize("spelling", [quotient, product, affine, keras, root_mean_square])
def test_a_norm_from_its_parts_is_one_layer_norm(spelling: Callable[[Node], str]) -> None:
    found = match(program(spelling), RULES, NORMS, DEFAULT)
    names = {m.name for m in NORMS}
    assert found.saturation.reason == "saturated"
    assert [n.op for n in found.program.nodes if n.op in names] == ["flexasr.layer_norm"]
    assert not [n for n in found.program.nodes if n.op not in names and n.operator is not None and n.operator.kind == "compute"]
