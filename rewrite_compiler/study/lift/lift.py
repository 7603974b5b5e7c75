"""Lifting: which operations of a library the instructions of a model compute, each with numerics, as the text of a target file.

An operation is written when its numerics compute it on codes that saturate nowhere, up to one step of the result's format, and the
court certifies the driver that follows from the model; every other one is listed with what stood in the way.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...errors import FlexmatchError
from ...ila import Ila
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from ...prove import prove_mapping
from ...prove.verdict import Outcome
from ...readings.kernels.evaluate import evaluate
from ...rewrite.user_file import module_at
from ...sched.driver.completion import completed
from ...sched.driver.generation import suggest
from ...sched.driver.matching import Match, Slot, matches
from ...sched.driver.operation import CHAINED, continuation
from ...sched.driver.schedule import Schedule, schedules
from ...sched.instructions.computation import Computation, computations
from ...sched.instructions.image import attachment, condition_values
from ...sched.selection import reads_of
from ...target import Mapping as Operation
from ...target import Target, find_target
from .patterns import PATTERNS, Pattern
from .source import Source

HEAD = '''"""Operations of {name}, lifted from its model."""

import math
from dataclasses import replace
from pathlib import Path
from runpy import run_path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Fixed, array, fold, lift, maximum, minimum, reduce_max, reduce_sum, select, wrap
from rewrite_compiler.target import Target, find_target


def fixed(bits):
    """Return the format of so many bits with the finest step in which a magnitude fits."""
    return lambda largest: Fixed(bits, bits - 1 - math.frexp(largest)[1])


def accelerate(target):
    """Give a target its operations."""
'''
BODY = '''
    @target.accelerates(axes="{axes}", {formats}, trials={trials}{whole})
    def {name}(x: Tensor, w: Tensor):
        """{doc}"""
        return o.{name}(x, w), Where({guard})

    @{name}.numerics
    def {name}_codes(x, w, f):
        """What {instructions} leaves in memory, with every rounding, clamp and wrap in its place."""
        shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

        def code(t, n):
            return {code}

        return array(code, (x.shape[0], {columns}))
'''
TAIL = '''

def bare():
    """Return the accelerator without the operations that it declares."""
    {declared}
    return replace(declared, mappings={{}}, sources=(*declared.sources, Path(__file__)))


target = bare()
accelerate(target)
'''
SMALL = ({"t": 1, "n": 3}, {"t": 2, "n": 11})
RANGE, DRAWS = 6, 4


@dataclass(frozen=True)
class Lifted:
    """An operation that a model computes: the text of its declaration, and the strength of its certificate."""

    name: str
    instructions: tuple[str, ...]
    text: str
    strength: str


@dataclass(frozen=True)
class NotLifted:
    """An operation that is not lifted, and what stood in the way of the last try."""

    name: str
    reason: str


def lift(
    target: Target, names: Collection[str] = (), progress: Callable[[str], None] = lambda _: None
) -> tuple[str, list[Lifted | NotLifted]]:
    """Return the text that declares the operations which a model computes, and what became of each of the library, or of those named."""
    rows = [lifted(target, p, progress) for p in PATTERNS if not names or p.name in names]
    return HEAD.format(name=target.name) + "".join(r.text for r in rows if isinstance(r, Lifted)), rows


def target_file(text: str, accelerator: str, folder: Path) -> str:
    """Return declarations as a file that defines a target: the accelerator `NAME_OR_PATH[:key=value,…]` with these operations alone.

    A path is written as it is seen from the folder of the file.
    """
    name = accelerator.partition(":")[0]
    if not name.endswith(".py"):
        return text + TAIL.format(declared=f"declared = find_target({accelerator!r})")
    path = os.path.relpath(Path(name).resolve(), folder.resolve())
    module = f"run_path(str(Path(__file__).parent / {path!r}))"
    declared = f"declared = next(x for x in {module}.values() if isinstance(x, Target))"
    values = find_target(accelerator).chosen
    return text + TAIL.format(declared=declared + (f"\n    declared = replace(declared, chosen={values!r})" if values else ""))


def lifted(target: Target, p: Pattern, progress: Callable[[str], None] = lambda _: None) -> Lifted | NotLifted:
    """Return an operation with numerics and certificate, or why there is none."""
    reasons = [(0.0, "no instruction computes with two operands so")]  # with how far each try came
    texts: set[str] = set()
    for chain in _chains(target.ila(), p):
        names = tuple(s.computation.instruction for s in chain)
        progress(f"{p.name}: {', then '.join(names)}")
        try:
            text = declaration(p, chain)
            if text in texts:
                continue
            texts.add(text)
            m = _declared(target, p, text)
            suggest(target.ila(), m, chain)
            error = _difference(p, m)
            proof = None if error else prove_mapping(m, target.ila())
        except FlexmatchError as refusal:
            reasons.append((2, f"{', then '.join(names)}: {refusal.problem.sentence}"))
            continue
        if proof is None:
            reasons.append((1 / (1 + error), f"{', then '.join(names)}: it is off by {error:.3g} on small codes"))
        elif proof.verdict is Outcome.PROVED:
            return Lifted(p.name, names, text, proof.strength)
        else:
            reasons.append((3, f"{', then '.join(names)} is not certified: {proof.evidence}"))
    return NotLifted(p.name, max(reasons, key=lambda x: x[0])[1])


# -- what instructions compute


def _chains(ila: Ila, p: Pattern) -> Iterator[tuple[Schedule, ...]]:
    """Yield computations of a pattern, and chains of two, those of most lanes first."""
    mains = [s for c in computations(ila) for m in matches(p.operation, c) if not m.left for s in _scheduled(ila, m, None)]
    mains.sort(key=lambda s: -_lanes(s.match))
    yield from ((s,) for s in mains)
    for before in mains:
        op = continuation(p.operation, (), before.tile)
        options = (m for c in computations(ila) if len(c.operands) + c.accumulates == 1 for m in matches(op, c) if not m.left)
        yield from ((before, s) for m in options for s in _scheduled(ila, m, before))


def _lanes(m: Match) -> int:
    return int(np.prod([m.lane_extent(v) for v, _ in m.operation.loops]))


def _scheduled(ila: Ila, m: Match, before: Schedule | None) -> Iterator[Schedule]:
    for values in condition_values(m.computation.conditions, attachment(ila, "")):
        yield from itertools.islice((s for s in schedules(ila, m, values, before) if isinstance(s, Schedule)), 1)


# -- text


def declaration(p: Pattern, chain: tuple[Schedule, ...]) -> str:
    """Return the declaration of an operation, meaning and numerics, that a chain computes.

    Raises:
        SpecError: I116, a term has no text.
    """
    main = chain[0]
    lanes = main.match.lane_extent(_reduced(main.match)) if p.is_reduced else 1
    scales = [name for s in chain for name in _scales(s.computation)]
    code = _element(p, main, "", scales)
    for s in chain[1:]:
        code = _element(p, s, code, scales)
    last = chain[-1]
    state = last.ila.states[last.result.memory]
    code = code if state.signed else f"wrap({code}, {state.bits}, True)"
    names = {s.slot.reach.name: _bits(main, s.slot) for s in main.operands}
    if main.match.initial is not None:
        names[main.match.initial.name] = main.ila.states[main.result.memory].bits
    trials = [{**at, "k": lanes * k} if p.is_reduced else at for k, at in zip((1, 3), SMALL, strict=True)]
    instructions = ", then ".join(s.computation.instruction for s in chain)
    return BODY.format(
        axes=p.axes, formats=_formats(p, names, state.bits, bool(scales)), trials=trials, whole=', whole="k"' if p.is_reduced else "",
        name=p.name, doc=f"What {instructions} computes.", guard=p.guard.format(lanes=lanes), instructions=instructions, code=code,
        columns="w.shape[0]" if p.is_reduced else "x.shape[1]",
    )  # fmt: skip


def _reduced(m: Match) -> str:
    return next(iter(m.operation.reduced), "")


def _formats(p: Pattern, bits: Mapping[str, int], result_bits: int, has_shift: bool) -> str:
    if has_shift and p.is_product:
        return f'formats={{"x": fixed({bits["x"]}), "w": fixed({bits["w"]}), "y": fixed({result_bits})}}'
    if p.is_product:
        sums = f'derived={{"y": lambda x, w: Fixed({result_bits}, x.fraction + w.fraction)}}'
        return f'formats={{"x": fixed({bits["x"]}), "w": fixed({bits["w"]})}}, {sums}'
    return f'formats={{"x": fixed({bits["x"]})}}, derived={{"w": lambda x: x, "y": lambda x: x}}'


def _scales(c: Computation) -> list[str]:
    """Return the switches that are amounts of shifts."""
    names = {x.name for x in c.switches}
    amounts = (e.args[1] for e in terms_of(c.transition.value) if e.op in ("shl", "shr") and e.args[1].op == "load")
    return sorted({e.data.name for e in amounts if isinstance(e.data, Leaf) and e.data.name in names})


def _bits(s: Schedule, slot: Slot) -> int:
    memory = slot.access.memory
    if memory in s.ila.states:
        return s.ila.states[memory].bits
    return 8 * (((s.computation.summary.instruction.operands[memory].leaf.interval[1] or 255).bit_length() + 7) // 8)


def _element(p: Pattern, s: Schedule, before: str, scales: list[str]) -> str:
    """Return the text of an element that a computation writes; `before` is that of the element it goes on with."""
    c, m = s.computation, s.match
    registers = dict.fromkeys(scales, "shift" if p.is_product else "0")
    registers |= {name: str(x) for name, x in s.switches.items() if name not in registers}
    registers |= {x.name: "0" for x in c.switches if x.name not in registers}
    if m.starts is not None:
        registers[m.starts[0]] = str(m.starts[2])
    fold_variable = "v"
    reduced, symbols = _reduced(m), c.summary.symbols
    summed = {v for r in c.transition.reads for v, _ in r.variables}
    variables = [symbols.variables[v] for v, _ in c.loops if v not in c.lanes and v in summed]
    is_inside = bool(variables) or reduced not in m.outer
    total = "0" if is_inside and c.accumulates and m.initial is None else "total"  # what the accumulator holds

    def index(source: Source, loop: str) -> str:
        if loop != reduced:
            return {a.terms[0][0]: name for a, name in zip(m.operation.result.axes, "tn", strict=True)}[loop]
        lanes = [v for v, name in m.lanes.items() if name == loop]
        outer = source.of(variables[0]) if variables else fold_variable if not is_inside else "0"
        for v in lanes:
            outer = f"({outer} * {c.lanes[v]} + {source.of(symbols.variables[v])})"
        return outer

    texts: dict[Expr, Callable[[Source], str]] = {}
    for r in reads_of(c.transition):
        slot = next((x.slot for x in s.operands if x.slot.access is r.access), None)
        texts[r.load] = _operand_text(s, slot, before, total, index)
    if variables:
        extent = next(n for v, n in _extents(c) if v is variables[0])
        texts[extent] = lambda _: f"(x.shape[1] // {m.lane_extent(reduced)})"
    text = Source(texts, registers).of(c.transition.value)
    if not c.accumulates or m.initial is not None or is_inside:
        return text
    state = s.ila.states[s.result.memory]
    steps = f"x.shape[1] // {m.lane_extent(reduced)}"
    return f"fold({steps}, 0, lambda {fold_variable}, {total}: {text}, {state.leaf.interval})"


def _extents(c: Computation) -> Iterator[tuple[Expr, Expr]]:
    """Yield the variables that sums and folds of a value bind, with their extents."""
    for e in terms_of(c.transition.value):
        if e.op == "reduce":
            yield from zip(e.data[1], e.args[1:], strict=True)
        fold = getattr(e.data, "fold", None) if e.op == "load" else None
        if fold is not None:
            yield fold.variable, fold.extent


def _operand_text(
    s: Schedule, slot: Slot | None, before: str, total: str, index: Callable[[Source, str], str]
) -> Callable[[Source], str]:  # fmt: skip
    reach = s.match.initial if slot is None else slot.reach
    if reach is None:
        return lambda _: total
    if reach.name == CHAINED:
        return lambda _: before
    memory = s.result.memory if slot is None else slot.access.memory
    is_signed = memory in s.ila.states and s.ila.states[memory].signed
    bits = s.ila.states[memory].bits if memory in s.ila.states else 8

    def text(source: Source) -> str:
        code = f"{reach.name}[{', '.join(index(source, a.terms[0][0]) for a in reach.axes)}]"
        return code if is_signed else f"wrap({code}, {bits}, False)"

    return text


# -- what they compute is what they should


def _declared(target: Target, p: Pattern, text: str) -> Operation:
    """Return the operation that a text declares, with the driver that follows from the model."""
    bare = replace(target, mappings={})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lifted.py"
        path.write_text(HEAD.format(name=target.name) + text, "utf-8")
        module_at(path, "target", "F201").accelerate(bare)
    return completed(bare).mappings[p.name]


def _difference(p: Pattern, m: Operation) -> float:
    """Return by how much numerics differ from the meaning on small codes; 0 where they do by no more than a step of the result."""
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    random = np.random.default_rng(RANGE)
    for at in m.trials:
        shapes = m.shapes_of([[at[d] for d in m.axes.of[v.name]] for v in m.operands])
        leaves = [Leaf(shapes[v.name], formats[v.name].codes, False, v.name) for v in m.operands]
        term = m.result_codes(leaves, formats, {})
        for _ in range(DRAWS):
            rooms = {leaf: _room(formats[leaf.name], half=m.axes.result in m.derived and p.is_product) for leaf in leaves}
            codes = {leaf: random.integers(-RANGE, RANGE, shapes[leaf.name], endpoint=True) << rooms[leaf] for leaf in leaves}
            values = [codes[leaf] * 2.0 ** -_fraction(formats[leaf.name]) for leaf in leaves]
            result = evaluate(term, codes) * 2.0 ** -_fraction(formats[m.axes.result])
            error = np.abs(result - p.reference(*values)).max()
            if error > 2.0 ** -_fraction(formats[m.axes.result]):
                return float(error)
    return 0.0


def _fraction(f: object) -> int:
    return int(getattr(f, "fraction", 0))


def _room(f: object, *, half: bool) -> int:
    """Return by how many bits small codes are shifted up, so that results reach their last bit and saturate nothing.

    Products that nothing shifts down have the bits of both operands: each takes half of them.
    """
    width = int(getattr(f, "width", 8))
    return max((width // 2 if half else width) - 8, 0)
