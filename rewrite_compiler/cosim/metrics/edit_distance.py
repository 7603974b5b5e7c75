"""Error rates of sequences: edits from the given sequence to the true one, over the tokens of the true one."""

from __future__ import annotations

import numpy as np

from ...errors import InputError
from ...ir.program import Data
from .sample_shapes import shape_text, without_unit_axes
from .scores import Scores

ABSENT = -1  # behind the tokens of a true sequence that is shorter than others


def edit_distance(first: Data, second: Data) -> int:
    """Return the fewest insertions, deletions and replacements that make the second sequence of the first."""
    row = np.arange(len(second) + 1)
    positions = row.copy()
    for n, token in enumerate(first, start=1):
        replaced = row[:-1] + (second != token)
        row = np.concatenate([[n], np.minimum(row[1:] + 1, replaced)])
        row = np.minimum.accumulate(row - positions) + positions  # insertions, one after the other
    return int(row[-1])


def sequence_errors(outputs: Data, targets: Data) -> Scores:
    """Score each sample by its edits: outputs are tokens, or logits of which the largest is the token; the weight is the true length.

    Raises:
        InputError: C100, outputs are no sequences, or targets no tokens of theirs.
    """
    tokens = _tokens(outputs, targets)
    return _scores(list(tokens), targets)


def alignment_errors(outputs: Data, targets: Data, *, is_blank_last: bool) -> Scores:
    """Score each sample as `sequence_errors` does, after repeated tokens are one and blanks are dropped: best-path decoding of CTC.

    Raises:
        InputError: C100, outputs are no sequences of logits, or targets no tokens of theirs.
    """
    if outputs.dtype.kind in "iu":
        raise InputError("C100", f"outputs of a CTC error rate must be logits of every step, not integers {shape_text(outputs)}")
    tokens = _tokens(outputs, targets)
    blank = outputs.shape[-1] - 1 if is_blank_last else 0
    return _scores([_collapsed(row, blank) for row in tokens], targets)


def _collapsed(tokens: Data, blank: int) -> Data:
    is_first = np.concatenate([[True], tokens[1:] != tokens[:-1]]) if len(tokens) else np.zeros(0, bool)
    return np.asarray(tokens[is_first & (tokens != blank)])


def _tokens(outputs: Data, targets: Data) -> Data:
    """Return the tokens [samples, steps] of outputs."""
    expected_axes = 2 if outputs.dtype.kind in "iu" else 3
    while outputs.ndim > expected_axes and 1 in outputs.shape[1:]:  # the batch of one of the model itself
        outputs = outputs.squeeze(1 + outputs.shape[1:].index(1))
    if outputs.ndim != expected_axes:
        kind = "tokens [samples, steps]" if expected_axes == 2 else "logits [samples, steps, tokens]"
        raise InputError("C100", f"outputs of a sequence must be {kind}, not {shape_text(outputs)}")
    is_sequence = targets.ndim == 2 or (targets.ndim > 2 and len(without_unit_axes(targets.shape[1:])) < 2)
    if targets.dtype.kind not in "iu" or not is_sequence or (targets.size and targets.min() < ABSENT):
        text = f"{targets.dtype}{shape_text(targets)}"
        raise InputError("C100", f"targets of a sequence must be integers [samples, tokens], {ABSENT} behind the last token, not {text}")
    if expected_axes == 2:
        return outputs
    if targets.size and targets.max() >= outputs.shape[2]:
        raise InputError("C100", f"targets must be tokens 0 to {outputs.shape[2] - 1}, not {targets.max()}")
    return np.asarray(np.where(np.isnan(outputs).any(axis=2), outputs.shape[2], outputs.argmax(axis=2)))


def _scores(sequences: list[Data], targets: Data) -> Scores:
    true_sequences = [row[row != ABSENT] for row in targets.reshape(len(targets), -1)]
    empty = next((n for n, row in enumerate(true_sequences) if not len(row)), None)
    if empty is not None:
        raise InputError("C100", f"targets of sample {empty} must have a token: an error rate is one for each true token")
    errors = [edit_distance(a, b) for a, b in zip(sequences, true_sequences, strict=True)]
    return Scores(np.array(errors, np.float64), np.array([len(row) for row in true_sequences], np.float64))
