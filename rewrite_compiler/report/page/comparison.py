"""Comparison of several plans and their co-simulations: a dashboard of applications by accelerators, then a row for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePosixPath
from typing import Any

from ..graphics.markup import Cell, note, section, table, text
from ..terminal import count_text
from .headline import CSS_CLASSES, MARK_LABELS, Tile, tiles
from .html import document_page

HEADS = ("application", "accelerators", "accuracy", "offloaded", "speed")
EMPTY = "not compared"


@dataclass(frozen=True)
class Entry:
    """One plan with its co-simulation, where there is one: its application, its accelerators, and the three figures."""

    application: str
    accelerators: str
    figures: tuple[Tile, Tile, Tile]


def entry_of(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None, varying: Collection[tuple[str, str]] = ()) -> Entry:
    """Return the entry of a plan's document and that of its co-simulation; `varying` parameters are named."""
    return Entry(PurePosixPath(plan["model"]["path"]).stem, accelerators_text(plan, varying), tiles(plan, cosim))


def varying_parameters(plans: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return (accelerator, parameter) where plans have several values of it."""
    settings = {(t["name"], key, value) for plan in plans for t in plan["targets"] for key, value in t["parameters"].items()}
    places = [(name, key) for name, key, _ in settings]
    return {place for place in places if places.count(place) > 1}


def accelerators_text(plan: Mapping[str, Any], varying: Collection[tuple[str, str]]) -> str:
    """Return the accelerators of a plan, with those of their parameters that vary."""
    texts = []
    for t in plan["targets"]:
        parameters = ",".join(f"{key}={value}" for key, value in t["parameters"].items() if (t["name"], key) in varying)
        texts.append(f"{t['name']}:{parameters}" if parameters else t["name"])
    return ", ".join(texts)


def row_of(e: Entry) -> tuple[str, ...]:
    """Return an entry as texts, one for each of HEADS; beside the accuracy the interval of its difference from the host."""
    accuracy, *others = e.figures
    return (e.application, e.accelerators, f"{accuracy.mark} {_with_interval(accuracy)}", *(f"{t.mark} {t.figure}" for t in others))


def _with_interval(accuracy: Tile) -> str:
    return f"{accuracy.figure} ({accuracy.note})" if accuracy.note else accuracy.figure


def comparison_page(entries: Sequence[Entry]) -> str:
    """Return the page: applications by accelerators first, then each entry with its reasons."""
    applications, accelerators = (
        list(dict.fromkeys(names)) for names in ((e.application for e in entries), (e.accelerators for e in entries))
    )
    title = f"{count_text(len(applications), 'application')} on {count_text(len(accelerators), 'accelerator')}"
    summary = note(
        "Each cell: accuracy with the 95% interval of its difference from the host, offloaded share of work, speed against one host core."
    )
    rows = [
        (text(a), *(_cell(e for e in entries if (e.application, e.accelerators) == (a, t)) for t in accelerators)) for a in applications
    ]
    dashboard = section("Applications by accelerators", table(title, ("application", *accelerators), rows), "dashboard")
    details = [(text(e.application), text(e.accelerators), *map(_explained, e.figures)) for e in entries]
    reasons = section("Each with its reasons", table(count_text(len(entries), "report"), HEADS, details), "reports")
    return document_page(title, summary, [dashboard, reasons])


def _cell(entries: Iterable[Entry]) -> Cell:
    """Return the figures of the entries at one place of the dashboard."""
    return "", "".join(map(_stacked, entries)) or escape(EMPTY)


def _stacked(e: Entry) -> str:
    """Return the three figures of an entry, one a line."""
    accuracy, offloaded, speed = map(_marked, e.figures)
    interval = e.figures[0].note
    labelled = (f"{offloaded} <small>offloaded</small>", f"{speed} <small>speed</small>")
    return f"<p>{'<br>'.join(filter(None, (accuracy, interval and f'<small>{escape(interval)}</small>', *labelled)))}</p>"


def _marked(t: Tile) -> str:
    mark = f"<span class='mark {CSS_CLASSES[t.mark]}' role='img' aria-label='{t.label}: {MARK_LABELS[t.mark]}'>{t.mark}</span>"
    return f"<b class='figure'>{mark} {escape(t.figure)}</b>"


def _explained(t: Tile) -> Cell:
    return "", f"{_marked(t)}<br><small>{'<br>'.join(map(escape, filter(None, (t.note, *t.reasons))))}</small>"
