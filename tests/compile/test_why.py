"""Why a node stays on the host, with the figures of that node."""

from __future__ import annotations

from pathlib import Path

from small_models import node, weight, written

from rewrite_compiler.compile.compile import Options, compile_model


def test_each_layer_over_capacity_is_told_its_own_figure(model: Path) -> None:
    layers = [
        node("LayerNormalization", "x g b", "y"), node("Concat", "x x", "c", axis=1), node("LayerNormalization", "c h d", "z"),
    ]  # fmt: skip
    written(model, layers, (2, 8000), ["y", "z"], g=weight(8000), b=weight(8000), h=weight(16000), d=weight(16000))
    reasons = {h.node: h.why_not for h in compile_model(model, ["flexasr"]).host}
    assert "): vectors of a timestep 500, must be at most 255; " in reasons["LayerNormalization_y"]
    assert "): vectors of a timestep 1,000, must be at most 255; " in reasons["LayerNormalization_z"]


def test_as_written_what_reads_a_node_is_told_where_the_pattern_has_another_operator(model: Path) -> None:
    layers = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Add", "r b", "y")]
    written(model, layers, (2, 8), ["y"], w=weight(8, 4), b=weight(4))
    reasons = {h.node: h.why_not for h in compile_model(model, ["flexasr"], Options(exact=True)).host}
    assert "linear.py:41): as written, relu reads the result of dense, its pattern has bias_add there; " in reasons["MatMul_m"]
