"""Scoring of outputs by a metric; an error names its sample."""

from __future__ import annotations

from pathlib import Path

from ...data import Dataset
from ...errors import FlexmatchError, InputError
from ...ir.program import Data, Program
from .metrics import Metric, truth_for
from .scores import Scores


def scored_output(p: Program) -> str:
    """Return the name of the output that metrics score: the first that is not text, as labels of classical models are.

    Raises:
        InputError: C100, all outputs are text.
    """
    output = next((v for v in p.outputs if p.types[v].dtype != "string"), None)
    if output is None:
        raise InputError("C100", "metrics need an output of numbers, and the model gives text only", place=p.name)
    return p.names[output]


def score_samples(metric: Metric, data: Dataset, outputs: Data, reference: Data) -> Scores:
    """Return the scores of outputs for data.

    Raises:
        FlexmatchError: the metric refuses the outputs or labels; at the first sample that it refuses alone, too.
    """
    truth = truth_for(metric, data, reference)
    try:
        return metric.score(outputs, truth)
    except FlexmatchError as error:
        refusal = error
    for n in range(len(outputs)):
        try:
            metric.score(outputs[n : n + 1], truth[n : n + 1])
        except FlexmatchError as error:
            raise _in_sample(error, data, n) from None
    raise refusal.at(data.place) from None


def _in_sample(error: FlexmatchError, data: Dataset, n: int) -> FlexmatchError:
    """Return an error that names the sample: in its place or, where that is a metric's file, in its sentence."""
    p, number = error.problem, data.number(n)
    if not p.place:
        return error.at(f"{data.place}: sample {number}")
    return type(error)(p.code, f"{p.sentence}, in sample {number} of {Path(data.place).name}", place=p.place, help=p.help)
