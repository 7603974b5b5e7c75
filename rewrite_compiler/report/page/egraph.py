"""Views of the neighbourhood of an e-class: lines of text, an interactive page, and a graph for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..graphics.architecture import quoted
from ..graphics.graph import Box, Graph, Place
from ..terminal import count_text
from .html import drawing_page

CUT_PLACE, KEPT_PLACE, CHOSEN = (
    Place.ABSORBED,
    Place.HOST,
    "chosen",
)  # the page draws cut classes like absorbed nodes, others like host nodes
MAX_ATTRIBUTES = 60  # characters
Row = Mapping[str, Any]


def egraph_lines(document: Row) -> Iterator[str]:
    """Yield every shown e-class with its e-nodes and the rules that made them, then how many classes beside them are cut off."""
    yield f"{document['model']['path'].rsplit('/', 1)[-1]}  {summary(document)}"
    for row in document["shown"]:
        yield f"{_name(row)}  {_description(row)}"
        for node in row["e_nodes"]:
            yield f"  {'*' if node['chosen'] else ' '} {e_node_text(node)}  {origin_text(node)}"
    if document["cut"]:
        cut_e_nodes = sum(len(row["e_nodes"]) for row in document["cut"])
        classes, nodes = _classes(len(document["cut"])), count_text(cut_e_nodes, "e-node")
        yield f"cut       {classes} with {nodes} beside them: {', '.join(map(_name, document['cut']))}"


def summary(document: Row) -> str:
    """Return why saturation stopped, the size of the e-graph, and how many of its classes are shown."""
    stop = document["stop"]["reason"]
    size = f"{document['e_nodes']:,} e-nodes in {_classes(document['e_classes'])}"
    selection = f"{len(document['shown']):,} within {count_text(document['steps'], 'step')} of {document['around']}"
    return f"{stop} after {count_text(document['rounds'], 'round')} · {size} · {selection}"


def _classes(n: int) -> str:
    return f"{n:,} e-class{'' if n == 1 else 'es'}"


def e_node_text(node: Row) -> str:
    """Return an e-node as text: its operator on e-classes, with its attributes."""
    attributes = ", ".join(map(str, node["attributes"]))
    short_attributes = attributes if len(attributes) <= MAX_ATTRIBUTES else f"{attributes[: MAX_ATTRIBUTES - 1]}…"
    return f"{node['op']}({', '.join(f'e{c}' for c in node['operands'])}){f' [{short_attributes}]' if short_attributes else ''}"


def origin_text(node: Row) -> str:
    """Return the rule that made an e-node and the rule's line, or `program`."""
    return f"{node['rule']} ({node['at']})" if node["rule"] else "program"


def egraph_page(document: Row) -> str:
    """Return one self-contained page: e-classes as boxes, their e-nodes beside them at a click; cut ones are boxes, too."""
    name = document["model"]["path"].rsplit("/", 1)[-1]
    return drawing_page(f"{name}: e-classes around {document['around']}", summary(document), graph_of(document), "e-classes")


def graph_of(document: Row) -> Graph:
    """Return e-classes as boxes, and an edge from each class to those whose e-nodes have it as an operand."""
    rows = [*document["shown"], *document["cut"]]
    number = {row["e_class"]: n for n, row in enumerate(rows)}
    edges = {(number[c], number[row["e_class"]]) for row in rows for n in row["e_nodes"] for c in n["operands"] if c in number}
    cut_classes = {row["e_class"] for row in document["cut"]}
    return Graph(tuple(_box(row, row["e_class"] in cut_classes) for row in rows), tuple(sorted((a, b) for a, b in edges if a != b)))


def _box(row: Row, is_cut: bool) -> Box:
    nodes = [("chosen" if n["chosen"] else "e-node", f"{e_node_text(n)} — {origin_text(n)}") for n in row["e_nodes"]]
    target = CHOSEN if any(n["chosen"] for n in row["e_nodes"]) and not is_cut else ""
    title = f"{'cut: ' if is_cut else ''}{_operators(row)}"
    return Box(
        f"{_name(row)} {', '.join(row['values'])}".rstrip(), title, CUT_PLACE if is_cut else KEPT_PLACE, target, tuple(nodes), row["type"]
    )


def _operators(row: Row) -> str:
    return " | ".join(dict.fromkeys(n["op"] for n in row["e_nodes"])) or "nothing"


def _name(row: Row) -> str:
    return f"e{row['e_class']}"


def _description(row: Row) -> str:
    constant_note = " · known when compiling" if row["known"] else ""
    return f"{row['type']}{' · ' if row['values'] else ''}{', '.join(row['values'])}{constant_note}"


def egraph_dot(document: Row) -> str:
    """Return the neighbourhood for Graphviz: a cluster for each e-class, a box for each e-node, an arrow to each operand."""
    rows: Sequence[Row] = [*document["shown"], *document["cut"]]
    cut_classes = {row["e_class"] for row in document["cut"]}
    first = {row["e_class"]: f"n{row['e_class']}_0" for row in rows if row["e_nodes"]}
    text = [f"digraph {quoted(document['around'])} {{", "  compound=true;", "  node [shape=box];"]
    for row in rows:
        text.extend(_frame(row, row["e_class"] in cut_classes))
    for row in rows:
        text.extend(_arrows(row, first))
    return "\n".join([*text, "}", ""])


def _frame(row: Row, is_cut: bool) -> Iterator[str]:
    style = "dotted" if is_cut else "solid"
    yield f"  subgraph cluster_{row['e_class']} {{ style={style}; label={quoted(_name(row), _description(row))};"
    for k, node in enumerate(row["e_nodes"]):
        bold = ", style=bold" if node["chosen"] else ""
        yield f"    n{row['e_class']}_{k} [label={quoted(e_node_text(node), origin_text(node))}{bold}];"
    yield "  }"


def _arrows(row: Row, first: Mapping[int, str]) -> Iterator[str]:
    for k, node in enumerate(row["e_nodes"]):
        for c in (c for c in node["operands"] if c in first):
            yield f"  n{row['e_class']}_{k} -> {first[c]} [lhead=cluster_{c}];"
