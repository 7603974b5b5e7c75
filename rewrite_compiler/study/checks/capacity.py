"""Capacities: a mapping's limits against the device under strict simulation.

The sizes of a mapping's proofs, and the largest that its limits admit, are driven with codes of zero. A command that the
model refuses, or a diagnostic, means that the limits contradict the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from typing import Any

import numpy as np

from ...errors import FlexmatchError, Problem
from ...ila import Ila
from ...prove.mappings.limit_edges import limit_corners
from ...prove.mappings.mappings import numeric_sizes
from ...target import Limit, Mapping, simulated_device


def contradictions(m: Mapping, ila: Ila) -> Iterator[Problem]:
    """Yield a problem for every size that the limits admit and the device refuses; one for all where it refuses every size."""
    refused: list[tuple[MappingOf[str, Any], Problem]] = []
    trials = 0
    for sizes in [*numeric_sizes(m), *limit_corners(m)]:
        attributes = {name: sizes[name] for name, _ in m.statics}
        violated = _violated(m, sizes)
        if violated is not None:
            sentence = f"{m.name} is tried at {sizes_text(sizes)}, which its own limits refuse: {violated}"
            yield Problem("I106", sentence, m.rule.place, "give trials within the limits")
            continue
        formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
        codes = {v.name: np.zeros([sizes[d] for d in m.axes.of[v.name]], np.int64) for v in m.operands}
        trials += 1
        try:
            m.run_driver(simulated_device(ila), codes, formats, attributes)
        except FlexmatchError as error:
            if error.__cause__ is not None:  # the driver itself ended with an exception, which no limit could prevent
                raise
            refused.append((sizes, error.problem))
    if len(refused) == trials > 1:
        sizes, first = refused[0]
        sentence = f"the driver of {m.name} fails at every size that is tried, at {sizes_text(sizes)} because {first.sentence}"
        yield Problem("I104", sentence, m.rule.place, first.help or "correct the driver")
        return
    for sizes, problem in refused:
        sentence = f"the limits of {m.name} admit {sizes_text(sizes)}, which the device refuses: {problem.sentence}"
        yield Problem("I106", sentence, m.rule.place, "read the capacity from the model's state")


def is_admitted(m: Mapping, sizes: MappingOf[str, Any]) -> bool:
    """Tell whether a mapping's limits admit a tile."""
    return _violated(m, sizes) is None


def _violated(m: Mapping, sizes: MappingOf[str, Any]) -> Limit | None:
    names = {name for name, _ in m.statics}
    return m.exceeded_limit({d: n for d, n in sizes.items() if d not in names}, {n: sizes[n] for n in names})


def sizes_text(sizes: MappingOf[str, Any]) -> str:
    """Return sizes as `t=3, k=16`."""
    return ", ".join(f"{d}={n}" for d, n in sizes.items())
