"""Configuration: what an option is when no flag says so; flag, then environment, then file, then default.

A file never names code: an accelerator given by path must be on the command line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError, UsageError, did_you_mean
from ..intake import MAX_TOML_BYTES, ExcessiveText, FileBound, MalformedText, parse_toml, read_bytes

FLAG, DEFAULT = "flag", "default"
PREFIX = "FLEXMATCH_"
OWN, PROJECT = "flexmatch.toml", "pyproject.toml"
FILE = FileBound("a configuration", MAX_TOML_BYTES)
TRUTH = {"1": True, "true": True, "0": False, "false": False}
# options that configuration may set; not those that name code or files
KEYS = (
    "accel", "audit", "batch", "engine", "exact", "host", "host_costs", "limits", "metric", "objective", "only", "quiet", "samples",
    "shape", "threads", "tier", "verbose", "without",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """The value of an option and where it came from."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Configuration:
    """The keys of a configuration file, and its name; a warning instead of keys where the file is beyond all bounds."""

    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""


def read_configuration(folder: Path) -> Configuration:
    """Return the configuration of a folder: flexmatch.toml, else [tool.flexmatch] of pyproject.toml, else nothing.

    Nobody named the file on the command line, so a file beyond all bounds gives a warning in place of settings.

    Raises:
        InputError: the file is not TOML, or tool.flexmatch is no table (F103).
        UsageError: the file sets an option that there is not (F203).
    """
    try:
        return _configuration(folder)
    except InputError as error:
        if error.problem.code != FILE.code:
            raise
        return Configuration(warning=f"{error.problem.place}: warning[{FILE.code}]: {error.problem.sentence}, and is not used")


def _configuration(folder: Path) -> Configuration:
    flexmatch_table = _toml(folder / OWN)
    if flexmatch_table is not None:
        return _checked(OWN, flexmatch_table)
    project = _toml(folder / PROJECT)
    tool = {} if project is None else project.get("tool", {})
    values = tool.get("flexmatch") if isinstance(tool, dict) else None
    return Configuration() if values is None else _checked(PROJECT, values)


def _toml(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return parse_toml(read_bytes(path, FILE))
    except ExcessiveText as error:
        raise InputError(FILE.code, f"the configuration cannot be read within bounds: {error}", place=path.name) from None
    except MalformedText as error:
        raise InputError("F103", f"the configuration is not TOML: {error}", place=path.name, help="correct the file") from None


def _checked(name: str, values: Any) -> Configuration:
    if not isinstance(values, dict):
        raise InputError("F103", "tool.flexmatch must be a table of options", place=name, help="write [tool.flexmatch]")
    for key in values:
        if key not in KEYS:
            remedy = " ".join(filter(None, (did_you_mean(key, KEYS), f"keys: {', '.join(KEYS)}")))
            raise UsageError("F203", f'there is no setting called "{key}"', place=name, help=remedy)
    return Configuration(name, values)


def resolve_setting(
    action: argparse.Action, flags: Mapping[str, Any], environment: Mapping[str, str], configuration: Configuration, default: Any
) -> Setting:
    """Return the value of one option and its origin: the flag's, else the environment's, else the file's, else the default.

    Raises:
        UsageError: the environment or the file gives a value that the option does not take (F203).
    """
    key = action.dest
    if key in flags:
        return Setting(flags[key], FLAG)
    variable = PREFIX + key.upper()
    if environment.get(variable):
        return Setting(_from_text(action, environment[variable], variable), variable)
    if key in configuration.values:
        return Setting(_from_file(action, configuration.values[key], configuration.name), configuration.name)
    return Setting(default, DEFAULT)


def _from_text(action: argparse.Action, text: str, place: str) -> Any:
    if action.nargs == 0:
        if text.lower() not in TRUTH:
            raise UsageError("F203", f'{place} must be one of {", ".join(TRUTH)}, not "{text}"')
        return TRUTH[text.lower()]
    return text.split() if _is_list(action) else _typed(action, text, place)


def _from_file(action: argparse.Action, value: Any, place: str) -> Any:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError("F203", f"{action.dest} must be true or false, not {_shown(value)}", place=place)
        return value
    if not _is_list(action):
        text = ",".join(value) if _is_texts(value) else value
        if isinstance(text, bool) or not isinstance(text, str | int):
            raise UsageError("F203", f"{action.dest} must be a text or a whole number, not {_shown(value)}", place=place)
        if action.dest == "metric" and ":" in str(text):
            _refuse_code(f'metric must be a name of flexmatch\'s own, not "{text}"', "--metric", place)
        return _typed(action, str(text), f"{action.dest} in {place}")
    texts = [value] if isinstance(value, str) else value
    if not _is_texts(texts):
        raise UsageError("F203", f"{action.dest} must be a text or a list of texts, not {_shown(value)}", place=place)
    if action.dest == "accel":
        _check_names(texts, place)
    return list(texts)


def _check_names(texts: Sequence[str], place: str) -> None:
    for text in texts:
        if ".py" in text or "/" in text or os.sep in text:
            _refuse_code(f'accel must be the name of an installed accelerator, not the path "{text}"', "--accel", place)


def _refuse_code(sentence: str, option: str, place: str) -> NoReturn:
    raise UsageError("F203", f"{sentence}: a configuration file never loads code", place=place, help=f"give it with {option}")


def _is_list(action: argparse.Action) -> bool:
    return isinstance(action.default, list)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _typed(action: argparse.Action, text: str, place: str) -> Any:
    if not callable(action.type):
        return text
    try:
        return action.type(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError("F203", f"{place} {error}") from None


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else type(value).__name__
