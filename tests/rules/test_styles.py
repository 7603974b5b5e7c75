"""One model in many spellings: the shipped rules saturate and give every spelling the same offloads at the same cost."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.egraph.saturation.saturate import saturate
from rewrite_compiler.ir.program import Builder, Program, Value
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

RULES = shipped_rules()
LINEAR = [m for m in find_target("flexasr").mappings.values() if m.operation == "linear"]


class Net:
    """A program under construction; every operation is its own source node."""

    def __init__(self) -> None:
        self.builder = Builder("net")
        self.random = np.random.default_rng(0)
        self.count = 0

    def input(self, *shape: int) -> Value:
        return self.builder.input("x", TensorType(shape))

    def weight(self, *shape: int) -> Value:
        return self.builder.constant(self.random.uniform(0.5, 1.5, shape).astype(np.float32))

    def apply(self, op: str, *operands: Value, **attributes: object) -> Value:
        self.count += 1
        return self.builder.apply(op, operands, attributes, origins=[self.count])[0]  # type: ignore[arg-type]

    def shape(self, v: Value) -> tuple[int, ...]:
        return self.builder.types[v].shape

    def conv(self, x: Value, filters: int, kernel: int, stride: int = 1) -> Value:
        w = self.weight(filters, self.shape(x)[1], kernel, kernel)
        pads = (kernel // 2,) * 4
        return self.apply("conv", x, w, strides=(stride, stride), pads=pads, dilations=(1, 1), group=1)


# -- spellings of what follows a convolution with `n` filters


def folded(net: Net, y: Value, n: int) -> Value:
    return net.apply("bias_add", y, net.weight(n), axis=1)


def normalised(net: Net, y: Value, n: int) -> Value:
    return net.apply("batch_norm", y, *(net.weight(n) for _ in range(4)), epsilon=1e-5)


def normalised_after_bias(net: Net, y: Value, n: int) -> Value:
    return normalised(net, folded(net, y, n), n)


def spelt_out(net: Net, y: Value, n: int) -> Value:
    return net.apply("add", net.apply("mul", y, net.weight(1, n, 1, 1)), net.weight(n, 1, 1))


def spelt_out_backwards(net: Net, y: Value, n: int) -> Value:
    return net.apply("add", net.weight(1, n, 1, 1), net.apply("mul", net.weight(n, 1, 1), y))


# -- spellings of the linear layer at the end


def dense_head(net: Net, x: Value, n: int) -> Value:
    return net.apply("bias_add", net.apply("dense", x, net.weight(n, net.shape(x)[1])), net.weight(n), axis=1)


def matmul_head(net: Net, x: Value, n: int) -> Value:
    return net.apply("add", net.weight(1, n), net.apply("matmul", x, net.weight(net.shape(x)[1], n)))


def turned_head(net: Net, x: Value, n: int) -> Value:
    w = net.apply("transpose", net.weight(n, net.shape(x)[1]), perm=(1, 0))
    return net.apply("add", net.apply("matmul", x, w), net.weight(n))


def reshaped_head(net: Net, x: Value, n: int) -> Value:
    y = net.apply("matmul", net.apply("reshape", x, shape=(1, *net.shape(x))), net.weight(net.shape(x)[1], n))
    return net.apply("reshape", net.apply("add", y, net.weight(n)), shape=(1, n))


STYLES = {
    "folded, dense": (folded, dense_head),
    "batch norm, matmul": (normalised, turned_head),
    "bias and batch norm, reshaped": (normalised_after_bias, reshaped_head),
    "mul and add": (spelt_out, matmul_head),
    "add and mul, exchanged": (spelt_out_backwards, matmul_head),
}
After = Callable[[Net, Value, int], Value]


def residual_network(after: After, head: After) -> Program:
    net = Net()
    x = net.apply("relu", after(net, net.conv(net.input(1, 3, 8, 8), 8, 3), 8))
    for filters, stride in ((8, 1), (16, 2)):
        y = net.apply("relu", after(net, net.conv(x, filters, 3, stride), filters))
        y = after(net, net.conv(y, filters, 3), filters)
        x = after(net, net.conv(x, filters, 1, stride), filters) if stride > 1 else x
        x = net.apply("relu", net.apply("add", x, y))
    x = net.apply("reshape", net.apply("reduce_mean", x, axes=(2, 3), keepdims=1), shape=(1, 16))
    return net.builder.finish([head(net, x, 10)])


def counted(p: Program) -> int:
    return sum(n.op in {m.name for m in LINEAR} for n in p.nodes)


@pytest.fixture(scope="module")
def reference_cost() -> tuple[int, ...]:
    return tuple(match(residual_network(folded, dense_head), RULES, LINEAR, DEFAULT).extraction.cost)


@pytest.mark.parametrize("style", STYLES)
def test_every_spelling_of_a_residual_network_gives_the_same_offloads(style: str, reference_cost: tuple[int, ...]) -> None:
    found = match(residual_network(*STYLES[style]), RULES, LINEAR, DEFAULT)
    assert (found.saturation.reason, found.extraction.status) == ("saturated", "optimal")
    assert counted(found.program) == 7
    assert tuple(found.extraction.cost) == reference_cost
    assert found.saturation.graph.e_nodes < 900


# -- linear layers of any rank


def after_matmul(*shape: int) -> Callable[[Net, Value], Value]:
    def layer(net: Net, x: Value) -> Value:
        return net.apply("add", net.apply("matmul", x, net.weight(net.shape(x)[-1], 6)), net.weight(*shape))

    return layer


def without_bias(net: Net, x: Value) -> Value:
    return net.apply("matmul", x, net.weight(net.shape(x)[-1], 6))


def subtracting(net: Net, x: Value) -> Value:
    return net.apply("sub", without_bias(net, x), net.weight(6))


def reshaped_before_bias(net: Net, x: Value) -> Value:
    rows = math.prod(net.shape(x)[:-1])
    y = without_bias(net, net.apply("reshape", x, shape=(rows, net.shape(x)[-1])))
    return net.apply("add", net.apply("reshape", y, shape=(*net.shape(x)[:-1], 6)), net.weight(1, 1, 6))


def squeezed_bias(net: Net, x: Value) -> Value:
    return net.apply("add", without_bias(net, x), net.apply("reshape", net.weight(1, 6), shape=(6,)))


def weight_times_data(net: Net, x: Value) -> Value:
    y = net.apply("matmul", net.weight(6, net.shape(x)[1]), x)
    return net.apply("add", y, net.weight(6, 1))


def convolved_lines(net: Net, x: Value) -> Value:
    y = net.apply("conv", x, net.weight(6, net.shape(x)[1], 1), strides=(1,), pads=(0, 0), dilations=(1,), group=1)
    return net.apply("bias_add", y, net.weight(6), axis=1)


LAYERS: dict[str, Callable[[Net, Value], Value]] = {
    "bias [n]": after_matmul(6),
    "bias [1, n]": after_matmul(1, 6),
    "bias [1, 1, n]": after_matmul(1, 1, 6),
    "no bias": without_bias,
    "subtracted": subtracting,
    "reshaped": reshaped_before_bias,
    "squeezed bias": squeezed_bias,
    "weight on the left": weight_times_data,
    "one-dimensional convolution": convolved_lines,
}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_spelling_of_a_linear_layer_is_offloaded(layer: str) -> None:
    net = Net()
    found = match(net.builder.finish([LAYERS[layer](net, net.input(3, 4, 5))]), RULES, LINEAR, DEFAULT)
    assert counted(found.program) == 1
    assert found.extraction.cost[:2] == (0, 0)


def test_two_activations_multiplied_stay_on_the_host() -> None:
    net = Net()
    x = net.input(3, 4, 4)
    found = match(net.builder.finish([net.apply("matmul", x, x)]), RULES, LINEAR, DEFAULT)
    assert counted(found.program) == 0


def test_grouped_convolutions_stay_on_the_host() -> None:
    net = Net()
    x = net.input(1, 4, 5, 5)
    y = net.apply("conv", x, net.weight(4, 2, 3, 3), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=2)
    found = match(net.builder.finish([normalised(net, y, 4)]), RULES, LINEAR, DEFAULT)
    assert counted(found.program) == 0


def test_long_chains_saturate() -> None:
    net = Net()
    x = net.input(1, 8, 8, 8)
    for _ in range(12):
        x = net.apply("add", x, normalised(net, net.conv(net.apply("relu", x), 8, 3), 8))
    found = saturate(net.builder.finish([x]), RULES, [], DEFAULT)
    assert found.reason == "saturated"
    assert found.graph.e_nodes < 12 * 70
