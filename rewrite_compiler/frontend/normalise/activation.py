"""Lowerings of activation functions to the elementwise operators that they are made of."""

from __future__ import annotations

import numpy as np

from ...ir.program import Value
from ..site.context import Unsupported
from ..site.site import Lowering, Site

SELU = (1.6732631921768188, 1.0507010221481323)  # ONNX's default alpha and gamma


def _leaky_relu(site: Site) -> list[Value]:
    site.require_float()
    x = site.value(0)
    slope = site.number(site.get("alpha", 0.01), x, "slope")
    return [_two_slopes(site, x, slope)]


def _two_slopes(site: Site, x: Value, slope: Value) -> Value:
    slope_data = site.context.data(slope)
    if slope_data is not None and not np.isfinite(slope_data).all():  # 0 times it is NaN
        raise Unsupported("its slope is not finite")
    return site.apply("add", site.apply("relu", x), site.apply("mul", _negative_part(site, x), slope))


def _prelu(site: Site) -> list[Value]:
    site.require_float()
    return [_two_slopes(site, site.value(0), site.value(1))]


def _hard_sigmoid(site: Site) -> list[Value]:
    site.require_float()
    return [_hard_sigmoid_of(site, site.value(0), site.get("alpha", 0.2), site.get("beta", 0.5))]


def _hard_sigmoid_of(site: Site, x: Value, alpha: float, beta: float) -> Value:
    line = site.apply("add", site.apply("mul", x, site.number(alpha, x, "alpha")), site.number(beta, x, "beta"))
    return site.apply("clip", line, low=0.0, high=1.0)


def _hard_swish(site: Site) -> list[Value]:
    site.require_float()
    x = site.value(0)
    return [site.apply("mul", x, _hard_sigmoid_of(site, x, 1 / 6, 0.5))]


def gelu(site: Site) -> list[Value]:
    """Lower Gelu, by the error function or its tanh approximation."""
    site.require_float()
    return [gelu_of(site, site.value(0), "tanh" if site.get("approximate", "none") == "tanh" else "erf")]


def gelu_of(site: Site, x: Value, function: str) -> Value:
    """Return GELU(x) = x/2 · (1 + f(…)), with f the error function, or the tanh approximation."""
    inner = x
    if function == "tanh":
        cube = site.apply("mul", site.apply("mul", site.apply("mul", x, x), x), site.number(0.044715, x, "cubic"))
        inner = site.apply("add", x, cube)
    factor = np.sqrt(0.5) if function == "erf" else np.sqrt(2 / np.pi)
    curve = site.apply(function, site.apply("mul", inner, site.number(float(factor), x, "factor")))
    gate = site.apply("add", curve, site.number(1.0, x, "one"))
    return site.apply("mul", site.apply("mul", x, site.number(0.5, x, "half")), gate)


def _negative_part(site: Site, x: Value) -> Value:
    return site.apply("clip", x, low=float("-inf"), high=0.0)


def _elu(site: Site) -> list[Value]:
    site.require_float()
    return [_elu_of(site, site.value(0), site.get("alpha", 1.0))]


def _elu_of(site: Site, x: Value, alpha: float) -> Value:
    """Return max(x, 0) + α · (exp(min(x, 0)) − 1)."""
    decay = site.apply("add", site.apply("exp", _negative_part(site, x)), site.number(-1.0, x, "minus_one"))
    if alpha != 1.0:
        decay = site.apply("mul", decay, site.number(alpha, x, "alpha"))
    return site.apply("add", site.apply("relu", x), decay)


def _selu(site: Site) -> list[Value]:
    site.require_float()
    x = site.value(0)
    curve = _elu_of(site, x, site.get("alpha", SELU[0]))
    return [site.apply("mul", curve, site.number(site.get("gamma", SELU[1]), x, "gamma"))]


def _softplus(site: Site) -> list[Value]:
    """Lower ln(1 + eˣ) to max(x, 0) + ln(1 + e^−|x|), which overflows nowhere."""
    site.require_float()
    x = site.value(0)
    tail = site.apply("exp", site.apply("neg", site.apply("abs", x)))
    return [site.apply("add", site.apply("relu", x), site.apply("log", site.apply("add", tail, site.number(1.0, x, "one"))))]


TABLE: dict[str, Lowering] = {
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Gelu": gelu,
    "Elu": _elu,
    "Selu": _selu,
    "Softplus": _softplus,
}
