"""The IR version and operator set imports of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import InputError
from .opset_upgrade import NEWEST, OLDEST

OWN_DOMAINS = ("", "ai.onnx")  # two spellings of ONNX's own operator domain


def own_domain(domain: str) -> str:
    """Return a domain with ONNX's own one spelt as the empty string."""
    return "" if domain in OWN_DOMAINS else domain


def newest_opset() -> int:
    """Return the newest operator set that both onnx and onnxruntime support."""
    from onnx import defs

    return min(NEWEST, int(defs.onnx_opset_version()))


def check_header(model: Any, place: str) -> list[str]:
    """Check the IR version and operator set imports of a model; return notes on unusual ones.

    Raises:
        InputError: the IR version or an import is impossible or unsupported.
    """
    from onnx import IR_VERSION

    if model.ir_version < 1:
        raise InputError("F110", f"IR version must be 1 or more, not {model.ir_version}", place=place)
    imports_of(model.opset_import, "the model", place)
    for f in model.functions:
        imports_of(f.opset_import, f'function "{f.name}"', place)
    if model.ir_version > IR_VERSION:
        return [f"IR version {model.ir_version} is newer than {IR_VERSION}, the newest known; what it adds was ignored"]
    return []


def imports_of(entries: Iterable[Any], subject: str, place: str) -> dict[str, int]:
    """Return operator set versions by domain.

    Raises:
        InputError: a set is imported in two versions, or an import is missing, not positive, or outside the supported versions.
    """
    versions: dict[str, int] = {}
    for entry in entries:
        domain, version = own_domain(entry.domain), int(entry.version)
        if versions.get(domain, version) != version:  # skl2onnx imports one set twice, as the same version
            conflict = f"not as {versions[domain]} and {version}"
            raise InputError("F112", f"{subject} must import the operator set of {domain or 'ai.onnx'} once, {conflict}", place=place)
        if not 1 <= version < 1 << 31:
            raise InputError("F111", f"{subject} must import a positive operator set version, not {version}", place=place)
        versions[domain] = version
    if not versions:
        raise InputError("F111", f"{subject} imports no operator set", place=place)
    if "" in versions and not OLDEST <= versions[""] <= newest_opset():
        advice = f"{newest_opset()} or older" if versions[""] > OLDEST else f"{OLDEST} or newer"
        sentence = f"operator set of {subject} must be {OLDEST} to {newest_opset()}, not {versions['']}"
        raise InputError("F111", sentence, place=place, help=f"export it with operator set {advice}")
    return versions
