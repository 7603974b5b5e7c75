"""Schemas of plan and report documents, checked before their contents are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

KINDS = {str: "a text", bool: "true or false", dict: "an object", list: "a list", int: "a whole number"}
WORD = 1 << 63  # more than any whole number of a document

CALIBRATION = {"source": str, "sha256": str, "samples": int, "method": str, "formats_sha256": str}
TARGET = {"name": str, "parameters": {...: str}, "sha256": str}
OFFLOAD = {"id": str, "nodes": [str], "formats": {...: dict}}
TABLE = {"call": int, "mac": {...: int}, "element": {...: int}}
SETTINGS = {
    "exact": bool, "shapes": {...: [int]}, "only": [str], "without": [str], "on": [str], "rules": [str], "trusted": [str], "objective": str,
    "host_costs": {"source": str, "sha256": str, "picoseconds": (TABLE, None)},
}  # fmt: skip
PLAN = {"model": {"path": str, "sha256": str}, "targets": [TARGET], "settings": SETTINGS, "offloads": [OFFLOAD]}

# null where a figure does not exist
FIGURE, SIZE, PAIR = "a number or null", "a number from 0 on or null", "two numbers or nulls"
SECONDS = "a number from 0 on"
CALIBRATED = [{"offload": str, "tensor": str, "method": str, "magnitude": FIGURE, "largest": FIGURE}]
LOST = {"loss": FIGURE, "output_error": FIGURE}
ATTRIBUTION = {
    "samples": int, "metric": str, "accelerated": LOST, "offloads": [{"id": str, "alone": LOST, "restored": (LOST, None)}],
    "fields": [{"offload": str, "tensor": str, "field": str, "loss": FIGURE, "output_error": FIGURE}],
    "terms": [{"offload": str, "offloads": [str], "term": str, "place": str, "field": str, "loss": FIGURE, "output_error": FIGURE}],
    "intermediates": [
        {"offload": str, "term": str, "place": str, "kind": str, "range": [int], "bits": int, "word": PAIR, "outside": int, "count": int}
    ],
    "culprit": ({"offload": str, "field": str}, None), "either": [{"offload": str, "field": str}], "explanation": str,
    "recalibrated": (LOST, None),
}  # fmt: skip
TENSOR = {
    "tensor": str, "format": str, "values": int, "zeros": int, "saturated": int, "underflowed": int, "range": PAIR, "largest": SIZE,
    "relative_error": SIZE, "histogram": {"first_exponent": (int, None), "counts": [SIZE]},
}  # fmt: skip
ERROR = {
    "id": str, "relative_error": SIZE, "cumulative_error": SIZE, "max_abs_error": SIZE, "saturated": SIZE, "range_in": PAIR,
    "range_out": PAIR, "compared_codes": (int, None), "differing_codes": (int, None), "engine": str, "validated_samples": int,
    "certified": bool, "tensors": [TENSOR],
}  # fmt: skip
HOSTS = {
    "other": (str, None),
    "value": FIGURE,
    "values": int,
    "differing_values": int,
    "differing_samples": int,
    "largest_difference": FIGURE,
}
DIVERGING = {"offload": str, "relative_error": SECONDS, "threshold": SECONDS}
RUN = {
    "wall_seconds": SECONDS, "cpu_seconds_per_sample": FIGURE, "reference_cpu_seconds_per_sample": FIGURE, "batch": int, "threads": int,
    "resumed_samples": int, "scheduler": (str, None), "reference_kept": bool,
    "fallbacks": [{"offload": str, "why": [str], "cpu_seconds": SECONDS}],
}  # fmt: skip
REPORT = {
    "model": {"sha256": str}, "targets": [str], "metric": str, "samples": int, "data": {"source": str}, "compared_samples": int,
    "calibration": ({"source": str, "sha256": str, "samples": int, "method": str}, None), "hosts": (HOSTS, None),
    "reference": {"value": FIGURE}, "accelerated": {"value": FIGURE}, "offloads": [ERROR], "notes": [str], "warnings": [str],
    "first_diverging": (DIVERGING, None),
    "paired": {
        "difference": FIGURE, "interval": (PAIR, None), "same_predictions": FIGURE, "better": int, "worse": int, "same": int,
        "mcnemar": ({"p_value": FIGURE, "interval": PAIR}, None),
    },
    "simulator": {"engine": str, "validated": int, "tier": str, "instructions": int, "audited": int}, "run": RUN,
    "attribution": (ATTRIBUTION, None),
}  # fmt: skip


def misfit(value: Any, form: Any, place: str = "plan") -> str:
    """Return a sentence on the first part of a document that violates its schema, empty if there is none.

    A schema is a type, a list of one schema, an object of schemas by key (the key `...` stands for every key), or a pair of a
    schema and None where null is allowed.
    """
    if form in (FIGURE, SIZE, SECONDS):
        is_one = (value is None and form != SECONDS) or (type(value) in (int, float) and (form == FIGURE or value >= 0))
        return _size_misfit(value, place) if is_one else f"{place} must be {form}, not {_kind_text(value)}"
    if form is PAIR:
        is_one = type(value) is list and len(value) == 2 and not any(misfit(x, FIGURE) for x in value)
        return "" if is_one else f"{place} must be {PAIR}, not {_kind_text(value)}"
    if isinstance(form, tuple):
        return "" if value is None else misfit(value, form[0], place)
    kind: type = form if isinstance(form, type) else type(form)
    actual = type(value)
    if actual is not kind:
        return f"{place} must be {KINDS[kind]}, not {_kind_text(value)}"
    if kind is int:
        return _size_misfit(value, place)
    if isinstance(form, list):
        return _first_sentence(misfit(x, form[0], f"{place}[{n}]") for n, x in enumerate(value))
    if isinstance(form, dict):
        return _object_misfit(value, form, place)
    return ""


def _size_misfit(value: Any, place: str) -> str:
    return f"{place} must be within 64 bits" if isinstance(value, int) and not -WORD <= value < WORD else ""


def _first_sentence(sentences: Iterable[str]) -> str:
    return next(filter(None, sentences), "")


def _object_misfit(value: Mapping[str, Any], form: Mapping[Any, Any], place: str) -> str:
    forms = dict.fromkeys(value, form[...]) if ... in form else form
    missing_key = next((key for key in forms if key not in value), None)
    if missing_key is not None:
        return f'{place} has no key "{missing_key}"'
    return _first_sentence(misfit(value[key], f, f"{place}.{key}") for key, f in forms.items())


def _kind_text(value: Any) -> str:
    return next((text for kind, text in KINDS.items() if type(value) is kind), "a number" if isinstance(value, float) else "null")
