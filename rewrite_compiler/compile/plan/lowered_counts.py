"""Counts lowered offloads apart: those that the closed forms of Table 2 do not count.

A closed form counts ungrouped convolutions and products with a weight, each as one offload. A grouped convolution in blocks, a
product of two computed tensors, and a product as a convolution exceed it, in number or in kind; a convolution over one axis as one
over two does not.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from collections.abc import Sequence

from ...ir.program import Node, Program
from ...ops.op import COMPUTE, Apply, subterms
from ...target import Mapping

PRODUCTS = ("dense", "matmul")


def are_lowered(source: Program, devices: Sequence[Node], mappings: MappingOf[str, Mapping]) -> list[bool]:
    """Tell for each device operation whether it is a lowered one: it stands for one computing source node outside the closed forms."""
    fixed = set(source.constants)
    for n in source.nodes:
        if n.operator is not None and all(v in fixed for v in n.inputs):
            fixed.update(n.outputs)
    computing: dict[int, list[Node]] = {}
    for n in source.nodes:
        if n.operator is not None and n.operator.kind == COMPUTE and n.op != "batch_norm":
            for s in n.origins:
                computing.setdefault(s, []).append(n)
    flags = []
    for device in devices:
        nodes = list({id(n): n for s in device.origins for n in computing.get(s, ())}.values())
        flags.append(bool(mappings[device.op].runtime_weights) or (len(nodes) == 1 and _is_lowered(nodes[0], fixed, mappings[device.op])))
    return flags


def _is_lowered(n: Node, fixed: set[int], m: Mapping) -> bool:
    convolves = any(isinstance(x, Apply) and x.op.name == "conv" for x in subterms(m.rule.left))
    if n.op == "conv":
        return n.attribute("group") != 1
    if n.op not in PRODUCTS:
        return False
    return convolves or not any(v in fixed for v in n.inputs)
