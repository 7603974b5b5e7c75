"""What every plan must satisfy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from rewrite_compiler.compile import Plan, float_program, plan_onnx
from rewrite_compiler.compile.verify import check_plan
from rewrite_compiler.ir.verify import verify

WRITTEN_OUT = frozenset({"GRU", "LSTM", "RNN", "Loop", "Scan"})


def check_account(plan: Plan) -> None:
    """Every source node is offloaded, on the host or absorbed, once; offloads share none and each has its reasons."""
    placed = [n for o in plan.offloads for n in o.nodes] + [h.node for h in plan.host] + [a.node for a in plan.absorbed]
    assert sorted(placed) == sorted(s.name for s in plan.source.sources)
    known = {o.id for o in plan.offloads} | set(placed)
    assert len({o.id for o in plan.offloads}) == len(plan.offloads)
    steps = {n for n, s in enumerate(plan.source.sources) if s.op_type in WRITTEN_OUT}  # one node has the products of all its steps
    assert all(o.because and (o.nodes or o.node.origins & steps) for o in plan.offloads)
    assert all(h.why_not for h in plan.host)
    counts = Counter(n for o in plan.offloads for n in o.node.origins - steps)
    assert all(count == 1 for count in counts.values()), "offloads share source nodes"
    for a in plan.absorbed:
        assert a.by in known | set(plan.source.absorbed.values()) or " " in a.by, a  # an owner, or the importer's reason
    for t in plan.targets:
        assert sum(plan.counts[t.name].values()) == sum(o.target.name == t.name for o in plan.offloads)


def check_semantics(plan: Plan, model: Path) -> None:
    """The plan is a valid ONNX model that gives the model's results."""
    content = plan_onnx(plan)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    assert check_plan(plan, content, model).relative_difference <= 1e-5


def verify_program(plan: Plan) -> None:
    """The chosen program is well formed, with its device operations and with their meanings in their place."""
    verify(plan.program)
    verify(float_program(plan))
