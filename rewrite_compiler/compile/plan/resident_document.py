"""Resident tensors of every device call, and their form in a plan document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...target import Stay


@dataclass(frozen=True)
class DeviceResidency:
    """Residency on one device: a Stay for every call by offload, and the constants that persist between inferences."""

    stays: Mapping[str, tuple[Stay, ...]]
    lasting: Mapping[str, tuple[frozenset[str], ...]]
    bytes_moved: int  # bytes of one inference without residency
    bytes_saved: Mapping[str, int] = field(default_factory=dict)  # bytes saved by kind: operands, results, constants
    bound: int = 0
    operands: int = 0  # computed operands
    made_on_device: int = 0  # those that an offload of the same device makes
    staying_operands: int = 0  # those that never cross the link
    saved_by: Mapping[str, int] = field(default_factory=dict)  # bytes by offload
    why_not: Mapping[str, str] = field(default_factory=dict)  # offload.operand → why it comes from the host

    @property
    def all_saved(self) -> int:
        """Bytes saved in an inference after the first one."""
        return sum(self.bytes_saved.values())


def resident_document(offload: str, target: str, by_target: Mapping[str, DeviceResidency]) -> dict[str, Any] | None:
    """Return the plan document of an offload's residency, None where its target states none."""
    residency = by_target.get(target)
    if residency is None:
        return None
    stays, lasting = residency.stays[offload], residency.lasting[offload]
    present_sets = [s.present for s in stays]
    why = {key.partition(".")[2]: reason for key, reason in residency.why_not.items() if key.partition(".")[0] == offload}
    return {
        "inputs": sorted(frozenset.intersection(*present_sets)), "outputs": sorted({t for s in stays for t in s.kept}),
        "constants": {t: sum(t in c for c in lasting) for t in sorted({t for c in lasting for t in c})},
        "saved_bytes": residency.saved_by[offload], "why_not": why,
    }  # fmt: skip


def residency_document(by_target: Mapping[str, DeviceResidency]) -> dict[str, Any]:
    """Return the plan document of the totals by target."""
    return {
        name: {
            "bytes": r.bytes_moved, "saved_bytes": r.all_saved, "saved": dict(r.bytes_saved), "bound_bytes": r.bound,
            "operands": r.operands, "made_on_device": r.made_on_device, "stay_on_device": r.staying_operands,
        }
        for name, r in by_target.items()
    }  # fmt: skip
