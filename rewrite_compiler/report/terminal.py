"""Views for the terminal: a plan and a co-simulation as lines of at most 100 columns."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import printable
from ..frontend.site.context import Absorption
from ..study.diagnosis.change_text import Explanation, change_text, culprit_text
from .figures import difference_text, interval_text
from .figures import number as number
from .tables import columns as columns
from .tables import grid

LABEL = 10
OFFERED_PATTERN = re.compile("; offered: ([^;]*)")  # in a reason: what there are mappings for
INACCURATE = 0.25  # relative error of an offload's own results from which on it is named, whatever the metric says
MAX_WORST = 3  # offloads whose error is shown
MAX_UNREAD = 5  # names of nodes that nothing reads
Row = tuple[str, str]


def plan_lines(document: Mapping[str, Any], file_names: Iterable[str] = (), next_command: str = "", *, verbose: bool = False) -> list[str]:
    """Return a plan as text: sizes, saturation, offloads by operation, what stays on the host and why.

    `verbose` adds tables of every offload and of every rule that matched.
    """
    model, egraph = document["model"], document["egraph"]
    stop = egraph["stop"]["reason"] if egraph["stop"]["reason"] == "saturated" else f"stopped: {egraph['stop']['detail']}"
    rows = [
        ("matching", f"{stop} after {count_text(egraph['rounds'], 'round')} · {egraph['e_nodes']:,} e-nodes"),
        *_labelled("plan", offload_texts(document)),
        *_labelled("at run time", runtime_weight_texts(document["offloads"])),
        *_labelled("tiled", tiled_texts(document["offloads"])),
        *_labelled("cost", [*cost_texts(document["offloads"]), *application_texts(document)]),
        *_labelled("not sent", reason_texts(document["host"])),
        *_labelled("offered", offered_texts(document["host"])),
        ("unread", unread_text(document["absorbed"])),
        *(("limited", text) for text in document["limited"]),
        *(("note", text) for text in (*document["notes"], *_check_notes(document.get("run", {})))),
    ]
    title = f"{model['path'].rsplit('/', 1)[-1]}  {count_text(model['ops'], 'op')} · opset {model['opset']}"
    closing_lines = table([("wrote", ", ".join(file_names)), ("next", next_command)])
    return [
        *textwrap.wrap(printable(title), columns()),
        *table(rows),
        *(_offload_and_rule_grids(document) if verbose else ()),
        *closing_lines,
    ]


def unread_text(absorbed: Sequence[Mapping[str, Any]]) -> str:
    """Return how many nodes nothing needs, with the names of the first; empty if every node is needed."""
    names = [a["node"] for a in absorbed if a["by"] == Absorption.UNUSED]
    more = ", …" if len(names) > MAX_UNREAD else ""
    return f"{count_text(len(names), 'node')} left out, whose results nothing reads: {', '.join(names[:MAX_UNREAD])}{more}" if names else ""


def _offload_and_rule_grids(document: Mapping[str, Any]) -> list[str]:
    """Return a plan's offloads and the rules behind them as tables, each after an empty line and before one."""
    grids = [offload_grid(document["offloads"]), rule_grid(document)]
    return [line for lines in grids if lines for line in ("", *lines)] + ([""] if any(grids) else [])


def _check_notes(run: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know of the check of a plan against its model."""
    check = run.get("check", {})
    against, defaults = check.get("against", "model"), check.get("defaults", "")
    sentences = {
        "model": [],
        "imported program": ["the host cannot run the model as it is written; the plan was checked against the program imported from it"],
    }
    return [*sentences.get(against, [against]), *([defaults] if defaults else [])]


def offload_texts(document: Mapping[str, Any]) -> list[str]:
    """Return one line for each target: operations by kind, in all and as written, and their share of the multiply-accumulates."""
    total, unknown = plan_macs(document), uncounted_operators(document)
    texts = []
    for target, counts in document["counts"].items():
        macs = sum(o["macs"] for o in document["offloads"] if o["target"] == target)
        kinds, exact_kinds = _kinds(counts) or "no operation", _kinds(document["exact_counts"][target]) or "none"
        part = (
            f"{upper_share(macs, total)} of at least {total:,} MACs, {unknown} not counted"
            if unknown
            else f"{share(macs, total)} of {total:,} MACs"
        )
        texts.append(f"{kinds} on {target} (as written: {exact_kinds}) · {part}")
    return texts


def plan_macs(document: Mapping[str, Any]) -> int:
    """Return the multiply-accumulates of a plan: those offloaded, and those on the host as far as they are known."""
    return int(sum(o["macs"] for o in document["offloads"]) + document["extraction"]["cost"]["host_macs"])


def uncounted_operators(document: Mapping[str, Any]) -> str:
    """Return the operators on the host whose multiply-accumulates are not known, comma-separated; empty without any."""
    names = set(document.get("uncounted", ()))
    return ", ".join(sorted({h["op"] for h in document["host"] if h["node"] in names}))


def upper_share(part: float, whole: float) -> str:
    """Return a share as an upper bound, for a total that is only a lower bound."""
    return "less than 100%" if part >= whole else f"at most {share(part, whole)}"


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {operation}" for operation, n in counts.items())


def share(part: float, whole: float) -> str:
    """Return a percentage, a dash of a total of 0; less than all is never 100.0%."""
    if not whole:
        return "–"
    return f"{100 * part / whole if part >= whole else min(100 * part / whole, 99.9):.1f}%"  # what is not all is not 100.0%


def cost_texts(offloads: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line for each target: the cost of its offloads, and their speed against the same nodes on one host core."""
    return [text for text, _ in cost_comparisons(offloads)]


def application_texts(document: Mapping[str, Any]) -> list[str]:
    """Return one line on the time of the whole application, on one host core and with its offloads on their devices."""
    times = document.get("application")
    if times is None or not document["offloads"]:
        return []
    host, mixed = (times[key] / 1000 for key in ("host_nanoseconds", "nanoseconds"))
    mark = "! slower: " if mixed > host else ""
    return [f"{mark}the whole application takes {mixed:,.1f} µs with its offloads on the device, {host:,.1f} µs on one host core"]


def cost_comparisons(offloads: Iterable[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return for each target the line of `cost_texts`, and whether its offloads take no longer than one host core."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for o in offloads:
        if o.get("cost") is not None:
            groups.setdefault(o["target"], []).append(o["cost"])
    return [(_cost_text(target, costs), _is_gain(costs)) for target, costs in groups.items()]


def _is_gain(costs: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether offloads take no longer than the same nodes on one host core."""
    return bool(sum(c["nanoseconds"] - c["host_nanoseconds"] for c in costs) <= 0)


def offload_grid(offloads: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of offloads: shape, calls, and where the cost is known cycles, what bounds them, and bytes."""
    heads = ("offload", "operation", "shape", "calls", "cycles", "bound by", "bytes")
    return grid(heads, [_offload_row(o) for o in offloads], ("calls", "cycles", "bytes"))


def _offload_row(o: Mapping[str, Any]) -> tuple[str, ...]:
    cost = o.get("cost")
    shape = " ".join(f"{d}={n}" for d, n in o["shape"].items())
    identity = (o["id"], f"{o['target']}.{o['operation']}", shape, f"{o['device_calls']:,}")
    if cost is None:
        return (*identity, "–", "–", "–")
    utilisation = "" if cost["utilisation"] is None else f", {100 * cost['utilisation']:.1f}% of {cost['unit']}"
    return (*identity, f"{'~' if cost['estimated'] else ''}{cost['cycles']:,}", f"{cost['bound']}{utilisation}", f"{cost['bytes']:,}")


def _cost_text(target: str, costs: list[Mapping[str, Any]]) -> str:
    total = {key: sum(c[key] for c in costs) for key in ("cycles", "transfer_cycles", "bytes", "nanoseconds", "host_nanoseconds")}
    estimate_note = ", estimated" if any(c["estimated"] for c in costs) else ""
    time, host = (f"{total[key] / 1000:,.1f} µs" for key in ("nanoseconds", "host_nanoseconds"))
    transfer_share = share(total["transfer_cycles"], total["cycles"])
    cycles = f"{total['cycles']:,} cycles on {target}{estimate_note}, {transfer_share} of them transfers"
    speed = _ratio_text(total["host_nanoseconds"] / total["nanoseconds"]) if total["nanoseconds"] else "–"
    return f"{cycles} · {total['bytes']:,} bytes · {time}, {speed} × the speed of one host core for these nodes ({host})"


def _ratio_text(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def runtime_weight_texts(offloads: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line for each operation whose weights are written at run time: offloads, multiply-accumulates, and bytes of weights."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for o in offloads:
        if o.get("runtime_weights"):
            groups.setdefault(f"{o['operation']} on {o['target']}", []).append(o)
    return [f"{len(group)} {name} · {_runtime_weight_amount(group)}" for name, group in groups.items()]


def _runtime_weight_amount(group: Sequence[Mapping[str, Any]]) -> str:
    """Return the work of offloads and the bytes of the weights that their calls write."""
    macs = f"{sum(o['macs'] for o in group):,} MACs"
    costs = [(o["cost"]["traffic"], o["runtime_weights"]) for o in group if o["cost"] is not None]
    written_bytes = sum(traffic.get(name, 0) for traffic, names in costs for name in names)
    return f"{macs}, their weights written at run time" + (f" ({written_bytes:,} bytes)" if costs else "")


def tiled_texts(offloads: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the offloads that need several calls, those tiled alike together: their sizes, and the largest tile."""
    groups: dict[str, list[str]] = {}
    for o in offloads:
        split = {d: n for d, n in o["shape"].items() if o["tiles"].get(d, n) < n}
        if o["device_calls"] > 1:
            sizes = ", ".join(f"{d}={n}" for d, n in split.items())
            tiles = ", ".join(f"{d}={o['tiles'][d]}" for d in split)
            groups.setdefault(f"into {o['device_calls']:,} calls: {sizes}; one call takes {tiles}", []).append(o["id"])
    return [f"{ids[0]}{f' and {len(ids) - 1} more, each' if len(ids) > 1 else ''} {text}" for text, ids in groups.items()]


def reason_texts(host: Iterable[Mapping[str, str]]) -> list[str]:
    """Return why nodes stay on the host, equal reasons together, the most frequent first."""
    groups = Counter((h["op"], OFFERED_PATTERN.sub("", h["why_not"])) for h in host)
    return [f"{n} {op}: {reason}" for (op, reason), n in sorted(groups.items(), key=lambda item: (-item[1], item[0]))]


def offered_texts(host: Iterable[Mapping[str, str]]) -> list[str]:
    """Return what the targets offer to operators that none of them has an operation for, each text once."""
    return list(dict.fromkeys(match[1] for h in host if (match := OFFERED_PATTERN.search(h["why_not"])) is not None))


def rule_grid(document: Mapping[str, Any]) -> list[str]:
    """Return a table of the rules that matched: place, grade, matches, new e-nodes, seconds, offloads derived with them."""
    offload_counts = {name: (grade, n) for (name, _, grade), n in rule_table(document["offloads"]).items()}
    seconds = document.get("run", {}).get("rule_seconds", {})
    rows = [_rule_row(f, *offload_counts.get(f["rule"], ("–", 0)), seconds.get(f["rule"])) for f in document["egraph"].get("fired", ())]
    figures = ("matches", "new nodes", "seconds", "offloads")
    return grid(("rule", "written at", "grade", *figures), sorted(rows, key=_enabled_first), figures)


def _rule_row(fired: Mapping[str, Any], grade: str, offloads: int, seconds: float | None) -> tuple[str, ...]:
    new_nodes = fired.get("new_nodes")
    counts = (
        f"{fired['matches']:,}",
        "–" if new_nodes is None else f"{new_nodes:,}",
        "–" if seconds is None else f"{seconds:.3f}",
        f"{offloads:,}",
    )
    return (fired["rule"], fired["at"], grade, *counts)


def _enabled_first(row: Sequence[str]) -> tuple[int, int, str]:
    return (-int(row[-1].replace(",", "")), -int(row[3].replace(",", "")), row[0])


def rule_table(offloads: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], int]:
    """Return how many offloads each rule (name, place, grade) has a part in deriving, the most frequent first."""
    counts = Counter((r["rule"], r["at"], r["grade"]) for o in offloads for r in o["because"])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def count_text(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _labelled(label: str, texts: Iterable[str]) -> list[Row]:
    return [(label if n == 0 else "", text) for n, text in enumerate(texts)]


def table(rows: Iterable[Row]) -> list[str]:
    """Return (label, text) rows as aligned lines, without empty ones, wrapped under the text; a long label is a line of its own."""
    visible_rows = [(printable(label), printable(text, len(text) * 10)) for label, text in rows if text]
    pad = max([LABEL, *(len(label) + 2 for label, _ in visible_rows if len(label) < columns() // 2)])
    width = columns() - pad
    lines = []
    for label, text in visible_rows:
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False, drop_whitespace=False) if len(text) > width else [text]
        is_long = len(label) + 2 > pad
        lines += [label] if is_long else []
        lines += [f"{'' if is_long else label:<{pad}}{wrapped[0].rstrip()}", *(" " * pad + line.strip() for line in wrapped[1:])]
    return lines


def _audit_text(document: Mapping[str, Any]) -> str:
    """Return how much was computed again in other ways, and for which offloads driver and numerics are proved to agree."""
    offloads, codes = document["offloads"], document["simulator"]["audited"]
    fewest_samples = min((o["validated_samples"] for o in offloads), default=0)
    proved = sum(bool(o["certified"]) for o in offloads)
    driver_text = (
        f"{count_text(fewest_samples, 'sample')} of each offload computed again by its driver on the simulator" if fewest_samples else ""
    )
    code_text = f"{count_text(codes, 'code')} by oracle and plain numerics" if codes else ""
    return (
        "; ".join(x for x in (driver_text, code_text, f"{proved} of {len(offloads)} proved at these parameters") if x) if offloads else ""
    )


def _fallback_text(run: Mapping[str, Any]) -> str:
    """Return which offloads took the processor's time without machine code of numerics."""
    slow = run.get("fallbacks", ())
    names = ", ".join(f"{f['offload']} {f['cpu_seconds']:.1f} s" for f in sorted(slow, key=lambda f: -float(f["cpu_seconds"]))[:MAX_WORST])
    return f"{count_text(len(slow), 'offload')} without machine code of numerics, of the processor: {names}" if slow else ""


def cosim_lines(document: Mapping[str, Any], next_command: str = "", *, verbose: bool = False) -> list[str]:
    """Return a co-simulation as text: the metric on both sides, the difference, the worst offloads.

    `verbose` adds a table of every offload's errors.
    """
    reference, accelerated, metric = document["reference"]["value"], document["accelerated"]["value"], document["metric"]
    run, simulator = document["run"], document["simulator"]
    resumed = run.get("resumed_samples", 0)
    targets = ", ".join(document["targets"]) or "host"
    instructions = count_text(simulator["instructions"], "instruction")
    speed = f"{simulator['engine']} · {simulator['tier']} · {instructions} · {run['wall_seconds']:.1f} s"
    rows = [
        ("host", "" if reference is None else f"{metric} {number(reference)}  (float32, onnxruntime)"),
        (targets, f"{metric} {number(accelerated)}{change(document['paired'])}"),
        ("samples", f"{document['samples']}" + _agreement(document)),
        ("simulator", speed),
        ("audited", _audit_text(document)),
        ("slow", _fallback_text(run)),
        *_labelled("worst", worst_texts(document)),
        ("far off", inaccurate_text(document["offloads"])),
        ("diverges", diverging_text(document)),
        *_labelled("loss from", attribution_texts(document.get("attribution"))),
        ("resumed", f"{resumed} of these samples are from the log of an interrupted run" if resumed else ""),
        *(("warning", text) for text in document.get("warnings", ())),
        *(("note", text) for text in document["notes"]),
        ("next", next_command),
    ]
    return [*table(rows), *(error_grid(document["offloads"]) if verbose else ())]


def error_grid(offloads: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of offloads: own relative error, cumulative relative error, share of saturated outputs."""
    keys = ("relative_error", "cumulative_error", "saturated")
    rows = [(o["id"], *("–" if o.get(key) is None else f"{100 * o[key]:.3g}%" for key in keys)) for o in offloads]
    return grid(("offload", "error", "up to here", "saturated"), rows, ("error", "up to here", "saturated"))


def attribution_texts(attribution: Mapping[str, Any] | None) -> list[str]:
    """Return the offloads that cause most of the loss, and the changes of formats that recover most of it."""
    if attribution is None:
        return []
    device_trial = attribution["accelerated"]
    texts = [
        f"{o['id']}: alone {_loss_text(o['alone'])}" + ("" if o["restored"] is None else f"; all but it {_loss_text(o['restored'])}")
        for o in attribution["offloads"][:MAX_WORST]
    ]
    changes = [
        f"{change_text(c)} leaves {_loss_text(c)}" for c in (*attribution.get("terms", ())[:MAX_WORST], *attribution["fields"][:MAX_WORST])
    ]
    changes += [watch_text(row) for row in attribution.get("intermediates", ()) if row["outside"]][:MAX_WORST]
    label = "culprit: " if attribution["culprit"] or attribution.get("either") else ""
    answer = f"{label}{culprit_text(attribution)}"
    if attribution["explanation"] == Explanation.CALIBRATION:
        left = _loss_text(attribution["recalibrated"])
        answer += f": those that calibration on these chooses leave {left}; calibrate on samples like these"
    return [f"on {attribution['samples']} samples all offloads together: {_loss_text(device_trial)}", *texts, *changes, answer]


def watch_text(row: Mapping[str, Any]) -> str:
    """Return what an intermediate of an offload's numerics does on data: how many of its values leave their word."""
    word, ends = (" … ".join("–" if end is None else f"{end:,}" for end in row[key]) for key in ("word", "range"))
    where = f"{row['kind']} at {row['place']}, {row['term']}, of {row['offload']}"
    return f"{where}: {row['outside']:,} of {row['count']:,} leave {word}; range {ends}"


def _loss_text(trial: Mapping[str, Any]) -> str:
    """Return what a run loses of the metric, and the relative error of its outputs."""
    return f"loss {number(trial['loss'])}, output error {100 * (trial['output_error'] or 0):.2g}%"


def inaccurate_text(offloads: Iterable[Mapping[str, Any]]) -> str:
    """Return the offloads with a relative error above FAR on these samples, worst first; empty without any."""
    errors = {o["id"]: o["relative_error"] for o in offloads if (o.get("relative_error") or 0) > INACCURATE}
    error_texts = [f"{key} {100 * errors[key]:.3g}%" for key in sorted(errors, key=lambda key: -errors[key])]
    if not error_texts:
        return ""
    remaining_text = f" and {len(error_texts) - MAX_WORST} more" if len(error_texts) > MAX_WORST else ""
    worst = ", ".join(error_texts[:MAX_WORST])
    return f"{count_text(len(error_texts), 'offload')} by more than {INACCURATE:.0%} of the exact result: {worst}{remaining_text}"


def diverging_text(document: Mapping[str, Any]) -> str:
    """Return the first offload whose cumulative error exceeds the threshold; empty without one."""
    first = document.get("first_diverging")
    if first is None:
        return ""
    error, threshold = (100 * first[key] for key in ("relative_error", "threshold"))
    return f"{first['offload']} is the first offload {error:.1f}% away from the float32 run (more than {threshold:g}%)"


def change(paired: Mapping[str, Any]) -> str:
    """Return the difference of accelerator and host in parentheses with its interval; empty without one."""
    if paired["difference"] is None:
        return ""
    reason = paired.get("method", "")
    interval = f", no interval: {reason}" if reason else ""
    if paired["interval"] is not None:
        interval = f", 95% interval {interval_text(paired['interval'])}"
    return f"  ({difference_text(paired['difference'], paired['interval'])}{interval})"


def worst_texts(document: Mapping[str, Any]) -> list[str]:
    """Return the offloads with the largest relative errors, and on how many of the samples they are measured where not on all."""
    count = document["compared_samples"]
    by_error = sorted((o for o in document["offloads"] if o["relative_error"] is not None), key=lambda o: -o["relative_error"])
    texts = [f"{o['id']}: relative error {100 * o['relative_error']:.1f}%{_saturation_text(o)}" for o in by_error[:MAX_WORST]]
    return [*texts, f"measured on the first {count_text(count, 'sample')}"] if texts and count < document["samples"] else texts


def _saturation_text(o: Mapping[str, Any]) -> str:
    return f" · {100 * o['saturated']:.2g}% of outputs saturated" if o["saturated"] else ""


def _agreement(document: Mapping[str, Any]) -> str:
    agreement = document["paired"].get("same_predictions")
    text = "" if agreement is None else f" · {100 * agreement:.1f}% same predictions"
    return text + _significance_text(document["paired"])


def _significance_text(paired: Mapping[str, Any]) -> str:
    """Return how many samples got better and worse, and how likely that is by chance."""
    test = paired.get("mcnemar")
    if test is None or not paired["better"] + paired["worse"]:
        return ""
    return f" · {paired['better']} better, {paired['worse']} worse (McNemar p = {number(test['p_value'])})"
