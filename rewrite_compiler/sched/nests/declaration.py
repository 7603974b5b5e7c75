"""Declaration: the driver, limits and costs of an operation that one configured instruction does, as a target file says them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import SpecError
from ...ila import Ila
from ...lang import intervals as iv
from ...readings.arrays.labelled_array import Data
from ...target.cost import Cost, Limit
from ...target.mapping import Mapping as Operation
from ...target.resources import HOST, Resources
from ...target.target import Target
from ..driver.generation import Request
from ..driver.program import Program
from ..driver.writer import NotEmitted
from .commands import layouts, program
from .nest import nests
from .places import Access, Configuration, NoPlaces, linear

SOURCES = tuple(sorted(Path(__file__).parent.parent.rglob("*.py")))
CODE = "I116"


@dataclass(frozen=True, eq=False)
class Declaration:
    """What a target file says of a configuration; names are those of axes, attributes and numbers."""

    target: Target
    mapping: Operation
    instruction: str
    nest: int
    loops: tuple[str, ...]
    steps: tuple[str, ...]
    words: tuple[str, ...]
    registers: Mapping[str, str]
    places: Mapping[str, str]
    initial: str

    def model(self, p: Mapping[str, str]) -> Ila:
        """Return the model at parameter values."""
        return replace(self.target, chosen=dict(p)).ila()

    def configuration(self, ila: Ila) -> Configuration:
        """Return the configuration in a model.

        Raises:
            SpecError: I116, the model has no such nest.
        """
        candidates = [n for n in nests(ila) if n.instruction == self.instruction]
        if len(candidates) <= self.nest:
            sentence = f"{self.instruction} of {ila.name} computes {len(candidates)} nests of loops, not {self.nest + 1}"
            raise SpecError(CODE, sentence, place=self.mapping.rule.place, help="lift the operation again")
        words = tuple(self.access(name) if name else None for name in self.words)
        initial = self.access(self.initial) if self.initial else None
        return Configuration(
            candidates[self.nest], self.access(self.mapping.axes.result), self.loops, self.steps, words, self.registers, initial
        )

    def access(self, word: str) -> Access:
        """Return what a word is: an operand, where a loop that is unrolled has a value."""
        name, *values = word.split()
        fixed = dict(x.split("=") for x in values)
        dims = self.mapping.axes.of[name]
        places = (linear(self.places.get(d, d)) for d in dims)
        return Access(name, tuple(tuple(tuple(fixed.get(n, n) for n in term) for term in place) for place in places), dims)


def configure(
    target: Target, mapping: Operation, instruction: str, *, loops: str, steps: str, words: Sequence[str], registers: Mapping[str, str],
    places: Mapping[str, str], initial: str = "", nest: int = 0,
) -> None:  # fmt: skip
    """Let one instruction do an operation: its driver sets registers, brings operands to where it reads them, and reads results.

    `loops` and `steps` name what each loop of the instruction goes along, `words` what each word is that it computes with, `registers`
    what each holds, `places` the index along an axis that is no loop of that name, `initial` the operand that results start from.
    """
    d = Declaration(
        target, mapping, instruction, nest, tuple(loops.split()), tuple(steps.split()), tuple(words), registers, places, initial,
    )  # fmt: skip
    mapping.drive, mapping.capacities, mapping.price = driver(d), limits(d), costs(d)


def driver(d: Declaration) -> Any:
    """Return the driver of a declaration."""

    def drive(device: Any, f: Any, p: Any, **named: Any) -> Data:
        """Emit the commands of the configured instruction."""
        m = d.mapping
        codes = {v.name: named[v.name] for v in m.operands}
        ranks = {name: len(m.axes.of[name]) for name in codes}
        shapes = {name: tuple(int(n) for n in x.shape[x.ndim - ranks[name] :]) for name, x in codes.items()}
        return program_of(d, d.model(p), shapes, f, {name: named[name] for name, _ in m.statics}).run(device, codes, ranks)

    drive.sources = SOURCES  # type: ignore[attr-defined]
    return drive


def program_of(
    d: Declaration, ila: Ila, shapes: Mapping[str, tuple[int, ...]], f: Mapping[str, Any], attributes: Mapping[str, Any]
) -> Program:
    """Return the program of a call, once in a process.

    Raises:
        SpecError: I116, an operand, a register or a result cannot be moved.
    """
    return _program(d, ila, tuple(shapes.items()), tuple(f.items()), tuple(attributes.items()))


@lru_cache(maxsize=256)
def _program(d: Declaration, ila: Ila, shapes: tuple[Any, ...], f: tuple[Any, ...], attributes: tuple[Any, ...]) -> Program:
    r = Request(d.mapping, dict(shapes), dict(f), dict(attributes))
    result = d.mapping.axes.result
    shape = tuple(int(n) for n in r.term.shape if isinstance(n, int))
    every = {**dict(shapes), result: shape}
    code = iv.width_of(dict(f)[result].codes) or (32, True)
    try:
        return program(ila, d.configuration(ila), every, sizes(d.mapping, every, r.attributes), code)
    except NotEmitted as reason:
        sentence = f"{d.instruction} does not do {d.mapping.name} at {', '.join(f'{k}={n}' for k, n in shapes)}: {reason}"
        raise SpecError(CODE, sentence, place=d.mapping.rule.place, help="call it with smaller sizes") from None


def sizes(m: Operation, shapes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of all dimensions and the numbers of all attributes, by name."""
    return {**m.axes.sizes(shapes), **numbers_of(attributes)}


def numbers_of(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of attributes: those of a list with their positions."""
    lists = {f"{name}[{n}]": x for name, values in attributes.items() if isinstance(values, tuple | list) for n, x in enumerate(values)}
    return {**lists, **{name: x for name, x in attributes.items() if isinstance(x, int)}}


def limits(d: Declaration) -> Any:
    """Return the limits of a declaration."""

    def limits(p: Any, **named: Any) -> Iterator[Limit]:
        """Yield what registers must hold, and what the tensors take of each memory."""
        ila, m = d.model(p), d.mapping
        attributes = {name: named[name] for name, _ in m.statics}
        shapes = {name: tuple(named[x] for x in dims) for name, dims in m.axes.of.items()}
        at = sizes(m, shapes, attributes)
        c = d.configuration(ila)
        for name, x in c.registers.items():
            high = ila.states[name].leaf.interval[1] if name in ila.states else None
            if high is not None and not x.isdigit():
                yield Limit(name.replace("_", " "), at[x], int(high))
        yield from _room(ila, c, shapes, at)

    return limits


def _room(ila: Ila, c: Configuration, shapes: Mapping[str, tuple[int, ...]], at: Mapping[str, int]) -> Iterator[Limit]:
    layout = next(layouts(ila, c, shapes, at))
    try:
        if not layout.holds((*c.nest.conditions, *c.nest.summary.requires)):
            yield Limit("conditions", 1, 0, f"a condition of {c.nest.instruction} does not hold")
            return
        memory, results = layout.results()
        ends = {memory: int(results.addresses[:, 0].max()) + 1}
        for by_memory in layout.operands().values():
            for memory, x in by_memory.items():
                ends[memory] = max(ends.get(memory, 0), int(x.addresses[:, 0].max()) + 1)
    except NoPlaces as reason:
        yield Limit("places", 1, 0, str(reason))
        return
    for memory, end in ends.items():
        yield Limit(f"addresses of {memory}", end, int(ila.states[memory].leaf.shape[0]))  # type: ignore[arg-type]


def costs(d: Declaration) -> Any:
    """Return the costs of a declaration."""

    def costs(resources: Resources, p: Any, **named: Any) -> Cost:
        """Price the program of one call: steps of its unit, then all bytes over the link to the host."""
        m = d.mapping
        shapes = {v.name: tuple(named[x] for x in m.axes.of[v.name]) for v in m.operands}
        formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
        call = program_of(d, d.model(p), shapes, formats, {name: named[name] for name, _ in m.statics})
        volumes = call.moved(m.axes.result)
        links = [x for x in resources.links if HOST in (x.source, x.sink)]
        transfer = max((x.cycles_for(sum(volumes.values())) for x in links), default=0)
        return Cost(resources.units[0].name, sum(call.steps.values()), transfer, volumes)

    return costs
