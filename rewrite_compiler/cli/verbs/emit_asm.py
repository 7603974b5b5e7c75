"""flexmatch emit asm FILE --accel NAME: assembly to the words of an accelerator, and back."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..options import Parser, accelerators, one_of

Emission = tuple[Mapping[Path, bytes], dict[str, Any], list[str]]
SUFFIXES = {"binary": "bin", "hex": "hex", "bits": "txt"}


def add_asm_options(verb_parser: Parser) -> None:
    """Add the options of the assembler."""
    verb_parser.add_argument("--disassemble", action="store_true", help="write the assembly of a file of words instead")
    verb_parser.add_argument(
        "--words", type=one_of(*SUFFIXES), default="binary", metavar="|".join(SUFFIXES),
        help="how words are written: bytes, little-endian (default), or lines of digits",
    )  # fmt: skip


def emit_asm(args: argparse.Namespace, data: bytes) -> Emission:
    """Return the words of an assembly text, or the text of words.

    Raises:
        UsageError: not exactly one file and one accelerator are given (F203).
    """
    from ...emit.words import isa_of
    from ...ila.assembler import assemble_text, disassemble_program, read_program

    names = accelerators(args)
    if len(names) != 1 or len(args.subject) != 1:
        raise UsageError("F203", "an assembly text is for one accelerator", help="flexmatch emit asm FILE.asm --accel NAME")
    path, isa = Path(args.subject[0]), isa_of(names[0])
    if args.disassemble:
        program, suffix = read_program(isa, data, str(path), args.words), "asm"
        content = disassemble_program(program, str(path)).encode()
    else:
        program, suffix = assemble_text(isa, data.decode("utf-8", "replace"), str(path)), SUFFIXES[args.words]
        content = program.to_bytes(args.words)
    output = Path(args.output or path.with_suffix(f".{suffix}"))
    document = {"target": isa.ila.name, "words": len(program), "word_bits": isa.bits}
    return {output: content}, document, [f"words     {len(program):,} of {isa.bits} bits for {isa.ila.name}"]
