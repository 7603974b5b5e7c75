"""Lifting: which operations of a library the instructions of a model compute, each with numerics, as the text of a target file.

An operation is written when its numerics compute it on codes that saturate nowhere, up to one step of the result's format, and the
court certifies the driver that follows from the model; every other one is listed with what stood in the way.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FlexmatchError, SpecError
from ...ila import Ila
from ...ila.summary import Opaque, summarise
from ...ir.evaluate import run
from ...ir.types import TensorType
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from ...prove import prove_mapping
from ...prove.verdict import Outcome
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.evaluate import evaluate
from ...rewrite.user_file import module_at
from ...sched.driver.completion import completed
from ...sched.driver.generation import suggest
from ...sched.driver.matching import Match, Slot, matches
from ...sched.driver.operation import CHAINED, ZEROS, continuation
from ...sched.driver.schedule import Schedule, schedules
from ...sched.instructions.computation import Computation, computations
from ...sched.instructions.image import attachment, condition_values
from ...sched.instructions.selection import reads_of
from ...target import Mapping as Operation
from ...target import Target, body_of, find_target
from .configured import Candidate, candidates
from .patterns import PATTERNS, Pattern
from .source import Source
from .template import BODY, HEAD, SHIFT, TAIL

RANGE, DRAWS = 6, 4
MOST_SECONDS = 120  # of processor time after which no other way is looked for
SHOWN = 3  # instructions that a reason names


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
    count = "two" if len(p.operands) == 2 else len(p.operands)
    reasons = [(0.0, f"no instruction computes this from {count} operands{_unread(target.ila())}")]  # with how far each try came
    texts, deadline = set[str](), time.process_time() + MOST_SECONDS
    for t in _tries(target.ila(), p, deadline, lambda depth, reason: reasons.append((depth, reason))):
        names = ", then ".join(t.instructions)
        progress(f"{p.name}: {names}")
        try:
            text = t.text()
            if text in texts:
                continue
            texts.add(text)
            m = _declared(target, p, text)
            t.prepare(m)
            error = _difference(p, m, t.scale)
            proof = None if error else prove_mapping(m, target.ila())
        except FlexmatchError as refusal:
            reasons.append((2, f"{names}: {refusal.problem.sentence}"))
            continue
        if proof is None:
            reasons.append((1 / (1 + error), f"{names}: it is off by {error:.3g} on small codes"))
        elif proof.verdict is Outcome.PROVED:
            return Lifted(p.name, t.instructions, text, proof.strength)
        else:
            reasons.append((3, f"{names} is not certified: {proof.evidence}"))
    furthest = max(reasons, key=lambda x: x[0])[1]
    ended = f"the search ended after {MOST_SECONDS} s of processor time; what came furthest: " if time.process_time() > deadline else ""
    return NotLifted(p.name, ended + furthest)


@dataclass(frozen=True)
class _Try:
    """A way that may do an operation: its instructions, the text of its declaration, and what is known before its driver is looked for."""

    instructions: tuple[str, ...]
    text: Callable[[], str]
    prepare: Callable[[Operation], None]
    scale: int = 0


def _tries(ila: Ila, p: Pattern, deadline: float, note: Callable[[float, str], None]) -> Iterator[_Try]:
    """Yield chains of computations, then instructions that run a nest of loops of their own."""
    every = itertools.chain(
        (_of_chain(ila, p, chain) for chain in _chains(ila, p, deadline)), (_of_candidate(c) for c in candidates(ila, p, note)),
    )  # fmt: skip
    yield from itertools.takewhile(lambda _: time.process_time() <= deadline, every)


def _of_chain(ila: Ila, p: Pattern, chain: tuple[Schedule, ...]) -> _Try:
    names = tuple(s.computation.instruction for s in chain)
    return _Try(names, lambda: declaration(p, chain), lambda m: suggest(ila, m, chain))


def _of_candidate(c: Candidate) -> _Try:
    return _Try((c.instruction,), lambda: c.text, lambda _: None, c.scale)


# -- what instructions compute


def _unread(ila: Ila) -> str:
    """Return which instructions may compute more than what is read from the model, and why that is so of the first; nothing where none."""
    opaque = {name: s for name in ila.instructions if isinstance(s := summarise(ila, name), Opaque)}
    names = ", ".join([*opaque][:SHOWN]) + (f" and {len(opaque) - SHOWN} others" if len(opaque) > SHOWN else "")
    return f"; what {names} computes is not read, because {next(iter(opaque.values())).reason}" if opaque else ""


def _chains(ila: Ila, p: Pattern, deadline: float) -> Iterator[tuple[Schedule, ...]]:
    """Yield computations of a pattern, and chains of two, those of most lanes first."""
    first = [m for c in computations(ila) for m in matches(p.operation, c) if not m.left]
    mains = []
    for m in sorted(first, key=lambda m: -_lanes(m)):
        if time.process_time() > deadline:
            return
        for s in _scheduled(ila, m, None):
            mains.append(s)
            yield (s,)
    for before in mains:
        if time.process_time() > deadline:
            return
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
    lanes = main.match.lane_extent(p.blocked) if p.blocked else 1
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
    trials = [{**at, p.blocked: lanes * at[p.blocked]} if p.blocked else dict(at) for at in (p.small, p.large)]
    instructions = ", then ".join(s.computation.instruction for s in chain)
    return BODY.format(
        registers=SHIFT, driver="",
        axes=p.axes, formats=_formats(p, names, state.bits, bool(scales)), trials=trials, whole=f', whole="{p.whole}"' if p.whole else "",
        name=p.name, doc=f"What {instructions} computes.", guard=p.guard.format(lanes=lanes), instructions=instructions, code=code,
        parameters=", ".join([*(f"{n}: Tensor" for n in p.operands), *(f"{n}: Ints" for n in p.attributes)]), meaning=p.meaning,
        arguments=", ".join([*p.operands, "f", *p.attributes]), index=", ".join(p.dims["y"]),
        shape=", ".join(p.extents[d] for d in p.dims["y"]),
    )  # fmt: skip


def _formats(p: Pattern, bits: Mapping[str, int], result_bits: int, has_shift: bool) -> str:
    if not p.is_product:
        return f'formats={{"x": fixed({bits["x"]})}}, derived={{"w": lambda x: x, "y": lambda x: x}}'
    searched = [f'"{n}": fixed({bits[n]})' for n in "xw"] + [f'"y": fixed({result_bits})'] * has_shift
    sums = {**{n: bits[n] for n in p.operands if n not in ("x", "w")}, **({} if has_shift else {"y": result_bits})}
    derived = ", ".join(f'"{n}": lambda x, w: Fixed({width}, x.fraction + w.fraction)' for n, width in sums.items())
    return f"formats={{{', '.join(searched)}}}" + (f", derived={{{derived}}}" if derived else "")


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
    symbols = c.summary.symbols
    summed = {v for r in c.transition.reads for v, _ in r.variables}
    variables = [symbols.variables[v] for v, _ in c.loops if v not in c.lanes and v in summed]
    outer = [v for v in (*dict(s.outside), *m.outer) if v in m.operation.reduced and v in m.outer]
    steps = list(dict.fromkeys(outer))  # the loops of the sum, outermost first
    if variables and len(m.operation.reduced) > 1:
        raise SpecError("I116", f"A sum over {len(m.operation.reduced)} loops inside of {c.instruction} has no text")
    is_inside = bool(variables) or not steps
    is_sum = bool(m.operation.reduced)
    start = _initial_text(p, m) if is_sum and m.initial is not None else "0"
    total = start if is_inside else "total"  # what the accumulator holds

    def index(source: Source, loop: str) -> str:
        if loop not in m.operation.reduced:
            return next(d for a, d in zip(m.operation.result.axes, p.dims["y"], strict=True) if a.terms[0][0] == loop)
        lanes = [v for v, name in m.lanes.items() if name == loop]
        text = source.of(variables[0]) if variables else f"{loop}0" if loop in steps else "0"
        for v in lanes:
            text = f"({text} * {c.lanes[v]} + {source.of(symbols.variables[v])})"
        return text

    texts: dict[Expr, Callable[[Source], str]] = {}
    for r in reads_of(c.transition):
        slot = next((x.slot for x in s.operands if x.slot.access is r.access), None)
        texts[r.load] = _operand_text(p, s, slot, before, total, index)
    if variables:
        extent = next(n for v, n in _extents(c) if v is variables[0])
        texts[extent] = lambda _: _steps(p, m, p.blocked)
    text = Source(texts, registers).of(c.transition.value)
    if not c.accumulates or is_inside or not is_sum:
        return text
    state = s.ila.states[s.result.memory]
    counts = ", ".join(_steps(p, m, v) for v in steps)
    return f"fold(({counts},), {start}, lambda {', '.join(f'{v}0' for v in steps)}, {total}: {text}, {state.leaf.interval})"


def _steps(p: Pattern, m: Match, loop: str) -> str:
    """Return the text of how many steps a loop of a sum takes."""
    lanes = m.lane_extent(loop)
    return p.extents[loop] if lanes == 1 else f"({p.extents[loop]} // {lanes})"


def _initial_text(p: Pattern, m: Match) -> str:
    """Return the text of what an accumulator starts from: an operand at indices of the result."""
    assert m.initial is not None
    return f"{m.initial.name}[{', '.join(p.dims[m.initial.name])}]"


def _extents(c: Computation) -> Iterator[tuple[Expr, Expr]]:
    """Yield the variables that sums and folds of a value bind, with their extents."""
    for e in terms_of(c.transition.value):
        if e.op == "reduce":
            yield from zip(e.data[1], e.args[1:], strict=True)
        fold = getattr(e.data, "fold", None) if e.op == "load" else None
        if fold is not None:
            yield fold.variable, fold.extent


def _operand_text(
    p: Pattern, s: Schedule, slot: Slot | None, before: str, total: str, index: Callable[[Source, str], str]
) -> Callable[[Source], str]:  # fmt: skip
    """Return the text of what a computation reads: an operand at the place of an iteration, or its accumulator."""
    initial = None if s.match.operation.reduced else s.match.initial  # a sum reads what it starts from once, at its beginning
    reach = initial if slot is None else slot.reach
    if reach is None:
        return lambda _: total
    if reach.name in (CHAINED, ZEROS):
        return lambda _: before if reach.name == CHAINED else "lift(0)"
    memory = s.result.memory if slot is None else slot.access.memory
    is_signed = memory in s.ila.states and s.ila.states[memory].signed
    bits = s.ila.states[memory].bits if memory in s.ila.states else 8

    def text(source: Source) -> str:
        loops = {v: index(source, v) for v in reach.moving}
        places = [p.places[d].format(**loops) if d in p.places else loops[d] for d in p.dims[reach.name]]
        code = f"{reach.name}[{', '.join(places)}]"
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


def _difference(p: Pattern, m: Operation, scale: int = 0) -> float:
    """Return by how much numerics differ from the meaning on small codes; 0 where they do by no more than a step of the result."""
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    random = np.random.default_rng(RANGE)
    for at in m.trials:
        shapes = m.shapes_of([[at[d] for d in m.axes.of[v.name]] for v in m.operands])
        leaves = [Leaf(shapes[v.name], formats[v.name].codes, False, v.name) for v in m.operands]
        attributes = {name: at[name] for name, _ in m.statics}
        term = m.result_codes(leaves, formats, attributes)
        for _ in range(DRAWS):
            rooms = {leaf: _room(formats[leaf.name], half=m.axes.result in m.derived and p.is_product and not scale) for leaf in leaves}
            codes = {leaf: random.integers(-RANGE, RANGE, shapes[leaf.name], endpoint=True) << rooms[leaf] for leaf in leaves}
            values = {leaf.name: codes[leaf] * 2.0 ** -_fraction(formats[leaf.name]) for leaf in leaves}
            result = evaluate(term, codes) * 2.0 ** -_fraction(formats[m.axes.result])
            error = np.abs(result - _meaning(m, values, attributes)).max()
            if error > 2.0 ** -_fraction(formats[m.axes.result]):
                return float(error)
    return 0.0


def _meaning(m: Operation, values: Mapping[str, Data], attributes: Mapping[str, Any]) -> Data:
    """Return what an operation means on real operands."""
    body = body_of(m, [TensorType(values[v.name].shape, "float64") for v in m.operands], attributes)
    return run(body, {v: values[o.name] for v, o in zip(body.inputs, m.operands, strict=True)})[body.outputs[0]]


def _fraction(f: object) -> int:
    return int(getattr(f, "fraction", 0))


def _room(f: object, *, half: bool) -> int:
    """Return by how many bits small codes are shifted up, so that results reach their last bit and saturate nothing.

    Products that nothing shifts down have the bits of both operands: each takes half of them.
    """
    width = int(getattr(f, "width", 8))
    return max((width // 2 if half else width) - 8, 0)
