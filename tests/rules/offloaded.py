"""What FlexASR takes of a small model, and whether the chosen program computes the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import unrolled as u

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.program import Program, Value
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import body_of, find_target
from rewrite_compiler.target.meaning import inlined

RULES = shipped_rules()
MAPPINGS = {m.name: m for m in find_target("flexasr").mappings.values()}


def matched(model: object, folder: Path) -> tuple[Program, Program]:
    """Return a model's program and the chosen one."""
    source = load(u.saved(model, folder)).program
    return source, match(source, RULES, list(MAPPINGS.values()), DEFAULT).program


def offloads(p: Program) -> Counter[str]:
    return Counter(n.op for n in p.nodes if n.op in MAPPINGS)


def agree(source: Program, chosen: Program) -> None:
    """Compare outputs on data, offloads replaced by their meaning."""
    plain = inlined(chosen, lambda n: body_of(MAPPINGS[n.op], [chosen.types[v] for v in n.inputs], dict(n.attributes)))
    random = np.random.default_rng(1)
    data = {source.names[v]: random.uniform(-1, 1, source.types[v].shape).astype(np.float32) for v in source.inputs}

    def results(p: Program) -> list[np.ndarray]:
        given: dict[Value, np.ndarray] = {v: data[p.names[v]] for v in p.inputs}
        found = run(p, given)
        return [found[v] for v in p.outputs]

    for a, b in zip(results(source), results(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
