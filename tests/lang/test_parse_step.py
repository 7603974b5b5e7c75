"""Steps are read back from what is shown of them; what cannot be read is named by its line."""

from __future__ import annotations

import pytest
from test_text import STEPS, N, X, numbered

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import flexasr, hlscnn, vta
from rewrite_compiler.lang import Leaf, array, assign, fold, let, minimum, require, select, seq, update, when
from rewrite_compiler.lang.binders import Array
from rewrite_compiler.lang.printer import show_step
from rewrite_compiler.lang.step import Step
from rewrite_compiler.lang.step_parser import leaves_and_tables, parse_step
from rewrite_compiler.readings.oracle.emit_python import StepFunction

M, K = Leaf((8,), (0, 255), False, "m"), Leaf((), (0, 7), False, "k")


@pytest.mark.parametrize(("step", "text"), STEPS, ids=[text.splitlines()[0] for _, text in STEPS])
def test_shown_steps_are_read_back(step: Step, text: str) -> None:
    assert numbered(show_step(parse_step(show_step(step), {"x": X, "n": N}))) == text


@pytest.mark.parametrize("model", [hlscnn.build(revision="ext8"), vta.build(), flexasr.build()], ids=lambda m: m.name)
def test_instructions_of_shipped_models_are_read_back(model: Ila) -> None:
    for instruction in model.instructions.values():
        shown = show_step(instruction.update)
        assert numbered(show_step(parse_step(shown, *leaves_and_tables(instruction.update)))) == numbered(shown), instruction.name


def test_folds_of_one_length_are_told_apart() -> None:
    sums = [fold(3, 0, lambda k, a, n=n: minimum(a + M[k] * n, 4000), (0, 4000)) for n in (1, 2)]
    step = update(Leaf((2,), (0, 8000), False, "s"), 2, lambda i: (i, select(i == 0, sums[0], sums[1])))
    assert numbered(show_step(parse_step(show_step(step), *leaves_and_tables(step)))) == numbered(show_step(step))


def test_two_leaves_of_one_name_cannot_be_told_apart() -> None:
    twin = Leaf((), (0, 7), False, "m")
    with pytest.raises(SpecError) as refusal:
        leaves_and_tables(assign(K, twin[()] & M[0] & 7))
    assert refusal.value.problem.sentence == "two leaves of a step are called m"


def test_a_step_that_is_read_does_the_same() -> None:
    program = seq(
        require(K[()] < 7, "I103", "n is {n}, at most 6", n=K[()]),
        let(update_of_doubles(), lambda d: when(K[()] > 2, update(M, 8, lambda i: (7 - i, d[i])), assign(M, 9, K[()]))),
    )
    found = parse_step(show_step(program), {"m": M, "k": K})
    assert numbered(show_step(found)) == numbered(show_step(program))
    for n in range(8):
        wanted, got = (outcome(s, n) for s in (program, found))
        assert wanted == got


def update_of_doubles() -> Array:
    return array(lambda i: minimum(M[i] * 2, 255), 8)


def outcome(step: Step, n: int) -> object:
    contents: dict[Leaf, list[int]] = {M: list(range(0, 200, 25)), K: [n]}
    function = StepFunction(step, strict=True)
    try:
        function([contents[leaf] for leaf in function.memories])
    except SpecError as refusal:
        return refusal.problem.sentence
    return contents[M]


@pytest.mark.parametrize(
    ("text", "sentence", "place"),
    [
        ("m[0] := 300", "m holds values in 0…255, not 300…300", "line 1"),
        ("m[0] := 1\nk := q", "q is not known in 'k := q'", "line 2"),
        ("m[0] = 1", "'m[0] = 1' is no step", "line 1"),
        ("when k[] < 3:\n      m[0] := 1", "a line is indented by a multiple of four spaces", "line 2"),
        ("m[0] := 1\n        m[1] := 2", "the line is indented more than the block it stands in", "line 2"),
        ("require k[] < 5: no code", "'k[] < 5: no code' has no diagnostic: a condition, a colon, a code and a sentence", "line 1"),
        ("m[0] := (1", "'(1' is not a whole term: it ends too early", "line 1"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, sentence: str, place: str) -> None:
    with pytest.raises(SpecError) as refusal:
        parse_step(text, {"m": M, "k": K})
    assert (refusal.value.problem.sentence, refusal.value.problem.place) == (sentence, place)
