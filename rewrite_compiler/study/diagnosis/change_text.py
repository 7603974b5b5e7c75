"""Text of a change that attribution or repair tried, and what it explains."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Explanation(StrEnum):
    """What attribution says about a loss."""

    CULPRIT = "culprit"
    """One change alone takes back SHARE of the loss."""
    EITHER = "either of several changes explains it"
    """Changes at different places do, each alone, and as much: the samples do not tell which is the mistake."""
    CALIBRATION = "the number formats fit other samples"
    """No single change does, but all formats as calibration on these samples chooses them take back SHARE of the loss."""
    NONE = "no single change explains it"
    """None of the changes that were tried does."""
    NO_LOSS = "there is no loss"
    """The metric loses nothing."""


def change_text(change: Mapping[str, Any]) -> str:
    """Return a change of a term of numerics, with its place, or of a field of a format, as text."""
    values = f"{change.get('before')} → {change.get('after')}"
    if "term" in change:
        offloads = change.get("offloads", [change["offload"]])
        where = change["offload"] if len(offloads) == 1 else f"{change['offload']} and {len(offloads) - 1} more"
        unscaled = " on operands that are not scaled" if change.get("unscaled") else ""
        return f"{change['field']} at {change['place']}, {change['term']}, of {where}: {values}{unscaled}"
    others = len(change.get("offloads", [change["offload"]])) - 1
    return f"{change['field']} of {change.get('tensor')} of {change['offload']}{f' and {others} more' if others else ''}: {values}"


def culprit_text(attribution: Mapping[str, Any]) -> str:
    """Return the change that explains a loss as text, all of them where data do not tell which is the mistake, else the explanation."""
    either = attribution["either"]
    if either:
        return f"either of {'; '.join(map(change_text, either))}"
    culprit = attribution["culprit"]
    return change_text(culprit) if culprit else str(attribution["explanation"])
