"""Page of a sweep: the difference of every point from the host with its interval, as a drawing and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ..terminal import count_text, number
from .blocks import Block, Drawing, Heading, Paragraph, Rows
from .charts import interval_chart


def sweep_blocks(document: Mapping[str, Any], heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[Block]:
    """Yield the page of a sweep's document; `heads` and `rows` are its table."""
    metric, samples = document["metric"], count_text(document["samples"], "sample")
    yield Heading(1, f"{PurePosixPath(document['model']['path']).stem}: {metric} over {', '.join(a['name'] for a in document['over'])}")
    yield Paragraph(f"{metric} {number(document['reference']['value'])} on the host in float32, on {samples}.")
    points = [(", ".join(map(str, p["at"].values())), p["difference"], _interval(p)) for p in document["points"]]
    better = "less" if document["lower_is_better"] else "more"
    sentence = f"Difference of {metric} from the host at every point, with its paired 95 % interval; {better} is better."
    yield Drawing(interval_chart(f"difference of {metric} from the host", points), sentence)
    yield Rows(heads, rows)


def _interval(point: Mapping[str, Any]) -> tuple[float, float] | None:
    ends = point["interval"]
    return None if ends is None or None in ends else (float(ends[0]), float(ends[1]))
