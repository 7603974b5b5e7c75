"""What is known of an accelerator's operations without judging them: the verdicts that `prove` has kept."""

from __future__ import annotations

from ..target import Target
from .cache import court_cache, mapping_key

NOT_JUDGED = "not judged yet"


def known_verdicts(target: Target) -> dict[str, str]:
    """Return the kept verdict on every operation of a target as it is now: another text of it is not judged yet."""
    kept = court_cache()
    found = {name: kept.get(mapping_key(target, name)) for name in target.mappings}
    return {name: NOT_JUDGED if record is None else str(record["verdict"]) for name, record in found.items()}


def in_short(verdicts: dict[str, str]) -> str:
    """Return how many operations have each verdict, in words."""
    counts = {v: sum(x == v for x in verdicts.values()) for v in dict.fromkeys(verdicts.values())}
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
