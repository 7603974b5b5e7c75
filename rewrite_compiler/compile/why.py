"""Why a node stays on the host: the capacity or the guard that refused it, or that nothing accelerates its operator."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from collections.abc import Sequence

from ..fit import Refusal
from ..ir.program import OPAQUE, Node, Program
from ..ops.op import ELEMENTWISE, LAYOUT
from ..ops.static import Binding, Condition, HasType, IsConstant, Same, ShapeOf, Truth, holds, list_of
from ..ops.term import Apply, Tensor, Variable, subterms
from ..rewrite.rule import short_place
from ..target import Mapping
from .match import Fitted


class HostReasons:
    """Explains host nodes of one chosen program."""

    def __init__(
        self, program: Program, mappings: Sequence[Mapping], fitted: Fitted, unusable: MappingOf[str, str] | None = None,
        *, as_written: bool = False,
    ) -> None:  # fmt: skip
        self.program, self.mappings, self.fitted, self.as_written = program, mappings, fitted, as_written
        self.unusable = "".join(f"; {name} is not used: {sentence}" for name, sentence in (unusable or {}).items())
        self.producer, self.users = program.producer(), program.users()
        self.offered: dict[str, list[Mapping]] = {}
        for m in mappings:
            for x in subterms(m.rule.left):
                if isinstance(x, Apply):
                    self.offered.setdefault(x.op.name, []).append(m)

    def __call__(self, node: Node) -> str:
        """Return one sentence."""
        if node.op == OPAQUE:
            return self.program.opaque_of(node).reason
        if node.operator is not None and node.operator.kind == LAYOUT:
            return "only moves data"
        near = [m for m in self.offered.get(node.op, ()) if root_of(m) == node.op or node.op not in _elementwise(m)]
        if not near:
            offered = ", ".join(sorted({f"{m.target}.{m.operation}" for m in self.mappings})) or "nothing"
            return f"no mapping for {node.op}; offered: {offered}{self.unusable}"
        return "; ".join(dict.fromkeys(self.against(m, node) for m in near)) + self.unusable

    def against(self, m: Mapping, node: Node) -> str:
        """Return why one mapping does not take the node: what its pattern met, which guard failed, which capacity is exceeded."""
        bound: dict[int, int] = {}
        anchor = next((x for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.name == node.op), None)
        if anchor is None or not self.bind(anchor, node, bound):
            return f"{m.name} ({short_place(m.rule.place)}): the operands of {node.op} do not have the form of its pattern"
        for condition in m.rule.where:
            if self.decidable(condition, bound) and not holds(condition, self.binding(bound)):
                return f"{m.name} ({short_place(m.rule.place)}): {self.failed(condition, bound)}"
        refused = self.refusal(m, bound)
        if refused is not None:
            return f"{m.name} ({short_place(m.rule.place)}): {refused.limit}"
        above = self.above(m.rule.left, anchor, node) if self.as_written else ""
        if above:
            return f"{m.name} ({short_place(m.rule.place)}): {above}"
        return f"{m.name} ({short_place(m.rule.place)}): the chosen program is no dearer with {node.op} on the host"

    def bind(self, pattern: Tensor, node: Node, bound: dict[int, int]) -> bool:
        """Match the pattern below a node of the chosen program, loosely: what is not there binds nothing."""
        if not isinstance(pattern, Apply):
            return True
        for x, v in zip(pattern.operands, node.inputs, strict=False):
            bound[id(x)] = v
            below = self.producer.get(v)
            if isinstance(x, Apply) and (below is None or below.op != x.op.name or not self.bind(x, below, bound)):
                return False
        return True

    def above(self, pattern: Tensor, anchor: Apply, node: Node) -> str:
        """Return what reads a node where the pattern has another operator; without rewriting, this is why it does not match."""
        parent = next((x for x in subterms(pattern) if isinstance(x, Apply) and any(y is anchor for y in x.operands)), None)
        if parent is None:
            return ""
        readers = self.users.get(node.outputs[0], [])
        fitting = next((r for r in readers if r.op == parent.op.name), None)
        if fitting is not None:
            return self.above(pattern, parent, fitting)
        found = " and ".join(sorted({r.op for r in readers})) or "nothing"
        return f"as written, {found} reads the result of {node.op}, its pattern has {parent.op.name} there"

    def binding(self, bound: MappingOf[int, int]) -> Binding:
        """Return what a match gives to guards."""
        p = self.program
        return Binding(
            lambda x: p.types[bound[id(x)]].shape, {}, lambda x: p.types[bound[id(x)]].dtype, lambda x: p.is_constant(bound[id(x)])
        )

    def decidable(self, condition: Condition, bound: MappingOf[int, int]) -> bool:
        """Tell whether every tensor of a condition is bound and no static variable occurs."""
        try:
            holds(condition, self.binding(bound))
        except KeyError:
            return False
        return True

    def failed(self, condition: Condition, bound: MappingOf[int, int]) -> str:
        """Return a failed condition with its values."""
        if isinstance(condition, IsConstant):
            return f"{condition.tensor.name} must be known at compile time"
        if isinstance(condition, HasType):
            return f"{condition.tensor.name} must be {' or '.join(condition.dtypes)}, not {self.binding(bound).dtype(condition.tensor)}"
        if isinstance(condition, Same):
            left, right = (list_of(side, self.binding(bound)) for side in (condition.left, condition.right))
            return f"{left} must equal {right}"
        assert isinstance(condition, Truth)
        shapes = ", ".join(f"{x.name} {self.program.types[bound[id(x)]].shape}" for x in _variables(condition) if id(x) in bound)
        return f"the guard on shapes fails with {shapes}" if shapes else "a guard fails"

    def refusal(self, m: Mapping, bound: MappingOf[int, int]) -> Refusal | None:
        """Return the capacity that refused the mapping on operands of the bound ones' types."""
        known = {n: self.program.types[bound[id(x)]] for n, x in enumerate(m.operands) if id(x) in bound}
        for (name, types, _), fit in self.fitted.items():
            if known and name == m.name and isinstance(fit, Refusal) and all(types[n] == t for n, t in known.items()):
                return fit
        return None


def _variables(condition: Truth) -> list[Variable]:
    from ..ops.static import ELEMENTS

    known = [ELEMENTS[v].base for v in condition.term.free if v in ELEMENTS]
    return [b.tensor for b in known if isinstance(b, ShapeOf) and isinstance(b.tensor, Variable)]


def root_of(m: Mapping) -> str:
    """Return the operator at the root of a mapping's pattern."""
    left = m.rule.left
    return left.op.name if isinstance(left, Apply) else ""


def _elementwise(m: Mapping) -> set[str]:
    return {x.op.name for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.kind == ELEMENTWISE}
