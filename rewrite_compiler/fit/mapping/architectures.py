"""Architectures by name or file: the shipped ones, and those of the user as JSON or TOML."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from ...errors import InputError, UsageError, did_you_mean
from ...intake import MAX_TOML_BYTES, FileBound, MalformedText, parse_json, parse_toml, read_bytes
from .clusters import Clusters, clusters_from

SHIPPED = "rewrite_compiler.targets"
FOLDER = "_arch"
BOUND = FileBound("an architecture", MAX_TOML_BYTES, "describe equal clusters once: children says how many there are")


def architecture_names() -> list[str]:
    """Return the names of the shipped architectures."""
    return sorted(path.name.removesuffix(".toml") for path in files(SHIPPED).joinpath(FOLDER).iterdir() if path.name.endswith(".toml"))


def find_clusters(text: str) -> Clusters:
    """Return a shipped architecture, that of a file, or that of an accelerator.

    Raises:
        UsageError: there is no such architecture (F231).
        InputError: the file describes none (F231).
    """
    if not text.endswith((".json", ".toml")):
        if text not in architecture_names():
            return _of_target(text)
        return clusters_from(parse_toml(files(SHIPPED).joinpath(FOLDER, f"{text}.toml").read_bytes()))
    try:
        return clusters_from(_parsed(read_bytes(Path(text), BOUND), text))
    except MalformedText as error:
        raise InputError("F231", f"The architecture cannot be read: {error}", place=text) from None
    except InputError as error:
        raise error.at(text) from None


def _of_target(text: str) -> Clusters:
    from ...target.discovery import find_target, target_names
    from .device import device_clusters

    name = text.partition(":")[0]
    if name not in target_names() and not name.endswith(".py"):
        names = [*architecture_names(), *target_names()]
        all_names = f"known: {', '.join(names)} (or give a file ending in .json or .toml)"
        remedy = " ".join(filter(None, (did_you_mean(text, names), all_names)))
        raise UsageError("F231", f'there is no architecture called "{text}"', help=remedy)
    return device_clusters(text, find_target(text).resources())


def _parsed(data: bytes, name: str) -> Any:
    return parse_json(data) if name.endswith(".json") else parse_toml(data)
