"""Joins the e-graph of a program from copies of the e-graph of each form of region, which was saturated once.

A boundary value is offered to the next region also as rows and with channels last, the layouts of matrix engines: an e-node of the
region before that has the layout is used, else a transposition or reshape makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.program import Data, Node, Program, Value
from ...ir.types import TensorType
from ...ops import OPS
from ..graph.encode import term
from ..graph.graph import PROGRAM, ClassId, EClass, EGraph, ENode
from ..graph.schema import op_constructor
from .regions import FormKey, Region, form_of

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
TRANSPOSE, RESHAPE = (op_constructor(OPS[name]).name for name in ("transpose", "reshape"))


@dataclass(frozen=True)
class LayoutChange:
    """A change of layout and its inverse: an operator, its attribute `there` and `back`, and the shape of the layout."""

    op: str
    forward: tuple[int, ...]
    inverse: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Form:
    """A form of region in the representative program: its values there, and the layouts of its inputs."""

    region: Region
    values: Mapping[Value, Value]
    layouts: Mapping[Value, tuple[Value, ...]]  # input → its layouts, each made from the one before
    first_node: int


@dataclass(frozen=True)
class Representatives:
    """The program of all forms side by side, the form of each region by number, and the commands that equate layouts with inputs."""

    program: Program
    forms: tuple[Form, ...]
    form_of: tuple[int, ...]
    commands: tuple[str, ...]


def layouts_of(t: TensorType) -> tuple[LayoutChange, ...]:
    """Return the layouts in which a value of type `t` is offered to the next region, each made from the one before."""
    shape = t.shape
    if len(shape) == 3:
        return (LayoutChange(RESHAPE, (shape[0] * shape[1], shape[2]), shape, (shape[0] * shape[1], shape[2])),)
    if len(shape) != 4:
        return ()
    n, c, h, w = shape
    last, rows = (n, h, w, c), (n * h * w, c)
    return LayoutChange(TRANSPOSE, CHANNELS_LAST, CHANNELS_FIRST, last), LayoutChange(RESHAPE, rows, last, rows)


def representatives(p: Program, regions: Sequence[Region], forms_known: Sequence[FormKey] = ()) -> Representatives:
    """Return one region of each form, side by side, as one program; `forms_known` are the forms of the regions if computed before."""
    numbers: dict[object, int] = {}
    of_region = [numbers.setdefault(form, len(numbers)) for form in forms_known or [form_of(p, r) for r in regions]]
    builder = _Representative(p)
    forms = tuple(builder.add(regions[of_region.index(n)]) for n in range(len(numbers)))
    return Representatives(builder.program(), forms, tuple(of_region), tuple(builder.commands))


class _Representative:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.types: list[TensorType] = []
        self.inputs: list[Value] = []
        self.constants: dict[Value, Data] = {}
        self.nodes: list[Node] = []
        self.commands: list[str] = []

    def add(self, r: Region) -> Form:
        """Add a region under new value numbers; node n of the program has origin n."""
        first_node = len(self.nodes)
        place = {v: self.value(self.p.types[v]) for v in r.values}
        self.inputs.extend(place[v] for v in r.inputs)
        self.constants.update((place[v], self.p.constants[v]) for v in r.constants)
        for n in r.nodes:
            inputs, outputs = tuple(place[v] for v in n.inputs), tuple(place[v] for v in n.outputs)
            self.nodes.append(replace(n, inputs=inputs, outputs=outputs, origins=frozenset({len(self.nodes)})))
        return Form(r, place, {v: tuple(self.layouts(place[v])) for v in r.inputs}, first_node)

    def value(self, t: TensorType) -> Value:
        self.types.append(t)
        return len(self.types) - 1

    def layouts(self, v: Value) -> Iterator[Value]:
        """Yield the layouts of an input: inputs themselves, each equated with the move of the one before."""
        t = self.types[v]
        for move in layouts_of(t):
            layout = self.value(TensorType(move.shape, t.dtype))
            self.inputs.append(layout)
            op = OPS["transpose" if move.op == TRANSPOSE else "reshape"]
            self.commands.append(f"(union (V {v}) ({move.op} {term(op, (layout,), (move.inverse,))}))")
            self.commands.append(f"(union (V {layout}) ({move.op} {term(op, (v,), (move.forward,))}))")
            yield layout
            v = layout

    def program(self) -> Program:
        names = tuple(str(v) for v in range(len(self.types)))
        return Program(
            self.p.name, tuple(self.types), names, tuple(self.inputs), (), tuple(self.nodes), self.constants, opaque=self.p.opaque
        )  # fmt: skip


def join_regions(p: Program, regions: Sequence[Region], form_program: Representatives, graph: EGraph) -> EGraph:
    """Return the e-graph of a program from the e-graph of its forms, equal leaves and boundary values shared."""
    joiner = _Joiner(p, form_program, graph)
    for v in p.inputs:
        joiner.leaf(v, "Input")
    for r, number in zip(regions, form_program.form_of, strict=True):
        joiner.instance(r, form_program.forms[number])
    for v in p.outputs:
        if v not in joiner.values:
            joiner.leaf(v, "Constant")
    return joiner.result()


class _Joiner:
    def __init__(self, p: Program, form_program: Representatives, graph: EGraph) -> None:
        self.p, self.graph = p, graph
        self.types: list[TensorType | None] = []
        self.fixed: list[bool] = []
        self.nodes: list[dict[ENode, None]] = []
        self.values: dict[Value, ClassId] = {}
        self.reachable_classes = {id(f): self.classes_below(f) for f in form_program.forms}

    def classes_below(self, f: Form) -> list[ClassId]:
        """Return the classes of a form's values and all classes reachable from them through operands."""
        work = [self.graph.values[v] for v in f.values.values()]
        reached_classes: dict[ClassId, None] = {}
        while work:
            c = work.pop()
            if c not in reached_classes:
                reached_classes[c] = None
                work.extend(d for n in self.graph.classes[c].nodes for d in n.children)
        return sorted(reached_classes)

    def new(self, t: TensorType | None, fixed: bool, nodes: Iterable[ENode] = ()) -> ClassId:
        self.types.append(t)
        self.fixed.append(fixed)
        self.nodes.append(dict.fromkeys(nodes))
        return len(self.types) - 1

    def leaf(self, v: Value, op: str) -> ClassId:
        """Return the class of an input or constant of the program."""
        if v not in self.values:
            self.values[v] = self.new(self.p.types[v], op == "Constant", [ENode(op, (), (v,), PROGRAM, frozenset())])
        return self.values[v]

    def instance(self, r: Region, f: Form) -> None:
        """Add a copy of a form's classes."""
        leaves = self.leaves(r, f)
        place = {c: leaves[c] if c in leaves else self.copy_of(c) for c in self.reachable_classes[id(f)]}
        for form_value, region_value in zip(f.values.values(), r.values, strict=True):
            self.values.setdefault(region_value, place[self.graph.values[form_value]])
        sources = {f.first_node + k: n.origins for k, n in enumerate(r.nodes)}  # a class of constants may be shared with other forms
        for c, region_value in place.items():
            for n in self.graph.classes[c].nodes:
                if n.op not in ("Input", "Constant"):
                    origins = frozenset(s for k in n.origins for s in sources.get(k, ())) if n.origins else n.origins
                    children = tuple([place[d] for d in n.children])
                    self.nodes[region_value].setdefault(ENode(n.op, children, n.attributes, n.birth, origins))

    def copy_of(self, c: ClassId) -> ClassId:
        original = self.graph.classes[c]
        return self.new(original.type, original.fixed)

    def leaves(self, r: Region, f: Form) -> dict[ClassId, ClassId]:
        """Return the class of each input, of its layouts and of each constant by its class in the form."""
        leaf_classes: dict[ClassId, ClassId] = {}
        for form_value, region_value in zip(f.region.inputs, r.inputs, strict=True):
            target = self.values[region_value]
            leaf_classes.setdefault(self.graph.values[f.values[form_value]], target)
            for layout, move in zip(f.layouts[form_value], layouts_of(self.p.types[region_value]), strict=True):
                target = self.layout(target, move, self.p.types[region_value].dtype)
                leaf_classes.setdefault(self.graph.values[layout], target)
        for form_value, region_value in zip(f.region.constants, r.constants, strict=True):
            leaf_classes.setdefault(self.graph.values[f.values[form_value]], self.leaf(region_value, "Constant"))
        return leaf_classes

    def layout(self, c: ClassId, move: LayoutChange, dtype: str) -> ClassId:
        """Return the class of a layout of a class: the operand of an inverse move, where there is one, else a move of it."""
        for n in self.nodes[c]:
            if n.op == move.op and n.attributes == (move.inverse,):
                t = self.types[n.children[0]]
                if t is not None and t.shape == move.shape:
                    return n.children[0]
        layout_move = ENode(move.op, (c,), (move.forward,), PROGRAM, frozenset())
        return self.new(TensorType(move.shape, dtype), False, [layout_move])

    def result(self) -> EGraph:
        entries = enumerate(zip(self.types, self.fixed, self.nodes, strict=True))
        return EGraph({c: EClass(t, fixed, tuple(nodes)) for c, (t, fixed, nodes) in entries if nodes}, self.values)
