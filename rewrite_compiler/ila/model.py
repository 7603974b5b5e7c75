"""The model: an accelerator as architectural state and instructions, each with a decode condition and a state update.

Simulators, proofs, the assembler and the documentation are all derived from the model. A state element is *control*
(registers and programs, known when a plan is made) or *data* (may differ between samples): its binding time.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import SpecError, UsageError, did_you_mean
from ..lang import intervals as iv
from ..lang.arithmetic import all_of, switch
from ..lang.binders import Array, Comprehension, Leaf, array
from ..lang.expr import Expr, clamp, extract, lift, wrap
from ..lang.step import NOTHING, Step, Update, assign, together
from ..readings.oracle.counterexample import with_example
from ..user_code import is_a, quoted
from .bit_fields import Bits, Fields, pack
from .external_memory import External

CONTROL, DATA = "control", "data"
MAX_LISTED = 20  # names of states in a message
ADDRESS_BITS = 48  # of what lies outside of the device
Resources = frozenset[str]
Effect = Step | Array | tuple[Step, Array]  # of an instruction: its update, what a read returns, or both
SIMULATORS: dict[str, Callable[..., Any]] = {}  # of commands, and of streams from external memory; the package enters them


@dataclass(frozen=True, eq=False)
class Word:
    """A word inside an input: its value, and the bit of the input at which assembled commands place its bit 0."""

    term: Expr
    shift: int


@dataclass(frozen=True, eq=False)
class State:
    """A register or memory: its leaf, word width in bits, binding time, reset value and documentation."""

    leaf: Leaf
    bits: int
    signed: bool
    binding: str
    reset: int
    doc: str
    is_memory: bool = False  # without a reset: what it holds at first is of no use

    @property
    def name(self) -> str:
        """The name of the leaf."""
        return self.leaf.name


@dataclass(frozen=True, eq=False)
class Operand:
    """A named field of a command: the leaf that the update reads, the term that decodes it, and its bits in the input."""

    leaf: Leaf
    term: Expr | Array
    input: str
    bits: Bits
    base: int = 0


@dataclass(frozen=True, eq=False)
class Match:
    """The commands of an instruction: the decode condition, the inputs that the assembler sets, and operands in the address."""

    condition: Expr
    fixed: Mapping[str, int]
    operands: Mapping[str, Operand] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Instruction:
    """An instruction: its decode condition, its state update, and the lanes that a read returns.

    `sequential` is the same update in the order in which the device does it, where `update` computes whole arrays at once.
    """

    name: str
    doc: str
    place: str
    decode: Expr
    fixed: Mapping[str, int]
    operands: Mapping[str, Operand]
    update: Step
    result: Array | None = None
    sequential: Step | None = None


@dataclass(frozen=True, eq=False)
class Wait:
    """A condition without which an engine never finishes: while `condition` is 0 the engine waits for what the sentence says."""

    engine: str
    condition: Expr
    sentence: str


@dataclass(frozen=True)
class Queue:
    """A command queue, whose instructions run in order; an operand that is 1 takes or gives one token of a counter.

    `takes` and `gives` map operands to tokens. `unconnected` operands name tokens that this queue lacks; they must be 0.
    """

    name: str
    instructions: frozenset[str]
    takes: Mapping[str, str]
    gives: Mapping[str, str]
    unconnected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packets:
    """How a model's commands form packets.

    `counter` is the register with the address of the packet. `split` returns the commands of the packet at a position of a
    program and the number of its words. `forwards` maps instructions to the memories whose writes the other members see.
    `takes` maps instructions to the sets of resources of which a packet must give them one, no resource to two members;
    an instruction that is not in it takes none.
    """

    counter: str
    word_bytes: int
    split: Callable[[Sequence[int], int], tuple[list[int], int]]
    forwards: Mapping[str, frozenset[str]] = field(default_factory=dict)
    takes: Mapping[str, tuple[Resources, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Revisions:
    """The design revisions that one parameter selects: a row for each subject, with what each value of the parameter does."""

    parameter: str
    values: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class States:
    """The leaves of a model's state elements by name: `s.large`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._leaves: dict[str, Leaf] = {}

    def __getattr__(self, name: str) -> Leaf:
        if name.startswith("_"):  # Python's own protocols ask for these
            raise AttributeError(name)
        if name not in self._leaves:
            names = [*self._leaves][:MAX_LISTED]
            listing = f"states: {', '.join(names)}{', …' if len(self._leaves) > MAX_LISTED else ''}" if names else ""
            remedy = " ".join(filter(None, (did_you_mean(name, self._leaves), listing))) or "declare it before it is used"
            raise SpecError("I102", f'{self._model} has no state "{name}"', help=remedy)
        return self._leaves[name]

    def __getitem__(self, name: str) -> Leaf:
        return self.__getattr__(name)

    def add(self, leaf: Leaf) -> Leaf:
        """Register a leaf under its name."""
        self._leaves[leaf.name] = leaf
        return leaf


@dataclass(frozen=True, eq=False)
class Registers:
    """The values of a model's scalar registers by name: `r.count` or `r["count"]` is the number that `s.count[()]` reads."""

    states: States

    def __getattr__(self, name: str) -> Expr:
        return self.states[name][()]

    def __getitem__(self, name: str) -> Expr:
        return self.states[name][()]


class Ila:
    """An instruction-level abstraction: inputs, states and instructions of one device, declared one by one and then used."""

    def __init__(self, name: str, doc: str = "", parameters: Mapping[str, Any] | None = None) -> None:
        """Start an empty model; `parameters` are the values that select this design revision."""
        self.name = name
        self.doc = doc
        self.parameters = dict(parameters or {})
        self.inputs: dict[str, Leaf] = {}
        self.states: dict[str, State] = {}
        self.instructions: dict[str, Instruction] = {}
        self.waits: list[Wait] = []
        self.externals: dict[str, External] = {}
        self.queues: list[Queue] = []
        self.packets: Packets | None = None
        self.idle: list[Expr] = []  # conditions on the inputs under which there is no command
        self.s = States(name)
        self.r = Registers(self.s)
        self.interrupt: Leaf | None = None
        self.interrupt_stays = False  # taking it does not clear it
        self.revisions: Revisions | None = None

    def simulator(self, **options: Any) -> Any:
        """Return a simulator at the reset state: of commands or, for a model with external memory, of instruction streams."""
        kind = "packets" if self.packets is not None else "stream" if self.externals else "commands"
        return SIMULATORS[kind](self, **options)

    # -- inputs and states

    def input(self, name: str, bits: int, lanes: int = 1) -> Leaf:
        """Declare a command input of `lanes` words of `bits` bits (one lane: a scalar)."""
        leaf = Leaf((lanes,) if lanes > 1 else (), iv.of_width(bits, False), False, name)
        self.inputs[name] = leaf
        return leaf

    def register(
        self,
        name: str,
        bits: int,
        *,
        shape: Sequence[int] = (),
        signed: bool = False,
        reset: int = 0,
        binding: str = CONTROL,
        doc: str = "",
    ) -> Leaf:
        """Declare a state element [shape] of words of `bits` bits, control unless `binding` says otherwise.

        Raises:
            SpecError: I102, the model has a state of this name.
        """
        if name in self.states:
            raise SpecError("I102", f'{self.name} declares the state "{name}" twice', place=_caller())
        for quantity, n in (("bits", bits), *(("elements along an axis", n) for n in shape)):
            if type(n) is not int or n < 1:
                remedy = "give a number of 1 or more"
                sentence = f'the {quantity} of the state "{name}" of {self.name} must be a whole number, not {quoted(n)}'
                raise SpecError("I102", sentence, place=_caller(), help=remedy)
        leaf = Leaf(tuple(shape), iv.of_width(bits, signed), False, name)
        self.states[name] = State(leaf, bits, signed, binding, reset, doc)
        return self.s.add(leaf)

    def memory(
        self, name: str, shape: Sequence[int], bits: int, *, signed: bool = False, binding: str = DATA, reset: int = 0, doc: str = ""
    ) -> Leaf:
        """Declare a memory [shape] of words of `bits` bits, data unless `binding` says otherwise.

        Raises:
            SpecError: I102, the model has a state of this name.
        """
        leaf = self.register(name, bits, shape=shape, signed=signed, reset=reset, binding=binding, doc=doc)
        self.states[name] = replace(self.states[name], is_memory=reset == 0)
        return leaf

    def external(self, name: str, bits: int, *, signed: bool = False, doc: str = "") -> External:
        """Declare an external memory and the control registers `name`_start and `name`_size, its address and number of elements.

        Raises:
            SpecError: I102, the model has a state of one of these names.
        """
        leaf = self.register(name, bits, shape=(1 << ADDRESS_BITS,), signed=signed, binding=DATA, doc=doc)
        base = self.register(f"{name}_start", ADDRESS_BITS, doc=f"Address of the first element of {name}.")
        size = self.register(f"{name}_size", ADDRESS_BITS, doc=f"Number of elements of {name}; 0 when it is not attached.")
        self.externals[name] = External(leaf, base, size)
        return self.externals[name]

    def word(self, name: str, low: int, high: int) -> Expr:
        """Return bits low … high of an input, its lanes joined little-endian."""
        leaf = self.inputs[name]
        if not leaf.shape:
            return extract(leaf[()], low, high - low + 1)
        size = (iv.width_of(leaf.interval) or (8, False))[0]
        first, last = low // size, high // size
        value = lift(0)
        for lane in range(last, first - 1, -1):
            value = (value << size) + leaf[lane]
        return extract(value, low - first * size, high - low + 1)

    # -- instructions

    def instruction(
        self, name: str, match: Match, operands: Mapping[str, Bits] | None = None, *, lanes: str = ""
    ) -> Callable[[Callable[..., Effect]], Instruction]:
        """Return a decorator that adds an instruction.

        The decorated function takes one array for each named operand and returns the update, the array that a read returns, or both.
        `operands` are bit fields of the input `data`; `lanes` names an operand that is all lanes of `data`.

        Raises:
            SpecError: from the decorator, at the model's line: a field outside of its input, an ill-formed term, a name in use.
        """
        place = _caller()

        def decorate(function: Callable[..., Effect]) -> Instruction:
            all_operands: dict[str, Operand] = dict(match.operands)
            try:
                all_operands.update({key: self.field(key, "data", bits) for key, bits in (operands or {}).items()})
            except SpecError as refusal:
                raise SpecError(refusal.problem.code, refusal.problem.sentence, place=f"{place} in {name}") from None
            if lanes:
                data = self.inputs["data"]
                all_operands[lanes] = Operand(
                    Leaf(data.shape, data.interval, False, lanes), array(lambda j: data[j], data.shape), "data", Bits(0, 127)
                )
            _check_parameters(f"{name} of {self.name}", function, list(all_operands), place)
            try:
                effect = function(**{key: o.leaf for key, o in all_operands.items()})
            except SpecError as refusal:
                raise with_example(refusal).at(f"{place} in {name}") from None
            if not all(is_a(part, (Step, Array)) for part in (effect if isinstance(effect, tuple) else (effect,))):
                remedy = "end the function with `return update(…)` or `return assign(…)`, or with the array that a read gives"
                sentence = f"{name} of {self.name} must return its update, the array of a read, or both, not {quoted(effect)}"
                raise SpecError("I102", sentence, place=place, help=remedy)
            update, result = effect if isinstance(effect, tuple) else (NOTHING, effect) if isinstance(effect, Array) else (effect, None)
            return self.add(
                Instruction(name, inspect.getdoc(function) or "", place, match.condition, match.fixed, all_operands, update, result)
            )

        return decorate

    def encoded(
        self,
        name: str,
        layout: Mapping[str, Bits],
        having: Mapping[str, int],
        update: Callable[[Fields], Step],
        *,
        sets: Mapping[str, int] | None = None,
        extra: Expr | None = None,
        doc: str,
    ) -> Instruction:
        """Add the instruction whose word `data` has the values `having` in its fields; the other fields are its operands.

        `update` takes their values by name. Assembled words also have the fields `sets`; `extra` is a further decode condition.

        Raises:
            SpecError: I102, a value does not fit its field, a field lies outside of the word, or the name is in use.
        """
        fixed = {**having, **(sets or {})}
        conditions = [self.word("data", layout[key].low, layout[key].high) == value for key, value in having.items()]
        decode = all_of(conditions if extra is None else [*conditions, extra])

        def of_numbers(**leaves: Array) -> Step:
            return update(Fields({key: leaf[()] for key, leaf in leaves.items()}))

        of_numbers.__doc__ = doc
        operands = {key: bits for key, bits in layout.items() if key not in fixed}
        return self.instruction(name, Match(decode, {"data": pack(name, layout, fixed)}), operands)(of_numbers)

    def field(self, name: str, source: str, bits: Bits, word: Word | None = None) -> Operand:
        """Return the operand in a bit field of the input `source`, or of a `word` inside it.

        Raises:
            SpecError: I102, the field has bits outside of the input or the word.
        """
        leaf, shift = self.inputs[source], word.shift if word is not None else 0
        width = (iv.width_of(leaf.interval) or (0, False))[0] * math.prod(n for n in leaf.shape if isinstance(n, int))
        if word is not None:
            width = min(width - shift, (iv.width_of(word.term.interval) or (0, False))[0])
        if not 0 <= bits.low <= bits.high < width:
            subject = source if word is None else f"the word in {source}"
            raise SpecError("I102", f"bits {bits.low}…{bits.high} of field {name} must be in 0…{width - 1} of {subject}", place=_caller())
        term = self.word(source, bits.low, bits.high) if word is None else extract(word.term, bits.low, bits.width)
        if bits.signed:
            term = wrap(term, bits.width, True)
        return Operand(Leaf((), term.interval, False, name), term, source, replace(bits, low=bits.low + shift, high=bits.high + shift))

    def config(
        self,
        name: str,
        match: Match,
        fields: Mapping[str, Bits],
        *,
        prefix: str = "",
        index: Sequence[int] = (),
        doc: str = "",
        resets: Mapping[str, int] | None = None,
        shape: Sequence[int] = (),
        read: Match | None = None,
        word: Word | None = None,
        register: str = "",
    ) -> Instruction:
        """Add an instruction that stores each field in the control register `prefix` + name, declared on first use.

        A register with a `shape` has one element for each unit, and `index` is this unit's. The fields are those of the input `data` or
        of a `word` inside it; `register` names the word in their documentation. `read` adds an instruction that reads the word back,
        with 0 in bits of no field.

        Raises:
            SpecError: I102, a field lies outside of the word, or the instruction's name is in use.
        """
        operands = {key: self.field(key, "data", bits, word) for key, bits in fields.items()}
        updates: list[Update] = []
        for key, operand in operands.items():
            state = f"{prefix}{key}"
            if state not in self.states:
                bits, register_doc = fields[key], f"{register}, bits {fields[key].high}:{fields[key].low}." if register else ""
                self.register(state, bits.width, shape=shape, signed=bits.signed, reset=(resets or {}).get(key, 0), doc=register_doc)
            leaf = self.states[state].leaf
            updates.append(assign(leaf, operand.leaf[()], *index))
        if read is not None:
            stored = {bits.low: (self.states[f"{prefix}{key}"].leaf[tuple(index)], bits) for key, bits in fields.items()}
            self.readback(f"{name}_read", read, lambda j: switch(j, *(_byte_of(stored, n) for n in range(16))), doc="Read the word back.")
        return self.add(
            Instruction(name, doc, _caller(), match.condition, match.fixed, operands | dict(match.operands), _parallel_update(updates))
        )

    def readback(
        self, name: str, match: Match, lane: Callable[[Expr], Expr], *, lanes: int = 16, doc: str = "Read it back."
    ) -> Instruction:
        """Add an instruction without an update that returns `lane(j)` of each lane j.

        Raises:
            SpecError: I102, the name is in use.
        """
        return self.add(Instruction(name, doc, _caller(), match.condition, match.fixed, dict(match.operands), NOTHING, array(lane, lanes)))

    def add(self, instruction: Instruction) -> Instruction:
        """Add a complete instruction.

        Raises:
            SpecError: I102, the model has an instruction of this name, or two operands of it share bits.
        """
        if instruction.name in self.instructions:
            first = self.instructions[instruction.name].place
            raise SpecError(
                "I102",
                f'{self.name} already has an instruction "{instruction.name}"',
                place=instruction.place,
                help=f"the first is at {first}",
            )
        shared = next(_shared_bits(instruction.operands), None)
        if shared is not None:
            sentence = f"{shared[0]} and {shared[1]} of {instruction.name} of {self.name} must not share bits of {shared[2]}"
            raise SpecError("I102", sentence, place=instruction.place, help="give each operand bits of its own in the word")
        self.instructions[instruction.name] = instruction
        return instruction

    def sequential(self, instruction: Instruction, step: Step) -> Instruction:
        """Declare the update of an instruction in the order of the device: the same next state, word by word."""
        self.instructions[instruction.name] = replace(instruction, sequential=step)
        return self.instructions[instruction.name]


def _shared_bits(operands: Mapping[str, Operand]) -> Iterator[tuple[str, str, str]]:
    """Yield pairs of scalar operands that share bits of an input: name, name, input."""
    scalars = sorted(((o.input, o.bits.low, o.bits.high, name) for name, o in operands.items() if not o.leaf.shape))
    yield from ((a[3], b[3], a[0]) for a, b in itertools.pairwise(scalars) if a[0] == b[0] and b[1] <= a[2])


def _check_parameters(subject: str, function: Callable[..., Effect], operands: Sequence[str], place: str) -> None:
    """Require that a function takes the operands of its instruction by name."""
    signature = inspect.signature(function)
    try:
        signature.bind(**dict.fromkeys(operands))
    except TypeError:
        parameters = ", ".join(signature.parameters) or "nothing"
        sentence = f"{subject} must take its operands by name, {', '.join(operands) or 'none'}, not {parameters}"
        remedy = "give a parameter the name of its bit field, or the field that of its parameter"
        raise SpecError("I102", sentence, place=place, help=remedy) from None


def lanes_of(state: Leaf, *index: Expr | int, lanes: int = 16) -> Comprehension:
    """Return the array [lanes] along the last axis of a memory at `index`."""
    return array(lambda j: state[(*index, j)], lanes)


def _parallel_update(updates: Sequence[Update]) -> Step:
    return together(*updates) if updates else NOTHING


def _byte_of(stored: Mapping[int, tuple[Expr, Bits]], byte: int) -> Expr:
    """Return byte `byte` of the word that holds each register in its bit field."""
    total = lift(0)
    for low, (register, bits) in stored.items():
        if low < 8 * byte + 8 and bits.high >= 8 * byte:
            total = total + ((register << low - 8 * byte) if low >= 8 * byte else register >> 8 * byte - low) % 256
    return clamp(total, 0, 255)


def _caller() -> str:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("rewrite_compiler.ila."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def instruction_of(ila: Ila, name: str) -> Instruction:
    """Return the instruction of a name.

    Raises:
        UsageError: F203, the model has none of that name.
    """
    if name not in ila.instructions:
        raise unknown_name_error(ila, "instruction", name, ila.instructions)
    return ila.instructions[name]


def unknown_name_error(ila: Ila, kind: str, name: str, names: Iterable[str]) -> UsageError:
    """Return the error for a name that a model does not have."""
    remedy = did_you_mean(name, names) or f"flexmatch show ila {ila.name} lists them"
    return UsageError("F203", f'{ila.name} has no {kind} "{name}"', help=remedy)
