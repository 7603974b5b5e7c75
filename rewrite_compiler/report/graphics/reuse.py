"""A page of mapped layers: a band for each memory, with its tiles and loops, and between bands what comes, the wider the more."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from .charts import box, chart, drawings_page, svg_text

WIDTH, LEFT, BAR = 1040, 130, 420  # of a drawing, of the names, of a full memory
LOOPS = LEFT + BAR + 40  # where the loops of a level begin
LINK, TOP, ROW = 70, 30, 17  # heights of a link between two bands, of a band's tiles, of a loop
COLOURS = ("#4a7ebb", "#d0803c", "#5b9b57", "#9467bd", "#8c6d5a")  # of the tensors in turn
STYLE = (
    ".t{font:12px sans-serif}.l{font:12px monospace;white-space:pre}"
    ".m{fill:none;stroke:#666}.o{fill:none;stroke:#666;stroke-dasharray:4}"
    + "".join(f".c{k}{{fill:{colour}}}" for k, colour in enumerate(COLOURS))
)


def reuse_page(layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of the layers that `explain` tells of."""
    return drawings_page(f"Mappings on {layers[0]['architecture']}", STYLE, map(_layer, layers))


def _layer(layer: Mapping[str, Any]) -> str:
    """Return the heading, what decides, and the drawing of one layer."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in layer["residence"]:
        rows.setdefault(row["level"], []).append(row)
    colours = {tensor: k % len(COLOURS) for k, tensor in enumerate(dict.fromkeys(row["tensor"] for row in layer["residence"]))}
    body, y = list[str](), 0.0
    for level, loops in _loops_by_memory(layer["nest"], rows.keys()).items():
        if body:
            body += _link(rows[level], colours, y)
            y += LINK
        body += _band(level, rows[level], loops, colours, y)
        y += max(TOP + ROW, ROW * len(loops)) + 8
    decision = ", ".join(f"{limit['part']} {limit['cycles']:,}" for limit in layer["limits"])
    words = f"{layer['cycles']:,} cycles, {100 * layer['utilisation']:.1f}% of the units; what takes cycles, the most first: {decision}."
    drawing = chart(f"Tiles, loops and reuse of {layer['name']}", WIDTH, math.ceil(y) + 10, "".join(body))
    return f"<h2>{escape(layer['name'])}</h2><p>{escape(words)}</p>{drawing}"


def _loops_by_memory(nest: Sequence[Mapping[str, Any]], memories: Collection[str]) -> dict[str, list[str]]:
    """Return the lines of each memory's loops; those of a level below it that holds nothing are among them."""
    lines: dict[str, list[str]] = {}
    for row in nest:
        level = row["level"] if row["level"] in memories else next(reversed(lines))
        lines.setdefault(level, [])
        lines[level] += [f"for {loop['dimension']} in {loop['steps']:,} steps" for loop in row["loops"]]
        if row["parallel"]:
            lines[level].append("at once " + ", ".join(f"{part['dimension']} in {part['parts']:,} parts" for part in row["parallel"]))
    return lines


def _band(level: str, rows: Sequence[Mapping[str, Any]], loops: Sequence[str], colours: Mapping[str, int], y: float) -> list[str]:
    """Return a memory: its tiles side by side in what it can hold, and its loops, outermost first."""
    count, capacity = rows[0]["instances"], rows[0]["capacity"]
    scale = BAR / max(capacity or sum(row["tile"] for row in rows), 1)
    body = [
        svg_text(0, y + 14, level),
        svg_text(0, y + 30, f"{count:,} {'memories' if count > 1 else 'memory'}", "t"),
        box(LEFT, y, BAR, TOP, "m" if capacity else "o", f"{capacity:,} elements" if capacity else "holds all"),
    ]
    x = float(LEFT)
    for row in rows:
        words = f"{row['tensor']}: {row['tile']:,}{f' of {capacity:,}' if capacity else ''} elements at a time"
        body.append(box(x, y, row["tile"] * scale, TOP, f"c{colours[row['tensor']]}", words))
        x += row["tile"] * scale
    tiles = ", ".join(f"{row['tensor']} {row['tile']:,}" for row in rows)
    body.append(svg_text(LEFT, y + TOP + 13, f"{tiles}{f' of {capacity:,}' if capacity else ''}", "t"))
    return [*body, *(svg_text(LOOPS + 12 * k, y + 12 + ROW * k, line, "l") for k, line in enumerate(loops))]


def _link(rows: Sequence[Mapping[str, Any]], colours: Mapping[str, int], y: float) -> list[str]:
    """Return what comes to a memory from the one above: a bar a tensor, as wide as the logarithm of the elements."""
    body = []
    for k, row in enumerate(rows):
        x = LEFT + k * BAR / max(len(rows), 1)
        width = 1 + 2 * math.log10(max(row["arrivals"], 1))
        uses = f", each used {row['uses']:,.4g} times" if row["uses"] is not None else ""
        words = f"{row['tensor']}: {row['arrivals']:,} elements come in all{uses}"
        body.append(box(x, y + 6, width, LINK - 12, f"c{colours[row['tensor']]}", words))
        body.append(svg_text(x + width + 4, y + LINK / 2 - 3, f"{row['tensor']} {row['arrivals']:,}", "t"))
        body.append(svg_text(x + width + 4, y + LINK / 2 + 12, f"used {row['uses']:,.4g}×" if row["uses"] is not None else "", "t"))
    return body
