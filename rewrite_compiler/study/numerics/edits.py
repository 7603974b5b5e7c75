"""Edits of numerics: for every term that rounds, limits, looks up or orders, what it could be instead.

An edit is a change of the specification's text: it applies to all terms that one expression of the file builds. Three ranks
say how an edit relates to exact arithmetic. *Exact*: the term gives what the real numbers would (more bits, the nearest
integer, the function that a table approximates). *Structure*: it computes something else (another shift, other operands).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from ...compile import Offload
from ...lang import intervals as iv
from ...lang.arithmetic import maximum
from ...lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, Table, array, scalar_array
from ...lang.expr import Expr, binary, clamp, const, lift, select, wrap
from ...lang.formats import IEEE, AdaptivFloat, Format
from ...lang.traversal import terms_of
from ...target import Mapping as Operation
from .exact_tables import approximation, exact_table, odd_entries, with_entry
from .format_reads import Read, observed
from .rewriting import BUILDERS, WIDE, Rewrite, Rewriter, lookup
from .source_places import SourcePlace, with_places
from .table_constants import SegmentConstant, fitted_constants, segment_constants

OTHER_BRANCH, RESULT_LIMIT, SEGMENT = "other_branch", "result_at_least_zero", "segment "
READ_STEPS = {"read_more": ("more", 1), "read_less": ("less", -1)}  # key → text, what is added to a field where it is read
SHIFT_STEPS = {"shift_more": ("more", 1), "shift_less": ("less", -1)}  # key → text, what is added to the amount
MOST_STEPS = 3
RESULT_STEPS = {"larger_result": ("one more", 1), "smaller_result": ("one less", -1)}  # key → text, what exponents have more
FLIPPED = {"min": "max", "max": "min"}


class Rank(IntEnum):
    """How an edit relates to exact arithmetic."""

    EXACT = 0
    STRUCTURE = 1


@dataclass(frozen=True)
class Alternative:
    """What a kind of term could be instead: the aspect it changes, as text before and after, and how it is built."""

    aspect: str
    rank: Rank
    describe: Callable[[Expr], tuple[str, str]]
    build: Rewrite


@dataclass(frozen=True)
class TermEdit:
    """One edit of an operation's numerics: the place of the term, and what it becomes."""

    place: SourcePlace
    aspect: str  # of the term that it changes: its width, its rounding …
    before: str = field(compare=False)  # of the first term with it
    after: str = field(compare=False)
    rank: Rank
    key: str  # of its alternative
    op: str  # of the term; of a field that is read: tensor.field
    step: int = 1  # how often it is made: bits of a shift, or of a binary point
    build: Rewrite = field(compare=False, repr=False, kw_only=True)

    def document(self, offload: str) -> dict[str, Any]:
        """Return the edit as JSON."""
        return {"offload": offload, "term": self.place.text, "place": str(self.place), "field": self.aspect,
                "before": self.before, "after": self.after}  # fmt: skip


def constant_of(e: Expr) -> int | None:
    """Return the integer that a term is, None where it is none."""
    return None if e.value is None or e.real else int(e.value)


def clamp_of(e: Expr) -> tuple[Expr, int | None, int | None] | None:
    """Return what a term limits and between which constants: max(min(x, high), low), either part alone, in either order."""
    ends: dict[str, int] = {}
    x = e
    while x.op in FLIPPED and x.op not in ends and any(constant_of(a) is not None for a in x.args):
        inner, end = x.args if constant_of(x.args[1]) is not None else x.args[::-1]
        ends[x.op], x = constant_of(end) or 0, inner
    low, high = ends.get("max"), ends.get("min")
    return None if high is None and low in (None, 0) else (x, low, high)


def _is_rounding(e: Expr, half: Expr) -> bool:
    """Tell whether an addend of a shifted sum only rounds it."""
    return e is half or e.op == "select" or (constant_of(e) is not None and constant_of(half) is not None)


def _nearest(e: Expr, args: Sequence[Expr]) -> Expr:
    """Return a shift that rounds to the nearest integer, whatever rounding it has."""
    x, n = args
    half = (lift(1) << n) >> 1
    if x.op == "add" and _is_rounding(x.args[1], half):
        x = x.args[0]
    return (x + half) >> n


def _clamp_of_bits(bits: int) -> Rewrite:
    """Return the rewrite of a clamp to one at a signed word."""

    def build(e: Expr, args: Sequence[Expr]) -> Expr:
        limited = binary(e.op, *args)
        inner, _, _ = clamp_of(limited) or (limited, None, None)
        return clamp(inner, *iv.of_width(bits, True))

    return build


def _wrap_of_bits(bits: int) -> Rewrite:
    """Return the rewrite of a wrap to one at another width."""
    return lambda e, args: wrap(args[0], bits, e.data[1])


WIDTHS: Mapping[str, Callable[[int], Rewrite]] = {"wider_clamp": _clamp_of_bits, "wider_wrap": _wrap_of_bits}


def of_bits(edit: TermEdit, bits: int) -> TermEdit:
    """Return the edit of a term's width with another width after it."""
    return replace(edit, after=f"{bits} bits", build=WIDTHS[edit.key](bits))


def bits_before(w: SourceTerms, edit: TermEdit) -> int:
    """Return the bits of the widest word that an edit widens."""
    ends = [e.data[0] if e.op == "wrap" else iv.width_of((clamp_of(e) or (e, 0, 0))[1:]) for e in w.at(edit)]
    return max((end if isinstance(end, int) else end[0] for end in ends if end), default=1)


def _shifted(step: int) -> Rewrite:
    return lambda e, args: binary(e.op, args[0], binary("max", args[1] + step, 0))


def _swapped_indices(e: Expr, args: Sequence[Expr]) -> Expr:
    return lift(e.data[(args[1], args[0], *args[2:])])


def _from_zero(e: Expr, args: Sequence[Expr]) -> Expr:
    f: Fold = e.data.fold
    initial = tuple(array(lambda *i: const(0), a.shape) if a.rank else scalar_array(0) for a in f.initial)
    result = replace(e.data, fold=Fold(f.variable, f.extent, initial, f.accumulators, f.bodies))
    return lift(result[tuple(args)])


def _constants(e: Expr) -> tuple[int, ...]:
    """Return the constants of more than a unit that a sum or a difference has."""
    return tuple(c for c in map(constant_of, e.args) if c is not None and abs(c) > 1)


def _constant_texts(e: Expr, factor: float) -> tuple[str, str]:
    (c,) = _constants(e)
    return f"{c:,}", f"{int(c * factor):,}"


def _with_constant(change: Callable[[int], int]) -> Rewrite:
    """Return the rewrite of a sum or a difference to one with another constant."""

    def build(e: Expr, args: Sequence[Expr]) -> Expr:
        return binary(e.op, *(x if (c := constant_of(a)) is None else const(change(c)) for a, x in zip(e.args, args, strict=True)))

    return build


def _clamp_texts(e: Expr) -> tuple[str, str]:
    _, low, high = clamp_of(e) or (e, None, None)
    ends = [f"{end:,}" for end in (low, high) if end is not None]
    return f"limited to {' … '.join(ends)}", f"{WIDE} bits"


ALTERNATIVES: Mapping[str, Alternative] = {
    "wider_clamp": Alternative("width", Rank.EXACT, _clamp_texts, _clamp_of_bits(WIDE)),
    "wider_wrap": Alternative("width", Rank.EXACT, lambda e: (f"{e.data[0]} bits that wrap", f"{WIDE} bits"),
                              _wrap_of_bits(WIDE)),
    "saturate": Alternative("overflow", Rank.EXACT, lambda e: (f"wraps at {e.data[0]} bits", "saturates"),
                            lambda e, args: clamp(args[0], *iv.of_width(*e.data))),
    "nearest": Alternative("rounding", Rank.EXACT, lambda e: ("as written", "to the nearest"), _nearest),
    "exact_table": Alternative("table", Rank.EXACT, lambda e: (f"table {e.data.name}", "the function it approximates"),
                               lambda e, args: lookup(exact_table(e.data), args)),
    "shift_less": Alternative("shift", Rank.STRUCTURE, lambda e: ("as written", "one bit less"), _shifted(-1)),
    "shift_more": Alternative("shift", Rank.STRUCTURE, lambda e: ("as written", "one bit more"), _shifted(1)),
    "swap_operands": Alternative("operands", Rank.STRUCTURE, lambda e: ("as written", "swapped"), lambda e, args: args[1] - args[0]),
    "swap_branches": Alternative("operands", Rank.STRUCTURE, lambda e: ("as written", "swapped"),
                                 lambda e, args: select(args[0], args[2], args[1])),
    "swap_indices": Alternative("operands", Rank.STRUCTURE, lambda e: ("as written", "swapped"), _swapped_indices),
    "flip": Alternative("operands", Rank.STRUCTURE, lambda e: (e.op, FLIPPED[e.op]), lambda e, args: binary(FLIPPED[e.op], *args)),
    "from_zero": Alternative("start", Rank.STRUCTURE, lambda e: ("as written", "from zero"), _from_zero),
    "no_constant": Alternative("constant", Rank.STRUCTURE, lambda e: ("added", "none"), lambda e, args: args[0]),
    "twice_constant": Alternative("constant", Rank.STRUCTURE, lambda e: _constant_texts(e, 2), _with_constant(lambda c: 2 * c)),
    "half_constant": Alternative("constant", Rank.STRUCTURE, lambda e: _constant_texts(e, 0.5), _with_constant(lambda c: c // 2)),
    "at_least_zero": Alternative("clamp", Rank.STRUCTURE, lambda e: ("none", "at least 0"),
                                 lambda e, args: binary("max", BUILDERS[e.op](e, args), 0)),
}  # fmt: skip


KINDS: Mapping[str, tuple[str, ...]] = {
    "wrap": ("wider_wrap", "saturate", "at_least_zero"),
    "shr": ("nearest", "shift_less", "shift_more"),
    "shl": ("shift_less", "shift_more"),
    "sub": ("swap_operands",),
    "select": ("swap_branches",),
}


def alternatives_of(e: Expr) -> Iterator[tuple[str, Alternative]]:
    """Yield what a term could be instead, by key."""
    keys = KINDS.get(e.op, ())
    if e.op in FLIPPED:
        keys = ("wider_clamp", "at_least_zero") if clamp_of(e) is not None else ("flip",)
    elif e.op in ("add", "sub") and any(constant_of(a) is not None for a in e.args):
        multiples = ("twice_constant", *(("half_constant",) if not any(c % 2 for c in _constants(e)) else ())) if _constants(e) else ()
        keys = (*(("no_constant",) if constant_of(e.args[1]) is not None else ()), *multiples, *keys)
    elif e.op == "load":
        keys = tuple(_of_load(e.data))
    elif e.op == "table":
        yield from _of_table(e.data)
    yield from ((key, ALTERNATIVES[key]) for key in keys)


def _of_table(table: Table) -> Iterator[tuple[str, Alternative]]:
    function_of_table = approximation(table)
    if function_of_table is not None and function_of_table.function != "x":
        yield "exact_table", ALTERNATIVES["exact_table"]
    yield from ((f"entry {at}", _entry(table, at, value, usual)) for at, value, usual in odd_entries(table))


def _entry(table: Table, at: int, value: int, usual: int) -> Alternative:
    """Return the alternative of one entry that stands out: the median of its neighbours."""
    texts = f"{table.name}[{at}] = {value}", f"{usual}"
    return Alternative("table entry", Rank.STRUCTURE, lambda e: texts, lambda e, args: lookup(with_entry(e.data, at, usual), args))


def _of_load(a: Array) -> Iterator[str]:
    if isinstance(a, Leaf) and a.rank > 1 and a.shape[0] == a.shape[1] and not isinstance(a, Accumulator):
        yield "swap_indices"
    if isinstance(a, FoldResult) and not any(_is_zero_or_running(i) for i in a.fold.initial):
        yield "from_zero"


def _is_zero_or_running(a: Array) -> bool:
    """Tell whether a fold starts from zero, or goes on from the accumulator of one around it."""
    if not isinstance(a, Comprehension):
        return True
    return constant_of(a.body) == 0 or any(isinstance(x.data, Accumulator) for x in terms_of(a.body) if x.op == "load")


@dataclass(frozen=True)
class SourceTerms:
    """The numerics of one tile with the places of its terms on data, those inside of its tables included."""

    results: tuple[Array, ...]
    places: Mapping[Expr, tuple[SourcePlace, ...]]
    terms: tuple[Expr, ...]
    other_branches: Mapping[Expr, Mapping[SourcePlace, Expr]] = field(default_factory=dict)  # of terms that a constant selects
    reads: tuple[Read, ...] = ()  # of fields of formats

    def at(self, edit: TermEdit) -> list[Expr]:
        """Return the terms that an edit changes."""
        if edit.key in (RESULT_LIMIT, *RESULT_STEPS, *READ_STEPS):
            return []
        if edit.key.startswith(SEGMENT):
            return [c.term for c in self.constants() if _segment_key(c) == edit.key and edit.place in self.places.get(c.term, ())]
        if edit.key == OTHER_BRANCH:
            return [e for e in self.terms if edit.place in self.other_branches.get(e, ())]
        terms = (e for e in self.terms if e.op == edit.op and edit.place in self.places.get(e, ()))
        return [e for e in terms if any(key == edit.key for key, _ in alternatives_of(e))]

    def rewriter(self, edit: TermEdit, *, inlines: bool) -> Rewriter:
        """Return what applies an edit."""
        if edit.key == OTHER_BRANCH:
            return Rewriter({}, inlines=inlines, swaps={e: self.other_branches[e][edit.place] for e in self.at(edit)})
        return Rewriter(dict.fromkeys(self.at(edit), edit.build), inlines=inlines)

    def constants(self) -> Iterator[SegmentConstant]:
        """Yield the constants of segments in the tables on data."""
        for table in dict.fromkeys(e.data for e in self.terms if e.op == "table"):
            yield from segment_constants(table)

    def outermost(self) -> Iterator[Expr]:
        """Yield the terms that have a place, without the inner part of a limit at both ends."""
        inner = {id(a) for e in self.terms if e.op in FLIPPED and clamp_of(e) for a in e.args if a.op in FLIPPED}
        yield from (e for e in self.terms if id(e) not in inner and e in self.places)


def source_terms(
    operation: Operation, operands: Sequence[Array], formats: Mapping[str, Format], attributes: Mapping[str, Any]
) -> SourceTerms:
    """Return the numerics of an operation on operands, with places."""
    reads: dict[Read, None] = {}

    def noted(read: Read, value: int) -> int:
        reads[read] = None
        return value

    results, of_results = with_places(lambda: operation.result_codes(operands, observed(formats, noted), attributes))
    places, other_branches = of_results.of_terms, of_results.other_branches
    arrays = _arrays(results)
    roots = [a[tuple(lift(0) for _ in a.shape)] for a in arrays]
    terms = [e for root in roots for e in terms_of(root)]
    on_data = [e for e in terms if e.reads]
    for table in dict.fromkeys(e.data for e in terms if e.op == "table"):
        _, inner = with_places(lambda table=table: lift(table.function(*table.parameters)))  # type: ignore[misc]
        places, other_branches = {**inner.of_terms, **places}, {**inner.other_branches, **other_branches}
        on_data += list(terms_of(table.body))
    return SourceTerms(arrays, places, tuple(dict.fromkeys(on_data)), other_branches, tuple(reads))


def edits_of(w: SourceTerms) -> list[TermEdit]:
    """Return the edits of numerics, one for each alternative of each place, in the order of the terms."""
    edits: dict[tuple[SourcePlace, str], TermEdit] = {}
    for e in w.outermost():
        for (key, a), place in itertools.product(alternatives_of(e), w.places[e]):
            if (place, key) not in edits:
                edits[place, key] = TermEdit(place, a.aspect, *a.describe(e), a.rank, key, e.op, build=a.build)
    for e in w.terms:
        for place in w.other_branches.get(e, ()):
            edits.setdefault((place, OTHER_BRANCH), _to_other_branch(place, e.op))
    return list(edits.values())


def _to_other_branch(place: SourcePlace, op: str) -> TermEdit:
    """Return the edit of a select whose condition is a constant, so that no term of it is left: the rewriter has its other branch."""
    a = ALTERNATIVES["swap_branches"]
    return TermEdit(place, a.aspect, "as written", "swapped", a.rank, OTHER_BRANCH, op, build=a.build)


def read_edits(w: SourceTerms) -> Iterator[TermEdit]:
    """Yield the edits of binary points and biases where numerics read them: one more, and one less."""
    for read, (key, (text, _)) in itertools.product(w.reads, READ_STEPS.items()):
        texts = f"{read} as it is", f"one {text}"
        yield TermEdit(read.place, read.field, *texts, Rank.STRUCTURE, key, str(read), build=_unchanged)


def _unchanged(e: Expr, args: Sequence[Expr]) -> Expr:
    return BUILDERS[e.op](e, args)


def next_step(edit: TermEdit) -> TermEdit | None:
    """Return an edit of a shift, or of a field where it is read, by one more in its direction; None of others, and beyond MOST_STEPS."""
    steps = {**SHIFT_STEPS, **READ_STEPS}
    if edit.key not in steps or edit.step == MOST_STEPS:
        return None
    (text, sign), step = steps[edit.key], edit.step + 1
    bits = f"{step} bits {text}" if edit.key in SHIFT_STEPS else f"{step} {text}"
    return replace(edit, step=step, after=bits, build=_shifted(sign * step) if edit.key in SHIFT_STEPS else edit.build)


def segment_edits(w: SourceTerms, edit: TermEdit) -> Iterator[TermEdit]:
    """Yield the edits of single constants of segments of a table, which an edit replaces by the function that it approximates."""
    for table in dict.fromkeys(e.data for e in w.at(edit)) if edit.key == "exact_table" else ():
        for c, value in fitted_constants(table):
            for place in w.places.get(c.term, ())[:1]:
                texts = f"{c.value} of segment {c.segment}{'' if c.branch == 1 else ' + 1'}", f"{value}"
                rewrite = replace(c, value=value).rewrite()
                yield TermEdit(place, "table entry", *texts, Rank.STRUCTURE, _segment_key(c), "select", build=rewrite)


def _segment_key(c: SegmentConstant) -> str:
    return f"{SEGMENT}{c.segment} {c.branch} {c.value}"


def result_edits(w: SourceTerms, formats: Sequence[Format]) -> Iterator[TermEdit]:
    """Yield the edits of results: those of codes with exponents encoded with a bias of one more, or of one less; none below zero.

    A shift before it, where the result is encoded, mends a wrong bias: without these edits data would seem to blame the shift.
    """
    for a, f in zip(w.results, formats, strict=True):
        if isinstance(f, AdaptivFloat) and isinstance(a, Comprehension):
            for (key, (after, _)), place in itertools.product(RESULT_STEPS.items(), w.places.get(a.body, ())):
                yield TermEdit(place, "bias", "as written", after, Rank.STRUCTURE, key, a.body.op, build=_unchanged)
        at = _place_of_result(w, a)
        if at is not None and not isinstance(f, IEEE) and (a.interval[0] is None or a.interval[0] < 0 or isinstance(f, AdaptivFloat)):
            yield TermEdit(at, "clamp", "none", "at least 0", Rank.STRUCTURE, RESULT_LIMIT, "", build=_unchanged)


def _place_of_result(w: SourceTerms, a: Array) -> SourcePlace | None:
    """Return the place of the term that gives the elements of a result; of a fold the term of its last step."""
    place: SourcePlace | None = None
    while isinstance(a, Comprehension | FoldResult):
        e = a.body if isinstance(a, Comprehension) else a.fold.bodies[a.component][tuple(lift(0) for _ in a.shape)]
        while e.op == "select" and not e.args[0].reads:  # by the number of the step
            e = e.args[1]
        place = next(iter(w.places.get(e, ())), place)
        if e.op != "load":
            break
        a = e.data
    return place


def _at_least_zero(a: Array, f: Format) -> Array:
    """Return result codes without those of values below zero."""
    negative = 1 << f.width - 1
    if isinstance(f, AdaptivFloat):
        return array(lambda *i: select(a[i] >= negative, 0, a[i]), a.shape)
    return array(lambda *i: maximum(a[i], 0), a.shape)


def _rescaled(a: Array, f: AdaptivFloat, step: int) -> Array:
    """Return codes of a format whose values have exponents of `step` more: the largest at its upper end, zeros at its lower one."""
    half = 1 << f.width - 1  # of the codes: of values that are not negative

    def element(*i: Expr) -> Expr:
        size, sign = a[i] % half, a[i] >> f.width - 1
        scaled = clamp(size + (step << f.mantissa_bits), 0, half - 1)
        return select((size == 0) | (scaled == 0), 0, sign * half + scaled)

    return array(element, a.shape)


def edited(o: Offload, edit: TermEdit, *, inlines: bool = False) -> Offload:
    """Return an offload with its numerics edited; its driver and its device stay as they are. `inlines` as for `Rewriter`."""
    mapping = o.mapping
    codes = mapping.codes
    assert codes is not None

    @functools.wraps(codes)
    def numerics(*operands: Array, **context: Any) -> Any:
        results = _edited_results(o, edit, operands, context, inlines=inlines)
        return results[0] if len(results) == 1 else results

    return replace(o, mapping=replace(mapping, codes=numerics))


def _edited_results(
    o: Offload, edit: TermEdit, operands: Sequence[Array], context: Mapping[str, Any], *, inlines: bool
) -> tuple[Array, ...]:
    """Return the results of an offload's numerics, edited."""
    mapping, of_context = o.mapping, context.get("f", o.formats)
    formats = [o.formats[n] for n in mapping.axes.results]
    if edit.key in READ_STEPS:
        results = _arrays(mapping.result_codes(operands, observed(of_context, _value_where_read(edit)), context))
        return tuple(map(_within, results, formats))
    w = source_terms(mapping, operands, of_context, context)
    if edit.key == RESULT_LIMIT:
        return tuple(map(_at_least_zero, w.results, formats))
    if edit.key in RESULT_STEPS:
        step = RESULT_STEPS[edit.key][1]
        return tuple(_rescaled(a, f, step) if isinstance(f, AdaptivFloat) else a for a, f in zip(w.results, formats, strict=True))
    rewriter = w.rewriter(edit, inlines=inlines)
    return tuple(map(_within, map(rewriter.array, w.results), formats))


def _arrays(results: Any) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)


def _value_where_read(edit: TermEdit) -> Callable[[Read, int], int]:
    """Return what an edit makes of a field that numerics read."""
    step = edit.step * READ_STEPS[edit.key][1]
    return lambda read, value: value + step if (read.place, str(read)) == (edit.place, edit.op) else value


def _within(a: Array, f: Format) -> Array:
    """Return result codes that a format has: those beyond its ends are limited, as a device without overflow would."""
    if iv.inside(a.interval, f.codes):
        return a
    return array(lambda *i: clamp(a[i], *f.codes), a.shape)
