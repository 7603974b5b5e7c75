"""Operations that one configured instruction does: found by what its registers must hold, and written with numerics and configuration."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import SpecError
from ...ila import Ila
from ...lang import intervals as iv
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from ...sched.instructions.control import setters
from ...sched.instructions.copies import NoCopy
from ...sched.nests.declaration import numbers_of
from ...sched.nests.nest import Nest, nests, symbolic_parts
from ...sched.nests.places import Access, Configuration, Layout, linear
from ...sched.nests.search import ONCE, Goal, Probe, Search, registers_of
from ...sched.nests.terms import Grid, axes_of
from .patterns import BIAS, Pattern
from .source import Source
from .template import BODY, CONFIGURED

FILLED = 0.1  # how far an instruction comes that brings arrays together first: it can be nothing but a whole operation
MOST_CONFIGURATIONS = 8  # of one nest that are looked at further


@dataclass(frozen=True)
class Candidate:
    """A configuration with switches, as the text of a declaration; products are shifted right by `scale` bits."""

    instruction: str
    text: str
    scale: int


def candidates(ila: Ila, p: Pattern, note: Callable[[float, str], None]) -> Iterator[Candidate]:
    """Yield the declarations that nests of a model may have; what stands in the way of others is noted, with how far it came."""
    every = [n for n in nests(ila) if _is_configured(ila, n)] if not ila.externals and p.probes else []
    for nest in every:
        search = Search(ila, nest, goal_of(p))
        index = [n for n in nests(ila) if n.instruction == nest.instruction].index(nest)
        configurations = itertools.islice(search.configurations(), MOST_CONFIGURATIONS)
        for c in configurations:
            for switches in search.switches(c):
                candidate = replace(c, registers={**c.registers, **switches})
                for scale in _scales(nest.update.value) if p.is_product else [0]:
                    try:
                        yield Candidate(nest.instruction, _Text(ila, p, candidate, scale, index).declaration, scale)
                    except SpecError as refusal:
                        note(0.9, f"{nest.instruction}: {refusal.problem.sentence}")
        note((FILLED if nest.fills else -0.03) + search.furthest[0] / 100, f"{nest.instruction}: {search.furthest[1]}")


def _is_configured(ila: Ila, nest: Nest) -> bool:
    """Tell whether registers that commands set decide the length of a loop."""
    lengths = frozenset[str]().union(*(registers_of(n) for _, n in (*nest.loops, *nest.steps)))
    return bool(lengths & setters(ila).keys())


def goal_of(p: Pattern) -> Goal:
    """Return what is looked for of a pattern."""
    accesses = [access(p, name) for name in p.operands if name != BIAS]
    summed = dict.fromkeys(n for a in accesses for place in a.places for term in place for n in term)
    numbers = [probe(p, at) for at in p.probes]
    steps = tuple(n for n in summed if n not in p.dims["y"] and n in numbers[0].at and "[" not in n and n in p.extents)
    initial = access(p, BIAS) if BIAS in p.dims else None
    return Goal(access(p, "y"), tuple(accesses), initial, tuple(p.dims["y"]), steps, tuple(numbers))


def access(p: Pattern, name: str) -> Access:
    """Return an operand as what a word is."""
    dims = p.dims[name]
    return Access(name, tuple(linear(p.places.get(d, d)) for d in dims), tuple(dims))


def probe(p: Pattern, at: Mapping[str, Any]) -> Probe:
    """Return sizes with the shapes of the tensors."""
    sizes = {**{k: x for k, x in at.items() if isinstance(x, int)}, **numbers_of({k: x for k, x in at.items() if k != "pads"})}
    return Probe(sizes, {name: tuple(at[d] for d in dims) for name, dims in p.dims.items()})


def _scales(value: Expr) -> list[int]:
    """Return by how many bits sums may be shifted right."""
    amounts = [int(e.args[1].value) for e in terms_of(value) if e.op == "shr" and isinstance(e.args[1].value, int)]
    return [*dict.fromkeys([0, *amounts])]


def _constant(text: str) -> Callable[[Source], str]:
    return lambda _: text


class _Text(Source):
    """The text of one configuration."""

    def __init__(self, ila: Ila, p: Pattern, c: Configuration, scale: int, index: int) -> None:
        self.ila, self.p, self.c, self.scale, self.index = ila, p, c, scale, index
        self.starts = False  # whether the text has read what results start from
        texts: dict[Expr, Callable[[Source], str]] = {w: self._word(w, a) for w, a in zip(c.nest.words, c.words, strict=True)}
        for (_, n), name in zip(c.nest.steps, c.steps, strict=True):
            if n.value is None:
                texts[n] = _constant(self._steps(name))
        unset = dict.fromkeys((x.name for x in c.nest.update.value.reads if not x.shape), "0")
        super().__init__(texts, {name: self._number(x) for name, x in {**unset, **c.registers}.items()})
        for (v, _), name in zip(c.nest.loops, c.loops, strict=True):
            self.names[v] = "0" if name == ONCE else self._digit(v, name)
        self.grids = [(Layout(ila, c, x.shapes, x.at, {}), x) for x in (probe(p, at) for at in p.probes)]

    @property
    def lanes(self) -> dict[str, int]:
        """Steps that loops of a constant length take of each dimension."""
        lanes: dict[str, int] = {}
        for (_, n), name in zip((*self.c.nest.loops, *self.c.nest.steps), (*self.c.loops, *self.c.steps), strict=True):
            if n.value is not None:
                lanes[name] = lanes.get(name, 1) * int(n.value)
        return lanes

    def _size(self, name: str) -> str:
        """Return the text of a size, an attribute or a number."""
        if name in self.p.extents:
            return self.p.extents[name]
        place = next((f"{x}.shape[{dims.index(name)}]" for x, dims in self.p.dims.items() if name in dims and x != "y"), None)
        return place or name

    def _number(self, name: str) -> str:
        return f"lift({name})" if name.isdigit() else self._size(name)

    def _steps(self, name: str) -> str:
        lanes, text = self.lanes.get(name, 1), self._size(name)
        return text if lanes == 1 else f"-(-{text} // {lanes})"

    def _digit(self, v: Expr, name: str) -> str:
        """Return a loop of the nest as a digit of the index along a dimension."""
        mine = [(x, n) for (x, n), loop in zip(self.c.nest.loops, self.c.loops, strict=True) if loop == name]
        below, is_first = 1, mine[0][0] is v
        for _, n in mine[next(k for k, (x, _) in enumerate(mine) if x is v) + 1 :]:
            below *= int(n.value) if n.value is not None else 1
        text = name if below == 1 else f"({name} // {below})"
        extent = dict(mine)[v].value
        return text if is_first or extent is None else f"({text} % {extent})"

    def _loop(self, name: str) -> str:
        """Return the index along a loop of the operation."""
        if name in self.p.dims["y"]:
            return name
        text = ""
        for (v, n), loop in zip(self.c.nest.steps, self.c.steps, strict=True):
            if loop == name:
                text = self.names[v] if not text else f"({text} * {n.value} + {self.names[v]})"
        return text

    def _word(self, word: Expr, a: Access | None) -> Callable[[Source], str]:
        element = a if a is not None else self.c.initial

        def text(_: Source) -> str:
            self.starts |= a is None
            if element is None:
                raise SpecError("I116", f"{self.c.nest.instruction} goes on with what lies in memory", help="")
            places = [self.p.places.get(d, f"{{{d}}}") for d in element.dims]
            names = {
                n: self._loop(n) for place in element.places for term in place for n in term if n in self.p.extents or n in self.p.dims["y"]
            }
            code = f"{element.operand}[{', '.join(x.format(**names) for x in places)}]"
            padded = [n for n in dict.fromkeys(self.c.steps) if self.lanes.get(n, 1) > 1 and n in element.dims]
            for n in padded:
                code = f"select({names[n]} < {self._size(n)}, {code}, 0)"
            return code if self._is_signed(word) else f"wrap({code}, {self._bits(element.operand)[0]}, False)"

        return text

    @staticmethod
    def _is_signed(word: Expr) -> bool:
        return word.interval[0] is None or word.interval[0] < 0

    def of(self, e: Expr) -> str:
        """Return a term as text; of a choice that is the same at all sizes tried, the branch."""
        if e.op == "select" and e not in self.texts and e not in self.names:
            decided = self._decided(e.args[0])
            if decided is not None:
                return self.of(e.args[1 if decided else 2])
        return super().of(e)

    def _decided(self, condition: Expr) -> int | None:
        values = set()
        for layout, at in self.grids:
            bounds = {v: layout.extent(v) for v in layout.bounds if v in condition.free}
            try:
                values.add(Grid(axes_of(bounds), self.c.control(self.ila, at.at)).of(condition))
            except (NoCopy, TypeError):
                return None
        return values.pop() if len(values) == 1 else None

    def _bits(self, operand: str) -> tuple[int, bool]:
        """Return the bits of a code of an operand, as words have them."""
        for word, a in zip(self.c.nest.words, self.c.words, strict=True):
            element = a if a is not None else self.c.initial
            if element is not None and element.operand == operand:
                return sum(x.width for x in symbolic_parts(word)), self._is_signed(word)
        raise SpecError("I116", f"{operand} is no word of {self.c.nest.instruction}", help="")

    @property
    def _result(self) -> tuple[int, bool]:
        target = self.c.nest.update.memory
        return iv.width_of(target.interval) or (32, True)

    @property
    def _formats(self) -> str:
        p, bits = self.p, {name: self._bits(name)[0] for name in self.p.operands if not (name == BIAS and self.c.initial is None)}
        if not p.is_product:
            others = "".join(f', "{n}": lambda x: x' for n in (*p.operands[1:], "y"))
            return f'formats={{"x": fixed({bits["x"]})}}, derived={{{others[2:]}}}'
        sums = {**{n: bits[n] for n in p.operands if n not in ("x", "w")}, "y": self._result[0]}
        less = f" - {self.scale}" if self.scale else ""
        derived = ", ".join(f'"{n}": lambda x, w: Fixed({width}, x.fraction + w.fraction{less})' for n, width in sums.items())
        return f'formats={{"x": fixed({bits["x"]}), "w": fixed({bits["w"]})}}, derived={{{derived}}}'

    @property
    def declaration(self) -> str:
        """The text of the declaration."""
        p, c = self.p, self.c
        bits, signed = self._result
        code = self.of(c.nest.update.value)
        trials = []
        for at, more in ((p.small, 0), (p.large, 3)):
            lanes = self.lanes.get(p.blocked, 1) if p.blocked else 1
            trials.append({**at, p.blocked: lanes * at[p.blocked] + (more if lanes > 1 else 0)} if p.blocked else dict(at))
        guard = p.guard.replace("x.shape[1] % {lanes} == 0, ", "")
        if (c.initial is not None) != self.starts:
            raise SpecError("I116", f"{c.nest.instruction} does not start from what lies in memory", help="")
        driver = CONFIGURED.format(
            name=p.name, instruction=c.nest.instruction, nest=self.index, loops=" ".join(c.loops), steps=" ".join(c.steps),
            words=tuple("" if a is None else a.operand for a in c.words), initial="" if c.initial is None else c.initial.operand,
            places={d: re.sub("[{}]", "", x) for d, x in p.places.items()}, registers=dict(c.registers),
        )  # fmt: skip
        return BODY.format(
            axes=p.axes, formats=self._formats, trials=trials, whole=f', whole="{p.whole}"' if p.whole else "", name=p.name,
            doc=f"What {c.nest.instruction} computes.", guard=guard, instructions=c.nest.instruction, registers="", driver=driver,
            code=code if signed else f"wrap({code}, {bits}, True)", meaning=p.meaning, index=", ".join(p.dims["y"]),
            parameters=", ".join([*(f"{n}: Tensor" for n in p.operands), *(f"{n}: Ints" for n in p.attributes)]),
            arguments=", ".join([*p.operands, "f", *p.attributes]), shape=", ".join(p.extents[d] for d in p.dims["y"]),
        )  # fmt: skip
