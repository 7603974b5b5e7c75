"""Programs that are changed at one node as a reason says, and programs of one operator in many forms, to see what is then offloaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from rewrite_compiler.compile.explanation.host_reasons import anchor_of
from rewrite_compiler.compile.matching.pattern_difference import PartialMatch, first_difference
from rewrite_compiler.compile.matching.requirements import (
    AttributeOf,
    Capacity,
    FewerSteps,
    Guarded,
    OneMatrix,
    Pinned,
    Requirement,
    ResultOf,
    SoleReader,
)
from rewrite_compiler.ir.program import OPAQUE, Builder, Node, Program, Source, Value
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops.op import COMPUTE, ELEMENTWISE, OPS, Apply, AttributeValue, ShapeError, subterms
from rewrite_compiler.ops.static import HasType, IsConstant, holds
from rewrite_compiler.prove.mappings.mappings import attributes_at, first_sizes, shapes_at
from rewrite_compiler.target import Mapping, body_of

TRIED = Source("tried", "")
REACH = 8  # nodes between a node and what it may depend on, more than any pattern or law is deep
INNER = 16  # terms of a sum in products that are put before a node
Factory = Callable[[Builder], Value]  # adds a tensor to a program
RANDOM = np.random.default_rng(1)


@dataclass(frozen=True)
class Edit:
    """A change of a program: other operands of nodes by place, other attributes, values that only the tried node keeps reading."""

    operands: dict[tuple[int, int], Factory] = field(default_factory=dict)  # by id of a node and position
    attributes: dict[int, dict[str, AttributeValue]] = field(default_factory=dict)  # by id of a node
    detached: frozenset[Value] = frozenset()

    def __or__(self, other: Edit) -> Edit:
        nodes = self.attributes.keys() | other.attributes.keys()
        attributes = {n: {**self.attributes.get(n, {}), **other.attributes.get(n, {})} for n in nodes}
        return Edit({**self.operands, **other.operands}, attributes, self.detached | other.detached)


def constant(t: TensorType) -> Factory:
    """Return what adds a constant of random numbers."""
    return lambda b: b.constant(RANDOM.standard_normal(t.shape).astype(t.dtype))


def fresh(t: TensorType) -> Factory:
    """Return what adds a program input."""
    return lambda b: b.input(f"fresh{len(b.types)}", t)


class Rebuilt:
    """A program built anew with an edit; `number` is the source of the tried node, by which it is found again."""

    def __init__(self, p: Program, tried: Node, edit: Edit) -> None:
        self.p, self.tried, self.edit, self.number = p, tried, edit, len(p.sources)
        self.b = Builder(p.name)
        self.b.sources, self.b.opaque, self.b.absorbed = [*p.sources, TRIED], dict(p.opaque), dict(p.absorbed)
        self.path = {id(n) for n in ancestors(p, tried)}
        self.on_path: dict[Value, Value] = {}
        self.off_path: dict[Value, Value] = {}

    def program(self) -> Program | None:
        """Return the program, None where the edit gives no program."""
        for v in self.p.inputs:
            self.on_path[v] = self.off_path[v] = self.b.input(self.p.names[v], self.p.types[v])
        for v, data in self.p.constants.items():
            self.on_path[v] = self.off_path[v] = self.b.constant(data, self.p.names[v], self.p.types[v].dtype)
        extra: list[Value] = []
        for n in self.p.nodes:
            try:
                outputs = self.applied(n)
            except (ShapeError, ValueError, IndexError):
                return None
            for old, new in zip(n.outputs, outputs, strict=True):
                kept = self.b.types[new] == self.p.types[old] and old not in self.edit.detached
                self.on_path[old] = new
                self.off_path[old] = new if kept else fresh(self.p.types[old])(self.b)
                extra += [new] if n is self.tried and not kept else []
        outputs = [self.off_path[v] for v in self.p.outputs if self.off_path[v] not in self.b.inputs]
        return self.b.finish([*outputs, *extra])

    def applied(self, n: Node) -> Sequence[Value]:
        """Add a node on the new values and return its results."""
        place = self.on_path if id(n) in self.path or n is self.tried else self.off_path
        inputs = [self.edit.operands[id(n), k](self.b) if (id(n), k) in self.edit.operands else place[v] for k, v in enumerate(n.inputs)]
        origins = {self.number} if n is self.tried else n.origins
        if n.op == OPAQUE or n.operator is None:
            outputs = tuple(self.b.value(self.p.types[v], self.p.names[v]) for v in n.outputs)
            self.b.node(replace(n, inputs=tuple(inputs), outputs=outputs, origins=frozenset(origins)))
            return outputs
        return self.b.apply(n.op, inputs, {**dict(n.attributes), **self.edit.attributes.get(id(n), {})}, origins=origins)


def around(p: Program, node: Node, reach: int = REACH) -> Program:
    """Return the part of a program whose nodes are at most so many edges away from a node; what they read of others is an input."""
    producer, users = p.producer(), p.users()
    inside, edge = {id(node)}, [node]
    for _ in range(reach):
        makers = [producer[v] for n in edge for v in n.inputs if v in producer]
        readers = [r for n in edge for v in n.outputs for r in users.get(v, ())]
        edge = [n for n in {id(n): n for n in (*makers, *readers)}.values() if id(n) not in inside]
        inside |= {id(n) for n in edge}
    nodes = tuple(n for n in p.nodes if id(n) in inside)
    operands, results = dict.fromkeys(v for n in nodes for v in n.inputs), {v for n in nodes for v in n.outputs}
    live = {*p.outputs} | {v for n in p.nodes if id(n) not in inside for v in n.inputs}
    return replace(
        p,
        nodes=nodes,
        inputs=tuple(v for v in operands if v not in results and v not in p.constants),
        outputs=tuple(v for n in nodes for v in n.outputs if v in live or v not in users),
        constants={v: data for v, data in p.constants.items() if v in operands},
    )


def alone(m: Mapping, node: Node) -> Program:
    """Return the meaning of a mapping as a program, at sizes that it takes; its nodes with the operator of a node have source 0."""
    sizes, reason = first_sizes(m)
    assert sizes is not None, reason
    types = [TensorType(shape, "float32") for shape in shapes_at(m, sizes).values()]
    body = body_of(m, types, attributes_at(m, sizes))
    nodes = [replace(n, origins=frozenset([0] if n.op == node.op else [])) for n in body.nodes]
    return replace(body, nodes=tuple(nodes), sources=(TRIED,))


def ancestors(p: Program, node: Node) -> list[Node]:
    """Return the nodes whose results a node depends on."""
    needed, path = set(node.inputs), []
    for n in reversed(p.nodes):
        if needed & {*n.outputs}:
            needed |= {*n.inputs}
            path.append(n)
    return path


def edits(p: Program, tried: Node, requirements: Sequence[Requirement]) -> Iterator[Edit]:
    """Yield the ways in which all requirements that a program can meet are met at once."""
    for parts in product(*(list(_edits(p, tried, r)) for r in requirements if not isinstance(r, (Capacity, Pinned)))):
        edit = Edit()
        for part in parts:
            edit = part | edit  # what comes first in a reason is about the node itself
        yield edit


def _edits(p: Program, tried: Node, r: Requirement) -> Iterator[Edit]:
    if isinstance(r, ResultOf):
        t = p.types[r.value]
        for factory in results_of(r.pattern, t):
            yield _in_place(p, tried, r.node, r.value, factory)
    elif isinstance(r, OneMatrix):
        t = p.types[r.value]
        yield _in_place(p, tried, r.node, r.value, constant(TensorType(t.shape[-2:], t.dtype)))
    elif isinstance(r, FewerSteps):
        t = p.types[r.node.inputs[0]]
        yield Edit({(id(r.node), 0): fresh(replace(t, shape=(1, *t.shape[1:])))})
    elif isinstance(r, SoleReader):
        yield Edit(detached=frozenset([r.value]))
    elif isinstance(r, AttributeOf):
        yield from _with_attribute(p, r)
    elif isinstance(r, Guarded):
        yield from _guarded(p, tried, r)


def _in_place(p: Program, tried: Node, node: Node, value: Value, factory: Factory) -> Edit:
    """Return the edit that puts a tensor in place of a value, where a node of the program reads it, or else the tried one."""
    reader = node if any(n is node for n in p.nodes) else tried
    return Edit({(id(reader), k): factory for k, v in enumerate(reader.inputs) if v == value})


def _with_attribute(p: Program, r: AttributeOf) -> Iterator[Edit]:
    """Yield the edit that gives an attribute its value, with weights that suit it."""
    if r.value is None:
        return
    edit = Edit(attributes={id(r.node): {r.name: r.value}})
    if r.name == "group" and isinstance(r.value, int):
        channels, weights = p.types[r.node.inputs[0]].shape[1], p.types[r.node.inputs[1]]
        shape = (weights.shape[0], channels // r.value, *weights.shape[2:])
        edit |= Edit({(id(r.node), 1): constant(replace(weights, shape=shape))})
    if r.name == "axis" and isinstance(r.value, int) and len(r.node.inputs) == 2:
        vector = TensorType(p.types[r.node.inputs[0]].shape[r.value :][:1], p.types[r.node.inputs[1]].dtype)
        edit |= Edit({(id(r.node), 1): constant(vector)})
    yield edit


def _guarded(p: Program, tried: Node, r: Guarded) -> Iterator[Edit]:
    """Yield edits of what a rule's variables stand for after which its conditions hold: other types, shapes, constants."""
    dtypes = {c.tensor.name: c.dtypes[0] for c in r.rule.where if isinstance(c, HasType)}
    constants = {c.tensor.name for c in r.rule.where if isinstance(c, IsConstant)}
    named = dict(r.values)
    before = {name: p.types[v].shape for name, v in named.items()}
    first = next(iter(before), "")
    for shapes, smaller in product(_forms(before, first, constants), _smaller_attributes(tried)):
        edit = Edit(attributes={id(tried): smaller} if smaller else {})
        for name, v in named.items():
            t = TensorType(shapes[name], dtypes.get(name, p.types[v].dtype))
            makes = constant if name in constants else fresh
            if t != p.types[v] or (name in constants and not p.is_constant(v)):
                edit |= _in_place(p, tried, r.node, v, makes(t))
        changed = Rebuilt(p, tried, edit).program()
        if changed is not None and meets(changed, len(p.sources), r):
            yield edit


def _smaller_attributes(node: Node) -> list[dict[str, AttributeValue]]:
    """Return the attributes of a node that may change, first as they are, then with extents that are powers of two."""
    kernel = dict(node.attributes).get("kernel")
    return [{}, {"kernel": tuple(map(_power_of_two, kernel))}] if isinstance(kernel, tuple) else [{}]


def _power_of_two(n: int) -> int:
    return int(2 ** int(math.log2(max(n, 1))))


def _forms(shapes: dict[str, tuple[int, ...]], first: str, constants: set[str]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield shapes of operands, the given ones first: of one shape, of another rank, constants as vectors, extents that divide."""
    largest = max(shapes.values(), key=math.prod)
    spread = dict.fromkeys(shapes, largest)
    vectors = [
        {name: (s if name not in constants else (shapes[first][-k], *(1,) * (k - 1))) for name, s in shapes.items()}
        for k in (1, 2, 3)
        if k <= len(shapes[first])
    ]
    numbers = {name: (() if name in constants else s) for name, s in shapes.items()}
    for base in (shapes, spread, *vectors, numbers):
        for rank in (None, 2, 4, 1, 3):
            for extent in (lambda n: n, _power_of_two, lambda n: -(-n // 16) * 16):
                yield {name: tuple(map(extent, s if rank is None else of_rank(s, rank))) for name, s in base.items()}


def of_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return a shape with as many elements and another number of axes."""
    if len(shape) <= rank:
        return (1,) * (rank - len(shape)) + shape
    return (math.prod(shape[: len(shape) - rank + 1]), *shape[len(shape) - rank + 1 :])


def meets(p: Program, number: int, r: Guarded) -> bool:
    """Tell whether the conditions of a rule that can be decided hold at the tried node."""
    tried = next(n for n in p.nodes if number in n.origins)
    partial_match = PartialMatch(p)
    if tried.op not in [x.op.name for x in subterms(r.rule.left) if isinstance(x, Apply)]:
        return True
    first_difference(partial_match, anchor_of(r.rule, tried), tried, p.producer())

    def is_met(c: object) -> bool:
        try:
            return bool(holds(c, partial_match.binding()))  # type: ignore[arg-type]
        except KeyError:
            return True

    return all(map(is_met, r.rule.where))


def results_of(pattern: Apply, t: TensorType) -> Iterator[Factory]:
    """Yield what adds a tensor of a type as the result of a pattern: at its own shape, or by way of rows and images."""
    rank, shape = len(t.shape), t.shape
    rows, columns = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    forms: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(shape, ())] if rank else []
    forms.append(((rows, columns), ()))
    if rank > 2:  # channels first: a product has them last
        last = (shape[0], *shape[2:], shape[1])
        perm = (0, rank - 1, *range(1, rank - 1))
        forms += [(last, perm), ((math.prod(last[:-1]), last[-1]), perm)]
    forms.append(((1, columns, 1, rows), (0, 2, 3, 1)))
    for made, perm in forms:
        yield lambda b, made=made, perm=perm: _laid_out(b, pattern, made, perm, t)  # type: ignore[misc]


def _laid_out(b: Builder, pattern: Apply, made: tuple[int, ...], perm: tuple[int, ...], t: TensorType) -> Value:
    """Add a result of a pattern at one shape, then bring it to a type: reshaped, transposed."""
    v = result_of(b, pattern, made, t.dtype)
    if perm:
        turned = made
        if len(perm) != len(made):
            turned = tuple(t.shape[perm.index(k)] for k in range(len(perm)))
            v = b.apply("reshape", [v], {"shape": turned})[0]
        v = b.apply("transpose", [v], {"perm": perm})[0]
    return v if b.types[v].shape == t.shape else b.apply("reshape", [v], {"shape": t.shape})[0]


def result_of(b: Builder, pattern: Apply, shape: tuple[int, ...], dtype: str) -> Value:
    """Add a result of a pattern with a shape.

    Raises:
        ShapeError: the pattern has no result of this shape.
    """
    name, c = pattern.op.name, shape[-1]
    t = TensorType(shape, dtype)
    if name == "conv":
        if len(shape) < 3:
            raise ShapeError("an image has more axes")
        axes, weights = len(shape) - 2, TensorType((shape[1], shape[1], *(1,) * (len(shape) - 2)), dtype)
        ones = (1,) * axes
        attributes: dict[str, AttributeValue] = {"strides": ones, "pads": (0,) * 2 * axes, "dilations": ones, "group": 1}
        return b.apply(name, [fresh(t)(b), constant(weights)(b)], attributes)[0]
    if name in ("dense", "matmul"):
        x = fresh(TensorType((*shape[:-1], INNER), dtype))(b)
        y = constant(TensorType((c, INNER), dtype)) if name == "dense" else fresh(TensorType((*shape[:-2], INNER, c), dtype))
        return b.apply(name, [x, y(b)])[0]
    if name == "layer_norm":
        vector = constant(TensorType((c,), dtype))
        return b.apply(name, [fresh(t)(b), vector(b), vector(b)], {"axis": len(shape) - 1, "epsilon": 1e-5})[0]
    if pattern.op.kind != ELEMENTWISE:
        raise ShapeError(f"no {name} is made here")
    cores = [x.op.name for x in subterms(pattern) if isinstance(x, Apply) and x.op.kind == COMPUTE]
    axis = 1 if "conv" in cores else len(shape) - 1
    operands = [result_of(b, x, shape, dtype) if isinstance(x, Apply) else None for x in pattern.operands]
    if name in ("bias_add", "scale"):
        x = operands[0] if operands[0] is not None else fresh(t)(b)
        return b.apply(name, [x, constant(TensorType((shape[axis],), dtype))(b)], {"axis": axis})[0]
    values = [v if v is not None else fresh(t)(b) for v in operands]
    return b.apply(name, values, {"low": 0.0, "high": 6.0} if name == "clip" else {})[0]


# -- programs of one operator

SHAPES = ((16,), (8, 16), (2, 8, 16), (1, 16, 8, 8))
DTYPES = ("float32", "int8", "uint8", "int32")
SECONDS = ("computed", "same", "full", "vector", "number")


def variants(op: str, cores: Sequence[Apply], attributes: Sequence[tuple[str, AttributeValue]]) -> Program:
    """Return one program of an operator in many forms, each apart: shapes, number kinds, constants, attributes, and what is before it.

    Every other source is one of them, from the second on.
    """
    b, outputs = Builder(op), []
    for shape, dtype, second, given in product(SHAPES, DTYPES, SECONDS, list(_attributes(op, dict(attributes)))):
        if len(OPS[op].operands) == 1 and second != SECONDS[0]:
            continue
        for before in (None, *cores) if dtype == "float32" else (None,):
            one, number = Builder(op), len(b.sources)
            try:
                v = _variant(one, op, shape, dtype, second, given(len(shape)), before)
            except (ShapeError, ValueError, IndexError, KeyError, TypeError):
                continue
            b.sources += [Source(f"before{number}", ""), Source(f"tried{number}", "")]
            outputs += _appended(b, one.finish([v]), number)
    return b.finish(outputs)


def _variant(
    b: Builder, op: str, shape: tuple[int, ...], dtype: str, second: str, attributes: dict[str, AttributeValue], before: Apply | None
) -> Value:
    t = TensorType(shape, dtype)
    x = fresh(t)(b) if before is None else next(iter(results_of(before, t)))(b)
    channels = 1 if len(shape) == 4 else len(shape) - 1
    operands = [x]
    for name in OPS[op].operands[1:]:
        if name in ("w", "r") or op in ("dense", "matmul"):
            form = {"dense": (shape[-1], shape[-1]), "matmul": (shape[-1], shape[-1])}.get(op, (shape[channels], shape[channels], 1, 1))
            operands.append((fresh if second == "computed" else constant)(TensorType(form, dtype))(b))
        elif name in ("b", "s", "scale", "bias", "mean", "variance"):
            extent = shape[int(str(attributes.get("axis", channels)))]
            operands.append((fresh if second == "computed" else constant)(TensorType((extent,), dtype))(b))
        else:
            vector = (shape[channels], *(1,) * (len(shape) - 1 - channels))
            made = {"computed": fresh(t), "same": lambda _: x, "full": constant(t), "vector": constant(replace(t, shape=vector))}
            operands.append(made.get(second, constant(replace(t, shape=())))(b))
    nodes = len(b.nodes)
    v = b.apply(op, operands, attributes, origins=[1])[0]
    b.nodes[:nodes] = [replace(n, origins=frozenset([0])) for n in b.nodes[:nodes]]
    return v


def _attributes(op: str, own: dict[str, AttributeValue]) -> Iterator[Callable[[int], dict[str, AttributeValue]]]:
    """Yield attributes of an operator for tensors of so many axes: its own, and each with other values."""
    yield lambda _: own
    names = {a.name for a in OPS[op].attributes}
    if "kernel" in names:
        for k, s in ((2, 2), (3, 2), (2, 1), (8, 8)):
            yield lambda rank, k=k, s=s: {  # type: ignore[misc]
                **own, "kernel": (k,) * (rank - 2), "strides": (s,) * (rank - 2), "pads": (0,) * 2 * (rank - 2),
                "dilations": (1,) * (rank - 2), "ceil": 0,
            }  # fmt: skip
    elif "strides" in names:
        yield lambda rank: {
            **own, "strides": (1,) * (rank - 2), "pads": (0,) * 2 * (rank - 2), "dilations": (1,) * (rank - 2), "group": 1,
        }  # fmt: skip
    if "axes" in names:
        for keepdims in (0, 1):
            yield lambda rank, keep=keepdims: {"axes": (rank - 1,), "keepdims": keep}  # type: ignore[misc]
            yield lambda rank, keep=keepdims: {"axes": tuple(range(2, rank)) or (0,), "keepdims": keep}  # type: ignore[misc]
    if "axis" in names:
        yield lambda rank: {**own, "axis": rank - 1}
        yield lambda _: {**own, "axis": 1}
    for low, high in ((0.0, 6.0), (0.0, math.inf), (-1.0, 1.0)) if "low" in names else ():
        yield lambda _, low=low, high=high: {**own, "low": low, "high": high}  # type: ignore[misc]


def _appended(b: Builder, p: Program, number: int) -> list[Value]:
    """Add a program to another beside what it has, its sources from a number on; return its outputs."""
    place = {v: b.value(t, f"{p.names[v]}_{number}") for v, t in enumerate(p.types)}
    b.inputs += [place[v] for v in p.inputs]
    b.constants |= {place[v]: data for v, data in p.constants.items()}
    for n in p.nodes:
        origins = frozenset(number + s for s in n.origins)
        b.node(replace(n, inputs=tuple(place[v] for v in n.inputs), outputs=tuple(place[v] for v in n.outputs), origins=origins))
    return [place[v] for v in p.outputs]


def cores_of(patterns: Sequence[Apply]) -> list[Apply]:
    """Return the subpatterns of each kind that a function of each element can follow, one of each list of operators."""
    made: dict[tuple[str, ...], Apply] = {}
    for x in (x for pattern in patterns for x in subterms(pattern) if isinstance(x, Apply)):
        names = tuple(y.op.name for y in subterms(x) if isinstance(y, Apply))
        if names != ("bias_add",) and {*names} <= {"conv", "dense", "layer_norm", "bias_add"}:
            made.setdefault(names, x)
    return list(made.values())
