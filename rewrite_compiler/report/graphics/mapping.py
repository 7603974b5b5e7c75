"""A page of the mappings that searches priced: a drawing a layer, cycles against energy, the front marked, mappings under the pointer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .charts import chart, drawings_page, svg_text

SIZE, MARGIN = 640, 60
STYLE = ".p{fill:#89a}.f{fill:#c30}.t{font-size:12px}"


def front_page(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of the mappings of every layer of a model."""
    return drawings_page(f"Mappings on {documents[0]['architecture']}", STYLE, map(_layer, documents))


def _layer(document: Mapping[str, Any]) -> str:
    """Return the heading and the drawing of one layer's mappings."""
    points = document.get("points") or document["front"]
    front = {(p["cycles"], p["energy_fj"]) for p in document["front"]}
    xs, ys = [p["cycles"] for p in points], [p["energy_fj"] for p in points]
    body = [
        svg_text(MARGIN, SIZE - 10, f"cycles {min(xs):,} … {max(xs):,}"),
        svg_text(0, 20, f"energy {min(ys) / 1e9:,.3f} … {max(ys) / 1e9:,.3f} µJ"),
    ]
    ordered = sorted(points, key=lambda p: (p["cycles"], p["energy_fj"]) in front)
    for p in ordered:
        is_front = (p["cycles"], p["energy_fj"]) in front
        x, y = _place(p["cycles"], xs), SIZE - _place(p["energy_fj"], ys)
        words = f"{p['cycles']:,} cycles, {p['energy_fj'] / 1e9:,.3f} µJ: {p.get('tiles', '')}"
        kind, radius = ("f", 5) if is_front else ("p", 2.5)
        body.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(words)}</title></circle>')
    times = f", {document['repeats']} times" if document["repeats"] > 1 else ""
    title = f"{document['name']}{times}"
    words = f"{len(points):,} mappings; the {len(front):,} that no other mapping beats in both are drawn large."
    drawing = chart(f"Mappings of {title}", SIZE + MARGIN, SIZE + MARGIN, "".join(body))
    return f"<h2>{escape(title)}</h2><p>{words}</p>{drawing}"


def _place(value: int, values: list[int]) -> float:
    """Return a place on an axis: logarithmic, for costs span decades."""
    from math import log

    low, high = log(max(min(values), 1)), log(max(*values, 2))
    return MARGIN + (log(max(value, 1)) - low) / ((high - low) or 1) * (SIZE - 2 * MARGIN)
