"""Flaws planted in the text of a target's numerics: attribution names the line first, and nothing where no single change explains it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from house import ROOT

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verbs.repair import lines as repair_lines
from rewrite_compiler.cli.verbs.repair import remedy_in
from rewrite_compiler.compile import Offload, Plan, calibrated, calibrated_within_range, compile_model
from rewrite_compiler.cosim.metrics.loss_bound import band_of
from rewrite_compiler.cosim.metrics.metrics import metric_of
from rewrite_compiler.data import Dataset, samples_for
from rewrite_compiler.ila_models.flexasr import numerics
from rewrite_compiler.lang import Array, Expr, Leaf, Table, array, clamp, fold, maximum, reduce_sum, sat, select, signed, switch
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.arrays.evaluator import table_data
from rewrite_compiler.readings.kernels.evaluate import evaluate_together
from rewrite_compiler.readings.kernels.format_conversion import values_of
from rewrite_compiler.report.terminal import attribution_texts
from rewrite_compiler.study.diagnosis.attribution import attribute, explains
from rewrite_compiler.study.diagnosis.repair import repair
from rewrite_compiler.study.diagnosis.term_candidates import leaves_of, numerics_of
from rewrite_compiler.study.diagnosis.trials import Trial, Trials
from rewrite_compiler.study.numerics.edits import OTHER_BRANCH, SourceTerms, edited, edits_of, result_edits
from rewrite_compiler.study.numerics.exact_tables import approximation, exact_table, odd_entries
from rewrite_compiler.study.numerics.rewriting import Rewriter
from rewrite_compiler.study.numerics.source_places import with_places
from rewrite_compiler.study.numerics.watch import watch
from rewrite_compiler.target import load_target
from rewrite_compiler.targets.flexasr import linear

MLP = find_application("digits_mlp")
PAGE = (ROOT / "docs/tutorial/first-accelerator.md").read_text("utf-8")
TOY = re.findall(r"```python file=toy.py\n(.*?)```", PAGE, re.DOTALL)[0]
Edits = Sequence[tuple[str, str]]
FLAWS: dict[str, tuple[str, str, Edits]] = {  # what the culprit's term begins with, the field, and the flaw
    "accumulator of 13 bits": ("sat(acc", "width", [("1 << 19", "1 << 12"), ("LANES), 20)", "LANES), 13)")]),
    "accumulator that wraps": ("wrap(acc", "width", [("1 << 19", "1 << 13"), ("sat(acc", "wrap(acc"), ("LANES), 20)", "LANES), 14)")]),
    "shift by one more": ("(total", "shift", [(">> shift, 8)", ">> (shift + 1), 8)")]),
    "shift by one less": ("(total", "shift", [(">> shift, 8)", ">> (shift - 1), 8)")]),
    "no clamp": ("wrap((total", "overflow", [("return sat((total", "return wrap((total")]),
    "a constant taken off": ("total - 9000", "constant", [("return sat((total +", "return sat((total - 9000 +")]),
    "stale state": ("fold(", "start", [("fold(length, 0,", "fold(length, 4000,")]),
}  # fmt: skip


def toy_with(folder: Path, edits: Edits) -> Path:
    text = TOY
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "toy.py").write_text(text)
    return folder / "toy.py"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Return the plan of three layers on the machine as the tutorial has it."""
    return compile_model(MLP.model, [load_target(str(toy_with(tmp_path_factory.mktemp("sound"), [])))])


def planted(plan: Plan, folder: Path, edits: Edits, scale: float = 1.0) -> tuple[Plan, Dataset]:
    """Return the plan on a flawed machine, without asking the court, and samples; formats are calibrated on scaled inputs."""
    machine = load_target(str(toy_with(folder, edits)))
    offloads = tuple(replace(o, target=machine, mapping=machine.mappings[o.mapping.variant]) for o in plan.offloads)
    formats = samples_for(plan.source, MLP.calibration)
    inputs = {n: x * np.float32(scale) for n, x in formats.inputs.items()}
    flawed = calibrated(replace(plan, offloads=offloads), inputs, "calibration", formats.sha256)
    return flawed, samples_for(plan.source, MLP.data).evenly(48)


@pytest.mark.parametrize("name", FLAWS)
def test_the_line_of_a_planted_flaw_is_named_first(name: str, sound: Plan, tmp_path: Path) -> None:
    term, field, edits = FLAWS[name]
    plan, data = planted(sound, tmp_path, edits, 0.75 if name == "no clamp" else 1.0)  # a word overflows where the calibration saw less
    trials = Trials(plan, data, metric_of("cosine"))
    assert trials.run(plan).loss > 0.01
    document = attribute(plan, trials)
    culprit = document["culprit"]
    assert culprit is not None
    assert culprit["term"].startswith(term), culprit
    assert culprit["field"] == field
    line = int(culprit["place"].removeprefix("toy.py:"))
    assert edits[-1][1] in (tmp_path / "toy.py").read_text().splitlines()[line - 1]
    assert document["terms"][0]["recovered_loss"] >= document["share"]
    assert attribution_texts(document)[-1].startswith(f"culprit: {culprit['field']} at toy.py:{line}, ")


def test_two_shifts_in_series_mend_one_another_and_both_are_named(sound: Plan, tmp_path: Path) -> None:
    whole = "return sat((total + ((lift(1) << shift) >> 1)) >> shift, 8)"
    plan, data = planted(sound, tmp_path, [(whole, "less = total >> 2\n    return sat(less >> (shift - 1), 8)")])  # one bit too many
    document = attribute(plan, Trials(plan, data, metric_of("cosine")))
    text = (tmp_path / "toy.py").read_text().splitlines()
    places = {f"toy.py:{n}" for n, line in enumerate(text, 1) if "less = total" in line or "less >>" in line}
    assert {c["place"] for c in document["either"]} == places
    assert {(c["field"], c["after"]) for c in document["either"]} == {("shift", "one bit less")}
    assert (document["culprit"], document["explanation"]) == (None, "either of several changes explains it")
    answer = attribution_texts(document)[-1]
    assert answer.startswith("culprit: either of shift at toy.py:")
    assert all(place in answer for place in places)


def narrow_core_word(codes: Callable[[Expr], tuple[Expr, Expr]], count: int, shift: int, bias: Expr) -> Expr:
    """FlexASR's core with sums that wrap at 22 bits instead of 32."""
    total = reduce_sum(lambda k: linear.decoded(codes(k)[0]) * linear.decoded(codes(k)[1]), count)
    return clamp((signed(total, 22) >> shift) + bias, 1 - (1 << 19), (1 << 19) - 1)


def test_a_narrow_accumulator_is_named_behind_operands_that_are_scaled_because_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands times powers of two keep the sums in their word and lose digits: no edit mends that unless the operands are as they are."""
    plan = compile_model(MLP.model, "flexasr")
    monkeypatch.setattr(linear, "core_word", narrow_core_word)

    def narrow(o: Offload) -> Offload:
        numerics = functools.wraps(o.mapping.codes)(lambda *x, **given: o.mapping.codes(*x, **given))  # its terms are not in a cache
        return replace(o, mapping=replace(o.mapping, codes=numerics))

    flawed = calibrated_within_range(replace(plan, offloads=tuple(map(narrow, plan.offloads))), MLP.calibration)
    assert len(flawed.settings["scaled"]) == 3
    trials = Trials(flawed, samples_for(plan.source, MLP.data).evenly(48), metric_of("cosine"))
    assert trials.run(flawed).loss > 0.02
    document = attribute(flawed, trials)
    culprit = document["culprit"]
    assert culprit is not None
    assert (culprit["term"], culprit["field"], culprit["before"]) == ("signed(total, 22)", "width", "22 bits that wrap")
    assert 22 < int(culprit["after"].split()[0]) <= 27
    assert len(culprit["unscaled"]) == 3
    assert attribution_texts(document)[-1].endswith("on operands that are not scaled")


def test_a_bias_with_which_results_are_encoded_is_no_fault_of_the_shift_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes with exponents: an edit of what encodes them doubles or halves all results, as a shift before it does."""
    plan = compile_model(MLP.model, "flexasr", calibrate=MLP.calibration)
    o = plan.offloads[-1]
    w = numerics_of(o)
    twice, half, limit = result_edits(w, [o.formats["y"]])
    assert {(e.aspect, Path(e.place.file).name) for e in (twice, half)} == {("bias", "numerics.py")}
    codes = {n: np.random.default_rng(3).integers(0, 256, (1, *leaf.shape)) for n, leaf in leaves_of(o).items()}

    def results(offload: Offload) -> np.ndarray:
        leaves = list(leaves_of(o).values())
        (y,) = evaluate_together(
            offload.mapping.result_codes(leaves, o.formats, dict(o.node.attributes)), {leaf: codes[leaf.name] for leaf in leaves}
        )
        return values_of(o.formats["y"], y)

    expected, doubled, halved, limited = (results(x) for x in (o, edited(o, twice), edited(o, half), edited(o, limit)))
    assert np.array_equal(limited, np.maximum(expected, 0))
    largest, least = float(o.formats["y"].largest), float(o.formats["y"].unit) * 17
    assert np.array_equal(doubled, np.clip(2 * expected, -largest, largest))
    assert np.array_equal(halved, np.where(np.abs(expected) / 2 < least, 0, expected / 2))

    monkeypatch.setattr(linear, "encode", lambda x, bias: numerics.encode(x, bias + 1))
    document = attribute(plan, Trials(plan, samples_for(plan.source, MLP.data).evenly(48), metric_of("max-relative-error")))
    named = [c["field"] for c in ([document["culprit"]] if document["culprit"] else document["either"])]
    assert not named or "bias" in named
    assert "bias" in {term["field"] for term in document["terms"]}


def test_two_flaws_are_no_single_culprit(sound: Plan, tmp_path: Path) -> None:
    edits = [*FLAWS["accumulator of 13 bits"][2], *FLAWS["stale state"][2]]
    plan, data = planted(sound, tmp_path, edits)
    document = attribute(plan, Trials(plan, data, metric_of("cosine")))
    assert (document["culprit"], document["either"]) == (None, [])
    assert document["terms"]
    assert document["explanation"] == "no single change explains it" == attribution_texts(document)[-1]


FIXED8 = "lambda largest: Fixed(8, 7 - math.frexp(largest)[1])"
FORMAT_FLAWS: dict[str, tuple[str, Edits]] = {  # the tensors of the culprit, and the flaw
    "of all tensors": ("x, w, y", [(FIXED8, FIXED8.replace("7", "10"))]),
    "of one tensor": ("x", [('dict.fromkeys("xwy", fixed8)', f'{{"x": {FIXED8.replace("7", "11")}, "w": fixed8, "y": fixed8}}')]),
}


@pytest.mark.parametrize("name", FORMAT_FLAWS)
def test_a_binary_point_that_is_wrong_in_all_offloads_is_named_once_for_all(name: str, sound: Plan, tmp_path: Path) -> None:
    """Restoring one offload takes back a part of the loss only; calibration chooses the wrong one again."""
    tensors, edits = FORMAT_FLAWS[name]
    plan, data = planted(sound, tmp_path, edits)
    trials = Trials(plan, data, metric_of("cosine"))
    assert trials.run(plan).loss > 0.02
    document = attribute(plan, trials)
    culprit = document["culprit"]
    assert culprit is not None, document["either"]
    assert (culprit["tensor"], culprit["field"]) == (tensors, "fraction")
    assert {*culprit["offloads"]} == {o.id for o in plan.offloads}
    assert document["explanation"] == "culprit"
    assert attribution_texts(document)[-1].startswith(f"culprit: fraction of {tensors} of {culprit['offload']} and 2 more: ")


def test_a_culprit_explains_the_loss_on_samples_on_which_it_was_not_ranked(sound: Plan, tmp_path: Path) -> None:
    """Changes are ranked on every other sample; one that mends those alone, and most of all samples' loss by that, is not named."""
    plan, data = planted(sound, tmp_path, [])
    trials = Trials(plan, data, metric_of("cosine"))
    reference = trials.run(plan)

    def trial(of_ranked: float, of_others: float) -> Trial:
        values = np.where(np.arange(48) % 2, of_others, of_ranked)
        loss = float(trials.value - values.mean())
        return replace(reference, value=float(values.mean()), loss=loss, scores=replace(reference.scores, values=values))

    device = trial(0.5, 0.5)
    chance, cause = trial(1.0, 0.83), trial(1.0, 0.95)
    assert (device.loss - chance.loss) / device.loss > 0.8
    assert not explains(trials, device, chance)
    assert explains(trials, device, cause)


def test_halves_of_a_trial_make_the_whole(sound: Plan, tmp_path: Path) -> None:
    plan, data = planted(sound, tmp_path, [])
    trials = Trials(plan, data, metric_of("cosine"))
    whole = trials.run(plan)
    first, second = (trials.on(whole, np.arange(data.count)[start::2]) for start in (0, 1))
    assert (first.value + second.value) / 2 == pytest.approx(whole.value)
    assert (first.loss + second.loss) / 2 == pytest.approx(whole.loss)
    errors, sizes = (sum(float(t.squares[row].sum()) for t in (first, second)) for row in (0, 1))
    assert whole.error == pytest.approx((errors / sizes) ** 0.5)
    assert first.error != second.error


@pytest.mark.parametrize("scale", [1e9, 0.125, 1e-9, 0.0])
def test_formats_of_other_samples_are_told_from_flaws(scale: float, sound: Plan, tmp_path: Path) -> None:
    """On samples of other magnitudes than those of the calibration all codes are zeros, or saturate; no single format is to blame."""
    plan, data = planted(sound, tmp_path, [], scale)
    document = attribute(plan, Trials(plan, data, metric_of("cosine")))
    assert (document["culprit"], document["either"], document["explanation"]) == (None, [], "the number formats fit other samples")
    assert document["recalibrated"]["loss"] < 0.02 < document["accelerated"]["loss"]
    assert attribution_texts(document)[-1].startswith(
        "the number formats fit other samples: those that calibration on these chooses leave loss 0.0"
    )


def test_a_sound_machine_has_no_culprit(sound: Plan, tmp_path: Path) -> None:
    plan, data = planted(sound, tmp_path, [])
    document = attribute(plan, Trials(plan, data, metric_of("top1")))
    assert (document["culprit"], document["accelerated"]["loss"]) == (None, 0)
    assert document["explanation"] == "there is no loss"


def test_terms_inside_of_folds_and_tables_are_rewritten_with_their_ranges() -> None:
    x = Leaf((6,), (-128, 127), False, "x")
    codes = np.array([-128, -127, -3, 0, 5, 127])
    table = Table("half", lambda c: c >> 1, (-128, 127))

    def elements(a: Array) -> list[int]:
        return [int(y) for y in evaluate_together(a, {x: codes[None]})[0]]

    a, places = with_places(lambda: array(lambda i: fold(4, 0, lambda k, acc: sat(acc + table(x[i]), 8), 8), 6))
    assert elements(a) == [-128, -128, -8, 0, 8, 127]
    wide = Rewriter({e: lambda e, args: args[0] for e in places.of_terms if e.op in ("min", "max")})
    assert elements(wide.array(a)) == [int(c >> 1) * 4 for c in codes]
    quarter = Rewriter({table.body: lambda e, args: args[0] >> 2})
    assert elements(quarter.array(a)) == [max(-128, min(127, int(c >> 2) * 4)) for c in codes]


def test_a_place_is_the_expression_of_the_file_that_asked_for_the_term() -> None:
    x = Leaf((4, 8), (-128, 127), False, "x")
    term, places = with_places(lambda: signed(reduce_sum(lambda k: x[0, k] * x[1, k], 8), 12))
    (place,) = places.of_terms[term]
    assert place.text == "signed(reduce_sum(lambda k: x[0, k] * x[1, k], 8), 12)"
    assert str(place).startswith("test_planted_terms.py:")
    products = [places.of_terms[e][0].text for e in places.of_terms if e.op == "mul"]
    assert products == ["x[0, k] * x[1, k]"]


def test_a_select_that_a_constant_decides_keeps_its_place_and_its_other_branch() -> None:
    """Swapped in both of its uses at once, where one is a part of the other, and inside of a fold."""
    x = Leaf((4,), (-128, 127), False, "x")

    def step(total: Expr, is_relu: int) -> Expr:
        return select(is_relu, total, maximum(total, 0))

    results, places = with_places(
        lambda: array(lambda: step(x[0], 1) + step(x[0], 0) * 1000 + fold(2, 0, lambda k, t: step(sat(t + x[k], 9), 1), 9), ())
    )
    terms = SourceTerms((results,), places.of_terms, tuple(e for e in terms_of(results.body) if e.reads), places.other_branches)
    (swap,) = [e for e in edits_of(terms) if e.key == OTHER_BRANCH]
    assert swap.place.text == "select(is_relu, total, maximum(total, 0))"
    codes = np.array([[-7, 3, 0, 0], [5, -9, 0, 0]])
    sound, swapped = (evaluate_together(a, {x: codes}).tolist() for a in (results, terms.rewriter(swap, inlines=False).array(results)))
    assert sound == [-7 - 4, 5 + 5000 - 4]
    assert swapped == [0 - 7000 + 3, 5 + 5000 + 0]


def test_tables_are_recognised_although_some_entries_are_wrong() -> None:
    right = [round(128 * float(np.tanh(c / 16))) for c in range(-32, 32)]
    wrong = list(right)
    wrong[40] -= 50
    table = Table("curve", lambda c: switch(c + 32, *wrong), (-32, 31))
    known = approximation(table)
    assert known is not None
    assert (known.function, known.point, known.scale) == ("tanh", 4, 7)
    ((at, value, usual),) = odd_entries(table)
    assert (at, value) == (8, wrong[40])
    assert abs(usual - right[40]) <= 8
    assert [int(y) for y in table_data(exact_table(table))] == right
    square = Table("square", lambda c: (c * c) >> 7, (-128, 127))
    assert approximation(square) is None
    assert odd_entries(square) == ()
    assert exact_table(square) is square


def test_intermediates_are_watched_step_by_step() -> None:
    """Against plain Python: sums before the accumulator limits them, at every step, and the shift after the last."""
    random = np.random.default_rng(5)
    x, w = Leaf((6, 4), (-128, 127), False, "x"), Leaf((3, 6, 4), (-128, 127), False, "w")
    xs, ws = random.integers(-128, 128, (5, 6, 4)), random.integers(-128, 128, (3, 6, 4))

    def total(n: Expr) -> Expr:
        return fold(6, 0, lambda v, acc: sat(acc + reduce_sum(lambda j: x[v, j] * w[n, v, j], 4), 16), 16) >> 5

    results, places = with_places(lambda: array(total, 3))
    terms = SourceTerms((results,), places.of_terms, tuple(e for e in terms_of(results.body) if e.reads))
    rows = {row.kind: row for row in watch(terms, {x: xs}, {w: ws})}
    before, products, ends = [], [], []
    for sample in xs:
        for weights in ws:
            acc = 0
            for v in range(6):
                products.append(int(np.dot(sample[v], weights[v])))
                before.append(acc + products[-1])
                acc = max(-(1 << 15), min((1 << 15) - 1, before[-1]))
            ends.append(acc)
    limited = rows["saturates"]
    assert (limited.low, limited.high, limited.count) == (min(before), max(before), len(before))
    assert limited.outside == sum(not -(1 << 15) <= b < 1 << 15 for b in before) > 0
    assert limited.word == (-(1 << 15), (1 << 15) - 1)
    assert (rows["sum"].low, rows["sum"].high) == (min(products), max(products))
    assert (rows["fold"].low, rows["fold"].high, rows["fold"].count) == (min(ends), max(ends), len(ends))
    assert (rows["shift"].low, rows["shift"].high) == (min(ends) >> 5, max(ends) >> 5)
    assert limited.bits == max(max(before), -min(before) - 1).bit_length() + 1


def test_terms_of_one_line_and_one_word_are_one_row() -> None:
    """What is at an end of the word is within it."""
    x = Leaf((3,), (-128, 127), False, "x")
    results, places = with_places(lambda: array(lambda i: sum(sat(x[i] + by, 4) for by in (0, 5)), 3))
    terms = SourceTerms((results,), places.of_terms, tuple(e for e in terms_of(results.body) if e.reads))
    for codes in ([-8, 2, 7], [-14, -9, 1], [-20, 30, 40]):
        both = [code + by for code in codes for by in (0, 5)]
        (row,) = [r for r in watch(terms, {x: np.array([codes])}, {}) if r.kind == "saturates"]
        assert (row.low, row.high, row.count) == (min(both), max(both), 6)
        assert row.outside == sum(not -8 <= y <= 7 for y in both)


def test_the_width_that_suffices_and_the_intermediates_are_in_the_document(sound: Plan, tmp_path: Path) -> None:
    plan, data = planted(sound, tmp_path, FLAWS["accumulator of 13 bits"][2])
    document = attribute(plan, Trials(plan, data, metric_of("cosine")))
    bits = int(document["culprit"]["after"].removesuffix(" bits"))
    assert 13 < bits <= 20
    worst = max(document["intermediates"], key=lambda row: row["outside"])
    assert (worst["kind"], worst["place"], worst["word"]) == ("saturates", document["culprit"]["place"], [-4096, 4095])
    assert any("leave -4,096 … 4,095; range" in line for line in attribution_texts(document))


def test_repair_proposes_the_term_where_no_format_helps(sound: Plan, tmp_path: Path) -> None:
    plan, data = planted(sound, tmp_path, FLAWS["stale state"][2])
    document = repair(plan, data, metric_of("cosine"), band_of("0.005")).document
    best = document["specification"][0]
    assert best["what"].startswith("start at toy.py:")
    assert (best["kind"], best["verify"]["within"], best["distinguishable"]) == ("term", True, True)
    assert any(row.startswith("or in") for row in repair_lines(document))
    assert remedy_in(document).startswith("make the change of the specification")
    in_doubt = [{**p, "distinguishable": False} for p in document["specification"]]
    assert remedy_in({**document, "specification": in_doubt}).startswith("give more samples")
    assert remedy_in({**document, "specification": []}) == ""


def test_accumulators_of_folds_in_folds_are_watched() -> None:
    x = Leaf((6,), (-128, 127), False, "x")
    xs = np.random.default_rng(6).integers(-128, 128, (4, 6))
    results, places = with_places(lambda: array(lambda i: fold((2, 3), 0, lambda u, v, acc: sat(acc + x[u * 3 + v] * (i + 1), 9), 9), 2))
    terms = SourceTerms((results,), places.of_terms, tuple(e for e in terms_of(results.body) if e.reads))
    (row,) = [row for row in watch(terms, {x: xs}, {}) if row.kind == "saturates"]
    before = []
    for sample in xs:
        for i in range(2):
            acc = 0
            for v in range(6):
                before.append(acc + int(sample[v]) * (i + 1))
                acc = max(-256, min(255, before[-1]))
    assert (row.low, row.high, row.count) == (min(before), max(before), len(before))
    assert row.outside == sum(not -256 <= b < 256 for b in before) > 0


def test_a_line_that_says_two_words_has_a_row_for_each() -> None:
    """What leaves the narrow word is not said of the hull of both."""
    x = Leaf((2, 8), (-128, 127), False, "x")
    xs = np.random.default_rng(7).integers(-128, 128, (4, 2, 8))
    results, places = with_places(lambda: tuple(array(lambda i, n=n, b=b: sat(x[n, i] * 3, b), 8) for n, b in enumerate((7, 9))))
    terms = SourceTerms(results, places.of_terms, tuple(e for r in results for e in terms_of(r.body) if e.reads))
    rows = {row.word: row for row in watch(terms, {x: xs}, {}) if row.kind == "saturates"}
    for n, word in enumerate(((-64, 63), (-256, 255))):
        values = 3 * xs[:, n]
        assert rows[word].outside == np.count_nonzero((values < word[0]) | (values > word[1])) > 0
        assert (rows[word].low, rows[word].high) == (values.min(), values.max())
