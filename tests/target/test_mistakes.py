"""Mistakes that are made in an accelerator's file: the answer names the place, the subject, what was expected and what stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.study.checks.check import check_target
from rewrite_compiler.target import load_target

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-accelerator.md"
DENSE, DOT, CONFIG = "toy.dense", "dot of toy", '"6:0 length, 12:8 shift"'
RETURN = "end the function with `return …`: one that ends without it returns None"
# mistake → text of the tutorial's file, what stands there instead, the line of the refusal (a text of it), sentence, remedy
LOADED = {
    "an axis that is in no trial": (
        '"k": k, "n": n}', '"k": k}', "@target.accelerates", f"the trial t=1, k=8 of {DENSE} must give the axis n a value",
        'add "n": … to it: the sizes of a trial are t, k, n',
    ),
    "a trial of an axis that there is not": (
        '"n": n}', '"n": n, "rows": 3}', "@target.accelerates",
        f"the trial t=1, k=8, n=1, rows=3 of {DENSE} must name its axes, not 'rows'",
        "they are t, k, n",
    ),
    "trials without names": (
        '{"t": 1, "k": k, "n": n}', "(1, k, n)", "@target.accelerates",
        f"The trials of {DENSE} must be a tuple of sizes by axis, not of (1, 8, 1)",
        "",
    ),
    "a whole axis that there is not": (
        'whole="k"', 'whole="kk"', "@target.accelerates", f"the whole of {DENSE} must name its axes, not 'kk'",
        'did you mean "k"? they are t, k, n',
    ),
    "a misspelt keyword": (
        "trials=trials)", "trails=trials)", "@target.accelerates", f"accelerates(…) of {DENSE} takes no trails",
        'did you mean "trials"? keywords: axes, derived, draws, formats, operation, runtime_weights, search, shared, trials, units, whole',
    ),
    "no formats": (
        ', formats=dict.fromkeys("xwy", fixed8)', "", "@target.accelerates", f"accelerates(…) of {DENSE} must be given formats",
        'write it as axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", format_of_magnitude)',
    ),
    "a tensor without a format": (
        '"xwy"', '"xw"', "@target.accelerates", f"the formats of {DENSE} must give y a format, not only x, w",
        'add "y" to its `formats`, or to `derived` if it follows from others',
    ),
    "axes of no parameter": (
        "; w: n k;", "; v: n k;", "@target.accelerates", f"the axes of {DENSE} name v, which is no parameter of dense",
        'write "x: …; w: …; y: …": operands, and results last',
    ),
    "axes without a colon": (
        '"x: t k;', '"x t k;', "@target.accelerates",
        f'the axes of {DENSE} must be a tensor, a colon and its axes, as "x: t k", not "x t k"',
        'write "x: …; w: …; y: …": operands, and results last',
    ),
    "a forgotten return of the meaning": (
        "return o.dense(x, w), Where", "o.dense(x, w), Where", "@target.accelerates",
        f"The meaning of {DENSE} must return its result and, last, Where(…), not None", RETURN,
    ),
}  # fmt: skip
BUILT = {
    "a misspelt state": (
        "m.s.length[()]", "m.s.lenght[()]", '@m.instruction("dot"', 'toy has no state "lenght"',
        'did you mean "length"? states: x, w, y, length, shift',
    ),
    "a parameter that is no field": (
        "def dot(first, to)", "def dot(first, dest)", '@m.instruction("dot"',
        f"{DOT} must take its operands by name, first, to, not first, dest",
        "give a parameter the name of its bit field, or the field that of its parameter",
    ),
    "a forgotten return of an instruction": (
        "return assign(y, wrap", "assign(y, wrap", '@m.instruction("dot"',
        f"{DOT} must return its update, the array of a read, or both, not None",
        "end the function with `return update(…)` or `return assign(…)`, or with the array that a read gives",
    ),
    "a forgotten return of the model": ("    return m\n", "", "def build", "The model of a target must return an Ila, not None", RETURN),
    "fields that share bits": (
        CONFIG, '"6:0 length, 12:4 shift"', 'm.config("config"', "length and shift of config of toy must not share bits of data",
        "give each operand bits of its own in the word",
    ),
    "fields without a comma": (
        CONFIG, '"6:0 length 12:8 shift"', 'm.config("config"',
        'a field must be written as in "19 relu" or "15:0 signed bias", not "6:0 length 12:8 shift"', "put a comma before 12:8",
    ),
    "fields without bits": (
        CONFIG, '"length, shift"', 'm.config("config"',
        'a field must be written as in "19 relu" or "15:0 signed bias", not "length"',
        'write its bits first: "0 length", or widths alone: layout(0, length=1)',
    ),
    "bits with a dash": (
        CONFIG, '"6-0 length, 12:8 shift"', 'm.config("config"',
        'a field must be written as in "19 relu" or "15:0 signed bias", not "6-0 length"',
        'bits, a space and a name; for example "12:8 shift, 7 relu, 6:0 signed bias"',
    ),
    "a field twice": (
        CONFIG, '"6:0 length, 12:8 length"', 'm.config("config"',
        "field length is given twice", "give each field of a word a name of its own",
    ),
    "a value's name twice": (
        CONFIG, '"6:0 length A|A, 12:8 shift"', 'm.config("config"', 'the names of field length must be different values, not "A|A"',
        "write A=0|B=1, each name and each number once",
    ),
    "more names than values": (
        CONFIG, '"6:0 length, 8:8 shift A|B|C"', 'm.config("config"', "C of field shift must be in 0…1, not 2",
        "give the field 2 bits, or the name a smaller value",
    ),
    "fields that are a number": (
        CONFIG, "12", 'm.config("config"',
        "the fields of a word must be a text, not 12", 'for example "12:8 shift, 7 relu, 6:0 signed bias"',
    ),
    "a width that is a text": (
        "(size, LANES), 8) for", '(size, LANES), "8") for', "x, w, y = ",
        "the bits of the state \"x\" of toy must be a whole number, not '8'",
        "give a number of 1 or more",
    ),
}  # fmt: skip
# mistake → text, what stands there instead, what the judgement says
JUDGED = {
    "a forgotten return of the limits": (
        '    return (\n        Limit("rows"', '    _ = (\n        Limit("rows"',
        rf"The limits of toy\.dense must return Limits \(at t=1, k=8, n=1\), not None at \S+toy\.py:56; {re.escape(RETURN)}",
    ),
    "one limit that is in no tuple": (
        "return (\n        Limit(\"rows\", t, 1),", "return Limit(\"rows\", t, 1)\n    _ = (",
        r"not a Limit at \S+toy\.py:56; return a tuple of them, \(…,\): this is a single Limit",
    ),
    "a forgotten return of the numerics": (
        "return array(lambda t, n", "array(lambda t, n",
        rf"The numerics of toy\.dense must return an array .*, not None at \S+toy\.py:72; {re.escape(RETURN)}",
    ),
    "a forgotten return of the driver": (
        "return ((lanes", "((lanes", rf"The driver of toy\.dense must return an array .*, not None at \S+toy\.py:79; {re.escape(RETURN)}",
    ),
    "a limit in halves": (
        'Limit("rows", t, 1)', 'Limit("rows", t / 1, 1)',
        r"Need of the capacity rows must be a whole number, not 1\.0 at \S+toy\.py:61; divide with // for whole numbers",
    ),
    "a limit without a name": (
        'Limit("rows", t, 1)', "Limit(t, 1, 1)",
        r'The name of a capacity must be a text, not 1 at \S+toy\.py:61; write Limit\("rows", t, 64\)',
    ),
    "codes in another order of axes": (
        "[..., None, :]", "[..., :, None]",
        r"an array of shape \(5, 1\), its numerics one of \(1, 5\) at \S+toy\.py:79; return the codes in the order of the axes",
    ),
    "a misspelt operand of an instruction": (
        "first=n * length", "frist=n * length", r'dot has no operand "frist" at \S+toy\.py:87; did you mean "first"\? operands: first, to',
    ),
    "an operand that is left out": (
        "first=n * length, ", "",
        r"driver and numerics differ at t=1, k=24, n=5; the driver gives no value, which means 0, for first of dot",
    ),
    "numerics with another parameter": (
        "def codes(x, w, f)", "def codes(x, w, g)",
        r"missing 1 required positional argument: 'g' at \S+toy\.py:72; it is called with x, w, and those of f, p that it names",
    ),
    "a format of a text": ("Fixed(8, 7 - math.frexp(largest)[1])", 'Fixed(8, "7")',
        r"needs a whole number of fraction bits, not '7' at \S+toy\.py:46"),
}  # fmt: skip


def with_mistake(folder: Path, old: str, new: str) -> tuple[Path, str]:
    """Return the tutorial's file with a text put in place of another one, and its text."""
    page = re.search(r"```python file=toy.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert page is not None
    assert page[1].count(old) == 1
    path = folder / "toy.py"
    path.write_text(page[1].replace(old, new), "utf-8")
    return path, path.read_text("utf-8")


@pytest.mark.parametrize("mistake", [*LOADED, *BUILT])
def test_a_mistake_in_a_declaration(mistake: str, tmp_path: Path) -> None:
    old, new, line, sentence, remedy = {**LOADED, **BUILT}[mistake]
    path, text = with_mistake(tmp_path, old, new)
    with pytest.raises(FlexmatchError) as refusal:
        load_target(str(path)).ila()
    problem = refusal.value.problem
    number = text[: text.index(line)].count("\n") + 1
    assert re.fullmatch(rf"{re.escape(str(path))}:{number}( in dot)?", problem.place)
    assert (problem.sentence, problem.help) == (sentence, remedy)


@pytest.mark.parametrize("mistake", JUDGED)
def test_a_mistake_in_a_function(mistake: str, tmp_path: Path) -> None:
    old, new, evidence = JUDGED[mistake]
    path, _ = with_mistake(tmp_path, old, new)
    target = load_target(str(path))
    proof = prove_mapping(target.mappings["dense"], target.ila())
    assert not proof.is_proved
    assert re.search(evidence, proof.evidence), proof.evidence


def test_check_names_operands_that_are_left_out_too(tmp_path: Path) -> None:
    path, _ = with_mistake(tmp_path, "first=n * length, ", "")
    sentences = [p.sentence for p in check_target(load_target(str(path))).problems]
    assert any("the driver gives no value, which means 0, for first of dot" in s for s in sentences), sentences
