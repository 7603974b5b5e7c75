"""Is a Verilog text what its accelerator's ILA says? The text is read back and every part compared by the solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import FlexmatchError, InputError
from ..ila import Ila
from ..lang.binders import static_shape
from ..lang.smt import Verdict
from ..lang.smt_module import Comparison, parts_of
from ..lang.verilog_read import Module, Statement, Term, Word, read_verilog
from .verilog import FULL_RESET, SHOWN, decode_step, found_leaf, input_bits, inside, instruction_step, result_bits, size, verilog_device

ROUNDS = 8  # of a loop whose end the state decides
SECONDS = 30.0
OUTPUTS = ("executed", "outside", "result")


@dataclass(frozen=True)
class Judged:
    """One part of a text (an instruction, `words`, `reset`, `decode`, `others`) and the verdict on it.

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
    others: tuple[Statement, ...]
    doubled: tuple[int, ...] = field(default=())


def check_verilog(text: str, ila: Ila, place: str = "", *, rounds: int = ROUNDS, seconds: float = SECONDS) -> Iterator[Judged]:
    """Yield a verdict on every part of a text; InputError F103 names a line that is not of the emitted form."""
    module = read_verilog(text, place)
    parts = _parts(module, place)
    wrong = [*_words(module, ila), *_arms(parts, ila), *_starts(parts, ila)]
    yield Judged("words", Verdict("refuted", reason="; ".join(wrong)) if wrong else Verdict("proved"))
    if wrong:
        return
    registers = {ila.states[n].leaf: f"m_{n}" for n in inside(ila)}
    inputs = {leaf: f"i_{n}" for n, leaf in ila.inputs.items()}
    c = Comparison(module.words, registers, inputs, frozenset(("found", "word")), rounds, seconds)
    # `found` is what the case reads, so in the decode it is no scratch word
    strict = Comparison(module.words, registers, inputs, frozenset(("word",)), rounds, seconds)
    leaf, quiet = found_leaf(ila), {"outside": 0, "result": 0}
    yield Judged("decode", _judged(lambda: strict.decoded(parts.decode, decode_step(ila, leaf), leaf, quiet, ("executed", "found"))))
    yield Judged("others", _judged(lambda: c.sets(parts.others, {"outside": 1})))
    yield from _instructions(c, parts, ila)


def _instructions(c: Comparison, parts: _Parts, ila: Ila) -> Iterator[Judged]:
    for number, i in enumerate(ila.instructions.values()):
        body = parts.arms.get(number + 1)
        if body is None:
            continue
        step, out = instruction_step(i)
        try:
            verdict, bounded = c.compare(body, step, {"result": 0, "outside": 0}, None if out is None else ("result", out))
        except FlexmatchError as refusal:
            verdict, bounded = Verdict("refuted", reason=refusal.problem.sentence), False
        yield Judged(i.name, verdict, bounded)


def _judged(compute: Callable[[], Verdict]) -> Verdict:
    try:
        return compute()
    except FlexmatchError as refusal:
        return Verdict("refuted", reason=refusal.problem.sentence)


# -- the form of a module


def _parts(m: Module, place: str) -> _Parts:
    """Return the parts of a module; InputError F103 names the line where it is not of the emitted form."""
    (top,) = parts_of(m.always)
    reset = _branch(top, "reset", place)
    taken = top.bodies[1][0] if top.bodies[1] else None
    if taken is None:
        raise _other(top, place, "else if (valid)")
    run = _branch(taken, "valid", place)
    if taken.bodies[1]:
        raise _other(taken, place, "no further else")
    *decode, case = run
    if case.kind != "case" or case.terms[0].op != "name" or case.terms[0].name != "found":
        raise _other(case, place, "case (found)")
    arms = dict(zip(case.labels, case.bodies, strict=False))
    doubled = tuple(sorted({n for n in case.labels if case.labels.count(n) > 1}))
    initial = tuple(s for outer in m.initial for s in parts_of(outer))
    return _Parts(initial, reset, tuple(decode), arms, case.bodies[-1], doubled)


def _branch(s: Statement, name: str, place: str) -> tuple[Statement, ...]:
    if s.kind != "if" or s.terms[0].op != "name" or s.terms[0].name != name:
        raise _other(s, place, f"if ({name})")
    return tuple(parts_of(s.bodies[0][0]))


def _other(s: Statement, place: str, wanted: str) -> InputError:
    return InputError("F103", f"the module must have {wanted} here", place=f"{place}:{s.line}".lstrip(":"))


def _words(m: Module, ila: Ila) -> Iterator[str]:
    """Yield what is declared otherwise than the model's state and inputs."""
    top = found_leaf(ila).interval[1] or 0
    wanted = {"clock": Word(1, False, 0, "input"), "reset": Word(1, False, 0, "input"), "valid": Word(1, False, 0, "input")}
    wanted |= {f"i_{n}": Word(input_bits(leaf), False, 0, "input") for n, leaf in ila.inputs.items()}
    wanted |= {
        "executed": Word(top.bit_length(), False, 0, "output"), "outside": Word(1, False, 0, "output"),
        "result": Word(result_bits(ila), False, 0, "output"), "found": Word(top.bit_length() + 1, True), "word": Word(32, True),
    }  # fmt: skip
    for n in inside(ila):
        s = ila.states[n]
        wanted[f"m_{n}"] = Word(s.bits, s.signed, size(static_shape(s.leaf)) if s.leaf.shape else 0)
    for name in dict.fromkeys((*wanted, *m.words)):
        if wanted.get(name) != m.words.get(name):
            yield f"{name} is declared otherwise than in the model"


def _arms(parts: _Parts, ila: Ila) -> Iterator[str]:
    """Yield the instructions whose update is missing, doubled, or not one of this model."""
    names = [*ila.instructions]
    numbers = {names.index(n) + 1 for n in verilog_device(ila).instructions}
    yield from (f"instruction {n} has two updates" for n in parts.doubled)
    for n in sorted(numbers ^ (parts.arms.keys() - {0})):
        yield f"instruction {n} ({names[n - 1] if n <= len(names) else 'of no name'}) has {'no' if n in numbers else 'an'} update"
    if any(tuple(parts_of(s))[0:1] for s in parts.arms.get(0, ())):
        yield "a command that nothing decodes changes something"


def _starts(parts: _Parts, ila: Ila) -> Iterator[str]:
    """Yield what does not start at its first value: registers and small memories at a reset, large memories once."""
    states = {n: ila.states[n] for n in inside(ila)}
    states = {n: s for n, s in states.items() if size(static_shape(s.leaf)) <= SHOWN}
    large = {n for n, s in states.items() if size(static_shape(s.leaf)) > FULL_RESET}
    first = {f"m_{n}": (size(static_shape(s.leaf)) if s.leaf.shape else 0, s.reset) for n, s in states.items()}
    at_reset = {n: x for n, x in first.items() if n[2:] not in large} | dict.fromkeys(OUTPUTS, (0, 0))
    for statements, wanted in ((parts.reset, at_reset), (parts.initial, {n: x for n, x in first.items() if n[2:] in large})):
        found = [_filling(s) for s in statements]
        given = {name: (count, value) for name, count, value in found if name != "word"}
        doubled = {name for name, *_ in found if sum(name == other for other, *_ in found) > 1}
        for n in dict.fromkeys((*wanted, *given)):
            if wanted.get(n) != given.get(n) or n in doubled:
                yield f"{n or 'something else'} does not start at {wanted[n][1] if n in wanted else 'a value'}"


def _filling(s: Statement) -> tuple[str, int, int]:
    """Return the word or memory that a statement fills, the words of the memory and the value; no name for another statement."""
    if s.kind == "set" and s.terms[0].op == "name" and s.terms[1].op == "number":
        return s.terms[0].name, 0, s.terms[1].value
    word, one, zero = Term("name", name="word"), Term("number", value=1, width=32, signed=True), Term("number", width=32, signed=True)
    if s.kind != "for" or s.terms[0].op != "<" or s.terms[0].args[0] != word or s.terms[0].args[1].op != "number":
        return "", 0, 0
    (start,), (following,), (body,) = s.bodies
    if start.terms != (word, zero) or following.terms != (word, Term("+", (word, one))) or body.kind != "set":
        return "", 0, 0
    target, value = body.terms
    if target.op != "at" or target.args != (word,) or value.op != "number":
        return "", 0, 0
    return target.name, s.terms[0].args[1].value, value.value
