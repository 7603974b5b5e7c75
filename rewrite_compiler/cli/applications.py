"""Shipped applications where a command takes the file of a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from ..apps import App


def model_file(text: str) -> str:
    """Return the path of a model: as it was typed, or that of the shipped application of this name where no such file exists.

    Raises:
        UsageError: it is an architecture, which has no file, or nearly the name of an application (F101).
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", text) or Path(text).exists():
        return text
    from ..apps import APPS, GALLERY

    applications = {app.name: app for app in APPS}
    if text in applications:
        return str(applications[text].model)
    if text in {architecture.name for architecture in GALLERY}:
        sentence = "there is no such file; the architecture of this name is built from code"
        raise UsageError("F101", sentence, place=text, help=f"flexmatch demo {text} -o {text}.onnx writes it")
    guess = did_you_mean(text, applications)
    if guess:
        raise UsageError("F101", "there is neither a file nor an application of this name", place=text, help=guess)
    return text


def application_of(model: str) -> App | None:
    """Return the shipped application whose model is this file; None for other models."""
    from ..apps import APPS

    return next((app for app in APPS if str(app.model) == model), None)
