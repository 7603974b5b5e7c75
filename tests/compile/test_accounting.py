"""Every source node is in exactly one account, whatever nodes stand for it in the chosen program."""

from __future__ import annotations

import numpy as np

from rewrite_compiler.compile.plan.accounting import account
from rewrite_compiler.compile.plan.plan import HostNode
from rewrite_compiler.ir.program import Builder, Node, Program, Source
from rewrite_compiler.ir.types import TensorType


def chain() -> Program:
    """Three source nodes, one after the other."""
    b = Builder("chain")
    v = b.input("x", TensorType((4,)))
    for n, op in enumerate(("relu", "tanh", "relu")):
        (v,) = b.apply(op, (v,), {}, origins=(n,))
    b.sources = [Source(name, "Some") for name in ("first", "second", "third")]
    return b.finish([v])


def test_a_source_node_that_two_offloads_stand_for_is_in_the_first_one() -> None:
    p = chain()
    offloads = {
        "a": Node("device", p.inputs, p.nodes[1].outputs, origins=frozenset({0, 1})),
        "b": Node("device", p.nodes[1].outputs, p.nodes[2].outputs, origins=frozenset({1, 2})),
    }
    found = account(p, p, offloads, lambda _: "why")
    assert (found.offloads, found.host, found.absorbed) == ((("first", "second"), ("third",)), (), ())


def test_a_source_node_of_an_offload_is_not_on_the_host_as_well() -> None:
    p = chain()
    found = account(p, p, {"a": Node("device", p.inputs, p.nodes[1].outputs, origins=frozenset({0, 1}))}, lambda n: n.op)
    assert (found.offloads, found.host, found.absorbed) == ((("first", "second"),), (HostNode("third", "Some", "relu"),), ())


def test_a_product_that_the_host_computes_is_on_the_host_though_an_offload_stands_for_it_too() -> None:
    """A source node that a program computes on the host, and of which a device adds the bias, keeps its multiply-accumulates there."""
    b = Builder("layer")
    x, w = b.input("x", TensorType((2, 3))), b.constant(np.ones((3, 4), np.float32))
    (y,) = b.apply("matmul", (x, w), {}, origins=(0,))
    (z,) = b.apply("relu", (y,), {}, origins=(1,))
    b.sources = [Source("gemm", "Gemm"), Source("relu", "Relu")]
    p = b.finish([z])
    found = account(p, p, {"a": Node("device", (y,), (z,), origins=frozenset({0, 1}))}, lambda n: n.op)
    assert (found.offloads, found.host, found.absorbed) == ((("relu",),), (HostNode("gemm", "Gemm", "matmul"),), ())
