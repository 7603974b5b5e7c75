"""How many words a second does the assembler make, of every instruction of every shipped accelerator?

Columns of random fields are packed into words, as drivers' streams are; the same words are disassembled to text, and the text is
assembled again, which must give them back. The slowest instruction of each accelerator stands in the record beside the rate of a
program of all of them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.ila.assembler import Program, assemble_text, disassemble_program
from rewrite_compiler.ila.mnemonic import InstructionSet, Mnemonic, instruction_set
from rewrite_compiler.target.discovery import find_ila

ACCELERATORS = ("vta", "hlscnn", "flexasr", "genesys", "hvx")
WORDS, TEXT_WORDS = 100_000, 20_000
WIDEST = 1 << 62  # of the random numbers that fields hold


def columns(m: Mnemonic, count: int) -> dict[str, Any]:
    """Return random values of each field of an instruction."""
    random = np.random.default_rng(0)
    ends = {f.name: (max(f.interval[0] or 0, -WIDEST), min(f.interval[1] or 0, WIDEST)) for f in m.fields}
    return {name: random.integers(low, high, count, endpoint=True) for name, (low, high) in ends.items()}


def rate(count: int, runs: int, work: Callable[[], Any]) -> float:
    """Return how many words a second of processor time work makes, the best of some runs."""
    seconds = []
    for _ in range(runs):
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    return count / min(seconds)


def row(name: str, isa: InstructionSet, runs: int) -> Row:
    """Return the rates of one accelerator."""
    packed: dict[str, float] = {}
    words = []
    for m in isa.mnemonics.values():
        fields = columns(m, WORDS)
        packed[m.name] = rate(WORDS, runs, lambda m=m, fields=fields: isa.pack(m, WORDS, fields))  # type: ignore[misc]
        share = -(-TEXT_WORDS // len(isa.mnemonics))
        words.append(isa.pack(m, share, {f: x[:share] for f, x in fields.items()}))
    program = Program(isa, np.concatenate(words))
    text = disassemble_program(program)
    if not np.array_equal(assemble_text(isa, text).words, program.words):
        raise SystemExit(f"{name}: what is disassembled assembles to other words")
    slowest = min(packed, key=lambda m: packed[m])
    return {
        "accelerator": name,
        "mnemonics": len(packed),
        "bits": isa.bits,
        "slowest": slowest,
        "fields": len(isa.mnemonic(slowest).fields),
        "slowest_words_per_second": round(packed[slowest]),
        "words_per_second": round(len(packed) / sum(1 / x for x in packed.values())),
        "text_words_per_second": round(rate(len(program), runs, lambda: assemble_text(isa, text))),
        "disassembled_words_per_second": round(rate(len(program), runs, lambda: disassemble_program(program))),
    }


def main() -> int:
    """Measure all accelerators."""
    args = options(__doc__ or "", runs=3).parse_args()
    rows = []
    for name in ACCELERATORS:
        rows.append(row(name, instruction_set(find_ila(name)), args.runs))
        x = rows[-1]
        rates = f"{x['words_per_second']:,}, of {x['slowest']} {x['slowest_words_per_second']:,}"
        print(f"{name:8} words/s: {rates}; of text {x['text_words_per_second']:,}")
    finish("assembler", rows, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
