"""Does disassembling what was assembled give the command back? Random commands of the shipped models, and assembly text."""

from __future__ import annotations

import random
import time

from record import Row, finish, options

from rewrite_compiler.ila import Ila, assemble, ila
from rewrite_compiler.ila.traces.assembly import disassemble, parse_command
from rewrite_compiler.lang.binders import static_shape

MODELS = ("flexasr", "hlscnn", "vta")
SEED = 20


def differences(m: Ila, commands: int, draw: random.Random) -> int:
    """Assemble random operands of random instructions, read them back from bits and from text, and count what differs."""
    wrong = 0
    instructions = list(m.instructions.values())
    for _ in range(commands):
        i = draw.choice(instructions)
        inputs = {}
        for name, o in i.operands.items():
            low, high = o.leaf.interval
            inputs[name] = draw.getrandbits(8 * static_shape(o.leaf)[0]) if o.leaf.shape else draw.randint(low or 0, high or 0)
        command = {name: x for name, x in assemble(i, **inputs).items() if x}
        decoded = disassemble(m, command)
        is_same = decoded.instruction is i and dict(decoded.operands) == inputs and not decoded.raw
        wrong += not (is_same and parse_command(m, str(decoded)).command == command)
    return wrong


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=100_000).parse_args()
    rows: list[Row] = []
    for name in MODELS:
        started = time.process_time()
        wrong = differences(ila(name), args.runs, random.Random(SEED))
        rows.append({"name": name, "commands": args.runs, "seed": SEED, "differences": wrong, "cpu_seconds": time.process_time() - started})
        print(f"{name:10}{args.runs:>10,} commands  {wrong} differ  {rows[-1]['cpu_seconds']:.1f} CPU s")
    finish("trace_round_trip", rows, args.json)


if __name__ == "__main__":
    main()
