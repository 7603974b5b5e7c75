"""Mapping: one operation of an accelerator as its meaning, its numerics and its driver.

Only the meaning (a pattern, exact over the reals) enters the e-graph. The numerics say bit by bit what the device
returns; the driver emits the instructions that make it do so; `prove` shows that the two agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import Any

from ..errors import SpecError
from ..lang.formats import Format
from ..ops.op import INT, INTS
from ..ops.static import Named
from ..ops.term import Tensor, Variable
from ..rewrite.rule import Float, Rule, Where, make_variables, name_of, place_of

FormatFor = Callable[[float], Format]  # the format for a tensor whose largest magnitude is given


@dataclass(frozen=True)
class Limit:
    """A capacity: what it is, how much a tile needs, how much there is."""

    what: str
    needs: int
    most: int

    @property
    def holds(self) -> bool:
        """Tell whether the tile fits."""
        return self.needs <= self.most

    def __str__(self) -> str:
        return f"{self.what} {self.needs:,}, must be at most {self.most:,}"


@dataclass(frozen=True)
class Axes:
    """Which loop dimension runs along each axis of each operand and of the result, e.g. "x: t k; w: n k; y: t n"."""

    of: MappingOf[str, tuple[str, ...]]
    result: str

    @classmethod
    def parse(cls, text: str) -> Axes:
        """Read the written form; the last entry is the result."""
        entries = [entry.partition(":") for entry in text.split(";")]
        of = {name.strip(): tuple(dims.split()) for name, _, dims in entries}
        return cls(of, list(of)[-1])

    @property
    def summed(self) -> tuple[str, ...]:
        """The dimensions that the result does not have: partial results along them add up."""
        kept = set(self.of[self.result])
        return tuple(dict.fromkeys(d for dims in self.of.values() for d in dims if d not in kept))

    def sizes(self, shapes: MappingOf[str, Sequence[int]]) -> dict[str, int]:
        """Return the size of every dimension."""
        return {d: n for name, shape in shapes.items() for d, n in zip(self.of[name], shape, strict=True)}


@dataclass(eq=False)
class Mapping:
    """One pattern of one operation of one target. `driver`, `numerics`, `limits` and `ranges` are set by decorators of the same names.

    Several patterns may share an operation (a layer with and without an activation); `shared` are groups of tensors that
    the device keeps in one format, `whole` are dimensions that a call takes undivided; `trials` are the sizes at which the
    mapping is proved, the first symbolically (default: from the units and capacities).
    """

    target: str
    operation: str
    variant: str
    rule: Rule
    operands: tuple[Variable, ...]
    statics: tuple[tuple[str, str], ...]  # static variables of the pattern: name and attribute kind
    axes: Axes
    formats: MappingOf[str, FormatFor]
    units: MappingOf[str, int] = field(default_factory=dict)
    shared: tuple[tuple[str, ...], ...] = ()
    whole: tuple[str, ...] = ()
    trials: tuple[MappingOf[str, int], ...] = ()
    drive: Callable[..., Any] | None = None
    codes: Callable[..., Any] | None = None
    capacities: Callable[..., Iterable[Limit]] | None = None
    inner_ranges: Callable[..., MappingOf[str, float]] | None = None

    @property
    def name(self) -> str:
        """The name of its nodes, `flexasr.linear_relu`."""
        return f"{self.target}.{self.variant}"

    def driver(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Take the function that emits the instructions of one tile: (device, tile, operand codes…) → result codes."""
        self.drive = f
        return f

    def numerics(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Take the function that gives the result codes of one tile as a term: (operand codes…, f=formats, p=parameters) → Array."""
        self.codes = f
        return f

    def limits(self, f: Callable[..., Iterable[Limit]]) -> Callable[..., Iterable[Limit]]:
        """Take the function that lists what a tile of given dimension sizes needs: (**sizes) → Limits."""
        self.capacities = f
        return f

    def ranges(self, f: Callable[..., MappingOf[str, float]]) -> Callable[..., MappingOf[str, float]]:
        """Take the function that gives largest magnitudes which the device keeps in a tensor's format beside the tensor itself.

        It gets one sample of every operand as floats.
        """
        self.inner_ranges = f
        return f

    def formats_for(self, largest: MappingOf[str, float]) -> dict[str, Format]:
        """Return the format of every tensor from largest magnitudes by name."""
        joint = dict(largest)
        for group in self.shared:
            joint.update(dict.fromkeys(group, max(largest[n] for n in group)))
        return {n: choose(joint[n]) for n, choose in self.formats.items()}

    def unit_sizes(self, sizes: MappingOf[str, int]) -> dict[str, int]:
        """Return the smallest tile: a unit of each dimension, all of a whole one."""
        return {d: n if d in self.whole else min(self.units.get(d, 1), n) for d, n in sizes.items()}

    def shapes_of(self, operand_shapes: Sequence[Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Return operand shapes by name."""
        return {v.name: tuple(s) for v, s in zip(self.operands, operand_shapes, strict=True)}

    def violated(self, sizes: MappingOf[str, int]) -> Limit | None:
        """Return the first capacity that a tile exceeds."""
        found = self.capacities(**sizes) if self.capacities is not None else ()
        return next((limit for limit in found if not limit.holds), None)


def make_mapping(
    target: str,
    f: Callable[..., Any],
    axes: str,
    formats: MappingOf[str, FormatFor],
    *,
    operation: str = "",
    units: MappingOf[str, int] | None = None,
    shared: Sequence[str] = (),
    whole: str = "",
    trials: Sequence[MappingOf[str, int]] = (),
) -> Mapping:
    """Make a mapping from a function of pattern variables that returns its meaning and, optionally, a guard."""
    place = place_of(f)
    variables = make_variables(f, place)
    result = f(**variables)
    meaning, where = result if isinstance(result, tuple) else (result, Where())
    if not isinstance(meaning, Tensor) or not isinstance(where, Where):
        raise SpecError("R101", "a mapping returns its meaning and, last, Where(…)", place=place)
    rule = Rule(f.__name__, f.__doc__ or "", place, ((meaning, meaning),), where.conditions, "map", "E", frozenset(), variables)
    operands = tuple(v for v in variables.values() if isinstance(v, Variable))
    statics = tuple((name_of(v), _kind(v)) for v in variables.values() if not isinstance(v, Variable))
    parsed = Axes.parse(axes)
    missing = {v.name for v in operands} - parsed.of.keys()
    if missing or parsed.result in {v.name for v in operands}:
        raise SpecError("I102", f"the axes of {target}.{f.__name__} must name every operand and, last, the result, not {axes}", place=place)
    groups = tuple(tuple(group.split()) for group in shared)
    return Mapping(
        target,
        operation or f.__name__,
        f.__name__,
        rule,
        operands,
        statics,
        parsed,
        formats,
        dict(units or {}),
        groups,
        tuple(whole.split()),
        tuple(trials),
    )


def _kind(variable: object) -> str:
    if isinstance(variable, Named):
        return INTS
    return INT if not isinstance(variable, Float) else "float"

