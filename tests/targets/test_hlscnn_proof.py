"""HLSCNN convolutions for all codes: on z3 integers the instruction stream gives the numerics, at small sizes.

Words travel as bytes. That bytes give their word back is a lemma, proved for one variable and then used for every word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import z3

from rewrite_compiler.ila_models.hlscnn import REVISIONS, build
from rewrite_compiler.ila_models.hlscnn.revisions import choose
from rewrite_compiler.lang import array, leaf, signed
from rewrite_compiler.prove.mappings.symbolic_device import SymbolicDevice
from rewrite_compiler.readings.smt.evaluator import SymbolicEvaluator, fresh_variables, interval_constraints, prove_equal
from rewrite_compiler.targets.hlscnn import Geometry, act_vectors, conv2d_codes, drive_conv2d, operands_of, results

SMALL = {"soc_bytes": 1024, "spad_bytes": 512}
WORD = leaf("word", (), (-(1 << 15), (1 << 15) - 1))
BYTES = leaf("bytes", (2,), (0, 255))


def rebuilt(word: Any, size: int) -> Any:
    """Return what the model reads where the driver wrote `word`."""
    whole = np.zeros((8, 1, 1), object)
    whole[0, 0, 0] = word
    parts = act_vectors(whole, Geometry(8, 1, 1, 1, (1, 1)))[0, :2]
    term = signed(BYTES[0] + (BYTES[1] << 8), 16) if size == 2 else signed(BYTES[0], 8)
    return SymbolicEvaluator({BYTES: parts}).array(array(lambda: term, ())).flat[0]


@pytest.mark.parametrize("size", [1, 2])
def test_bytes_give_their_word_back(size: int) -> None:
    word = fresh_variables("v", (1,))
    half = 1 << 8 * size - 1
    inside = interval_constraints(word, (-half, half - 1))
    assert prove_equal([(rebuilt(word[0], size), word[0])], inside, 20.0).outcome == "proved"
    beyond = interval_constraints(word, (-half, half))
    assert prove_equal([(rebuilt(word[0], size), word[0])], beyond, 20.0).outcome == "refuted"


def read_back(word: Any) -> Any:
    """Return what the driver reads where the model wrote `word`, which is a 16-bit one."""
    parts = SymbolicEvaluator({WORD: np.array(word, object)}).array(array(lambda n: (WORD[()] >> 8 * n) % 256, 2))
    lanes = np.zeros((1, 16), object)
    lanes[0, :2] = parts
    return results(lanes, Geometry(8, 1, 1, 1, (1, 1)), REVISIONS["ext8"]).flat[0]


def test_a_result_gives_its_word_back() -> None:
    word = fresh_variables("v", (1,))
    assert prove_equal([(read_back(word[0]), word[0])], interval_constraints(word, WORD.interval), 20.0).outcome == "proved"


LAYERS = {
    "two blocks": Geometry(9, 1, 1, 2, (1, 1)),
    "two taps": Geometry(8, 2, 1, 1, (2, 1), bias=-9, relu=True),
    "blocks, taps, rows and strides": Geometry(16, 4, 2, 2, (3, 2), (1, 2)),
}


def both(revision: str, g: Geometry, claimed: Geometry) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Return pairs of result terms of driver (on `g`) and numerics (of `claimed`), and the ranges of the codes."""
    p, ila = choose(revision, SMALL), build(revision=revision, **SMALL)
    x, w = fresh_variables("x", (g.channels, g.rows, g.cols)), fresh_variables("w", (g.filters, g.channels, *g.kernel))
    xs, ws = operands_of(g, p)
    found = drive_conv2d(SymbolicDevice(ila), x, w, g, p)
    expected = SymbolicEvaluator({xs: x, ws: w}).array(conv2d_codes(xs, ws, claimed, p))
    lemmas = [(rebuilt(v, size), v) for data, size in ((x, 2), (w, p.weight_bits // 8)) for v in data.flat]
    pairs = [(z3.simplify(z3.substitute(a, *lemmas)), z3.simplify(read_back(b))) for a, b in zip(found.flat, expected.flat, strict=True)]
    return pairs, [*interval_constraints(x, xs.interval), *interval_constraints(w, ws.interval)]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_driver_is_the_numerics(layer: str, revision: str) -> None:
    pairs, ranges = both(revision, LAYERS[layer], LAYERS[layer])
    assert prove_equal(pairs, ranges, 60.0).outcome == "proved"


def test_wrong_numerics_are_refuted() -> None:
    """Another bias is another function: the proof above is not empty."""
    layer = LAYERS["two taps"]
    pairs, ranges = both("ext8", layer, Geometry(8, 2, 1, 1, (2, 1), bias=900, relu=True))
    assert prove_equal(pairs, ranges, 60.0).outcome == "refuted"
