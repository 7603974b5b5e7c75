"""Sections of the page about a co-simulation: accuracy, errors along the network, histograms of values, attribution of the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

import numpy as np

from ...compile.document import format_from
from ...lang.formats import Format
from ...readings.kernels.format_conversion import codes_of, values_of
from ...study.diagnosis.change_text import change_text
from ..graphics.charts import error_profile, histogram
from ..graphics.markup import Cell, figure, folded, legend, note, section, table, text
from ..terminal import change, count_text, number

MAX_PLOTTED = 24  # offloads whose values are drawn, those with the largest errors


def accuracy_section(cosim: Mapping[str, Any]) -> str:
    """Return the metric on host and accelerator with its interval, and the relative errors of the offloads in the network's order."""
    metric = escape(cosim["metric"])
    total = table(
        f"{metric} over {count_text(cosim['samples'], 'sample')} of {escape(cosim['data']['source'])}", ("where", metric),
        [
            (text("host, float32"), figure(number(cosim["reference"]["value"]))),
            (text(", ".join(cosim["targets"])), figure(number(cosim["accelerated"]["value"]) + change(cosim["paired"]))),
        ],
    )  # fmt: skip
    largest = max((o["relative_error"] or 0 for o in cosim["offloads"]), default=0) or 1
    rows = [
        (
            text(o["id"]), figure(percent(o["relative_error"])), _bar((o["relative_error"] or 0) / largest),
            figure(percent(o.get("cumulative_error"))), figure(percent(o["saturated"])), figure(_range(o["range_in"])),
            figure(_range(o["range_out"])),
        )
        for o in cosim["offloads"]
    ]  # fmt: skip
    caption = f"error of each offload against its meaning, on {count_text(cosim['compared_samples'], 'sample')}"
    heads = ("offload", "relative error", "", "all up to here", "saturated", "inputs", "results")
    return section("Accuracy", total + _network_errors(cosim["offloads"]) + table(caption, heads, rows), "accuracy")


def _network_errors(offloads: Sequence[Mapping[str, Any]]) -> str:
    """Return the errors in the order of the network as a drawing."""
    if not offloads:
        return ""
    caption = "relative error of the offloads in the order of the network, on a scale of powers of ten"
    drawing = error_profile(caption, [(o["id"], o["relative_error"], o.get("cumulative_error")) for o in offloads])
    keys = legend([("p0", "the offload alone"), ("p1", "all offloads up to here")])
    return f"<h3>Along the network</h3>{note(f'{caption[0].upper()}{caption[1:]}.')}<p>{keys}</p>{drawing}"


def value_histograms(cosim: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return histograms of the offloads' tensors with the ranges that their formats represent, the largest errors first."""
    formats = {o["id"]: o["formats"] for o in plan["offloads"] if "formats" in o}
    offloads = [o for o in cosim["offloads"] if o.get("tensors")]
    if not offloads:
        return ""
    worst = sorted(offloads, key=lambda o: -(o["relative_error"] or 0))[:MAX_PLOTTED]
    selection_note = (
        f" These are the {len(worst)} offloads with the largest errors of {len(offloads)}; the report's JSON has all."
        if len(offloads) > len(worst)
        else ""
    )
    about = (
        "Each column is a binade, from a power of two to the next; heights are logarithms of counts. "
        "The shaded part is what the format holds, from its smallest value to its largest: "
        "columns right of it saturate, those left of it become zero."
    )
    drawings = "".join(
        f"<h3>{escape(o['id'])}</h3><div class='row'>{''.join(_tensor(o['id'], t, formats.get(o['id'], {})) for t in o['tensors'])}</div>"
        for o in worst
    )
    return folded("Values and formats", note(about + selection_note) + drawings, "values")


def _tensor(key: str, t: Mapping[str, Any], formats: Mapping[str, Any]) -> str:
    """Return one tensor's histogram with what it says in words."""
    histogram_, name = t["histogram"], t["tensor"]
    share = f"{t['saturated']:,} of {t['values']:,} saturated, {t['underflowed']:,} become zero"
    caption = f"{name}: {t['format']}, largest {number(t['largest'])}; {share}; error {percent(t['relative_error'])}"
    if histogram_["first_exponent"] is None:
        return f"<div class='pic'>{note(f'{caption}; all values are zero')}</div>"
    exponents = _exponent_range_of(repr(sorted(formats[name].items())), formats[name]) if name in formats else _open_range(t["largest"])
    drawing = histogram(f"values of {name} of {key} by binade", histogram_["first_exponent"], histogram_["counts"], exponents)
    return f"<div class='pic'>{drawing}{note(caption)}</div>"


_EXPONENT_RANGES: dict[str, tuple[float, float]] = {}


def _exponent_range_of(key: str, document: Mapping[str, Any]) -> tuple[float, float]:
    """Return the exponents of the smallest and of the largest value of a format, each format computed once."""
    if key not in _EXPONENT_RANGES:
        _EXPONENT_RANGES[key] = _exponent_range(format_from(document))
    return _EXPONENT_RANGES[key]


def _exponent_range(f: Format) -> tuple[float, float]:
    top = float(f.largest)
    steps = math.log2(top) - np.arange(0, 320, 0.25) if top > 0 else np.zeros(1)
    magnitudes = np.abs(np.asarray(values_of(f, codes_of(f, np.exp2(steps))), float))
    smallest = float(magnitudes[magnitudes > 0].min()) if (magnitudes > 0).any() else 1.0
    return math.log2(smallest), math.log2(top) if top > 0 else 0.0


@cache
def _open_range(largest: float) -> tuple[float, float]:
    """Return a range whose lower end is not known."""
    top = math.log2(largest) if largest > 0 else 0.0
    return top - 1, top


def attribution_section(document: Mapping[str, Any] | None) -> str:
    """Return the attribution of the loss: a bar for each offload alone and restored, and for each change of a format."""
    if document is None:
        return ""
    device_trial = document["accelerated"]
    largest_error = max([t["output_error"] or 0 for t in (device_trial, *(o["alone"] for o in document["offloads"]))]) or 1

    def row(name: str, run: str, trial: Mapping[str, Any]) -> tuple[Cell, ...]:
        error = trial["output_error"] or 0
        return text(name), text(run), figure(number(trial["loss"])), figure(percent(error)), _bar(min(1, error / largest_error))

    rows = [row("all offloads", "on the device", device_trial)]
    for o in document["offloads"]:
        rows.append(row(o["id"], "alone on the device", o["alone"]))
        rows += [] if o["restored"] is None else [row("", "all but it", o["restored"])]
    rows += [row(c["offload"], change_text(c), c) for c in (*document.get("terms", ()), *document["fields"])]
    caption = f"loss of {escape(document['metric'])} and relative error of the outputs, on {count_text(document['samples'], 'sample')}"
    body = table(caption, ("offload", "run", "loss", "output error", ""), rows) + _intermediates(document.get("intermediates", ()))
    return section("Where the loss comes from", body, "loss")


def _intermediates(watched: Sequence[Mapping[str, Any]]) -> str:
    """Return what the terms of the numerics do on data, those that leave their word first."""
    if not watched:
        return ""
    ordered = sorted(watched, key=lambda row: -row["outside"] / row["count"])
    rows = [
        (text(row["offload"]), text(row["kind"]), text(row["term"]), text(row["place"]), figure(_range(row["range"])),
         figure(str(row["bits"])), figure(_range(row["word"])), figure(percent(row["outside"] / row["count"])))
        for row in ordered
    ]  # fmt: skip
    heads = ("offload", "kind", "term", "place", "range on data", "bits", "word", "outside of it")
    return folded("Intermediates of the numerics on data", table("terms of the worst offloads", heads, rows), "intermediates")


def percent(x: float | None) -> str:
    """Return a share in percent, or a dash of none."""
    return "–" if x is None else f"{100 * x:.2g}%"


def _range(ends: Sequence[float | None]) -> str:
    return " … ".join(number(x) for x in ends)


def _bar(part: float) -> Cell:
    return "", f'<span class="bar" style="width:{100 * part:.1f}%"></span>'
