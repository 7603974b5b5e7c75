"""Section of the page about cost: bars of the most expensive offloads, sums by operation and by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..graphics.charts import stacked_bars
from ..graphics.markup import figure, folded, legend, note, table, text
from ..terminal import count_text, share

MAX_BARS = 30  # offloads with a bar of their own


def cost_section(plan: Mapping[str, Any]) -> str:
    """Return cycles and bytes of the offloads, and the host operations that rewriting inserted."""
    priced_offloads = [o for o in plan["offloads"] if o.get("cost")]
    unpriced = len(plan["offloads"]) - len(priced_offloads)
    unpriced_note = note(f"{count_text(unpriced, 'offload')} without a cost: their target does not say what they take.") if unpriced else ""
    body = (
        (
            _bars(priced_offloads) + _lanes(priced_offloads) + _operations(priced_offloads) + _bytes(priced_offloads)
            if priced_offloads
            else ""
        )
        + unpriced_note
        + _inserted(plan.get("inserted", ()))
    )
    return folded("Where cycles and bytes go", body, "cost") if body else ""


def _bars(offloads: Sequence[Mapping[str, Any]]) -> str:
    top_offloads = sorted(offloads, key=lambda o: -o["cost"]["cycles"])[:MAX_BARS]
    remaining = len(offloads) - len(top_offloads)
    remaining_note = f" The other {remaining} are in the table of offloads." if remaining else ""
    rows = [
        (o["id"], [("p0", o["cost"]["compute_cycles"], f"{o['cost']['compute_cycles']:,} cycles from trigger to interrupt"),
                   ("p1", o["cost"]["transfer_cycles"], f"{o['cost']['transfer_cycles']:,} cycles on the links")])
        for o in top_offloads
    ]  # fmt: skip
    keys = legend([("p0", "compute"), ("p1", "transfers")])
    about = f"<p>{keys}, in cycles; the offloads that take most first.{remaining_note}</p>"
    return f"{about}{stacked_bars('cycles of the offloads that take most, compute and transfers', rows)}"


def _lanes(offloads: Sequence[Mapping[str, Any]]) -> str:
    """Return for the offloads in which transfers and computations overlap what each resource works and waits for."""
    rows = []
    for o in sorted(offloads, key=lambda o: -o["cost"]["cycles"])[:MAX_BARS]:
        for n, lane in enumerate(o["cost"].get("lanes", ())):
            waits = sorted(lane["waits"].items(), key=lambda item: -item[1])
            names = (o["id"], f"{o['cost']['cycles']:,}", f"{o['cost']['hidden_cycles']:,}") if n == 0 else ("", "", "")
            wait_text = ", ".join(f"{reason} ({cycles:,})" for reason, cycles in waits)
            rows.append(
                (text(names[0]), figure(names[1]), figure(names[2]), text(lane["resource"]), figure(f"{lane['busy']:,}"), text(wait_text))
            )
    heads = ("offload", "cycles", "hidden", "unit or link", "works", "waits for, in cycles of the first calls")
    return table("what each unit and link works and waits for", heads, rows) if rows else ""


def _operations(offloads: Sequence[Mapping[str, Any]]) -> str:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for o in offloads:
        groups.setdefault(f"{o['target']}.{o['operation']}", []).append(o)
    total_cycles = sum(o["cost"]["cycles"] for o in offloads)
    rows = []
    for name, members in groups.items():
        total = {
            key: sum(o["cost"][key] for o in members) for key in ("cycles", "transfer_cycles", "bytes", "nanoseconds", "host_nanoseconds")
        }
        bound = Counter(o["cost"]["bound"] for o in members)
        rows.append((
            text(name), figure(str(len(members))), figure(f"{total['cycles']:,}"), figure(share(total["cycles"], total_cycles)),
            figure(share(total["transfer_cycles"], total["cycles"])), figure(f"{total['bytes']:,}"),
            figure(f"{total['nanoseconds'] / 1000:,.1f}"), figure(f"{total['host_nanoseconds'] / 1000:,.1f}"),
            text(", ".join(f"{n} {kind}" for kind, n in bound.items())),
        ))  # fmt: skip
    heads = ("operation", "offloads", "cycles", "share", "of them transfers", "bytes", "µs", "µs on the host", "bound by")
    estimate_note = (
        " (estimated from units and links where a target has no measured cycles)" if any(o["cost"]["estimated"] for o in offloads) else ""
    )
    return table(f"cycles by operation{estimate_note}", heads, rows)


def _bytes(offloads: Sequence[Mapping[str, Any]]) -> str:
    traffic: Counter[tuple[str, str]] = Counter()
    for o in offloads:
        traffic.update({(f"{o['target']}.{o['operation']}", name): size for name, size in o["cost"]["traffic"].items()})
    total_bytes = sum(traffic.values())
    rows = [
        (text(operation), text(name), figure(f"{size:,}"), figure(share(size, total_bytes)))
        for (operation, name), size in traffic.most_common()
    ]
    by_tensor = table("bytes over the links by tensor; commands are the instructions", ("operation", "tensor", "bytes", "share"), rows)
    links: Counter[str] = Counter()
    for o in offloads:
        links.update(o["cost"].get("links", {}))
    link_rows = [(text(name), figure(f"{size:,}"), figure(share(size, total_bytes))) for name, size in links.most_common()]
    return by_tensor + (table("bytes by link", ("link", "bytes", "share"), link_rows) if link_rows else "")


def _inserted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the host operations that rewriting brought in, by operator."""
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(row["op"], []).append(row["bytes"])
    operator_rows = [(text(op), figure(str(len(sizes))), figure(f"{sum(sizes):,}")) for op, sizes in groups.items()]
    caption = "host operations that no node of the model asked for, and what they write"
    return table(caption, ("operator", "times", "bytes"), operator_rows) if operator_rows else ""
