"""HLSCNN convolution: what a configuration must fulfil; strict simulation raises the first sentence that does not hold."""

from __future__ import annotations

from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import Expr, Step, require

from .geometry import Geometry, Side

Need = tuple[Expr, str, str]


def limits(m: Ila, g: Geometry) -> list[Step]:
    """Return the diagnostics of a started convolution."""
    return [require(*need) for need in (*_configured(m, g), *_inside(g))]


def _configured(m: Ila, g: Geometry) -> list[Need]:
    s, p = m.s, g.p
    channels, filters = s.conv_input_channels[()], s.conv_filters[()]
    most_channels, most_filters = (1 << p.channel_bits) - 1, (1 << p.filter_bits) - 1
    needs: list[Need] = [
        (g.ends, "I112", "both strides in ConvKernelSize must be 1…7, not 0"),
        ((g.rows.kernel > 0) & (g.cols.kernel > 0), "I112", "both kernel sizes in ConvKernelSize must be 1…255, not 0"),
        ((g.rows.size > 0) & (g.cols.size > 0), "I112", "rows and columns in ConvInputSize must be 1…1023, not 0"),
        ((channels > 0) & (channels <= most_channels), "I112", f"channels in ConvInputSize must be 1…{most_channels}"),
        ((filters > 0) & (filters <= most_filters), "I112", f"filters in ConvChannelCfg must be 1…{most_filters}"),
    ]
    if p.grouped_output:
        sentence = "rows and columns in ConvOutputSize must be 1…(input − kernel) / stride + 1: the device does not pad"
        needs.append((_is_valid(g.rows) & _is_valid(g.cols), "I112", sentence))
    return needs


def _is_valid(side: Side) -> Expr:
    return (side.extent > 0) & ((side.extent - 1) * side.stride + side.kernel <= side.size)


def _inside(g: Geometry) -> list[Need]:
    spad = g.p.spad_bytes
    source, size = ("SPAD1", spad) if g.is_unified else ("the SoC memory", g.p.soc_bytes)
    regions = (
        ("weights", "SPAD0", g.weight_base, g.weight_size, spad),
        ("activations", source, g.act_base, g.act_size, size),
        ("outputs", "SPAD1", g.output_base, g.output_size, spad),
    )
    return [
        ((base >= 0) & (base + length <= room), "I103", f"the {what} of a convolution must lie inside {where}")
        for what, where, base, length, room in regions
    ]
