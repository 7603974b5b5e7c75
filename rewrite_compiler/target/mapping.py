"""Mapping: one operation of an accelerator as its meaning, its numerics and its driver.

Only the meaning (a pattern, exact over the reals) enters the e-graph. The numerics say bit by bit what the device
returns; the driver emits the instructions that make it do so; `prove` shows that the two agree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, Required, TypedDict, Unpack

import numpy as np

from ..errors import SpecError, did_you_mean
from ..lang.binders import Array
from ..lang.formats import Format
from ..ops.op import INT, INTS, Apply, Tensor, Variable
from ..ops.static import NamedList
from ..readings.arrays.labelled_array import storage_dtype
from ..rewrite.rule import Float, Rule, Where, make_variables, name_of, place_of
from ..user_code import ENGINE, entries_of, is_a, name_text, package_of, quoted
from .axes import Axes, check_axes
from .cost import Cost, Levels, Limit, Work, counted
from .functions import RETURN, Role, call_user, listed_by, reporting_failures, wrong_result
from .resources import Resources
from .stay import Room, Stay

SOLVER = "z3"  # the package of terms beside the engine's
FormatFor = Callable[[float], Format]  # the format for a tensor whose largest magnitude is given
FormatChoices = MappingOf[str, FormatFor] | Callable[[MappingOf[str, str]], MappingOf[str, FormatFor]]  # fixed, or by parameters


@dataclass(eq=False)
class Mapping:
    """One pattern of one operation of one target. `driver`, `numerics` and `limits` are set by decorators of the same names.

    Several patterns may share an operation (a layer with and without an activation); `shared` are groups of tensors that
    the device keeps in one format, `whole` are dimensions that a call takes undivided; `trials` are the sizes at which the
    mapping is proved, the first symbolically (default: from the units and capacities); `search` are tensors whose format is
    the candidate with the least error on calibration samples, because the device keeps inner state in it; `derived` are
    formats that follow from those of other tensors, which they name as parameters; `draws` are mean and deviation of the
    random operands on which its accuracy is measured, where those of every operand will not do; `runtime_weights` are operands that a
    call writes to the memory of weights though they are computed at run time: another pattern takes constant ones.
    """

    target: str
    operation: str
    variant: str
    rule: Rule
    operands: tuple[Variable, ...]
    statics: tuple[tuple[str, str], ...]  # static variables of the pattern: name and attribute kind
    axes: Axes
    formats: FormatChoices
    units: MappingOf[str, int] = field(default_factory=dict)
    shared: tuple[tuple[str, ...], ...] = ()
    whole: tuple[str, ...] = ()
    trials: tuple[MappingOf[str, Any], ...] = ()
    drive: Callable[..., Any] | None = None
    moves: bool = False  # whether the driver computes nothing with codes
    codes: Callable[..., Any] | None = None
    capacities: Callable[..., Iterable[Limit]] | None = None
    search: MappingOf[str, Sequence[Format]] = field(default_factory=dict)
    derived: MappingOf[str, Callable[..., Format]] = field(default_factory=dict)
    price: Callable[..., Cost] | None = None
    room_lists: Callable[..., Iterable[Room]] | None = None
    access_counts: Callable[..., Levels] | None = None
    parameters: MappingOf[str, str] = field(default_factory=dict)  # of the configured target
    draws: MappingOf[str, tuple[float, float]] = field(default_factory=dict)
    runtime_weights: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its nodes, `flexasr.linear_relu`."""
        return f"{self.target}.{self.variant}"

    def driver(self, f: Callable[..., Any], *, moves: bool = False) -> Callable[..., Any]:
        """Take the function that emits the instructions of one tile: (device, tile, operand codes…) → result codes.

        One that only `moves` codes, and computes nothing with them, gets them in the type they are kept in.
        """
        self.drive, self.moves = f, moves
        return f

    def numerics(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Take the function that gives the result codes of one tile as a term: (operand codes…, f=formats, p=parameters) → Array."""
        self.codes = f
        return f

    def limits(self, f: Callable[..., Iterable[Limit]]) -> Callable[..., Iterable[Limit]]:
        """Take the function that lists what a tile of given dimension sizes needs: (**sizes) → Limits."""
        self.capacities = f
        return f

    def costs(self, f: Callable[..., Cost]) -> Callable[..., Cost]:
        """Take the function that prices one tile: (**sizes, static variables, resources=…, p=parameters) → Cost."""
        self.price = f
        return f

    def work(self, f: Callable[..., Work]) -> Callable[..., Work]:
        """Take the function that plans one tile, whose work says its limits and its cost: (**sizes, static variables, p=…) → Work."""
        self.capacities, self.price = partial(_limits_of, f), partial(_cost_of, f)
        return f

    def implement(
        self, work: Callable[..., Work], driver: Callable[..., Any], numerics: Callable[..., Any], *, moves: bool = False
    ) -> None:  # fmt: skip
        """Take all of `work`, `driver` and `numerics`."""
        self.work(work)
        self.driver(driver, moves=moves)
        self.numerics(numerics)

    def residency(self, f: Callable[..., Iterable[Room]]) -> Callable[..., Iterable[Room]]:
        """Take the function that lists where the tensors of one tile lie: (**sizes, p=parameters) → Rooms; its driver takes a `stay`."""
        self.room_lists = f
        return f

    def levels(self, f: Callable[..., Levels]) -> Callable[..., Levels]:
        """Take the function that counts what one tile reads and writes in each memory: (**sizes, p=parameters) → Levels."""
        self.access_counts = f
        return f

    def accesses(self, sizes: MappingOf[str, int], attributes: MappingOf[str, Any]) -> Levels | None:
        """Return the bytes that one tile reads and writes, by memory and tensor; None where the mapping declares none.

        Raises:
            SpecError: the function of the levels fails or returns no counts.
        """
        if self.access_counts is None:
            return None
        available = {**sizes, **attributes, "p": self.parameters}
        arguments = accepted_arguments(self.access_counts, available)
        role = self._role("levels", "(bytes read, bytes written) by memory and tensor", available)
        levels: dict[str, dict[str, Any]] = call_user(role, dict, self.access_counts, **arguments)
        with reporting_failures(role, self.access_counts, places=True):
            odd = next(_odd_levels(levels), self)
            if odd is not self:
                raise wrong_result(role, self.access_counts, f"not {quoted(odd)}")
            return {m: {x: (int(reads), int(writes)) for x, (reads, writes) in dict.items(tensors)} for m, tensors in levels.items()}

    def rooms(self, sizes: MappingOf[str, int], attributes: MappingOf[str, Any]) -> tuple[Room, ...] | None:
        """Return the rooms of one tile's tensors in the device's memories; None where the mapping declares none.

        Raises:
            SpecError: the function of the residency fails or returns something else.
        """
        if self.room_lists is None:
            return None
        available = {**sizes, **attributes, "p": self.parameters}
        role, arguments = self._role("residency", "Rooms", available), accepted_arguments(self.room_lists, available)
        rooms: tuple[Room, ...] = tuple(listed_by(role, Room, self.room_lists, arguments, places=True))
        stray = next((r.tensor for r in rooms if r.tensor and r.tensor not in self.axes.of), None)
        if stray is not None:
            raise self.misplaced_room(f"of {', '.join(self.axes.of)}, or of no tensor", f"of {stray}")
        return rooms

    def misplaced_room(self, expected: str, actual: str) -> SpecError:
        """Return the refusal of a room of the residency, at its function."""
        return wrong_result(self._role("residency", f"Rooms {expected}"), self.room_lists, f"not {actual}")

    def cost(self, sizes: MappingOf[str, int], attributes: MappingOf[str, Any], resources: Resources) -> Cost | None:
        """Return the cost of one tile, None where the mapping declares none.

        Raises:
            SpecError: the function of the costs fails or returns something else.
        """
        if self.price is None:
            return None
        available = {**sizes, **attributes, "resources": resources, "p": self.parameters}
        role, arguments = self._role("costs", "a Cost", available), accepted_arguments(self.price, available)
        cost: Cost = call_user(role, Cost, self.price, **arguments)
        with reporting_failures(role, self.price, places=True):
            cost = counted(cost)
        units = [u.name for u in resources.units]
        if cost.unit not in units:
            raise wrong_result(replace(role, expected=f"a Cost of {' or '.join(units)}"), self.price, f"not of {quoted(cost.unit)}")
        return cost

    def formats_for(self, largest: MappingOf[str, float]) -> dict[str, Format]:
        """Return the format of every tensor from largest magnitudes by name."""
        joint = dict(largest)
        for group in self.shared:
            joint.update(dict.fromkeys(group, max(largest[n] for n in group)))
        return self._with_derived({n: call_user(self._format_of(n), Format, choose, joint[n]) for n, choose in self.format_choices.items()})

    def _with_derived(self, formats: MappingOf[str, Format]) -> dict[str, Format]:
        """Return formats with those that follow from others."""
        return {
            **formats,
            **{n: call_user(self._format_of(n), Format, f, **accepted_arguments(f, formats)) for n, f in self.derived.items()},
        }

    def _format_of(self, tensor: str) -> Role:
        return Role(f"The format of {tensor} of {self.name}", "a Format", self.rule.place, ("a magnitude",))

    def _role(self, part: str, expected: str, names: Iterable[str] = (), operands: tuple[str, ...] = ()) -> Role:
        return Role(f"The {part} of {self.name}", expected, self.rule.place, operands, tuple(names))

    def has_derived_formats(self, formats: MappingOf[str, Format]) -> bool:
        """Tell whether the formats that follow from others are what they must be."""
        return self._with_derived(formats) == dict(formats)

    @property
    def format_names(self) -> tuple[str, ...]:
        """The tensors that have a format."""
        return (*self.format_choices, *self.derived)

    @property
    def format_choices(self) -> MappingOf[str, FormatFor]:
        """How the format of every tensor is chosen, at the target's parameters."""
        if not callable(self.formats):
            return self.formats
        choices: MappingOf[str, FormatFor] = call_user(
            self._role("formats", "a function of magnitudes for each tensor", operands=("parameters",)), dict, self.formats, self.parameters
        )
        return choices

    @property
    def tiling_key(self) -> Hashable:
        """What tiles fit, what they cost and what may be split: the same for patterns that differ in none of these."""
        declared = tuple(tuple(x.items()) for x in (self.parameters, self.units, self.axes.of))
        return self.target, _behaviour_key(self.capacities), _behaviour_key(self.price), self.whole, declared

    def run_driver(
        self, device: Any, operands: MappingOf[str, Any], formats: MappingOf[str, Format], attributes: MappingOf[str, Any],
        stay: Stay | None = None,
    ) -> Any:  # fmt: skip
        """Emit the instructions of one tile on a device; return the result codes (a tuple of several results').

        `stay` says which operands are on the device already and which results stay there; a mapping without residency takes none.

        Raises:
            SpecError: the mapping has no driver, or the driver fails or does not return an array for each result.
        """
        if self.drive is None:
            raise SpecError("I104", f"{self.name} has no driver", place=self.rule.place)
        context = {**attributes, "f": formats, "p": self.parameters, **({} if stay is None else {"stay": stay})}
        codes = {name: _driver_codes(x, formats.get(name), is_moved=self.moves) for name, x in operands.items()}
        arguments, role = (
            {**codes, **accepted_arguments(self.drive, context)},
            self._role("driver", "an array of codes, or a tuple of them", context, ("device", *codes)),
        )
        with reporting_failures(role, self.drive, arguments):
            results = self.drive(device, **arguments)
        arrays = tuple(map(_plain_array, tuple.__iter__(results) if is_a(results, tuple) else (results,)))
        odd = next((r for r in arrays if not _are_codes(r)), self)
        if odd is not self:
            raise wrong_result(role, self.drive, f"not {_quoted_codes(odd)}", help=RETURN if odd is None else "")
        self._check_count(role, self.drive, len(arrays))
        return arrays if is_a(results, tuple) else arrays[0]

    def check_shapes(self, results: Sequence[Any], sizes: MappingOf[str, int]) -> None:
        """Refuse results of the driver [(samples,) …] that are not those of a tile of given sizes; an axis of 1 spreads.

        Raises:
            SpecError: I102 at the driver.
        """
        shapes = [tuple(sizes[d] for d in self.axes.of[name]) for name in self.axes.results]
        actual = [tuple(r.shape) for r in results]
        if any(s and (len(a) < len(s) or not _spreads(a[-len(s) :], s)) for a, s in zip(actual, shapes, strict=True)):
            role = self._role("driver", f"codes of shape (samples, …) {', '.join(map(str, shapes))}")
            raise wrong_result(role, self.drive, f"not {', '.join(map(str, actual))}")

    def _check_count(self, role: Role, f: Callable[..., Any], count: int) -> None:
        if count != len(self.axes.results):
            names = ", ".join(self.axes.results)
            raise wrong_result(replace(role, expected=f"as many arrays as it has results ({names})"), f, f"not {count} of them")

    def result_codes(self, operands: Sequence[Any], formats: MappingOf[str, Format], attributes: MappingOf[str, Any]) -> Any:
        """Return the numerics of one tile: the result codes as terms on arrays of operand codes.

        Raises:
            SpecError: the mapping has no numerics, or these fail or return no arrays of the language.
        """
        if self.codes is None:
            raise SpecError("I104", f"{self.name} has no numerics", place=self.rule.place)
        available = {**attributes, "f": formats, "p": self.parameters}
        names = tuple(v.name for v in self.operands)
        role = self._role("numerics", "an array of the language, or a tuple of them", available, names)
        results = call_user(role, (Array, tuple), self.codes, *operands, **accepted_arguments(self.codes, available))
        arrays = results if is_a(results, tuple) else (results,)
        odd = next((r for r in arrays if not is_a(r, Array)), self)
        if odd is not self:
            raise wrong_result(role, self.codes, f"not {quoted(odd)} in a tuple")
        self._check_count(role, self.codes, len(arrays))
        self._check_term_shapes(role, arrays, [x.shape for x in operands])
        return results

    def _check_term_shapes(self, role: Role, results: Sequence[Array], operand_shapes: Sequence[Sequence[Any]]) -> None:
        """Refuse results of the numerics whose axes are not those that the mapping declares; of others than operands' sizes any will do."""
        sizes = self.axes.sizes(self.shapes_of(operand_shapes))
        for name, result in zip(self.axes.results, results, strict=True):
            axes, shape = self.axes.of[name], tuple(result.shape)
            if len(shape) != len(axes) or any(_differ(sizes.get(d, n), n) for d, n in zip(axes, shape, strict=True)):
                expected = f"{name} with the axes {', '.join(f'{d}={sizes[d]}' if d in sizes else d for d in axes) or 'of a single number'}"
                remedy = f"build it over the sizes of {', '.join(axes) or 'no axis'}, in this order"
                raise wrong_result(replace(role, expected=expected), self.codes, f"not an array of shape {shape}", help=remedy)

    def with_format(self, formats: MappingOf[str, Format], name: str, format_: Format) -> dict[str, Format]:
        """Return formats with another one for a tensor and all that share it."""
        group = next((g for g in self.shared if name in g), (name,))
        return self._with_derived({**formats, **dict.fromkeys(group, format_)})

    def unit_sizes(self, sizes: MappingOf[str, int]) -> dict[str, int]:
        """Return the smallest tile: a unit of each dimension, all of a whole one."""
        return {d: n if d in self.whole else min(self.units.get(d, 1), n) for d, n in sizes.items()}

    def shapes_of(self, operand_shapes: Sequence[Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Return operand shapes by name."""
        return {v.name: tuple(s) for v, s in zip(self.operands, operand_shapes, strict=True)}

    def exceeded_limit(self, sizes: MappingOf[str, int], attributes: MappingOf[str, Any] | None = None) -> Limit | None:
        """Return the first capacity that a tile exceeds; `attributes` are the static variables of its pattern."""
        return next((limit for limit in self.limits_at(sizes, attributes) if not limit.holds), None)

    def limits_at(self, sizes: MappingOf[str, int], attributes: MappingOf[str, Any] | None = None) -> Iterator[Limit]:
        """Yield the capacities that a tile needs: the need, and how much there is.

        Raises:
            SpecError: the function of the limits fails or yields something else.
        """
        if self.capacities is None:
            return
        available = {**sizes, **(attributes or {}), "p": self.parameters}
        arguments = accepted_arguments(self.capacities, available)
        role = self._role("limits", f"Limits (at {', '.join(f'{d}={n}' for d, n in sizes.items())})", available)
        yield from listed_by(role, Limit, self.capacities, arguments)


def _limits_of(plan: Callable[..., Work], **tile: Any) -> Iterable[Limit]:
    return plan(**accepted_arguments(plan, tile)).limits()


def _cost_of(plan: Callable[..., Work], *, resources: Resources, **tile: Any) -> Cost:
    return plan(**accepted_arguments(plan, tile)).cost(resources)


def _odd_levels(levels: MappingOf[Any, Any]) -> Iterator[Any]:
    """Yield what is none of levels: a name of a memory or tensor that is no text, an entry that is no dictionary, no pair of counts."""
    for memory, tensors in levels.items():
        if not is_a(memory, str) or not is_a(tensors, dict):
            yield tensors if is_a(memory, str) else memory
            continue
        yield from (tensor for tensor in dict.keys(tensors) if not is_a(tensor, str))
        yield from (counts for counts in dict.values(tensors) if not _are_counts(counts))


def _are_counts(counts: Any) -> bool:
    return is_a(counts, tuple) and tuple.__len__(counts) == 2 and all(is_a(n, (int, np.integer)) and n >= 0 for n in tuple.__iter__(counts))


def _differ(a: Any, b: Any) -> bool:
    """Tell whether two sizes are different numbers; one that is a term is another number only at a call."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def _plain_array(x: Any) -> Any:
    """Return an array of a class of its own as numpy's; anything else unchanged."""
    return np.asarray(x) if is_a(x, np.ndarray) else x


def _are_codes(x: Any) -> bool:
    """Tell whether an object is an array of codes: of integers or, where a device works with terms, of these."""
    if not is_a(x, (np.ndarray, np.generic)):
        return package_of(type(x)) == ENGINE and hasattr(x, "shape")
    return x.dtype.kind in "biu" or (x.dtype.kind == "O" and all(map(_is_code, {type(code) for code in np.asarray(x).flat})))


def _is_code(kind: type) -> bool:
    """Tell whether objects of a class are codes or terms."""
    return issubclass(kind, (int, np.integer)) or package_of(kind) in (ENGINE, SOLVER)


def _quoted_codes(x: Any) -> str:
    if not is_a(x, np.ndarray):
        return quoted(x)
    others = (code for code in x.flat if not _is_code(type(code))) if x.dtype.kind == "O" else ()
    return next((f"an array with {quoted(code)}" for code in others), f"an array of {x.dtype}")


def _spreads(actual: Sequence[int], shape: Sequence[int]) -> bool:
    return all(n in (1, size) for n, size in zip(actual, shape, strict=True))


def _driver_codes(codes: Any, f: Format | None, *, is_moved: bool) -> Any:
    """Return codes as drivers take them, in a proof as in a run: bytes where the format's codes are, else 64 bits with a sign.

    Drivers compute with codes, and numpy overflows silently in fewer bits; those that only move them take what is kept.
    """
    if not isinstance(codes, np.ndarray) or codes.dtype.kind not in "iu":
        return codes
    stored = np.int64 if f is None else storage_dtype(f.codes)
    keeps_storage_type = stored in (np.uint8, np.uint64) or (is_moved and f is not None)
    return codes.astype(stored if keeps_storage_type else np.int64, copy=False)


def accepted_arguments(f: Callable[..., Any], available: MappingOf[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function has parameters for: sizes, static variables, formats `f`, the target's parameters `p`."""
    names = _parameters(f)
    return dict(available) if names is None else {name: value for name, value in available.items() if name in names}


def _behaviour_key(f: Hashable) -> Hashable:
    """Return a key of a function's behaviour: partial applications with different arguments differ."""
    if not isinstance(f, partial):
        return f
    args, keywords = (tuple(map(_behaviour_key, bound)) for bound in (f.args, f.keywords.values()))
    is_key = all(isinstance(x, Hashable) for x in (*args, *keywords))
    return (f.func, args, tuple(sorted(zip(f.keywords, keywords, strict=True), key=itemgetter(0)))) if is_key else f


@lru_cache(maxsize=4096)
def _parameters(f: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names a function takes, None when it takes any."""
    parameters = inspect.signature(f).parameters
    return None if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()) else frozenset(parameters)


class _Declaration(TypedDict, total=False):
    units: MappingOf[str, int]
    shared: Sequence[str]
    trials: Sequence[MappingOf[str, Any]]
    search: MappingOf[str, Sequence[Format]]
    derived: MappingOf[str, Callable[..., Format]]
    draws: MappingOf[str, tuple[float, float]]
    runtime_weights: str
    operation: str
    whole: str


class MappingDeclaration(_Declaration, total=False):
    """What a mapping declares beside its meaning; `Target.accelerates` explains the entries."""

    axes: Required[str]
    formats: Required[FormatChoices]


class PatternDeclaration(_Declaration, total=False):
    """What a mapping declares beside a pattern of the table; what is left out is the pattern's."""

    formats: FormatChoices


def make_mapping(target: str, f: Callable[..., Any], place: str = "", **declared: Unpack[MappingDeclaration]) -> Mapping:
    """Return the mapping whose meaning, and optionally guard, a function of pattern variables returns.

    Its place is that of the function unless it is given.

    Raises:
        SpecError: the function fails, or the axes do not name its operands and, last, its results.
    """
    place = place or place_of(f)
    _check_keywords(f"{target}.{f.__name__}", declared, place)
    variables = make_variables(f, place)
    role = Role(f"The meaning of {target}.{f.__name__}", "its result and, last, Where(…)", place)
    with reporting_failures(role, f):
        returned = f(**variables)
    meaning, where = _meaning(role, returned)
    rule = Rule(f.__name__, f.__doc__ or "", place, tuple((m, m) for m in meaning), where.conditions, "map", "E", frozenset(), variables)
    operands = tuple(v for v in variables.values() if isinstance(v, Variable))
    statics = tuple((name_of(v), _kind(v)) for v in variables.values() if not isinstance(v, Variable))
    axes = Axes.parse(declared["axes"], len(meaning))
    try:
        check_axes(f"{target}.{f.__name__}", axes, declared["axes"], [v.name for v in operands])
        _check_names(f"{target}.{f.__name__}", axes, [name for name, _ in statics], declared)
    except SpecError as refusal:
        raise refusal.at(place) from None
    return Mapping(
        target,
        declared.get("operation", f.__name__),
        f.__name__,
        rule,
        operands,
        statics,
        axes,
        declared["formats"],
        dict(declared.get("units", {})),
        tuple(tuple(group.split()) for group in declared.get("shared", ())),
        tuple(declared.get("whole", "").split()),
        tuple(declared.get("trials", ())),
        search=dict(declared.get("search", {})),
        derived=dict(declared.get("derived", {})),
        draws=dict(declared.get("draws", {})),
        runtime_weights=tuple(declared.get("runtime_weights", "").split()),
    )


def _meaning(role: Role, returned: Any) -> tuple[tuple[Tensor, ...], Where]:
    """Return the results that a mapping's function gives (one, or all of one operator) and its guard."""
    parts = list(tuple.__iter__(returned)) if is_a(returned, tuple) else [returned]
    where = parts.pop() if parts and is_a(parts[-1], Where) else Where()
    results = tuple(tuple.__iter__(parts[0])) if len(parts) == 1 and is_a(parts[0], tuple) else tuple(parts)
    odd = next((m for m in results if not is_a(m, Tensor)), role) if results else returned
    if odd is not role:
        remedy = RETURN if odd is None else "return a term of `ops` on its operands, as `return o.relu(x), Where(x.rank == 2)`"
        raise SpecError("R101", f"{role.subject} must return {role.expected}, not {quoted(odd)}", place=role.place, help=remedy)
    first = results[0]
    if len(results) > 1 and not (isinstance(first, Apply) and len(results) == first.op.outputs):
        sentence = f"a mapping of several results returns all of one operator, not {len(results)} tensors"
        raise SpecError("R101", sentence, place=role.place)
    return results, where


def _check_keywords(name: str, declared: MappingOf[str, Any], place: str) -> None:
    """Require the keywords without which there is no mapping, and no unknown one."""
    keywords = sorted(MappingDeclaration.__annotations__)
    unknown = [k for k in declared if k not in keywords]
    if unknown:
        remedy = " ".join(filter(None, (did_you_mean(unknown[0], keywords), f"keywords: {', '.join(keywords)}")))
        raise SpecError("I102", f"accelerates(…) of {name} takes no {unknown[0]}", place=place, help=remedy)
    missing = [k for k in ("axes", "formats") if k not in declared]
    if missing:
        remedy = 'write it as axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", format_of_magnitude)'
        raise SpecError("I102", f"accelerates(…) of {name} must be given {missing[0]}", place=place, help=remedy)
    name_text(f"The axes of {name}", declared["axes"])


def _check_names(name: str, axes: Axes, attributes: Sequence[str], declared: MappingDeclaration) -> None:
    """Require that what is declared of axes and tensors names those there are, and that every trial gives every axis a size."""
    dimensions, tensors = list(dict.fromkeys(d for dims in axes.of.values() for d in dims)), list(axes.of)
    formats, trials = declared["formats"], entries_of(f"The trials of {name}", declared.get("trials", ()), dict, noun="sizes by axis")
    entries: tuple[tuple[str, Iterable[str], list[str], str], ...] = (
        ("units", declared.get("units", {}), dimensions, "axes"),
        ("whole", declared.get("whole", "").split(), dimensions, "axes"),
        ("shared", " ".join(declared.get("shared", ())).split(), tensors, "tensors"),
        ("formats", () if callable(formats) else formats, tensors, "tensors"),
        ("search", declared.get("search", {}), tensors, "tensors"),
        ("derived", declared.get("derived", {}), tensors, "tensors"),
        ("draws", declared.get("draws", {}), [*tensors, *attributes], "tensors"),
        ("runtime_weights", declared.get("runtime_weights", "").split(), tensors, "tensors"),
        *((f"trial {_listing(at)}", at, [*dimensions, *attributes], "axes") for at in trials),
    )
    for part, names, existing, kind in entries:
        strange = [n for n in names if n not in existing]
        if strange:
            remedy = " ".join(filter(None, (did_you_mean(str(strange[0]), existing), f"they are {', '.join(existing)}")))
            raise SpecError("I102", f"the {part} of {name} must name its {kind}, not {quoted(strange[0])}", help=remedy)
    formatted = [*(() if callable(formats) else formats), *declared.get("derived", {})]
    missing = [n for n in tensors if n not in formatted] if formatted and not callable(formats) else []
    if missing:
        sentence = f"the formats of {name} must give {missing[0]} a format, not only {', '.join(formatted)}"
        raise SpecError("I102", sentence, help=f'add "{missing[0]}" to its `formats`, or to `derived` if it follows from others')
    for at in trials:
        missing = [n for n in (*dimensions, *attributes) if n not in at]
        if missing:
            kind = "attribute" if missing[0] in attributes else "axis"
            remedy = f'add "{missing[0]}": … to it: the sizes of a trial are {", ".join((*dimensions, *attributes))}'
            raise SpecError("I102", f"the trial {_listing(at)} of {name} must give the {kind} {missing[0]} a value", help=remedy)


def _listing(at: MappingOf[str, Any]) -> str:
    return ", ".join(f"{n}={quoted(x)}" for n, x in at.items())


def _kind(variable: object) -> str:
    if isinstance(variable, NamedList):
        return INTS
    return INT if not isinstance(variable, Float) else "float"
