"""Translates rules to egglog: the left side and the guard become a query, the right side actions.

Pattern variables are prefixed, so no name can be captured; every computed number is bound in the query, because a
primitive that fails there just does not match, while in an action it aborts the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...errors import SpecError
from ...lang.expr import Expr, lift
from ...ops.op import FLOAT, INTS, STRING, Apply, Tensor, Variable, subterms
from ...ops.static import (
    ELEMENTS,
    Condition,
    HasType,
    Ints,
    Inverse,
    IsConstant,
    ListConcatenation,
    ListLiteral,
    ListsEqual,
    ListSlice,
    ListUpdate,
    NamedList,
    PermutedList,
    Real,
    RealComparison,
    ShapeOf,
    TermIsTrue,
)
from ...rewrite.rule import Float, Rule, name_of
from ..graph.schema import Constructor, literal, op_constructor
from ..numbers import NUMBER

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "min": "min", "max": "max"}
COMPARE = {"eq": "=", "ne": "!=", "lt": "<", "le": "<="}
NEGATED = {"eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class TupleAtom:
    """A query atom of an operator of several results: the variable of its tuple, its constructor, its arguments."""

    name: str
    constructor: Constructor
    arguments: tuple[str, ...]

    @property
    def atom(self) -> str:
        """The atom of the query."""
        return f"(= {self.name} ({self.constructor.name} {' '.join(self.arguments)}))"

    @property
    def sorts(self) -> dict[str, str]:
        """The sort of each argument."""
        return dict(zip(self.arguments, self.constructor.sorts.split(), strict=True))


@dataclass
class RuleBuilder:
    """An egglog rule under construction: the atoms of its query, its actions, and the variables of matched patterns."""

    rule: Rule
    body: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    shapes: dict[str, str] = field(default_factory=dict)
    tuples: dict[tuple[object, ...], str] = field(default_factory=dict)  # application of a multi-output operator → its variable
    rows: list[TupleAtom] = field(default_factory=list)  # atoms of multi-output operators
    results: dict[str, tuple[str, int]] = field(default_factory=dict)  # variable of a result → its tuple, and which result
    live_patterns: list[object] = field(default_factory=list)
    count: int = 0

    def fresh(self, prefix: str) -> str:
        """Return a fresh variable with a prefix."""
        self.count += 1
        return f"{prefix}{self.count}"

    def refuse(self, construct: str) -> SpecError:
        """Return the refusal (R101) of a construct that egglog cannot match."""
        return SpecError(
            "R101",
            f"{construct} in {self.rule.name} cannot be matched in the e-graph",
            place=self.rule.place,
            help="split the rule or simplify the guard",
        )


def rule_text(rule: Rule, number: int) -> str:
    """Return the egglog rule of a rewrite rule that is not a mapping; `number` is the birth of e-nodes that it makes."""
    return rule_command(compile_rule(rule, number), rule.phase)


def compile_rule(rule: Rule, number: int) -> RuleBuilder:
    """Return the query and the actions of a rewrite rule, both sides of every pair united."""
    t = RuleBuilder(rule)
    roots = [_root(t, left) for left, _ in rule.pairs]
    emit_guard(t, rule.conditions)
    if not rule.marks & {"any_dtype", "ring"} and not _continues_chain(rule, rule.left):
        t.body.append(f"(Real {roots[0]})")
    origins = _origins(t, {id(x) for _, right in rule.pairs for x in subterms(right)})
    for root, (_, right) in zip(roots, rule.pairs, strict=True):
        t.head.append(f"(union {root} {emit_action(t, right, number, origins)})")
    return t


def mapping_text(rule: Rule, constructor: str, number: int, operands: Sequence[Tensor], attributes: Sequence[tuple[object, str]]) -> str:
    """Return the egglog rule of a mapping: the class of its pattern also contains `constructor` on its operands and attributes.

    A mapping of all results of an operator matches the tuple, whether or not every result is used. The rule is named after
    the constructor: mappings of several targets may share a name.
    """
    t = RuleBuilder(replace(rule, name=constructor))
    root = emit_query(t, rule.left) if len(rule.pairs) == 1 else emit_tuple_query(t, rule.left)
    emit_guard(t, rule.where)
    if operands and not any(isinstance(c, HasType) for c in rule.where):  # codes have mappings of their own
        t.body.append(f"(Real {t.names[id(operands[0])]})")
    origins = _origins(t, kept_terms=set())
    arguments = " ".join([*(t.names[id(x)] for x in operands), *(attribute_text(t, value, kind) for value, kind in attributes)])
    t.head += [f"(let r ({constructor} {arguments}))", f"(set (b_{constructor} {arguments}) {number})"]
    t.head += [f"(set (f_{constructor} {arguments}) {origins})", f"(union {root} r)"]
    return rule_command(t, "map")


def rule_command(t: RuleBuilder, phase: str) -> str:
    """Return the complete egglog rule command in the ruleset of a phase."""
    body, head = "\n  ".join(t.body), "\n  ".join(t.head)
    return f'(rule ({body})\n ({head})\n :ruleset {phase} :name "{t.rule.name}")'


# -- queries


def emit_query(t: RuleBuilder, pattern: Tensor) -> str:
    """Emit the atoms that match a pattern; return the variable of its class."""
    if id(pattern) in t.names:
        return t.names[id(pattern)]
    t.live_patterns.append(pattern)
    if isinstance(pattern, Variable):
        name = t.names[id(pattern)] = f"v_{pattern.name}"
        return name
    if not isinstance(pattern, Apply):
        raise t.refuse(f"a pattern of kind {type(pattern).__name__}")
    name = t.names[id(pattern)] = t.fresh("e")
    source = name
    if pattern.op.outputs > 1:
        matched_tuple = t.tuples.get(_application(pattern))  # all results of one application are matched once
        source = t.tuples.setdefault(_application(pattern), matched_tuple or t.fresh("m"))
        t.body.append(f"(= {name} (Result {source} {pattern.output}))")
        t.results[name] = source, pattern.output
        if matched_tuple:
            return name
    _query_operator(t, pattern, source)
    return name


def _application(pattern: Apply) -> tuple[object, ...]:
    """Return the key of one application of an operator, shared by its results only."""
    return pattern.op.name, id(pattern.attributes), *map(id, pattern.operands)


def _continues_chain(rule: Rule, left: Tensor) -> bool:
    """Tell whether a side of a fold rule is a result of a multi-output operator, whose type guard is omitted for speed.

    Operators of several results are recurrent layers, which are of real numbers.
    """
    return rule.phase == "fold" and isinstance(left, Apply) and left.op.outputs > 1


def _root(t: RuleBuilder, left: Tensor) -> str:
    """Emit the atoms that match a left side; return its class, for a chain the term of its result, which need not exist."""
    if not isinstance(left, Apply) or not _continues_chain(t.rule, left) or id(left) in t.names:
        return emit_query(t, left)
    if _application(left) not in t.tuples:
        t.tuples[_application(left)] = t.fresh("m")
        _query_operator(t, left, t.tuples[_application(left)])
    t.live_patterns.append(left)
    term = t.names[id(left)] = f"(Result {t.tuples[_application(left)]} {left.output})"
    return term


def emit_tuple_query(t: RuleBuilder, pattern: Tensor) -> str:
    """Emit the atoms that match all results of a multi-output operator; return the variable of their tuple."""
    if not isinstance(pattern, Apply):
        raise t.refuse("a tuple that is not an operator's")
    name = t.names[id(pattern)] = t.tuples[_application(pattern)] = t.fresh("m")
    t.live_patterns.append(pattern)
    _query_operator(t, pattern, name)
    return name


def _query_operator(t: RuleBuilder, pattern: Apply, name: str) -> None:
    """Emit the atoms that match an operator's e-node in the class `name`, and those of its operands."""
    operands = [emit_query(t, x) for x in pattern.operands]
    equations: list[str] = []
    attributes = [_attribute_pattern(t, pattern.attributes[a.name], a.kind, equations) for a in pattern.op.attributes]
    row = TupleAtom(name, op_constructor(pattern.op), (*operands, *attributes))
    t.body.append(row.atom)
    if pattern.op.outputs > 1:
        t.rows.append(row)
    t.body.extend(equations)


def _attribute_pattern(t: RuleBuilder, value: object, kind: str, equations: list[str]) -> str:
    """Return an attribute in a query: a variable, a literal, or a fresh variable with an equation."""
    if isinstance(value, NamedList | Float):
        return f"a_{value.name}"
    if isinstance(value, Expr) and value.op == "var" and value not in ELEMENTS:
        return f"a_{name_of(value)}"
    if not isinstance(value, Ints | Expr):
        return literal(value, kind)
    name = t.fresh("w")
    deferred = RuleBuilder(t.rule, names=t.names, shapes=t.shapes, live_patterns=t.live_patterns, count=t.count + 1000)
    text = scalar(deferred, value) if isinstance(value, Expr) else ints(deferred, value)
    t.count = deferred.count
    equations.extend([*deferred.body, f"(= {name} {text})"])
    return name


def attribute_text(t: RuleBuilder, value: object, kind: str) -> str:
    """Return an attribute in an action; computed attributes are bound in the query."""
    if isinstance(value, Float):
        return f"a_{value.name}"
    if isinstance(value, Ints):
        return bind_value(t, ints(t, value))
    if isinstance(value, Expr):
        return bind_value(t, scalar(t, value))
    if kind in (FLOAT, STRING, INTS):
        return literal(value, kind)
    return str(int(value))  # type: ignore[call-overload]


def bind_value(t: RuleBuilder, text: str) -> str:
    """Bind a computed value in the query and return its variable; atoms are returned as they are."""
    if not text.startswith("("):
        return text
    name = t.fresh("n")
    t.body.append(f"(= {name} {text})")
    return name


def emit_guard(t: RuleBuilder, conditions: Sequence[Condition]) -> None:
    """Emit the conditions of a guard."""
    for c in conditions:
        if isinstance(c, ListsEqual):
            t.body.append(f"(= {ints(t, c.left)} {ints(t, c.right)})")
        elif isinstance(c, IsConstant):
            t.body.append(f"(Fixed {class_of(t, c.tensor)})")
        elif isinstance(c, HasType) and len(c.dtypes) == 1:
            t.body.append(f'(= (kind {class_of(t, c.tensor)}) "{c.dtypes[0]}")')
        elif isinstance(c, TermIsTrue):
            t.body.extend(truth_atoms(t, c.term))
        elif isinstance(c, RealComparison):
            t.body.append(f"({COMPARE[c.comparison]} {real(c.left)} {real(c.right)})")
        else:
            raise t.refuse(f"a guard of kind {type(c).__name__}")


def real(x: Real | float) -> str:
    """Return a side of a comparison of float attributes; NaN has no number, so that comparisons with it do not match."""
    return repr(x) if isinstance(x, float) else f"({NUMBER} a_{x.name})"


def truth_atoms(t: RuleBuilder, e: Expr) -> list[str]:
    """Return the atoms of a conjunction of comparisons of integer terms."""
    if e.op == "const":
        return [] if e.data else ["(= 0 1)"]
    if e.op == "bitand":
        return [atom for a in e.args for atom in truth_atoms(t, a)]
    if e.op == "not" and e.args[0].op in NEGATED:
        inner = e.args[0]
        return [f"({COMPARE[NEGATED[inner.op]]} {scalar(t, inner.args[0])} {scalar(t, inner.args[1])})"]
    if e.op in COMPARE:
        return [f"({COMPARE[e.op]} {scalar(t, e.args[0])} {scalar(t, e.args[1])})"]
    raise t.refuse(f"the condition {e!r}")


def class_of(t: RuleBuilder, x: Tensor) -> str:
    """Return the variable of a pattern that the query has matched."""
    if id(x) not in t.names:
        raise t.refuse("a shape or type of a pattern that is not part of the left side")
    return t.names[id(x)]


def scalar(t: RuleBuilder, e: Expr) -> str:
    """Return an integer term as egglog text."""
    if e.op == "const":
        return str(int(e.data))
    if e.op == "var":
        element = ELEMENTS.get(e)
        if element is None:
            return f"a_{name_of(e)}"
        if element.kind == "product":
            if not isinstance(element.base, ShapeOf):
                raise t.refuse("the product of a list that is not a shape")
            return f"(size {class_of(t, element.base.tensor)})"
        base = ints(t, element.base)
        if element.kind == "length":
            return f"(vec-length {base})"
        return f"(vec-get {base} {_position(t, element.base, element.index if element.index is not None else lift(0))})"
    if e.op in INFIX:
        return f"({INFIX[e.op]} {scalar(t, e.args[0])} {scalar(t, e.args[1])})"
    raise t.refuse(f"the term {e!r}")


def _position(t: RuleBuilder, base: Ints, index: Expr) -> str:
    if index.op == "const" and int(index.data) < 0:
        return f"(- (vec-length {ints(t, base)}) {-int(index.data)})"
    return scalar(t, index)


def ints(t: RuleBuilder, x: Ints) -> str:
    """Return a static list as egglog text."""
    if isinstance(x, NamedList):
        return f"a_{x.name}"
    if isinstance(x, ShapeOf):
        return _shape(t, x.tensor)
    if isinstance(x, ListLiteral):
        return f"(vec-of {' '.join(scalar(t, e) for e in x.elements)})" if x.elements else "(vec-empty)"
    if isinstance(x, ListSlice):
        return _part(t, x)
    if isinstance(x, ListConcatenation):
        return f"(vec-append {' '.join(ints(t, p) for p in x.parts)})"
    if isinstance(x, ListUpdate):
        return f"(vec-set {ints(t, x.base)} {_position(t, x.base, x.index)} {scalar(t, x.element)})"
    if isinstance(x, PermutedList):
        return f'(unstable-vec-map (unstable-fn "vec-get" {ints(t, x.base)}) {ints(t, x.perm)})'
    if isinstance(x, Inverse):
        return f"(inverse {ints(t, x.perm)})"
    raise t.refuse(f"a list of kind {type(x).__name__}")


def _shape(t: RuleBuilder, tensor: Tensor) -> str:
    name = class_of(t, tensor)
    if name not in t.shapes:
        t.shapes[name] = f"s_{name}"
        t.body.append(f"(= s_{name} (dims {name}))")
    return t.shapes[name]


def _part(t: RuleBuilder, x: ListSlice) -> str:
    base = ints(t, x.base)
    if (x.start, x.stop) == (0, -1):
        return f"(vec-pop {base})"
    if (x.start, x.stop) == (1, None):
        return f"(vec-remove {base} 0)"
    if x.start >= 0 and x.stop is not None and x.stop >= 0:
        places: list[Expr] = [lift(n) for n in range(x.start, x.stop)]
    elif x.start < 0 and x.stop is None:
        places = [lift(n) for n in range(x.start, 0)]
    else:
        raise t.refuse(f"the part [{x.start}:{x.stop}] of a list")
    return f"(vec-of {' '.join(f'(vec-get {base} {_position(t, x.base, p)})' for p in places)})"


# -- actions


def _origins(t: RuleBuilder, kept_terms: set[int]) -> str:
    """Return the term for the origins of new work: the union of those of the work on the left that the right side does not contain."""
    work: dict[object, Apply] = {}
    for left, _ in t.rule.pairs:
        for x in subterms(left):
            if isinstance(x, Apply) and id(x) in t.names.keys() - kept_terms and op_constructor(x.op).is_work:
                work.setdefault(_application(x), x)
    sets = [_origin_of(t, x) for x in work.values() if not _continues_chain(t.rule, x)]
    union = "(set-empty)"
    for name in sets:
        union = name if union == "(set-empty)" else f"(set-union {union} {name})"
    return union


def _origin_of(t: RuleBuilder, x: Apply) -> str:
    name = t.fresh("g")
    if x.op.outputs > 1:
        t.body.append(f"(= {name} (whole {t.tuples[_application(x)]}))")
        return name
    operands = [t.names[id(y)] for y in x.operands]
    equations: list[str] = []
    attributes = [_attribute_pattern(t, x.attributes[a.name], a.kind, equations) for a in x.op.attributes]
    t.body.extend([*equations, f"(= {name} (f_{op_constructor(x.op).name} {' '.join([*operands, *attributes])}))"])
    return name


def emit_action(t: RuleBuilder, pattern: Tensor, number: int, origins: str) -> str:
    """Emit the actions that construct a right side; return its variable."""
    if id(pattern) in t.names:
        return t.names[id(pattern)]
    t.live_patterns.append(pattern)
    if not isinstance(pattern, Apply):
        raise t.refuse("a variable that the left side does not bind")
    operands = [emit_action(t, x, number, origins) for x in pattern.operands]
    constructor = op_constructor(pattern.op)
    attributes = [attribute_text(t, pattern.attributes[a.name], a.kind) for a in pattern.op.attributes]
    arguments = " ".join([*operands, *attributes])
    name = t.fresh("r")
    t.head += [f"(let {name} ({constructor.name} {arguments}))", f"(set (b_{constructor.name} {arguments}) {number})"]
    if constructor.is_work and constructor.results == 1:
        t.head.append(f"(set (f_{constructor.name} {arguments}) {origins})")
    if pattern.op.outputs > 1:
        source, name = name, t.fresh("r")
        t.head.append(f"(let {name} (Result {source} {pattern.output}))")
        if t.rule.phase == "fold":
            t.head.extend(f"(Joined {source} {part})" for part in t.tuples.values())
        else:
            t.head.append(f"(set (whole {source}) {origins})")
    t.names[id(pattern)] = name
    return name
