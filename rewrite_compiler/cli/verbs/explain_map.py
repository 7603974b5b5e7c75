"""flexmatch explain MAP.json: where tensors live, what decides a layer's time and energy, and which memory or link would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UsageError, did_you_mean
from ...intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, parse_json, read_bytes

if TYPE_CHECKING:
    from ...fit.mappers.explanation import MappedLayer

FILE = FileBound("a document of mappings", MAX_DOCUMENT_BYTES, "map the layers again")
MAPPINGS = "flexmatch.map/1"
NOTICEABLE = 0.005  # share that a change saves
MOST_SHARES = 5  # of the energy that a line names


def mappings_in(path: Path) -> Mapping[str, Any] | None:
    """Return the document of a file if `flexmatch map` wrote it, None of any other file."""
    if path.suffix != ".json" or not path.is_file():
        return None
    data = read_bytes(path, FILE)
    if MAPPINGS.encode() not in data:
        return None
    try:
        document = parse_json(data)
    except MalformedText:  # what reads plans says so
        return None
    return document if isinstance(document, Mapping) and document.get("schema") == MAPPINGS else None


def mapping_explanation(document: Mapping[str, Any], path: str, name: str | None, why: str | None) -> tuple[dict[str, Any], list[str]]:
    """Explain the one layer of a document, or that with a name; of several layers say what decides each.

    Raises:
        InputError: the document does not hold legal mappings (F230, F231, F233).
        UsageError: it has no such layer, or the text after --why is no place in it (F203).
    """
    from ...fit.mappers.explanation import explanation, mapped_layers, summary

    try:
        layers = mapped_layers(document)
    except InputError as error:
        raise error.at(path) from None
    layer = layers[0] if name is None else _named(layers, name)
    if name is None and len(layers) > 1:
        if why is not None:
            raise UsageError(
                "F203", f"--why is for one layer, and {path} has {len(layers)}", help=f"name one: {quote(path)} {quote(layers[0].name)}"
            )
        rows = [summary(each) for each in layers]
        return {"layers": rows}, [*_layer_table(rows), f"more       flexmatch explain {quote(path)} {quote(layers[0].name)}"]
    row = explanation(layer, None if why is None else _place(why, layer))
    return {"layers": [row]}, list(_layer_lines(row, path))


def _named(layers: Sequence[MappedLayer], name: str) -> MappedLayer:
    names = [layer.name for layer in layers]
    if name not in names:
        remedy = " ".join(filter(None, (did_you_mean(name, names), f"layers: {', '.join(names[:20])}{' …' if len(names) > 20 else ''}")))  # noqa: PLR2004 -- a line
        raise UsageError("F203", f'the document has no layer "{name}"', help=remedy)
    return layers[names.index(name)]


def _place(text: str, layer: MappedLayer) -> tuple[str, str]:
    level, separator, tensor = text.partition(",")
    if not separator:
        example = f"{layer.clusters.names[-1]},{next(iter(layer.problem.spaces))}"
        raise UsageError("F203", f'--why is LEVEL,TENSOR, not "{text}"', help=f"as in {example}")
    return level, tensor


def _layer_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each layer: its share of all cycles, what decides them, and where most of the energy goes."""
    from ...report.tables import grid

    total = sum(row["repeats"] * row["cycles"] for row in rows)
    heads = ("layer", "times", "cycles", "of all", "decided by", "most energy at")
    cells = [
        (
            row["name"], f"{row['repeats']}", f"{row['cycles']:,}", f"{100 * row['repeats'] * row['cycles'] / total:.1f}%",
            row["limits"][0]["part"], _place_text(row["energy"][0]) if row["energy"] else "–",
        )
        for row in sorted(rows, key=lambda row: -row["repeats"] * row["cycles"])
    ]  # fmt: skip
    return [*grid(heads, cells, heads[1:4], 0), ""]


def _place_text(row: Mapping[str, Any]) -> str:
    return f"{row['at']} {row['tensor']}".strip()


def _layer_lines(row: Mapping[str, Any], path: str) -> Iterator[str]:
    from ...fit.mappers.cause import cause_lines
    from ...report.tables import grid

    energy = "no energy" if row["energy_fj"] is None else f"{row['energy_fj'] / 1e9:,.3f} µJ"
    units = f"{100 * row['utilisation']:.1f}% of the units"
    yield f"{row['name']} on {row['architecture']}: {row['cycles']:,} cycles, {energy}, {units} ({row['model']})"
    yield ""
    heads = ("level", "tensor", "held at a time", "of", "memories", "come in all", "each used")
    yield from grid(heads, [_residence_cells(r) for r in row["residence"]], heads[2:], 0)
    yield ""
    yield from _decision_lines(row)
    yield ""
    columns = ("with", "cycles", "energy", f"{row['objective']} saved")
    yield from grid(columns, [_change_cells(c) for c in row["changes"]], columns[1:], 0)
    yield f"helps      {_advice(row)}"
    if row["energy_fj"] is not None:
        yield "note       an access takes the same energy in a memory of twice the size here; in a real one it takes more"
    if "why" in row:
        yield from ("", *cause_lines(row["why"]))
    else:
        busiest = max((r for r in row["residence"] if r["arrivals"]), key=lambda r: r["arrivals"], default=None)
        if busiest is not None:
            yield f"more       flexmatch explain {quote(path)} --why {busiest['level']},{busiest['tensor']}"


def _residence_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    capacity = "–" if row["capacity"] is None else f"{row['capacity']:,}"
    uses = "–" if row["uses"] is None else f"{row['uses']:,.4g}"
    arrivals = f"{row['arrivals']:,}" if row["arrivals"] else "–"
    return row["level"], row["tensor"], f"{row['tile']:,}", capacity, f"{row['instances']:,}", arrivals, uses


def _decision_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what decides time, from which width on no link does, and where energy goes."""
    first, *others = row["limits"]
    after = ", ".join(f"{other['part']} {other['cycles']:,}" for other in others)
    yield f"time       {first['part']} {first['cycles']:,} cycles decide{f', then {after}' if after else ''}"
    for link in row["widths"]:
        yield f"           {link['link']}: {link['enough']:,} elements a cycle would keep up with the units, it has {link['width']:,}"
    if row["energy"]:
        shares = [f"{100 * e['energy_fj'] / row['energy_fj']:.1f}% {_place_text(e)}" for e in row["energy"][:MOST_SHARES]]
        yield f"energy     {', '.join(shares)}"


def _change_cells(change: Mapping[str, Any]) -> tuple[str, ...]:
    energy = "no energy" if change["energy_fj"] is None else f"{change['energy_fj'] / 1e9:,.3f} µJ"
    return _parameters(change) or "the same sizes", f"{change['cycles']:,}", energy, f"{100 * change['saved']:.1f}%"


def _parameters(change: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={n}" for name, n in change["parameters"].items())


def _advice(row: Mapping[str, Any]) -> str:
    """Return which changes save more than another mapping on the same sizes does, the best first."""
    same, *changes = row["changes"]
    mapping_text = f"another mapping saves {100 * same['saved']:.1f}% with the same sizes; " if same["saved"] > NOTICEABLE else ""
    helpful = sorted((c for c in changes if c["saved"] > same["saved"] + NOTICEABLE), key=lambda c: -c["saved"])
    memories = [_parameters(c) for c in changes if any(name.endswith(".capacity") for name in c["parameters"])]
    useful = [f"{_parameters(c)} saves {100 * c['saved']:.1f}%" for c in helpful]
    if not useful:
        return (
            f"{mapping_text}none of these sizes saves {row['objective']} beyond that"
            if mapping_text
            else f"none of these sizes saves {row['objective']}"
        )
    no_memory = memories and not any(_parameters(c) in memories for c in helpful)
    return f"{mapping_text}{', '.join(useful)} of the {row['objective']}{'; no larger memory helps' if no_memory else ''}"
