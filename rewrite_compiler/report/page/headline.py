"""The headline of a page: three marked figures with reasons: accuracy, offloaded work, speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

from ..figures import difference_text, interval_text, number, round_outwards
from ..terminal import application_texts, count_text, inaccurate_text, offload_texts, plan_macs, share, uncounted_operators, upper_share


class Mark(StrEnum):
    """The mark of a figure or a line."""

    GOOD = "✓"
    """Nothing to do."""
    LOOK = "!"
    """Something that a reader should look at."""
    BAD = "✗"
    """A loss that is shown, no offload at all, or a device slower than the host."""


GOOD, LOOK, BAD = Mark
CSS_CLASSES = {GOOD: "good", LOOK: "look", BAD: "bad"}
MARK_LABELS = {GOOD: "good", LOOK: "look at this", BAD: "not good"}
NEARLY_ALL = 0.999  # share of the work from which on nearly all is offloaded


@dataclass(frozen=True)
class Tile:
    """One figure: its label, its mark, the figure with a text beside it, and the reasons for the mark."""

    label: str
    mark: Mark
    figure: str
    reasons: tuple[str, ...]
    note: str = ""


def tiles(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> tuple[Tile, Tile, Tile]:
    """Return accuracy, offloaded work and speed of a plan; accuracy needs its co-simulation."""
    return _accuracy(plan, cosim), _offloaded(plan), _speed(plan)


def headline(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> str:
    """Return the tiles as markup."""
    return f"<div class='tiles'>{''.join(map(_tile_markup, tiles(plan, cosim)))}</div>"


def _tile_markup(tile: Tile) -> str:
    kind = CSS_CLASSES[tile.mark]
    mark = f"<span class='mark' role='img' aria-label='{MARK_LABELS[tile.mark]}'>{tile.mark}</span>"
    reasons = "".join(f"<p>{escape(r)}</p>" for r in tile.reasons)
    figure = f"<p class='big'>{escape(tile.figure)} <small>{escape(tile.note)}</small></p>"
    return f"<div class='tile {kind}'><h2>{mark} {escape(tile.label)}</h2>{figure}{reasons}</div>"


def _accuracy(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> Tile:
    if cosim is None:
        reason = (
            "not measured: flexmatch cosim PLAN --data FILE measures it" if plan["offloads"] else "as on the host: nothing is offloaded"
        )
        return Tile("Accuracy", LOOK, "–", (reason,))
    paired = cosim["paired"]
    interval = "" if paired["interval"] is None else interval_text(paired["interval"])
    difference = "" if paired["difference"] is None else f"; difference {difference_text(paired['difference'], paired['interval'])}"
    comparison = (
        f"on the host in float32 {number(cosim['reference']['value'])}{difference}{', 95% interval ' if interval else ''}{interval}"
    )
    basis = f"{cosim['metric']} on {count_text(cosim['samples'], 'sample')}"
    return Tile(
        "Accuracy", _mark(cosim), number(cosim["accelerated"]["value"]), (f"{basis}: {_loss_sentence(cosim)}", comparison), interval
    )


def loss_of(cosim: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the confidence interval of the metric's loss, least first; None without an interval."""
    ends = cosim["paired"]["interval"]
    if ends is None or None in ends:
        return None
    low, high = ends if cosim.get("lower_is_better") else (-ends[1], -ends[0])
    return low, high


def _mark(cosim: Mapping[str, Any]) -> Mark:
    lost = loss_of(cosim)
    if lost is not None and lost[0] > 0:
        return BAD
    return LOOK if lost is None or inaccurate_text(cosim["offloads"]) else GOOD


def _loss_sentence(cosim: Mapping[str, Any]) -> str:
    lost = loss_of(cosim)
    if lost is None:
        return "no interval, so a difference may be chance"
    if lost[0] > 0:
        return f"a loss of at least {round_outwards(lost)[0]} is shown"
    return "a gain is shown" if lost[1] < 0 else f"no loss is shown; it may be up to {round_outwards(lost)[1]}"


def _offloaded(plan: Mapping[str, Any]) -> Tile:
    total, unknown = plan_macs(plan), uncounted_operators(plan)
    offloaded_macs = sum(o["macs"] for o in plan["offloads"])
    mark = BAD if not plan["offloads"] else GOOD if not unknown and offloaded_macs >= NEARLY_ALL * total else LOOK
    texts = offload_texts(plan)
    reasons = tuple(texts) if len(texts) > 1 else tuple(text.partition(" · ")[0] for text in texts)  # a share each, if there are several
    work = f"of at least {total:,} multiply-accumulates; {unknown} not counted" if unknown else f"of {total:,} multiply-accumulates"
    return Tile("Offloaded", mark, upper_share(offloaded_macs, total) if unknown else share(offloaded_macs, total), reasons, work)


def _speed(plan: Mapping[str, Any]) -> Tile:
    costs = [o["cost"] for o in plan["offloads"] if o.get("cost")]
    if not costs:
        reason = "not known: the target does not say what its operations take" if plan["offloads"] else "nothing is offloaded"
        return Tile("Speed", LOOK, "–", (reason,))
    device, host = (sum(c[key] for c in costs) for key in ("nanoseconds", "host_nanoseconds"))
    return Tile(
        "Speed",
        GOOD if device <= host else BAD,
        _ratio_text(host / device) if device else "–",
        (*_speed_sentences(costs, device, host), *application_texts(plan)),
        "one host core",
    )


def _speed_sentences(costs: list[Mapping[str, Any]], device: float, host: float) -> Iterator[str]:
    estimated = ", estimated" if any(c["estimated"] for c in costs) else ""
    faster = "as fast as" if device == host else "faster than" if device < host else "slower than"
    yield f"{faster} one host core for these nodes: {device / 1000:,.1f} µs{estimated}, {host / 1000:,.1f} µs on the host"
    transfer_cycles = sum(c["transfer_cycles"] for c in costs)
    cycles = sum(c["cycles"] for c in costs)
    yield f"{cycles:,} cycles, {share(transfer_cycles, cycles)} of them transfers; {sum(c['bytes'] for c in costs):,} bytes"


def _ratio_text(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2g}×"
