"""HLSCNN convolution: what a configuration must fulfil; strict simulation raises the first sentence that does not hold."""

from collections.abc import Iterator

from rewrite_compiler.lang import Expr, Step, require

from .geometry import Geometry


def limits(g: Geometry) -> Iterator[Step]:
    """Yield the diagnostics of a started convolution."""
    p, rows, cols = g.p, g.rows, g.cols
    yield require(g.ends, "I112", "both strides in ConvKernelSize must be 1…7, not 0")
    yield require((rows.kernel > 0) & (cols.kernel > 0), "I112", "both kernel sizes in ConvKernelSize must be 1…255, not 0")
    yield require((rows.size > 0) & (cols.size > 0), "I112", "rows and columns in ConvInputSize must be 1…1023, not 0")
    yield _counted(g.r.conv_input_channels, p.channel_bits, "channels in ConvInputSize")
    yield _counted(g.r.conv_filters, p.filter_bits, "filters in ConvChannelCfg")
    if p.grouped_output:
        sentence = "rows and columns in ConvOutputSize must be 1…(input − kernel) / stride + 1: the device does not pad"
        yield require(rows.is_inside & cols.is_inside, "I112", sentence)
    source = "SPAD1" if g.is_unified else "the SoC memory"
    for label, where, region in (("weights", "SPAD0", g.weights), ("activations", source, g.activations), ("outputs", "SPAD1", g.outputs)):
        yield region.require(f"the {label} of a convolution must lie inside {where}")


def _counted(number: Expr, bits: int, label: str) -> Step:
    return require((number > 0) & (number < 1 << bits), "I112", f"{label} must be 1…{(1 << bits) - 1}")
