"""The simulator of a device with external memory, which runs a stream of instruction words on one or several queues."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import FlexmatchError, SpecError, UsageError
from ...lang.binders import Leaf, static_shape
from ...readings.arrays.batched_memory import Memory
from ...readings.arrays.labelled_array import Data, storage_dtype
from ...readings.state.access_bounds import AccessBounds
from ...readings.state.footprint import Footprint
from ..external_memory import WORD, External
from ..mmio import split_lanes
from ..model import Ila, Instruction
from ..verification.queue_interleavings import (
    Issue,
    RaceDetector,
    Schedule,
    Turn,
    check_all_taken,
    check_connected,
    schedule,
    tokens_of,
    written_by,
)
from .initialisation_tracking import CODE
from .read_sets import instruction_accesses
from .simulator import CACHED_DECODES, DeviceHang, Simulator
from .word_stream_loop import advance

IMAGE = "dram"
PATIENCE = 1024  # words of a device, from which it pays to have machine code that decodes them


class Stream(Simulator):
    """A device, its external memories, and `run`, which executes instruction words."""

    def __init__(
        self,
        ila: Ila,
        *,
        dram: Any = None,
        base: int = 0,
        drams: Mapping[str, Any] | None = None,
        reading: str = "arrays",
        strict: bool = False,
        samples: int = 0,
    ) -> None:
        """Attach the image `dram`, whose first byte has the address `base`, or the separate memories `drams` by name.

        Both are changed in place where the device writes them, so they must be writable there.

        Raises:
            UsageError: F203, the model has no such external memory, or the contents do not fit it.
        """
        super().__init__(ila, reading=reading, strict=strict, samples=samples)
        self.written_memories = frozenset[Leaf]().union(*map(written_by, ila.instructions.values()))
        self.tracked_memories = frozenset(leaf for leaf in self.written_memories if leaf.shape)
        self.held_tokens: tuple[str, ...] = ()  # tokens that earlier runs left
        self.written_in_order = frozenset[Leaf]()  # what the words wrote that ran in their order, before one had to wait
        self._decoded: dict[Any, tuple[Instruction, dict[str, list[int]]] | None] = {}
        self.stop_word = 0  # the word that machine code ended at
        self.loop_names: frozenset[str] | None = None  # instructions that machine code has, where it has not all
        self.single_names = frozenset[str]()  # instructions of words that it ended at since then
        self.singles_of_loop = 0  # how many words had run one by one by then
        if dram is not None:
            self.give(IMAGE, dram, base)
        for name, contents in (drams or {}).items():
            self.give(f"{IMAGE}_{name}", contents)

    def give(self, name: str, contents: Any, base: int = 0) -> None:
        """Attach `contents` (a buffer, or an array of words of the memory's width) as the external memory `name`.

        Raises:
            UsageError: F203, the model has no such memory, `base` is no address, or the contents do not fit or cannot be written.
        """
        external = self.ila.externals.get(name)
        if external is None:
            names = ", ".join(self.ila.externals) or "none"
            raise UsageError("F203", f'{self.ila.name} has no external memory "{name}"', help=f"known: {names}")
        if not 0 <= base <= (external.base.interval[1] or 0):
            raise UsageError("F203", f"the address of {name} must be in 0…{external.base.interval[1]}, not {base}")
        self.attach(name, external_words(name, contents, external, external.leaf in self.written_memories), base)

    # -- contents that differ between samples

    def place(self, name: str, address: int, words: Data) -> None:
        """Write words to an external memory from `address` on: [samples, n] differ between samples, [n] do not.

        Words that depend on samples are stored beside the attached memory, which is not changed there; `fetch` reads them.

        Raises:
            UsageError: F203, the words are for another number of samples.
            SpecError: I103, the memory does not have all of these addresses.
        """
        memory, first = self._window(name, address, words.shape[-1])
        batch = (self.sample_axis,) if words.ndim == 2 else ()
        if batch and len(words) != max(self.samples, 1):
            raise UsageError("F203", f"{name} must be given for {max(self.samples, 1)} samples, not {len(words)}")
        if not self.by_arrays and batch:  # generated code sees the attached memory only
            words, batch = words[0], ()
        contents = words.astype(memory.data.dtype)
        if not memory.replace_box([first], contents, batch):
            store, (origin,) = memory.writable_window([first], [first + words.shape[-1] - 1], batch, self.machine.axes)
            store.data[..., first - origin : first - origin + words.shape[-1]] = contents
        self.machine.invalidate(frozenset((self.ila.externals[name].leaf,)))

    def fetch(self, name: str, address: int, count: int) -> Data:
        """Return `count` words of an external memory from `address` on, [samples, count].

        Raises:
            SpecError: I103, the memory does not have all of these addresses.
        """
        memory, first = self._window(name, address, count)
        store, (origin,) = memory.window([first], [first + count - 1], self.machine.axes)
        words = store.data[..., first - origin : first - origin + count]
        return np.array(np.broadcast_to(words, (max(self.samples, 1), count)))

    def _window(self, name: str, address: int, count: int) -> tuple[Memory, int]:
        external = self.ila.externals[name]
        memory, first = self.memories[external.leaf], address - int(self.memories[external.base].data[()])
        if not 0 <= first < first + count <= memory.element_shape[0]:
            last = address + count - 1
            raise SpecError("I103", f"{name} has {memory.element_shape[0]} words; {address}…{last} are not all among them")
        return memory, first

    # -- running

    def run(self, instructions: Iterable[int] | Data) -> None:
        """Run instruction words (integers, or rows of bytes) as the device's queues order them; in stream order where that is legal.

        Tokens that are left over are available to the next run.

        Raises:
            DeviceHang: I104, a queue waits for ever, once everything that can run has run.
            SpecError: a diagnostic of the model; in strict simulation also a token that is missing or left over, for which nothing runs,
                and two instructions that conflict and are not ordered.
        """
        is_rows = isinstance(instructions, np.ndarray) and instructions.ndim == 2 and instructions.dtype == np.uint8
        words: Any = instructions if is_rows else list(instructions)
        self.written_in_order = frozenset()
        deferred: list[FlexmatchError] = []
        is_in_order = self.reading == "native" and not self.by_arrays and not (self.strict and self.ila.queues)
        start = self._in_order(words, deferred) if is_in_order else 0
        issue_order = self._scheduled(map(word_of, words[start:]), start)
        races = self._races() if self.strict and self.ila.queues else None
        for turn in issue_order.turns:
            self._execute_turn(turn, races, deferred)
        if deferred:
            raise deferred[0]
        self.held_tokens = tuple(token for token, _ in issue_order.unused_tokens)
        is_finished = any(self.ila.interrupt in written_by(t.issue.instruction) for t in issue_order.turns)
        if issue_order.blocked_queues and not is_finished and self.ila.interrupt not in self.written_in_order:
            raise _hang(issue_order)

    def _in_order(self, words: Sequence[Any], deferred: list[FlexmatchError]) -> int:
        """Run words in stream order up to the first that must wait for a token; return its number.

        Those that move data run in machine code; in strict simulation only where marks of initialisation stay as they are.
        """
        column = word_column(words, math.prod(static_shape(self.ila.inputs[WORD])))
        if column is None:  # one is no such word: nothing runs
            return 0
        if self.strict:  # a word without an instruction is refused before anything runs
            for n, word in enumerate(map(word_of, words)):
                if word not in self._decoded:
                    self._issue(n, word)
        tokens, position, end = Counter(self.held_tokens), 0, 0
        while position < len(words):
            end = self._end_of_settled(words, position) if position >= end else end
            if position < end and self.executed + len(words) >= PATIENCE:
                position = self._run_compiled(column[:end], position, tokens)
            issue = self._issue(position, word_of(words[position])) if position < len(words) else None
            if issue is not None:
                takes, gives = tokens_of(self.ila.queues, issue)
                if any(not tokens[t] for t in takes):
                    break
                tokens.subtract(takes)
                self._execute_turn(Turn(issue, "", {}), None, deferred)
                tokens.update(gives)
                self.written_in_order |= written_by(issue.instruction)
            position += position < len(words)
        self.held_tokens = tuple(tokens.elements())
        return position

    def _end_of_settled(self, words: Sequence[Any], position: int) -> int:
        """Return the first word from a position on at whose execution marks of initialisation may change; there are none to change
        in a simulation that is not strict.
        """
        if self.initialisation is None:
            return len(words)
        words_to_skip = self.initialisation.settled_words
        for n in range(position, len(words)):
            word = word_of(words[n])
            if word not in words_to_skip:
                issue = self._issue(n, word)
                if issue is None or not self.initialisation.is_settled(self.memories, issue.instruction, issue.operands):
                    return n
                words_to_skip.add(word)
        return len(words)

    def _run_compiled(self, column: Data, position: int, tokens: Counter[str]) -> int:
        try:
            return advance(self, column, position, tokens)
        except SpecError as refusal:
            self.executed += 1
            issue = self._issue(self.stop_word, word_of(column[self.stop_word]))
            raise refusal.at(str(issue)) from None

    def check(self, instructions: Iterable[int]) -> None:
        """Refuse a stream as a strict `run` would, on a copy of the device and its external memories.

        Raises:
            DeviceHang: I104, a queue waits for ever.
            SpecError: the stream breaks a rule of the model, of its tokens, or of the order of its queues.
        """
        device_copy = Stream(self.ila, reading=self.reading, strict=True)
        if self.initialisation is not None or self.executed:  # what was written without strictness is not known
            device_copy.initialisation = None if self.initialisation is None else self.initialisation.copy()
        for name, external in self.ila.externals.items():
            base = int(self.memories[external.base].data[()])
            device_copy.attach(name, self.memories[external.leaf].data.copy(), base)
        for state in self.ila.states.values():
            if not any(state.leaf in (e.leaf, e.base, e.size) for e in self.ila.externals.values()):
                device_copy.memories[state.leaf].data[...] = self.memories[state.leaf].data
        device_copy.run(instructions)

    def _scheduled(self, instructions: Iterable[int], start: int = 0) -> Schedule:
        stream = [i for i in (self._issue(n, word) for n, word in enumerate(instructions, start)) if i is not None]
        issue_order = schedule(self.ila.queues, stream, self.held_tokens)
        if not self.strict:
            return issue_order
        check_connected(self.ila.queues, stream)
        if issue_order.blocked_queues:
            raise _hang(issue_order)
        check_all_taken(issue_order)
        return issue_order

    def _issue(self, number: int, word: Any) -> Issue | None:
        try:
            value = operator.index(word)
        except TypeError:
            raise UsageError("F203", f"instruction {number} must be an integer, not {type(word).__name__}") from None
        if value not in self._decoded:
            if len(self._decoded) >= CACHED_DECODES:
                self._decoded.clear()
            self._decoded[value] = self._decode_word(number, value)
        decoded = self._decoded[value]
        return None if decoded is None else Issue(number, *decoded)

    def _decode_word(self, number: int, word: int) -> tuple[Instruction, dict[str, list[int]]] | None:
        try:
            lanes = split_lanes(self.ila, {WORD: word})
        except SpecError as refusal:
            raise refusal.at(f"instruction {number}") from None
        instruction = self._decoder.find(lanes)
        if instruction is not None:
            return instruction, self._executable(instruction).operands(lanes)
        if self.strict:
            raise SpecError("I101", f"no instruction of {self.ila.name} decodes {word:#x}", place=f"instruction {number}")
        return None

    def _execute_turn(self, turn: Turn, races: RaceDetector | None, deferred: list[FlexmatchError]) -> None:
        """Execute one instruction; refusals of uninitialised reads are deferred until the order is known to be legal."""
        try:
            if races is not None:
                races.observe(turn, *self._accesses(turn))
            self.execute(turn.issue.instruction, turn.issue.operands)
        except SpecError as refusal:
            if type(refusal) is not SpecError:
                raise
            if refusal.problem.code != CODE:
                raise refusal.at(str(turn.issue)) from None
            deferred.append(refusal.at(str(turn.issue)))

    def _accesses(self, turn: Turn) -> tuple[AccessBounds, Callable[[], Footprint]]:
        return instruction_accesses(self.machine, self.ila, turn.issue.instruction, turn.issue.operands, self.tracked_memories)

    def _races(self) -> RaceDetector:
        return RaceDetector(self.ila, {leaf: self._elements(leaf) for leaf in self.tracked_memories})

    def _elements(self, leaf: Leaf) -> int:
        return int(np.prod(self.memories[leaf].element_shape))


def word_of(word: Any) -> Any:
    """Return an instruction word, given as an integer or a row of bytes, as an integer."""
    return int.from_bytes(word.tobytes(), "little") if isinstance(word, np.ndarray) else word


def word_column(words: Iterable[Any], size: int) -> Data | None:
    """Return instruction words as an array of bytes [words, size]; None where one of them is no such word."""
    if isinstance(words, np.ndarray):
        return np.ascontiguousarray(words) if words.shape[1] == size else None
    try:
        return np.frombuffer(b"".join(operator.index(w).to_bytes(size, "little") for w in words), np.uint8).reshape(-1, size)
    except (TypeError, OverflowError):
        return None


def external_words(name: str, contents: Any, external: External, is_written: bool) -> Data:
    """Return the words of an external memory as a flat array, which shares storage with `contents` where the device writes it.

    Raises:
        UsageError: F203, the contents are of another width or type, or cannot be written in place.
    """
    dtype = np.dtype(storage_dtype(external.leaf.interval))
    data = _as_array(name, contents, dtype)
    flat = data.reshape(-1)
    if data.dtype.kind in "iu" and data.dtype.itemsize == dtype.itemsize:
        flat = flat.view(dtype)
    elif not is_written:
        flat = _converted(name, flat, dtype)
    else:
        raise UsageError("F203", f"the external memory {name} must have words of {8 * dtype.itemsize} bits, not of type {data.dtype}")
    if not is_written:
        return np.array(flat)
    if not (np.shares_memory(flat, data) or flat.size == 0) or not flat.flags.writeable:
        raise UsageError("F203", f"the external memory {name} must be writable and contiguous: the device writes it in place")
    return flat


def _as_array(name: str, contents: Any, dtype: np.dtype[Any]) -> Data:
    if isinstance(contents, np.ndarray):
        return contents
    try:
        view = memoryview(contents).cast("B")
    except TypeError:
        if isinstance(contents, Sequence) and not isinstance(contents, str):
            return np.array(contents, np.int64)
        raise UsageError("F203", f"the external memory {name} must be a buffer or an array, not {type(contents).__name__}") from None
    if len(view) % dtype.itemsize:
        size = f"a whole number of words of {dtype.itemsize} bytes, not {len(view)} bytes"
        raise UsageError("F203", f"the external memory {name} must be {size}")
    return np.frombuffer(view, dtype)


def _converted(name: str, flat: Data, dtype: np.dtype[Any]) -> Data:
    values = flat.astype(dtype)
    if flat.dtype.kind not in "iub" or not np.array_equal(values, flat):
        raise UsageError(
            "F203", f"the external memory {name} must hold words of {8 * dtype.itemsize} bits, not values of type {flat.dtype}"
        )
    return values


def _hang(issue_order: Schedule) -> DeviceHang:
    (queue, sentence), *other_queues = issue_order.blocked_queues
    return DeviceHang(f"queue {queue}", "; ".join([sentence, *(f"queue {q} {s}" for q, s in other_queues)]))
