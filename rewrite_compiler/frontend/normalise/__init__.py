"""Lowerings of ONNX operators to core operators, by family."""

from ..site.site import Lowering
from . import activation, classical, contrib, conv, einsum, elementwise, layout, linear, norm, quantised, recurrent, reduction, upsampling

LOWERINGS: dict[str, Lowering] = {
    **elementwise.TABLE,
    **activation.TABLE,
    **linear.TABLE,
    **einsum.TABLE,
    **conv.TABLE,
    **norm.TABLE,
    **reduction.TABLE,
    **layout.TABLE,
    **recurrent.TABLE,
    **quantised.TABLE,
    **contrib.TABLE,
    **upsampling.TABLE,
}

# by domain
BY_DOMAIN: dict[str, dict[str, Lowering]] = {
    "": LOWERINGS,
    "com.microsoft": {**quantised.CONTRIB, **contrib.CONTRIB},
    "ai.onnx.ml": classical.TABLE,
}

__all__ = ["BY_DOMAIN", "LOWERINGS", "Lowering"]
