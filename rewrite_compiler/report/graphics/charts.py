"""Charts as SVG: each has a title for readers who do not see it, and names are text, never attributes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

WIDTH = 720  # of a chart that fits beside nothing; a narrower page scrolls it, so that its letters stay as large as text
LEFT, LINE = 230, 22  # room for labels, height of a row of bars
MIN_ERROR = 1e-4  # smallest relative error that is drawn
BIN = 10  # width of a binade
MAX_LABEL, MIN_LABEL = 30, 8  # characters of a label; where fewer fit, there is none
LETTER = 7.5  # width of a small letter
TICKS = 6  # most numbers on an axis
PAGE_STYLE = "body{font:16px sans-serif;margin:2em}svg{max-width:100%}"


def drawings_page(title: str, style: str, sections: Iterable[str]) -> str:
    """Return a page of drawings by themselves: its title, and sections one below the other."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{PAGE_STYLE}{style}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{escape(title)}</h1>{"".join(sections)}</body></html>\n'


def chart(title: str, width: int, height: int, body: str) -> str:
    """Return an SVG drawing of a size in pixels, with its title."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<div class="plot"><svg class="chart" role="img" {size}><title>{escape(title)}</title>{body}</svg></div>'


def svg_text(x: float, y: float, content: str, kind: str = "") -> str:
    """Return an SVG text at a point, the names of a model escaped."""
    group = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{group}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, tooltip: str = "") -> str:
    """Return an SVG rectangle with a tooltip."""
    title_markup = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return (
        f'<rect x="{x:.4g}" y="{y:.4g}" width="{max(width, 0.5):.4g}" height="{max(height, 0.5):.4g}" class="{kind}">{title_markup}</rect>'
    )


def line(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Return an SVG line through points, nothing for fewer than two."""
    return f'<path class="{kind}" d="M{"L".join(f"{x:.4g} {y:.4g}" for x, y in points)}"></path>' if len(points) > 1 else ""


def short_label(name: str, most: int = MAX_LABEL) -> str:
    """Return a label cut to so many characters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def ticks(end: float) -> list[float]:
    """Return the places of an axis from 0 to `end` that have a number: steps of 1, 2 or 5 times a power of ten, at most TICKS.

    >>> ticks(36_391)
    [0.0, 10000.0, 20000.0, 30000.0]
    """
    if not end > 0:
        return [0.0]
    decade = 10.0 ** math.floor(math.log10(end / TICKS))
    step = next(decade * factor for factor in (1, 2, 5, 10, 20) if end / (decade * factor) < TICKS)
    return [n * step for n in range(int(end / step) + 1)]


def stacked_bars(title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]]) -> str:
    """Return a stacked bar chart: a row of parts (class, size, tooltip) for each label, all rows to one scale."""
    largest = max((sum(size for _, size, _ in parts) for _, parts in rows), default=0) or 1
    room = WIDTH - LEFT - 90
    body = []
    for n, (label, parts) in enumerate(rows):
        y, x = n * LINE, float(LEFT)
        body.append(svg_text(0, y + 15, short_label(label)))
        for kind, size, tooltip in parts:
            body.append(box(x, y + 3, size / largest * room, LINE - 6, kind, f"{label}: {tooltip}") if size else "")
            x += size / largest * room
        body.append(svg_text(x + 4, y + 15, f"{sum(size for _, size, _ in parts):,.0f}", "s"))
    return chart(title, WIDTH, max(1, len(rows)) * LINE, "".join(body))


def error_profile(title: str, rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    """Return errors along the network on a logarithmic scale: a bar for each offload's own, a line for the cumulative ones.

    Rows are (name, own relative error, relative error of all offloads up to it); None is left out.
    """
    top, plot_height, margin = 10, 150, 52
    errors = [e for _, error, cumulative in rows for e in (error, cumulative) if e is not None and math.isfinite(e)]
    top_decade = max(0, math.ceil(math.log10(max([*errors, MIN_ERROR]))))
    decades = range(math.floor(math.log10(MIN_ERROR)), top_decade + 1)

    def height(e: float) -> float:
        clipped = min(max(e, MIN_ERROR), 10.0**top_decade)
        return top + plot_height - (math.log10(clipped) - decades[0]) / (decades[-1] - decades[0]) * plot_height

    step = (WIDTH - margin) / max(1, len(rows))
    characters = int(step / LETTER)
    foot = top + plot_height + (LINE if characters >= MIN_LABEL else 6)
    body = [
        line([(margin, height(10.0**d)), (WIDTH, height(10.0**d))], "grid") + svg_text(0, height(10.0**d) + 4, _power(d), "s")
        for d in decades
    ]
    for n, (name, error, cumulative) in enumerate(rows):
        if error is not None:
            tooltip = f"{name}: {100 * error:.3g}%" + ("" if cumulative is None else f", all up to here {100 * cumulative:.3g}%")
            body.append(box(margin + n * step + 0.1 * step, height(error), 0.8 * step, top + plot_height - height(error), "p0", tooltip))
        if characters >= MIN_LABEL:
            body.append(svg_text(margin + (n + 0.1) * step, foot - 6, short_label(name, characters), "s"))
    middle = [(margin + (n + 0.5) * step, height(cumulative)) for n, (_, _, cumulative) in enumerate(rows) if cumulative is not None]
    return chart(title, WIDTH, foot, "".join([*body, line(middle, "whole")]))


def _power(decade: int) -> str:
    return f"{100 * 10.0**decade:g}%"


def histogram(title: str, first: int, counts: Sequence[int], format_range: tuple[float, float]) -> str:
    """Return a histogram by binade: `counts[i]` values of exponent `first + i`, over the exponents that a format represents.

    Heights are logarithms of counts; bars beyond the format's largest exponent are of another colour.
    """
    low, high = min(first, math.floor(format_range[0])), max(first + len(counts), math.ceil(format_range[1]))
    height, largest_log = 60, math.log1p(max([*counts, 1]))
    width = (high - low) * BIN

    def bars(in_range: bool) -> str:
        segments = []
        for n, count in enumerate(counts):
            e = first + n
            if count and (e <= format_range[1]) is in_range:
                segments.append(
                    f"M{(e - low) * BIN} {height}v-{max(1.0, math.log1p(count) / largest_log * (height - 4)):.3g}h{BIN - 1}V{height}z"
                )
        return "".join(segments)

    format_box = box((format_range[0] - low) * BIN, 0, (format_range[1] - format_range[0]) * BIN, height, "held")
    bar_paths = f'<path class="p0" d="{bars(True) or "M0 0"}"></path><path class="p1" d="{bars(False) or "M0 0"}"></path>'
    ends = svg_text(0, height + 13, f"2^{low}", "s") + svg_text(max(width - 30, 40), height + 13, f"2^{high}", "s")
    return chart(title, max(width, 80), height + 16, format_box + bar_paths + ends)


def growth_curve(title: str, sizes: Sequence[int]) -> str:
    """Return a line chart of a size by round."""
    height, margin, largest = 110, 10, max([*sizes, 1])
    step = min(90.0, (WIDTH - 2 * margin - 60) / max(1, len(sizes) - 1))
    points = [(margin + n * step, 24 + height * (1 - size / largest)) for n, size in enumerate(sizes)]
    marks = [box(x - 2, y - 2, 4, 4, "p0", f"round {n}: {s:,}") for n, ((x, y), s) in enumerate(zip(points, sizes, strict=True))]
    labels = [svg_text(x + 4, y - 4, f"{s:,}", "s") for (x, y), s in zip(points, sizes, strict=True)] if len(sizes) <= 12 else []
    rounds = [svg_text(x - 3, height + 42, str(n), "s") for n, (x, _) in enumerate(points) if len(sizes) <= 12 or n in (0, len(sizes) - 1)]
    width = int(margin + step * max(1, len(sizes) - 1) + 80)
    return chart(title, width, height + 48, "".join([line(points, "whole"), *marks, *labels, *rounds]))


def interval_chart(title: str, rows: Sequence[tuple[str, float | None, tuple[float, float] | None]]) -> str:
    """Return a chart of differences: a row for each label with a mark at its value and a bar over its interval, a line at 0."""
    ends: list[float] = [0.0]
    for _, value, interval in rows:
        ends += [x for x in (value, *(interval or ())) if x is not None and math.isfinite(x)]
    low, high = min(ends), max(ends)
    scale = (WIDTH - LEFT - 20) / ((high - low) or 1)

    def place(x: float) -> float:
        return LEFT + 10 + (min(max(x, low), high) - low) * scale

    body = [line([(place(0.0), 0), (place(0.0), len(rows) * LINE)], "grid")]
    for n, (label, value, interval) in enumerate(rows):
        y = n * LINE
        body.append(svg_text(0, y + 15, short_label(label)))
        if interval is not None:
            width = place(interval[1]) - place(interval[0])
            body.append(box(place(interval[0]), y + 9, width, 4, "held", f"{label}: {interval[0]:.4g} … {interval[1]:.4g}"))
        if value is not None:
            body.append(box(place(value) - 3, y + 6, 6, 10, "p0", f"{label}: {value:+.4g}"))
    foot = len(rows) * LINE + 14
    body += [svg_text(place(low), foot, f"{low:.3g}", "s"), svg_text(place(high) - 40, foot, f"{high:.3g}", "s")]
    return chart(title, WIDTH, foot + 4, "".join(body))


def gantt_chart(title: str, end: float, spans: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    """Return a Gantt chart: a lane for each name with the intervals (start, end) in which it is busy, from 0 to `end`.

    Beside a name stands the share of the time in which it is busy; below is an axis in `unit`.
    """
    share = 44  # room for a share in percent
    room = WIDTH - LEFT - share - 10
    left, scale, bottom = LEFT + share, room / (end or 1), len(spans) * LINE
    body = []
    for place in ticks(end):
        x = left + place * scale
        body.append(line([(x, 0), (x, bottom + 2)], "grid") + svg_text(x - 3, bottom + 15, f"{place:,.10g}", "s"))
    for n, (name, intervals) in enumerate(spans.items()):
        y, busy = n * LINE, sum(b - a for a, b in intervals) / (end or 1)
        body.append(svg_text(0, y + 15, short_label(name)) + svg_text(LEFT, y + 15, f"{100 * busy:.0f}%", "s"))
        body.append(line([(0, y + LINE - 1), (WIDTH, y + LINE - 1)], "grid"))
        path = "".join(
            f"M{left + a * scale:.4g} {y + 3}h{max(0.7, (b - a) * scale):.3g}v{LINE - 6}h-{max(0.7, (b - a) * scale):.3g}z"
            for a, b in intervals
        )
        body.append(f'<path class="p0" d="{path}"></path>')
    body.append(svg_text(0, bottom + 15, unit, "s"))
    return chart(title, WIDTH, bottom + 20, "".join(body))
