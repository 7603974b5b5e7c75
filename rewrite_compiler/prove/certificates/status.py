"""Verdicts on an accelerator's operations without judging: those that `prove` has cached, else those that ship."""

from __future__ import annotations

from typing import Any

from ...target import Target
from .cache import court_cache, mapping_key
from .shipped_certificates import Certificate, certificate_of_operation

NOT_JUDGED = "not judged yet"


def known_verdicts(target: Target) -> dict[str, str]:
    """Return the verdict on every operation of a target as it is written now; one with another text is not judged yet."""
    cache = court_cache()
    return {name: _verdict_of(cache.get(mapping_key(target, name)), certificate_of_operation(target, name)) for name in target.mappings}


def _verdict_of(cached: dict[str, Any] | None, shipped: Certificate | None) -> str:
    if cached is not None:
        return str(cached["verdict"])
    return NOT_JUDGED if shipped is None else shipped.verdict


def verdicts_summary(verdicts: dict[str, str]) -> str:
    """Return how many operations have each verdict, in words."""
    counts = {v: sum(x == v for x in verdicts.values()) for v in dict.fromkeys(verdicts.values())}
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
