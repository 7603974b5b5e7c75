"""Do all readings agree? Random and extreme states and operands for every instruction of every shipped accelerator.

One control state and one command are run on many samples of the data state: at once by arrays and by machine code, and
one after the other by the oracle and by the machine code of single samples. All memories the instruction touches are
compared; where the oracle refuses, every other reading must refuse.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila, Instruction
from rewrite_compiler.ila.simulate import Simulator
from rewrite_compiler.ila_models import flexasr, hlscnn, vta
from rewrite_compiler.lang import Leaf
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.named import storage_dtype
from rewrite_compiler.lang.step import Loop, Require, Step, When, children, updates_of

Data = np.ndarray[Any, Any]
State = dict[Leaf, Data]
SMALL, WIDE_NAMES = 4, ("base", "addr", "offset", "index", "slope", "shift", "imm")
EXTERNAL_WORDS = 4096
SMALL_MEMORIES = {"soc_bytes": 1 << 13, "spad_bytes": 1 << 11}  # of HLSCNN: its own would be 300 MB a sample
MODELS = {
    "flexasr": flexasr.build,
    "flexasr published_ila": lambda: flexasr.build(behaviour="published_ila", sigmoid="3.4"),
    **{f"hlscnn {r}": lambda r=r: hlscnn.build(r, **SMALL_MEMORIES) for r in hlscnn.REVISIONS},
    "vta": vta.build,
    "vta hls": lambda: vta.build(behaviour="hls"),
}


@dataclass
class Tally:
    """What was compared, and the first difference."""

    inputs: int = 0
    refused: int = 0
    mismatches: int = 0
    first: str = ""
    elements: int = 0
    not_native: set[str] = field(default_factory=set)


def reads_of(step: Step) -> Iterator[Leaf]:
    """Yield the leaves that a step depends on."""
    for u in updates_of(step):
        for e in (u.value, *u.address, *u.extents):
            yield from e.reads
    for part in (step, *children(step)):
        if isinstance(part, When | Require):
            yield from part.condition.reads
        if isinstance(part, Loop):
            yield from part.extent.reads
        if part is not step:
            yield from reads_of(part)


def random_words(random: np.random.Generator, leaf: Leaf, shape: tuple[int, ...], kind: str) -> Data:
    """Return the contents of data: anything, both ends of the range, or mostly zeros."""
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    dtype = storage_dtype(leaf.interval)
    if kind == "extreme":
        return random.choice(np.array([low, high, 0, high // 2 + 1, -1 if low < 0 else 1], dtype), shape)
    found = random.integers(low, high, shape, dtype, endpoint=True)
    return found if kind == "random" else np.where(random.random(shape) < 0.8, 0, found).astype(dtype)


def random_control(random: np.random.Generator, leaf: Leaf, shape: tuple[int, ...]) -> Data:
    """Return control: addresses anywhere, sizes and choices small enough to run, now and then an end of the range."""
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    is_wide = high - low < 1 << 4 or any(part in leaf.name for part in WIDE_NAMES)
    top = high if is_wide else min(high, SMALL)
    if is_wide and random.random() < 0.2:
        return random.choice(np.array([low, high], storage_dtype(leaf.interval)), shape)
    return random.integers(max(low, -SMALL) if not is_wide else low, top, shape, storage_dtype(leaf.interval), endpoint=True)


class Campaign:
    """The inputs of one instruction."""

    def __init__(self, ila: Ila, instruction: Instruction, samples: int, seed: int) -> None:
        """Prepare; `samples` states of data share a control state and a command."""
        self.ila, self.instruction, self.samples = ila, instruction, samples
        self.random = np.random.default_rng(seed)
        update = instruction.update
        self.written = {u.memory for u in updates_of(update)}
        result = instruction.result.reads if instruction.result is not None else frozenset()
        self.touched = [s for s in ila.states.values() if s.leaf in self.written.union(reads_of(update), result)]

    def run(self, inputs: int) -> Tally:
        """Compare on at least so many inputs."""
        tally = Tally()
        while tally.inputs < inputs:
            self.one(tally)
        return tally

    def one(self, tally: Tally) -> None:
        """Compare one control state and one command, on all samples."""
        kind = ("random", "extreme", "sparse")[int(self.random.integers(3))]
        control, data = self.state(kind)
        operands = {
            name: random_control(self.random, o.leaf, static_shape(o.leaf))
            if not o.leaf.shape
            else random_words(self.random, o.leaf, static_shape(o.leaf), kind)
            for name, o in self.instruction.operands.items()
        }
        wanted = [self.alone("oracle", control, {k: v[n] for k, v in data.items()}, operands, tally) for n in range(self.samples)]
        singles = [self.alone("native", control, {k: v[n] for k, v in data.items()}, operands, tally) for n in range(self.samples)]
        for reading in ("arrays", "native"):
            self.compare(tally, f"{reading}, {self.samples} samples", wanted, self.together(reading, control, data, operands, tally))
        self.compare(tally, "native, one sample", wanted, singles)
        tally.inputs += self.samples
        tally.refused += sum(isinstance(w, str) for w in wanted)

    def state(self, kind: str) -> tuple[State, State]:
        """Return the control state, and the data state [samples, …]."""
        control: State = {}
        data: State = {}
        for s in self.touched:
            name = s.name
            shape = (EXTERNAL_WORDS,) if name in self.ila.externals else static_shape(s.leaf)
            if name.endswith("_size") and name.removesuffix("_size") in self.ila.externals:
                control[s.leaf] = np.array(EXTERNAL_WORDS, storage_dtype(s.leaf.interval))
            elif name.endswith("_base") and name.removesuffix("_base") in self.ila.externals:
                control[s.leaf] = np.array(0, storage_dtype(s.leaf.interval))
            elif s.binding == "control":
                control[s.leaf] = random_control(self.random, s.leaf, shape)
            else:
                data[s.leaf] = random_words(self.random, s.leaf, (self.samples, *shape), kind)
        return control, data

    def alone(self, reading: str, control: State, data: State, operands: dict[str, Data], tally: Tally) -> list[Data] | str:
        """Return what one sample's memories hold afterwards and what is read, or why the reading refused."""
        sim = Simulator(self.ila, reading=reading)
        for leaf, contents in {**control, **data}.items():
            sim._place(leaf, contents.copy())
            sim.machine.bind(leaf, sim.memories[leaf])
        try:
            result = sim.execute(self.instruction, operands)
        except SpecError as refusal:
            return refusal.problem.code
        tally.not_native.update(sim.not_native.values())
        after = [sim.memories[s.leaf].data for s in self.touched if s.leaf in self.written]
        return [*after, *([] if result is None else [result])]

    def together(self, reading: str, control: State, data: State, operands: dict[str, Data], tally: Tally) -> list[list[Data] | str]:
        """Return the same for all samples, run at once."""
        sim = Simulator(self.ila, reading=reading, samples=self.samples)
        for leaf, contents in control.items():
            sim._place(leaf, contents.copy())
            sim.machine.bind(leaf, sim.memories[leaf])
        for leaf, contents in data.items():
            sim._place(leaf, contents[0].copy())
            sim.memories[leaf].overlay([0] * (contents.ndim - 1), contents.copy(), (sim.sample_axis,))
            sim.machine.bind(leaf, sim.memories[leaf])
        try:
            result = sim.execute(self.instruction, operands)
        except SpecError as refusal:
            return [refusal.problem.code] * self.samples
        tally.not_native.update(sim.not_native.values() if reading == "native" else ())
        stores = [sim.memories[s.leaf].full(sim.machine.axes) for s in self.touched if s.leaf in self.written]
        shared = [(s.data, sim.sample_axis in s.batch) for s in stores]
        if result is not None:
            shared.append((result, result.ndim > len(static_shape(self.instruction.result))))  # type: ignore[arg-type]
        return [[data[n] if is_sampled else data for data, is_sampled in shared] for n in range(self.samples)]

    def compare(self, tally: Tally, reading: str, wanted: list[list[Data] | str], found: list[list[Data] | str]) -> None:
        """Count the samples on which a reading is not the oracle."""
        for n, (w, f) in enumerate(zip(wanted, found, strict=True)):
            if isinstance(w, str) or isinstance(f, str):
                is_same = isinstance(f, str) == isinstance(w, str)
            else:
                is_same = all(np.array_equal(a, b) for a, b in zip(w, f, strict=True))
                tally.elements += sum(a.size for a in w)
            if not is_same:
                tally.mismatches += 1
                tally.first = tally.first or f"{reading}: sample {n} of control state {tally.inputs // self.samples}"


def measure(model: str, inputs: int, samples: int, seed: int, only: str = "") -> list[Row]:
    """Run every instruction of a model."""
    ila, rows = MODELS[model](), []
    for n, instruction in enumerate(ila.instructions.values()):
        if only not in instruction.name:
            continue
        started = time.process_time()
        tally = Campaign(ila, instruction, samples, seed + n).run(inputs)
        rows.append(
            {
                "name": f"{model}: {instruction.name}",
                "inputs": tally.inputs,
                "refused_inputs": tally.refused,
                "compared_elements": tally.elements,
                "mismatches": tally.mismatches,
                "first_mismatch": tally.first,
                "without_machine_code": sorted(tally.not_native),
                "seed": seed + n,
                "cpu_seconds": round(time.process_time() - started, 3),
            }
        )
    return rows


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="inputs of each instruction (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=50, metavar="N", help="inputs that share a command (default: %(default)s)")
    parser.add_argument("--model", choices=tuple(MODELS), action="append", help="only this model; may be repeated")
    parser.add_argument("--only", default="", metavar="TEXT", help="only instructions whose name contains TEXT")
    parser.add_argument("--seed", type=int, default=7, metavar="N")
    given = parser.parse_args()
    rows = []
    for model in given.model or MODELS:
        found = measure(model, given.inputs, given.samples, given.seed, given.only)
        rows += found
        counts = [sum(int(str(r[key])) for r in found) for key in ("inputs", "mismatches", "refused_inputs")]
        print(f"{model:24}{len(found):4} instructions{counts[0]:10} inputs{counts[1]:6} mismatches{counts[2]:8} refused", flush=True)
        for r in found:
            if r["mismatches"]:
                print(f"  {r['name']}: {r['mismatches']} mismatches, first {r['first_mismatch']}")
    finish("agreement", rows, given.json)
    if any(r["mismatches"] for r in rows):
        raise SystemExit("readings differ")


if __name__ == "__main__":
    main()
