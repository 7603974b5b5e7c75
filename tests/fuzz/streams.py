"""Random instruction streams: the same commands on one device in every reading; memories, results and refusals must agree."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila import Ila, Instruction
from rewrite_compiler.ila.mmio import Command, assemble
from rewrite_compiler.ila.model import CONTROL
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila_models import flexasr, hlscnn, vta
from rewrite_compiler.lang import Leaf
from rewrite_compiler.lang.step import Loop, Step, children, reads_of
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype

READINGS = ("oracle", "arrays", "native")
SMALL_MEMORIES = {"soc_bytes": 1 << 13, "spad_bytes": 1 << 11}  # of HLSCNN: its own would be 300 MB
EXTERNAL_WORDS = 1 << 14
MODELS: dict[str, Callable[[], Ila]] = {
    "flexasr": flexasr.build,
    "flexasr published_ila": lambda: flexasr.build(behaviour="published_ila", sigmoid="3.4"),
    **{f"hlscnn {r}": lambda r=r: hlscnn.build(r, **SMALL_MEMORIES) for r in hlscnn.REVISIONS},  # type: ignore[misc]
    "vta": vta.build,
    "vta hls": lambda: vta.build(behaviour="hls"),
}
COMMANDS, TRIGGERS = 400, 16  # of a stream
SMALL, WIDE_NAMES = 4, ("base", "addr", "offset", "index", "slope", "shift", "imm")


def has_loop(step: Step) -> bool:
    """Tell whether a step repeats something as often as the state says."""
    return isinstance(step, Loop) or any(map(has_loop, children(step)))


@dataclass
class Bench:
    """One model with a device of each reading, its instructions, and which of them start an engine."""

    name: str
    ila: Ila
    sims: dict[str, Simulator] = field(init=False)
    triggers: list[Instruction] = field(init=False)
    others: list[Instruction] = field(init=False)
    control: dict[str, list[Leaf]] = field(init=False)

    def __post_init__(self) -> None:
        self.sims = {r: Simulator(self.ila, reading=r) for r in READINGS}
        state = {s.leaf: s for s in self.ila.states.values()}
        read = {i.name: reads_of(i.update) & state.keys() for i in self.ila.instructions.values()}
        self.control = {n: sorted((x for x in found if state[x].binding == CONTROL), key=lambda x: x.name) for n, found in read.items()}
        engines = [i for i in self.ila.instructions.values() if _is_trigger(i)]
        self.triggers = engines
        self.others = [i for i in self.ila.instructions.values() if i not in engines]


def _is_trigger(instruction: Instruction) -> bool:
    """An instruction that starts an engine: by name on memory-mapped devices; every one that runs loops on VTA."""
    return "start" in instruction.name or "trigger" in instruction.name or (len(instruction.operands) > 10 and has_loop(instruction.update))


@dataclass
class Told:
    """What a stream did: commands, triggers by name with the control states they had, refusals, and the first difference."""

    commands: int = 0
    refused: int = 0
    triggers: dict[str, set[str]] = field(default_factory=dict)
    difference: str = ""


def fill(bench: Bench, random: np.random.Generator) -> None:
    """Give every device the same random state."""
    kind = ("random", "extreme", "sparse")[int(random.integers(3))]
    for s in bench.ila.states.values():
        external = next((e for e in (s.name.removesuffix("_start"), s.name.removesuffix("_size")) if e in bench.ila.externals), None)
        if external is not None and external != s.name:
            continue
        if s.name in bench.ila.externals:
            data = words(random, s.leaf, (EXTERNAL_WORDS,), kind)
            for sim in bench.sims.values():
                sim.attach(s.name, data.copy())
            continue
        shape = bench.sims["oracle"].memories[s.leaf].data.shape
        data = controls(random, s.leaf, shape) if s.binding == CONTROL else words(random, s.leaf, shape, kind)
        for sim in bench.sims.values():
            sim._place(s.leaf, data.copy())
            sim.machine.bind(s.leaf, sim.memories[s.leaf])


def words(random: np.random.Generator, leaf: Leaf, shape: tuple[int, ...], kind: str) -> Any:
    """Return the contents of data: anything, both ends of the range, or mostly zeros; long ones repeat a part."""
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    dtype, size = storage_dtype(leaf.interval), math.prod(shape)
    part = min(size, 1 << 16)
    if kind == "extreme":
        found = random.choice(np.array([low, high, 0, high // 2 + 1, -1 if low < 0 else 1], dtype), part)
    else:
        found = random.integers(low, high, part, dtype, endpoint=True)
        found = found if kind == "random" else np.where(random.random(part) < 0.8, 0, found).astype(dtype)
    return np.resize(found, shape)


def controls(random: np.random.Generator, leaf: Leaf, shape: tuple[int, ...]) -> Any:
    """Return control: addresses anywhere, sizes small enough to run, now and then an end of a small range."""
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    is_wide = high - low < 1 << 4 or any(part in leaf.name for part in WIDE_NAMES)
    if is_wide and random.random() < 0.2:
        return random.choice(np.array([low, high], storage_dtype(leaf.interval)), shape)
    top = high if is_wide else min(high, SMALL)
    return random.integers(low if is_wide else max(low, -SMALL), top, shape, storage_dtype(leaf.interval), endpoint=True)


def command_of(random: np.random.Generator, instruction: Instruction) -> Command:
    """Return an instruction with random operands as the command a host sends."""
    given: dict[str, int] = {}
    for name, o in instruction.operands.items():
        if o.leaf.shape:
            given[name] = int.from_bytes(random.bytes(o.bits.width // 8), "little")
        else:
            given[name] = int(controls(random, o.leaf, ()))
    return assemble(instruction, **given)


def run(bench: Bench, seed: int, commands: int = COMMANDS, triggers: int = TRIGGERS) -> Told:
    """Run one stream in every reading."""
    random, told = np.random.default_rng(seed), Told()
    fill(bench, random)
    at = set(map(int, random.choice(commands, triggers, replace=False)))
    for n in range(commands):
        pool = bench.triggers if n in at else bench.others
        instruction = pool[int(random.integers(len(pool)))]
        command = command_of(random, instruction)
        if n in at:
            key = hashlib.sha256(b"".join(bench.sims["oracle"].memories[x].data.tobytes() for x in bench.control[instruction.name]))
            key.update(repr(sorted(command.items())).encode())
            told.triggers.setdefault(f"{bench.name} {instruction.name}", set()).add(key.hexdigest()[:10])
        answers = {r: answer(sim, command) for r, sim in bench.sims.items()}
        told.commands += 1
        told.refused += isinstance(answers["oracle"], str)
        if len(set(map(str, answers.values()))) > 1:
            told.difference = f"command {n}, {instruction.name}: {answers}"
            return told
        if isinstance(answers["oracle"], str):  # what a refused command had done before is nobody's promise
            level(bench)
        elif n in at and (found := differing(bench)):
            told.difference = f"command {n}, {instruction.name}: {found}"
            return told
    told.difference = differing(bench)
    return told


def answer(sim: Simulator, command: Command) -> int | str | None:
    """Return what a command reads, or the code of its refusal."""
    try:
        return sim.command(command)
    except FlexmatchError as error:
        return f"refused: {error.problem.code}"


def level(bench: Bench) -> None:
    """Give every device the memories of the oracle."""
    for leaf, memory in bench.sims["oracle"].memories.items():
        for reading in READINGS[1:]:
            sim = bench.sims[reading]
            if not np.array_equal(sim.memories[leaf].data, memory.data):
                sim.memories[leaf].data[...] = memory.data
                sim.machine.invalidate(frozenset((leaf,)))


def differing(bench: Bench) -> str:
    """Return the first memory that is not the oracle's, in words; nothing when all are."""
    wanted: Mapping[Leaf, Any] = bench.sims["oracle"].memories
    for reading in READINGS[1:]:
        sim = bench.sims[reading]
        for leaf, memory in wanted.items():
            found = sim.memories[leaf].full(sim.machine.axes).data
            if not np.array_equal(memory.data, found.reshape(memory.data.shape)):
                return f"{leaf.name} differs in {reading}"
    return ""
