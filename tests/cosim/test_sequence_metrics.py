"""Error rates of sequences: edits by hand, against a plain recursion, and with the decoding of CTC."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.cosim.metrics.edit_distance import edit_distance
from rewrite_compiler.cosim.metrics.metrics import METRICS
from rewrite_compiler.errors import InputError

TOKENS = st.lists(st.integers(0, 3), max_size=7)


def value(name: str, outputs: Any, targets: Any) -> float:
    metric = METRICS[name]
    return metric.value(metric.score(np.asarray(outputs), np.asarray(targets)))


def logits(tokens: Any, classes: int = 5) -> np.ndarray:
    return np.eye(classes)[np.asarray(tokens)]


@given(TOKENS, TOKENS)
def test_edits_are_the_fewest(first: list[int], second: list[int]) -> None:
    @cache
    def edits(m: int, n: int) -> int:
        if not m or not n:
            return m + n
        return min(edits(m - 1, n) + 1, edits(m, n - 1) + 1, edits(m - 1, n - 1) + (first[m - 1] != second[n - 1]))

    assert edit_distance(np.array(first, int), np.array(second, int)) == edits(len(first), len(second))


def test_the_rate_is_over_all_true_tokens() -> None:
    targets = [[1, 2, 3, 4], [2, 2, -1, -1]]
    assert value("token-error-rate", [[1, 2, 3, 4], [2, 2, 2, 2]], targets) == pytest.approx(2 / 6)
    assert value("token-error-rate", logits([[1, 2, 3, 4], [2, 2, 2, 2]]), targets) == pytest.approx(2 / 6)
    assert value("token-error-rate", logits([[1, 2, 3, 4], [2, 2, 2, 2]])[:, None], targets) == pytest.approx(2 / 6)  # a batch of one


def test_best_paths_are_decoded() -> None:
    targets = [[1, 1, 2, -1]]
    assert value("ctc-error-rate", logits([[0, 1, 1, 0, 1, 2, 2, 0]]), targets) == 0
    assert value("ctc-error-rate", logits([[1, 1, 1, 1, 2, 2, 2, 2]]), targets) == pytest.approx(1 / 3)
    assert value("ctc-error-rate-blank-last", logits([[4, 1, 1, 4, 1, 2, 2, 4]]), targets) == 0
    assert value("ctc-error-rate", np.full((1, 8, 5), np.nan), targets) == 1  # never right


REFUSED = [
    ("token-error-rate", np.zeros((2, 3), np.float32), [[1], [2]],
     "outputs of a sequence must be logits [samples, steps, tokens], not [samples, 3]"),
    ("token-error-rate", logits([[1], [2]]), [[1], [7]], "targets must be tokens 0 to 4, not 7"),
    ("token-error-rate", logits([[1], [2]]), [[1], [-1]],
     "targets of sample 1 must have a token: an error rate is one for each true token"),
    ("token-error-rate", logits([[1], [2]]), [[1], [-2]],
     "targets of a sequence must be integers [samples, tokens], -1 behind the last token, not int64[samples, 1]"),
    ("token-error-rate", logits([[1], [2]]), np.ones((2, 3, 4), int),
     "targets of a sequence must be integers [samples, tokens], -1 behind the last token, not int64[samples, 3, 4]"),
    ("ctc-error-rate", [[1], [2]], [[1], [2]], "outputs of a CTC error rate must be logits of every step, not integers [samples, 1]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "outputs", "targets", "sentence"), REFUSED)
def test_what_is_no_sequence_is_refused(name: str, outputs: Any, targets: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        value(name, outputs, targets)
    assert caught.value.problem.sentence == sentence
