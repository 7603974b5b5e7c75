"""Mnemonics are views of instructions: what is assembled decodes to itself, what is disassembled assembles to itself, for every model."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flexmatch
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Bits, Ila, Match, assemble, bit_fields, ila, mmio
from rewrite_compiler.ila.assembler import Program, assemble_text, disassemble_program, read_program
from rewrite_compiler.ila.mmio import split_lanes
from rewrite_compiler.ila.mnemonic import InstructionSet, Mnemonic, instruction_set, limbs_of, width_of
from rewrite_compiler.ila.traces.assembly import disassemble
from rewrite_compiler.lang import Leaf, assign, seq, update
from rewrite_compiler.readings.oracle.emit_python import StepFunction

SHIPPED: list[tuple[str, dict[str, Any]]] = [
    ("vta", {}), ("vta", {"behaviour": "hls"}), ("vta", {"behaviour": "ila", "encoding": "old"}), ("vta", {"log_block": 5}),
    ("hlscnn", {}), ("hlscnn", {"revision": "orig"}), ("flexasr", {}), ("flexasr", {"behaviour": "published_ila"}),
]  # fmt: skip
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


@cache
def shipped(n: int) -> InstructionSet:
    name, parameters = SHIPPED[n]
    return instruction_set(ila(name, **parameters))


@st.composite
def generated(draw: st.DrawFn) -> InstructionSet:
    """Draw a model of words: fields of any widths in any order, signed, named or with gaps, over one input of any lanes."""
    m = Ila("generated")
    lanes, size = draw(st.sampled_from([(1, 40), (5, 8), (3, 16), (2, 37), (1, 63)]))
    m.input("data", size, lanes)
    m.register("x", 4)
    if draw(st.booleans()):
        m.input("port", draw(st.integers(1, 9)))
    cuts = sorted(draw(st.sets(st.integers(4, lanes * size), min_size=2, max_size=7)))
    spans = list(itertools.pairwise(cuts))
    for op in range(draw(st.integers(1, 5))):
        layout = {"op": Bits(0, 3)}
        for n, (low, high) in enumerate(spans):
            if draw(st.booleans()) or n == 0:
                names = {"LOW": 0, "HIGH": 1} if draw(st.booleans()) else {}
                layout[f"f{n}"] = Bits(low, high - 1, signed=not names and high - low > 1 and draw(st.booleans()), names=names)
        m.encoded(f"i{op}", layout, {"op": op + 1}, lambda f: assign(m.s.x, 1), doc="")
    return instruction_set(m)


def values_of(m: Mnemonic, choose: random.Random) -> dict[str, int]:
    ends = {f.name: (f.interval[0] or 0, f.interval[1] or 0) for f in m.fields}
    return {name: choose.choice([low, high, choose.randint(low, high)]) for name, (low, high) in ends.items()}


@cache
def decodes(isa: InstructionSet) -> tuple[StepFunction, Leaf]:
    """Return the oracle's function that marks every instruction whose decode holds."""
    flags = Leaf((len(isa.mnemonics),), (0, 1), False, "flags")
    return StepFunction(seq(*(assign(flags, m.instruction.decode, n) for n, m in enumerate(isa.mnemonics.values())))), flags


def firing(isa: InstructionSet, word: int) -> list[str]:
    """Return the mnemonics whose decode holds in the oracle."""
    function, flags = decodes(isa)
    contents: dict[Leaf, list[int]] = {isa.ila.inputs[n]: x for n, x in split_lanes(isa.ila, isa.inputs(word)).items()}
    contents[flags] = [0] * len(isa.mnemonics)
    function([contents[leaf] for leaf in function.memories])
    return [name for name, flag in zip(isa.mnemonics, contents[flags], strict=True) if flag]


def law_forward(isa: InstructionSet, m: Mnemonic, values: dict[str, int]) -> bool:
    """Decide L5 from fields to word and back, by the oracle alone."""
    word = m.assemble(**values)
    if firing(isa, word) != [m.name]:
        return False
    operands = disassemble(isa.ila, isa.inputs(word))
    return (
        dict(operands.operands) == values
        and not operands.raw
        and isa.inputs(word) == {name: assemble(m.instruction, **values).get(name, 0) for name in isa.ila.inputs}
    )


def law_backward(isa: InstructionSet, word: int) -> bool:
    """Decide L5 from a word that is decoded to text and back: equal where bits matter, 0 or as encoded where they do not."""
    (m,) = (isa.mnemonics[name] for name in firing(isa, word))
    text = flexmatch.disassemble([word], isa.ila)
    (result,) = assemble_text(isa, text)
    return result & m.demanded == word & m.demanded and result & ~m.demanded & ~m.fixed == 0 and firing(isa, result) == [m.name]


def decoded_word(isa: InstructionSet, m: Mnemonic, choose: random.Random) -> int:
    """Return a word near one of `m`'s that some decode accepts."""
    word = m.assemble(**values_of(m, choose))
    inputs = sum((1 << width_of(leaf)) - 1 << isa.offsets[name] for name, leaf in isa.ila.inputs.items())
    flipped = (word ^ sum(1 << choose.randrange(isa.bits) for _ in range(choose.randint(0, 4)))) & inputs
    return flipped if firing(isa, flipped) else word


@pytest.mark.parametrize("n", range(len(SHIPPED)), ids=[f"{name} {p}" for name, p in SHIPPED])
def test_every_mnemonic_of_the_shipped_models_is_a_view(n: int) -> None:
    isa, choose = shipped(n), random.Random(n)
    for m in isa.mnemonics.values():
        assert law_forward(isa, m, values_of(m, choose)), m.name
        assert law_backward(isa, decoded_word(isa, m, choose)), m.name


@QUICK
@given(generated(), st.randoms(use_true_random=False))
def test_every_mnemonic_of_a_generated_model_is_a_view(isa: InstructionSet, choose: random.Random) -> None:
    for m in isa.mnemonics.values():
        assert law_forward(isa, m, values_of(m, choose))
        assert law_backward(isa, decoded_word(isa, m, choose))


@QUICK
@given(generated(), st.randoms(use_true_random=False))
def test_what_does_not_matter_does_not_matter(isa: InstructionSet, choose: random.Random) -> None:
    """Bits outside of the demanded ones change neither the decode nor an operand."""
    picks = [choose.choice(list(shipped(n).mnemonics.values())) for n in (0, 4, 4, 6)]
    for model, m in [*((isa, m) for m in isa.mnemonics.values()), *zip(map(shipped, (0, 4, 4, 6)), picks, strict=True)]:
        word = m.assemble(**values_of(m, choose))
        noise = sum(choose.getrandbits(width_of(leaf)) << model.offsets[name] for name, leaf in model.ila.inputs.items())
        other = word & m.demanded | noise & ~m.demanded
        assert firing(model, other) == [m.name]
        operands = [dict(disassemble(model.ila, model.inputs(w)).operands) for w in (word, other)]
        assert operands[0] == operands[1]


@QUICK
@given(generated(), st.randoms(use_true_random=False))
def test_columns_are_what_single_words_are(isa: InstructionSet, choose: random.Random) -> None:
    picks = [choose.choice(list(isa.mnemonics.values())) for _ in range(20)]
    values = [values_of(m, choose) for m in picks]
    words = [m.assemble(**v) for m, v in zip(picks, values, strict=True)]
    program = Program(isa, np.array([limbs_of(w, isa.limbs) for w in words], np.uint64))
    text = disassemble_program(program)
    assert list(assemble_text(isa, text)) == words
    assert list(assemble_text(isa, "".join(f"  {line} ; {n}\n\n" for n, line in enumerate(text.splitlines())))) == words
    named = [" ".join([m.name.lower(), *(f"{k}={x}" for k, x in v.items())]) for m, v in zip(picks, values, strict=True)]
    assert list(assemble_text(isa, "\n".join(named))) == words
    for form in ("binary", "hex", "bits"):
        assert list(read_program(isa, program.to_bytes(form), "file", form)) == words


def test_a_wrong_view_is_noticed() -> None:
    """Fields that lie elsewhere, are narrower or have another base break the law."""
    isa, choose = shipped(0), random.Random(3)
    m = isa.mnemonics["GEMM"]
    for n, field in enumerate(m.fields):
        for wrong in (replace(field, low=field.low + 1), replace(field, base=1)):
            planted = replace(m, fields=(*m.fields[:n], wrong, *m.fields[n + 1 :]))
            assert not all(law_forward(isa, planted, values_of(m, choose)) for _ in range(8)), field.name


def paper_example() -> Ila:
    """Return the adder of the paper: two sources, a destination and a unit."""
    m = Ila("example")
    m.input("data", 32)
    x = m.memory("x", (256,), 16, signed=True)
    fields = bit_fields("31:25 op, 24 target SCALAR|VECTOR, 23:16 b, 15:8 a, 7:0 dst")
    layout = {name: fields[name] for name in ("op", "dst", "a", "b", "target")}
    m.encoded("add", layout, {"op": 3}, lambda f: assign(x, x[f.a] * 0, f.dst), doc="Add.")
    return m


def test_the_example_of_the_paper_round_trips() -> None:
    text = "ADD #3,#0,#1,VECTOR\n"
    (word,) = flexmatch.assemble(text, paper_example())
    assert word == 3 << 25 | 1 << 24 | 1 << 16 | 0 << 8 | 3
    assert flexmatch.disassemble([word], paper_example()) == text
    assert instruction_set(paper_example()).mnemonics["ADD"].writes == {"x"}


def test_states_that_an_instruction_reads_and_writes() -> None:
    m = shipped(0).mnemonics["GEMM"]
    assert (m.reads, m.writes) == ({"acc", "inp", "wgt", "uop"}, {"acc"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ADDD #1", 'w.asm:1:1: error[I101]: example has no mnemonic "ADDD"\n  help: did you mean "ADD"?'),
        ("ADD #1,#2,#3,VECTOR\n  ADD #1,#2", "w.asm:2:3: error[I101]: ADD takes 4 fields (dst, a, b, target), not 2"),
        ("ADD #1,#2,#3,VECTR", 'w.asm:1:14: error[I101]: field target of ADD must be one of SCALAR, VECTOR, or a number, not "VECTR"'),
        ("ADD #1,#256,#3,VECTOR", "w.asm:1:1: error[I102]: field a of ADD must be in 0…255, not 256"),
        ("ADD dst=1 dest=2", 'w.asm:1:11: error[I101]: ADD has no field "dest"\n  help: did you mean "dst"?'),
        ("ADD dst=1 dst=2", 'w.asm:1:5: error[I101]: ADD is given the field "dst" twice'),
        ("ADD #1,#1_0,#3,VECTOR", 'w.asm:1:8: error[I101]: field a of ADD must be a number, not "#1_0"'),
        ("ADD #1,#1,#3,1,#4\nADD #1,#1,#3", 'w.asm:1:1: error[I101]: ADD takes 4 fields (dst, a, b, target), not 5'),
        ("ADD 1,2,3,1\nADD 4,5,6,", "w.asm:2:1: error[I101]: field target of ADD must be one of"),
        ("ADD 1,2,3,1\nADD 4,99999999999999999999999,6,1", "w.asm:2:1: error[I102]: field a of ADD must be in 0…255, not 99999"),
        ("ADD #1,#1,#3,VECTOR | dada=1", 'w.asm:1:23: error[I101]: example has no input "dada"'),
        ("ADD #1,#1,#3,VECTOR | data=0x1ffffffff", "w.asm:1:1: error[I101]: data has 32 bits; 0x1ffffffff does not fit"),
    ],
)  # fmt: skip
def test_what_does_not_parse_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        assemble_text(instruction_set(paper_example()), text, "w.asm")
    assert str(caught.value).startswith(sentence)


def test_words_that_are_none_are_refused() -> None:
    isa = instruction_set(paper_example())
    for data, form, sentence in (
        (b"12345", "binary", "words of example take 4 bytes each; 5 bytes are no number of words"),
        (b"00000003\nxyz\n", "hex", 'a word must be at most 32 bits as hexadecimal digits, not "xyz"'),
    ):
        with pytest.raises(SpecError, match=sentence):
            read_program(isa, data, "words", form)
    with pytest.raises(SpecError, match="no instruction of example decodes word 0, 0x0"):
        flexmatch.disassemble([0], isa.ila)


@pytest.mark.parametrize("text", ["", "\n \n", "; a comment\n"])
def test_a_text_without_instructions_has_no_words(text: str) -> None:
    program = assemble_text(instruction_set(paper_example()), text)
    assert [len(program), *map(program.to_bytes, ("binary", "hex", "bits"))] == [0, b"", b"", b""]
    assert len(read_program(program.isa, b"", "words")) == 0


def test_names_of_values_are_checked() -> None:
    assert bit_fields("3:2 port IN=1|OUT=3, 1:0 unit A|B")["port"].names == {"IN": 1, "OUT": 3}
    for text, sentence in (
        ("1:0 unit A|A", "the names of field unit must be different values"),
        ("0 unit A|B|C", "C of field unit must be in 0…1, not 2"),
    ):
        with pytest.raises(SpecError, match=sentence):
            bit_fields(text)


def test_operands_in_addresses_have_their_base() -> None:
    m = Ila("bus")
    bus = mmio(m, data_bytes=8)
    rows = m.memory("rows", (4, 8), 8)
    m.instruction("store", bus.write_range(0x100, 4), lanes="row")(lambda index, row: update(rows, 8, lambda j: ((index[()], j), row[j])))
    m.instruction("start", Match(bus.write(0x200).condition, {"wr": 1, "addr": 0x200}))(lambda: assign(m.register("go", 1), 1))
    isa = instruction_set(m)
    for mnemonic in isa.mnemonics.values():
        assert law_forward(isa, mnemonic, values_of(mnemonic, random.Random(1)))
    with pytest.raises(SpecError, match="field index of STORE must be in 0…3, not 4"):
        isa.mnemonics["STORE"].assemble(index=4)
