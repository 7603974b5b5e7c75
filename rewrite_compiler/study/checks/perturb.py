"""Robustness of matching to spelling: the offloads of a model against those of perturbed spellings of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ...compile.matching.match import match
from ...compile.plan.user_rules import with_proved_domain
from ...cosim.format_errors import squared_norm
from ...frontend.file.read import read_model
from ...frontend.load import load
from ...frontend.perturb.perturb import PERTURBATIONS, perturbed
from ...ir.evaluate import run
from ...ir.program import Node, Program, Value
from ...limits import DEFAULT, Limits
from ...rewrite.rule import Rule
from ...rewrite.ruleset import shipped_rules
from ...target import Mapping, Target

TOLERANCE = 1e-3  # relative distance of the sizes of two weights that are one


@dataclass(frozen=True)
class OffloadSignature:
    """One offload: its operation, the shapes of its operands, and the Frobenius norm of each operand that is constant."""

    operation: str
    shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[float, ...]

    def matches(self, other: OffloadSignature) -> bool:
        """Tell whether two offloads are the same operation on the same weights, within a relative distance SAME of their norms."""
        if (self.operation, self.shapes) != (other.operation, other.shapes):
            return False
        return bool(np.allclose(self.sizes, other.sizes, rtol=TOLERANCE, atol=TOLERANCE))


@dataclass(frozen=True)
class Style:
    """One spelling: its seed, how often each perturbation was applied, and the difference from the model's own offloads."""

    seed: int
    applied: dict[str, int]
    missing: tuple[OffloadSignature, ...]
    added: tuple[OffloadSignature, ...]

    @property
    def is_same(self) -> bool:
        """Tell whether the offloads are the model's own."""
        return not self.missing and not self.added


def styles(
    path: Path, target: Target, seeds: Sequence[int], names: Sequence[str] = PERTURBATIONS, share: float = 0.5, limits: Limits = DEFAULT
) -> Iterator[Style]:
    """Yield for each seed the difference between the offloads of a perturbed model and those of the model."""
    rules, mappings = tuple(map(with_proved_domain, shipped_rules())), list(target.mappings.values())
    model, _ = read_model(path, limits)
    model_offloads = offloads_of(path, rules, mappings, limits)
    with TemporaryDirectory() as folder:
        for seed in seeds:
            variant, applied = perturbed(model, seed, names, share)
            file = Path(folder) / "style.onnx"
            file.write_bytes(variant.SerializeToString())
            missing, added = difference(model_offloads, offloads_of(file, rules, mappings, limits))
            yield Style(seed, applied, missing, added)


def offloads_of(path: Path, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits = DEFAULT) -> list[OffloadSignature]:
    """Return the offloads of a model in a file."""
    return offloads_in(match(load(path, None, limits).program, rules, mappings, limits).program, mappings)


def offloads_in(p: Program, mappings: Sequence[Mapping]) -> list[OffloadSignature]:
    """Return the offloads of an extracted program."""
    mappings_by_name = {m.name: m for m in mappings}
    offloads, sizes_of = [], _sizes(p, [v for n in p.nodes if n.op in mappings_by_name for v in n.inputs])
    for n in p.nodes:
        if n.op not in mappings_by_name:
            continue
        m = mappings_by_name[n.op]
        sizes = tuple(sizes_of[v] for v in n.inputs if v in sizes_of)
        offloads.append(OffloadSignature(f"{m.target}.{m.operation}", tuple(p.types[v].shape for v in n.inputs), sizes))
    return offloads


def _sizes(p: Program, values: Sequence[Value]) -> dict[Value, float]:
    """Return the sizes of those values that follow from constants."""
    fixed, nodes = set(p.constants), list[Node]()
    for n in p.nodes:
        if n.operator is not None and all(v in fixed for v in n.inputs):
            fixed.update(n.outputs)
            nodes.append(n)
    outputs = tuple(dict.fromkeys(v for v in values if v in fixed))
    constants = run(replace(p, nodes=tuple(nodes), outputs=outputs), {}, real=None)
    return {v: squared_norm(constants[v]) ** 0.5 for v in outputs}


def difference(
    left: Sequence[OffloadSignature], right: Sequence[OffloadSignature]
) -> tuple[tuple[OffloadSignature, ...], tuple[OffloadSignature, ...]]:
    """Return the multiset difference both ways: offloads only on the left, and only on the right."""
    added, missing = list(right), []
    for offload in left:
        match_index = next((n for n, candidate in enumerate(added) if offload.matches(candidate)), None)
        if match_index is None:
            missing.append(offload)
        else:
            del added[match_index]
    return tuple(missing), tuple(added)
