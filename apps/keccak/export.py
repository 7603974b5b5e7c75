"""The permutation as an ONNX model: bits are codes 0 and 1, each step is a convolution of codes or a sum of them.

An exclusive or of bits is the parity of their sum s, and over the integers that is s − 2·max(s − 1, 0) + 2·max(s − 2, 0) − …:
codes of uint8 end at 0, so that a convolution gives the terms max(s − j, 0), and the next one takes their sum with its weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .permutation import BITS, LANES, ROUNDS, SIDE, moved_bits, planes, round_constant

if TYPE_CHECKING:
    from onnx import ModelProto

Weights = npt.NDArray[np.int8]

OPSET, CONTRIB_OPSET, IR_VERSION = 17, 1, 8
SHAPE = (1, LANES, 1, BITS)
LANE = np.arange(LANES)
X, Y = LANE % SIDE, LANE // SIDE
THREE = 3  # bits whose parity steps θ and χ take: a lane's and two others


def parity(terms: int) -> list[int]:
    """Return the factors of max(s − j, 0), j = 0 …, whose sum is the parity of s up to as many as there are."""
    return [1] + [2 if j % 2 == 0 else -2 for j in range(1, terms)]


def thresholds(terms: int, channels: int) -> npt.NDArray[np.int32]:
    """Return the biases −j of as many channels for each term."""
    return np.repeat(-np.arange(terms), channels).astype(np.int32)


def column_sums() -> Weights:
    """Return the weights of the terms of the five columns' parities, (term, column) from lanes."""
    return np.tile((np.arange(SIDE)[:, None] == X)[None], (SIDE, 1, 1)).reshape(-1, LANES, 1, 1).astype(np.int8)


def theta() -> Weights:
    """Return the weights of the terms of a lane and two columns' parities, one of them a bit before: from lanes and columns' terms."""
    w = np.zeros((LANES, LANES + SIDE * SIDE, 1, 2), np.int8)
    w[LANE, LANE, 0, 1] = 1
    for term, factor in enumerate(parity(SIDE)):
        w[LANE, LANES + term * SIDE + (X - 1) % SIDE, 0, 1] += factor
        w[LANE, LANES + term * SIDE + (X + 1) % SIDE, 0, 0] += factor
    return np.tile(w, (THREE, 1, 1, 1))


def parities() -> Weights:
    """Return the weights of lanes from their terms."""
    return np.concatenate([np.eye(LANES, dtype=np.int8) * factor for factor in parity(THREE)], 1)[..., None, None]


def products() -> Weights:
    """Return the weights of c − b for lanes a, b, c that are neighbours: its positive part is ¬b ∧ c."""
    w = np.zeros((LANES, LANES, 1, 1), np.int8)
    w[LANE, (X + 2) % SIDE + SIDE * Y] = 1
    w[LANE, (X + 1) % SIDE + SIDE * Y] = -1
    return w


def chi() -> Weights:
    """Return the weights of the terms of two lanes, (term, lane)."""
    pair = np.concatenate([np.eye(LANES, dtype=np.int8)] * 2, 1)
    return np.tile(pair, (THREE, 1))[..., None, None]


def constants(rounds: int) -> dict[str, npt.NDArray[np.generic]]:
    """Return the model's constants."""
    fixed: dict[str, Any] = {
        "unit": np.float32(1), "zero": np.uint8(0), "weight_zero": np.int8(0),
        "column_weights": column_sums(), "column_biases": thresholds(SIDE, SIDE), "theta_weights": theta(),
        "parity_weights": parities(), "product_weights": products(), "chi_weights": chi(),
        "no_biases": np.zeros(LANES, np.int32), "term_biases": thresholds(THREE, LANES),
        "flat": np.array([1, LANES * BITS]), "image": np.array(SHAPE), "moved": moved_bits(),
        "last": np.array([BITS - 1]), "end": np.array([BITS]), "along_bits": np.array([3]),
        "first": np.array([0]), "digest_lanes": np.array([4]), "along_lanes": np.array([1]),
    }  # fmt: skip
    for n in range(rounds):
        fixed[f"iota_{n}.word"] = np.zeros(SHAPE, np.uint8)
        fixed[f"iota_{n}.word"][0, 0] = planes(round_constant(n).to_bytes(BITS // 8, "little"))[0]
    return fixed


@dataclass
class Nodes:
    """The nodes of the rounds written so far; every method adds one and returns its result's name."""

    entries: list[Any] = field(default_factory=list)

    def add(self, op: str, operands: list[str], name: str, **attributes: Any) -> str:
        """Add a node."""
        from onnx import helper

        self.entries.append(helper.make_node(op, operands, [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def conv(self, x: str, weights: str, biases: str, name: str) -> str:
        """Add a convolution of codes with scale 1 and zero point 0: sums below 0 become 0."""
        return self.add("QLinearConv", [x, "unit", "zero", weights, "unit", "weight_zero", "unit", "zero", biases], name)

    def round(self, state: str, n: int) -> str:
        """Add one round."""
        columns = self.conv(state, "column_weights", "column_biases", f"columns_{n}")
        both = self.add("Concat", [state, columns], f"join_{n}", axis=1)
        end = self.add("Slice", [both, "last", "end", "along_bits"], f"end_{n}")
        ring = self.add("Concat", [end, both], f"ring_{n}", axis=3)
        mixed = self.conv(self.conv(ring, "theta_weights", "term_biases", f"theta_{n}"), "parity_weights", "no_biases", f"theta_parity_{n}")
        flat = self.add("Reshape", [mixed, "flat"], f"flatten_{n}")
        moved = self.add("Reshape", [self.add("Gather", [flat, "moved"], f"rho_pi_{n}", axis=1), "image"], f"unflatten_{n}")
        masked = self.conv(moved, "product_weights", "no_biases", f"products_{n}")
        sums = [moved, "unit", "zero", f"iota_{n}.word", "unit", "zero", "unit", "zero"]
        added = self.add("QLinearAdd", sums, f"iota_{n}", domain="com.microsoft")
        terms = self.conv(self.add("Concat", [added, masked], f"pair_{n}", axis=1), "chi_weights", "term_biases", f"chi_{n}")
        return self.conv(terms, "parity_weights", "no_biases", f"chi_parity_{n}")


def to_onnx(rounds: int = ROUNDS) -> ModelProto:
    """Return the model with input `state` (1, 25, 1, 64) of bits and output `digest` (1, 4, 1, 64), after the first `rounds`."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, state = Nodes(), "state"
    for n in range(rounds):
        state = nodes.round(state, n)
    nodes.entries.append(helper.make_node("Slice", [state, "first", "digest_lanes", "along_lanes"], ["digest"], "squeeze"))
    ends = [
        helper.make_tensor_value_info(*v) for v in (("state", TensorProto.UINT8, SHAPE), ("digest", TensorProto.UINT8, (1, 4, 1, BITS)))
    ]
    tensors = [numpy_helper.from_array(np.asarray(x), name) for name, x in constants(rounds).items()]
    graph = helper.make_graph(nodes.entries, "keccak", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", CONTRIB_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rewrite_compiler.apps.keccak")
    checker.check_model(model)
    return model
