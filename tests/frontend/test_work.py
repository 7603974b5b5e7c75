"""Operators that stay whole have their multiply-accumulates counted, or are known to be uncounted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import imported, model, single

from rewrite_compiler.frontend.importer.mac_counts import MAC_COUNTERS, MAC_FREE, UNCOUNTED, macs_of
from rewrite_compiler.frontend.site.site import Site
from rewrite_compiler.ir.program import nodes_of_unknown_macs, total_macs
from rewrite_compiler.ir.types import TensorType

MS, ML = "com.microsoft", "ai.onnx.ml"
Shape = tuple[int, ...]


def counted(op: str, operands: list[Shape | None], result: Shape, domain: str = "", **attributes: Any) -> int | None:
    """Return the multiply-accumulates of a node of some shapes."""
    types = {n: TensorType(s) for n, s in enumerate(operands) if s is not None}
    context: Any = SimpleNamespace(builder=SimpleNamespace(types=types))
    inputs = tuple(n if n in types else None for n in range(len(operands)))
    site = Site(context, op, domain, 21, inputs, ("y",), attributes, 0, "")
    return macs_of(site, helper.make_node(op, [], ["y"], domain=domain), [TensorType(result)])


# operator, shapes of operands and result, attributes, what a person writes down
CASES: list[tuple[str, list[Shape | None], Shape, dict[str, Any], int | None]] = [
    ("ConvTranspose", [(1, 16, 8, 8), (16, 12, 2, 2)], (1, 12, 16, 16), {}, 8 * 8 * 16 * 12 * 4),
    ("ConvTranspose", [(2, 6, 5), (6, 4, 3)], (2, 8, 7), {"group": 2}, 2 * 5 * 6 * 4 * 3),
    ("Conv", [(1, 8, 6, 6), (4, 2, 3, 3)], (1, 4, 4, 4), {"group": 4}, 4 * 16 * 2 * 9),
    ("QLinearConv", [(1, 8, 6), (), (), (4, 8, 3)], (1, 4, 4), {}, 4 * 4 * 8 * 3),
    ("MatMul", [(2, 3, 5), (2, 5, 7)], (2, 3, 7), {}, 2 * 3 * 5 * 7),
    ("Gemm", [(5, 3), (5, 7)], (3, 7), {"transA": 1}, 3 * 5 * 7),
    ("Einsum", [(2, 3, 4), (4, 5), (5, 6)], (2, 3, 6), {"equation": "...c,cd,de->...e"}, 2 * 3 * 4 * 5 * 6 * 2),
    ("Einsum", [(3, 4)], (3,), {"equation": "ij->i"}, 0),
    ("LSTM", [(7, 2, 3), (1, 20, 3), (1, 20, 5)], (7, 1, 2, 5), {}, 7 * 2 * (20 * 3 + 20 * 5)),
    ("GRU", [(2, 7, 3), (2, 15, 3), (2, 15, 5)], (2, 7, 2, 5), {"layout": 1}, 7 * 2 * 2 * (15 * 3 + 15 * 5)),
    ("Attention", [(1, 2, 5, 8), (1, 2, 9, 8), (1, 2, 9, 6)], (1, 2, 5, 6), {}, 2 * 5 * 9 * (8 + 6)),
    ("Attention", [(1, 5, 16), (1, 4, 16), (1, 4, 16), None, (1, 2, 3, 8)], (1, 5, 16), {}, 5 * 7 * (16 + 16)),
    ("Sin", [(3, 4)], (3, 4), {}, 0),
    ("STFT", [(1, 64, 1), ()], (1, 3, 9, 2), {}, None),
    ("Det", [(4, 4)], (), {}, None),
    (f"{MS}:FusedConv", [(1, 8, 6, 6), (4, 8, 3, 3)], (1, 4, 4, 4), {}, 4 * 16 * 8 * 9),
    (f"{MS}:QGemm", [(3, 5), (), (), (5, 7)], (3, 7), {}, 3 * 5 * 7),
    (f"{MS}:FusedMatMul", [(2, 5, 3), (2, 5, 7)], (2, 3, 7), {"transA": 1}, 2 * 3 * 5 * 7),
    (f"{MS}:FusedMatMul", [(2, 5, 3), (2, 5, 7)], (2, 3, 7), {"transBatchA": 1}, None),
    (f"{MS}:MatMulNBits", [(3, 64), (7, 2, 16)], (3, 7), {"K": 64, "N": 7}, 3 * 64 * 7),
    (f"{MS}:DynamicQuantizeLSTM", [(7, 2, 3), (1, 3, 20), (1, 5, 20)], (7, 1, 2, 5), {}, 7 * 2 * (60 + 100)),
    (f"{MS}:Attention", [(1, 5, 16), (16, 48), (48,)], (1, 5, 16), {}, 5 * 16 * 48 + 5 * 5 * 32),
    (f"{MS}:QAttention", [(1, 5, 16), (16, 48), (48,)], (1, 5, 16), {}, 5 * 16 * 48 + 5 * 5 * 32),
    (f"{MS}:MultiHeadAttention", [(1, 5, 16), (1, 9, 16), (1, 9, 16)], (1, 5, 16), {}, 5 * 9 * 32),
    (f"{MS}:MultiHeadAttention", [(1, 5, 2, 3, 8)], (1, 5, 16), {}, None),
    (f"{MS}:FastGelu", [(3, 4)], (3, 4), {}, 0),
    (f"{MS}:BeamSearch", [(3, 4)], (3, 4), {}, None),
    (f"{ML}:LinearRegressor", [(3, 4)], (3, 2), {"coefficients": (1.0,) * 8, "targets": 2}, 3 * 8),
    (f"{ML}:SVMRegressor", [(3, 4)], (3, 1), {}, None),
    (f"{ML}:TreeEnsembleRegressor", [(3, 4)], (3, 1), {}, 0),
    ("own:Thing", [(3, 4)], (3, 4), {}, None),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_operator_has_the_count_that_a_person_writes_down(
    case: tuple[str, list[Shape | None], Shape, dict[str, Any], int | None],
) -> None:
    name, operands, result, attributes, expected = case
    domain, _, op = name.rpartition(":")
    assert counted(op, operands, result, domain, **attributes) == expected


def test_what_is_counted_is_not_called_free() -> None:
    assert not [(domain, op) for domain, op in MAC_COUNTERS if op in MAC_FREE.get(domain, ())]
    assert not [op for domain, op in MAC_COUNTERS if not domain and op in UNCOUNTED]


def test_branches_count_only_if_nothing_in_them_multiplies() -> None:
    def branches(op: str) -> Any:
        def body(name: str) -> Any:
            node = helper.make_node(op, ["x"] * (2 if op == "MatMul" else 1), [name])
            return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, 1, (3, 3))])

        node = helper.make_node("If", ["c"], ["y"], then_branch=body("a"), else_branch=body("b"))
        inputs = {"c": TensorType((), "bool"), "x": TensorType((3, 3))}
        p = imported(model([node], inputs, ["y"])).program
        return [op.macs for op in p.opaque.values()]

    assert branches("Sin") == [0]
    assert branches("MatMul") == [None]


def test_equal_operators_of_other_shapes_have_counts_of_their_own() -> None:
    nodes = [helper.make_node("Det", ["a"], ["d"]), helper.make_node("MatMulInteger", ["p", "q"], ["y"]),
             helper.make_node("MatMulInteger", ["p", "r"], ["z"])]  # fmt: skip
    inputs = {"a": TensorType((4, 4)), **{n: TensorType((2, 3, k), "uint8") for n, k in (("p", 3), ("q", 5), ("r", 7))}}
    p = imported(model(nodes, inputs, ["d", "y", "z"])).program
    assert total_macs(p) == 2 * 3 * 3 * (5 + 7)
    assert [p.opaque_of(n).op_type for n in nodes_of_unknown_macs(p)] == ["Det"]
    assert not nodes_of_unknown_macs(imported(single("Sin", [(3, 4)])).program)
    assert np.all([n.op == "opaque" for n in p.nodes])
