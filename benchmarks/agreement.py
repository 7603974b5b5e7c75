"""Do all readings agree? Random and extreme states and operands for every instruction of every shipped accelerator.

One control state and one command are run on many samples of the data state: at once by arrays and by machine code, and
one after the other by the oracle and by the machine code of single samples. All memories the instruction touches are
compared; where the oracle refuses, every other reading must refuse. On a large state several commands follow each other,
each with its own control and operands: what is read is compared after each of them, the memories after the last. An
instruction with the text of one that is done (another revision's, say) is named with that one, and its inputs are not
counted. With `--json FILE` it goes on where it ended.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from record import Row, finish, options, recorded

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila, Instruction
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila_models import flexasr, genesys, hlscnn, hvx, vta
from rewrite_compiler.lang import Expr, Leaf, lift
from rewrite_compiler.lang.binders import Table, static_shape
from rewrite_compiler.lang.printer import show as shown
from rewrite_compiler.lang.printer import show_array, show_step
from rewrite_compiler.lang.step import Let, Step, Update, When, children, reads_of, updates_of
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.arrays.evaluator import table_data
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype

Data = np.ndarray[Any, Any]
State = dict[Leaf, Data]
Command = tuple[State, dict[str, Data]]  # control and operands
SMALL, WIDE_NAMES = 4, ("base", "addr", "offset", "index", "slope", "shift", "imm")
EXTERNAL_WORDS, POOL = 4096, 1 << 16
LARGE, ROUND = 1 << 19, 25  # elements of a sample's state from which so many commands follow each other
KINDS = ("random", "extreme", "ties", "sparse")
FULL = ("act_vector",)  # programs: every byte
INPE, LEAST_PROGRAM = 3, 5  # of FlexASR's activation programs: the instruction that takes a result of the core
SMALL_MEMORIES = {"soc_bytes": 1 << 13, "spad_bytes": 1 << 11}  # of HLSCNN: its own would be 300 MB a sample
MODELS = {
    "flexasr": flexasr.build,
    "flexasr published_ila": lambda: flexasr.build(behaviour="published_ila", sigmoid="3.4"),
    **{f"hlscnn {r}": lambda r=r: hlscnn.build(r, **SMALL_MEMORIES) for r in hlscnn.REVISIONS},
    "vta": vta.build,
    "vta hls": lambda: vta.build(behaviour="hls"),
    "genesys": genesys.build,
    "hvx": hvx.build,
}


@dataclass
class Tally:
    """What was compared, and the first difference."""

    inputs: int = 0
    changed: int = 0  # inputs on which the instruction changed its memories
    refused: int = 0  # inputs that the oracle refused
    mismatches: int = 0
    first: str = ""
    elements: int = 0
    not_native: set[str] = field(default_factory=set)


def random_words(random: np.random.Generator, leaf: Leaf, shape: tuple[int, ...], kind: str) -> Data:
    """Return the contents of data: anything, ends of the range, powers of two (sums that end in a half), or mostly zeros.

    What is larger than a pool of random words repeats it.
    """
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    dtype, size = storage_dtype(leaf.interval), math.prod(shape)
    count = size if size < POOL else POOL - 1  # odd: a sample does not repeat the one before
    if kind in ("extreme", "ties"):
        powers = [sign << n for n in range(max(high, 1).bit_length()) for sign in (1, -1) if low <= sign << n <= high]
        choices = [low, high, 0, high // 2 + 1, -1 if low < 0 else 1] if kind == "extreme" else [0, *powers]
        words = random.choice(np.array(choices, dtype), count)
    else:
        words = random.integers(low, high, count, dtype, endpoint=True)
    if kind == "sparse":
        words = np.where(random.random(count) < 0.8, 0, words).astype(dtype)
    return np.resize(words, shape)


def random_control(random: np.random.Generator, leaf: Leaf, shape: tuple[int, ...], is_near: bool) -> Data:
    """Return control: sizes and choices small enough to run; addresses anywhere, small ones where `is_near`."""
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    is_wide = high - low < 1 << 4 or leaf.name in FULL or (not is_near and any(part in leaf.name for part in WIDE_NAMES))
    top = high if is_wide else min(high, SMALL)
    if is_wide and leaf.name not in FULL and random.random() < 0.2:
        return random.choice(np.array([low, high], storage_dtype(leaf.interval)), shape)
    return random.integers(max(low, -SMALL) if not is_wide else low, top, shape, storage_dtype(leaf.interval), endpoint=True)


def enable(random: np.random.Generator, control: State) -> None:
    """Make control so that engines run: what is valid is, and programs take as many results as the cores make."""
    data_by_name = {leaf.name: data for leaf, data in control.items()}
    for name, data in data_by_name.items():
        if name.endswith("is_valid"):
            data[...] = 1
    if "act_vector" not in data_by_name or "pe_num_manager" not in data_by_name:
        return
    for pe, program in enumerate(data_by_name["act_vector"]):
        managers, length = int(random.integers(1, 3)), int(random.integers(LEAST_PROGRAM, 12))
        outputs = int(random.integers(1, SMALL))
        enables = {"pe_num_manager": managers, "act_num_inst": length, "act_num_output": outputs, "pe_num_output": outputs}
        for name in enables.keys() & data_by_name.keys():
            data_by_name[name][pe] = enables[name]
        program[program >> 4 == INPE] ^= 0x80
        taking = random.choice(length, managers, replace=False)
        program[taking] = INPE << 4 | program[taking] & 15


def place(sim: Simulator, state: State) -> None:
    """Give memories their contents."""
    for leaf, contents in state.items():
        if sim.memories[leaf].data.shape == contents.shape and not sim.memories[leaf].regions:
            sim.memories[leaf].data[...] = contents
        else:
            sim._place(leaf, contents.copy())
            sim.machine.bind(leaf, sim.memories[leaf])
    sim.machine.invalidate(frozenset(state))


def text_of(ila: Ila, instruction: Instruction) -> str:
    """Return all that an instruction is, as text: decode, operands, update, result, the states it touches."""
    touched = Campaign(ila, instruction, 1, 0).touched
    parts = [f"{s.name} {s.leaf.shape} {s.leaf.interval} {s.binding} {s.reset}" for s in touched]
    parts += [f"{n} = {shown(o.term) if isinstance(o.term, Expr) else show_array(o.term)}" for n, o in instruction.operands.items()]
    parts += [shown(instruction.decode), show_step(instruction.update)]
    parts += [] if instruction.result is None else [show_array(instruction.result)]
    parts += [f"{t.name} is {hashlib.sha256(table_data(t).tobytes()).hexdigest()}" for t in tables_of(instruction.update)]
    numbers: dict[str, int] = {}
    return re.sub(r"(?<=_)\d+\b", lambda found: str(numbers.setdefault(found[0], len(numbers))), "\n".join(parts))


def tables_of(step: Step) -> list[Table]:
    """Return the tables that a step reads, in the order of their names."""
    tables = {x.data for e in step_terms(step) for x in terms_of(e) if x.op == "table"}
    return sorted(tables, key=lambda t: t.name)


def step_terms(step: Step) -> list[Expr]:
    """Return the terms of a step and its parts."""
    terms: list[Expr] = []
    if isinstance(step, Update):
        terms = [step.value, *step.address]
    elif isinstance(step, Let):
        terms = [step.array[tuple(lift(0) for _ in step.array.shape)]]
    elif isinstance(step, When):
        terms = [step.condition]
    return terms + [e for part in children(step) for e in step_terms(part)]


class Campaign:
    """The inputs of one instruction."""

    def __init__(self, ila: Ila, instruction: Instruction, samples: int, seed: int, commands: int = ROUND) -> None:
        """Prepare; `samples` states of data share a control state and a command; on a large state, `commands` follow each other."""
        self.ila, self.instruction, self.samples = ila, instruction, samples
        self.random = np.random.default_rng(seed)
        update = instruction.update
        self.written = {u.memory for u in updates_of(update)}
        result = instruction.result.reads if instruction.result is not None else frozenset()
        self.touched = [s for s in ila.states.values() if s.leaf in self.written.union(reads_of(update), result)]
        size = sum(math.prod(self.shape(s.leaf)) for s in self.touched if s.binding != "control")
        self.commands = commands if size >= LARGE else 1
        self.single = cache(lambda reading: Simulator(ila, reading=reading))

    def shape(self, leaf: Leaf) -> tuple[int, ...]:
        """Return the shape of a state element; what lies outside of the device is small."""
        return (EXTERNAL_WORDS,) if leaf.name in self.ila.externals else static_shape(leaf)

    def run(self, inputs: int) -> Tally:
        """Compare on at least so many inputs that the oracle takes, and on no more than ten times as many in all."""
        tally = Tally()
        while tally.inputs - tally.refused < inputs and tally.inputs < 10 * inputs:
            self.one(tally)
        return tally

    def one(self, tally: Tally) -> None:
        """Compare one data state and one command, or several that follow each other, on all samples."""
        kind, is_near = KINDS[int(self.random.integers(len(KINDS)))], bool(self.random.integers(2))
        data = self.data(kind)
        commands = [(self.control(is_near), self.operands(kind, is_near)) for _ in range(self.commands)]
        together = {r: self.together(r, data, commands, tally) for r in ("arrays", "native")}
        for n in range(self.samples):
            state = {k: v[n] for k, v in data.items()}
            expected = self.alone("oracle", state, commands, tally)
            self.compare(tally, f"native, one sample: sample {n}", expected, self.alone("native", state, commands, tally))
            for reading, actual in together.items():
                self.compare(tally, f"{reading}, {self.samples} samples: sample {n}", expected, actual[n])
            tally.refused += isinstance(expected, str)
            tally.changed += not isinstance(expected, str) and self.has_changed({**commands[-1][0], **state}, expected)
        tally.inputs += self.samples * self.commands

    def has_changed(self, before: State, after: list[Data]) -> bool:
        """Tell whether a memory is not what it was."""
        leaves = [s.leaf for s in self.touched if s.leaf in self.written]
        return any(not np.array_equal(before[leaf], data) for leaf, data in zip(leaves, after, strict=False))

    def operands(self, kind: str, is_near: bool) -> dict[str, Data]:
        """Return the operands of one command."""
        return {
            name: random_words(self.random, o.leaf, static_shape(o.leaf), kind)
            if o.leaf.shape
            else random_control(self.random, o.leaf, static_shape(o.leaf), is_near)
            for name, o in self.instruction.operands.items()
        }

    def control(self, is_near: bool) -> State:
        """Return a control state."""
        control: State = {}
        for s in self.touched:
            name, kind = s.name, storage_dtype(s.leaf.interval)
            if name.endswith("_size") and name.removesuffix("_size") in self.ila.externals:
                control[s.leaf] = np.array(EXTERNAL_WORDS, kind)
            elif name.endswith("_start") and name.removesuffix("_start") in self.ila.externals:
                control[s.leaf] = np.array(0, kind)
            elif s.binding == "control":
                control[s.leaf] = random_control(self.random, s.leaf, self.shape(s.leaf), is_near)
        if self.random.integers(2):
            enable(self.random, control)
        return control

    def data(self, kind: str) -> State:
        """Return the data state of all samples, [samples, …]."""
        states = [s.leaf for s in self.touched if s.binding != "control"]
        return {leaf: random_words(self.random, leaf, (self.samples, *self.shape(leaf)), kind) for leaf in states}

    def executed(self, sim: Simulator, commands: Sequence[Command]) -> list[Data] | str:
        """Run commands one after the other; return what they give, or why one is refused."""
        results = []
        for control, operands in commands:
            place(sim, control)
            try:
                results.append(sim.execute(self.instruction, operands))
            except SpecError as refusal:
                return refusal.problem.code
        return [r for r in results if r is not None]

    def alone(self, reading: str, data: State, commands: Sequence[Command], tally: Tally) -> list[Data] | str:
        """Return what is read and what one sample's memories hold afterwards (until the next call), or why it is refused."""
        sim: Simulator = self.single(reading)
        place(sim, data)
        results = self.executed(sim, commands)
        if isinstance(results, str):
            return results
        tally.not_native.update(sim.not_native.values())
        after = [sim.memories[s.leaf].data for s in self.touched if s.leaf in self.written]
        return [*after, *results]

    def together(self, reading: str, data: State, commands: Sequence[Command], tally: Tally) -> list[list[Data] | str]:
        """Return the same for all samples, run at once."""
        sim = Simulator(self.ila, reading=reading, samples=self.samples)
        for leaf, contents in data.items():
            sim._place(leaf, contents[0].copy())
            sim.memories[leaf].replace_box([0] * (contents.ndim - 1), contents.copy(), (sim.sample_axis,))
            sim.machine.bind(leaf, sim.memories[leaf])
        results = self.executed(sim, commands)
        if isinstance(results, str):
            return [results] * self.samples
        tally.not_native.update(sim.not_native.values() if reading == "native" else ())
        stores = [sim.memories[s.leaf].full(sim.machine.axes) for s in self.touched if s.leaf in self.written]
        shared = [(s.data, sim.sample_axis in s.batch) for s in stores]
        lanes = 0 if self.instruction.result is None else len(static_shape(self.instruction.result))
        shared += [(r, r.ndim > lanes) for r in results]
        return [[data[n] if is_sampled else data for data, is_sampled in shared] for n in range(self.samples)]

    def compare(self, tally: Tally, reading: str, expected: list[Data] | str, actual: list[Data] | str) -> None:
        """Count a sample on which a reading is not the oracle."""
        if isinstance(expected, str) or isinstance(actual, str):
            is_same = isinstance(actual, str) == isinstance(expected, str)
        else:
            is_same = all(np.array_equal(a, b) for a, b in zip(expected, actual, strict=True))
            tally.elements += sum(a.size for a in expected)
        if not is_same:
            tally.mismatches += 1
            tally.first = tally.first or f"{reading} of control state {tally.inputs // self.samples}"


def measure(model: str, ila: Ila, name: str, inputs: int, samples: int, seed: int) -> Row:
    """Run one instruction of a model."""
    started = time.process_time()
    campaign = Campaign(ila, ila.instructions[name], samples, seed)
    tally = campaign.run(inputs)
    return {
        "name": f"{model}: {name}",
        "wanted_inputs": inputs,
        "inputs": tally.inputs,
        "refused_inputs": tally.refused,
        "changing_inputs": tally.changed,
        "samples": campaign.samples,
        "commands_on_a_state": campaign.commands,
        "compared_elements": tally.elements,
        "mismatches": tally.mismatches,
        "first_mismatch": tally.first,
        "without_machine_code": sorted(tally.not_native),
        "seed": seed,
        "cpu_seconds": round(time.process_time() - started, 3),
    }


def same(name: str, row: Row | None) -> Row | None:
    """Return the row of an instruction whose text is that of one that is done; its inputs are counted there."""
    if row is None:
        return None
    return {"name": name, "same_text_as": row["name"], "inputs": 0, "refused_inputs": 0, "changing_inputs": 0, "mismatches": 0}


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="inputs of each instruction (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=50, metavar="N", help="inputs that share a command (default: %(default)s)")
    parser.add_argument("--model", choices=tuple(MODELS), action="append", help="only this model; may be repeated")
    parser.add_argument("--only", default="", metavar="TEXT", help="only instructions whose name contains TEXT")
    parser.add_argument("--seed", type=int, default=7, metavar="N")
    args = parser.parse_args()
    rows = [row for row in recorded(args.json) if row.get("wanted_inputs", args.inputs) >= args.inputs]
    names, texts = {str(row["name"]) for row in rows}, dict[str, Row]()
    measured_rows = {str(row["name"]): row for row in rows if "same_text_as" not in row}
    for model in args.model or MODELS:
        ila = MODELS[model]()
        for n, name in enumerate(ila.instructions):
            key, text = f"{model}: {name}", text_of(ila, ila.instructions[name])
            if args.only in name and key not in names:
                row = same(key, texts.get(text)) or measure(model, ila, name, args.inputs, args.samples, args.seed + n)
                rows.append(row)
                finish("agreement", rows, args.json)
                measured_rows.update({} if "same_text_as" in row else {key: row})
            if key in measured_rows:
                texts.setdefault(text, measured_rows[key])
        show(model, [row for row in rows if str(row["name"]).startswith(f"{model}: ")])
    if any(r["mismatches"] for r in rows):
        raise SystemExit("readings differ")


def show(model: str, rows: list[Row]) -> None:
    """Print a line for a model and one for each instruction on which readings differ."""
    counts = [sum(int(str(r[key])) for r in rows) for key in ("inputs", "mismatches", "refused_inputs", "changing_inputs")]
    alike = sum("same_text_as" in r for r in rows)
    print(
        f"{model:24}{len(rows):4} instructions, {alike} as others{counts[0]:10} inputs{counts[1]:6} mismatches"
        f"{counts[2]:8} refused{counts[3]:10} changed the state",
        flush=True,
    )
    for r in rows:
        if r["mismatches"]:
            print(f"  {r['name']}: {r['mismatches']} mismatches, first {r['first_mismatch']}")


if __name__ == "__main__":
    main()
