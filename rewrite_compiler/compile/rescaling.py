"""Rescaling: an offload that is far off at the magnitudes of calibration computes on operands times powers of two.

Which operands may be scaled together follows from the pattern of the operation: its result must stay what it is, up to a power
of two. The law, such as layer_norm(x; ε) = layer_norm(2^-3 · x; 2^-6 · ε), is a theorem of the court before it is used.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..errors import FlexmatchError, UsageError
from ..ir.program import Builder, Data, Node, Program, Value
from ..ops import full, mul
from ..ops.op import Apply, AttributeTerm, Tensor, Variable
from ..ops.static import ELEMENTS, Condition, TermIsTrue
from ..prove.certificates.shipped_certificates import Coverage
from ..prove.verdict import Theorem
from ..rewrite.rule import Float, Rule, short_place
from ..rewrite.text import rule_text
from ..target import Mapping as Operation
from ..target import Resources
from .offload.specified import NumericsOffload
from .plan.plan import Offload, Plan, Reason, tensors_of
from .plan.residency import residencies

EXPONENTS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
MOST_OPERANDS = 6  # of an operation whose scalings are looked for
MOST_SCALINGS = 6  # of an operation that are tried, those of fewest operands first
NEARLY_LEAST = 1.25  # times the least error: of such exponents the smallest is chosen
FAR_ABOVE_LEAST = 2.0  # times the least error: two such exponents that rise end the search on their side
MOST_EXPONENTS = 2  # nearly least on one sample that are measured on all
PRODUCTS = frozenset(("conv", "dense", "matmul", "mul", "scale"))
HOMOGENEOUS = frozenset((
    "add", "average_pool", "bias_add", "concat", "expand", "im2col", "max", "max_pool", "min", "neg", "reduce_max", "reduce_mean",
    "reduce_sum", "relu", "reshape", "reverse", "slice", "sub", "transpose",
))  # of all operands together  # fmt: skip
RECURRENT = frozenset(("gru", "lstm", "rnn"))  # gates see products of inputs and weights, the first two operands


@dataclass(frozen=True)
class Scaling:
    """Degrees of operands, of float attributes, and of the result: times 2^(degree · k) each, the meaning is the same."""

    operands: Mapping[str, int]
    attributes: Mapping[str, int]
    result: int

    def __str__(self) -> str:
        return " ".join(f"{name}{degree:+}" for name, degree in self.operands.items())


@dataclass(frozen=True)
class Choice:
    """A scaling of an offload, its exponent k, and the relative error with it."""

    scaling: Scaling
    exponent: int
    error: float


def scalings(m: Operation) -> list[Scaling]:
    """Return the scalings of an operation with degrees of at most 1, those of fewest operands first; none for models' own codes."""
    names = [v.name for v in m.operands]
    if len(names) > MOST_OPERANDS or not m.format_choices:
        return []
    results = []
    for degrees in itertools.product((0, 1, -1), repeat=len(names)):
        if next((d for d in degrees if d), 0) != 1:
            continue
        scaled = {n: d for n, d in zip(names, degrees, strict=True) if d}
        attributes: dict[str, int] = {}
        of_results = [_degree(left, scaled, attributes) for left, _ in m.rule.pairs]
        if of_results[0] is not None and set(of_results) <= ({of_results[0]} if len(of_results) == 1 else {0}):
            results.append(Scaling(scaled, attributes, of_results[0]))
    return sorted(results, key=lambda s: len(s.operands))[:MOST_SCALINGS]


def _degree(x: Tensor, scaled: Mapping[str, int], attributes: dict[str, int]) -> int | None:
    """Return the degree of a pattern's value; None where operands scaled so do not only scale it."""
    if isinstance(x, Variable):
        return scaled.get(x.name, 0)
    if not isinstance(x, Apply):
        return None
    degrees = [_degree(y, scaled, attributes) for y in x.operands]
    if any(d is None for d in degrees):
        return None
    inner_degrees = [d for d in degrees if d is not None]
    if x.op.name in PRODUCTS:
        return sum(inner_degrees)
    if x.op.name in HOMOGENEOUS:
        return inner_degrees[0] if len(set(inner_degrees)) == 1 else None
    if x.op.name == "layer_norm":
        return _of_layer_norm(x, inner_degrees, attributes)
    if x.op.name in RECURRENT:
        return None if sum(inner_degrees[:2]) or any(inner_degrees[2:]) else 0
    return None if any(inner_degrees) else 0


def _of_layer_norm(x: Apply, degrees: Sequence[int], attributes: dict[str, int]) -> int | None:
    """Return the degree of a layer norm, ε of twice that of x: ε that the pattern does not bind must not be scaled."""
    of_x, of_scale, of_bias = degrees
    epsilon = x.attributes["epsilon"]
    if of_x and not isinstance(epsilon, Float):
        return None
    if of_x and isinstance(epsilon, Float):
        if attributes.get(epsilon.name, 2 * of_x) != 2 * of_x:
            return None
        attributes[epsilon.name] = 2 * of_x
    return of_scale if of_scale == of_bias else None


# -- the law


def law_of(o: Offload, s: Scaling, k: int) -> Rule:
    """Return the law that an offload's operation has the same meaning on scaled operands, with its own numbers as attributes."""
    left_side, right_side = _Pattern(o, s, 0), _Pattern(o, s, k)
    pairs = tuple((left_side.built(left), _times(right_side.built(left), -s.result * k)) for left, _ in o.mapping.rule.pairs)
    variables = {n: v for n, v in o.mapping.rule.variables.items() if n not in s.attributes}
    name = re.sub(r"[^a-z0-9]+", "-", f"{o.mapping.variant} on {s} by {k:+}".lower().replace("+", "plus ").replace("-", " minus "))
    return replace(
        o.mapping.rule, name=name.strip("-"), doc=f"{o.mapping.variant} has the same meaning on {scaled_text(s, k)}", pairs=pairs,
        where=tuple(c for c in o.mapping.rule.where if _is_about_ranks(c)), grade="F", phase="ir", marks=frozenset(), variables=variables,
    )  # fmt: skip


def _is_about_ranks(c: Condition) -> bool:
    """Tell whether a condition of a guard is about numbers of axes only: a law needs no others, which concern the device."""
    return isinstance(c, TermIsTrue) and all(v in ELEMENTS and ELEMENTS[v].kind == "length" for v in c.term.free)


def scaled_text(s: Scaling, k: int) -> str:
    """Return what is scaled, and by what: `x · 2^-3, epsilon · 2^-6`."""
    return ", ".join(f"{name} · 2^{degree * k}" for name, degree in (*s.operands.items(), *s.attributes.items()))


def _times(x: Tensor, exponent: int) -> Tensor:
    """Return a pattern times a power of two."""
    product: Tensor = mul(x, full((1,), 2.0**exponent)) if exponent else x
    return product


class _Pattern:
    """A pattern with operands and float attributes scaled."""

    def __init__(self, o: Offload, s: Scaling, k: int) -> None:
        self.o, self.s, self.k = o, s, k
        self.values: dict[int, Tensor] = {}

    def built(self, x: Tensor) -> Tensor:
        """Return a subterm with the scaling applied."""
        if id(x) not in self.values:
            self.values[id(x)] = self._of(x)
        return self.values[id(x)]

    def _of(self, x: Tensor) -> Tensor:
        if isinstance(x, Apply):
            attributes = {name: self._attribute(value) for name, value in x.attributes.items()}
            return Apply(x.op, tuple(map(self.built, x.operands)), attributes, x.output)
        return _times(x, self.s.operands.get(x.name, 0) * self.k) if isinstance(x, Variable) else x

    def _attribute(self, value: AttributeTerm) -> AttributeTerm:
        if not isinstance(value, Float) or value.name not in self.s.attributes:
            return value
        return float(dict(self.o.node.attributes)[value.name]) * 2.0 ** (self.s.attributes[value.name] * self.k)  # type: ignore[arg-type]


def _reason(o: Offload, s: Scaling, k: int) -> Reason | None:
    """Return the law as a step towards an offload; None where there is no theorem that holds for its operands, or these are integers."""
    from ..prove.rules.wrapped_words import has_integer_operands

    rule = law_of(o, s, k)
    theorem = None if has_integer_operands(o.mapping.rule) else _theorem(_Law(rule_text(rule), rule))
    if theorem is None or (theorem.ranks is not None and any(len(shape) > theorem.ranks for shape in o.shapes)):
        return None
    return Reason(rule.name, short_place(rule.place), "F", Coverage.ALL_SHAPES)


@dataclass(frozen=True)
class _Law:
    """A law by its text: offloads of one operation have equal ones."""

    text: str
    rule: Rule = field(compare=False)


@lru_cache(maxsize=1024)
def _theorem(law: _Law) -> Theorem | None:
    """Return what is proved of a law on real numbers; None where that is nothing."""
    from ..prove.rules.all_shapes import theorem_of

    theorem = theorem_of(law.rule)
    return theorem if isinstance(theorem, Theorem) else None


# -- choice


def choice(p: Program, o: Offload, samples: Mapping[Value, Data], most: float) -> Choice | None:
    """Return the proved scaling with which an offload's numerics are within a relative error on samples.

    Of those with nearly the least error the one of fewest operands goes first, then the least error.
    """
    choices = [c for s in scalings(o.mapping) if (c := _best(p, o, s, samples, most)) is not None and c.error <= most]
    nearly_least = NEARLY_LEAST * min((c.error for c in choices), default=0.0)
    ranked = sorted(choices, key=lambda c: (c.error, 0) if c.error > nearly_least else (0.0, len(c.scaling.operands)))
    return next((c for c in ranked if _reason(o, c.scaling, c.exponent) is not None), None)


def _best(p: Program, o: Offload, s: Scaling, samples: Mapping[Value, Data], most: float) -> Choice | None:
    """Return the smallest exponent whose error is nearly the least; which ones are measured on all samples, the largest one tells.

    None where what the largest sample alone is off is more than `most` of all samples.
    """
    result = np.asarray(samples[o.node.outputs[0]], np.float64).reshape(len(samples[o.node.outputs[0]]), -1)
    largest = int(np.argmax(np.max(np.abs(result), axis=1)))
    squares = np.sum(np.square(result), axis=1)
    share = float(np.sqrt(squares[largest] / max(float(np.sum(squares)), 1e-60)))
    estimates = _outward_errors(p, o, s, {v: x[largest : largest + 1] for v, x in samples.items()})
    if min(estimates.values()) * share > most:
        return None
    errors = _errors(p, o, s, [*_nearly_least(estimates)[:MOST_EXPONENTS], *sorted(estimates, key=lambda k: estimates[k])[:1]], samples)
    if not np.isfinite(min(errors.values())):
        return None
    exponent = _nearly_least(errors)[0]
    return Choice(s, exponent, errors[exponent])


def _errors(p: Program, o: Offload, s: Scaling, exponents: Iterable[int], samples: Mapping[Value, Data]) -> dict[int, float]:
    return {k: _error(p, o, s, k, samples) for k in dict.fromkeys(exponents)}


def _outward_errors(p: Program, o: Offload, s: Scaling, samples: Mapping[Value, Data]) -> dict[int, float]:
    """Return errors by exponent, from the smallest exponents on, up and down; a side ends where it only gets worse."""
    errors: dict[int, float] = {}
    signs = [1, -1]
    for number, n in enumerate(EXPONENTS):
        errors.update((sign * n, _error(p, o, s, sign * n, samples)) for sign in signs)
        ends = {sign: [errors[sign * k] for k in EXPONENTS[: number + 1][-2:]] for sign in signs}
        signs = [sign for sign in signs if not _only_gets_worse(ends[sign], min(errors.values()))]
    return errors


def _only_gets_worse(last_errors: Sequence[float], least: float) -> bool:
    """Tell whether two errors do not fall and are far above the least one; a plateau, where all values are zeros, is no such end."""
    return len(last_errors) == 2 and last_errors[0] <= last_errors[1] and last_errors[0] > FAR_ABOVE_LEAST * least


def _nearly_least(errors: Mapping[int, float]) -> list[int]:
    """Return the exponents whose error is nearly the least, the smallest first."""
    least = min(errors.values())
    return sorted((k for k, error in errors.items() if error <= NEARLY_LEAST * least), key=lambda k: (abs(k), errors[k]))


def _error(p: Program, o: Offload, s: Scaling, k: int, samples: Mapping[Value, Data]) -> float:
    """Return the relative error of an offload's numerics on scaled operands in formats that are chosen for them."""
    tensors = tensors_of(o)
    degrees = {**dict.fromkeys(tensors, 0), **s.operands, o.mapping.axes.results[0]: s.result}
    values = {n: (p.constants[v] if v in p.constants else samples[v]) * np.float32(2.0 ** (degrees[n] * k)) for n, v in tensors.items()}
    expected = values[o.mapping.axes.results[0]].astype(np.float64)
    operands = [v.name for v in o.mapping.operands]
    try:
        formats = o.mapping.formats_for({n: float(np.max(np.abs(x), initial=0)) for n, x in values.items()})
        variant = replace(o, formats=formats, node=_scaled_node(o.node, s, k))
        constants = {n: values[n] for n in operands if tensors[n] in p.constants}
        is_native = formats == o.formats  # what is compiled for one scale serves all of them
        results = NumericsOffload(variant, constants, is_native=is_native).results({n: values[n] for n in operands if n not in constants})
    except (FlexmatchError, ValueError, OverflowError, ArithmeticError):
        return float("inf")
    return float(np.sqrt(np.sum((results[0] - expected) ** 2) / max(float(np.sum(expected**2)), 1e-30)))


def _scaled_node(node: Node, s: Scaling, k: int) -> Node:
    attributes = ((n, float(v) * 2.0 ** (s.attributes[n] * k) if n in s.attributes else v) for n, v in node.attributes)  # type: ignore[arg-type]
    return replace(node, attributes=tuple(attributes))


# -- plans


def rescaling_text(o: Offload, c: Choice) -> str:
    """Return a choice as settings of a plan record it: `layer_norm_0: x-3`."""
    return f"{o.id}: {' '.join(f'{name}{degree * c.exponent:+}' for name, degree in c.scaling.operands.items())}"


def rescaled(plan: Plan, texts: Iterable[str], resources: Mapping[str, Resources | None]) -> Plan:
    """Return the plan with offloads on scaled operands, as `rescaling_text` says them.

    Raises:
        UsageError: (F203) there is no such offload, or no proved law for what is scaled.
    """
    changes = {step[0].id: step for step in (_read(plan, text) for text in texts)}
    if not changes:
        return plan
    work = _Insertion(plan.program)
    offloads = tuple(work.offload(*changes[o.id]) if o.id in changes else o for o in plan.offloads)
    program = _exchanged(work, plan, offloads)
    settings = {**plan.settings, "scaled": list(texts)}
    return replace(plan, program=program, offloads=offloads, settings=settings, residency=residencies(program, offloads, resources))


def tensor_exponents(plan: Plan, texts: Iterable[str]) -> dict[tuple[str, str], int]:
    """Return by which powers of two scalings multiply the tensors of a plan's offloads, by offload and tensor.

    Raises:
        UsageError: (F203) there is no such offload, or no proved law for what is scaled.
    """
    exponents = {}
    for o, s, k, _ in (_read(plan, text) for text in texts):
        degrees = {**s.operands, o.mapping.axes.results[0]: s.result}
        exponents.update({(o.id, name): degree * k for name, degree in degrees.items() if degree})
    return exponents


def _read(plan: Plan, text: str) -> tuple[Offload, Scaling, int, Reason]:
    """Return the offload, scaling, exponent and law of a setting."""
    setting = _setting(plan, text)
    reason = None if setting is None else _reason(*setting)
    if setting is None or reason is None:
        remedy = "leave it out: compiling with samples chooses what is scaled"
        raise UsageError("F203", f'no law is proved for the scaling "{text}" of an offload', help=remedy)
    return *setting, reason


def _setting(plan: Plan, text: str) -> tuple[Offload, Scaling, int] | None:
    """Return the offload, scaling and exponent of a setting; None where the plan has none such."""
    key, _, rest = text.partition(":")
    o = next((o for o in plan.offloads if o.id == key), None)
    exponents = {n: int(k) for n, k in re.findall(r"(\w+)([+-]\d{1,2})(?!\S)", rest)}
    k = min((abs(e) for e in exponents.values()), default=0)
    if o is None or not 0 < k <= max(EXPONENTS):
        return None
    scaling = next((s for s in scalings(o.mapping) if exponents in _multiples(s, k)), None)
    return None if scaling is None else (o, scaling, k if {n: d * k for n, d in scaling.operands.items()} == exponents else -k)


def unscaled(plan: Plan, ids: Collection[str]) -> Plan:
    """Return the plan with some offloads on operands that are not scaled: the inverse powers of two are inserted, too.

    It is for trials: its settings, laws and formats are those of the plan.
    """
    settings = [setting for text in plan.settings["scaled"] if (setting := _setting(plan, text)) is not None]
    changes = {o.id: (o, s, -k) for o, s, k in settings if o.id in ids}
    if not changes:
        return plan
    work = _Insertion(plan.program)
    offloads = tuple(work.offload(*changes[o.id]) if o.id in changes else o for o in plan.offloads)
    return replace(plan, program=_exchanged(work, plan, offloads), offloads=offloads)


def _exchanged(work: _Insertion, plan: Plan, offloads: Sequence[Offload]) -> Program:
    """Return the program of a plan with the nodes of its offloads exchanged for those of others, in order."""
    pairs = zip(plan.offloads, offloads, strict=True)
    return work.program({old.node.outputs: new.node for old, new in pairs if old is not new})


def _multiples(s: Scaling, k: int) -> list[dict[str, int]]:
    return [{n: d * sign * k for n, d in s.operands.items()} for sign in (1, -1)]


class _Insertion:
    """Inserts products with powers of two before and behind offloads of a program."""

    def __init__(self, p: Program) -> None:
        self.p, self.b = p, Builder(p.name)
        self.b.types, self.b.names, self.b.inputs = list(p.types), list(p.names), list(p.inputs)
        self.b.constants, self.b.sources = dict(p.constants), list(p.sources)
        self.before: dict[tuple[Value, ...], list[Node]] = {}  # by the results of the offload that they belong to
        self.behind: dict[tuple[Value, ...], list[Node]] = {}

    def offload(self, o: Offload, s: Scaling, k: int, *reasons: Reason) -> Offload:
        """Return an offload on scaled operands."""
        key, node = o.node.outputs, _scaled_node(o.node, s, k)
        names = [v.name for v in o.mapping.operands]
        inputs = tuple(self._times(v, s.operands.get(n, 0) * k, key) for n, v in zip(names, node.inputs, strict=True))
        if s.result:
            scaled_result = self.b.value(self.p.types[key[0]])
            factor = self.b.constant(np.array([2.0 ** (-s.result * k)], np.float32))
            self.b.apply("mul", (scaled_result, factor))
            self.behind[key] = [replace(self.b.nodes.pop(), outputs=key)]
            node = replace(node, outputs=(scaled_result,))
        return replace(o, node=replace(node, inputs=inputs), because=(*o.because, *reasons))

    def _times(self, v: Value, exponent: int, key: tuple[Value, ...]) -> Value:
        """Return a value times a power of two; constants are multiplied here."""
        if not exponent:
            return v
        factor = np.float32(2.0**exponent)
        if v in self.p.constants:
            return self.b.constant(np.asarray(self.p.constants[v] * factor))
        (result,) = self.b.apply("mul", (v, self.b.constant(np.array([factor]))))
        self.before.setdefault(key, []).append(self.b.nodes.pop())
        return result

    def program(self, changed: Mapping[tuple[Value, ...], Node]) -> Program:
        """Return the program with the nodes of offloads exchanged, by their results before."""
        for node in self.p.nodes:
            for inserted in (*self.before.get(node.outputs, ()), changed.get(node.outputs, node), *self.behind.get(node.outputs, ())):
                self.b.node(inserted)
        program = self.b.finish(self.p.outputs)
        return replace(program, opaque=self.p.opaque, absorbed=self.p.absorbed, notes=self.p.notes)
