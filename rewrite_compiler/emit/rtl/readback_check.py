"""The equivalence check of a Verilog text with its accelerator's ILA: the text is read back and compared part by part by z3."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ...errors import FlexmatchError, InputError
from ...ila import Ila
from ...lang.binders import static_shape
from ...readings.arrays.evaluator import table_data
from ...readings.smt.solver import Verdict
from ...readings.verilog.equivalence import Comparison, PortWords, statements_of
from ...readings.verilog.reader import Expression, Module, Statement, Word, constant, read_verilog
from .design import SHOWN, Design, Part, decode_step, design, device_states, found_leaf, input_bits, result_bits, size
from .emit import FULL_RESET, memory_module, memory_text
from .rom import filled_entries

ROUNDS = 8  # of a loop whose end the state decides
SECONDS = 30.0
MAX_LISTED = 3  # of the words that differ
BUSY = Expression("!=", (Expression("name", name="at"), Expression("number", width=32, signed=True)))
OUTPUTS = ("executed", "outside", "result")


@dataclass(frozen=True)
class PartVerdict:
    """One part of a text (an instruction, `clock N` of one, `words`, `decode`, `others`, `nowhere`) and its verdict.

    `bounded`: proved for states in which its loops end within `ROUNDS` rounds.
    """

    part: str
    verdict: Verdict
    bounded: bool = False


@dataclass(frozen=True)
class _Parts:
    """The parts of a module in the emitted form."""

    initial: tuple[Statement, ...]
    reset: tuple[Statement, ...]
    decode: tuple[Statement, ...]
    arms: Mapping[int, tuple[Statement, ...]]
    default: tuple[Statement, ...]
    clocks: Mapping[int, tuple[Statement, ...]]
    nowhere: tuple[Statement, ...]
    doubled: tuple[int, ...] = field(default=())
    idle: tuple[Statement, ...] = field(default=())  # of every clock, before all else


def check_verilog(
    text: str, ila: Ila, place: str = "", *, rounds: int = ROUNDS, seconds: float = SECONDS, only: Collection[str] = ()
) -> Iterator[PartVerdict]:
    """Yield a verdict on every part of a text, or on `words` and the parts of these names.

    Raises:
        InputError: F103, a line is not of the emitted form.
    """
    module, d = read_verilog(text, place), design(ila)
    mismatches = [*_words(module, d)]  # of another accelerator, say
    parts = None if mismatches else _parts(module, place, bool(d.clocks))
    mismatches += [*_arms(parts, d), *_starts(parts, d), *_ports(module, parts, d)] if parts is not None else []
    yield PartVerdict("words", Verdict("refuted", reason=_summary(mismatches)) if mismatches else Verdict("proved"))
    if parts is not None and not mismatches:
        checks = _checks(module, parts, d, rounds, seconds)
        yield from (judge() for part, judge in checks if not only or part in only)


def _summary(mismatches: Sequence[str]) -> str:
    remainder = [f"{len(mismatches) - MAX_LISTED} more"] if len(mismatches) > MAX_LISTED else []
    return "; ".join([*mismatches[:MAX_LISTED], *remainder])


def _checks(m: Module, parts: _Parts, d: Design, rounds: int, seconds: float) -> Iterator[tuple[str, Callable[[], PartVerdict]]]:
    """Yield the name of each part and the function that judges it."""
    c = _comparison(m, d, ("found", "word"), rounds, seconds)
    # `found` is what the case reads, so in the decode it is no scratch word
    strict = _comparison(m, d, ("word",), rounds, seconds)
    leaf, quiet = found_leaf(d.ila), {"outside": 0, "result": 0, **dict.fromkeys(d.cleared_words, 0)}
    step = decode_step(d.ila, leaf)
    yield (
        "decode",
        lambda: PartVerdict("decode", _judged(lambda: strict.check_decode(parts.decode, step, leaf, quiet, ("executed", "found")))),
    )
    yield "others", lambda: PartVerdict("others", _judged(lambda: c.check_values(parts.default, {"outside": 1})))
    for n, p in d.arms.items():
        yield p.name, partial(_compared, c, parts.arms[n], p, p.name, quiet)
    if d.clocks:
        yield "nowhere", lambda: PartVerdict("nowhere", _judged(lambda: c.check_values(parts.nowhere, {"at": 0})))
    for n, p in d.clocks.items():
        part = f"clock {n} of {p.name}"
        yield part, partial(_compared, c, parts.clocks[n], p, part, {})


def _comparison(m: Module, d: Design, scratch: tuple[str, ...], rounds: int, seconds: float) -> Comparison:
    """Return the correspondence of leaves to the words of the text: inputs, and registers and memories."""
    input_names = {f"i_{n}" for n in d.ila.inputs} | {n for n, w in d.words.items() if w.port == "input"}
    words = {**m.words, **{name: Word(*p.word, p.count) for name, p in d.ports.items()}}
    registers = {leaf: p.name for leaf, p in d.places.items() if p.name not in input_names and p.name in words.keys() - m.wires.keys()}
    inputs = {leaf: p.name for leaf, p in d.places.items() if p.name in input_names & m.words.keys()}
    roms = {t: p.name for t, p in d.roms.places.items()}
    ports = {name: PortWords(*p.words()) for name, p in d.ports.items()}
    unread = {w for p in ports.values() for w in (p.write, p.write_address, p.write_data)}
    return Comparison(words, registers, inputs, frozenset({*scratch, *unread}), rounds, seconds, roms, ports, m.wires)


def _compared(c: Comparison, body: tuple[Statement, ...], p: Part, part: str, constants: Mapping[str, int]) -> PartVerdict:
    comparison = replace(c, registers={**c.registers, **{leaf: place.name for leaf, place in p.operand_registers.items()}})
    try:
        verdict, bounded = comparison.compare(body, p.step, constants, None if p.out is None else ("result", p.out))
    except FlexmatchError as refusal:
        verdict, bounded = Verdict("refuted", reason=refusal.problem.sentence), False
    return PartVerdict(part, verdict, bounded)


def _judged(compute: Callable[[], Verdict]) -> Verdict:
    try:
        return compute()
    except FlexmatchError as refusal:
        return Verdict("refuted", reason=refusal.problem.sentence)


# -- the form of a module


def _parts(m: Module, place: str, has_clocks: bool) -> _Parts:
    """Return the parts of a module; InputError F103 names the line where it is not of the emitted form."""
    *idle, top = statements_of(m.always)
    reset = _branch(top, "reset", place)
    statement = _otherwise(top, place, "else if (at != 0)" if has_clocks else "else if (valid)")
    clocks: Statement | None = None
    if has_clocks:
        (clocks,) = _busy(statement, place)
        statement = _otherwise(statement, place, "else if (valid)")
    run = _branch(statement, "valid", place)
    if statement.bodies[1]:
        raise _form_error(statement, place, "no further else")
    *decode, case = run
    arms, doubled = _cases(case, "found", place)
    states, doubled_clocks = _cases(clocks, "at", place) if clocks is not None else ({}, ())
    initial = tuple(s for outer in m.initial for s in statements_of(outer))
    return _Parts(
        initial, reset, tuple(decode), arms, case.bodies[-1], states, clocks.bodies[-1] if clocks else (), (*doubled, *doubled_clocks),
        tuple(idle),
    )  # fmt: skip


def _otherwise(s: Statement, place: str, expected: str) -> Statement:
    if not s.bodies[1]:
        raise _form_error(s, place, expected)
    return s.bodies[1][0]


def _busy(s: Statement, place: str) -> tuple[Statement, ...]:
    """Return the case statement of a module that runs an instruction of several clocks."""
    cases = tuple(statements_of(s.bodies[0][0])) if s.kind == "if" and s.terms[0] == BUSY else ()
    if len(cases) != 1:
        raise _form_error(s, place, "if (at != 0) with one case")
    return cases


def _cases(case: Statement, name: str, place: str) -> tuple[Mapping[int, tuple[Statement, ...]], tuple[int, ...]]:
    if case.kind != "case" or case.terms[0].op != "name" or case.terms[0].name != name:
        raise _form_error(case, place, f"case ({name})")
    doubled = sorted({n for n in case.labels if case.labels.count(n) > 1})
    return dict(zip(case.labels, case.bodies, strict=False)), tuple(doubled)


def _branch(s: Statement, name: str, place: str) -> tuple[Statement, ...]:
    if s.kind != "if" or s.terms[0].op != "name" or s.terms[0].name != name:
        raise _form_error(s, place, f"if ({name})")
    return tuple(statements_of(s.bodies[0][0]))


def _form_error(s: Statement, place: str, expected: str) -> InputError:
    return InputError("F103", f"the module must have {expected} here", place=f"{place}:{s.line}".lstrip(":"))


def _words(m: Module, d: Design) -> Iterator[str]:
    """Yield the words that are declared otherwise than in the model."""
    ila = d.ila
    top = found_leaf(ila).interval[1] or 0
    expected = {"clock": Word(1, False, 0, "input"), "reset": Word(1, False, 0, "input"), "valid": Word(1, False, 0, "input")}
    expected |= {f"i_{n}": Word(input_bits(leaf), False, 0, "input") for n, leaf in ila.inputs.items()}
    expected |= {
        "executed": Word(top.bit_length(), False, 0, "output"), "outside": Word(1, False, 0, "output"),
        "result": Word(result_bits(ila), False, 0, "output"), "found": Word(top.bit_length() + 1, True), "word": Word(32, True),
    }  # fmt: skip
    expected |= {n: Word(w.bits, w.signed, w.count, w.port) for n, w in d.words.items()}
    expected |= {p.name: Word(p.bits, True, size(t.shape)) for t, p in d.roms.places.items()}
    for p in d.ports.values():
        expected |= p.words()
    for n in device_states(ila):
        s = ila.states[n]
        if f"m_{n}" in d.ports:
            continue
        expected[f"m_{n}"] = Word(s.bits, s.signed, size(static_shape(s.leaf)) if s.leaf.shape else 0)
    for name in dict.fromkeys((*expected, *m.words)):
        if expected.get(name) != m.words.get(name) and (name in expected or name not in m.wires):
            yield f"{name} is declared otherwise than in the model"


def _ports(m: Module, parts: _Parts, d: Design) -> Iterator[str]:
    """Yield the memories that are connected otherwise than in the model, or of a module that is not that of a memory."""
    module = memory_module(m.name.removesuffix("_device"))
    for name in dict.fromkeys((*d.ports, *m.instances)):
        if name not in d.ports or m.instances.get(name) != d.ports[name].instance(module):
            yield f"{name} is connected otherwise than in the model"
    zero = Expression("number", width=32, signed=True)
    idle = [(Expression("name", name=f"{name}_we"), zero) for name in d.ports]
    if [s.terms for s in parts.idle] != idle or any(s.kind != "set" or s.name != "<=" for s in parts.idle):
        yield "a clock begins otherwise than with all memories at rest"
    if m.rest.split() != (memory_text(m.name.removesuffix("_device")).split() if d.ports else []):
        yield f"{module} is not the module of a memory"


def _arms(parts: _Parts, d: Design) -> Iterator[str]:
    """Yield the instructions and clocks whose update is missing, duplicated, or not of this model."""
    names = [*d.ila.instructions]
    yield from (f"{n} has two updates" for n in parts.doubled)
    for n in sorted(d.arms.keys() ^ (parts.arms.keys() - {0})):
        yield f"instruction {n} ({names[n - 1] if n <= len(names) else 'of no name'}) has {'no' if n in d.arms else 'an'} update"
    for n in sorted(d.clocks.keys() ^ parts.clocks.keys()):
        yield f"clock {n} has {'no' if n in d.clocks else 'an'} update"
    if any(tuple(statements_of(s))[0:1] for s in parts.arms.get(0, ())):
        yield "a command that nothing decodes changes something"


def _starts(parts: _Parts, d: Design) -> Iterator[str]:
    """Yield the words without their initial value: registers and small memories at a reset, large memories once."""
    states = {n: d.ila.states[n] for n in device_states(d.ila) if f"m_{n}" not in d.ports}
    states = {n: s for n, s in states.items() if size(static_shape(s.leaf)) <= SHOWN}
    large = {n for n, s in states.items() if size(static_shape(s.leaf)) > FULL_RESET}
    first = {f"m_{n}": (size(static_shape(s.leaf)) if s.leaf.shape else 0, s.reset) for n, s in states.items()}
    at_reset = {n: x for n, x in first.items() if n[2:] not in large} | dict.fromkeys(OUTPUTS, (0, 0))
    at_reset |= {n: (0, 0) for n, w in d.words.items() if w.reset}
    rom_names = {p.name for p in d.roms.places.values()}
    fills = [s for s in parts.initial if _target(s) in rom_names]
    entries = filled_entries(fills, {p.name: size(t.shape) for t, p in d.roms.places.items()})
    for t, p in d.roms.places.items():
        if p.name not in entries or not np.array_equal(entries[p.name], table_data(t)):
            yield f"{p.name} does not hold the entries of its table"
    parts = replace(parts, initial=tuple(s for s in parts.initial if _target(s) not in rom_names))
    for statements, expected in ((parts.reset, at_reset), (parts.initial, {n: x for n, x in first.items() if n[2:] in large})):
        assignments = [_filling(s) for s in statements]
        actual = {name: (count, value) for name, count, value in assignments if name != "word"}
        doubled = {name for name, *_ in assignments if sum(name == other_name for other_name, *_ in assignments) > 1}
        for n in dict.fromkeys((*expected, *actual)):
            if expected.get(n) != actual.get(n) or n in doubled:
                yield f"{n or 'something else'} does not start at {expected[n][1] if n in expected else 'a value'}"


def _target(s: Statement) -> str:
    """Return the name of what a statement, or the body of a loop of one statement, assigns."""
    if s.kind == "for":
        (body,) = s.bodies[2]
        return body.terms[0].name if body.kind == "set" else ""
    return s.terms[0].name if s.kind == "set" else ""


def _filling(s: Statement) -> tuple[str, int, int]:
    """Return the word or memory that a statement fills, the words of the memory and the value; no name for another statement."""
    if s.kind == "set" and s.terms[0].op == "name" and (initial := constant(s.terms[1])) is not None:
        return s.terms[0].name, 0, initial
    word, unit_term, zero = (
        Expression("name", name="word"),
        Expression("number", value=1, width=32, signed=True),
        Expression("number", width=32, signed=True),
    )
    count = constant(s.terms[0].args[1]) if s.kind == "for" and s.terms[0].op == "<" and s.terms[0].args[0] == word else None
    if count is None:
        return "", 0, 0
    (start,), (following,), (body,) = s.bodies
    if start.terms != (word, zero) or following.terms != (word, Expression("+", (word, unit_term))) or body.kind != "set":
        return "", 0, 0
    target, value = body.terms[0], constant(body.terms[1])
    if target.op != "at" or target.args != (word,) or value is None:
        return "", 0, 0
    return target.name, count, value
