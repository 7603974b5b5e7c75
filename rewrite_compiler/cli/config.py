"""Configuration: what an option is when no flag says so; flag, then environment, then file, then default.

A file never names code: an accelerator given by path must be on the command line.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError, UsageError, did_you_mean
from ..intake import MAX_TOML_BYTES, ExcessiveText, FileBound, MalformedText, parse_toml, read_bytes

FLAG, DEFAULT = "flag", "default"
PREFIX = "FLEXMATCH_"
KEY_OF_LINE = re.compile(r"\s*\[*\s*(?:tool\.flexmatch\.)?[\"']?([\w-]+)")  # the first part of a key, or the heading of a table
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
    lines: Mapping[str, int] = field(default_factory=dict)  # on which keys and tables stand

    def place_of(self, key: str) -> str:
        """Return file and line of a key."""
        return f"{self.name}:{self.lines[key]}" if key in self.lines else self.name


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
        return _checked(OWN, flexmatch_table, _lines_of(folder / OWN))
    project = _toml(folder / PROJECT)
    tool = {} if project is None else project.get("tool", {})
    values = tool.get("flexmatch") if isinstance(tool, dict) else None
    return Configuration() if values is None else _checked(PROJECT, values, _lines_of(folder / PROJECT, after="[tool.flexmatch]"))


def _toml(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return parse_toml(read_bytes(path, FILE))
    except ExcessiveText as error:
        raise InputError(FILE.code, f"the configuration cannot be read within bounds: {error}", place=path.name) from None
    except MalformedText as error:
        raise InputError("F103", f"the configuration is not TOML: {error}", place=path.name, help="correct the file") from None


def _lines_of(path: Path, after: str = "") -> dict[str, int]:
    """Return the lines on which keys and tables of a file stand, those behind a heading alone where one is named."""
    texts = path.read_text("utf-8-sig").splitlines()
    start = next((n for n, text in enumerate(texts, 1) if text.partition("#")[0].strip() == after), 0)
    return {m[1]: n for n, text in reversed([*enumerate(texts, 1)]) if n > start and (m := KEY_OF_LINE.match(text))}


def _checked(name: str, values: Any, lines: Mapping[str, int]) -> Configuration:
    if not isinstance(values, dict):
        raise InputError("F103", "tool.flexmatch must be a table of options", place=name, help="write [tool.flexmatch]")
    configuration = Configuration(name, values, lines=lines)
    for key, value in values.items():
        if isinstance(value, dict) and (key not in KEYS or {*value} <= {*KEYS}):
            top = "at the top of the file" if name == OWN else "directly in [tool.flexmatch]"
            sentence = f"settings are for all verbs and stand {top}, not in a table called {key}"
            raise UsageError("F203", sentence, place=configuration.place_of(key), help=f"leave out the heading of {key}")
        if key not in KEYS:
            remedy = " ".join(filter(None, (did_you_mean(key, KEYS), f"keys: {', '.join(KEYS)}")))
            raise UsageError("F203", f'there is no setting called "{key}"', place=configuration.place_of(key), help=remedy)
    return configuration


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
        return Setting(_from_file(action, configuration.values[key], configuration.place_of(key)), configuration.name)
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
        try:
            return _typed(action, str(text), action.dest)
        except UsageError as error:
            raise error.at(place) from None
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
